"""Streams that another node takes at the worst moment: nothing is acknowledged that is not stored."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest.mock import Mock

import pytest

from support.refusals import rejects
from support.server import ARMS, Local, read_problem, until
from windvane.service import event_lookup, snapshots
from windvane.service.event_lookup import EventLookup, EventQuery, EventsNotLoadedError
from windvane.service.problems import MovedError, TakenOverError
from windvane.service.recovery import rebuild_stream
from windvane.service.store import LATE, DamageError, Event
from windvane.service.turns import hold

RAW = json.dumps(ARMS).encode()
SHOP = "/v1/streams/shop"


def end_epoch(node: Local, name: str = "shop") -> None:
    """Take the shard of a stream as another node would, and give it back."""
    shard = node.engine.placement.shard_of(name)  # type: ignore[union-attr]
    with node.store.pool.borrow() as connection:
        connection.execute("UPDATE shards SET epoch = nextval('epochs') WHERE shard = %s", (shard,))


def test_events_of_a_stream_that_is_being_deleted_are_stored_or_not_acknowledged(
    node: Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, stream, go, append = node.engine, node.engine.streams["shop"], threading.Event(), node.store.append
    monkeypatch.setattr(node.store, "append", lambda *arguments: (go.wait(30), append(*arguments)))

    async def scene() -> None:
        decision = asyncio.create_task(
            engine.operations.carry_out(stream, lambda: stream.decide(RAW, None, time.time()))
        )
        await asyncio.sleep(0.05)
        removal = asyncio.create_task(engine.registry.remove("shop"))
        await asyncio.sleep(0.05)
        await asyncio.to_thread(end_epoch, node)
        go.set()
        with rejects(error=TakenOverError, code="unavailable", cause="moving"):
            await decision
        with rejects(error=MovedError):
            await removal

    node.run(scene())
    until(lambda: node.get(SHOP).status_code == 200)
    assert node.info()["events"] == 0


class Gate:
    """Lets keys be looked up in the database once it is open."""

    def __init__(self, node: Local, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_waiting, self._go, find_events = threading.Event(), threading.Event(), node.store.find_events

        def wait(*keys: Any, **more: Any) -> Any:
            self.is_waiting.set()
            self._go.wait(30)
            return find_events(*keys, **more)

        monkeypatch.setattr(node.store, "find_events", wait)

    def take_over(self, node: Local) -> None:
        """While a request waits at the gate, let the stream go to another node and come back; then open it."""
        assert self.is_waiting.wait(20)
        stream = node.engine.streams["shop"]
        end_epoch(node)
        until(lambda: stream.is_taken_over)
        self._go.set()


@pytest.mark.parametrize(
    ("path", "body", "key", "status"),
    [
        ("/decisions", ARMS, "k", 201),
        ("/history", {"rewards": [1.0], "vectors": [[0.5, 0.5]]}, "k", 200),
        ("/decisions/batch", {"decisions": [{**ARMS, "key": "k"}]}, None, 200),
    ],
)
def test_a_request_that_has_not_begun_is_executed_by_the_next_owner(
    node: Local, monkeypatch: pytest.MonkeyPatch, path: str, body: Any, key: str | None, status: int
) -> None:
    gate, headers = Gate(node, monkeypatch), {} if key is None else {"idempotency-key": key}
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(node.post, SHOP + path, body, headers=headers)
        gate.take_over(node)
        assert answer.result(30).status_code == status
    assert [event["key"] for event in node.events()] == ["k"]


def test_a_read_that_has_not_begun_is_executed_by_the_next_owner(node: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    """FastAPI executes this route, and executes it again."""
    gate = Gate(node, monkeypatch)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(node.get, f"{SHOP}/decisions/unknown")
        gate.take_over(node)
        assert read_problem(answer.result(30), 404)["type"].endswith("unknown-decision")


def test_a_batch_that_has_begun_is_left_to_its_client(node: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first decision may be stored, and has no key: it must not be made again."""
    gate = Gate(node, monkeypatch)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(node.post, f"{SHOP}/decisions/batch", {"decisions": [ARMS, {**ARMS, "key": "k"}]})
        gate.take_over(node)
        problem = read_problem(answer.result(30), 503)
    assert (problem["cause"], "same Idempotency-Key" in problem["detail"]) == ("moving", True)
    assert len(node.events()) <= 1


def test_a_shard_whose_stream_somebody_deleted_is_served_again(node: Local) -> None:
    with node.store.pool.borrow() as connection:
        connection.execute("DELETE FROM streams WHERE name = 'shop'")
    assert node.post(f"{SHOP}/decisions", ARMS).status_code == 503
    until(lambda: node.get(SHOP).status_code == 404)
    node.create()
    assert node.post(f"{SHOP}/decisions", ARMS).status_code == 201


@pytest.mark.parametrize("error", [DamageError("a damaged page"), RuntimeError("a bug")])
def test_a_stream_that_cannot_be_read_does_not_keep_the_others_from_being_served(
    node: Local, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    node.create("other")
    shop = node.engine.rows["shop"].id
    monkeypatch.setattr("windvane.service.cluster.loading.rebuild_stream", _fail_for(shop, error))
    end_epoch(node)
    until(lambda: "shop" in node.engine.unavailable)
    recoveries = node.engine.recoveries
    assert node.post("/v1/streams/other/decisions", ARMS).status_code == 201
    assert node.engine.recoveries == recoveries


def _fail_for(stream: int, error: Exception) -> Any:
    def rebuild(row: Any, store: Any) -> Any:
        if row.id == stream:
            raise error
        return rebuild_stream(row, store)

    return rebuild


def test_a_request_that_waits_makes_no_snapshot_of_a_stream_that_is_held(
    node: Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, stream = node.engine, node.engine.streams["shop"]
    copies: list[int] = []
    copy = stream.copy
    monkeypatch.setattr(stream, "copy", lambda: copies.append(stream.number) or copy())  # type: ignore[func-returns-value]

    async def scene() -> None:
        await engine.operations.carry_out(stream, lambda: stream.decide(RAW, None, time.time()))
        monkeypatch.setattr(snapshots, "SNAPSHOT_EVENTS", 1)
        with hold(stream):
            await engine.journal.commit(stream)
            assert not copies
        await engine.operations.carry_out(stream, lambda: stream.decide(RAW, None, time.time()))
        assert copies

    node.run(scene())


def test_a_lookup_is_not_repeated_for_ever_in_a_busy_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_lookup, "RECENT", 4)
    lookup = EventLookup(Mock(is_remote=True), 1)
    began, later, earlier = lookup.begin_fetch(), EventQuery("key", "k15"), EventQuery("key", "none")
    for number in range(1, 21):
        lookup.add(Event(1, number, 1.0, LATE, None, f"k{number}", b"{}"))
    lookup.forget(20)
    lookup.supply(earlier, [], began)
    assert lookup.find_by_key("none") is None
    lookup.supply(later, [], began)
    with pytest.raises(EventsNotLoadedError):  # it was stored after the fetch had begun
        lookup.find_by_key("k15")
    lookup.discard(earlier, began)
    lookup.add(Event(1, 21, 1.0, LATE, None, "k21", b"{}"))
    lookup.forget(21)
    lookup.supply(earlier, [], began)
    with pytest.raises(EventsNotLoadedError):  # what was stored since then is no longer remembered
        lookup.find_by_key("none")


def test_the_log_says_that_a_lookup_took_too_long(
    node: Local, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(event_lookup, "FETCH_SECONDS", 0.05)
    go, find_events = threading.Event(), node.store.find_events
    monkeypatch.setattr(node.store, "find_events", lambda *keys, **more: (go.wait(30), find_events(*keys, **more))[1])
    answer = node.post(f"{SHOP}/decisions", ARMS, headers={"idempotency-key": "a key"})
    go.set()
    assert read_problem(answer, 503)["cause"] == "stalled"
    assert "stored events cannot be read: no answer within 0.05 s" in caplog.messages


def test_timeouts_of_a_stream_that_another_node_takes_are_left_to_it(
    node: Local, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    engine, stream = node.engine, node.engine.streams["shop"]
    monkeypatch.setattr(stream, "is_due", lambda _: not stream.is_taken_over)

    async def scene() -> None:
        engine.timeouts.begin(stream)
        assert stream.closing is not None
        await asyncio.sleep(0.0)  # it waits for its turn
        engine.drop(engine.rows["shop"])
        await stream.closing
        await asyncio.sleep(0.0)
        gc.collect()  # asyncio reports an error that nobody has retrieved when the task is deleted

    node.run(scene())
    end_epoch(node)
    until(lambda: node.get(SHOP).status_code == 200)
    assert not [record for record in caplog.records if record.name == "asyncio"]
