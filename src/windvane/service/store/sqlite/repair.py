"""Repair a store: copy every readable row to a new file, which replaces the old one.

The old file is never written to. It is moved aside (``.damaged-1``) once the new one is complete and on disk. A process
that ends at any moment leaves the old store in place, or a complete new one that the next start moves there. Indexes
are rebuilt from the log, and so is a stream whose snapshot cannot be read. A stream with an event that is missing or
does not match its checksum loses its snapshot: it is replayed, and set aside at that event.
"""

from __future__ import annotations

import logging
import os
import secrets
import sqlite3
from bisect import bisect_left
from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from windvane.service.store.events import STREAM_SPAN, UNREADABLE, Event, UnreadableEventError, check_event
from windvane.service.store.records import READ_ERRORS, DamageError, StoreError, StreamRow, is_sealed, try_read
from windvane.service.store.sqlite.database import (
    FORMAT,
    add_suffix,
    create_private_file,
    create_tables,
    flush_folder,
    insert_row,
    read_meta,
    remove_database,
    write_row,
)
from windvane.service.store.sqlite.marks import ID_BYTES, read_marks, read_store_id
from windvane.service.store.sqlite.opening import open_damaged

BUILDING, COMPLETED = ".repairing", ".repaired"  # endings of the name of a new store, until it is in its place
MOST_COPIES = 5
"""Damaged files that are kept. A store that is damaged this often is on a failing disk: another copy would fill it."""

TRIED_ONE_BY_ONE = 1 << 12
"""Row ids after a damaged row that are tried one by one: those of some 40 pages of small rows. Beyond them the next
readable row is searched by doubling and halving the distance. Every id that is tried takes some 10 microseconds."""

log = logging.getLogger("windvane.service")

Row = tuple[Any, ...]


def is_repairing(path: Path) -> bool:
    """Whether the store at ``path`` is being repaired: changes made now may be lost.

    The files are checked in the order in which a repair renames them, so that none is missed.
    """
    return add_suffix(path, BUILDING).exists() or add_suffix(path, COMPLETED).exists()


def rebuild(path: Path) -> None:
    """Replace the store at ``path`` by a new one with all rows that can be read."""
    if all(add_suffix(path, f".damaged-{n}").exists() for n in range(1, MOST_COPIES + 1)):
        problem = f"is damaged, and was repaired {MOST_COPIES} times before; check the disk, and remove damaged copies"
        raise StoreError(path, "damaged", f"{problem} ({path.name}.damaged-N) to have it repaired again")
    building = add_suffix(path, BUILDING)
    remove_database(building)
    try:
        with open_damaged(path) as source:
            create_private_file(building)
            create_tables(building, lambda target: StoreCopy(path, source, target).copy())
        os.rename(building, add_suffix(path, COMPLETED))
    except Exception:
        remove_database(building)  # it takes room, and keeps tokens from being changed
        raise
    flush_folder(path.parent)
    finish_swap(path)


def finish_swap(path: Path) -> None:
    """Put a completed new store, if there is one, in its place."""
    completed = add_suffix(path, COMPLETED)
    if not completed.exists():
        return
    # A swap that was interrupted gets the same name again.
    aside = next(name for n in count(1) if not (name := add_suffix(path, f".damaged-{n}")).exists())
    for suffix in ("-wal", "-shm", ""):  # the log first: it must never stand beside the new store
        old = add_suffix(path, suffix)
        if old.exists():
            os.rename(old, add_suffix(aside, suffix))
    flush_folder(path.parent)
    os.rename(completed, path)
    flush_folder(path.parent)
    log.warning("%s: was repaired; the damaged file is kept as %s", path, aside)


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


class StoreCopy:
    """Copies the rows of the store at ``path`` from ``source`` to ``target``, which has empty tables."""

    def __init__(self, path: Path, source: sqlite3.Connection, target: sqlite3.Connection) -> None:
        self._path, self._source, self._target = path, DamagedTables(source), target
        self._insert = partial(insert_row, target)  # returns False if the row violates a constraint
        self._marks: dict[int, int] = {}
        self._indexed: dict[int, int] = {}  # the last event by stream that an index knows of
        self._has_indexes = False

    def copy(self) -> None:
        """Copy everything that can be read."""
        store_id = self._source.read_meta().get("id") or read_store_id(self._path) or secrets.token_hex(ID_BYTES)
        write_row(self._target, "meta", "format", str(FORMAT))
        write_row(self._target, "meta", "id", store_id)
        self._marks = read_marks(self._path, store_id)
        self._read_indexed_numbers()
        for row in self._read_streams():
            self._copy_stream(row)
        # Tokens may be changed beside a server. They come last, and whatever is in doubt makes tokens necessary.
        is_open = self._source.read_meta().get("guarded") == "no"
        has_tokens = self._copy_tokens()
        write_row(self._target, "meta", "guarded", "no" if is_open and not has_tokens else "yes")

    def _copy_tokens(self) -> bool:
        """Return whether there are tokens, or may have been."""
        self._source.has_errors = False
        rows = list(self._source.read("tokens"))
        for row in rows:
            self._insert("tokens", row)
        if self._source.has_errors:
            log.error("%s: some access tokens cannot be read", self._path)
        return bool(rows) or self._source.has_errors

    # --- streams ---------------------------------------------------------------------------------------------------

    def _read_indexed_numbers(self) -> None:
        """Find the last event of every stream without reading the events."""
        self._source.has_errors = False
        for column in ("decision", "key"):
            query = (
                f"SELECT max(id) FROM events INDEXED BY events_by_{column} WHERE {column} IS NOT NULL "
                f"GROUP BY id / {STREAM_SPAN}"
            )
            for (rowid,) in self._source.query(query):
                stream, number = divmod(rowid, STREAM_SPAN)
                self._indexed[stream] = max(self._indexed.get(stream, 0), number)
        self._has_indexes = not self._source.has_errors

    def _read_streams(self) -> Iterator[StreamRow]:
        """Yield all streams. One whose row cannot be read has no configuration, and its name if the index has it."""
        query = "SELECT id, name FROM streams INDEXED BY sqlite_autoindex_streams_1"
        names: dict[int, str] = dict(self._source.query(query))
        known = {*self._marks, *names}
        rows: dict[int, StreamRow] = {}
        for values in self._source.read("streams"):
            row = StreamRow(*values)
            if not row.is_sound:  # the index may have the id and the name as they were
                candidates = [row._replace(id=number, name=name) for number, name in names.items()]
                row = next((candidate for candidate in candidates if candidate.is_sound), row)
            # A row that is not known from elsewhere is no row at all, but bytes read as one.
            is_known = _is_id(row.id) and (row.id in known or not known)
            if row.is_sound or (is_known and row.id not in rows):
                rows[row.id] = row
        sound = {row.name for row in rows.values() if row.is_sound}
        used = self._marks or self._indexed  # an index may also be damaged: it is used only without marks
        lost = {*used, *(number for number, name in names.items() if name not in sound)} - set(rows)
        yield from rows.values()
        for number in sorted(filter(_is_id, lost)):
            yield StreamRow(number, names.get(number, f"unreadable-{number}"), 0.0, "")

    def _copy_stream(self, row: StreamRow) -> None:
        if not isinstance(row.name, str) or not self._insert("streams", row):  # another stream has a damaged name
            row = StreamRow(row.id, f"unreadable-{row.id}", 0.0, "")
            self._insert("streams", row)
        snapshots = self._source.read("snapshots", row.id, row.id + 1)
        snapshot = next((snapshot for snapshot in snapshots if is_sealed("snapshots", snapshot)), None)
        problem = self._copy_events(row, snapshot[1] if snapshot else 0)
        if problem:
            log.error("stream %r: %s", row.name, problem)
        elif snapshot and row.is_sound:
            self._insert("snapshots", snapshot)

    # --- events ----------------------------------------------------------------------------------------------------

    def _copy_events(self, stream: StreamRow, snapshot: int) -> str | None:
        """Copy the events of a stream; return the problem of the first one that is missing or was changed.

        ``snapshot``: the number of the event after which its snapshot was made.
        """
        self._source.has_errors = False
        low = stream.id * STREAM_SPAN
        known = max(self._marks.get(stream.id, 0), self._indexed.get(stream.id, 0), snapshot)
        last, chain, problem = 0, stream.digest, None
        for row in self._source.read("events", low + 1, low + STREAM_SPAN):
            event = Event.from_row(row)
            if not self._insert("events", row):  # it has no value where there must be one: its place is kept
                self._insert("events", _placeholder(row[0]))
            if problem is not None:
                continue
            try:
                if event.number != last + 1:
                    raise UnreadableEventError(last + 1, "cannot be read")
                check_event(chain, event)
            except UnreadableEventError as error:
                problem = str(error)
            else:
                last, chain = event.number, event.chain
        if problem is None and (snapshot > last or self._is_cut_off(stream.id, last)):
            problem = f"event {last + 1}: cannot be read"
        if problem is not None:  # whatever was copied, a replay stops: at the event, at a gap, or here
            self._insert("events", _placeholder(low + max(known, last + 1)))
        return problem

    def _is_cut_off(self, stream: int, last: int) -> bool:
        """Whether there were events after ``last`` on a page that is damaged.

        A page that cannot be read, and a mark or an index that knows of more events, are evidence together. So are a
        mark and an index that both know of more. A mark alone is none: the write-ahead log may have been damaged, or
        the store restored; see Engine. An index alone is none where there is a mark: the index may be damaged. A mark
        that knows of no more events proves nothing: marks are not flushed, and a power failure may set them back.
        """
        is_marked = self._marks.get(stream, 0) > last
        is_indexed = self._indexed.get(stream, 0) > last
        if self._source.has_errors:
            return is_marked or is_indexed or not self._has_indexes
        return is_indexed and (is_marked or stream not in self._marks)


def _is_id(stream: Any) -> bool:
    """Whether all events of the stream have a row id, which is a signed 64-bit number."""
    return isinstance(stream, int) and 0 < stream < (1 << 63) // STREAM_SPAN - 1


def _placeholder(rowid: int) -> Row:
    """Return a row that matches no checksum, so that the stream is set aside at this event."""
    return rowid, 0.0, UNREADABLE, None, None, b"", None, None, None, b""
