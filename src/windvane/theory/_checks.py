"""What the formulas share: checks of arrays of any shape, in the style of `windvane.arguments`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from windvane.arguments import Array, check_choice

Lanes: TypeAlias = float | Array

KINDS: tuple[str, ...] = ("orthogonal", "general")

# log det(V / lam) >= 0 in exact arithmetic; a factorisation of V = lam I may return a hair less.
_LOG_DET_SLACK = 1e-8


def entries(name: str, value: ArrayLike, allowed: str, accept: Callable[[Array], Any]) -> Array:
    """`value` as a contiguous float array of any shape whose entries are finite and taken by `accept`."""
    try:
        array = np.asarray(value, dtype=np.float64, order="C")
    except (TypeError, ValueError):
        raise ValueError(f"{name}={value!r}: must be a number {allowed}, or an array of such") from None
    bad = ~(np.isfinite(array) & np.asarray(accept(array), dtype=bool))
    if bad.any():
        shown = value if array.ndim == 0 else float(array[bad][0])
        raise ValueError(f"{name}={shown!r}: must be a number {allowed}")
    return array


def proportion(name: str, value: ArrayLike) -> Array:
    return entries(name, value, "in (0, 1]", lambda v: (v > 0) & (v <= 1))


def at_least(name: str, value: ArrayLike, least: int) -> Array:
    return entries(name, value, f"at least {least}", lambda v: v >= least)


def log_det(name: str, value: ArrayLike) -> Array:
    return np.maximum(entries(name, value, "at least 0", lambda v: v >= -_LOG_DET_SLACK), 0.0)


def is_general(kind: str) -> bool:
    """True for general arms, False for orthogonal ones."""
    return check_choice("kind", kind, KINDS) == "general"


def plain(value: Array) -> Lanes:
    """A Python float for a 0-d result."""
    return float(value) if np.ndim(value) == 0 else value
