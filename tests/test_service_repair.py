"""Repair: a damaged store is rebuilt, and a stop in the middle loses nothing."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest

from serving import ARMS, local, until, windvane
from stores import STREAMS, Facts, build, copy_store, edit, find_owners, flip, query, raw_request, serve_copy, verify
from support.refusals import rejects
from windvane.agent import Agent
from windvane.service import access
from windvane.service import engine as engines
from windvane.service.engine import Engine
from windvane.service.store import Store, StoreError, repair
from windvane.service.store import store as store_module
from windvane.service.store.database import PAGE_BYTES, DamageError
from windvane.service.store.events import STREAM_SPAN


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Facts]:
    path = tmp_path_factory.mktemp("store") / "a.db"
    return path, build(path)


def root_page(path: Path, name: str) -> int:
    return int(query(path, f"SELECT rootpage FROM sqlite_master WHERE name = '{name}'")[0][0])


def zero_page(content: bytes, page: int) -> bytes:
    start = (page - 1) * PAGE_BYTES
    return content[:start] + bytes(PAGE_BYTES) + content[start + PAGE_BYTES :]


# --- repair ----------------------------------------------------------------------------------------------------------


def test_a_zeroed_page_of_snapshots_costs_nobody_anything(tmp_path: Path) -> None:
    """Forty streams, one page: verify finds it, and all of them are served."""
    path = tmp_path / "a.db"
    with local(path) as service:
        for i in range(40):
            service.create(f"s{i}")
            service.decide(f"s{i}")
        before = {name: service.state(name) for name in service.engine.streams}
    content = path.read_bytes()
    path.write_bytes(zero_page(content, root_page(path, "snapshots")))
    assert windvane("verify", "--store", path).returncode == 1
    with local(path) as service:
        assert {name: service.state(name) for name in service.engine.streams} == before
        assert len(before) == 40
        assert service.get("/v1/streams").json()["broken"] == {}
    assert verify(path)["sound"]
    assert path.with_name("a.db.damaged-1").read_bytes() == zero_page(content, root_page(path, "snapshots"))


def test_a_zeroed_page_of_events_costs_the_streams_on_it(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with local(path) as service:
        for name in ("a", "b", "c"):
            service.create(name)
            assert service.post(f"/v1/streams/{name}/decide/batch", {"items": [ARMS] * 60}).status_code == 200
        before = {name: service.state(name) for name in service.engine.streams}
    content, marker = path.read_bytes(), b'"propensity":'
    pages = [
        at // PAGE_BYTES + 1 for at in range(0, len(content), PAGE_BYTES) if marker in content[at : at + PAGE_BYTES]
    ]
    assert len(pages) > 10
    costs = []
    for page in pages:
        for file in tmp_path.glob("a.db*"):
            if file.suffix != ".mark":
                file.unlink()
        path.write_bytes(zero_page(content, page))
        store = Store(path)
        engine = Engine(store)
        costs.append(tuple(sorted(engine.broken)))
        for name, stream in engine.streams.items():
            found = stream.snapshot()
            assert found.agent + found.extra + str(found.number).encode() == before[name]
        assert {*engine.broken, *engine.streams} == {"a", "b", "c"}
        store.close()
    assert set(costs) >= {("a",), ("b",), ("c",)}
    assert max(map(len, costs)) <= 2  # a page at the border has events of two streams
    assert all(costs)


def find_last_page(path: Path) -> int:
    """Return the page with the last event of a store of one stream."""
    decision = query(path, "SELECT decision FROM events ORDER BY id DESC LIMIT 1")[0][0].encode()
    content = path.read_bytes()
    starts = range(0, len(content), PAGE_BYTES)
    (page,) = [at // PAGE_BYTES + 1 for at in starts if content[at] == 13 and decision in content[at : at + PAGE_BYTES]]
    return page


@pytest.mark.parametrize("mark", ["fresh", "stale", "missing"])
def test_a_zeroed_last_page_of_events_is_noticed_without_the_marks(tmp_path: Path, mark: str) -> None:
    """Marks are not flushed: after a power failure they may be old, or missing. The indexes know of the events."""
    path = tmp_path / "a.db"
    marks = tmp_path / "a.db.mark"
    with local(path) as service:
        service.create()
        for _ in range(60):
            service.decide()
        stale = marks.read_bytes()
        for _ in range(60):
            service.decide()
    edit(path, "DELETE FROM snapshots")
    if mark == "stale":
        marks.write_bytes(stale)
    elif mark == "missing":
        marks.unlink()
    path.write_bytes(zero_page(path.read_bytes(), find_last_page(path)))
    store = Store(path)
    assert set(Engine(store).broken) == {"shop"}
    store.close()
    assert not verify(path)["sound"]


def test_an_index_that_claims_more_than_there_is_costs_nothing(tmp_path: Path) -> None:
    """No page of events is unreadable, and the marks agree with the events: the index is wrong."""
    path = tmp_path / "a.db"
    with local(path) as service:
        service.create()
        service.create("other")
        for _ in range(5):
            service.decide()
        before = service.state()
    edit(path, "DELETE FROM snapshots")
    root = root_page(path, "events_by_decision")
    at = (root - 1) * PAGE_BYTES
    content = path.read_bytes()
    rowid = (STREAM_SPAN + 5).to_bytes(6, "big")
    damaged = content.replace(rowid, (STREAM_SPAN + 7).to_bytes(6, "big"))
    assert damaged[at : at + PAGE_BYTES] != content[at : at + PAGE_BYTES]
    path.write_bytes(content[:at] + damaged[at : at + PAGE_BYTES] + content[at + PAGE_BYTES :])
    with local(path) as service:
        assert service.get("/v1/streams").json()["broken"] == {}
        assert service.state() == before
    assert (tmp_path / "a.db.damaged-1").exists()
    assert verify(path)["sound"]


def test_an_index_that_claims_far_too_much_does_not_prolong_a_repair(
    original: tuple[Path, Facts], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an unreadable page of events, the search for rows ends before the number that the index claims."""
    path, _ = original
    content = path.read_bytes()
    copy = copy_store(path, tmp_path / "b.db", zero_page(content, root_page(path, "events")))
    read = repair.StoreCopy._read_indexed_numbers

    def claim(self: Any) -> None:
        read(self)
        self._indexed[1] = STREAM_SPAN - 1

    monkeypatch.setattr(repair.StoreCopy, "_read_indexed_numbers", claim)
    store = Store(copy)
    assert set(Engine(store).broken) == set(STREAMS)
    store.close()


def test_a_flipped_bit_in_the_index_over_keys_does_not_repeat_a_request(
    original: tuple[Path, Facts], tmp_path: Path
) -> None:
    path, facts = original
    content = path.read_bytes()
    start = (root_page(path, "events_by_key") - 1) * PAGE_BYTES
    at = content.index(b"key shop 3", start, start + PAGE_BYTES) + 9
    copy = copy_store(path, tmp_path / "b.db", flip(content, at, 4))
    assert "index events_by_key" in " ".join(verify(copy)["store"])
    assert serve_copy(copy, facts).is_intact  # the key is known, and so are all others
    assert verify(copy)["sound"]
    assert path.with_name("b.db.damaged-1").exists() is False
    assert (tmp_path / "b.db.damaged-1").exists()


def test_every_repair_keeps_what_it_replaces(original: tuple[Path, Facts], tmp_path: Path) -> None:
    path, facts = original
    content = path.read_bytes()
    damaged = zero_page(content, root_page(path, "events_by_key"))
    copy = copy_store(path, tmp_path / "b.db", damaged)
    for number in (1, 2, 3):
        copy.write_bytes(damaged)
        assert serve_copy(copy, facts).is_intact
        assert (tmp_path / f"b.db.damaged-{number}").read_bytes() == damaged
        assert not list(tmp_path.glob("b.db.rep*"))
        assert not list(tmp_path.glob("b.db.salvage*"))


def test_damaged_copies_do_not_fill_the_disk(original: tuple[Path, Facts], tmp_path: Path) -> None:
    path, facts = original
    damaged = zero_page(path.read_bytes(), root_page(path, "events_by_key"))
    copy = copy_store(path, tmp_path / "b.db", damaged)
    for number in range(2, repair.MOST_COPIES + 2):
        (tmp_path / f"b.db.damaged-{number}").touch()
    for _ in range(2):
        with rejects(error=StoreError, path=copy, code="damaged"):
            Store(copy)
        assert copy.read_bytes() == damaged
        assert not (tmp_path / "b.db.damaged-1").exists()
        assert not list(tmp_path.glob("b.db.rep*"))
    found = windvane("serve", "--port", "0", "--store", copy)
    assert (found.returncode, "b.db.damaged-N" in found.stderr) == (2, True)
    (tmp_path / "b.db.damaged-2").unlink()
    assert serve_copy(copy, facts).is_intact


def test_a_first_page_that_is_damaged_is_that_of_a_new_store(original: tuple[Path, Facts], tmp_path: Path) -> None:
    path, facts = original
    content = path.read_bytes()
    for damaged in (zero_page(content, 1), b"x" * 100 + content[100:], content[:100] + bytes(500) + content[600:]):
        copy = copy_store(path, tmp_path / "b.db", damaged)
        copy.chmod(0o644)
        assert not verify(copy)["sound"]
        assert serve_copy(copy, facts).is_intact
        assert {oct(file.stat().st_mode & 0o077) for file in tmp_path.glob("b.db*") if file.suffix != ".mark"} == {
            "0o0"
        }


def test_a_row_of_a_stream_that_cannot_be_read(original: tuple[Path, Facts], tmp_path: Path) -> None:
    """The names are known from their index, and no name is free for another stream."""
    path, _ = original
    copy = copy_store(path, tmp_path / "b.db", zero_page(path.read_bytes(), root_page(path, "streams")))
    store = Store(copy)
    engine = Engine(store)
    assert set(engine.broken) == set(STREAMS)
    assert store.add_stream("shop", 0.0, "{}") is None
    new = store.add_stream("new", 0.0, "{}")
    assert new is not None
    assert new.id == 4
    store.close()


def test_a_file_that_was_cut_off(original: tuple[Path, Facts], tmp_path: Path) -> None:
    """It is served as far as it can be read; a stream is set aside only for its events that were cut off."""
    path, facts = original
    content, owners = path.read_bytes(), find_owners(path)
    costs = []
    for keep in range(1, len(content) // PAGE_BYTES):
        copy = copy_store(path, tmp_path / "b.db", content[: keep * PAGE_BYTES - (100 if keep % 2 else 0)])
        assert not verify(copy)["sound"]
        kept = keep - keep % 2
        if kept < 2:  # nothing says that it was a store
            with pytest.raises(StoreError):
                Store(copy)
            assert copy.stat().st_size == keep * PAGE_BYTES - 100
            continue
        cut = set().union(*(names for page, names in owners.items() if page > kept))
        lost_names = {f"unreadable-{number}": name for number, name in enumerate(STREAMS, 1)}
        costs.append({lost_names.get(name, name) for name in serve_copy(copy, facts).broken})
        assert costs[-1] <= cut, keep
    assert len(costs) > 20
    assert costs[-1] == set()
    assert costs[0] == set(STREAMS)


@pytest.mark.parametrize(("at", "bit"), [(47, 1), (47, 16), (104, 8)])
def test_a_first_page_that_sqlite_reads_as_something_else(
    original: tuple[Path, Facts], tmp_path: Path, at: int, bit: int
) -> None:
    """A format that SQLite does not know, and a list of tables that is shorter."""
    path, facts = original
    copy = copy_store(path, tmp_path / "b.db", flip(path.read_bytes(), at, bit))
    assert serve_copy(copy, facts).is_intact


def test_a_list_of_tables_that_became_empty_is_not_filled_again(original: tuple[Path, Facts], tmp_path: Path) -> None:
    path, facts = original
    content = path.read_bytes()
    copy = copy_store(path, tmp_path / "b.db", content[:103] + bytes(2) + content[105:])
    assert query(copy, "SELECT * FROM sqlite_master") == []
    assert serve_copy(copy, facts).is_intact


def test_damage_while_it_runs_is_repaired(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read or a commit says that the file is damaged: the service comes back by itself, from a new file."""
    monkeypatch.setattr(engines, "RETRY", 0.02)
    path = tmp_path / "a.db"
    with local(path) as service:
        service.create()
        made = service.decide(headers={"idempotency-key": "k"})
        before = service.state()
        service.call(lambda: service.store.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall())
        content = path.read_bytes()
        page = (root_page(path, "events_by_key") - 1) * PAGE_BYTES
        with open(path, "r+b") as file:
            file.seek(page)
            file.write(bytes(PAGE_BYTES))
        assert content != path.read_bytes()
        service.call(service.store.drop_connection)  # what it has read of the page is forgotten
        answer = service.post("/v1/streams/shop/decide", ARMS, headers={"idempotency-key": "other"})
        assert answer.status_code == 503
        until(lambda: service.get("/readyz").status_code == 200)
        assert service.state() == before
        assert service.decide(headers={"idempotency-key": "k"}) == made
        assert service.decide(headers={"idempotency-key": "other"})["decision"] != made["decision"]
        assert (tmp_path / "a.db.damaged-1").exists()
    assert verify(path)["sound"]


def test_tokens_that_become_unreadable_are_repaired(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is let in meanwhile, and afterwards those whose token can be read."""
    monkeypatch.setattr(access, "RELOAD", 0.0)
    monkeypatch.setattr(engines, "RETRY", 0.02)
    path = tmp_path / "a.db"
    with local(path) as service:
        service.create()
        secret = access.new_token(service.store, "shop", full=True)
        headers = {"authorization": f"Bearer {secret}"}
        assert service.get("/v1/streams", headers=headers).status_code == 200
        service.call(lambda: service.store.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall())
        page = (root_page(path, "tokens") - 1) * PAGE_BYTES
        with open(path, "r+b") as file:
            file.seek(page)
            file.write(bytes(PAGE_BYTES))
        service.call(service.store.drop_connection)
        assert service.get("/v1/streams", headers=headers).status_code == 503
        assert service.get("/v1/streams").status_code in (401, 503)
        until(lambda: service.get("/readyz").status_code == 200 and (tmp_path / "a.db.damaged-1").exists())
        assert service.get("/v1/streams", headers=headers).status_code == 401  # the token is lost, and needed
        assert service.get("/v1/streams").status_code == 401
        service.store.remove_all_tokens()
        assert service.get("/v1/streams").status_code == 200


def test_a_store_that_is_out_of_reach_is_not_damaged(
    original: tuple[Path, Facts], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = copy_store(original[0], tmp_path / "b.db")
    store = Store(copy)
    (tmp_path / "elsewhere").mkdir()
    for name in ("b.db", "b.db-wal", "b.db-shm"):
        (tmp_path / name).rename(tmp_path / "elsewhere" / name)
    with pytest.raises(sqlite3.OperationalError):
        store.repair()
    assert not list(tmp_path.glob("b.db.*damaged*"))
    store.close()


def test_a_large_store_is_checked_after_the_start(
    original: tuple[Path, Facts], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is served at once; what the check finds is repaired then."""
    path, _ = original
    copy = copy_store(path, tmp_path / "b.db", zero_page(path.read_bytes(), root_page(path, "events_by_key")))
    monkeypatch.setattr(store_module, "CHECKED_AT_START", 0)
    store = Store(copy)
    assert not store.is_checked

    async def scene() -> None:
        engine = Engine(store)
        await engine.start()
        while not (store.is_checked and engine.failure is None):
            await asyncio.sleep(0.01)
        assert store.event_with_key(1, "key shop 3") is not None
        assert set(engine.streams) == set(STREAMS)
        await engine.stop()

    asyncio.run(scene())
    store.close()
    assert (tmp_path / "b.db.damaged-1").exists()
    assert verify(copy)["sound"]


def test_a_check_that_fails_is_repeated(
    original: tuple[Path, Facts],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The file was out of reach: nothing is known about it, and the check is not given up."""
    path, _ = original
    copy = copy_store(path, tmp_path / "b.db", zero_page(path.read_bytes(), root_page(path, "events_by_key")))
    monkeypatch.setattr(store_module, "CHECKED_AT_START", 0)
    monkeypatch.setattr(engines, "CHECK_AGAIN", 0.01)
    store = Store(copy)
    check, failures = store_module.find_damage, iter([sqlite3.OperationalError("locked"), OSError("gone")])

    def fail_twice(*arguments: Any, **options: Any) -> list[str]:
        error = next(failures, None)
        if error is not None:
            raise error
        return check(*arguments, **options)

    monkeypatch.setattr(store_module, "find_damage", fail_twice)

    async def scene() -> None:
        engine = Engine(store)
        await engine.start()
        async with asyncio.timeout(20):
            while not (tmp_path / "b.db.damaged-1").exists() or engine.failure is not None:
                await asyncio.sleep(0.01)
        await engine.stop()

    asyncio.run(scene())
    store.close()
    assert caplog.text.count("cannot be checked; trying again") == 2
    assert verify(copy)["sound"]


def test_a_check_that_fails_does_not_count(
    original: tuple[Path, Facts], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "CHECKED_AT_START", 0)
    store = Store(copy_store(original[0], tmp_path / "b.db"))
    with monkeypatch.context() as patch:
        patch.setattr(store_module, "find_damage", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            store.find_damage()
    assert not store.is_checked
    assert store.find_damage() == []
    assert store.is_checked
    store.close()


def test_a_stream_that_cannot_be_read_costs_only_itself_before_the_check(
    original: tuple[Path, Facts], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, _ = original
    copy = copy_store(path, tmp_path / "b.db")
    monkeypatch.setattr(store_module, "CHECKED_AT_START", 0)
    store = Store(copy)
    snapshot, number = store.read_snapshot, store.read_snapshot_number

    def broken(stream: int) -> Any:
        if stream == 2:
            raise DamageError("malformed")
        return snapshot(stream)

    monkeypatch.setattr(store, "read_snapshot", broken)
    monkeypatch.setattr(store, "read_snapshot_number", lambda stream: broken(stream) and number(stream))
    assert set(Engine(store).streams) == set(STREAMS)  # a snapshot is not needed
    events = store.read_events

    def unreadable(stream: int, *arguments: Any, **more: Any) -> Any:
        if stream == 2:
            raise DamageError("malformed")
        return events(stream, *arguments, **more)

    monkeypatch.setattr(store, "read_events", unreadable)
    engine = Engine(store)
    assert set(engine.broken) == {"fields"}
    store.close()


def test_a_repair_that_fails_leaves_the_store(original: tuple[Path, Facts], tmp_path: Path, monkeypatch) -> None:
    path, facts = original
    damaged = zero_page(path.read_bytes(), root_page(path, "events_by_key"))
    copy = copy_store(path, tmp_path / "b.db", damaged)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(repair.os, "rename", full)
        with rejects(error=StoreError, path=copy, code="repair_failed") as caught:
            Store(copy)
        assert isinstance(caught.value.__cause__, OSError)
    assert copy.read_bytes() == damaged
    assert serve_copy(copy, facts).is_intact


@pytest.mark.parametrize("line", [("remove", "writer"), ("add", "new"), ("open",)])
def test_tokens_are_not_changed_while_a_repair_copies(
    original: tuple[Path, Facts], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: tuple[str, ...]
) -> None:
    """Or a token that was removed would be accepted again, and one that was added would be lost."""
    path, facts = original
    copy = copy_store(path, tmp_path / "b.db", zero_page(path.read_bytes(), root_page(path, "events_by_key")))
    results = []
    copy_stream = repair.StoreCopy._copy_stream

    def interfere(self: Any, row: Any) -> None:
        if not results:
            results.append(windvane("token", *line, "--store", copy))
        copy_stream(self, row)

    monkeypatch.setattr(repair.StoreCopy, "_copy_stream", interfere)
    store = Store(copy)
    assert results[0].returncode == 2
    assert "is being repaired" in results[0].stderr
    assert store.read_tokens() == facts.tokens
    store.close()
    assert windvane("token", *line, "--store", copy).returncode == 0


@pytest.mark.parametrize("moment", ["begun", "changed", "committed"])
def test_a_repair_that_begins_during_a_change_of_tokens_is_noticed(
    original: tuple[Path, Facts], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    copy = copy_store(original[0], tmp_path / "b.db")
    store = Store(copy, shared=True)
    refuse, calls = store._refuse_if_repairing, iter(["before", "begun", "changed", "committed"])

    def begin_repair() -> None:
        if next(calls) == moment:
            repair.building_path(copy).touch()
        refuse()

    monkeypatch.setattr(store, "_refuse_if_repairing", begin_repair)
    with rejects(error=StoreError, path=copy, code="repairing"):
        store.remove_token("writer")
    assert len(store.read_tokens()) == (1 if moment == "committed" else 2)
    store.close()


def test_an_interrupted_repair_does_not_keep_tokens_from_being_changed(
    original: tuple[Path, Facts], tmp_path: Path
) -> None:
    copy = copy_store(original[0], tmp_path / "b.db")
    repair.building_path(copy).touch()
    assert windvane("token", "remove", "writer", "--store", copy).returncode == 2
    Store(copy).close()
    assert windvane("token", "remove", "writer", "--store", copy).returncode == 0


# --- a stop in the middle --------------------------------------------------------------------------------------------


class Stop(BaseException):
    """The process is gone."""


def test_a_stop_at_any_step_of_the_swap(
    original: tuple[Path, Facts],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Before each change of the folder: the next start has the old store, or the new one, and all facts."""
    path, facts = original
    damaged = zero_page(path.read_bytes(), root_page(path, "events_by_key"))
    rename, steps = os.rename, 0
    for stop_at in range(20):
        copy = copy_store(path, tmp_path / f"{stop_at}.db", damaged)
        (copy.with_name(copy.name + "-wal")).write_bytes(b"")  # something to be moved
        steps = 0

        def stop(*arguments: Any) -> None:
            nonlocal steps
            if steps == stop_at:
                raise Stop
            steps += 1
            rename(*arguments)

        with monkeypatch.context() as patch:
            patch.setattr(repair.os, "rename", stop)
            try:
                Store(copy).close()
                break
            except Stop:
                pass
        files = {file.name: file.read_bytes() for file in tmp_path.glob(f"{stop_at}.db*") if "-shm" not in file.name}
        is_complete = f"{stop_at}.db.repaired" in files
        found = windvane("verify", "--store", copy)
        if is_complete:
            assert found.returncode == 2
            with rejects(error=StoreError, path=copy, code="repairing" if is_complete else "format"):
                Store(copy, shared=True, create=False, read_only=True)
        else:
            assert found.returncode == 1
        found = windvane("token", "add", "new", "--store", copy)
        assert found.returncode == 2  # a repair is not complete: the token might be lost
        assert "windvane: error: " in found.stderr
        assert "Traceback" not in found.stderr
        now = {file.name: file.read_bytes() for file in tmp_path.glob(f"{stop_at}.db*") if "-shm" not in file.name}
        assert {name: now[name] for name in files if "-wal" not in name} == {
            name: content for name, content in files.items() if "-wal" not in name
        }  # what does not repair leaves all as it is
        caplog.clear()
        assert serve_copy(copy, facts).is_intact, stop_at
        assert ("finished a repair that was interrupted; the old file is kept as" in caplog.text) == is_complete
        assert windvane("token", "add", "new", "--store", copy).returncode == 0
        assert "new" in {name for (name,) in query(copy, "SELECT name FROM tokens")}
        assert not list(tmp_path.glob(f"{stop_at}.db.rep*"))
        assert (tmp_path / f"{stop_at}.db.damaged-1").exists()
    assert steps >= 3
    assert stop_at < 19


@pytest.mark.parametrize("damage", ["zeroed", "empty"])
def test_settings_that_cannot_be_read_are_made_again(original: tuple[Path, Facts], tmp_path: Path, damage: str) -> None:
    """The format is known from the tables, and every request needs a token."""
    path, facts = original
    copy = copy_store(path, tmp_path / "b.db")
    if damage == "zeroed":
        copy.write_bytes(zero_page(copy.read_bytes(), root_page(copy, "meta")))
    else:
        edit(copy, "DELETE FROM meta")
    assert serve_copy(copy, facts).is_intact


def test_a_repair_that_breaks_off_unexpectedly_is_reported(
    original: tuple[Path, Facts], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = copy_store(original[0], tmp_path / "b.db")
    copy.write_bytes(zero_page(copy.read_bytes(), root_page(copy, "events_by_key")))

    def fail(_: Any) -> None:
        raise LookupError("unexpected")

    monkeypatch.setattr(repair.StoreCopy, "copy", fail)
    with rejects(error=StoreError, path=copy, code="repair_failed") as caught:
        Store(copy)
    assert isinstance(caught.value.__cause__, LookupError)


def test_a_snapshot_of_an_old_version_is_not_needed(
    original: tuple[Path, Facts], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The agent's file is of a version that this one does not read: the log is replayed."""
    path, facts = original

    def refuse(_: bytes) -> Any:
        raise ValueError("content: is of version 1, and this one reads version 9")

    monkeypatch.setattr(Agent, "from_bytes", staticmethod(refuse))
    copy = copy_store(path, tmp_path / "b.db")
    verdict = verify(copy)
    assert verdict["sound"]
    assert all("this version does not read its snapshot" in one["note"] for one in verdict["streams"])
    store = Store(copy)
    assert set(Engine(store).streams) == set(STREAMS)
    assert "is of version 1" in caplog.text
    store.close()
    assert facts.states


def test_integrity_is_checked_at_every_start_of_a_small_store(original: tuple[Path, Facts], tmp_path: Path) -> None:
    copy = copy_store(original[0], tmp_path / "b.db")
    began = time.perf_counter()
    assert verify(copy)["sound"]
    assert time.perf_counter() - began < 1.0
    store = Store(copy)
    assert store.is_checked
    assert raw_request(original[1], "shop", "key shop 3")
    store.close()
