"""The discounted history of one lane: sums over it, and how it ages, grows and forgets.

A lane's history is feature-major: ``X[d, capacity]`` with the entries ``start <= i < end`` in use, sorted by deciding
round, so that the loops over time are contiguous. The weight of entry i at clock ``now`` is ``W[i] * scale`` with
``scale = gamma^(now - origin)``: ageing the whole history is one multiplication, not a pass.
"""

from __future__ import annotations

import math

import numpy as np

from windvane.kernels._jit import compiled, compiled_sums
from windvane.kernels.elementary import bend_array, mean_slope, mean_slope_array
from windvane.kernels.linalg import copy_matrix

BLOCK = 512  # entries worked on at a time: a block of every feature row stays in the first-level cache
FRESH, MOVED, LOST = 0, 1, 2  # theta is the root; (pull, H) tell how to move it; they do not (entries were removed)
MAX_EXPONENT = 300.0  # stored weights grow like gamma^-(s - origin); re-based before they pass e^300


# Rows are sliced before a loop: indexing [j, first + i] directly keeps numba's negative-index check in the loop, and
# the loop from vectorising.


@compiled_sums
def _project_block(X: np.ndarray, theta: np.ndarray, first: int, n: int, z: np.ndarray) -> None:
    for j in range(X.shape[0]):
        row = X[j, first : first + n]
        factor = theta[j]
        if j == 0:
            for i in range(n):
                z[i] = factor * row[i]
        else:
            for i in range(n):
                z[i] += factor * row[i]


@compiled_sums
def _weighted_sum(X: np.ndarray, first: int, n: int, factor: np.ndarray, out: np.ndarray) -> None:
    """out[j] += sum_i factor[i] X[j, i]."""
    for j in range(X.shape[0]):
        row = X[j, first : first + n]
        total = 0.0
        for i in range(n):
            total += factor[i] * row[i]
        out[j] += total


@compiled_sums
def _weighted_gram(X: np.ndarray, first: int, n: int, factor: np.ndarray, scaled: np.ndarray, out: np.ndarray) -> None:
    """out += sum_i factor[i] X[:, i] X[:, i]', lower triangle; four columns share each load of a row."""
    for j in range(X.shape[0]):
        row = X[j, first : first + n]
        for i in range(n):
            scaled[i] = factor[i] * row[i]
        k = 0
        while k + 3 <= j:
            r0 = X[k, first : first + n]
            r1 = X[k + 1, first : first + n]
            r2 = X[k + 2, first : first + n]
            r3 = X[k + 3, first : first + n]
            s0, s1, s2, s3 = 0.0, 0.0, 0.0, 0.0
            for i in range(n):
                f = scaled[i]
                s0 += f * r0[i]
                s1 += f * r1[i]
                s2 += f * r2[i]
                s3 += f * r3[i]
            out[j, k] += s0
            out[j, k + 1] += s1
            out[j, k + 2] += s2
            out[j, k + 3] += s3
            k += 4
        while k <= j:
            r0 = X[k, first : first + n]
            s0 = 0.0
            for i in range(n):
                s0 += scaled[i] * r0[i]
            out[j, k] += s0
            k += 1


@compiled_sums
def _sums_in_two_dimensions(
    X: np.ndarray,
    first: int,
    n: int,
    weight: np.ndarray,
    mean: np.ndarray,
    slope: np.ndarray,
    g: np.ndarray,
    H: np.ndarray,
) -> None:
    """d = 2, the commonest size: all five sums of g and H in one pass."""
    r0 = X[0, first : first + n]
    r1 = X[1, first : first + n]
    g0, g1, h00, h10, h11 = 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(n):
        wm = weight[i] * mean[i]
        wv0 = weight[i] * slope[i] * r0[i]
        wv1 = weight[i] * slope[i] * r1[i]
        g0 += wm * r0[i]
        g1 += wm * r1[i]
        h00 += wv0 * r0[i]
        h10 += wv0 * r1[i]
        h11 += wv1 * r1[i]
    g[0] += g0
    g[1] += g1
    H[0, 0] += h00
    H[1, 0] += h10
    H[1, 1] += h11


@compiled
def moments(
    link: int,
    X: np.ndarray,
    W: np.ndarray,
    start: int,
    end: int,
    scale: float,
    ridge: float,
    theta: np.ndarray,
    buffers: np.ndarray,
    g: np.ndarray,
    H: np.ndarray,
) -> None:
    """g(theta) = sum w mu(<x, theta>) x + ridge theta and H(theta) = sum w mu' x x' + ridge I (lower triangle).

    ``buffers[0..2]`` receive z, mu(z), mu'(z) of the whole history, for :func:`bend_gram`.
    """
    d = X.shape[0]
    g[:] = 0.0
    H[:] = 0.0
    factor = np.empty(BLOCK)
    scaled = np.empty(BLOCK)
    for first in range(start, end, BLOCK):
        n = min(BLOCK, end - first)
        at = first - start
        z = buffers[0, at : at + n]
        mean = buffers[1, at : at + n]
        slope = buffers[2, at : at + n]
        _project_block(X, theta, first, n, z)
        mean_slope_array(link, z, mean, slope, n)
        weight = W[first : first + n]
        if d == 2:
            _sums_in_two_dimensions(X, first, n, weight, mean, slope, g, H)
        else:
            for i in range(n):
                factor[i] = weight[i] * mean[i]
            _weighted_sum(X, first, n, factor, g)
            for i in range(n):
                factor[i] = weight[i] * slope[i]
            _weighted_gram(X, first, n, factor, scaled, H)
    for j in range(d):
        g[j] = g[j] * scale + ridge * theta[j]
        for k in range(j + 1):
            H[j, k] *= scale
        H[j, j] += ridge


@compiled
def bend_gram(
    link: int,
    X: np.ndarray,
    W: np.ndarray,
    start: int,
    end: int,
    scale: float,
    u: np.ndarray,
    buffers: np.ndarray,
    out: np.ndarray,
) -> None:
    """sum w mu''(z) <x, u> x x', the derivative of H(theta) u, at the theta of the last :func:`moments`."""
    out[:] = 0.0
    bend = np.empty(BLOCK)
    along = np.empty(BLOCK)
    scaled = np.empty(BLOCK)
    for first in range(start, end, BLOCK):
        n = min(BLOCK, end - first)
        at = first - start
        bend_array(link, buffers[0, at : at + n], buffers[1, at : at + n], buffers[2, at : at + n], bend, n)
        _project_block(X, u, first, n, along)
        weight = W[first : first + n]
        for i in range(n):
            bend[i] *= weight[i] * along[i]
        _weighted_gram(X, first, n, bend, scaled, out)
    for j in range(X.shape[0]):
        for k in range(j + 1):
            out[j, k] *= scale


@compiled
def add_outer(matrix: np.ndarray, factor: float, x: np.ndarray) -> None:
    """matrix += factor x x'."""
    d = x.shape[0]
    for i in range(d):
        for j in range(d):
            matrix[i, j] += factor * x[i] * x[j]


@compiled
def decay_towards(matrix: np.ndarray, keep: float, diagonal: float) -> None:
    """matrix <- keep matrix + (1 - keep) diagonal I."""
    d = matrix.shape[0]
    for i in range(d):
        for j in range(d):
            matrix[i, j] *= keep
        matrix[i, i] += (1.0 - keep) * diagonal


@compiled
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
            while start < end and now - S[lane, start] >= window[lane]:
                x = X[lane, :, start].copy()
                add_outer(V[lane], -W[lane, start], x)
                for j in range(d):
                    b[lane, j] -= W[lane, start] * R[lane, start] * x[j]
                start += 1
                removed += 1
            if removed > 0:
                stale[lane] = LOST
                span[lane, 0] = start
                span[lane, 2] += removed
                if span[lane, 2] >= max(1024, end - start):
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
    """Take in one observation per unmasked lane, with the weight of its age; older than the memory: ignored."""
    d = b.shape[1]
    for lane in range(lo, hi):
        if not mask[lane] or weight[lane] == 0.0:
            continue
        age = clock[lane, 0] - decided[lane]
        if age >= window[lane] or age > memory[lane]:
            continue
        decay = 1.0 if age == 0.0 else gamma[lane] ** age
        entering = weight[lane] * decay
        point = x[lane]
        add_outer(V[lane], entering, point)
        add_outer(V_tilde[lane], entering * decay, point)
        z = 0.0
        for j in range(d):
            b[lane, j] += entering * reward[lane] * point[j]
            z += point[j] * theta[lane, j]
        stale[lane] = max(stale[lane], MOVED)
        if not remember:
            continue
        mean, slope = mean_slope(link, z)
        for j in range(d):
            pull[lane, j] += entering * (mean - reward[lane]) * point[j]
        add_outer(H[lane], entering * slope, point)
        if span[lane, 0] == span[lane, 1]:
            clock[lane, 1] = clock[lane, 0]
        at = span[lane, 1]
        while at > span[lane, 0] and S[lane, at - 1] > decided[lane]:
            for j in range(d):
                X[lane, j, at] = X[lane, j, at - 1]
            W[lane, at] = W[lane, at - 1]
            R[lane, at] = R[lane, at - 1]
            S[lane, at] = S[lane, at - 1]
            at -= 1
        for j in range(d):
            X[lane, j, at] = point[j]
        exponent = math.log(gamma[lane]) * (clock[lane, 1] - decided[lane])
        W[lane, at] = weight[lane] * math.exp(exponent)
        R[lane, at] = reward[lane]
        S[lane, at] = decided[lane]
        span[lane, 1] += 1
