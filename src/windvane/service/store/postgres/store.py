"""The store in a PostgreSQL database: streams, their events, their last snapshots, and access tokens.

Several servers may use it at once. A transaction is durable when its commit returns (``synchronous_commit=on``). If the
connection is lost during a commit, its outcome is unknown: the caller must read the database before it writes again.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence

from windvane.cluster_map import shard_of
from windvane.service.store.events import Event
from windvane.service.store.postgres.catalogue import find_damage
from windvane.service.store.postgres.connections import Address, Connection, check_replication
from windvane.service.store.postgres.event_writer import EventWriter
from windvane.service.store.postgres.eviction import check_quiescence, keep_nodes_out
from windvane.service.store.postgres.lookups import Lookups
from windvane.service.store.postgres.new_streams import add_stream, begin_import
from windvane.service.store.postgres.removal import delete_events, list_removed, mark_removed
from windvane.service.store.postgres.schema import (
    TABLES,
    check_rights,
    connect_first,
    has_standby,
    open_tables,
    raise_store_errors,
    write_meta,
)
from windvane.service.store.postgres.tokens import PostgresTokens
from windvane.service.store.postgres.writing import fence_shard, write_batch
from windvane.service.store.protocol import NO_EPOCHS, never
from windvane.service.store.records import Erasure, Snapshot, StoreError, StreamImport, StreamRow

CONNECTIONS = 8
"""Connections for reads and small changes. Most threads of the service borrow one at a time, and only for a moment."""

log = logging.getLogger("windvane.service")


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
        Refuse to open a database whose commits do not wait for a standby. Later only log it: see :attr:`lacks_standby`.
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
        self._is_shared, self._is_read_only, self._creates = shared, read_only, create and not read_only
        self._is_open = False
        self._needs_standby, self.shards = needs_standby, 0
        self.tokens = PostgresTokens(self.query, self._transaction)
        self._writer = EventWriter(self.pool, needs_standby=needs_standby, **self._settings)
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
            self._writer.note_timeline(connection)
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

    @property
    def lacks_standby(self) -> bool | None:
        """Whether a standby is needed, but commits wait for none any more; None if no standby is needed."""
        return self._writer.lacks_standby

    def close(self) -> None:
        """Close all connections."""
        self.pool.close()
        self._writer.close()

    # --- its state -------------------------------------------------------------------------------------------------

    def check_in_place(self) -> None:
        """Do nothing: unlike a file, a database cannot be moved away."""

    def check_writable(self) -> None:
        """Write without changing anything, over a new connection for events, to raise the errors that a commit would
        raise. Streams must be read again afterwards: see :meth:`EventWriter.connect`."""
        self._writer.start_anew()
        with self._writer.connect() as connection:
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

        A store that was opened read-only cannot do that: it reads its state of now, in which no node may run.

        Raises :class:`StoreError` with code "in_use" if a node is running, or another process holds the store.
        """
        if self._held is not None:
            yield
            return
        if self._is_read_only:
            with self.read_transaction():
                with self.reading() as connection:
                    check_quiescence(connection, self.name)
                yield
            return
        with (
            self.pool.borrow() as connection,
            connection.extend_timeout(),
            check_replication(connection),
            connection.transaction(),
        ):
            keep_nodes_out(connection, self.name)
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
        with self._writer.connect() as connection:
            write_batch(connection, events, snapshots, [*erasures], epochs)

    def purge(self, is_stopping: Callable[[], bool] = never) -> bool:
        """Finish interrupted removals of streams. Return whether nothing is left; False only if ``is_stopping()``.

        PostgreSQL recycles its files and its write-ahead log itself.
        """
        with self.reading() as connection:
            streams = list_removed(connection)
        return all(delete_events(self._transaction, stream, is_stopping) for stream in streams)

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
            return add_stream(connection, self.shards, name, created, config, most=most, epoch=epoch, id=id)

    @contextlib.contextmanager
    def import_stream(self, row: StreamRow) -> Iterator[StreamImport]:
        """Add a stream of another store with all of its data. It is durable after the block, or absent if that raises.

        Inside the block, this thread can already read the stream. No node may be running; see :meth:`hold`. Raises
        :class:`StoreError` with code "exists" if the name is taken.
        """
        with self.hold(), self._transaction() as connection:
            yield begin_import(connection, self.name, self.shards, row)

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
        delete_events(self._transaction, row.id)
