"""Remove the nodes of a cluster whose lease has run out, and fence what they were writing.

A lease is a row of ``nodes``. A node is deleted before its shards get new epochs, in one statement: a renewal that
finds no row means that the shards may belong to others.
"""

from __future__ import annotations

from typing import NamedTuple

from windvane.service.store.postgres.connections import Connection
from windvane.service.store.records import StoreError

CHANNEL = "windvane_cluster"
"""On which the nodes are told that the map of shards has changed."""
MOST_LEASE_SECONDS = 60.0
"""No lease is longer. :func:`sweep` shortens one that was edited by hand, or made before the clock was set back."""
ALL_SHARDS = 2**31 - 1  # the largest number of type integer
NEW_EPOCH = "((nextval('epochs') << 31) | floor(random() * 2147483648)::bigint)"
"""The next number of a sequence, and 31 random bits: no epoch is used again, even if an older backup, or the promotion
of a standby that was behind, sets the sequence and the shards back."""

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
    """The result of :func:`sweep`: the names of the nodes that were removed, and the shards that became free."""

    removed: list[str]
    freed: list[int]


def sweep(connection: Connection, count: int, me: str = "", *, wait: bool = False) -> Sweep:
    """Remove the nodes whose lease has run out, except ``me``, and free all shards whose node is gone.

    Without ``wait``, shards that are being written to are skipped: one writer must not hold up the others. A writer
    that never pauses would be skipped every time, so somebody must call this with ``wait`` in the end.
    """
    values = {"me": me, "count": count, "most": MOST_LEASE_SECONDS, "channel": CHANNEL}
    row = connection.execute((_SWEEP if wait else _SWEEP_SKIPPING).encode(), values).fetchone()
    assert row is not None
    return Sweep(row[0], row[1])


def expel_nodes(connection: Connection) -> dict[str, int]:
    """Remove the nodes whose lease has run out; return the formats that the others write, by their names.

    Call it first in a transaction, which must be READ COMMITTED. Until that ends, no node can join, and those that were
    removed can neither come back nor write: their shards have new epochs.
    """
    connection.execute("SELECT FROM meta WHERE name = 'format' FOR UPDATE")  # a node that joins takes a share of it
    sweep(connection, ALL_SHARDS, wait=True)
    return dict(connection.execute("SELECT name, format FROM nodes ORDER BY name").fetchall())


def check_migration(connection: Connection, where: str, format: int) -> None:
    """Expel nodes, in the transaction of a migration. Raise :class:`StoreError` if a node is running that cannot use a
    store of ``format``."""
    others = {name: old for name, old in expel_nodes(connection).items() if old != format}
    if others:
        names = ", ".join(f"{name} (format {old})" for name, old in others.items())
        problem = f"cannot be migrated to format {format} while nodes of another version run: {names}; stop them first"
        raise StoreError(where, "in_use", problem)
