"""What the fields of drifts and laws have in common: checked when made, kept as plain tuples.

Tuples of floats, not arrays, so that two laws are equal when their fields are, and can be written to a file.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from windvane.arguments import Array, check_real_array, check_whole
from windvane.errors import format_value
from windvane.estimation import ROUNDING

Vector = tuple[float, ...]
LATEST = 2**40  # rounds: times counts of up to a million they are still whole numbers of 64 bits


def keep(law: object, /, **fields: Any) -> None:
    """Put checked values into the fields of a frozen dataclass."""
    for name, value in fields.items():
        object.__setattr__(law, name, value)


def vector(name: str, value: Any) -> Vector:
    """``value`` as a tuple of finite numbers, at least one."""
    given = check_real_array(name, value, "a vector of numbers")
    if given.ndim != 1 or given.size == 0 or not np.isfinite(given).all():
        raise ValueError(f"{name}={format_value(value)}: must be a vector of finite numbers")
    return tuple(given.tolist())


def vectors(name: str, value: Any) -> tuple[Vector, ...]:
    """``value`` as a tuple of finite vectors of one length, at least one."""
    given = check_real_array(name, value, "a list of vectors of one length")
    if given.ndim != 2 or given.size == 0 or not np.isfinite(given).all():
        raise ValueError(f"{name}={format_value(value)}: must be a list of finite vectors of one length")
    return tuple(tuple(row) for row in given.tolist())


def rounds(name: str, value: Any, least: int) -> tuple[int, ...]:
    """``value`` as a tuple of whole, strictly increasing rounds from ``least`` on."""
    try:
        given = tuple(check_whole(f"{name}[{i}]", entry, least) for i, entry in enumerate(value))
    except TypeError:
        raise ValueError(f"{name}={format_value(value)}: must be a list of rounds") from None
    if any(late <= early for early, late in pairwise(given)):
        raise ValueError(f"{name}={format_value(value)}: must be strictly increasing")
    return given


def within(name: str, points: Any, dim: int, radius: float, radius_name: str) -> Array:
    """``points`` (one vector or several) as an array whose last axis is ``dim`` and whose norms are within radius."""
    array = np.array(points, dtype=float)
    if array.shape[-1] != dim:
        raise ValueError(f"{name}={format_value(points)}: must have dim={dim} entries")
    longest = float(np.sqrt(np.square(array).sum(axis=-1)).max())
    if not longest <= radius * ROUNDING:
        raise ValueError(
            f"{name}={format_value(points)}: has norm {longest:.9g}, must be at most {radius_name}={radius:g}"
        )
    return array
