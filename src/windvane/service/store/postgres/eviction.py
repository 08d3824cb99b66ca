"""Evict the nodes of a cluster whose leases have expired, and fence their writes.

A lease is a row of ``nodes``. One statement deletes the row of a node and then gives its shards new epochs. If a
renewal finds no row, the shards may already belong to other nodes.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import psycopg

from windvane.service.store.postgres.connections import Connection
from windvane.service.store.records import StoreError

CHANNEL = "windvane_cluster"
"""The channel on which nodes are notified that the map of shards has changed."""
MAX_LEASE_SECONDS = 60.0
"""The longest lease. :func:`sweep` shortens longer ones, which were edited by hand or predate a clock set back."""
ALL_SHARDS = 2**31 - 1  # the largest number of type integer
NEW_EPOCH = "((nextval('epochs') << 31) | floor(random() * 2147483648)::bigint)"
"""SQL for a new epoch: the next number of a sequence, followed by 31 random bits. No epoch is used again, even if the
restore of an older backup, or the promotion of a standby that was behind, sets the sequence and the shards back."""

_SWEEP = f"""
WITH expired AS (
    SELECT instance FROM nodes WHERE lease_until < clock_timestamp() AND instance <> %(me)s
    ORDER BY instance FOR UPDATE SKIP LOCKED),
gone AS (DELETE FROM nodes USING expired WHERE nodes.instance = expired.instance RETURNING nodes.instance, nodes.name),
shortened AS (
    UPDATE nodes SET lease_until = clock_timestamp() + make_interval(secs => %(most)s)
    WHERE lease_until > clock_timestamp() + make_interval(secs => %(most)s) RETURNING nodes.instance),
orphans AS MATERIALIZED (
    SELECT shard, epoch FROM shards
    WHERE node IS NOT NULL AND shard >= 0 AND shard < %(count)s
    AND (node IN (SELECT instance FROM gone) OR NOT EXISTS (SELECT FROM nodes WHERE nodes.instance = shards.node))),
locked AS (
    SELECT shards.shard FROM shards JOIN orphans ON shards.shard = orphans.shard AND shards.epoch = orphans.epoch
    ORDER BY shards.shard FOR UPDATE OF shards),
freed AS (
    UPDATE shards SET node = NULL, epoch = {NEW_EPOCH} FROM locked WHERE shards.shard = locked.shard
    RETURNING shards.shard),
changes AS (SELECT count(*) AS number FROM (SELECT instance FROM gone UNION ALL SELECT shard::text FROM freed) AS a)
SELECT array(SELECT name FROM gone ORDER BY name), array(SELECT shard FROM freed ORDER BY shard),
       (SELECT count(*) FROM shortened),
       CASE WHEN number > 0 THEN pg_notify(%(channel)s, '') END FROM changes
"""
_SWEEP_SKIPPING = _SWEEP.replace("FOR UPDATE OF shards)", "FOR UPDATE OF shards SKIP LOCKED)")


class Sweep(NamedTuple):
    """The result of :func:`sweep`: the names of the evicted nodes, and the shards that were freed."""

    removed: list[str]
    freed: list[int]


def sweep(connection: Connection, count: int, me: str = "", *, wait: bool = False) -> Sweep:
    """Evict the nodes whose leases have expired, except ``me``, and free all shards whose owner has no row.

    Without ``wait``, shards that are being written to are skipped, so that one writer does not delay the others. A
    writer that never pauses would be skipped every time, so a caller must use ``wait`` eventually.
    """
    values = {"me": me, "count": count, "most": MAX_LEASE_SECONDS, "channel": CHANNEL}
    row = connection.execute((_SWEEP if wait else _SWEEP_SKIPPING).encode(), values).fetchone()
    assert row is not None
    return Sweep(row[0], row[1])


def evict_nodes(connection: Connection) -> dict[str, int]:
    """Evict the nodes whose leases have expired. Return the formats of the other nodes, by name.

    This must come first in a READ COMMITTED transaction. Until the transaction ends, no node can join, and the evicted
    nodes can neither return nor write, because their shards have new epochs.
    """
    connection.execute("SELECT FROM meta WHERE name = 'format' FOR UPDATE")  # joining nodes lock this row FOR SHARE
    sweep(connection, ALL_SHARDS, wait=True)
    return dict(connection.execute("SELECT name, format FROM nodes ORDER BY name").fetchall())


def keep_nodes_out(connection: Connection, where: str) -> None:
    """Evict nodes with expired leases, and keep others out of the cluster until the end of the transaction.

    Raises :class:`StoreError` with code "in_use" if a node is running, or another process does the same.
    """
    try:
        names = evict_nodes(connection)
    except psycopg.errors.LockNotAvailable:
        problem = "another command is changing it, or it is both the source and the target of this command"
        raise StoreError(where, "in_use", problem) from None
    _refuse_nodes(where, names)


def check_quiescence(connection: Connection, where: str) -> None:
    """Raise :class:`StoreError` if a node is running, or if the database is a standby, which may lack commits.

    This only reads: nodes can join afterwards.
    """
    ((is_standby,),) = connection.execute("SELECT pg_is_in_recovery()").fetchall()
    if is_standby:
        raise StoreError(where, "refused", "is a standby, which may lack commits; name the primary in the address")
    running = "SELECT name FROM nodes WHERE lease_until >= clock_timestamp() ORDER BY name"
    _refuse_nodes(where, [name for (name,) in connection.execute(running)])


def _refuse_nodes(where: str, names: Collection[str]) -> None:
    if names:
        raise StoreError(where, "in_use", f"is served by the nodes {', '.join(names)}; stop them first")


def check_migration(connection: Connection, where: str, format: int) -> None:
    """Evict nodes with expired leases, in the transaction of a migration to ``format``.

    Raises :class:`StoreError` if a node that writes another format is running.
    """
    others = {name: old for name, old in evict_nodes(connection).items() if old != format}
    if others:
        names = ", ".join(f"{name} (format {old})" for name, old in others.items())
        problem = f"cannot be migrated to format {format} while nodes of another version run: {names}; stop them first"
        raise StoreError(where, "in_use", problem)
