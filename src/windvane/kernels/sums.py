"""Sums over the history of one lane: g, H, H u and the derivative of H u.

A lane's history is feature-major, ``X[d, capacity]`` with the entries ``start <= i < end`` in use, so that the loops
over time are contiguous. The weight of entry i is ``W[i] * scale``.
"""

from __future__ import annotations

import numpy as np

from windvane.kernels.elementary import bend_array, mean_slope_array
from windvane.kernels.jit import compiled, compiled_sums

BLOCK = 512  # entries worked on at a time: a block of every feature row stays in the nearest caches

# Rows are sliced before a loop: indexing [j, first + i] directly keeps numba's negative-index check in the loop, and
# the loop from vectorising.


@compiled_sums
def _project_block(X: np.ndarray, theta: np.ndarray, first: int, n: int, z: np.ndarray) -> None:
    """z[i] = <X[:, i], theta>, four features a sweep."""
    d = X.shape[0]
    r0, t0 = X[0, first : first + n], theta[0]
    j = 1
    if d % 2 == 0:
        r1, t1 = X[1, first : first + n], theta[1]
        for i in range(n):
            z[i] = t0 * r0[i] + t1 * r1[i]
        j = 2
    else:
        for i in range(n):
            z[i] = t0 * r0[i]
    while j < d:
        r0, t0 = X[j, first : first + n], theta[j]
        r1, t1 = X[j + 1, first : first + n], theta[j + 1]
        if j + 3 < d:
            r2, t2 = X[j + 2, first : first + n], theta[j + 2]
            r3, t3 = X[j + 3, first : first + n], theta[j + 3]
            for i in range(n):
                z[i] += (t0 * r0[i] + t1 * r1[i]) + (t2 * r2[i] + t3 * r3[i])
            j += 4
        else:
            for i in range(n):
                z[i] += t0 * r0[i] + t1 * r1[i]
            j += 2


@compiled_sums
def _weighted_sum(X: np.ndarray, first: int, n: int, factor: np.ndarray, out: np.ndarray) -> None:
    """out[j] += sum_i factor[i] X[j, i], two features a sweep."""
    d = X.shape[0]
    for j in range(0, d - 1, 2):
        r0 = X[j, first : first + n]
        r1 = X[j + 1, first : first + n]
        s0, s1 = 0.0, 0.0
        for i in range(n):
            s0 += factor[i] * r0[i]
            s1 += factor[i] * r1[i]
        out[j] += s0
        out[j + 1] += s1
    if d % 2 == 1:
        r0 = X[d - 1, first : first + n]
        s0 = 0.0
        for i in range(n):
            s0 += factor[i] * r0[i]
        out[d - 1] += s0


# d = 2 is the commonest size, and there most of the time would go into storing and re-reading products: the next two
# functions form them in registers.


@compiled_sums
def _plane_sum(X: np.ndarray, first: int, n: int, weight: np.ndarray, factor: np.ndarray, out: np.ndarray) -> None:
    """out += sum_i weight[i] factor[i] X[:, i] for d = 2."""
    r0 = X[0, first : first + n]
    r1 = X[1, first : first + n]
    s0, s1 = 0.0, 0.0
    for i in range(n):
        f = weight[i] * factor[i]
        s0 += f * r0[i]
        s1 += f * r1[i]
    out[0] += s0
    out[1] += s1


@compiled_sums
def _plane_gram(X: np.ndarray, first: int, n: int, weight: np.ndarray, factor: np.ndarray, out: np.ndarray) -> None:
    """out += sum_i weight[i] factor[i] X[:, i] X[:, i]' for d = 2, lower triangle."""
    r0 = X[0, first : first + n]
    r1 = X[1, first : first + n]
    s00, s10, s11 = 0.0, 0.0, 0.0
    for i in range(n):
        f0 = weight[i] * factor[i] * r0[i]
        f1 = weight[i] * factor[i] * r1[i]
        s00 += f0 * r0[i]
        s10 += f0 * r1[i]
        s11 += f1 * r1[i]
    out[0, 0] += s00
    out[1, 0] += s10
    out[1, 1] += s11


@compiled_sums
def _weighted_gram(X: np.ndarray, first: int, n: int, factor: np.ndarray, scaled: np.ndarray, out: np.ndarray) -> None:
    """out += sum_i factor[i] X[:, i] X[:, i]', lower triangle, in tiles of two rows and four columns.

    Eight sums at a time keep the multiply-add units busy: no slower than BLAS from d = 3 to d = 100, where it was
    measured, and the same on every lane whatever its neighbours.
    """
    d = X.shape[0]
    sa = scaled[0, :n]
    sb = scaled[1, :n]
    for j in range(0, d, 2):
        pair = j + 1 < d
        ra = X[j, first : first + n]
        rb = X[j + 1, first : first + n] if pair else ra
        for i in range(n):
            sa[i] = factor[i] * ra[i]
            sb[i] = factor[i] * rb[i]
        k = 0
        while pair and k + 3 <= j + 1:
            r0 = X[k, first : first + n]
            r1 = X[k + 1, first : first + n]
            r2 = X[k + 2, first : first + n]
            r3 = X[k + 3, first : first + n]
            a0, a1, a2, a3, b0, b1, b2, b3 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
            for i in range(n):
                f = sa[i]
                h = sb[i]
                a0 += f * r0[i]
                a1 += f * r1[i]
                a2 += f * r2[i]
                a3 += f * r3[i]
                b0 += h * r0[i]
                b1 += h * r1[i]
                b2 += h * r2[i]
                b3 += h * r3[i]
            out[j, k] += a0
            out[j, k + 1] += a1
            out[j, k + 2] += a2
            out[j, k + 3] += a3
            out[j + 1, k] += b0
            out[j + 1, k + 1] += b1
            out[j + 1, k + 2] += b2
            out[j + 1, k + 3] += b3
            k += 4
        while k <= (j + 1 if pair else j):
            r0 = X[k, first : first + n]
            a0, b0 = 0.0, 0.0
            for i in range(n):
                a0 += sa[i] * r0[i]
                b0 += sb[i] * r0[i]
            out[j, k] += a0
            if pair:
                out[j + 1, k] += b0
            k += 1


@compiled
def mean_sums(
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
) -> None:
    """g(theta) = sum w mu(<x, theta>) x + ridge theta.

    ``buffers[0..2]`` receive z, mu(z), mu'(z) of the whole history, for the three functions below.
    """
    for j in range(X.shape[0]):
        g[j] = 0.0
    factor = np.empty(BLOCK)
    for first in range(start, end, BLOCK):
        n = min(BLOCK, end - first)
        at = first - start
        z = buffers[0, at : at + n]
        mean = buffers[1, at : at + n]
        weight = W[first : first + n]
        _project_block(X, theta, first, n, z)
        mean_slope_array(link, z, mean, buffers[2, at : at + n], n)
        if X.shape[0] == 2:
            _plane_sum(X, first, n, weight, mean, g)
        else:
            for i in range(n):
                factor[i] = weight[i] * mean[i]
            _weighted_sum(X, first, n, factor, g)
    for j in range(X.shape[0]):
        g[j] = g[j] * scale + ridge * theta[j]


@compiled
def slope_gram(
    X: np.ndarray,
    W: np.ndarray,
    start: int,
    end: int,
    scale: float,
    ridge: float,
    buffers: np.ndarray,
    H: np.ndarray,
) -> None:
    """H = sum w mu' x x' + ridge I (lower triangle), at the theta of the last :func:`mean_sums`."""
    d = X.shape[0]
    factor = np.empty(BLOCK)
    scaled = np.empty((2, BLOCK))
    for j in range(d):
        for k in range(d):
            H[j, k] = 0.0
    for first in range(start, end, BLOCK):
        n = min(BLOCK, end - first)
        slope = buffers[2, first - start : first - start + n]
        weight = W[first : first + n]
        if d == 2:
            _plane_gram(X, first, n, weight, slope, H)
        else:
            for i in range(n):
                factor[i] = weight[i] * slope[i]
            _weighted_gram(X, first, n, factor, scaled, H)
    for j in range(d):
        for k in range(j + 1):
            H[j, k] *= scale
        H[j, j] += ridge


@compiled
def slope_apply(
    X: np.ndarray,
    W: np.ndarray,
    start: int,
    end: int,
    scale: float,
    ridge: float,
    u: np.ndarray,
    buffers: np.ndarray,
    out: np.ndarray,
) -> None:
    """H u without forming H, at the theta of the last :func:`mean_sums`."""
    d = X.shape[0]
    factor = np.empty(BLOCK)
    for j in range(d):
        out[j] = 0.0
    for first in range(start, end, BLOCK):
        n = min(BLOCK, end - first)
        slope = buffers[2, first - start : first - start + n]
        weight = W[first : first + n]
        _project_block(X, u, first, n, factor)
        for i in range(n):
            factor[i] *= weight[i] * slope[i]
        _weighted_sum(X, first, n, factor, out)
    for j in range(d):
        out[j] = out[j] * scale + ridge * u[j]


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
    """sum w mu''(z) <x, u> x x' (lower triangle), the derivative of H(theta) u, at the theta of the last means."""
    d = X.shape[0]
    bend = np.empty(BLOCK)
    along = np.empty(BLOCK)
    scaled = np.empty((2, BLOCK))
    for j in range(d):
        for k in range(d):
            out[j, k] = 0.0
    for first in range(start, end, BLOCK):
        n = min(BLOCK, end - first)
        at = first - start
        weight = W[first : first + n]
        bend_array(link, buffers[0, at : at + n], buffers[1, at : at + n], buffers[2, at : at + n], bend, n)
        _project_block(X, u, first, n, along)
        for i in range(n):
            bend[i] *= along[i]
        if d == 2:
            _plane_gram(X, first, n, weight, bend, out)
        else:
            for i in range(n):
                bend[i] *= weight[i]
            _weighted_gram(X, first, n, bend, scaled, out)
    for j in range(d):
        for k in range(j + 1):
            out[j, k] *= scale


@compiled
def moments_lanes(
    first: int, last: int, code: int, X: np.ndarray, W: np.ndarray, span: np.ndarray, scale: np.ndarray, ridge: float,
    theta: np.ndarray, g: np.ndarray, H: np.ndarray,
) -> None:  # fmt: skip
    """g and H of every lane in [first, last) at its theta; H in full."""
    longest = 1
    for lane in range(first, last):
        longest = max(longest, span[lane, 1] - span[lane, 0])
    buffers = np.empty((3, longest))
    for lane in range(first, last):
        start, end = span[lane, 0], span[lane, 1]
        mean_sums(code, X[lane], W[lane], start, end, scale[lane], ridge, theta[lane], buffers, g[lane])
        slope_gram(X[lane], W[lane], start, end, scale[lane], ridge, buffers, H[lane])
        for i in range(H.shape[1]):
            for j in range(i):
                H[lane, j, i] = H[lane, i, j]
