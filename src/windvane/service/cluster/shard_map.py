"""The map of a cluster: its nodes, which of them owns which shard, and how many each should own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple


class Node(NamedTuple):
    """A server of the cluster.

    Attributes
    ----------
    instance
        Names one membership: a node that was expelled joins again under a new one.
    name, url
        What people call it, and where the other nodes and clients reach it.
    version, format
        Of windvane, and of the stores that it writes.
    joined
        When it joined, in seconds since 1970 on the database's clock.
    """

    instance: str
    name: str
    url: str
    version: str
    format: int
    joined: float = 0.0


class Holding(NamedTuple):
    """What the map says about a shard: its epoch, and the instance that owns it (None: nobody)."""

    epoch: int
    instance: str | None


class ShardMap(NamedTuple):
    """The map as it was read.

    Attributes
    ----------
    nodes
        The nodes whose lease has not run out, the oldest first.
    holdings
        By shard. A shard is missing if its row is.
    owners
        By shard, its owner. A shard is missing if nobody owns it, or a node that is gone.
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
        """Return the node of an instance, None if its lease has run out."""
        return next((node for node in self.nodes if node.instance == instance), None)

    def find_free(self) -> list[int]:
        """Return the shards that nobody owns."""
        return [shard for shard, holding in self.holdings.items() if holding.instance is None]

    def find_missing(self, count: int) -> list[int]:
        """Return the shards of ``count`` that have no row."""
        return [shard for shard in range(count) if shard not in self.holdings]

    def compute_share(self, instance: str, count: int) -> int:
        """Return how many of ``count`` shards a node should own; 0 if it is not in the map.

        The shares add up to ``count``, so that a share never has to be rounded up and no shard is left over. The oldest
        nodes own one more where the division has a remainder: the share of a node never shrinks when another leaves.
        """
        ranks = [node.instance for node in self.nodes]
        if instance not in ranks:
            return 0
        each, remainder = divmod(count, len(ranks))
        return each + (ranks.index(instance) < remainder)
