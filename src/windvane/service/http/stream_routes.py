"""The routes of HTTP v1 about streams: their settings, their state and their logs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Literal

from fastapi import Query, Request, Response
from fastapi.responses import StreamingResponse
from fastapi.sse import EventSourceResponse, ServerSentEvent

from windvane import records, service_records
from windvane.agent.times import read_clock
from windvane.service import creation, refit, stream_settings
from windvane.service.charts import ChartData
from windvane.service.http import cluster
from windvane.service.http.endpoints import (
    At,
    IdempotencyKey,
    Limit,
    ReadyEngine,
    StreamName,
    make_router,
    respond,
    respond_done,
)
from windvane.service.http.export import NDJSON, export_log
from windvane.service.http.json_routes import JsonRoute
from windvane.service.http.middleware import IS_VALID, PARQUET
from windvane.service.problems import Problem

MAX_NUMBER = 2**40  # of an event
LIVE_SECONDS = 1.0  # between looks at a stream that is followed

streams = make_router(prefix="/v1/streams", tags=["streams"])
settings = make_router(prefix="/v1/streams", tags=["streams"], route_class=JsonRoute)
ROUTERS = (settings, streams)


@settings.post("", status_code=201, response_model=records.StreamInfo)
async def create_stream(engine: ReadyEngine, body: stream_settings.NewStream) -> Response:
    """Create a stream."""
    with _pointing_to_settings(body):
        stream = await creation.create_stream(engine, body)
    return respond(await engine.views.read_info(stream), 201, location=f"/v1/streams/{stream.name}")


@settings.put(
    "/{stream}",
    response_model=records.StreamInfo,
    responses={201: {"model": records.StreamInfo, "description": "The stream was created."}},
)
async def ensure_stream(engine: ReadyEngine, stream: StreamName, body: stream_settings.StreamSettings) -> Response:
    """Create a stream unless it exists with the same settings. A seed is compared only if the request has one."""
    new = stream_settings.name_stream(stream, body)
    with _pointing_to_settings(body):
        found, is_new = await creation.ensure_stream(engine, new)
    headers = {"location": f"/v1/streams/{found.name}"} if is_new else {}
    return respond(await engine.views.read_info(found), 201 if is_new else 200, **headers)


@streams.get("", response_model=service_records.StreamPage)
async def list_streams(request: Request, engine: ReadyEngine, limit: Limit = 100, after: str = "") -> Response:
    """List the streams by name, including archived ones and those that could not be recovered."""
    return respond(await cluster.list_streams(request, engine, limit, after))


@streams.get("/{stream}", response_model=records.StreamInfo)
async def get_stream(at: At) -> Response:
    """Return a stream: counts, estimate, memory, drift, alerts and settings."""
    return respond(await at.engine.views.read_info(at.stream))


@settings.patch("/{stream}", response_model=records.StreamInfo)
async def update_stream(at: At, body: stream_settings.StreamChanges) -> Response:
    """Change settings of a stream. Omitted settings keep their values."""
    return respond_done(await creation.configure(at.engine, at.stream, body.model_dump(exclude_unset=True)))


@settings.post("/{stream}/refit", response_model=records.RefitReport)
async def refit_stream(
    at: At,
    body: stream_settings.RefitRequest,
    idempotency_key: IdempotencyKey = None,
    dry_run: Annotated[bool, Query(description="Whether to compare only, without changing the stream.")] = False,
) -> Response:
    """Learn the log again with new settings, beside the running model, then replace that model.

    The answer compares both models. Omitted settings keep their values; all settings apply to the whole log.
    """
    dry_run = dry_run or read_flag(at.request, "dry_run")
    with _pointing_to_settings(body):
        return respond_done(
            await refit.refit(at.engine, at.stream, body.agent_arguments(), idempotency_key, dry_run=dry_run)
        )


@streams.post("/{stream}/refit/undo", response_model=records.StreamInfo)
async def undo_refit(at: At, idempotency_key: IdempotencyKey = None) -> Response:
    """Undo the last refit: restore the model from before it, which learns the events since then."""
    return respond_done(await refit.undo(at.engine, at.stream, idempotency_key))


@contextlib.contextmanager
def _pointing_to_settings(body: stream_settings.AgentArguments) -> Iterator[None]:
    """Make problems point into ``settings`` for the policy's settings, which are arguments of the agent itself."""
    try:
        yield
    except Problem as problem:
        if any(error["pointer"].split("/")[1:2] == [name] for error in problem.errors for name in body.settings):
            problem.move_pointers("#/settings")
        raise


def read_flag(request: Request, name: str) -> bool:
    """Return a boolean of the query string."""
    text = request.query_params.get(name, "false")
    if text not in ("true", "false"):
        raise Problem("invalid", f"{name}: must be true or false")
    return text == "true"


@streams.post("/{stream}/archive", response_model=records.StreamInfo)
async def archive_stream(at: At) -> Response:
    """Archive a stream: it can still be read, but no longer decides or learns."""
    return await at.carry_out(lambda: at.stream.archive(read_clock()))


@streams.post("/{stream}/unarchive", response_model=records.StreamInfo)
async def unarchive_stream(at: At) -> Response:
    """Let an archived stream decide and learn again. Decisions whose timeout has passed meanwhile are closed."""
    response = await at.carry_out(lambda: at.stream.unarchive(read_clock()))
    at.engine.timeouts.begin(at.stream)
    return response


@streams.get("/{stream}/charts", response_model=ChartData)
async def get_charts(at: At) -> Response:
    """Return the data of the page's charts: rewards, arms and the model over time."""
    return Response(await at.engine.views.read_charts(at.stream), media_type="application/json")


@streams.get("/{stream}/live", response_class=EventSourceResponse)
async def follow_stream(at: At) -> AsyncIterator[ServerSentEvent]:
    """Follow a stream: an event "info" with {"info": StreamInfo, "charts": Charts} whenever it has changed.

    It ends when the server stops, or when the token of the request is removed.
    """
    closing: asyncio.Event = at.request.app.state.closing
    last, stream = (-1, 0, 0), at.stream
    while not closing.is_set() and await at.request.scope[IS_VALID]() and at.engine.streams.get(stream.name) is stream:
        if stream.progress != last:
            try:
                live = await at.engine.views.read_live(stream)
            except Problem:  # streams are rebuilt; whoever follows one asks again
                return
            last = stream.live[0]
            yield ServerSentEvent(event="info", raw_data=live.decode())
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(closing.wait(), LIVE_SECONDS)


@streams.get(
    "/{stream}/events",
    response_class=StreamingResponse,
    responses={200: {"content": {NDJSON: {"schema": {"type": "string"}}, PARQUET: {"schema": {"type": "string"}}}}},
)
async def export_events(
    engine: ReadyEngine,
    stream: StreamName,
    format: Literal["ndjson", "parquet"] = "ndjson",
    after: Annotated[int, Query(ge=0, le=MAX_NUMBER, description="Number of the last event not to return.")] = 0,
    limit: Annotated[int, Query(ge=1, le=MAX_NUMBER)] = MAX_NUMBER,
) -> Response:
    """Export the log: one event per line, or a Parquet file.

    Every event is checked. If an event cannot be read, the last line says so ("kind": "unreadable") and the transfer is
    aborted; if it is the first event, or the format is Parquet, the answer is a problem. The log of an unavailable
    stream can be read up to the damage.
    """
    return await export_log(engine, stream, format, after, limit)
