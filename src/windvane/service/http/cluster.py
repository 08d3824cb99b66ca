"""The cluster over HTTP: its map, and lists that concern all of its nodes."""

from __future__ import annotations

import asyncio
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
from windvane.service.streams import Stream
from windvane.service.turns import Pauses, wait_while_changing

if TYPE_CHECKING:
    from windvane.service.cluster.keeper import Keeper


def describe_cluster(engine: Engine) -> ClusterInfo:
    """Return the nodes and the shards that each of them owns; a service on a file is no cluster."""
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
    unowned = sorted(set(range(placement.shards)) - map_.owners.keys())
    return ClusterInfo(node=placement.node.name, shards=placement.shards, nodes=nodes, unowned=unowned)


async def list_streams(request: Request, engine: Engine, limit: int, after: str) -> dict[str, Any]:
    """Return a page of the list of streams. In a cluster, every node lists its own streams."""
    own = await _list_own(engine, limit, after)
    if engine.placement is None or engine.placement.keeper is None or request.scope.get(IS_FORWARDED):
        return own
    keeper = engine.placement.keeper
    others, failed = await _ask_others(request, keeper, limit, after)
    owners = {shard: node.instance for shard, node in keeper.map.owners.items()}
    missing = [shard for shard in range(engine.placement.shards) if owners.get(shard) in (None, *failed)]
    unavailable = [entry for part in (own, *others) for entry in part["unavailable"]]
    if missing:
        rows = await asyncio.to_thread(engine.store.read_streams, missing)
        reason = "the node that owns it does not answer, or no node does"
        unavailable += [{"name": row.name, "reason": reason} for row in rows]
    streams = sorted((stream for part in (own, *others) for stream in part["streams"]), key=lambda one: one["name"])
    has_more = len(streams) > limit or any(part["next"] is not None for part in (own, *others))
    page = streams[:limit]
    return {"streams": page, "next": page[-1]["name"] if has_more and page else None, "unavailable": unavailable}


async def _ask_others(
    request: Request, keeper: Keeper, limit: int, after: str
) -> tuple[list[dict[str, Any]], set[str]]:
    """Return the lists of the other nodes, and the instances of the nodes that do not answer."""
    forwarder: Forwarder = request.app.state.forwarder
    target = f"/v1/streams?{urlencode({'limit': limit, 'after': after})}"
    nodes = [node for node in keeper.map.nodes if node.instance != keeper.node.instance]
    asked = (forwarder.ask(ElsewhereError(node.name, node.url), target, request.scope) for node in nodes)
    answers = await asyncio.gather(*asked, return_exceptions=True)
    failed = {node.instance for node, answer in zip(nodes, answers, strict=True) if isinstance(answer, Problem)}
    for answer in answers:
        if isinstance(answer, BaseException) and not isinstance(answer, Problem):
            raise answer
    return [answer for answer in answers if isinstance(answer, dict)], failed


async def _list_own(engine: Engine, limit: int, after: str) -> dict[str, Any]:
    names = sorted(name for name in engine.rows if name > after and name not in engine.unavailable)
    page: list[Any] = []
    pauses = Pauses(engine.turnstile)
    for name in names[:limit]:
        if name in engine.rows:  # still
            stream = await engine.find(name)
            await wait_while_changing(stream)
            page.append(to_plain(_summarise(stream)))
        await pauses.take()
    unavailable = [{"name": name, "reason": reason} for name, reason in engine.unavailable.items()]
    more = names[limit - 1] if len(names) > limit else None
    return {"streams": page, "next": more, "unavailable": unavailable}


def _summarise(stream: Stream) -> records.StreamSummary:
    core = stream.core
    counts, alerts = core.counts, core.alerts
    return records.StreamSummary(
        **stream.describe(), policy=core.policy.name, counts=counts, mean_reward=core.mean_reward, alerts=alerts
    )
