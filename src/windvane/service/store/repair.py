"""Repair: a new file with every row that can be read, put in the place of the old one.

The old file is never written to. It is moved aside (``.damaged-1``) once the new one is complete and on disk. A process
that ends at any moment leaves the old store in place, or a complete new one that the next start puts there. Indexes are
rebuilt from the log, and so is a stream whose snapshot cannot be read. A stream with an event that is missing or does
not match its checksum loses its snapshot: it is replayed, and set aside at that event.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import sqlite3
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from windvane.service.store.chain import UnreadableEventError, check_event
from windvane.service.store.database import (
    FORMAT,
    MOST_STREAMS,
    READ_ERRORS,
    STREAM_SPAN,
    Snapshot,
    StoreError,
    StreamRow,
    add_suffix,
    connect,
    digest_snapshot,
    is_sound,
    read_event,
    read_meta,
    write_meta,
)
from windvane.service.store.events import UNREADABLE
from windvane.service.store.marks import read_marks, read_store_id
from windvane.service.store.salvage import Row, Salvage, create_file, open_damaged, remove_database

CHUNK = 1000  # rows that are copied by one statement
MOST_COPIES = 5
"""Damaged files that are kept. A store that is damaged this often is on a failing disk: another copy would fill it."""
ID_BYTES = 16  # of the random id of a store

log = logging.getLogger("windvane.service")


def completed_path(path: Path) -> Path:
    """Return the name of a new store that is complete, and not yet in its place."""
    return add_suffix(path, ".repaired")


def building_path(path: Path) -> Path:
    """Return the name of a new store that is not complete."""
    return add_suffix(path, ".repairing")


def is_repairing(path: Path) -> bool:
    """Whether a repair of the store at ``path`` is under way: what is written to the store now may be lost.

    The files are looked for in the order in which a repair renames them, so that none is missed.
    """
    return building_path(path).exists() or completed_path(path).exists()


def rebuild(path: Path) -> Path:
    """Replace the store at ``path`` by a new one with all rows that can be read. Returns where the old one is."""
    building = building_path(path)
    remove_database(building)
    try:
        with open_damaged(path) as source:
            _refuse_more_copies(path)
            create_file(building, lambda target: _Copy(path, source, target).copy())
        os.rename(building, completed_path(path))
    except Exception:
        remove_database(building)  # it takes room, and keeps tokens from being changed
        raise
    _flush_folder(path)
    aside = finish_swap(path)
    assert aside is not None  # it was completed above
    return aside


def _refuse_more_copies(path: Path) -> None:
    start = f"{path.name}.damaged-"
    copies = [name for name in os.listdir(path.parent) if name.startswith(start) and name[len(start) :].isdigit()]
    if len(copies) >= MOST_COPIES:
        raise StoreError(
            path,
            "damaged",
            f"is damaged, and was repaired {len(copies)} times before; check the disk, and remove the damaged copies "
            f"({start}N) to have it repaired again",
        )


def finish_swap(path: Path) -> Path | None:
    """Put a completed new store in its place, and return where the old one is now; None if there is none to place."""
    completed = completed_path(path)
    if not completed.exists():
        return None
    _remove_side_files(completed)
    aside = _free_name(path)
    for suffix in ("-wal", "-shm", ""):  # the log first: it must never stand beside the new store
        old = add_suffix(path, suffix)
        if old.exists():
            os.rename(old, add_suffix(aside, suffix))
    _flush_folder(path)
    os.rename(completed, path)
    _flush_folder(path)
    return aside


def _remove_side_files(completed: Path) -> None:
    connection = connect(completed)  # closing it removes the files that SQLite keeps beside it
    try:
        read_meta(connection)
    finally:
        connection.close()


def _free_name(path: Path) -> Path:
    number = 1
    while True:
        name = path.with_name(f"{path.name}.damaged-{number}")
        taken = name.exists()
        for part in ("-wal", "-shm"):  # moved by a swap that broke off: they belong to the file that is still here
            there = add_suffix(path, part).exists()
            taken = taken or (there and add_suffix(name, part).exists())
        if not taken:
            return name
        number += 1


def _flush_folder(path: Path) -> None:
    descriptor = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class _Copy:
    """Copies the rows of a store from ``source`` to ``target``, which has empty tables."""

    def __init__(self, path: Path, source: sqlite3.Connection, target: sqlite3.Connection) -> None:
        self._path, self._connection, self._target = path, source, target
        self._source = Salvage(source)
        self._marks: dict[int, int] = {}
        self._indexed: dict[int, int] = {}  # the last event by stream that an index or a snapshot knows of
        self._has_indexes = False

    def copy(self) -> None:
        store_id = self._read_meta().get("id") or read_store_id(self._path) or secrets.token_hex(ID_BYTES)
        write_meta(self._target, "format", str(FORMAT))
        write_meta(self._target, "id", store_id)
        self._marks = read_marks(self._path, store_id)
        self._read_indexed_numbers()
        for row in self._read_streams():
            self._copy_stream(row)
        with self._begin_reading():  # tokens come last: they may be changed beside a server, which reads them here
            has_tokens = self._copy_tokens()
            is_open = self._read_meta().get("guarded") == "no" and not has_tokens
        write_meta(self._target, "guarded", "no" if is_open else "yes")

    @contextlib.contextmanager
    def _begin_reading(self) -> Iterator[None]:
        """Hold a read transaction on the source, where it allows one."""
        with contextlib.suppress(*READ_ERRORS):
            self._connection.execute("BEGIN")
        try:
            yield
        finally:
            with contextlib.suppress(*READ_ERRORS):
                if self._connection.in_transaction:
                    self._connection.execute("COMMIT")

    # --- settings and tokens ---------------------------------------------------------------------------------------

    def _read_meta(self) -> dict[str, str]:
        try:
            return read_meta(self._connection)
        except READ_ERRORS:
            return {}

    def _copy_tokens(self) -> bool:
        """Return whether there are tokens, or may have been."""
        self._source.has_errors = False
        rows = [row[1:] for row in self._source.read_small("tokens")]
        self._target.executemany("INSERT OR IGNORE INTO tokens VALUES (?, ?, ?, ?, ?)", rows)
        if self._source.has_errors:
            log.error("%s: some access tokens cannot be read", self._path)
        return bool(rows) or self._source.has_errors

    # --- streams ---------------------------------------------------------------------------------------------------

    def _read_indexed_numbers(self) -> None:
        """Find the last event of every stream without reading the events."""
        self._source.has_errors = False
        for index, column in (("by_decision", "decision"), ("by_key", "key")):
            query = (
                f"SELECT max(id) FROM events INDEXED BY {index} WHERE {column} IS NOT NULL GROUP BY id / {STREAM_SPAN}"
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
        for row in self._source.read_small("streams"):
            stream = StreamRow(*row[1:])
            if not is_sound(stream):
                candidates = [stream._replace(id=number, name=name) for number, name in names.items()]
                stream = next(filter(is_sound, candidates), stream)
            # A row that is not known from elsewhere is no row at all, but bytes read as one.
            is_known = _is_id(stream.id) and (stream.id in known or not known)
            if is_sound(stream) or (is_known and stream.id not in rows):
                rows[stream.id] = stream
        sound = {row.name for row in rows.values() if is_sound(row)}
        used = self._marks or self._indexed  # an index may be damaged, too: it is asked where there are no marks
        lost = {*used, *(number for number, name in names.items() if name not in sound)} - set(rows)
        yield from rows.values()
        for number in sorted(filter(_is_id, lost)):
            yield StreamRow(number, names.get(number, f"unreadable-{number}"), 0.0, "")

    def _copy_stream(self, row: StreamRow) -> None:
        insert = "INSERT OR IGNORE INTO streams VALUES (?, ?, ?, ?, ?)"
        if not isinstance(row.name, str):
            row = row._replace(name=f"unreadable-{row.id}")
        if self._target.execute(insert, row).rowcount == 0:  # a damaged name that another stream has, or none at all
            row = StreamRow(row.id, f"unreadable-{row.id}", 0.0, "")
            self._target.execute(insert, row)
        snapshot = self._read_snapshot(row.id)
        problem = self._copy_events(row, 0 if snapshot is None else snapshot[1])
        if problem:
            log.error("stream %r: %s", row.name, problem)
        elif snapshot is not None and is_sound(row):
            self._target.execute("INSERT INTO snapshots VALUES (?, ?, ?, ?, ?, ?)", snapshot)

    # --- events and snapshots ----------------------------------------------------------------------------------------

    def _copy_events(self, stream: StreamRow, snapshot: int) -> str | None:
        """Copy the events of a stream; return what is wrong with the first that is missing or was changed.

        ``snapshot``: the number of the event after which its snapshot was made.
        """
        self._source.has_errors = False
        low = stream.id * STREAM_SPAN
        known = max(self._marks.get(stream.id, 0), self._indexed.get(stream.id, 0), snapshot)
        source = self._source.read("events", low + 1, low + STREAM_SPAN, low + known if known else 0)
        rows: Iterator[Row] = (row[1:] for row in source)
        last, chain, problem = 0, stream.digest, None
        while chunk := list(islice(rows, CHUNK)):
            self._insert_events(chunk)
            for row in () if problem else chunk:
                event = read_event(row)
                try:
                    if event.number != last + 1:
                        raise UnreadableEventError(last + 1, "cannot be read")
                    check_event(chain, event)
                except UnreadableEventError as error:
                    problem = str(error)
                    break
                last, chain = event.number, event.chain
        if problem is None and (snapshot > last or self._is_cut_off(stream.id, last)):
            problem = f"event {last + 1}: cannot be read"
        if problem is not None:  # whatever was copied, a replay stops: at the event, at a gap, or here
            self._target.execute(_INSERT_EVENT, _placeholder(low + max(known, last + 1)))
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

    def _insert_events(self, rows: list[Row]) -> None:
        if self._target.executemany(_INSERT_EVENT, rows).rowcount < len(rows):
            for row in rows:  # one has no value where there must be one: its place is kept
                if self._target.execute(_INSERT_EVENT, row).rowcount == 0:
                    self._target.execute(_INSERT_EVENT, _placeholder(row[0]))

    def _read_snapshot(self, stream: int) -> Row | None:
        """Return the row of a snapshot, None if it cannot be read or was changed."""
        row = self._source.read_one("snapshots", stream)
        if row is None:
            return None
        _, _, number, chain, agent, extra, digest = row
        try:
            is_whole = digest == digest_snapshot(stream, Snapshot(number, agent, extra, chain))
        except (TypeError, ValueError, AttributeError):
            is_whole = False
        return row[1:] if is_whole else None


_INSERT_EVENT = "INSERT OR IGNORE INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


def _is_id(stream: int) -> bool:
    return 0 < stream < MOST_STREAMS


def _placeholder(rowid: int) -> Row:
    """Return a row that matches no checksum, so that the stream is set aside at this event."""
    return rowid, 0.0, UNREADABLE, None, None, b"", None, None, None, b""
