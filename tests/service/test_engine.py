"""What takes long and what piles up: bulk history, many timeouts, a disk that stalls, snapshots."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from support.backends import open_backend
from support.refusals import rejects
from support.server import ARMS, Local, pack_stream, read_problem, run_local, until
from support.stores import snapshot_number
from windvane.service import engine as engines
from windvane.service import journal, snapshots, streams
from windvane.service.bulk_history import learn_history
from windvane.service.creation import configure, create_stream
from windvane.service.recovery import rebuild_stream
from windvane.service.store import CLOSED, DamageError
from windvane.service.stream_settings import NewStream
from windvane.service.streams import Done, Stream

RAW = json.dumps(ARMS).encode()
HISTORY: dict[str, Any] = {"rewards": [1.0, 0.0], "vectors": [[0.1, 0.2], [0.3, 0.1]]}
SHOP = "/v1/streams/shop"


@pytest.fixture
def service(service: Local) -> Local:
    service.create()
    service.create("other")
    return service


class StalledDisk:
    """A disk that writes nothing until ``go`` is set."""

    def __init__(self, service: Local, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go, append = threading.Event(), service.store.append

        def wait(*arguments: Any, **more: Any) -> None:
            self.go.wait(30)
            append(*arguments, **more)

        monkeypatch.setattr(service.store, "append", wait)


def operate(service: Local, operation: str, *arguments: Any, name: str = "shop") -> Done:
    """Carry out an operation and hand its events over, without waiting for the disk."""

    async def carry_out() -> Done:
        stream = await service.engine.find(name)
        return await service.engine.operations.operate(
            stream, lambda: getattr(stream, operation)(*arguments, time.time())
        )

    done: Done = service.run(carry_out())
    return done


def read_body(done: Done) -> dict[str, Any]:
    return dict(json.loads(done.body))


def count_closed(service: Local) -> list[int]:
    return [len(event["decisions"]) for event in service.events() if event["kind"] == "closed"]


# --- before it is on disk ------------------------------------------------------------------------------------------


def test_whatever_waits_for_the_disk_is_known(monkeypatch: pytest.MonkeyPatch, service: Local) -> None:
    """The agent forgets sooner: keys, rewards and parts are still carried out once."""
    monkeypatch.setattr("windvane.agent.pending.REMEMBERED", 1)
    service.configure(reward_timeout=3, learn="at_timeout")
    disk = StalledDisk(service, monkeypatch)
    first = read_body(operate(service, "decide", RAW, "k"))
    assert read_body(operate(service, "reward", first["id"], 1.0))["status"] == "recorded"
    parts = read_body(operate(service, "decide", RAW, None))["id"]
    part = operate(service, "add_reward", parts, 0.5, "p")
    expired = read_body(operate(service, "decide", RAW, None))["id"]
    for _ in range(12):
        operate(service, "decide", RAW, None)
    again = operate(service, "decide", RAW, "k")
    assert (read_body(again), again.events) == (first, [])
    again = operate(service, "reward", first["id"], 1.0)
    assert read_body(again)["status"] == "unchanged"
    assert {event.kind for event in again.events} <= {CLOSED}
    assert operate(service, "add_reward", parts, 0.5, "p") == part._replace(events=[])
    late = [operate(service, "reward", expired, 1.0) for _ in range(2)]
    assert [read_body(done)["status"] for done in late] == ["expired"] * 2
    assert [len(done.events) for done in late] == [1, 0]
    with rejects(error=engines.Problem, code="conflict"):
        operate(service, "reward", first["id"], 0.0)
    disk.go.set()
    kinds = [event["kind"] for event in service.events()]
    assert [kinds.count(kind) for kind in ("decided", "rewarded", "reward_part", "late")] == [15, 1, 1, 1]


def test_a_disk_that_does_not_keep_up(service: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "MAX_WAITING", 10)
    disk = StalledDisk(service, monkeypatch)
    for _ in range(10):
        operate(service, "decide", RAW, None)
    answer = service.post("/v1/streams/other/decisions", ARMS)
    assert read_problem(answer, 503)["code"] == "unavailable"
    assert answer.headers["retry-after"] == "1"
    disk.go.set()
    until(lambda: service.post("/v1/streams/other/decisions", ARMS).status_code == 201)


def test_a_repetition_is_answered_when_the_first_is_on_disk(service: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = StalledDisk(service, monkeypatch)
    made, engine = operate(service, "decide", RAW, "k"), service.engine

    async def scene() -> list[Done]:
        shop, other = engine.stream("shop"), engine.stream("other")
        raw = json.dumps(HISTORY).encode()
        asked = [
            asyncio.create_task(engine.operations.carry_out(shop, lambda: shop.decide(RAW, "k", time.time()))),
            *(asyncio.create_task(learn_history(engine, other, raw, "h")) for _ in range(2)),
        ]
        done, _ = await asyncio.wait(asked, timeout=0.3)
        assert not done
        disk.go.set()
        return await asyncio.gather(*asked)

    again, *learned = service.run(scene())
    assert again.body == made.body
    assert [read_body(done) for done in learned] == [{"rows": 2}] * 2
    assert [event["kind"] for event in service.events("other")] == ["history"]


def test_what_became_of_a_decision_is_told_when_it_is_on_disk(service: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    made = service.decide()
    disk = StalledDisk(service, monkeypatch)
    operate(service, "reward", made["id"], 1.0)
    threading.Timer(0.2, disk.go.set).start()
    record = service.get(f"{SHOP}/decisions/{made['id']}").json()
    assert disk.go.is_set()
    assert (record["decision"], record["status"], record["reward"]) == (made, "rewarded", 1.0)


# --- what takes long -----------------------------------------------------------------------------------------------


def test_others_go_on_while_history_is_learned(service: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests that change the stream wait for their turn; it can be read; other streams are not affected."""
    stream, go = service.engine.streams["shop"], threading.Event()
    read_history = stream.read_history
    monkeypatch.setattr(stream, "read_history", lambda *arguments: go.wait(30) and read_history(*arguments))

    async def scene() -> list[Any]:
        ask = service._client
        first = asyncio.create_task(ask.post(f"{SHOP}/history", json=HISTORY))
        while stream.busy is None:
            await asyncio.sleep(0.001)
        waiting = [
            asyncio.create_task(work)
            for work in (
                ask.post(f"{SHOP}/decisions", json=ARMS),
                ask.post(f"{SHOP}/decisions/batch", json={"decisions": [ARMS, ARMS]}),
                ask.patch(SHOP, json={"title": "new"}),
                ask.post(f"{SHOP}/history", json=HISTORY),
            )
        ]
        assert (await ask.post("/v1/streams/other/decisions", json=ARMS)).status_code == 201
        info = (await ask.get(SHOP)).json()
        assert (info["counts"]["history_rows"], info["counts"]["decisions"], info["title"]) == (0, 0, None)
        assert not any(task.done() for task in (first, *waiting))
        go.set()
        return [await task for task in (first, *waiting)]

    assert [answer.status_code for answer in service.run(scene())] == [200, 201, 200, 200, 200]
    kinds = [event["kind"] for event in service.events()]
    assert kinds[0] == "history"
    assert sorted(kinds) == ["configured", *["decided"] * 3, *["history"] * 2]


def test_history_that_is_refused_or_fails_releases_the_stream(service: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = service.engine.streams["shop"]
    for body in ({"rewards": [1.0], "vectors": [[3, 4]]}, {"rewards": "x"}):
        assert read_problem(service.post(f"{SHOP}/history", body), 422)["code"] == "invalid"
    with monkeypatch.context() as patch:
        patch.setattr(stream, "read_history", lambda *_: 1 / 0)
        assert service.post(f"{SHOP}/history", HISTORY).status_code == 500
    assert stream.busy is None
    service.decide()
    assert [event["kind"] for event in service.events()] == ["decided"]


def test_many_timeouts_are_closed_bit_by_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an outage that was longer than the timeout; a decision that comes then is made before they all are."""
    monkeypatch.setattr(streams, "MAX_CLOSED", 4)
    monkeypatch.setattr(engines, "TICK", 1e6)
    now, passed = time.time_ns, [0.0]
    monkeypatch.setattr(time, "time_ns", lambda: now() + int(passed[0] * 1e9))
    service = Local(tmp_path / "a.db")
    service.create(reward_timeout="1h", default_reward=0.0)
    for _ in range(10):
        service.decide()
    service.crash()
    passed[0] = 7200.0
    with run_local(tmp_path / "a.db") as service:
        until(lambda: service.info()["counts"]["expired"] == 10)
        assert count_closed(service) == [4, 4, 2]
        for _ in range(10):
            service.decide()
        passed[0] = 2 * 7200.0
        service.decide()
        until(lambda: service.info()["counts"]["expired"] == 20)
        assert [event["kind"] for event in service.events()[-4:]] == [
            "closed",
            "decided",
            "closed",
            "closed",
        ]  # it does not wait
        service.decide()
        passed[0] = 3 * 7200.0
        service.decide()  # two: the operation closes them itself
        assert count_closed(service) == [4, 4, 2] * 2 + [2]
        assert (service.info()["counts"]["defaulted"], service.info()["mean_reward"]) == (22, 0.0)


def test_a_change_closes_decisions_bit_by_bit(service: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "MAX_CLOSED", 4)
    monkeypatch.setattr(engines, "TICK", 1e6)
    for _ in range(12):
        service.decide()
    engine, stream = service.engine, service.engine.streams["shop"]

    async def scene() -> None:
        decision = engine.operations.carry_out(stream, lambda: stream.decide(RAW, None, time.time()))
        await asyncio.gather(configure(engine, stream, {"max_pending": 2}), decision)

    service.run(scene())
    until(lambda: service.info()["counts"]["pending"] == 2)
    assert max(count_closed(service)) == 4
    assert sum(count_closed(service)) == 11
    time.sleep(0.05)
    service.configure(reward_timeout="10ms")  # shorter than the age of those that are left
    until(lambda: service.info()["counts"]["expired"] == 2)


def test_a_request_for_a_stream_that_was_replaced_does_not_wait(
    service: Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has many timeouts to close, which nobody will close any more."""
    monkeypatch.setattr(streams, "MAX_CLOSED", 2)
    for _ in range(6):
        service.decide()
    engine, stream = service.engine, service.engine.streams["shop"]

    async def scene() -> None:
        engine.report_damage(DamageError("as a damaged page"))
        stream.core.configure(max_pending=1)
        await asyncio.sleep(0)
        with rejects(error=engines.Problem, code="unavailable"):
            await engine.operations.carry_out(stream, lambda: stream.decide(RAW, None, time.time()))
        monkeypatch.setattr(stream.core, "is_overdue", lambda *_: True)
        with rejects(error=engines.Problem, code="unavailable"):
            await engine.operations.carry_out(stream, lambda: stream.reward("x", 1.0, time.time()), decision="x")

    service.run(scene())
    service.wait_until_ready()
    assert service.info()["counts"]["pending"] == 6


def test_a_reward_waits_until_its_own_decision_is_closed(
    clock: list[float], service: Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is overdue is late, however many must be closed before it; one that is not does not wait for them."""
    monkeypatch.setattr(streams, "MAX_CLOSED", 2)
    service.create("many", reward_timeout="1h", default_reward=0.0)
    old = [service.decide("many")["id"] for _ in range(9)]
    clock[0] += 1800.0
    young = service.decide("many")["id"]
    clock[0] += 1801.0
    rewards = [("PUT", f"/v1/streams/many/decisions/{id_}/reward", {"value": 1.0}) for id_ in (old[-1], young)]
    answers = service.request_together(*rewards)
    assert [answer.json()["status"] for answer in answers] == ["expired", "recorded"]
    kinds = [event["kind"] for event in service.events("many")[10:]]
    assert kinds.count("closed") == 5
    assert kinds.index("rewarded") < kinds.index("late") == len(kinds) - 1
    batch = [{"decision": young, "value": 1.0}, {"decision": old[0], "value": 1.0}]
    clock[0] += 1801.0
    answer = service.post("/v1/streams/many/rewards/batch", {"rewards": batch}).json()
    assert [result["receipt"]["status"] for result in answer["results"]] == ["unchanged", "expired"]


# --- snapshots -----------------------------------------------------------------------------------------------------


def test_history_is_not_replayed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few events, much work: a snapshot is due by the time that it took."""
    monkeypatch.setattr(snapshots, "SNAPSHOT_SECONDS", 0.01)
    service = Local(tmp_path / "a.db")
    service.create(dim=10)
    body = {"rewards": [1.0] * 4000, "vectors": [[0.01 * (i % 7)] * 10 for i in range(4000)]}
    for _ in range(2):
        assert service.post(f"{SHOP}/history", body).json() == {"rows": 4000}
    until(lambda: snapshot_number(service.store, 1) > 0)
    service.crash()
    store = open_backend(tmp_path / "a.db")
    assert store.last_number(1) - snapshot_number(store, 1) <= 1
    (row,) = store.read_streams()
    assert pack_stream(rebuild_stream(row, store)) == pack_stream(rebuild_stream(row, store, from_start=True))
    store.close()


def test_a_stream_at_rest_has_little_to_replay(service: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once nobody uses a stream, a tenth of the events that make a snapshot due are enough."""
    monkeypatch.setattr(snapshots, "SNAPSHOT_EVENTS", 100)
    monkeypatch.setattr(engines, "TICK", 0.01)
    for _ in range(9):
        service.decide("other")
    for _ in range(12):
        service.decide()
    until(lambda: snapshot_number(service.store, 1) == 12)
    assert snapshot_number(service.store, 2) == 0


def test_one_snapshot_at_a_time_after_many_events(service: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "SNAPSHOT_EVENTS", 20)
    stream, copies = service.engine.streams["shop"], list[int]()
    copy = stream.copy
    monkeypatch.setattr(stream, "copy", lambda: copies.append(stream.number) or copy())  # type: ignore[func-returns-value]
    assert service.post(f"{SHOP}/decisions/batch", {"decisions": [ARMS] * 64}).status_code == 200
    service.request_together(*[("POST", f"{SHOP}/decisions", ARMS)] * 64)
    assert 1 <= len(copies) <= 6
    assert all(later - earlier >= 20 for earlier, later in pairwise(copies))


def test_a_stream_that_was_replaced_stores_nothing(service: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    """An operation failed while a snapshot was packed: neither its events nor the snapshot are those on disk."""
    engine, stream = service.engine, service.engine.streams["shop"]
    copy, go = stream.copy, threading.Event()
    monkeypatch.setattr(stream, "copy", lambda: (make := copy()) and (lambda: go.wait(30) and make()))

    async def scene() -> None:
        monkeypatch.setattr(snapshots, "SNAPSHOT_EVENTS", 1)
        await engine.operations.carry_out(stream, lambda: stream.decide(RAW, None, time.time()))
        monkeypatch.setattr(snapshots, "SNAPSHOT_EVENTS", 1e9)
        stream.decide(RAW, None, time.time())  # its events are lost
        with rejects(error=engines.Problem, code="internal"), engine.operations.operating(stream):
            raise RuntimeError("an operation that fails")
        with rejects(error=engines.Problem, code="unavailable"):
            engine.stream("shop")
        while "shop" not in engine.streams:
            await asyncio.sleep(0.01)
        go.set()
        await asyncio.sleep(0.2)
        with rejects(error=engines.Problem, code="unavailable"):
            await engine.journal.commit(stream)

    service.run(scene())
    assert (service.info()["events"], snapshot_number(service.store, 1)) == (1, 0)


def test_a_stream_is_created_after_a_recovery_or_before_it(service: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    """Never between: it would not be served. It is created, though requests for it have to wait."""
    recover, go = engines.recover, threading.Event()
    monkeypatch.setattr(engines, "recover", lambda *arguments: (recover(*arguments), go.wait(30))[0])

    async def scene() -> Stream:
        engine = service.engine
        add_stream = service.store.add_stream

        def add(*arguments: Any, **more: Any) -> Any:
            service.loop.call_soon_threadsafe(engine.fail, RuntimeError("a failed commit"))
            time.sleep(0.1)
            service.loop.call_later(0.1, go.set)
            return add_stream(*arguments, **more)

        monkeypatch.setattr(service.store, "add_stream", add)
        return await create_stream(engine, NewStream(name="new", dim=2))

    assert service.run(scene()).name == "new"
    service.wait_until_ready()
    assert service.info("new")["events"] == 0


def test_a_failed_operation_rebuilds_its_stream_only(service: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("shop", "other"):
        service.decide(name)
    before = service.engine.streams["other"]
    monkeypatch.setattr(service.engine.streams["shop"].core, "decide", Mock(side_effect=ZeroDivisionError))
    assert read_problem(service.post(f"{SHOP}/decisions", ARMS), 500)["code"] == "internal"
    service.decide("other")
    assert service.engine.streams["other"] is before
    until(lambda: service.post(f"{SHOP}/decisions", ARMS).status_code == 201)
    assert service.info("shop")["counts"]["decisions"] == 2


def test_charts_of_a_stream_that_was_empty_at_the_start(tmp_path: Path) -> None:
    with run_local(tmp_path / "a.db") as service:
        service.create()
    with run_local(tmp_path / "a.db") as service:
        for _ in range(30):
            service.decide()
        buckets = service.get("/v1/streams/shop/charts").json()["buckets"]
        assert sum(bucket["decisions"] for bucket in buckets) == 30
