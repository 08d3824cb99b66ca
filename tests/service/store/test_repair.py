"""Repair: a damaged store is rebuilt, damage costs at most the streams it belongs to, and a stop loses nothing."""

from __future__ import annotations

import os
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from support.refusals import rejects
from support.server import Local, pack_stream, read_problem, run_command, until
from support.stores import (
    STREAMS,
    Facts,
    add_stream,
    codes,
    copy_store,
    decide,
    edit,
    find_owners,
    flip,
    query,
    recover_all,
    root_page,
    serve_copy,
    verify,
    zero_page,
)
from windvane.service import engine, recovery
from windvane.service.store import DamageError, SqliteStore, StoreError, Token
from windvane.service.store.events import STREAM_SPAN
from windvane.service.store.sqlite import repair
from windvane.service.store.sqlite import store_file as store_module
from windvane.service.store.sqlite.database import PAGE_BYTES
from windvane.service.streams import Stream


@pytest.fixture
def damaged(copy: Path) -> Path:
    """A store whose index over keys cannot be read."""
    copy.write_bytes(zero_page(copy.read_bytes(), root_page(copy, "events_by_key")))
    return copy


def list_files(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir() if not file.name.endswith(("-shm", "-wal", ".lock", ".mark"))}


def make_store(path: Path, rounds: int) -> Stream:
    """Make a store with one stream."""
    with closing(SqliteStore(path)) as store:
        stream = add_stream(store, "shop")
        decide(stream, store, rounds)
    return stream


# --- damage and its cost ---------------------------------------------------------------------------------------------


def test_a_zeroed_page_costs_at_most_the_streams_on_it(original: tuple[Path, Facts], tmp_path: Path) -> None:
    """A page of events costs the streams that have an event on it, the root of a table of rows all, others none."""
    path, facts = original
    content, owners = path.read_bytes(), find_owners(path)
    roots = dict(query(path, "SELECT rootpage, name FROM sqlite_master"))
    for page in range(1, len(content) // PAGE_BYTES + 1):
        copy = copy_store(path, tmp_path / "b.db", zero_page(content, page))
        assert not verify(copy).is_sound, page
        served = serve_copy(copy, facts)
        expected = set(STREAMS) if roots.get(page) in ("streams", "events") else owners.get(page, set())
        assert served.unavailable == expected, page
        if not expected:
            assert served.is_intact == (roots.get(page) != "tokens"), page
            assert set(codes(verify(copy)).values()) <= {("snapshot",)}  # the next snapshot replaces it
    assert any(0 < len(names) < len(STREAMS) for names in owners.values())


@pytest.mark.parametrize("mark", ["fresh", "stale", "missing"])
def test_a_lost_last_page_of_events_is_noticed_without_the_marks(tmp_path: Path, mark: str) -> None:
    """Marks are not flushed: after a power failure they may be old, or missing. The indexes know of the events."""
    path, marks = tmp_path / "a.db", tmp_path / "a.db.mark"
    with closing(SqliteStore(path)) as store:
        stream = add_stream(store, "shop")
        decide(stream, store, 30)
        stale = marks.read_bytes()
        decide(stream, store, 30)
    if mark == "stale":
        marks.write_bytes(stale)
    elif mark == "missing":
        marks.unlink()
    content = path.read_bytes()
    path.write_bytes(zero_page(content, content.index(stream.chain) // PAGE_BYTES + 1))
    with closing(SqliteStore(path)) as store:
        assert set(recover_all(store)[1]) == {"shop"}
        assert 90 < len(list(store.read_events(1))) < 120
    assert not verify(path).is_sound


def test_an_index_that_claims_more_than_there_is_costs_nothing(tmp_path: Path) -> None:
    """No page of events is unreadable, and the marks agree with the events: the index is wrong."""
    path = tmp_path / "a.db"
    stream = make_store(path, 3)
    content, start = path.read_bytes(), (root_page(path, "events_by_decision") - 1) * PAGE_BYTES
    page = content[start : start + PAGE_BYTES]
    claim = page.replace((STREAM_SPAN + 6).to_bytes(6, "big"), (STREAM_SPAN + 9).to_bytes(6, "big"))
    assert claim != page
    path.write_bytes(content[:start] + claim + content[start + PAGE_BYTES :])
    with closing(SqliteStore(path)) as store:
        streams, unavailable = recover_all(store)
        assert not unavailable
        assert pack_stream(streams["shop"]) == pack_stream(stream)
    assert (tmp_path / "a.db.damaged-1").exists()
    assert verify(path).is_sound


def test_a_flipped_bit_in_the_index_over_keys_repeats_no_request(copy: Path, facts: Facts) -> None:
    content, start = copy.read_bytes(), (root_page(copy, "events_by_key") - 1) * PAGE_BYTES
    copy.write_bytes(flip(content, content.index(b"key shop 3", start, start + PAGE_BYTES) + 9, 4))
    assert not verify(copy).is_sound
    assert serve_copy(copy, facts).is_intact  # the key is known, and so are all others
    assert verify(copy).is_sound


def test_events_behind_a_large_gap_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where more rows are lost than are tried one by one."""
    monkeypatch.setattr("windvane.service.store.sqlite.damaged_tables.TRIED_ONE_BY_ONE", 3)
    path = tmp_path / "a.db"
    make_store(path, 60)
    chains, content = [chain for (chain,) in query(path, "SELECT chain FROM events ORDER BY id")], path.read_bytes()
    pages = [content.rindex(chain) // PAGE_BYTES + 1 for chain in chains]  # what is before may be an old copy
    for page in pages[40:80]:
        content = zero_page(content, page)
    path.write_bytes(content)
    kept = [number for number, page in enumerate(pages, 1) if page not in pages[40:80]]
    with closing(SqliteStore(path)) as store:
        numbers = [event.number for event in store.read_events(1)]
        assert set(recover_all(store)[1]) == {"shop"}
    assert set(numbers) >= set(kept)
    assert kept[-1] == 120
    assert len(kept) < 85


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: zero_page(content, 1),
        lambda content: b"x" * 100 + content[100:],
        lambda content: content[:100] + bytes(500) + content[600:],
        lambda content: content[:103] + bytes(2) + content[105:],  # the list of tables is empty
        lambda content: flip(content, 47, 1),  # formats that SQLite does not know
        lambda content: flip(content, 47, 16),
        lambda content: flip(content, 104, 8),  # the list of tables is shorter
    ],
)
def test_a_damaged_first_page_is_replaced(copy: Path, facts: Facts, tmp_path: Path, damage: Any) -> None:
    copy.write_bytes(damage(copy.read_bytes()))
    copy.chmod(0o644)
    assert not verify(copy).is_sound
    assert serve_copy(copy, facts).is_intact
    modes = {file.name: file.stat().st_mode & 0o077 for file in tmp_path.iterdir() if file.suffix != ".mark"}
    assert not any(modes.values()), modes
    assert list_files(tmp_path) == {"b.db", "b.db.damaged-1"}


def test_rows_of_streams_that_cannot_be_read(copy: Path) -> None:
    """The names are known from their index, and no name is free for another stream."""
    copy.write_bytes(zero_page(copy.read_bytes(), root_page(copy, "streams")))
    with closing(SqliteStore(copy)) as store:
        assert set(recover_all(store)[1]) == set(STREAMS)
        assert store.add_stream("shop", 0.0, "{}") is None
        assert add_stream(store, "new").id == 4


@pytest.mark.parametrize("damage", ["zeroed", "empty"])
def test_settings_that_cannot_be_read_are_made_again(copy: Path, facts: Facts, damage: str) -> None:
    """The format is known from the tables, the id from the marks, and every request needs a token."""
    before = query(copy, "SELECT value FROM meta WHERE name = 'id'")
    if damage == "zeroed":
        copy.write_bytes(zero_page(copy.read_bytes(), root_page(copy, "meta")))
    else:
        edit(copy, "DELETE FROM meta")
    assert serve_copy(copy, facts).is_intact
    assert query(copy, "SELECT value FROM meta WHERE name = 'id'") == before


def test_a_file_that_was_cut_off(original: tuple[Path, Facts], tmp_path: Path) -> None:
    """It is served as far as it can be read; a stream is set aside only for its events that were cut off."""
    path, facts = original
    content, owners = path.read_bytes(), find_owners(path)
    names = {f"unreadable-{number}": name for number, name in enumerate(STREAMS, 1)}
    costs = []
    for keep in range(1, len(content) // PAGE_BYTES):
        size = keep * PAGE_BYTES - (100 if keep % 2 else 0)
        copy = copy_store(path, tmp_path / "b.db", content[:size])
        assert not verify(copy).is_sound
        if size < 2 * PAGE_BYTES:  # nothing says that it was a store
            with rejects(error=StoreError, where=copy):
                SqliteStore(copy)
            assert copy.stat().st_size == size
            continue
        cut = set().union(*(streams for page, streams in owners.items() if page * PAGE_BYTES > size))
        costs.append({names.get(name, name) for name in serve_copy(copy, facts).unavailable})
        assert costs[-1] <= cut, keep
    assert (costs[0], costs[-1]) == (set(STREAMS), set())


def test_a_file_that_is_damaged_all_over(tmp_path: Path) -> None:
    """Only the settings and the row of the stream are left: it is set aside, and new streams are served."""
    path = tmp_path / "a.db"
    make_store(path, 100)
    content = bytearray(path.read_bytes())
    for page in range(5, len(content) // PAGE_BYTES):
        content[page * PAGE_BYTES : page * PAGE_BYTES + 8] = b"\xff" * 8
    path.write_bytes(content)
    assert not verify(path).is_sound
    with closing(SqliteStore(path)) as store:
        assert store.tokens.are_required  # whether there were tokens is not known any more
        assert set(recover_all(store)[1]) == {"shop"}
        decide(add_stream(store, "new"), store)
        assert set(recover_all(store)[0]) == {"new"}
    assert (tmp_path / "a.db.damaged-1").read_bytes() == content


def test_a_stream_that_cannot_be_read_costs_only_itself_before_the_check(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "CHECKED_AT_START", 0)

    def fail_on_second(read: Any) -> Any:
        def read_or_fail(stream: int, *arguments: Any, **more: Any) -> Any:
            if stream == 2:
                raise DamageError("malformed")
            return read(stream, *arguments, **more)

        return read_or_fail

    with closing(SqliteStore(copy)) as store:
        monkeypatch.setattr(store, "read_snapshot", fail_on_second(store.read_snapshot))
        assert set(recover_all(store)[0]) == set(STREAMS)  # a snapshot is not needed
        monkeypatch.setattr(store, "read_events", fail_on_second(store.read_events))
        assert set(recover_all(store)[1]) == {"fields"}
        assert not store.is_checked
        read_events = type(store).read_events
        monkeypatch.setattr(
            store, "read_events", lambda id_, **more: () if id_ == 2 else read_events(store, id_, **more)
        )
        assert set(recover_all(store)[1]) == {"fields"}  # a scan may miss events on a damaged page
        monkeypatch.setattr(store, "read_events", Mock(side_effect=sqlite3.OperationalError("locked")))
        with pytest.raises(sqlite3.OperationalError):
            recover_all(store)  # which says nothing about the streams: it is tried again


# --- the repair itself -----------------------------------------------------------------------------------------------


def test_every_repair_keeps_what_it_replaces_but_not_forever(damaged: Path, facts: Facts, tmp_path: Path) -> None:
    """Damaged copies do not fill the disk: a store that is damaged so often is on a failing one."""
    content = damaged.read_bytes()
    for number in range(1, repair.MOST_COPIES + 1):
        damaged.write_bytes(content)
        assert serve_copy(damaged, facts).is_intact
        assert (tmp_path / f"b.db.damaged-{number}").read_bytes() == content
    kept = list_files(tmp_path)
    damaged.write_bytes(content)
    for _ in range(2):
        with rejects(error=StoreError, where=damaged, code="damaged"):
            SqliteStore(damaged)
        assert (damaged.read_bytes(), list_files(tmp_path)) == (content, kept)
    (tmp_path / "b.db.damaged-2").unlink()
    assert serve_copy(damaged, facts).is_intact


def test_a_thread_that_is_reading_keeps_reading_the_old_file(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(SqliteStore(copy)) as store:
        stream = store.read_streams()[0].id
        numbers = [event.number for event in store.read_events(stream)]
        reading, go = threading.Event(), threading.Event()

        def read() -> list[int]:
            events = store.read_events(stream)
            first = next(events).number
            reading.set()
            assert go.wait(30)
            return [first, *(event.number for event in events)]

        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(read)
            assert reading.wait(30)
            monkeypatch.setattr(store, "find_damage", lambda **_: ["made up"])
            assert store.repair() == ["made up"]
            go.set()
            assert done.result(30) == numbers
            assert pool.submit(lambda: list(store.read_events(stream))[-1].number).result(30) == numbers[-1]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), LookupError("unexpected")])
def test_a_repair_that_fails_leaves_the_store(
    damaged: Path, facts: Facts, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    content = damaged.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(repair.os, "rename", Mock(side_effect=error))
        with rejects(error=StoreError, where=damaged, code="repair_failed") as caught:
            SqliteStore(damaged)
        assert caught.value.__cause__ is error
    assert damaged.read_bytes() == content
    assert serve_copy(damaged, facts).is_intact


def test_a_check_that_fails_does_not_count(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(SqliteStore(copy)) as small:
        assert small.is_checked
    monkeypatch.setattr(store_module, "CHECKED_AT_START", 0)
    with closing(SqliteStore(copy)) as store:
        with monkeypatch.context() as patch:
            patch.setattr(store_module, "find_damage", lambda *_, **__: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                store.find_damage()
        assert not store.is_checked
        assert store.find_damage() == []
        assert store.is_checked


class StopError(BaseException):
    """The process is gone."""


@pytest.mark.parametrize("stop_at", range(6))
def test_a_stop_before_any_step_of_the_swap(
    damaged: Path, facts: Facts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop_at: int
) -> None:
    """Before each change of the folder: the next start has the old store, or the new one, and all facts."""
    (tmp_path / "b.db-wal").write_bytes(b"")  # something to be moved
    rename, steps = os.rename, 0

    def stop(*arguments: Any) -> None:
        nonlocal steps
        if steps == stop_at:
            raise StopError
        steps += 1
        rename(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(repair.os, "rename", stop)
        try:
            SqliteStore(damaged).close()
        except StopError:
            before = list_files(tmp_path)
            expected = "repairing" if "b.db.repaired" in before else None
            report = verify(damaged)
            assert not report.is_sound
            assert expected is None or [problem.code for problem in report.problems] == [expected]
            with (
                rejects(error=StoreError, code="repairing"),  # it is not complete: the token might be lost
                closing(SqliteStore(damaged, shared=True)) as beside,
            ):
                beside.tokens.add(Token("new", "h", True, 1.0))
            assert list_files(tmp_path) == before  # what does not repair leaves all as it is
        else:
            assert steps == stop_at <= 5  # there are so many steps
    assert serve_copy(damaged, facts).is_intact
    with closing(SqliteStore(damaged, shared=True)) as beside:
        assert beside.tokens.add(Token("new", "h", True, 1.0))
    assert list_files(tmp_path) == {"b.db", "b.db.damaged-1"}


# --- tokens, which are changed beside a server -----------------------------------------------------------------------


def test_tokens_are_not_changed_while_a_repair_copies(
    damaged: Path, facts: Facts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a token that was removed would be accepted again, and one that was added would be lost."""
    results, lines = [], [("remove", "writer"), ("add", "new"), ("open",)]
    copy_stream = repair.StoreCopy._copy_stream

    def interfere(self: Any, row: Any) -> None:
        results.extend(run_command("token", *line, "--store", damaged).returncode for line in lines)
        copy_stream(self, row)

    monkeypatch.setattr(repair.StoreCopy, "_copy_stream", interfere)
    with closing(SqliteStore(damaged)) as store:
        assert store.tokens.read() == facts.tokens
    assert set(results) == {2}
    for line in lines:
        assert run_command("token", *line, "--store", damaged).returncode == 0


@pytest.mark.parametrize("moment", ["changed", "committed"])
def test_a_repair_that_begins_during_a_change_of_tokens_is_noticed(
    copy: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    moments, is_repairing = iter(["changed", "committed"]), repair.is_repairing

    def begin_repair(path: Path) -> bool:
        if next(moments) == moment:
            path.with_name(path.name + repair.BUILDING).touch()
        return is_repairing(path)

    with closing(SqliteStore(copy, shared=True)) as store:
        with monkeypatch.context() as patch:
            patch.setattr(store_module, "is_repairing", begin_repair)
            with rejects(error=StoreError, where=copy, code="repairing"):
                store.tokens.remove("writer")
        assert len(store.tokens.read()) == (1 if moment == "committed" else 2)
        with rejects(error=StoreError, where=copy, code="repairing"):
            store.tokens.remove("reader")
    SqliteStore(copy).close()  # which removes what an interrupted repair left
    with closing(SqliteStore(copy, shared=True)) as store:
        assert store.tokens.remove("reader")


# --- in a running server ---------------------------------------------------------------------------------------------


def zero_in_place(service: Local, name: str) -> None:
    """Destroy the root page of a table or index in the file of a running server."""
    service.call(lambda: service.store.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall())
    with service.store.path.open("r+b") as file:
        file.seek((root_page(service.store.path, name) - 1) * PAGE_BYTES)
        file.write(bytes(PAGE_BYTES))
    service.call(service.store.drop_connection)  # what it has read of the page is forgotten


def test_damage_while_it_runs_is_repaired(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read or a commit says that the file is damaged: the service comes back by itself, from a new file."""
    monkeypatch.setattr(engine, "RETRY", 0.02)
    service = Local(tmp_path / "a.db")
    try:
        service.create()
        first = service.decide(key="k")
        before = service.state()
        zero_in_place(service, "events_by_key")
        answer = service.post("/v1/streams/shop/decisions", {}, headers={"idempotency-key": "k"})
        assert read_problem(answer, 503)["code"] == "unavailable"
        service.wait_until_ready()
        assert service.state() == before
        assert service.decide(key="k") == first
        assert service.decide(key="other")["id"] != first["id"]
    finally:
        service.stop()
    assert list_files(tmp_path) == {"a.db", "a.db.damaged-1"}
    assert verify(tmp_path / "a.db").is_sound


def test_a_large_store_is_checked_after_the_start(damaged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is served at once; a check that cannot read the file is repeated, and what it finds is repaired."""
    monkeypatch.setattr(store_module, "CHECKED_AT_START", 0)
    monkeypatch.setattr(recovery, "CHECK_AGAIN", 0.01)
    find_damage, failures = store_module.find_damage, [sqlite3.OperationalError("locked"), OSError("gone")]

    def fail_twice(*arguments: Any, **options: Any) -> list[str]:
        if options.get("pages") and failures:
            raise failures.pop()
        return find_damage(*arguments, **options)

    monkeypatch.setattr(store_module, "find_damage", fail_twice)
    service = Local(damaged)
    try:
        until(lambda: service.store.is_checked and service.get("/readyz").status_code == 200)
        assert service.call(lambda: service.store.find_events([(1, "key shop 3")]))
        assert set(service.engine.streams) == set(STREAMS)
    finally:
        service.stop()
    assert not failures
    assert verify(damaged).is_sound
