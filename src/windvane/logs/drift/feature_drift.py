"""Which features' coefficients drift: a score CUSUM test per coordinate, and the coefficients over time."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from windvane.arguments import Array
from windvane.logs.drift.logistic_fit import fit_logistic, means, pseudo_inverse, sandwich
from windvane.logs.drift.rate import RARER_PER_COORDINATE, RIDGE
from windvane.logs.drift.rows import RewardedRows
from windvane.logs.drift.score_process import (
    ScoreProcess,
    holm,
    observe,
    p_values,
    resample_signs,
    simulate_rewards,
)

RESAMPLES = 999  # of the multiplier bootstrap: Holm's smallest level for 50 features is 0.05 / 50 = 0.001
PARAMETRIC_RESAMPLES = 199  # of the parametric bootstrap: the standard error of a p-value of 5 % is 1.5 %
GRID = 60  # points of the curves
WIDEST = 0.125  # share of the rows to each side: a wider kernel would hide most of what a figure can show
BAND = 1.96  # standard errors of a pointwise 95 % band
CLOSE = 1e-3  # squared Newton decrement of a point of a curve: 0.03 of its standard error
ADAPTIVE = (
    "the logging policy may have learned from its rewards, so the parametric bootstrap is not valid; if it did not "
    "learn, pass --fixed-logging (is_adaptive=False)"
)


@dataclass(frozen=True, kw_only=True)
class FeatureDrift:
    """The test of one coordinate.

    Attributes
    ----------
    name : str
        The coordinate.
    largest, square : float
        sup |W_j| and the mean of W_j^2. With steady information their 5 % critical values are 1.358 and 0.470.
    p_largest, p_square : float
        Their p-values by the multiplier bootstrap.
    p : float
        The smaller of the two, doubled (Bonferroni), then adjusted by Holm's method over all coordinates.
    drifts : bool
        Whether p is at most alpha.
    theta, low, high : tuple of float
        The coefficient over time, at ``FeatureDrifts.decisions``, with a pointwise 95 % band.
    """

    name: str
    largest: float
    square: float
    p_largest: float
    p_square: float
    p: float
    drifts: bool
    theta: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class FeatureDrifts:
    """The tests of all coordinates, and when the curves were evaluated.

    ``joint_p`` is the p-value of the joint statistic by the multiplier bootstrap. ``fixed_sample_p`` is that of the
    parametric bootstrap; None with its reason ``fixed_sample_note`` if the log may be adaptive. With adaptive logging
    all p-values here are approximate.
    """

    features: tuple[FeatureDrift, ...]
    joint: float
    joint_p: float
    fixed_sample_p: float | None
    fixed_sample_note: str
    decisions: tuple[float, ...]
    times: tuple[float, ...]
    half_width: float


def compute_curves(rows: RewardedRows, effective: float) -> tuple[Array, Array, Array, float]:
    """Return the middle rows [grid], theta [grid, d], standard errors [grid, d] and the half-width in rows.

    The kernel is Epanechnikov's, 1 - u^2, over the effective memory to each side. Its half-width is at most an eighth
    of the rows, and wide enough for 20 rewards of the rarer kind per coordinate. At an end of the log it is one-sided.
    """
    n, d, ridge = len(rows), rows.dim, RIDGE * rows.schema.L**2
    fewest = 0.5 * RARER_PER_COORDINATE * d * n / max(rows.rarer, 1.0)
    width = min(max(min(effective * n / rows.decisions, WIDEST * n), fewest), float(n))
    middles = np.linspace(0.0, n - 1.0, min(GRID, n))
    thetas, errors = np.empty((len(middles), d)), np.empty((len(middles), d))
    start: Array | None = None
    for i, middle in enumerate(middles):
        first, last = max(0, math.ceil(middle - width)), min(n, math.floor(middle + width) + 1)
        weight = np.maximum(1.0 - np.square((np.arange(first, last) - middle) / width), 0.0)
        x, reward = rows.x[first:last], rows.reward[first:last]
        fit = fit_logistic(x, reward, weight=weight, ridge=ridge, start=start, close=CLOSE)
        inverse = pseudo_inverse(fit.information + ridge * np.eye(d))
        covariance = sandwich(x, reward, means(x @ fit.theta), inverse, weight)
        thetas[i], errors[i] = fit.theta, np.sqrt(np.maximum(np.diag(covariance), 0.0))
        start = fit.theta
    return middles, thetas, errors, width


def find_fixed_sample_p(rows: RewardedRows, process: ScoreProcess, seed: int) -> tuple[float | None, str]:
    """Return the p-value of the joint statistic by the parametric bootstrap; None and the reason if there is none.

    Fractional rewards vary less than Bernoulli rewards with the same mean, so the p-value can then only be too large.
    """
    if rows.schema.is_adaptive:
        return None, ADAPTIVE
    drawn = simulate_rewards(rows.x, process, PARAMETRIC_RESAMPLES, np.random.default_rng(seed))
    return float(p_values(observe(process).joint[0], drawn.joint)), ""


def find_feature_drifts(
    rows: RewardedRows, process: ScoreProcess, effective: float, alpha: float, seed: int
) -> FeatureDrifts:
    """Test every coordinate, and compute its curve."""
    seen = observe(process)
    drawn = resample_signs(process, RESAMPLES, np.random.default_rng(seed))
    p_largest, p_square = p_values(seen.largest[0], drawn.largest), p_values(seen.square[0], drawn.square)
    adjusted = holm(np.minimum(2.0 * np.minimum(p_largest, p_square), 1.0))
    middles, thetas, errors, width = compute_curves(rows, effective)
    low, high = thetas - BAND * errors, thetas + BAND * errors
    at = middles.astype(int)
    fixed_p, note = find_fixed_sample_p(rows, process, seed)
    features = tuple(
        FeatureDrift(
            name=name, largest=float(seen.largest[0, j]), square=float(seen.square[0, j]),
            p_largest=float(p_largest[j]), p_square=float(p_square[j]), p=float(adjusted[j]),
            drifts=bool(adjusted[j] <= alpha), theta=tuple(thetas[:, j].tolist()),
            low=tuple(low[:, j].tolist()), high=tuple(high[:, j].tolist()),
        )
        for j, name in enumerate(rows.schema.names)
    )  # fmt: skip
    return FeatureDrifts(
        features=features, joint=float(seen.joint[0]), joint_p=float(p_values(seen.joint[0], drawn.joint)),
        fixed_sample_p=fixed_p, fixed_sample_note=note, decisions=tuple(rows.clock[at].tolist()),
        times=tuple(rows.time[at].tolist()), half_width=width * rows.decisions / len(rows),
    )  # fmt: skip
