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
    return _factor(lambda M: np.asarray(np.linalg.solve(M, b), dtype=float), A)


def _factor(factorise: Callable[[Array], Array], A: Array) -> Array:
    try:
        return factorise(A)
    except np.linalg.LinAlgError:
        trace = np.trace(A, axis1=-2, axis2=-1)[..., None, None]
        return factorise(A + _RIDGE * trace * np.eye(A.shape[-1]))
