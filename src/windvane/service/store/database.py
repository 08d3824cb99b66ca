"""The SQLite file behind a store: its tables, how it is opened, and what kind of file it is."""

from __future__ import annotations

import enum
import os
import sqlite3
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from windvane.errors import WindvaneError
from windvane.service.store.chain import digest_row, start_chain
from windvane.service.store.events import Event

FORMAT = 3
PAGE_BYTES = 4096  # fixed, so that the first page of every store is laid out alike: see salvage.py
STREAM_SPAN = 1 << 40
"""An event's rowid is stream * STREAM_SPAN + number: the events of a stream lie together, in order."""
MOST_STREAMS = (1 << 63) // STREAM_SPAN - 1  # the ids whose events all have a rowid, which is a signed 64-bit number
PATIENCE = 30.0  # seconds to wait for another process, such as one that adds a token

SCHEMA = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL, digest BLOB NOT NULL);
CREATE TABLE streams (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, created REAL NOT NULL, config TEXT NOT NULL, digest BLOB NOT NULL
);
CREATE TABLE events (
    id INTEGER PRIMARY KEY, time REAL NOT NULL, kind INTEGER NOT NULL, decision TEXT, key TEXT, outcome BLOB NOT NULL,
    request BLOB, salt BLOB, request_digest BLOB, chain BLOB NOT NULL
);
CREATE INDEX by_decision ON events (decision, id) WHERE decision IS NOT NULL;
CREATE INDEX by_key ON events (key, id) WHERE key IS NOT NULL;
CREATE TABLE snapshots (
    stream INTEGER PRIMARY KEY, number INTEGER NOT NULL, chain BLOB NOT NULL, agent BLOB NOT NULL, extra BLOB NOT NULL,
    digest BLOB NOT NULL
);
CREATE TABLE tokens (
    name TEXT PRIMARY KEY, hash TEXT NOT NULL UNIQUE, full INTEGER NOT NULL, created REAL NOT NULL, digest BLOB NOT NULL
);
"""
TABLES = frozenset({"meta", "streams", "events", "snapshots", "tokens"})


class StoreError(WindvaneError):
    """The store at ``path`` cannot be used. ``problem`` says why and what to do.

    ``code`` is one of "no_folder", "no_store", "in_use", "unlockable", "unreadable", "not_a_store", "format",
    "hard_links", "repairing", "repair_failed" and "damaged".
    """

    def __init__(self, path: Path, code: str, problem: str) -> None:
        self.path, self.code, self.problem = path, code, problem
        super().__init__(f"{path}: {problem}")


class DamageError(WindvaneError, sqlite3.DatabaseError):
    """The file contradicts itself: a page, an index or a row was changed from outside."""


class SnapshotError(WindvaneError, ValueError):
    """A snapshot that was changed, or does not belong to the log."""


READ_ERRORS = (sqlite3.DatabaseError, UnicodeDecodeError)
"""What reading a damaged file raises. Names of columns are decoded by Python's own module, which may fail."""


class FileKind(enum.Enum):
    """What a file is, judged by its tables and its format."""

    EMPTY = enum.auto()
    FOREIGN = enum.auto()
    OTHER_FORMAT = enum.auto()
    CURRENT = enum.auto()
    DAMAGED = enum.auto()


class StreamRow(NamedTuple):
    """A stream as it was created. ``digest`` is also where its chain of events starts."""

    id: int
    name: str
    created: float
    config: str
    digest: bytes = b""


class Snapshot(NamedTuple):
    """A stream after its event ``number``, whose chain value is ``chain``."""

    number: int
    agent: bytes
    extra: bytes
    chain: bytes = b""


class Token(NamedTuple):
    name: str
    hash: str
    full: bool
    created: float


def add_suffix(path: Path, suffix: str) -> Path:
    """Return the name of a file that belongs to the one at ``path``."""
    return path.with_name(path.name + suffix)


def create_private_file(path: Path) -> None:
    """Create an empty file that only its owner can read: contexts may be personal. It must not exist."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def connect(path: Path, mode: str = "rw") -> sqlite3.Connection:
    """Connect to an existing file. With mode "ro", not even closing the connection writes to it."""
    address = f"file:{quote(str(path))}?mode={mode}"
    connection = sqlite3.connect(address, uri=True, timeout=PATIENCE, check_same_thread=False, isolation_level=None)
    # Text that is not valid UTF-8 is decoded with replacement characters: it fails its checksum instead of the query.
    connection.text_factory = _decode
    return connection


def _decode(text: bytes) -> str:
    return text.decode("utf-8", "replace")


def is_damage(error: BaseException) -> bool:
    """Whether ``error`` says that the file is damaged, and not merely busy, full or out of reach."""
    if isinstance(error, DamageError | UnicodeDecodeError):
        return True
    code = getattr(error, "sqlite_errorcode", None)
    primary = None if code is None else code & 0xFF  # extended codes keep the primary one in the low byte
    return primary in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def is_foreign(error: BaseException) -> bool:
    """Whether ``error`` says that the file is no database at all."""
    return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_NOTADB


def create_tables(connection: sqlite3.Connection) -> None:
    """Create the tables of a store, in the transaction of the caller."""
    for statement in SCHEMA.split(";"):
        connection.execute(statement)


def read_schema(connection: sqlite3.Connection) -> dict[str, Any]:
    """Return the SQL text of every table and index by name."""
    return dict(connection.execute("SELECT name, sql FROM sqlite_master"))


@cache
def expected_schema() -> dict[str, Any]:
    """Return what :func:`read_schema` returns for a sound store."""
    connection = sqlite3.connect(":memory:")
    try:
        create_tables(connection)
        return read_schema(connection)
    finally:
        connection.close()


def identify(connection: sqlite3.Connection) -> tuple[FileKind, str]:
    """Return what kind of file it is, and the format that it states."""
    names = read_schema(connection).keys()
    if not names:
        return FileKind.EMPTY, ""
    if not names >= TABLES:  # one name that is missing may be damage; a file with two missing is somebody else's
        return FileKind.DAMAGED if len(TABLES - names) == 1 else FileKind.FOREIGN, ""
    rows = connection.execute("SELECT * FROM meta NOT INDEXED").fetchall()
    if not rows:
        return _judge_without_format(connection), ""
    if len(rows[0]) == 2:  # without a column of digests
        stated = dict(rows).get("format")
        if stated is None:
            return _judge_without_format(connection), ""
        return FileKind.OTHER_FORMAT, str(stated)
    stated = read_meta(connection).get("format")
    if stated is None:
        return FileKind.DAMAGED, ""
    return (FileKind.CURRENT if stated == str(FORMAT) else FileKind.OTHER_FORMAT), stated


def identify_by_schema(connection: sqlite3.Connection) -> FileKind | None:
    """Return the kind of a store whose settings cannot be read, judged by its tables; None if it is no store."""
    return FileKind.CURRENT if read_schema(connection).items() >= expected_schema().items() else None


def _judge_without_format(connection: sqlite3.Connection) -> FileKind:
    return FileKind.FOREIGN if identify_by_schema(connection) is None else FileKind.DAMAGED


def read_meta(connection: sqlite3.Connection) -> dict[str, str]:
    """Return the values by name whose digests match."""
    rows = connection.execute("SELECT name, value, digest FROM meta NOT INDEXED")
    return {name: value for name, value, digest in rows if digest == digest_row("meta", name, value)}


def write_meta(connection: sqlite3.Connection, name: str, value: str) -> None:
    row = (name, value, digest_row("meta", name, value))
    connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?, ?)", row)


def is_sound(row: StreamRow) -> bool:
    """Whether the row of a stream matches its checksum."""
    try:
        return row.digest == start_chain(row.id, row.name, row.created, row.config)
    except (TypeError, ValueError, AttributeError):
        return False


def digest_token(token: Token) -> bytes:
    return digest_row("token", token.name, token.hash, int(token.full), float(token.created))


def digest_snapshot(stream: int, snapshot: Snapshot) -> bytes:
    return digest_row("snapshot", stream, snapshot.number, snapshot.chain, snapshot.agent, snapshot.extra)


def read_event(row: tuple[Any, ...]) -> Event:
    """Return a row of the table of events as an event."""
    return Event(row[0] // STREAM_SPAN, row[0] % STREAM_SPAN, *row[1:])
