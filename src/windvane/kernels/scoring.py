"""From a parameter and a metric to a chosen arm: predictions, widths, the argmax with seeded ties, input checks."""

from __future__ import annotations

import math

import numpy as np

from windvane.kernels.elementary import mean_slope
from windvane.kernels.jit import compiled
from windvane.kernels.linalg import dot, factorise
from windvane.kernels.random import TIES, uniform

LARGEST_REWARD = 1e100  # where any finite reward is allowed: short of what would overflow a sum
LARGEST_WEIGHT = 1e12  # weights grow with age in store; products of larger ones could overflow
TIE = 1e-12  # scores this close to the best, relative to max(1, |best|), count as equal

FINE, NOT_FINITE, TOO_LONG, NO_VALID_ARM, BAD_REWARD, BAD_ROUND, BAD_WEIGHT = range(7)


@compiled
def predict_lanes(lo: int, hi: int, link: int, arms: np.ndarray, theta: np.ndarray, out: np.ndarray) -> None:
    """out[lane, k] = mu(<arm_k, theta>)."""
    for lane in range(lo, hi):
        for k in range(arms.shape[1]):
            out[lane, k], _ = mean_slope(link, dot(arms[lane, k], theta[lane]))


@compiled
def _subtract(target: np.ndarray, factor: float, source: np.ndarray) -> None:
    for i in range(target.shape[0]):
        target[i] -= factor * source[i]


@compiled
def _divide(target: np.ndarray, divisor: float) -> None:
    for i in range(target.shape[0]):
        target[i] /= divisor


@compiled
def width_lanes(
    lo: int, hi: int, sandwich: bool, arms: np.ndarray, V: np.ndarray, V_tilde: np.ndarray, out: np.ndarray
) -> None:
    """out[lane, k] = ||arm_k|| in the metric V^{-1}, or V^{-1} V_tilde V^{-1} (``sandwich``)."""
    K, d = arms.shape[1], arms.shape[2]
    lower = np.empty((d, d))
    solved = np.empty((d, K))  # the arms as columns, so that one sweep solves for all of them
    for lane in range(lo, hi):
        factorise(V[lane], lower)
        for k in range(K):
            for i in range(d):
                solved[i, k] = arms[lane, k, i]
        for i in range(d):  # lower^{-1} arms
            for j in range(i):
                _subtract(solved[i], lower[i, j], solved[j])
            _divide(solved[i], lower[i, i])
        if sandwich:
            for i in range(d - 1, -1, -1):  # V^{-1} arms
                _divide(solved[i], lower[i, i])
                for j in range(i):
                    _subtract(solved[j], lower[i, j], solved[i])
        for k in range(K):
            square = 0.0
            for i in range(d):
                if sandwich:
                    for j in range(d):
                        square += solved[i, k] * V_tilde[lane, i, j] * solved[j, k]
                else:
                    square += solved[i, k] * solved[i, k]
            out[lane, k] = math.sqrt(max(square, 0.0))


@compiled
def choose_lanes(
    lo: int,
    hi: int,
    scores: np.ndarray,
    valid: np.ndarray,
    seed: np.uint64,
    lane_ids: np.ndarray,
    decision: int,
    out: np.ndarray,
) -> None:
    """out[lane] = the index of the best valid score; among ties, the one the lane's uniform of this decision says."""
    for lane in range(lo, hi):
        best = -math.inf
        for k in range(scores.shape[1]):
            if valid[lane, k]:
                best = max(best, scores[lane, k])
        bar = best - TIE * max(1.0, abs(best))
        ties = 0
        for k in range(scores.shape[1]):
            if valid[lane, k] and scores[lane, k] >= bar:
                ties += 1
        out[lane] = 0
        pick = int(uniform(seed, lane_ids[lane], decision, TIES) * ties)
        for k in range(scores.shape[1]):
            if valid[lane, k] and scores[lane, k] >= bar:
                if pick == 0:
                    out[lane] = k
                    break
                pick -= 1


@compiled
def check_points(points: np.ndarray, valid: np.ndarray, longest: float) -> tuple[int, int, int]:
    """(what is wrong, lane, arm) of the first bad point: not finite, longer than allowed, or no valid arm at all."""
    for lane in range(points.shape[0]):
        any_valid = False
        for k in range(points.shape[1]):
            if not valid[lane, k]:
                continue
            any_valid = True
            square = 0.0
            for i in range(points.shape[2]):
                square += points[lane, k, i] * points[lane, k, i]
            if not math.isfinite(square):
                return NOT_FINITE, lane, k
            if square > longest * longest:
                return TOO_LONG, lane, k
        if not any_valid:
            return NO_VALID_ARM, lane, 0
    return FINE, 0, 0


@compiled
def check_feedback(
    x: np.ndarray,
    reward: np.ndarray,
    decided: np.ndarray,
    weight: np.ndarray,
    mask: np.ndarray,
    longest: float,
    low: float,
    high: float,
    latest: float,
) -> tuple[int, int]:
    """(what is wrong, lane) of the first bad observation among the unmasked lanes."""
    for lane in range(x.shape[0]):
        if not mask[lane]:
            continue
        square = dot(x[lane], x[lane])
        if not math.isfinite(square):
            return NOT_FINITE, lane
        if square > longest * longest:
            return TOO_LONG, lane
        if not (low <= reward[lane] <= high and abs(reward[lane]) <= LARGEST_REWARD):  # not a number, too
            return BAD_REWARD, lane
        if not math.isfinite(decided[lane]) or decided[lane] > latest:
            return BAD_ROUND, lane
        if not 0.0 <= weight[lane] <= LARGEST_WEIGHT:
            return BAD_WEIGHT, lane
    return FINE, 0
