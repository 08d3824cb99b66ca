"""From a parameter and a metric to a chosen arm: predictions, widths, the argmax with seeded ties, input checks."""

from __future__ import annotations

import math

import numpy as np

from windvane.kernels._jit import compiled
from windvane.kernels.elementary import mean_slope
from windvane.kernels.linalg import cholesky, dot, solve_cholesky, solve_lower
from windvane.kernels.random import TIES, uniform

TIE = 1e-12  # scores this close to the best, relative to max(1, |best|), count as equal

FINE, NOT_FINITE, TOO_LONG, NO_VALID_ARM, BAD_REWARD, BAD_ROUND, BAD_WEIGHT = range(7)


@compiled
def predict_lanes(lo: int, hi: int, link: int, arms: np.ndarray, theta: np.ndarray, out: np.ndarray) -> None:
    """out[lane, k] = mu(<arm_k, theta>)."""
    for lane in range(lo, hi):
        for k in range(arms.shape[1]):
            out[lane, k], _ = mean_slope(link, dot(arms[lane, k], theta[lane]))


@compiled
def width_lanes(
    lo: int, hi: int, sandwich: bool, arms: np.ndarray, V: np.ndarray, V_tilde: np.ndarray, out: np.ndarray
) -> None:
    """out[lane, k] = ||arm_k|| in the metric V^{-1}, or V^{-1} V_tilde V^{-1} (``sandwich``)."""
    d = arms.shape[2]
    lower = np.empty((d, d))
    solved = np.empty(d)
    for lane in range(lo, hi):
        cholesky(V[lane], 0.0, lower)
        for k in range(arms.shape[1]):
            if sandwich:
                solve_cholesky(lower, arms[lane, k], solved)
                square = 0.0
                for i in range(d):
                    square += solved[i] * dot(V_tilde[lane, i], solved)
            else:
                solve_lower(lower, arms[lane, k], solved)
                square = dot(solved, solved)
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
    now: float,
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
        if not math.isfinite(reward[lane]) or reward[lane] < low or reward[lane] > high:
            return BAD_REWARD, lane
        if not math.isfinite(decided[lane]) or decided[lane] > now - 1.0:
            return BAD_ROUND, lane
        if not math.isfinite(weight[lane]) or weight[lane] < 0.0:
            return BAD_WEIGHT, lane
    return FINE, 0
