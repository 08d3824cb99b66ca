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

RESAMPLES = 1999  # of the bootstraps: Holm's smallest level for 50 coordinates is 0.05 / 50 = 0.001
LARGEST_DRAWS = 2e8  # rewards that the parametric bootstrap draws: a few seconds
FEWEST_RESAMPLES = 199  # of it, for a long log
GRID = 60  # points of the curves
WIDEST = 0.125  # share of the rows to each side: a wider kernel would hide most of what a figure can show
BAND = 1.96  # standard errors of a pointwise 95 % band
CLOSE = 1e-3  # squared Newton decrement of a point of a curve: 0.03 of its standard error
PARAMETRIC, SIGNS = "parametric bootstrap", "multiplier bootstrap"


@dataclass(frozen=True, kw_only=True)
class FeatureDrift:
    """The test of one coordinate; its p-values are from the multiplier bootstrap.

    Attributes
    ----------
    name : str
        The coordinate.
    largest, square : float
        sup |W_j| and the mean of W_j^2. With steady information their 5 % critical values are 1.358 and 0.470.
    p_largest, p_square : float
        Their p-values.
    p : float
        The smaller of the two, doubled (Bonferroni), then adjusted by Holm's method over all coordinates.
    drifts : bool
        Whether p is at most alpha. It matters only if the log as a whole drifts.
    reach : float
        The largest entry of the coordinate in the log: coefficient times reach is its part of the logit there.
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
    reach: float
    theta: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class FixedSampleTest:
    """The test of one theta for a log that is analysed once.

    Attributes
    ----------
    p : float
        The smaller of the next two, doubled (Bonferroni). It decides.
    joint_p : float
        The p-value of the joint statistic, which sees a drift of many coefficients best.
    largest_p : float
        The p-value of the largest supremum of all coordinates, which sees a drift of one of many coefficients best.
    smallest_p : float
        The smallest p-value that is possible with this number of resamples: "at most", not "equal to".
    joint, largest : float
        The statistics.
    method : str
        "parametric bootstrap" if all rewards are 0 or 1: rewards are drawn with the fitted means, which is right for
        rare rewards, too. Otherwise "multiplier bootstrap".
    """

    p: float
    joint_p: float
    largest_p: float
    smallest_p: float
    joint: float
    largest: float
    method: str


@dataclass(frozen=True, kw_only=True)
class FeatureDrifts:
    """The tests of all coordinates, and when the curves were evaluated.

    ``left_out`` are the coordinates that are sums of others and are not tested on their own. All p-values are those of
    a sample of fixed size, and approximate if the logging policy learned from its rewards.
    """

    features: tuple[FeatureDrift, ...]
    test: FixedSampleTest
    left_out: tuple[str, ...]
    decisions: tuple[float, ...]
    times: tuple[float, ...]
    half_width: float


def compute_curves(rows: RewardedRows, effective: float) -> tuple[Array, Array, Array, float]:
    """Return the middle rows [grid], theta [grid, d], standard errors [grid, d] and the half-width in rows.

    The kernel is Epanechnikov's, 1 - u^2, over the effective memory to each side. Its half-width is at most an eighth
    of the rows, and wide enough for 20 rewards of the rarer kind per coordinate. At an end of the log it is one-sided.
    """
    n, d, ridge = len(rows), rows.rank, RIDGE * rows.schema.L**2
    fewest = 0.5 * RARER_PER_COORDINATE * d * n / max(rows.rarer, 1.0)
    width = min(max(min(effective * n / rows.decisions, WIDEST * n), fewest), float(n))
    middles = np.linspace(0.0, n - 1.0, min(GRID, n))
    thetas, errors = np.empty((len(middles), d)), np.empty((len(middles), d))
    start: Array | None = None
    for i, middle in enumerate(middles):
        first, last = max(0, math.ceil(middle - width)), min(n, math.floor(middle + width) + 1)
        weight = np.maximum(1.0 - np.square((np.arange(first, last) - middle) / width), 0.0)
        x, reward = rows.design[first:last], rows.reward[first:last]
        fit = fit_logistic(x, reward, weight=weight, ridge=ridge, start=start, close=CLOSE)
        inverse = pseudo_inverse(fit.information + ridge * np.eye(d))
        covariance = sandwich(x, reward, means(x @ fit.theta), inverse, weight)
        thetas[i], errors[i] = fit.theta, np.sqrt(np.maximum(np.diag(covariance), 0.0))
        start = fit.theta
    return middles, thetas, errors, width


def run_fixed_sample_test(rows: RewardedRows, process: ScoreProcess, seed: int) -> FixedSampleTest:
    """Test whether one theta fits all rewards of a log that is analysed once.

    In our simulations without drift (rare and frequent rewards; uniform, greedy and adaptive logging; 10 rewards of the
    rarer kind per coefficient and more), it rejected at level 5 % in 3 to 5 % of the logs.
    """
    rng, seen = np.random.default_rng(seed), observe(process)
    is_binary = bool(((rows.reward == 0.0) | (rows.reward == 1.0)).all())
    if is_binary:
        resamples = int(min(RESAMPLES, max(FEWEST_RESAMPLES, LARGEST_DRAWS // len(rows))))
        drawn = simulate_rewards(rows.design, process, resamples, rng)
    else:  # a fraction varies less than a click with the same mean
        resamples = RESAMPLES
        drawn = resample_signs(process, resamples, rng)
    joint, largest = seen.joint[0], seen.largest[0].max()
    joint_p, largest_p = float(p_values(joint, drawn.joint)), float(p_values(largest, drawn.largest.max(axis=1)))
    return FixedSampleTest(
        p=min(1.0, 2.0 * min(joint_p, largest_p)), joint_p=joint_p, largest_p=largest_p,
        smallest_p=2.0 / (1.0 + resamples), joint=float(joint), largest=float(largest),
        method=PARAMETRIC if is_binary else SIGNS,
    )  # fmt: skip


def find_feature_drifts(
    rows: RewardedRows, process: ScoreProcess, effective: float, alpha: float, seed: int
) -> FeatureDrifts:
    """Test every coordinate of the design, and compute its curve."""
    seen = observe(process)
    drawn = resample_signs(process, RESAMPLES, np.random.default_rng(seed))
    p_largest, p_square = p_values(seen.largest[0], drawn.largest), p_values(seen.square[0], drawn.square)
    adjusted = holm(np.minimum(2.0 * np.minimum(p_largest, p_square), 1.0))
    middles, thetas, errors, width = compute_curves(rows, effective)
    low, high, reach = thetas - BAND * errors, thetas + BAND * errors, np.abs(rows.design).max(axis=0)
    at = middles.astype(int)
    features = tuple(
        FeatureDrift(
            name=name, largest=float(seen.largest[0, j]), square=float(seen.square[0, j]),
            p_largest=float(p_largest[j]), p_square=float(p_square[j]), p=float(adjusted[j]),
            drifts=bool(adjusted[j] <= alpha), reach=float(reach[j]), theta=tuple(thetas[:, j].tolist()),
            low=tuple(low[:, j].tolist()), high=tuple(high[:, j].tolist()),
        )
        for j, name in enumerate(rows.design_names)
    )  # fmt: skip
    left_out = tuple(name for j, name in enumerate(rows.schema.names) if j not in set(rows.columns.tolist()))
    return FeatureDrifts(
        features=features, test=run_fixed_sample_test(rows, process, seed), left_out=left_out,
        decisions=tuple(rows.clock[at].tolist()), times=tuple(rows.time[at].tolist()),
        half_width=width * rows.decisions / len(rows),
    )  # fmt: skip
