"""Migrations: a store of an older format becomes one of the current format, bit for bit, whenever the process ends.

``data/format-3.db.gz`` is a store that an older version wrote, and ``data/format-3.json`` says what was in it.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import logging
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from support.refusals import rejects
from support.server import pack_stream, run_command, run_local
from support.stores import edit, query, recover_all, root_page, verify, zero_page
from windvane.service.backups import back_up, restore
from windvane.service.store import SqliteStore, StoreError, Token
from windvane.service.store import migrations as formats
from windvane.service.store.migrations import FORMAT, Migration, check_format, migrate_postgres
from windvane.service.store.records import is_sealed, seal_row
from windvane.service.store.sqlite import database, repair
from windvane.service.store.sqlite.database import write_row

DATA = Path(__file__).parents[2] / "data"
TABLES = ("streams", "events", "snapshots", "tokens")


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A store of format 3."""
    path = tmp_path / "a.db"
    path.write_bytes(gzip.decompress((DATA / "format-3.db.gz").read_bytes()))
    path.with_name("a.db.mark").write_bytes(bytes.fromhex(read_facts()["marks"]))
    return path


def read_facts() -> dict[str, Any]:
    return dict(json.loads((DATA / "format-3.json").read_text()))


def read_rows(path: Path) -> dict[str, list[Any]]:
    return {table: query(path, f"SELECT * FROM {table} ORDER BY rowid") for table in TABLES}


def list_files(path: Path) -> set[str]:
    sides = ("-shm", "-wal", "-journal", ".lock", ".mark")
    return {file.name for file in path.parent.glob(f"{path.name}*") if not file.name.endswith(sides)}


def check_migrated(path: Path) -> None:
    """A server opens the store: all that was in it is in the new one, and it verifies."""
    facts = read_facts()["streams"]
    with closing(SqliteStore(path)) as store:
        streams, unavailable = recover_all(store)
        assert not unavailable
        assert store.read_acknowledged() == {id_: fact["number"] for id_, fact in enumerate(facts.values(), 1)}
        assert [token.name for token in store.tokens.read()] == ["reader", "writer"]
        for name, fact in facts.items():
            assert (streams[name].number, streams[name].chain.hex()) == (fact["number"], fact["chain"])
            assert len(list(streams[name].core.pending())) == fact["pending"]
    report = verify(path)
    assert report.is_sound, report
    if not any(note.code == "rounding" for stream in report.streams for note in stream.notes):
        states = {name: hashlib.sha256(pack_stream(stream)).hexdigest() for name, stream in streams.items()}
        assert states == {name: fact["state"] for name, fact in facts.items()}
    settings = {row[0]: row[1] for row in query(path, "SELECT * FROM meta") if is_sealed("meta", row)}
    assert (settings["format"], settings["last_stream"], settings["guarded"]) == (str(FORMAT), "4", "yes")


def test_an_older_store_is_migrated_when_a_server_opens_it(old: Path, tmp_path: Path, caplog: Any) -> None:
    content, rows = old.read_bytes(), read_rows(old)
    with caplog.at_level(logging.INFO, "windvane.service"):
        check_migrated(old)
    assert "migrated from format 3" in caplog.text
    assert read_rows(old) == rows
    kept = tmp_path / "a.db.format-3"
    assert kept.read_bytes() == content
    assert list_files(old) == {"a.db", "a.db.format-3"}
    SqliteStore(tmp_path / "new.db").close()
    pages = "SELECT name, rootpage FROM sqlite_master"
    assert query(old, pages) == query(tmp_path / "new.db", pages)
    with closing(SqliteStore(old, shared=True)) as store:
        store.tokens.remove_all()
    with run_local(old) as service:  # which continues all streams
        service.decide("shop")
        assert service.create("new")["name"] == "new"
    assert query(old, "SELECT id FROM streams WHERE name = 'new'") == [(5,)]


def test_what_is_only_in_the_write_ahead_log(old: Path, tmp_path: Path) -> None:
    """The process that wrote it was killed."""
    crashed = tmp_path / "b.db"
    with closing(sqlite3.connect(old)) as connection:
        connection.execute("PRAGMA wal_autocheckpoint=0")
        write_row(connection, "tokens", "later", "hash", 1, 2.0)
        connection.commit()
        for suffix in ("", "-wal"):
            crashed.with_name(f"b.db{suffix}").write_bytes(old.with_name(f"a.db{suffix}").read_bytes())
    content = {suffix: crashed.with_name(f"b.db{suffix}").read_bytes() for suffix in ("", "-wal")}
    with closing(SqliteStore(crashed)) as store:
        assert [token.name for token in store.tokens.read()] == ["later", "reader", "writer"]
    assert {suffix: (tmp_path / f"b.db.format-3{suffix}").read_bytes() for suffix in content} == content


def test_an_old_file_is_not_overwritten(old: Path, tmp_path: Path) -> None:
    content = old.read_bytes()
    (tmp_path / "a.db.format-3").write_text("precious")
    check_migrated(old)
    assert (tmp_path / "a.db.format-3").read_text() == "precious"
    assert (tmp_path / "a.db.format-3-2").read_bytes() == content


def test_commands_leave_an_older_store_alone(old: Path) -> None:
    content = old.read_bytes()
    for line in (("verify",), ("token", "list"), ("token", "add", "x")):
        result = run_command(*line, "--store", old)
        assert (result.returncode, result.stdout) == (2, "")
        assert result.stderr == f"windvane: error: {old}: has format 3; `windvane serve` migrates it\n"
    assert (old.read_bytes(), list_files(old)) == (content, {"a.db"})


# --- bad days --------------------------------------------------------------------------------------------------------


def run_until(steps: int, work: Callable[[], None], patch: pytest.MonkeyPatch) -> bool:
    """Do ``work`` in a process that ends, as if it was killed, before its step number ``steps``: a row, a rename, or a
    flush. Return whether it was ended."""
    left = [steps]

    def end_at(function: Any) -> Any:
        def count(*arguments: Any, **options: Any) -> Any:
            left[0] -= 1
            if left[0] < 0:
                os._exit(9)
            return function(*arguments, **options)

        return count

    if (pid := os.fork()) == 0:
        try:
            patch.setattr(database, "insert_row", end_at(database.insert_row))  # of settings
            patch.setattr(repair, "insert_row", end_at(repair.insert_row))
            patch.setattr(repair, "create_tables", end_at(repair.create_tables))
            patch.setattr(repair, "flush_folder", end_at(repair.flush_folder))
            patch.setattr(os, "rename", end_at(os.rename))
            work()
            os._exit(0)
        finally:
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code in (0, 9)
    return code == 9


def test_a_process_that_is_killed_at_any_moment_of_a_migration(
    old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It leaves the old store or the new one, and the next start has all of it."""
    content, marks = old.read_bytes(), old.with_name("a.db.mark").read_bytes()
    seen, steps = set(), 0
    while True:
        for file in tmp_path.iterdir():
            file.unlink()
        old.write_bytes(content)
        old.with_name("a.db.mark").write_bytes(marks)
        (tmp_path / "a.db-wal").write_bytes(b"")
        is_killed = run_until(steps, lambda: SqliteStore(old).close(), monkeypatch)
        seen.add(frozenset(list_files(old)))
        if steps % 20 == 0 or list_files(old) != {"a.db", "a.db.repairing"}:  # most are alike
            check_migrated(old)
            assert list_files(old) == {"a.db", "a.db.format-3"}
            assert (tmp_path / "a.db.format-3").read_bytes() == content
        if not is_killed:
            break
        steps += 1
    assert steps > 50
    assert seen >= {
        frozenset({"a.db", "a.db.repairing"}),
        frozenset({"a.db", "a.db.repaired"}),
        frozenset({"a.db.repaired", "a.db.format-3"}),
        frozenset({"a.db", "a.db.format-3"}),
    }


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), sqlite3.OperationalError("disk is full")])
def test_a_migration_that_fails_leaves_the_store(old: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    content = old.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(repair, "create_tables", Mock(side_effect=error))
        with rejects(error=StoreError, where=old, code="not_migrated") as caught:
            SqliteStore(old)
        assert "disk is full" in caught.value.problem or "No space" in caught.value.problem
    assert (old.read_bytes(), list_files(old)) == (content, {"a.db"})
    check_migrated(old)


@pytest.mark.parametrize("table", ["", "meta", "events_by_key", "sqlite_autoindex_streams_1"])
def test_a_damaged_store_is_migrated_and_repaired_at_once(old: Path, table: str) -> None:
    """Where everything can be found elsewhere; the first page, which lists the tables, is the same in all stores."""
    content = old.read_bytes()
    old.write_bytes(zero_page(content, root_page(old, table) if table else 1))
    check_migrated(old)


def test_a_damaged_event_costs_its_stream(old: Path) -> None:
    edit(old, "UPDATE events SET outcome = x'00' WHERE id % 1000 = ?", (2 * (1 << 40) + 3) % 1000)
    with closing(SqliteStore(old)) as store:
        assert set(recover_all(store)[1]) == {"fields"}


# --- backups ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["copy", "move"])
def test_copying_streams_migrates_nothing_unasked(old: Path, verb: str) -> None:
    """Neither the source nor the target; the message says which commands do, and the copy of a backup is enough."""
    content, new = old.read_bytes(), old.with_name("new.db")
    for line in ((old, new), (new, old)):
        if new in line[:1]:
            SqliteStore(new).close()
        result = run_command("streams", verb, *line)
        assert (result.returncode, result.stdout) == (2, "")
        (message,) = result.stderr.splitlines()
        assert message.startswith(
            f"windvane: error: {old}: has format 3; `windvane serve` migrates it and keeps the old"
        )
        assert "`windvane backup`" in message
        assert old.read_bytes() == content
        assert list_files(old) == {"a.db"}
    assert run_command("backup", "--store", old, "--to", old.with_name("b.db")).returncode == 0
    result = run_command("streams", verb, old.with_name("b.db"), new, "--json")
    assert [stream["stream"] for stream in json.loads(result.stdout)["streams"]] == list(read_facts()["streams"])
    assert old.read_bytes() == content


def test_an_older_backup_is_migrated_when_it_is_restored(old: Path, tmp_path: Path) -> None:
    content, target = old.read_bytes(), tmp_path / "restored.db"
    report = restore(old, target)
    assert report.verification.is_sound
    assert (old.read_bytes(), list_files(old)) == (content, {"a.db"})
    assert list_files(target) == {"restored.db"}
    assert query(target, "SELECT value FROM meta WHERE name = 'format'") == [(str(FORMAT),)]
    assert read_rows(target) == read_rows(old)
    check_restored = restore(old, target, replace=True)
    assert check_restored.replaced == tmp_path / "restored.db.replaced-1"


def test_an_older_store_is_backed_up_in_the_current_format(old: Path, tmp_path: Path) -> None:
    content, target = old.read_bytes(), tmp_path / "backup.db"
    assert back_up(old, target).verification.is_sound
    assert (old.read_bytes(), list_files(old)) == (content, {"a.db"})
    assert list_files(target) == {"backup.db"}
    assert verify(target).is_sound
    assert read_rows(target) == read_rows(old)


# --- formats ---------------------------------------------------------------------------------------------------------


def test_formats_are_refused_by_name() -> None:
    assert [check_format("a.db", str(number)) for number in (3, FORMAT)] == [3, FORMAT]
    newer, older = f"has format {FORMAT + 1}, which a newer version of windvane wrote", "which an older version"
    for value, oldest, problem in (
        (str(FORMAT + 1), 3, f"{newer}; this version reads formats up to {FORMAT}"),
        ("2", 3, f"has format 2, {older} of windvane wrote; this version reads formats from 3 to {FORMAT}"),
        ("3", 4, f"has format 3, {older} of windvane wrote; this version reads formats from 4 to {FORMAT}"),
        ("x", 3, "has format 'x', which is unknown"),
    ):
        with rejects(error=StoreError, code="format", problem=problem):
            check_format("a.db", value, oldest)


def test_every_format_has_its_tables_and_a_migration() -> None:
    assert sorted(formats.SQLITE_TABLES) == list(range(formats.OLDEST_SQLITE, FORMAT + 1))
    assert [migration.format for migration in formats.MIGRATIONS] == list(range(formats.OLDEST_SQLITE + 1, FORMAT + 1))
    for number in range(formats.OLDEST_SQLITE, FORMAT):  # a damaged first page is replaced by that of a new store
        assert formats.SQLITE_TABLES[number + 1].startswith(formats.SQLITE_TABLES[number])


def test_rows_are_converted(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def shout(table: str, row: Any) -> Any:
        return seal_row("tokens", row[0].upper(), *row[1:-1]) if table == "tokens" else row

    monkeypatch.setattr(formats, "MIGRATIONS", (Migration(4, "names are loud", convert=shout),))
    with closing(SqliteStore(old)) as store:
        assert [token.name for token in store.tokens.read()] == ["READER", "WRITER"]
        assert store.tokens.add(Token("new", "h", True, 1.0))


def test_postgresql_is_migrated_by_statements(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of all formats in between, and the format itself."""
    monkeypatch.setattr(formats, "FORMAT", 6)
    more = [Migration(5, "a", ["ALTER 1", "ALTER 2"]), Migration(6, "b", ["ALTER 3"])]
    monkeypatch.setattr(formats, "MIGRATIONS", (*formats.MIGRATIONS, *more))
    connection = Mock()
    migrate_postgres(connection, 4)
    *statements, last = [call.args for call in connection.execute.call_args_list]
    assert statements == [("ALTER 1",), ("ALTER 2",), ("ALTER 3",)]
    value, digest, name = last[1]
    assert is_sealed("meta", (name, value, digest))
    assert (name, value) == ("format", "6")
