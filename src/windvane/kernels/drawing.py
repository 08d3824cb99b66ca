"""Compiled loops of simulated environments: arms of all lanes in one call, random walks, quantile functions.

Every number depends on (seed, lane id, round, purpose, block) only (see :mod:`windvane.kernels.random`), and lanes
share nothing, so a lane's environment does not depend on which other lanes are simulated.
"""

from __future__ import annotations

import math

import numpy as np

from windvane.kernels.jit import compiled, compiled_inner
from windvane.kernels.random import ARMS, DRIFT, PRESENCE, uniform_pair

BALL, SPHERE, CUBE, ORTHOGONAL, GAUSSIAN, SKEWED = range(6)

# The state of a slot in which items come and go.
SLOT = np.dtype([("phase", np.int64), ("item", np.int64), ("coin", np.float64)])

_BELOW_ONE = 1.0 - 2.0**-53  # keeps a logarithm away from 0, so that no normal vector is exactly 0
_QUARTER = 0.5 * math.pi
_TERMS = [(-1.0) ** (n // 2) / math.factorial(n) for n in range(17)]  # of the Taylor series of sine and cosine
_SIN_3, _SIN_5, _SIN_7, _SIN_9, _SIN_11, _SIN_13, _SIN_15 = _TERMS[3::2]
_COS_2, _COS_4, _COS_6, _COS_8, _COS_10, _COS_12, _COS_14, _COS_16 = _TERMS[2::2]
_NEGLIGIBLE = 2.0**-70  # relative to the largest term: all terms beyond it add up to less than the rounding of the sum


@compiled
def blocks_of(dim: int) -> int:
    """Return how many blocks of uniforms one random point may use: those of its normals, and one for the radius."""
    return (dim + 1) // 2 + 1


@compiled_inner
def circle_point(turn: float) -> tuple[float, float]:
    """Return (cos, sin) of 2 pi turn for turn in [0, 1).

    Taylor polynomials on an eighth of the circle to either side: their remainder, (pi/4)^17 / 17! = 5e-17, is below
    rounding.
    """
    quarters = math.floor(4.0 * turn + 0.5)
    a = (4.0 * turn - quarters) * _QUARTER
    a2 = a * a
    s = _SIN_3 + a2 * (_SIN_5 + a2 * (_SIN_7 + a2 * (_SIN_9 + a2 * (_SIN_11 + a2 * (_SIN_13 + a2 * _SIN_15)))))
    c = _COS_8 + a2 * (_COS_10 + a2 * (_COS_12 + a2 * (_COS_14 + a2 * _COS_16)))
    s, c = a + a * a2 * s, 1.0 + a2 * (_COS_2 + a2 * (_COS_4 + a2 * (_COS_6 + a2 * c)))
    side = int(quarters) & 3
    if side & 1:
        c, s = -s, c
    if side & 2:
        c, s = -c, -s
    return c, s


@compiled_inner
def exponential_variate(u: float) -> float:
    """Return a standard exponential number, never 0, from a uniform in [0, 1)."""
    return -math.log((1.0 - u) * _BELOW_ONE)


@compiled_inner
def normal_pair(seed: np.uint64, lane: int, number: int, purpose: int, block: int) -> tuple[float, float]:
    """Return two standard normal numbers (Box and Muller)."""
    u, turn = uniform_pair(seed, lane, number, purpose, block)
    radius = math.sqrt(2.0 * exponential_variate(u))
    c, s = circle_point(turn)
    return radius * c, radius * s


@compiled
def normal_vector(seed: np.uint64, lane: int, number: int, purpose: int, first_block: int, out: np.ndarray) -> float:
    """Write a standard normal vector to ``out`` and return its squared norm."""
    d = out.shape[0]
    square = 0.0
    for i in range(0, d, 2):
        first, second = normal_pair(seed, lane, number, purpose, first_block + i // 2)
        out[i] = first
        square += first * first
        if i + 1 < d:
            out[i + 1] = second
            square += second * second
    return square


@compiled_inner
def scale_vector(factor: float, out: np.ndarray) -> None:
    """Multiply ``out`` by ``factor``."""
    for i in range(out.shape[0]):
        out[i] *= factor


@compiled_inner
def round_point(
    law: int, radius: float, seed: np.uint64, lane: int, number: int, purpose: int, first_block: int, out: np.ndarray
) -> None:
    """Write a point uniform in the ball (``law`` BALL) or on the sphere to ``out``.

    In general it is a normal vector divided by its norm. For the ball, that norm includes two more normal
    coordinates: the first d coordinates of a uniform point of the sphere in d + 2 dimensions are uniform in the ball,
    and the squares of the other two add up to twice an exponential number. In the plane, angle and radius are drawn.
    """
    d = out.shape[0]
    if d == 2:
        u, turn = uniform_pair(seed, lane, number, purpose, first_block)
        r = radius * math.sqrt(u) if law == BALL else radius
        c, s = circle_point(turn)
        out[0], out[1] = r * c, r * s
    elif d == 1 and law == SPHERE:
        u, _ = uniform_pair(seed, lane, number, purpose, first_block)
        out[0] = radius if u < 0.5 else -radius
    else:
        square = normal_vector(seed, lane, number, purpose, first_block, out)
        if law == BALL:
            u, _ = uniform_pair(seed, lane, number, purpose, first_block + (d + 1) // 2)
            square += 2.0 * exponential_variate(u)
        scale_vector(radius / math.sqrt(square), out)


@compiled_inner
def independent_point(
    law: int, radius: float, seed: np.uint64, lane: int, number: int, first_block: int, out: np.ndarray
) -> float:
    """Write coordinates to ``out`` that are standard exponential (SKEWED) or uniform; return the squared norm."""
    d = out.shape[0]
    square = 0.0
    for i in range(0, d, 2):
        pair = uniform_pair(seed, lane, number, ARMS, first_block + i // 2)
        for j in range(i, min(i + 2, d)):
            out[j] = exponential_variate(pair[j - i]) if law == SKEWED else radius * (2.0 * pair[j - i] - 1.0)
            square += out[j] * out[j]
    return square


@compiled_inner
def draw_arm(law: int, radius: float, seed: np.uint64, lane: int, number: int, slot: int, out: np.ndarray) -> float:
    """Write the arm of a slot to ``out``; return its squared norm for laws that scale the set later, else 0."""
    d = out.shape[0]
    first_block = slot * blocks_of(d)
    if law == CUBE:  # scaled to norm ``radius`` if longer
        square = independent_point(law, radius, seed, lane, number, first_block, out)
        if square > radius * radius:
            scale_vector(radius / math.sqrt(square), out)
    elif law == ORTHOGONAL:
        u, v = uniform_pair(seed, lane, number, ARMS, first_block)
        for i in range(d):
            out[i] = 0.0
        out[int(u * d)] = radius * (2.0 * v - 1.0)
    elif law == GAUSSIAN:
        return normal_vector(seed, lane, number, ARMS, first_block, out)
    elif law == SKEWED:
        return independent_point(law, radius, seed, lane, number, first_block, out)
    else:
        round_point(law, radius, seed, lane, number, ARMS, first_block, out)
    return 0.0


@compiled
def draw_arms(law: int, radius: float, seed: np.uint64, lane_ids: np.ndarray, t: int, out: np.ndarray) -> None:
    """Write new arms of round t to out[lane, k]; Gaussian and skewed sets are scaled to a longest arm of ``radius``."""
    for lane in range(out.shape[0]):
        longest = 0.0
        for k in range(out.shape[1]):
            longest = max(longest, draw_arm(law, radius, seed, lane_ids[lane], t, k, out[lane, k]))
        if law in (GAUSSIAN, SKEWED):
            factor = radius / math.sqrt(longest)
            for k in range(out.shape[1]):
                scale_vector(factor, out[lane, k])


@compiled
def draw_phases(seed: np.uint64, lane_ids: np.ndarray, lifetime: int, slots: np.ndarray) -> None:
    """Write to each phase how many rounds the first item of the slot has already lived, uniform in 0..lifetime-1."""
    for lane in range(slots.shape[0]):
        for k in range(slots.shape[1]):
            u, _ = uniform_pair(seed, lane_ids[lane], 0, PRESENCE, k)
            slots[lane, k]["phase"] = int(u * lifetime)


@compiled
def draw_items(
    law: int, radius: float, seed: np.uint64, lane_ids: np.ndarray, t: int, lifetime: int, presence: float,
    slots: np.ndarray, out: np.ndarray, valid: np.ndarray,
) -> None:  # fmt: skip
    """Write the item in slot k at round t to out[lane, k], and whether it is on offer to valid[lane, k].

    A slot gets a new item every ``lifetime`` rounds, shifted by the phase of the slot. Items are numbered from 1, and
    an item's features and presence depend on its number. The coin is the uniform that decides the presence. If none of
    a lane's items is on offer by its coin, the one with the smallest coin is offered. ``out`` and the coin are drawn
    again when the item number of the slot (0: none yet) changes.
    """
    for lane in range(out.shape[0]):
        smallest, has_valid = 0, False
        for k in range(out.shape[1]):
            slot = slots[lane, k]
            item = 1 + (t - 1 + slot["phase"]) // lifetime
            if item != slot["item"]:
                draw_arm(law, radius, seed, lane_ids[lane], item, k, out[lane, k])
                slot["coin"], _ = uniform_pair(seed, lane_ids[lane], item, PRESENCE, k)
                slot["item"] = item
            valid[lane, k] = slot["coin"] < presence
            has_valid = has_valid or valid[lane, k]
            if slot["coin"] < slots[lane, smallest]["coin"]:
                smallest = k
        if not has_valid:
            valid[lane, smallest] = True


@compiled
def best_means(means: np.ndarray, valid: np.ndarray, out: np.ndarray) -> None:
    """Write the largest mean among the valid arms to each out[lane]."""
    for lane in range(means.shape[0]):
        best = -math.inf
        for k in range(means.shape[1]):
            if valid[lane, k]:
                best = max(best, means[lane, k])
        out[lane] = best


@compiled
def first_outside(values: np.ndarray, low: float, high: float) -> int:
    """Return the first lane whose value is outside [low, high] or NaN; -1 if there is none."""
    for lane in range(values.shape[0]):
        if not low <= values[lane] <= high:
            return lane
    return -1


@compiled
def draw_uniforms(seed: np.uint64, lane_ids: np.ndarray, number: int, purpose: int, out: np.ndarray) -> None:
    """Write the uniform of this round and purpose to each out[lane]."""
    for lane in range(out.shape[0]):
        out[lane], _ = uniform_pair(seed, lane_ids[lane], number, purpose, 0)


@compiled
def draw_switches(radius: float, seed: np.uint64, lane_ids: np.ndarray, coins: np.ndarray, thetas: np.ndarray) -> None:
    """Write uniforms in [0, 1) to coins[lane, i], and points uniform on the sphere to thetas[lane, i]."""
    blocks = blocks_of(thetas.shape[2])
    for lane in range(coins.shape[0]):
        for i in range(coins.shape[1]):
            coins[lane, i], _ = uniform_pair(seed, lane_ids[lane], 0, DRIFT, i)
        for i in range(thetas.shape[1]):
            round_point(SPHERE, radius, seed, lane_ids[lane], 1, DRIFT, i * blocks, thetas[lane, i])


@compiled
def walk(
    first: int, step: float, radius: float, seed: np.uint64, lane_ids: np.ndarray, state: np.ndarray, out: np.ndarray
) -> None:
    """Write theta of round first + i of a random walk in the ball to out[i, lane].

    ``state`` is theta of round ``first``, and on return theta of the round after the last. theta_{t+1} is
    theta_t + step z / sqrt(d), z standard normal, scaled to norm ``radius`` if longer.
    """
    d = state.shape[1]
    for lane in range(state.shape[0]):
        for i in range(out.shape[0]):
            theta = out[i, lane]
            normal_vector(seed, lane_ids[lane], first + i, DRIFT, 0, theta)
            square = 0.0
            for j in range(d):
                z, theta[j] = theta[j], state[lane, j]
                state[lane, j] += step / math.sqrt(d) * z
                square += state[lane, j] * state[lane, j]
            if square > radius * radius:
                scale_vector(radius / math.sqrt(square), state[lane])


@compiled
def add_moves(points: np.ndarray, last: np.ndarray, total: np.ndarray, lost: np.ndarray, switches: np.ndarray) -> None:
    """Add the length of the path from ``last`` through ``points`` to total[lane]; count its moves in switches[lane].

    Lengths are added one by one with compensation (Kahan, ``lost``), so that the sum does not depend on how a path is
    cut into blocks.
    """
    for lane in range(last.shape[0]):
        for i in range(points.shape[0]):
            square = 0.0
            has_moved = False
            for j in range(last.shape[1]):
                move = points[i, lane, j] - last[lane, j]
                square += move * move
                has_moved = has_moved or points[i, lane, j] != last[lane, j]
                last[lane, j] = points[i, lane, j]
            if has_moved:
                switches[lane] += 1
            length = math.sqrt(square) - lost[lane]
            longer = total[lane] + length
            lost[lane] = (longer - total[lane]) - length
            total[lane] = longer


@compiled_inner
def count_quantile(u: float, mode: int, top: float, slope: float, most: int) -> int:
    """Return min(k, most) for the least k with cdf(k) > u, where p(k+1)/p(k) = (top - slope k)/(k + 1) for k >= 0.

    Poisson and binomial laws have this form (Panjer). Terms are summed relative to the one at the mode, so that none
    overflows or underflows, and their total replaces the normalising constant.
    """
    below, term, k = 0.0, 1.0, mode  # sum of the terms below the mode
    while k > 0 and term > _NEGLIGIBLE:
        term *= k / (top - slope * (k - 1))
        below += term
        k -= 1
    above, term, k = 0.0, 1.0, mode  # from the mode on
    while term > _NEGLIGIBLE:
        above += term
        term *= (top - slope * k) / (k + 1)
        k += 1
    goal = u * (below + above)
    reached, term, k = below, 1.0, mode
    while k > 0 and reached > goal:  # reached: the sum of all terms below k
        term *= k / (top - slope * (k - 1))
        k -= 1
        reached -= term
    while k < most and reached + term <= goal and term > _NEGLIGIBLE:
        reached += term
        term *= (top - slope * k) / (k + 1)
        k += 1
    return min(k, most)


@compiled
def draw_poisson(u: np.ndarray, mean: np.ndarray, most: int, out: np.ndarray) -> None:
    """Write min(N, most), N Poisson with the lane's mean, to each out[lane]."""
    for lane in range(out.shape[0]):
        out[lane] = count_quantile(u[lane], int(mean[lane]), mean[lane], 0.0, most)


@compiled
def draw_binomial(u: np.ndarray, mean: np.ndarray, trials: int, out: np.ndarray) -> None:
    """Write the share of successes in ``trials`` trials, with the lane's mean as probability, to each out[lane]."""
    for lane in range(out.shape[0]):
        p = mean[lane]
        if p >= 1.0:
            out[lane] = 1.0
        else:
            odds = p / (1.0 - p)
            mode = min(int((trials + 1) * p), trials)
            out[lane] = count_quantile(u[lane], mode, odds * trials, odds, trials) / trials
