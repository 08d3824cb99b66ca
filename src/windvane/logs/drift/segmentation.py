"""Penalised segmentation of the rows of a log: where theta* changes, and which of its coefficients.

Notes
-----
A change at a row, of the coefficients in a set J, adds a coefficient for each of them in the rows from there on. It is
kept if it raises twice the log-likelihood by more than

    (k + 1) log n + 2 log C(d, k),    k = |J|,

k + 1 for the coefficients and the location as in Schwarz's criterion, and the second term for the choice of J among the
sets of its size (Chen and Chen 2008). For all coefficients this is (d + 1) log n. A change of few of many coefficients
is thus found although one of all of them would not be worth its penalty.

The search is seeded binary segmentation (Kovács et al. 2023). A segment is fitted, and the rows of each of its cells
are replaced by the quadratic expansion of their log-likelihood at that fit, with score g and information H. For a split
of a seeded interval into parts l and r, u = g_r - H_r H^-1 g and V = H_l H^-1 H_r are the score and the information of
a change, and twice the gain is u' V^-1 u for all coefficients and u_j^2 / V_jj for one of them. The intervals in which
the best split exceeds its penalty most are then fitted exactly, where J grows by one coefficient at a time. If a split
is kept, both parts are segmented further. At the end each location is moved to the row with the largest likelihood
between its neighbours, and splits that do not pass the same test between them are removed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln

from windvane.arguments import Array, Index
from windvane.logs.drift.logistic_fit import (
    Fit,
    fit_logistic,
    log_likelihoods,
    means,
    pseudo_inverse,
    weighted_gram,
)
from windvane.logs.drift.rate import RIDGE
from windvane.logs.drift.replay import divide

CELLS = 400  # candidates for a split; locations are then refined to rows
DECAY = 1.0 / math.sqrt(2.0)  # of the lengths of seeded intervals from layer to layer, as its authors recommend
ROWS_PER_COORDINATE = 10  # of a segment, at least
INFORMATION = 5.0  # of a change of one coefficient, relative to its largest square: that of about 5 rewards on a side
EXACT = 3  # intervals with the largest gains that are fitted exactly before a segment counts as constant
MOST = 50  # change points: more would be a gradual drift
ROUNDS = 3  # of refinement: each moves a location given its neighbours
CLOSE = 1e-6  # squared Newton decrement of fits


class Change(NamedTuple):
    """A change of the coefficients ``columns`` at ``split``, between the rows ``first`` and ``last``.

    ``fit`` is that of the rows [x, x_J 1(row >= split)], so its last coefficients are the differences. ``gain`` is
    twice the log-likelihood that the change adds, and ``excess`` how much of it is left after the penalty.
    """

    first: int
    split: int
    last: int
    columns: tuple[int, ...]
    fit: Fit
    gain: float
    excess: float

    @property
    def before(self) -> Array:
        """The coefficients before the change."""
        return self.fit.theta[: len(self.fit.theta) - len(self.columns)]

    @property
    def after(self) -> Array:
        """The coefficients after the change."""
        theta = self.before.copy()
        theta[list(self.columns)] += self.fit.theta[len(theta) :]
        return theta


@dataclass(frozen=True)
class Segmenter:
    """The rows [n, d], their rewards in [0, 1], and what fits need: the ridge, and the fewest rows of a segment."""

    x: Array
    reward: Array
    ridge: float
    fewest: int

    @classmethod
    def create(cls, x: Array, reward: Array, L: float) -> Segmenter:
        """Return the segmenter of some rows with norms of at most ``L``."""
        return cls(x, reward, RIDGE * L**2, ROWS_PER_COORDINATE * x.shape[1])

    def price(self, count: int) -> float:
        """Return the penalty of a change of ``count`` coefficients."""
        n, d = self.x.shape
        choices = gammaln(d + 1.0) - gammaln(count + 1.0) - gammaln(d - count + 1.0)
        return float((count + 1.0) * math.log(n) + 2.0 * choices)

    def fit(self, first: int, last: int, start: Array | None = None) -> Fit:
        """Return the fit of rows without a change."""
        return fit_logistic(self.x[first:last], self.reward[first:last], ridge=self.ridge, start=start, close=CLOSE)

    def augment(self, first: int, split: int, last: int, columns: tuple[int, ...]) -> Array:
        """Return the rows with a coefficient for each change of a coefficient, [last - first, d + k]."""
        x = self.x[first:last]
        added = x[:, list(columns)].copy()
        added[: split - first] = 0.0
        return np.concatenate([x, added], axis=1)

    def fit_change(self, first: int, split: int, last: int, columns: tuple[int, ...], whole: Fit) -> Change:
        """Return the change of these coefficients; ``whole`` is the fit without it."""
        start = np.concatenate([whole.theta, np.zeros(len(columns))])
        x, reward = self.augment(first, split, last, columns), self.reward[first:last]
        fit = fit_logistic(x, reward, ridge=self.ridge, start=start, close=CLOSE)
        gain = 2.0 * (fit.log_likelihood - whole.log_likelihood)
        return Change(first, split, last, columns, fit, gain, gain - self.price(len(columns)))

    def fit_sides(self, first: int, split: int, last: int, whole: Fit) -> Change:
        """Return the change of all coefficients: both sides are fitted on their own."""
        left, right = (self.fit(*rows, whole.theta) for rows in ((first, split), (split, last)))
        fit = Fit(
            theta=np.concatenate([left.theta, right.theta - left.theta]),
            log_likelihood=left.log_likelihood + right.log_likelihood,
            information=np.block(
                [[left.information + right.information, right.information], [right.information, right.information]]
            ),
            score=np.concatenate([left.score + right.score, right.score]),
        )
        gain, d = 2.0 * (fit.log_likelihood - whole.log_likelihood), self.x.shape[1]
        return Change(first, split, last, tuple(range(d)), fit, gain, gain - self.price(d))

    def choose_change(self, first: int, split: int, last: int) -> Change:
        """Return the change at ``split`` with the largest excess: of a few coefficients, or of all."""
        whole, d = self.fit(first, last), self.x.shape[1]
        best = self.fit_sides(first, split, last, whole)
        now = self.fit_change(first, split, last, (), whole)
        while len(now.columns) < d - 1:
            gains = self._weigh_columns(now)
            gains[list(now.columns)] = -np.inf
            columns = (*now.columns, int(gains.argmax()))
            following = self.fit_change(first, split, last, tuple(sorted(columns)), whole)
            if now.columns and following.excess <= now.excess:
                break
            now = following
        return now if now.columns and now.excess > best.excess else best

    def _weigh_columns(self, change: Change) -> Array:
        """Return twice the gain of a change of each further coefficient, by its score, [d]."""
        x = self.augment(change.first, change.split, change.last, change.columns)
        later = slice(change.split - change.first, None)
        mu = means(x @ change.fit.theta)
        right, slope = self.x[change.split : change.last], mu[later] * (1.0 - mu[later])
        score = (self.reward[change.split : change.last] - mu[later]) @ right
        crossed = (x[later] * slope[:, None]).T @ right
        inverse = pseudo_inverse(change.fit.information + self.ridge * np.eye(len(change.fit.theta)))
        spread = slope @ np.square(right) - np.einsum("ij,ik,kj->j", crossed, inverse, crossed, optimize=True)
        return np.where(spread > self._fewest_information(), score**2 / np.maximum(spread, 1e-300), 0.0)

    def _fewest_information(self) -> Array:
        return np.asarray(INFORMATION * np.square(self.x).max(axis=0, initial=0.0))

    def rank_splits(self, bounds: Index, theta: Array) -> list[tuple[float, int, int, int]]:
        """Return (excess, first, split, last) of the best split of every seeded interval, largest excess first."""
        mu = means(self.x[bounds[0] : bounds[-1]] @ theta)
        slope, residual = mu * (1.0 - mu), self.reward[bounds[0] : bounds[-1]] - mu
        d, cells = self.x.shape[1], len(bounds) - 1
        scores, information = np.zeros((cells + 1, d)), np.zeros((cells + 1, d, d))
        for cell in range(cells):
            rows = slice(bounds[cell], bounds[cell + 1])
            inside = slice(bounds[cell] - bounds[0], bounds[cell + 1] - bounds[0])
            scores[cell + 1] = residual[inside] @ self.x[rows]
            information[cell + 1] = weighted_gram(self.x[rows], slope[inside])
        scores, information = np.cumsum(scores, axis=0), np.cumsum(information, axis=0)
        prices, least, ranked = (self.price(d), self.price(1)), self._fewest_information(), []
        for first, last in seed_intervals(cells):
            middle = np.arange(first + 1, last)
            is_long = (bounds[middle] - bounds[first] >= self.fewest) & (bounds[last] - bounds[middle] >= self.fewest)
            middle = middle[is_long]
            if not len(middle):
                continue
            whole = information[last] - information[first] + max(self.ridge, 1e-9) * np.eye(d)
            right = information[last] - information[middle]
            pulled = np.linalg.solve(whole, right)  # H^-1 H_r
            u = scores[last] - scores[middle] - (scores[last] - scores[first]) @ pulled
            V = right - right @ pulled
            dense = u * np.linalg.solve(V + max(self.ridge, 1e-9) * np.eye(d), u[:, :, None])[:, :, 0]
            spread = np.einsum("mjj->mj", V)
            single = np.where(spread > least, np.square(u) / np.maximum(spread, 1e-300), 0.0).max(axis=1)
            excess = np.maximum(dense.sum(axis=1) - prices[0], single - prices[1])
            best = int(excess.argmax())
            ranked.append((float(excess[best]), int(bounds[first]), int(bounds[middle[best]]), int(bounds[last])))
        return sorted(ranked, reverse=True)

    def locate(self, change: Change) -> int:
        """Return the best split between the ends of a change, for its coefficients before and after it."""
        x, reward = self.x[change.first : change.last], self.reward[change.first : change.last]
        ratio = np.cumsum(log_likelihoods(x @ change.before, reward) - log_likelihoods(x @ change.after, reward))
        allowed = ratio[self.fewest - 1 : len(ratio) - self.fewest]
        return change.first + self.fewest + int(allowed.argmax())


def seed_intervals(cells: int) -> list[tuple[int, int]]:
    """Return the seeded intervals (first, last) of ``cells`` cells.

    Examples
    --------
    >>> seed_intervals(4)
    [(0, 4), (0, 3), (1, 4), (0, 2), (1, 3), (2, 4)]
    """
    intervals, length = [(0, cells)], float(cells)
    while cells > 2:
        length *= DECAY
        width = max(2, math.ceil(length))
        count = 2 * math.ceil(cells / length) - 1
        starts = np.unique(np.round(np.linspace(0, cells - width, count)).astype(int))
        intervals += [(int(start), int(start) + width) for start in starts]
        if width == 2:
            break
    return list(dict.fromkeys(intervals))


def segment(x: Array, reward: Array, L: float) -> list[Change]:
    """Return the changes, in the order of their rows. Each is between its neighbours.

    Parameters
    ----------
    x, reward
        Rows [n, d] and rewards in [0, 1].
    L
        A bound on the norms of ``x``.
    """
    n, data = len(reward), Segmenter.create(x, reward, L)
    edges = np.concatenate([[0], divide(n, CELLS)])
    splits: list[int] = []
    waiting = [(0, n)]
    while waiting and len(splits) < MOST:
        first, last = waiting.pop(0)
        if last - first < 2 * data.fewest:
            continue
        bounds = np.unique(np.concatenate([[first], edges[(edges > first) & (edges < last)], [last]]))
        pilot = data.fit(first, last)
        for _, start, split, end in data.rank_splits(bounds, pilot.theta)[:EXACT]:
            if data.choose_change(start, split, end).excess > 0.0:
                splits.append(split)
                waiting += [(first, split), (split, last)]
                break
    return _refine(data, sorted(splits))


def _refine(data: Segmenter, splits: list[int]) -> list[Change]:
    """Move splits to the best row between their neighbours, and remove those that are not worth their penalty."""

    def list_changes() -> list[Change]:
        ends = [0, *splits, len(data.reward)]
        return [data.choose_change(ends[i], ends[i + 1], ends[i + 2]) for i in range(len(splits))]

    for _ in range(ROUNDS):
        before = list(splits)
        for i in range(len(splits)):
            ends = [0, *splits, len(data.reward)]
            splits[i] = data.locate(data.choose_change(ends[i], ends[i + 1], ends[i + 2]))
        while splits:
            excesses = [change.excess for change in list_changes()]
            weakest = int(np.argmin(excesses))
            if excesses[weakest] > 0.0:
                break
            splits.pop(weakest)
        if splits == before:
            break
    return list_changes()
