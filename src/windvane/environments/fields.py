"""Checks of the fields of drifts and laws.

Fields are stored as tuples of floats, not arrays, so that two laws are equal if their fields are, and can be written to
a file.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from windvane.arguments import NORM_SLACK, Array, check_real_array, check_whole
from windvane.errors import ArgumentError

Vector = tuple[float, ...]
LATEST = 2**40  # rounds: multiplied by a count of up to a million they still fit in 64 bits


def set_fields(law: object, /, **fields: Any) -> None:
    """Store checked values in the fields of a frozen dataclass."""
    for name, value in fields.items():
        object.__setattr__(law, name, value)


def check_vector(name: str, value: Any) -> Vector:
    """Return ``value`` as a tuple of finite numbers, at least one."""
    return tuple(_check_finite(name, value, 1, "a vector of finite numbers").tolist())


def check_optional_vector(name: str, value: Any) -> Vector | None:
    """Return None, or ``value`` as a tuple of finite numbers."""
    return None if value is None else check_vector(name, value)


def check_vectors(name: str, value: Any) -> tuple[Vector, ...]:
    """Return ``value`` as a tuple of finite vectors of one length, at least one."""
    rows = _check_finite(name, value, 2, "a list of vectors of finite numbers, all of one length").tolist()
    return tuple(tuple(row) for row in rows)


def _check_finite(name: str, value: Any, ndim: int, expected: str) -> Array:
    array = check_real_array(name, value, expected)
    if array.ndim != ndim or array.size == 0 or not np.isfinite(array).all():
        raise ArgumentError(name, value, expected)
    return array


def check_rounds(name: str, value: Any, least: int) -> tuple[int, ...]:
    """Return ``value`` as a tuple of whole, strictly increasing rounds from ``least`` on."""
    try:
        rounds = tuple(check_whole(f"{name}[{i}]", entry, least) for i, entry in enumerate(value))
    except TypeError:
        raise ArgumentError(name, value, "a list of rounds") from None
    if any(late <= early for early, late in pairwise(rounds)):
        raise ArgumentError(name, value, "strictly increasing")
    return rounds


def check_norms(name: str, points: Any, dim: int, radius: float, radius_name: str) -> Array:
    """Return ``points``, one vector or several of length ``dim``, as an array with norms at most ``radius``."""
    array = np.array(points, dtype=float)
    if array.shape[-1] != dim:
        raise ArgumentError(name, points, f"of length dim={dim}", got=f"length {array.shape[-1]}")
    longest = float(np.sqrt(np.square(array).sum(axis=-1)).max())
    if not longest <= radius * NORM_SLACK:  # written as `not x <= y` so that NaN is rejected
        raise ArgumentError(name, points, f"of norm at most {radius_name}={radius:g}", got=f"norm {longest:.9g}")
    return array
