"""Factorisations that also take matrices which are singular to rounding: they see a ridge of rounding's size then."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from windvane.arguments import Array

_RIDGE = 1e-14  # of the trace


def inverse(A: Array) -> Array:
    return _tried(lambda M: np.asarray(np.linalg.inv(M)), A)


def cholesky(A: Array) -> Array:
    return _tried(lambda M: np.asarray(np.linalg.cholesky(M), dtype=float), A)


def solve(A: Array, b: Array) -> Array:
    return _tried(lambda M: np.asarray(np.linalg.solve(M, b), dtype=float), A)


def _tried(factor: Callable[[Array], Array], A: Array) -> Array:
    """``A`` is a positive matrix, or a stack of them."""
    try:
        return factor(A)
    except np.linalg.LinAlgError:
        trace = np.trace(A, axis1=-2, axis2=-1)[..., None, None]
        return factor(A + _RIDGE * trace * np.eye(A.shape[-1]))
