"""Delay laws: how many rounds late a reward arrives. Each delay is made from one uniform in [0, 1).

A delay of 0 means that the reward arrives before the next decision, as without a delay law.
"""

from __future__ import annotations

import math

import numpy as np

from windvane.arguments import Array, Index, check_number, check_whole
from windvane.environments.fields import LATEST, Record, record, setting

_LARGEST_UNIFORM = 1.0 - 2.0**-53


class DelayLaw(Record):
    """Base class of delay laws; every delay in [``least``, ``most``] is equally likely unless a law overrides ``draw``.

    >>> sorted(DELAYS)
    ['fixed', 'geometric', 'none', 'uniform']
    """

    least: int = 0
    most: int = 0

    def draw(self, u: Array) -> Index:
        """Return delays in rounds: the inverse distribution function at uniforms ``u`` in [0, 1)."""
        return self.least + np.floor(u * (self.most - self.least + 1)).astype(np.int64)


@record("none")
class NoDelay(DelayLaw):
    """Every reward arrives at once, with delay 0.

    >>> NoDelay().draw(np.array([0.3, 0.9])).tolist()
    [0, 0]
    """


@record("fixed")
class FixedDelay(DelayLaw):
    """Every reward arrives the same number of rounds late.

    >>> FixedDelay(4).draw(np.array([0.3, 0.9])).tolist()
    [4, 4]
    """

    rounds: int = setting("The delay.", check_whole, 0, LATEST)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.set_field("least", self.rounds)
        self.set_field("most", self.rounds)


@record("geometric")
class GeometricDelay(DelayLaw):
    """P(delay = k) = p (1 - p)^k for k = 0, 1, ..., with p = 1/(1 + mean), cut off at ``most``.

    >>> GeometricDelay(1.0).draw(np.array([0.3, 0.6, 0.8])).tolist()
    [0, 1, 2]
    """

    mean: float = setting(
        "Mean delay before the cut, in [0, 1e9].", check_number, "in [0, 1e9]", lambda v: 0 <= v <= 1e9
    )
    most: int = setting("The cut. Default: the longest delay from a uniform.", check_whole, 0, LATEST, default=None)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.most is None:
            self.set_field("most", int(self._invert(np.array(_LARGEST_UNIFORM))))

    def _invert(self, u: Array) -> Array:
        """Return the least k with 1 - (1 - p)^{k+1} > u."""
        if self.mean == 0.0:
            return np.zeros_like(u)
        return np.asarray(np.floor(np.log1p(-u) / -math.log1p(1.0 / self.mean)))  # log(1 - p) = -log(1 + 1/mean)

    def draw(self, u: Array) -> Index:
        """Return the inverse distribution function at ``u``."""
        return np.minimum(self._invert(u), self.most).astype(np.int64)


@record("uniform")
class UniformDelay(DelayLaw):
    """Every whole number of rounds in [``least``, ``most``] is equally likely.

    >>> UniformDelay(2, 5).draw(np.array([0.0, 0.5, 0.99])).tolist()
    [2, 4, 5]
    """

    least: int = setting("The smallest delay.", check_whole, 0, LATEST)
    most: int = setting("The largest delay.")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.set_field("most", check_whole("most", self.most, self.least, LATEST))


DELAYS: dict[str, type[DelayLaw]] = {law.kind: law for law in DelayLaw.__subclasses__()}
