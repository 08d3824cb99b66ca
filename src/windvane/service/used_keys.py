"""Which Idempotency-Keys were used: a Bloom filter, so that the event loop need not read the store for each new key.

It may take a new key for a used one, and then the store is asked; it never takes a used key for a new one. Until all
stored keys are read, which a thread does, it takes every key for a used one.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from windvane.service.store import STORE_ERRORS, KeyStore

LEAST_KEYS = 1 << 20
"""Keys for which there is room at least: 2 MiB of memory."""
BITS_PER_KEY = 16
"""Four of them are set for a key. Once there is no room left, 0.24 % of the new keys are taken for used ones."""

Key = tuple[int, str]
"""A stream and a key."""

log = logging.getLogger("windvane.service")


class StoredKeys(NamedTuple):
    """A filter of ``total`` keys."""

    bits: bytearray
    total: int


class UsedKeys:
    """The keys that streams have used, those of the store and those that are added. Any thread may use it.

    Examples
    --------
    >>> keys = UsedKeys()
    >>> keys.add(1, "first")
    >>> keys.may_have(1, "second")
    True
    >>> keys.adopt(keys.collect(1, [[(1, "stored")]]))
    >>> [keys.may_have(1, key) for key in ("first", "stored", "second")]
    [True, True, False]
    """

    def __init__(self) -> None:
        self._bits: bytearray | None = None  # None until the stored keys are read
        self._mask = 0
        self._room = LEAST_KEYS
        self._early: list[int] = []  # hashes of what was added before
        self._guard = threading.Lock()  # held while bits are set: streams are used by several threads

    @property
    def is_full(self) -> bool:
        """Whether too many new keys are taken for used ones: a larger filter is needed."""
        return self._room <= 0

    def add(self, stream: int, key: str) -> None:
        """Add a key that is used now."""
        value = hash((stream, key))
        with self._guard:
            self._room -= 1
            if self._bits is None:
                self._early.append(value)
            else:
                self._set(self._bits, value)

    def may_have(self, stream: int, key: str) -> bool:
        """Return whether a stream may have used a key; if not, it has not."""
        bits = self._bits
        if bits is None:
            return True
        first, *rest = _find_places(hash((stream, key)), self._mask)
        if not bits[first >> 3] >> (first & 7) & 1:  # the usual case
            return False
        return all(bits[place >> 3] >> (place & 7) & 1 for place in rest)

    @staticmethod
    def collect(count: int, keys: Iterable[Iterable[Key]]) -> StoredKeys:
        """Return what :meth:`adopt` needs of about ``count`` stored keys. Any thread may do it."""
        room = 1 << max(2 * count, LEAST_KEYS).bit_length() - 1
        bits = np.zeros(room * BITS_PER_KEY // 8, dtype=np.uint8)
        for some in keys:
            values = np.fromiter(map(hash, some), dtype=np.int64)
            for place in _find_places(values, 8 * len(bits) - 1):
                np.bitwise_or.at(bits, place >> 3, np.left_shift(1, place & 7).astype(np.uint8))
        return StoredKeys(bytearray(bits), count)

    def adopt(self, stored: StoredKeys) -> None:
        """Add the stored keys, which were :meth:`collect`-ed after this object was made."""
        with self._guard:
            self._mask = 8 * len(stored.bits) - 1
            self._room = 8 * len(stored.bits) // BITS_PER_KEY - stored.total - len(self._early)
            for value in self._early:
                self._set(stored.bits, value)
            self._early.clear()
            self._bits = stored.bits

    def _set(self, bits: bytearray, value: int) -> None:
        for place in _find_places(value, self._mask):
            bits[place >> 3] |= 1 << (place & 7)


def _find_places(value: Any, mask: int) -> tuple[Any, ...]:
    """Return the places of the bits of a hash, or of an array of them."""
    step = value >> 32 | 1
    return value & mask, value + step & mask, value + 2 * step & mask, value + 3 * step & mask


async def read_stored_keys(keys: UsedKeys, store: KeyStore, is_closing: Callable[[], bool]) -> None:
    """Read the keys of ``store`` into ``keys``, in a thread. If they cannot be read, every key is looked up."""

    def read() -> Iterator[list[Key]]:
        for some in store.read_keys():
            if is_closing():
                raise InterruptedError
            yield some

    try:
        stored = await asyncio.to_thread(lambda: keys.collect(store.count_keys(), read()))
    except InterruptedError:
        return
    except STORE_ERRORS as error:
        log.warning("the keys cannot be read (%s); each one is looked up", error)
        return
    keys.adopt(stored)
