"""The store in an SQLite file in WAL mode: streams, their events, their snapshots and baselines, and access tokens.

Events are appended, and change only when something is erased (:mod:`windvane.service.store.sqlite.erasure`). An event
is durable when :meth:`SqliteStore.append` returns (``synchronous=FULL``: the log is flushed to disk with every commit).
A damaged store is rebuilt when it is opened; see :mod:`windvane.service.store.sqlite.repair`.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial

from windvane.service.store.events import STREAM_SPAN, Event
from windvane.service.store.protocol import NO_EPOCHS, never
from windvane.service.store.records import (
    STORE_ERRORS,
    Baseline,
    DamageError,
    Erasure,
    Snapshot,
    SnapshotError,
    StoreError,
    StreamImport,
    StreamRow,
    TooManyStreamsError,
    is_sealed,
)
from windvane.service.store.sqlite.database import read_meta, write_row
from windvane.service.store.sqlite.erasure import (
    begin_removal,
    continue_removal,
    empty_log,
    erase,
    has_erased,
    list_copies,
)
from windvane.service.store.sqlite.marks import read_marks
from windvane.service.store.sqlite.store_file import StoreFile
from windvane.service.store.sqlite.stream_rows import (
    ROWS,
    find_last_id,
    insert_events,
    insert_states,
    insert_stream,
    is_free,
)
from windvane.service.store.sqlite.tokens import SqliteTokens

_KEYS = "events INDEXED BY events_by_key WHERE key IS NOT NULL"
KEYS_AT_ONCE = 2000
_PAUSE = 0.001  # seconds between transactions that delete events, for others to write

log = logging.getLogger("windvane.service")


class SqliteStore(StoreFile):
    """A store in a file. Any thread may use it; events are written by one thread at a time.

    See :class:`windvane.service.store.sqlite.store_file.StoreFile` for the arguments.
    """

    cluster = None

    @property
    def keys(self) -> SqliteStore:
        """The Idempotency-Keys of all events."""
        return self

    @cached_property
    def tokens(self) -> SqliteTokens:
        """The access tokens."""
        return SqliteTokens(self)

    # --- events and snapshots --------------------------------------------------------------------------------------

    def append(
        self,
        events: Sequence[Event],
        snapshots: Sequence[tuple[int, Snapshot]] = (),
        erasures: Sequence[Erasure] = (),
        epochs: Mapping[int, int] = NO_EPOCHS,  # a file has no shards
    ) -> None:
        """Store events, snapshots by stream, and erasures: durable when this returns, or none of them.

        Raises :class:`MisplacedError` if the file was moved away meanwhile."""
        with self._writing:
            try:
                if snapshots or erasures or len(events) > ROWS:
                    self._append_together(events, snapshots, erasures)
                else:
                    insert_events(self.connection, events)
            except BaseException:
                self.drop_connection()  # a failed connection must not keep a lock
                raise
            self._has_erased = self._has_erased or bool(erasures)
            self.check_in_place()
            self.mark_acknowledged({event.stream: event.number for event in events})
        if erasures:  # events of removed streams are left to others: deleting them may take long
            self._try_to_purge(self._empty_log)

    def _append_together(
        self, events: Sequence[Event], snapshots: Sequence[tuple[int, Snapshot]], erasures: Sequence[Erasure]
    ) -> None:
        with self.connection as connection:
            connection.execute("BEGIN IMMEDIATE")
            insert_events(connection, events)
            for stream, snapshot in snapshots:
                write_row(connection, "snapshots", stream, *snapshot)
            for erasure in erasures:
                erase(connection, erasure)

    def purge(self, is_stopping: Callable[[], bool] = never) -> bool:
        """Delete the rest of what was erased: events of removed streams, and copies in the write-ahead log. Return
        whether nothing is left; readers may prevent that, and it ends early when ``is_stopping()``."""
        while self._is_removing:
            if is_stopping():
                return False
            self._continue_removal()
            time.sleep(_PAUSE)
        return not self._has_erased or self._empty_log()

    def _empty_log(self) -> bool:
        """Empty the write-ahead log, which has copies of what was erased; return whether that was possible."""
        with self._writing:
            self.check_in_place()
            is_empty = empty_log(self.path)
            self._has_erased = not is_empty
        self._report_copies()
        return is_empty

    def _report_copies(self) -> None:
        """Warn of old files of the store, in which nothing is erased, if anything is."""
        with contextlib.suppress(OSError, *STORE_ERRORS):
            copies = list_copies(self.path)
            if copies and copies != self._reported_copies and has_erased(self.connection):
                text = "%s: what is erased is still in %s; remove them when you no longer need to go back"
                log.warning(text, self.path, ", ".join(copies))
                self._reported_copies = copies

    def _try_to_purge(self, purge: Callable[[], bool]) -> None:
        """Purge after a commit, which an error must not make appear to have failed."""
        try:
            purge()
        except (OSError, *STORE_ERRORS) as error:
            log.warning("%s: erased data cannot be purged now (%s); it is tried again", self.path, error)

    def _continue_removal(self) -> None:
        """Delete some events of removed streams."""
        with self._writing, self.transaction() as connection:
            self._is_removing = continue_removal(connection)
            self._has_erased = self._has_erased or self._is_removing

    def read_events(self, stream: int, after: int = 0, limit: int = 1 << 62) -> Iterator[Event]:
        """Yield the events with numbers above ``after``, in order."""
        rows = self._select_events("*", stream, "ORDER BY id LIMIT ?", limit, after=after)
        return map(Event.from_row, rows)

    def find_events(
        self, keys: Sequence[tuple[int, str]] = (), decisions: Sequence[tuple[int, str]] = ()
    ) -> list[Event]:
        """Return the events of the requests with these Idempotency-Keys, and those of these decisions, by stream and in
        order. A key or a decision comes with its stream."""
        found: dict[tuple[int, int], Event] = {}
        for column, places in (("key", keys), ("decision", decisions)):
            for stream, value in places:
                found |= {event[:2]: event for event in self._find_events(column, stream, value)}
        return [found[place] for place in sorted(found)]

    def _find_events(self, column: str, stream: int, value: str) -> list[Event]:
        """Look ``value`` up in an index, and read the rows from the table itself: the index may be damaged."""
        low, high = stream * STREAM_SPAN, (stream + 1) * STREAM_SPAN
        query = f"SELECT id FROM events WHERE {column} = ? AND id > ? AND id < ? ORDER BY id"
        ids = self.connection.execute(query, (value, low, high)).fetchall()
        rows = [self.connection.execute("SELECT * FROM events NOT INDEXED WHERE id = ?", id_).fetchone() for id_ in ids]
        events = [Event.from_row(row) for row in rows if row is not None]
        if len(events) < len(ids) or any(getattr(event, column) != value for event in events):
            raise DamageError(f"the index over the column {column} does not match the events")
        return events

    def count_keys(self) -> int:
        """Return the number of events with an Idempotency-Key."""
        ((count,),) = self.connection.execute(f"SELECT count(*) FROM {_KEYS}")
        return int(count)

    def read_keys(self) -> Iterator[list[tuple[int, str]]]:
        """Yield the streams and the Idempotency-Keys of all events, some at a time."""
        select = f"SELECT id, key FROM {_KEYS} AND (key, id) > (?, ?) ORDER BY key, id LIMIT {KEYS_AT_ONCE}"
        place: tuple[str, int] = "", 0
        while True:
            # One row, because the thread releases the GIL for each and waits to get it back.
            query = f"SELECT json_group_array(id), json_group_array(key) FROM ({select})"
            ids, keys = map(json.loads, self.connection.execute(query, place).fetchone())
            if not ids:
                return
            yield [(id_ // STREAM_SPAN, key) for id_, key in zip(ids, keys, strict=True)]
            place = keys[-1], ids[-1]

    def _select_events(self, columns: str, stream: int, rest: str, *values: int, after: int = 0) -> sqlite3.Cursor:
        """Select from the events of a stream, without the help of an index, which may be damaged."""
        query = f"SELECT {columns} FROM events NOT INDEXED WHERE id > ? AND id < ? {rest}"
        low = stream * STREAM_SPAN
        return self.connection.execute(query, (low + after, low + STREAM_SPAN, *values))

    def read_chain(self, stream: int, number: int) -> bytes | None:
        """Return the chain value of an event, None if there is no such event. Before the first event it is the digest
        of the stream's row; after the last one that was removed, it is that of the baseline."""
        if number == 0:
            row = self.connection.execute("SELECT digest FROM streams WHERE id = ?", (stream,)).fetchone()
        else:
            row = self._select_events("chain", stream, "AND id = ?", stream * STREAM_SPAN + number).fetchone()
        if row is None:
            query = "SELECT removed_chain FROM baselines WHERE stream = ? AND removed = ?"
            row = self.connection.execute(query, (stream, number)).fetchone()
        return None if row is None else row[0]

    def last_number(self, stream: int) -> int:
        """Return the number of the last event, 0 if there is none. All events may have been removed."""
        ((last,),) = self._select_events("max(id)", stream, "")
        if last is not None:
            return int(last) % STREAM_SPAN
        row = self.connection.execute("SELECT removed FROM baselines WHERE stream = ?", (stream,)).fetchone()
        return row[0] if row is not None and isinstance(row[0], int) else 0

    def find_repeated_keys(self, stream: int) -> list[str]:
        """Return the keys that several events have."""
        rows = self._select_events("key", stream, "AND key IS NOT NULL GROUP BY key HAVING count(*) > 1")
        return [str(key) for (key,) in rows]

    def mark_acknowledged(self, numbers: Mapping[int, int]) -> None:
        """Mark the last acknowledged event of some streams."""
        if marks := self._marks:  # another thread may close them
            marks.write(numbers)

    def read_acknowledged(self) -> dict[int, int]:
        """Return the last event by stream that was acknowledged, as far as is known; see
        :mod:`windvane.service.store.sqlite.marks`."""
        return read_marks(self.path, read_meta(self.connection).get("id", ""))

    def read_snapshot(self, stream: int) -> Snapshot | None:
        """Return the stored snapshot, None if there is none; raise :class:`SnapshotError` if it was changed."""
        row = self.connection.execute("SELECT * FROM snapshots WHERE stream = ?", (stream,)).fetchone()
        if row is None:
            return None
        if not is_sealed("snapshots", row):
            raise SnapshotError("it does not match its checksum")
        return Snapshot(*row[1:-1])

    def read_baseline(self, stream: int) -> Baseline | None:
        """Return where replays begin if the log is not whole; raise :class:`SnapshotError` if it was changed."""
        row = self.connection.execute("SELECT * FROM baselines WHERE stream = ?", (stream,)).fetchone()
        return None if row is None else Baseline.from_row(row)

    # --- streams ---------------------------------------------------------------------------------------------------

    def add_stream(
        self,
        name: str,
        created: float,
        config: str,
        *,
        most: int | None = None,
        epoch: int | None = None,  # a file has no shards
    ) -> StreamRow | None:
        """Return the new stream, None if the name is taken. Ids of lost and of removed streams are not used again.

        Raises :class:`TooManyStreamsError` if there are ``most`` streams."""
        with self.transaction() as connection:
            if connection.execute("SELECT 1 FROM streams WHERE name = ?", (name,)).fetchone() is not None:
                return None
            ((count,),) = connection.execute("SELECT count(*) FROM streams")
            if most is not None and count >= most:
                raise TooManyStreamsError(most)
            row = insert_stream(connection, self._find_new_id(connection), name, created, config)
        self.mark_acknowledged({row.id: 0})
        return row

    @contextlib.contextmanager
    def import_stream(self, row: StreamRow) -> Iterator[StreamImport]:
        """Add a stream of another store with all of its data. It is durable after the block, or absent if that raises.

        This thread can read the stream before the end. Raises :class:`StoreError` with code "exists" if the name is
        taken."""
        with self._writing, self.transaction() as connection:
            if self.find_stream(row.name) is not None:
                raise StoreError(self.path, "exists", f"has a stream named {row.name!r} already")
            can_keep = is_free(connection, row.id) and row.id not in self.read_acknowledged()
            id_ = row.id if can_keep else self._find_new_id(connection)
            copy = insert_stream(connection, id_, *row[1:4])
            yield StreamImport(copy, partial(insert_events, connection), partial(insert_states, connection, id_))
            last = self.last_number(id_)
        self.mark_acknowledged({id_: last})

    def _find_new_id(self, connection: sqlite3.Connection) -> int:
        """Return an id that no stream has or had."""
        return max(find_last_id(connection), 0 if self._marks is None else self._marks.highest) + 1

    def begin_removal(self, row: StreamRow, *, epoch: int | None = None) -> None:
        """Remove a stream but not its events, which :meth:`purge` deletes in slices, so that others can write.

        The removal is durable when this returns.
        """
        # Before the stream: a mark without a stream would count as a loss.
        if marks := self._marks:
            marks.remove(row.id)
        with self._writing, self.transaction() as connection:
            begin_removal(connection, row.id)
            self._has_erased = self._is_removing = True

    def remove_stream(self, row: StreamRow) -> None:
        """Remove a stream with everything of it."""
        self.begin_removal(row)
        self._try_to_purge(self.purge)

    def read_streams(self) -> list[StreamRow]:
        """Return all streams. A row may be damaged: see :attr:`StreamRow.is_sound`."""
        return [StreamRow(*row) for row in self.connection.execute("SELECT * FROM streams NOT INDEXED ORDER BY id")]

    def find_stream(self, name: str) -> StreamRow | None:
        """Return the stream with this name."""
        row = self.connection.execute("SELECT * FROM streams WHERE name = ?", (name,)).fetchone()
        return None if row is None else StreamRow(*row)
