"""What strangers, careless clients and hostile pages may try: refused cleanly, and nothing is changed by it."""

from __future__ import annotations

import hashlib
import json
import logging
import re
import socket
import sqlite3
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

from serving import ARMS, Local, Server, local, parsed, served, until, windvane
from windvane.service import access, gate
from windvane.service import server as servers
from windvane.service.access import Access, new_token
from windvane.service.errors import ServiceError
from windvane.service.schemas import Decide, decide_request
from windvane.service.server import on_loopback
from windvane.service.store import Store

READING = ("/v1/streams", "/v1/streams/shop", "/v1/streams/shop/events", "/metrics", "/openapi.json")
CHANGING: dict[str, Any] = {
    "/v1/streams": {"name": "new", "dim": 2},
    "/v1/streams/shop/decide": ARMS,
    "/v1/streams/shop/decide/batch": {"items": [ARMS]},
    "/v1/streams/shop/reward": {"decision": "x", "value": 1.0},
    "/v1/streams/shop/reward/batch": {"items": [{"decision": "x", "value": 1.0}]},
    "/v1/streams/shop/history": {"rewards": [1.0], "vectors": [[0.5, 0.5]]},
    "/v1/streams/shop": {"title": "x"},
    "/v1/streams/shop/archive": None,
}
TELLTALE = re.compile(r"Traceback|File \"|\.py\b|/site-packages|/src/|sqlite3|pydantic|numpy|0x[0-9a-f]{6}")


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Local]:
    with local(tmp_path / "a.db") as found:
        found.create("shop")
        yield found


def clean(answer: Any, *statuses: int) -> dict[str, Any]:
    """The error of an answer; it tells what is wrong, and nothing of what is behind it."""
    assert answer.status_code in statuses, (answer.status_code, answer.text[:300])
    error = dict(parsed(answer.content))["error"]
    assert error["code"]
    assert error["message"]
    assert len(answer.content) < 2000
    assert not TELLTALE.search(answer.text), answer.text
    return dict(error)


def method(path: str) -> str:
    return "PATCH" if path == "/v1/streams/shop" else "POST"


# --- tokens --------------------------------------------------------------------------------------------------------


def bearer(secret: str, scheme: str = "Bearer") -> dict[str, str]:
    return {"authorization": f"{scheme} {secret}"}


def test_only_the_hash_of_a_token_is_stored(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    told = windvane("token", "add", "shop", "--store", path)
    secret = told.stdout.strip()
    assert re.fullmatch(r"wv_[\w-]{43}", secret)
    other = json.loads(windvane("token", "add", "page", "--read-only", "--json", "--store", path).stdout)["token"]
    assert secret != other
    content = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    for one in (secret, other):
        assert one.encode() not in content
        assert one.removeprefix("wv_").encode() not in content
        assert hashlib.sha256(one.encode()).hexdigest().encode() in content
    listed = windvane("token", "list", "--json", "--store", path).stdout
    assert secret not in listed
    rows = json.loads(listed)["tokens"]
    assert [(row["name"], row["rights"]) for row in rows] == [("page", "read"), ("shop", "full")]
    table = windvane("token", "list", "--store", path).stdout
    assert "shop" in table
    assert secret not in table


def test_commands_about_tokens_that_are_wrong(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    assert windvane("token", "add", "shop", "--store", path).returncode == 0
    for line, why in (
        (("add", "shop"), "name='shop': there is a token of this name; remove it first, or take another name"),
        (("remove", "page"), "name='page': there is no token of this name"),
        (("add",), "name=None: is needed to add"),
        (("list", "shop"), "name='shop': is not wanted to list"),
        (("steal", "shop"), "action='steal': must be one of"),
    ):
        found = windvane("token", *line, "--store", path)
        assert found.returncode == 2
        assert found.stderr.startswith(f"windvane: error: {why}")
        assert found.stderr.count("\n") == 1


def test_who_may_do_what(service: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "RELOAD", 0.0)
    full, reading = (new_token(service.store, name, full=name == "full") or "" for name in ("full", "reading"))
    before = service.state()
    for path in READING:
        assert service.get(path, headers=bearer(full)).status_code == 200
        assert service.get(path, headers=bearer(reading)).status_code == 200
        assert service.get(path, headers=bearer(full, "bearer")).status_code == 200
        for headers in (
            {},
            bearer("wv_" + "x" * 43),
            bearer(full, "Basic"),
            bearer(full, "Token"),
            {"authorization": full},
            {"authorization": "Bearer"},
            {"authorization": "Bearer "},
            bearer(full[:-1]),
            bearer(full.swapcase()),
            bearer(hashlib.sha256(full.encode()).hexdigest()),
            {"authorization": b"Bearer \xff\xfe"},
            {"x-token": full, "cookie": f"token={full}"},
        ):
            answer = service.get(path, headers=headers)
            error = clean(answer, 401)
            assert answer.headers["www-authenticate"] == "Bearer"
            assert error["code"] in ("no_token", "wrong_token")
            assert full not in answer.text
        clean(service.get(f"{path}?token={full}&access_token={full}"), 401)
    for path, body in CHANGING.items():
        more = {} if body is None else {"json": body}
        clean(service.request(method(path), path, **more), 401)
        assert clean(service.request(method(path), path, headers=bearer(reading), **more), 403)["code"] == "read_only"
    assert service.state() == before
    for path, body in CHANGING.items():
        more = {} if body is None else {"json": body}
        answer = service.request(method(path), path, headers=bearer(full), **more)
        assert answer.status_code in (200, 201, 404), answer.text
    for path in ("/healthz", "/readyz"):
        assert service.get(path).status_code == 200


def test_tokens_come_and_go_beside_the_server(service: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "RELOAD", 0.05)
    assert service.get("/v1/streams").status_code == 200
    path = service.store.path
    secret = windvane("token", "add", "shop", "--store", path).stdout.strip()
    until(lambda: service.get("/v1/streams").status_code == 401)
    assert service.get("/v1/streams", headers=bearer(secret)).status_code == 200
    second = windvane("token", "add", "page", "--store", path).stdout.strip()
    until(lambda: service.get("/v1/streams", headers=bearer(second)).status_code == 200)
    assert windvane("token", "remove", "shop", "--store", path).returncode == 0
    until(lambda: service.get("/v1/streams", headers=bearer(secret)).status_code == 401)
    assert service.get("/v1/streams", headers=bearer(second)).status_code == 200


def test_a_server_beyond_loopback_stays_closed_without_tokens(tmp_path: Path) -> None:
    """The last token is removed to shut somebody out, not to let everybody in."""
    with local(tmp_path / "a.db", closed=True) as service:
        for path in READING:
            clean(service.get(path), 401)
        clean(service.post("/v1/streams", {"name": "x", "dim": 2}), 401)
        assert service.get("/healthz").status_code == 200


def test_a_store_that_cannot_be_read_lets_nobody_in(service: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "RELOAD", 0.0)

    def broken() -> None:
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(service.store, "tokens", broken)
    assert clean(service.get("/v1/streams"), 503)["code"] == "unavailable"
    assert service.get("/healthz").status_code == 200


# --- where it listens, and under which name ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "local_only"),
    [
        ("127.0.0.1", True), ("127.8.9.10", True), ("::1", True), ("localhost", True), ("0:0:0:0:0:0:0:1", True),
        ("0.0.0.0", False), ("::", False), ("192.168.1.5", False), ("10.0.0.1", False), ("", False),
        ("localhost.example.com", False), ("127.0.0.1.example.com", False), ("128.0.0.1", False), ("fe80::1", False),
    ],
)  # fmt: skip
def test_what_counts_as_loopback(host: str, local_only: bool) -> None:
    assert on_loopback(host) is local_only


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_it_does_not_listen_beyond_loopback_without_a_token(tmp_path: Path, host: str) -> None:
    found = windvane("serve", "--store", tmp_path / "a.db", "--host", host, "--port", "0")
    assert found.returncode == 2
    assert found.stdout == ""
    assert found.stderr == (
        f"windvane: error: host={host!r}: can be reached from other machines; make a token first: windvane token add "
        f"NAME --store {tmp_path}/a.db\n"
    )


def test_beyond_loopback_with_a_token(tmp_path: Path) -> None:
    secret = windvane("token", "add", "shop", "--store", tmp_path / "a.db").stdout.strip()
    server = served(tmp_path / "a.db", "--host", "0.0.0.0")
    assert server.address.startswith("http://0.0.0.0:")
    server.address = server.address.replace("0.0.0.0", "127.0.0.1")
    with server.client() as client:
        assert client.get("/v1/streams").status_code == 401
        assert client.get("/v1/streams", headers=bearer(secret)).status_code == 200
        elsewhere = {"host": "shop.example.com", "origin": "https://shop.example.com", **bearer(secret)}
        assert client.post("/v1/streams", json={"name": "a", "dim": 2}, headers=elsewhere).status_code == 201
        windvane("token", "remove", "shop", "--store", tmp_path / "a.db")
        until(lambda: client.get("/v1/streams", headers=bearer(secret)).status_code == 401)
        assert client.get("/v1/streams").status_code == 401
    server.stop()


HOSTS = frozenset({"localhost", "127.0.0.1", "[::1]"})


def test_it_answers_under_its_own_names_only(tmp_path: Path) -> None:
    """A page at evil.example whose name leads to 127.0.0.1 asks under that name."""
    with local(tmp_path / "a.db", hosts=HOSTS) as service:
        for host in ("127.0.0.1", "127.0.0.1:8000", "localhost", "LOCALHOST:1", "[::1]", "[::1]:8000"):
            assert service.get("/healthz", headers={"host": host}).status_code == 200
        wrong = ("evil.example", "evil.example:8000", "127.0.0.1.evil.example", "localhost:80@evil.example", "")
        for host in (*wrong, "127.0.0.1:8000:8000", "x127.0.0.1", "127.0.0.1, evil.example", "evil.example#localhost"):
            for path in ("/", "/healthz", "/v1/streams", "/metrics", "/page/x.js", "/openapi.json"):
                assert clean(service.get(path, headers={"host": host}), 403)["code"] == "wrong_host"
            answer = service.post("/v1/streams", {"name": "x", "dim": 2}, headers={"host": host})
            clean(answer, 403)
        assert service.get("/v1/streams").json() == {"streams": [], "broken": {}}


def test_another_address_of_loopback_is_a_name_of_its_own(tmp_path: Path) -> None:
    server = served(tmp_path / "a.db", "--host", "127.0.0.7")
    with server.client() as client:
        assert client.get("/healthz").status_code == 200
        assert client.get("/healthz", headers={"host": "evil.example"}).status_code == 403
    server.stop()


def test_pages_of_other_sites_change_nothing(service: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    """A browser sends what any page asks it to send, if it looks like a form; but it says whose page it was."""
    before = service.state()
    body = json.dumps(ARMS).encode()
    for origin in (
        "https://evil.example",
        "http://evil.example:8000",
        "null",
        "http://127.0.0.1:9000",
        "http://localhost",
    ):
        for path, content in (("/v1/streams/shop/decide", body), ("/v1/streams/shop/archive", b"")):
            for kind in ({}, {"content-type": "application/json"}):
                answer = service.request("POST", path, content=content, headers={"origin": origin, **kind})
                assert clean(answer, 403)["code"] == "wrong_origin"
        assert service.get("/v1/streams/shop", headers={"origin": origin}).status_code == 200
        assert "access-control-allow-origin" not in service.get("/v1/streams", headers={"origin": origin}).headers
    forms = ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x")
    for kind in (*forms, "application/xml", "application/jsonx", "text/json", ""):
        answer = service.request("POST", "/v1/streams/shop/decide", content=body, headers={"content-type": kind})
        assert clean(answer, 415)["code"] == "not_json"
    assert service.state() == before
    for kind in ("application/json", "application/json; charset=utf-8", "Application/JSON"):
        own = {"content-type": kind, "origin": "http://127.0.0.1:8000"}
        assert service.request("POST", "/v1/streams/shop/decide", content=body, headers=own).status_code == 200
    monkeypatch.setattr(access, "RELOAD", 0.0)
    secret = new_token(service.store, "full", full=True) or ""
    headers = {"origin": "https://shop.example.com", **bearer(secret)}  # what has a token is no chance visitor
    assert service.post("/v1/streams/shop/decide", ARMS, headers=headers).status_code == 200


# --- bodies --------------------------------------------------------------------------------------------------------


def asked(service: Local, messages: list[dict[str, Any]], headers: list[tuple[bytes, bytes]]) -> tuple[int, Any]:
    """A POST whose body comes as these messages; after them, nothing more comes."""
    sent: list[dict[str, Any]] = []

    async def ask() -> None:
        left = iter(messages)

        async def receive() -> dict[str, Any]:
            import asyncio

            for message in left:
                return message
            await asyncio.sleep(60)
            raise AssertionError("it waited for ever")

        async def send(message: Any) -> None:
            sent.append(dict(message))

        scope = {
            "type": "http", "method": "POST", "path": "/v1/streams/shop/decide", "raw_path": b"", "query_string": b"",
            "headers": [(b"host", b"127.0.0.1"), (b"content-type", b"application/json"), *headers],
            "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8000), "scheme": "http", "root_path": "",
            "http_version": "1.1", "asgi": {"version": "3.0"},
        }  # fmt: skip
        await service.app(scope, receive, send)

    service.run(ask())
    return sent[0]["status"], parsed(b"".join(message.get("body", b"") for message in sent[1:]))


def part(body: bytes, more: bool = False) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


def test_a_body_may_come_in_pieces_but_must_come(service: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    body = json.dumps(ARMS).encode()
    pieces = [part(body[i : i + 7], more=True) for i in range(0, len(body), 7)]
    assert asked(service, [*pieces, part(b"")], [])[0] == 200
    before = service.state()
    status, answer = asked(service, [*pieces[:3], {"type": "http.disconnect"}], [])
    assert (status, answer["error"]["code"]) == (400, "cut_short")
    monkeypatch.setattr(gate, "BODY_SECONDS", 0.1)
    began = time.monotonic()
    status, answer = asked(service, pieces[:3], [])
    assert (status, answer["error"]["code"]) == (408, "too_slow")
    assert time.monotonic() - began < 10
    assert service.state() == before


def test_the_size_of_a_body_is_limited_however_it_is_told(tmp_path: Path) -> None:
    with local(tmp_path / "a.db", most_bytes=1000) as service:
        service.create("shop")
        body = json.dumps(ARMS).encode()
        before = service.state()
        for headers in (
            [],
            [(b"content-length", b"5")],
            [(b"content-length", b"1001")],
            [(b"content-length", b"1" * 40)],
        ):
            status, answer = asked(service, [part(b" " * 600, more=True), part(b" " * 600, more=True)], headers)
            assert (status, answer["error"]["code"]) == (413, "too_large")
            assert "1,000 bytes" in answer["error"]["message"]
        assert service.state() == before
        exact = body + b" " * (1000 - len(body))
        assert asked(service, [part(exact)], [(b"content-length", b"1000")])[0] == 200
        assert asked(service, [part(exact + b" ")], [])[0] == 413
        clean(service.request("POST", "/nowhere", content=b" " * 1001), 413)


MALFORMED: dict[str, bytes] = {
    "empty": b"",
    "space": b"  \n",
    "null": b"null",
    "number": b"7",
    "text": b'"x"',
    "list": b"[]",
    "true": b"true",
    "cut short": b'{"arms": {"red": [0.1, 0.2',
    "two documents": b"{}{}",
    "trailing comma": b'{"arms": {"red": [0.1, 0.2],}}',
    "comment": b"{} // fine",
    "single quotes": b"{'arms': 1}",
    "nan": b'{"arms": {"red": [NaN, 0.1]}, "value": NaN, "decision": "x", "rewards": [NaN]}',
    "infinity": b'{"arms": {"red": [Infinity, 0.1]}, "value": -Infinity, "decision": "x"}',
    "too large": b'{"arms": {"red": [1e400, 0.1]}, "value": 1e400, "decision": "x"}',
    "many digits": b'{"arms": {"red": [' + b"9" * 5000 + b', 0.1]}, "value": ' + b"9" * 5000 + b', "decision": "x"}',
    "long fraction": b'{"value": 0.' + b"1" * 5000 + b', "decision": "x", "arms": 1}',
    "large whole": b'{"decision": "x", "value": 123456789012345678901234567890, "dim": 123456789012345678901234567890}',
    "deep list": b"[" * 100_000,
    "deep list, closed": b"[" * 5000 + b"]" * 5000,
    "deep object": b'{"arms":' * 20_000,
    "deep field": b'{"arms": {"red": ' + b"[" * 500 + b"]" * 500 + b"}}",
    "not UTF-8": b'{"arms": {"\xff\xfe": [0.1, 0.2]}}',
    "cut character": '{"title": "é"}'.encode()[:-3] + b'"}',
    "UTF-16": '{"arms": {"red": [0.1, 0.2]}}'.encode("utf-16"),
    "UTF-8 with a mark": b'\xef\xbb\xbf{"arms": {"red": [0.1, 0.2]}}',
    "surrogate": b'{"arms": {"\\ud800": [0.1, 0.2]}, "decision": "\\udfff", "value": 1, "name": "\\ud800"}',
    "zero bytes": b'{"arms"\x00: {"red": [0.1, 0.2]}}',
    "twice": b'{"arms": 1, "arms": 2, "decision": "a", "decision": 3}',
    "prototype": b'{"__proto__": {"x": 1}, "constructor": 1, "__class__": "os"}',
    "unknown": b'{"surprise": 1}',
    "zeros": bytes(1000),
    "noise": bytes(range(256)),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_bodies_are_refused_everywhere(service: Local, name: str) -> None:
    before = service.state()
    for path in CHANGING:
        if not path.endswith("archive"):
            answer = service.request(
                method(path), path, content=MALFORMED[name], headers={"content-type": "application/json"}
            )
            clean(answer, 422)
    assert service.state() == before
    assert len(service.get("/v1/streams").json()["streams"]) == 1


def test_more_than_is_allowed(service: Local) -> None:
    """Arms, dimensions, items, fields, rows: one too many is refused, and the limit itself is not."""
    service.create("wide", dim=500)
    service.create("named", features={"arms": ["a", "b"]})
    before = [service.state(name) for name in ("shop", "wide", "named")]
    wrong: list[tuple[str, Any]] = [
        ("shop/decide", {"arms": {f"a{i}": [0.1, 0.1] for i in range(1001)}}),
        ("shop/decide", {"arms": [[0.1, 0.1]] * 1001}),
        ("named/decide", {"arms": ["a"] * 1001}),
        ("wide/decide", {"arms": {"a": [0.0] * 501}}),
        ("wide/decide", {"arms": [[0.0] * 501]}),
        ("named/decide", {"context": {f"f{i}": 1 for i in range(501)}}),
        ("shop/history", {"rewards": [1.0] * 20_001, "vectors": [[0.1, 0.1]] * 20_001}),
        ("shop/reward", {"decision": "x" * 65, "value": 1}),
    ]
    for path, body in wrong:
        clean(service.post(f"/v1/streams/{path}", body), 422)
    assert [service.state(name) for name in ("shop", "wide", "named")] == before
    assert service.decide("shop", {"arms": {f"a{i}": [0.1, 0.1] for i in range(1000)}})["arm"]
    assert service.decide("wide", {"arms": {"a": [0.01] * 500}})["arm"]


def test_streams_too_large_to_be_made(service: Local) -> None:
    """Small documents that ask for huge vectors, in all the ways there are."""
    many = {f"f{i}": {"values": [f"v{j}" for j in range(40)]} for i in range(40)}
    arms = [f"arm{i}" for i in range(500)]
    for features in (
        {"by_arm": many, "arms": arms},
        {"arms": [*arms, "one more"]},
        {"shared": many},
        {"per_arm": {f"f{i}": {} for i in range(500)}},
    ):
        began = time.monotonic()
        error = clean(service.post("/v1/streams", {"name": "large", "features": features}), 422)
        assert error["field"].startswith("features")
        assert time.monotonic() - began < 5
    for large in ({"dim": 10**6}, {"dim": 2, "settings": {"dim": 10**6}}, {"dim": 2, "settings": {"lanes": 10**9}},
                  {"dim": 2, "settings": {f"s{i}": i for i in range(21)}}, {"dim": 2, "horizon": 10**10},
                  {"dim": 2, "policy": "x" * 100_000}, {"dim": 2, "title": "x" * 201}):  # fmt: skip
        clean(service.post("/v1/streams", {"name": "large", **large}), 422)
    assert [one["name"] for one in service.get("/v1/streams").json()["streams"]] == ["shop"]


def test_odd_texts_are_taken_as_they_are(service: Local) -> None:
    """Zero bytes, quotes, markup, scripts, other alphabets: names like any other, everywhere they are read again."""
    import io

    import pyarrow.parquet as pq

    names = [
        "\x00",
        "a\x00b",
        "'; DROP TABLE events; --",
        "<script>alert(1)</script>",
        "\u202e",
        "🎯",
        "\n",
        "%s{0}",
        "\\",
    ]
    for i, name in enumerate(names):
        title = {"title": name, "randomize": 0.5}
        assert service.request("PATCH", "/v1/streams/shop", json=title).json()["title"] == name
        item = {"arms": {name: [0.1, 0.2]}, "key": f"{name}{i}"}
        (one,) = service.post("/v1/streams/shop/decide/batch", {"items": [item]}).json()["results"]
        assert one["answer"]["arm"] == name
        clean(service.reward(name, 1.0), 404)
    decided = [event for event in service.log() if event["kind"] == "decided"]
    assert [event["arm"] for event in decided] == names
    assert [event["key"] for event in decided] == [f"{name}{i}" for i, name in enumerate(names)]
    table = pq.read_table(io.BytesIO(service.get("/v1/streams/shop/events?format=parquet").content)).to_pylist()
    assert [row["arm"] for row in table if row["kind"] == "decided"] == names
    assert service.get("/v1/streams/shop").json()["title"] == names[-1]
    for event, name in zip(decided, names, strict=True):
        told = service.get(f"/v1/streams/shop/decisions/{event['decision']}").json()
        assert repr(name) in told["explanation"]


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


# --- the rate ------------------------------------------------------------------------------------------------------


def test_the_rate_is_limited(tmp_path: Path) -> None:
    with local(tmp_path / "a.db", rate=5.0) as service:
        statuses = [service.get("/v1/streams").status_code for _ in range(30)]
        assert statuses[:10] == [200] * 10
        assert 429 in statuses
        answer = until(lambda: next((a for a in [service.get("/v1/streams")] if a.status_code == 429), None))
        assert clean(answer, 429)["code"] == "too_many"
        assert answer.headers["retry-after"] == "1"
        assert [service.get("/healthz").status_code for _ in range(30)] == [200] * 30
        until(lambda: service.get("/v1/streams").status_code == 200, 5)


def test_the_rate_by_the_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two seconds' worth at once, then as many as time allows; everybody has their own."""
    clock = [0.0]
    monkeypatch.setattr("windvane.service.access.time.monotonic", lambda: clock[0])
    store = Store(tmp_path / "a.db")
    guard, refusals = Access(store, rate=2.0), set()

    def let_in(who: str, times: int) -> int:
        count = 0
        for _ in range(times):
            try:
                guard.check(None, who, changes=False)
                count += 1
            except ServiceError as error:
                refusals.add(error.status)
        return count

    assert let_in("a", 50) == 4
    assert let_in("b", 50) == 4
    clock[0] = 0.5
    assert let_in("a", 50) == 1
    clock[0] = 100.0
    assert let_in("a", 50) == 4
    monkeypatch.setattr(access, "MOST_CLIENTS", 10)
    for i in range(100):
        let_in(f"c{i}", 1)
    assert len(guard._buckets) <= 10
    assert refusals == {429}
    store.close()


# --- faults --------------------------------------------------------------------------------------------------------


def test_a_fault_tells_nothing_of_the_inside(
    service: Local, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A programming error anywhere: 500 and a sentence for the client, the traceback for the log."""
    before = service.state()

    def fault(*_: Any, **__: Any) -> Any:
        raise RuntimeError("/srv/secret/path is 0xdeadbeef")

    with monkeypatch.context() as patch:
        patch.setattr("windvane.service.streams.Stream.diagnosed", fault)
        answer = service.get("/v1/streams/shop")
        assert clean(answer, 500)["code"] == "internal"
        assert "secret" not in answer.text
    with monkeypatch.context() as patch, caplog.at_level(logging.ERROR):
        patch.setattr("windvane.service.streams.Stream._decide", fault)
        answer = service.post("/v1/streams/shop/decide", ARMS)
        assert clean(answer, 500)["code"] == "internal"
        assert "secret" not in answer.text
        assert "/srv/secret/path" in caplog.text
        until(lambda: service.get("/readyz").status_code == 200)
        (one,) = service.together(("/v1/streams/shop/decide/batch", {"items": [ARMS, ARMS]}))
        clean(one, 500)
    until(lambda: service.get("/readyz").status_code == 200)
    assert service.state() == before
    assert service.decide()["arm"]


def test_a_store_that_cannot_be_read_is_503(service: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    decision = service.decide()["decision"]
    service.reward(decision, 1.0)

    def broken(*_: Any) -> Any:
        raise sqlite3.OperationalError("disk I/O error in /srv/secret.py")

    with monkeypatch.context() as patch:
        patch.setattr(service.store, "of_decision", broken)
        answer = service.get(f"/v1/streams/shop/decisions/{decision}")
        assert clean(answer, 503)["code"] == "unavailable"
        assert "secret" not in answer.text
    before = service.state()
    with monkeypatch.context() as patch:
        patch.setattr(service.store, "of_key", broken)
        answer = service.post("/v1/streams/shop/decide", ARMS, headers={"idempotency-key": "k"})
        assert clean(answer, 503)["code"] == "unavailable"
        assert "secret" not in answer.text
    until(lambda: service.get("/readyz").status_code == 200)
    assert service.state() == before


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


@pytest.fixture
def hasty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server in a thread, with little patience."""
    monkeypatch.setattr(servers, "HEAD_SECONDS", 0.4)
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
    yield Server(0, until(lambda: addresses)[0])
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


def test_a_head_without_end(hasty: Server) -> None:
    for words in (
        b"GET /" + b"x" * 200_000,
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"y" * 200_000,
        b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 50_000,
    ):
        assert spoken(hasty, words, 3).startswith((b"HTTP/1.1 400", b""))
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
        with pytest.raises(ValueError, match="same length"):
            decide_request(content)
        return
    arms, context = decide_request(content)
    assert context == wanted.context
    if isinstance(arms, np.ndarray):
        arms = arms.tolist()
    elif isinstance(arms, dict):
        arms = {name: row.tolist() if isinstance(row, np.ndarray) else row for name, row in arms.items()}
    assert arms == wanted.arms
