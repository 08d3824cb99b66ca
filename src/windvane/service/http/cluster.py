"""The cluster over HTTP: its map, and lists that concern all of its nodes."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import urlencode

from fastapi import Request

from windvane import records
from windvane.cluster_map import ClusterInfo, ClusterNode
from windvane.records import to_plain
from windvane.service.cluster.placement import ElsewhereError, Placement
from windvane.service.engine import Engine
from windvane.service.http.forwarding import IS_FORWARDED, Forwarder
from windvane.service.problems import Problem
from windvane.service.streams import Stream
from windvane.service.turns import Pauses, wait_while_changing


def describe_cluster(engine: Engine) -> ClusterInfo:
    """Return the nodes and the shards that each of them owns; a service on a file is no cluster."""
    if engine.placement is None:
        return ClusterInfo(node=None, shards=0, nodes=[], unowned=[])
    keeper = engine.placement.keeper
    owners = keeper.map
    nodes = [
        ClusterNode(
            name=node.name,
            url=node.url,
            version=node.version,
            shards=sorted(shard for shard, owner in owners.items() if owner == node.instance),
        )
        for node in sorted(keeper.nodes.values(), key=lambda node: node.name)
    ]
    unowned = sorted(shard for shard in range(keeper.shards) if owners.get(shard) not in keeper.nodes)
    return ClusterInfo(node=keeper.name, shards=keeper.shards, nodes=nodes, unowned=unowned)


async def list_streams(request: Request, engine: Engine, limit: int, after: str) -> dict[str, Any]:
    """Return a page of the list of streams. In a cluster, every node lists its own streams."""
    own = await _list_own(engine, limit, after)
    if engine.placement is None or request.scope.get(IS_FORWARDED):
        return own
    others, failed = await _ask_others(request, engine.placement, limit, after)
    missing = [shard for shard in range(engine.placement.keeper.shards) if _is_missing(engine.placement, shard, failed)]
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
    request: Request, placement: Placement, limit: int, after: str
) -> tuple[list[dict[str, Any]], set[str]]:
    """Return the lists of the other nodes, and the instances of the nodes that do not answer."""
    forwarder: Forwarder = request.app.state.forwarder
    target = f"/v1/streams?{urlencode({'limit': limit, 'after': after})}"
    nodes = [node for node in placement.keeper.nodes.values() if node.instance != placement.keeper.instance]
    asked = (forwarder.ask(ElsewhereError(node.name, node.url), target, request.scope) for node in nodes)
    answers = await asyncio.gather(*asked, return_exceptions=True)
    failed = {node.instance for node, answer in zip(nodes, answers, strict=True) if isinstance(answer, Problem)}
    for answer in answers:
        if isinstance(answer, BaseException) and not isinstance(answer, Problem):
            raise answer
    return [answer for answer in answers if isinstance(answer, dict)], failed


def _is_missing(placement: Placement, shard: int, failed: set[str]) -> bool:
    owner = placement.keeper.find_owner(shard)
    return owner is None or owner.instance in failed


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
