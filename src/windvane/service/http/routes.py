"""The routes of HTTP v1."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple

from fastapi import APIRouter, Body, Depends, Header, Path, Query, Request, Response
from fastapi.responses import StreamingResponse
from fastapi.routing import APIRoute
from fastapi.sse import EventSourceResponse, ServerSentEvent
from pydantic import GetPydanticSchema
from pydantic.alias_generators import to_camel
from pydantic_core import from_json

from windvane import records, service_records
from windvane.agent.times import read_clock
from windvane.cluster_map import ClusterInfo
from windvane.records import KEY, to_json
from windvane.service import bulk_history, creation, refit, requests
from windvane.service.bodies import LARGE_BODY
from windvane.service.charts import ChartData
from windvane.service.engine import Engine
from windvane.service.http import cluster
from windvane.service.http.export import NDJSON, export_log
from windvane.service.http.middleware import CHARGE, IS_VALID, PARQUET
from windvane.service.problems import Problem
from windvane.service.readiness import unavailable
from windvane.service.streams import Done, Stream
from windvane.service.turns import Pauses, wait_while_changing

MAX_NUMBER = 2**40  # of an event
LIVE_SECONDS = 1.0  # between looks at a stream that is followed

StreamName = Annotated[str, Path(description="Name of the stream.", examples=["homepage"])]
DecisionId = Annotated[str, Path(description="Id of the decision.", examples=["9f86d081884c7d65"])]
Limit = Annotated[int, Query(ge=1, le=1000, description="How many at most.")]
_KEY_TEXT = "The same request with the same key is executed once and always gets the same answer."
IdempotencyKey = Annotated[str | None, Header(pattern=KEY, description=_KEY_TEXT)]
# Raw bodies, which the log keeps, documented by the models that they must match.
RawDecision = Annotated[bytes, Body(), GetPydanticSchema(lambda _, handler: handler(requests.DecisionRequest))]
RawHistory = Annotated[bytes, Body(), GetPydanticSchema(lambda _, handler: handler(requests.History))]


class Target(NamedTuple):
    """The stream that a request is about."""

    request: Request
    engine: Engine
    stream: Stream

    async def carry_out(self, operation: Callable[[], Done], decision: str | None = None) -> Response:
        """Execute an operation, which may be about a ``decision``; it is on disk when this returns."""
        return respond_done(await self.engine.carry_out(self.stream, operation, decision=decision))


def get_engine(request: Request) -> Engine:
    """Return the engine, if it is ready."""
    engine: Engine = request.app.state.engine
    engine.check_in_place()
    engine.refuse_if_not_ready()
    return engine


async def find_target(request: Request, stream: str) -> Target:
    """Return the stream that the path names."""
    engine = get_engine(request)
    return Target(request, engine, await engine.find(stream))


async def depend_on_engine(request: Request) -> Engine:
    """Call :func:`get_engine` in the event loop: FastAPI calls plain functions in threads, and a failure that is
    noticed begins a recovery."""
    return get_engine(request)


async def depend_on_target(request: Request, stream: StreamName) -> Target:
    """Call :func:`find_target`."""
    return await find_target(request, stream)


ReadyEngine = Annotated[Engine, Depends(depend_on_engine)]
At = Annotated[Target, Depends(depend_on_target)]


class JsonRoute(APIRoute):
    """A route with a body. FastAPI documents it by the signature of its endpoint, and does not execute it.

    The endpoint gets its target, the body (raw, or parsed strictly: no NaN, no infinity, a limit on depth), and the
    key. Measured processor time of a decision among three arms: 77 µs if FastAPI executes the route, 27 µs this way.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler that FastAPI calls."""
        model: Any = self.body_field and self.body_field.field_info.annotation
        has_target = "at" in inspect.signature(self.endpoint).parameters

        async def handle(request: Request) -> Response:
            arguments = dict(request.path_params)
            target = await find_target(request, arguments.pop("stream")) if has_target else get_engine(request)
            if self.dependant.header_params:
                arguments["idempotency_key"] = key = request.headers.get("idempotency-key")
                if key is not None and not re.fullmatch(KEY, key):
                    most = requests.MAX_TEXT
                    raise Problem("invalid", f"Idempotency-Key: must have 1 to {most} printable ASCII characters")
            raw = await request.body()
            body = raw if model is bytes else await _parse(model, raw)
            response: Response = await self.endpoint(target, body=body, **arguments)
            return response

        return handle


async def _parse(model: type[requests.Model], raw: bytes) -> requests.Model:
    """Parse a body; a large one in a thread."""
    if len(raw) > LARGE_BODY:
        return await asyncio.to_thread(requests.parse_body, model, raw)
    return requests.parse_body(model, raw)


make_router = partial(APIRouter, generate_unique_id_function=lambda route: to_camel(route.name))
service = make_router(tags=["service"])
streams = make_router(prefix="/v1/streams", tags=["streams"])
settings = make_router(prefix="/v1/streams", tags=["streams"], route_class=JsonRoute)
decisions = make_router(prefix="/v1/streams", tags=["decisions"])
outcomes = make_router(prefix="/v1/streams", tags=["decisions"], route_class=JsonRoute)
ROUTERS = (outcomes, decisions, settings, streams, service)
"""Those with the most requests first, because routes are tried in order."""


def respond(record: Any, status: int = 200, **headers: str) -> Response:
    """Return a record as JSON."""
    return Response(to_json(record), status, headers, "application/json")


def respond_done(done: Done, **headers: str) -> Response:
    """Return the answer of an operation."""
    return Response(done.body, done.status, headers, "application/json")


@service.get("/healthz", response_model=service_records.Health)
async def get_health(request: Request) -> Response:
    """Liveness probe. Nodes recognise each other by it."""
    checks = request.app.state.checks
    return respond({"status": "ok"}, **({} if checks is None else checks.answer(request.headers)))


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
    text = await state.metrics.to_text(state.engine, state.forwarder)
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


@settings.post("", status_code=201, response_model=records.StreamInfo)
async def create_stream(engine: ReadyEngine, body: requests.NewStream) -> Response:
    """Create a stream."""
    with _pointing_to_settings(body):
        stream = await creation.create_stream(engine, body)
    return respond(await engine.views.read_info(stream), 201, location=f"/v1/streams/{stream.name}")


@settings.put(
    "/{stream}",
    response_model=records.StreamInfo,
    responses={201: {"model": records.StreamInfo, "description": "The stream was created."}},
)
async def ensure_stream(engine: ReadyEngine, stream: StreamName, body: requests.StreamSettings) -> Response:
    """Create a stream unless it exists with the same settings. A seed is compared only if the request has one."""
    new = requests.name_stream(stream, body)
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
async def update_stream(at: At, body: requests.StreamChanges) -> Response:
    """Change settings of a stream. Omitted settings keep their values."""
    return respond_done(await creation.configure(at.engine, at.stream, body.model_dump(exclude_unset=True)))


@settings.post("/{stream}/refit", response_model=records.RefitReport)
async def refit_stream(
    at: At,
    body: requests.RefitRequest,
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
def _pointing_to_settings(body: requests.AgentArguments) -> Iterator[None]:
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


@decisions.get("/{stream}/pending", response_model=service_records.PendingPage)
async def list_pending(at: At, limit: Limit = 100, after: Annotated[int, Query(ge=-1, le=2**53)] = -1) -> Response:
    """List the pending decisions, oldest first. ``after``: the ``next`` of the previous page."""
    await wait_while_changing(at.stream)
    page, more = at.stream.core.list_pending(after, limit)
    return respond({"decisions": page, "next": more})


@decisions.get("/{stream}/decisions/{decision}", response_model=records.DecisionRecord)
async def get_decision(at: At, decision: DecisionId) -> Response:
    """Return a decision with its status and reward."""
    return await at.carry_out(lambda: Done(200, to_json(at.stream.find_decision(decision)), []))


@decisions.get("/{stream}/decisions/{decision}/explanation", response_model=records.Explanation)
async def explain_decision(at: At, decision: DecisionId) -> Response:
    """Explain a decision."""
    return await at.carry_out(
        lambda: Done(200, to_json(records.Explanation.of(at.stream.find_decision(decision).decision)), [])
    )


@outcomes.post("/{stream}/decisions", status_code=201, response_model=records.Decision)
async def decide(at: At, body: RawDecision, idempotency_key: IdempotencyKey = None) -> Response:
    """Choose an arm. The answer is sent when the decision is on disk."""
    done = await at.engine.carry_out(
        at.stream, lambda: at.stream.decide(body, idempotency_key, read_clock()), size=len(body)
    )
    return respond_done(done, location=f"/v1/streams/{at.stream.name}/decisions/{from_json(done.body)['id']}")


@outcomes.post("/{stream}/predict", response_model=records.Predictions)
async def predict(at: At, body: RawDecision) -> Response:
    """Predict the reward of each arm, without deciding or changing anything."""
    return await _preview(at, body, is_ranked=False)


@outcomes.post("/{stream}/rank", response_model=records.Predictions)
async def rank(at: At, body: RawDecision) -> Response:
    """Rank the arms, most preferred first, without deciding or changing anything."""
    return await _preview(at, body, is_ranked=True)


async def _preview(at: Target, body: bytes, *, is_ranked: bool) -> Response:
    def preview() -> Done:
        return at.stream.preview(body, read_clock(), is_ranked=is_ranked)

    return respond_done(await at.engine.operate(at.stream, preview, size=len(body)))


@outcomes.put("/{stream}/decisions/{decision}/reward", response_model=records.RewardReceipt)
async def set_reward(at: At, decision: DecisionId, body: requests.Reward) -> Response:
    """Set the reward of a decision.

    Repeating the same value changes nothing; another value is a conflict. After the timeout the reward is recorded but
    not learned, and the status is "expired".
    """
    return await at.carry_out(lambda: at.stream.reward(decision, body.value, read_clock()), decision)


@outcomes.post("/{stream}/decisions/{decision}/rewards", response_model=records.RewardReceipt)
async def add_reward(
    at: At, decision: DecisionId, body: requests.Reward, idempotency_key: IdempotencyKey = None
) -> Response:
    """Add a part to the reward of a decision. The sum is learned at the timeout."""
    return await at.carry_out(
        lambda: at.stream.add_reward(decision, body.value, idempotency_key, read_clock()), decision
    )


@outcomes.post("/{stream}/decisions/batch", response_model=service_records.BatchResults)
async def decide_batch(at: At, body: requests.DecisionBatch) -> Response:
    """Make several decisions, one after the other. Every item has its own status and may have a key."""

    def decide(item: requests.DecisionItem) -> Done:
        raw = to_json(item.model_dump(exclude={"key"}, exclude_unset=True))
        return at.stream.decide(raw, item.key, read_clock())

    return await _run_batch(at, decide, body.decisions, "decisions", "decision")


@outcomes.post("/{stream}/rewards/batch", response_model=service_records.BatchResults)
async def set_rewards(at: At, body: requests.RewardBatch) -> Response:
    """Set the rewards of several decisions. Every item has its own status."""

    def set_reward(item: requests.RewardItem) -> Done:
        return at.stream.reward(item.decision, item.value, read_clock())

    return await _run_batch(at, set_reward, body.rewards, "rewards", "receipt")


@outcomes.post("/{stream}/history", response_model=service_records.LearnedRows)
async def learn_history(at: At, body: RawHistory, idempotency_key: IdempotencyKey = None) -> Response:
    """Learn past decisions in bulk, all rows or none."""
    return respond_done(await bulk_history.learn_history(at.engine, at.stream, body, idempotency_key))


async def _run_batch(
    at: Target, operate: Callable[[Any], Done], items: Sequence[Any], field: str, result: str
) -> Response:
    if "idempotency-key" in at.request.headers:
        raise Problem("invalid", "Idempotency-Key: not allowed for a batch; give each item its own key")
    at.request.scope[CHARGE](len(items) - 1)
    results = []
    pauses = Pauses(at.engine.turnstile)
    for i, item in enumerate(items):
        try:
            done = await at.engine.operate(
                at.stream, partial(operate, item), size=item.size, decision=getattr(item, "decision", None)
            )
            results.append(b'{"status":%d,"%s":%s}' % (done.status, result.encode(), done.body))
        except Problem as problem:
            if problem.status >= 500 and problem.code != "unreadable":  # which fails the item that needs the event
                raise
            problem.move_pointers(f"#/{field}/{i}")
            results.append(b'{"status":%d,"problem":%s}' % (problem.status, problem.to_json()))
        await pauses.take()
    await at.engine.commit(at.stream)
    return Response(b'{"results":[%s]}' % b",".join(results), media_type="application/json")
