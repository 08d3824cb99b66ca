"""The store: an SQLite file in WAL mode that holds streams, their events, their last snapshots, and access tokens.

Events are only ever appended. An event is durable when :meth:`Store.append` returns (``synchronous=FULL``: the log is
flushed to disk with every commit). A damaged store is rebuilt when it is opened; see
:mod:`windvane.service.store.sqlite.repair`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import sqlite3
import threading
import weakref
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import filelock

from windvane.service.store.events import STREAM_SPAN, Event
from windvane.service.store.records import (
    STORE_ERRORS,
    DamageError,
    MisplacedError,
    Snapshot,
    SnapshotError,
    StoreError,
    StreamRow,
    Token,
    is_sealed,
    seal_row,
)
from windvane.service.store.sqlite.database import (
    add_suffix,
    connect,
    find_damage,
    insert_row,
    read_meta,
    remove_database,
    write_row,
)
from windvane.service.store.sqlite.marks import Marks, has_streams, marks_path, read_marks
from windvane.service.store.sqlite.opening import create_store, is_empty, lock_store, open_file, restrict_access
from windvane.service.store.sqlite.repair import BUILDING, COMPLETED, finish_swap, is_repairing, rebuild

CHECKED_AT_START = 64 << 20
"""Bytes up to which a store is checked before it is served. Measured with the file in the page cache, SQLite's check
takes 1.6 s for a million events of 145 bytes, the smallest there are, and 2.6 s for a million of 1,100 bytes (d = 10,
20 arms): at least 90 MB a second, so that this many bytes take less than a second."""
_ROWS = 64  # events per statement: each statement releases the GIL and waits to get it back
_COLUMNS = 10  # of an event
SETTINGS = (
    "journal_mode=WAL",
    "synchronous=FULL",
    "wal_autocheckpoint=4000",  # pages: the write-ahead log has about 16 MiB
    "journal_size_limit=67108864",  # one that a long reader has made larger is cut to this many bytes afterwards
)
SERVER_BUSY_MS = 2000
"""That a server waits for the lock of another process: less than until a disk counts as stalled (3 s), so that a held
lock is reported as such. Commands take it for milliseconds, and wait longer themselves."""

log = logging.getLogger("windvane.service")


class SqliteStore:
    """A store in a file. Any thread may use it; events are written by one thread at a time.

    Parameters
    ----------
    path
        The file.
    shared
        Open without the lock, beside a running server, to read or to change tokens. Nothing is repaired.
    create
        Create a store that does not exist.
    read_only
        Write nothing, not even on close. Needs ``shared``.

    Attributes
    ----------
    path : Path
        The file, with links resolved: a store and a link to it are the same store. ``name`` is the same as a string.
    is_checked : bool
        Whether the structure of the file has been checked.
    """

    is_remote = False

    def __init__(self, path: str | Path, *, shared: bool = False, create: bool = True, read_only: bool = False) -> None:
        self.path = Path(path).resolve()
        self.name = self._location = str(self.path)  # a string: every request asks for it
        if not self.path.parent.is_dir():
            raise StoreError(Path(path), "no_folder", f"the folder {Path(path).parent} does not exist")
        has_content = self.path.is_file() and self.path.stat().st_size > 0
        if not has_content and not add_suffix(self.path, COMPLETED).exists():
            if not create:
                raise StoreError(self.path, "no_store", "the store does not exist")
            if has_streams(self.path):  # an empty store would pass for the one that is gone
                file = marks_path(self.path).name
                problem = (
                    f"is gone, and {file} shows that it had streams; restore a backup, or remove {file} to begin anew"
                )
                raise StoreError(self.path, "gone", problem)
        self.is_checked = False
        self._mode = "ro" if read_only else "rw"
        self._file: int | None = None  # the file itself, open to the end: nothing else gets its number
        self._identity: tuple[int, int] | None = None  # its device and number
        self._marks: Marks | None = None
        self._local, self._generation = threading.local(), 0  # how often the file was replaced
        self._connections: weakref.WeakSet[_ThreadConnection] = weakref.WeakSet()
        self._writing = threading.Lock()  # held while events are written: no connection is closed meanwhile
        self._lock: filelock.BaseFileLock | None = None if shared else lock_store(self.path)
        try:
            self._open()
        except BaseException as error:
            self.close()
            if isinstance(error, (*STORE_ERRORS, UnicodeDecodeError)):
                raise StoreError(self.path, "unreadable", f"cannot be used as a store ({error})") from None
            raise

    # --- the file --------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        is_exclusive = self._lock is not None
        if is_exclusive:
            finish_swap(self.path)
            remove_database(add_suffix(self.path, BUILDING))  # of a repair that was interrupted before it was complete
        elif add_suffix(self.path, COMPLETED).exists():
            raise StoreError(self.path, "repairing", "a repair was interrupted; `windvane serve` finishes it")
        self._hold_file(lock=is_exclusive)
        if is_empty(self.path, exclusive=is_exclusive, read_only=self._mode == "ro"):
            create_store(self.path)
        if self._mode == "rw":
            restrict_access(self.path)
        if is_exclusive:
            self.repair(pages=self.path.stat().st_size <= CHECKED_AT_START)

    def find_damage(self, *, pages: bool = True) -> list[str]:
        """Return the problems with the structure of the file: the tables, the settings and, if ``pages``, all pages and
        indexes, which takes long."""
        with contextlib.closing(connect(self.path, "ro")) as connection:
            problems = find_damage(connection, pages=pages)
        self.is_checked = self.is_checked or pages  # not if it raised: then nothing is known
        return problems

    def repair(self, *, pages: bool = True) -> list[str]:
        """Check the structure of the file, and rebuild it if it is damaged; return the problems.

        Nothing may be written meanwhile. Threads that are reading keep reading the old file.
        """
        self.drop_connection()
        if self._file is None:  # an earlier attempt failed
            finish_swap(self.path)
            self._hold_file(lock=True)
        problems = self.find_damage(pages=pages)
        if problems:
            log.error("%s: is damaged (%s); repairing it", self.path, problems[0])
            self._close_file()
            try:
                rebuild(self.path)
            except StoreError:
                raise
            except Exception as error:  # a damaged file may hold anything: whatever it causes becomes one error
                problem = f"is damaged ({problems[0]}); repairing it failed ({error})"
                raise StoreError(self.path, "repair_failed", problem) from error
            self._generation += 1  # no thread uses its connection to the old file again
            self._hold_file(lock=True)
            self.is_checked = True
        if self._marks is None:
            self._marks = Marks(self.path, read_meta(self.connection)["id"])
        return problems

    def check_in_place(self) -> None:
        """Raise :class:`MisplacedError` if the file is no longer where it was."""
        try:
            status = os.stat(self._location)
            identity = status.st_dev, status.st_ino
        except OSError:
            identity = None
        if identity is None or identity != self._identity:
            raise MisplacedError(f"{self.path}: was moved, removed or replaced")

    def _refuse_if_repairing(self) -> None:
        """Raise if another process may be repairing the store: a change could be lost or undone."""
        if self._lock is None and is_repairing(self.path):
            problem = "is being repaired; try again when the server is ready, or has been started again"
            raise StoreError(self.path, "repairing", problem)

    @property
    def connection(self) -> sqlite3.Connection:
        """This thread's own connection; it is closed when the thread ends."""
        own: _ThreadConnection | None = getattr(self._local, "own", None)
        if own is None or own.generation != self._generation:
            self.check_in_place()
            own = self._local.own = _ThreadConnection(connect(self.path, self._mode), self._generation)
            if self._mode == "rw":
                for setting in SETTINGS:
                    own.connection.execute(f"PRAGMA {setting}")
            if self._lock is not None:
                own.connection.execute(f"PRAGMA busy_timeout={SERVER_BUSY_MS}")
            self._connections.add(own)
        return own.connection

    def drop_connection(self) -> None:
        """Close this thread's connection; the next use opens a new one."""
        own: _ThreadConnection | None = getattr(self._local, "own", None)
        self._local.own = None
        if own is not None:
            own.connection.close()

    def open(self) -> None:
        """Do nothing: the file is open."""

    def close(self) -> None:
        """Close the file; another process may then open it."""
        with self._writing:
            for own in list(self._connections):
                own.connection.close()
        self._local = threading.local()
        self._close_file()  # before the lock: SQLite's own locks end with the file
        if self._lock is not None:
            self._lock.release()

    def _hold_file(self, *, lock: bool) -> None:
        """Open the file, to recognise it later."""
        self._file = open_file(self.path, lock=lock)
        status = os.fstat(self._file)
        self._identity = status.st_dev, status.st_ino

    def _close_file(self) -> None:
        if self._marks is not None:
            self._marks.close()
            self._marks = None
        if self._file is not None:
            os.close(self._file)
            self._file = self._identity = None

    def measure(self) -> dict[str, float]:
        """Return the sizes of the file, of its write-ahead log and of its disk, and the free space on it, in bytes."""
        sizes: dict[str, float] = {}
        for name, suffix in (("store_bytes", ""), ("wal_bytes", "-wal")):
            with contextlib.suppress(OSError):
                sizes[name] = add_suffix(self.path, suffix).stat().st_size
        with contextlib.suppress(OSError):
            usage = shutil.disk_usage(self.path.parent)
            sizes |= {"disk_bytes": usage.total, "disk_free_bytes": usage.free}
        return sizes

    # --- transactions ----------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def read_transaction(self) -> Iterator[None]:
        """Hold a read transaction in this thread: concurrent writes are not visible until it ends."""
        with self.connection as connection:
            connection.execute("BEGIN")
            yield

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Change streams, settings or tokens: all of the changes, or none.

        A server may begin to repair the store at any moment. It creates a file before it copies a row, so a change that
        the copy may have missed finds that file after its commit, or another store in the place of this one.
        """
        with self.connection as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            self._refuse_if_repairing()
        self._refuse_if_repairing()
        self.check_in_place()

    def check_writable(self) -> None:
        """Write without changing anything, to raise the errors that a commit would raise."""
        self.check_in_place()
        with self._transaction() as connection:
            write_row(connection, "meta", "probe", "")

    # --- events and snapshots --------------------------------------------------------------------------------------

    def append(
        self, events: Sequence[Event], snapshots: Iterable[tuple[int, Snapshot]] = (), erasures=(), epochs=None
    ) -> None:
        """Store all of ``events`` and, by stream, new ``snapshots``: durable when this returns, or none of them.

        Raises :class:`MisplacedError` if the file was moved away meanwhile."""
        with self._writing:
            try:
                with self.connection as connection:
                    connection.execute("BEGIN IMMEDIATE")
                    for i in range(0, len(events), _ROWS):
                        rows = [event.to_row() for event in events[i : i + _ROWS]]
                        places = ", ".join([f"({', '.join('?' * _COLUMNS)})"] * len(rows))
                        connection.execute(f"INSERT INTO events VALUES {places}", list(chain.from_iterable(rows)))
                    for stream, snapshot in snapshots:
                        write_row(connection, "snapshots", stream, *snapshot)
            except BaseException:
                self.drop_connection()  # a failed connection must not keep a lock
                raise
            self.check_in_place()
            self.mark_acknowledged({event.stream: event.number for event in events})

    def read_events(self, stream: int, after: int = 0, limit: int = 1 << 62) -> Iterator[Event]:
        """Yield the events with numbers above ``after``, in order."""
        rows = self._select_events("*", stream, "ORDER BY id LIMIT ?", limit, after=after)
        return map(Event.from_row, rows)

    def events_of_decision(self, stream: int, decision: str) -> list[Event]:
        """Return all events of a decision, in order."""
        return self._find_events("decision", stream, decision)

    def event_with_key(self, stream: int, key: str) -> Event | None:
        """Return the event of the request with this Idempotency-Key."""
        return next(iter(self._find_events("key", stream, key)), None)

    def find_events(
        self, keys: Sequence[tuple[int, str]] = (), decisions: Sequence[tuple[int, str]] = ()
    ) -> list[Event]:
        """Return the events with these keys, and those of these decisions, by stream and in order."""
        found = {event[:2]: event for stream, key in keys for event in self._find_events("key", stream, key)}
        for stream, decision in decisions:
            found |= {event[:2]: event for event in self.events_of_decision(stream, decision)}
        return [found[place] for place in sorted(found)]

    def _find_events(self, column: str, stream: int, value: str) -> list[Event]:
        """Look ``value`` up in an index, and read the rows from the table itself: the index may be damaged."""
        low, high = stream * STREAM_SPAN, (stream + 1) * STREAM_SPAN
        query = f"SELECT id FROM events WHERE {column} = ? AND id > ? AND id < ? ORDER BY id"
        ids = self.connection.execute(query, (value, low, high)).fetchall()
        rows = [self.connection.execute("SELECT * FROM events NOT INDEXED WHERE id = ?", id_).fetchone() for id_ in ids]
        events = [Event.from_row(row) for row in rows if row is not None]
        if len(events) < len(ids) or any(getattr(event, column) != value for event in events):
            raise DamageError(f"the index over the column {column} does not match the events")
        return events

    def _select_events(self, columns: str, stream: int, rest: str, *values: int, after: int = 0) -> sqlite3.Cursor:
        """Select from the events of a stream, without the help of an index, which may be damaged."""
        query = f"SELECT {columns} FROM events NOT INDEXED WHERE id > ? AND id < ? {rest}"
        low = stream * STREAM_SPAN
        return self.connection.execute(query, (low + after, low + STREAM_SPAN, *values))

    def read_chain(self, stream: int, number: int) -> bytes | None:
        """Return the chain value of an event, None if there is no such event. Before the first event it is the digest
        of the stream's row."""
        if number == 0:
            row = self.connection.execute("SELECT digest FROM streams WHERE id = ?", (stream,)).fetchone()
        else:
            row = self._select_events("chain", stream, "AND id = ?", stream * STREAM_SPAN + number).fetchone()
        return None if row is None else row[0]

    def last_number(self, stream: int) -> int:
        """Return the number of the last event, 0 if there is none."""
        ((last,),) = self._select_events("max(id)", stream, "")
        return 0 if last is None else int(last) % STREAM_SPAN

    def find_repeated_keys(self, stream: int) -> list[str]:
        """Return the keys that several events have."""
        rows = self._select_events("key", stream, "AND key IS NOT NULL GROUP BY key HAVING count(*) > 1")
        return [str(key) for (key,) in rows]

    def mark_acknowledged(self, numbers: Mapping[int, int]) -> None:
        """Mark the last acknowledged event of some streams."""
        if marks := self._marks:  # another thread may close them
            marks.write(numbers)

    def read_acknowledged(self) -> dict[int, int]:
        """Return the last event by stream that was acknowledged, as far as is known; see
        :mod:`windvane.service.store.sqlite.marks`."""
        return read_marks(self.path, read_meta(self.connection).get("id", ""))

    def read_snapshot(self, stream: int) -> Snapshot | None:
        """Return the stored snapshot, None if there is none; raise :class:`SnapshotError` if it was changed."""
        row = self.connection.execute("SELECT * FROM snapshots WHERE stream = ?", (stream,)).fetchone()
        if row is None:
            return None
        if not is_sealed("snapshots", row):
            raise SnapshotError("it does not match its checksum")
        return Snapshot(*row[1:-1])

    def read_snapshot_number(self, stream: int) -> int:
        """Return the number of the event after which the stored snapshot was made, 0 if there is none."""
        row = self.connection.execute("SELECT number FROM snapshots WHERE stream = ?", (stream,)).fetchone()
        return row[0] if row is not None and isinstance(row[0], int) else 0

    # --- streams ---------------------------------------------------------------------------------------------------

    def add_stream(self, name: str, created: float, config: str, *, most=None, epoch=None) -> StreamRow | None:
        """Return the new stream, None if the name is taken. An id that a lost stream had is not used again."""
        with self._transaction() as connection:
            ((last,),) = connection.execute("SELECT max(id) FROM streams")
            number = max(last or 0, 0 if self._marks is None else self._marks.highest) + 1
            row: Any = seal_row("streams", number, name, float(created), config)
            if not insert_row(connection, "streams", row):
                return None
        self.mark_acknowledged({number: 0})
        return StreamRow(*row)

    def read_streams(self, shards: Collection[int] | None = None) -> list[StreamRow]:  # a file has no shards
        """Return all streams. A row may be damaged: see :attr:`StreamRow.is_sound`."""
        return [StreamRow(*row) for row in self.connection.execute("SELECT * FROM streams NOT INDEXED ORDER BY id")]

    def find_stream(self, name: str) -> StreamRow | None:
        """Return the stream with this name."""
        row = self.connection.execute("SELECT * FROM streams WHERE name = ?", (name,)).fetchone()
        return None if row is None else StreamRow(*row)

    # --- tokens ----------------------------------------------------------------------------------------------------

    @property
    def requires_token(self) -> bool:
        """Whether every request needs a token: one exists or existed, or the setting cannot be read."""
        if read_meta(self.connection).get("guarded") != "no":
            return True
        return self.connection.execute("SELECT 1 FROM tokens NOT INDEXED LIMIT 1").fetchone() is not None

    def add_token(self, token: Token) -> bool:
        """Return False if the name is taken. From now on every request needs a token."""
        with self._transaction() as connection:
            row = seal_row("tokens", token.name, token.hash, int(token.full), float(token.created))
            return insert_row(connection, "tokens", row) and write_row(connection, "meta", "guarded", "yes")

    def remove_token(self, name: str) -> bool:
        """Return False if no token has this name. Every request still needs a token."""
        with self._transaction() as connection:
            removed = connection.execute("DELETE FROM tokens WHERE name = ?", (name,)).rowcount > 0
            return removed and write_row(connection, "meta", "guarded", "yes")

    def remove_all_tokens(self) -> None:
        """Remove all tokens and turn authentication off: no request needs a token."""
        with self._transaction() as connection:
            connection.execute("DELETE FROM tokens")
            write_row(connection, "meta", "guarded", "no")

    def read_tokens(self) -> list[Token]:
        """Return the tokens that match their checksum; no other one is accepted."""
        rows = self.connection.execute("SELECT * FROM tokens NOT INDEXED")
        return sorted(Token(row[0], row[1], bool(row[2]), row[3]) for row in rows if is_sealed("tokens", row))

    def read_damaged_tokens(self) -> list[str]:
        """Return the names of the tokens that do not match their checksum."""
        rows = self.connection.execute("SELECT * FROM tokens NOT INDEXED")
        return sorted(str(row[0]) for row in rows if not is_sealed("tokens", row))


class _ThreadConnection:
    """Closes the connection when its thread ends and the thread's data is deleted. The connection alone would stay
    open: it is part of a reference cycle."""

    def __init__(self, connection: sqlite3.Connection, generation: int) -> None:
        self.connection, self.generation = connection, generation

    def __del__(self) -> None:
        self.connection.close()
