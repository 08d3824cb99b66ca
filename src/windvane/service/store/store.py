"""The store: an SQLite file in WAL mode that holds streams, their events, their last snapshots, and access tokens.

Events are only ever appended. An event is durable when :meth:`Store.append` returns (``synchronous=FULL``: the log is
flushed to disk with every commit). How the file is opened, locked and repaired is in
:mod:`windvane.service.store.store_file`.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

from windvane.service.store.chain import start_chain
from windvane.service.store.database import (
    FORMAT,
    STREAM_SPAN,
    DamageError,
    Snapshot,
    SnapshotError,
    StoreError,
    StreamRow,
    Token,
    digest_snapshot,
    digest_token,
    read_event,
    read_meta,
    write_meta,
)
from windvane.service.store.events import Event
from windvane.service.store.inspection import split_tokens
from windvane.service.store.marks import read_marks
from windvane.service.store.store_file import StoreFile

__all__ = ["FORMAT", "Snapshot", "Store", "StoreError", "StreamRow", "Token"]

_AT_ONCE = 64  # rows per statement: each statement releases the GIL and waits to get it back
_COLUMNS = 10  # of an event


class Store(StoreFile):
    """See the module. Reading and writing may happen in any thread; of events, in one at a time."""

    # --- events ----------------------------------------------------------------------------------------------------

    def append(self, events: Sequence[Event], snapshots: Iterable[tuple[int, Snapshot]] = ()) -> None:
        """Store all of ``events`` and, by stream, new ``snapshots``: durable when this returns, or none of them."""
        with self.writing:
            self._append(events, snapshots)
            self.mark_acknowledged({event.stream: event.number for event in events})

    def _append(self, events: Sequence[Event], snapshots: Iterable[tuple[int, Snapshot]]) -> None:
        connection = self.connection
        rows = [(e.stream * STREAM_SPAN + e.number, *e[2:]) for e in events]
        connection.execute("BEGIN IMMEDIATE")
        try:
            for i in range(0, len(rows), _AT_ONCE):
                batch = rows[i : i + _AT_ONCE]
                places = ", ".join([f"({', '.join('?' * _COLUMNS)})"] * len(batch))
                connection.execute(f"INSERT INTO events VALUES {places}", list(chain.from_iterable(batch)))
            for stream, snapshot in snapshots:
                number, agent, extra, head = snapshot
                row = (stream, number, head, agent, extra, digest_snapshot(stream, snapshot))
                connection.execute("INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?, ?, ?, ?)", row)
            connection.execute("COMMIT")
        except BaseException:
            self.drop_connection()  # a failed connection must not keep a lock
            raise

    def read_events(self, stream: int, after: int = 0, limit: int = 1 << 62) -> Iterator[Event]:
        """Yield the events with numbers above ``after``, in order."""
        rows = self.connection.execute(
            "SELECT * FROM events NOT INDEXED WHERE id > ? AND id < ? ORDER BY id LIMIT ?",
            (stream * STREAM_SPAN + after, (stream + 1) * STREAM_SPAN, limit),
        )
        return (read_event(row) for row in rows)

    def events_of_decision(self, stream: int, decision: str) -> list[Event]:
        """Return all events of a decision, in order."""
        return [event for event in self._find("decision", stream, decision) if event.decision == decision]

    def event_with_key(self, stream: int, key: str) -> Event | None:
        """Return the event that a request with this key made."""
        return next((event for event in self._find("key", stream, key) if event.key == key), None)

    def _find(self, column: str, stream: int, value: str) -> list[Event]:
        """Look ``value`` up in an index, and read the rows from the table itself: the index may be damaged."""
        ids = self.connection.execute(
            f"SELECT id FROM events WHERE {column} = ? AND id > ? AND id < ? ORDER BY id",
            (value, stream * STREAM_SPAN, (stream + 1) * STREAM_SPAN),
        ).fetchall()
        rows = [self.connection.execute("SELECT * FROM events NOT INDEXED WHERE id = ?", id_).fetchone() for id_ in ids]
        events = [read_event(row) for row in rows if row is not None]
        if len(events) < len(ids) or any(getattr(event, column) != value for event in events):
            raise DamageError(f"the index over the column {column} does not match the events")
        return events

    def read_chain(self, stream: int, number: int) -> bytes | None:
        """Return the chain value of an event, None if there is no such event. Before the first event it is the digest
        of the stream's row."""
        if number == 0:
            row = self.connection.execute("SELECT digest FROM streams WHERE id = ?", (stream,)).fetchone()
        else:
            query = "SELECT chain FROM events NOT INDEXED WHERE id = ?"
            row = self.connection.execute(query, (stream * STREAM_SPAN + number,)).fetchone()
        return None if row is None else row[0]

    def last_number(self, stream: int) -> int:
        """Return the number of the last event, 0 if there is none."""
        low, high = stream * STREAM_SPAN, (stream + 1) * STREAM_SPAN
        query = "SELECT max(id) FROM events NOT INDEXED WHERE id > ? AND id < ?"
        ((last,),) = self.connection.execute(query, (low, high))
        return 0 if last is None else int(last) - low

    def find_repeated_keys(self, stream: int) -> list[str]:
        """Return the keys that several events have, without the help of the index over keys."""
        rows = self.connection.execute(
            "SELECT key FROM events NOT INDEXED WHERE id > ? AND id < ? AND key IS NOT NULL "
            "GROUP BY key HAVING count(*) > 1",
            (stream * STREAM_SPAN, (stream + 1) * STREAM_SPAN),
        )
        return [str(key) for (key,) in rows]

    def mark_acknowledged(self, numbers: Mapping[int, int]) -> None:
        """Mark the last acknowledged event of some streams."""
        if self.marks is not None:
            self.marks.write(numbers)

    def read_acknowledged(self) -> dict[int, int]:
        """Return the last event by stream that was acknowledged, as far as is known; see
        :mod:`windvane.service.store.marks`."""
        return read_marks(self.real_path, read_meta(self.connection).get("id", ""))

    def read_snapshot(self, stream: int) -> Snapshot | None:
        """Return the stored snapshot, None if there is none; raise :class:`SnapshotError` if it was changed."""
        query = "SELECT number, chain, agent, extra, digest FROM snapshots WHERE stream = ?"
        row = self.connection.execute(query, (stream,)).fetchone()
        if row is None:
            return None
        number, head, agent, extra, digest = row
        snapshot = Snapshot(number, agent, extra, head)
        try:
            is_whole = digest == digest_snapshot(stream, snapshot)
        except (TypeError, AttributeError):  # a damaged row may hold anything
            is_whole = False
        if not is_whole:
            raise SnapshotError("it does not match its checksum")
        return snapshot

    def read_snapshot_number(self, stream: int) -> int:
        """Return the event up to which the stored snapshot goes, 0 if there is none."""
        row = self.connection.execute("SELECT number FROM snapshots WHERE stream = ?", (stream,)).fetchone()
        return row[0] if row is not None and isinstance(row[0], int) else 0

    @contextlib.contextmanager
    def read_transaction(self) -> Iterator[None]:
        """Hold a read transaction in this thread: concurrent writes are not visible until it ends."""
        connection = self.connection
        connection.execute("BEGIN")
        try:
            yield
        finally:
            if connection.in_transaction:  # SQLite may have ended it after an error
                connection.execute("COMMIT")

    def check_writable(self) -> None:
        """Write something that changes nothing; raise what a commit would raise."""
        self.check_in_place()
        with self._changing() as connection:
            write_meta(connection, "probe", "")

    # --- streams ---------------------------------------------------------------------------------------------------

    def add_stream(self, name: str, created: float, config: str) -> StreamRow | None:
        """Return the new stream, None if the name is taken. An id that a lost stream had is not used again."""
        try:
            with self._changing() as connection:
                ((last,),) = connection.execute("SELECT max(id) FROM streams")
                number = max(last or 0, 0 if self.marks is None else self.marks.highest) + 1
                row = StreamRow(number, name, created, config, start_chain(number, name, created, config))
                connection.execute("INSERT INTO streams VALUES (?, ?, ?, ?, ?)", row)
        except sqlite3.IntegrityError:
            return None
        self.mark_acknowledged({number: 0})
        return row

    def read_streams(self) -> list[StreamRow]:
        rows = self.connection.execute("SELECT * FROM streams NOT INDEXED ORDER BY id")
        return [StreamRow(*row) for row in rows]

    # --- tokens ----------------------------------------------------------------------------------------------------

    def add_token(self, token: Token) -> bool:
        """Return False if the name is taken. From now on every request needs a token."""
        row = (token.name, token.hash, int(token.full), token.created, digest_token(token))
        with self._guarding() as connection:
            return connection.execute("INSERT OR IGNORE INTO tokens VALUES (?, ?, ?, ?, ?)", row).rowcount > 0

    @property
    def requires_token(self) -> bool:
        """Whether every request needs a token: one exists or existed, or the setting cannot be read."""
        if read_meta(self.connection).get("guarded") != "no":
            return True
        return self.connection.execute("SELECT 1 FROM tokens NOT INDEXED LIMIT 1").fetchone() is not None

    def remove_all_tokens(self) -> None:
        """Remove all tokens, as if there had never been one."""
        with self._changing() as connection:
            connection.execute("DELETE FROM tokens")
            write_meta(connection, "guarded", "no")

    def remove_token(self, name: str) -> bool:
        """Return False if there is none of this name. Every request still needs a token."""
        with self._guarding() as connection:
            return connection.execute("DELETE FROM tokens WHERE name = ?", (name,)).rowcount > 0

    def read_tokens(self) -> list[Token]:
        """Return the tokens that match their checksum; no other one is accepted."""
        return split_tokens(self.connection)[0]

    def read_damaged_tokens(self) -> list[str]:
        """Return the names of the tokens that do not match their checksum."""
        return split_tokens(self.connection)[1]

    @contextlib.contextmanager
    def _guarding(self) -> Iterator[sqlite3.Connection]:
        """Change tokens, and record that there are or were some: both or neither."""
        with self._changing() as connection:
            before = connection.total_changes
            yield connection
            if connection.total_changes > before:
                write_meta(connection, "guarded", "yes")

    @contextlib.contextmanager
    def _changing(self) -> Iterator[sqlite3.Connection]:
        """All that is done in it, or nothing.

        A server may begin to repair the store at any moment. It creates a file before it copies a row, so a change that
        the copy may have missed finds that file after its commit, or another store in the place of this one.
        """
        connection = self.connection
        self.refuse_if_repaired()
        connection.execute("BEGIN IMMEDIATE")
        try:
            self.refuse_if_repaired()
            yield connection
            self.refuse_if_repaired()
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")
        self.refuse_if_repaired()
        self.check_in_place()  # a server may have repaired the store, and moved this file aside
