"""Probes, metrics, the page, what is followed, and faults: everything of the service but its streams."""

from __future__ import annotations

import logging
import sqlite3
import threading
from pathlib import Path
from unittest.mock import Mock

import pytest

from support.server import ARMS, Local, parse_json, read_problem, run_server, until
from windvane.service.http import metrics
from windvane.service.readiness import NotReady
from windvane.service.turns import hold


@pytest.fixture
def service(service: Local) -> Local:
    service.create("shop", reward_timeout=3)
    return service


def test_probes(service: Local) -> None:
    assert service.get("/healthz").json() == {"status": "ok"}
    assert service.get("/readyz").json()["status"] == "ready"
    service.engine.failure = NotReady.of("recovering", "3 of 10 streams")
    assert service.get("/healthz").status_code == 200
    for path in ("/readyz", "/v1/streams", "/v1/streams/shop", "/v1/streams/shop/events"):
        answer = service.get(path)
        problem = read_problem(answer, 503)
        assert (problem["code"], problem["cause"]) == ("unavailable", "recovering")
        assert "recovering: 3 of 10 streams" in problem["detail"]
        assert answer.headers["retry-after"] == "1"
    assert read_problem(service.post("/v1/streams/shop/decisions", ARMS), 503)["code"] == "unavailable"
    lines = service.get("/metrics").text.splitlines()
    assert {line for line in lines if line.startswith("windvane_not_ready") and line.endswith(" 1.0")} == {
        'windvane_not_ready{cause="recovering"} 1.0'
    }
    service.engine.failure = None


def test_an_answer_is_a_line(service: Local) -> None:
    """In a terminal, what follows it begins on the next one."""
    answers = [
        service.post("/v1/streams", {"name": "new", "dim": 1}),
        service.post("/v1/streams/shop/decisions", ARMS),
        service.post("/v1/streams/shop/decisions/batch", {"decisions": [ARMS]}),
        service.get("/v1/streams/shop", headers={"accept-encoding": "identity"}),
        service.get("/v1/streams/shop"),
        service.get("/healthz"),
        service.get("/v1/streams/nowhere"),
        service.post("/v1/streams/shop/decisions", {"arms": {}}),
    ]
    for answer in answers:
        assert answer.content.endswith(b"}\n")
        assert answer.content.count(b"\n") == 1
        assert int(answer.headers["content-length"]) == answer.num_bytes_downloaded  # as sent, before it is unpacked
    plain, packed = answers[3:5]  # the client accepts gzip unless it is told not to
    assert ("content-encoding" in plain.headers, packed.headers["content-encoding"]) == (False, "gzip")
    assert packed.content == plain.content
    assert packed.num_bytes_downloaded < plain.num_bytes_downloaded == len(plain.content)


def test_a_service_that_drains_answers_and_is_not_ready(service: Local) -> None:
    service.engine.is_draining = True
    problem = read_problem(service.get("/readyz"), 503)
    assert (problem["code"], problem["cause"]) == ("unavailable", "stopping")
    assert service.decide()["arm"]
    service.engine.is_draining = False
    assert service.get("/readyz").json()["status"] == "ready"


def test_metrics_count_what_happened(service: Local) -> None:
    decisions = [service.decide()["id"] for _ in range(6)]
    for decision, value in zip(decisions[-2:], (0.25, 1.0), strict=True):
        service.reward(decision, value)
    service.reward("nobody", 1.0)
    service.get("/nowhere")
    answer = service.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = [line.rpartition(" ") for line in answer.text.splitlines() if not line.startswith("#")]
    numbers = {name: float(value) for name, _, value in lines}
    path, reward = "/v1/streams/{stream}/decisions", "/v1/streams/{stream}/decisions/{decision}/reward"
    expected = {
        "windvane_ready": 1,
        "windvane_unavailable_streams": 0,
        'windvane_decisions_total{stream="shop"}': 6,
        'windvane_rewards_total{stream="shop"}': 2,
        'windvane_mean_reward{stream="shop"}': 0.625,
        'windvane_expired_total{stream="shop"}': 2,
        'windvane_pending{stream="shop"}': 2,
        f'windvane_requests_total{{route="{path}",status="201"}}': 6,
        f'windvane_requests_total{{route="{reward}",status="200"}}': 2,
        f'windvane_requests_total{{route="{reward}",status="404"}}': 1,
        'windvane_requests_total{route="/v1/streams",status="201"}': 1,
        'windvane_requests_total{route="other",status="404"}': 1,
        f'windvane_request_seconds_count{{route="{path}"}}': 6,
    }
    assert {name: numbers.get(name) for name in expected} == expected
    assert numbers["windvane_events_total"] == len(service.events()) == 10
    assert {name for name in numbers if name.startswith("windvane_alert{")}


def test_metrics_leave_out_what_cannot_be_read(service: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream that a thread is changing, perhaps for ever; the text is made in a thread."""
    monkeypatch.setattr(metrics, "WAIT_SECONDS", 0.05)
    service.create("other")
    threads, write = set[int](), metrics.generate_latest
    monkeypatch.setattr(metrics, "generate_latest", lambda part: (threads.add(threading.get_ident()), write(part))[1])

    async def scene() -> str:
        with hold(service.engine.streams["shop"], changing=True):
            return str((await service._client.get("/metrics")).text)

    text = service.run(scene())
    assert 'windvane_decisions_total{stream="other"} 0.0' in text
    assert 'stream="shop"' not in text
    assert 'windvane_alert{code="miscalibrated",stream="shop"} 0.0' in service.get("/metrics").text
    assert service.call(threading.get_ident) not in threads


def test_head_is_get_without_a_body(service: Local) -> None:
    for path in ("/", "/healthz", "/v1/streams", "/v1/streams/shop", "/metrics", "/docs", "/nowhere"):
        got, head = service.get(path), service.request("HEAD", path)
        assert (head.status_code, head.content) == (got.status_code, b"")
        assert head.headers["content-type"] == got.headers["content-type"]
    for path in ("/v1/streams/shop/live", "/v1/streams/shop/events"):
        assert service.request("HEAD", path).status_code == 405


def test_files_of_the_page_and_the_documentation(service: Local) -> None:
    for path, kind in (
        ("/", "text/html"), ("/docs", "text/html"), ("/page/page.css", "text/css"),
        ("/docs/swagger-ui-bundle.js", "text/javascript"), ("/docs/docs.js", "text/javascript"),
    ):  # fmt: skip
        answer = service.get(path, headers={"accept-encoding": "gzip"})
        assert (answer.status_code, answer.headers["content-type"].split(";")[0]) == (200, kind)
        assert "script-src 'self';" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-cache"
        assert len(answer.content) < 1024 or answer.headers["content-encoding"] == "gzip"
        if path.count("/") > 1:
            again = service.get(path, headers={"if-none-match": answer.headers["etag"]})
            assert (again.status_code, again.content) == (304, b"")
    assert "<script>" not in service.get("/docs").text  # which the policy would not allow
    assert service.get("/metrics", headers={"accept-encoding": "gzip"}).headers["content-encoding"] == "gzip"
    assert "content-encoding" not in service.get("/v1/streams/shop/events?format=parquet").headers


@pytest.mark.sqlite
def test_a_stream_can_be_followed(tmp_path: Path) -> None:
    """It is sent at once, and again when it has changed; a server that stops does not wait for its readers."""
    with run_server(tmp_path / "a.db") as server, server.client() as client, server.client() as other:
        client.post("/v1/streams", json={"name": "shop", "dim": 2})
        with other.stream("GET", "/v1/streams/shop/live", headers={"accept-encoding": "gzip"}) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            assert answer.headers["cache-control"] == "no-cache"
            assert "content-encoding" not in answer.headers
            lines = (line for line in answer.iter_lines() if line)
            assert next(lines) == "event: info"
            first = parse_json(next(lines).removeprefix("data: "))
            assert first["info"] == client.get("/v1/streams/shop").json()
            decision = client.post("/v1/streams/shop/decisions", json=ARMS).json()["id"]
            assert next(lines) == "event: info"
            second = parse_json(next(lines).removeprefix("data: "))
            assert second["charts"]["recent"][-1]["id"] == decision
            assert server.stop() == 0


def test_a_fault_reveals_nothing(
    service: Local, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A programming error anywhere: a problem for the client, the traceback for the log."""
    before, fail = service.state(), Mock(side_effect=RuntimeError("/srv/secret/path is 0xdeadbeef"))
    stream = service.engine.streams["shop"]
    with monkeypatch.context() as patch, caplog.at_level(logging.ERROR):
        patch.setattr(type(stream), "info", fail)
        answer = service.get("/v1/streams/shop")
        assert read_problem(answer, 500)["code"] == "internal"
        assert "secret" not in answer.text
        assert "/srv/secret/path" in caplog.text
    with monkeypatch.context() as patch:
        patch.setattr(type(stream.core), "decide", fail)
        for path, body in (("decisions", ARMS), ("decisions/batch", {"decisions": [ARMS, ARMS]})):
            assert read_problem(service.post(f"/v1/streams/shop/{path}", body), 500)["code"] == "internal"
            until(lambda: service.get("/v1/streams/shop").status_code == 200)  # it is rebuilt
    assert service.state() == before
    assert service.decide()["arm"]


def test_a_store_that_cannot_be_read(service: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    decision = service.decide()["id"]
    service.reward(decision, 1.0)
    before, fail = service.state(), Mock(side_effect=sqlite3.OperationalError("disk I/O error in /srv/secret.py"))
    with monkeypatch.context() as patch:
        patch.setattr(service.store, "find_events", fail)
        assert read_problem(service.get(f"/v1/streams/shop/decisions/{decision}"), 503)["code"] == "unavailable"
        answer = service.post("/v1/streams/shop/decisions", ARMS, headers={"idempotency-key": "k"})
        assert read_problem(answer, 503)["code"] == "unavailable"
    service.wait_until_ready()
    assert service.state() == before
