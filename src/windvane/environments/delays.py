"""Delay laws: how many rounds late a reward arrives. One uniform in [0, 1) makes one delay.

A delay of 0 means that the reward is there before the next decision, as without a delay law.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array, check_number, check_whole
from windvane.environments._fields import LATEST, keep

Delays = npt.NDArray[np.int64]

_LARGEST_UNIFORM = 1.0 - 2.0**-53


class DelayLaw:
    """How late rewards are. Subclasses are frozen dataclasses with a ``kind``; ``most`` is the largest delay."""

    kind: ClassVar[str]
    most: int

    def draw(self, u: Array) -> Delays:
        """Delays in rounds, from uniforms in [0, 1)."""
        raise NotImplementedError


@dataclass(frozen=True)
class NoDelay(DelayLaw):
    """Every reward at once."""

    kind: ClassVar[str] = "none"

    @property
    def most(self) -> int:  # type: ignore[override]
        return 0

    def draw(self, u: Array) -> Delays:
        return np.zeros(len(u), dtype=np.int64)


@dataclass(frozen=True)
class FixedDelay(DelayLaw):
    """Every reward ``rounds`` rounds late."""

    kind: ClassVar[str] = "fixed"
    rounds: int

    def __post_init__(self) -> None:
        keep(self, rounds=check_whole("rounds", self.rounds, 0, LATEST))

    @property
    def most(self) -> int:  # type: ignore[override]
        return self.rounds

    def draw(self, u: Array) -> Delays:
        return np.full(len(u), self.rounds, dtype=np.int64)


@dataclass(frozen=True)
class GeometricDelay(DelayLaw):
    """P(delay = k) = p (1 - p)^k for k = 0, 1, …, of the given mean: p = 1/(1 + mean). Longer ones are cut to ``most``.

    ``most=None`` stands for the longest that a uniform of 53 bits can make.
    """

    kind: ClassVar[str] = "geometric"
    mean: float
    most: int = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        keep(self, mean=check_number("mean", self.mean, "in [0, 1e9]", lambda v: 0 <= v <= 1e9))
        longest = int(self._uncut(np.array(_LARGEST_UNIFORM)))
        keep(self, most=longest if self.most is None else check_whole("most", self.most, 0, LATEST))

    def _uncut(self, u: Array) -> Array:
        """The least k with 1 - (1 - p)^{k+1} > u."""
        if self.mean == 0.0:
            return np.zeros_like(u)
        return np.asarray(np.floor(np.log1p(-u) / -math.log1p(1.0 / self.mean)))  # log(1 - p) = -log(1 + 1/mean)

    def draw(self, u: Array) -> Delays:
        return np.minimum(self._uncut(u), self.most).astype(np.int64)


@dataclass(frozen=True)
class UniformDelay(DelayLaw):
    """Every whole number of rounds in [``least``, ``most``] alike."""

    kind: ClassVar[str] = "uniform"
    least: int
    most: int

    def __post_init__(self) -> None:
        least = check_whole("least", self.least, 0, LATEST)
        keep(self, least=least, most=check_whole("most", self.most, least, LATEST))

    def draw(self, u: Array) -> Delays:
        return self.least + np.floor(u * (self.most - self.least + 1)).astype(np.int64)


DELAYS: dict[str, type[DelayLaw]] = {law.kind: law for law in (NoDelay, FixedDelay, GeometricDelay, UniformDelay)}
