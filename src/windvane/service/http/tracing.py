"""Traces of OpenTelemetry: a span for every request under ``/v1``. Imported only if tracing is on.

A span continues the trace of the request's ``traceparent``. It names the route, the stream, the decision, the node and
the status. It holds no context, no features, no reward, no token and no address of a client.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from starlette.types import Message, Scope, Send

import windvane
from windvane.arguments import check_choice
from windvane.service.http.exchange import OTHER, Exchange
from windvane.trace_context import read_trace_headers

try:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter
    from opentelemetry.trace import Span, SpanKind, StatusCode
    from opentelemetry.trace import TracerProvider as AnyTracerProvider
except ModuleNotFoundError as error:
    hint = f"{error.name} is missing; install it with: pip install 'windvane[opentelemetry]'"
    raise ModuleNotFoundError(hint, name=error.name) from None

TRACED = "/v1/"
LIVE = "/live"  # which lasts as long as a page is open
OTLP, CONSOLE = EXPORTERS = "otlp", "console"
_LOCATION = re.compile("/v1/streams/(?P<stream>[^/]+)(/decisions/(?P<decision>[^/]+))?")  # of what was created
FLUSH_SECONDS = 3.0  # in which the last spans must have been sent when the service stops


class Tracing:
    """Makes the spans of requests. ``node``: the name of this server, if there are several."""

    def __init__(self, provider: AnyTracerProvider, node: str | None) -> None:
        self._tracer = provider.get_tracer("windvane.service", windvane.__version__)
        self._node = node

    def is_traced(self, scope: Scope) -> bool:
        """Return whether a request gets a span."""
        path: str = scope["path"]
        return path.startswith(TRACED) and not path.endswith(LIVE) and scope["method"] != "HEAD"

    async def trace(self, scope: Scope, send: Send, answer: Callable[[Exchange], Awaitable[None]]) -> None:
        """Call ``answer`` within a span."""
        location = ""

        async def watch(message: Message) -> None:
            nonlocal location
            if message["type"] == "http.response.start" and message["status"] == 201:
                location = next((value.decode() for name, value in message["headers"] if name == b"location"), "")
            await send(message)

        exchange = Exchange(scope, watch)
        # Messages of exceptions can quote contexts.
        with self._tracer.start_as_current_span(
            exchange.method, read_trace_headers(exchange.headers), SpanKind.SERVER, record_exception=False,
            set_status_on_exception=False,
        ) as span:  # fmt: skip
            try:
                await answer(exchange)
            finally:
                self._describe(span, exchange, scope, location)

    def _describe(self, span: Span, exchange: Exchange, scope: Scope, location: str) -> None:
        route = getattr(scope.get("route"), "path", OTHER)
        created = _LOCATION.fullmatch(location)
        named = scope.get("path_params", {}) | (created.groupdict() if created else {})
        attributes: dict[str, Any] = {
            "http.request.method": exchange.method,
            "http.route": route,
            "http.response.status_code": exchange.status,
            "error.type": exchange.info.problem,
            "windvane.stream": named.get("stream"),
            "windvane.decision": named.get("decision"),
            "windvane.node": self._node,
            "windvane.request_id": exchange.info.id,
        }
        span.update_name(f"{exchange.method} {route}")
        span.set_attributes({name: value for name, value in attributes.items() if value is not None})
        if exchange.status >= 500:
            span.set_status(StatusCode.ERROR)


@contextlib.contextmanager
def open_provider(exporter: str | None) -> Iterator[TracerProvider | None]:
    """Yield what sends spans to ``exporter``; None for None. Afterwards, the last spans are sent.

    Parameters
    ----------
    exporter
        "otlp": to a collector, at ``OTEL_EXPORTER_OTLP_ENDPOINT``; "console": a line of JSON on standard error for each
        span. OpenTelemetry's variables set name, resource, sampler, limits and batches.
    """
    if exporter is None:
        yield None
        return
    name = os.environ.get("OTEL_SERVICE_NAME", "windvane")
    resource = Resource.create({"service.name": name, "service.version": windvane.__version__})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(_build_exporter(exporter)))
    try:
        yield provider
    finally:
        # A collector that does not answer must not keep the service from stopping.
        flushing = threading.Thread(target=provider.shutdown, daemon=True)
        flushing.start()
        flushing.join(FLUSH_SECONDS)


def _build_exporter(kind: str) -> SpanExporter:
    if check_choice("tracing", kind, EXPORTERS) == CONSOLE:
        return ConsoleSpanExporter(out=sys.stderr, formatter=lambda span: span.to_json(indent=None) + "\n")
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter()
