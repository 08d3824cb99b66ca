"""The service's routes. What they do is in :mod:`windvane.service.streams`; here is how it is asked for over HTTP."""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.exceptions import HTTPException

import windvane
from windvane.service import answers, export, express, live, page, schemas
from windvane.service.access import Access
from windvane.service.answers import body_errors, errors
from windvane.service.engine import Engine
from windvane.service.errors import ServiceError, internal, unavailable
from windvane.service.gate import ALLOWED, CHARGE, App, Gate
from windvane.service.metrics import Metrics
from windvane.service.store import Store
from windvane.service.stream_answers import describe_stream
from windvane.service.streams import Done, Stream
from windvane.warmup import warm_up

MOST_BYTES = 4 << 20

Name = Annotated[str, Path(pattern=schemas.NAME)]
DecisionId = Annotated[str, Path(min_length=1, max_length=64)]

log = logging.getLogger("windvane.service")


def create_app(
    store: Store,
    *,
    rate: float = 0.0,
    most_bytes: int = MOST_BYTES,
    hosts: frozenset[str] | None = None,
    closed: bool = False,
    closing: asyncio.Event | None = None,
) -> App:
    """The ASGI application, with all streams rebuilt; when it stops, they are written out.

    ``closed``: without a token in the store, nobody is let in. ``closing`` is to be set when the server wants to stop:
    it ends the answers that would go on for ever.
    """
    metrics = Metrics()
    engine = Engine(store, metrics.committed)
    metrics.watch(engine)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        warm_up(engine.used_policies())  # or the first decision would hold up all others while kernels are compiled
        await engine.start()
        yield
        await engine.stop()

    app = FastAPI(
        title="windvane", version=windvane.__version__, lifespan=lifespan, docs_url=None, redoc_url=None,
        redirect_slashes=False,
    )  # fmt: skip
    app.state.engine, app.state.metrics, app.state.closing = engine, metrics, closing or asyncio.Event()
    app.include_router(_reading)
    app.include_router(_changing)
    app.include_router(page.router)
    app.add_exception_handler(ServiceError, _told)
    app.add_exception_handler(RequestValidationError, _misfit)
    app.add_exception_handler(HTTPException, _plain_error)
    app.add_exception_handler(sqlite3.Error, _unreadable)
    app.add_exception_handler(Exception, _internal)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    access = Access(store, rate=rate, closed=closed, report=engine.report_damage)
    return Gate(express.Express(app), access, metrics, most_bytes=most_bytes, hosts=hosts)


# --- reading -------------------------------------------------------------------------------------------------------

_reading = APIRouter()


@_reading.get("/healthz", tags=["service"])
async def healthz() -> answers.Health:
    """Whether the process is there."""
    return answers.Health(status="ok")


@_reading.get("/readyz", tags=["service"], responses={503: {"model": answers.Error, "description": "not yet"}})
async def readyz(request: Request) -> answers.Health:
    """Whether requests are answered."""
    _engine(request).refuse_if_broken()
    return answers.Health(status="ready")


@_reading.get(
    "/metrics", tags=["service"], response_class=Response, responses={**errors(), 200: {"content": {"text/plain": {}}}}
)
async def metrics(request: Request) -> Response:
    """Counters in Prometheus' text format."""
    return Response(request.app.state.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


@_reading.get("/v1/streams", tags=["streams"], response_model=answers.StreamsAnswer, responses=errors())
async def streams(request: Request) -> JSONResponse:
    """All streams, archived ones too; and those that could not be rebuilt from their log, with the reason."""
    engine = _engine(request)
    engine.refuse_if_broken()
    return JSONResponse(
        {"streams": [describe_stream(stream) for stream in engine.streams.values()], "broken": engine.broken}
    )


@_reading.get("/v1/streams/{name}", tags=["streams"], response_model=answers.StateAnswer, responses=errors(404, 422))
async def state(request: Request, name: Name) -> Response:
    """A stream in full: counts, estimate, memory, drift, and what the page draws."""
    return Response(_engine(request).stream(name).state_json(), media_type="application/json")


@_reading.get(
    "/v1/streams/{name}/decisions/{decision}",
    tags=["streams"],
    response_model=answers.PastAnswer,
    responses=errors(404, 422),
)
async def past(request: Request, name: Name, decision: DecisionId) -> JSONResponse:
    """A decision, why it was made, and what became of it."""
    engine = _engine(request)
    stream = engine.stream(name)
    await engine.commit(stream)  # what has happened is on disk then
    return JSONResponse(export.past(stream, decision))


@_reading.get(
    "/v1/streams/{name}/events",
    tags=["streams"],
    response_class=StreamingResponse,
    responses={
        **errors(404, 422),
        200: {"content": {"application/x-ndjson": {}, "application/vnd.apache.parquet": {}}},
    },
)
async def events(
    request: Request,
    name: Name,
    format: Annotated[str, Query(pattern="^(ndjson|parquet)$")] = "ndjson",
    after: Annotated[int, Query(ge=0, le=2**40)] = 0,
    limit: Annotated[int, Query(ge=1, le=2**40)] = 2**40,
) -> Response:
    """The log: one event a line, or a Parquet file. ``after``: only events with a higher number.

    Every event is checked. Where one cannot be read, the last line says so ("kind": "unreadable") and the transfer is
    broken off; if it is the first one, or for Parquet any one, the answer is an error. The log of a stream that is set
    aside can be read up to the damage.
    """
    engine = _engine(request)
    row, last = await engine.find_log(name)
    log_ = export.Log(engine.store, row, last, engine.report_damage)
    return await export.exported(log_, format, after, limit)


@_reading.get(
    "/v1/streams/{name}/live",
    tags=["streams"],
    response_class=StreamingResponse,
    responses={**errors(404, 422), 200: {"content": {"text/event-stream": {}}}},
)
async def watch(request: Request, name: Name) -> Response:
    """The stream in full whenever it has changed, as server-sent events, at most one a second."""
    return live.events(_engine(request), name, request.app.state.closing, request.scope[ALLOWED])


# --- changing ------------------------------------------------------------------------------------------------------

_changing = APIRouter()


def _takes(model: type[Any], *, key: bool = True) -> dict[str, Any]:
    """Documentation of a body that is read without FastAPI's help, and of the header with the key."""
    schema = {"$ref": f"#/components/schemas/{model.__name__}"}
    extra: dict[str, Any] = {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}
    if key:
        header = {"type": "string", "minLength": 1, "maxLength": express.MOST_KEY}
        text = "The same request with the same key again gets the same answer, and is not carried out twice."
        extra["parameters"] = [{"name": "Idempotency-Key", "in": "header", "schema": header, "description": text}]
    return extra


@_changing.post(
    "/v1/streams", tags=["streams"], status_code=201, response_model=answers.StreamAnswer, responses=body_errors(409),
    openapi_extra=_takes(schemas.NewStream, key=False),
)  # fmt: skip
async def create(request: Request) -> JSONResponse:
    """A new stream; its settings are those of the library's Agent."""
    new = schemas.parsed(schemas.NewStream, await request.body())
    return JSONResponse(describe_stream(await _engine(request).create(new)), status_code=201)


@_changing.patch(
    "/v1/streams/{name}", tags=["streams"], response_model=answers.StreamAnswer, responses=body_errors(404, 409),
    openapi_extra=_takes(schemas.Changes, key=False),
)  # fmt: skip
async def configure(request: Request, name: Name) -> Response:
    """Change settings of a running stream."""
    changes = schemas.parsed(schemas.Changes, await request.body()).model_dump(exclude_unset=True)
    engine = _engine(request)
    return _answered(await engine.configure(engine.stream(name), changes))


@_changing.post(
    "/v1/streams/{name}/archive", tags=["streams"], response_model=answers.StreamAnswer, responses=body_errors(404)
)
async def archive(request: Request, name: Name) -> Response:
    """End a stream: it can be read for ever, and decides and learns no more."""
    engine = _engine(request)
    stream = engine.stream(name)
    return _answered(await engine.carry_out(stream, lambda: stream.archive(time.time())))


@_changing.post(
    "/v1/streams/{name}/decide", tags=["decisions"], response_model=answers.DecisionAnswer,
    responses=body_errors(404, 409), openapi_extra=_takes(schemas.Decide),
)  # fmt: skip
async def decide(request: Request, name: Name) -> Response:
    """Choose an arm. The answer is given when the decision is on disk."""
    return _answered(await express.decide(_engine(request), name, await request.body(), _key(request)))


@_changing.post(
    "/v1/streams/{name}/reward", tags=["decisions"], response_model=answers.RewardAnswer,
    responses=body_errors(404, 409, 410), openapi_extra=_takes(schemas.Reward),
)  # fmt: skip
async def reward(request: Request, name: Name) -> Response:
    """The reward of a decision; the same again is fine, another one is a conflict."""
    return _answered(await express.reward(_engine(request), name, await request.body(), _key(request)))


@_changing.post(
    "/v1/streams/{name}/decide/batch", tags=["decisions"], response_model=answers.BatchAnswer,
    responses=body_errors(404, 409), openapi_extra=_takes(schemas.DecideBatch, key=False),
)  # fmt: skip
async def decide_batch(request: Request, name: Name) -> Response:
    """Several rounds, one after the other; every item has a status of its own."""
    batch = schemas.parsed(schemas.DecideBatch, await request.body())
    stream = _engine(request).stream(name)

    def one(item: schemas.DecideItem) -> Done:
        raw = item.model_dump_json(exclude={"key"}, exclude_none=True).encode()
        return stream.decide(raw, item.key, time.time())

    return await _batch(request, stream, one, batch.items)


@_changing.post(
    "/v1/streams/{name}/reward/batch", tags=["decisions"], response_model=answers.BatchAnswer,
    responses=body_errors(404, 409), openapi_extra=_takes(schemas.RewardBatch, key=False),
)  # fmt: skip
async def reward_batch(request: Request, name: Name) -> Response:
    """Several rewards; every item has a status of its own."""
    batch = schemas.parsed(schemas.RewardBatch, await request.body())
    stream = _engine(request).stream(name)

    def one(item: schemas.RewardItem) -> Done:
        return stream.reward(item.decision, item.value, item.key, time.time())

    return await _batch(request, stream, one, batch.items)


@_changing.post(
    "/v1/streams/{name}/history", tags=["decisions"], response_model=answers.HistoryAnswer,
    responses=body_errors(404, 409), openapi_extra=_takes(schemas.History),
)  # fmt: skip
async def history(request: Request, name: Name) -> Response:
    """Learn decisions of the past in bulk, all rows or none."""
    raw, key = await request.body(), _key(request)
    express.check_key(key)
    engine = _engine(request)
    return _answered(await engine.learn(engine.stream(name), raw, key))


# --- what they share -----------------------------------------------------------------------------------------------


def _engine(request: Request) -> Engine:
    found: Engine = request.app.state.engine
    return found


def _key(request: Request) -> str | None:
    return request.headers.get("idempotency-key")


def _answered(done: Done) -> Response:
    return Response(done.body, status_code=done.status, media_type="application/json")


async def _batch(request: Request, stream: Stream, do: Callable[[Any], Done], items: Sequence[Any]) -> Response:
    if _key(request) is not None:
        text = "Idempotency-Key: a batch has none; give each of its items a key"
        raise ServiceError(422, "invalid", text, "Idempotency-Key")
    engine, results = _engine(request), []
    request.scope[CHARGE](len(items) - 1)
    for i, item in enumerate(items):
        await engine.turn(stream)
        try:
            with engine.operating(stream):
                done = do(item)
        except ServiceError as error:
            if error.status >= 500 and error.code != "unreadable":  # one event costs the item that needs it
                raise
            results.append({"status": error.status, "answer": error.document})
            continue
        engine.hand_over(stream, done.events)  # before anybody else can: the log has the order in which things happened
        results.append({"status": done.status, "answer": json.loads(done.body)})
        if i % 16 == 15:
            await asyncio.sleep(0)  # a long batch lets others through between its rounds
    await engine.commit(stream)
    return JSONResponse({"results": results})


async def _told(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ServiceError)
    headers = {"retry-after": "1"} if error.status == 503 else None
    return JSONResponse(error.document, status_code=error.status, headers=headers)


async def _unreadable(request: Request, error: Exception) -> JSONResponse:
    log.error("%s %s: the store cannot be read: %s", request.method, request.url.path, error)
    _engine(request).report_damage(error)
    return await _told(request, unavailable("the store cannot be read"))


async def _internal(request: Request, _: Exception) -> JSONResponse:
    """The gate writes it to the log."""
    return await _told(request, internal())


async def _misfit(_: Request, error: Exception) -> JSONResponse:
    """A wrong path or query."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    field = str(first["loc"][-1])
    return JSONResponse(ServiceError(422, "invalid", f"{field}: {first['msg']}", field).document, status_code=422)


async def _plain_error(_: Request, error: Exception) -> JSONResponse:
    """No such path, or not with this method."""
    assert isinstance(error, HTTPException)
    code = {404: "not_found", 405: "wrong_method"}.get(error.status_code, "http")
    found = ServiceError(error.status_code, code, str(error.detail))
    return JSONResponse(found.document, status_code=error.status_code, headers=error.headers)


def _openapi(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, routes=app.routes, description=_DESCRIPTION)
        models: list[type[BaseModel]] = [
            schemas.NewStream, schemas.Changes, schemas.Decide, schemas.DecideBatch, schemas.Reward,
            schemas.RewardBatch, schemas.History,
        ]  # fmt: skip
        _, found = models_json_schema(
            [(model, "validation") for model in models], ref_template="#/components/schemas/{model}"
        )
        components = document.setdefault("components", {})
        components.setdefault("schemas", {}).update(found["$defs"])
        components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"token": []}, {}]
        app.openapi_schema = document
    return app.openapi_schema


_DESCRIPTION = (
    "Decisions in a changing world: create a stream, ask it to decide, tell it the rewards. "
    "Whatever was answered with success is on disk."
)
