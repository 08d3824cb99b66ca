"""Small dense linear algebra with symmetric positive definite matrices.

Only the lower triangle of a symmetric matrix is read. The matrices have the size of the feature dimension, for which a
LAPACK call costs more than the arithmetic.
"""

from __future__ import annotations

import math

import numpy as np

from windvane.kernels.jit import compiled_inner, compiled_sums

ROUNDING = 1e-15  # relative size of rounding errors in sums of doubles
MOST_SHIFTS = 40  # each shift is ten times the one before, so the last is 1e23 times the diagonal


@compiled_sums
def dot(a: np.ndarray, b: np.ndarray) -> float:
    """Return <a, b>."""
    total = 0.0
    for i in range(a.shape[0]):
        total += a[i] * b[i]
    return total


@compiled_inner
def copy(source: np.ndarray, target: np.ndarray) -> None:
    """Copy a vector. A slice assignment takes numba much longer to compile."""
    for i in range(source.shape[0]):
        target[i] = source[i]


@compiled_inner
def copy_matrix(source: np.ndarray, target: np.ndarray) -> None:
    """Copy a square matrix."""
    for i in range(source.shape[0]):
        for j in range(source.shape[0]):
            target[i, j] = source[i, j]


@compiled_inner
def norm(a: np.ndarray) -> float:
    """Return the Euclidean norm."""
    return math.sqrt(dot(a, a))


@compiled_inner
def large_norm(a: np.ndarray) -> float:
    """Return the Euclidean norm, even if its square overflows."""
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


@compiled_inner
def cholesky(matrix: np.ndarray, shift: float, lower: np.ndarray) -> bool:
    """Factorise lower lower' = matrix + shift I.

    Return False if the sum is not positive definite; ``lower`` is then undefined.
    """
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


@compiled_inner
def factorise(matrix: np.ndarray, lower: np.ndarray) -> bool:
    """Factorise a matrix that is positive definite up to rounding. Return False if a shift was needed.

    The shift starts at the size of rounding errors and grows until the factorisation succeeds, so the factor is usable
    in either case.
    """
    shift = 0.0
    for attempt in range(MOST_SHIFTS):
        if cholesky(matrix, shift, lower):
            return attempt == 0
        shift *= 10.0
        for i in range(matrix.shape[0]):
            shift = max(shift, ROUNDING * abs(matrix[i, i]))
    return False


@compiled_inner
def solve_lower(lower: np.ndarray, rhs: np.ndarray, out: np.ndarray) -> None:
    """Solve lower out = rhs. ``rhs`` and ``out`` can be the same array."""
    for i in range(lower.shape[0]):
        out[i] = (rhs[i] - dot(lower[i, :i], out[:i])) / lower[i, i]


@compiled_inner
def solve_lower_transposed(lower: np.ndarray, rhs: np.ndarray, out: np.ndarray) -> None:
    """Solve lower' out = rhs. ``rhs`` and ``out`` can be the same array."""
    d = lower.shape[0]
    for i in range(d):
        out[i] = rhs[i]
    for i in range(d - 1, -1, -1):
        out[i] /= lower[i, i]
        for j in range(i):
            out[j] -= lower[i, j] * out[i]


@compiled_inner
def solve_cholesky(lower: np.ndarray, rhs: np.ndarray, out: np.ndarray) -> None:
    """Solve lower lower' out = rhs. ``rhs`` and ``out`` can be the same array."""
    solve_lower(lower, rhs, out)
    solve_lower_transposed(lower, out, out)


@compiled_inner
def invert_lower(lower: np.ndarray, out: np.ndarray) -> None:
    """Set ``out`` to the inverse of a lower triangular matrix. The upper triangle of ``out`` is undefined."""
    d = lower.shape[0]
    for j in range(d):
        for i in range(j, d):
            total = 1.0 if i == j else 0.0
            for k in range(j, i):
                total -= lower[i, k] * out[k, j]
            out[i, j] = total / lower[i, i]


@compiled_inner
def gram_of_columns(lower: np.ndarray, out: np.ndarray) -> None:
    """Set ``out`` to lower' lower, for a lower triangular matrix."""
    d = lower.shape[0]
    for i in range(d):
        for j in range(i + 1):
            total = 0.0
            for k in range(i, d):
                total += lower[k, i] * lower[k, j]
            out[i, j] = total
            out[j, i] = total


@compiled_inner
def trace_of_inverse(lower: np.ndarray, column: np.ndarray) -> float:
    """Return tr((lower lower')^{-1}). Its inverse is a lower bound on the smallest eigenvalue."""
    d = lower.shape[0]
    total = 0.0
    for j in range(d):
        for i in range(d):
            column[i] = 1.0 if i == j else 0.0
        solve_lower(lower, column, column)
        total += dot(column, column)
    return total


@compiled_inner
def add_outer(matrix: np.ndarray, factor: float, x: np.ndarray) -> None:
    """Add factor x x' to a matrix."""
    d = x.shape[0]
    for i in range(d):
        for j in range(d):
            matrix[i, j] += factor * (x[i] * x[j])


@compiled_inner
def mirror(matrix: np.ndarray) -> None:
    """Copy the lower triangle onto the upper one."""
    for i in range(matrix.shape[0]):
        for j in range(i):
            matrix[j, i] = matrix[i, j]
