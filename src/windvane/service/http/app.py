"""The ASGI application of the service."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from importlib import resources
from typing import TYPE_CHECKING

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse
from starlette.routing import BaseRoute
from starlette.staticfiles import StaticFiles

import windvane
from windvane.service.cluster.placement import ElsewhereError, NodeSettings
from windvane.service.engine import Engine
from windvane.service.http import decision_routes, erasure_routes, personalizer_routes, service_routes, stream_routes
from windvane.service.http.access import Access
from windvane.service.http.json_routes import JsonRoutes
from windvane.service.http.metrics import Metrics
from windvane.service.http.middleware import SEE_LOG, ServiceMiddleware, respond
from windvane.service.http.moved_streams import Again, find_answer
from windvane.service.http.openapi import build_openapi
from windvane.service.http.other_nodes import OtherNodes
from windvane.service.problems import MovedError, Problem, list_errors
from windvane.service.readiness import refuse_read
from windvane.service.store import STORE_ERRORS, ServedStore

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

    from windvane.service.http.tracing import Tracing

MOST_BYTES = 4 << 20
MOST_STREAMS = 10_000
OPEN_SECONDS = 5.0  # that a node may take to join the cluster before it accepts connections
ROUTERS = [
    router for routes in (decision_routes, stream_routes, service_routes, erasure_routes) for router in routes.ROUTERS
]
"""Those with the most requests first, because routes are tried in order."""
STATIC = resources.files("windvane.service") / "static"
PAGES = {"/": "index.html", "/docs": "docs.html"}  # the live page, and the interactive documentation
DESCRIPTION = """Decisions in a changing world: create a stream, ask it to decide, send the rewards.

The events of every successful answer are on disk. Errors are problem details (RFC 9457), times are RFC 3339."""

log = logging.getLogger("windvane.service")


def create_app(
    store: ServedStore,
    *,
    rate: float = 0.0,
    most_bytes: int = MOST_BYTES,
    most_streams: int = MOST_STREAMS,
    hosts: frozenset[str] | None = None,
    closed: bool = False,
    log_requests: bool = False,
    skip_probes: bool = False,
    closing: asyncio.Event | None = None,
    node: NodeSettings | None = None,
    tracer_provider: TracerProvider | None = None,
    personalizer: str | None = None,
) -> ServiceMiddleware:
    """Return the ASGI application. It answers at once, and serves streams when they are recovered.

    Parameters
    ----------
    store
        The store. It is not closed.
    rate
        Requests per second per client; each item of a batch counts. 0: no limit.
    most_bytes
        Largest body, in bytes.
    most_streams
        How many streams there may be, including archived ones. Streams that exist are served even if there are more.
    hosts
        Host names that are allowed while no token is needed. Default: any.
    closed
        Whether a token is needed even if the store never had one.
    log_requests
        Whether to write a line to the log for every request.
    skip_probes
        Whether to leave out successful requests for ``/healthz``, ``/readyz`` and ``/metrics``.
    closing
        Set it when the server is about to stop: it ends responses that would otherwise never end.
    node
        Of a server that shares its store with others.
    tracer_provider
        Of OpenTelemetry, for a span per request. Default: no traces, and OpenTelemetry is not needed.
    personalizer
        The stream that answers ``/personalizer/v1.0``, which switches the routes of the Personalizer API on for all
        streams.
    """
    metrics, closing = Metrics(), closing or asyncio.Event()
    engine = Engine(store, metrics.count_commit, most_streams, node)
    access = Access(store.tokens, rate=rate, closed=closed, report=engine.report_damage)
    others = None if engine.placement is None else OtherNodes(engine.placement, access, closing)
    tracing = None if tracer_provider is None else _build_tracing(tracer_provider, node, others)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await engine.start()
        access.begin_reading()
        if others is not None:  # until then, connections wait to be accepted: other nodes could answer what it refuses
            await engine.wait_until_open(OPEN_SECONDS)
        async with nullcontext() if others is None else others.watch():
            yield
        await engine.stop()

    app = FastAPI(
        title="windvane",
        version=windvane.__version__,
        description=DESCRIPTION,
        lifespan=lifespan,
        routes=_list_routes(personalizer),  # an included router takes 10 µs
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        strict_content_type=False,  # the middleware checks it
        telemetry={"tracing": False, "metrics": False, "logs": False},  # asking whether it is on takes 12 µs a request
    )
    app.state.engine, app.state.metrics, app.state.closing, app.state.others = engine, metrics, closing, others
    _complete(app)
    return ServiceMiddleware(
        app, engine, access, metrics, most_bytes=most_bytes, hosts=hosts, log_requests=log_requests,
        skips_probes=skip_probes, json_routes=JsonRoutes(app, _handle), others=others, tracing=tracing,
        personalizer=personalizer,
    )  # fmt: skip


def _complete(app: FastAPI) -> None:
    """Add the pages, the answers to errors, and the description of the routes."""
    for path in PAGES:
        app.add_api_route(path, _get_page, include_in_schema=False)
    app.mount("/page", StaticFiles(directory=str(STATIC)))
    app.mount("/docs", StaticFiles(directory=str(STATIC), packages=[("fastapi_offline", "static")]))
    kinds = (ElsewhereError, MovedError, Problem, RequestValidationError, HTTPException, *STORE_ERRORS, Exception)
    for kind in kinds:
        app.add_exception_handler(kind, _handle)
    app.openapi = lambda: build_openapi(app)  # type: ignore[method-assign]


def _list_routes(personalizer: str | None) -> list[BaseRoute]:
    routers = ROUTERS if personalizer is None else [*ROUTERS, *personalizer_routes.ROUTERS]
    return [route for router in routers for route in router.routes]


def _build_tracing(provider: TracerProvider, node: NodeSettings | None, others: OtherNodes | None) -> Tracing:
    from windvane.service.http.tracing import Tracing
    from windvane.trace_context import build_trace_headers, list_trace_headers

    if others is not None:
        others.forwarder.continue_traces(list_trace_headers(), build_trace_headers)
    return Tracing(provider, None if node is None else node.name)


async def _get_page(request: Request) -> Response:
    return FileResponse(str(STATIC / PAGES[request.url.path]))


async def _handle(request: Request, error: Exception) -> Response:
    """Return the problem of an error, or the answer of another node."""
    headers = {}
    if isinstance(error, ElsewhereError | MovedError):
        try:
            return await find_answer(request, error, request.app.state.others) or Again(request.app)
        except Problem as refusal:
            error = refusal
    if isinstance(error, Problem):
        problem = error
    elif isinstance(error, RequestValidationError):
        problem = list_errors(error.errors())
    elif isinstance(error, HTTPException):
        headers = dict(error.headers or {})
        code = {404: "not-found", 405: "method-not-allowed", 500: "internal"}.get(error.status_code, "invalid")
        problem = Problem(code, f"{error.detail}; /docs lists all paths and methods")
    elif isinstance(error, STORE_ERRORS):
        log.error("%s %s: the store cannot be read: %s", request.method, request.url.path, error)
        request.app.state.engine.report_damage(error)
        problem = refuse_read(error)
    else:
        problem = Problem("internal", SEE_LOG)  # the middleware writes to it
    response = respond(problem, request.url.path)
    response.headers.update(headers)
    return response
