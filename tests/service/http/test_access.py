"""Tokens, host names, origins and the rate: who may do what."""

from __future__ import annotations

import gc
import hashlib
import json
import re
import sqlite3
import threading
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from support.server import ARMS, CHANGES, CommandResult, Local, read_problem, run_command, run_local, run_server, until
from windvane.service.http import access
from windvane.service.http.access import RateLimiter, create_token
from windvane.service.problems import Problem
from windvane.service.store import DatabaseError

READS = ("/v1/streams", "/v1/streams/shop", "/v1/streams/shop/events", "/v1/streams/shop/charts", "/metrics")
FILES = ("/", "/docs", "/openapi.json", "/page/index.html", "/docs/swagger-ui.css")  # which hold no data
WRITES: list[tuple[str, str, Any]] = [
    ("POST", "/v1/streams", {"name": "new", "dim": 2}),
    *((method, f"/v1/streams/shop{path}", body) for method, path, body in CHANGES),
]
HOSTS = frozenset({"localhost", "127.0.0.1", "[::1]"})


@pytest.fixture(autouse=True)
def read_tokens_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "RELOAD", 0.0)


@pytest.fixture
def service(service: Local) -> Local:
    service.create("shop")
    return service


def bearer(secret: str | None, scheme: str = "Bearer") -> dict[str, str]:
    return {"authorization": f"{scheme} {secret}"}


def test_requests_that_a_token_may_not_make_count_too(tmp_path: Path) -> None:
    with run_local(tmp_path / "a.db", rate=2.0) as service:
        reading = str(create_token(service.store.tokens, "reading", full=False))
        answers = [service.post("/v1/streams", {"name": "new", "dim": 2}, headers=bearer(reading)) for _ in range(50)]
    assert {answer.status_code for answer in answers} == {403, 429}


def test_who_may_do_what(service: Local) -> None:
    full = str(create_token(service.store.tokens, "full", full=True))
    reading = str(create_token(service.store.tokens, "reading", full=False))
    before = service.state()
    wrong: list[dict[str, Any]] = [
        {}, bearer("wv_" + "x" * 43), bearer(full, "Basic"), {"authorization": full}, {"authorization": "Bearer "},
        bearer(full[:-1]), bearer(full.swapcase()), bearer(hashlib.sha256(full.encode()).hexdigest()),
        {"authorization": b"Bearer \xff\xfe"}, {"x-token": full, "cookie": f"token={full}"},
    ]  # fmt: skip
    for path in READS:
        for headers in (bearer(full), bearer(reading), bearer(full, "bearer")):
            assert service.get(path, headers=headers).status_code == 200
        for headers in wrong:
            answer = service.get(path, headers=headers)
            assert read_problem(answer, 401)["code"] in ("no-token", "wrong-token")
            assert answer.headers["www-authenticate"] == "Bearer"
            assert full not in answer.text
        read_problem(service.get(f"{path}?token={full}&access_token={full}"), 401)
    for method, path, body in WRITES:
        read_problem(service.request(method, path, json=body), 401)
        problem = read_problem(service.request(method, path, json=body, headers=bearer(reading)), 403)
        assert problem["code"] == "read-only-token"
    assert service.state() == before
    for method, path, body in WRITES:
        assert service.request(method, path, json=body, headers=bearer(full)).status_code in (
            200,
            201,
            204,
            404,
            409,
            422,
        )
    for path in ("/healthz", "/readyz", *FILES):
        assert service.get(path).status_code == 200


def test_a_token_for_metrics_reads_nothing_else(service: Local) -> None:
    secret = str(create_token(service.store.tokens, "prometheus", full=True, metrics_only=True))
    headers = bearer(secret)
    assert service.get("/metrics", headers=headers).status_code == 200
    assert service.request("HEAD", "/metrics", headers=headers).status_code == 200
    for path in (*READS, "/v1/cluster", "/v1/nothing"):
        if path != "/metrics":
            assert read_problem(service.get(path, headers=headers), 403)["code"] == "metrics-token"
    for method, path, body in (*WRITES, ("POST", "/metrics", {})):
        assert read_problem(service.request(method, path, json=body, headers=headers), 403)["code"] == "metrics-token"
    (token,) = service.store.tokens.read()
    assert (token.name, token.rights, token.full) == ("prometheus", "metrics", False)
    # A version that does not know such tokens looks for the hash of a secret, and finds none.
    assert hashlib.sha256(secret.encode()).hexdigest() != token.hash


def test_the_access_log_names_the_token_of_refused_requests(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "windvane.access")
    with run_local(tmp_path / "a.db", rate=0.001, log_requests=True) as service:  # one request, then none for long
        reading = str(create_token(service.store.tokens, "reading", full=False))
        for _ in range(3):
            service.post("/v1/streams", {"name": "new", "dim": 2}, headers=bearer(reading))
    lines = [line.__dict__["fields"] for line in caplog.records if line.name == "windvane.access"]
    refused = {(line["token"], line["problem"]) for line in lines if "problem" in line and "token" in line}
    assert refused == {("reading", "read-only-token"), ("reading", "rate-limited")}


def test_removing_the_last_token_does_not_turn_authentication_off(service: Local) -> None:
    secret = create_token(service.store.tokens, "shop", full=True)
    assert service.get("/v1/streams", headers=bearer(secret)).status_code == 200
    assert create_token(service.store.tokens, "shop", full=True) is None  # the name is in use
    service.store.tokens.remove("shop")
    for headers in ({}, bearer(secret)):
        read_problem(service.get("/v1/streams", headers=headers), 401)
    service.store.tokens.remove_all()
    assert service.get("/v1/streams").status_code == 200


def test_a_closed_server_without_tokens_admits_nobody(tmp_path: Path) -> None:
    with run_local(tmp_path / "a.db", closed=True, wait=False) as service:
        until(lambda: service.engine.failure is None)
        for path in READS:
            read_problem(service.get(path), 401)
        read_problem(service.post("/v1/streams", {"name": "x", "dim": 2}), 401)
        assert service.get("/healthz").status_code == 200


def test_a_store_that_cannot_be_read_admits_nobody(service: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(service.store.tokens, "read", Mock(side_effect=sqlite3.OperationalError("disk I/O error")))
        assert read_problem(service.get("/v1/streams"), 503)["code"] == "unavailable"
        assert service.get("/healthz").status_code == 200


def test_metrics_of_a_store_that_cannot_be_read(service: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    """They say what is wrong, to those who could read them before."""
    secret = str(create_token(service.store.tokens, "prometheus", full=False))
    assert service.get("/metrics", headers=bearer(secret)).status_code == 200
    with monkeypatch.context() as patch:
        patch.setattr(service.store.tokens, "read", Mock(side_effect=sqlite3.OperationalError("disk I/O error")))
        patch.setattr(service.store, "measure", Mock(side_effect=sqlite3.OperationalError("disk I/O error")))
        read_problem(service.get("/v1/streams", headers=bearer(secret)), 503)
        answer = service.get("/metrics", headers=bearer(secret))
        assert (answer.status_code, "windvane_ready 1.0" in answer.text) == (200, True)
        assert "windvane_store_bytes" not in answer.text
        read_problem(service.get("/metrics"), 401)
        read_problem(service.get("/metrics", headers=bearer("wv_x")), 401)


def test_a_store_that_hangs_does_not_hold_up_the_event_loop(service: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests are refused after a while; the tokens are read once for all of them."""
    monkeypatch.setattr(access, "READ_SECONDS", 0.1)
    go, reads = threading.Event(), list[int]()
    with monkeypatch.context() as patch:
        patch.setattr(service.store.tokens, "read", lambda: (reads.append(1), go.wait(30), [])[2])
        for _ in range(2):
            assert read_problem(service.get("/v1/streams"), 503)["code"] == "unavailable"
        assert service.get("/healthz").status_code == 200
        assert len(reads) == 1
        go.set()
    until(lambda: service.get("/v1/streams").status_code == 200)


def test_an_error_that_comes_once_nobody_waits_for_it(
    service: Local, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A request gives a hanging database up before it fails: no traceback about that is left behind."""
    monkeypatch.setattr(access, "READ_SECONDS", 0.0)
    go, is_over = threading.Event(), threading.Event()

    def fail() -> list[Any]:
        go.wait(30)
        is_over.set()
        raise DatabaseError("connection timeout expired")

    with monkeypatch.context() as patch:
        patch.setattr(service.store.tokens, "read", fail)
        read_problem(service.get("/v1/streams"), 503)
        go.set()
        assert is_over.wait(30)
    monkeypatch.setattr(access, "READ_SECONDS", 30.0)
    until(lambda: service.get("/v1/streams").status_code == 200)
    service.call(gc.collect)
    assert [record for record in caplog.records if record.name == "asyncio"] == []


@pytest.mark.sqlite
def test_commands_for_tokens(tmp_path: Path) -> None:
    def run(*words: str) -> CommandResult:
        return run_command("token", *words, "--store", tmp_path / "a.db")

    secret = run("add", "shop").stdout.strip()
    assert re.fullmatch(r"wv_[\w-]{43}", secret)
    other = json.loads(run("add", "page", "--read-only", "--json").stdout)["token"]
    content = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    for token in (secret, other):  # only the hash is stored
        assert token.removeprefix("wv_").encode() not in content
        assert hashlib.sha256(token.encode()).hexdigest().encode() in content
    tokens = json.loads(run("list", "--json").stdout)["tokens"]
    assert [(row["name"], row["rights"]) for row in tokens] == [("page", "read"), ("shop", "full")]
    assert "shop" in run("list").stdout
    for words, mention in (
        (("add", "shop"), "`name`"), (("remove", "none"), "`name`"), (("add",), "'name'"), (("list", "shop"), "shop"),
        (("steal", "shop"), "steal"), (("add", ""), "`name`"), (("add", "a\nb"), "`name`"),
        (("add", "x" * 201), "`name`"),
    ):  # fmt: skip
        result = run(*words)
        assert (result.returncode, result.stderr.count("\n")) == (2, 1)
        assert re.search(f"^windvane: error: .*{mention}", result.stderr)
    assert run("remove", "shop").returncode == 0
    assert json.loads(run("open", "--json").stdout) == {"open": True}


@pytest.mark.sqlite
def test_tokens_come_and_go_while_the_server_runs(tmp_path: Path) -> None:
    """A token that is removed also ends what is followed with it."""
    path = tmp_path / "a.db"
    with run_server(path) as server, server.client() as client:
        assert client.get("/v1/streams").status_code == 200
        secret, reading = (run_command("token", "add", name, "--store", path).stdout.strip() for name in "ab")
        until(lambda: client.get("/v1/streams").status_code == 401)
        client.headers.update(bearer(secret))
        assert client.post("/v1/streams", json={"name": "shop", "dim": 2}).status_code == 201
        with client.stream("GET", "/v1/streams/shop/live", headers=bearer(reading)) as answer:
            lines = answer.iter_lines()
            assert next(lines) == "event: info"
            run_command("token", "remove", "b", "--store", path)
            list(lines)  # it ends


def test_tokens_that_come_and_go_are_logged(service: Local, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "windvane.service")
    service.get("/v1/streams")
    for name in ("old", "new"):
        create_token(service.store.tokens, name, full=True)
    service.get("/v1/streams")
    service.store.tokens.remove("old")
    for _ in range(2):
        service.get("/v1/streams")
    service.store.tokens.remove_all()
    service.get("/v1/streams")
    changes = [
        (line.getMessage(), line.__dict__.get("fields"))
        for line in caplog.records
        if re.match("tokens|authentication", line.getMessage())
    ]
    assert changes == [
        ("tokens were added", {"tokens": ["new", "old"]}),
        ("authentication was turned on", None),
        ("tokens were removed", {"tokens": ["old"]}),
        ("tokens were removed", {"tokens": ["new"]}),
        ("authentication was turned off", None),
    ]


def test_the_first_token_is_logged_if_no_request_came_before(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("INFO", "windvane.service")
    was_read, read = threading.Event(), access.Access._read_store

    def read_and_tell(self: access.Access) -> Any:
        tokens = read(self)
        was_read.set()
        return tokens

    monkeypatch.setattr(access.Access, "_read_store", read_and_tell)
    with run_local(tmp_path / "a.db") as service:
        assert was_read.wait(20)
        create_token(service.store.tokens, "first", full=True)
        until(lambda: service.get("/v1/streams").status_code == 401)
    messages = [line.getMessage() for line in caplog.records]
    assert {"tokens were added", "authentication was turned on"} <= {*messages}


# --- host names and origins ------------------------------------------------------------------------------------------


def test_without_tokens_it_answers_under_its_own_names_only(tmp_path: Path) -> None:
    """A page at evil.example whose name resolves to 127.0.0.1 sends that name. With tokens, a proxy may use any."""
    with run_local(tmp_path / "a.db", hosts=HOSTS) as service:
        for host in ("127.0.0.1", "127.0.0.1:8000", "localhost", "LOCALHOST:1", "[::1]", "[::1]:8000"):
            assert service.get("/v1/streams", headers={"host": host}).status_code == 200
        wrong = ("evil.example", "evil.example:8000", "127.0.0.1.evil.example", "localhost:80@evil.example", "")
        for host in (*wrong, "127.0.0.1:8000:8000", "x127.0.0.1", "127.0.0.1, evil.example", "evil.example#localhost"):
            for path in ("/v1/streams", "/metrics", *FILES):
                assert read_problem(service.get(path, headers={"host": host}), 403)["code"] == "wrong-host"
            read_problem(service.post("/v1/streams", {"name": "x", "dim": 2}, headers={"host": host}), 403)
        named = {"host": "shop.example"}
        assert service.get("/healthz", headers=named).status_code == 200
        secret = create_token(service.store.tokens, "shop", full=True)
        assert service.get("/", headers=named).status_code == 200
        assert service.get("/v1/streams", headers=named | bearer(secret)).status_code == 200
        assert service.get("/v1/streams", headers=named).status_code == 401


def test_pages_of_other_sites_change_nothing(service: Local) -> None:
    """A browser sends what any page asks it to send, if it looks like a form; but it says whose page it was."""
    before, path = service.state(), "/v1/streams/shop/decisions"
    body = json.dumps(ARMS).encode()
    for origin in ("https://evil.example", "null", "http://127.0.0.1:9000", "http://localhost"):
        for kind in ({}, {"content-type": "application/json"}):
            answer = service.request("POST", path, content=body, headers={"origin": origin, **kind})
            assert read_problem(answer, 403)["code"] == "wrong-origin"
        answer = service.get("/v1/streams/shop", headers={"origin": origin})
        assert answer.status_code == 200
        assert "access-control-allow-origin" not in answer.headers
    forms = ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x")
    for form in (*forms, "application/xml", "application/jsonx", "text/json", ""):
        answer = service.request("POST", path, content=body, headers={"content-type": form})
        assert read_problem(answer, 415)["code"] == "not-json"
    assert service.state() == before
    for json_type in ("application/json", "application/json; charset=utf-8", "Application/JSON"):
        own = {"content-type": json_type, "origin": "http://127.0.0.1:8000"}
        assert service.request("POST", path, content=body, headers=own).status_code == 201
    secret = create_token(service.store.tokens, "full", full=True)
    headers = {"origin": "https://shop.example.com", **bearer(secret)}
    assert service.post(path, ARMS, headers=headers).status_code == 201


# --- the rate --------------------------------------------------------------------------------------------------------


def test_the_rate_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An item of a batch counts as a request. Guessing tokens is limited, and does not delay others."""
    clock = [100.0]
    monkeypatch.setattr("windvane.service.http.access.time.monotonic", lambda: clock[0])
    with run_local(tmp_path / "a.db", rate=10.0) as service:
        service.create("shop")
        path = "/v1/streams/shop/decisions"
        assert service.post(f"{path}/batch", {"decisions": [ARMS] * 100}).status_code == 200
        answer = service.post(path, ARMS)
        assert read_problem(answer, 429)["code"] == "rate-limited"
        assert answer.headers["retry-after"] == "9"
        assert service.get("/healthz").status_code == 200
        clock[0] += 8.5
        assert service.post(path, ARMS).status_code == 201
        clock[0] += 100
        secret = create_token(service.store.tokens, "shop", full=True)
        statuses = [service.get("/v1/streams", headers=bearer(f"wv_{i}")).status_code for i in range(30)]
        assert statuses == [401] * 20 + [429] * 10
        assert service.get("/v1/streams", headers=bearer(secret)).status_code == 200
        service.store.tokens.remove_all()
        clock[0] += 100


def test_a_bucket_for_every_client(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("windvane.service.http.access.time.monotonic", lambda: clock[0])
    limiter = RateLimiter(2.0)

    def count(client: str, times: int) -> int:
        admitted = 0
        for _ in range(times):
            try:
                limiter.admit(client)
                admitted += 1
            except Problem as problem:
                last.append(problem.retry_after)
        return admitted

    last: list[float | None] = []
    assert count("a", 50) == count("b", 50) == 4  # two seconds' worth at once
    clock[0] = 0.5
    assert count("a", 50) == 1
    clock[0] = 100.0
    assert count("a", 1) == 1
    limiter.charge("a", 1000)  # most of it is forgiven
    assert count("a", 1) == 0
    assert last[-1] == 31
    monkeypatch.setattr(access, "MAX_CLIENTS", 3)
    for i in range(10):  # many clients do not let one start again that keeps asking
        count(f"c{i}", 1)
        assert count("a", 1) == 0
    RateLimiter(0.0).admit("a")
