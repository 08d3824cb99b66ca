"""Score processes and their bootstrap: the cumulative score of a fit that assumes one theta.

Notes
-----
Let S_tau be the sum of x_s (r_s - mu_s) over the rows up to tau, at the maximum likelihood estimate, J_tau the sum of
mu'_s x_s x_s', and J = J_1. If one theta holds, S_tau behaves like a martingale minus J_tau J^-1 times its end, because
theta was estimated. The statistics are

    W_j(tau) = [J^-1 S_tau]_j / sqrt([J^-1]_jj),   sup |W_j|,   mean W_j^2,   and jointly mean S_tau' J^-1 S_tau.

If information arrives steadily, J_tau = tau J, then W_j is a Brownian bridge, with 5 % critical values 1.358 (sup) and
0.470 (mean square, weighed here by rows). Otherwise it is not. So the null distribution is found by the multiplier
bootstrap: with Rademacher signs e_s, S*_tau = sum of e_s x_s (r_s - mu_s), and S*_tau - J_tau J^-1 S*_1 is its
corrected form. Signs are shared by the rows of a *unit*, a few consecutive rows, which bounds the cost.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from windvane.arguments import Array, Index
from windvane.logs.drift.logistic_fit import fit_logistic, means, pseudo_inverse, weighted_gram
from windvane.logs.drift.replay import divide

CELLS = 400  # points of the processes: the supremum over them is below that over all rows by 0.58 / sqrt(400) = 0.03
MOST_UNITS = 20_000  # groups of rows that share a sign: 50 in each cell
LARGEST_INFORMATION = 4e6  # numbers in the information of all cells: 32 MB
CLOSE = 1e-8  # squared Newton decrement of the fit: within 1e-4 of its standard error, which is corrected for
LARGEST_PROCESS = 4e6  # numbers in the processes that are evaluated at a time


class ScoreProcess(NamedTuple):
    """Scores of units and cells, and the information up to the end of each cell."""

    theta: Array
    units: Array  # scores of units, [units, d]
    ends: Index  # number of units up to the end of each cell, [cells]
    scores: Array  # S at the end of each cell, [cells, d]
    information: Array  # J at the end of each cell, [cells, d, d]
    inverse: Array  # of J, [d, d]


class Statistics(NamedTuple):
    """The statistics of one or more processes: [..., d], [..., d] and [...]."""

    largest: Array
    square: Array
    joint: Array


def build_process(x: Array, reward: Array, theta: Array | None = None) -> ScoreProcess:
    """Return the score process of rows, at ``theta`` or at the maximum likelihood estimate."""
    n, d = x.shape
    if theta is None:
        theta = fit_logistic(x, reward, close=CLOSE).theta
    mu = means(x @ theta)
    units, cells = divide(n, MOST_UNITS), min(CELLS, max(8, int(LARGEST_INFORMATION // d**2)))
    ends = divide(len(units), cells)
    information, slope, residual = np.empty((len(ends), d, d)), mu * (1.0 - mu), reward - mu
    starts = np.concatenate([[0], units[:-1]])
    scores, first, begun = np.empty((len(units), d)), 0, 0
    for i, (last, end) in enumerate(zip(ends, units[ends - 1], strict=True)):
        part = x[first:end] * residual[first:end, None]
        scores[begun:last] = np.add.reduceat(part, starts[begun:last] - first)
        information[i] = weighted_gram(x[first:end], slope[first:end])
        first, begun = end, last
    information = np.cumsum(information, axis=0)
    total = np.cumsum(scores, axis=0)[ends - 1]
    return ScoreProcess(theta, scores, ends, total, information, pseudo_inverse(information[-1]))


def correct(process: ScoreProcess, scores: Array) -> Array:
    """Return S_tau - J_tau J^-1 S_1 of processes [resamples, cells, d]: the effect of estimating theta."""
    pull = process.information @ process.inverse
    return np.asarray(scores - np.einsum("cij,bj->bci", pull, scores[:, -1], optimize=True))


def measure_statistics(process: ScoreProcess, scores: Array) -> Statistics:
    """Return the statistics of corrected processes [resamples, cells, d]."""
    moved = scores @ process.inverse
    scale = np.sqrt(np.maximum(np.diag(process.inverse), 1e-300))
    w = moved / scale
    joint = np.einsum("bci,bci->bc", moved, scores, optimize=True).mean(axis=1)
    return Statistics(np.abs(w).max(axis=1), np.square(w).mean(axis=1), joint)


def measure_joint(process: ScoreProcess, scores: Array, columns: int) -> Array:
    """Return the joint statistic of the first ``columns`` coordinates, adjusted for the others, [resamples]."""
    moved = scores @ process.inverse[:, :columns]
    weight = pseudo_inverse(process.inverse[:columns, :columns])
    return np.asarray(np.einsum("bci,ij,bcj->bc", moved, weight, moved, optimize=True).mean(axis=1))


def assess_joint(x: Array, reward: Array, columns: int, resamples: int, rng: np.random.Generator) -> float:
    """Return the p-value of the joint statistic of the first ``columns`` coordinates by the multiplier bootstrap."""
    process = build_process(x, reward)
    seen = measure_joint(process, correct(process, process.scores[None]), columns)
    parts = [measure_joint(process, correct(process, drawn), columns) for drawn in _draw_signs(process, resamples, rng)]
    return float(p_values(seen[0], np.concatenate(parts)))


def observe(process: ScoreProcess) -> Statistics:
    """Return the statistics of the log itself, [1, ...]."""
    return measure_statistics(process, correct(process, process.scores[None]))


def resample_signs(process: ScoreProcess, resamples: int, rng: np.random.Generator) -> Statistics:
    """Return the statistics of ``resamples`` multiplier bootstrap processes."""
    parts = [measure_statistics(process, correct(process, drawn)) for drawn in _draw_signs(process, resamples, rng)]
    return Statistics(*(np.concatenate(values) for values in zip(*parts, strict=True)))


def _draw_signs(process: ScoreProcess, resamples: int, rng: np.random.Generator) -> Iterator[Array]:
    cells, d = process.scores.shape
    at_once = max(
        1, min(resamples, int(LARGEST_PROCESS // (cells * d)), int(LARGEST_PROCESS // len(process.units)) + 1)
    )
    starts = np.concatenate([[0], process.ends[:-1]])
    for first in range(0, resamples, at_once):
        count = min(at_once, resamples - first)
        drawn = np.empty((count, cells, d))
        for cell, (start, end) in enumerate(zip(starts, process.ends, strict=True)):
            signs = 2.0 * rng.integers(0, 2, size=(count, end - start)) - 1.0
            drawn[:, cell] = signs @ process.units[start:end]
        yield np.cumsum(drawn, axis=1)


def simulate_rewards(x: Array, process: ScoreProcess, resamples: int, rng: np.random.Generator) -> Statistics:
    """Return the statistics of ``resamples`` parametric bootstrap processes: Bernoulli rewards at the fitted means.

    The estimate of each resample is that of one Newton step from the fitted theta.
    """
    mu = means(x @ process.theta)
    bounds = np.concatenate([[0], divide(len(x), MOST_UNITS)[process.ends - 1]])
    cells, d = process.scores.shape
    parts, at_once = [], max(1, min(resamples, int(LARGEST_PROCESS // (cells * d))))
    for done in range(0, resamples, at_once):
        count = min(at_once, resamples - done)
        drawn = np.empty((count, cells, d))
        for cell in range(cells):
            part = slice(bounds[cell], bounds[cell + 1])
            noise = (rng.random((count, part.stop - part.start)) < mu[part]) - mu[part]
            drawn[:, cell] = noise @ x[part]
        parts.append(measure_statistics(process, correct(process, np.cumsum(drawn, axis=1))))
    return Statistics(*(np.concatenate(values) for values in zip(*parts, strict=True)))


def p_values(seen: Array, drawn: Array) -> Array:
    """Return (1 + number of draws at least as large) / (1 + draws), over the first axis of ``drawn``."""
    return np.asarray((1.0 + (drawn >= seen).sum(axis=0)) / (1.0 + len(drawn)))


def holm(p: Array) -> Array:
    """Return Holm's adjusted p-values.

    Examples
    --------
    >>> holm(np.array([0.01, 0.04, 0.03])).tolist()
    [0.03, 0.06, 0.06]
    """
    order = np.argsort(p)
    factors = len(p) - np.arange(len(p))
    adjusted = np.minimum(np.maximum.accumulate(p[order] * factors), 1.0)
    out = np.empty(len(p))
    out[order] = adjusted
    return out
