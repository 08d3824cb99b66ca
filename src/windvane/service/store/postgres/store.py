"""The store in a PostgreSQL database: streams, their events, their last snapshots, and access tokens.

Several servers may use it at once. A transaction is durable when its commit returns (``synchronous_commit=on``). If the
connection is lost during a commit, its outcome is unknown: the caller must read the database before it writes again.
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
from windvane.service.store.postgres.connections import Address, Connection, check_replication
from windvane.service.store.postgres.eviction import evict_nodes
from windvane.service.store.postgres.lookups import Lookups
from windvane.service.store.postgres.pool import is_usable
from windvane.service.store.postgres.removal import delete_mark, delete_slice, list_removed, mark_removed
from windvane.service.store.postgres.schema import (
    TABLES,
    check_rights,
    connect_first,
    has_standby,
    hold_lock,
    open_tables,
    raise_store_errors,
    read_timeline,
    write_meta,
)
from windvane.service.store.postgres.tokens import PostgresTokens
from windvane.service.store.postgres.writing import (
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
"""Connections for reads and small changes. Most threads of the service borrow one at a time, and only for a moment."""

log = logging.getLogger("windvane.service")

_COUNT = "SELECT EXISTS (SELECT FROM streams WHERE name = %s), count(*) FROM streams"
_IS_TAKEN = """SELECT EXISTS (SELECT FROM streams WHERE id = %(id)s)
    OR EXISTS (SELECT FROM events WHERE stream = %(id)s)"""
_NEXT_ID = "SELECT nextval('stream_ids')"
_RESERVE_ID = """SELECT %(id)s::bigint FROM (
    SELECT setval('stream_ids', greatest(%(id)s, (SELECT last_value FROM stream_ids)))) AS passed"""


class PostgresStore(Lookups):
    """A store in a database. Any thread may use it; events are written by one thread at a time.

    Parameters
    ----------
    url
        ``postgresql://user:password@host:port/database?option=value``; see
        :class:`windvane.service.store.postgres.connections.Address`.
    shared
        Open the store beside running servers, to read it or to change tokens. It is not migrated or checked for damage.
    create
        Create the tables if they do not exist.
    read_only
        Write nothing.
    lazy
        Do not fail if the database cannot be reached now; call :meth:`open` to try again.
    needs_standby
        Refuse a database whose commits do not wait for a standby.
    connections
        The largest number of connections for reads and small changes. One more is used to write events.

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
        self._timeline: str | None = None  # of the write-ahead log, when the streams were read last
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
            if not self._is_shared:
                check_rights(self.address, connection)
            self.shards = open_tables(self.address, connection, create=self._creates, migrate=not self._is_shared)
            if self._needs_standby and not has_standby(connection):
                problem = "commits to no standby; set synchronous_standby_names in PostgreSQL, or start without --ha"
                raise StoreError(self.name, "no_standby", problem)
        if not self._is_shared:
            with raise_store_errors(self.address):
                self.repair(pages=False)
        self._is_open = True

    keys = None

    @property
    def cluster(self) -> PostgresStore:
        """The interface for nodes that share the store: the store itself."""
        return self

    def close(self) -> None:
        """Close all connections."""
        self.pool.close()
        with self._writing:
            self._drop_writer()

    # --- its state -------------------------------------------------------------------------------------------------

    def check_in_place(self) -> None:
        """Do nothing: unlike a file, a database cannot be moved away."""

    def check_writable(self) -> None:
        """Write without changing anything, over a new connection for events, to raise the errors that a commit would
        raise. Streams must be read again afterwards: see :meth:`_check_timeline`."""
        with self._writing:
            self._drop_writer()
            self._timeline = None
        with self._write() as connection:
            write_meta(connection, "probe", "")

    def find_damage(self, *, pages: bool = True) -> list[str]:
        """Return which tables, indexes and settings are missing or were changed.

        With ``pages``, also return the streams in a wrong shard, which no node would find. Pages are checked by
        PostgreSQL itself.
        """
        with self.reading() as connection:
            problems = find_damage(connection)
            if pages and not problems:
                rows = connection.execute("SELECT name, shard FROM streams ORDER BY id").fetchall()
                problems += [
                    f"the stream {name!r} is in shard {shard}, but belongs in shard {shard_of(name, self.shards)}"
                    for name, shard in rows
                    if shard != shard_of(name, self.shards)
                ]
        self.is_checked = True
        return problems

    def repair(self, *, pages: bool = True) -> list[str]:
        """Raise :class:`StoreError` if the structure is damaged: only the owner of the tables can repair it.

        If the only damage is in the setting that says whether requests need a token, set it so that they do.
        """
        problems = self.find_damage(pages=pages)
        if problems and "guarded" not in self.read_meta():
            log.error("%s: is damaged (%s); every request now needs a token", self.name, problems[0])
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
        """Open a transaction to change streams, settings or tokens; inside :meth:`hold`, a nested one."""
        if self._held is not None:
            with self._held.transaction():
                yield self._held
        else:
            with self.pool.borrow() as connection, check_replication(connection), connection.transaction():
                yield connection

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Keep nodes out of the cluster. All changes of this thread in the block are committed at its end, or none.

        Raises :class:`StoreError` with code "in_use" if a node is running, or another process holds the store.
        """
        if self._held is not None:
            yield
            return
        with (
            self.pool.borrow() as connection,
            connection.extend_timeout(),
            check_replication(connection),
            connection.transaction(),
        ):
            try:
                names = evict_nodes(connection)
            except psycopg.errors.LockNotAvailable:
                problem = "another command is changing it, or it is both the source and the target of this command"
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
        """Store events, snapshots by stream, and erasures, all or none. They are durable when this returns.

        ``epochs``: by stream, the epoch of its shard in which the events were made. Raises :class:`FencedError` if one
        of them has ended; nothing was written then. After any other error, everything or nothing may have been written.
        """
        with self._write() as connection:
            write_batch(connection, events, snapshots, [*erasures], epochs)

    @contextlib.contextmanager
    def _write(self) -> Iterator[Connection]:
        """Yield the connection for writing events to one thread at a time. Close it after an error."""
        with self._writing:
            try:
                with self.address.translate_errors():
                    connection = self._connect_writer()
                    with check_replication(connection):
                        yield connection
            except FencedError:
                raise
            except BaseException:
                if self._writer is not None and self._writer.closed:
                    self.pool.drop_idle()  # the cause may affect all connections
                self._drop_writer()
                raise

    def purge(self) -> bool:
        """Finish interrupted removals of streams. Return True, because nothing is left afterwards.

        PostgreSQL recycles its files and its write-ahead log itself.
        """
        with self.reading() as connection:
            streams = list_removed(connection)
        for stream in streams:
            self._delete_events(stream)
        return True

    def _connect_writer(self) -> Connection:
        """Return the connection for writing events. Reconnect if the server has closed it."""
        if self.pool.is_closed:
            raise DatabaseError("the store is closed")
        if self._writer is None or not is_usable(self._writer):
            self._drop_writer()
            self._writer = self.address.connect(**self._settings)
            self._check_timeline(self._writer)
        return self._writer

    def _check_timeline(self, connection: Connection) -> None:
        """Raise once after a standby was promoted or the database was recovered to an earlier time.

        Commits may be missing then. Events that follow them must not be written, so the streams have to be read again.
        """
        known, self._timeline = self._timeline, read_timeline(connection)
        if known is not None and self._timeline not in (None, known):
            raise DatabaseError("a standby was promoted or the database was recovered: it may have lost commits")

    def _drop_writer(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def read_acknowledged(self) -> None:
        """Return None: there are no marks, because the database does not lose commits."""

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
        """Add a stream and return it, or None if the name is taken. Ids are never used again.

        ``id``: the id to use. Raises :class:`TooManyStreamsError` if the store already has ``most`` streams, and
        :class:`FencedError` if ``epoch`` of the stream's shard has ended.
        """
        with self._transaction() as connection:
            hold_lock(connection)  # so that no other node adds a stream after the count, or takes the id
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
        """Add a stream with the given or a new id. The caller must hold :data:`LOCK`."""
        query = _NEXT_ID if id_ is None else _RESERVE_ID
        ((number,),) = connection.execute(query, {"id": id_}).fetchall()
        row: Any = seal_row("streams", number, name, float(created) + 0.0, config)
        values = (number, shard_of(name, self.shards), *row[1:])
        connection.execute("INSERT INTO streams VALUES (%s, %s, %s, %s, %s, %b)", values)
        return StreamRow._make(row)

    @contextlib.contextmanager
    def import_stream(self, row: StreamRow) -> Iterator[StreamImport]:
        """Add a stream of another store with all of its data. It is durable after the block, or absent if that raises.

        Inside the block, this thread can already read the stream. No node may be running; see :meth:`hold`. Raises
        :class:`StoreError` with code "exists" if the name is taken.
        """
        with self.hold(), self._transaction() as connection:
            hold_lock(connection)
            if self.find_stream(row.name) is not None:
                raise StoreError(self.name, "exists", f"already has a stream named {row.name!r}")
            ((is_taken,),) = connection.execute(_IS_TAKEN, {"id": row.id}).fetchall()
            copy = self._insert_stream(connection, None if is_taken else row.id, *row[1:4])
            yield StreamImport(copy, partial(insert_events, connection), partial(insert_states, connection, copy.id))

    def begin_removal(self, row: StreamRow, *, epoch: int | None = None) -> None:
        """Remove a stream but not its events, which :meth:`purge` deletes. The removal is durable when this returns.

        Raises :class:`FencedError` if ``epoch`` of the stream's shard has ended.
        """
        with self._transaction() as connection:
            fence_shard(connection, shard_of(row.name, self.shards), epoch, [row.id])
            mark_removed(connection, row.id)

    def remove_stream(self, row: StreamRow) -> None:
        """Remove a stream with everything of it. After an error it is whole, or :meth:`purge` deletes what is left."""
        self.begin_removal(row)
        self._delete_events(row.id)

    def _delete_events(self, stream: int) -> None:
        """Delete the events of a removed stream in slices, each in its own transaction."""
        last: int | None = 0
        while last is not None:
            with self._transaction() as connection, connection.extend_timeout():
                last = delete_slice(connection, stream, last)
        with self._transaction() as connection:
            delete_mark(connection, stream)
