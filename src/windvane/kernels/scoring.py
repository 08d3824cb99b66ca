"""Predictions, widths, the choice of an arm with seeded ties, and checks of input arrays."""

from __future__ import annotations

import math

import numpy as np

from windvane.kernels.elementary import mean_slope
from windvane.kernels.jit import compiled, compiled_inner
from windvane.kernels.lanes import V_of, V_tilde_of
from windvane.kernels.linalg import cholesky, dot, factorise, gram_of_columns, invert_lower
from windvane.kernels.random import TIES, uniform

LARGEST_REWARD = 1e100  # if rewards are unbounded: sums of larger rewards could overflow
LARGEST_WEIGHT = 1e12  # stored weights grow with age, and products of larger weights could overflow
TIE = 1e-12  # scores within this distance of the best, relative to max(1, |best|), are ties

NO_PROBLEM, NOT_FINITE, TOO_LONG, NO_VALID_ARM, BAD_REWARD, BAD_ROUND, BAD_WEIGHT = range(7)


@compiled
def predict_lanes(link: int, arms: np.ndarray, theta: np.ndarray, out: np.ndarray) -> None:
    """Set out[lane, k] = mu(<arm_k, theta>), or <arm_k, theta> itself if ``link`` is not a built-in link."""
    for lane in range(arms.shape[0]):
        for k in range(arms.shape[1]):
            out[lane, k], _ = mean_slope(link, dot(arms[lane, k], theta[lane]))


@compiled_inner
def _square(root: np.ndarray, x: np.ndarray) -> float:
    """Return ||root x||^2 for a lower triangular matrix."""
    total = 0.0
    for i in range(x.shape[0]):
        total += dot(root[i, : i + 1], x[: i + 1]) ** 2
    return total


@compiled
def width_lanes(
    is_sandwich: bool, arms: np.ndarray, factor: np.ndarray, dense: np.ndarray, work: np.ndarray, out: np.ndarray
) -> None:
    """Set out[lane, k] = factor ||arm_k|| in the metric V^{-1}, or V^{-1} V_tilde V^{-1} if ``is_sandwich``."""
    K, d = arms.shape[1], arms.shape[2]
    lower, root, inverse = work[0], work[1], work[2]
    y = work[3, 0]
    for lane in range(arms.shape[0]):
        row = dense[lane]
        V_tilde = V_tilde_of(row)
        factorise(V_of(row), lower)
        invert_lower(lower, root)  # once per lane, so that arms need products of contiguous rows only
        if is_sandwich:
            gram_of_columns(root, inverse)
        for k in range(K):
            x = arms[lane, k]
            square = 0.0
            if is_sandwich:
                for i in range(d):
                    y[i] = dot(inverse[i], x)
                for i in range(d):
                    square += y[i] * dot(V_tilde[i], y)
            else:
                square = _square(root, x)
            out[lane, k] = factor[lane] * math.sqrt(max(square, 0.0))


@compiled
def norm_lanes(arms: np.ndarray, factor: np.ndarray, matrices: np.ndarray, work: np.ndarray, out: np.ndarray) -> None:
    """Set out[lane, k] = factor ||arm_k|| in the inverse of the lane's matrix."""
    lower, root = work[0], work[1]
    for lane in range(arms.shape[0]):
        factorise(matrices[lane], lower)
        invert_lower(lower, root)
        for k in range(arms.shape[1]):
            out[lane, k] = factor[lane] * math.sqrt(_square(root, arms[lane, k]))


@compiled
def span_lanes(dense: np.ndarray, least: float, work: np.ndarray, out: np.ndarray) -> None:
    """Set out[lane] to whether all eigenvalues of V are at least ``least``, up to rounding."""
    for lane in range(dense.shape[0]):
        out[lane] = cholesky(V_of(dense[lane]), -least * (1.0 - TIE), work[0])


@compiled_inner
def _count_ties(scores: np.ndarray, valid: np.ndarray) -> tuple[float, int]:
    """Return the smallest score that counts as best, and the number of valid arms that reach it."""
    best = -math.inf
    for k in range(scores.shape[0]):
        if valid[k]:
            best = max(best, scores[k])
    threshold = best if math.isinf(best) else best - TIE * max(1.0, abs(best))
    ties = 0
    for k in range(scores.shape[0]):
        if valid[k] and scores[k] >= threshold:
            ties += 1
    return threshold, ties


@compiled_inner
def _first_valid(valid: np.ndarray) -> int:
    """Return the first valid arm."""
    for k in range(valid.shape[0]):
        if valid[k]:
            return k
    return 0


@compiled
def choose_lanes(
    scores: np.ndarray, valid: np.ndarray, seed: np.uint64, lane_ids: np.ndarray, decision: int, out: np.ndarray
) -> None:
    """Set out[lane] to the valid arm with the best score. A random number, one per decision, breaks ties."""
    for lane in range(scores.shape[0]):
        threshold, ties = _count_ties(scores[lane], valid[lane])
        out[lane] = _first_valid(valid[lane])  # if all scores are NaN
        pick = int(uniform(seed, lane_ids[lane], decision, TIES) * ties)
        for k in range(scores.shape[1]):
            if valid[lane, k] and scores[lane, k] >= threshold:
                if pick == 0:
                    out[lane] = k
                    break
                pick -= 1


@compiled
def choice_probabilities(scores: np.ndarray, valid: np.ndarray, out: np.ndarray) -> None:
    """Set out[lane, k] to the probability that :func:`choose_lanes` chooses arm k. Ties have equal probabilities."""
    for lane in range(scores.shape[0]):
        threshold, ties = _count_ties(scores[lane], valid[lane])
        for k in range(scores.shape[1]):
            out[lane, k] = 1.0 / ties if valid[lane, k] and scores[lane, k] >= threshold else 0.0
        if ties == 0:  # all scores are NaN
            out[lane, _first_valid(valid[lane])] = 1.0


@compiled
def log_det_lanes(dense: np.ndarray, lam: float, work: np.ndarray, out: np.ndarray) -> None:
    """Set out[lane] = log det(V / lam)."""
    lower = work[0]
    for lane in range(dense.shape[0]):
        factorise(V_of(dense[lane]), lower)
        total = 0.0
        for i in range(lower.shape[0]):
            total += math.log(lower[i, i] * lower[i, i] / lam)
        out[lane] = total


@compiled
def check_points(points: np.ndarray, valid: np.ndarray, longest: float) -> tuple[int, int, int]:
    """Return (problem, lane, arm) for the first bad point: not finite, too long, or in a lane without a valid arm."""
    for lane in range(points.shape[0]):
        has_valid = False
        for k in range(points.shape[1]):
            if not valid[lane, k]:
                continue
            has_valid = True
            square = 0.0
            for i in range(points.shape[2]):
                square += points[lane, k, i] * points[lane, k, i]
            if not math.isfinite(square):
                return NOT_FINITE, lane, k
            if square > longest * longest:
                return TOO_LONG, lane, k
        if not has_valid:
            return NO_VALID_ARM, lane, 0
    return NO_PROBLEM, 0, 0


@compiled
def check_feedback(
    x: np.ndarray,
    reward: np.ndarray,
    round: np.ndarray,
    weight: np.ndarray,
    mask: np.ndarray,
    longest: float,
    low: float,
    high: float,
    latest: float,
    age: np.ndarray,
) -> tuple[int, int]:
    """Return (problem, lane) for the first bad observation in ``mask``. Set the ages of the observations."""
    for lane in range(x.shape[0]):
        age[lane] = 0.0
        if not mask[lane]:
            continue
        square = dot(x[lane], x[lane])
        if not math.isfinite(square):
            return NOT_FINITE, lane
        if square > longest * longest:
            return TOO_LONG, lane
        if not (low <= reward[lane] <= high and abs(reward[lane]) <= LARGEST_REWARD):  # `not` so that NaN is rejected
            return BAD_REWARD, lane
        if not math.isfinite(round[lane]) or round[lane] > latest:
            return BAD_ROUND, lane
        if not 0.0 <= weight[lane] <= LARGEST_WEIGHT:
            return BAD_WEIGHT, lane
        age[lane] = latest - round[lane]
    return NO_PROBLEM, 0


@compiled
def find_unit_vectors(vectors: np.ndarray, valid: np.ndarray, out: np.ndarray) -> tuple[int, int]:
    """Set out[lane, k] to the i for which vectors[lane, k] is the unit vector e_i, or to -1 where it is not valid.

    Return (lane, k) of the first valid vector that is not a unit vector, or (-1, -1).
    """
    for lane in range(vectors.shape[0]):
        for k in range(vectors.shape[1]):
            out[lane, k] = -1
            if not valid[lane, k]:
                continue
            is_unit = True
            for i in range(vectors.shape[2]):
                entry = vectors[lane, k, i]
                if entry == 1.0 and out[lane, k] < 0:
                    out[lane, k] = i
                elif entry != 0.0:  # also true of NaN
                    is_unit = False
            if not is_unit or out[lane, k] < 0:
                return lane, k
    return -1, -1
