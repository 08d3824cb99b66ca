"""The SQLite file behind a store: its tables, its rows, and checks for damage."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from windvane.service.store.migrations import FORMAT, SQLITE_TABLES, check_format
from windvane.service.store.records import READ_ERRORS, StoreError, Value, is_damage, is_sealed, seal_row, try_read

PAGE_BYTES = 4096  # fixed, so that the first page of every store has the same layout: see opening.py
BUSY_SECONDS = 30.0  # to wait for another process, such as one that adds a token
FILL_KIB = 1 << 16  # of memory while a new file is filled: entries of indexes come in any order, and pages change often
MOST_LINES = 20  # of SQLite's own check: enough to see the damage

TABLES = frozenset({"meta", "streams", "events", "snapshots", "tokens", "baselines"})
REQUIRED_META = ("format", "id", "guarded", "last_stream")


# --- files and connections -------------------------------------------------------------------------------------------


def connect(path: Path, mode: str = "rw") -> sqlite3.Connection:
    """Connect to an existing file. With mode "ro", not even closing the connection writes to it."""
    address = f"file:{quote(str(path))}?mode={mode}"
    connection = sqlite3.connect(address, BUSY_SECONDS, isolation_level=None, check_same_thread=False, uri=True)
    # Text that is not valid UTF-8 is decoded with replacement characters: it fails its checksum instead of the query.
    connection.text_factory = lambda text: text.decode("utf-8", "replace")
    return connection


def add_suffix(path: Path, suffix: str) -> Path:
    """Return the name of a file that belongs to the one at ``path``."""
    return path.with_name(path.name + suffix)


def create_private_file(path: Path) -> None:
    """Create an empty file that only its owner can read: contexts may be personal. It must not exist."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))


def give_to_folder_owner(path: Path) -> None:
    """Give a file that root has created to the owner of its folder: the service there could not open it otherwise."""
    if os.geteuid() == 0 and not path.is_symlink() and path.exists():
        folder = path.parent.stat()
        if folder.st_uid != 0 and path.lstat().st_uid == 0:
            os.chown(path, folder.st_uid, folder.st_gid, follow_symlinks=False)


def flush_folder(folder: Path) -> None:
    """Flush the names in a folder to disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_database(path: Path) -> None:
    """Remove a temporary database and the files that SQLite keeps beside it."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        add_suffix(path, suffix).unlink(missing_ok=True)


def may_be_damage(error: BaseException) -> bool:
    """Whether damage may have caused ``error``: for a table with a damaged name SQLite reports only "no such table"."""
    return is_damage(error) or getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_ERROR


# --- rows ------------------------------------------------------------------------------------------------------------


def insert_row(connection: sqlite3.Connection, table: str, row: Sequence[Any], on_conflict: str = "IGNORE") -> bool:
    """Insert a row unchanged; return whether it was written. ``on_conflict``: see SQLite's "INSERT OR"."""
    places = ", ".join("?" * len(row))
    return connection.execute(f"INSERT OR {on_conflict} INTO {table} VALUES ({places})", row).rowcount > 0


def write_row(connection: sqlite3.Connection, table: str, *values: Value) -> bool:
    """Insert a row with its checksum, or replace the row with the same name or id. Returns True."""
    return insert_row(connection, table, seal_row(table, *values), "REPLACE")


def read_meta(connection: sqlite3.Connection) -> dict[str, str]:
    """Return the settings by name whose checksums match."""
    rows = connection.execute("SELECT * FROM meta NOT INDEXED")
    return {row[0]: row[1] for row in rows if is_sealed("meta", row)}


# --- tables ----------------------------------------------------------------------------------------------------------


def create_tables(path: Path, fill: Callable[[sqlite3.Connection], None] = lambda _: None) -> None:
    """Create the tables of a store in an empty file, and call ``fill`` in the same transaction, which is on disk when
    this returns. If tables exist, do nothing: another process may have created them at the same time."""
    with closing(connect(path)) as connection:
        connection.execute(f"PRAGMA page_size={PAGE_BYTES}")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute(f"PRAGMA cache_size=-{FILL_KIB}")
        connection.execute("PRAGMA secure_delete=ON")  # what is erased later must not be left on a page from now
        connection.execute("BEGIN IMMEDIATE")
        if not read_schema(connection):
            for statement in SQLITE_TABLES[FORMAT].split(";"):
                connection.execute(statement)
            fill(connection)
        connection.execute("COMMIT")
        connection.execute("PRAGMA journal_mode=WAL")


def read_schema(connection: sqlite3.Connection) -> dict[str, Any]:
    """Return the SQL text of every table and index by name."""
    return dict(connection.execute("SELECT name, sql FROM sqlite_master"))


@cache
def _expected_schema(format_: int) -> dict[str, Any]:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(SQLITE_TABLES[format_])
        return read_schema(connection)


def find_changed_tables(connection: sqlite3.Connection, format_: int = FORMAT) -> list[str]:
    """Return the tables and indexes that are not those of a store of this format, to the letter."""
    schema = read_schema(connection)
    return [name for name, sql in _expected_schema(format_).items() if name not in schema or schema[name] != sql]


def match_tables(connection: sqlite3.Connection) -> int | None:
    """Return the format whose tables the file has, to the letter; None if there is none."""
    formats = sorted(SQLITE_TABLES, reverse=True)  # one may have all tables of an older one
    return next((format_ for format_ in formats if not find_changed_tables(connection, format_)), None)


def find_format(path: Path, connection: sqlite3.Connection) -> int | None:
    """Return the format of a store, which may be damaged, None for a file without tables; raise :class:`StoreError` if
    the file is no store, or one of a format that this version does not read."""
    names = read_schema(connection).keys()
    if not names:
        return None
    rows = try_read(_read_format, connection) or []
    if rows and is_sealed("meta", rows[0]):
        return check_format(path, rows[0][1])
    format_ = match_tables(connection)
    if format_ is None and rows and not TABLES - {"baselines"} - names:  # before 3 there were other checksums, or none
        check_format(path, str(rows[0][1]))
    if format_ is None and len(TABLES - names) == 1:
        return FORMAT  # one name that is missing may be damage; a file with two is something else
    if format_ is None:
        raise StoreError(path, "not_a_store", "is an SQLite file of another application")
    return format_


def _read_format(connection: sqlite3.Connection) -> list[Any]:
    return connection.execute("SELECT * FROM meta NOT INDEXED WHERE name = 'format'").fetchall()


def find_damage(connection: sqlite3.Connection, *, pages: bool = True) -> list[str]:
    """Return what is wrong with the structure of the file: its tables, its settings and, which takes long, all of its
    ``pages`` and indexes. All of it can be rebuilt from the rows that can be read."""
    problems: list[str] = []
    for find in (*([_check_pages] if pages else []), _check_schema, _check_meta):
        try:
            problems += find(connection)
        except READ_ERRORS as error:
            if not may_be_damage(error):  # the file is busy or unreachable
                raise
            problems.append(str(error))
    return list(dict.fromkeys(problems))  # a page that cannot be read is reported by each of them


def _check_pages(connection: sqlite3.Connection) -> list[str]:
    lines = [str(line) for (line,) in connection.execute(f"PRAGMA integrity_check({MOST_LINES})")]
    parts = [part for line in lines for part in line.splitlines() if not part.startswith("*** in database")]
    return [] if lines == ["ok"] else parts


def _check_schema(connection: sqlite3.Connection) -> list[str]:
    return [f"{name} is missing, or its definition was changed" for name in find_changed_tables(connection)]


def _check_meta(connection: sqlite3.Connection) -> list[str]:
    sound = read_meta(connection)
    return [
        f"the setting {name!r} is missing, or does not match its checksum"
        for name in REQUIRED_META
        if name not in sound
    ]
