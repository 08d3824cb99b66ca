"""Add streams, in the transaction of the caller."""

from __future__ import annotations

from functools import partial
from typing import Any

from windvane.cluster_map import shard_of
from windvane.service.store.postgres.connections import Connection
from windvane.service.store.postgres.schema import hold_lock
from windvane.service.store.postgres.writing import fence_shard, insert_events, insert_states
from windvane.service.store.records import StoreError, StreamImport, StreamRow, TooManyStreamsError, seal_row

_COUNT = "SELECT EXISTS (SELECT FROM streams WHERE name = %s), count(*) FROM streams"
_IS_TAKEN = """SELECT EXISTS (SELECT FROM streams WHERE id = %(id)s)
    OR EXISTS (SELECT FROM events WHERE stream = %(id)s)"""
_NEXT_ID = "SELECT nextval('stream_ids')"
_RESERVE_ID = """SELECT %(id)s::bigint FROM (
    SELECT setval('stream_ids', greatest(%(id)s, (SELECT last_value FROM stream_ids)))) AS passed"""


def add_stream(
    connection: Connection,
    shards: int,
    name: str,
    created: float,
    config: str,
    *,
    most: int | None,
    epoch: int | None,
    id: int | None,
) -> StreamRow | None:
    """Add a stream to a store with ``shards`` shards. See :meth:`windvane.service.store.EventStore.add_stream`."""
    hold_lock(connection)  # so that no other node adds a stream after the count, or takes the id
    fence_shard(connection, shard_of(name, shards), epoch)
    is_taken, count = _count(connection, name)
    if is_taken:
        return None
    if most is not None and count >= most:
        raise TooManyStreamsError(most)
    return _insert(connection, shards, id, name, created, config)


def begin_import(connection: Connection, where: str, shards: int, row: StreamRow) -> StreamImport:
    """Add a stream of another store, whose data follow in the same transaction.

    Raises :class:`StoreError` with code "exists" if the name is taken. ``where``: the address of the store.
    """
    hold_lock(connection)
    is_taken, _ = _count(connection, row.name)
    if is_taken:
        raise StoreError(where, "exists", f"already has a stream named {row.name!r}")
    ((is_id_taken,),) = connection.execute(_IS_TAKEN, {"id": row.id}).fetchall()
    copy = _insert(connection, shards, None if is_id_taken else row.id, *row[1:4])
    return StreamImport(copy, partial(insert_events, connection), partial(insert_states, connection, copy.id))


def _count(connection: Connection, name: str) -> tuple[bool, int]:
    """Return whether a name is taken, and the number of streams."""
    ((is_taken, count),) = connection.execute(_COUNT, (name,)).fetchall()
    return is_taken, count


def _insert(connection: Connection, shards: int, id_: int | None, name: str, created: float, config: str) -> StreamRow:
    """Add a stream with the given or a new id. The caller must hold the lock."""
    query = _NEXT_ID if id_ is None else _RESERVE_ID
    ((number,),) = connection.execute(query, {"id": id_}).fetchall()
    row: Any = seal_row("streams", number, name, float(created) + 0.0, config)
    values = (number, shard_of(name, shards), *row[1:])
    connection.execute("INSERT INTO streams VALUES (%s, %s, %s, %s, %s, %b)", values)
    return StreamRow._make(row)
