"""Processes that end in the middle of an erasure: all of it or nothing, and no byte of it is left after a new start."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from unittest.mock import Mock

import pytest

from support.server import Local, pack_stream, read_problem, until
from support.stores import add_stream, compact, copy_store, decide, query, recover_all, verify
from windvane.client.messages import UNSURE_CAUSES
from windvane.service import engine
from windvane.service.store import SqliteStore
from windvane.service.store.sqlite import erasure as erasing
from windvane.service.store.sqlite.database import connect
from windvane.service.store.sqlite.erasure import REMOVING


@pytest.fixture
def prepared(tmp_path: Path) -> Path:
    """Two streams of 40 events. The writer was killed: the write-ahead log has everything."""
    path, copy = tmp_path / "a.db", tmp_path / "b.db"
    with closing(SqliteStore(path)) as store:
        for name in ("shop", "other"):
            decide(add_stream(store, name), store, 20)
        copy_store(path, copy)
    return copy


def run_until(statements: int, work: Callable[[SqliteStore], None], path: Path, patch: pytest.MonkeyPatch) -> bool:
    """Do ``work`` in a process that ends, as if it was killed, before an SQL statement. Return whether it was ended."""
    left = [statements]

    def count(_: str) -> None:
        left[0] -= 1
        if left[0] < 0:
            os._exit(9)

    def connect_and_count(*arguments: Path) -> object:
        connection = connect(*arguments)
        connection.set_trace_callback(count)
        return connection

    if (pid := os.fork()) == 0:
        try:
            patch.setattr(erasing, "connect", connect_and_count)
            patch.setattr(erasing, "SLICE", 9)
            store = SqliteStore(path)
            store.connection.set_trace_callback(count)
            work(store)
            os._exit(0)
        finally:
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code in (0, 9)
    return code == 9


def read_salts(store: SqliteStore) -> list[bytes]:
    """Return bytes that only the events of the first stream have."""
    return [event.salt for event in store.read_events(1) if event.salt is not None]


def read_all(path: Path) -> bytes:
    return b"".join(file.read_bytes() for file in path.parent.glob(f"{path.name}*"))


def test_a_process_that_is_killed_during_an_erasure(
    prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def erase(store: SqliteStore) -> None:
        compact(store, recover_all(store)[0]["shop"], 10, (11, 13, 15))

    with closing(SqliteStore(copy_store(prepared, tmp_path / "c.db"))) as store:
        state = pack_stream(recover_all(store)[0]["shop"])
        gone = read_salts(store)[:8]  # of events 1, 3, ..., 15
    seen, statements = set(), 0
    while True:
        path = copy_store(prepared, tmp_path / "c.db")
        is_killed = run_until(statements, erase, path, monkeypatch)
        with closing(SqliteStore(path)) as store:
            assert store.purge()
            is_erased, content = store.read_baseline(1) is not None, read_all(path)
            assert [salt in content for salt in gone] == [not is_erased] * len(gone)
            assert len(list(store.read_events(1))) == (30 if is_erased else 40)
            assert pack_stream(recover_all(store)[0]["shop"]) == state
        seen.add(is_erased)
        if not is_killed:
            break
        assert statements % 10 or verify(path).is_sound
        statements += 1
    assert seen == {False, True}
    assert verify(path).is_sound


def test_a_process_that_is_killed_while_it_removes_a_stream(
    prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once the stream is gone, the next start deletes what is left of it, and no repair brings it back."""

    def remove(store: SqliteStore) -> None:
        row = store.find_stream("shop")
        assert row is not None
        store.remove_stream(row)

    with closing(SqliteStore(copy_store(prepared, tmp_path / "c.db"))) as store:
        salts = read_salts(store)
    seen, statements = set(), 0
    while True:
        path = copy_store(prepared, tmp_path / "c.db")
        is_killed = run_until(statements, remove, path, monkeypatch)
        with closing(SqliteStore(path)) as store:
            is_there, left = store.find_stream("shop") is not None, len(list(store.read_events(1)))
            assert left == 40 or not is_there
            seen.add((is_there, left))
            if statements % 2 and 0 < left < 40:
                (tmp_path / "c.db.mark").unlink()
                monkeypatch.setattr(store, "find_damage", lambda **_: ["made up"])
                store.repair()
                (tmp_path / "c.db.damaged-1").unlink()
                assert [row.name for row in store.read_streams()] == ["other"]
            assert store.purge()
            assert [row.name for row in store.read_streams()] == (["shop"] if is_there else []) + ["other"]
            assert len(list(store.read_events(1))) == (40 if is_there else 0)
            content = read_all(path)
            assert [part in content for part in (b"shop", *salts)] == [is_there] * (1 + len(salts))
            assert add_stream(store, "new").id == 3
        assert statements % 10 or verify(path).is_sound
        if not is_killed:
            break
        statements += 1
    assert {(True, 40), (False, 40), (False, 31), (False, 4), (False, 0)} <= seen
    assert verify(path).is_sound


def test_a_server_finishes_what_another_began(prepared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It purges in the background, as soon as nobody reads the write-ahead log."""
    monkeypatch.setattr(engine, "TICK", 0.02)
    with closing(SqliteStore(prepared)) as store:
        salts = read_salts(store)
        monkeypatch.setattr(store, "purge", Mock(side_effect=sqlite3.OperationalError("locked")))
        store.remove_stream(store.read_streams()[0])
    assert salts[0] in read_all(prepared)
    service = Local(prepared)
    try:
        until(lambda: not any(salt in read_all(prepared) for salt in salts))
        assert set(service.engine.streams) == {"other"}
    finally:
        service.stop()
    assert query(prepared, f"SELECT value FROM meta WHERE name = '{REMOVING}'") == [("",)]
    assert verify(prepared).is_sound


def test_a_deletion_that_fails_after_the_stream_is_removed(prepared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client does not take the answer for a sign that nothing was executed."""
    service = Local(prepared)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(service.store, "purge", Mock(side_effect=sqlite3.OperationalError("database is locked")))
            failed = service.request("DELETE", "/v1/streams/shop")
        assert read_problem(failed, 503)["cause"] in UNSURE_CAUSES
        read_problem(service.request("DELETE", "/v1/streams/shop"), 404)
    finally:
        service.stop()
