"""Check arguments. Each function returns the value in its canonical form or raises ``ArgumentError``."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from windvane.errors import ArgumentError, Path

Array = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Index = npt.NDArray[np.int64]

SMALLEST, LARGEST = 1e-100, 1e100  # squares of positive settings, and inverses of the squares, stay finite
LARGEST_WHOLE = 10**300  # a larger integer does not fit in a float
LARGEST_LANE = 2**32 - 1  # lane ids fill one 32-bit word of the random number generator's counter
# A norm may exceed its bound by this factor: well above the rounding of a vector normalised in double precision,
# about d * 1e-16, and too little to matter in any guarantee.
NORM_SLACK = 1.0 + 1e-9
_NOT_NUMBERS = (str, bytes, np.ma.MaskedArray)  # float() or NumPy would convert some of these


def check_real_array(name: str | Path, value: Any, expected: str) -> Array:
    """Return ``value`` as a writable float array, possibly the caller's own array.

    Text, dates, complex numbers and masked arrays are rejected. Read-only arrays are copied, because kernels are
    compiled for writable arrays only.
    """
    try:
        array = np.asarray(value)
        if array.dtype != float:
            objects = array.flat if array.dtype.kind == "O" else ()
            if array.dtype.kind not in "biufO" or any(isinstance(entry, _NOT_NUMBERS) for entry in objects):
                raise TypeError
            array = array.astype(float)
    except (TypeError, ValueError, OverflowError):
        raise ArgumentError(name, value, expected) from None
    if isinstance(value, np.ma.MaskedArray):
        raise ArgumentError(name, value, f"{expected}, without masked entries")
    return array if array.flags.writeable else array.copy()


def check_number(
    name: str | Path,
    value: Any,
    expected: str,
    accept: Callable[[float], bool],
    *,
    booleans: bool = True,
    hint: str = "",
) -> float:
    """Return ``value`` as a finite float for which ``accept`` returns True. True is 1.0 if ``booleans``."""
    rejected_types = _NOT_NUMBERS if booleans else (*_NOT_NUMBERS, bool, np.bool_)
    try:
        if isinstance(value, rejected_types) or getattr(value, "ndim", 0) != 0:
            raise TypeError
        number = float(value)
        if not math.isfinite(number) or not accept(number):
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        raise ArgumentError(name, value, f"a number {expected}", hint=hint) from None
    return number


def is_missing(value: Any) -> bool:
    """Return whether ``value`` stands for nothing: None, NaN, or NA and NaT of pandas."""
    if value is None or isinstance(value, float):
        return value is None or math.isnan(value)
    return type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, np.floating) and bool(np.isnan(value)))


def check_between(name: str | Path, value: Any, low: float, high: float) -> float:
    """Return ``value`` as a float in [low, high]."""
    return check_number(name, value, f"in [{low:g}, {high:g}]", lambda v: low <= v <= high)


def check_positive(name: str | Path, value: Any) -> float:
    """Return ``value`` as a float in [1e-100, 1e100], so that its square and the inverse of its square are finite."""
    expected = "above 0 (within [1e-100, 1e100])"
    return check_number(name, value, expected, lambda v: SMALLEST <= v <= LARGEST, booleans=False)


def check_not_negative(name: str | Path, value: Any) -> float:
    """Return ``value`` as a float that is at least 0."""
    return check_number(name, value, "at least 0", lambda v: v >= 0, booleans=False)


def check_whole(name: str | Path, value: Any, least: int, most: int | None = None) -> int:
    """Return ``value`` as an int in [least, most]."""
    expected = f"a whole number, at least {least}" + ("" if most is None else f" and at most {most}")
    is_whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not is_whole or not least <= value <= (LARGEST_WHOLE if most is None else most):
        raise ArgumentError(name, value, expected)
    return int(value)


def check_choice(name: str | Path, value: Any, choices: tuple[str, ...]) -> str:
    """Return ``value`` if it is one of ``choices``."""
    if not isinstance(value, str) or value not in choices:
        raise ArgumentError(name, value, f"one of {', '.join(choices)}")
    return value


def check_per_lane(
    name: str | Path, value: Any, lanes: int, expected: str, accept: Callable[[Array], Any], mask: Mask | None = None
) -> Array:
    """Return a new array[lanes] from one number or one per lane. ``accept`` must return True for every entry.

    Entries outside ``mask`` are not checked and become 0.
    """
    array = check_real_array(name, value, f"a number {expected}, or one per lane")
    is_checked = np.ones(lanes, dtype=bool) if mask is None else mask
    values = np.where(is_checked, broadcast_lanes(name, array, lanes), 0.0)
    bad = is_checked & ~(np.isfinite(values) & np.asarray(accept(values), dtype=bool))
    if bad.any():
        lane = int(np.argmax(bad))
        where = "" if array.shape == () else f"lane {lane}"
        raise ArgumentError(name, float(values[lane]), f"a number {expected}", where=where)
    return values


def broadcast_lanes(name: str | Path, array: Array, lanes: int) -> Array:
    """Return a scalar or an array[lanes] as an array[lanes]."""
    if array.shape not in ((), (lanes,)):
        got = f"an array of shape {array.shape}"
        raise ArgumentError(name, array, f"a single number or have shape ({lanes},)", got=got)
    return np.broadcast_to(array, (lanes,))


def check_scale(name: str | Path, value: Any, lanes: int) -> Array:
    """Return the scale of a bonus or a posterior in each lane."""
    return check_per_lane(name, value, lanes, "in [0, 1e100]", lambda s: (s >= 0) & (s <= LARGEST))


def check_mask(mask: Any, lanes: int) -> Mask:
    """Return a new boolean array[lanes]. None selects every lane."""
    return np.ones(lanes, dtype=bool) if mask is None else check_booleans("mask", mask, (lanes,)).copy()


def check_booleans(name: str | Path, value: Any, shape: tuple[int, ...]) -> Mask:
    """Return ``value`` as a boolean array of ``shape``, possibly the caller's own array."""
    expected = f"boolean, of shape {shape}"
    try:
        array = np.ascontiguousarray(value)
    except ValueError:
        raise ArgumentError(name, value, expected) from None
    if array.dtype != bool or array.shape != shape:
        raise ArgumentError(name, value, expected, got=f"shape {array.shape} and type {array.dtype}")
    return array if array.flags.writeable else array.copy()  # kernels are compiled for writable arrays only


def check_array(name: str | Path, value: Any, shape: tuple[int | None, ...], hint: str = "") -> Array:
    """Return ``value`` as a C-contiguous float array of ``shape``, possibly the caller's own array.

    None in ``shape`` matches any length.
    """
    array = check_real_array(name, value, "an array of real numbers")
    if len(array.shape) != len(shape) or any(n not in (None, m) for n, m in zip(shape, array.shape, strict=True)):
        wanted = ", ".join("any" if length is None else str(length) for length in shape)
        raise ArgumentError(name, value, f"of shape ({wanted})", got=f"shape {array.shape}", hint=hint)
    return np.ascontiguousarray(array)


def check_lanes(lanes: int | Sequence[int]) -> Index:
    """Return lane ids. A count n means the ids 0 to n - 1. A sequence of ids can contain repeats."""
    if isinstance(lanes, int | np.integer) and not isinstance(lanes, bool):
        return np.arange(check_whole("lanes", lanes, 1), dtype=np.int64)
    try:
        ids = np.array(lanes)
    except ValueError:  # ragged
        ids = np.empty(0)
    if ids.ndim != 1 or len(ids) == 0 or ids.dtype.kind not in "iu" or ids.min() < 0 or ids.max() > LARGEST_LANE:
        raise ArgumentError("lanes", lanes, "a count, or a sequence of ids in [0, 2**32)")
    return ids.astype(np.int64)
