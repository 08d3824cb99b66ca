"""Reading a damaged file: every row that can be read, whatever else cannot."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from bisect import bisect_left
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from windvane.service.store.database import (
    FORMAT,
    PAGE_BYTES,
    READ_ERRORS,
    DamageError,
    StoreError,
    add_suffix,
    connect,
    create_private_file,
    create_tables,
    has_expected_schema,
    read_meta,
    remove_database,
)

TRIED_ONE_BY_ONE = 1 << 12
"""Row ids after a damaged row that are tried one by one: those of some 40 pages of small rows. Beyond them the next
readable row is searched by doubling and halving the distance. Every id that is tried takes some 10 microseconds."""
_NO_STORE = "cannot be used as a store (its first page is damaged)"

Row = tuple[Any, ...]


class DamagedTables:
    """The tables of a damaged file. ``has_errors`` is set when rows could not be read."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.has_errors = False

    def read(self, table: str, low: int = 0, high: int = 1 << 62) -> Iterator[Row]:
        """Yield the rows with ``low`` <= row id < ``high`` that can be read, in order."""
        while low < high:
            try:
                for rowid, *row in self._select(table, low, high):
                    if not low <= rowid < high:  # a pointer on the page is damaged: the number is not that of a row
                        raise DamageError("a row is out of order")
                    yield tuple(row)
                    low = rowid + 1
                return
            except READ_ERRORS:
                self.has_errors = True
            # Python reads one row ahead, and so the row before a damaged page is lost: it is read again, alone.
            low = self._find_readable(table, low, high)
            for rowid, *row in self._read_first(table, low, high) or ():
                yield tuple(row)
                low = rowid + 1

    def query(self, sql: str) -> list[Row]:
        """Return the rows of any query, or as many as there are before the first that cannot be read."""
        rows: list[Row] = []
        try:
            for row in self.connection.execute(sql):
                rows.append(row)
        except READ_ERRORS:
            self.has_errors = True
        return rows

    def _select(self, table: str, low: int, high: int, limit: str = "") -> sqlite3.Cursor:
        sql = f"SELECT rowid, * FROM {table} NOT INDEXED WHERE rowid >= ? AND rowid < ? ORDER BY rowid {limit}"
        return self.connection.execute(sql, (low, high))

    def _find_readable(self, table: str, damaged: int, high: int) -> int:
        """Return a row id, ``damaged`` or above, from which on a row can be read; ``high`` if there is none."""

        def is_readable(rowid: int) -> bool:
            return self._read_first(table, rowid, high) is not None

        for rowid in range(damaged, min(damaged + TRIED_ONE_BY_ONE, high)):
            if is_readable(rowid):
                return rowid
        distance = TRIED_ONE_BY_ONE
        while damaged + distance < high and not is_readable(damaged + distance):
            distance *= 2
        between = range(damaged + distance // 2, min(damaged + distance, high))
        return between.start + bisect_left(between, True, key=is_readable)

    def _read_first(self, table: str, low: int, high: int) -> list[Row] | None:
        """Return the first row of a range alone, or no row; None if it cannot be read."""
        try:
            rows = self._select(table, low, high, "LIMIT 1").fetchall()
        except READ_ERRORS:
            return None
        return rows if all(low <= row[0] < high for row in rows) else None


@contextlib.contextmanager
def open_damaged(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a damaged store for reading; raise :class:`StoreError` if the file is none.

    A first page that cannot be read is replaced, in a copy, by that of a new store: all stores have the same tables at
    the same pages.
    """
    with contextlib.closing(connect(path, "ro")) as connection:
        if _try(has_expected_schema, connection):
            yield connection
            return
    if not _may_hold_settings(path):
        raise StoreError(path, "damaged", _NO_STORE)
    copy = add_suffix(path, ".salvage")
    try:
        _copy_with_first_page(path, copy)
        with contextlib.closing(connect(copy)) as connection:
            if (_try(read_meta, connection) or {}).get("format") != str(FORMAT):
                raise StoreError(path, "damaged", _NO_STORE)
            yield connection
    finally:
        remove_database(copy)


def _try(read: Callable[[sqlite3.Connection], Any], connection: sqlite3.Connection) -> Any:
    with contextlib.suppress(*READ_ERRORS):
        return read(connection)


def _may_hold_settings(path: Path) -> bool:
    """Whether it makes sense to copy the file: its settings are on its second page, or may be in its log."""
    with path.open("rb") as file:
        file.seek(PAGE_BYTES)
        return b"guarded" in file.read(PAGE_BYTES) or add_suffix(path, "-wal").exists()


def is_damaged_store(path: Path) -> bool:
    """Whether a file that does not open as a store is one, apart from its first page or its settings."""
    with contextlib.suppress(StoreError, OSError, *READ_ERRORS), open_damaged(path):
        return True
    return False


def _copy_with_first_page(path: Path, copy: Path) -> None:
    """Write the first page of a new store, and all other pages and the log of the store at ``path``, to ``copy``."""
    remove_database(copy)
    create_private_file(copy)
    create_tables(copy)
    size = copy.stat().st_size
    with path.open("rb") as source, copy.open("r+b") as target:
        target.seek(28)
        target.write(bytes(4))  # the number of pages: 0 makes SQLite go by the size of the file
        source.seek(PAGE_BYTES)
        target.seek(PAGE_BYTES)
        shutil.copyfileobj(source, target)
        # SQLite reads no table if a file is too short for all of them: where it was cut off, they are unreadable pages.
        target.truncate()
        target.truncate(max(size, target.tell()))
    if (log := add_suffix(path, "-wal")).exists():
        create_private_file(add_suffix(copy, "-wal"))
        shutil.copyfile(log, add_suffix(copy, "-wal"))
