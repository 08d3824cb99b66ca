"""Spans of requests: what they name and leave out, whose trace they continue, and that there are none by default."""

from __future__ import annotations

import asyncio
import contextlib
import http.server
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from opentelemetry import trace
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from support.nodes import NodeForks, ServiceCluster
from support.postgres import Cluster
from support.refusals import rejects
from support.server import ARMS, Local, run_local, serve
from windvane.client import AsyncClient, Client
from windvane.service.http.tracing import open_provider

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"
SECRET = "anna-from-berlin"  # what no span may contain
NAMES = {
    "http.request.method", "http.route", "http.response.status_code", "error.type", "windvane.stream",
    "windvane.decision", "windvane.node", "windvane.request_id",
}  # fmt: skip


class Traced:
    """A service in this process, and the spans of its requests."""

    def __init__(self, service: Local, spans: InMemorySpanExporter) -> None:
        self.service, self._spans = service, spans

    def take(self) -> list[ReadableSpan]:
        """Return the spans since the last call, in the order in which they ended."""
        taken = list(self._spans.get_finished_spans())
        self._spans.clear()
        return taken

    def take_one(self) -> tuple[ReadableSpan, dict[str, Any]]:
        """Return the only span since the last call, and its attributes."""
        (span,) = self.take()
        return span, dict(span.attributes or {})


def make_provider() -> tuple[TracerProvider, InMemorySpanExporter]:
    spans, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    return provider, spans


@pytest.fixture
def traced(tmp_path: Path) -> Iterator[Traced]:
    provider, spans = make_provider()
    with run_local(tmp_path / "a.db", tracer_provider=provider) as service:
        service.create()
        spans.clear()
        yield Traced(service, spans)


def test_a_decision_has_a_span(traced: Traced) -> None:
    decision = traced.service.decide()["id"]
    span, attributes = traced.take_one()
    assert span.name == "POST /v1/streams/{stream}/decisions"
    assert span.kind is trace.SpanKind.SERVER
    assert (attributes["windvane.stream"], attributes["windvane.decision"]) == ("shop", decision)
    assert attributes["http.response.status_code"] == 201
    assert span.parent is None
    assert span.status.status_code is trace.StatusCode.UNSET


def test_a_reward_has_a_span_with_its_decision(traced: Traced) -> None:
    decision = traced.service.decide()["id"]
    answer = traced.service.reward(decision, 1.0)
    span = traced.take()[-1]
    attributes = dict(span.attributes or {})
    assert span.name == "PUT /v1/streams/{stream}/decisions/{decision}/reward"
    assert attributes["windvane.decision"] == decision
    assert attributes["windvane.request_id"] == answer.headers["x-request-id"]


def test_a_new_stream_is_named(traced: Traced) -> None:
    traced.service.create("other")
    assert traced.take_one()[1]["windvane.stream"] == "other"


def test_reads_have_spans(traced: Traced) -> None:
    traced.service.info()
    assert traced.take_one()[0].name == "GET /v1/streams/{stream}"


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics", "/", "/docs", "/openapi.json", "/nothing"])
def test_other_paths_have_none(traced: Traced, path: str) -> None:
    traced.service.get(path)
    assert traced.take() == []


def test_a_refused_request_names_its_problem(traced: Traced) -> None:
    traced.service.put("/v1/streams/shop/decisions/x/reward", {"value": 1.0})
    span, attributes = traced.take_one()
    assert (attributes["error.type"], attributes["http.response.status_code"]) == ("unknown-decision", 404)
    assert span.status.status_code is trace.StatusCode.UNSET  # the fault of the client


def test_a_path_without_a_route_is_not_in_the_span(traced: Traced) -> None:
    traced.service.get(f"/v1/{SECRET}/x")
    span, attributes = traced.take_one()
    assert (span.name, attributes["http.route"]) == ("GET other", "other")
    assert SECRET not in span.to_json()


def test_a_failure_is_an_error_without_its_message(traced: Traced, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError(SECRET)

    monkeypatch.setattr(traced.service.engine.operations, "carry_out", fail)
    assert traced.service.post("/v1/streams/shop/decisions", ARMS).status_code == 500
    span, attributes = traced.take_one()
    assert span.status.status_code is trace.StatusCode.ERROR
    assert attributes["error.type"] == "internal"
    assert SECRET not in span.to_json()


def test_a_trace_is_continued(traced: Traced) -> None:
    traced.service.decide(headers={"traceparent": TRACEPARENT})
    span, _ = traced.take_one()
    assert span.context is not None
    assert span.parent is not None
    assert (f"{span.context.trace_id:032x}", f"{span.parent.span_id:016x}") == (TRACE, PARENT)


@pytest.mark.parametrize("header", ["", "00-0-0-01", "\x00", "00-" + "0" * 32 + "-" + "0" * 16 + "-01", "x" * 4000])
def test_a_header_that_is_no_trace_begins_a_new_one(traced: Traced, header: str) -> None:
    traced.service.decide(headers={"traceparent": header})
    assert traced.take_one()[0].parent is None


def test_no_span_contains_personal_data(tmp_path: Path) -> None:
    """Contexts, features, arms, rewards, keys, tokens, query strings, addresses: only the names in ``NAMES``."""
    provider, spans = make_provider()
    with run_local(tmp_path / "a.db", tracer_provider=provider) as service:
        features = {"shared": {"person": [SECRET, "other"]}, "arms": ["red", SECRET]}
        service.create("shop", features=features)
        body = {"context": {"person": SECRET}}
        headers = {
            "authorization": f"Bearer {SECRET}",
            "user-agent": SECRET,
            "cookie": SECRET,
            "baggage": f"a={SECRET}",
        }
        decision = service.decide("shop", body, headers=headers)["id"]
        service.post("/v1/streams/shop/predict", body)
        service.post("/v1/streams/shop/decisions", {"context": {SECRET: 1}})  # an error that quotes it
        service.reward(decision, 0.123456)
        service.get(f"/v1/streams?after={SECRET}")
        for span in spans.get_finished_spans():
            assert SECRET not in span.to_json()
            assert "0.123456" not in span.to_json()
            assert set(span.attributes or {}) <= NAMES
            assert not span.events
        assert len(spans.get_finished_spans()) == 6


def test_the_client_sends_its_trace(tmp_path: Path) -> None:
    """A program's span is the parent of the service's, over HTTP, from blocking and from asynchronous code."""
    tracer = make_provider()[0].get_tracer("program")
    server, parents = serve(tmp_path / "a.db", "--tracing", "console"), {}
    with Client(server.address, send_trace=True) as client:
        client.create("shop", dim=2)
        with tracer.start_as_current_span("order") as span:
            decision = client.decide("shop", ARMS["arms"])
            parents[decision.id] = span
        client.reward("shop", decision, 1.0)

    async def order() -> None:
        async with AsyncClient(server.address, send_trace=True) as client:
            with tracer.start_as_current_span("order") as span:
                parents[(await client.decide("shop", ARMS["arms"])).id] = span

    asyncio.run(order())
    assert server.stop() == 0
    assert server.service is not None
    spans = [json.loads(line) for line in server.service.errors.splitlines()]
    decided = {each["attributes"]["windvane.decision"]: each for each in spans if each["name"].endswith("/decisions")}
    assert decided.keys() == parents.keys()
    for key, span in parents.items():
        assert decided[key]["parent_id"] == f"0x{span.get_span_context().span_id:016x}"
        assert decided[key]["resource"]["attributes"]["service.name"] == "windvane"
    (rewarded,) = (each for each in spans if each["name"].endswith("/reward"))
    assert rewarded["parent_id"] is None


def test_traces_go_on_from_node_to_node(node_forks: NodeForks, cluster: Cluster) -> None:
    """The span of the owner is a child of the span of the node that forwards to it, in the trace of the client."""
    cluster.start()
    database = cluster.create_database()
    with contextlib.closing(ServiceCluster(node_forks, cluster, database, tracing="console")) as nodes:
        nodes.start("a", "b")
        stream = nodes.create_owned("a")
        headers = {"traceparent": TRACEPARENT, "tracestate": "shop=1"}
        path = f"/v1/streams/{stream}/decisions"
        assert nodes.nodes["b"].call("POST", path, ARMS, **headers)[0] == 201
        for node in nodes.nodes.values():
            node.stop()
        lines = [line for node in nodes.nodes.values() for line in node.log.read_text().splitlines()]
    spans = [json.loads(line) for line in lines if line.startswith('{"name"')]
    ours = {span["attributes"]["windvane.node"]: span for span in spans if TRACE in span["context"]["trace_id"]}
    assert ours["b"]["parent_id"] == f"0x{PARENT}"
    assert ours["a"]["parent_id"] == ours["b"]["context"]["span_id"]
    assert ours["a"]["attributes"]["windvane.decision"] == ours["b"]["attributes"]["windvane.decision"]
    assert "key=shop, value=1" in ours["a"]["context"]["trace_state"]
    cluster.drop_database(database)


def test_without_tracing_nothing_is_made_or_loaded(tmp_path: Path) -> None:
    """No SDK, no exporter, and no span; nor does the client load OpenTelemetry."""
    code = """
import sys, tempfile, windvane, windvane.service.server
from windvane.service.http.app import create_app
from windvane.service.store import open_store
windvane.Client()
app = create_app(open_store(tempfile.mktemp()))
parts = ("opentelemetry.sdk", "opentelemetry.exporter", "windvane.trace_context")
print([name for name in sys.modules if name.startswith(parts)])
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n", done.stderr


def test_a_collector_that_does_not_answer_delays_the_end_by_a_moment_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """It accepts connections and says nothing, for longer than the service waits."""
    monkeypatch.setattr("windvane.service.http.tracing.FLUSH_SECONDS", 0.01)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        with open_provider("otlp") as provider:
            assert provider is not None
            with provider.get_tracer("test").start_as_current_span("last"):
                pass
        sending = [thread for thread in threading.enumerate() if "Otel" in thread.name]
        assert sending  # it has not been waited for
        for thread in sending:
            thread.join(30.0)


class Collector(http.server.BaseHTTPRequestHandler):
    """Takes spans as a collector does."""

    received: ClassVar[list[tuple[str, ExportTraceServiceRequest]]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.received.append((self.path, ExportTraceServiceRequest.FromString(body)))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


def test_spans_reach_a_collector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them, the last ones when the service stops; with the name that the environment gives the service."""
    with http.server.HTTPServer(("127.0.0.1", 0), Collector) as collector:
        thread = threading.Thread(target=collector.serve_forever)
        thread.start()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{collector.server_port}")
        monkeypatch.setenv("OTEL_SERVICE_NAME", "shop-decisions")
        server = serve(tmp_path / "a.db", "--tracing", "otlp")
        with Client(server.address) as client:
            client.create("shop", dim=2)
            client.decide("shop", ARMS["arms"])
        assert server.stop() == 0
        collector.shutdown()
        thread.join()
    assert {path for path, _ in Collector.received} == {"/v1/traces"}
    found = [each for _, request in Collector.received for each in request.resource_spans]
    assert {a.value.string_value for each in found for a in each.resource.attributes} >= {"shop-decisions"}
    names = [span.name for each in found for scope in each.scope_spans for span in scope.spans]
    assert names == ["POST /v1/streams", "POST /v1/streams/{stream}/decisions"]


def test_other_exporters_are_refused() -> None:
    with rejects("tracing", value="zipkin"), open_provider("zipkin"):
        pass


def test_send_trace_must_be_a_flag() -> None:
    with rejects("send_trace"):
        Client(send_trace="yes")  # type: ignore[arg-type]
