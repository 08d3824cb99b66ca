"""Products of coordinates, and packed sums of them over a history.

The monomials of degree k in d variables are listed by their largest index, then by the rest in the order of degree
k - 1. The part of the list with largest index i is therefore x_i times the first n_i monomials of degree k - 1, where
n_i counts those without a larger index, and the n_i of one degree are the running sums of those of the degree before.
So every list is made by scaling contiguous pieces, without tables of indices.

A symmetric tensor of order k is stored as one number for each monomial of degree k: a sum over observations of a factor
times the monomial. :func:`add_entries` computes such sums for ``CHUNK`` observations at a time, in loops over
observations, because a history is contiguous in time.
"""

from __future__ import annotations

import numpy as np

from windvane.kernels.elementary import taylor_array
from windvane.kernels.jit import compiled_inner, compiled_sums
from windvane.kernels.lanes import CHUNK
from windvane.kernels.sums import eight_sums


@compiled_inner
def list_monomials(x: np.ndarray, degree: int, counts: np.ndarray, out: np.ndarray) -> int:
    """List the monomials of degrees 0 to ``degree`` in ``out``, one degree after another. Return their number."""
    d = x.shape[0]
    out[0] = 1.0
    for i in range(d):
        counts[i] = 1.0
    first, at = 0, 1
    for _ in range(degree):
        begin = at
        for i in range(d):
            n = int(counts[i])
            source, target, factor = out[first : first + n], out[at : at + n], x[i]
            for j in range(n):
                target[j] = factor * source[j]
            at += n
        first = begin
        for i in range(1, d):
            counts[i] += counts[i - 1]
    return at


@compiled_inner
def list_derivatives(
    order: int, x: np.ndarray, u: np.ndarray, degree: int, counts: np.ndarray, lower: np.ndarray, out: np.ndarray
) -> None:
    """List the ``order``-th derivatives along ``u`` of the monomials up to ``degree``, at x.

    ``lower`` holds their derivatives of the order before; for order 1, the monomials themselves. By Leibniz' rule, the
    k-th derivative of x_i m is k u_i times the derivative of m before, plus x_i times the k-th of m.
    """
    d = x.shape[0]
    out[0] = 0.0
    for i in range(d):
        counts[i] = 1.0
    first, at = 0, 1
    for _ in range(degree):
        begin = at
        for i in range(d):
            n = int(counts[i])
            source, slope, target = lower[first : first + n], out[first : first + n], out[at : at + n]
            factor = order * u[i]
            for j in range(n):
                target[j] = factor * source[j] + x[i] * slope[j]
            at += n
        first = begin
        for i in range(1, d):
            counts[i] += counts[i - 1]


@compiled_sums
def _sum(a: np.ndarray, b: np.ndarray) -> float:
    total = 0.0
    for i in range(CHUNK):
        total += a[i] * b[i]
    return total


@compiled_sums
def _four_sums(
    a: np.ndarray, b0: np.ndarray, b1: np.ndarray, b2: np.ndarray, b3: np.ndarray
) -> tuple[float, float, float, float]:
    s0, s1, s2, s3 = 0.0, 0.0, 0.0, 0.0
    for i in range(CHUNK):
        s0 += a[i] * b0[i]
        s1 += a[i] * b1[i]
        s2 += a[i] * b2[i]
        s3 += a[i] * b3[i]
    return s0, s1, s2, s3


@compiled_inner
def _add_products(factor: np.ndarray, vectors: np.ndarray, first: int, n: int, out: np.ndarray) -> None:
    """Add <factor, monomial> to ``out`` for ``n`` monomials in the workspace, the first of them at ``first``."""
    for j in range(0, n - 3, 4):
        s0, s1, s2, s3 = _four_sums(
            factor, vectors[first + j], vectors[first + j + 1],
            vectors[first + j + 2], vectors[first + j + 3],
        )  # fmt: skip
        out[j] += s0
        out[j + 1] += s1
        out[j + 2] += s2
        out[j + 3] += s3
    for j in range(n - n % 4, n):
        out[j] += _sum(factor, vectors[first + j])


@compiled_inner
def _add_two_products(
    a: np.ndarray, c: np.ndarray, vectors: np.ndarray, first: int, n: int, out: np.ndarray, other: np.ndarray
) -> None:
    """Do the same for two factors, which is faster than one after the other."""
    for j in range(0, n - 3, 4):
        s0, s1, s2, s3, t0, t1, t2, t3 = eight_sums(
            CHUNK, a, c, vectors[first + j], vectors[first + j + 1],
            vectors[first + j + 2], vectors[first + j + 3],
        )  # fmt: skip
        out[j] += s0
        out[j + 1] += s1
        out[j + 2] += s2
        out[j + 3] += s3
        other[j] += t0
        other[j + 1] += t1
        other[j + 2] += t2
        other[j + 3] += t3
    for j in range(n - n % 4, n):
        monomial = vectors[first + j]
        out[j] += _sum(a, monomial)
        other[j] += _sum(c, monomial)


@compiled_inner
def _set_product(a: np.ndarray, b: np.ndarray, n: int, out: np.ndarray) -> None:
    """Set ``out`` to a b, and to 0 beyond ``n``."""
    for i in range(n):
        out[i] = a[i] * b[i]
    for i in range(n, CHUNK):
        out[i] = 0.0


@compiled_inner
def add_entries(
    link: int,
    order: int,
    columns: int,
    rows: np.ndarray,
    first: int,
    n: int,
    block: np.ndarray,
    counts: np.ndarray,
    vectors: np.ndarray,
) -> None:
    """Add the entries ``first <= i < first + n`` of a history, at most CHUNK, to the tensors of a block.

    A block holds the center, S_k = sum w c_{k-1} x^k for k = 1, ..., order + 1, where c_j = mu^(j)(<x, center>) / j!,
    M = sum w x^order, and the sum of the weights w.
    """
    d, last = rows.shape[0] - 3, block.shape[0] - 1
    center, sums = block[:d], block[d:]
    left, z, bare = vectors[columns], vectors[columns + 1], vectors[columns + 2]
    taylor = columns + 3
    weight = rows[d, first : first + n]
    for i in range(n):
        z[i] = 0.0
        block[last] += weight[i]
    for j in range(d):
        x, t = rows[j, first : first + n], center[j]
        for i in range(n):
            z[i] += t * x[i]
    taylor_array(link, order, z, n, vectors, taylor)
    one = vectors[0]
    for i in range(CHUNK):
        one[i] = 1.0
    for i in range(d):
        counts[i] = 1.0
    begin, at, to = 0, 1, 0
    for degree in range(1, order):  # S_k for k < order, and the lists that the last two are made from
        _set_product(weight, vectors[taylor + degree - 1], n, left)
        top = at
        for i in range(d):
            m, x = int(counts[i]), rows[i, first : first + n]
            for j in range(m):
                _set_product(x, vectors[begin + j], n, vectors[at + j])
            at += m
        _add_products(left, vectors, top, at - top, sums[to : to + at - top])
        to += at - top
        begin = top
        for i in range(1, d):
            counts[i] += counts[i - 1]
    place, length = 0, 0
    for i in range(d):
        length += int(counts[i])
    moments = block[last - length : last]
    for i in range(d):  # S_order and the moments: x_i times the list of degree order - 1
        m = int(counts[i])
        _set_product(weight, rows[i, first : first + n], n, bare)
        _set_product(bare, vectors[taylor + order - 1], n, left)
        end = to + place
        _add_two_products(bare, left, vectors, begin, m, moments[place : place + m], sums[end : end + m])
        place += m
    to += place
    for i in range(d):  # S_(order + 1): x_i x_k times the same list
        _set_product(rows[i, first : first + n], vectors[taylor + order], n, bare)
        _set_product(bare, weight, n, bare)
        for k in range(0, i, 2):
            m, more = int(counts[k]), int(counts[k + 1])
            _set_product(bare, rows[k, first : first + n], n, left)
            _set_product(bare, rows[k + 1, first : first + n], n, z)
            end = to + m
            _add_two_products(left, z, vectors, begin, m, sums[to:end], sums[end : end + m])
            _add_products(z, vectors, begin + m, more - m, sums[end + m : end + more])
            to = end + more
        if i % 2 == 0:
            m = int(counts[i])
            _set_product(bare, rows[i, first : first + n], n, left)
            _add_products(left, vectors, begin, m, sums[to : to + m])
            to += m
