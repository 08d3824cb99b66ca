"""The store, the committer and the engine by themselves: what is stored when, who may have a store, what is refused."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from serving import ARMS, command, local, served, until, whole, windvane
from stores import edit, reseal
from support.refusals import rejects
from windvane import Agent
from windvane.service import engine as engines
from windvane.service import snapshots
from windvane.service.committer import Committer
from windvane.service.engine import Engine
from windvane.service.errors import ServiceError
from windvane.service.recovery import rebuilt
from windvane.service.schemas import NewStream
from windvane.service.store import Snapshot, Store, StoreError, Token
from windvane.service.store.database import FORMAT, write_row
from windvane.service.store.events import DECIDED, EXPIRED, LATE, Event
from windvane.service.store.marks import Marks

RAW = json.dumps(ARMS).encode()


def event(number: int, stream: int = 1, decision: str | None = None, key: str | None = None) -> Event:
    return Event(stream, number, 10.0 + number, LATE, decision, key, b'{"value":0.5}')


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(tmp_path / "a.db")
    yield opened
    opened.close()


# --- events --------------------------------------------------------------------------------------------------------


def test_what_is_appended_is_read_back(store: Store, tmp_path: Path) -> None:
    events = [event(1, decision="d"), event(2, key="k"), event(3, decision="d", key="l")]
    others = [event(1, stream=2, decision="d", key="k")]
    store.append([*events, *others], [(1, Snapshot(3, b"", b"agent", b"{}"))])
    store.close()
    again = Store(tmp_path / "a.db")
    assert list(again.read_events(1)) == events
    assert list(again.read_events(1, after=1, limit=1)) == events[1:2]
    assert list(again.read_events(2)) == others
    assert again.events_of_decision(1, "d") == [events[0], events[2]]
    assert (again.event_with_key(1, "k"), again.event_with_key(2, "k"), again.event_with_key(1, "x")) == (
        events[1],
        others[0],
        None,
    )
    assert (again.last_number(1), again.last_number(2), again.last_number(3)) == (3, 1, 0)
    assert (again.read_snapshot(1), again.read_snapshot(2)) == (Snapshot(3, b"", b"agent", b"{}"), None)
    assert (again.read_snapshot_number(1), again.read_snapshot_number(2)) == (3, 0)
    again.close()


def test_streams_do_not_run_into_each_other(store: Store) -> None:
    """The last number that a stream can have, beside the first of the next."""
    last = event((1 << 40) - 1)
    store.append([last, event(1, stream=2)])
    assert list(store.read_events(1)) == [last]
    assert [found.number for found in store.read_events(2)] == [1]
    assert store.last_number(1) == (1 << 40) - 1


def test_an_append_is_stored_whole_or_not_at_all(store: Store) -> None:
    store.append([event(1)])
    with pytest.raises(sqlite3.IntegrityError):
        store.append([event(2), event(3), event(1)], [(1, Snapshot(3, b"", b"x", "{}"))])
    assert [found.number for found in store.read_events(1)] == [1]
    assert store.read_snapshot(1) is None
    store.append([event(2)])  # the failure is not in the way
    assert store.last_number(1) == 2


def test_every_commit_is_flushed(store: Store, tmp_path: Path) -> None:
    """What makes it durable: WAL, and a flush of it with every commit (2: FULL)."""
    assert store.connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert store.connection.execute("PRAGMA synchronous").fetchone() == (2,)
    store.append([event(1)])
    copied = tmp_path / "copied"
    copied.mkdir()
    for name in ("a.db", "a.db-wal"):
        (copied / name).write_bytes((tmp_path / name).read_bytes())
    beside = Store(copied / "a.db")
    assert list(beside.read_events(1)) == [event(1)]
    beside.close()


def test_every_thread_reads_and_its_connection_ends_with_it(store: Store) -> None:
    """Export threads come and go for months: they must not leave anything open behind them."""
    store.append([event(1)])
    found: list[int] = []
    for _ in range(30):
        thread = threading.Thread(target=lambda: found.append(store.last_number(1)))
        thread.start()
        thread.join()
    assert found == [1] * 30
    assert len(store._connections) == 1
    if Path("/proc/self/fd").is_dir():
        links = [os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd") if _is_link(name)]
        assert links.count(str(store.path.resolve())) <= 3  # the store's own; and SQLite keeps one at hand for the next


def _is_link(name: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{name}")


# --- who may have it -----------------------------------------------------------------------------------------------


def test_a_second_server_is_refused_and_told_who_has_the_store(store: Store, tmp_path: Path) -> None:
    with rejects(error=StoreError, path=tmp_path / "a.db", code="in_use") as caught:
        Store(tmp_path / "a.db")
    assert f"(process {os.getpid()})" in caught.value.problem
    found = windvane("serve", "--port", "0", "--store", tmp_path / "a.db")
    assert found.returncode == 2
    assert found.stdout == ""
    assert found.stderr == f"windvane: error: {caught.value}\n"
    assert windvane("verify", "--store", tmp_path / "a.db").returncode == 0  # which only reads


def test_a_link_leads_to_the_same_lock(store: Store, tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "a.db")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "b.db").symlink_to(Path("..") / "link.db")
    (tmp_path / "folder").symlink_to(tmp_path)
    for other in ("link.db", "elsewhere/b.db", "folder/a.db", "elsewhere/../a.db"):
        with rejects(error=StoreError, path=tmp_path / "a.db", code="in_use"):
            Store(tmp_path / other)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_the_store_is_free_once_its_server_is_gone(tmp_path: Path, how: signal.Signals) -> None:
    server = served(tmp_path / "a.db")
    with rejects(error=StoreError, code="in_use") as caught:
        Store(tmp_path / "a.db")
    assert f"(process {server.pid})" in caught.value.problem
    if how == signal.SIGKILL:
        server.kill()
    else:
        server.stop()
    Store(tmp_path / "a.db").close()


def test_the_lock_touches_nothing(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "a.db.lock").symlink_to(tmp_path / "victim")
    os.mkfifo(tmp_path / "b.db.lock")
    (tmp_path / "c.db.lock").mkdir()
    for name in ("a.db", "b.db", "c.db"):
        with rejects(error=StoreError, path=tmp_path / name, code="unlockable"):
            Store(tmp_path / name)
    assert (tmp_path / "victim").read_text() == "precious"
    assert not list(tmp_path.glob("*.db"))


def test_beside_a_server_tokens_can_be_changed(store: Store, tmp_path: Path) -> None:
    beside = Store(tmp_path / "a.db", shared=True)
    assert beside.add_token(Token("shop", "h1", True, 1.0))
    assert not beside.add_token(Token("shop", "h2", True, 1.0))
    assert store.read_tokens() == [Token("shop", "h1", True, 1.0)]
    assert beside.remove_token("shop")
    assert not beside.remove_token("shop")
    beside.close()


# --- what is no store ----------------------------------------------------------------------------------------------


def test_a_store_is_made_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut off before any one of the statements that make a store, the next start makes it."""
    from windvane.service.store import database

    statements = database.SCHEMA.split(";")
    for count in range(len(statements) + 1):
        path = tmp_path / f"{count}.db"
        broken = ";".join([*statements[:count], "SELECT * FROM nowhere"])
        monkeypatch.setattr(database, "SCHEMA", broken)
        with rejects(error=StoreError, path=path, code="unreadable"):
            Store(path)
        monkeypatch.undo()
        made = Store(path)
        made.append([event(1)])
        made.close()


def test_two_that_make_a_store_at_once(tmp_path: Path) -> None:
    """A token is added while the server starts for the first time."""
    problems: list[Exception] = []

    def opened(number: int) -> None:
        try:
            beside = Store(tmp_path / "a.db", shared=True)
            beside.add_token(Token(f"t{number}", f"h{number}", True, 1.0))
            beside.close()
        except Exception as error:
            problems.append(error)

    threads = [threading.Thread(target=opened, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems
    made = Store(tmp_path / "a.db")
    assert len(made.read_tokens()) == 8
    made.close()


def test_a_file_of_something_else_is_left_as_it_is(tmp_path: Path) -> None:
    foreign = tmp_path / "contacts.db"
    with sqlite3.connect(foreign) as connection:
        connection.execute("CREATE TABLE contacts (name TEXT)")
        connection.execute("INSERT INTO contacts VALUES ('precious')")
    connection.close()
    (tmp_path / "letter.txt").write_text("dear store, " * 1000)
    (tmp_path / "folder.db").mkdir()
    for name, why in (
        ("contacts.db", "is an SQLite file of something else"),
        ("letter.txt", "cannot be used as a store (file is not a database)"),
        ("folder.db", "cannot be opened (it is not a plain file)"),
    ):
        before = None if (tmp_path / name).is_dir() else (tmp_path / name).read_bytes()
        for shared in (False, True):
            with pytest.raises(StoreError) as caught:
                Store(tmp_path / name, shared=shared)
            assert str(caught.value) == f"{tmp_path / name}: {why}"
        found = windvane("serve", "--port", "0", "--store", tmp_path / name)
        assert (found.returncode, found.stderr) == (2, f"windvane: error: {tmp_path / name}: {why}\n")
        assert before is None or (tmp_path / name).read_bytes() == before
        assert not (tmp_path / f"{name}-wal").exists()


def test_another_format_is_refused_by_number(tmp_path: Path) -> None:
    Store(tmp_path / "a.db").close()
    with sqlite3.connect(tmp_path / "a.db") as connection:
        write_row(connection, "meta", "format", "7")
    connection.close()
    with rejects(error=StoreError, path=tmp_path / "a.db", code="format") as caught:
        Store(tmp_path / "a.db")
    assert "7" in caught.value.problem
    assert str(FORMAT) in caught.value.problem
    with sqlite3.connect(tmp_path / "a.db") as connection:
        connection.execute("DELETE FROM meta")
    connection.close()
    store = Store(tmp_path / "a.db")  # it has the tables of a store, each to the letter: its settings are made again
    assert store.requires_token
    store.close()
    with sqlite3.connect(tmp_path / "a.db") as connection:
        connection.execute("DELETE FROM meta")
        connection.execute("ALTER TABLE events RENAME COLUMN kind TO sort")
    connection.close()
    with rejects(error=StoreError, path=tmp_path / "a.db", code="not_a_store"):
        Store(tmp_path / "a.db")


def test_places_where_nothing_can_be_written(tmp_path: Path) -> None:
    with rejects(error=StoreError, path=tmp_path / "missing" / "a.db", code="no_folder"):
        Store(tmp_path / "missing" / "a.db")
    closed = tmp_path / "closed"
    closed.mkdir()
    closed.chmod(0o500)
    if os.geteuid() == 0:  # whom nothing stops in a plain folder
        closed = Path("/sys/kernel")
    with rejects(error=StoreError, path=closed / "a.db", code="unlockable"):
        Store(closed / "a.db")


def test_what_is_only_read_is_not_made(tmp_path: Path) -> None:
    """A mistyped name is not an empty store in which all is well."""
    for line in (("verify",), ("token", "list"), ("token", "remove", "x")):
        found = windvane(*line, "--store", tmp_path / "typo.db")
        assert found.returncode == 2
        assert found.stderr.startswith(f"windvane: error: {tmp_path}/typo.db: ")
    with rejects(error=StoreError, path=tmp_path / "typo.db", code="no_store"):
        Store(tmp_path / "typo.db", shared=True, create=False)
    assert not list(tmp_path.iterdir())


# --- group commit --------------------------------------------------------------------------------------------------


class Slow:
    """A store whose disk is slow, or full."""

    def __init__(self) -> None:
        self.commits: list[list[int]] = []
        self.gate = threading.Event()
        self.full = False

    def append(self, events, snapshots=()) -> None:
        self.gate.wait(10)
        if self.full:
            raise sqlite3.OperationalError("database or disk is full")
        self.commits.append([one.number for one in events])


def test_one_flush_serves_all_that_gathered() -> None:
    async def scene() -> None:
        told: list[int] = []
        disk = Slow()
        committer = Committer(disk, told.append, lambda _: None)  # type: ignore[arg-type]
        first = committer.add([event(1)])
        await asyncio.sleep(0.05)  # its flush is under way
        others = [committer.add([event(number)]) for number in range(2, 30)]
        nothing = committer.add()
        assert not first.done()
        assert not any(promise.done() for promise in others)
        disk.gate.set()
        await asyncio.gather(first, *others, nothing)
        assert disk.commits == [[1], list(range(2, 30))]
        await committer.add()  # an answer that needs no event waits for those before it, and counts as no flush
        assert told == [1, 28]
        last = committer.add([event(30)])
        committer.close()
        await last
        assert disk.commits[-1] == [30]

    asyncio.run(scene())


def test_after_a_failed_commit_nothing_is_taken() -> None:
    async def scene() -> None:
        failures: list[Exception] = []
        disk = Slow()
        disk.full = True
        committer = Committer(disk, lambda _: None, failures.append)  # type: ignore[arg-type]
        first = committer.add([event(1)])
        await asyncio.sleep(0.05)
        second = committer.add([event(2)])  # gathered behind the one that fails
        disk.gate.set()
        for promise in (first, second):
            with pytest.raises(sqlite3.OperationalError):
                await promise
        disk.full = False
        with pytest.raises(sqlite3.OperationalError):
            await committer.add([event(3)])
        with pytest.raises(sqlite3.OperationalError):
            await committer.add()
        assert disk.commits == []
        assert len(failures) == 1
        committer.close()

    asyncio.run(scene())


# --- the engine ----------------------------------------------------------------------------------------------------


def running(store: Store, scene) -> None:
    """``scene(engine)``, with the engine started and stopped around it."""

    async def all_of_it() -> None:
        engine = Engine(store)
        await engine.start()
        try:
            await scene(engine)
        finally:
            await engine.stop()

    asyncio.run(all_of_it())


async def rounds(engine: Engine, count: int, name: str = "shop") -> None:
    stream = engine.stream(name)
    for i in range(count):
        made = stream.decide(RAW, f"k{stream.number}", time.time())
        given = stream.reward(json.loads(made.body)["decision"], float(i % 2), None, time.time())
        await engine.commit(stream, [*made.events, *given.events])


def test_only_events_after_the_snapshot_are_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the log, a restart replays no more than one snapshot's distance."""
    monkeypatch.setattr(snapshots, "SNAPSHOT_EVENTS", 50)
    monkeypatch.setattr(snapshots, "SNAPSHOT_SHARE", 1e9)

    async def scene(engine: Engine) -> None:
        await engine.create(NewStream(name="shop", dim=2))
        await rounds(engine, 190)
        assert store.last_number(1) == 380
        assert store.read_snapshot_number(1) > 380 - 100  # one may be on its way

    running(store, scene)
    assert store.read_snapshot_number(1) == 380  # the last word of an orderly stop
    read: list[int] = []
    events = store.read_events
    monkeypatch.setattr(store, "read_events", lambda *a, **k: (read.append(e.number) or e for e in events(*a, **k)))  # type: ignore[func-returns-value]
    (row,) = store.read_streams()
    quick = whole(rebuilt(row, store))
    assert read == []
    assert quick == whole(rebuilt(row, store, from_start=True))
    assert read == list(range(1, 381))


def test_many_crashes_in_a_row_do_not_add_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every life is shorter than a snapshot's distance; together they are longer."""
    monkeypatch.setattr(snapshots, "SNAPSHOT_EVENTS", 50)
    from serving import Local

    first = Local(tmp_path / "a.db")
    first.create()
    first.crash()
    for _ in range(4):
        life = Local(tmp_path / "a.db")
        for _ in range(30):
            life.decide()
        life.crash()
    store = Store(tmp_path / "a.db")
    assert store.last_number(1) == 120
    assert store.last_number(1) - store.read_snapshot_number(1) < 50
    (row,) = store.read_streams()
    assert whole(rebuilt(row, store)) == whole(rebuilt(row, store, from_start=True))
    store.close()


def test_large_snapshots_are_rarer(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not more than a share of the time goes into them."""
    monkeypatch.setattr(snapshots, "SNAPSHOT_EVENTS", 2)
    monkeypatch.setattr(snapshots, "SNAPSHOT_SHARE", 1e-6)

    async def scene(engine: Engine) -> None:
        await engine.create(NewStream(name="shop", dim=2))
        await rounds(engine, 20)
        while store.read_snapshot_number(1) == 0:
            await asyncio.sleep(0.01)
        first = store.read_snapshot_number(1)
        await rounds(engine, 20)
        await asyncio.sleep(0.1)
        assert store.read_snapshot_number(1) == first

    running(store, scene)


def test_a_snapshot_beyond_the_log_is_not_believed(tmp_path: Path) -> None:
    with local(tmp_path / "a.db") as service:
        service.create()
        for _ in range(5):
            service.decide()
    with sqlite3.connect(tmp_path / "a.db") as connection:
        connection.execute("DELETE FROM events WHERE id % 1024 > 3")
    connection.close()
    with local(tmp_path / "a.db") as service:
        assert (
            "its log ends at event 3, before its snapshot of event 5"
            in service.get("/v1/streams").json()["broken"]["shop"]
        )
    assert windvane("verify", "--store", tmp_path / "a.db").returncode == 1


def test_a_snapshot_that_cannot_be_read_is_not_needed(tmp_path: Path) -> None:
    with local(tmp_path / "a.db") as service:
        service.create()
        for _ in range(5):
            service.decide()
        before = service.state()
    for damage in (
        "agent = x'00'",
        "extra = '{'",
        "extra = '{}'",
        "extra = CAST(x'ff' AS TEXT)",
        "extra = CAST(replace(extra, 'null', '1') AS BLOB)",
        "agent = substr(agent, 1, 500)",
    ):
        with sqlite3.connect(tmp_path / "a.db") as connection:
            connection.execute(f"UPDATE snapshots SET {damage}")
        connection.close()
        with local(tmp_path / "a.db") as service:
            assert service.state() == before


OTHER = """CAST(replace(outcome, '"index":', '"index":7') AS BLOB)"""  # a place that was not offered


def test_a_stream_whose_log_the_code_does_not_follow_is_not_served(tmp_path: Path) -> None:
    """Rather no stream than one with a state that nobody can account for; but the others are."""
    with local(tmp_path / "a.db") as service:
        service.create()
        service.create("other")
        for _ in range(4):
            service.decide()
    changes = {  # by the change, and whether the checksums are made to match it: what is said
        (f"UPDATE events SET outcome = {OTHER} WHERE id % 1024 = 2", False): "event 2: does not match its checksum",
        (f"UPDATE events SET outcome = {OTHER} WHERE id % 1024 = 2", True): "event 2: cannot be replayed",
        ("DELETE FROM events WHERE id % 1024 = 2", False): "event 3: follows event 1",
        ("UPDATE events SET outcome = x'7b' WHERE id % 1024 = 3", False): "event 3: does not match its checksum",
        ("UPDATE events SET outcome = x'7b' WHERE id % 1024 = 3", True): "event 3: cannot be replayed",
        ("UPDATE events SET kind = 10 WHERE id % 1024 = 4", False): "event 4: does not match its checksum",
        ("UPDATE events SET kind = 10 WHERE id % 1024 = 4", True): "event 4: is of no known kind",
        ("UPDATE streams SET config = '{}' WHERE name = 'shop'", False): "stream 'shop': its name and configuration",
        ("UPDATE streams SET config = '{}' WHERE name = 'shop'", True): "stream 'shop': cannot be created again",
    }
    for i, ((change, sealed), why) in enumerate(changes.items()):
        copy = tmp_path / f"{i}.db"
        copy.write_bytes((tmp_path / "a.db").read_bytes())
        edit(copy, change)
        edit(copy, "DELETE FROM snapshots")
        if sealed:
            reseal(copy)
        with local(copy) as service:
            found = service.get("/v1/streams").json()
            assert [stream["name"] for stream in found["streams"]] == ["other"]
            assert why in found["broken"]["shop"]
            answer = service.post("/v1/streams/shop/decide", ARMS)
            assert answer.status_code == 503
            assert why in answer.json()["error"]["message"]
            assert service.decide("other")["arm"]
            assert "windvane_broken_streams 1.0" in service.get("/metrics").text
        told = windvane("verify", "--json", "--store", copy)
        assert told.returncode == 1
        verdict = json.loads(told.stdout)
        assert not verdict["sound"]
        assert why in verdict["streams"][0]["problem"]


def test_a_file_that_is_damaged_all_over_costs_the_streams_in_it(tmp_path: Path) -> None:
    with local(tmp_path / "a.db") as service:
        service.create()
        service.post("/v1/streams/shop/decide/batch", {"items": [ARMS] * 300})
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # a log that was left behind would repair the pages
    content = bytearray((tmp_path / "a.db").read_bytes())
    for page in range(5, len(content) // 4096):  # all but the settings and the row of the stream
        content[page * 4096 : page * 4096 + 8] = b"\xff" * 8
    (tmp_path / "a.db").write_bytes(content)
    found = windvane("verify", "--store", tmp_path / "a.db")
    assert found.returncode == 1
    assert re.search("Page [0-9]+: btreeInitPage", found.stdout)
    assert re.search(r"^shop .*cannot be read \(database disk image is malformed\)", found.stdout, re.M)
    assert found.stderr == ""
    with local(tmp_path / "a.db") as service:
        assert service.get("/v1/streams").status_code == 401  # whether there were tokens cannot be told any more
        service.store.remove_all_tokens()
        until(lambda: service.get("/v1/streams").status_code == 200)
        assert "event 300: follows event 0" in service.get("/v1/streams").json()["broken"]["shop"]
        service.create("new")
        assert service.decide("new")["arm"]
        assert service.post("/v1/streams/shop/decide", ARMS).status_code == 503
    assert (tmp_path / "a.db.damaged-1").read_bytes() == content


def test_verify_sees_a_snapshot_that_is_not_what_the_log_says(tmp_path: Path) -> None:
    with local(tmp_path / "a.db") as service:
        service.create()
        service.decide()
    assert windvane("verify", "--store", tmp_path / "a.db").returncode == 0
    store = Store(tmp_path / "a.db")
    stream = rebuilt(store.read_streams()[0], store)
    stream.title = "mine"
    store.append([], [(stream.id, stream.snapshot())])
    store.close()
    found = windvane("verify", "--store", tmp_path / "a.db")
    assert found.returncode == 1
    assert "the state differs from a replay of the log" in found.stdout


def test_an_operation_that_breaks_off_leaves_no_gap(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault of the code, in the middle: its events are lost, so the stream goes back to what is on disk."""

    async def scene(engine: Engine) -> None:
        await engine.create(NewStream(name="shop", dim=2, wait="1h"))
        stream = engine.stream("shop")
        await engine.commit(stream, stream.decide(RAW, None, time.time()).events)
        before, kept = whole(stream), engine.stream("shop")
        with monkeypatch.context() as patch:
            patch.setattr(stream.agent.policy, "select", lambda *_: 1 / 0)
            with pytest.raises(ServiceError) as caught, engine.operating(stream):
                stream.decide(RAW, None, time.time() + 7200.0)  # expires the first, and then fails
        assert caught.value.status == 500
        assert "division" not in caught.value.message
        assert stream.number == 2  # the expiry, which is lost
        with rejects(error=ServiceError, status=503, code="unavailable"):
            engine.stream("shop")
        while engine.failure is not None:
            await asyncio.sleep(0.01)
        again = engine.stream("shop")
        assert again is not kept
        assert whole(again) == before
        with rejects(error=ServiceError, status=503, code="unavailable"):  # from before: no longer the stream
            await engine.commit(kept, [])
        await engine.commit(again, again.decide(RAW, None, time.time() + 7200.0).events)
        assert whole(again) == whole(rebuilt(store.read_streams()[0], store, from_start=True))

    running(store, scene)


def test_waits_are_looked_at_whatever_happens(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """One look that fails does not end them."""
    monkeypatch.setattr(engines, "TICK", 0.01)

    async def scene(engine: Engine) -> None:
        await engine.create(NewStream(name="shop", dim=2, wait="50ms"))
        stream = engine.stream("shop")
        await engine.commit(stream, stream.decide(RAW, None, time.time()).events)
        monkeypatch.setattr(stream, "expire", lambda _: 1 / 0)
        while engine.streams["shop"].agent.expired == 0:
            await asyncio.sleep(0.01)
        assert engine.streams["shop"] is not stream

    running(store, scene)
    assert [one.kind for one in store.read_events(1)] == [DECIDED, EXPIRED]


def test_a_snapshot_that_fails_loses_no_event(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "SNAPSHOT_EVENTS", 1)

    async def scene(engine: Engine) -> None:
        await engine.create(NewStream(name="shop", dim=2))
        stream = engine.stream("shop")
        with monkeypatch.context() as patch:
            patch.setattr(stream, "copied", lambda: 1 / 0)
            await engine.commit(stream, stream.decide(RAW, None, time.time()).events)
            await asyncio.sleep(0.1)
        assert store.last_number(1) == 1

    running(store, scene)


def test_serve_imports_nothing_heavy_that_it_does_not_need() -> None:
    """It should start at once: libraries for tables, figures and clusters are not loaded."""
    script = (
        "import sys, windvane.cli.app, windvane.service.server; print(*sorted({m.split('.')[0] for m in sys.modules}))"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    heavy = {"pyarrow", "plotly", "matplotlib", "pandas", "polars", "dask", "distributed", "joblib"}
    assert not heavy & set(found.stdout.split())


def test_a_server_that_is_told_to_stop_leaves_nothing_to_replay(tmp_path: Path) -> None:
    server = served(tmp_path / "a.db")
    with server.client() as client:
        assert client.post("/v1/streams", json={"name": "shop", "dim": 2}).status_code == 201
        assert client.post("/v1/streams/shop/decide", json=ARMS).status_code == 200
    server.stop()
    store = Store(tmp_path / "a.db")
    assert store.read_snapshot_number(1) == store.last_number(1) == 1
    store.close()
    assert not (tmp_path / "a.db-wal").exists()


def test_the_address_is_told_when_it_answers(tmp_path: Path) -> None:
    """A port that is taken is one line; the first line on stdout is an address that answers."""
    server = served(tmp_path / "a.db")
    port = server.address.rpartition(":")[2]
    with server.client() as client:
        assert client.get("/readyz").json() == {"status": "ready"}
    found = windvane("serve", "--store", tmp_path / "b.db", "--port", port)
    assert found.returncode == 2
    assert found.stderr.startswith("windvane: error: `port` ")
    assert f"127.0.0.1, got {port}; Address already in use\n" in found.stderr
    server.stop()
    assert until(lambda: not Path(f"/proc/{server.pid}").exists())
    assert command("serve")[1:3] == ["-m", "windvane.cli"]


def test_a_store_is_its_owner_s_alone(tmp_path: Path) -> None:
    Store(tmp_path / "a.db").close()
    assert (tmp_path / "a.db").stat().st_mode & 0o777 == 0o600


def test_a_store_with_two_names_is_refused(tmp_path: Path) -> None:
    """Each name would have a log of its own beside it, and one of them would be lost."""
    store = Store(tmp_path / "a.db")
    os.link(tmp_path / "a.db", tmp_path / "b.db")
    with rejects(error=StoreError, path=tmp_path / "b.db") as caught:
        Store(tmp_path / "b.db")
    assert caught.value.code in ("hard_links", "in_use")
    store.close()
    with rejects(error=StoreError, path=tmp_path / "a.db", code="hard_links"):
        Store(tmp_path / "a.db")
    (tmp_path / "b.db").unlink()
    Store(tmp_path / "a.db").close()


def test_names_that_sqlite_would_read_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("file:a.db", ":memory:", "a?mode=ro.db", "a%20b.db", "a b.db"):
        store = Store(name)
        store.append([event(1)])
        store.close()
        assert (tmp_path / name).is_file()
        again = Store(name)
        assert again.last_number(1) == 1
        again.close()


def test_an_empty_file_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "a.db").touch()
    assert "there is no such store" in windvane("verify", "--store", tmp_path / "a.db").stderr
    assert (tmp_path / "a.db").stat().st_size == 0


def test_a_store_that_is_moved_away_is_not_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "TICK", 0.02)
    monkeypatch.setattr(engines, "RETRY", 0.02)
    with local(tmp_path / "a.db") as service:
        service.create()
        service.decide()
        (tmp_path / "elsewhere").mkdir()
        for name in ("a.db", "a.db-wal", "a.db-shm"):
            (tmp_path / name).rename(tmp_path / "elsewhere" / name)
        until(lambda: service.get("/readyz").status_code == 503)
        assert service.post("/v1/streams/shop/decide", ARMS).status_code == 503
        assert not (tmp_path / "a.db").exists()  # nothing is made in its place
        for name in ("a.db", "a.db-wal", "a.db-shm"):
            (tmp_path / "elsewhere" / name).rename(tmp_path / name)
        until(lambda: service.get("/readyz").status_code == 200)
        service.decide()
        assert [one["kind"] for one in service.log()] == ["decided", "decided"]


def test_replay_goes_by_the_log_where_it_would_choose_otherwise(tmp_path: Path) -> None:
    """Another version, or another processor, may differ in the last bit, and so in an arm. What was done was done."""
    with local(tmp_path / "a.db") as service:
        service.create()
        first = service.decide()
        service.reward(first["decision"], 1.0)
        second = service.decide()
    with sqlite3.connect(tmp_path / "a.db") as connection:
        place = (first["index"] + 1) % 3
        arm = list(ARMS["arms"])[place]
        change = {"index": place, "arm": arm, "preferred": arm}
        ((outcome,),) = connection.execute("SELECT outcome FROM events WHERE id % 1024 = 1")
        altered = json.dumps(json.loads(outcome) | change).encode()
        connection.execute("UPDATE events SET outcome = ? WHERE id % 1024 = 1", (altered,))
        connection.execute("DELETE FROM snapshots")
    connection.close()
    reseal(tmp_path / "a.db")
    store = Store(tmp_path / "a.db")
    stream = rebuilt(store.read_streams()[0], store)
    assert stream.differences >= 1
    expected = Agent(dim=2, seed=0)
    expected.replay(place, ARMS["arms"], now=first["time"], id="a")
    expected.reward("a", 1.0)
    expected.replay(second["index"], ARMS["arms"], now=second["time"])
    np.testing.assert_array_equal(stream.agent.theta, expected.theta)
    store.close()
    found = windvane("verify", "--store", tmp_path / "a.db")
    assert found.returncode == 1
    assert "other arms would be chosen now" in found.stdout


def test_another_seed_for_every_stream(tmp_path: Path) -> None:
    """Or all that randomize would do so in the same rounds."""
    with local(tmp_path / "a.db") as service:
        for name in ("one", "two"):
            assert service.post("/v1/streams", {"name": name, "dim": 2}).status_code == 201
        seeds = [service.get(f"/v1/streams/{name}").json()["config"]["seed"] for name in ("one", "two")]
        assert len(set(seeds)) == 2


class SlowStream(int):
    """The number of a stream whose comparison lets another thread go ahead."""

    def __gt__(self, other: int) -> bool:
        time.sleep(0.1)
        return int(self) > other


def test_marks_are_written_by_two_threads(tmp_path: Path) -> None:
    """The highest stream is not forgotten: its id would be used again."""
    marks = Marks(tmp_path / "a.db", "0" * 32)
    slow = threading.Thread(target=marks.write, args=({SlowStream(20): 1},))
    slow.start()
    time.sleep(0.03)
    marks.write({30: 1})
    slow.join()
    assert marks.highest == 30
    marks.close()
