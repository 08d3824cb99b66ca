"""A node that loses a shard and takes it again in the middle of something: requests get true answers, or 503."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support.backends import Databases
from support.gates import Gate
from support.nodes import SHARDS
from support.server import ARMS, Local, run_local, until
from windvane.cluster_map import shard_of
from windvane.service import turns
from windvane.service.cluster import loading
from windvane.service.cluster import placement as placements
from windvane.service.store import DatabaseError, Event
from windvane.service.streams import Stream

SHARD = shard_of("shop", SHARDS)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as running:
        yield running


def change_epoch(node: Local, shard: int = SHARD) -> None:
    """End the epoch of a shard, as if another node had taken and released it, and wait until the node has the next."""
    store: Any = node.store
    before = find_epoch(node, shard)
    with store.pool.borrow() as connection:
        connection.execute("UPDATE shards SET epoch = nextval('epochs') WHERE shard = %s", (shard,))
        connection.execute("NOTIFY windvane_cluster")
    until(lambda: find_epoch(node, shard) not in (None, before))


def find_epoch(node: Local, shard: int = SHARD) -> int | None:
    return node.call(lambda: get_placement(node).epochs.get(shard))


def get_placement(node: Local) -> placements.Placement:
    assert node.engine.placement is not None
    return node.engine.placement


def decide(node: Local, pool: ThreadPoolExecutor, key: str, name: str = "shop") -> Future[httpx2.Response]:
    headers = {"idempotency-key": key}
    return pool.submit(node.post, f"/v1/streams/{name}/decisions", ARMS, headers=headers)


def has_event(events: list[Event], *_: Any) -> bool:
    return bool(events)


def list_keys(node: Local) -> list[str]:
    return [event["key"] for event in node.events()]


# --- commits ---------------------------------------------------------------------------------------------------------


def test_a_commit_of_an_old_epoch_is_fenced_after_the_stream_was_loaded_again(
    node: Local, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its fence ends the old epoch, not the new one."""
    gate = Gate(node.store.append, has_event)
    monkeypatch.setattr(node.store, "append", gate)
    old = decide(node, pool, "old")
    until(lambda: gate.count == 1)
    change_epoch(node)
    new = decide(node, pool, "new")
    until(lambda: node.engine.backlog[0] == 2)
    gate.open()
    assert (old.result(30).status_code, new.result(30).status_code) == (503, 201)
    assert decide(node, pool, "last").result(30).status_code == 201
    assert list_keys(node) == ["new", "last"]


def test_events_of_two_epochs_in_one_commit(
    node: Local, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the old one are dropped, and only those."""
    node.create("other")
    gate = Gate(node.store.append, has_event)
    monkeypatch.setattr(node.store, "append", gate)
    first = decide(node, pool, "first", "other")
    until(lambda: gate.count == 1)
    old = decide(node, pool, "old")
    until(lambda: node.engine.backlog[0] == 2)
    change_epoch(node)
    new = decide(node, pool, "new")
    until(lambda: "shop" in node.engine.streams and node.engine.streams["shop"].number == 1)
    until(lambda: node.engine.backlog[0] == 2)  # that of the old epoch no longer counts
    gate.open()
    assert [future.result(30).status_code for future in (first, old, new)] == [201, 503, 201]
    assert list_keys(node) == ["new"]
    assert node.engine.backlog[0] == 0


def test_an_operation_in_a_thread_while_everything_is_rebuilt(
    node: Local, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its stream is not in memory afterwards: 503, and not an internal error."""
    gate = Gate(Stream.decide)
    monkeypatch.setattr(Stream, "decide", lambda *arguments: gate(*arguments))  # noqa: PLW0108 - a method
    monkeypatch.setattr(turns, "SLOW_SECONDS", -1.0)
    monkeypatch.setattr(loading.StreamLoader, "begin", lambda *_: None)  # streams are left to the first request
    lost = pool.submit(node.post, "/v1/streams/shop/decisions", ARMS)  # without a key, it decides at once
    until(lambda: gate.count == 1)
    before = node.engine.recoveries
    node.loop.call_soon_threadsafe(node.engine.fail, DatabaseError("the connection is lost"))
    until(lambda: node.engine.recoveries > before)
    gate.open()
    assert lost.result(30).status_code == 503
    assert decide(node, pool, "next").result(30).status_code == 201
    assert list_keys(node) == ["next"]


# --- streams that are found and loaded -------------------------------------------------------------------------------


def test_a_shard_is_lost_and_taken_again_while_its_streams_are_read(
    node: Local, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for ever, and the stream is never unknown."""
    gate = Gate(node.store.read_streams)
    monkeypatch.setattr(node.store, "read_streams", gate)
    change_epoch(node)
    until(lambda: gate.count == 1)
    first = decide(node, pool, "first")
    change_epoch(node)
    until(lambda: gate.count == 2)
    second = decide(node, pool, "second")
    gate.open()
    assert [future.result(30).status_code for future in (first, second)] == [201, 201]
    assert sorted(list_keys(node)) == ["first", "second"]


def test_a_stream_is_lost_and_taken_again_while_it_is_loaded(
    node: Local, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(loading.rebuild_stream)
    monkeypatch.setattr(loading, "rebuild_stream", gate)
    change_epoch(node)
    until(lambda: gate.count == 1)
    first = decide(node, pool, "first")
    change_epoch(node)
    gate.open()
    assert first.result(30).status_code == 201
    assert list_keys(node) == ["first"]


def test_an_error_of_before_a_recovery_begins_no_other(
    node: Local, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session that was silent is given up after the streams were rebuilt over another one."""

    def fail(*_: Any) -> None:
        raise DatabaseError("the database has not answered for 5 s")

    gate = Gate(fail)
    with monkeypatch.context() as patch:
        patch.setattr(loading, "rebuild_stream", gate)
        change_epoch(node)
        until(lambda: gate.count == 1)
    before = node.engine.recoveries
    node.loop.call_soon_threadsafe(node.engine.fail, DatabaseError("the connection is lost"))
    until(lambda: node.engine.recoveries > before)
    assert decide(node, pool, "new").result(30).status_code == 201
    gate.open()
    for key in ("next", "last"):
        assert decide(node, pool, key).result(30).status_code == 201
    assert (node.engine.recoveries, node.engine.failure) == (before + 1, None)


def test_a_stream_is_created_in_an_epoch_that_ends_meanwhile(node: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was stored, so it was created: a repetition would say that it exists."""
    add = node.store.add_stream

    def add_and_lose(*arguments: Any, **more: Any) -> Any:
        row = add(*arguments, **more)
        change_epoch(node, shard_of("new", SHARDS))
        return row

    monkeypatch.setattr(node.store, "add_stream", add_and_lose)
    assert node.post("/v1/streams", {"name": "new", "dim": 2}).status_code == 201
    until(lambda: node.post("/v1/streams/new/decisions", ARMS).status_code == 201)


# --- release ---------------------------------------------------------------------------------------------------------


def test_a_shard_is_lost_while_it_is_released(
    node: Local, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is left that waits for the release, and the node serves what it owns."""
    decide(node, pool, "first").result(30)
    gate = Gate(node.store.append, has_event)
    monkeypatch.setattr(node.store, "append", gate)
    second = decide(node, pool, "second")
    until(lambda: gate.count == 1)
    node.call(lambda: get_placement(node).give_up([SHARD]))  # waits for the commit
    until(lambda: SHARD in get_placement(node)._leaving)
    third = decide(node, pool, "third")  # waits for the release
    before = find_epoch(node)
    change_epoch_in_database(node)
    until(lambda: find_epoch(node) != before)
    gate.open()
    assert second.result(30).status_code == 503
    assert third.result(30).status_code in (201, 503)
    until(lambda: decide(node, pool, "third").result(30).status_code == 201)
    until(lambda: not get_placement(node)._leaving)
    assert list_keys(node) == ["first", "third"]


def change_epoch_in_database(node: Local) -> None:
    store: Any = node.store
    with store.pool.borrow() as connection:
        connection.execute("UPDATE shards SET epoch = nextval('epochs') WHERE shard = %s", (SHARD,))
        connection.execute("NOTIFY windvane_cluster")


def test_requests_in_a_release_are_answered(node: Local, pool: ThreadPoolExecutor) -> None:
    """What was stored before the shard is released is acknowledged; later requests wait for the new owner."""
    for _ in range(5):
        waiting = [decide(node, pool, f"k{i}") for i in range(20)]
        node.call(lambda: get_placement(node).give_up([SHARD]))
        assert {future.result(30).status_code for future in waiting} <= {201, 503}
        until(lambda: decide(node, pool, "last").result(30).status_code == 201)
    for i in range(20):
        assert decide(node, pool, f"k{i}").result(30).status_code == 201
    assert len(list_keys(node)) == 21


# --- the start -------------------------------------------------------------------------------------------------------


def test_the_database_fails_while_a_node_joins(
    databases: Databases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not take itself for another node with the same name."""
    from windvane.service.store.postgres.store import PostgresStore

    read, attempts = PostgresStore.read_secret, list[int]()

    def fail_first(store: PostgresStore) -> str:
        attempts.append(1)
        if len(attempts) < 3:
            raise DatabaseError("the connection is lost")
        return read(store)

    monkeypatch.setattr(PostgresStore, "read_secret", fail_first)
    with run_local(tmp_path / "a.db") as running:
        running.create()
    assert len(attempts) == 3
