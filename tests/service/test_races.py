"""What happens at the same time: requests with one key, threads that outlast a recovery, refits, and a stop."""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support.refusals import rejects
from support.server import ARMS, Local, read_problem, run_local, until
from windvane.service import engine as engines
from windvane.service import operations, turns
from windvane.service import refit as refits
from windvane.service.bodies import LARGE_BODY
from windvane.service.event_lookup import EventLookup
from windvane.service.store import LATE, Event, SqliteStore
from windvane.service.streams import Done

RAW = json.dumps(ARMS).encode()
SHOP = "/v1/streams/shop"
KEY = {"idempotency-key": "k"}


@pytest.fixture
def service(service: Local) -> Local:
    service.create()
    return service


class Gate:
    """Lets calls of a method through when ``go`` is set; ``entered`` once one waits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
        self.entered, self.go, original = threading.Event(), threading.Event(), getattr(owner, name)

        def wait(*arguments: Any, **more: Any) -> Any:
            self.entered.set()
            assert self.go.wait(30)
            return original(*arguments, **more)

        monkeypatch.setattr(owner, name, wait)


def ask_in_thread(ask: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(ask()))
    thread.start()
    return thread, answers


# --- the same key at the same time -----------------------------------------------------------------------------------


@pytest.mark.parametrize("is_large", [True, False])
def test_the_same_history_at_once_is_learned_once(service: Local, is_large: bool) -> None:
    raw = json.dumps({"rewards": [1.0], "vectors": [[0.1, 0.2]]}).encode()
    raw = raw.ljust(LARGE_BODY + 1) if is_large else raw
    service.engine.streams["shop"].seconds = 2 * turns.SLOW_SECONDS  # in a thread, as if the last one had taken long

    async def scene() -> list[Any]:
        headers = {**KEY, "content-type": "application/json"}
        ask = service._client.post
        return await asyncio.gather(*(ask(f"{SHOP}/history", content=raw, headers=headers) for _ in range(4)))

    assert [answer.json() for answer in service.run(scene())] == [{"rows": 1}] * 4
    assert [event["kind"] for event in service.events()] == ["history"]


def test_a_repeated_refit_is_answered_when_the_first_is_on_disk(
    service: Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.decide()
    for path, body in (("refit", {"S": 2.0}), ("refit/undo", None)):
        with monkeypatch.context() as patch:
            disk = Gate(patch, service.store, "append")
            headers = {"idempotency-key": path}
            first, answers = ask_in_thread(lambda: service.post(f"{SHOP}/{path}", body, headers=headers))
            assert disk.entered.wait(30)
            second, again = ask_in_thread(lambda: service.post(f"{SHOP}/{path}", body, headers=headers))
            second.join(0.2)
            assert (answers, again) == ([], [])
            disk.go.set()
            first.join()
            second.join()
        assert [answer.status_code for answer in answers + again] == [200, 200]


@pytest.mark.sqlite
def test_parts_that_are_stored_while_they_are_looked_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a thread: the event loop forgets events once they are on disk."""
    with run_local(tmp_path / "a.db") as service:
        service.create()
        decision = service.decide()["id"]
        stream, store = service.engine.streams["shop"], service.store
        lookup = EventLookup(store, stream.id)
        event = Event.create(stream.chain, stream.id, 2, 1.0, LATE, decision, None, b'{"value":1.0}')
        lookup.add(event)
        read = store.find_events

        def read_before_the_commit(**places: Any) -> list[Event]:
            events = read(**places)
            lookup.forget(2)
            return events

        monkeypatch.setattr(store, "find_events", read_before_the_commit)
        assert [event.number for event in lookup.find_by_decision(decision)] == [1, 2]


# --- threads and recoveries ------------------------------------------------------------------------------------------


def test_an_operation_that_fails_after_a_recovery(service: Local) -> None:
    """Its stream was replaced meanwhile: the new one is not touched."""
    engine, stream = service.engine, service.engine.streams["shop"]
    stream.seconds = 2 * turns.SLOW_SECONDS
    entered, go = threading.Event(), threading.Event()

    def fail() -> Done:
        entered.set()
        assert go.wait(30)
        raise RuntimeError("a fault")

    async def scene() -> None:
        task = asyncio.create_task(engine.operations.operate(stream, fail))
        while not entered.is_set():
            await asyncio.sleep(0.001)
        engine.fail(RuntimeError("a failed commit"))
        while engine.failure is not None:
            await asyncio.sleep(0.001)
        replaced = await engine.find("shop")
        go.set()
        with rejects(error=engines.Problem, code="internal"):
            await task
        assert replaced is not stream
        assert engine.streams["shop"] is replaced

    service.run(scene())
    service.decide()


def test_a_stream_is_rebuilt_though_the_disk_fails_for_a_moment(
    service: Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "RETRY", 0.02)
    service.decide()
    failures, rebuild = [sqlite3.OperationalError("disk I/O error")], operations.rebuild_stream

    def fail_once(*arguments: Any, **more: Any) -> Any:
        if failures:
            raise failures.pop()
        return rebuild(*arguments, **more)

    monkeypatch.setattr(operations, "rebuild_stream", fail_once)
    monkeypatch.setattr(service.engine.streams["shop"].core, "decide", lambda *_, **__: 1 / 0)
    read_problem(service.post(f"{SHOP}/decisions", ARMS), 500)
    until(lambda: service.post(f"{SHOP}/decisions", ARMS).status_code == 201)
    assert service.info()["counts"]["decisions"] == 2


def test_followers_of_a_stream_that_is_rebuilt(
    service: Local, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Their answers end; that is no fault."""
    monkeypatch.setattr("windvane.service.http.stream_routes.LIVE_SECONDS", 0.01)
    go, recover = threading.Event(), engines.recover
    monkeypatch.setattr(engines, "recover", lambda *arguments: (go.wait(30), recover(*arguments))[1])
    thread, answers = ask_in_thread(lambda: service.get(f"{SHOP}/live"))
    time.sleep(0.1)

    async def fail() -> None:
        engine, stream = service.engine, service.engine.streams["shop"]
        done = await engine.operations.operate(stream, lambda: stream.decide(RAW, None, time.time()))
        assert done.status == 201
        engine.fail(RuntimeError("a failed commit"))

    service.run(fail())
    thread.join(10)
    go.set()
    service.wait_until_ready()
    assert [answer.status_code for answer in answers] == [200]
    assert "Traceback" not in caplog.text


def test_a_failure_that_a_read_notices_is_handled_in_the_event_loop(
    service: Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FastAPI would call a plain function in a thread, from where no task can be started."""
    threads, check = set[int](), service.engine.check_in_place
    monkeypatch.setattr(service.engine, "check_in_place", lambda: (threads.add(threading.get_ident()), check())[1])
    for path in ("/v1/streams", SHOP, f"{SHOP}/events", f"{SHOP}/pending"):
        assert service.get(path).status_code == 200
    service.decide()
    assert threads == {service.call(threading.get_ident)}


def test_many_streams_created_at_once_on_a_slow_disk(service: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    """Together they take longer than a commit may; none of them does."""
    monkeypatch.setattr(engines, "STALL_SECONDS", 0.5)
    monkeypatch.setattr(engines, "STALL_TICK", 0.02)
    add = service.store.add_stream
    monkeypatch.setattr(service.store, "add_stream", lambda *a, **more: (time.sleep(0.1), add(*a, **more))[1])
    bodies = [("POST", "/v1/streams", {"name": f"s{i}", "dim": 2}) for i in range(8)]
    assert [answer.status_code for answer in service.request_together(*bodies)] == [201] * 8
    assert service.engine.recoveries == 1


def test_operations_run_in_threads_while_a_commit_takes_long(service: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk may hang on reads, too: a look-up of a key must not hold up the event loop."""
    monkeypatch.setattr(operations, "SLOW_COMMIT_SECONDS", 0.01)
    decision = service.decide(key="k")["id"]
    with monkeypatch.context() as patch:
        writing = Gate(patch, service.store, "append")
        first, _ = ask_in_thread(service.decide)
        assert writing.entered.wait(30)
        until(lambda: service.engine.backlog[1] > 0.01)
        reading = Gate(patch, service.store, "find_events")
        second, answers = ask_in_thread(lambda: service.decide(key="k"))
        assert reading.entered.wait(30)
        assert service.get("/healthz").status_code == 200
        assert service.get("/metrics").status_code == 200
        for gate in (reading, writing):
            gate.go.set()
        for thread in (first, second):
            thread.join()
    assert answers[0]["id"] == decision


# --- refits ----------------------------------------------------------------------------------------------------------


def test_refits_leave_threads_for_others(service: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many streams learn their logs again: large bodies, charts and new streams are served."""
    names = [f"s{i}" for i in range(40)]
    for name in names:
        service.create(name)
    reading = Gate(monkeypatch, refits.LogReader, "read")
    threads = [ask_in_thread(lambda name=name: service.post(f"/v1/streams/{name}/refit", {"S": 2.0})) for name in names]
    assert reading.entered.wait(30)
    time.sleep(0.2)
    headers = {"content-type": "application/json"}
    other, answers = ask_in_thread(
        lambda: service.post(f"{SHOP}/decisions", content=RAW.ljust(LARGE_BODY + 1), headers=headers)
    )
    other.join(10)
    assert [answer.status_code for answer in answers] == [201]
    reading.go.set()
    for thread, reports in threads:
        thread.join()
        assert reports[0].status_code == 200


def test_a_stream_that_is_archived_while_a_refit_learns(service: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    service.decide()
    reading = Gate(monkeypatch, refits.LogReader, "read")
    thread, answers = ask_in_thread(lambda: service.post(f"{SHOP}/refit", {"S": 2.0}))
    assert reading.entered.wait(30)
    service.archive()
    reading.go.set()
    thread.join()
    assert read_problem(answers[0], 409)["code"] == "archived"
    assert [event["kind"] for event in service.events()] == ["decided", "archived"]


def test_a_refit_ends_when_nobody_waits_for_it(service: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its request was cancelled, as when the server stops: the thread does not read the rest of the log."""
    service.post(f"{SHOP}/decisions/batch", {"decisions": [ARMS] * 300})
    read_events, entered, go, reads = service.store.read_events, threading.Event(), threading.Event(), list[int]()

    def read_slowly(stream: int, after: int = 0, limit: int = 1 << 62) -> Any:
        reads.append(after)
        entered.set()
        assert go.wait(30)
        return read_events(stream, after, limit)

    monkeypatch.setattr(service.store, "read_events", read_slowly)

    async def scene() -> None:
        stream = service.engine.streams["shop"]
        task = asyncio.create_task(refits.refit(service.engine, stream, {"S": 2.0}, None, dry_run=False))
        while not entered.is_set():
            await asyncio.sleep(0.001)
        task.cancel()
        await asyncio.wait({task})
        assert not stream.is_refitting

    service.run(scene())
    go.set()
    time.sleep(0.2)
    assert reads == [0]


# --- the end ---------------------------------------------------------------------------------------------------------


def test_a_stop_does_not_wait_for_a_disk_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(engines, "STOP_SECONDS", 0.2)
    service = Local(tmp_path / "a.db")
    service.create()
    kept = service.decide()["id"]
    disk = Gate(monkeypatch, service.store, "append")
    thread, answers = ask_in_thread(lambda: service.post(f"{SHOP}/decisions", ARMS))
    assert disk.entered.wait(30)
    service.shut_down()
    thread.join(10)
    assert read_problem(answers[0], 503)["code"] == "unavailable"
    assert "has not responded" in caplog.text
    disk.go.set()
    service.crash()
    with SqliteStore(tmp_path / "a.db", shared=True).read_transaction():
        pass
    with run_local(tmp_path / "a.db") as service:
        assert service.events()[0]["decision"] == kept


HANGING = """
import sys, time
from windvane.service import engine, server
from windvane.service.store import SqliteStore

engine.STOP_SECONDS = server.EXIT_SECONDS = 0.3
server.STOP_SECONDS = 1


def hang(store, *_, **__):
    with store._writing:  # as the method that it replaces
        time.sleep(3600)


SqliteStore.append = hang
server.serve(sys.argv[1], port=0, started=lambda address: print(address, flush=True))
"""


@pytest.mark.sqlite
def test_a_server_ends_though_the_disk_does_not_answer(tmp_path: Path) -> None:
    """Neither the store nor a thread that waits for it can be closed."""
    command = [sys.executable, "-c", HANGING, str(tmp_path / "a.db")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        with httpx2.Client(base_url=address, timeout=30.0, trust_env=False) as client:
            until(lambda: client.get("/readyz").status_code == 200)
            assert client.post("/v1/streams", json={"name": "shop", "dim": 2}).status_code == 201
            thread, _ = ask_in_thread(lambda: client.post(f"{SHOP}/decisions", json=ARMS).status_code)
            until(lambda: "windvane_waiting_events 1.0" in client.get("/metrics").text)
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=30)
            thread.join(10)
    assert process.returncode == 1
    assert "still waits for the disk" in errors
