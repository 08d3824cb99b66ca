"""Delay laws: how many rounds late a reward arrives. Each delay is made from one uniform in [0, 1).

A delay of 0 means that the reward arrives before the next decision, as without a delay law.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array, check_whole
from windvane.environments.fields import LATEST, Record, number, whole

Delays = npt.NDArray[np.int64]

_LARGEST_UNIFORM = 1.0 - 2.0**-53


class DelayLaw(Record):
    """Base class of delay laws: frozen dataclasses with a ``kind``; ``most`` is the largest delay.

    Examples
    --------
    >>> sorted(DELAYS)
    ['fixed', 'geometric', 'none', 'uniform']
    """

    most: int

    def draw(self, u: Array) -> Delays:
        """Return delays in rounds, made from uniforms ``u`` in [0, 1)."""
        raise NotImplementedError


@dataclass(frozen=True)
class NoDelay(DelayLaw):
    """Every reward arrives at once, with delay 0.

    Examples
    --------
    >>> NoDelay().draw(np.array([0.3, 0.9])).tolist()
    [0, 0]
    """

    kind: ClassVar[str] = "none"
    most: ClassVar[int] = 0  # type: ignore[misc]

    def draw(self, u: Array) -> Delays:
        """Return zeros."""
        return np.zeros(len(u), dtype=np.int64)


@dataclass(frozen=True)
class FixedDelay(DelayLaw):
    """Every reward arrives the same number of rounds late.

    Parameters
    ----------
    rounds : the delay

    Examples
    --------
    >>> FixedDelay(4).draw(np.array([0.3, 0.9])).tolist()
    [4, 4]
    """

    kind: ClassVar[str] = "fixed"
    checks: ClassVar = {"rounds": whole(0, LATEST)}
    rounds: int

    @property
    def most(self) -> int:  # type: ignore[override]
        """The delay."""
        return self.rounds

    def draw(self, u: Array) -> Delays:
        """Return the delay, as often as there are uniforms."""
        return np.full(len(u), self.rounds, dtype=np.int64)


@dataclass(frozen=True)
class GeometricDelay(DelayLaw):
    """P(delay = k) = p (1 - p)^k for k = 0, 1, ..., with p = 1/(1 + mean), cut off at ``most``.

    Parameters
    ----------
    mean : mean delay before the cut, in [0, 1e9]
    most : longer delays become this one; None is the longest that a uniform of 53 bits can give

    Examples
    --------
    >>> GeometricDelay(1.0).draw(np.array([0.3, 0.6, 0.8])).tolist()
    [0, 1, 2]
    """

    kind: ClassVar[str] = "geometric"
    checks: ClassVar = {"mean": number("in [0, 1e9]", lambda v: 0 <= v <= 1e9)}
    mean: float
    most: int = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        super().__post_init__()
        longest = int(self._invert(np.array(_LARGEST_UNIFORM)))
        self.set_fields(most=longest if self.most is None else check_whole("most", self.most, 0, LATEST))

    def _invert(self, u: Array) -> Array:
        """Return the least k with 1 - (1 - p)^{k+1} > u."""
        if self.mean == 0.0:
            return np.zeros_like(u)
        return np.asarray(np.floor(np.log1p(-u) / -math.log1p(1.0 / self.mean)))  # log(1 - p) = -log(1 + 1/mean)

    def draw(self, u: Array) -> Delays:
        """Return the inverse distribution function at ``u``."""
        return np.minimum(self._invert(u), self.most).astype(np.int64)


@dataclass(frozen=True)
class UniformDelay(DelayLaw):
    """Every whole number of rounds in [``least``, ``most``] is equally likely.

    Parameters
    ----------
    least, most : the smallest and the largest delay

    Examples
    --------
    >>> UniformDelay(2, 5).draw(np.array([0.0, 0.5, 0.99])).tolist()
    [2, 4, 5]
    """

    kind: ClassVar[str] = "uniform"
    least: int
    most: int

    def __post_init__(self) -> None:
        least = check_whole("least", self.least, 0, LATEST)
        self.set_fields(least=least, most=check_whole("most", self.most, least, LATEST))

    def draw(self, u: Array) -> Delays:
        """Return the inverse distribution function at ``u``."""
        return self.least + np.floor(u * (self.most - self.least + 1)).astype(np.int64)


DELAYS: dict[str, type[DelayLaw]] = {law.kind: law for law in (NoDelay, FixedDelay, GeometricDelay, UniformDelay)}
