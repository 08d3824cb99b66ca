"""How the discounted history of a lane ages, grows and forgets.

The entries ``start <= i < end`` of ``X[d, capacity]``, ``W``, ``R`` and ``S`` (features, stored weight, reward and
deciding time) are in use, sorted by deciding time. The weight of entry i at time ``now`` is ``W[i] * scale`` with
``scale = gamma^(now - origin)``: ageing the whole history is one multiplication, not a pass.
"""

from __future__ import annotations

import math

import numpy as np

from windvane.kernels.elementary import mean_slope
from windvane.kernels.jit import compiled, compiled_inner
from windvane.kernels.linalg import add_outer, copy_matrix, dot

FRESH, MOVED, LOST = 0, 1, 2  # theta is the root; (pull, H) tell how to move it; they do not (entries were removed)
SMALLEST_WEIGHT = 1e-300  # less is no observation at all (and would not stay positive in store)
MAX_EXPONENT = 300.0  # stored weights grow like gamma^-(s - origin); re-based before they pass e^300


@compiled
def decay_towards(matrix: np.ndarray, keep: float, diagonal: float) -> None:
    """matrix <- keep matrix + (1 - keep) diagonal I."""
    d = matrix.shape[0]
    for i in range(d):
        for j in range(d):
            matrix[i, j] *= keep
        matrix[i, i] += (1.0 - keep) * diagonal


@compiled_inner
def rebuild_window(
    X: np.ndarray,
    W: np.ndarray,
    R: np.ndarray,
    start: int,
    end: int,
    lam: float,
    V: np.ndarray,
    b: np.ndarray,
) -> None:
    """V and b of a sliding window, summed afresh: adding and subtracting for ever would let rounding pile up."""
    V[:] = 0.0
    b[:] = 0.0
    d = X.shape[0]
    for i in range(start, end):
        for j in range(d):
            b[j] += W[i] * R[i] * X[j, i]
            for k in range(d):
                V[j, k] += W[i] * X[j, i] * X[k, i]
    for j in range(d):
        V[j, j] += lam


@compiled
def age_lanes(
    lo: int,
    hi: int,
    gap: float,
    lam: float,
    ridge: float,
    gamma: np.ndarray,
    window: np.ndarray,
    memory: np.ndarray,
    drop_budget: float,
    clock: np.ndarray,
    span: np.ndarray,
    X: np.ndarray,
    W: np.ndarray,
    R: np.ndarray,
    S: np.ndarray,
    V: np.ndarray,
    V_tilde: np.ndarray,
    b: np.ndarray,
    theta: np.ndarray,
    pull: np.ndarray,
    H: np.ndarray,
    stale: np.ndarray,
) -> None:
    """Let ``gap`` rounds pass: V, V_tilde, b and the linearisation (pull, H) at theta decay; the too old is dropped.

    ``clock[lane] = (now, origin, dropped weight)``; ``span[lane] = (start, end, removals since the last rebuild)``.
    """
    d = b.shape[1]
    for lane in range(lo, hi):
        now = clock[lane, 0] + gap
        clock[lane, 0] = now
        start, end = span[lane, 0], span[lane, 1]
        if not math.isinf(window[lane]):
            removed = 0
            heaviest = 0.0
            while start < end and now - S[lane, start] >= window[lane]:
                x = X[lane, :, start].copy()
                add_outer(V[lane], -W[lane, start], x)
                for j in range(d):
                    b[lane, j] -= W[lane, start] * R[lane, start] * x[j]
                length = math.sqrt(dot(x, x))
                heaviest = max(heaviest, W[lane, start] * length * (length + abs(R[lane, start])))
                start += 1
                removed += 1
            if removed > 0:
                stale[lane] = LOST
                span[lane, 0] = start
                span[lane, 2] += removed
                if span[lane, 2] >= max(1024, end - start) or heaviest > 1e4 * lam:
                    rebuild_window(X[lane], W[lane], R[lane], start, end, lam, V[lane], b[lane])
                    span[lane, 2] = 0
                copy_matrix(V[lane], V_tilde[lane])
            continue
        rate = gamma[lane]
        if rate == 1.0:
            continue
        stale[lane] = max(stale[lane], MOVED)
        keep = rate if gap == 1.0 else rate**gap
        decay_towards(V[lane], keep, lam)
        decay_towards(V_tilde[lane], keep * keep, lam)
        decay_towards(H[lane], keep, ridge)
        for j in range(d):
            b[lane, j] *= keep
            pull[lane, j] = keep * pull[lane, j] + (1.0 - keep) * ridge * theta[lane, j]
        clock[lane, 2] *= keep
        if end == start:
            continue
        exponent = math.log(rate) * (now - clock[lane, 1])
        if exponent < -MAX_EXPONENT:
            scale = math.exp(exponent)
            for i in range(start, end):
                W[lane, i] *= scale
            clock[lane, 1] = now
            exponent = 0.0
        scale = math.exp(exponent)
        while start < end and now - S[lane, start] > memory[lane]:
            dropped = clock[lane, 2] + W[lane, start] * scale
            if dropped > drop_budget:
                break
            clock[lane, 2] = dropped
            start += 1
        span[lane, 0] = start


@compiled
def observe_lanes(
    lo: int,
    hi: int,
    link: int,
    x: np.ndarray,
    reward: np.ndarray,
    decided: np.ndarray,
    now: float,
    weight: np.ndarray,
    mask: np.ndarray,
    remember: bool,
    gamma: np.ndarray,
    window: np.ndarray,
    memory: np.ndarray,
    clock: np.ndarray,
    span: np.ndarray,
    X: np.ndarray,
    W: np.ndarray,
    R: np.ndarray,
    S: np.ndarray,
    V: np.ndarray,
    V_tilde: np.ndarray,
    b: np.ndarray,
    theta: np.ndarray,
    pull: np.ndarray,
    H: np.ndarray,
    stale: np.ndarray,
) -> None:
    """Take in one observation per unmasked lane, of age now - decided; one older than the memory is ignored."""
    d = b.shape[1]
    for lane in range(lo, hi):
        if not mask[lane] or weight[lane] == 0.0:
            continue
        age = now - decided[lane]
        moment = clock[lane, 0] - age  # on the lane's own clock
        decay = 1.0 if age == 0.0 else gamma[lane] ** age
        entering = weight[lane] * decay
        if entering < SMALLEST_WEIGHT:
            continue
        if age >= window[lane] or (age > memory[lane] and entering <= gamma[lane] ** memory[lane]):
            continue
        point = x[lane]
        mean, slope = 0.0, 0.0
        if remember:  # before anything changes: a custom link may raise
            mean, slope = mean_slope(link, dot(point, theta[lane]))
        add_outer(V[lane], entering, point)
        add_outer(V_tilde[lane], entering * decay, point)
        for j in range(d):
            b[lane, j] += entering * reward[lane] * point[j]
        stale[lane] = max(stale[lane], MOVED)
        if not remember:
            continue
        for j in range(d):
            pull[lane, j] += entering * (mean - reward[lane]) * point[j]
        add_outer(H[lane], entering * slope, point)
        if span[lane, 0] == span[lane, 1]:
            clock[lane, 1] = clock[lane, 0]
        at = span[lane, 1]
        while at > span[lane, 0] and S[lane, at - 1] > moment:
            for j in range(d):
                X[lane, j, at] = X[lane, j, at - 1]
            W[lane, at] = W[lane, at - 1]
            R[lane, at] = R[lane, at - 1]
            S[lane, at] = S[lane, at - 1]
            at -= 1
        for j in range(d):
            X[lane, j, at] = point[j]
        exponent = math.log(gamma[lane]) * (clock[lane, 1] - moment)
        W[lane, at] = weight[lane] * math.exp(exponent)
        R[lane, at] = reward[lane]
        S[lane, at] = moment
        span[lane, 1] += 1
