"""Used keys: no used key is ever taken for a new one, and few new ones are taken for used ones."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.server import Local, run_local, until
from windvane.service import used_keys
from windvane.service.store import SqliteStore
from windvane.service.store.sqlite import store as store_module
from windvane.service.used_keys import UsedKeys

KEYS = st.lists(st.tuples(st.integers(1, 2**20), st.text(min_size=1, max_size=9)), max_size=60)


@given(stored=st.lists(KEYS, max_size=3), early=KEYS, late=KEYS)
def test_a_used_key_is_never_taken_for_a_new_one(
    stored: list[list[tuple[int, str]]], early: list[tuple[int, str]], late: list[tuple[int, str]]
) -> None:
    keys = UsedKeys()
    for key in early:
        keys.add(*key)
        assert keys.may_have(*key)
    assert keys.may_have(0, "any")  # the stored keys are not known yet
    keys.adopt(keys.collect(sum(map(len, stored)), stored))
    for key in late:
        keys.add(*key)
    assert all(keys.may_have(*key) for key in [*early, *late, *(key for some in stored for key in some)])


def test_few_new_keys_are_taken_for_used_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(used_keys, "LEAST_KEYS", 1 << 10)
    keys = UsedKeys()
    keys.adopt(keys.collect(700, [[(1, f"stored {i}") for i in range(700)]]))
    added = 0
    while not keys.is_full:
        keys.add(2, f"added {added}")
        added += 1
    assert added == 1024 - 700
    assert sum(keys.may_have(1, f"new {i}") for i in range(10_000)) < 100
    assert sum(keys.may_have(3, f"stored {i}") for i in range(700)) < 20  # of another stream


def test_only_used_keys_are_looked_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a restart too, and again with a larger filter once it is full."""
    monkeypatch.setattr(used_keys, "LEAST_KEYS", 8)
    monkeypatch.setattr("windvane.service.engine.TICK", 0.01)
    with run_local(tmp_path / "a.db") as service:
        service.create()
        first = service.decide(key="first")
    with run_local(tmp_path / "a.db") as service:
        asked = record_lookups(monkeypatch, service)
        for number in range(30):
            service.decide(key=f"key {number}")
        until(lambda: not is_looked_up(service, asked, "new"))
        for number in range(30):
            assert is_looked_up(service, asked, f"key {number}")
        assert service.decide(key="first") == first


def record_lookups(monkeypatch: pytest.MonkeyPatch, service: Local) -> list[str]:
    """Return the keys that are looked up in the store from now on."""
    asked, find = list[str](), service.store.find_events

    def find_events(keys: Any = (), decisions: Any = ()) -> Any:
        asked.extend(key for _, key in keys)
        return find(keys, decisions)

    monkeypatch.setattr(service.store, "find_events", find_events)
    return asked


def is_looked_up(service: Local, asked: list[str], key: str) -> bool:
    asked.clear()
    service.call(lambda: service.engine.streams["shop"].lookup.find_by_key(key))
    return key in asked


@pytest.mark.parametrize("error", [sqlite3.DatabaseError("damaged"), None])
def test_keys_that_cannot_be_read_are_looked_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    """Because of an error, or because the service stops."""

    def read_keys(store: SqliteStore) -> Iterator[list[tuple[int, str]]]:
        if error is not None:
            raise error
        service.engine.is_closing = True
        yield []

    with run_local(tmp_path / "a.db") as service:
        service.create()
        monkeypatch.setattr(SqliteStore, "read_keys", read_keys)
        asked = record_lookups(monkeypatch, service)
        service.run(used_keys.read_stored_keys(keys := UsedKeys(), service.store, lambda: service.engine.is_closing))
        service.engine.streams["shop"].lookup.know_keys(keys)
        assert is_looked_up(service, asked, "new")
        service.engine.is_closing = False


def test_keys_are_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "KEYS_AT_ONCE", 2)
    with run_local(tmp_path / "a.db") as service:
        for stream in ("a", "b"):
            service.create(stream)
            for key in ("one", "two", None, 'th"ree'):
                service.decide(stream, key=key)
        ids = [service.engine.streams[stream].id for stream in ("a", "b")]
        parts = list(service.call(lambda: list(service.store.read_keys())))
        assert service.call(service.store.count_keys) == 6
    assert max(map(len, parts)) == 2
    assert sorted(key for part in parts for key in part) == sorted(
        (id_, key) for id_ in ids for key in ("one", "two", 'th"ree')
    )
