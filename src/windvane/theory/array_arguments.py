"""Checks of arguments that are numbers or arrays of any shape, and the types that formulas share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from windvane.arguments import Array, check_choice, check_real_array
from windvane.errors import ArgumentError

Lanes: TypeAlias = float | Array

KINDS: tuple[str, ...] = ("orthogonal", "general")

# log det(V / lam) >= 0 in exact arithmetic. A factorisation of V = lam I in d = 1000 dimensions returns no less
# than -d * 1e-13 or so; anything below this slack is a mistake of the caller.
_LOG_DET_SLACK = 1e-8


def check_entries(name: str, value: ArrayLike, expected: str, accept: Callable[[Array], Any]) -> Array:
    """Return ``value`` as a C-contiguous float array of any shape with finite entries that ``accept`` accepts.

    Contiguous, because NumPy's logarithm of a strided array may differ in the last bit: a lane would depend on others.
    """
    wanted = f"a number {expected}"
    array = check_real_array(name, value, f"{wanted}, or an array of such numbers")
    if np.asarray(value).dtype.kind == "b":
        raise ArgumentError(name, value, wanted)
    bad = ~(np.isfinite(array) & np.asarray(accept(array), dtype=bool))
    if bad.any():
        raise ArgumentError(name, value if array.ndim == 0 else float(array[bad][0]), wanted)
    return np.asarray(array, order="C")  # ascontiguousarray would make a vector of a number


def check_proportion(name: str, value: ArrayLike) -> Array:
    """Return ``value`` as an array of numbers in (0, 1]."""
    return check_entries(name, value, "in (0, 1]", lambda v: (v > 0) & (v <= 1))


def check_at_least(name: str, value: ArrayLike, least: int) -> Array:
    """Return ``value`` as an array of numbers that are at least ``least``."""
    return check_entries(name, value, f"at least {least}", lambda v: v >= least)


def check_log_det(name: str, value: ArrayLike) -> Array:
    """Return the logarithm of a determinant ratio that is at least 1; values negative by rounding become 0."""
    return np.maximum(check_entries(name, value, "at least 0", lambda v: v >= -_LOG_DET_SLACK), 0.0)


def check_broadcast(**arrays: Array) -> None:
    """Raise ``ArgumentError`` for the first array that does not broadcast with those before it."""
    shape: tuple[int, ...] = ()
    for name, array in arrays.items():
        try:
            shape = np.broadcast_shapes(shape, array.shape)
        except ValueError:
            got = f"shape {array.shape}"
            raise ArgumentError(name, array, f"of a shape that broadcasts with {shape}", got=got) from None


def is_general(kind: str) -> bool:
    """Return whether ``kind`` is "general" rather than "orthogonal"."""
    return check_choice("kind", kind, KINDS) == "general"


def to_lanes(value: Array) -> Lanes:
    """Return a Python float for a 0-d result, and any other array as it is."""
    return float(value) if np.ndim(value) == 0 else value
