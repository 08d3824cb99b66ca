"""How fast theta* moves: its root mean square displacement over a span of decisions, corrected for estimation noise.

Notes
-----
The rows are cut into blocks of h rows, and theta is estimated in each. Two estimates that are two blocks apart differ
by delta_b, whose expected square is the squared displacement plus tr(Sigma_b + Sigma_b'), the noise of both. So

    D^2 = mean_b (||delta_b||^2 - tr(Sigma_b + Sigma_b')),       rate = D / span,       span = 2 blocks,

with sandwich covariances Sigma_b, times h / (h - d) for the coefficients that were fitted. A motion at constant
velocity v gives D = v span. For a random walk with variance s^2 per decision D^2 is s^2 span (1 - 1/6), because an
estimate is an average over its block.

A single jump of size J shows in the 2 of B - 2 pairs of B blocks that it separates. So D^2 = 2 J^2 / (B - 2), and the
implied B_T is J B / sqrt(2 (B - 2)), about sqrt(B / 2) times too large: a root mean square is a mean only for a steady
motion. The report leaves the rate out where all change points are steps.

The *path length* of theta* depends on the resolution: that of a random walk grows without bound as the span shrinks. So
rate and B_T = rate times decisions belong to the span that is reported with them: the shortest one, from twice the
effective memory on, over which D is known to about a quarter. A motion that returns within a span is not seen.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from windvane.arguments import Array
from windvane.logs.drift.logistic_fit import Fit, fit_logistic, means, pseudo_inverse, sandwich, weighted_gram
from windvane.logs.drift.rows import RewardedRows

RIDGE = 0.01  # times L^2: a prior with a standard deviation of 10 in logits, so that a separated block stays finite
LAG = 2  # blocks between two estimates that are compared: averaging over a block then hides at most 1/6 of D^2
RARER_PER_COORDINATE = (
    20.0  # of a block: with fewer rewards of the rarer kind, maximum likelihood and its noise are biased
)
RESOLVED = 0.5  # standard error of D^2 relative to it: D is then known to a quarter
FEWEST_PAIRS = 3  # of blocks that are compared
DRAWS = 999  # of the noise of the estimates
TAIL = 0.025  # of a 95 % interval on each side
ONE_SIDED = 0.95


@dataclass(frozen=True, kw_only=True)
class Displacement:
    """The root mean square displacement of theta* over ``span`` decisions, with 95 % intervals.

    ``logits`` is that of <x, theta*>, the root mean square over the vectors of the log.
    """

    span: float
    value: float
    low: float
    high: float
    logits: float
    logits_low: float
    logits_high: float


@dataclass(frozen=True, kw_only=True)
class Rate:
    """The speed of theta* per decision.

    Attributes
    ----------
    span : float
        The decisions over which the displacement was measured; rate and variation depend on it.
    rate, low, high : float
        Displacement / span, with a 95 % interval.
    logits, logits_low, logits_high : float
        The same for <x, theta*>.
    variation, variation_low, variation_high : float
        The implied B_T = rate times the number of decisions, for a steady drift. For a jump it is too large.
    excluded, excluded_logits : float
        The log rules out a steady drift that is faster (95 %): it would have moved theta* further between the halves.
    displacements : tuple of Displacement
        The displacement by span.
    """

    span: float
    rate: float
    low: float
    high: float
    logits: float
    logits_low: float
    logits_high: float
    variation: float
    variation_low: float
    variation_high: float
    excluded: float
    excluded_logits: float
    displacements: tuple[Displacement, ...]


class BlockFits(NamedTuple):
    """Estimates of blocks [blocks, d], covariances [blocks, d, d] and the clock at the middle of blocks [blocks]."""

    thetas: Array
    covariances: Array
    clock: Array


def fit_block(x: Array, reward: Array, L: float, start: Array | None = None) -> tuple[Fit, Array]:
    """Return the lightly penalised estimate of some rows, and its sandwich covariance."""
    ridge = RIDGE * L**2
    fit = fit_logistic(x, reward, ridge=ridge, start=start)
    inverse = pseudo_inverse(fit.information + ridge * np.eye(x.shape[1]))
    factor = len(x) / max(len(x) - x.shape[1], 1)
    return fit, factor * sandwich(x, reward, means(x @ fit.theta), inverse)


def fit_blocks(rows: RewardedRows, length: int) -> BlockFits:
    """Estimate theta in consecutive blocks of ``length`` rows; a shorter remainder at the end is left out."""
    thetas, covariances, clock = [], [], []
    for start in range(0, len(rows) - length + 1, length):
        part = slice(start, start + length)
        fit, covariance = fit_block(rows.x[part], rows.reward[part], rows.schema.L)
        thetas.append(fit.theta)
        covariances.append(covariance)
        clock.append(float(rows.clock[part].mean()))
    return BlockFits(np.array(thetas), np.array(covariances), np.array(clock))


def take_root(matrices: Array) -> Array:
    """Return R with R R' equal to positive semi-definite matrices, which may be singular: features may be collinear."""
    values, vectors = np.linalg.eigh(matrices)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :])


class _Square(NamedTuple):
    value: float
    draws: Array  # of its estimate, around the value


def measure_square(fits: BlockFits, lag: int, metric: Array, rng: np.random.Generator) -> _Square:
    """Return D^2 at a lag in a metric, and draws of it as if the blocks' true parameters had that displacement."""
    root = take_root(metric)
    thetas = fits.thetas @ root
    covariances = root.T @ fits.covariances @ root
    difference = thetas[lag:] - thetas[:-lag]
    noise = np.trace(covariances[lag:] + covariances[:-lag], axis1=1, axis2=2)
    total = float(np.square(difference).sum(axis=1).mean())
    value = total - float(noise.mean())
    # The estimates are further apart than the parameters by their noise. Move them together before noise is added.
    shrunk = thetas.mean(axis=0) + math.sqrt(max(value, 0.0) / max(total, 1e-300)) * (thetas - thetas.mean(axis=0))
    noises = rng.standard_normal((DRAWS, *thetas.shape))
    moved = shrunk + np.einsum("bij,kbj->kbi", take_root(covariances), noises, optimize=True)
    squares = np.square(moved[:, lag:] - moved[:, :-lag]).sum(axis=2).mean(axis=1) - noise.mean()
    return _Square(value, squares)


def _root(value: float) -> float:
    return math.sqrt(max(value, 0.0))


def measure_displacement(
    rows: RewardedRows, length: int, lag: int, metric: Array, rng: np.random.Generator
) -> tuple[Displacement, float]:
    """Return the displacement between blocks of ``length`` rows, and the relative standard error of its square."""
    fits = fit_blocks(rows, length)
    span = float((fits.clock[lag:] - fits.clock[:-lag]).mean())
    plain = measure_square(fits, lag, np.eye(rows.dim), rng)
    logits = measure_square(fits, lag, metric, rng)
    low, high = np.quantile(plain.draws, [TAIL, 1.0 - TAIL])
    logits_low, logits_high = np.quantile(logits.draws, [TAIL, 1.0 - TAIL])
    error = float(logits.draws.std()) / logits.value if logits.value > 0.0 else math.inf
    displacement = Displacement(
        span=span, value=_root(plain.value), low=_root(low), high=_root(high),
        logits=_root(logits.value), logits_low=_root(logits_low), logits_high=_root(logits_high),
    )  # fmt: skip
    return displacement, error


def choose_lengths(rows: RewardedRows, effective: float) -> list[int]:
    """Return lengths of blocks in rows, doubling, from the effective memory on."""
    n = len(rows)
    fewest = math.ceil(RARER_PER_COORDINATE * rows.rank * n / max(rows.rarer, 1.0))
    longest = n // (LAG + FEWEST_PAIRS)
    memory = effective * n / rows.decisions
    first = min(max(fewest, int(min(memory, n))), longest)
    return [length for j in range(12) if (length := first * 2**j) <= longest]


def estimate_rate(rows: RewardedRows, effective: float, seed: int) -> Rate | None:
    """Estimate the rate; None if the log is too short for three pairs of blocks.

    Parameters
    ----------
    rows
        The rows.
    effective
        The effective memory in decisions, which sets the span.
    seed
        Seed of the draws.
    """
    rng, n = np.random.default_rng(seed), len(rows)
    lengths = choose_lengths(rows, effective)
    if not lengths or lengths[0] <= rows.rank:
        return None
    metric = weighted_gram(rows.x, np.full(n, 1.0 / n))
    measured = [measure_displacement(rows, length, LAG, metric, rng) for length in lengths]
    chosen = next((each for each, error in measured if error <= RESOLVED), measured[-1][0])
    halves = fit_blocks(rows, n // 2)
    apart = float(halves.clock[1] - halves.clock[0])
    excluded = [_root(np.quantile(measure_square(halves, 1, m, rng).draws, ONE_SIDED)) / apart
                for m in (np.eye(rows.dim), metric)]  # fmt: skip
    T, span = rows.decisions, chosen.span
    return Rate(
        span=span, rate=chosen.value / span, low=chosen.low / span, high=chosen.high / span,
        logits=chosen.logits / span, logits_low=chosen.logits_low / span, logits_high=chosen.logits_high / span,
        variation=chosen.value / span * T, variation_low=chosen.low / span * T, variation_high=chosen.high / span * T,
        excluded=excluded[0], excluded_logits=excluded[1], displacements=tuple(each for each, _ in measured),
    )  # fmt: skip
