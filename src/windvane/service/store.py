"""The store: an SQLite file in WAL mode that holds streams, their events, their last snapshots, and access tokens.

Events are only ever appended. An event is durable when :meth:`Store.append` returns (``synchronous=FULL``: the log is
flushed to disk with every commit). One process has the store at a time: by locks on ``FILE.lock`` and on the file,
which the system releases however that process ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
import stat
import sys
import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from windvane.service.events import Event

FORMAT = 1
_PATIENCE = 30.0  # seconds to wait for another process, such as one that adds a token
_AT_ONCE = 64  # rows of one statement: each statement gives up the interpreter, and waits to get it back
_STREAM = 1 << 40  # an event's rowid is stream * _STREAM + number: events of a stream lie together, in order
_SCHEMA = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE streams (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, created REAL NOT NULL, config TEXT NOT NULL);
CREATE TABLE events (
    id INTEGER PRIMARY KEY, time REAL NOT NULL, kind INTEGER NOT NULL, decision TEXT, key TEXT, body BLOB NOT NULL
);
CREATE INDEX by_decision ON events (decision, id) WHERE decision IS NOT NULL;
CREATE INDEX by_key ON events (key, id) WHERE key IS NOT NULL;
CREATE TABLE snapshots (stream INTEGER PRIMARY KEY, number INTEGER NOT NULL, agent BLOB NOT NULL, extra TEXT NOT NULL);
CREATE TABLE tokens (
    name TEXT PRIMARY KEY, hash TEXT NOT NULL UNIQUE, full INTEGER NOT NULL, created REAL NOT NULL
);
"""


class StoreError(Exception):
    """The store cannot be used; the message says why and what to do."""


class StreamRow(NamedTuple):
    id: int
    name: str
    created: float
    config: str


class Snapshot(NamedTuple):
    """A stream after its event ``number``. Both parts tell by themselves whether they are whole."""

    number: int
    agent: bytes
    extra: bytes


class Token(NamedTuple):
    name: str
    hash: str
    full: bool
    created: float


class Store:
    """See the module. Reading and writing may happen in any thread; of events, in one at a time."""

    def __init__(self, path: str | Path, *, shared: bool = False, create: bool = True) -> None:
        """``shared``: beside the server that has the store, to read it or to change tokens. ``create``: a store that is
        not there is made."""
        self.path = Path(path)
        if not self.path.parent.is_dir():
            raise StoreError(f"{self.path}: the folder {self.path.parent} does not exist")
        if not create and not (self.path.is_file() and self.path.stat().st_size):
            raise StoreError(f"{self.path}: there is no such store")
        self._real = self.path.resolve()  # a store reached through a link is still one store
        self._lock = None if shared else _locked(self._real.with_name(self._real.name + ".lock"), self.path)
        self._file: int | None = None  # the file itself, open to the end: to know it again
        self._local = threading.local()
        self._connections: weakref.WeakSet[_Own] = weakref.WeakSet()
        self._guard = threading.Lock()
        try:
            self._prepare()
        except BaseException:
            self.close()
            raise

    def _prepare(self) -> None:
        """Look before anything is written: a file of something else stays as it is."""
        try:
            with contextlib.suppress(FileExistsError):  # contexts may be personal: the file is its owner's alone
                os.close(os.open(self._real, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            self._file = os.open(self._real, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            raise StoreError(f"{self.path}: cannot be opened ({error.strerror})") from None
        if not stat.S_ISREG(os.fstat(self._file).st_mode):
            raise StoreError(f"{self.path}: cannot be opened (it is not a plain file)")
        if self._lock is not None:
            if os.fstat(self._file).st_nlink > 1:
                raise StoreError(
                    f"{self.path}: has several names (hard links), and would have a log under each of them"
                )
            if sys.platform == "linux":  # elsewhere this lock and SQLite's own get in each other's way
                _lock_file(self._file, self.path)
        try:
            first = _connected(self._real)
            try:
                if not _tables(first):
                    first.execute("PRAGMA journal_mode=WAL")
                    _make(first)
                found = _format(first)
            finally:
                first.close()
        except sqlite3.Error as error:
            raise StoreError(f"{self.path}: cannot be used as a store ({error})") from None
        if found is None:
            raise StoreError(f"{self.path}: is an SQLite file of something else")
        if found != str(FORMAT):
            raise StoreError(f"{self.path}: is of format {found}; this version reads format {FORMAT}")

    @property
    def _connection(self) -> sqlite3.Connection:
        """This thread's own; it is closed when the thread ends."""
        found: _Own | None = getattr(self._local, "own", None)
        if found is None:
            self.check()
            found = self._local.own = _Own(self._real)
            with self._guard:
                self._connections.add(found)
        return found.connection

    def close(self) -> None:
        """Give the file back; another process may then have it."""
        with self._guard:
            for own in list(self._connections):
                own.connection.close()
            self._connections.clear()
        self._local = threading.local()
        for descriptor in (self._file, self._lock):  # in this order: SQLite's own locks end with the first
            if descriptor is not None:
                os.close(descriptor)
        self._file = self._lock = None

    def check(self) -> None:
        """Raises if the file is no longer where it was: what is written would not be found again."""
        try:
            there = self._file is not None and os.path.samestat(os.stat(self._real), os.fstat(self._file))
        except OSError:
            there = False
        if not there:
            raise sqlite3.OperationalError(f"{self.path}: was moved, removed or replaced")

    # --- events ----------------------------------------------------------------------------------------------------

    def append(self, events: Sequence[Event], snapshots: Iterable[tuple[int, Snapshot]] = ()) -> None:
        """All of ``events`` and, by stream, new ``snapshots``: durable when this returns, or none of them stored."""
        connection = self._connection
        rows = [(e.stream * _STREAM + e.number, e.time, e.kind, e.decision, e.key, e.body) for e in events]
        connection.execute("BEGIN IMMEDIATE")
        try:
            for i in range(0, len(rows), _AT_ONCE):
                some = rows[i : i + _AT_ONCE]
                places = ", ".join(["(?, ?, ?, ?, ?, ?)"] * len(some))
                connection.execute(f"INSERT INTO events VALUES {places}", list(chain.from_iterable(some)))
            for stream, snapshot in snapshots:
                connection.execute("INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?, ?)", (stream, *snapshot))
            connection.execute("COMMIT")
        except BaseException:
            self._local.own = None  # a new one next time: whatever became of this one, it holds nothing up
            connection.close()
            raise

    def events(self, stream: int, after: int = 0, limit: int = 1 << 62) -> Iterator[Event]:
        """Events with numbers above ``after``, in order."""
        rows = self._connection.execute(
            "SELECT * FROM events WHERE id > ? AND id < ? ORDER BY id LIMIT ?",
            (stream * _STREAM + after, (stream + 1) * _STREAM, limit),
        )
        return (_event(row) for row in rows)

    def of_decision(self, stream: int, decision: str) -> list[Event]:
        """All events of a decision, in order."""
        return self._found("decision", stream, decision)

    def of_key(self, stream: int, key: str) -> Event | None:
        """The event that a request with this key made."""
        return next(iter(self._found("key", stream, key)), None)

    def _found(self, column: str, stream: int, value: str) -> list[Event]:
        rows = self._connection.execute(
            f"SELECT * FROM events WHERE {column} = ? AND id > ? AND id < ? ORDER BY id",
            (value, stream * _STREAM, (stream + 1) * _STREAM),
        )
        return [_event(row) for row in rows]

    def last_number(self, stream: int) -> int:
        """The number of the last event, 0 if there is none."""
        low, high = stream * _STREAM, (stream + 1) * _STREAM
        ((found,),) = self._connection.execute("SELECT max(id) FROM events WHERE id > ? AND id < ?", (low, high))
        return 0 if found is None else int(found) - low

    def snapshot(self, stream: int) -> Snapshot | None:
        query = "SELECT number, agent, extra FROM snapshots WHERE stream = ?"
        row = self._connection.execute(query, (stream,)).fetchone()
        if row is None:
            return None
        number, agent, extra = row
        return Snapshot(number, agent, extra.encode() if isinstance(extra, str) else extra)

    def snapshot_number(self, stream: int) -> int:
        """The event up to which the stored snapshot goes, 0 if there is none."""
        row = self._connection.execute("SELECT number FROM snapshots WHERE stream = ?", (stream,)).fetchone()
        return 0 if row is None else int(row[0])

    def probe(self) -> None:
        """Write something that changes nothing; raises what a commit would raise."""
        self.check()
        with self._connection as connection:
            connection.execute("INSERT OR REPLACE INTO meta VALUES ('probe', '')")

    # --- streams and tokens ----------------------------------------------------------------------------------------

    def add_stream(self, name: str, created: float, config: str) -> StreamRow | None:
        """None if there is one of this name already."""
        try:
            cursor = self._connection.execute(
                "INSERT INTO streams (name, created, config) VALUES (?, ?, ?)", (name, created, config)
            )
        except sqlite3.IntegrityError:
            return None
        assert cursor.lastrowid is not None  # a row was inserted
        return StreamRow(cursor.lastrowid, name, created, config)

    def streams(self) -> list[StreamRow]:
        return [StreamRow(*row) for row in self._connection.execute("SELECT * FROM streams ORDER BY id")]

    def add_token(self, token: Token) -> bool:
        """False if there is one of this name already. From now on the store is guarded."""
        with self._guarding() as connection:
            return connection.execute("INSERT OR IGNORE INTO tokens VALUES (?, ?, ?, ?)", token).rowcount > 0

    @property
    def guarded(self) -> bool:
        """Whether there is or was a token; then nobody comes in without one."""
        row = self._connection.execute("SELECT value FROM meta WHERE name = 'guarded'").fetchone()
        return row is not None or bool(self.tokens())

    def open_to_all(self) -> None:
        """As if there had never been a token."""
        with self._changing() as connection:
            connection.execute("DELETE FROM tokens")
            connection.execute("DELETE FROM meta WHERE name = 'guarded'")

    def remove_token(self, name: str) -> bool:
        """False if there is none of this name. The store stays guarded."""
        with self._guarding() as connection:
            return connection.execute("DELETE FROM tokens WHERE name = ?", (name,)).rowcount > 0

    @contextlib.contextmanager
    def _guarding(self) -> Iterator[sqlite3.Connection]:
        """A change of tokens, and the mark that there are or were some: both or neither."""
        with self._changing() as connection:
            before = connection.total_changes
            yield connection
            if connection.total_changes > before:
                connection.execute("INSERT OR REPLACE INTO meta VALUES ('guarded', 'yes')")

    @contextlib.contextmanager
    def _changing(self) -> Iterator[sqlite3.Connection]:
        """All that is done in it, or nothing."""
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")

    def tokens(self) -> list[Token]:
        rows = self._connection.execute("SELECT * FROM tokens ORDER BY name")
        return [Token(name, digest, bool(full), created) for name, digest, full, created in rows]


class _Own:
    """A thread's connection, closed when nothing refers to it any more: at the latest when the thread has ended."""

    def __init__(self, path: Path) -> None:
        self.connection = _connected(path)
        self.connection.execute("PRAGMA journal_mode=WAL")
        self.connection.execute("PRAGMA synchronous=FULL")
        self.connection.execute("PRAGMA wal_autocheckpoint=4000")

    def __del__(self) -> None:
        if hasattr(self, "connection"):
            self.connection.close()


def _connected(path: Path) -> sqlite3.Connection:
    """To a file that is there: SQLite must not make one."""
    address = f"file:{quote(str(path))}?mode=rw"
    return sqlite3.connect(address, uri=True, timeout=_PATIENCE, check_same_thread=False, isolation_level=None)


def _tables(connection: sqlite3.Connection) -> set[str]:
    return {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}


def _make(connection: sqlite3.Connection) -> None:
    """The tables of a new store, all or none; another process may be doing the same."""
    connection.execute("BEGIN IMMEDIATE")
    if not _tables(connection):
        for statement in _SCHEMA.split(";"):
            connection.execute(statement)
        connection.execute("INSERT INTO meta VALUES ('format', ?)", (str(FORMAT),))
    connection.execute("COMMIT")


def _format(connection: sqlite3.Connection) -> str | None:
    """None if it is no store."""
    if not {"meta", "streams", "events", "snapshots", "tokens"} <= _tables(connection):
        return None
    row = connection.execute("SELECT * FROM meta WHERE name = 'format'").fetchone()
    return None if row is None else str(row[1])


def _event(row: tuple[Any, ...]) -> Event:
    return Event(row[0] // _STREAM, row[0] % _STREAM, *row[1:])


def _locked(path: Path, store: Path) -> int | None:
    """An open, locked file; it is left there, since removing it would let two processes lock two files."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    except OSError as error:
        raise StoreError(f"{store}: cannot be locked ({path.name}: {error.strerror})") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise StoreError(f"{store}: cannot be locked ({path.name} is not a plain file)")
    try:
        _lock_file(descriptor, store)
    except StoreError:
        os.close(descriptor)
        raise
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, str(os.getpid()).encode(), 0)
    return descriptor


def _lock_file(descriptor: int, store: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        holder = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip()
        who = f" (process {holder})" if holder.isdigit() else ""
        raise StoreError(f"{store}: another server has this store{who}; stop it, or take another store") from None
