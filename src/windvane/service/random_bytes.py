"""Random bytes of the system, for ids and salts: drawn in advance, because every call releases the GIL."""

from __future__ import annotations

import os
import threading

_AT_ONCE = 4096

_guard = threading.Lock()
_bytes, _place = b"", 0


def draw_bytes(count: int) -> bytes:
    """Return ``count`` random bytes that are returned only once. Any thread may call it.

    Examples
    --------
    >>> len(draw_bytes(16)), draw_bytes(16) == draw_bytes(16)
    (16, False)
    """
    global _bytes, _place
    with _guard:
        if _place + count > len(_bytes):
            _bytes, _place = os.urandom(max(_AT_ONCE, count)), 0
        _place += count
        return _bytes[_place - count : _place]


def draw_id(now: float) -> str:
    """Return a new id of 16 hexadecimal digits: four of the time in sixteenths of a second, and twelve random ones.

    Decisions of about the same time are neighbours in the index of a store. If all digits were random, almost every
    event would change another page of it: a fifth more pages to write, and more of the file to keep in memory.

    Examples
    --------
    >>> len(draw_id(1.7e9)), draw_id(16.0) < draw_id(16.1)
    (16, True)
    """
    return f"{int(16.0 * now) & 0xFFFF:04x}{draw_bytes(6).hex()}"


def _forget() -> None:
    global _bytes, _place
    _bytes, _place = b"", 0


os.register_at_fork(after_in_child=_forget)
