"""The store in a PostgreSQL database: streams, their events, their last snapshots, and access tokens.

Several servers may use it at once. A transaction is durable when its commit returns (``synchronous_commit=on``). If the
connection is lost during a commit, its outcome is unknown: the caller must read the database before it goes on.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import psycopg

from windvane.cluster_map import shard_of
from windvane.service.store.events import Event
from windvane.service.store.postgres.catalogue import find_damage
from windvane.service.store.postgres.connections import Address, Connection, check_replication, is_usable
from windvane.service.store.postgres.lookups import Lookups
from windvane.service.store.postgres.schema import (
    TABLES,
    connect_first,
    has_standby,
    hold_lock,
    name_problems,
    open_tables,
    read_timeline,
    write_meta,
)
from windvane.service.store.postgres.tokens import PostgresTokens
from windvane.service.store.postgres.writing import (
    ERASE_MS,
    expel_nodes,
    fence_shard,
    insert_events,
    insert_states,
    write_batch,
)
from windvane.service.store.protocol import NO_EPOCHS
from windvane.service.store.records import (
    DatabaseError,
    Erasure,
    FencedError,
    Snapshot,
    StoreError,
    StreamImport,
    StreamRow,
    TooManyStreamsError,
    seal_row,
)

CONNECTIONS = 8
"""For reading and for small changes. Threads of the service need one each for a moment; most have one at most."""

log = logging.getLogger("windvane.service")

_COUNT = "SELECT EXISTS (SELECT FROM streams WHERE name = %s), count(*) FROM streams"
_IS_TAKEN = """SELECT EXISTS (SELECT FROM streams WHERE id = %(id)s)
    OR EXISTS (SELECT FROM events WHERE stream = %(id)s)"""
_NEXT_ID = "SELECT nextval('stream_ids')"
_PASS_ID = """SELECT %(id)s::bigint FROM (
    SELECT setval('stream_ids', greatest(%(id)s, (SELECT last_value FROM stream_ids)))) AS passed"""


class PostgresStore(Lookups):
    """A store in a database. Any thread may use it; events are written by one thread at a time.

    Parameters
    ----------
    url
        ``postgresql://user:password@host:port/database?option=value``; see
        :class:`windvane.service.store.postgres.connections.Address`.
    shared
        Open beside running servers, to read or to change tokens: nothing is migrated, and damage is not refused.
    create
        Create the tables if there are none.
    read_only
        Write nothing.
    lazy
        Do not fail if the database cannot be reached now: :meth:`open` tries again.
    needs_standby
        Refuse a database that does not commit to a standby as well.
    connections
        Most connections for reading and for small changes. One more is for events.

    Attributes
    ----------
    name : str
        The address without the password.
    shards : int
        The number of shards; see :func:`windvane.cluster_map.shard_of`.
    """

    is_remote = True

    def __init__(
        self,
        url: str,
        *,
        shared: bool = False,
        create: bool = True,
        read_only: bool = False,
        lazy: bool = False,
        needs_standby: bool = False,
        connections: int = CONNECTIONS,
    ) -> None:
        self._settings: dict[str, str | int] = {"default_transaction_read_only": "on"} if read_only else {}
        super().__init__(Address(url), connections, **self._settings)
        self.name, self.is_checked = self.address.name, True
        self._is_shared, self._creates, self._is_open = shared, create and not read_only, False
        self._needs_standby, self.shards = needs_standby, 0
        self.tokens = PostgresTokens(self.query, self._transaction)
        self._writing = threading.Lock()  # held while events are written: the connection is not closed meanwhile
        self._writer: Connection | None = None
        self._timeline: str | None = None  # of the database's log, when streams were read last
        try:
            self.open()
        except BaseException as error:
            if lazy and getattr(error, "code", "") == "unreachable":
                return
            self.close()
            raise

    def open(self) -> None:
        """Connect, and create or migrate the tables; do nothing if that was done."""
        if self._is_open:
            return
        with contextlib.closing(connect_first(self.address, **self._settings)) as connection:
            self._timeline = read_timeline(connection)
            self.shards = open_tables(self.address, connection, create=self._creates, migrate=not self._is_shared)
            if self._needs_standby and not has_standby(connection):
                problem = "commits to no standby; set synchronous_standby_names in PostgreSQL, or start without --ha"
                raise StoreError(self.name, "no_standby", problem)
        if not self._is_shared:
            with name_problems(self.address):
                self.repair(pages=False)
        self._is_open = True

    keys = None

    @property
    def cluster(self) -> PostgresStore:
        """What nodes that share the store need: the store itself."""
        return self

    def close(self) -> None:
        """Close all connections."""
        self.pool.close()
        with self._writing:
            self._drop_writer()

    # --- its state -------------------------------------------------------------------------------------------------

    def check_in_place(self) -> None:
        """Do nothing: a database has no place where it could be missed."""

    def check_writable(self) -> None:
        """Write without changing anything, to raise the errors that a commit would raise."""
        with self.pool.borrow() as connection:
            write_meta(connection, "probe", "")

    def find_damage(self, *, pages: bool = True) -> list[str]:
        """Return what is missing or was changed of the tables, indexes and settings; with ``pages``, also the streams
        that no node finds, because they are in a wrong shard. PostgreSQL looks after pages."""
        with self.reading() as connection:
            problems = find_damage(connection)
            if pages and not problems:
                rows = connection.execute("SELECT name, shard FROM streams ORDER BY id").fetchall()
                problems += [
                    f"the stream {name!r} is in shard {shard}, and belongs in shard {shard_of(name, self.shards)}"
                    for name, shard in rows
                    if shard != shard_of(name, self.shards)
                ]
        self.is_checked = True
        return problems

    def repair(self, *, pages: bool = True) -> list[str]:
        """Raise :class:`StoreError` if the structure is damaged: the owner of the tables has to repair it.

        If only the setting is damaged that says whether requests need a token, they do from now on.
        """
        problems = self.find_damage(pages=pages)
        if problems and "guarded" not in self.read_meta():
            log.error("%s: is damaged (%s); every request needs a token", self.name, problems[0])
            with self._transaction() as connection:
                write_meta(connection, "guarded", "yes")
            if not (remaining := self.find_damage(pages=pages)):
                return problems
            problems = remaining
        if problems:
            raise StoreError(self.name, "damaged", f"is damaged ({'; '.join(problems)}); restore a backup")
        return problems

    def count_streams(self) -> dict[int, int]:
        """Return the number of streams by shard; a shard without streams is missing."""
        return dict(self.query("SELECT shard, count(*) FROM streams GROUP BY shard"))

    def measure(self) -> dict[str, float]:
        """Return the size of all tables with their indexes, in bytes."""
        ((size,),) = self.query(
            "SELECT sum(pg_total_relation_size(to_regclass(name))) FROM unnest(%s::text[]) AS name", [*TABLES]
        )
        return {"store_bytes": float(size or 0)}

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[Connection]:
        """Change streams, settings or tokens: all of the changes, or none; inside :meth:`hold`, as a part of it."""
        if self._held is not None:
            with self._held.transaction():
                yield self._held
        else:
            with self.pool.borrow() as connection, check_replication(connection), connection.transaction():
                yield connection

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Keep nodes out of the cluster. What this thread changes meanwhile is committed at the end, or not at all.

        Raises :class:`StoreError` with code "in_use" if a node is running, or another process holds the store.
        """
        if self._held is not None:
            yield
            return
        with self.pool.borrow() as connection, check_replication(connection), connection.transaction():
            try:
                names = expel_nodes(connection)
            except psycopg.errors.LockNotAvailable:
                problem = "another command is changing it, or it is also the other store of this command"
                raise StoreError(self.name, "in_use", problem) from None
            if names:
                problem = f"is served by the nodes {', '.join(names)}; stop them first"
                raise StoreError(self.name, "in_use", problem)
            with self._use(connection, to_write=True):
                yield

    # --- events ----------------------------------------------------------------------------------------------------

    def append(
        self,
        events: Sequence[Event],
        snapshots: Sequence[tuple[int, Snapshot]] = (),
        erasures: Sequence[Erasure] = (),
        epochs: Mapping[int, int] = NO_EPOCHS,
    ) -> None:
        """Store events, snapshots by stream, and erasures: durable when this returns, or none of them.

        ``epochs``: by stream, the epoch of its shard in which the events were made. Raises :class:`FencedError` if one
        is over: then nothing was written. After any other error, it may have been.
        """
        with self._writing:
            try:
                with self.address.translate_errors(), check_replication(self._connect_writer()) as connection:
                    write_batch(connection, events, snapshots, [*erasures], epochs)
            except FencedError:
                raise
            except BaseException:
                self._drop_writer()
                raise

    def purge(self) -> bool:
        """Return True: nothing is left in the tables. PostgreSQL recycles its files and its log itself."""
        return True

    def _connect_writer(self) -> Connection:
        """Return the connection for events: a new one if the server has ended the last one."""
        if self.pool.is_closed:
            raise DatabaseError("the store is closed")
        if self._writer is None or not is_usable(self._writer):
            self._drop_writer()
            self._writer = self.address.connect(**self._settings)
            self._check_timeline(self._writer)
        return self._writer

    def _check_timeline(self, connection: Connection) -> None:
        """Raise once after a standby was promoted, or the database was recovered to an earlier time.

        Commits may be missing, and events that follow them must not be written: the streams have to be read again.
        """
        known, self._timeline = self._timeline, read_timeline(connection)
        if known is not None and self._timeline not in (None, known):
            raise DatabaseError("the database was promoted or recovered, and may have lost commits")

    def _drop_writer(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def read_acknowledged(self) -> None:
        """Return None: the database keeps what was committed, and there are no marks."""

    def mark_acknowledged(self, numbers: Mapping[int, int]) -> None:
        """Do nothing: there are no marks."""

    # --- streams ---------------------------------------------------------------------------------------------------

    def add_stream(
        self,
        name: str,
        created: float,
        config: str,
        *,
        most: int | None = None,
        epoch: int | None = None,
        id: int | None = None,
    ) -> StreamRow | None:
        """Return the new stream, None if the name is taken. Ids are never used again.

        ``id``: the one that it must have. Raises :class:`TooManyStreamsError` if the store has ``most`` streams, and
        :class:`FencedError` if ``epoch`` of the stream's shard is over.
        """
        with self._transaction() as connection:
            hold_lock(connection)  # or another node adds one after they are counted, or takes the id
            fence_shard(connection, shard_of(name, self.shards), epoch)
            ((is_taken, count),) = connection.execute(_COUNT, (name,)).fetchall()
            if is_taken:
                return None
            if most is not None and count >= most:
                raise TooManyStreamsError(most)
            return self._insert_stream(connection, id, name, created, config)

    def _insert_stream(
        self, connection: Connection, id_: int | None, name: str, created: float, config: str
    ) -> StreamRow:
        """Add a stream with this id, or a new one. The caller holds the lock of ids."""
        query = _NEXT_ID if id_ is None else _PASS_ID
        ((number,),) = connection.execute(query, {"id": id_}).fetchall()
        row: Any = seal_row("streams", number, name, float(created) + 0.0, config)
        values = (number, shard_of(name, self.shards), *row[1:])
        connection.execute("INSERT INTO streams VALUES (%s, %s, %s, %s, %s, %b)", values)
        return StreamRow._make(row)

    @contextlib.contextmanager
    def import_stream(self, row: StreamRow) -> Iterator[StreamImport]:
        """Add a stream of another store, with everything of it: durable at the end, or nothing if the block raises.

        This thread can read the stream before the end. No node may run; see :meth:`hold`. Raises :class:`StoreError`
        with code "exists" if the name is taken.
        """
        with self.hold(), self._transaction() as connection:
            hold_lock(connection)
            if self.find_stream(row.name) is not None:
                raise StoreError(self.name, "exists", f"has a stream named {row.name!r} already")
            ((is_taken,),) = connection.execute(_IS_TAKEN, {"id": row.id}).fetchall()
            copy = self._insert_stream(connection, None if is_taken else row.id, *row[1:4])
            yield StreamImport(copy, partial(insert_events, connection), partial(insert_states, connection, copy.id))

    def remove_stream(self, row: StreamRow, *, epoch: int | None = None) -> None:
        """Remove a stream with everything of it."""
        with self._transaction() as connection:
            fence_shard(connection, shard_of(row.name, self.shards), epoch, [row.id])
            connection.execute(f"SET LOCAL statement_timeout = {ERASE_MS}".encode())
            for table in ("events", "snapshots", "baselines"):
                connection.execute(f"DELETE FROM {table} WHERE stream = %s".encode(), (row.id,))
            connection.execute("DELETE FROM streams WHERE id = %s", (row.id,))
