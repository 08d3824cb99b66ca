"""Readers that a compaction overtakes between two statements: what they read must still fit together."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from support.backends import locate
from support.refusals import rejects
from support.server import ARMS, Local, pack_stream, read_problem
from support.stores import edit
from windvane.service.problems import Problem
from windvane.service.recovery import rebuild_stream
from windvane.service.stream_erasure import remove_events

SHOP = "/v1/streams/shop"
EVENTS = 6


@pytest.fixture
def decisions(service: Local) -> list[str]:
    """The decisions of a stream, in order."""
    service.create()
    answers = [service.post(f"{SHOP}/decisions", ARMS, headers={"idempotency-key": f"k{i}"}) for i in range(EVENTS)]
    return [answer.json()["id"] for answer in answers]


def compact_after(service: Local, monkeypatch: pytest.MonkeyPatch, name: str) -> list[int]:
    """Remove all events when a method of the store has returned for the first time; return how many."""
    read, removed = getattr(service.store, name), list[int]()

    def read_and_compact(*arguments: Any, **options: Any) -> Any:
        result = read(*arguments, **options)
        if not removed:
            removed.append(0)  # the compaction itself reads the store
            stream = service.engine.streams["shop"]
            removed[0] = service.run(remove_events(service.engine, stream, time.time() + 1000.0))
        return result

    monkeypatch.setattr(service.store, name, read_and_compact)
    return removed


def test_a_lookup(service: Local, decisions: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    stream, is_remote = service.engine.streams["shop"], service.store.is_remote
    removed = compact_after(service, monkeypatch, "find_events")
    if is_remote:
        assert read_problem(service.get(f"{SHOP}/decisions/{decisions[2]}"), 404)["code"] == "unknown-decision"
    else:  # the event loop does not look it up in two steps
        with rejects(error=Problem, code="unknown-decision"):
            stream.find_decision(decisions[2])
    assert removed == [EVENTS]


def test_a_repeated_request(service: Local, decisions: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its key is gone with the event."""
    stream, is_remote = service.engine.streams["shop"], service.store.is_remote
    removed = compact_after(service, monkeypatch, "find_events")
    if is_remote:
        answer = service.post(f"{SHOP}/decisions", ARMS, headers={"idempotency-key": "k3"})
        assert answer.status_code == 201
        assert answer.json()["id"] not in decisions
    else:
        assert stream.lookup.find_by_key("k3") is None
    assert removed == [EVENTS]


@pytest.mark.parametrize("name", ["read_baseline", "last_number"])
@pytest.mark.usefixtures("decisions")
def test_a_replay(service: Local, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    stream = service.engine.streams["shop"]
    removed = compact_after(service, monkeypatch, name)
    rebuilt = rebuild_stream(stream.row, service.store)
    assert removed == [EVENTS]
    assert pack_stream(rebuilt) == pack_stream(stream)


@pytest.mark.parametrize("format_", ["ndjson", "parquet"])
@pytest.mark.usefixtures("decisions")
def test_an_export(service: Local, monkeypatch: pytest.MonkeyPatch, format_: str) -> None:
    """It begins after what was removed."""
    removed = compact_after(service, monkeypatch, "read_baseline")
    answer = service.get(f"{SHOP}/events?format={format_}")
    assert answer.status_code == 200
    assert removed == [EVENTS]
    if format_ == "ndjson":
        assert answer.content == b""


def test_an_event_that_was_changed_is_still_found(service: Local, decisions: list[str], tmp_path: Path) -> None:
    where, sql = locate(tmp_path / "a.db"), "UPDATE events SET chain = ? WHERE decision = ?"
    chain = service.store.read_chain(service.engine.rows["shop"].id, 2)
    edit(where, sql, b"other", decisions[1])
    assert read_problem(service.get(f"{SHOP}/decisions/{decisions[2]}"), 500)["code"] == "unreadable"
    edit(where, sql, chain, decisions[1])
    assert service.get(f"{SHOP}/decisions/{decisions[2]}").status_code == 200
