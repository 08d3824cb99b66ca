"""The mean of doubly robust scores with its confidence sequence, for one policy or the difference of two."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from windvane.arguments import Array
from windvane.logs.evaluation.intervals import LowerBound
from windvane.logs.evaluation.scores import RowScores

RECENT_PARTS = 20  # the memory of the exponentially weighted mean is 1/20 of the log
SHORTEST_MEMORY = 10.0  # rows


class Interval(NamedTuple):
    """A mean with the ends of its interval, all scaled as the rewards in [0, 1]."""

    value: float
    low: float
    high: float


class Contrast:
    """The running mean of the scores of a signed policy delta, whose mean is in ``[-offset, span - offset]``.

    Parameters
    ----------
    limits
        The truncations of the reward model.
    is_difference
        Whether delta is the difference of two policies, so that the mean is in [-1, 1], rather than one in [0, 1].

    Examples
    --------
    >>> rows = RowScores(np.full((500, 2), 0.5), 0.5, np.zeros(500, dtype=int), np.full(500, 0.5), np.full(500, 0.5))
    >>> contrast = Contrast(np.array([0.0, 2.0]))
    >>> scores = contrast.add(rows, np.full((500, 2), 0.5), np.ones(500))
    >>> contrast.record()
    >>> round(contrast.solve(0.05)[-1].value, 6)
    0.5
    """

    def __init__(self, limits: Array, *, is_difference: bool = False) -> None:
        offset, span = (1.0, 2.0) if is_difference else (0.0, 1.0)
        self.limits, self.total, self.weight = limits, 0.0, 0.0
        self._lower = LowerBound(limits, offset=offset, span=span)
        self._upper = LowerBound(limits, offset=span - offset, span=span)  # of minus the scores
        self._values: list[float] = []

    def add(self, rows: RowScores, delta: Array, weight: Array, minus: Array | float = 0.0) -> Array:
        """Add rows with predictable weights in [0, 1]. Return their scores.

        ``minus`` is subtracted from the scores: the logged rewards, for a difference to the log.
        """
        self._lower.add(rows.truncate(delta, self.limits) - minus, weight)
        self._upper.add(rows.truncate(-delta, self.limits) + minus, weight)
        scores = np.asarray(rows.score(delta) - minus)
        self.total, self.weight = self.total + float(weight @ scores), self.weight + float(weight.sum())
        return scores

    def record(self) -> None:
        """Record a checkpoint: the sums so far."""
        self._values.append(self.total / self.weight if self.weight else math.nan)
        self._lower.record()
        self._upper.record()

    def solve(self, alpha: float) -> list[Interval]:
        """Return the mean at each checkpoint with its interval, at level ``alpha``.

        The value is the mean of the scores with the untruncated reward model. It is clipped to the interval, which
        matters only if a few very large weights dominate the estimate.
        """
        lows, highs = self._lower.solve(alpha), -self._upper.solve(alpha)
        ends = zip(self._values, lows.tolist(), highs.tolist(), strict=True)
        return [Interval(min(max(value, low), max(low, high)), low, high) for value, low, high in ends]


class RecentMean:
    """An exponentially weighted mean with bias correction: sum b^(t-i) x_i / sum b^(t-i).

    Parameters
    ----------
    rows
        The length of the log. The memory 1 / (1 - b) is a twentieth of it.

    Examples
    --------
    >>> mean = RecentMean(200)
    >>> mean.add(np.array([0.0, 1.0]), np.ones(2))
    >>> round(mean.value, 4)
    0.5263
    """

    def __init__(self, rows: int) -> None:
        self._discount = 1.0 - 1.0 / max(rows / RECENT_PARTS, SHORTEST_MEMORY)
        self._total = self._weight = 0.0

    def add(self, scores: Array, weight: Array) -> None:
        """Add the scores of consecutive rows."""
        factors = weight * self._discount ** np.arange(len(scores) - 1, -1, -1)
        fade = self._discount ** len(scores)
        self._total = fade * self._total + float(factors @ scores)
        self._weight = fade * self._weight + float(factors.sum())

    @property
    def value(self) -> float:
        """The mean; NaN before the first row."""
        return self._total / self._weight if self._weight else math.nan


@dataclass
class WeightSums:
    """Sums over the weights of the rows that were evaluated; ``largest_few`` are the largest 1 % of them."""

    threshold: float
    few: int
    rows: int = 0
    counting: int = 0
    clipped: int = 0
    base: float = 0.0
    total: float = 0.0
    squares: float = 0.0
    successes: float = 0.0
    success_squares: float = 0.0
    rewards: float = 0.0
    largest: float = 0.0
    unsupported: float = 0.0
    direct: float = 0.0
    switched: float = 0.0

    def __post_init__(self) -> None:
        self.largest_few = np.zeros(0)

    def add(self, rows: RowScores, pi: Array, weight: Array) -> None:
        """Add rows; ``weight`` is how many decisions of the original traffic a row represents."""
        ratio = rows.weigh(pi)
        w, direct = weight * ratio, np.einsum("nk,nk->n", pi, rows.q)
        self.rows += len(w)
        self.counting += int((w > 0.0).sum())
        self.clipped += int((ratio > self.threshold).sum())
        self.base += float(weight.sum())
        self.total += float(w.sum())
        self.squares += float(np.square(w).sum())
        self.rewards += float(w @ rows.reward)
        self.largest = max(self.largest, float(ratio.max(initial=0.0)))
        if isinstance(rows.least, np.ndarray):  # else the probabilities of the other arms are unknown
            self.unsupported += float(weight @ (pi * (rows.least <= 0.0)).sum(axis=1))
        self.direct += float(weight @ direct)
        residual = rows.reward - rows.q[rows.every, rows.played]
        self.switched += float(weight @ direct + (w * residual)[ratio <= self.threshold].sum())
        some = w[rows.reward == 1.0]
        self.successes += float(some.sum())
        self.success_squares += float(np.square(some).sum())
        merged = np.concatenate([self.largest_few, w])
        self.largest_few = merged if len(merged) <= self.few else np.partition(merged, -self.few)[-self.few :]

    @property
    def effective_sample_size(self) -> float:
        """(sum w)^2 / sum w^2."""
        return self.total**2 / self.squares if self.squares else 0.0

    @property
    def effective_successes(self) -> float:
        """The same over the rows with reward 1."""
        return self.successes**2 / self.success_squares if self.success_squares else 0.0
