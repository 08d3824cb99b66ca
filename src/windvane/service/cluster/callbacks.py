"""The functions that a member of the cluster calls when its shards or the map change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from windvane.service.cluster.shard_map import ShardMap


class Callbacks(NamedTuple):
    """The functions to call when the shards of a node, or the map, change.

    Attributes
    ----------
    on_taken
        Called with the epochs of newly taken shards, by shard.
    on_lost
        Called with the shards that the node no longer owns.
    on_map
        Called with the map when it has changed.
    on_excess
        Called with shards that the node should release, after it has stored snapshots. The shards are proposed again if
        that takes longer than :data:`windvane.service.cluster.member.PROPOSE_AGAIN_SECONDS`.
    """

    on_taken: Callable[[Mapping[int, int]], object]
    on_lost: Callable[[frozenset[int]], object]
    on_map: Callable[[ShardMap], object]
    on_excess: Callable[[frozenset[int]], object]
