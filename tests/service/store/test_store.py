"""The stores by themselves: what is stored when, who may open a store, and what is refused.

Tests with ``any_store`` run over SQLite and PostgreSQL; those about files concern SQLite.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from support.refusals import rejects
from support.server import run_command
from support.stores import build, copy_store, edit, query, root_page, serve_copy, verify
from windvane.service.store import (
    LATE,
    STORE_ERRORS,
    DamageError,
    Event,
    Snapshot,
    SqliteStore,
    Store,
    StoreError,
    Token,
    is_damage,
    open_store,
)
from windvane.service.store.migrations import FORMAT, SQLITE_TABLES
from windvane.service.store.opening import is_postgres
from windvane.service.store.sqlite import store_file as store_module
from windvane.service.store.sqlite.database import PAGE_BYTES, write_row


def event(number: int, stream: int = 1, decision: str | None = None, key: str | None = None) -> Event:
    return Event(stream, number, 10.0 + number, LATE, decision, key, b'{"value":0.5}')


# --- events and streams ----------------------------------------------------------------------------------------------


def test_what_is_appended_is_read_back(any_store: Store, place: str | Path) -> None:
    events = [event(1, decision="d"), event(2, key="k"), event(3, decision="d", key="l")]
    others = [event(1, stream=2, decision="d", key="k")]
    snapshot = Snapshot(3, b"chain", b"agent", b"{}")
    any_store.append([*events, *others], [(1, snapshot)])
    any_store.close()
    with closing(open_store(place)) as again:
        assert list(again.read_events(1)) == events
        assert list(again.read_events(1, after=1, limit=1)) == events[1:2]
        assert list(again.read_events(2)) == others
        assert again.find_events(decisions=[(1, "d")]) == [events[0], events[2]]
        found = [again.find_events([where]) for where in ((1, "k"), (2, "k"), (1, "x"))]
        assert found == [[events[1]], [others[0]], []]
        assert [again.last_number(stream) for stream in (1, 2, 3)] == [3, 1, 0]
        assert [again.read_snapshot(stream) for stream in (1, 2)] == [snapshot, None]


def test_streams_do_not_run_into_each_other(any_store: Store) -> None:
    """The last number that a stream can have, beside the first of the next."""
    last = event((1 << 40) - 1)
    any_store.append([last, event(1, stream=2)])
    assert list(any_store.read_events(1)) == [last]
    assert [each.number for each in any_store.read_events(2)] == [1]
    assert any_store.last_number(1) == last.number


def test_an_append_is_stored_whole_or_not_at_all(any_store: Store) -> None:
    any_store.append([event(1)])
    with pytest.raises(STORE_ERRORS):
        any_store.append([event(2), event(3), event(1)], [(1, Snapshot(3, b"", b"x", b"{}"))])
    assert [each.number for each in any_store.read_events(1)] == [1]
    assert any_store.read_snapshot(1) is None
    any_store.append([event(2)])  # the failure is not in the way
    assert any_store.last_number(1) == 2


def test_every_commit_is_flushed(store: SqliteStore, tmp_path: Path) -> None:
    """What makes it durable: WAL, and a flush of it with every commit (2: FULL)."""
    assert store.connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert store.connection.execute("PRAGMA synchronous").fetchone() == (2,)
    store.append([event(1)])
    with closing(SqliteStore(copy_store(tmp_path / "a.db", tmp_path / "b.db"))) as copy:
        assert list(copy.read_events(1)) == [event(1)]


def test_a_log_that_a_reader_made_large_is_cut_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or an alert about its size would never end."""
    limit, log = 50_000, tmp_path / "a.db-wal"
    settings = [f"{setting.partition('=')[0]}={limit}" for setting in store_module.SETTINGS if "size_limit" in setting]
    monkeypatch.setattr(store_module, "SETTINGS", ["journal_mode=WAL", "wal_autocheckpoint=4", *settings])
    with closing(SqliteStore(tmp_path / "a.db")) as store, closing(sqlite3.connect(tmp_path / "a.db")) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM events").fetchall()
        for number in range(1, 30):
            store.append([event(number)])
        assert log.stat().st_size > limit
        reader.rollback()
        for number in range(30, 33):
            store.append([event(number)])
        assert log.stat().st_size <= limit


def test_every_thread_reads_and_its_connection_ends_with_it(store: SqliteStore) -> None:
    """Export threads come and go for months: they must not leave anything open behind them."""
    store.append([event(1)])
    numbers: list[int] = []
    for _ in range(30):
        thread = threading.Thread(target=lambda: numbers.append(store.last_number(1)))
        thread.start()
        thread.join()
    assert numbers == [1] * 30
    descriptors = Path("/proc/self/fd")
    if descriptors.is_dir():
        links = [os.path.realpath(descriptors / name) for name in os.listdir(descriptors)]
        assert links.count(str(store.path)) <= 3  # the store's own; and SQLite keeps one at hand for the next


def test_an_index_that_points_to_other_rows_is_not_believed(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.append([event(1, decision="first", key="k"), event(2, decision="other", key="l")])
    store.close()
    content, start = store.path.read_bytes(), (root_page(store.path, "events_by_decision") - 1) * PAGE_BYTES
    page = content[start : start + PAGE_BYTES].replace(b"first", b"other")
    store.path.write_bytes(content[:start] + page + content[start + PAGE_BYTES :])
    monkeypatch.setattr(store_module, "CHECKED_AT_START", 0)  # or it would be repaired
    with closing(SqliteStore(store.path)) as again:
        assert again.find_events([(1, "k")]) == [event(1, decision="first", key="k")]
        with pytest.raises(DamageError) as caught:
            again.find_events(decisions=[(1, "other")])
        assert is_damage(caught.value)


def test_a_stream_is_added_once_and_no_id_is_used_again(any_store: Store, place: str | Path) -> None:
    row = any_store.add_stream("shop", 1, "{}")
    assert row is not None
    assert row.is_sound
    assert any_store.add_stream("shop", 2.0, "{}") is None
    assert any_store.read_streams() == [row]
    edit(place, "DELETE FROM streams")
    again = any_store.add_stream("shop", 3.0, "{}")
    assert again is not None
    assert again.id == 2  # the mark of the stream that was lost, or the sequence, is still there


def test_events_are_found_in_bulk(any_store: Store) -> None:
    events = [event(1, key="k", decision="d"), event(2, decision="d"), event(3, key="l"), event(1, stream=2, key="k")]
    any_store.append(events)
    assert any_store.find_events() == []
    assert any_store.find_events([(1, "k"), (2, "k"), (2, "l"), (3, "k")]) == [events[0], events[3]]
    assert any_store.find_events([(1, "k"), (1, "l")], [(1, "d"), (2, "d")]) == events[:3]
    assert any_store.find_events((), [(1, "d"), (1, "d")]) == events[:2]


def test_streams_are_found_by_name(any_store: Store) -> None:
    rows = [any_store.add_stream(name, 1.5, '{"a": "Å"}') for name in ("shop", "Shop", "über 🛒")]
    assert [any_store.find_stream(row.name) for row in rows if row] == rows
    assert any_store.find_stream("shops") is None


def test_a_read_transaction_sees_no_later_commit(any_store: Store) -> None:
    """Events are committed by another thread."""
    any_store.append([event(1)])

    def append(number: int) -> None:
        thread = threading.Thread(target=any_store.append, args=([event(number)],))
        thread.start()
        thread.join()

    with any_store.read_transaction():
        assert any_store.last_number(1) == 1
        append(2)
        assert any_store.last_number(1) == 1
        assert len(list(any_store.read_events(1))) == 1
    assert any_store.last_number(1) == 2
    with pytest.raises(ZeroDivisionError), any_store.read_transaction():
        raise ZeroDivisionError
    append(3)
    assert any_store.last_number(1) == 3


def test_a_server_makes_the_same_of_what_was_stored(place: str | Path) -> None:
    facts = build(place)
    assert verify(place).is_sound
    assert serve_copy(place, facts).is_intact


# --- tokens ----------------------------------------------------------------------------------------------------------


def test_tokens(any_store: Store, place: str | Path) -> None:
    """They may be changed beside a server. Once there has been one, a token is needed."""
    assert not any_store.tokens.are_required
    with closing(open_store(place, shared=True)) as beside:
        assert beside.tokens.add(Token("shop", "h1", True, 1))
        assert not beside.tokens.add(Token("shop", "h2", True, 1.0))
        assert any_store.tokens.read() == [Token("shop", "h1", True, 1.0)]
        assert any_store.tokens.are_required
        assert beside.tokens.remove("shop")
        assert not beside.tokens.remove("shop")
        assert (any_store.tokens.read(), any_store.tokens.are_required) == ([], True)
        beside.tokens.remove_all()
        assert not any_store.tokens.are_required


@pytest.mark.parametrize("change", ["FULL = 1", "hash = 'h2'", "created = 2.0", "FULL = 'x'", "digest = ?"])
def test_a_changed_token_is_not_accepted(any_store: Store, place: str | Path, change: str) -> None:
    """A flipped flag does not turn a token that may only read into a full one."""
    for name in ("reader", "writer"):
        any_store.tokens.add(Token(name, name, name == "writer", 1.0))
    if is_postgres(place):
        change = change.replace("FULL", "full_rights").replace("'x'", "2")  # columns have types there
    edit(place, f"UPDATE tokens SET {change} WHERE name = 'reader'", *[b"\0"] * change.count("?"))
    assert [token.name for token in any_store.tokens.read()] == ["writer"]
    assert any_store.tokens.read_damaged() == ["reader"]
    assert any_store.tokens.remove("reader")
    assert any_store.tokens.add(Token("reader", "reader", False, 1.0))
    assert any_store.tokens.read_damaged() == []


@pytest.mark.parametrize("change", ["DELETE FROM meta", "UPDATE meta SET value = 'no'"])
def test_access_fails_closed(any_store: Store, place: str | Path, change: str) -> None:
    """Whether tokens are needed is not known any more: they are, also after a repair."""
    any_store.tokens.add(Token("shop", "h", True, 1.0))
    edit(place, "DELETE FROM tokens")
    edit(place, f"{change} WHERE name = 'guarded'")
    assert any_store.tokens.are_required
    any_store.close()
    with closing(open_store(place)) as again:
        assert again.tokens.are_required


# --- who may open it -------------------------------------------------------------------------------------------------


def test_links_lead_to_the_same_lock(store: SqliteStore, tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "a.db")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "b.db").symlink_to(Path("..") / "link.db")
    (tmp_path / "folder").symlink_to(tmp_path)
    for name in ("a.db", "link.db", "elsewhere/b.db", "folder/a.db", "elsewhere/../a.db"):
        with rejects(error=StoreError, where=tmp_path / "a.db", code="in_use") as caught:
            SqliteStore(tmp_path / name)
        assert f"(process {os.getpid()})" in caught.value.problem
    if sys.platform == "linux":
        (tmp_path / "a.db.lock").rename(tmp_path / "b.db.lock")  # as if the file were mounted in another folder
        with rejects(error=StoreError, where=tmp_path / "a.db", code="in_use"):
            SqliteStore(tmp_path / "a.db")


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_store_is_free_once_its_process_is_gone(tmp_path: Path, how: signal.Signals) -> None:
    script = f"""from windvane.service.store import SqliteStore
store = SqliteStore({str(tmp_path / "a.db")!r})
print(1, flush=True)
input()"""
    process = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"1\n"
    with rejects(error=StoreError, code="in_use") as caught:
        SqliteStore(tmp_path / "a.db")
    assert f"(process {process.pid})" in caught.value.problem
    process.send_signal(how)
    process.communicate()
    SqliteStore(tmp_path / "a.db").close()


def test_a_lock_that_is_no_plain_file_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "a.db.lock").symlink_to(tmp_path / "victim")
    os.mkfifo(tmp_path / "b.db.lock")
    (tmp_path / "c.db.lock").mkdir()
    for name in ("a.db", "b.db", "c.db"):
        with rejects(error=StoreError, where=tmp_path / name, code="unlockable"):
            SqliteStore(tmp_path / name)
    assert (tmp_path / "victim").read_text() == "precious"
    assert not list(tmp_path.glob("*.db"))


def test_a_store_with_two_names_is_refused(store: SqliteStore, tmp_path: Path) -> None:
    """Each name would have a log of its own beside it, and one of them would be lost."""
    os.link(tmp_path / "a.db", tmp_path / "b.db")
    with rejects(error=StoreError, where=tmp_path / "b.db", code="hard_links"):
        SqliteStore(tmp_path / "b.db")
    store.close()
    with rejects(error=StoreError, where=tmp_path / "a.db", code="hard_links"):
        SqliteStore(tmp_path / "a.db")
    (tmp_path / "b.db").unlink()
    SqliteStore(tmp_path / "a.db").close()


@pytest.mark.parametrize("shared", [False, True])
def test_only_its_owner_can_read_a_store(tmp_path: Path, shared: bool) -> None:
    SqliteStore(tmp_path / "a.db").close()
    assert stat.S_IMODE((tmp_path / "a.db").stat().st_mode) == 0o600
    (tmp_path / "a.db").chmod(0o644)  # as after a restored backup
    with closing(SqliteStore(tmp_path / "a.db", shared=shared)) as store:
        store.tokens.add(Token("t", "h", True, 1.0))
        for path in tmp_path.glob("a.db*"):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


def test_a_store_that_is_moved_away_is_not_written_to(store: SqliteStore, tmp_path: Path) -> None:
    names = ("a.db", "a.db-wal", "a.db-shm")
    store.append([event(1)])
    (tmp_path / "elsewhere").mkdir()
    for name in names:
        (tmp_path / name).rename(tmp_path / "elsewhere" / name)
    for use in (store.check_in_place, store.check_writable, lambda: store.add_stream("a", 1.0, "{}"), store.repair):
        with pytest.raises(STORE_ERRORS):
            use()
    assert not list(tmp_path.glob("a.db.damaged*"))
    assert not (tmp_path / "a.db").exists()  # nothing is created in its place
    for name in names:
        (tmp_path / "elsewhere" / name).rename(tmp_path / name)
    store.check_writable()
    store.append([event(2)])
    assert store.last_number(1) == 2


# --- what is created, and what is refused ----------------------------------------------------------------------------


def test_a_store_is_created_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut off before any one of the statements that create a store, the next start creates it."""
    statements = SQLITE_TABLES[FORMAT].split(";")
    for count in range(len(statements) + 1):
        path = tmp_path / f"{count}.db"
        with monkeypatch.context() as patch:
            patch.setitem(SQLITE_TABLES, FORMAT, ";".join([*statements[:count], "SELECT * FROM nowhere"]))
            with rejects(error=StoreError, where=path, code="unreadable"):
                SqliteStore(path)
        with closing(SqliteStore(path)) as store:
            store.append([event(1)])


def test_processes_that_create_a_store_at_once(place: str | Path) -> None:
    """Tokens are added while the server starts for the first time."""
    errors: list[Exception] = []

    def add_token(number: int) -> None:
        try:
            with closing(open_store(place, shared=True)) as beside:
                beside.tokens.add(Token(f"t{number}", f"h{number}", True, 1.0))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=add_token, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    with closing(open_store(place)) as store:
        assert len(store.tokens.read()) == 8


def test_a_file_of_something_else_is_left_as_it_is(tmp_path: Path) -> None:
    sqlite3.connect(tmp_path / "contacts.db").close()
    edit(tmp_path / "contacts.db", "CREATE TABLE contacts (name TEXT)")
    (tmp_path / "letter.txt").write_text("dear store, " * 1000)
    (tmp_path / "folder.db").mkdir()
    os.mkfifo(tmp_path / "pipe.db")
    cases = {"contacts.db": "not_a_store"} | dict.fromkeys(("letter.txt", "folder.db", "pipe.db"), "unreadable")
    for name, code in cases.items():
        path = tmp_path / name
        before = path.read_bytes() if path.is_file() else None
        for shared in (False, True):
            with rejects(error=StoreError, where=path, code=code):
                SqliteStore(path, shared=shared)
        assert before is None or path.read_bytes() == before
        assert not (tmp_path / f"{name}-wal").exists()


@pytest.mark.parametrize("stated", ["1", "2", "7"])
def test_other_formats_are_refused_by_number(tmp_path: Path, stated: str) -> None:
    path = tmp_path / "a.db"
    SqliteStore(path).close()
    if stated == "1":  # which had no checksums
        edit(path, "DROP TABLE meta")
        edit(path, "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL)")
        edit(path, "INSERT INTO meta VALUES ('format', '1')")
    elif stated == "2":  # which had other checksums, and other names of indexes
        edit(path, "UPDATE meta SET value = '2', digest = x'00' WHERE name = 'format'")
        edit(path, "DROP INDEX events_by_key")
        edit(path, "CREATE INDEX by_key ON events (key, id) WHERE key IS NOT NULL")
    else:
        with closing(sqlite3.connect(path)) as connection, connection:
            write_row(connection, "meta", "format", stated)
    content = path.read_bytes()
    for options in ({}, {"shared": True}, {"shared": True, "read_only": True}):
        with rejects(error=StoreError, where=path, code="format") as caught:
            SqliteStore(path, **options)
        assert stated in caught.value.problem
        assert str(FORMAT) in caught.value.problem
    assert path.read_bytes() == content


def test_a_store_without_settings_is_known_by_its_tables(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    SqliteStore(path).close()
    edit(path, "DELETE FROM meta")
    with closing(
        SqliteStore(path)
    ) as store:  # all tables are those of a store, to the letter: its settings are made again
        assert store.tokens.are_required
    edit(path, "DELETE FROM meta")
    edit(path, "ALTER TABLE events RENAME COLUMN kind TO sort")
    with rejects(error=StoreError, where=path, code="not_a_store"):
        SqliteStore(path)


def test_places_where_nothing_can_be_written(tmp_path: Path) -> None:
    with rejects(error=StoreError, where=tmp_path / "missing" / "a.db", code="no_folder"):
        SqliteStore(tmp_path / "missing" / "a.db")
    closed = tmp_path / "closed"
    closed.mkdir()
    closed.chmod(0o500)
    if os.geteuid() == 0:  # whom nothing stops in a plain folder
        closed = Path("/sys/kernel")
    with rejects(error=StoreError, where=closed / "a.db", code="unlockable"):
        SqliteStore(closed / "a.db")


@pytest.mark.parametrize("is_empty", [False, True])
def test_what_is_only_read_is_not_created(tmp_path: Path, is_empty: bool) -> None:
    """A mistyped name is not an empty store in which all is well."""
    path = tmp_path / "typo.db"
    if is_empty:
        path.touch()
    for line in (("verify",), ("token", "list"), ("token", "remove", "x")):
        result = run_command(*line, "--store", path)
        assert (result.returncode, result.stdout) == (2, "")
        assert result.stderr.startswith(f"windvane: error: {path}: ")
    with rejects(error=StoreError, where=path, code="no_store"):
        SqliteStore(path, shared=True, create=False)
    assert [file.stat().st_size for file in tmp_path.iterdir()] == [0] * is_empty


def test_names_that_sqlite_would_read_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("file:a.db", ":memory:", "a?mode=ro.db", "a%20b.db", "a b.db"):
        with closing(SqliteStore(name)) as store:
            store.append([event(1)])
        assert (tmp_path / name).is_file()
        assert query(tmp_path / name, "SELECT count(*) FROM events") == [(1,)]
