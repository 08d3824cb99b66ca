"""Fields of drifts and laws, and their checks.

Fields are stored as tuples of floats, not arrays, so that two laws are equal if their fields are, and can be written to
a file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from windvane.arguments import NORM_SLACK, Array, check_number, check_real_array, check_whole
from windvane.errors import ArgumentError

Vector = tuple[float, ...]
Check = Callable[[str, Any], Any]  # takes the name of a field and its value, and returns the value in canonical form
LATEST = 2**40  # rounds: multiplied by a count of up to a million they still fit in 64 bits


class Record:
    """Base class of drifts and laws: frozen dataclasses with a ``kind``, whose fields are checked by ``checks``."""

    kind: ClassVar[str]
    checks: ClassVar[Mapping[str, Check]] = {}

    def __post_init__(self) -> None:
        self.set_fields(**{name: check(name, getattr(self, name)) for name, check in self.checks.items()})

    def set_fields(self, **fields: Any) -> None:
        """Store checked values, although the record is frozen."""
        for name, value in fields.items():
            object.__setattr__(self, name, value)


def whole(least: int, most: int | None = None) -> Check:
    """Return the check of a whole number within [least, most]."""
    return lambda name, value: check_whole(name, value, least, most)


def number(expected: str, accept: Callable[[float], bool]) -> Check:
    """Return the check of a finite number that ``accept`` accepts."""
    return lambda name, value: check_number(name, value, expected, accept)


def optional(check: Check) -> Check:
    """Return the check that lets None pass."""
    return lambda name, value: None if value is None else check(name, value)


def check_vector(name: str, value: Any) -> Vector:
    """Return ``value`` as a tuple of finite numbers, at least one."""
    return tuple(_check_finite(name, value, 1, "a vector of finite numbers").tolist())


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
