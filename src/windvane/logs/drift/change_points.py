"""When theta* changed: penalised segmentation of the rows, with bootstrap intervals for the locations.

Notes
-----
Seeded binary segmentation (Kovács et al. 2023). A segment is fitted, and the rows of each of its cells are replaced by
the quadratic expansion of their log-likelihood at that fit, with score g and information H. In every seeded interval
the best split has the gain (g_l' H_l^-1 g_l + g_r' H_r^-1 g_r - g' H^-1 g) / 2. The intervals with the largest gains
are then fitted exactly. A split is kept if it raises twice the log-likelihood by more than (d + 1) log n, and both
parts are segmented further. At the end each location is moved to the row with the largest likelihood between its
neighbours, and splits that do not pass the same test between them are removed.

The interval of a location is that of the locations whose log-likelihood, with the parameters on both sides fixed, is
within c of the largest one. c is the 95 % quantile, over simulated logs with a change at the estimated location, of the
log-likelihood at the best location minus that at the true one, with parameters that are estimated again in each of them
(Siegmund 1988). Such an interval follows the rows near the change. One of fixed shape, the quantiles of simulated
locations, covered only 92 % in our simulations.

A gradual drift has no change points. The segmentation then approximates it by steps, and the intervals are not
meaningful.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from windvane.arguments import Array, Index
from windvane.logs.drift.logistic_fit import Fit, fit_logistic, log_likelihoods, means, pseudo_inverse, weighted_gram
from windvane.logs.drift.rate import RIDGE
from windvane.logs.drift.replay import divide
from windvane.logs.drift.rows import RewardedRows

CELLS = 400  # candidates for a split; locations are then refined to rows
DECAY = 1.0 / math.sqrt(2.0)  # of the lengths of seeded intervals from layer to layer, as its authors recommend
ROWS_PER_COORDINATE = 10  # of a segment, at least
EXACT = 3  # intervals with the largest gains that are fitted exactly before a segment counts as constant
MOST = 50  # change points: more would be a gradual drift
ROUNDS = 3  # of refinement: each moves a location given its neighbours
RESAMPLES = 199  # of the parametric bootstrap
CONFIDENCE = 0.95
DECIDED = 30.0  # nats: a location where the expected likelihood ratio is e^-30 cannot win in 199 resamples
LARGEST_RESAMPLES = 4e6  # numbers in the likelihood ratios of all resamples of one location: 32 MB, five times


@dataclass(frozen=True, kw_only=True)
class ChangePoint:
    """A change of theta* with a 95 % interval for its location.

    Attributes
    ----------
    row, row_low, row_high : int
        Line or row, in the log, of the first decision after the change.
    decision, decision_low, decision_high : float
        Its number.
    time, time_low, time_high : float
        Its time.
    gain : float
        By how much the change raises twice the log-likelihood; it is kept if this is above (d + 1) log n.
    size, logits : float
        ||theta after - theta before||, and the root mean square of the difference of <x, theta>. Both are too large
        by the noise of the estimates.
    """

    row: int
    row_low: int
    row_high: int
    decision: float
    decision_low: float
    decision_high: float
    time: float
    time_low: float
    time_high: float
    gain: float
    size: float
    logits: float


class _Data(NamedTuple):
    x: Array
    reward: Array
    ridge: float
    fewest: int

    def fit(self, first: int, last: int, start: Array | None = None) -> Fit:
        return fit_logistic(self.x[first:last], self.reward[first:last], ridge=self.ridge, start=start, close=1e-6)


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


def _quadratic(score: Array, information: Array, ridge: float) -> Array:
    """Return g' H^-1 g of stacked scores and informations."""
    d = score.shape[1]
    solved = np.linalg.solve(information + max(ridge, 1e-9) * np.eye(d), score[:, :, None])[:, :, 0]
    return np.asarray((solved * score).sum(axis=1))


def _rank_splits(data: _Data, bounds: Index, theta: Array) -> list[tuple[float, int, int, int]]:
    """Return (gain, first, split, last) of the best split of every seeded interval, largest gain first, in rows."""
    mu = means(data.x[bounds[0] : bounds[-1]] @ theta)
    slope, residual = mu * (1.0 - mu), data.reward[bounds[0] : bounds[-1]] - mu
    d, cells = data.x.shape[1], len(bounds) - 1
    scores, information = np.zeros((cells + 1, d)), np.zeros((cells + 1, d, d))
    for cell in range(cells):
        rows = slice(bounds[cell], bounds[cell + 1])
        inside = slice(bounds[cell] - bounds[0], bounds[cell + 1] - bounds[0])
        scores[cell + 1] = residual[inside] @ data.x[rows]
        information[cell + 1] = weighted_gram(data.x[rows], slope[inside])
    scores, information = np.cumsum(scores, axis=0), np.cumsum(information, axis=0)
    ranked = []
    for first, last in seed_intervals(cells):
        middle = np.arange(first + 1, last)
        middle = middle[
            (bounds[middle] - bounds[first] >= data.fewest) & (bounds[last] - bounds[middle] >= data.fewest)
        ]
        if not len(middle):
            continue
        left = _quadratic(scores[middle] - scores[first], information[middle] - information[first], data.ridge)
        right = _quadratic(scores[last] - scores[middle], information[last] - information[middle], data.ridge)
        whole = _quadratic(
            (scores[last] - scores[first])[None], (information[last] - information[first])[None], data.ridge
        )
        gains = 0.5 * (left + right - whole)
        best = int(gains.argmax())
        ranked.append((float(gains[best]), int(bounds[first]), int(bounds[middle[best]]), int(bounds[last])))
    return sorted(ranked, reverse=True)


def segment(x: Array, reward: Array, L: float) -> list[int]:
    """Return the rows at which a new segment starts, increasing.

    Parameters
    ----------
    x, reward
        Rows [n, d] and rewards in [0, 1].
    L
        A bound on the norms of ``x``.
    """
    n, d = x.shape
    data = _Data(x, reward, RIDGE * L**2, ROWS_PER_COORDINATE * d)
    penalty, edges = (d + 1) * math.log(n), np.concatenate([[0], divide(n, CELLS)])
    splits: list[int] = []
    waiting = [(0, n)]
    while waiting and len(splits) < MOST:
        first, last = waiting.pop(0)
        if last - first < 2 * data.fewest:
            continue
        bounds = np.unique(np.concatenate([[first], edges[(edges > first) & (edges < last)], [last]]))
        pilot = data.fit(first, last)
        for _, start, split, end in _rank_splits(data, bounds, pilot.theta)[:EXACT]:
            if measure_gain(data, start, split, end) > penalty:
                splits.append(split)
                waiting += [(first, split), (split, last)]
                break
    return _refine(data, sorted(splits), penalty)


def measure_gain(data: _Data, first: int, split: int, last: int) -> float:
    """Return by how much a split raises twice the log-likelihood of rows first..last."""
    whole = data.fit(first, last)
    parts = [data.fit(first, split, whole.theta), data.fit(split, last, whole.theta)]
    return 2.0 * (sum(part.log_likelihood for part in parts) - whole.log_likelihood)


def _refine(data: _Data, splits: list[int], penalty: float) -> list[int]:
    """Move splits to the best row between their neighbours, and remove those that are not worth the penalty."""
    n = len(data.reward)
    for _ in range(ROUNDS):
        before = list(splits)
        for i in range(len(splits)):
            first, last = [0, *splits, n][i], [0, *splits, n][i + 2]
            left, right = data.fit(first, splits[i]), data.fit(splits[i], last)
            splits[i] = _locate(data, first, last, left.theta, right.theta)
        while splits:
            ends = [0, *splits, n]
            gains = [measure_gain(data, ends[i], ends[i + 1], ends[i + 2]) for i in range(len(splits))]
            weakest = int(np.argmin(gains))
            if gains[weakest] > penalty:
                break
            splits.pop(weakest)
        if splits == before:
            break
    return splits


def _locate(data: _Data, first: int, last: int, left: Array, right: Array) -> int:
    """Return the best split between ``first`` and ``last`` for these parameters before and after it."""
    x, reward = data.x[first:last], data.reward[first:last]
    ratio = np.cumsum(log_likelihoods(x @ left, reward) - log_likelihoods(x @ right, reward))
    allowed = ratio[data.fewest - 1 : len(ratio) - data.fewest]
    return first + data.fewest + int(allowed.argmax())


# --- intervals --------------------------------------------------------------------------------------------------------


class _Sides(NamedTuple):
    left: Fit
    right: Fit


def _draw_deficits(data: _Data, first: int, split: int, last: int, sides: _Sides, rng: np.random.Generator) -> Array:
    """Return how far the true location is below the best one in simulated logs with this change, in nats, [RESAMPLES].

    The parameters of each resample are estimated by one Newton step from those of the log, on the rows of their side.
    """
    window = _find_window(data, first, split, last, sides)
    thetas, rewards = [], []
    for fit, rows in ((sides.left, slice(first, split)), (sides.right, slice(split, last))):
        # The score of a side, in the rows outside the window, is normal by the central limit theorem.
        inside = slice(max(rows.start, window[0]), min(rows.stop, window[1]))
        mu = means(data.x[inside] @ fit.theta)
        kept = weighted_gram(data.x[inside], mu * (1.0 - mu))
        spare = np.linalg.eigh(fit.information - kept)
        root = spare.eigenvectors * np.sqrt(np.maximum(spare.eigenvalues, 0.0))
        drawn = (rng.random((RESAMPLES, len(mu))) < mu).astype(float)
        score = (drawn - mu) @ data.x[inside] + rng.standard_normal((RESAMPLES, len(root))) @ root.T
        inverse = pseudo_inverse(fit.information + data.ridge * np.eye(len(root)))
        thetas.append(fit.theta + score @ inverse)
        rewards.append(drawn)
    x, reward = data.x[window[0] : window[1]], np.concatenate(rewards, axis=1)
    ratio = log_likelihoods(thetas[0] @ x.T, reward) - log_likelihoods(thetas[1] @ x.T, reward)
    total = np.cumsum(ratio, axis=1)
    return np.asarray(total.max(axis=1) - total[:, split - 1 - window[0]])


def _find_window(data: _Data, first: int, split: int, last: int, sides: _Sides) -> tuple[int, int]:
    """Return the rows around a split outside of which the location of a simulated change can hardly be."""
    ends = []
    widest = int(LARGEST_RESAMPLES / RESAMPLES / 2)
    for truth, other, rows in (
        (sides.left, sides.right, np.arange(split - 1, max(first, split - widest) - 1, -1)),
        (sides.right, sides.left, np.arange(split, min(last, split + widest))),
    ):
        z, alternative = data.x[rows] @ truth.theta, data.x[rows] @ other.theta
        expected = np.cumsum(log_likelihoods(z, means(z)) - log_likelihoods(alternative, means(z)))
        ends.append(int(np.searchsorted(expected, DECIDED)))
    return max(first, split - 1 - ends[0]), min(last, split + 1 + ends[1])


def _invert(data: _Data, first: int, split: int, last: int, sides: _Sides, allowed: float) -> tuple[int, int]:
    """Return the first and the last location whose log-likelihood is within ``allowed`` of that of ``split``."""
    x, reward = data.x[first:last], data.reward[first:last]
    ratio = np.cumsum(log_likelihoods(x @ sides.left.theta, reward) - log_likelihoods(x @ sides.right.theta, reward))
    close = np.flatnonzero(ratio >= ratio[split - 1 - first] - allowed)
    return min(split, first + int(close[0]) + 1), min(last - 1, max(split, first + int(close[-1]) + 1))


def find_change_points(rows: RewardedRows, seed: int) -> tuple[ChangePoint, ...]:
    """Return the change points of the log with intervals by a parametric bootstrap (199 resamples)."""
    data = _Data(rows.x, rows.reward, RIDGE * rows.schema.L**2, ROWS_PER_COORDINATE * rows.dim)
    splits, rng, n = segment(rows.x, rows.reward, rows.schema.L), np.random.default_rng(seed), len(rows)
    ends, points = [0, *splits, n], []
    for i, split in enumerate(splits):
        first, last = ends[i], ends[i + 2]
        sides = _Sides(data.fit(first, split), data.fit(split, last))
        drawn = _draw_deficits(data, first, split, last, sides, rng)
        allowed = float(np.quantile(drawn, CONFIDENCE, method="higher"))
        at = [split, *_invert(data, first, split, last, sides, allowed)]
        places, clock, time = (values[at].tolist() for values in (rows.place, rows.clock, rows.time))
        change = sides.right.theta - sides.left.theta
        points.append(
            ChangePoint(
                row=places[0], row_low=places[1], row_high=places[2],
                decision=clock[0], decision_low=clock[1], decision_high=clock[2],
                time=time[0], time_low=time[1], time_high=time[2],
                gain=measure_gain(data, first, split, last), size=float(np.linalg.norm(change)),
                logits=float(np.sqrt(np.square(rows.x[first:last] @ change).mean())),
            )
        )  # fmt: skip
    return tuple(points)
