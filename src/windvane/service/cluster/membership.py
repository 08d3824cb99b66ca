"""The lease protocol in SQL: which nodes are in the cluster, and which of them owns each shard.

Every operation is one statement on a connection in autocommit mode. It is therefore one transaction, which the server
finishes without the client: a process that is stopped half-way holds no lock. A statement that may wait for row locks
acquires them in the order of shards, and waits no longer than the ``lock_timeout`` of the connection.

A lease is a row of ``nodes``; :mod:`windvane.service.store.postgres.eviction` deletes expired ones. A shard gets a new
epoch whenever its owner changes, and no epoch is ever used again (see ``NEW_EPOCH`` in that module). Until they commit,
writers hold ``FOR SHARE`` locks on the rows of their shards, with a condition on the epoch. A statement that changes an
epoch waits for these writers, and afterwards nobody can write under the old epoch.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from windvane.service.cluster import statements
from windvane.service.cluster.shard_map import Holding, Node, ShardMap
from windvane.service.store.postgres.connections import Connection
from windvane.service.store.postgres.eviction import CHANNEL, MAX_LEASE_SECONDS

# --- nodes -----------------------------------------------------------------------------------------------------------


class JoinResult(NamedTuple):
    """The result of :func:`join`.

    Attributes
    ----------
    has_joined
        Whether the node is in the cluster now.
    format
        The format of the store.
    holder
        The other node that has the name, if any.
    remaining
        Seconds until the lease of ``holder`` expires; negative if it has expired.
    """

    has_joined: bool
    format: str | None
    holder: Node | None = None
    remaining: float = 0.0


def join(connection: Connection, node: Node, lease: float) -> JoinResult:
    """Add a node, unless the store has another format or a node with this name exists.

    A migration locks the row of the format while it changes it, so it and joining nodes wait for each other. Repeating
    this call with the same instance is harmless.
    """
    values = {**node._asdict(), "lease": lease, "channel": CHANNEL}
    rows = connection.execute(statements.JOIN, values).fetchall()
    stored = rows[0][0] if rows else None
    if stored != str(node.format):
        return JoinResult(False, stored)
    row = connection.execute(statements.FIND_HOLDER, (node.name, node.instance, node.instance)).fetchone()
    if row is None:  # the other node has left in the meantime
        return JoinResult(False, stored, None, 0.0)
    holder = Node(*row[:6])
    return JoinResult(holder.instance == node.instance, stored, holder, row[6])


def renew(connection: Connection, node: Node, lease: float) -> float | None:
    """Extend the lease of a node. Return the database's time, or None if the node was evicted.

    An expired lease may be extended as long as its row exists, because the shards still belong to the node.
    """
    row = connection.execute(statements.RENEW, (lease, node.url, node.instance)).fetchone()
    return None if row is None else row[0]


def leave(connection: Connection, instance: str) -> None:
    """Remove a node and free its shards, except those being written to at this moment: a later sweep frees them."""
    connection.execute(statements.LEAVE, {"instance": instance, "channel": CHANNEL})


def read_time(connection: Connection) -> float:
    """Return the Unix time of the database's clock."""
    row = connection.execute("SELECT extract(epoch FROM clock_timestamp())::double precision").fetchone()
    assert row is not None
    return float(row[0])


# --- the map ---------------------------------------------------------------------------------------------------------


class MapReading(NamedTuple):
    """The map, and whether it needs a repair.

    Attributes
    ----------
    map
        The map.
    instances
        The instances that have a row, including those whose leases have expired.
    needs_sweep
        Whether a lease has expired or is impossibly long, or a shard belongs to an instance without a row.
    next_expiry
        Seconds until the first lease of another node expires, unless it is renewed.
    remaining
        Seconds until the lease of each node expires, by instance.
    """

    map: ShardMap
    instances: frozenset[str]
    needs_sweep: bool
    next_expiry: float
    remaining: Mapping[str, float]


def read_map(connection: Connection, count: int, me: str = "") -> MapReading:
    """Read nodes and shards at one moment. Rows of shards beyond ``count`` are ignored."""
    holdings: dict[int, Holding] = {}
    nodes: dict[str, Node] = {}
    remaining: dict[str, float] = {}
    for shard, epoch, owner, *node, seconds in connection.execute(statements.READ, (count,)):
        if shard is not None:
            holdings[shard] = Holding(epoch, owner)
        if node[0] is not None:
            nodes[node[0]], remaining[node[0]] = Node(*node), seconds
    live = (node for instance, node in nodes.items() if remaining[instance] >= 0)
    others = [seconds for instance, seconds in remaining.items() if instance != me]
    owners = {holding.instance for holding in holdings.values()} - {None}
    needs_sweep = any(not 0 <= seconds <= MAX_LEASE_SECONDS for seconds in others) or not owners <= nodes.keys()
    shard_map = ShardMap.build(live, dict(sorted(holdings.items())))
    next_expiry = min(others, default=MAX_LEASE_SECONDS)
    return MapReading(shard_map, frozenset(nodes), needs_sweep, next_expiry, remaining)


def add_missing(connection: Connection, count: int) -> list[int]:
    """Add the missing rows of shards, as free shards. Return these shards."""
    return [shard for shard, _ in connection.execute(statements.ADD_MISSING, (count, CHANNEL))]


# --- shards ----------------------------------------------------------------------------------------------------------


def take(connection: Connection, count: int, instance: str, most: int) -> dict[int, int]:
    """Take up to ``most`` free shards. Return their new epochs. A node whose lease has expired takes none."""
    values = {"count": count, "instance": instance, "most": most, "channel": CHANNEL}
    return {shard: epoch for shard, epoch, _ in connection.execute(statements.TAKE, values)}


def retake(connection: Connection, count: int, instance: str, shards: Collection[int] | None = None) -> dict[int, int]:
    """Give new epochs to shards that the map assigns to this node, by default to all of them. Return these epochs.

    This waits for transactions that are writing under the old epochs. Afterwards nothing can be written under them.
    """
    wanted = None if shards is None else sorted(shards)
    values = {"count": count, "instance": instance, "shards": wanted, "channel": CHANNEL}
    return {shard: epoch for shard, epoch, _ in connection.execute(statements.RETAKE, values)}


def release(connection: Connection, instance: str, epochs: Mapping[int, int]) -> set[int]:
    """Free shards that this node owns under these epochs. Return those that were freed."""
    shards = sorted(epochs)
    numbers = [epochs[shard] for shard in shards]
    values = {"shards": shards, "epochs": numbers, "instance": instance, "channel": CHANNEL}
    return {shard for shard, _ in connection.execute(statements.RELEASE, values)}
