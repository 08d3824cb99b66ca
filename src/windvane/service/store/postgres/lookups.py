"""Read events, snapshots and streams from a store in PostgreSQL."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from windvane.service.store.events import Event
from windvane.service.store.postgres.connections import Address, Connection
from windvane.service.store.postgres.pool import ConnectionPool
from windvane.service.store.postgres.schema import read_meta
from windvane.service.store.records import Baseline, DamageError, Snapshot, SnapshotError, StreamRow, is_sealed

CHUNK, CHUNK_BYTES = 1000, 1 << 20
"""The limits of one read: the number of events, and the bytes of their requests and outcomes."""
READ_IDLE_MS = 600_000
"""How many milliseconds a long transaction may be idle while its process works, for example replays events. Running
servers never wait for its locks: a read transaction holds none, and the other kind runs only while no server does."""
NUL = "\0"
"""PostgreSQL rejects text with this character. A key or an id that contains it is therefore not in the store."""

_EVENT = "stream, number, time, kind, decision, key, outcome, request, salt, request_digest, chain"
_SIZE = "octet_length(outcome) + coalesce(octet_length(request), 0)"
NEXT_EVENTS = f"""SELECT {_EVENT} FROM (
        SELECT *, sum({_SIZE}) OVER (ORDER BY number ROWS UNBOUNDED PRECEDING) AS total FROM (
            SELECT * FROM events WHERE stream = %s AND number > %s ORDER BY number LIMIT %s
        ) AS next
    ) AS counted WHERE total - ({_SIZE}) < {CHUNK_BYTES} ORDER BY number"""
BY_KEYS_AND_DECISIONS = f"""SELECT {_EVENT} FROM unnest(%b::bigint[], %b::text[]) AS asked (id, text)
        JOIN events ON stream = id AND key = text AND key IS NOT NULL
    UNION ALL SELECT {_EVENT} FROM unnest(%b::bigint[], %b::text[]) AS asked (id, text)
        JOIN events ON stream = id AND decision = text AND decision IS NOT NULL"""
LAST_NUMBER = """SELECT coalesce(
        (SELECT number FROM events WHERE stream = %s ORDER BY number DESC LIMIT 1),
        (SELECT removed FROM baselines WHERE stream = %s), 0)"""
FIRST_CHAIN = "SELECT digest FROM streams WHERE id = %s"
CHAIN = """SELECT chain FROM events WHERE stream = %s AND number = %s
    UNION ALL SELECT removed_chain FROM baselines WHERE stream = %s AND removed = %s"""
_STREAM = "SELECT id, name, created, config, digest FROM streams"

BASELINE = """SELECT stream, number, chain, agent, extra, removed, removed_chain, first_time, last_time, digest
    FROM baselines WHERE stream = %s"""


class Lookups:
    """Reads a store through a pool of connections or, in a read transaction, through the connection of the thread."""

    def __init__(self, address: Address, connections: int, **settings: str | int) -> None:
        self.address = address
        self.pool = ConnectionPool(address, connections, **settings)
        self._local = threading.local()  # the connection of this thread's read transaction

    @contextlib.contextmanager
    def read_transaction(self) -> Iterator[None]:
        """Hold a read transaction in this thread: concurrent writes are not visible until it ends."""
        if getattr(self._local, "connection", None) is not None:  # inside another read transaction
            yield
            return
        with self.pool.borrow() as connection:
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            try:
                with self._use(connection):
                    yield
            finally:
                if not connection.closed:
                    connection.execute("ROLLBACK")

    @contextlib.contextmanager
    def _use(self, connection: Connection, *, to_write: bool = False) -> Iterator[None]:
        """Let this thread use ``connection``, which has an open transaction, for reads and, if asked, for writes."""
        connection.execute(f"SET LOCAL idle_in_transaction_session_timeout = {READ_IDLE_MS}".encode())
        self._local.connection, self._local.is_writer = connection, to_write
        try:
            yield
        finally:
            self._local.connection = None

    @property
    def _held(self) -> Connection | None:
        """The connection on which this thread has opened a transaction to change things."""
        own: Connection | None = getattr(self._local, "connection", None)
        return own if own is not None and self._local.is_writer else None

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """Yield the connection of this thread's read transaction, or one of the pool."""
        own: Connection | None = getattr(self._local, "connection", None)
        source = self.pool.borrow() if own is None else contextlib.nullcontext(own)
        with source as connection, self.address.translate_errors():
            yield connection

    def query(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        with self.reading() as connection:
            return connection.execute(query.encode(), values, binary=True).fetchall()

    def read_meta(self) -> dict[str, str]:
        """Return the settings whose checksums match: format, id, guarded, shards, secret."""
        with self.reading() as connection:
            return read_meta(connection)

    # --- events ----------------------------------------------------------------------------------------------------

    def read_events(self, stream: int, after: int = 0, limit: int = 1 << 62) -> Iterator[Event]:
        """Yield the events with numbers above ``after``, in order. No statement stays open between chunks."""
        while limit > 0:
            rows = self.query(NEXT_EVENTS, stream, after, min(limit, CHUNK))
            if not rows:
                return
            yield from map(Event._make, rows)
            after, limit = rows[-1][1], limit - len(rows)

    def find_events(
        self, keys: Sequence[tuple[int, str]] = (), decisions: Sequence[tuple[int, str]] = ()
    ) -> list[Event]:
        """Return the events of the requests with these Idempotency-Keys, and those of these decisions, by stream and in
        order. A key or a decision comes with its stream."""
        columns = [[pair[i] for pair in pairs if NUL not in pair[1]] for pairs in (keys, decisions) for i in (0, 1)]
        with self.reading() as connection:
            rows = connection.execute(BY_KEYS_AND_DECISIONS.encode(), columns, binary=True).fetchall()
        found = {row[:2]: Event._make(row) for row in rows}
        return [found[place] for place in sorted(found)]

    def read_chain(self, stream: int, number: int) -> bytes | None:
        """Return the chain value of an event, None if there is no such event. Before the first event it is the digest
        of the stream's row; after the last one that was removed, it is that of the baseline."""
        rows = self.query(FIRST_CHAIN, stream) if number == 0 else self.query(CHAIN, stream, number, stream, number)
        return rows[0][0] if rows else None

    def last_number(self, stream: int) -> int:
        """Return the number of the last event, 0 if there is none."""
        return int(self.query(LAST_NUMBER, stream, stream)[0][0])

    def find_repeated_keys(self, stream: int) -> list[str]:
        """Return the keys that occur in several events. There are none unless the unique index is missing."""
        query = "SELECT key FROM events WHERE stream = %s AND key IS NOT NULL GROUP BY key HAVING count(*) > 1"
        with self.reading() as connection, connection.extend_timeout():
            return [key for (key,) in connection.execute(query, (stream,))]

    # --- snapshots -------------------------------------------------------------------------------------------------

    def read_snapshot(self, stream: int) -> Snapshot | None:
        """Return the last snapshot, None if there is none; raise :class:`SnapshotError` if it was changed."""
        rows = self.query("SELECT stream, number, chain, agent, extra, digest FROM snapshots WHERE stream = %s", stream)
        if rows and not is_sealed("snapshots", rows[0]):
            raise SnapshotError("it does not match its checksum")
        return Snapshot._make(rows[0][1:-1]) if rows else None

    def read_baseline(self, stream: int) -> Baseline | None:
        """Return where replays begin if the log is not whole; raise :class:`SnapshotError` if it was changed."""
        rows = self.query(BASELINE, stream)
        return Baseline.from_row(rows[0]) if rows else None

    # --- streams ----------------------------------------------------------------------------------------

    def read_streams(self, shards: Collection[int] | None = None) -> list[StreamRow]:
        """Return all streams, or those of some shards. A row may be damaged: see :attr:`StreamRow.is_sound`."""
        if shards is None:
            rows = self.query(f"{_STREAM} ORDER BY id")
        else:
            rows = self.query(f"{_STREAM} WHERE shard = ANY(%s) ORDER BY id", list(shards))
        return [StreamRow._make(row) for row in rows]

    def find_stream(self, name: str) -> StreamRow | None:
        """Return the stream with this name."""
        return next((StreamRow._make(row) for row in self.query(f"{_STREAM} WHERE name = %s", name)), None)

    def read_secret(self) -> str:
        """Return the secret that the nodes of a cluster share."""
        secret = self.read_meta().get("secret")
        if not secret:
            raise DamageError("the setting 'secret' is missing, or does not match its checksum")
        return secret
