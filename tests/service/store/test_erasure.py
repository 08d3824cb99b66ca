"""Erasure: what is erased is gone from the tables and from the bytes of all files, and the rest is as it was."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from support.erasing import add_row, make_baseline, make_events, read_bytes
from support.refusals import rejects
from windvane.service.store import (
    DatabaseError,
    Erasure,
    Snapshot,
    SnapshotError,
    SqliteStore,
    Store,
    TooManyStreamsError,
)
from windvane.service.store.sqlite import erasure as erasing

ITS_FILES = ("-wal", "-shm", ".mark", ".lock")


def test_an_erasure_is_read_back(any_store: Store) -> None:
    row = add_row(any_store)
    events = make_events(row, 10)
    any_store.append(events, [(row.id, Snapshot(5, b"chain", b"older", b"{}"))])
    baseline = make_baseline(events, 8, 4)
    any_store.append([], erasures=[Erasure(row.id, baseline, (6, 7))])
    erased = [event._replace(request=None, salt=None) if event.number in (6, 7) else event for event in events[4:]]
    assert list(any_store.read_events(row.id)) == erased
    assert any_store.read_baseline(row.id) == baseline
    assert any_store.read_snapshot(row.id) is None
    assert [any_store.read_chain(row.id, number) for number in (0, 3, 4, 5)] == [
        row.digest, None, events[3].chain, events[4].chain
    ]  # fmt: skip
    assert any_store.find_events([(row.id, events[2].key or "")]) == []
    assert any_store.find_events(decisions=[(row.id, events[5].decision or "")]) == erased[1:2]
    all_gone = make_baseline(events, 10, 10)
    any_store.append([], [(row.id, all_gone.snapshot)], [Erasure(row.id, all_gone)])
    assert (any_store.last_number(row.id), list(any_store.read_events(row.id))) == (10, [])
    assert any_store.read_chain(row.id, 10) == events[-1].chain
    assert any_store.read_snapshot(row.id) == all_gone.snapshot


def test_erased_bytes_are_gone_while_the_store_is_open(store: SqliteStore) -> None:
    row, other = add_row(store), add_row(store, "other")
    events, others = make_events(row, 300, size=3000), make_events(other, 300, size=3000)
    for i in range(0, 300, 10):  # interleaved, so that pages are split
        store.append([*others[i : i + 10], *events[i : i + 10]], [(row.id, Snapshot(i, b"", b"secret" * 3000, b"{}"))])
    store.append([], erasures=[Erasure(row.id, make_baseline(events, 300, 100), tuple(range(150, 200)))])
    content = read_bytes(store.path)
    assert b"secret" not in content
    for event in events:
        is_erased = event.number <= 100 or 150 <= event.number < 200
        assert (f"request of shop-1-{event.number}-".encode() in content) == (not is_erased), event.number
        assert (f"decision shop-1-{event.number}-".encode() in content) == (event.number > 100)
        assert (f"key shop-1-{event.number}-".encode() in content) == (event.number > 100)
    assert list(store.read_events(other.id)) == others


def test_a_removed_stream_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(erasing, "SLICE", 7)
    with closing(SqliteStore(tmp_path / "a.db")) as store:
        row, other = add_row(store), add_row(store, "other")
        events, others = make_events(row, 30), make_events(other, 30)
        store.append([*events, *others], [(row.id, Snapshot(30, b"", b"secret", b"{}"))])
        store.append([], erasures=[Erasure(row.id, make_baseline(events, 20, 10))])
        store.remove_stream(row)
        content = read_bytes(store.path)
        assert not any(text in content for text in (b"shop", b"secret"))
        assert store.find_stream("shop") is None
        assert [list(store.read_events(stream.id)) for stream in (row, other)] == [[], others]
        assert (store.read_snapshot(row.id), store.read_baseline(row.id)) == (None, None)
        assert store.read_acknowledged() == {other.id: 30}
        store.remove_stream(other)
    with closing(SqliteStore(tmp_path / "a.db")) as store:
        assert add_row(store, "shop").id == 3


def test_a_reader_holds_the_purge_back(store: SqliteStore) -> None:
    row = add_row(store)
    store.append(make_events(row, 30))
    with closing(SqliteStore(store.path, shared=True, read_only=True)) as reader, reader.read_transaction():
        assert reader.last_number(row.id) == 30
        store.remove_stream(row)
        assert not store.purge()
        assert b"request of shop-1-7-" in read_bytes(store.path)
    assert store.purge()
    assert b"request of shop-1-7-" not in read_bytes(store.path)


def test_a_purge_ends_between_slices_and_goes_on_later(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(erasing, "SLICE", 7)
    row = add_row(store)
    store.append(make_events(row, 30))
    store.begin_removal(row)
    answers = iter([False, True])
    assert not store.purge(lambda: next(answers))
    assert len(list(store.read_events(row.id))) == 23
    assert store.purge()
    assert not list(store.read_events(row.id))
    assert b"shop-1-" not in read_bytes(store.path)


def test_old_files_that_still_have_what_is_erased_are_named(
    store: SqliteStore, caplog: pytest.LogCaptureFixture
) -> None:
    row = add_row(store)
    events = make_events(row, 9)
    store.append(events)
    for suffix in (".format-3", ".damaged-1", ".replaced-1", ".replaced-1-wal", ".replaced-1.mark", ".other"):
        store.path.with_name(store.path.name + suffix).touch()
    store.purge()
    assert not caplog.records  # nothing is erased yet
    for removed in (3, 6):
        store.append([], erasures=[Erasure(row.id, make_baseline(events, 9, removed))])
    (warning,) = [record.getMessage() for record in caplog.records]  # once
    names = "a.db.damaged-1, a.db.format-3, a.db.replaced-1, a.db.replaced-1-wal"  # marks hold no data
    assert warning.endswith(f"what is erased is still in {names}; remove them when you no longer need to go back")


def test_what_a_replay_needs_is_not_erased(any_store: Store) -> None:
    row = add_row(any_store)
    events = make_events(row, 10)
    any_store.append(events)
    baseline = make_baseline(events, 8, 4)
    for wrong in (Erasure(row.id, baseline, (9,)), Erasure(row.id, baseline._replace(removed=9))):
        with pytest.raises(ValueError, match="up to number 8"):
            any_store.append([], erasures=[wrong])
    assert list(any_store.read_events(row.id)) == events
    assert any_store.read_baseline(row.id) is None


def test_a_changed_baseline_is_noticed(store: SqliteStore) -> None:
    row = add_row(store)
    events = make_events(row, 10)
    store.append(events)
    store.append([], erasures=[Erasure(row.id, make_baseline(events, 8, 4))])
    store.connection.execute("UPDATE baselines SET removed = 5")
    with pytest.raises(SnapshotError):
        store.read_baseline(row.id)


def test_there_are_only_so_many_streams(any_store: Store) -> None:
    assert any_store.add_stream("a", 1.0, "{}", most=1) is not None
    with rejects(error=TooManyStreamsError, most=1):
        any_store.add_stream("b", 1.0, "{}", most=1)
    assert any_store.add_stream("a", 1.0, "{}", most=1) is None  # which says more
    assert [row.name for row in any_store.read_streams()] == ["a"]


def test_a_commit_that_erases_does_not_delete_the_events_of_removed_streams(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There may be millions, and requests wait for the commit. They are deleted by whoever removed the stream, or by
    the next purge."""
    monkeypatch.setattr(erasing, "SLICE", 7)
    row, other = add_row(store), add_row(store, "other")
    events, others = make_events(row, 30), make_events(other, 10)
    store.append([*events, *others])
    with monkeypatch.context() as patch:
        patch.setattr(SqliteStore, "_continue_removal", lambda _: (_ for _ in ()).throw(DatabaseError("interrupted")))
        store.remove_stream(row)
        store.append([], erasures=[Erasure(other.id, make_baseline(others, 10, 5))])
    content = read_bytes(store.path)
    assert b"request of other-2-5-" not in content
    assert b"request of shop-1-30-" in content
    assert store.purge()
    assert b"shop-1-" not in read_bytes(store.path)


def test_nothing_is_left_of_a_repair_that_was_interrupted(tmp_path: Path) -> None:
    """The damaged store may have been replaced by a backup since then, in which data are erased later."""
    path = tmp_path / "a.db"
    SqliteStore(path).close()
    for suffix in (".salvage", ".salvage-wal", ".repairing", ".repairing-journal"):
        path.with_name(path.name + suffix).write_bytes(b"request of shop-1-7-")
    with closing(SqliteStore(path, shared=True)):  # a repair may be under way
        assert b"shop" in read_bytes(path)
    with closing(SqliteStore(path)):
        assert b"shop" not in read_bytes(path)
        assert {file.name for file in tmp_path.iterdir()} <= {f"a.db{suffix}" for suffix in ("", *ITS_FILES)}
