"""The map of a cluster: its nodes, and the shards of streams that each of them owns."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterNode:
    """A node of a cluster, and the shards that it owns. ``streams``: their number, if it was asked for."""

    name: str
    url: str
    version: str
    shards: list[int]
    streams: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterInfo:
    """The nodes of a cluster as ``node`` sees them. A service on a file has no nodes and 0 shards."""

    node: str | None
    shards: int
    nodes: list[ClusterNode]
    unowned: list[int]


def shard_of(name: str, shards: int) -> int:
    """Return the shard of the stream ``name``, of ``shards``.

    Examples
    --------
    >>> shard_of("homepage", 64)
    33
    """
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8]) % shards
