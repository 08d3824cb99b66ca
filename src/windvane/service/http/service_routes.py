"""The routes of HTTP v1 about the service itself: probes, metrics, the map of the cluster."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Request, Response

from windvane import service_records
from windvane.cluster_map import ClusterInfo
from windvane.service.http import cluster
from windvane.service.http.endpoints import make_router, respond
from windvane.service.http.other_nodes import OtherNodes
from windvane.service.readiness import unavailable

service = make_router(tags=["service"])
ROUTERS = (service,)


@service.get("/healthz", response_model=service_records.Health)
async def get_health(request: Request) -> Response:
    """Liveness probe. Nodes recognise each other by it."""
    others: OtherNodes | None = request.app.state.others
    response = respond({"status": "ok"})
    if others is not None:
        response.headers.update(others.checks.answer(request.headers))
    return response


@service.get("/readyz", response_model=service_records.Health)
async def get_readiness(request: Request) -> Response:
    """Readiness probe: 503 with a ``cause`` while the service starts, recovers, cannot use its disk, or stops."""
    failure = request.app.state.engine.not_ready
    if failure is not None:
        raise unavailable(failure)
    placement = request.app.state.engine.placement
    if placement is None:
        return respond({"status": "ready"})
    return respond(service_records.Health(status="ready", node=placement.node.name, shards=sorted(placement.epochs)))


@service.get("/v1/cluster", response_model=ClusterInfo)
async def get_cluster(
    request: Request,
    streams: Annotated[bool, Query(description="Whether to count the streams of every node.")] = False,
) -> Response:
    """Return the nodes of the cluster and the shards that each owns; a stream belongs to the shard given by the first 8
    bytes of the SHA-256 of its name, as a big-endian integer, modulo the number of shards."""
    engine = request.app.state.engine
    info = cluster.describe_cluster(engine)
    return respond(await cluster.count_streams(engine, info) if streams else info)


@service.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
async def get_metrics(request: Request) -> Response:
    """Return counters in the text format of Prometheus."""
    state = request.app.state
    text = await state.metrics.to_text(state.engine, state.others)
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")
