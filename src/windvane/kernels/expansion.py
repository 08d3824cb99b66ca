"""g and its derivatives with the old part of a history replaced by a Taylor expansion, and the error of doing so.

The old entries of a history are represented by tensors around a point, the *center* c. Because
mu(<x, theta>) = sum_j c_j <x, delta>^j + remainder with delta = theta - c and c_j = mu^(j)(<x, c>) / j!,

    g_old(theta) = sum_k S_k[delta^(k-1)] + error,      S_k = sum w c_{k-1} x^k  (symmetric, order k),  k <= order + 1,

with the remainder of Taylor's theorem for an even ``order`` p,

    ||error|| <= R L sum w |<x, delta>|^(p+1) <= R L^2 ||delta|| M[delta^p],      M = sum w x^p,
                                                                                R = sup |mu^(p+1)| / (p+1)!.

M[delta^p] is not a bound but the sum itself, which is smaller by a factor of (p-1)(p-3)...1 / (d+2)(d+4)... than
||delta||^p for features without a preferred direction. Differentiating the remainder gives for H the bound
(p+1) R L^2 M[delta^p] in the spectral norm.

For features across delta, M[delta^p] is small, but it and the polynomials are sums of terms of the order of sum w
(L ||delta||)^p that cancel. So NOISE sum w (L ||delta||)^p is added to R M[delta^p] for rounding. Where L ||delta|| is
below 1, rounding is that of any sum over the history. The derivatives of the expansion are those of a polynomial:

    H_old = sum_k (k-1) S_k[delta^(k-2)],   its derivatives along u likewise,

so each is a matrix with a row for each pair of coordinates and a column for each monomial of degree below p, times a
vector: the monomials of delta, or their derivatives along u.

**Certificate.** g is strongly monotone with the constant lambda_min(H), so an error e of g moves its root by at most
e / lambda_min(H). Let s be the least slope mu' over |z| <= L ||theta||. Then

    H(theta) >= s (V - lam I - dropped L^2 I) + ridge I,    lambda = s (lambda_min(V) - lam - dropped L^2) + ridge.

An error of g is accepted up to budget (lambda - ridge). Dropped observations move g by at most tolerance ridge. Both
together move theta_hat by less than ``tolerance`` if budget < tolerance. Where the error is not accepted, which
includes all points far from the center, entries are summed exactly. So the choice of a center decides how fast an
evaluation is, and within the certified error not what it returns.

**Levels.** The older an observation, the lighter, and the farther its center can be from theta. There are two levels,
each with its own center: the young entries, whose center is renewed often, and the old ones, which are many. The errors
of both add up. If only the young level is too far away, its entries are summed exactly.

**Ageing.** Weights are stored relative to ``origin``, and the tensors hold stored weights. So rounds change nothing but
``scale``. ``owed`` is the factor by which the weights have been rescaled since the tensors were last in use.

Layout of the row of a level: two blocks of center, S, M and total weight, for the expansion in use and for the one
that is being built (:mod:`windvane.kernels.anchors`); then what is derived from the first block, and scratch.
"""

from __future__ import annotations

import numpy as np

from windvane.kernels.elementary import mean_slope, remainder_growth
from windvane.kernels.jit import compiled, compiled_inner, compiled_sums, compiled_view
from windvane.kernels.lanes import LEVELS
from windvane.kernels.linalg import mirror, norm
from windvane.kernels.monomials import list_derivatives, list_monomials
from windvane.kernels.sums import SLOPE_GRAM, THIRD_GRAM, gram, mean_sums, primitive_sum, slope_apply

SLACK = 1.2  # the Hessian between theta and the root is at least its lower bound at theta divided by this
LARGEST_BEND = 0.01  # largest accepted error of H relative to lambda_min(H)
# Rounding relative to the terms of a polynomial: products of up to 25 factors, each rounded by 1.1e-16, and their sums.
NOISE = 1e-14


@compiled_view
def block_of(level: np.ndarray, lane: np.void, d: int, number: int) -> np.ndarray:
    """Return a block of a level: center, S, M and weight; number 0 is in use, 1 is being built."""
    size = d + lane["sums"] + lane["moments"] + 1
    return level[number * size : (number + 1) * size]


@compiled_view
def derived_of(level: np.ndarray, lane: np.void, d: int) -> np.ndarray:
    """Return what follows the blocks: the matrix, M with multiplicities, delta, counts and the lists of monomials."""
    return level[2 * (d + lane["sums"] + lane["moments"] + 1) :]


@compiled_view
def delta_of(level: np.ndarray, lane: np.void, d: int) -> np.ndarray:
    """Return delta, d numbers for counting monomials, and what follows."""
    size = d + lane["sums"] + lane["moments"] + 1
    return level[2 * size + lane["columns"] * (d * (d + 1) // 2) + lane["moments"] :]


@compiled_inner
def refresh(lane: np.void, level: np.ndarray, d: int, table: np.ndarray, multiplicity: np.ndarray) -> None:
    """Lay the tensors in use out as a matrix. ``multiplicity`` counts the orders of the factors of each monomial."""
    block, derived = block_of(level, lane, d, 0), derived_of(level, lane, d)
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
def bound_curvature(lane: np.void, reach: float) -> float:
    """Return a lower bound on lambda_min(H) - ridge at any theta with L ||theta|| <= ``reach``."""
    _, above = mean_slope(lane["link"], reach)
    _, below = mean_slope(lane["link"], -reach)
    return min(above, below) * max(lane["least"] - lane["floor"] - lane["dropped"] * lane["L"] ** 2, 0.0)


@compiled_inner
def bound_remainder(lane: np.void, level: np.ndarray, theta: np.ndarray) -> tuple[float, float]:
    """Return bounds on the errors of g and H at theta. The monomials of delta are left in the row of the level."""
    d, columns, n = theta.shape[0], lane["columns"], lane["moments"]
    weighted = derived_of(level, lane, d)[columns * (d * (d + 1) // 2) :]
    place = delta_of(level, lane, d)
    delta, counts, lists = place[:d], place[d : 2 * d], place[2 * d :]
    for j in range(d):
        delta[j] = theta[j] - level[j]
    list_monomials(delta, lane["order"], counts, lists)
    L, remainder, length = lane["L"], lane["remainder"], norm(delta)
    terms = remainder * max(_product(weighted, lists[columns : columns + n], n), 0.0)
    if remainder > 0.0:  # otherwise the link is linear
        terms += NOISE * level[d + lane["sums"] + n] * (L * length) ** lane["order"]
    growth = remainder_growth(lane["link"], L * max(norm(theta), norm(level[:d])))
    factor = growth * L * L * lane["scale"] * lane["owed"] * terms
    return factor * length, (lane["order"] + 1) * factor


@compiled_inner
def _choose_levels(lane: np.void, expansion: np.ndarray, theta: np.ndarray) -> int:
    """Return how many levels can be used at theta, the oldest first. Sets ``slack`` and ``bend`` accordingly."""
    curvature = bound_curvature(lane, lane["L"] * norm(theta))
    least = curvature + lane["ridge"]
    error, bend, used = 0.0, 0.0, 0
    for number in range(LEVELS - 1, -1, -1):
        if lane["anchored"][number] == 1:
            more, bent = bound_remainder(lane, expansion[number], theta)
            # Written as `not x <= y` so that NaN is rejected.
            if not (SLACK * (error + more) <= lane["budget"] * curvature and bend + bent <= LARGEST_BEND * least):
                break
            error += more
            bend += bent
            used = LEVELS - number
    lane["slack"] = max(lane["slack"], SLACK * error / least)
    lane["bend"] = bend / least
    return used


@compiled_sums
def _five_products(matrix: np.ndarray, values: np.ndarray, n: int) -> tuple[float, float, float, float, float]:
    """Return the products of five rows of length n with ``values``."""
    r0, r1, r2, r3, r4 = matrix[:n], matrix[n : 2 * n], matrix[2 * n : 3 * n], matrix[3 * n : 4 * n], matrix[4 * n :]
    s0, s1, s2, s3, s4 = 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(n):
        v = values[i]
        s0 += r0[i] * v
        s1 += r1[i] * v
        s2 += r2[i] * v
        s3 += r3[i] * v
        s4 += r4[i] * v
    return s0, s1, s2, s3, s4


@compiled_inner
def _contract(lane: np.void, level: np.ndarray, values: np.ndarray, out: np.ndarray) -> None:
    """Add the matrix of the tensors times ``values`` to the lower triangle of ``out``."""
    derived = derived_of(level, lane, out.shape[0])
    columns, scale = lane["columns"], lane["scale"] * lane["owed"]
    at = 0
    for i in range(out.shape[0]):
        j = 0
        while j + 4 <= i:
            s0, s1, s2, s3, s4 = _five_products(derived[at : at + 5 * columns], values, columns)
            out[i, j] += scale * s0
            out[i, j + 1] += scale * s1
            out[i, j + 2] += scale * s2
            out[i, j + 3] += scale * s3
            out[i, j + 4] += scale * s4
            at += 5 * columns
            j += 5
        while j <= i:
            out[i, j] += scale * _product(derived[at : at + columns], values, columns)
            at += columns
            j += 1


@compiled_inner
def _scale_degrees(order: int, d: int, values: np.ndarray) -> None:
    """Multiply the values of the monomials of degree j < ``order`` by j + 1."""
    at, n = 0, 1
    for degree in range(order):
        for k in range(n):
            values[at + k] *= degree + 1
        at += n
        n = n * (d + degree) // (degree + 1)


@compiled_inner
def _add_product(matrix: np.ndarray, u: np.ndarray, out: np.ndarray) -> None:
    """Add the symmetric ``matrix``, of which the lower triangle is given, times u to ``out``."""
    for i in range(u.shape[0]):
        for j in range(u.shape[0]):
            out[i] += (matrix[i, j] if j <= i else matrix[j, i]) * u[j]


@compiled_inner
def _clear(matrix: np.ndarray) -> None:
    for i in range(matrix.shape[0]):
        for j in range(i + 1):
            matrix[i, j] = 0.0


@compiled_inner
def mean_at(
    lane: np.void, rows: np.ndarray, expansion: np.ndarray, theta: np.ndarray, buffers: np.ndarray, out: np.ndarray,
    matrix: np.ndarray,
) -> None:  # fmt: skip
    """Set ``out`` to g(theta). ``matrix`` is scratch space."""
    d, used = theta.shape[0], 0
    lane["first"], lane["bend"] = lane["start"], 0.0
    if expansion.shape[1] > 0:
        used = _choose_levels(lane, expansion, theta)
        if used > 0:
            lane["first"] = lane["edge"][LEVELS - used]
    lane["expanded"] = used
    mean_sums(lane, rows, theta, buffers, out)
    for number in range(LEVELS - used, LEVELS):
        if lane["anchored"][number] == 1:
            level, scale = expansion[number], lane["scale"] * lane["owed"]
            place = delta_of(level, lane, d)
            _clear(matrix)
            _contract(lane, level, place[2 * d :], matrix)
            _add_product(matrix, place[:d], out)
            for i in range(d):
                out[i] += scale * level[d + i]  # S_1


@compiled_inner
def _add_derivative(order: int, lane: np.void, level: np.ndarray, u: np.ndarray, out: np.ndarray) -> None:
    """Add the ``order``-th derivative along u of what a level contributes to the lower triangle of ``out``."""
    d, columns, degree = out.shape[0], lane["columns"], lane["order"] - 1
    place = delta_of(level, lane, d)
    delta, counts, lists = place[:d], place[d : 2 * d], place[2 * d :]
    values = lists[columns + lane["moments"] : 2 * columns + lane["moments"]]
    if order == SLOPE_GRAM:
        for j in range(columns):
            values[j] = lists[j]
    else:
        list_derivatives(1, delta, u, degree, counts, lists, values)
        if order == THIRD_GRAM:
            second = lists[2 * columns + lane["moments"] :]
            list_derivatives(2, delta, u, degree, counts, values, second)
            values = second
    _scale_degrees(lane["order"], d, values)
    _contract(lane, level, values, out)


@compiled_inner
def gram_at(
    order: int, lane: np.void, rows: np.ndarray, expansion: np.ndarray, u: np.ndarray, buffers: np.ndarray,
    out: np.ndarray,
) -> None:  # fmt: skip
    """Compute the ``order``-th derivative of g along u, at the theta of the last :func:`mean_at` (see ``gram``)."""
    gram(order, lane, rows, u, buffers, out)
    for number in range(LEVELS - lane["expanded"], LEVELS):
        if lane["anchored"][number] == 1:
            _add_derivative(order, lane, expansion[number], u, out)
    mirror(out)


@compiled_inner
def apply_at(
    lane: np.void, rows: np.ndarray, expansion: np.ndarray, u: np.ndarray, buffers: np.ndarray, out: np.ndarray,
    matrix: np.ndarray,
) -> None:  # fmt: skip
    """Compute H u at the theta of the last :func:`mean_at`. ``matrix`` is scratch space."""
    slope_apply(lane, rows, u, buffers, out)
    for number in range(LEVELS - lane["expanded"], LEVELS):
        if lane["anchored"][number] == 1:
            _clear(matrix)
            _add_derivative(SLOPE_GRAM, lane, expansion[number], u, matrix)
            _add_product(matrix, u, out)


@compiled_inner
def primitive_at(
    lane: np.void, rows: np.ndarray, expansion: np.ndarray, d: int, buffers: np.ndarray, matrix: np.ndarray
) -> float:
    """Return sum w B(<x, theta>), with B' = mu, at the theta of the last :func:`mean_at`. ``matrix`` is scratch space.

    For expanded entries it is the difference to the value at their center, sum_k S_k[delta^k] / k. So only values for
    the same levels can be compared.
    """
    total = primitive_sum(lane, rows, d, buffers)
    for number in range(LEVELS - lane["expanded"], LEVELS):
        if lane["anchored"][number] == 1:
            level, columns = expansion[number], lane["columns"]
            place = delta_of(level, lane, d)
            delta, lists = place[:d], place[2 * d :]
            values = lists[columns + lane["moments"] : 2 * columns + lane["moments"]]
            at, n = 0, 1
            for degree in range(lane["order"]):
                for j in range(at, at + n):
                    values[j] = lists[j] / (degree + 2)
                at += n
                n = n * (d + degree) // (degree + 1)
            _clear(matrix)
            _contract(lane, level, values, matrix)
            for i in range(d):
                total += lane["scale"] * lane["owed"] * level[d + i] * delta[i]  # S_1
                for j in range(d):
                    total += delta[i] * (matrix[i, j] if j <= i else matrix[j, i]) * delta[j]
    return total


@compiled_inner
def expanded_weight(lane: np.void, expansion: np.ndarray, d: int) -> float:
    """Return the current weight of the entries that the last :func:`mean_at` did not sum."""
    total = 0.0
    for number in range(LEVELS - lane["expanded"], LEVELS):
        if lane["anchored"][number] == 1:
            total += expansion[number, d + lane["sums"] + lane["moments"]] * lane["scale"] * lane["owed"]
    return total


@compiled
def moments_lanes(
    theta: np.ndarray,
    g: np.ndarray,
    H: np.ndarray,
    record: np.ndarray,
    history: np.ndarray,
    expansions: np.ndarray,
    work: np.ndarray,
    buffers: np.ndarray,
) -> None:
    """Compute g and H of every lane at its theta."""
    for i in range(len(record)):
        lane, rows, expansion = record[i], history[i], expansions[i]
        mean_at(lane, rows, expansion, theta[i], buffers, g[i], work[0])
        gram_at(SLOPE_GRAM, lane, rows, expansion, theta[i], buffers, H[i])
