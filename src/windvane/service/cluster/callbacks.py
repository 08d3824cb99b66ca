"""What a member of the cluster calls when something has happened."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from windvane.service.cluster.shard_map import ShardMap


class Callbacks(NamedTuple):
    """What is called when something has happened.

    Attributes
    ----------
    on_taken
        With new epochs by shard.
    on_lost
        With shards that the node no longer owns.
    on_map
        With the map, when it has changed.
    on_excess
        With shards that the node should give up: write snapshots, then release them. They are proposed again if that
        takes longer than :data:`windvane.service.cluster.member.PROPOSE_AGAIN_SECONDS`.
    """

    on_taken: Callable[[Mapping[int, int]], object]
    on_lost: Callable[[frozenset[int]], object]
    on_map: Callable[[ShardMap], object]
    on_excess: Callable[[frozenset[int]], object]
