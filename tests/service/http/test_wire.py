"""Bytes on the wire: no HTTP, ambiguous lengths, offers to change the protocol, strange paths, damaged requests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.server import ARMS, TELLTALE, Server, run_command, run_server
from support.wire import AMBIGUOUS, open_connection, read_statuses, send_bytes

BODY = json.dumps(ARMS).encode()
DECIDE, ARCHIVE = "POST /v1/streams/shop/decisions", "POST /v1/streams/shop/archive"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for all. In the end it must be ready, must have complained of nothing, and its log must verify."""
    path = tmp_path_factory.mktemp("wire") / "a.db"
    with run_server(path) as server:
        with server.client() as client:
            assert client.post("/v1/streams", json={"name": "shop", "dim": 2}).status_code == 201
        yield server
        with server.client() as client:
            assert client.get("/readyz").status_code == 200
            assert client.get("/v1/streams/shop").json()["archived"] is None
    verdict = json.loads(run_command("verify", "--json", "--store", path).stdout)
    assert verdict["sound"], verdict


def build(line: str, *headers: str, body: bytes = b"", close: bool = False) -> bytes:
    """Return a request; with ``close``, the last one of its connection."""
    last = ["Connection: close"] if close else []
    lines = [f"{line} HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json", *headers, *last, "", ""]
    return "\r\n".join(lines).encode("latin-1") + body


def send(server: Server, *pieces: bytes) -> bytes:
    answer = send_bytes(open_connection(server.address), *pieces)
    assert not TELLTALE.search(answer.decode("latin-1")), answer
    return answer


LENGTH = f"Content-Length: {len(BODY)}"
LAST = build("GET /healthz", close=True)
SMUGGLED = build(ARCHIVE, "Content-Length: 0", close=True)
UPGRADE = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c")


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100),  # TLS
        bytes(1000),
        b"GET\r\n\r\n",
        LAST.replace(b"HTTP/1.1", b"HTTP/9.9"),
        LAST.replace(b"\r\n", b"\n"),
        LAST.replace(b"Host:", b"Host"),
        build("GET /", "X\x00: y"),
        build("GET /", "X: a\x00b"),
        build("GET /" + "x" * 200_000),
    ],
    ids=range(9),
)
def test_no_http(server: Server, request_bytes: bytes) -> None:
    assert read_statuses(send(server, request_bytes)) == [400]


@pytest.mark.parametrize(("headers", "body"), [*AMBIGUOUS, (["Transfer-Encoding: chunked"], b"1\n \r\n0\r\n\r\n")])
def test_ambiguous_lengths(server: Server, headers: list[str], body: bytes) -> None:
    """What a proxy might take for a body and the server for the next request: refused, and the connection closed."""
    headers = [header.format(size=len(SMUGGLED)) for header in headers]
    answer = send(server, build(DECIDE, *headers, body=body + SMUGGLED))
    assert read_statuses(answer)[-1] == 400
    assert b'"archived":"' not in answer


def test_chunked_bodies(server: Server) -> None:
    """They are read, with extensions too, and have the same limit as others."""
    pieces = b"".join(b"%x;a=b\r\n%s\r\n" % (len(BODY[i : i + 9]), BODY[i : i + 9]) for i in range(0, len(BODY), 9))
    chunked = build(DECIDE, "Transfer-Encoding: chunked")
    assert read_statuses(send(server, chunked + pieces + b"0\r\n\r\n" + LAST)) == [201, 200]
    large = b"10000\r\n" + b" " * 65536 + b"\r\n"
    answer = send(server, build(DECIDE, "Transfer-Encoding: chunked", close=True) + large * 70 + b"0\r\n\r\n")
    assert read_statuses(answer) in ([413], [])  # none: the connection was reset while the client was sending


def test_pipelining(server: Server) -> None:
    decide = build(DECIDE, LENGTH, body=BODY)
    answer = send(server, decide + build("GET /readyz") + decide + LAST)
    assert read_statuses(answer) == [201, 200, 201, 200]
    assert answer.endswith(b'{"status":"ok"}\n')


def test_a_body_that_arrives_after_the_answer_before_it(server: Server) -> None:
    request = build(DECIDE, LENGTH, close=True)
    assert read_statuses(send(server, build("GET /healthz") + request, BODY[:9], BODY[9:])) == [200, 201]


@pytest.mark.parametrize("protocol", ["h2c", "websocket"])
def test_offers_to_change_the_protocol_are_ignored(server: Server, protocol: str) -> None:
    """Some clients make one with every request."""
    key = ("Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==")
    offer = build("GET /healthz", "Connection: Upgrade", f"Upgrade: {protocol}", *key)
    assert read_statuses(send(server, build("GET /healthz"), offer, build("GET /healthz"), LAST)) == [200] * 4


@pytest.mark.parametrize("headers", [(f"Content-Length: {len(SMUGGLED)}",), ("Transfer-Encoding: chunked",)])
@pytest.mark.parametrize("cut", [None, "head", "body"])
def test_a_body_is_never_taken_for_a_request(server: Server, headers: tuple[str, ...], cut: str | None) -> None:
    """With an offer to change the protocol the parser would do so. It is refused and the connection is closed."""
    head, body = build(DECIDE, *headers, *UPGRADE), SMUGGLED
    pieces = {None: (head + body,), "head": (head[:-20], head[-20:], body), "body": (head, body[:20], body[20:])}[cut]
    answer = send(server, *pieces)
    assert read_statuses(answer) in ([422], [] if cut else [422])  # none: it was closed while the client was sending
    assert b'"archived":"' not in answer


def test_head_has_no_body(server: Server) -> None:
    """The server must know that the method was HEAD, or it would wait for the body; the connection goes on."""
    for path, status in (("/healthz", 200), ("/", 200), ("/page/page.css", 200), ("/v1/streams/nobody", 404)):
        answer = send(server, build(f"HEAD {path}", close=True))
        assert (read_statuses(answer), answer[-4:]) == ([status], b"\r\n\r\n"), path
        assert read_statuses(send(server, build(f"HEAD {path}") + LAST)) == [status, 200]


@pytest.mark.parametrize(
    "path",
    [
        "/v1/streams/..%2F..%2Fetc%2Fpasswd", "/v1/streams/%2e%2e/%2e%2e/etc/passwd", "/v1/streams/shop%00",
        "/v1/streams/%00", "/v1/streams/shop%0a", "/v1/streams/shop%0d%0aset-cookie:%20x=1", "/v1/streams/" + "x" * 65,
        "/v1/streams/" + "x" * 20_000, "/v1/streams/%F0%9F%8E%AF", "/v1/streams/%ff%fe", "/v1/streams/%zz",
        "/v1/streams/-shop", "/v1/streams/.shop", "/v1/streams/shop/decisions/%2e%2e%2f%2e%2e",
        "/v1/streams/shop/decisions/" + "x" * 65, "/v1/streams/shop/events/../../..", "/v1//streams", "//v1/streams",
        "/v1/streams/", "/v1/streams/shop/", "/V1/STREAMS", "/page/../../../../etc/passwd",
        "/page/..%2f..%2f..%2fetc%2fpasswd", "/page/%2e%2e%2fpage.py", "/page/....//page.py", "/page/%00.js",
        "/page/" + "x" * 300 + ".js", "/etc/passwd", "/redoc", "/.git/config",
    ],
)  # fmt: skip
def test_strange_paths(server: Server, path: str) -> None:
    """Sent as they are, byte for byte: no file, no other stream, no fault."""
    answer = send_bytes(open_connection(server.address), build(f"GET {path}", close=True))
    assert read_statuses(answer)[0] in (400, 404, 422), answer[:300]
    assert b"root:" not in answer
    assert b"\r\nset-cookie" not in answer.lower()
    assert not TELLTALE.search(answer.decode("latin-1").replace(path, "")), answer


# --- damaged requests ----------------------------------------------------------------------------------------------

SEPARATORS = [b"\r\n", b"\n", b"\r", b"\x00", b" ", b"\t", b":", b"0", b"-", b"\xff", b"\r\n\r\n", b"HTTP/1.0", b"PUT "]
LINES = ["Content-Length: 3", "Transfer-Encoding: chunked", "Upgrade: h2c", "Connection: Upgrade"]
WORDS = st.one_of(
    st.sampled_from(SEPARATORS),
    st.sampled_from([f"{line}\r\n".encode() for line in (*LINES, "Expect: 100-continue")]),
    st.binary(max_size=5),
)


@st.composite
def damage(draw: Any) -> bytes:
    """Return a valid request in which bytes were replaced, inserted, repeated or cut out."""
    valid = [
        build(DECIDE, LENGTH, body=BODY), build(DECIDE, "Transfer-Encoding: chunked", body=b"5\r\nabcde\r\n0\r\n\r\n"),
        build("GET /v1/streams/shop"), build("PATCH /v1/streams/shop", "Content-Length: 15", body=b'{"title": "x"} '),
    ]  # fmt: skip
    text = bytearray(draw(st.sampled_from(valid)))
    for _ in range(draw(st.integers(1, 4))):
        at, size = draw(st.integers(0, len(text))), draw(st.integers(0, 12))
        text[at : at + size] = draw(WORDS | st.just(bytes(text[at : at + 2 * size])))
    return bytes(text)


@given(request_bytes=damage())
@settings(max_examples=300, suppress_health_check=list(HealthCheck), database=None)
def test_damaged_requests(server: Server, request_bytes: bytes) -> None:
    """Whatever it is, the answers are no faults, and the same connection or a new one is served afterwards."""
    connection = open_connection(server.address)
    connection.sendall(request_bytes)
    connection.shutdown(1)  # nothing more will be sent, so that nobody waits for the rest of a body
    statuses = read_statuses(send_bytes(connection))
    assert all(status < 500 for status in statuses), (request_bytes, statuses)
    assert read_statuses(send(server, LAST)) == [200]
