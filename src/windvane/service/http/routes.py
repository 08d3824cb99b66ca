"""All other routes of HTTP v1. What they do is in :mod:`windvane.service.engine` and its streams."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import fields
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request, Response, Security
from fastapi.responses import StreamingResponse
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from fastapi.sse import EventSourceResponse, ServerSentEvent
from pydantic_core import from_json

from windvane.records import DecisionRecord, Explanation, StreamInfo, StreamSummary, to_json
from windvane.service.engine import Engine
from windvane.service.http import hot, schemas
from windvane.service.http.export import Log, export_log
from windvane.service.http.live import follow
from windvane.service.http.middleware import CHARGE, IS_VALID
from windvane.service.http.schemas import DecisionId, Limit, StreamName
from windvane.service.problems import Problem
from windvane.service.streams import Done, Stream

MAX_NUMBER = 2**40  # of an event
PAUSE = 16  # items of a batch between which other requests are served


class JsonRequest(Request):
    """A request whose body is parsed strictly: no NaN, no infinity, a limit on depth."""

    async def json(self) -> Any:
        """Parse the body."""
        try:
            return from_json(await self.body(), allow_inf_nan=False)
        except ValueError as error:
            raise json.JSONDecodeError(str(error), "", 0) from None


class JsonRoute(APIRoute):
    """A route with a :class:`JsonRequest`."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return what FastAPI calls."""
        handler = super().get_route_handler()
        return lambda request: handler(JsonRequest(request.scope, request.receive))


def get_engine(request: Request) -> Engine:
    """Return the engine, if it is ready."""
    engine: Engine = request.app.state.engine
    engine.refuse_if_not_ready()
    return engine


ReadyEngine = Annotated[Engine, Depends(get_engine)]


def find_stream(engine: ReadyEngine, stream: StreamName) -> Stream:
    """Return the stream that the path names."""
    return engine.stream(stream)


FoundStream = Annotated[Stream, Depends(find_stream)]

bearer = HTTPBearer(auto_error=False, scheme_name="token", description="Required once the store has had a token.")
router = APIRouter(route_class=JsonRoute, dependencies=[Security(bearer)])
probes = APIRouter(tags=["service"])
hot.add_routes(router)


def respond(record: Any, status: int = 200, **headers: str) -> Response:
    """Return a record as JSON."""
    return Response(to_json(record), status, headers, "application/json")


@probes.get("/healthz", response_model=schemas.Health)
async def get_health() -> Response:
    """Liveness probe."""
    return respond({"status": "ok"})


@probes.get("/readyz", response_model=schemas.Health)
async def get_readiness(engine: ReadyEngine) -> Response:
    """Readiness probe: 503 while streams are recovered."""
    return respond({"status": "ready"})


@router.get(
    "/metrics", tags=["service"], response_class=Response, responses={200: {"content": {"text/plain": {}}}}
)
async def get_metrics(request: Request) -> Response:
    """Return counters in the text format of Prometheus."""
    return Response(request.app.state.metrics.to_text(), media_type="text/plain; version=0.0.4; charset=utf-8")


@router.post("/v1/streams", tags=["streams"], status_code=201, response_model=StreamInfo)
async def create_stream(engine: ReadyEngine, body: schemas.NewStream) -> Response:
    """Create a stream."""
    stream = await engine.create(body)
    return respond(stream.info(), 201, location=f"/v1/streams/{stream.name}")


@router.get("/v1/streams", tags=["streams"], response_model=schemas.StreamPage)
async def list_streams(engine: ReadyEngine, limit: Limit = 100, after: str = "") -> Response:
    """List the streams by name, archived ones too, and those that could not be recovered."""
    names = sorted(name for name in engine.streams if name > after)
    page = [_summarise(engine.streams[name]) for name in names[:limit]]
    unavailable = [{"name": name, "reason": reason} for name, reason in engine.unavailable.items()]
    more = names[limit - 1] if len(names) > limit else None
    return respond({"streams": page, "next": more, "unavailable": unavailable})


@router.get("/v1/streams/{stream}", tags=["streams"], response_model=StreamInfo)
async def get_stream(stream: FoundStream) -> Response:
    """Return a stream: counts, estimate, memory, drift, alerts and settings."""
    return respond(stream.info())


@router.patch("/v1/streams/{stream}", tags=["streams"], response_model=StreamInfo)
async def update_stream(engine: ReadyEngine, stream: FoundStream, body: schemas.StreamChanges) -> Response:
    """Change settings of a stream. Those that are omitted stay."""
    return hot.respond_done(await engine.configure(stream, body.model_dump(exclude_unset=True)))


@router.post("/v1/streams/{stream}/archive", tags=["streams"], response_model=StreamInfo)
async def archive_stream(engine: ReadyEngine, stream: FoundStream) -> Response:
    """Archive a stream: it can still be read, and no longer decides or learns."""
    return hot.respond_done(await engine.carry_out(stream, lambda: stream.archive(time.time())))


@router.get("/v1/streams/{stream}/charts", tags=["streams"], response_model=schemas.Charts)
async def get_charts(stream: FoundStream) -> Response:
    """Return what the page draws: rewards, arms and the model over time."""
    return respond(stream.charts.document())


@router.get("/v1/streams/{stream}/live", tags=["streams"], response_class=EventSourceResponse)
async def follow_stream(
    request: Request, engine: ReadyEngine, stream: FoundStream
) -> AsyncIterator[ServerSentEvent]:
    """Follow a stream: an event "info" with {"info": StreamInfo, "charts": Charts} whenever it has changed."""
    async for event in follow(engine, stream.name, request.app.state.closing, request.scope[IS_VALID]):
        yield event


@router.get(
    "/v1/streams/{stream}/events",
    tags=["streams"],
    response_class=StreamingResponse,
    responses={200: {"content": {"application/x-ndjson": {}, "application/vnd.apache.parquet": {}}}},
)
async def export_events(
    engine: ReadyEngine,
    stream: StreamName,
    format: Literal["ndjson", "parquet"] = "ndjson",
    after: Annotated[int, Query(ge=0, le=MAX_NUMBER, description="Number of the last event not to return.")] = 0,
    limit: Annotated[int, Query(ge=1, le=MAX_NUMBER)] = MAX_NUMBER,
) -> Response:
    """Export the log: one event a line, or a Parquet file.

    Every event is checked. If one cannot be read, the last line says so ("kind": "unreadable") and the transfer is
    aborted; if it is the first one, or with Parquet any one, the answer is a problem. The log of a stream that is
    unavailable can be read up to the damage.
    """
    row, last = await engine.find_log(stream)
    return await export_log(Log(engine.store, row, last, engine.report_damage), format, after, limit)


@router.get("/v1/streams/{stream}/pending", tags=["decisions"], response_model=schemas.PendingPage)
async def list_pending(
    engine: ReadyEngine, stream: FoundStream, limit: Limit = 100, after: str | None = None
) -> Response:
    """List the pending decisions, the oldest first. ``after`` may have been closed meanwhile."""
    decisions = stream.core.pending()
    if after is not None:
        since = (await _find_decision(engine, stream, after)).decision.time
        decisions = [decision for decision in decisions if decision.time > since]
    more = decisions[limit - 1].id if len(decisions) > limit else None
    return respond({"decisions": decisions[:limit], "next": more})


@router.get("/v1/streams/{stream}/decisions/{decision}", tags=["decisions"], response_model=DecisionRecord)
async def get_decision(engine: ReadyEngine, stream: FoundStream, decision: DecisionId) -> Response:
    """Return a decision and what became of it."""
    return respond(await _find_decision(engine, stream, decision))


@router.get("/v1/streams/{stream}/decisions/{decision}/explanation", tags=["decisions"], response_model=Explanation)
async def explain_decision(engine: ReadyEngine, stream: FoundStream, decision: DecisionId) -> Response:
    """Explain a decision."""
    return respond(Explanation.of((await _find_decision(engine, stream, decision)).decision))


@router.post("/v1/streams/{stream}/decisions/batch", tags=["decisions"], response_model=schemas.BatchResults)
async def decide_batch(
    request: Request, engine: ReadyEngine, stream: FoundStream, body: schemas.DecisionBatch
) -> Response:
    """Make several decisions, one after the other. Every item has a status of its own and may have a key."""

    def decide(item: schemas.DecisionItem) -> Done:
        return stream.decide(to_json(item.model_dump(exclude={"key"}, exclude_unset=True)), item.key, time.time())

    return await _run_batch(request, stream, decide, body.decisions, "decisions", "decision")


@router.post("/v1/streams/{stream}/rewards/batch", tags=["decisions"], response_model=schemas.BatchResults)
async def set_rewards(
    request: Request, engine: ReadyEngine, stream: FoundStream, body: schemas.RewardBatch
) -> Response:
    """Set the rewards of several decisions. Every item has a status of its own."""

    def reward(item: schemas.RewardItem) -> Done:
        return stream.reward(item.decision, item.value, time.time())

    return await _run_batch(request, stream, reward, body.rewards, "rewards", "receipt")


async def _run_batch(
    request: Request, stream: Stream, operate: Callable[[Any], Done], items: Sequence[Any], field: str, result: str
) -> Response:
    engine: Engine = request.app.state.engine
    if "idempotency-key" in request.headers:
        raise Problem("invalid", "Idempotency-Key: a batch has none; give each of its items a key")
    request.scope[CHARGE](len(items) - 1)
    results = []
    for i, item in enumerate(items):
        await engine.turn(stream)
        try:
            with engine.operating(stream):
                done = operate(item)
            engine.hand_over(stream, done.events)  # at once: the log has the order in which things happened
            body, status = done.body, done.status
        except Problem as problem:
            if problem.status >= 500 and problem.code != "unreadable":  # which fails the item that needs the event
                raise
            body, status = problem.to_json(), problem.status
        if status >= 400:
            body = _move_pointers(body, f"#/{field}/{i}")
        results.append(b'{"status":%d,"%s":%s}' % (status, b"problem" if status >= 400 else result.encode(), body))
        if i % PAUSE == PAUSE - 1:
            await asyncio.sleep(0)
    await engine.commit(stream)
    return Response(b'{"results":[%s]}' % b",".join(results), media_type="application/json")


def _move_pointers(problem: bytes, place: str) -> bytes:
    """Return a problem of an item with the pointers of the batch."""
    document = from_json(problem)
    for error in document["errors"]:
        error["pointer"] = place + error["pointer"].removeprefix("#")
    return to_json(document)


def _summarise(stream: Stream) -> StreamSummary:
    info = stream.info()
    return StreamSummary(**{field.name: getattr(info, field.name) for field in fields(StreamSummary)})


async def _find_decision(engine: Engine, stream: Stream, decision: str) -> DecisionRecord:
    await engine.commit(stream)  # what has happened is on disk then
    return stream.find_decision(decision)
