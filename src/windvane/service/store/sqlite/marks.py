"""High-water marks: the number of the last acknowledged event of every stream, in a file beside the store.

A damaged write-ahead log makes SQLite drop the commits after the damage, and the rest looks sound. The mark shows that
more events were acknowledged. It is written after every commit but not flushed: it is a lower bound, and any part of it
that cannot be read is ignored.

The file has slots of 16 bytes. The first holds the id of the store; slot ``n`` belongs to stream ``n``.
"""

from __future__ import annotations

import contextlib
import logging
import os
import struct
import threading
import zlib
from collections.abc import Mapping
from pathlib import Path

_SLOT = struct.Struct(">QI4x")  # number of the last event, CRC-32 of the store's id, the stream and the number
ID_BYTES = _SLOT.size  # of the random id of a store: that of one slot, a power of two, so that no slot crosses a sector

log = logging.getLogger("windvane.service")


def marks_path(store: Path) -> Path:
    """Return the name of the file with the marks of the store at ``store``."""
    return store.with_name(store.name + ".mark")


def read_marks(store: Path, store_id: str) -> dict[int, int]:
    """Return the last acknowledged event by stream, 0 for a stream without one. Marks of another store are ignored."""
    content = _read(store)
    slots = enumerate(_SLOT.iter_unpack(content[: len(content) // ID_BYTES * ID_BYTES]))
    return {stream: number for stream, (number, crc) in slots if stream and crc == _checksum(store_id, stream, number)}


def read_store_id(store: Path) -> str | None:
    """Return the id of the store that the marks belong to. If it is damaged, no mark matches it."""
    content = _read(store)
    return content[:ID_BYTES].hex() if len(content) >= ID_BYTES else None


def has_streams(store: Path) -> bool:
    """Whether there are marks of streams, whichever store they belong to."""
    return len(_read(store)) > ID_BYTES


class Marks:
    """The marks of a store that is open for writing. A mark that cannot be written is logged and raises no error.

    Events and new streams are written by different threads.
    """

    def __init__(self, store: Path, store_id: str) -> None:
        self._path, self._store_id = marks_path(store), store_id
        self._file: int | None = None
        self._is_failing = False
        self._guard = threading.Lock()
        self.highest = max(read_marks(store, store_id), default=0)  # of the streams that have a mark
        try:
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            os.pwrite(self._file, bytes.fromhex(store_id), 0)
        except OSError as error:
            self._warn(error)

    def write(self, numbers: Mapping[int, int]) -> None:
        """Record the last event of some streams."""
        with self._guard:
            if self._file is None:
                return
            try:
                for stream, number in numbers.items():
                    slot = _SLOT.pack(number, _checksum(self._store_id, stream, number))
                    os.pwrite(self._file, slot, stream * ID_BYTES)
                    self.highest = max(self.highest, stream)
                self._is_failing = False
            except OSError as error:
                self._warn(error)

    def remove(self, stream: int) -> None:
        """Remove the mark of a stream that is about to be removed; this is on disk when it returns."""
        with self._guard:
            if self._file is None:
                return
            try:
                os.pwrite(self._file, bytes(ID_BYTES), stream * ID_BYTES)
                os.fsync(self._file)
            except OSError as error:
                self._warn(error)

    def close(self) -> None:
        """Close the file, but not during a write: its descriptor might then belong to another file."""
        with self._guard:
            if self._file is not None:
                os.close(self._file)
                self._file = None

    def _warn(self, error: OSError) -> None:
        if not self._is_failing:
            log.warning("%s: cannot be written (%s); a loss of events may go unnoticed", self._path, error.strerror)
        self._is_failing = True


def _read(store: Path) -> bytes:
    with contextlib.suppress(OSError):
        if marks_path(store).is_file():
            return marks_path(store).read_bytes()
    return b""


def _checksum(store_id: str, stream: int, number: int) -> int:
    return zlib.crc32(bytes.fromhex(store_id) + struct.pack(">QQ", stream, number))
