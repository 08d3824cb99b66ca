"""The map of a cluster: its nodes, the shards that each of them owns, and how many each should own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple


class Node(NamedTuple):
    """A server of the cluster.

    Attributes
    ----------
    instance
        The id of one membership. A node that was evicted joins again under a new instance.
    name, url
        The name that people use, and the address at which other nodes and clients reach it.
    version, format
        The version of windvane, and the format of the stores that it writes.
    joined
        When the node joined: Unix time in seconds, on the database's clock.
    """

    instance: str
    name: str
    url: str
    version: str
    format: int
    joined: float = 0.0


class Holding(NamedTuple):
    """The entry of a shard in the map: its epoch, and the instance that owns it, or None."""

    epoch: int
    instance: str | None


class ShardMap(NamedTuple):
    """The map at the moment when it was read.

    Attributes
    ----------
    nodes
        The nodes whose leases have not expired, oldest first.
    holdings
        The entries, by shard. A shard without a row in the database has none.
    owners
        The owners, by shard. A shard that has no owner, or whose owner is not among ``nodes``, is missing.
    """

    nodes: tuple[Node, ...] = ()
    holdings: Mapping[int, Holding] = {}
    owners: Mapping[int, Node] = {}

    @classmethod
    def build(cls, nodes: Iterable[Node], holdings: Mapping[int, Holding]) -> ShardMap:
        """Build the map from its rows."""
        ordered = tuple(sorted(nodes, key=lambda node: (node.joined, node.instance)))
        by_instance = {node.instance: node for node in ordered}
        owners = {
            shard: by_instance[holding.instance]
            for shard, holding in holdings.items()
            if holding.instance is not None and holding.instance in by_instance
        }
        return cls(ordered, holdings, owners)

    def find_node(self, instance: str) -> Node | None:
        """Return the node of an instance, None if its lease has expired."""
        return next((node for node in self.nodes if node.instance == instance), None)

    def find_free(self) -> list[int]:
        """Return the shards without an owner."""
        return [shard for shard, holding in self.holdings.items() if holding.instance is None]

    def find_missing(self, count: int) -> list[int]:
        """Return the shards below ``count`` that have no row."""
        return [shard for shard in range(count) if shard not in self.holdings]

    def compute_share(self, instance: str, count: int) -> int:
        """Return how many of ``count`` shards a node should own; 0 if it is not in the map.

        The shares add up to ``count``. If the division has a remainder, the oldest nodes own one shard more. So the
        share of a node never shrinks when another one leaves.
        """
        ranks = [node.instance for node in self.nodes]
        if instance not in ranks:
            return 0
        each, remainder = divmod(count, len(ranks))
        return each + (ranks.index(instance) < remainder)
