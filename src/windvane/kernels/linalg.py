"""Small dense linear algebra on symmetric positive definite matrices, and the ball-constrained quadratic.

Only the lower triangle of a symmetric matrix is read. Sizes are a bandit's feature dimension, where calling LAPACK
costs more than the arithmetic.
"""

from __future__ import annotations

import math

import numpy as np

from windvane.kernels.jit import compiled, compiled_sums


@compiled_sums
def dot(a: np.ndarray, b: np.ndarray) -> float:
    """<a, b>."""
    total = 0.0
    for i in range(a.shape[0]):
        total += a[i] * b[i]
    return total


@compiled
def copy(source: np.ndarray, target: np.ndarray) -> None:
    """target = source, for vectors (the slice assignment compiles far slower)."""
    for i in range(source.shape[0]):
        target[i] = source[i]


@compiled
def copy_matrix(source: np.ndarray, target: np.ndarray) -> None:
    """target = source, for square matrices."""
    for i in range(source.shape[0]):
        for j in range(source.shape[0]):
            target[i, j] = source[i, j]


@compiled
def norm(a: np.ndarray) -> float:
    """The Euclidean norm."""
    return math.sqrt(dot(a, a))


@compiled
def large_norm(a: np.ndarray) -> float:
    """The Euclidean norm, also where its square overflows."""
    square = dot(a, a)
    if math.isfinite(square):
        return math.sqrt(square)
    largest = 0.0
    for i in range(a.shape[0]):
        largest = max(largest, abs(a[i]))
    square = 0.0
    for i in range(a.shape[0]):
        square += (a[i] / largest) ** 2
    return largest * math.sqrt(square)


@compiled
def cholesky(matrix: np.ndarray, shift: float, lower: np.ndarray) -> bool:
    """lower lower' = matrix + shift I; False where that is not positive definite (lower is then garbage)."""
    d = matrix.shape[0]
    for j in range(d):
        pivot = matrix[j, j] + shift - dot(lower[j, :j], lower[j, :j])
        if not pivot > 0.0:
            return False
        root = math.sqrt(pivot)
        lower[j, j] = root
        for i in range(j + 1, d):
            lower[i, j] = (matrix[i, j] - dot(lower[i, :j], lower[j, :j])) / root
            lower[j, i] = 0.0
    return True


@compiled
def factorise(matrix: np.ndarray, lower: np.ndarray) -> bool:
    """:func:`cholesky` of a matrix that is positive definite but for rounding; False if a shift was needed.

    The shift grows from rounding size until it suffices, so the factor is usable either way.
    """
    shift = 0.0
    for attempt in range(40):
        if cholesky(matrix, shift, lower):
            return attempt == 0
        shift *= 10.0
        for i in range(matrix.shape[0]):
            shift = max(shift, 1e-15 * abs(matrix[i, i]))
    return False


@compiled
def solve_lower(lower: np.ndarray, rhs: np.ndarray, out: np.ndarray) -> None:
    """out = lower^{-1} rhs (rhs and out may be one array)."""
    for i in range(lower.shape[0]):
        out[i] = (rhs[i] - dot(lower[i, :i], out[:i])) / lower[i, i]


@compiled
def solve_lower_transposed(lower: np.ndarray, rhs: np.ndarray, out: np.ndarray) -> None:
    """out = lower'^{-1} rhs (rhs and out may be one array)."""
    d = lower.shape[0]
    for i in range(d):
        out[i] = rhs[i]
    for i in range(d - 1, -1, -1):
        out[i] /= lower[i, i]
        for j in range(i):
            out[j] -= lower[i, j] * out[i]


@compiled
def solve_cholesky(lower: np.ndarray, rhs: np.ndarray, out: np.ndarray) -> None:
    """out = (lower lower')^{-1} rhs."""
    solve_lower(lower, rhs, out)
    solve_lower_transposed(lower, out, out)


@compiled
def trace_of_inverse(lower: np.ndarray, column: np.ndarray) -> float:
    """tr((lower lower')^{-1}): one over it bounds the smallest eigenvalue from below."""
    d = lower.shape[0]
    total = 0.0
    for j in range(d):
        for i in range(d):
            column[i] = 1.0 if i == j else 0.0
        solve_lower(lower, column, column)
        total += dot(column, column)
    return total


@compiled
def multiply_symmetric(matrix: np.ndarray, vector: np.ndarray, out: np.ndarray) -> None:
    """out = matrix vector, reading the lower triangle."""
    d = vector.shape[0]
    for i in range(d):
        total = 0.0
        for j in range(d):
            total += (matrix[i, j] if j <= i else matrix[j, i]) * vector[j]
        out[i] = total


@compiled
def add_outer(matrix: np.ndarray, factor: float, x: np.ndarray) -> None:
    """matrix += factor x x'."""
    d = x.shape[0]
    for i in range(d):
        for j in range(d):
            matrix[i, j] += factor * (x[i] * x[j])


@compiled
def mirror(matrix: np.ndarray) -> None:
    """Copy the lower triangle onto the upper one."""
    for i in range(matrix.shape[0]):
        for j in range(i):
            matrix[j, i] = matrix[i, j]


@compiled
def ball_quadratic(
    matrix: np.ndarray, linear: np.ndarray, radius: float, guess: float, out: np.ndarray, lower: np.ndarray
) -> float:
    """Minimise y' matrix y / 2 - linear' y over ||y|| <= radius; returns the multiplier kappa >= 0.

    The trust-region sub-problem (More and Sorensen 1983): (matrix + kappa I) y = linear with matrix + kappa I positive
    semi-definite and kappa (radius - ||y||) = 0. The multiplier is found by Newton's method on 1/||y(kappa)|| inside a
    bracket. The matrix may be indefinite. In the "hard case" (linear orthogonal to the eigenvectors of the smallest
    eigenvalue) such an eigenvector, found by inverse iteration, is added to reach the sphere.
    """
    d = linear.shape[0]
    scaled = np.empty(d)
    size = 0.0
    smallest_diagonal = math.inf
    for i in range(d):
        row = 0.0
        for j in range(d):
            row += abs(matrix[i, j] if j <= i else matrix[j, i])
        size = max(size, row)
        smallest_diagonal = min(smallest_diagonal, matrix[i, i])
    low = max(0.0, -smallest_diagonal)
    high = max(norm(linear) / radius + size, 1e-300)
    kappa = min(max(guess, low), high)
    length = 0.0
    for i in range(d):
        out[i] = 0.0
    factored = False
    for _ in range(60):
        factored = cholesky(matrix, kappa, lower)
        if not factored:
            low = max(low, kappa)
            kappa = max(math.sqrt(low * high), low + 0.01 * (high - low))
            continue
        solve_lower(lower, linear, out)
        solve_lower_transposed(lower, out, out)
        length = norm(out)
        if kappa == 0.0 and length <= radius:
            return 0.0
        if abs(length - radius) <= 1e-13 * radius:
            break
        if length > radius:
            low = max(low, kappa)
        else:
            high = min(high, kappa)
            if kappa == 0.0:
                return 0.0
        if high - low <= 1e-15 * high:
            break
        solve_lower(lower, out, scaled)
        shrink = dot(scaled, scaled)
        step = (length * length / shrink) * (length - radius) / radius if shrink > 0.0 else -kappa
        candidate = kappa + step
        if not (low < candidate < high):
            # zero itself is a legal multiplier: the minimiser may lie inside the ball
            candidate = 0.0 if low == 0.0 and candidate <= 0.0 else 0.5 * (low + high)
        kappa = candidate
    if factored and length < radius * (1.0 - 1e-9) and kappa > 1e-14 * size:
        for i in range(d):
            scaled[i] = 1.0 + 0.1 * i  # any start not orthogonal to the eigenvector will do
        for _ in range(4):
            solve_cholesky(lower, scaled, scaled)
            length = norm(scaled)
            for i in range(d):
                scaled[i] /= length
        along = dot(out, scaled)
        reach = math.sqrt(max(along * along + radius * radius - dot(out, out), 0.0))
        step = reach - along if along >= 0.0 else -reach - along
        for i in range(d):
            out[i] += step * scaled[i]
        length = norm(out)
    if length > radius or (length > 0.0 and kappa > 1e-14 * size):  # a vanishing multiplier: the minimiser is inside
        for i in range(d):
            out[i] *= radius / length
    return kappa


@compiled
def log_det_lanes(lo: int, hi: int, V: np.ndarray, lam: float, out: np.ndarray) -> None:
    """out[lane] = log det(V / lam)."""
    d = V.shape[1]
    lower = np.empty((d, d))
    for lane in range(lo, hi):
        factorise(V[lane], lower)
        total = 0.0
        for i in range(d):
            total += math.log(lower[i, i] * lower[i, i] / lam)
        out[lane] = total
