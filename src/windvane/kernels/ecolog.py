"""The steps of ECOLog for lanes, and those of ada-OFU-ECOLog, which rejects rewards and keeps to an ellipsoid."""

from __future__ import annotations

import math

import numpy as np

from windvane.kernels.elementary import mean_slope
from windvane.kernels.jit import compiled, compiled_inner
from windvane.kernels.lanes import THETA_HAT, V_of
from windvane.kernels.linalg import copy, dot, factorise, norm, solve_cholesky
from windvane.kernels.online import LOWER, METRIC, SPARE, TARGET, find_length, step_in_ball

LARGEST_FACTOR = 1e12  # of the multiplier of an ellipsoid, relative to the matrices: beyond, the sets do not meet
MOST_HALVINGS = 60  # of the bracket of that multiplier on a logarithmic scale, from 1e-12 to 1e12

# Rows of a region, the ellipsoid (theta - center)' shape (theta - center) <= level: the center, shape, and the level.
CENTER, SHAPE = 0, 1

# Further matrices of the workspace.
_ZERO, _ONE, _OWN, _LINEAR, _GAP, _FREE = range(SPARE, SPARE + 6)


@compiled_inner
def softplus(z: float) -> float:
    """Return log(1 + exp(z)), the primitive of the logistic function."""
    return max(z, 0.0) + math.log1p(math.exp(-abs(z)))


@compiled_inner
def prepare_step(V: np.ndarray, theta: np.ndarray, x: np.ndarray, work: np.ndarray) -> None:
    """Prepare steps from theta: the workspace gets V^-1 x, and V theta as the target."""
    factorise(V, work[LOWER])
    solve_cholesky(work[LOWER], x, work[_FREE, 0])
    for j in range(theta.shape[0]):
        work[TARGET, 0, j] = dot(V[j], theta)


@compiled_inner
def _step_from(
    lane: np.void, V: np.ndarray, theta: np.ndarray, x: np.ndarray, pull: float, reward: float, work: np.ndarray,
    out: np.ndarray,
) -> None:  # fmt: skip
    """Set out to the result of a step from theta, over the ball, after :func:`prepare_step`."""
    free = work[_FREE, 0]
    length, _ = find_length(lane["link"], dot(x, theta), dot(x, free), pull, reward)
    for j in range(x.shape[0]):
        out[j] = theta[j] - length * free[j]
    if norm(out) > lane["S"]:
        step_in_ball(lane["link"], V, work[TARGET, 0], x, pull, reward, lane["S"], work, out)


@compiled_inner
def _cost(
    V: np.ndarray, theta: np.ndarray, x: np.ndarray, pull: float, reward: float, new: np.ndarray, gap: np.ndarray
) -> float:
    """Return ||new - theta||^2 / (2 pull) in the metric V plus the logistic loss of ``new``."""
    total = 0.0
    for j in range(x.shape[0]):
        gap[j] = new[j] - theta[j]
    for j in range(x.shape[0]):
        total += gap[j] * dot(V[j], gap)
    z = dot(x, new)
    return 0.5 * total / pull + softplus(z) - reward * z


@compiled
def ecolog_lanes(
    x: np.ndarray,
    reward: np.ndarray,
    weight: np.ndarray,
    mask: np.ndarray,
    record: np.ndarray,
    dense: np.ndarray,
    work: np.ndarray,
    slope: np.ndarray,
) -> None:
    """Take a step of ECOLog for each observation, with k = 1 + S L, and add to ``regret`` what the radius needs.

    theta_hat becomes the minimiser over the ball of m(r) = weight loss(theta, r) + ||theta - theta_hat||^2 / (2 k) in
    the metric V. ``regret`` gains weight log(e^{-c(0)} + e^{-c(1)}) + (1 - r) m(0) + r m(1) - m(r) with
    c = m / weight. ``slope`` is mu' at the new theta_hat.
    """
    zero, one, own, gap = work[_ZERO, 0], work[_ONE, 0], work[_OWN, 0], work[_GAP, 0]
    for i in range(len(record)):
        slope[i] = 1.0
        if not mask[i] or weight[i] == 0.0:
            continue
        lane, row, point, w, r = record[i], dense[i], x[i], weight[i], reward[i]
        V, theta = V_of(row), row[THETA_HAT]
        pull = (1.0 + lane["S"] * lane["L"]) * w
        prepare_step(V, theta, point, work)
        _step_from(lane, V, theta, point, pull, 0.0, work, zero)
        _step_from(lane, V, theta, point, pull, 1.0, work, one)
        at_zero = _cost(V, theta, point, pull, 0.0, zero, gap)
        at_one = _cost(V, theta, point, pull, 1.0, one, gap)
        gain = softplus(at_zero - at_one) - at_zero
        if r == 0.0:
            copy(zero, own)
        elif r == 1.0:
            copy(one, own)
        else:
            _step_from(lane, V, theta, point, pull, r, work, own)
            gain += (1.0 - r) * at_zero + r * at_one - _cost(V, theta, point, pull, r, own, gap)
        lane["regret"] += w * gain
        copy(own, theta)
        slope[i] = mean_slope(lane["link"], dot(point, theta))[1]


@compiled_inner
def _distance(region: np.ndarray, theta: np.ndarray, gap: np.ndarray) -> float:
    """Return (theta - center)' shape (theta - center)."""
    total = 0.0
    for j in range(theta.shape[0]):
        gap[j] = theta[j] - region[CENTER, j]
    for j in range(theta.shape[0]):
        total += gap[j] * dot(region[SHAPE + j], gap)
    return total


@compiled_inner
def step_in_set(
    lane: np.void, V: np.ndarray, theta: np.ndarray, x: np.ndarray, pull: float, reward: float, region: np.ndarray,
    work: np.ndarray, out: np.ndarray,
) -> None:  # fmt: skip
    """Set out to the result of a step from theta over the ball and an ellipsoid, after :func:`prepare_step`.

    With its multiplier xi, the ellipsoid adds xi shape to V and xi shape center to the target. The distance from the
    center decreases with xi, whose logarithm is found by bisection. If the sets do not meet, the result is the point of
    the ball next to the ellipsoid, nearly.
    """
    d = x.shape[0]
    link, S, level = lane["link"], lane["S"], region[SHAPE + d, 0]
    _step_from(lane, V, theta, x, pull, reward, work, out)
    if _distance(region, out, work[_GAP, 0]) <= level:
        return
    size, scale = 0.0, 0.0
    for j in range(d):
        size, scale = size + V[j, j], scale + region[SHAPE + j, j]
    metric, linear, target, gap = work[METRIC], work[_LINEAR, 0], work[TARGET, 0], work[_GAP, 0]
    low, high = -math.log(LARGEST_FACTOR), math.log(LARGEST_FACTOR)
    for _ in range(MOST_HALVINGS):
        middle = 0.5 * (low + high)
        xi = math.exp(middle) * size / scale
        for j in range(d):
            linear[j] = target[j] + xi * dot(region[SHAPE + j], region[CENTER])
            for k in range(d):
                metric[j, k] = V[j, k] + xi * region[SHAPE + j, k]
        step_in_ball(link, metric, linear, x, pull, reward, S, work, out)
        if _distance(region, out, gap) > level:
            low = middle
        else:
            high = middle


@compiled
def ecolog_or_reject_lanes(
    x: np.ndarray,
    reward: np.ndarray,
    weight: np.ndarray,
    mask: np.ndarray,
    sets: np.ndarray,
    record: np.ndarray,
    dense: np.ndarray,
    work: np.ndarray,
    slope: np.ndarray,
    accepted: np.ndarray,
) -> None:
    """Take a step of ECOLog for each observation that satisfies condition (C1) of ada-OFU-ECOLog (Faury et al. 2022).

    The condition is mu' <= 2 mu' at <x, theta^u>, u = 0 and 1, where the left side is at the minimiser with both losses
    (a loss of weight 2 with the reward 1/2), and theta^u the one with the loss of reward u. All minimisers are in the
    ball and in ``sets[lane]``. Other observations are only marked as not ``accepted``.
    """
    zero, one, own = work[_ZERO, 0], work[_ONE, 0], work[_OWN, 0]
    for i in range(len(record)):
        slope[i], accepted[i] = 1.0, False
        if not mask[i] or weight[i] == 0.0:
            continue
        lane, row, point, r, region = record[i], dense[i], x[i], reward[i], sets[i]
        link, V, theta = lane["link"], V_of(row), row[THETA_HAT]
        pull = (1.0 + lane["S"] * lane["L"]) * weight[i]
        prepare_step(V, theta, point, work)
        step_in_set(lane, V, theta, point, 2.0 * pull, 0.5, region, work, own)
        least = 0.5 * mean_slope(link, dot(point, own))[1]
        step_in_set(lane, V, theta, point, pull, 0.0, region, work, zero)
        step_in_set(lane, V, theta, point, pull, 1.0, region, work, one)
        if min(mean_slope(link, dot(point, zero))[1], mean_slope(link, dot(point, one))[1]) < least:
            continue
        accepted[i] = True
        if r == 0.0:
            copy(zero, theta)
        elif r == 1.0:
            copy(one, theta)
        else:
            step_in_set(lane, V, theta, point, pull, r, region, work, own)
            copy(own, theta)
        slope[i] = mean_slope(link, dot(point, theta))[1]
