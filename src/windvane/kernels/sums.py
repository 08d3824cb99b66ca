"""Sums over the history of one lane, from the entry ``first`` on: g, H, H u and the derivatives of H u.

``lane`` is the record of the lane and ``rows`` its history (see :mod:`windvane.kernels.lanes`): d rows of features,
then the stored weights. Loops over time are contiguous.
"""

from __future__ import annotations

import numpy as np

from windvane.kernels.elementary import bend_array, mean_slope_array, primitive_array
from windvane.kernels.jit import compiled_inner, compiled_sums
from windvane.kernels.lanes import FACTOR, MEAN, SCALED, SCRATCH, SLOPE, Z
from windvane.kernels.linalg import dot, mirror

BLOCK = 512  # entries processed at a time, so that a block of every feature row stays in the L1 and L2 caches
SLOPE_GRAM, BEND_GRAM, THIRD_GRAM = 1, 2, 3  # orders of derivatives
DIFFERENCE = 1e-4  # step of the second difference of mu'; its error, of order 1e-8, affects only Newton's steps

# Rows are sliced before a loop. Indexing [j, first + i] directly would leave a check for negative indices in the loop,
# which prevents vectorisation.


@compiled_sums
def project_block(X: np.ndarray, theta: np.ndarray, first: int, n: int, z: np.ndarray) -> None:
    """Set z[i] = <X[:, i], theta>, four features per sweep."""
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
def weighted_sum(X: np.ndarray, first: int, n: int, factor: np.ndarray, out: np.ndarray) -> None:
    """Add sum_i factor[i] X[j, i] to out[j], two features per sweep."""
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


# d = 2 is the most common size. Storing and re-reading the products would take most of the time there, so the next two
# functions keep them in registers.


@compiled_sums
def _plane_sum(X: np.ndarray, first: int, n: int, weight: np.ndarray, factor: np.ndarray, out: np.ndarray) -> None:
    """Add sum_i weight[i] factor[i] X[:, i] to ``out``, for d = 2."""
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
    """Add sum_i weight[i] factor[i] X[:, i] X[:, i]' to the lower triangle of ``out``, for d = 2."""
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
def _scale_pair(
    ra: np.ndarray, rb: np.ndarray, factor: np.ndarray, sa: np.ndarray, sb: np.ndarray
) -> tuple[float, float, float]:
    """Set ``sa`` and ``sb`` to two rows times ``factor``; return <sa, ra>, <sb, ra> and <sb, rb>."""
    a0, b0, b1 = 0.0, 0.0, 0.0
    for i in range(ra.shape[0]):
        f = factor[i] * ra[i]
        h = factor[i] * rb[i]
        sa[i] = f
        sb[i] = h
        a0 += f * ra[i]
        b0 += h * ra[i]
        b1 += h * rb[i]
    return a0, b0, b1


@compiled_sums
def eight_sums(
    n: int, a: np.ndarray, c: np.ndarray, b0: np.ndarray, b1: np.ndarray, b2: np.ndarray, b3: np.ndarray
) -> tuple[float, float, float, float, float, float, float, float]:
    """Return <a, b> for the first ``n`` entries of four arrays b, then <c, b>."""
    s0, s1, s2, s3, t0, t1, t2, t3 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(n):
        x = a[i]
        y = c[i]
        s0 += x * b0[i]
        s1 += x * b1[i]
        s2 += x * b2[i]
        s3 += x * b3[i]
        t0 += y * b0[i]
        t1 += y * b1[i]
        t2 += y * b2[i]
        t3 += y * b3[i]
    return s0, s1, s2, s3, t0, t1, t2, t3


@compiled_sums
def weighted_gram(X: np.ndarray, first: int, n: int, factor: np.ndarray, scaled: np.ndarray, out: np.ndarray) -> None:
    """Add sum_i factor[i] X[:, i] X[:, i]' to the lower triangle of ``out``, in tiles of two rows and four columns.

    Eight sums at a time keep the multiply-add units busy. Measured from d = 3 to d = 100, this is no slower than BLAS,
    and the result of a lane does not depend on the other lanes.
    """
    d = X.shape[0]
    sa = scaled[0, :n]
    sb = scaled[1, :n]
    for j in range(0, d - 1, 2):
        a0, b0, b1 = _scale_pair(X[j, first : first + n], X[j + 1, first : first + n], factor, sa, sb)
        out[j, j] += a0
        out[j + 1, j] += b0
        out[j + 1, j + 1] += b1
        for k in range(0, j - 2, 4):
            r0 = X[k, first : first + n]
            r1 = X[k + 1, first : first + n]
            r2 = X[k + 2, first : first + n]
            r3 = X[k + 3, first : first + n]
            a0, a1, a2, a3, b0, b1, b2, b3 = eight_sums(n, sa, sb, r0, r1, r2, r3)
            out[j, k] += a0
            out[j, k + 1] += a1
            out[j, k + 2] += a2
            out[j, k + 3] += a3
            out[j + 1, k] += b0
            out[j + 1, k + 1] += b1
            out[j + 1, k + 2] += b2
            out[j + 1, k + 3] += b3
        if j % 4 == 2:
            r0 = X[j - 2, first : first + n]
            r1 = X[j - 1, first : first + n]
            a0, a1, b0, b1 = 0.0, 0.0, 0.0, 0.0
            for i in range(n):
                a0 += sa[i] * r0[i]
                a1 += sa[i] * r1[i]
                b0 += sb[i] * r0[i]
                b1 += sb[i] * r1[i]
            out[j, j - 2] += a0
            out[j, j - 1] += a1
            out[j + 1, j - 2] += b0
            out[j + 1, j - 1] += b1
    if d % 2 == 1:
        ra = X[d - 1, first : first + n]
        for i in range(n):
            sa[i] = factor[i] * ra[i]
        weighted_sum(X, first, n, sa, out[d - 1])


@compiled_inner
def mean_sums(lane: np.void, rows: np.ndarray, theta: np.ndarray, buffers: np.ndarray, g: np.ndarray) -> None:
    """Compute g(theta) = sum w mu(<x, theta>) x + ridge theta.

    The sum starts at the entry ``first``. ``buffers`` keeps z, mu(z) and mu'(z) for the functions below.
    """
    d = theta.shape[0]
    X = rows[:d]
    for j in range(d):
        g[j] = 0.0
    start, end = lane["first"], lane["end"]
    for first in range(start, end, BLOCK):
        n = min(BLOCK, end - first)
        at = first - start
        z = buffers[Z, at : at + n]
        mean = buffers[MEAN, at : at + n]
        weight = rows[d, first : first + n]
        project_block(X, theta, first, n, z)
        mean_slope_array(lane["link"], z, mean, buffers[SLOPE, at : at + n], n)
        if d == 2:
            _plane_sum(X, first, n, weight, mean, g)
        else:
            factor = buffers[FACTOR, :n]
            for i in range(n):
                factor[i] = weight[i] * mean[i]
            weighted_sum(X, first, n, factor, g)
    scale, ridge = lane["scale"], lane["ridge"]
    for j in range(d):
        g[j] = g[j] * scale + ridge * theta[j]


@compiled_inner
def primitive_sum(lane: np.void, rows: np.ndarray, d: int, buffers: np.ndarray) -> float:
    """Return sum w B(<x, theta>) with B' = mu, at the theta of the last :func:`mean_sums` and over its entries."""
    start, end, total = lane["first"], lane["end"], 0.0
    for first in range(start, end, BLOCK):
        n = min(BLOCK, end - first)
        at = first - start
        primitive = buffers[FACTOR, :n]
        primitive_array(lane["link"], buffers[Z, at : at + n], buffers[MEAN, at : at + n], primitive, n)
        total += dot(rows[d, first : first + n], primitive)
    return total * lane["scale"]


@compiled_inner
def _third_array(link: int, z: np.ndarray, slope: np.ndarray, buffers: np.ndarray, third: np.ndarray) -> None:
    """Set third to mu'''(z), by differences of mu'."""
    n = z.shape[0]
    shifted, unused = buffers[SCALED, :n], buffers[SCALED + 1, :n]
    above, below = buffers[SCRATCH + 1, :n], third
    for i in range(n):
        shifted[i] = z[i] + DIFFERENCE
    mean_slope_array(link, shifted, unused, above, n)
    for i in range(n):
        shifted[i] = z[i] - DIFFERENCE
    mean_slope_array(link, shifted, unused, below, n)
    for i in range(n):
        third[i] = (above[i] - 2.0 * slope[i] + below[i]) / (DIFFERENCE * DIFFERENCE)


@compiled_inner
def gram(order: int, lane: np.void, rows: np.ndarray, u: np.ndarray, buffers: np.ndarray, out: np.ndarray) -> None:
    """Compute the ``order``-th derivative of g along u, at the theta of the last :func:`mean_sums`.

    SLOPE_GRAM: H = sum w mu' x x' + ridge I. BEND_GRAM: sum w mu'' <x, u> x x'. THIRD_GRAM: sum w mu''' <x, u>^2 x x'.
    """
    d = out.shape[0]
    X = rows[:d]
    for j in range(d):
        for k in range(d):
            out[j, k] = 0.0
    start, end = lane["first"], lane["end"]
    for first in range(start, end, BLOCK):
        n = min(BLOCK, end - first)
        at = first - start
        z, mean, slope = buffers[Z, at : at + n], buffers[MEAN, at : at + n], buffers[SLOPE, at : at + n]
        weight, factor = rows[d, first : first + n], buffers[FACTOR, :n]
        derivative = slope
        if order != SLOPE_GRAM:
            derivative, along = factor, buffers[SCRATCH, :n]
            if order == BEND_GRAM:
                bend_array(lane["link"], z, mean, slope, derivative, n)
            else:
                _third_array(lane["link"], z, slope, buffers, derivative)
            project_block(X, u, first, n, along)
            for _ in range(order - 1):
                for i in range(n):
                    derivative[i] *= along[i]
        if d == 2:
            _plane_gram(X, first, n, weight, derivative, out)
        else:
            for i in range(n):
                factor[i] = weight[i] * derivative[i]
            weighted_gram(X, first, n, factor, buffers[SCALED : SCALED + 2], out)
    for j in range(d):
        for k in range(j + 1):
            out[j, k] *= lane["scale"]
        if order == SLOPE_GRAM:
            out[j, j] += lane["ridge"]
    mirror(out)


@compiled_inner
def slope_apply(lane: np.void, rows: np.ndarray, u: np.ndarray, buffers: np.ndarray, out: np.ndarray) -> None:
    """Compute H u without forming H, at the theta of the last :func:`mean_sums`."""
    d = u.shape[0]
    X = rows[:d]
    for j in range(d):
        out[j] = 0.0
    start, end = lane["first"], lane["end"]
    for first in range(start, end, BLOCK):
        n = min(BLOCK, end - first)
        slope = buffers[SLOPE, first - start : first - start + n]
        weight = rows[d, first : first + n]
        factor = buffers[FACTOR, :n]
        project_block(X, u, first, n, factor)
        for i in range(n):
            factor[i] *= weight[i] * slope[i]
        weighted_sum(X, first, n, factor, out)
    scale, ridge = lane["scale"], lane["ridge"]
    for j in range(d):
        out[j] = out[j] * scale + ridge * u[j]
