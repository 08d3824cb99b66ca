"""Lines of the log, as text and as JSON; which request they belong to; and what they must not hold."""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.server import ARMS, Local, keep_logging, parse_json, read_problem
from windvane.service import logs
from windvane.service.http import access
from windvane.service.http.access import create_token

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z"
log = logging.getLogger("windvane.service")


@pytest.fixture
def configure() -> Iterator[Callable[..., io.StringIO]]:
    """Configure the log of this process; it is as it was at the end."""

    def configure(*arguments: str) -> io.StringIO:
        output = io.StringIO()
        logs.configure_logging(*arguments, stream=output)
        return output

    with keep_logging():
        yield configure


def fail() -> None:
    raise RuntimeError("two\nlines")


def test_lines_of_text(configure: Callable[..., io.StringIO]) -> None:
    output = configure("text", "info")
    log.debug("not logged")
    log.info("ready", extra={"fields": {"streams": 2, "store": "/srv/my store.db", "name": 'a"b'}})
    log.error("stream %r\nforged line", "x\u2028y")
    try:
        fail()
    except RuntimeError:
        log.exception("failed")
    lines = output.getvalue().split("\n")
    assert re.fullmatch(
        TIME + r' INFO windvane\.service: ready streams=2 store="/srv/my store\.db" name="a\\"b"', lines[0]
    )
    assert re.fullmatch(TIME + r" ERROR windvane\.service: stream 'x\\u2028y'\\nforged line", lines[1])
    assert re.fullmatch(TIME + r" ERROR windvane\.service: failed", lines[2])
    assert lines[3] == "Traceback (most recent call last):"


def test_lines_of_json(configure: Callable[..., io.StringIO]) -> None:
    output = configure("json", "warning")
    log.info("not logged")
    logging.getLogger("uvicorn.error").error("of another library")
    logging.getLogger("other").info("not logged")
    try:
        fail()
    except RuntimeError:
        log.exception("failed")
    first, second = map(parse_json, output.getvalue().splitlines())  # one object a line, tracebacks included
    assert re.fullmatch(TIME, first.pop("time"))
    assert first == {"level": "error", "logger": "uvicorn.error", "message": "of another library"}
    assert second["exception"].endswith("RuntimeError: two\nlines")


@pytest.mark.parametrize(
    ("header", "is_used"),
    [
        (b"abc-123", True), (b"6f/9+a=:@.A_", True), (b"x" * 128, True),
        (b"", False), (b"x" * 129, False), (b"a b", False), (b'a"b', False), (b"a\xe9", False), (b"a\x00", False),
    ],
)  # fmt: skip
def test_ids_of_requests(header: bytes, is_used: bool) -> None:
    """An id that others gave is used if it is harmless in a log and in a header."""
    id_ = logs.read_request_id(header)
    assert (id_.encode("latin-1") == header) is is_used
    assert logs.REQUEST_ID.fullmatch(id_)


def test_lines_about_requests(
    tmp_path: Path, configure: Callable[..., io.StringIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line for every request, with the id that its client was told, and without anything that it must not hold."""
    monkeypatch.setattr(access, "RELOAD", 0.0)  # the tokens may have been read before there was one
    service = Local(tmp_path / "a.db", log_requests=True)
    secret = create_token(service.store.tokens, "shop", full=True)
    assert secret is not None
    output, headers = configure("json", "info"), {"authorization": f"Bearer {secret}"}
    body = {"name": "homepage", "features": {"by_arm": {"device": ["phone"]}, "arms": ["a", "b"]}}
    service.post("/v1/streams", body, headers=headers)
    decided = service.post(
        "/v1/streams/homepage/decisions", {"context": {"device": "phone"}}, headers={**headers, "x-request-id": "mine"}
    )
    unknown = service.get("/v1/streams/nobody?private=phone", headers=headers)
    refused = service.get("/v1/streams/homepage", headers={"authorization": "Bearer wv_guessed"})
    again = service.get("/v1/streams/homepage")
    service.stop()
    lines = [parse_json(line) for line in output.getvalue().splitlines()]
    requests = [line for line in lines if line["logger"] == "windvane.access"]
    assert decided.headers["x-request-id"] == "mine"
    for answer in (unknown, refused, again):
        assert read_problem(answer, 404, 401)["request_id"] == answer.headers["x-request-id"]
    expected: list[dict[str, Any]] = [
        {"method": "POST", "route": "/v1/streams", "status": 201, "token": "shop"},
        {"method": "POST", "route": "/v1/streams/{stream}/decisions", "status": 201, "request_id": "mine",
         "stream": "homepage", "token": "shop", "peer": "127.0.0.1", "bytes": len(decided.content)},
        {"route": "/v1/streams/{stream}", "stream": "nobody", "status": 404, "problem": "unknown-stream",
         "request_id": unknown.headers["x-request-id"]},
        {"route": "other", "path": "/v1/streams/homepage", "status": 401, "problem": "wrong-token"},
        {"route": "other", "path": "/v1/streams/homepage", "status": 401, "problem": "no-token"},
    ]  # fmt: skip
    assert [{name: line.get(name) for name in each} for line, each in zip(requests, expected, strict=True)] == expected
    assert all(line["duration_ms"] > 0.0 for line in requests)
    refusals = [line for line in lines if "refused" in line["message"]]
    assert [(line["message"], line["request_id"]) for line in refusals] == [
        ("a request was refused: wrong-token", refused.headers["x-request-id"]),
        ("a request was refused: no-token", again.headers["x-request-id"]),
    ]
    for word in (secret, "guessed", "phone", "private"):
        assert word not in output.getvalue()


@pytest.mark.sqlite
@pytest.mark.parametrize("skips", [False, True])
def test_probes_can_be_left_out_unless_they_fail(
    tmp_path: Path, configure: Callable[..., io.StringIO], monkeypatch: pytest.MonkeyPatch, skips: bool
) -> None:
    """A line of 503 has the cause."""
    service = Local(tmp_path / "a.db", log_requests=True, skip_probes=skips)
    service.create("shop")
    output = configure("json", "error")
    for path in ("/healthz", "/readyz", "/metrics", "/v1/streams"):
        assert service.get(path).status_code == 200
    service.call(lambda: service.engine.fail(OSError(28, "No space left on device")))
    for path in ("/readyz", "/v1/streams"):
        assert service.get(path).status_code == 503
    service.wait_until_ready()
    service.stop()
    lines = [line for line in map(parse_json, output.getvalue().splitlines()) if line["logger"] == "windvane.access"]
    found = [(line["route"], line["status"], line.get("cause")) for line in lines]
    probes = [(path, 200, None) for path in ("/healthz", "/readyz", "/metrics")]
    assert found[: 4 - 3 * skips] == [*(probes if not skips else []), ("/v1/streams", 200, None)]
    assert found[4 - 3 * skips :][:2] == [("/readyz", 503, "disk"), ("/v1/streams", 503, "disk")]


def test_changes_of_tokens_are_about_no_request(
    tmp_path: Path, configure: Callable[..., io.StringIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request that came first after the change has nothing to do with it."""
    monkeypatch.setattr(access, "RELOAD", 0.0)
    service = Local(tmp_path / "a.db")
    service.get("/v1/streams")
    output = configure("json", "info")
    create_token(service.store.tokens, "shop", full=True)
    service.get("/v1/streams")
    service.stop()
    (line,) = [line for line in map(parse_json, output.getvalue().splitlines()) if "tokens" in line["message"]]
    line.pop("time")
    assert line == {"level": "info", "logger": "windvane.service", "message": "tokens were added", "tokens": ["shop"]}


def test_a_fault_is_logged_with_its_request(
    tmp_path: Path, configure: Callable[..., io.StringIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Local(tmp_path / "a.db")
    service.create("shop")
    output = configure("json", "warning")
    with monkeypatch.context() as patch:
        patch.setattr(type(service.engine.streams["shop"].core), "decide", lambda *_, **__: fail())
        answer = service.post("/v1/streams/shop/decisions", ARMS)
    service.stop()
    (line,) = [parse_json(line) for line in output.getvalue().splitlines()]
    assert line["request_id"] == read_problem(answer, 500)["request_id"]
    assert "RuntimeError: two\nlines" in line["exception"]


def test_lines_that_clients_can_cause_are_rare(
    configure: Callable[..., io.StringIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    output, rare = configure("json", "info"), logs.RareLog(log)
    for _ in range(5):
        rare.info("refused")
    rare.info("another kind")
    now += logs.REPEAT_SECONDS
    rare.info("refused")
    lines = [parse_json(line) for line in output.getvalue().splitlines()]
    assert [(line["message"], line.get("omitted")) for line in lines] == [
        ("refused", None), ("another kind", None), ("refused", 4)
    ]  # fmt: skip
