"""Factorisations of positive definite matrices that may be singular to rounding.

If NumPy reports a singular matrix, a ridge of the size of the rounding errors is added. Each function takes one matrix
or a stack of them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from windvane.arguments import Array

_RIDGE = 1e-14  # relative to the trace: about 50 units in the last place of the largest entry


def inverse(A: Array) -> Array:
    """Return A^-1."""
    return _factor(lambda M: np.asarray(np.linalg.inv(M)), A)


def cholesky(A: Array) -> Array:
    """Return the lower triangular C with C C' = A."""
    return _factor(lambda M: np.asarray(np.linalg.cholesky(M), dtype=float), A)


def solve(A: Array, b: Array) -> Array:
    """Return A^-1 b."""
    if A.ndim > 2:  # each by itself: a singular matrix must not change the results of others
        return np.stack([solve(M, c) for M, c in zip(A, b, strict=True)])
    return _factor(lambda M: np.asarray(np.linalg.solve(M, b), dtype=float), A)


def _factor(factorise: Callable[[Array], Array], A: Array) -> Array:
    if A.ndim > 2:
        return np.stack([_factor(factorise, M) for M in A])
    try:
        return factorise(A)
    except np.linalg.LinAlgError:
        return factorise(A + _RIDGE * np.trace(A) * np.eye(len(A)))
