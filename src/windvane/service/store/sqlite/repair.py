"""Repair or migrate a store: copy every readable row to a new file, which replaces the old one.

The old file is never written to. It is moved aside once the new one is complete and on disk: a damaged one to
``.damaged-1``, one of an older format to ``.format-3``. A process that ends at any moment leaves the old store in
place, or a complete new one that the next start moves there. Indexes are rebuilt from the log, and so is a stream whose
snapshot cannot be read. A stream with an event that is missing or does not match its checksum loses its snapshot: it is
replayed, and set aside at that event. Events before a baseline are not replayed; a baseline that can be read is kept.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import sqlite3
from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from windvane.service.store.events import STREAM_SPAN, UNREADABLE, Event, UnreadableEventError, check_event
from windvane.service.store.migrations import FORMAT, Row
from windvane.service.store.records import Baseline, StoreError, StreamRow, is_sealed
from windvane.service.store.sqlite.damaged_tables import DamagedTables
from windvane.service.store.sqlite.database import (
    add_suffix,
    connect,
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

BUILDING, COMPLETED = ".repairing", ".repaired"
"""Endings of the name of a new store, until it is in its place. Commands of older versions know them, too."""
MIGRATED_FROM = "migrated_from"  # the setting of a new store that names the format of the old one
REMOVING = "removing"  # the setting that lists the ids of streams whose events are being deleted
MOST_COPIES = 5
"""Damaged files that are kept. A store that is damaged this often is on a failing disk: another copy would fill it."""

log = logging.getLogger("windvane.service")


def is_repairing(path: Path) -> bool:
    """Whether the store at ``path`` is being repaired: changes made now may be lost.

    The files are checked in the order in which a repair renames them, so that none is missed.
    """
    return add_suffix(path, BUILDING).exists() or add_suffix(path, COMPLETED).exists()


def rebuild(path: Path) -> None:
    """Replace the store at ``path`` by a new one of the current format with all rows that can be read."""
    building = add_suffix(path, BUILDING)
    try:
        copy_rows(path, building)
        os.rename(building, add_suffix(path, COMPLETED))
    except Exception:
        remove_database(building)  # it takes room, and keeps tokens from being changed
        raise
    flush_folder(path.parent)
    finish_swap(path)


def copy_rows(path: Path, target: Path) -> None:
    """Write a new store of the current format with all rows of the one at ``path`` that can be read."""
    remove_database(target)
    with open_damaged(path) as (source, format_):
        if format_ == FORMAT:
            _refuse_if_damaged_often(path)
        create_private_file(target)
        create_tables(target, lambda connection: StoreCopy(path, source, connection, format_).copy())


def _refuse_if_damaged_often(path: Path) -> None:
    if all(add_suffix(path, f".damaged-{n}").exists() for n in range(1, MOST_COPIES + 1)):
        problem = f"is damaged, and was repaired {MOST_COPIES} times before; check the disk, and remove damaged copies"
        raise StoreError(path, "damaged", f"{problem} ({path.name}.damaged-N) to have it repaired again")


def finish_swap(path: Path) -> None:
    """Put a completed new store, if there is one, in its place."""
    completed = add_suffix(path, COMPLETED)
    if not completed.exists():
        return
    with contextlib.closing(connect(completed, "ro&immutable=1")) as connection:
        old_format = read_meta(connection).get(MIGRATED_FROM)
    # A swap that was interrupted gets the same name again.
    aside = next(name for name in _list_names(path, old_format) if not name.exists())
    for suffix in ("-wal", "-shm", ""):  # the log first: it must never stand beside the new store
        old = add_suffix(path, suffix)
        if old.exists():
            os.rename(old, add_suffix(aside, suffix))
    flush_folder(path.parent)
    os.rename(completed, path)
    flush_folder(path.parent)
    if old_format is None:
        log.warning("%s: was repaired; the damaged file is kept as %s", path, aside)
    else:
        text = "%s: was migrated from format %s to %d; the old file is kept as %s, and nothing is erased in it"
        log.warning(text, path, old_format, FORMAT, aside)


def _list_names(path: Path, old_format: str | None) -> Iterator[Path]:
    """Yield the names that an old store may get."""
    if old_format is None:
        yield from (add_suffix(path, f".damaged-{n}") for n in count(1))
    else:
        yield add_suffix(path, f".format-{old_format}")
        yield from (add_suffix(path, f".format-{old_format}-{n}") for n in count(2))


class StoreCopy:
    """Copies the rows of the store at ``path`` from ``source`` to ``target``, which has empty tables."""

    def __init__(self, path: Path, source: sqlite3.Connection, target: sqlite3.Connection, format_: int) -> None:
        self._path, self._source, self._target = path, DamagedTables(source, format_), target
        self._insert = partial(insert_row, target)  # returns False if the row violates a constraint
        self._settings: dict[str, str] = {}
        self._marks: dict[int, int] = {}
        self._indexed: dict[int, int] = {}  # the last event by stream that an index knows of
        self._has_indexes = False

    def copy(self) -> None:
        """Copy everything that can be read."""
        self._settings = self._source.read_meta()
        store_id = self._settings.get("id") or read_store_id(self._path) or secrets.token_hex(ID_BYTES)
        write_row(self._target, "meta", "format", str(FORMAT))
        write_row(self._target, "meta", "id", store_id)
        if self._source.format < FORMAT:
            write_row(self._target, "meta", MIGRATED_FROM, str(self._source.format))
        self._marks = read_marks(self._path, store_id)
        self._read_indexed_numbers()
        last = int(self._settings.get("last_stream", 0))
        for row in self._read_streams():
            self._copy_stream(row)
            last = max(last, row.id)
        write_row(self._target, "meta", "last_stream", str(max([last, *self._marks])))
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
            is_known = is_id(row.id) and (row.id in known or not known)
            if row.is_sound or (is_known and row.id not in rows):
                rows[row.id] = row
        sound = {row.name for row in rows.values() if row.is_sound}
        used = self._marks or self._indexed  # an index may also be damaged: it is used only without marks
        lost = {*used, *(number for number, name in names.items() if name not in sound)} - set(rows)
        lost -= set(map(int, self._settings.get(REMOVING, "").split()))
        yield from rows.values()
        for number in sorted(filter(is_id, lost)):
            yield StreamRow(number, names.get(number, f"unreadable-{number}"), 0.0, "")

    def _copy_stream(self, row: StreamRow) -> None:
        if not isinstance(row.name, str) or not self._insert("streams", row):  # another stream has a damaged name
            row = StreamRow(row.id, f"unreadable-{row.id}", 0.0, "")
            self._insert("streams", row)
        baseline = self._read_sealed("baselines", row.id)
        if baseline is not None:
            self._insert("baselines", baseline)
        snapshot = self._read_sealed("snapshots", row.id)
        numbers = [found[1] for found in (baseline, snapshot) if found is not None]
        problem = self._copy_events(
            row, None if baseline is None else Baseline.from_row(baseline), max(numbers, default=0)
        )
        if problem:
            log.error("stream %r: %s", row.name, problem)
        elif snapshot is not None and row.is_sound:
            self._insert("snapshots", snapshot)

    def _read_sealed(self, table: str, stream: int) -> Row | None:
        """Return the row of a stream, None if it has none or the row cannot be read."""
        return next((row for row in self._source.read(table, stream, stream + 1) if is_sealed(table, row)), None)

    # --- events ----------------------------------------------------------------------------------------------------

    def _copy_events(self, stream: StreamRow, baseline: Baseline | None, snapshot: int) -> str | None:
        """Copy the events of a stream; return the problem of the first one that is missing or was changed.

        ``snapshot``: the number of the event after which its baseline or its snapshot was made.
        """
        self._source.has_errors = False
        low = stream.id * STREAM_SPAN
        known = max(self._marks.get(stream.id, 0), self._indexed.get(stream.id, 0), snapshot)
        last, chain = (0, stream.digest) if baseline is None else (baseline.removed, baseline.removed_chain)
        problem = None
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


def is_id(stream: Any) -> bool:
    """Whether all events of the stream have a row id, which is a signed 64-bit number."""
    return isinstance(stream, int) and 0 < stream < (1 << 63) // STREAM_SPAN - 1


def _placeholder(rowid: int) -> Row:
    """Return a row that matches no checksum, so that the stream is set aside at this event."""
    return rowid, 0.0, UNREADABLE, None, None, b"", None, None, None, b""
