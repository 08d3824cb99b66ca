"""The file of a store: opening, checking, migrating and repairing it, connections, and transactions."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import sqlite3
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path

import filelock

from windvane.service.store.migrations import FORMAT, list_migrations
from windvane.service.store.records import STORE_ERRORS, MisplacedError, StoreError
from windvane.service.store.sqlite.database import (
    add_suffix,
    connect,
    find_damage,
    read_meta,
    remove_database,
    write_row,
)
from windvane.service.store.sqlite.marks import Marks, has_streams, marks_path
from windvane.service.store.sqlite.opening import (
    SALVAGE,
    create_store,
    lock_store,
    open_file,
    recognise_store,
    restrict_access,
)
from windvane.service.store.sqlite.repair import BUILDING, COMPLETED, finish_swap, is_repairing, rebuild

CHECKED_AT_START = 64 << 20
"""Bytes up to which a store is checked before it is served. Measured with the file in the page cache, SQLite's check
takes 1.6 s for a million events of 145 bytes, the smallest there are, and 2.6 s for a million of 1,100 bytes (d = 10,
20 arms): at least 90 MB a second, so that this many bytes take less than a second."""
SETTINGS = (
    "journal_mode=WAL",
    "synchronous=FULL",
    "wal_autocheckpoint=8000",  # pages, 32 MiB: see below
    "journal_size_limit=67108864",  # one that a long reader has made larger is cut to this many bytes afterwards
    "secure_delete=ON",  # see erasure.py
)
"""Once the write-ahead log has 8,000 pages, one commit writes them to the file, and all requests wait for it: some
20 ms on a fast disk. A pair is four pages or fewer (d = 10, 20 arms): with 16 connections, one request in 250 waits.
With 4,000 pages it was one in 125, half as long, and that was the p99. On slow disks a larger log would delay a commit
too long."""
SERVER_BUSY_MS = 2000
"""That a server waits for the lock of another process: less than until a disk counts as stalled (3 s), so that a held
lock is reported as such. Commands take it for milliseconds, and wait longer themselves."""

log = logging.getLogger("windvane.service")


class StoreFile:
    """The file of a store, which is open, with a connection for every thread.

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
    accept_old
        Do not refuse a store of an older format. Needs ``shared``: without it, the store is migrated.

    Attributes
    ----------
    path : Path
        The file, with links resolved: a store and a link to it are the same store. ``name`` is the same as a string.
    is_checked : bool
        Whether the structure of the file has been checked.
    """

    is_remote = False

    def __init__(
        self, path: str | Path, *, shared: bool = False, create: bool = True, read_only: bool = False,
        accept_old: bool = False,
    ) -> None:  # fmt: skip
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
        self._reported_copies: list[str] = []  # old files in which nothing is erased
        self._has_erased = not shared  # something may have been erased that the write-ahead log still has
        self._is_removing = not shared  # events of removed streams may be left
        self._lock: filelock.BaseFileLock | None = None if shared else lock_store(self.path)
        try:
            self._open(accept_old)
        except BaseException as error:
            self.close()
            if isinstance(error, (*STORE_ERRORS, UnicodeDecodeError)):
                raise StoreError(self.path, "unreadable", f"cannot be used as a store ({error})") from None
            raise

    # --- the file --------------------------------------------------------------------------------------------------

    def _open(self, accept_old: bool) -> None:
        is_exclusive = self._lock is not None
        if is_exclusive:
            finish_swap(self.path)
            for suffix in (BUILDING, SALVAGE):  # of a repair that was interrupted before it was complete
                remove_database(add_suffix(self.path, suffix))
        elif add_suffix(self.path, COMPLETED).exists():
            raise StoreError(self.path, "repairing", "a repair was interrupted; `windvane serve` finishes it")
        self._hold_file(lock=is_exclusive)
        format_ = recognise_store(self.path, exclusive=is_exclusive, read_only=self._mode == "ro")
        if format_ is None:
            create_store(self.path)
        elif format_ < FORMAT and is_exclusive:
            self._migrate(format_)
        elif format_ < FORMAT and not accept_old:
            raise StoreError(self.path, "format", f"has format {format_}; `windvane serve` migrates it")
        if self._mode == "rw":
            restrict_access(self.path)
        if is_exclusive:
            self.repair(pages=self.path.stat().st_size <= CHECKED_AT_START)

    def _migrate(self, format_: int) -> None:
        """Replace the store by one of the current format; the old file is kept."""
        for migration in list_migrations(format_):
            log.info("%s: is migrated to format %d: %s", self.path, migration.format, migration.summary)
        self._close_file()
        try:
            rebuild(self.path)
        except StoreError:
            raise
        except Exception as error:
            problem = f"has format {format_}; migrating it to format {FORMAT} failed ({error})"
            raise StoreError(self.path, "not_migrated", problem) from error
        self._hold_file(lock=True)

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
        if self.connection.in_transaction:  # as part of that one
            yield
            return
        with self.connection as connection:
            connection.execute("BEGIN")
            yield

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
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

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Do nothing: while the file is locked, no server can open it. Every change is stored at once."""
        assert self._lock is not None, "the store is shared"
        yield

    def check_writable(self) -> None:
        """Write without changing anything, to raise the errors that a commit would raise."""
        self.check_in_place()
        with self.transaction() as connection:
            write_row(connection, "meta", "probe", "")


class _ThreadConnection:
    """Closes the connection when its thread ends and the thread's data is deleted. The connection alone would stay
    open: it is part of a reference cycle."""

    def __init__(self, connection: sqlite3.Connection, generation: int) -> None:
        self.connection, self.generation = connection, generation

    def __del__(self) -> None:
        self.connection.close()
