"""When theta* changed: change points of a penalised segmentation, with bootstrap intervals for their locations.

Notes
-----
:mod:`windvane.logs.drift.segmentation` finds the changes. The interval of a location is that of the locations whose
log-likelihood, with the parameters on both sides fixed, is within c of the largest one. c is the 95 % quantile, over
simulated logs with a change at the estimated location, of the log-likelihood at the best location minus that at the
true one, with parameters that are estimated again in each of them (Siegmund 1988). Such an interval follows the rows
near the change. One of fixed shape, the quantiles of simulated locations, covered only 92 % in our simulations.

A gradual drift has no change points. The segmentation then approximates it by steps, and the intervals are not
meaningful. So each change is compared with ramps of the same coefficients between its neighbours: over a quarter and
over half of these rows around the location, and over all of them. It is a *step* if it is 20 m times as likely as each
ramp, where m is the number of these rows: the step has the best of m locations, and for each of them the likelihood
ratio has the mean 1 if the ramp is right (Markov's inequality; both have as many coefficients, which are fitted).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from windvane.arguments import Array
from windvane.logs.drift.logistic_fit import fit_logistic, log_likelihoods, means, pseudo_inverse, weighted_gram
from windvane.logs.drift.rows import RewardedRows
from windvane.logs.drift.segmentation import CLOSE, Change, Segmenter, segment

RESAMPLES = 199  # of the parametric bootstrap
CONFIDENCE = 0.95
DECIDED = 30.0  # nats: a location where the expected likelihood ratio is e^-30 cannot win in 199 resamples
RAMPS = (0.25, 0.5)  # of the rows between the neighbours of a change: a narrower ramp is a step for most purposes
STEP = 20.0  # times the number of locations: the likelihood ratio by which a step must fit better than every ramp
LARGEST_RESAMPLES = 4e6  # numbers in the likelihood ratios of all resamples of one location: 32 MB, five times


@dataclass(frozen=True, kw_only=True)
class CoordinateChange:
    """The change of one coordinate's coefficient.

    ``logits`` is the change times the largest entry of the coordinate: how far the logit moves in rows with this entry.
    """

    name: str
    logits: float


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
        By how much the change raises twice the log-likelihood; it is kept if this is above its penalty.
    coordinates : tuple of CoordinateChange
        The coefficients that change, the largest change first; all of them if the log cannot tell which.
    size, logits : float
        ||theta after - theta before||, and the root mean square of the difference of <x, theta>. Both are too large
        by the noise of the estimates.
    is_step : bool
        Whether the change at once fits clearly better than a gradual one around it.
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
    coordinates: tuple[CoordinateChange, ...]
    size: float
    logits: float
    is_step: bool


def _draw_deficits(data: Segmenter, change: Change, rng: np.random.Generator) -> Array:
    """Return how far the true location is below the best one in simulated logs with this change, in nats, [RESAMPLES].

    The parameters of each resample are estimated by one Newton step from those of the log.
    """
    first, last = _find_window(data, change)
    x = data.augment(first, change.split, last, change.columns)
    mu, d = means(x @ change.fit.theta), data.x.shape[1]
    # The score of the rows outside the window is normal by the central limit theorem.
    spare = np.linalg.eigh(change.fit.information - weighted_gram(x, mu * (1.0 - mu)))
    root = spare.eigenvectors * np.sqrt(np.maximum(spare.eigenvalues, 0.0))
    reward = (rng.random((RESAMPLES, len(mu))) < mu).astype(float)
    score = (reward - mu) @ x + rng.standard_normal((RESAMPLES, len(root))) @ root.T
    drawn = change.fit.theta + score @ pseudo_inverse(change.fit.information + data.ridge * np.eye(len(root)))
    before, after = drawn[:, :d], drawn[:, :d].copy()
    after[:, list(change.columns)] += drawn[:, d:]
    plain = data.x[first:last]
    ratio = log_likelihoods(before @ plain.T, reward) - log_likelihoods(after @ plain.T, reward)
    total = np.cumsum(ratio, axis=1)
    return np.asarray(total.max(axis=1) - total[:, change.split - 1 - first])


def _find_window(data: Segmenter, change: Change) -> tuple[int, int]:
    """Return the rows around a split outside of which the location of a simulated change can hardly be."""
    split, ends = change.split, []
    widest = int(LARGEST_RESAMPLES / RESAMPLES / 2)
    for truth, other, rows in (
        (change.before, change.after, np.arange(split - 1, max(change.first, split - widest) - 1, -1)),
        (change.after, change.before, np.arange(split, min(change.last, split + widest))),
    ):
        z, alternative = data.x[rows] @ truth, data.x[rows] @ other
        expected = np.cumsum(log_likelihoods(z, means(z)) - log_likelihoods(alternative, means(z)))
        ends.append(int(np.searchsorted(expected, DECIDED)))
    return max(change.first, split - 1 - ends[0]), min(change.last, split + 1 + ends[1])


def _invert(data: Segmenter, change: Change, allowed: float) -> tuple[int, int]:
    """Return the first and the last location whose log-likelihood is within ``allowed`` of that of the split."""
    first, split, last = change.first, change.split, change.last
    x, reward = data.x[first:last], data.reward[first:last]
    ratio = np.cumsum(log_likelihoods(x @ change.before, reward) - log_likelihoods(x @ change.after, reward))
    close = np.flatnonzero(ratio >= ratio[split - 1 - first] - allowed)
    return min(split, first + int(close[0]) + 1), min(last - 1, max(split, first + int(close[-1]) + 1))


def find_change_points(rows: RewardedRows, seed: int) -> tuple[ChangePoint, ...]:
    """Return the change points of the log with intervals by a parametric bootstrap (199 resamples)."""
    x, L = rows.design, rows.schema.L
    data, rng, points = Segmenter.create(x, rows.reward, L), np.random.default_rng(seed), []
    for change in segment(x, rows.reward, L):
        allowed = float(np.quantile(_draw_deficits(data, change, rng), CONFIDENCE, method="higher"))
        at = [change.split, *_invert(data, change, allowed)]
        places, clock, time = (values[at].tolist() for values in (rows.place, rows.clock, rows.time))
        step, part = change.after - change.before, x[change.first : change.last]
        points.append(
            ChangePoint(
                row=places[0], row_low=places[1], row_high=places[2],
                decision=clock[0], decision_low=clock[1], decision_high=clock[2],
                time=time[0], time_low=time[1], time_high=time[2],
                gain=change.gain, coordinates=_list_coordinates(rows, change, step),
                size=float(np.linalg.norm(step)), logits=float(np.sqrt(np.square(part @ step).mean())),
                is_step=is_step(data, change),
            )
        )  # fmt: skip
    return tuple(points)


def is_step(data: Segmenter, change: Change) -> bool:
    """Return whether the change at once fits clearly better than every ramp of the same coefficients."""
    first, split, last = change.first, change.split, change.last
    x, reward, rows = data.x[first:last], data.reward[first:last], np.arange(first, last)
    least = math.log(STEP * (last - first))
    widths = [share * (last - first) for share in RAMPS]
    ramps = [(split - width / 2.0, width) for width in widths] + [(float(first), float(last - first))]
    for start, width in ramps:
        part = np.clip((rows - start) / width, 0.0, 1.0)
        design = np.concatenate([x, part[:, None] * x[:, list(change.columns)]], axis=1)
        fit = fit_logistic(design, reward, ridge=data.ridge, start=change.fit.theta, close=CLOSE)
        if change.fit.log_likelihood - fit.log_likelihood < least:
            return False
    return True


def _list_coordinates(rows: RewardedRows, change: Change, step: Array) -> tuple[CoordinateChange, ...]:
    """Return the coefficients that change, the largest change first."""
    reach, names = np.abs(rows.design).max(axis=0) * step, rows.design_names
    order = sorted(change.columns, key=lambda j: -abs(float(reach[j])))
    return tuple(CoordinateChange(name=names[j], logits=float(reach[j])) for j in order)
