"""The cluster over HTTP: its map, and lists that are merged from all nodes."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from fastapi import Request

from windvane import records
from windvane.cluster_map import ClusterInfo, ClusterNode
from windvane.records import to_plain
from windvane.service.cluster.placement import ElsewhereError
from windvane.service.engine import Engine
from windvane.service.http.forwarding import IS_FORWARDED, Forwarder
from windvane.service.problems import Problem
from windvane.service.store import STORE_ERRORS
from windvane.service.streams import Stream
from windvane.service.turns import Pauses, wait_while_changing

if TYPE_CHECKING:
    from windvane.service.cluster.keeper import Keeper

LIST_SECONDS = 5.0  # how long other nodes may take to return their lists
NOT_SERVED = "no node serves this stream now, or its node has not answered; try again"


def describe_cluster(engine: Engine) -> ClusterInfo:
    """Return the nodes and the shards that each of them owns. A service on a file has no nodes."""
    placement = engine.placement
    if placement is None or placement.keeper is None:
        return ClusterInfo(node=None if placement is None else placement.node.name, shards=0, nodes=[], unowned=[])
    map_ = placement.keeper.map
    nodes = [
        ClusterNode(
            name=node.name,
            url=node.url,
            version=node.version,
            shards=sorted(shard for shard, owner in map_.owners.items() if owner.instance == node.instance),
        )
        for node in sorted(map_.nodes, key=lambda node: node.name)
    ]
    unowned = sorted(set(range(placement.store.shards)) - map_.owners.keys())
    return ClusterInfo(node=placement.node.name, shards=placement.store.shards, nodes=nodes, unowned=unowned)


async def count_streams(engine: Engine, info: ClusterInfo) -> ClusterInfo:
    """Add the number of streams of every node, unless the database cannot be read."""
    if not info.nodes or engine.failure is not None or engine.placement is None:
        return info
    with contextlib.suppress(*STORE_ERRORS):
        counts = await asyncio.to_thread(engine.placement.store.count_streams)
        nodes = [
            dataclasses.replace(node, streams=sum(counts.get(shard, 0) for shard in node.shards)) for node in info.nodes
        ]
        return dataclasses.replace(info, nodes=nodes)
    return info


async def list_streams(request: Request, engine: Engine, limit: int, after: str) -> dict[str, Any]:
    """Return a page of the list of streams. In a cluster, every node lists its own streams.

    If no list covers a shard, because a node does not answer or the shard is moving, its streams are unavailable.
    """
    own, placement = await _list_own(engine, limit, after), engine.placement
    if placement is None or placement.keeper is None or request.scope.get(IS_FORWARDED):
        return own
    parts = [own, *await _ask_others(request, placement.keeper, limit, after)]
    missing = set(range(placement.store.shards)).difference(*(part["shards"] for part in parts))
    rows = await asyncio.to_thread(placement.store.read_streams, missing) if missing else []
    return merge_lists(parts, [{"name": row.name, "reason": NOT_SERVED} for row in rows], limit)


def merge_lists(parts: Sequence[Mapping[str, Any]], unserved: Iterable[dict[str, str]], limit: int) -> dict[str, Any]:
    """Merge the pages of several nodes, which begin at the same name, and the unserved streams into one page.

    A page that was cut off has a name ``next``, after which its node has more streams. The merged page therefore ends
    at the first of these names.
    """
    streams = {stream["name"]: stream for part in parts for stream in part["streams"]}
    entries = [*(entry for part in parts for entry in part["unavailable"]), *unserved]
    unavailable = {entry["name"]: entry for entry in entries if entry["name"] not in streams}
    end = min((part["next"] for part in parts if part["next"] is not None), default=None)
    names = sorted(name for name in streams if end is None or name <= end)
    page = names[:limit]
    return {
        "streams": [streams[name] for name in page],
        "next": page[-1] if len(names) > limit else end,
        "unavailable": list(unavailable.values()),
    }


async def _ask_others(request: Request, keeper: Keeper, limit: int, after: str) -> list[dict[str, Any]]:
    """Return the lists of the other nodes that answer."""
    forwarder: Forwarder = request.app.state.others.forwarder
    target = f"/v1/streams?{urlencode({'limit': limit, 'after': after})}"
    others = [ElsewhereError(node) for node in keeper.map.nodes if node.instance != keeper.node.instance]
    asked = (forwarder.ask(node, target, request.scope, LIST_SECONDS) for node in others)
    answers = await asyncio.gather(*asked, return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException) and not isinstance(answer, Problem):
            raise answer
    return [answer for answer in answers if isinstance(answer, dict)]


async def _list_own(engine: Engine, limit: int, after: str) -> dict[str, Any]:
    """Return the streams of this node and, in a cluster, the shards that the list covers."""
    placement = engine.placement
    before = {} if placement is None else placement.list_known()
    names = sorted(name for name in engine.rows if name > after and name not in engine.unavailable)
    page: list[Any] = []
    pauses = Pauses(engine.turnstile)
    for name in names[:limit]:
        if name in engine.rows:  # the stream has not been removed since
            try:
                stream = await engine.find(name)
            except ElsewhereError:
                continue
            except Problem:
                if name in engine.unavailable:  # it could not be loaded, and is listed as unavailable
                    continue
                if placement is None or placement.is_current(name, before.get(placement.shard_of(name))):
                    raise
                continue
            await wait_while_changing(stream)
            page.append(to_plain(_summarise(stream)))
        await pauses.take()
    unavailable = [{"name": name, "reason": reason} for name, reason in engine.unavailable.items()]
    more = names[limit - 1] if len(names) > limit else None
    part: dict[str, Any] = {"streams": page, "next": more, "unavailable": unavailable}
    if placement is not None:
        now = placement.list_known()
        part["shards"] = [shard for shard, epoch in before.items() if now.get(shard) == epoch]
    return part


def _summarise(stream: Stream) -> records.StreamSummary:
    core = stream.core
    counts, alerts = core.counts, core.alerts
    return records.StreamSummary(
        **stream.describe(), policy=core.policy.name, counts=counts, mean_reward=core.mean_reward, alerts=alerts
    )
