"""Factorisations of positive definite matrices that may be singular to rounding.

If NumPy reports a singular matrix, a ridge of the size of the rounding errors is added. Each function takes one matrix
or a stack of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from windvane.arguments import Array

_RIDGE = 1e-14  # relative to the trace: about 50 units in the last place of the largest entry


def inverse(A: Array) -> Array:
    """Return A^-1."""
    return _factorise(np.linalg.inv, A)


def cholesky(A: Array) -> Array:
    """Return the lower triangular C with C C' = A."""
    return _factorise(np.linalg.cholesky, A)


def solve(A: Array, b: Array) -> Array:
    """Return A^-1 b."""
    return _factorise(np.linalg.solve, A, b)


def _factorise(function: Callable[..., Any], A: Array, *b: Array) -> Array:
    if A.ndim > 2:  # each by itself: a singular matrix must not change the results of others
        return np.stack([_factorise(function, *matrices) for matrices in zip(A, *b, strict=True)])
    try:
        return np.asarray(function(A, *b), dtype=float)
    except np.linalg.LinAlgError:
        return np.asarray(function(A + _RIDGE * np.trace(A) * np.eye(len(A)), *b), dtype=float)
