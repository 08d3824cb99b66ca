"""Read the rows of a file that may be damaged, as many as there are."""

from __future__ import annotations

import sqlite3
from bisect import bisect_left
from collections.abc import Iterator

from windvane.service.store.migrations import SQLITE_TABLES, Row, convert_row
from windvane.service.store.records import READ_ERRORS, DamageError, try_read
from windvane.service.store.sqlite.database import read_meta

TRIED_ONE_BY_ONE = 1 << 12
"""Row ids after a damaged row that are tried one by one: those of some 40 pages of small rows. Beyond them the next
readable row is searched by doubling and halving the distance. Every id that is tried takes some 10 microseconds."""


class DamagedTables:
    """The tables of a file that may be damaged, with rows of the current format. ``has_errors`` is set when rows could
    not be read."""

    def __init__(self, connection: sqlite3.Connection, format_: int) -> None:
        self.connection, self.format = connection, format_
        self.has_errors = False

    def read(self, table: str, low: int = 0, high: int = 1 << 62) -> Iterator[Row]:
        """Yield the rows with ``low`` <= row id < ``high`` that can be read, in order."""
        if f"CREATE TABLE {table} " not in SQLITE_TABLES[self.format]:
            return
        while low < high:
            try:
                for rowid, *row in self._select(table, low, high):
                    if not low <= rowid < high:  # a pointer on the page is damaged: the number is not that of a row
                        raise DamageError("a row is out of order")
                    yield convert_row(table, tuple(row), self.format)
                    low = rowid + 1
                return
            except READ_ERRORS:
                self.has_errors = True
            # Python reads one row ahead, and so the row before a damaged page is lost: it is read again, alone.
            low = self._find_readable(table, low, high)
            for rowid, *row in self._read_first(table, low, high) or ():
                yield convert_row(table, tuple(row), self.format)
                low = rowid + 1

    def read_meta(self) -> dict[str, str]:
        """Return the settings that can be read."""
        return try_read(read_meta, self.connection) or {}

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
