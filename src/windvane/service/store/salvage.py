"""Reading a damaged file: every row that can be read, whatever else cannot."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from windvane.service.store.database import (
    PAGE_BYTES,
    READ_ERRORS,
    DamageError,
    FileKind,
    StoreError,
    add_suffix,
    connect,
    create_private_file,
    create_tables,
    expected_schema,
    identify,
    identify_by_schema,
    read_schema,
    write_meta,
)

PAGE_ROWS = 100  # the most rows of a page: an event takes 40 bytes and more of 4096
MOST_LOST = 1 << 17
"""Row numbers that are tried one by one where nothing tells where the rows end. A damaged page hides at most the rows
below one interior page: some 400 leaves of at most PAGE_ROWS rows each, fewer than this."""
LONGEST_SEARCH = 1 << 20
"""The same where it is known from elsewhere where the rows end: an index that says so may be damaged, and every number
that is tried in vain takes some 10 microseconds."""
SMALL_TABLE = 1 << 12  # the same for tables other than the events, which have few rows

Row = tuple[Any, ...]


class Salvage:
    """Rows of a damaged file. ``has_errors`` is set when rows had to be left out."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.has_errors = False

    def read(self, table: str, low: int, high: int, known: int = 0, most: int = MOST_LOST) -> Iterator[Row]:
        """Yield (rowid, columns) of the rows with ``low`` <= rowid < ``high`` that can be read.

        They come in order as long as there is no error. ``known``: the highest rowid that is known from elsewhere;
        without it, ``most`` rowids are tried after the last one that can be read.
        """
        first = low
        try:
            for row in self._select(table, low, high, "ASC"):
                if not first <= row[0] < high:  # a pointer on the page is damaged: the number is not that of a row
                    raise DamageError("a row is out of order")
                first = row[0] + 1
                yield row
            return
        except READ_ERRORS:
            self.has_errors = True
        last = high
        try:
            for row in self._select(table, first, high, "DESC"):
                if not first <= row[0] < last:
                    raise DamageError("a row is out of order")
                last = row[0]
                yield row
        except READ_ERRORS:
            if last == high:  # the last page cannot be read either
                end = min(known + 1 + PAGE_ROWS, first + LONGEST_SEARCH) if known else first + most
                last = max(first, min(high, end))
        yield from self._bisect(table, first, last)

    def read_small(self, table: str) -> Iterator[Row]:
        """Yield (rowid, columns) of all rows of a table with few rows."""
        return self.read(table, 0, 1 << 62, most=SMALL_TABLE)

    def read_one(self, table: str, rowid: int) -> Row | None:
        try:
            return next(iter(self._select(table, rowid, rowid + 1, "ASC")), None)
        except READ_ERRORS:
            self.has_errors = True
            return None

    def query(self, sql: str) -> list[Row]:
        """Return the rows of any query, or as many as there are before the first that cannot be read."""
        rows: list[Row] = []
        try:
            for row in self._connection.execute(sql):
                rows.append(row)
        except READ_ERRORS:
            self.has_errors = True
        return rows

    def _select(self, table: str, low: int, high: int, order: str) -> sqlite3.Cursor:
        sql = f"SELECT rowid, * FROM {table} NOT INDEXED WHERE rowid >= ? AND rowid < ? ORDER BY rowid {order}"
        return self._connection.execute(sql, (low, high))

    def _bisect(self, table: str, low: int, high: int) -> Iterator[Row]:
        """Yield the readable rows between two that cannot be read."""
        ranges = [(low, high)]
        while ranges:
            low, high = ranges.pop()
            try:
                rows = self._select(table, low, high, "ASC").fetchall()
            except READ_ERRORS:
                if high - low > 1:
                    middle = (low + high) // 2
                    ranges += [(middle, high), (low, middle)]
                continue
            yield from (row for row in rows if low <= row[0] < high)


@contextlib.contextmanager
def open_damaged(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a file that is to be rebuilt, for reading.

    A first page that cannot be read is replaced, in a copy, by that of a new store: all stores have the same tables at
    the same pages.
    """
    copy = add_suffix(path, ".salvage")
    connection = connect(path, "ro")
    patched: sqlite3.Connection | None = None
    try:
        kind = _try_identify(connection)
        if kind in (None, FileKind.DAMAGED):
            kind = _try_identify_by_schema(connection) or kind
        if not (kind is FileKind.CURRENT and _has_schema(connection)):
            _replace_first_page(path, copy)
            patched = connect(copy)
            if _try_identify(patched) is FileKind.CURRENT:
                yield patched
                return
        if kind is not FileKind.CURRENT:
            raise StoreError(path, "damaged", "cannot be used as a store (its first page is damaged)")
        yield connection
    finally:
        for each in (connection, patched):
            if each is not None:
                each.close()
        remove_database(copy)


def _has_schema(connection: sqlite3.Connection) -> bool:
    return read_schema(connection).items() >= expected_schema().items()


def looks_like_store(path: Path) -> bool:
    """Whether the file is a store, apart from its first page."""
    try:
        with open_damaged(path):
            return True
    except (StoreError, OSError, *READ_ERRORS):
        return False


def _try_identify(connection: sqlite3.Connection) -> FileKind | None:
    try:
        return identify(connection)[0]
    except READ_ERRORS:
        return None


def _try_identify_by_schema(connection: sqlite3.Connection) -> FileKind | None:
    try:
        return identify_by_schema(connection)
    except READ_ERRORS:
        return None


def _replace_first_page(path: Path, copy: Path) -> None:
    size = path.stat().st_size
    remove_database(copy)
    for suffix in ("", "-wal"):
        source = add_suffix(path, suffix)
        if source.exists():
            create_private_file(add_suffix(copy, suffix))
            shutil.copyfile(source, add_suffix(copy, suffix))
    template = _read_template(copy)
    page = bytearray(template[:PAGE_BYTES])
    page[92:96] = page[24:28]  # the page count is valid for this change counter
    # SQLite reads no table if a file is too short for all of them: where it was cut off, they are empty pages.
    pages = max(size, len(template)) // PAGE_BYTES
    page[28:32] = pages.to_bytes(4, "big")  # the file's pages, of which none is free
    with open(copy, "r+b") as file:
        file.write(page)
        file.truncate(max(size, pages * PAGE_BYTES))


def _read_template(copy: Path) -> bytes:
    """Return a new store, in WAL mode."""
    template = add_suffix(copy, "-template")
    remove_database(template)
    try:
        create_file(template, lambda connection: write_meta(connection, "format", "0"))
        return template.read_bytes()
    finally:
        remove_database(template)


def create_file(path: Path, fill: Callable[[sqlite3.Connection], None]) -> None:
    """Create a database with the tables of a store, call ``fill`` in the same transaction, and flush it to disk."""
    create_private_file(path)
    connection = connect(path)
    try:
        connection.execute(f"PRAGMA page_size={PAGE_BYTES}")
        connection.execute("PRAGMA journal_mode=OFF")  # the file is complete, or it is not used
        connection.execute("PRAGMA synchronous=OFF")
        connection.execute("BEGIN")
        create_tables(connection)
        fill(connection)
        connection.execute("COMMIT")
        connection.execute("PRAGMA journal_mode=WAL")
    finally:
        connection.close()
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_database(path: Path) -> None:
    """Remove a temporary database and the files that SQLite keeps beside it."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        add_suffix(path, suffix).unlink(missing_ok=True)
