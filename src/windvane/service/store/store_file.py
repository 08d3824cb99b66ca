"""The file of a store: locking, opening, and connections.

Locks on ``FILE.lock`` and on the file let one process at a time open it. A damaged store is rebuilt when it
is opened; see :mod:`windvane.service.store.repair`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import sqlite3
import stat
import sys
import threading
import weakref
from pathlib import Path

from windvane.service.store.database import (
    FORMAT,
    PAGE_BYTES,
    FileKind,
    StoreError,
    add_suffix,
    connect,
    create_private_file,
    create_tables,
    identify,
    is_damage,
    is_foreign,
    read_meta,
    read_schema,
    write_meta,
)
from windvane.service.store.inspection import CHECKED_AT_START, find_damage
from windvane.service.store.locks import lock_file, lock_side_file
from windvane.service.store.marks import Marks
from windvane.service.store.repair import ID_BYTES, building_path, completed_path, finish_swap, is_repairing, rebuild
from windvane.service.store.salvage import looks_like_store, remove_database

log = logging.getLogger("windvane.service")


class StoreFile:
    """See the module. Every thread has a connection of its own."""

    def __init__(self, path: str | Path, *, shared: bool = False, create: bool = True, read_only: bool = False) -> None:
        """Open a store.

        Parameters
        ----------
        path
            The file.
        shared
            Open without the lock, beside a running server, to read or to change tokens. Nothing is repaired.
        create
            Create a store that does not exist.
        read_only
            Write nothing, not even when it is closed. Needs ``shared``.
        """
        self.path = Path(path)
        if not self.path.parent.is_dir():
            raise StoreError(self.path, "no_folder", f"the folder {self.path.parent} does not exist")
        self.real_path = self.path.resolve()  # a store reached through a link is still one store
        if not create and not self._exists():
            raise StoreError(self.path, "no_store", "there is no such store")
        self._mode = "ro" if read_only else "rw"
        self._lock = None if shared else lock_side_file(add_suffix(self.real_path, ".lock"), self.path)
        self._file: int | None = None  # the file itself, open to the end: to know it again
        self.marks: Marks | None = None
        self.is_checked = False  # whether the structure of the file has been checked
        self._local = threading.local()
        self._connections: weakref.WeakSet[_ThreadConnection] = weakref.WeakSet()
        self._generation = 0  # counts the files that were opened: a connection to an earlier one is not used
        self._guard = threading.Lock()
        self.writing = threading.Lock()  # held while events are written: no connection is closed meanwhile
        try:
            self._prepare()
        except BaseException:
            self.close()
            raise

    def _exists(self) -> bool:
        path = self.real_path
        return completed_path(path).exists() or (path.is_file() and path.stat().st_size > 0)

    # --- opening and closing ---------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Identify the file before writing to it, so that a file that is not a store stays unchanged."""
        if completed_path(self.real_path).exists():
            if self._lock is None:
                raise StoreError(self.path, "repairing", "a repair was interrupted; `windvane serve` finishes it")
            self._finish_swap()
        if self._lock is not None:
            remove_database(building_path(self.real_path))  # of a repair that was interrupted before it was complete
        self._open_file()
        kind, stated = self._identify()
        if kind is FileKind.FOREIGN:
            raise StoreError(self.path, "not_a_store", "is an SQLite file of something else")
        if kind is FileKind.OTHER_FORMAT:
            problem = f"has format {stated}; this version reads format {FORMAT}"
            raise StoreError(self.path, "format", problem)
        if self._lock is None:
            return
        if kind is FileKind.DAMAGED:
            self._rebuild("is damaged; repairing it")
        else:
            self._check_at_start(pages=self.real_path.stat().st_size <= CHECKED_AT_START)
        self.marks = Marks(self.real_path, self._read_id())

    def _open_file(self) -> None:
        """Open and lock the file, create it if it does not exist, and make it its owner's alone."""
        try:
            with contextlib.suppress(FileExistsError):
                create_private_file(self.real_path)
            self._file = os.open(self.real_path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            raise StoreError(self.path, "unreadable", f"cannot be opened ({error.strerror})") from None
        if not stat.S_ISREG(os.fstat(self._file).st_mode):
            raise StoreError(self.path, "unreadable", "cannot be opened (it is not a plain file)")
        if self._lock is not None:
            if os.fstat(self._file).st_nlink > 1:
                problem = "has several names (hard links); SQLite would write a separate log for each name"
                raise StoreError(self.path, "hard_links", problem)
            if sys.platform == "linux":  # elsewhere this lock and SQLite's own get in each other's way
                lock_file(self._file, self.path)

    def _identify(self) -> tuple[FileKind, str]:
        """Return the kind of the file and its format. Fill an empty file, and make a store private to its owner."""
        try:
            kind, stated = self._identify_file()
            if kind in (FileKind.EMPTY, FileKind.FOREIGN) and self._has_lost_its_schema():
                kind = FileKind.DAMAGED
            if kind is FileKind.EMPTY:
                self._create()
                kind, stated = FileKind.CURRENT, str(FORMAT)
        except (sqlite3.Error, UnicodeDecodeError) as error:
            if not self._is_damaged_store(error):
                raise StoreError(self.path, "unreadable", f"cannot be used as a store ({error})") from None
            kind, stated = FileKind.DAMAGED, ""
        if kind is not FileKind.FOREIGN and self._mode == "rw":
            self._restrict_access()
        return kind, stated

    def _is_damaged_store(self, error: Exception) -> bool:
        """Whether the file that caused ``error`` is a damaged store, not something else."""
        if self._lock is None:
            return self._mode == "ro" and is_damage(error) and not is_foreign(error)
        # A format number of SQLite's own that was changed is an ordinary error.
        is_suspect = is_damage(error) or getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_ERROR
        return is_suspect and looks_like_store(self.real_path)

    def _has_lost_its_schema(self) -> bool:
        """Whether a file without the tables of a store is one all the same: page 1, which lists them, is damaged."""
        if self._lock is None or self._file is None:
            return False
        settings = os.pread(self._file, PAGE_BYTES, PAGE_BYTES)  # the second page of every store
        return b"guarded" in settings and looks_like_store(self.real_path)

    def _identify_file(self) -> tuple[FileKind, str]:
        # A process that was killed while it created the store leaves a journal, which must be rolled back by writing.
        mode = "rw" if add_suffix(self.real_path, "-journal").exists() else "ro"
        connection = connect(self.real_path, mode)
        try:
            return identify(connection)
        finally:
            connection.close()

    def _restrict_access(self) -> None:
        """Contexts may be personal: a restored file, which others may be able to read, is set to its owner alone."""
        for suffix in ("", "-wal", "-shm"):
            with contextlib.suppress(OSError):
                path = add_suffix(self.real_path, suffix)
                status = path.stat()
                if status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) & 0o077:
                    path.chmod(0o600)

    def _create(self) -> None:
        """Create the tables of a new store, all or none; another process may be doing the same."""
        connection = connect(self.real_path)
        try:
            connection.execute(f"PRAGMA page_size={PAGE_BYTES}")
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("BEGIN IMMEDIATE")
            if not read_schema(connection):
                create_tables(connection)
                write_meta(connection, "format", str(FORMAT))
                write_meta(connection, "id", secrets.token_hex(ID_BYTES))
                write_meta(connection, "guarded", "no")
            connection.execute("COMMIT")
        finally:
            connection.close()

    def _read_id(self) -> str:
        try:
            return read_meta(self.connection)["id"]
        except (sqlite3.DatabaseError, KeyError) as error:
            raise StoreError(self.path, "unreadable", f"cannot be used as a store ({error})") from None

    def _check_at_start(self, *, pages: bool) -> None:
        try:
            self._repair_if_damaged(pages=pages)
        except sqlite3.Error as error:
            raise StoreError(self.path, "unreadable", f"cannot be used as a store ({error})") from None

    def _repair_if_damaged(self, *, pages: bool) -> list[str]:
        problems = find_damage(self.real_path, pages=pages)
        if problems:
            self._rebuild(f"is damaged ({problems[0]}); repairing it")
        self.is_checked = self.is_checked or pages
        return problems

    def _rebuild(self, reason: str) -> None:
        """Replace the file by a new one with all rows that can be read."""
        log.error("%s: %s", self.path, reason)
        if self._file is not None:
            os.close(self._file)
            self._file = None
        try:
            aside = rebuild(self.real_path)
        except StoreError:
            raise
        except Exception as error:  # a damaged file may hold anything; whatever it causes, the caller is told one way
            raise StoreError(self.path, "repair_failed", f"{reason} failed ({error})") from error
        log.warning("%s: the old file is kept as %s", self.path, aside)
        self._generation += 1
        self._open_file()
        self.is_checked = True

    def _finish_swap(self) -> None:
        aside = finish_swap(self.real_path)
        if aside is not None:
            log.warning("%s: finished a repair that was interrupted; the old file is kept as %s", self.path, aside)

    def repair(self) -> list[str]:
        """Check the structure of the file, and rebuild it if it is damaged; returns the problems.

        Nothing may be written meanwhile. Connections of other threads keep reading the old file until they are asked
        again.
        """
        self.drop_connection()
        if self._file is None:  # an earlier attempt failed
            self._finish_swap()
            self._open_file()
        problems = self._repair_if_damaged(pages=True)
        if problems and self.marks is not None:
            self.marks.close()
            self.marks = Marks(self.real_path, self._read_id())
        return problems

    def refuse_if_repaired(self) -> None:
        """Raise where another process may be repairing the store: a change would be lost, or come back."""
        if self._lock is None and is_repairing(self.real_path):
            problem = "is being repaired; try again when the server is ready, or has been started again"
            raise StoreError(self.path, "repairing", problem)

    def find_damage(self) -> list[str]:
        """Return what is wrong with the structure of the file."""
        problems = find_damage(self.real_path)
        self.is_checked = True  # not if it raised: then nothing is known
        return problems

    @property
    def connection(self) -> sqlite3.Connection:
        """This thread's own; it is closed when the thread ends."""
        own: _ThreadConnection | None = getattr(self._local, "own", None)
        if own is None or own.generation != self._generation:
            self.check_in_place()
            own = self._local.own = _ThreadConnection(self.real_path, self._mode, self._generation)
            with self._guard:
                self._connections.add(own)
        return own.connection

    def drop_connection(self) -> None:
        """Close this thread's connection; the next use opens a new one."""
        own: _ThreadConnection | None = getattr(self._local, "own", None)
        self._local.own = None
        if own is not None:
            own.connection.close()

    def close(self) -> None:
        """Give the file back; another process may then have it."""
        with self.writing, self._guard:
            for own in list(self._connections):
                own.connection.close()
            self._connections.clear()
        self._local = threading.local()
        if self.marks is not None:
            self.marks.close()
        for descriptor in (self._file, self._lock):  # in this order: SQLite's own locks end with the first
            if descriptor is not None:
                os.close(descriptor)
        self._file = self._lock = self.marks = None

    def check_in_place(self) -> None:
        """Raise if the file is no longer where it was: what is written would not be found again."""
        try:
            there = self._file is not None and os.path.samestat(os.stat(self.real_path), os.fstat(self._file))
        except OSError:
            there = False
        if not there:
            raise sqlite3.OperationalError(f"{self.path}: was moved, removed or replaced")


class _ThreadConnection:
    """A thread's connection, closed when nothing refers to it any more: at the latest when the thread has ended."""

    def __init__(self, path: Path, mode: str, generation: int) -> None:
        self.connection = connect(path, mode)
        self.generation = generation
        if mode == "ro":
            return
        self.connection.execute("PRAGMA journal_mode=WAL")
        self.connection.execute("PRAGMA synchronous=FULL")
        self.connection.execute("PRAGMA wal_autocheckpoint=4000")

    def __del__(self) -> None:
        if hasattr(self, "connection"):
            self.connection.close()
