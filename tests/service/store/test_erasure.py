"""Erasure: what is erased is gone from the tables and from the bytes of all files, and the rest is as it was."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from support.refusals import rejects
from windvane.service.store import (
    DECIDED,
    Baseline,
    Erasure,
    Event,
    Snapshot,
    SnapshotError,
    SqliteStore,
    StreamRow,
    TooManyStreamsError,
)
from windvane.service.store.sqlite import erasure as erasing


def add(store: SqliteStore, name: str = "shop") -> StreamRow:
    row = store.add_stream(name, 1.0, "{}")
    assert row is not None
    return row


def make_events(row: StreamRow, count: int, size: int = 30) -> list[Event]:
    """Return events whose request, decision and key name themselves."""
    events, chain = list[Event](), row.digest
    for number in range(1, count + 1):
        mark = f"{row.name}-{number}-"
        request = f"request of {mark}".encode() + b"x" * size
        decision, key = f"decision {mark}", f"key {mark}"
        events.append(Event.create(chain, row.id, number, 10.0 + number, DECIDED, decision, key, b'{"a": 1}', request))
        chain = events[-1].chain
    return events


def make_baseline(events: list[Event], number: int, removed: int) -> Baseline:
    snapshot = Snapshot(number, events[number - 1].chain, b"agent", b"{}")
    chain = events[removed - 1].chain if removed else b"digest"
    times = (events[0].time, events[removed - 1].time) if removed else (None, None)
    return Baseline(snapshot, removed, chain, *times)


def list_bytes(path: Path) -> bytes:
    """Return the bytes of all files of a store."""
    return b"".join(file.read_bytes() for file in sorted(path.parent.glob(f"{path.name}*")))


def test_an_erasure_is_read_back(store: SqliteStore) -> None:
    row = add(store)
    events = make_events(row, 10)
    store.append(events, [(row.id, Snapshot(5, b"chain", b"older", b"{}"))])
    baseline = make_baseline(events, 8, 4)
    store.append([], erasures=[Erasure(row.id, baseline, (6, 7))])
    erased = [event._replace(request=None, salt=None) if event.number in (6, 7) else event for event in events[4:]]
    assert list(store.read_events(row.id)) == erased
    assert store.read_baseline(row.id) == baseline
    assert store.read_snapshot(row.id) is None
    assert [store.read_chain(row.id, number) for number in (0, 3, 4, 5)] == [
        row.digest, None, events[3].chain, events[4].chain
    ]  # fmt: skip
    assert store.event_with_key(row.id, events[2].key or "") is None
    assert store.events_of_decision(row.id, events[5].decision or "") == erased[1:2]
    all_gone = make_baseline(events, 10, 10)
    store.append([], [(row.id, all_gone.snapshot)], [Erasure(row.id, all_gone)])
    assert (store.last_number(row.id), list(store.read_events(row.id))) == (10, [])
    assert store.read_chain(row.id, 10) == events[-1].chain
    assert store.read_snapshot(row.id) == all_gone.snapshot


def test_erased_bytes_are_gone_while_the_store_is_open(store: SqliteStore) -> None:
    row, other = add(store), add(store, "other")
    events, others = make_events(row, 300, size=3000), make_events(other, 300, size=3000)
    for i in range(0, 300, 10):  # interleaved, so that pages are split
        store.append([*others[i : i + 10], *events[i : i + 10]], [(row.id, Snapshot(i, b"", b"secret" * 3000, b"{}"))])
    store.append([], erasures=[Erasure(row.id, make_baseline(events, 300, 100), tuple(range(150, 200)))])
    content = list_bytes(store.path)
    assert b"secret" not in content
    for event in events:
        is_erased = event.number <= 100 or 150 <= event.number < 200
        assert (f"request of shop-{event.number}-".encode() in content) == (not is_erased), event.number
        assert (f"decision shop-{event.number}-".encode() in content) == (event.number > 100)
        assert (f"key shop-{event.number}-".encode() in content) == (event.number > 100)
    assert list(store.read_events(other.id)) == others


def test_a_removed_stream_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(erasing, "SLICE", 7)
    with closing(SqliteStore(tmp_path / "a.db")) as store:
        row, other = add(store), add(store, "other")
        events, others = make_events(row, 30), make_events(other, 30)
        store.append([*events, *others], [(row.id, Snapshot(30, b"", b"secret", b"{}"))])
        store.append([], erasures=[Erasure(row.id, make_baseline(events, 20, 10))])
        store.remove_stream(row)
        content = list_bytes(store.path)
        assert not any(text in content for text in (b"shop", b"secret"))
        assert store.find_stream("shop") is None
        assert [list(store.read_events(stream.id)) for stream in (row, other)] == [[], others]
        assert (store.read_snapshot(row.id), store.read_baseline(row.id)) == (None, None)
        assert store.read_acknowledged() == {other.id: 30}
        store.remove_stream(other)
    with closing(SqliteStore(tmp_path / "a.db")) as store:
        assert add(store, "shop").id == 3


def test_a_reader_holds_the_purge_back(store: SqliteStore) -> None:
    row = add(store)
    store.append(make_events(row, 30))
    with closing(SqliteStore(store.path, shared=True, read_only=True)) as reader, reader.read_transaction():
        assert reader.last_number(row.id) == 30
        store.remove_stream(row)
        assert not store.purge()
        assert b"request of shop-7-" in list_bytes(store.path)
    assert store.purge()
    assert b"request of shop-7-" not in list_bytes(store.path)


def test_what_a_replay_needs_is_not_erased(store: SqliteStore) -> None:
    row = add(store)
    events = make_events(row, 10)
    store.append(events)
    baseline = make_baseline(events, 8, 4)
    for wrong in (Erasure(row.id, baseline, (9,)), Erasure(row.id, baseline._replace(removed=9))):
        with pytest.raises(ValueError, match="up to number 8"):
            store.append([], erasures=[wrong])
    assert list(store.read_events(row.id)) == events
    assert store.read_baseline(row.id) is None


def test_a_changed_baseline_is_noticed(store: SqliteStore) -> None:
    row = add(store)
    events = make_events(row, 10)
    store.append(events)
    store.append([], erasures=[Erasure(row.id, make_baseline(events, 8, 4))])
    store.connection.execute("UPDATE baselines SET removed = 5")
    with pytest.raises(SnapshotError):
        store.read_baseline(row.id)


def test_there_are_only_so_many_streams(store: SqliteStore) -> None:
    assert store.add_stream("a", 1.0, "{}", most=1) is not None
    with rejects(error=TooManyStreamsError, most=1):
        store.add_stream("b", 1.0, "{}", most=1)
    assert store.add_stream("a", 1.0, "{}", most=1) is None  # which says more
    assert [row.name for row in store.read_streams()] == ["a"]
