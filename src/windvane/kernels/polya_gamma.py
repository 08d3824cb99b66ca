"""Polya-Gamma random numbers, and the Gibbs sampler of Bayesian logistic regression that they make exact.

PG(1, z) is sampled by the method of Devroye in the form of Polson, Scott and Windle (2013): PG(1, z) = X / 4, where X
has the density of the Jacobi distribution J*(1, y), y = |z| / 2, tilted by exp(-y^2 X / 2). Proposals are inverse
Gaussian up to CUT and exponential beyond. They are accepted by an alternating series, which decides with finitely many
terms, so the distribution is exact. All terms are relative to the first one and all exponents are bounded, so nothing
over- or underflows, whatever z is.

PG(b, z) is the sum of b draws if b is a small whole number. For any other b it is an infinite series,

    PG(b, z) = 2 sum over k of g_k / (a_k + z^2),   g_k ~ Gamma(b, 1),   a_k = (pi (2k - 1))^2.

It is replaced by its first TERMS terms and the limit of the rest for small z, 2 b sum 1 / a_k. This is exact for a
posterior with another factor, e^{-b z^2 sum 1 / a_k} prod (1 + z^2 / a_k)^-b over the first terms, instead of
cosh(z / 2)^-b. As a sweep is reversible for that posterior, accepting its result with the probability min(1, ratio of
what the factors leave out) makes it exact for the right one (Metropolis and Hastings).

The maintained package ``polyagamma`` has the same distribution (the tests compare both). It is not used here because
its numbers depend on the state of a generator. These depend on (seed, lane id, decision) only, so that lanes can be
split and runs resumed. It takes 60 to 130 ns per number, and this module 1.5 to 2 times as long. Version 2.0.2 works in
single precision and returns numbers that are far too large for ``|z|`` above 177.
"""

from __future__ import annotations

import math

import numpy as np

from windvane.kernels.drawing import exponential_variate, normal_pair
from windvane.kernels.jit import compiled, compiled_inner
from windvane.kernels.lanes import FACTOR, SCALED, THETA_HAT, B, Z
from windvane.kernels.linalg import copy, factorise, mirror, solve_cholesky, solve_lower_transposed
from windvane.kernels.random import LARGEST_BLOCK, SAMPLES, uniform_pair
from windvane.kernels.sums import BLOCK, project_block, weighted_gram

CUT = 0.64  # where the two kinds of proposals meet, near the value with the fewest rejections
# From this y on, a proposal beyond CUT has a probability below exp(-0.32 y^2 + y + 1), which is less than 2^-53, the
# resolution of a uniform number.
LARGE = 20.0
HIGH_BITS = 24, 52  # a block number has 24 bits; what exceeds them is added to a decision number of 52 bits
FORECAST = 1 << 33  # first block of the numbers that estimate probabilities: a decision uses fewer

MOST_DRAWS = 16.0  # a weight that is not a whole number up to here is not a number of draws
TERMS = 8  # of the series of PG(b, z), for such a weight b; 8 leave almost all of a sweep to be accepted

_ROOT = math.sqrt(0.5 / CUT)  # 1 / sqrt(2 CUT)
_SLOPE = math.sqrt(0.5 * CUT)
_EIGHTH = math.pi * math.pi / 8.0
REST = 0.125 - sum(
    0.125 / (_EIGHTH * (2 * k + 1) ** 2) for k in range(TERMS)
)  # sum of 1 / (pi (2k + 1))^2 beyond TERMS

# A source of uniform numbers: next block, whether a number is left of the last block, that number, first block.
BLOCK_NUMBER, HAS_SPARE, SPARE, FIRST = range(4)
THETA, MEAN, PRECISION = 0, 1, 2  # rows of the end of a chain: theta, the mean of its last normal, and the first of P


@compiled_inner
def next_uniform(seed: np.uint64, lane: int, number: int, source: np.ndarray) -> float:
    """Return the next uniform of a source, in [0, 1)."""
    if source[HAS_SPARE] == 1:
        source[HAS_SPARE] = 0
        return source[SPARE]
    block = int(source[BLOCK_NUMBER])
    source[BLOCK_NUMBER] += 1
    place = number + ((block >> HIGH_BITS[0]) << HIGH_BITS[1])
    first, source[SPARE] = uniform_pair(seed, lane, place, SAMPLES, block & LARGEST_BLOCK)
    source[HAS_SPARE] = 1
    return first


@compiled_inner
def next_normal(seed: np.uint64, lane: int, number: int, source: np.ndarray) -> float:
    """Return a standard normal number (Box and Muller)."""
    block = int(source[BLOCK_NUMBER])
    source[BLOCK_NUMBER] += 1
    place = number + ((block >> HIGH_BITS[0]) << HIGH_BITS[1])
    return normal_pair(seed, lane, place, SAMPLES, block & LARGEST_BLOCK)[0]


@compiled_inner
def _left_share(y: float) -> float:
    """Return the probability that a proposal is at most CUT."""
    if y >= LARGE:
        return 1.0
    rate = _EIGHTH + 0.5 * y * y
    left = math.exp(-y) * math.erfc(_ROOT - y * _SLOPE) + math.exp(y) * math.erfc(_ROOT + y * _SLOPE)
    right = 0.5 * math.pi / rate * math.exp(-rate * CUT)
    return left / (left + right)


@compiled_inner
def _inverse_gaussian(seed: np.uint64, lane: int, number: int, source: np.ndarray, y: float) -> float:
    """Return an inverse Gaussian number with mean 1 / y and shape 1, at most CUT."""
    if y * CUT < 1.0:
        while True:  # a truncated inverse chi-square number, thinned
            while True:
                first = exponential_variate(next_uniform(seed, lane, number, source))
                second = exponential_variate(next_uniform(seed, lane, number, source))
                if first * first <= 2.0 * second / CUT:
                    break
            x = CUT / (1.0 + CUT * first) ** 2
            if next_uniform(seed, lane, number, source) <= math.exp(-0.5 * y * y * x):
                return x
    while True:
        normal = next_normal(seed, lane, number, source)
        n = 0.5 * normal * normal
        x = 1.0 / (y + n + math.sqrt(n * (2.0 * y + n)))  # the smaller root of a quadratic, without cancellation
        if next_uniform(seed, lane, number, source) * (1.0 + x * y) > 1.0:
            x = 1.0 / (x * y) / y
        if x <= CUT:
            return x


@compiled_inner
def draw_polya_gamma(seed: np.uint64, lane: int, number: int, source: np.ndarray, z: float) -> float:
    """Return a PG(1, z) number."""
    y = 0.5 * abs(z)
    left = _left_share(y)
    while True:
        is_left = next_uniform(seed, lane, number, source) < left
        if is_left:
            x = _inverse_gaussian(seed, lane, number, source, y)
            decay = 2.0 / x
        else:
            u = next_uniform(seed, lane, number, source)
            x = CUT + exponential_variate(u) / (_EIGHTH + 0.5 * y * y)
            decay = 4.0 * _EIGHTH * x
        u, total, n = next_uniform(seed, lane, number, source), 1.0, 0
        while True:  # the terms a_n / a_0 of the series; sums with an odd number of terms are above the limit
            n += 1
            term = (2.0 * n + 1.0) * math.exp(-decay * n * (n + 1.0))
            if n & 1:
                total -= term
                if u <= total:
                    return 0.25 * x
            else:
                total += term
                if u > total:
                    break


@compiled_inner
def _standard_gamma(seed: np.uint64, lane: int, number: int, source: np.ndarray, shape: float) -> float:
    """Return a Gamma number of rate 1, by the method of Marsaglia and Tsang (2000)."""
    factor = 1.0
    if shape < 1.0:
        factor = (1.0 - next_uniform(seed, lane, number, source)) ** (1.0 / shape)
        shape += 1.0
    d = shape - 1.0 / 3.0
    while True:
        normal = next_normal(seed, lane, number, source)
        root = 1.0 + normal / math.sqrt(9.0 * d)
        if root <= 0.0:
            continue
        v = root * root * root
        exponent = 0.5 * normal * normal + d * (1.0 - v + 3.0 * math.log(root))
        if -exponential_variate(next_uniform(seed, lane, number, source)) <= exponent:
            return factor * d * v


@compiled_inner
def is_count(weight: float) -> bool:
    """Return whether PG(weight, z) is drawn as a sum of PG(1, z) numbers."""
    return weight <= MOST_DRAWS and weight == math.floor(weight)


@compiled_inner
def draw_omega(seed: np.uint64, lane: int, number: int, source: np.ndarray, weight: float, z: float) -> float:
    """Return a PG(weight, z) number, or its first TERMS terms and the limit of the rest; see the module docstring."""
    omega = 0.0
    if is_count(weight):
        for _ in range(int(weight)):
            omega += draw_polya_gamma(seed, lane, number, source, z)
        return omega
    for k in range(TERMS):
        pole = 8.0 * _EIGHTH * (2.0 * k + 1.0) ** 2
        omega += _standard_gamma(seed, lane, number, source, weight) / (pole + z * z)
    return 2.0 * (omega + weight * REST)


@compiled_inner
def correct(z: float) -> float:
    """Return the logarithm of the factor of 1 / cosh(z / 2) that the first terms, and the limit of the rest, miss."""
    product = 1.0
    for k in range(TERMS):
        product *= 1.0 + z * z / (8.0 * _EIGHTH * (2.0 * k + 1.0) ** 2)
    log_cosh = 0.5 * abs(z) + math.log1p(math.exp(-abs(z))) - math.log(2.0)
    return z * z * REST + math.log(product) - log_cosh


@compiled_inner
def _sum_corrections(lane: np.void, rows: np.ndarray, theta: np.ndarray) -> float:
    """Return the sum of weight correct(<x, theta>) over the entries whose weight is not a count; 0 without one."""
    d, total = theta.shape[0], 0.0
    for i in range(lane["start"], lane["end"]):
        weight = rows[d, i]
        if not is_count(weight):
            z = 0.0
            for j in range(d):
                z += rows[j, i] * theta[j]
            total += weight * correct(z)
    return total


@compiled_inner
def _sweep(
    seed: np.uint64, lane_id: int, number: int, source: np.ndarray, lane: np.void, rows: np.ndarray, total: np.ndarray,
    workspace: tuple[np.ndarray, np.ndarray], end: np.ndarray,
) -> None:  # fmt: skip
    """Draw omega_i ~ PG(w_i, <x_i, theta>) for every entry of a history, and then theta ~ N(mean, P^-1).

    P = sum omega_i x_i x_i' + floor I and mean = P^-1 total. ``end`` has theta, mean and P. If an omega is not exactly
    Polya-Gamma, the new theta is accepted with the probability of Metropolis and Hastings.
    """
    work, buffers = workspace
    theta, mean, precision, lower, old = end[THETA], end[MEAN], end[PRECISION:], work[0], work[1, 0]
    d = theta.shape[0]
    X = rows[:d]
    for j in range(d):
        for k in range(d):
            precision[j, k] = lane["floor"] if j == k else 0.0
    for first in range(lane["start"], lane["end"], BLOCK):
        n = min(BLOCK, lane["end"] - first)
        z, omega, weight = buffers[Z, :n], buffers[FACTOR, :n], rows[d, first : first + n]
        project_block(X, theta, first, n, z)
        for i in range(n):
            omega[i] = draw_omega(seed, lane_id, number, source, weight[i], z[i])
        weighted_gram(X, first, n, omega, buffers[SCALED : SCALED + 2], precision)
    before = _sum_corrections(lane, rows, theta)
    copy(theta, old)
    factorise(precision, lower)
    solve_cholesky(lower, total, mean)
    for j in range(d):
        theta[j] = next_normal(seed, lane_id, number, source)
    solve_lower_transposed(lower, theta, theta)
    for j in range(d):
        theta[j] += mean[j]
    after = _sum_corrections(lane, rows, theta)
    if after < before and -exponential_variate(next_uniform(seed, lane_id, number, source)) > after - before:
        copy(old, theta)


@compiled
def gibbs_lanes(
    seed: np.uint64,
    lane_ids: np.ndarray,
    decision: int,
    sweeps: int,
    source: np.ndarray,
    record: np.ndarray,
    dense: np.ndarray,
    history: np.ndarray,
    workspace: tuple[np.ndarray, np.ndarray],
    out: np.ndarray,
) -> None:
    """Run chains from THETA_HAT of every lane. out[lane, n] gets theta of chain n, and mean and P of its last normal.

    B of a lane is the sum of w (r - 1/2) x.
    """
    for i in range(len(record)):
        lane, rows, total = record[i], history[i], dense[i, B]
        source[BLOCK_NUMBER], source[HAS_SPARE] = source[FIRST], 0.0
        for n in range(out.shape[1]):
            end = out[i, n]
            copy(dense[i, THETA_HAT], end[THETA])
            for _ in range(sweeps):
                _sweep(seed, lane_ids[i], decision, source, lane, rows, total, workspace, end)
            mirror(end[PRECISION:])
