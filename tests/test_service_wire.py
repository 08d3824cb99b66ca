"""Bytes on the wire: no HTTP, slow and deaf clients, the whole OpenAPI document, bodies that are almost right."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import schemathesis
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import (
    content_type_conformance,
    negative_data_rejection,
    not_a_server_error,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from serving import ARMS, TELLTALE, Local, Server, clean, local, parsed, served, until, windvane
from support.refusals import rejects
from windvane.service import gate
from windvane.service import server as servers
from windvane.service.schemas import Decide, decide_request

# --- on the wire ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server for strangers; in the end it must still answer, and what it holds must be what its log says."""
    path = tmp_path_factory.mktemp("wire") / "a.db"
    found = served(path)
    with found.client() as client:
        assert client.post("/v1/streams", json={"name": "shop", "dim": 2}).status_code == 201
    yield found
    with found.client() as client:
        assert client.get("/readyz").status_code == 200
    found.stop()
    verdict = json.loads(windvane("verify", "--json", "--store", path).stdout)
    assert verdict["sound"], verdict


def spoken(server: Server, words: bytes, patience: float = 10.0) -> bytes:
    """All that the server answers to these bytes, until it hangs up or falls silent."""
    host, port = server.address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=patience) as connection:
        connection.sendall(words)
        answer = b""
        try:
            while piece := connection.recv(65536):
                answer += piece
        except (TimeoutError, ConnectionResetError):
            pass
        return answer


def test_words_that_are_no_http(server: Server) -> None:
    for words in (
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100),  # TLS
        b"\x00" * 1000,
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\nHost: 127.0.0.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost 127.0.0.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX\x00: y\r\n\r\n",
        b"POST /v1/streams HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -5\r\n\r\n",
        b"POST /v1/streams HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5x\r\n\r\n12345",
    ):
        answer = spoken(server, words)
        assert answer.startswith(b"HTTP/1.1 400"), (words[:40], answer[:200])
        assert not TELLTALE.search(answer.decode("latin-1"))


def test_two_lengths_are_refused(server: Server) -> None:
    """What one program takes for a body and another for the next request: refused, and the line is cut."""
    smuggled = b"POST /v1/streams/shop/archive HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    start = b"POST /v1/streams/shop/decide HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    for headers, body in (
        (b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", b"0\r\n\r\n" + smuggled),
        (b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", b"0\r\n\r\n" + smuggled),
        (b"Content-Length: 0\r\nContent-Length: 70\r\n", smuggled),
        (b"Transfer-Encoding: identity, chunked, x\r\n", b"0\r\n\r\n" + smuggled),
        (b"Transfer-Encoding: chunked\r\n", b"zz\r\n" + smuggled),
        (b"Transfer-Encoding : chunked\r\n", b"0\r\n\r\n" + smuggled),
    ):
        answer = spoken(server, start + headers + b"\r\n" + body)
        assert answer.startswith(b"HTTP/1.1 4"), answer[:200]
        assert b'"archived":' not in answer
    with server.client() as client:
        assert client.get("/v1/streams/shop").json()["archived"] is None


def test_a_chunked_body_is_limited_too(server: Server) -> None:
    start = b"POST /v1/streams/shop/decide HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunk = b"10000\r\n" + b" " * 65536 + b"\r\n"
    answer = spoken(server, start + chunk * 70 + b"0\r\n\r\n", 2)
    assert answer.startswith(b"HTTP/1.1 413")
    fine = json.dumps(ARMS).encode()
    pieces = b"".join(b"%x\r\n%s\r\n" % (len(fine[i : i + 9]), fine[i : i + 9]) for i in range(0, len(fine), 9))
    last = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    answer = spoken(server, start + pieces + b"0\r\n\r\n" + last)
    assert answer.startswith(b"HTTP/1.1 200")
    assert answer.endswith(b'{"status":"ok"}')


def test_nothing_but_http_is_spoken(server: Server) -> None:
    """No WebSockets, of which the service knows nothing."""
    words = (
        b"GET /v1/streams/shop/live HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    assert b" 101 " not in spoken(server, words, 1.0)


@pytest.mark.parametrize("offer", [b"Upgrade: h2c", b"upgrade : h2c", b"UPGRADE:h2c", b"Upgrade: websocket"])
def test_an_offer_to_speak_another_protocol_is_passed_over(server: Server, offer: bytes) -> None:
    """As some clients make it with every request; the body belongs to it all the same."""
    body = json.dumps(ARMS).encode()
    head = (
        b"POST /v1/streams/shop/decide HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade, HTTP2-Settings\r\n"
        b"%s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    ) % (offer, len(body))
    last = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    if b" :" in offer:  # which is no header
        assert spoken(server, head + body, 1.0).startswith(b"HTTP/1.1 400")
        return
    answer = spoken(server, head + body + last)
    assert answer.startswith(b"HTTP/1.1 200")
    assert b'"arm":' in answer
    assert answer.endswith(b'{"status":"ok"}')


def test_a_later_request_may_make_the_offer_too(server: Server) -> None:
    first = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    offer = b"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade, close\r\nUpgrade: h2c\r\n\r\n"
    host, port = server.address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=5) as connection:
        for words, end in ((first, b'{"status":"ok"}'), (offer, b'{"status":"ready"}')):
            connection.sendall(words)
            answer = b""
            while not answer.endswith(end):
                piece = connection.recv(65536)
                assert piece
                answer += piece
            assert answer.startswith(b"HTTP/1.1 200")


def test_what_is_refused_as_an_upgrade_is_not_carried_out(server: Server) -> None:
    head = (
        b"POST /v1/streams HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\nConnection: Upgrade\r\nUpg",
        b"rade: h2c\r\n\r\n",
        b"POST /v1/streams/shop/archive HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpg",
        b"rade: h2c\r\n\r\n",
    )
    host, port = server.address.removeprefix("http://").split(":")
    for i in (0, 2):
        with socket.create_connection((host, int(port)), timeout=5) as connection:
            for piece in head[i : i + 2]:
                connection.sendall(piece)
                time.sleep(0.1)
            assert connection.recv(65536).startswith(b"HTTP/1.1 400")
    with server.client() as client:
        assert client.get("/v1/streams/shop").json()["archived"] is None


def test_a_body_is_never_taken_for_a_request(server: Server) -> None:
    """After an offer in two pieces, so that it is not recognised, the line is cut."""
    smuggled = b'POST /v1/streams HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 27\r\n\r\n{"name":"smuggled","dim":1}'
    head = (
        b"POST /v1/streams/shop/decide HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpg",
        b"rade: h2c\r\nContent-Length: %d\r\n\r\n" % len(smuggled),
        smuggled,
    )
    host, port = server.address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=2) as connection:
        for piece in head:
            connection.sendall(piece)
            time.sleep(0.1)
        answer = b""
        with contextlib.suppress(OSError):
            while piece := connection.recv(65536):
                answer += piece
    assert answer.startswith(b"HTTP/1.1 4")
    assert answer.count(b"HTTP/1.1 ") == 1
    with server.client() as client:
        assert client.get("/v1/streams/smuggled").status_code == 404


def test_heads_without_bodies(server: Server) -> None:
    with server.client() as client:
        for path in ("/healthz", "/", "/v1/streams", "/v1/streams/shop"):
            answer = client.head(path)
            assert (answer.status_code, answer.content) == (200, b""), path
        assert client.head("/v1/streams/nobody").status_code == 404
        for path in ("live", "events"):  # which would be made for nobody
            assert client.head(f"/v1/streams/shop/{path}").status_code == 405
        assert client.get("/healthz").status_code == 200


@pytest.fixture
def hasty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server in a thread, with little patience."""
    monkeypatch.setattr(servers, "HEAD_SECONDS", 0.4)
    monkeypatch.setattr(servers, "READ_SECONDS", 0.4)
    monkeypatch.setattr(servers, "LINGER_SECONDS", 0.4)
    monkeypatch.setattr(gate, "BODY_SECONDS", 0.4)
    made: list[Any] = []
    addresses: list[str] = []

    class Kept(servers._Server):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            made.append(self)

    monkeypatch.setattr(servers, "_Server", Kept)
    thread = threading.Thread(
        target=servers.serve, args=(tmp_path / "a.db",), kwargs={"port": 0, "started": addresses.append}
    )
    thread.start()
    server = Server(0, until(lambda: addresses)[0])
    server.lines = lambda: len(made[0].server_state.connections)
    yield server
    made[0].should_exit = True
    thread.join(20)
    assert not thread.is_alive()


def test_whoever_says_little_is_not_waited_for(hasty: Server) -> None:
    """No request, half a head, half a body: the line is cut, and others are answered all the while."""
    host, port = hasty.address.removeprefix("http://").split(":")
    silent = [socket.create_connection((host, int(port)), timeout=10) for _ in range(20)]
    for i, connection in enumerate(silent[5:]):
        connection.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: " + b"x" * i)
    with hasty.client() as client:
        assert client.get("/healthz").status_code == 200
        time.sleep(0.6)
        assert client.get("/healthz").status_code == 200  # a connection between requests is another matter
    for connection in silent:
        assert connection.recv(1000) == b""
        connection.close()
    start = b"POST /v1/streams HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n{"
    assert spoken(hasty, start, 3).startswith(b"HTTP/1.1 408")


def test_whoever_does_not_listen_is_not_waited_for(hasty: Server) -> None:
    """An answer of megabytes that nobody reads."""
    host, port = hasty.address.removeprefix("http://").split(":")
    deaf = []
    for _ in range(5):
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect((host, int(port)))
        connection.sendall(b"GET /page/plotly.js HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        deaf.append(connection)
    assert until(lambda: hasty.lines() == 5)
    assert until(lambda: hasty.lines() == 0)
    for connection in deaf:
        connection.close()


def test_whoever_reads_slowly_is_waited_for(hasty: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """For longer than one may leave an answer unread."""
    monkeypatch.setattr(servers, "READ_SECONDS", 1.0)
    host, port = hasty.address.removeprefix("http://").split(":")
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        connection.connect((host, int(port)))
        connection.sendall(b"GET /page/plotly.js HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        answer, began = b"", time.monotonic()
        while piece := connection.recv(65536):
            answer += piece
            if time.monotonic() - began < 2.5:
                time.sleep(0.03)
    length = re.search(rb"content-length: (\d+)", answer)
    assert length is not None
    assert len(answer.partition(b"\r\n\r\n")[2]) == int(length[1]) > 3_000_000


def test_a_request_behind_another_has_its_own_time(hasty: Server) -> None:
    """The body of the second comes after the first was answered."""
    host, port = hasty.address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=5) as connection:
        connection.sendall(
            b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
            b"POST /v1/streams HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 23\r\nConnection: close\r\n\r\n"
        )
        time.sleep(0.2)
        connection.sendall(b'{"name": "b", "dim": 2}')
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
    assert answer.count(b"HTTP/1.1 200 OK") == 1
    assert answer.count(b"HTTP/1.1 201 Created") == 1


def test_a_body_that_nobody_waits_for_does_not_hold_the_line(hasty: Server) -> None:
    """Answered before it is there, and then it comes drop by drop."""
    host, port = hasty.address.removeprefix("http://").split(":")
    starts = (
        b"POST /v1/streams HTTP/1.1\r\nHost: elsewhere\r\nContent-Length: 100000\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100000\r\n\r\n",
        b"POST /v1/streams HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99999999\r\n\r\n",
    )
    for start in starts:
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            connection.sendall(start)
            assert connection.recv(1000).startswith(b"HTTP/1.1 ")
            with contextlib.suppress(OSError):
                for _ in range(50):
                    connection.sendall(b" ")
                    time.sleep(0.05)
            assert until(lambda: hasty.lines() == 0)


def test_a_head_without_end(hasty: Server) -> None:
    for words in (
        b"GET /" + b"x" * 200_000,
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"y" * 200_000,
        b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 50_000,
    ):
        answer = spoken(hasty, words, 3)
        assert answer == b"" or answer.startswith(b"HTTP/1.1 400")
        began = time.monotonic()
        spoken(hasty, words, 3)
        assert time.monotonic() - began < 3
    with hasty.client() as client:
        assert client.get("/healthz", headers={"x-long": "y" * 30_000}).status_code == 200


# --- the whole document, generated ---------------------------------------------------------------------------------

CHECKS = [
    not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance,
    response_headers_conformance,
]  # fmt: skip
OPERATIONS = [
    ("GET", "/healthz"), ("GET", "/readyz"), ("GET", "/metrics"), ("GET", "/v1/streams"), ("POST", "/v1/streams"),
    ("GET", "/v1/streams/{name}"), ("PATCH", "/v1/streams/{name}"), ("POST", "/v1/streams/{name}/archive"),
    ("POST", "/v1/streams/{name}/decide"), ("POST", "/v1/streams/{name}/decide/batch"),
    ("POST", "/v1/streams/{name}/reward"), ("POST", "/v1/streams/{name}/reward/batch"),
    ("POST", "/v1/streams/{name}/history"), ("GET", "/v1/streams/{name}/events"), ("GET", "/v1/streams/{name}/live"),
    ("GET", "/v1/streams/{name}/decisions/{decision}"),
]  # fmt: skip
GENERATED = [
    (verb, path, mode)
    for verb, path in OPERATIONS
    for mode in GenerationMode
    if mode is GenerationMode.POSITIVE or verb != "GET" or "{" in path  # else nothing in it can be wrong
]


@pytest.fixture(scope="module")
def document(server: Server) -> Any:
    found = schemathesis.openapi.from_url(f"{server.address}/openapi.json")
    found.validate()
    return found


@pytest.mark.parametrize(("verb", "path", "mode"), GENERATED, ids=str)
def test_the_document_holds(server: Server, document: Any, verb: str, path: str, mode: GenerationMode) -> None:
    """Requests that fit the document, and requests that do not: every answer is one that the document describes."""
    name = f"fuzz-{verb.lower()}-{path.count('/')}-{path.rpartition('/')[2].strip('{}')}"
    with server.client() as client:  # vectors of one number, whatever it is: many of those generated fit
        assert client.post("/v1/streams", json={"name": name, "dim": 1, "clip": True}).status_code in (201, 409)
    operation = document[path][verb]
    if path.endswith("live"):
        cases = [
            operation.as_strategy(mode, path_parameters={"name": "none"} if mode is GenerationMode.POSITIVE else None)
        ]
    elif "{name}" in path:
        cases = [operation.as_strategy(mode)]
        if mode is GenerationMode.POSITIVE or "requestBody" in operation.definition.raw:
            cases.append(operation.as_strategy(mode, path_parameters={"name": name, "decision": "x"}))
    else:
        cases = [operation.as_strategy(mode)]
    checks = [*CHECKS, negative_data_rejection] if mode is GenerationMode.NEGATIVE else CHECKS
    statuses: list[int] = []

    @given(case=st.one_of(cases))
    @settings(max_examples=15, suppress_health_check=list(HealthCheck), database=None)
    def ask(case: Any) -> None:
        statuses.append(case.call_and_validate(base_url=server.address, checks=checks, timeout=30).status_code)

    ask()
    assert statuses
    if mode is GenerationMode.NEGATIVE:
        assert 422 in statuses


def test_the_answers_of_a_stream_s_life_fit_the_document(server: Server, document: Any) -> None:
    """Every success, and every refusal that depends on what happened before."""
    made: dict[str, Any] = {}

    def ask(verb: str, path: str, status: int, body: Any = None, **more: Any) -> Any:
        places = {"name": "life", "decision": made.get("decision", "x")} if "{" in path else {}
        sent = {} if body is None else {"body": body, "media_type": "application/json"}
        case = document[path][verb].Case(path_parameters={k: v for k, v in places.items() if k in path}, **sent, **more)
        answer = case.call_and_validate(base_url=server.address, checks=CHECKS, timeout=30)
        assert answer.status_code == status, answer.text
        return answer

    stream = "/v1/streams/{name}"
    ask("POST", "/v1/streams", 201, {"name": "life", "dim": 2, "wait": 2, "randomize": 0.5})
    ask("POST", "/v1/streams", 409, {"name": "life", "dim": 2})
    key = {"headers": {"Idempotency-Key": "k"}}
    made = ask("POST", f"{stream}/decide", 200, ARMS, **key).json()
    ask("POST", f"{stream}/decide", 409, {"arms": [[0.1, 0.1]]}, **key)
    ask("POST", f"{stream}/decide", 200, {"arms": [[0.1, 0.1]]})
    for status, value in ((200, 1.0), (200, 1.0), (409, 0.0), (422, 7.0)):
        ask("POST", f"{stream}/reward", status, {"decision": made["decision"], "value": value})
    ask("POST", f"{stream}/reward", 404, {"decision": "nobody", "value": 1.0})
    late = ask("POST", f"{stream}/decide", 200, ARMS).json()["decision"]
    results = ask("POST", f"{stream}/decide/batch", 200, {"items": [ARMS] * 4 + [{"arms": {"x": [9, 9]}}]}).json()
    assert [one["status"] for one in results["results"]] == [200] * 4 + [422]
    ask("POST", f"{stream}/reward", 410, {"decision": late, "value": 1.0})
    ask("POST", f"{stream}/reward/batch", 200, {"items": [{"decision": late, "value": 1.0}]})
    ask("POST", f"{stream}/history", 200, {"rewards": [1.0], "vectors": [[0.1, 0.2]]})
    ask("PATCH", stream, 200, {"title": "x"})
    for path in (stream, f"{stream}/decisions/{{decision}}", f"{stream}/events", "/v1/streams", "/metrics", "/readyz"):
        ask("GET", path, 200)
    ask("GET", f"{stream}/events", 200, query={"format": "parquet"})
    ask("POST", f"{stream}/archive", 200)
    ask("POST", f"{stream}/decide", 409, ARMS)
    ask("PATCH", stream, 409, {"title": "y"})


def test_other_methods_are_refused(server: Server) -> None:
    with server.client() as client:
        for path in {path for _, path in OPERATIONS}:
            for other in ("DELETE", "PUT", "TRACE"):
                answer = client.request(other, path.format(name="shop", decision="x"), content=b"{}")
                assert answer.status_code == 405, (other, path)
                assert answer.headers["allow"]


# --- bodies that are almost right ----------------------------------------------------------------------------------

TEXTS = st.text(max_size=12) | st.sampled_from(["arms", "red", "items", "value", "decision", "key", "context", "title"])
NUMBERS = st.integers() | st.floats() | st.sampled_from([0, 1, -1, 1e308, 5e-324, 2**63, 2**64, -0.0])
ANYTHING = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXTS, inner, max_size=5),
    max_leaves=15,
)


@st.composite
def almost(draw: Any, body: Any) -> bytes:
    """A valid document in which something was replaced, added or left out; or its text, damaged."""
    if draw(st.booleans()):
        text = bytearray(json.dumps(body).encode())
        for _ in range(draw(st.integers(1, 3))):
            at = draw(st.integers(0, max(len(text) - 1, 0)))
            how = draw(st.sampled_from(["change", "cut", "insert", "repeat"]))
            if how == "change" and text:
                text[at] = draw(st.integers(0, 255))
            elif how == "cut":
                del text[at : at + draw(st.integers(1, 20))]
            elif how == "insert":
                text[at:at] = draw(
                    st.binary(max_size=5) | st.sampled_from([b",", b"[", b'"', b"\\u0000", b"1e999", b"null"])
                )
            else:
                text[at:at] = text[at : at + 30]
        return bytes(text)

    def changed(value: Any) -> Any:
        choice = draw(st.integers(0, 9))
        if choice == 0 or (choice < 4 and not isinstance(value, dict | list)):
            return draw(ANYTHING)
        if isinstance(value, dict) and value:
            found = {key: changed(item) if draw(st.booleans()) else item for key, item in value.items()}
            if draw(st.integers(0, 3)) == 0:
                found[draw(TEXTS)] = draw(ANYTHING)
            if draw(st.integers(0, 3)) == 0:
                found.pop(next(iter(found)))
            return found
        if isinstance(value, list):
            return [changed(item) if draw(st.booleans()) else item for item in value] * draw(st.integers(0, 2))
        return value

    return json.dumps(changed(body)).encode()


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Local]:
    """One service for all of it; at the end, every stream must be what its log says."""
    with local(tmp_path_factory.mktemp("fuzz") / "a.db") as found:
        yield found


FEATURES = {
    "shared": {"age": {"low": 0, "high": 9}},
    "per_arm": {"price": {}},
    "by_arm": {"kind": {"values": ["a", "b"]}},
    "arms": ["red", "blue"],
}
ALMOST: dict[str, tuple[dict[str, Any], str, Any]] = {
    "create": ({}, "", {"name": "made", "features": FEATURES, "wait": "2d", "settings": {"bonus_scale": 1}}),
    "decide": ({"dim": 2}, "/decide", ARMS),
    "decide with a list": ({"dim": 2}, "/decide", {"arms": [[0.1, 0.2], [0.3, 0.4]]}),
    "decide with fields": (
        {"features": FEATURES}, "/decide",
        {"arms": {"red": {"price": 0.1}, "blue": {"price": 0.3}}, "context": {"age": 3, "kind": "a"}},
    ),
    "decide batch": ({"dim": 2}, "/decide/batch", {"items": [{**ARMS, "key": "k"}, {"arms": [[0.1, 0.2]]}]}),
    "reward": ({"dim": 2}, "/reward", {"decision": "DECISION", "value": 0.5}),
    "reward batch": ({"dim": 2}, "/reward/batch", {"items": [{"decision": "DECISION", "value": 0.5, "key": "k"}]}),
    "history": ({"dim": 2}, "/history", {"rewards": [1, 0], "vectors": [[0.1, 0.2], [0.3, 0.4]], "times": [1, 2]}),
    "history of fields": (
        {"features": FEATURES}, "/history",
        {"rewards": [1], "contexts": [{"age": 3, "kind": "a"}], "arms": [{"red": {"price": 0.1}}]},
    ),
    "configure": ({"dim": 2}, "PATCH", {"title": "x", "wait": "3d", "missing": 0.5, "max_pending": 9}),
}  # fmt: skip


@pytest.mark.parametrize("name", ALMOST)
def test_bodies_that_are_almost_right(fuzzed: Local, name: str) -> None:
    """No fault, and after an answer that refuses, not one bit of the state is another."""
    made, path, body = ALMOST[name]
    stream = name.replace(" ", "-")
    fuzzed.create(stream, **(made or {"dim": 2}))
    if "reward" in name:
        decision = fuzzed.decide(stream)["decision"]
        body = json.loads(json.dumps(body).replace("DECISION", decision))
    route = "/v1/streams" if path == "" else f"/v1/streams/{stream}" + ("" if path == "PATCH" else path)
    seen = set()

    @given(content=almost(body))
    @settings(max_examples=60, suppress_health_check=list(HealthCheck), database=None)
    def ask(content: bytes) -> None:
        before, known = fuzzed.state(stream), set(fuzzed.engine.streams)
        headers = {"content-type": "application/json"}
        answer = fuzzed.request("PATCH" if path == "PATCH" else "POST", route, content=content, headers=headers)
        seen.add(answer.status_code)
        if answer.status_code >= 400:
            clean(answer, 404, 409, 410, 422)
            assert fuzzed.state(stream) == before
            assert set(fuzzed.engine.streams) == known
        else:
            assert answer.status_code in (200, 201)
            parsed(answer.content)

    ask()
    assert 422 in seen
    assert fuzzed.state(stream) == fuzzed.replayed(stream)


DOCUMENTS = st.one_of(
    almost(ARMS),
    almost({"arms": {"a": [1, 2.5], "b": [0, -1e-3]}}),
    ANYTHING.map(lambda value: json.dumps(value).encode()),
    ANYTHING.map(lambda value: json.dumps({"arms": value}).encode()),
)


@given(content=DOCUMENTS)
@example(b'{"arms": {"a": [true, 0.5]}}')
@example(b'{"arms": {"a": [true, false]}}')
@example(b'{"arms": {"true": [1, 0]}}')
@example(b'{"arms": {"a": [1000000000001, 0]}}')
@example(b'{"arms": {"a": [9223372036854775807, -9223372036854775808]}}')
@settings(max_examples=300)
def test_the_quick_way_to_read_arms_reads_what_the_schema_says(content: bytes) -> None:
    """Vectors by name are read without the schema: they must be accepted, and understood, just as it would."""
    try:
        wanted = Decide.model_validate_json(content)
    except ValueError:
        with pytest.raises(ValueError):
            decide_request(content)
        return
    lengths = {len(row) for row in wanted.arms if isinstance(row, list)} if isinstance(wanted.arms, list) else set()
    if len(lengths) > 1:  # what the schema cannot say
        with rejects("arms"):
            decide_request(content)
        return
    arms, context = decide_request(content)
    assert context == wanted.context
    if isinstance(arms, np.ndarray):
        arms = arms.tolist()
    elif isinstance(arms, dict):
        arms = {name: row.tolist() if isinstance(row, np.ndarray) else row for name, row in arms.items()}
    assert arms == wanted.arms


# --- paths ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "/v1/streams/..%2F..%2Fetc%2Fpasswd",
        "/v1/streams/%2e%2e/%2e%2e/etc/passwd",
        "/v1/streams/shop%00",
        "/v1/streams/%00",
        "/v1/streams/shop%0a",
        "/v1/streams/shop%0d%0aset-cookie:%20x=1",
        "/v1/streams/" + "x" * 65,
        "/v1/streams/" + "x" * 20_000,
        "/v1/streams/%F0%9F%8E%AF",
        "/v1/streams/%ff%fe",
        "/v1/streams/%zz",
        "/v1/streams/-shop",
        "/v1/streams/.shop",
        "/v1/streams/shop/decisions/%2e%2e%2f%2e%2e",
        "/v1/streams/shop/decisions/" + "x" * 65,
        "/v1/streams/shop/events/../../..",
        "/v1//streams",
        "//v1/streams",
        "/v1/streams/",
        "/v1/streams/shop/",
        "/V1/STREAMS",
        "/page/../../../../etc/passwd",
        "/page/..%2f..%2f..%2fetc%2fpasswd",
        "/page/%2e%2e%2fpage.py",
        "/page/....//page.py",
        "/page/%00.js",
        "/page/" + "x" * 300 + ".js",
        "/etc/passwd",
        "/docs",
        "/redoc",
        "/.git/config",
    ],
)
def test_strange_paths(server: Server, path: str) -> None:
    """Sent as they are, byte for byte: no file, no other stream, no fault."""
    answer = spoken(server, f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
    status = int(answer.split(b" ")[1])
    assert status in (400, 404, 422), answer[:300]
    assert b"root:" not in answer
    assert b"set-cookie" not in answer.lower().replace(b"%20", b"")[: answer.find(b"\r\n\r\n")]
    assert not TELLTALE.search(answer.decode("latin-1").replace(path, "")), answer
