"""What takes long and what piles up: bulk history, many ends of waits, a disk that stalls, snapshots by work done."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from serving import ARMS, Local, local, until, whole
from support.stores import edit, reseal
from windvane.agent import Closing, waiting
from windvane.service import engine as engines
from windvane.service import snapshots, streams
from windvane.service.engine import Engine
from windvane.service.recovery import rebuilt
from windvane.service.schemas import NewStream
from windvane.service.statistics import MOST_COUNTED, Statistics
from windvane.service.store import Store

RAW = json.dumps(ARMS).encode()
HISTORY: dict[str, Any] = {"rewards": [1.0, 0.0], "vectors": [[0.1, 0.2], [0.3, 0.1]]}


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Local]:
    with local(tmp_path / "a.db") as found:
        found.create()
        found.create("other")
        yield found


class Stalled:
    """A disk that takes nothing until it is told to."""

    def __init__(self, service: Local, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go, append = threading.Event(), service.store.append

        def later(*arguments: Any) -> None:
            self.go.wait(30)
            append(*arguments)

        monkeypatch.setattr(service.store, "append", later)


def in_memory(service: Local, name: str, operation: str, *arguments: Any) -> streams.Done:
    """Carried out and handed over, as a request does, without waiting for the disk."""

    def carry_out() -> streams.Done:
        stream = service.engine.stream(name)
        with service.engine.operating(stream):
            done: streams.Done = getattr(stream, operation)(*arguments, time.time())
        service.engine.hand_over(stream, done.events)
        return done

    return service.call(carry_out)


# --- repeated before it is on disk ---------------------------------------------------------------------------------


def test_whatever_waits_for_the_disk_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than memory keeps of what is on disk: a key and a reward are still carried out once."""
    monkeypatch.setattr(streams, "REMEMBERED", 40)
    monkeypatch.setattr(waiting, "REMEMBERED", 5)  # the agent forgets sooner
    monkeypatch.setattr(engines, "MOST_WAITING", 30)
    with local(tmp_path / "a.db") as service:
        service.create()
        disk = Stalled(service, monkeypatch)
        first = json.loads(in_memory(service, "shop", "decide", RAW, "k0").body)
        assert in_memory(service, "shop", "reward", first["decision"], 1.0, "r0").status == 200
        for i in range(12):
            made = json.loads(in_memory(service, "shop", "decide", RAW, f"k{i + 1}").body)
            assert in_memory(service, "shop", "reward", made["decision"], 0.0, None).status == 200
        again = in_memory(service, "shop", "decide", RAW, "k0")
        assert (json.loads(again.body), again.read_events) == (first, [])
        again = in_memory(service, "shop", "reward", first["decision"], 1.0, None)
        assert (again.status, json.loads(again.body)["learnt"], again.read_events) == (200, False, [])
        assert in_memory(service, "shop", "reward", first["decision"], 0.0, None).status == 409
        disk.go.set()
        assert len(service.log()) == 26  # when all of it is on disk


def test_a_decision_that_gave_way_before_it_was_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "REMEMBERED", 1)
    with local(tmp_path / "a.db") as service:
        service.create(max_pending=1)
        disk = Stalled(service, monkeypatch)
        made = [json.loads(in_memory(service, "shop", "decide", RAW, None).body)["decision"] for _ in range(4)]
        late = [in_memory(service, "shop", "reward", made[0], 1.0, None) for _ in range(2)]
        assert [one.status for one in late] == [410, 410]
        assert [len(one.events) for one in late] == [1, 0]  # recorded once
        disk.go.set()
        assert service.log()[-1]["kind"] == "late"


def test_a_disk_that_does_not_keep_up_is_said(service: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "MOST_WAITING", 10)
    disk = Stalled(service, monkeypatch)
    for _ in range(10):
        in_memory(service, "shop", "decide", RAW, None)
    answer = service.post("/v1/streams/other/decide", ARMS)
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "unavailable")
    disk.go.set()
    until(lambda: service.post("/v1/streams/other/decide", ARMS).status_code == 200)


def test_a_repetition_is_answered_when_the_first_is_on_disk(service: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Stalled(service, monkeypatch)
    made = in_memory(service, "shop", "decide", RAW, "k")
    key = {"idempotency-key": "k"}

    async def scene() -> tuple[Any, ...]:
        ask = service._client
        history = [
            asyncio.create_task(ask.post("/v1/streams/other/history", json=HISTORY, headers={"idempotency-key": "h"}))
            for _ in range(2)
        ]
        again = asyncio.create_task(ask.post("/v1/streams/shop/decide", content=RAW, headers=key))
        done, _ = await asyncio.wait([again, *history], timeout=0.3)
        assert not done
        disk.go.set()
        return await again, *[await one for one in history]

    again, *learnt = service.run(scene())
    assert again.content == made.body
    assert [one.json() for one in learnt] == [{"learnt": 2}] * 2
    assert [one["kind"] for one in service.log("other")] == ["history"]


def test_a_key_belongs_to_one_operation(service: Local) -> None:
    made = service.decide(headers={"idempotency-key": "k"})
    assert service.reward(made["decision"], 1.0, headers={"idempotency-key": "r"}).status_code == 200
    for path, body, key in (("history", ARMS, "k"), ("history", HISTORY, "r"), ("decide", ARMS, "r")):
        answer = service.post(f"/v1/streams/shop/{path}", body, headers={"idempotency-key": key})
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "key_reused")


def test_a_batch_has_no_key(service: Local) -> None:
    for path, body in (("decide", ARMS), ("reward", {"decision": "x", "value": 1.0})):
        answer = service.post(f"/v1/streams/shop/{path}/batch", {"items": [body]}, headers={"idempotency-key": "k"})
        assert (answer.status_code, answer.json()["error"]["field"]) == (422, "Idempotency-Key")


# --- what takes long -----------------------------------------------------------------------------------------------


def test_others_go_on_while_history_is_learnt(service: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    """What would change the stream waits, in its turn; it can be read; and other streams do not notice."""
    stream, go, learnt = service.engine.streams["shop"], threading.Event(), service.engine.streams["shop"].learnt

    def slowly(*arguments: Any) -> Any:
        go.wait(30)
        return learnt(*arguments)

    monkeypatch.setattr(stream, "learnt", slowly)

    async def scene() -> tuple[Any, ...]:
        ask = service._client
        long = asyncio.create_task(ask.post("/v1/streams/shop/history", json=HISTORY))
        while stream.held is None:
            await asyncio.sleep(0.001)
        waiting_ = [
            asyncio.create_task(ask.post("/v1/streams/shop/decide", json=ARMS)),
            asyncio.create_task(ask.post("/v1/streams/shop/decide/batch", json={"items": [ARMS, ARMS]})),
            asyncio.create_task(ask.patch("/v1/streams/shop", json={"title": "new"})),
            asyncio.create_task(ask.post("/v1/streams/shop/history", json=HISTORY)),
        ]
        assert (await ask.post("/v1/streams/other/decide", json=ARMS)).status_code == 200
        state = (await ask.get("/v1/streams/shop")).json()
        assert (state["history"], state["decisions"], state["title"]) == (0, 0, None)
        assert (await ask.get("/healthz")).status_code == 200
        assert not any(task.done() for task in (long, *waiting_))
        go.set()
        return await long, *[await task for task in waiting_]

    assert [answer.status_code for answer in service.run(scene())] == [200] * 5
    kinds = [one["kind"] for one in service.log()]
    assert kinds[0] == "history"
    assert sorted(kinds) == ["configured", *["decided"] * 3, *["history"] * 2]


def test_history_that_is_refused_or_fails_lets_go_of_the_stream(
    service: Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = service.engine.streams["shop"]
    assert service.post("/v1/streams/shop/history", {"rewards": [1.0], "vectors": [[3, 4]]}).status_code == 422
    assert service.post("/v1/streams/shop/history", {"rewards": "x"}).status_code == 422
    with monkeypatch.context() as patch:
        patch.setattr(stream, "learnt", lambda *_: 1 / 0)
        assert service.post("/v1/streams/shop/history", HISTORY).status_code == 500
    assert stream.held is None
    assert service.decide()["arm"]
    assert [one["kind"] for one in service.log()] == ["decided"]


def test_many_waits_end_bit_by_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after an outage that was longer than the wait. Replayed, it is the same."""
    monkeypatch.setattr(streams, "AT_ONCE", 4)
    service = Local(tmp_path / "a.db")
    service.create(wait="1h", missing=0.0)
    for _ in range(10):
        service.decide()
    service.crash()
    now = time.time
    monkeypatch.setattr(engines.time, "time", lambda: now() + 7200.0)
    with local(tmp_path / "a.db") as service:
        until(lambda: service.get("/v1/streams/shop").json()["expired"] == 10)
        closed = [one for one in service.log() if one["kind"] == "expired"]
        assert [len(one["decisions"]) for one in closed] == [4, 4, 2]
        assert [one["learned"] for one in closed] == [[0.0] * 4, [0.0] * 4, [0.0] * 2]
        state = service.get("/v1/streams/shop").json()
        assert (state["defaulted"], state["mean_reward"]) == (10, 0.0)


def test_a_decision_waits_until_many_waits_are_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes first after the outage, before anybody has looked at them."""
    monkeypatch.setattr(streams, "AT_ONCE", 4)
    monkeypatch.setattr(engines, "TICK", 1e6)
    now, passed = time.time, [0.0]
    monkeypatch.setattr(engines.time, "time", lambda: now() + passed[0])
    with local(tmp_path / "a.db") as service:
        service.create(wait="1h")
        for _ in range(10):
            service.decide()
        passed[0] = 7200.0
        service.post("/v1/streams/shop/decide/batch", {"items": [ARMS]})
        kinds = [one["kind"] for one in service.log()]
        assert kinds == [*["decided"] * 10, *["expired"] * 3, "decided"]
        for _ in range(3):
            service.decide()
        passed[0] = 2 * 7200.0
        service.decide()  # four of them: one event
        service.decide()
        passed[0] = 3 * 7200.0
        service.decide()  # two: it closes them itself
        closed = [len(one["decisions"]) for one in service.log() if one["kind"] == "expired"]
        assert closed == [4, 4, 2, 4, 2]


def test_a_shorter_wait_ends_at_once_for_those_that_are_over(service: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "TICK", 1e6)
    for _ in range(3):
        service.decide()
    time.sleep(0.05)
    assert service.request("PATCH", "/v1/streams/shop", json={"wait": "10ms"}).status_code == 200
    until(lambda: service.get("/v1/streams/shop").json()["expired"] == 3)


def test_fewer_that_may_wait_are_closed_bit_by_bit_before_anything_else(
    service: Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "AT_ONCE", 4)
    for _ in range(12):
        service.decide()

    async def scene() -> list[Any]:
        ask = service._client
        asked = [ask.patch("/v1/streams/shop", json={"max_pending": 2}), ask.post("/v1/streams/shop/decide", json=ARMS)]
        return await asyncio.gather(*asked)

    assert [answer.status_code for answer in service.run(scene())] == [200, 200]
    closed = [len(one["decisions"]) for one in service.log() if one["kind"] == "expired"]
    assert closed == [4, 4, 2, 1]  # and one more, to make room


def test_history_that_was_learnt_once_is_learnt_again(tmp_path: Path) -> None:
    """Whatever would be said of its times now."""
    with local(tmp_path / "a.db") as service:
        service.create()
        service.post("/v1/streams/shop/history", HISTORY | {"times": [1.0, 2.0]})
    edit(tmp_path / "a.db", "UPDATE events SET request = CAST(replace(request, '2.0', '9e9') AS BLOB)")
    edit(tmp_path / "a.db", "DELETE FROM snapshots")
    reseal(tmp_path / "a.db")
    with local(tmp_path / "a.db") as service:
        assert service.get("/v1/streams/shop").json()["history"] == 2


def test_a_decision_that_is_refused_closes_none(service: Local) -> None:
    service.create("narrow", max_pending=1)
    made = service.decide("narrow")
    assert service.post("/v1/streams/narrow/decide", {"arms": {"a": [30, 40]}}).status_code == 422
    assert service.post("/v1/streams/narrow/decide", {"arms": {}}).status_code == 422
    assert service.reward(made["decision"], 1.0, "narrow").status_code == 200


# --- snapshots -------------------------------------------------------------------------------------------------------


def test_history_is_not_replayed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few events, much work: a snapshot is due by the time that it took."""
    monkeypatch.setattr(snapshots, "SNAPSHOT_SECONDS", 0.01)  # on any machine, 4000 rewards take longer
    rng = np.random.default_rng(0)
    vectors = rng.uniform(-0.2, 0.2, (4000, 10)).round(3).tolist()
    service = Local(tmp_path / "a.db")
    service.create(dim=10)
    for _ in range(2):
        answer = service.post("/v1/streams/shop/history", {"rewards": [1.0] * 4000, "vectors": vectors})
        assert answer.json() == {"learnt": 4000}
    until(lambda: service.store.read_snapshot_number(1) > 0)
    service.crash()
    store = Store(tmp_path / "a.db")
    assert store.last_number(1) - store.read_snapshot_number(1) <= 1
    (row,) = store.read_streams()
    assert whole(rebuilt(row, store)) == whole(rebuilt(row, store, from_start=True))
    store.close()


def test_a_snapshot_is_due_after_many_events_or_much_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path / "a.db")

    async def scene() -> None:
        engine = Engine(store)
        await engine.start()
        stream = await engine.create(NewStream(name="shop", dim=2))
        found, now = engine._snapshots, [1000.0]
        monkeypatch.setattr(snapshots.time, "monotonic", lambda: now[0])
        assert not found.due(stream)
        found.worked(stream, 10.0)
        assert not found.due(stream)  # nothing has happened
        stream.number = 1
        assert found.due(stream)
        found.begin(stream, 0, 0.0)
        assert not found.due(stream)
        stream.number = snapshots.SNAPSHOT_EVENTS
        assert found.due(stream)
        now[0] += 0.0
        stream.number = 0
        await engine.stop()

    asyncio.run(scene())
    store.close()


def test_one_snapshot_at_a_time(service: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many requests find that one is due."""
    monkeypatch.setattr(snapshots, "SNAPSHOT_EVENTS", 20)
    stream, copies = service.engine.streams["shop"], list[int]()
    copied = stream.copied
    monkeypatch.setattr(stream, "copied", lambda: copies.append(stream.number) or copied())  # type: ignore[func-returns-value]
    assert service.post("/v1/streams/shop/decide/batch", {"items": [ARMS] * 64}).status_code == 200
    service.together(*[("/v1/streams/shop/decide", ARMS)] * 64)
    assert 1 <= len(copies) <= 6
    assert all(b - a >= 20 for a, b in pairwise(copies))


def test_a_snapshot_made_of_a_stream_that_is_gone_is_not_stored(tmp_path: Path) -> None:
    """While it was packed, a commit failed and streams were rebuilt: its events may be others than those on disk."""
    store = Store(tmp_path / "a.db")

    async def scene() -> None:
        engine = Engine(store)
        await engine.start()
        stream = await engine.create(NewStream(name="shop", dim=2))
        stream.decide(RAW, None, time.time())  # never handed over
        taken = asyncio.create_task(engine._snapshots.take(stream))
        engine._failed(RuntimeError("as after a failed commit"))
        await taken
        while engine.failure is not None:
            await asyncio.sleep(0.01)
        await engine.commit(engine.stream("shop"))
        assert store.read_snapshot_number(1) == 0
        await engine.stop()

    asyncio.run(scene())
    store.close()


# --- what the page is told -----------------------------------------------------------------------------------------


def test_a_default_is_a_reward_in_the_chart() -> None:
    found = Statistics()
    for i in range(10):
        found.decided(float(i), "red", str(i), 0.5, None, {})
    found.reward("0", 1.0)
    assert found.buckets[0]["rewards"] == 0  # it counts when it is learned
    found.close(Closing("0", 1.0, rewarded=True))
    for i in range(1, 5):
        found.close(Closing(str(i), 0.0))
    found.close(Closing("5", None))  # forgotten: it is nothing
    found.close(Closing("6", None, dropped=True))
    assert (found.buckets[0]["rewards"], found.buckets[0]["total"]) == (5, 1.0)
    assert [row["state"] for row in found.recent][:8] == ["rewarded", *["expired"] * 5, "dropped", "pending"]


def test_arms_that_come_later_are_counted_too() -> None:
    """A catalogue that changes for ever: those chosen longest ago give way."""
    found = Statistics()
    for i in range(MOST_COUNTED + 50):
        found.decided(float(i), f"old {i}", str(i), 0.5, None, {})
    for i in range(30):
        found.decided(float(i), "new", f"n{i}", 0.5, None, {})
    assert found.arms["new"] == 30
    assert len(found.arms) == MOST_COUNTED
    assert sum(found.arms.values()) + found.others == MOST_COUNTED + 80
    assert "old 0" not in found.arms


def test_the_state_is_encoded_once_however_many_watch(service: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    diagnose = streams.diagnose_stream
    monkeypatch.setattr(streams, "diagnose_stream", lambda stream: made.append(1) or diagnose(stream))  # type: ignore[func-returns-value]
    for _ in range(3):
        assert service.get("/v1/streams/shop").json()["decisions"] == 0
    assert len(made) == 1
    service.decide()
    assert service.get("/v1/streams/shop").json()["decisions"] == 1
    assert len(made) == 2


def test_what_became_of_a_decision_is_told_when_it_is_on_disk(service: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    made = service.decide()
    disk = Stalled(service, monkeypatch)
    assert in_memory(service, "shop", "reward", made["decision"], 1.0, None).status == 200
    threading.Timer(0.2, disk.go.set).start()
    past = service.get(f"/v1/streams/shop/decisions/{made['decision']}").json()
    assert (past["state"], past["reward"]) == ("rewarded", 1.0)
