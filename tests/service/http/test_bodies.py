"""Bodies of requests: their size, pieces and pace, malformed ones, and ones that are almost right."""

from __future__ import annotations

import asyncio
import io
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.server import ARMS, CHANGES, Local, parse_json, read_problem, run_local
from windvane.service.http import middleware

JSON = {"content-type": "application/json"}
STREAM = "/v1/streams/shop"
BODIES: list[tuple[str, str, Any]] = [
    ("POST", "/v1/streams", {"name": "new", "dim": 2, "title": "x", "settings": {"lam": 1.0}}),
    ("PATCH", STREAM, {"title": "x", "epsilon": 0.5, "reward_timeout": "2d"}),
    ("POST", "/v1/streams/rich/decisions", {"arms": {"a": {}}, "context": {"age": 3}}),
    *((method, f"{STREAM}{path}", body) for method, path, body in CHANGES[1:] if body),
]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Local]:
    with run_local(tmp_path_factory.mktemp("bodies") / "a.db") as service:
        service.create("shop")
        service.create("rich", features={"shared": {"age": {"low": 0, "high": 9}}, "arms": ["a", "b"]})
        yield service


def send(service: Local, pieces: list[bytes], *headers: tuple[bytes, bytes], ends: bool = True) -> tuple[int, Any]:
    """Send a request to decide in pieces; nothing follows them, or the client leaves. Return status and document."""
    messages = [{"type": "http.request", "body": piece, "more_body": True} for piece in pieces]
    if ends:
        messages[-1]["more_body"] = False
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        if messages:
            return messages.pop(0)
        await asyncio.sleep(0.5)
        return {"type": "http.disconnect"}

    async def collect(message: Any) -> None:
        sent.append(dict(message))

    scope = {
        "type": "http", "method": "POST", "path": f"{STREAM}/decisions", "query_string": b"", "root_path": "",
        "headers": [(b"host", b"127.0.0.1"), (b"content-type", b"application/json"), *headers], "client": ("a", 1),
    }  # fmt: skip
    service.run(service.app(scope, receive, collect))
    if not sent:
        return 0, None
    return sent[0]["status"], parse_json(b"".join(message.get("body", b"") for message in sent[1:]))


def test_a_body_may_come_in_pieces_but_must_come(service: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    body = json.dumps(ARMS).encode()
    pieces = [body[i : i + 7] for i in range(0, len(body), 7)]
    assert send(service, pieces)[0] == 201
    before = service.state()
    assert send(service, pieces[:3], ends=False) == (0, None)  # the client is gone: there is no one to answer
    monkeypatch.setattr(middleware, "BODY_SECONDS", 0.1)
    status, problem = send(service, pieces[:3], ends=False)
    assert (status, problem["type"]) == (408, "urn:windvane:problem:too-slow")
    assert service.state() == before


def test_the_size_of_a_body_is_limited(tmp_path: Path) -> None:
    with run_local(tmp_path / "a.db", most_bytes=1000) as service:
        service.create("shop")
        for length in (None, b"5", b"1001", b"1" * 40):
            headers = [] if length is None else [(b"content-length", length)]
            status, problem = send(service, [b" " * 600, b" " * 600], *headers, ends=False)
            assert (status, problem["type"]) == (413, "urn:windvane:problem:too-large")
        exact = json.dumps(ARMS).encode().ljust(1000)
        assert send(service, [exact + b" "])[0] == 413
        assert send(service, [exact])[0] == 201
        read_problem(service.request("POST", "/nowhere", content=b" " * 1001), 413)


MALFORMED: dict[str, bytes] = {
    "empty": b"",
    "space": b"  \n",
    "null": b"null",
    "number": b"7",
    "text": b'"x"',
    "list": b"[]",
    "cut short": b'{"arms": {"red": [0.1, 0.2',
    "two documents": b"{}{}",
    "trailing comma": b'{"arms": {"red": [0.1, 0.2],}}',
    "comment": b"{} // fine",
    "nan": b'{"arms": {"red": [NaN, 0.1]}, "value": NaN, "decision": "x", "rewards": [NaN]}',
    "infinity": b'{"arms": {"red": [Infinity, 0.1]}, "value": -Infinity, "decision": "x"}',
    "too large": b'{"arms": {"red": [1e400, 0.1]}, "value": 1e400, "decision": "x"}',
    "many digits": b'{"arms": {"red": [' + b"9" * 5000 + b', 0.1]}, "value": ' + b"9" * 5000 + b', "decision": "x"}',
    "large whole": b'{"decision": "x", "value": 123456789012345678901234567890, "dim": 123456789012345678901234567890}',
    "deep list": b"[" * 100_000,
    "deep list, closed": b"[" * 5000 + b"]" * 5000,
    "deep object": b'{"arms":' * 20_000,
    "deep field": b'{"arms": {"red": ' + b"[" * 150 + b"]" * 150 + b"}}",
    "not UTF-8": b'{"arms": {"\xff\xfe": [0.1, 0.2]}}',
    "UTF-16": '{"arms": {"red": [0.1, 0.2]}}'.encode("utf-16"),
    "UTF-8 with a mark": b'\xef\xbb\xbf{"arms": {"red": [0.1, 0.2]}}',
    "surrogate": b'{"arms": {"\\ud800": [0.1, 0.2]}, "decision": "\\udfff", "value": 1, "name": "\\ud800"}',
    "zero bytes": b'{"arms"\x00: {"red": [0.1, 0.2]}}',
    "unknown": b'{"__proto__": {"x": 1}, "constructor": 1}',
    "noise": bytes(range(256)),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_bodies_are_refused_everywhere(service: Local, name: str) -> None:
    before = service.state()
    for method, path, _ in BODIES:
        problem = read_problem(service.request(method, path, content=MALFORMED[name], headers=JSON), 422)
        assert problem["code"] == "invalid"
        assert problem["errors"]
    assert service.state() == before
    assert len(service.get("/v1/streams").json()["streams"]) == 2


def test_the_limits_themselves_are_allowed(service: Local) -> None:
    service.create("wide", dim=500)
    assert service.decide("shop", {"arms": {f"a{i}": [0.1, 0.1] for i in range(1000)}})["arm"]
    assert service.decide("wide", {"arms": {"a": [0.01] * 500}})["arm"]


def test_odd_texts_are_names_like_any_other(service: Local) -> None:
    hostile = ["'; DROP TABLE events; --", "<script>alert(1)</script>", "%s{0}"]
    names = [*hostile, "\x00", "a\x00b", "\u202e", "🎯", "\n", "\\"]
    service.create("odd")
    for i, name in enumerate(names):
        assert service.configure("odd", title=name)["title"] == name
        item = {"arms": {name: [0.1, 0.2]}, "key": f"key {i}"}
        (result,) = service.post("/v1/streams/odd/decisions/batch", {"decisions": [item]}).json()["results"]
        assert result["decision"]["arm"] == name
    decided = [event for event in service.events("odd") if event["kind"] == "decided"]
    assert [event["arm"] for event in decided] == names
    assert [event["key"] for event in decided] == [f"key {i}" for i in range(len(names))]
    table = pq.read_table(io.BytesIO(service.get("/v1/streams/odd/events?format=parquet").content)).to_pylist()
    assert [row["arm"] for row in table if row["kind"] == "decided"] == names


# --- bodies that are almost right ------------------------------------------------------------------------------------

TEXTS = st.text(max_size=12) | st.sampled_from(["arms", "red", "value", "decision", "key", "context", "title", "dim"])
NUMBERS = st.integers() | st.floats() | st.sampled_from([0, 1, -1, 1e308, 5e-324, 2**63, 2**64, -0.0])
ANYTHING = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXTS, inner, max_size=5),
    max_leaves=15,
)


def change(draw: Any, document: Any) -> Any:
    """Replace, add or remove something in a copy of ``document``."""
    is_inside = isinstance(document, dict | list) and document and draw(st.integers(0, 3))
    if not is_inside:
        return draw(ANYTHING)
    place = draw(st.sampled_from(list(document) if isinstance(document, dict) else range(len(document))))
    changed = document.copy()
    if draw(st.integers(0, 4)) == 0:
        del changed[place]
        if isinstance(document, dict):
            changed[draw(TEXTS)] = document[place]
    else:
        changed[place] = change(draw, document[place])
    return changed


@given(st.data())
@settings(max_examples=300, suppress_health_check=list(HealthCheck), deadline=None, database=None)
def test_bodies_that_are_almost_right(service: Local, data: st.DataObject) -> None:
    """Whatever is sent: an answer of the contract, soon, and what is stored can be replayed."""
    method, path, body = data.draw(st.sampled_from(BODIES))
    content = json.dumps(change(data.draw, body)).encode()
    if data.draw(st.integers(0, 5)) == 0:
        i = data.draw(st.integers(0, len(content)))
        content = content[:i] + data.draw(st.binary(max_size=3)) + content[i + data.draw(st.integers(0, 2)) :]
    began = time.monotonic()
    answer = service.request(method, path, content=content, headers=JSON)
    assert answer.status_code in (200, 201) or read_problem(answer, 404, 409, 422)
    assert parse_json(answer.content) is not None
    assert time.monotonic() - began < 10
