"""High-water marks: the number of the last acknowledged event of every stream, in a file beside the store.

A damaged write-ahead log makes SQLite drop the commits after the damage, and what is left looks sound. The mark shows
that more was acknowledged. It is written after every commit and not flushed: it is a lower bound, and any part of it
that cannot be read is ignored.
"""

from __future__ import annotations

import logging
import os
import stat
import struct
import threading
import zlib
from collections.abc import Mapping
from pathlib import Path

_MAGIC = b"windvane marks 1"
_HEADER = struct.Struct(">16s16sI")  # magic, id of the store, CRC-32 of both
_SLOT = struct.Struct(">QI")  # number of the last event, CRC-32 of stream and number
_SLOT_BYTES = 16  # a power of two above the 12 bytes of _SLOT: no slot crosses a sector
_HEADER_BYTES = 64  # a multiple of _SLOT_BYTES above the 36 bytes of _HEADER

log = logging.getLogger("windvane.service")


def marks_path(store: Path) -> Path:
    return store.with_name(store.name + ".mark")


def read_marks(store: Path, store_id: str) -> dict[int, int]:
    """Return the last acknowledged event by stream, 0 for a stream without one. Marks of another store are ignored."""
    try:
        content = _read(marks_path(store))
    except OSError:
        return {}
    if _header_id(content) != store_id:
        return {}
    found = {}
    for stream in range(1, (len(content) - _HEADER_BYTES) // _SLOT_BYTES):
        number, checksum = _SLOT.unpack_from(content, _HEADER_BYTES + stream * _SLOT_BYTES)
        if checksum == _checksum(stream, number):
            found[stream] = number
    return found


def read_store_id(store: Path) -> str | None:
    """Return the id of the store that the marks belong to."""
    try:
        return _header_id(_read(marks_path(store)))
    except OSError:
        return None


class Marks:
    """The file of marks of a store that is open for writing. A mark that cannot be written is logged, not fatal.

    Events and new streams are written by different threads.
    """

    def __init__(self, store: Path, store_id: str) -> None:
        self._path = marks_path(store)
        self._file: int | None = None
        self._is_failing = False
        self._guard = threading.Lock()
        self.highest = max(read_marks(store, store_id), default=0)  # of the streams that have a mark
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
            self._file = os.open(self._path, flags, 0o600)
            if not stat.S_ISREG(os.fstat(self._file).st_mode):
                raise OSError(0, "it is not a plain file")
            if _header_id(os.pread(self._file, _HEADER_BYTES, 0)) != store_id:
                os.ftruncate(self._file, 0)
                os.pwrite(self._file, _header(store_id), 0)
        except OSError as error:
            self._warn(error)
            self.close()

    def write(self, numbers: Mapping[int, int]) -> None:
        """Record the last event of some streams."""
        with self._guard:
            if self._file is not None:
                self._write(self._file, numbers)

    def _write(self, file: int, numbers: Mapping[int, int]) -> None:
        try:
            for stream, number in numbers.items():
                slot = _SLOT.pack(number, _checksum(stream, number)).ljust(_SLOT_BYTES, b"\0")
                os.pwrite(file, slot, _HEADER_BYTES + stream * _SLOT_BYTES)
                self.highest = max(self.highest, stream)
            self._is_failing = False
        except OSError as error:
            if not self._is_failing:
                self._warn(error)
            self._is_failing = True

    def close(self) -> None:
        with self._guard:  # or another file that is opened meanwhile might be written to
            if self._file is not None:
                os.close(self._file)
                self._file = None

    def _warn(self, error: OSError) -> None:
        log.warning("%s: cannot be written (%s); a loss of events may go unnoticed", self._path, error.strerror)


def _read(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(0, "it is not a plain file")
        return file.read()


def _header(store_id: str) -> bytes:
    packed = bytes.fromhex(store_id)
    return _HEADER.pack(_MAGIC, packed, zlib.crc32(_MAGIC + packed)).ljust(_HEADER_BYTES, b"\0")


def _header_id(content: bytes) -> str | None:
    if len(content) < _HEADER_BYTES:
        return None
    magic, packed, checksum = _HEADER.unpack_from(content)
    return packed.hex() if magic == _MAGIC and checksum == zlib.crc32(_MAGIC + packed) else None


def _checksum(stream: int, number: int) -> int:
    return zlib.crc32(struct.pack(">QQ", stream, number))
