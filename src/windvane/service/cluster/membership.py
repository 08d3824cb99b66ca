"""The lease protocol in SQL: who is in the cluster, and who owns which shard.

Every operation is one statement on a connection in autocommit mode, and so one transaction that the server finishes
without the client: a process that is stopped half-way keeps no lock. A statement that may wait for a row locks rows in
the order of shards, and waits no longer than the ``lock_timeout`` of the connection.

A lease is a row of ``nodes``; :mod:`windvane.service.store.postgres.expulsion` removes those that have run out. An
epoch is drawn whenever the owner of a shard changes, and is never used again (``NEW_EPOCH`` there). Writers hold
``FOR SHARE`` on the rows of their shards until they commit, with a condition on the epoch: what changes an epoch waits
for them, and nobody can write under an old one afterwards.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from windvane.service.cluster import statements
from windvane.service.cluster.shard_map import Holding, Node, ShardMap
from windvane.service.store.postgres.connections import Connection
from windvane.service.store.postgres.expulsion import CHANNEL, MOST_LEASE_SECONDS

# --- nodes -----------------------------------------------------------------------------------------------------------


class Join(NamedTuple):
    """The result of :func:`join`.

    Attributes
    ----------
    has_joined
        Whether the node is in the cluster now.
    format
        The format of the store.
    holder
        The node that has the name, if another one has.
    remaining
        Seconds until the lease of ``holder`` runs out; negative if it has.
    """

    has_joined: bool
    format: str | None
    holder: Node | None = None
    remaining: float = 0.0


def join(connection: Connection, node: Node, lease: float) -> Join:
    """Add a node, unless the store has another format, or a node of this name exists.

    A migration changes the format under a lock of its row: it waits for nodes that join, or they for it. To repeat this
    with the same instance is harmless.
    """
    values = {**node._asdict(), "lease": lease, "channel": CHANNEL}
    rows = connection.execute(statements.JOIN, values).fetchall()
    stored = rows[0][0] if rows else None
    if stored != str(node.format):
        return Join(False, stored)
    row = connection.execute(statements.FIND_HOLDER, (node.name, node.instance, node.instance)).fetchone()
    if row is None:  # the holder of the name has left in between
        return Join(False, stored, None, 0.0)
    holder = Node(*row[:6])
    return Join(holder.instance == node.instance, stored, holder, row[6])


def renew(connection: Connection, node: Node, lease: float) -> float | None:
    """Extend the lease of a node; return the database's time, or None if the node was expelled.

    A lease that has run out may be extended as long as the row exists: the shards still belong to the node.
    """
    row = connection.execute(statements.RENEW, (lease, node.url, node.instance)).fetchone()
    return None if row is None else row[0]


def leave(connection: Connection, instance: str) -> None:
    """Remove a node and free its shards. Shards that are being written to at this moment are left to a sweep."""
    connection.execute(statements.LEAVE, {"instance": instance, "channel": CHANNEL})


def read_time(connection: Connection) -> float:
    """Return the database's time in seconds since 1970."""
    row = connection.execute("SELECT extract(epoch FROM clock_timestamp())::double precision").fetchone()
    assert row is not None
    return float(row[0])


# --- the map ---------------------------------------------------------------------------------------------------------


class Reading(NamedTuple):
    """The map, and what is wrong with it.

    Attributes
    ----------
    map
        The map.
    present
        The instances that have a row, also those whose lease has run out.
    needs_sweep
        Whether a lease has run out or is impossibly long, or a shard belongs to a node that is gone.
    next_expiry
        Seconds until the next lease of another node runs out, unless it is renewed.
    """

    map: ShardMap
    present: frozenset[str]
    needs_sweep: bool
    next_expiry: float


def read_map(connection: Connection, count: int, me: str = "") -> Reading:
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
    needs_sweep = any(not 0 <= seconds <= MOST_LEASE_SECONDS for seconds in others) or not owners <= nodes.keys()
    shard_map = ShardMap.build(live, dict(sorted(holdings.items())))
    return Reading(shard_map, frozenset(nodes), needs_sweep, min(others, default=MOST_LEASE_SECONDS))


def add_missing(connection: Connection, count: int) -> list[int]:
    """Add the rows of shards that have none, as free shards; return these shards."""
    return [shard for shard, _ in connection.execute(statements.ADD_MISSING, (count, CHANNEL))]


# --- shards ----------------------------------------------------------------------------------------------------------


def take(connection: Connection, count: int, instance: str, most: int) -> dict[int, int]:
    """Take up to ``most`` free shards; return their new epochs. A node whose lease has run out takes none."""
    values = {"count": count, "instance": instance, "most": most, "channel": CHANNEL}
    return {shard: epoch for shard, epoch, _ in connection.execute(statements.TAKE, values)}


def retake(connection: Connection, count: int, instance: str, shards: Collection[int] | None = None) -> dict[int, int]:
    """Take shards that the map gives to this node again, all or some of them; return their new epochs.

    This waits for transactions that write under the old epochs. Afterwards nothing more can be written under them.
    """
    wanted = None if shards is None else sorted(shards)
    values = {"count": count, "instance": instance, "shards": wanted, "channel": CHANNEL}
    return {shard: epoch for shard, epoch, _ in connection.execute(statements.RETAKE, values)}


def release(connection: Connection, instance: str, epochs: Mapping[int, int]) -> set[int]:
    """Free shards that this node owns under these epochs; return those that became free."""
    shards = sorted(epochs)
    numbers = [epochs[shard] for shard in shards]
    values = {"shards": shards, "epochs": numbers, "instance": instance, "channel": CHANNEL}
    return {shard for shard, _ in connection.execute(statements.RELEASE, values)}
