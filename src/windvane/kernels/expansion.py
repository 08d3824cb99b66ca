"""g and its derivatives with the old part of a history replaced by a Taylor expansion, and the error of doing so.

The entries of a history before ``cut`` are represented by tensors around a point, the *center* c of the lane. Because
mu(<x, theta>) = sum_j c_j <x, delta>^j + remainder with delta = theta - c and c_j = mu^(j)(<x, c>) / j!,

    g_old(theta) = sum_k S_k[delta^(k-1)] + error,      S_k = sum w c_{k-1} x^k  (symmetric, order k),  k <= order + 1,

with the remainder of Taylor's theorem for an even ``order`` p,

    ||error|| <= R L sum w |<x, delta>|^(p+1) <= R L^2 ||delta|| M[delta^p],      M = sum w x^p,
                                                                                R = sup |mu^(p+1)| / (p+1)!.

M[delta^p] is not a bound but the sum itself, which is smaller by a factor of (p-1)(p-3)...1 / (d+2)(d+4)... than
||delta||^p for features without a preferred direction. Differentiating the remainder gives for H the bound
(p+1) R L^2 M[delta^p] in the spectral norm. The derivatives of the expansion are those of a polynomial:

    H_old = sum_k (k-1) S_k[delta^(k-2)],   its derivatives along u likewise,

so each is a matrix with a row for each pair of coordinates and a column for each monomial of degree below p, times a
vector: the monomials of delta, or their derivatives along u.

**Certificate.** g is strongly monotone with the constant lambda_min(H), and H(theta) >= s (V - lam I) + ridge I, where s
is the least slope mu' over |z| <= L ||theta||. An error e of g moves its root by at most e / lambda_min(H). The error of
g is therefore accepted up to ``budget`` (lambda - ridge) with lambda = s (lambda_min(V) - lam) + ridge. Dropped
observations move g by at most tolerance ridge, so that both together move theta_hat by less than ``tolerance`` as long
as budget < tolerance. Otherwise, and always far from the center, the whole history is summed. So the choice of a center
decides how fast an evaluation is, and within the certified error not what it returns.

**Ageing.** Weights are stored relative to ``origin``, and the tensors hold stored weights. So rounds change nothing but
``scale``. ``owed`` is the factor by which the weights have been rescaled since the tensors were last in use.

Layout of a lane's row: two blocks of center, S, M and total weight, for the expansion in use and for the one that is
being built (:mod:`windvane.kernels.anchors`); then what is derived from the first block, and scratch.
"""

from __future__ import annotations

import math

import numpy as np

from windvane.kernels.elementary import mean_slope, remainder_growth
from windvane.kernels.jit import compiled_inner, compiled_sums, compiled_view
from windvane.kernels.linalg import dot, norm
from windvane.kernels.monomials import list_derivatives, list_monomials, list_second_derivatives
from windvane.kernels.sums import SLOPE_GRAM, THIRD_GRAM, gram, mean_sums, slope_apply

SLACK = 1.2  # the Hessian between theta and the root is at least its lower bound at theta divided by this
LARGEST_BEND = 0.01  # largest accepted error of H relative to lambda_min(H)


@compiled_view
def block_of(expansion: np.ndarray, lane: np.void, d: int, number: int) -> np.ndarray:
    """Return a block: center, S, M and weight; number 0 is in use, 1 is being built."""
    size = d + lane["sums"] + lane["moments"] + 1
    return expansion[number * size : (number + 1) * size]


@compiled_view
def derived_of(expansion: np.ndarray, lane: np.void, d: int) -> np.ndarray:
    """Return what follows the blocks: the matrix, M with multiplicities, delta, counts and the lists of monomials."""
    return expansion[2 * (d + lane["sums"] + lane["moments"] + 1) :]


@compiled_view
def lists_of(derived: np.ndarray, lane: np.void, d: int) -> np.ndarray:
    """Return the monomials of delta up to degree ``order``, then room for two lists of derivatives."""
    return derived[lane["columns"] * (d * (d + 1) // 2) + lane["moments"] + 2 * d :]


@compiled_inner
def refresh(lane: np.void, expansion: np.ndarray, d: int, table: np.ndarray, multiplicity: np.ndarray) -> None:
    """Lay the tensors in use out as a matrix. ``multiplicity`` counts the orders of the factors of each monomial."""
    block, derived = block_of(expansion, lane, d, 0), derived_of(expansion, lane, d)
    sums = block[d:]
    columns, pairs, n = lane["columns"], table.shape[0], lane["moments"]
    for i in range(pairs):
        row = derived[i * columns : (i + 1) * columns]
        for j in range(columns):
            row[j] = multiplicity[j] * sums[table[i, j]]
    weighted, moments = derived[pairs * columns : pairs * columns + n], block[d + lane["sums"] :]
    for j in range(n):
        weighted[j] = multiplicity[columns + j] * moments[j]


@compiled_sums
def _product(a: np.ndarray, b: np.ndarray, n: int) -> float:
    total = 0.0
    for i in range(n):
        total += a[i] * b[i]
    return total


@compiled_inner
def bound_remainder(lane: np.void, expansion: np.ndarray, theta: np.ndarray) -> tuple[float, float, float]:
    """Return bounds on the errors of g and H at theta, and a lower bound on lambda_min(H) - ridge.

    The monomials of delta are left in the row of the lane.
    """
    d, columns, n = theta.shape[0], lane["columns"], lane["moments"]
    block, derived = block_of(expansion, lane, d, 0), derived_of(expansion, lane, d)
    at = columns * (d * (d + 1) // 2) + n
    weighted, delta, counts = derived[at - n : at], derived[at : at + d], derived[at + d : at + 2 * d]
    lists = lists_of(derived, lane, d)
    for j in range(d):
        delta[j] = theta[j] - block[j]
    list_monomials(delta, lane["order"], counts, lists)
    L, distance = lane["L"], norm(delta)
    moment = max(_product(weighted, lists[columns : columns + n], n), 0.0)
    reach = L * max(norm(theta), norm(block[:d]))
    factor = lane["remainder"] * remainder_growth(lane["link"], reach) * L * L * lane["scale"] * lane["owed"] * moment
    _, above = mean_slope(lane["link"], reach)
    _, below = mean_slope(lane["link"], -reach)
    curvature = min(above, below) * max(lane["least"] - lane["floor"] - lane["dropped"] * L * L, 0.0)
    return factor * distance, (lane["order"] + 1) * factor, curvature


@compiled_inner
def _expand(lane: np.void, expansion: np.ndarray, theta: np.ndarray) -> bool:
    """Return whether the expansion can be used at theta. Sets ``slack`` and ``bend`` then."""
    error, bend, curvature = bound_remainder(lane, expansion, theta)
    least = curvature + lane["ridge"]
    if not (SLACK * error <= lane["budget"] * curvature and bend <= LARGEST_BEND * least):  # `not`: NaN is rejected
        return False
    lane["slack"] = max(lane["slack"], SLACK * error / least)
    lane["bend"] = bend / least
    return True


@compiled_inner
def _contract(lane: np.void, expansion: np.ndarray, values: np.ndarray, out: np.ndarray) -> None:
    """Add the matrix of the tensors times ``values`` to the lower triangle of ``out``."""
    derived = derived_of(expansion, lane, out.shape[0])
    columns, scale = lane["columns"], lane["scale"] * lane["owed"]
    at = 0
    for i in range(out.shape[0]):
        for j in range(i + 1):
            out[i, j] += scale * _product(derived[at : at + columns], values, columns)
            at += columns


@compiled_inner
def _scale_degrees(order: int, d: int, shift: int, values: np.ndarray) -> None:
    """Multiply the values of the monomials of degree j by j + shift, for j < order."""
    at, n = 0, 1
    for degree in range(order):
        for k in range(n):
            values[at + k] *= degree + shift
        at += n
        n = n * (d + degree) // (degree + 1)


@compiled_inner
def mean_at(
    lane: np.void, rows: np.ndarray, expansion: np.ndarray, theta: np.ndarray, buffers: np.ndarray, out: np.ndarray,
    matrix: np.ndarray,
) -> None:  # fmt: skip
    """Set ``out`` to g(theta). ``matrix`` is scratch space."""
    d = theta.shape[0]
    is_expanded = lane["anchored"] == 1 and _expand(lane, expansion, theta)
    lane["first"] = lane["cut"] if is_expanded else lane["start"]
    if not is_expanded:
        lane["bend"] = 0.0
    lane["expanded"] = 1 if is_expanded else 0
    mean_sums(lane, rows, theta, buffers, out)
    if is_expanded:
        derived, scale = derived_of(expansion, lane, d), lane["scale"] * lane["owed"]
        delta = derived[lane["columns"] * (d * (d + 1) // 2) + lane["moments"] :]
        for i in range(d):
            for j in range(i + 1):
                matrix[i, j] = 0.0
        _contract(lane, expansion, lists_of(derived, lane, d), matrix)
        for i in range(d):
            total = scale * expansion[d + i]  # S_1
            for j in range(d):
                total += (matrix[i, j] if j <= i else matrix[j, i]) * delta[j]
            out[i] += total


@compiled_inner
def gram_at(
    order: int, lane: np.void, rows: np.ndarray, expansion: np.ndarray, u: np.ndarray, buffers: np.ndarray,
    out: np.ndarray,
) -> None:  # fmt: skip
    """Compute the ``order``-th derivative of g along u, at the theta of the last :func:`mean_at` (see ``gram``)."""
    gram(order, lane, rows, u, buffers, out)
    if lane["expanded"] == 0:
        return
    d, columns, degree = out.shape[0], lane["columns"], lane["order"] - 1
    derived = derived_of(expansion, lane, d)
    at = columns * (d * (d + 1) // 2) + lane["moments"]
    delta, counts, lists = derived[at : at + d], derived[at + d : at + 2 * d], lists_of(derived, lane, d)
    values = lists[columns + lane["moments"] : 2 * columns + lane["moments"]]
    if order == SLOPE_GRAM:
        for j in range(columns):
            values[j] = lists[j]
    else:
        list_derivatives(delta, u, degree, counts, lists, values)
        if order == THIRD_GRAM:
            second = lists[2 * columns + lane["moments"] :]
            list_second_derivatives(delta, u, degree, counts, values, second)
            values = second
    _scale_degrees(lane["order"], d, 1, values)
    _contract(lane, expansion, values, out)
    for i in range(d):
        for j in range(i):
            out[j, i] = out[i, j]


@compiled_inner
def apply_at(
    lane: np.void, rows: np.ndarray, expansion: np.ndarray, u: np.ndarray, buffers: np.ndarray, out: np.ndarray,
    matrix: np.ndarray,
) -> None:  # fmt: skip
    """Compute H u at the theta of the last :func:`mean_at`. ``matrix`` is scratch space."""
    slope_apply(lane, rows, u, buffers, out)
    if lane["expanded"] == 0:
        return
    d, columns = out.shape[0], lane["columns"]
    lists = lists_of(derived_of(expansion, lane, d), lane, d)
    values = lists[columns + lane["moments"] : 2 * columns + lane["moments"]]
    for j in range(columns):
        values[j] = lists[j]
    _scale_degrees(lane["order"], d, 1, values)
    for i in range(d):
        for j in range(i + 1):
            matrix[i, j] = 0.0
    _contract(lane, expansion, values, matrix)
    for i in range(d):
        total = 0.0
        for j in range(d):
            total += (matrix[i, j] if j <= i else matrix[j, i]) * u[j]
        out[i] += total


@compiled_inner
def weight_of_expansion(lane: np.void, expansion: np.ndarray, d: int) -> float:
    """Return the current weight of the expanded entries."""
    return expansion[d + lane["sums"] + lane["moments"]] * lane["scale"] * lane["owed"]
