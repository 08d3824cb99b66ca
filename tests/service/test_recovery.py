"""Recovery: in a thread, from the snapshot and the events after it, with every stream that can be rebuilt."""

from __future__ import annotations

import json
import logging
import random
import threading
import time
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from support.drill import FEATURES
from support.refusals import rejects
from support.server import Local, read_problem, run_local, until
from support.stores import edit, reseal, snapshot_number
from windvane import Agent
from windvane.service import engine as engines
from windvane.service import recovery, snapshots, streams
from windvane.service.recovery import rebuild_stream, recover
from windvane.service.store import LATE, DatabaseError, Event, SqliteStore
from windvane.service.streams import Stream

SHOP = "/v1/streams/shop"


@pytest.mark.sqlite
def test_requests_are_refused_while_streams_are_rebuilt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a loop that is free to answer; the thread says how far it is."""
    with run_local(tmp_path / "a.db") as service:
        for name in ("shop", "cafe"):
            service.create(name)
            service.decide(name)
        before = service.state()
    rebuild, steps, threads = recovery.rebuild_stream, threading.Semaphore(0), set[int]()

    def rebuild_slowly(*arguments: Any, **more: Any) -> Stream:
        steps.acquire()
        threads.add(threading.get_ident())
        return rebuild(*arguments, **more)

    monkeypatch.setattr(recovery, "rebuild_stream", rebuild_slowly)
    service = Local(tmp_path / "a.db", wait=False)
    for progress in ("recovering: 0 of 2 streams", "recovering: 1 of 2 streams"):
        until(lambda progress=progress: service.engine.failure == ("recovering", progress))
        problem = read_problem(service.get("/readyz"), 503)
        assert progress in problem["detail"]
        answer = service.post(f"{SHOP}/decisions", {})
        assert (read_problem(answer, 503)["code"], answer.headers["retry-after"]) == ("unavailable", "1")
        assert service.get("/healthz").status_code == 200
        steps.release()
    service.wait_until_ready()
    assert threads.isdisjoint({service.call(threading.get_ident)})
    assert service.state() == before
    service.stop()


@pytest.mark.sqlite
def test_a_stop_does_not_wait_for_a_recovery(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with run_local(tmp_path / "a.db") as service:
        service.create()
        service.create("cafe")
    rebuild, names, go, is_over = recovery.rebuild_stream, list[str](), threading.Event(), threading.Event()

    def rebuild_slowly(row: Any, store: SqliteStore, **more: Any) -> Stream:
        names.append(row.name)
        assert go.wait(30)
        return rebuild(row, store, **more)

    def recover_and_say_so(*arguments: Any) -> recovery.Recovery:
        try:
            return recover(*arguments)
        finally:
            is_over.set()

    monkeypatch.setattr(recovery, "rebuild_stream", rebuild_slowly)
    monkeypatch.setattr(engines, "recover", recover_and_say_so)
    service = Local(tmp_path / "a.db", wait=False)
    until(lambda: names)
    service.shut_down()
    go.set()
    assert is_over.wait(30)
    service.crash()
    assert names == ["shop"]  # the other one was not begun


@pytest.mark.sqlite
def test_a_recovery_that_fails_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(engines, "RETRY", 0.02)
    with run_local(tmp_path / "a.db") as service:
        service.create()
    failures = [RuntimeError("first"), OSError("second")]

    def fail_twice(*arguments: Any) -> recovery.Recovery:
        if failures:
            raise failures.pop()
        return recover(*arguments)

    monkeypatch.setattr(engines, "recover", fail_twice)
    with caplog.at_level(logging.ERROR, logger="windvane.service"), run_local(tmp_path / "a.db") as service:
        assert service.info()["events"] == 0
    assert len(caplog.records) == 2


@pytest.mark.sqlite
def test_a_stream_that_cannot_be_rebuilt_is_set_aside(tmp_path: Path) -> None:
    with run_local(tmp_path / "a.db") as service:
        for name in ("shop", "cafe"):
            service.create(name)
            service.decide(name)
    edit(tmp_path / "a.db", "UPDATE events SET outcome = '{}' WHERE id / (1 << 40) = 1")
    edit(tmp_path / "a.db", "DELETE FROM snapshots")
    with run_local(tmp_path / "a.db") as service:
        page = service.get("/v1/streams").json()
        assert [stream["name"] for stream in page["streams"]] == ["cafe"]
        assert [stream["name"] for stream in page["unavailable"]] == ["shop"]
        assert read_problem(service.get(SHOP), 500)["code"] == "unrecovered"
        assert read_problem(service.get(f"{SHOP}/events"), 500)["code"] == "unreadable"
        assert read_problem(service.post("/v1/streams", {"name": "shop", "dim": 2}), 409)["code"] == "stream-exists"
        service.decide("cafe")


@pytest.mark.sqlite
def test_history_that_was_learned_once_is_learned_again(tmp_path: Path) -> None:
    """Whatever would be said of its times now."""
    with run_local(tmp_path / "a.db") as service:
        service.create()
        times = ["1970-01-01T00:00:01Z", "1970-01-01T00:00:02Z"]
        service.post(f"{SHOP}/history", {"rewards": [1, 0], "vectors": [[0.1, 0.2], [0.3, 0.1]], "times": times})
    edit(tmp_path / "a.db", "UPDATE events SET request = CAST(replace(request, '00:02Z', '00:00Z') AS BLOB)")
    reseal(tmp_path / "a.db")
    with run_local(tmp_path / "a.db") as service:
        assert service.info()["counts"]["history_rows"] == 2


@pytest.mark.parametrize(
    "settings",
    [
        {"reward_timeout": 5, "default_reward": 0.0, "epsilon": 0.3},
        {"reward_timeout": 5, "default_reward": 0.0, "learn": "early"},
        {"half_life": "1h", "reward_timeout": "1h"},
        {"features": FEATURES},
        {"policy": "UniformRandom"},
        {"prior": [0.5, -0.5], "scaling": {"center": [0.1, 0], "spread": [1, 2]}},
        {"max_pending": 4, "clip": True},
    ],
    ids=["timeouts", "early", "clock", "fields", "random", "prior", "crowded"],
)
def test_a_life_with_a_snapshot_anywhere_is_the_same_life(
    tmp_path: Path, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch, clock: list[float]
) -> None:
    """Crashed after every few events and recovered from the snapshot, the log and the state are those of a stream that
    never stopped: the choices depend on every bit of the state."""
    monkeypatch.setattr(snapshots, "SNAPSHOT_EVENTS", 3)
    monkeypatch.setattr(snapshots, "SNAPSHOT_SHARE", 1e9)
    monkeypatch.setattr(snapshots, "SNAPSHOT_PAUSE", 0.0)
    ids, results = iter([""]), []
    monkeypatch.setattr(streams, "draw_id", lambda _: next(ids))
    for lives in (1, 4):
        ids, clock[0], rng = iter(f"{i:016x}" for i in range(1000)), 1000.0, random.Random(2)
        service = Local(tmp_path / f"{lives}.db")
        service.create(**settings)
        for _ in range(lives):
            service.crash()
            service = Local(tmp_path / f"{lives}.db")
            service.load()  # before the clock goes on: a stream that is loaded closes what is due
            for i in range(24 // lives):
                clock[0] += rng.uniform(0.0, 900.0)
                body: Any = {"context": {"age": rng.randint(0, 100), "device": rng.choice(["phone", "desk"])}}
                if "features" not in settings:
                    body = {"arms": {arm: [rng.uniform(-0.7, 0.7), rng.uniform(-0.7, 0.7)] for arm in "xyz"}}
                decision = service.decide(body=body)["id"]
                if rng.random() < 0.7 or i % 3 == 2:  # a life ends with a reward, which closes what a start would
                    service.reward(decision, float(rng.random() < 0.5))
        results.append((service.events(), service.call(service.load().core.pack())))
        service.crash()
    assert results[0] == results[1]


# --- recovery time -------------------------------------------------------------------------------------------------


def make_long(path: Path, count: int, pending: int = 0) -> Stream:
    """Make a store with ``count`` events, by the code that the service runs, and the last snapshot that it would make
    before them. ``pending``: so many of the first decisions never get a reward, and never expire."""
    store, rng, now = SqliteStore(path), random.Random(1), 1_700_000_000.0
    agent = Agent(dim=5, reward_timeout=None if pending else 1000).core.settings
    row = store.add_stream("long", 0.0, json.dumps({"title": None, "agent": agent}))
    assert row is not None
    stream, events = Stream(row, store), list[Event]()
    arms = [{f"arm{k}": [round(rng.uniform(-0.4, 0.4), 3) for _ in range(5)] for k in range(5)} for _ in range(200)]
    requests = [json.dumps({"arms": offer}).encode() for offer in arms]
    while stream.number < count:
        now += 0.01
        made = stream.decide(requests[stream.number % 200], None, now)
        events += made.events
        if stream.core.tally.decisions > pending and (pending or stream.number % 3):
            events += stream.reward(made.events[-1].decision or "", float(rng.random() < 0.3), now).events
        if len(events) >= snapshots.SNAPSHOT_EVENTS:
            is_last = 2500 < count - stream.number <= 2500 + snapshots.SNAPSHOT_EVENTS + 2
            store.append(events, [(row.id, stream.snapshot())] if is_last else [])
            stream.lookup.forget(stream.number)
            events.clear()
    store.append(events)
    store.close()
    return stream


@pytest.mark.slow
@pytest.mark.parametrize("pending", [0, 99_000])
def test_a_million_events_are_recovered_in_two_seconds(tmp_path: Path, pending: int) -> None:
    make_long(tmp_path / "a.db", 1_000_000, pending)
    store = SqliteStore(tmp_path / "a.db")
    assert store.last_number(1) >= 1_000_000
    assert store.last_number(1) - snapshot_number(store, 1) > snapshots.SNAPSHOT_EVENTS  # as bad as it gets
    (row,) = store.read_streams()
    began = time.perf_counter()
    stream = rebuild_stream(row, store)
    spent = time.perf_counter() - began
    print(f"recovered {stream.number:,} events, {stream.core.counts.pending:,} decisions pending, in {spent:.2f} s")
    assert stream.core.counts.pending >= pending
    store.close()
    assert spent <= 2.0


def count_work(path: Path) -> tuple[int, int]:
    """Recover a store; return how many events were replayed, and thousands of steps that SQLite took."""
    replayed, steps, apply = list[int](), list[int](), recovery.apply_event
    with closing(SqliteStore(path)) as store, pytest.MonkeyPatch.context() as patch:
        patch.setattr(recovery, "apply_event", lambda *event: replayed.append(1) or apply(*event))  # type: ignore[func-returns-value]
        store.connection.set_progress_handler(lambda: steps.append(1), 1000)
        assert recover(store, lambda _: None).streams
    return len(replayed), len(steps)


@pytest.mark.sqlite
def test_recovery_does_not_grow_with_the_log(tmp_path: Path) -> None:
    """A log of 20,000 events before the snapshot costs nothing."""
    stream = make_long(tmp_path / "a.db", 1_000)
    replayed, steps = count_work(tmp_path / "a.db")
    assert (replayed, steps > 3) == (stream.number, True)
    chain, late = stream.chain, list[Event]()
    for i in range(20_000):
        late.append(Event.create(chain, 1, stream.number + i + 1, 1e9, LATE, "", None, b'{"value":1.0}'))
        chain = late[-1].chain
    stream.number, stream.chain = late[-1].number, chain
    with closing(SqliteStore(tmp_path / "a.db")) as store:
        store.append(late, [(1, stream.snapshot())])
    assert count_work(tmp_path / "a.db") <= (0, 2)


@pytest.mark.sqlite
@pytest.mark.parametrize("method", ["read_snapshot", "read_events"])
def test_a_database_that_goes_away_during_a_replay(tmp_path: Path, method: str) -> None:
    """The stream is not damaged, and its log need not be replayed in full: a refit also reads events."""
    with run_local(tmp_path / "a.db") as service:
        service.create("shop")
        for _ in range(3):
            service.reward(service.decide("shop")["id"], 1.0)
        service.post(f"{SHOP}/refit", {"half_life": 50})
    with closing(SqliteStore(tmp_path / "a.db")) as store:
        (row,) = store.read_streams()
        answers, reads = {"read_snapshot": None, "read_events": list(store.read_events(row.id))}, list[str]()

        def read(name: str, *_: object, **__: object) -> Any:
            reads.append(name)
            if name == method and reads.count(name) == (2 if name == "read_events" else 1):
                raise DatabaseError("the connection was lost")
            return answers[name]

        for name in answers:
            setattr(store, name, partial(read, name))
        with rejects(error=DatabaseError):
            rebuild_stream(row, store)
        assert reads == ["read_snapshot", "read_events", "read_events"][: 1 if method == "read_snapshot" else 3]
