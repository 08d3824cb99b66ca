"""One client cannot delay another: what is done where, how much at once, and what is refused. The drills measure it."""

from __future__ import annotations

import asyncio
import gc
import json
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import stress

from support.server import ARMS, Local, read_problem, run_local, until
from support.stores import snapshot_number
from windvane.errors import ArgumentError
from windvane.service import bodies, journal, snapshots, turns
from windvane.service import engine as engines
from windvane.service.http import exchange, overload
from windvane.service.requests import DecisionBatch, History, parse_body
from windvane.service.store.sqlite import store_file as stores
from windvane.service.streams import Stream
from windvane.service.turns import Turnstile

RAW = json.dumps(ARMS).encode()
SHOP = "/v1/streams/shop"


@pytest.fixture
def service(service: Local) -> Local:
    service.create()
    return service


class Threads:
    """The threads in which functions were called."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch, self.names = monkeypatch, list[str]()

    def watch(self, owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def call(*arguments: Any, **more: Any) -> Any:
            self.names.append(threading.current_thread().name)
            return original(*arguments, **more)

        self._patch.setattr(owner, name, call)

    def is_loop(self, service: Local) -> list[bool]:
        loop = service.call(lambda: threading.current_thread().name)
        names, self.names = self.names, []
        return [name == loop for name in names]


# --- large bodies ----------------------------------------------------------------------------------------------------


def pad(body: Any) -> bytes:
    return json.dumps(body).encode().ljust(bodies.LARGE_BODY + 1)


def test_large_bodies_are_handled_in_a_thread(service: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = Threads(monkeypatch)
    threads.watch(Stream, "decide")
    threads.watch(bodies, "from_json")
    headers = {"content-type": "application/json"}
    assert service.post(f"{SHOP}/decisions", content=pad(ARMS), headers=headers).status_code == 201
    assert threads.is_loop(service) == [False, False]  # the operation, and its parser
    for path, body in (
        ("/decisions/batch", {"decisions": [ARMS]}),
        ("/history", {"rewards": [1.0], "vectors": [[0, 1]]}),
    ):
        assert service.post(f"{SHOP}{path}", content=pad(body), headers=headers).status_code == 200
    assert threads.is_loop(service)[0] is False
    service.engine.streams["shop"].seconds = 0.0
    service.decide()
    assert threads.is_loop(service) == [True, True]


def test_a_slow_stream_works_in_a_thread(service: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it does, changes and reads of the stream wait, and others go on."""
    stream, go = service.engine.streams["shop"], threading.Event()
    decide = stream.core.decide
    monkeypatch.setattr(stream.core, "decide", lambda *a, **more: (go.wait(30), decide(*a, **more))[1])
    service.create("other")
    stream.seconds = 2 * turns.SLOW_SECONDS

    async def scene() -> list[Any]:
        ask = service._client
        first = asyncio.create_task(ask.post(f"{SHOP}/decisions", json=ARMS))
        while not stream.is_changing:
            await asyncio.sleep(0.001)
        paths = (f"{SHOP}/pending", SHOP)
        others = [asyncio.create_task(ask.get(path)) for path in paths]
        others.append(asyncio.create_task(ask.post(f"{SHOP}/decisions", json=ARMS)))
        assert (await ask.post("/v1/streams/other/decisions", json=ARMS)).status_code == 201
        assert not any(task.done() for task in (first, *others))
        first.cancel()  # its client is gone: the thread goes on, and so does the operation
        go.set()
        return [await task for task in others]

    pending, info, second = service.run(scene())
    assert (pending.status_code, info.status_code, second.status_code) == (200, 200, 201)
    until(lambda: len(service.events()) == 2)
    assert stream.busy is None


def test_an_operation_that_fails_in_a_thread(service: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = service.engine.streams["shop"]
    stream.seconds = 2 * turns.SLOW_SECONDS
    assert read_problem(service.post(f"{SHOP}/decisions", {"arms": {"a": [9, 9]}}), 422)["code"] == "invalid"
    stream.seconds = 2 * turns.SLOW_SECONDS
    monkeypatch.setattr(stream.core, "decide", lambda *_, **__: 1 / 0)
    assert read_problem(service.post(f"{SHOP}/decisions", ARMS), 500)["code"] == "internal"
    until(lambda: service.post(f"{SHOP}/decisions", ARMS).status_code == 201)


@pytest.mark.parametrize("name", list(stress.build_hostile_bodies()))
def test_hostile_bodies_cost_no_more_than_parsing(service: Local, name: str) -> None:
    """The answer names a few errors, nothing is left behind, and garbage collection is as before."""
    path, body = stress.build_hostile_bodies()[name]
    answer = service.post(path.replace("victim", "shop"), content=body, headers={"content-type": "application/json"})
    problem = read_problem(answer, 413, 422)
    assert len(problem["errors"]) <= 3
    assert gc.isenabled()
    assert not any(type(thing) is dict and len(thing) > 100_000 for thing in gc.get_objects())


def test_the_first_errors_of_each_list_are_found() -> None:
    rows = {"rewards": [1.0] * 3, "vectors": [[0.5, "a", "b"], ["c"], [0.5]]}
    for model, document, pointers in (
        (History, rows, ["#/vectors/0/1"]),
        (DecisionBatch, {"decisions": [{"key": ""}, {"key": ""}]}, ["#/decisions/0/key"]),
        (History, {**rows, "vectors": None, **dict.fromkeys(map(str, range(100)), 1)}, ["#/0", "#/1", "#/2"]),
    ):
        with pytest.raises(engines.Problem) as caught:
            parse_body(model, json.dumps(document).encode())  # type: ignore[type-var]
        assert [error["pointer"] for error in caught.value.errors] == pointers


def test_amounts_that_are_allowed(service: Local) -> None:
    """1,000 arms of 500 numbers are; more values, fields, or lists and objects are not."""
    service.create("wide", dim=500)
    row = [0.0] * 499 + [0.5]
    body = json.dumps({"arms": [row] * 1000}, separators=(",", ":")).encode()
    headers = {"content-type": "application/json"}
    assert service.post("/v1/streams/wide/decisions", content=body, headers=headers).status_code == 201
    for what, sign in (("lists and objects", b"{"), ("fields", b":"), ("values", b",")):
        most = bodies.MOST[what][1]
        answer = service.post(f"{SHOP}/decisions", content=b"[" + sign * (most + 1), headers=headers)
        assert f"at most {most:,} {what}" in read_problem(answer, 413)["detail"]


def test_a_value_in_a_message_is_abridged() -> None:
    """As the first characters of its repr, however large it is."""
    for value in (
        [[0.5] * 1000] * 1000,
        {"a": [1, 2] * 50},
        "x" * 1000,
        (1, "two"),
        [[]] * 200,
        {"k": {"l": ["m"] * 99}},
    ):
        shown = str(ArgumentError("a", value, "else")).partition("got ")[2]
        assert shown.removesuffix("...") == repr(value)[: len(shown.removesuffix("..."))]
    loop: list[Any] = []
    loop.append(loop)
    assert "got" in str(ArgumentError("a", loop, "else"))


# --- reads and snapshots ---------------------------------------------------------------------------------------------


def test_many_features_are_described_and_copied_in_a_thread(service: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = Threads(monkeypatch)
    threads.watch(Stream, "info")
    threads.watch(Stream, "copy")
    monkeypatch.setattr(snapshots, "SNAPSHOT_EVENTS", 1)
    for path in (SHOP, f"{SHOP}/charts"):
        assert service.get(path).status_code == 200
    service.decide()
    until(lambda: snapshot_number(service.store, 1) == 1)
    assert threads.is_loop(service) == [True, True]
    monkeypatch.setattr(turns, "LARGE_DIM", 1)
    monkeypatch.setattr("windvane.service.views.LARGE_DIM", 1)
    monkeypatch.setattr("windvane.service.snapshots.LARGE_DIM", 1)
    service.create("large")
    service.decide("large")
    assert service.info("large")["counts"]["decisions"] == 1
    until(lambda: snapshot_number(service.store, 2) == 1)
    assert threads.is_loop(service) == [False] * 3  # when it is created, copied and read


# --- how much at once ------------------------------------------------------------------------------------------------


def test_the_turnstile_lets_one_through_at_a_time() -> None:
    async def scene() -> list[str]:
        turnstile, order = Turnstile(), list[str]()

        async def crowd(name: str) -> None:
            await turnstile.wait()
            order.append(name)

        async def other() -> None:
            for _ in range(6):
                order.append("-")
                await asyncio.sleep(0)

        tasks = [asyncio.create_task(crowd(name)) for name in "abcd"]
        await asyncio.sleep(0)
        tasks[1].cancel()
        await asyncio.gather(other(), *tasks, return_exceptions=True)
        return order

    order = asyncio.run(scene())
    assert [name for name in order if name != "-"] == ["a", "c", "d"]
    assert "cd" not in "".join(order)


def test_too_many_requests_at_once_are_refused(service: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of one client above its share; probes are answered; idle connections never come this far."""
    monkeypatch.setattr(overload, "MAX_REQUESTS", 8)
    monkeypatch.setattr(overload, "CROWD", 1)
    answers = service.request_together(*[("POST", f"{SHOP}/decisions", ARMS)] * 10, ("GET", "/healthz", None))
    statuses = [answer.status_code for answer in answers]
    assert (statuses.count(201), statuses.count(503), statuses[-1]) == (4, 6, 200)
    refused = next(answer for answer in answers if answer.status_code == 503)
    assert read_problem(refused, 503)["code"] == "overloaded"
    assert refused.headers["retry-after"] == "1"
    service.decide()


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [("GET", "events", b""), ("POST", "decisions/batch", json.dumps({"decisions": [ARMS] * 200}).encode())],
)
def test_an_answer_that_nobody_reads_is_broken_off(
    service: Local, monkeypatch: pytest.MonkeyPatch, method: str, path: str, body: bytes
) -> None:
    monkeypatch.setattr(exchange, "UNREAD_SECONDS", 0.05)
    service.decide()
    sent: list[str] = []
    messages = [{"type": "http.request", "body": body}]

    async def receive() -> dict[str, Any]:
        return messages.pop() if messages else await asyncio.Event().wait() and {}  # the client stays

    async def send(message: Any) -> None:
        sent.append(message["type"])
        if message["type"] == "http.response.body":
            await asyncio.Event().wait()  # the buffers are full

    scope = {
        "type": "http", "method": method, "path": f"{SHOP}/{path}", "query_string": b"", "root_path": "",
        "headers": [(b"host", b"127.0.0.1")], "client": ("a", 1),
    }  # fmt: skip
    service.run(service.app(scope, receive, send))
    assert sent == ["http.response.start", "http.response.body"]
    assert 'status="499"' in service.get("/metrics").text


def test_load_by_client_and_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overload, "MAX_REQUESTS", 3)
    monkeypatch.setattr(overload, "MAX_BODY_BYTES", 300)
    monkeypatch.setattr(overload, "SHARE_OF_CLIENT", 2 / 3)
    load = overload.Load()
    scopes: list[dict[str, Any]] = [{} for _ in range(5)]
    load.begin(scopes[0], "a")
    load.begin(scopes[1], "a")
    for scope, client in ((scopes[2], "a"), (scopes[3], "b"), (scopes[4], "c")):
        if client == "b":
            load.begin(scope, client)
            continue
        with pytest.raises(engines.Problem, match="one client" if client == "a" else "3 requests are"):
            load.begin(scope, client)
        load.end(scope)
    load.grow(scopes[0], 100)
    load.grow(scopes[0], 150)  # of the same body
    with pytest.raises(engines.Problem, match="one client"):
        load.grow(scopes[1], 51)
    with pytest.raises(engines.Problem, match="300 bytes"):
        load.grow(scopes[3], 151)
    for scope in scopes:
        load.end(scope)
    assert (load.requests, load.bytes) == ({}, {})
    load.begin(scopes[4], "c")


def test_bytes_that_wait_for_the_disk_are_limited(service: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "MAX_WAITING_BYTES", 5 * len(RAW))  # more than one event, less than two
    go, append = threading.Event(), service.store.append
    monkeypatch.setattr(service.store, "append", lambda *a, **more: (go.wait(30), append(*a, **more)))
    stream = service.engine.streams["shop"]

    async def scene() -> None:
        for _ in range(2):
            await service.engine.operations.operate(stream, lambda: stream.decide(RAW, None, time.time()))
        with pytest.raises(engines.Problem, match="does not keep up"):
            await service.engine.operations.operate(stream, lambda: stream.decide(RAW, None, time.time()))
        go.set()
        await service.engine.journal.commit(stream)
        await service.engine.operations.operate(stream, lambda: stream.decide(RAW, None, time.time()))

    service.run(scene())


# --- keys ------------------------------------------------------------------------------------------------------------


def test_keys_compare_what_a_request_means(service: Local) -> None:
    """White space, the order of fields and how a number is written do not matter; every value does."""
    headers = {"idempotency-key": "k", "content-type": "application/json"}
    first = b'{"arms": {"red": [1, 0.0], "blue": [0.2, 0.7]}}'
    same = (
        b'{"arms":{"blue":[2e-1,0.70],"red":[1.0,0]}}',
        b'\n{ "context" : null, "arms": {"r\\u0065d": [1, 0], "blue": [0.2, 0.7]}} ',
        first.ljust(bodies.LARGE_BODY + 1),
    )
    other = (b'{"arms": {"red": [1, 0.1], "blue": [0.2, 0.7]}}', b'{"arms": {"red": [true, 0.0], "blue": [0.2, 0.7]}}')
    made = service.post(f"{SHOP}/decisions", content=first, headers=headers)
    assert made.status_code == 201
    for body in same:
        assert service.post(f"{SHOP}/decisions", content=body, headers=headers).content == made.content
    for body in (*other, b'{"arms": {"red": [1, 0]}}', b"{", b"[1]", b'{"rewards": [1.0]}'):
        answer = service.post(f"{SHOP}/decisions", content=body, headers=headers)
        assert read_problem(answer, 409)["code"] == "key-reused"
    rows = b'{"rewards": [1], "vectors": [[0.5, 0.5]]}'
    again = b'{"vectors":[[0.5,0.5]],"rewards":[1.0]}'
    headers["idempotency-key"] = "h"
    for body, status in ((rows, 200), (again, 200), (again.ljust(70_000), 200), (rows.replace(b"1", b"0"), 409)):
        assert service.post(f"{SHOP}/history", content=body, headers=headers).status_code == status
    assert [event["kind"] for event in service.events()] == ["decided", "history"]


# --- the disk --------------------------------------------------------------------------------------------------------


def test_a_disk_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests are refused, those that wait too, until it does; then memory equals the log, whatever was written."""
    monkeypatch.setattr(engines, "STALL_TICK", 0.02)
    monkeypatch.setattr(engines, "RETRY", 0.02)
    with run_local(tmp_path / "a.db") as service:
        service.create()
        limit = engines.STALL_SECONDS
        monkeypatch.setattr(engines, "STALL_SECONDS", 0.2)  # until the disk answers: it may be slow itself
        go, append = threading.Event(), service.store.append
        monkeypatch.setattr(service.store, "append", lambda *a, **more: (go.wait(30), append(*a, **more)))
        keys = [{"headers": {"idempotency-key": key}} for key in "ab"]
        answer = service.post(f"{SHOP}/decisions", ARMS, **keys[0])
        assert read_problem(answer, 503)["code"] == "unavailable"
        assert answer.headers["retry-after"] == "1"
        for answer in (service.get("/readyz"), service.post(f"{SHOP}/decisions", ARMS, **keys[1]), service.get(SHOP)):
            assert read_problem(answer, 503)["cause"] == "stalled"
        assert service.get("/healthz").status_code == 200
        monkeypatch.setattr(engines, "STALL_SECONDS", limit)
        go.set()
        service.wait_until_ready()
        assert [event["key"] for event in service.events()] == ["a"]  # it was written after all
        decisions = [service.post(f"{SHOP}/decisions", ARMS, **key).json()["id"] for key in keys]
        assert [event["decision"] for event in service.events()] == decisions


@pytest.mark.sqlite
def test_another_process_holds_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That is reported as such, and not as a disk that does not answer."""
    monkeypatch.setattr(stores, "SERVER_BUSY_MS", 50)
    monkeypatch.setattr(engines, "RETRY", 0.02)
    with run_local(tmp_path / "a.db") as service, closing(sqlite3.connect(tmp_path / "a.db")) as other:
        service.create()
        other.execute("BEGIN IMMEDIATE")
        assert read_problem(service.post(f"{SHOP}/decisions", ARMS), 503)["code"] == "unavailable"
        until(lambda: "(SQLITE_BUSY)" in read_problem(service.get("/readyz"), 503)["detail"])
        other.rollback()
        service.wait_until_ready()
        service.decide()


def test_a_stream_that_is_created_on_a_disk_that_does_not_answer(
    service: Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = engines.STALL_SECONDS
    monkeypatch.setattr(engines, "STALL_SECONDS", 0.1)
    monkeypatch.setattr(engines, "RETRY", 0.02)
    go, add = threading.Event(), service.store.add_stream
    monkeypatch.setattr(service.store, "add_stream", lambda *a, **more: (go.wait(30), add(*a, **more))[1])
    new = {"name": "new", "dim": 2}
    assert read_problem(service.post("/v1/streams", new), 503)["cause"] == "stalled"
    monkeypatch.setattr(engines, "STALL_SECONDS", limit)
    go.set()
    service.wait_until_ready()
    assert read_problem(service.post("/v1/streams", new), 409)["code"] == "stream-exists"
    service.decide("new")


@pytest.mark.sqlite
def test_a_store_that_is_gone_is_noticed_before_the_next_answer(
    service: Local, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "RETRY", 0.02)
    decision = service.decide(key="k")
    files = list(tmp_path.glob("a.db*"))
    (tmp_path / "aside").mkdir()
    for path in files:
        path.rename(tmp_path / "aside" / path.name)
    for answer in (
        service.get(SHOP),
        service.post(f"{SHOP}/decisions", ARMS, headers={"idempotency-key": "k"}),
        service.reward(decision["id"], 1.0),
        service.get("/readyz"),
    ):
        assert read_problem(answer, 503)["cause"] == "misplaced"
    for path in files:
        (tmp_path / "aside" / path.name).rename(path)
    service.wait_until_ready()
    assert service.reward(decision["id"], 1.0).json()["status"] == "recorded"


@pytest.mark.sqlite
def test_a_store_that_goes_during_a_commit(service: Local, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written to it is not acknowledged."""
    monkeypatch.setattr(engines, "RETRY", 0.02)
    path, append = tmp_path / "a.db", service.store.append

    def move(*arguments: Any, **more: Any) -> None:
        path.rename(tmp_path / "elsewhere")
        append(*arguments, **more)

    monkeypatch.setattr(service.store, "append", move)
    assert read_problem(service.post(f"{SHOP}/decisions", ARMS), 503)["code"] == "unavailable"
    monkeypatch.setattr(service.store, "append", append)
    (tmp_path / "elsewhere").rename(path)
    service.wait_until_ready()


# --- the drills ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", list(stress.DRILLS))
def test_limits_are_kept_while_one_client_misbehaves(name: str) -> None:
    figures = stress.run_drill(name, quick=False)
    assert [figure for figure in figures if not figure.is_met] == []


def test_a_drill_summarises_what_another_client_saw() -> None:
    figures = stress.summarise("x", np.array([0.01] * 90 + [0.2] * 10))
    assert (figures.text, figures.is_met, figures.value) == ("p50 10, p99 200, max 200 ms", False, pytest.approx(0.2))
    assert stress.summarise("x", np.array([0.01, 0.2]), limit=0.25, share=100.0).is_met
