"""Checksums: the chain over the events of a stream, digests of rows, and marks."""

from __future__ import annotations

import itertools
import os
import threading
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from support.refusals import rejects
from support.stores import add_stream, build, codes, decide, edit, flip, open_beside, recover_all, verify
from windvane.service.store import DECIDED, LATE, Event, SqliteStore, UnreadableEventError, check_event
from windvane.service.store.records import digest_row, is_sealed, seal_row
from windvane.service.store.sqlite.marks import Marks, read_marks

START = digest_row("streams", 1, "shop", 5.0, "{}")
REQUEST = b'{"context":{"age":41}}'


def make_event(previous: bytes, number: int, request: bytes | None = REQUEST, **more: Any) -> Event:
    values = {"decision": f"d{number}", "key": f"k{number}", "outcome_json": b'{"arm":"a"}'} | more
    return Event.create(previous, 1, number, 10.0 + number, DECIDED, request=request, **values)


@pytest.mark.parametrize(
    "change",
    [
        {"stream": 2}, {"number": 3}, {"time": 12.000001}, {"kind": LATE}, {"decision": "d3"}, {"decision": None},
        {"key": "k3"}, {"key": None}, {"key": ""}, {"outcome_json": b'{"arm":"b"}'}, {"request": REQUEST + b" "},
        {"request": None}, {"salt": None}, {"salt": b"x" * 16}, {"request_digest": None}, {"chain": START},
        {"chain": None}, {"time": None}, {"kind": "x"}, {"kind": -1}, {"decision": b"d2"}, {"outcome_json": "text"},
        {"number": -1}, {"request": "text"}, {"request": b"{}"},
    ],
    ids=str,
)  # fmt: skip
def test_any_change_of_an_event_breaks_the_chain(change: dict[str, Any]) -> None:
    first = make_event(START, 1)
    second = make_event(first.chain, 2)
    check_event(START, first)
    check_event(first.chain, second)
    changed = second._replace(**change)
    with rejects(error=UnreadableEventError, number=changed.number):
        check_event(first.chain, changed)
    with rejects(error=UnreadableEventError, number=2):  # an event is missing
        check_event(START, second)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"decision": "ab", "key": "c"}, {"decision": "a", "key": "bc"}),
        ({"decision": None, "key": "a"}, {"decision": "a", "key": None}),
        ({"decision": "", "key": None}, {"decision": None, "key": ""}),
        ({"key": "a", "outcome_json": b"b"}, {"key": "", "outcome_json": b"ab"}),
    ],
)
def test_values_of_events_do_not_run_into_each_other(first: dict[str, Any], second: dict[str, Any]) -> None:
    assert make_event(START, 1, None, **first).chain != make_event(START, 1, None, **second).chain


def test_values_of_rows_do_not_run_into_each_other() -> None:
    rows = [("ab", "c"), ("a", "bc"), ("abc",), (1,), ("1",), (1.0,), (None,), (b"",), ("",), ()]
    assert len({digest_row(table, *row) for table in ("t", "u") for row in rows}) == 2 * len(rows)
    row = seal_row("t", "a", 1, 2.5, b"x", None)
    assert is_sealed("t", row)
    for damaged in (row[:-1], ("b", *row[1:]), (*row[:-1], None), (["a"], *row[1:])):
        assert not is_sealed("t", damaged)


def test_a_request_can_be_erased_and_the_chain_still_holds() -> None:
    """Contexts and vectors stand only in the request; a salted digest of them stays."""
    events = list(
        itertools.accumulate(range(2, 6), lambda last, n: make_event(last.chain, n), initial=make_event(START, 1))
    )
    events[2] = events[2]._replace(request=None, salt=None)
    chain = START
    for event in events:
        check_event(chain, event)
        chain = event.chain
    assert b"41" not in b"".join(part for part in events[2] if isinstance(part, bytes))
    assert (
        make_event(START, 1).request_digest != make_event(START, 1).request_digest
    )  # or erased contexts could be guessed


def test_the_log_is_chained_as_it_is_written(place: str | Path) -> None:
    build(place)
    with open_beside(place) as store:
        for row in store.read_streams():
            assert row.is_sound
            chain = row.digest
            for event in store.read_events(row.id):
                check_event(chain, event)
                chain = event.chain
                assert store.read_chain(row.id, event.number) == chain
            snapshot = store.read_snapshot(row.id)
            assert snapshot is not None
            assert snapshot.chain == chain


# --- marks -----------------------------------------------------------------------------------------------------------


def test_marks_that_are_damaged_or_of_another_store_are_ignored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, mark = tmp_path / "a.db", tmp_path / "a.db.mark"
    with closing(SqliteStore(path)) as store:
        decide(add_stream(store, "shop"), store, 3)
        assert store.read_acknowledged() == {1: 6}
    content = mark.read_bytes()
    edit(path, "DELETE FROM events WHERE id % 1024 > 4")
    assert codes(verify(path)) == {"shop": ("missing_events",)}
    for at in (16 + 7, 16 + 9):  # the number of the stream's slot, and its checksum
        mark.write_bytes(flip(content, at, 1))
        report = verify(path)
        assert report.is_sound
        assert [note.code for note in report.streams[0].notes] == ["no_mark"]
    mark.write_bytes(b"another store..." + content[16:])  # the id is in the store, too
    assert codes(verify(path)) == {"shop": ("missing_events",)}
    mark.unlink()
    mark.mkdir()
    with closing(SqliteStore(path)) as store:  # which is not fatal
        streams, _ = recover_all(store)
        decide(streams["shop"], store)
    assert caplog.records
    mark.rmdir()
    assert read_marks(path, "0" * 32) == {}
    other = Marks(path, "1" * 32)
    other.write({1: 9})
    other.close()
    assert (read_marks(path, "0" * 32), read_marks(path, "1" * 32)) == ({}, {1: 9})


def test_a_mark_that_cannot_be_written_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    marks = Marks(tmp_path / "a.db", "0" * 32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "pwrite", Mock(side_effect=OSError(28, "No space left on device")))
        marks.write({1: 1})
        marks.write({1: 2})
    assert len(caplog.records) == 1
    marks.write({1: 3})
    marks.close()
    marks.write({1: 4})  # which does nothing
    assert read_marks(tmp_path / "a.db", "0" * 32) == {1: 3}


def test_marks_are_written_by_two_threads(tmp_path: Path) -> None:
    """The highest stream is not forgotten: its id would be used again."""
    marks, is_compared, is_written = Marks(tmp_path / "a.db", "0" * 32), threading.Event(), threading.Event()

    class SlowStream(int):
        """The id of a stream whose comparison lets another thread go ahead."""

        def __gt__(self, other: int) -> bool:
            is_compared.set()
            is_written.wait(0.05)  # the other thread has to wait: this is not set before
            return int(self) > other

    def write_another() -> None:
        is_compared.wait()
        marks.write({30: 1})
        is_written.set()

    threads = [
        threading.Thread(target=marks.write, args=({SlowStream(20): 1},)),
        threading.Thread(target=write_another),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert marks.highest == 30
    marks.close()
