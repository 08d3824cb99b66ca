"""The routes of HTTP v1 that FastAPI executes; those of :mod:`windvane.service.http.hot` join them."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Annotated, Any, Literal, NamedTuple

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import StreamingResponse
from fastapi.routing import APIRoute
from fastapi.sse import EventSourceResponse, ServerSentEvent
from pydantic_core import from_json

from windvane.agent.times import read_clock
from windvane.records import (
    BatchResults,
    DecisionRecord,
    Explanation,
    Health,
    PendingPage,
    RewardReceipt,
    StreamInfo,
    StreamPage,
    StreamSummary,
    to_json,
)
from windvane.service import requests
from windvane.service.charts import ChartData
from windvane.service.engine import Engine
from windvane.service.http import hot
from windvane.service.http.export import NDJSON, export_log
from windvane.service.http.middleware import CHARGE, IS_VALID, PARQUET
from windvane.service.problems import Problem
from windvane.service.requests import DecisionId, IdempotencyKey, Limit, StreamName
from windvane.service.streams import Done, Stream

MAX_NUMBER = 2**40  # of an event
PAUSE = 16  # items of a batch between which other requests are served
LIVE_SECONDS = 1.0  # between looks at a stream that is followed


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

        async def handle(request: Request) -> Response:
            return await handler(JsonRequest(request.scope, request.receive))

        return handle


class Target(NamedTuple):
    """The stream that a request is about."""

    engine: Engine
    stream: Stream

    async def carry_out(self, operation: Callable[[], Done]) -> Response:
        """Carry out an operation; it is on disk when this returns."""
        return hot.respond_done(await self.engine.carry_out(self.stream, operation))


def get_engine(request: Request) -> Engine:
    """Return the engine, if it is ready."""
    engine: Engine = request.app.state.engine
    engine.refuse_if_not_ready()
    return engine


ReadyEngine = Annotated[Engine, Depends(get_engine)]


def find_target(engine: ReadyEngine, stream: StreamName) -> Target:
    """Return the stream that the path names."""
    return Target(engine, engine.stream(stream))


At = Annotated[Target, Depends(find_target)]

service = APIRouter(tags=["service"])
streams = APIRouter(prefix="/v1/streams", tags=["streams"], route_class=JsonRoute)
decisions = APIRouter(prefix="/v1/streams", tags=["decisions"], route_class=JsonRoute)


def respond(record: Any, status: int = 200, **headers: str) -> Response:
    """Return a record as JSON."""
    return Response(to_json(record), status, headers, "application/json")


@service.get("/healthz", response_model=Health)
async def get_health() -> Response:
    """Liveness probe."""
    return respond({"status": "ok"})


@service.get("/readyz", response_model=Health, dependencies=[Depends(get_engine)])
async def get_readiness() -> Response:
    """Readiness probe: 503 while streams are recovered."""
    return respond({"status": "ready"})


@service.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
async def get_metrics(request: Request) -> Response:
    """Return counters in the text format of Prometheus."""
    return Response(request.app.state.metrics.to_text(), media_type="text/plain; version=0.0.4; charset=utf-8")


@streams.post("", status_code=201, response_model=StreamInfo)
async def create_stream(engine: ReadyEngine, body: requests.NewStream) -> Response:
    """Create a stream."""
    try:
        stream = await engine.create(body)
    except Problem as problem:  # the agent has the settings of its policy among its own
        if any(error["pointer"].split("/")[1:2] == [name] for error in problem.errors for name in body.settings):
            problem.move_pointers("#/settings")
        raise
    return respond(stream.info(), 201, location=f"/v1/streams/{stream.name}")


@streams.get("", response_model=StreamPage)
async def list_streams(engine: ReadyEngine, limit: Limit = 100, after: str = "") -> Response:
    """List the streams by name, archived ones too, and those that could not be recovered."""
    names = sorted(name for name in engine.streams if name > after)
    page = [_summarise(engine.streams[name]) for name in names[:limit]]
    unavailable = [{"name": name, "reason": reason} for name, reason in engine.unavailable.items()]
    more = names[limit - 1] if len(names) > limit else None
    return respond({"streams": page, "next": more, "unavailable": unavailable})


@streams.get("/{stream}", response_model=StreamInfo)
async def get_stream(at: At) -> Response:
    """Return a stream: counts, estimate, memory, drift, alerts and settings."""
    return respond(at.stream.info())


@streams.patch("/{stream}", response_model=StreamInfo)
async def update_stream(at: At, body: requests.StreamChanges) -> Response:
    """Change settings of a stream. Those that are omitted stay."""
    return hot.respond_done(await at.engine.configure(at.stream, body.model_dump(exclude_unset=True)))


@streams.post("/{stream}/archive", response_model=StreamInfo)
async def archive_stream(at: At) -> Response:
    """Archive a stream: it can still be read, and no longer decides or learns."""
    return await at.carry_out(lambda: at.stream.archive(read_clock()))


@streams.get("/{stream}/charts", response_model=ChartData)
async def get_charts(at: At) -> Response:
    """Return what the page draws: rewards, arms and the model over time."""
    return Response(await at.engine.read_charts(at.stream), media_type="application/json")


@streams.get("/{stream}/live", response_class=EventSourceResponse)
async def follow_stream(request: Request, at: At) -> AsyncIterator[ServerSentEvent]:
    """Follow a stream: an event "info" with {"info": StreamInfo, "charts": Charts} whenever it has changed.

    It ends when the server stops, or when the token of the request is removed.
    """
    closing: asyncio.Event = request.app.state.closing
    last, stream = -1, at.stream
    while not closing.is_set() and request.scope[IS_VALID]() and at.engine.streams.get(stream.name) is stream:
        if stream.number != last:
            last = stream.number
            yield ServerSentEvent(event="info", raw_data=(await at.engine.read_live(stream)).decode())
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
    """Export the log: one event a line, or a Parquet file.

    Every event is checked. If one cannot be read, the last line says so ("kind": "unreadable") and the transfer is
    aborted; if it is the first one, or with Parquet any one, the answer is a problem. The log of a stream that is
    unavailable can be read up to the damage.
    """
    return await export_log(engine, stream, format, after, limit)


@decisions.get("/{stream}/pending", response_model=PendingPage)
async def list_pending(at: At, limit: Limit = 100, after: Annotated[int, Query(ge=-1, le=2**53)] = -1) -> Response:
    """List the pending decisions, the oldest first. ``after``: the ``next`` of the page before."""
    page, more = at.stream.core.list_pending(after, limit)
    return respond({"decisions": page, "next": more})


@decisions.get("/{stream}/decisions/{decision}", response_model=DecisionRecord)
async def get_decision(at: At, decision: DecisionId) -> Response:
    """Return a decision and what became of it."""
    return respond(await _find_decision(at, decision))


@decisions.get("/{stream}/decisions/{decision}/explanation", response_model=Explanation)
async def explain_decision(at: At, decision: DecisionId) -> Response:
    """Explain a decision."""
    return respond(Explanation.of((await _find_decision(at, decision)).decision))


@decisions.post("/{stream}/decisions/{decision}/rewards", response_model=RewardReceipt)
async def add_reward(
    at: At, decision: DecisionId, body: requests.Reward, idempotency_key: IdempotencyKey = None
) -> Response:
    """Add a part to the reward of a decision. The sum is learned at the timeout."""
    return await at.carry_out(lambda: at.stream.add_reward(decision, body.value, idempotency_key, read_clock()))


@decisions.post("/{stream}/decisions/batch", response_model=BatchResults)
async def decide_batch(request: Request, at: At, body: requests.DecisionBatch) -> Response:
    """Make several decisions, one after the other. Every item has a status of its own and may have a key."""

    def decide(item: requests.DecisionItem) -> Done:
        raw = to_json(item.model_dump(exclude={"key"}, exclude_unset=True))
        return at.stream.decide(raw, item.key, read_clock())

    return await _run_batch(request, at, decide, body.decisions, "decisions", "decision")


@decisions.post("/{stream}/rewards/batch", response_model=BatchResults)
async def set_rewards(request: Request, at: At, body: requests.RewardBatch) -> Response:
    """Set the rewards of several decisions. Every item has a status of its own."""

    def set_reward(item: requests.RewardItem) -> Done:
        return at.stream.reward(item.decision, item.value, read_clock())

    return await _run_batch(request, at, set_reward, body.rewards, "rewards", "receipt")


async def _run_batch(
    request: Request, at: Target, operate: Callable[[Any], Done], items: Sequence[Any], field: str, result: str
) -> Response:
    if "idempotency-key" in request.headers:
        raise Problem("invalid", "Idempotency-Key: a batch has none; give each of its items a key")
    request.scope[CHARGE](len(items) - 1)
    results = []
    for i, item in enumerate(items):
        await at.engine.turn(at.stream)
        try:
            with at.engine.operating(at.stream):
                done = operate(item)
            at.engine.hand_over(at.stream, done.events)  # at once: the log has the order in which things happened
            results.append(b'{"status":%d,"%s":%s}' % (done.status, result.encode(), done.body))
        except Problem as problem:
            if problem.status >= 500 and problem.code != "unreadable":  # which fails the item that needs the event
                raise
            problem.move_pointers(f"#/{field}/{i}")
            results.append(b'{"status":%d,"problem":%s}' % (problem.status, problem.to_json()))
        if i % PAUSE == PAUSE - 1:
            await asyncio.sleep(0)
    await at.engine.commit(at.stream)
    return Response(b'{"results":[%s]}' % b",".join(results), media_type="application/json")


async def _find_decision(at: Target, decision: str) -> DecisionRecord:
    await at.engine.commit(at.stream)  # all that has happened is on disk then
    return at.stream.find_decision(decision)


def _summarise(stream: Stream) -> StreamSummary:
    core = stream.core
    counts, alerts = core.counts, core.alerts
    return StreamSummary(
        **stream.describe(), policy=core.policy.name, counts=counts, mean_reward=core.mean_reward, alerts=alerts
    )
