"""Linear algebra for positive definite matrices that may be singular up to rounding."""

from collections.abc import Callable
from typing import Any

import numpy as np

from windvane.arguments import Array

SYMMETRY = 1e-9  # relative difference between a matrix and its transpose that rounding can cause
_RIDGE = 1e-14  # relative to the trace: about 50 units in the last place of the largest entry


def apply_with_ridge(function: Callable[..., Any], A: Array, *b: Array) -> Array:
    """Return ``function(A, *b)``, such as ``np.linalg.inv(A)``, for one matrix or a stack of them.

    If NumPy reports a singular matrix, a ridge of the size of the rounding errors is added.
    """
    if A.ndim > 2:  # one at a time: a singular matrix must not change the results of the others
        return np.stack([apply_with_ridge(function, *matrices) for matrices in zip(A, *b, strict=True)])
    try:
        return np.asarray(function(A, *b), dtype=float)
    except np.linalg.LinAlgError:
        return np.asarray(function(A + _RIDGE * np.trace(A) * np.eye(len(A)), *b), dtype=float)


def is_symmetric(matrices: Array) -> bool:
    """Return whether one matrix, or each in a stack, is symmetric up to rounding."""
    return np.allclose(matrices, np.swapaxes(matrices, -1, -2), rtol=SYMMETRY, atol=0.0)
