"""What strangers, careless clients and hostile pages may try: refused cleanly, and nothing is changed by it."""

from __future__ import annotations

import hashlib
import json
import logging
import re
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from serving import ARMS, Local, clean, local, parsed, served, until, windvane
from support.refusals import rejects
from windvane.service import access, gate
from windvane.service.access import Access, new_token
from windvane.service.errors import ServiceError
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


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Local]:
    with local(tmp_path / "a.db") as found:
        found.create("shop")
        yield found


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
    for line, argument, value in (
        (("add", "shop"), "name", "shop"),
        (("remove", "page"), "name", "page"),
        (("add",), "name", None),
        (("list", "shop"), "name", "shop"),
        (("steal", "shop"), "action", "steal"),
    ):
        found = windvane("token", *line, "--store", path)
        assert found.returncode == 2
        assert found.stderr.startswith(f"windvane: error: `{argument}` ")
        assert f"got {value!r}" in found.stderr
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

    monkeypatch.setattr(service.store, "read_tokens", broken)
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
    assert found.stderr.startswith("windvane: error: `host` ")
    assert f"{host!r}" in found.stderr
    assert f"windvane token add NAME --store {tmp_path}/a.db\n" in found.stderr


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
            assert service.get("/v1/streams", headers={"host": host}).status_code == 200
        wrong = ("evil.example", "evil.example:8000", "127.0.0.1.evil.example", "localhost:80@evil.example", "")
        for host in (*wrong, "127.0.0.1:8000:8000", "x127.0.0.1", "127.0.0.1, evil.example", "evil.example#localhost"):
            for path in ("/", "/v1/streams", "/metrics", "/page/x.js", "/openapi.json"):
                assert clean(service.get(path, headers={"host": host}), 403)["code"] == "wrong_host"
            answer = service.post("/v1/streams", {"name": "x", "dim": 2}, headers={"host": host})
            clean(answer, 403)
        assert service.get("/v1/streams").json() == {"streams": [], "broken": {}}


def test_another_address_of_loopback_is_a_name_of_its_own(tmp_path: Path) -> None:
    server = served(tmp_path / "a.db", "--host", "127.0.0.7")
    with server.client() as client:
        assert client.get("/v1/streams").status_code == 200
        assert client.get("/v1/streams", headers={"host": "evil.example"}).status_code == 403
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
        patch.setattr("windvane.service.streams.diagnose_stream", fault)
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
        patch.setattr(service.store, "events_of_decision", broken)
        answer = service.get(f"/v1/streams/shop/decisions/{decision}")
        assert clean(answer, 503)["code"] == "unavailable"
        assert "secret" not in answer.text
    before = service.state()
    with monkeypatch.context() as patch:
        patch.setattr(service.store, "event_with_key", broken)
        answer = service.post("/v1/streams/shop/decide", ARMS, headers={"idempotency-key": "k"})
        assert clean(answer, 503)["code"] == "unavailable"
        assert "secret" not in answer.text
    until(lambda: service.get("/readyz").status_code == 200)
    assert service.state() == before


def test_guessing_tokens_has_its_limit_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "RELOAD", 0.0)
    with local(tmp_path / "a.db", rate=3.0) as service:
        service.create()
        secret = new_token(service.store, "shop", full=True)
        assert secret is not None
        statuses = [service.get("/v1/streams", headers=bearer(f"wv_{i}")).status_code for i in range(10)]
        assert statuses[:6] == [401] * 6
        assert set(statuses[6:]) == {429}
        assert service.get("/v1/streams", headers=bearer(secret)).status_code == 200  # who has one is not held up
        service.store.remove_all_tokens()


def test_an_item_of_a_batch_is_a_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(access.time, "monotonic", lambda: now[0])
    with local(tmp_path / "a.db", rate=10.0) as service:
        service.create()
        batch = {"items": [ARMS] * 100}
        assert service.post("/v1/streams/shop/decide/batch", batch).status_code == 200
        answer = service.post("/v1/streams/shop/decide", ARMS)
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "9")
        now[0] += 7.9
        assert service.post("/v1/streams/shop/decide", ARMS).status_code == 429
        now[0] += 0.5
        assert service.post("/v1/streams/shop/decide", ARMS).status_code == 200


def test_many_clients_do_not_wash_out_one_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "MOST_CLIENTS", 3)
    store = Store(tmp_path / "a.db")
    found = Access(store, rate=1.0)
    for who in ("a", "a"):
        found.check(None, who, changes=False)
    for i in range(10):
        found.check(None, f"other {i}", changes=False)
        with rejects(error=ServiceError, status=429, code="too_many"):
            found.check(None, "a", changes=False)
    store.close()


def test_the_last_token_does_not_open_the_doors(service: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "RELOAD", 0.0)
    secret = new_token(service.store, "shop", full=True)
    assert service.get("/v1/streams").status_code == 401
    service.store.remove_token("shop")
    assert service.get("/v1/streams").status_code == 401
    assert service.get("/v1/streams", headers=bearer(str(secret))).status_code == 401
    service.store.remove_all_tokens()
    assert service.get("/v1/streams").status_code == 200


def test_a_large_batch_is_forgiven_in_the_end(tmp_path: Path) -> None:
    store = Store(tmp_path / "a.db")
    found = Access(store, rate=1.0)
    found.charge(found.check(None, "a", changes=False), 1000)
    with pytest.raises(ServiceError) as caught:
        found.check(None, "a", changes=False)
    assert caught.value.wait <= 32
    store.close()


def test_tokens_of_before_guard_too(tmp_path: Path) -> None:
    """A store whose tokens were added before it was noted that there were any."""
    store = Store(tmp_path / "a.db")
    new_token(store, "shop", full=True)
    with sqlite3.connect(tmp_path / "a.db") as connection:
        connection.execute("DELETE FROM meta WHERE name = 'guarded'")
    connection.close()
    assert store.requires_token
    assert store.remove_token("shop")
    assert store.requires_token
    store.remove_all_tokens()
    assert not store.remove_token("nobody")
    assert not store.requires_token
    store.close()


def test_the_command_says_so(tmp_path: Path) -> None:
    line = ("token", "--store", tmp_path / "a.db")
    assert windvane(*line, "add", "shop").returncode == 0
    found = windvane(*line, "remove", "shop")
    assert found.returncode == 0
    assert windvane(*line, "open").returncode == 0
    assert json.loads(windvane(*line, "open", "--json").stdout) == {"open": True}
    store = Store(tmp_path / "a.db")
    assert not store.requires_token
    store.close()
    for name in ("", "a\nb", " ", "x" * 201):
        assert windvane(*line, "add", name).returncode == 2


def test_who_follows_a_stream_is_asked_again(tmp_path: Path) -> None:
    """A token that is removed ends what was opened with it."""
    store = Store(tmp_path / "a.db")
    full, reading = new_token(store, "full", full=True), new_token(store, "reading", full=False)
    store.close()
    server = served(tmp_path / "a.db")
    with server.client(headers=bearer(str(full))) as client:
        assert client.post("/v1/streams", json={"name": "shop", "dim": 2}).status_code == 201
        with client.stream("GET", "/v1/streams/shop/live", headers=bearer(str(reading))) as answer:
            lines = answer.iter_lines()
            assert next(lines) == "event: state"
            assert windvane("token", "remove", "reading", "--store", tmp_path / "a.db").returncode == 0
            for _ in range(100):  # so many states that it would go on
                if client.post("/v1/streams/shop/decide", json=ARMS).status_code == 200:
                    time.sleep(0.05)
            assert len(list(lines)) < 30  # it ends
    server.stop()


def test_with_tokens_a_proxy_may_give_it_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "RELOAD", 0.0)
    with local(tmp_path / "a.db", hosts=frozenset({"127.0.0.1"})) as service:
        service.create()
        named = {"host": "shop.example"}
        assert service.get("/v1/streams", headers=named).status_code == 403
        assert service.get("/", headers=named).status_code == 403
        assert service.get("/healthz", headers=named).status_code == 200  # which tells nothing
        secret = str(new_token(service.store, "shop", full=True))
        assert service.get("/", headers=named).status_code == 200
        assert service.get("/v1/streams", headers=named | bearer(secret)).status_code == 200
        assert service.get("/v1/streams", headers=named).status_code == 401
        assert service.get("/healthz", headers=named).status_code == 200
        service.store.remove_all_tokens()
