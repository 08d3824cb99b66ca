"""Checks of arguments: each error names the argument, the value, and what is allowed, in one line."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


def shown(value: Any) -> str:
    """``value`` for an error message: one line, not too long."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else text[:77] + "..."


def real_array(name: str, value: Any, allowed: str) -> npt.NDArray[np.float64]:
    """``value`` as a float array, possibly the caller's own; text, dates, complex and masked values are refused."""
    try:
        result = np.asarray(value)
        if result.dtype != float:
            if result.dtype.kind not in "biufO":
                raise TypeError
            result = result.astype(float)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{name}={shown(value)}: must be {allowed}") from None
    if isinstance(value, np.ma.MaskedArray):
        raise ValueError(f"{name}={shown(value)}: must be {allowed}, without masked entries")
    return result if result.flags.writeable else result.copy()  # kernels are compiled for writable arrays only


def number(name: str, value: Any, allowed: str, accept: Callable[[float], bool]) -> float:
    """``value`` as a finite float that ``accept`` takes."""
    try:
        if isinstance(value, str | bytes | np.ma.MaskedArray):
            raise TypeError
        result = float(value)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{name}={shown(value)}: must be a number {allowed}") from None
    if not math.isfinite(result) or not accept(result):
        raise ValueError(f"{name}={shown(value)}: must be a number {allowed}")
    return result


def positive(name: str, value: Any) -> float:
    """A number whose square, and its inverse, are far from overflow."""
    return number(name, value, "above 0 (within [1e-100, 1e100])", lambda v: 1e-100 <= v <= 1e100)


def not_negative(name: str, value: Any) -> float:
    return number(name, value, "at least 0", lambda v: v >= 0)


def whole(name: str, value: Any, least: int, most: int | None = None) -> int:
    """``value`` as an int within [least, most]; where no most is given, what a float holds."""
    allowed = f"at least {least}" + ("" if most is None else f" and at most {most}")
    most = 10**300 if most is None else most
    wrong = isinstance(value, bool) or not isinstance(value, int | np.integer)
    if wrong or not least <= value <= most:
        raise ValueError(f"{name}={shown(value)}: must be a whole number, {allowed}")
    return int(value)


def one_of(name: str, value: Any, allowed: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"{name}={shown(value)}: must be one of {', '.join(allowed)}")
    return value


def per_lane(name: str, value: Any, lanes: int, allowed: str, accept: Callable[[Array], Any]) -> Array:
    """A number, or one number per lane, as a fresh array[lanes] whose entries ``accept`` takes."""
    given = real_array(name, value, f"a number {allowed}, or one per lane")
    if given.shape not in ((), (lanes,)):
        raise ValueError(f"{name} has shape {given.shape}: must be a single number or have shape ({lanes},)")
    result = np.broadcast_to(given, (lanes,)).copy()
    bad = ~(np.isfinite(result) & np.asarray(accept(result), dtype=bool))
    if bad.any():
        lane = int(np.argmax(bad))
        where = "" if given.shape == () else f" in lane {lane}"
        raise ValueError(f"{name}={float(result[lane])!r}{where}: must be a number {allowed}")
    return result


def masked(name: str, value: Any, chosen: npt.NDArray[np.bool_], filler: float) -> Any:
    """``value`` with ``filler`` in the lanes that are not chosen, where it is one per lane; else as it is."""
    given = real_array(name, value, "a number, or one per lane")
    return np.where(chosen, given, filler) if given.shape in ((), chosen.shape) else given


def discount_factor(gamma: Any, lanes: int) -> Array:
    return per_lane("gamma", gamma, lanes, "in (0, 1]", lambda g: (g > 0) & (g <= 1))


def lane_mask(mask: Any, lanes: int) -> npt.NDArray[np.bool_]:
    """A boolean array[lanes]; None means every lane."""
    if mask is None:
        return np.ones(lanes, dtype=bool)
    try:
        result = np.asarray(mask)
    except ValueError:
        raise ValueError(f"mask={shown(mask)}: must be boolean, shape ({lanes},)") from None
    if result.dtype != bool or result.shape != (lanes,):
        raise ValueError(f"mask has shape {result.shape} and type {result.dtype}: must be boolean, shape ({lanes},)")
    return result.copy()


def _fits(shape: tuple[int, ...], wanted: tuple[int | None, ...]) -> bool:
    return len(shape) == len(wanted) and all(w is None or s == w for s, w in zip(shape, wanted, strict=True))


def floats(name: str, value: Any, shape: tuple[int | None, ...]) -> Array:
    """``value`` as a C-contiguous float array of ``shape`` (None: any length), possibly the caller's own."""
    result = real_array(name, value, "an array of real numbers")
    if result.shape != shape and not _fits(result.shape, shape):
        wanted = ", ".join("any" if want is None else str(want) for want in shape)
        raise ValueError(f"{name} has shape {result.shape}: must have shape ({wanted})")
    return np.ascontiguousarray(result)


def lane_identities(lanes: int | Sequence[int]) -> npt.NDArray[np.int64]:
    """``lanes`` as ids: a count n stands for 0..n-1; a sequence of ids is taken as it is (repeats allowed)."""
    if isinstance(lanes, int | np.integer) and not isinstance(lanes, bool):
        return np.arange(whole("lanes", lanes, 1), dtype=np.int64)
    try:
        ids = np.array(lanes)
    except ValueError:  # ragged
        ids = np.empty(0)
    if ids.ndim != 1 or len(ids) == 0 or ids.dtype.kind not in "iu" or ids.min() < 0 or ids.max() >= 2**32:
        raise ValueError(f"lanes={shown(lanes)}: must be a count, or a sequence of ids in [0, 2**32)")
    return ids.astype(np.int64)
