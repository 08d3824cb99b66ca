"""Opening the file of a store: one process at a time, only a file that is a store, and only for its owner."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import sqlite3
import stat
import sys
from pathlib import Path

import filelock

from windvane.service.store.damaged_file import is_damaged_store
from windvane.service.store.database import (
    FORMAT,
    PAGE_BYTES,
    READ_ERRORS,
    FileKind,
    StoreError,
    add_suffix,
    connect,
    create_private_file,
    create_tables,
    identify,
    is_damage,
    may_be_damage,
    read_schema,
    write_row,
)
from windvane.service.store.marks import ID_BYTES


def lock_store(path: Path) -> filelock.BaseFileLock:
    """Lock ``FILE.lock``. The system releases the lock when the process ends; the file stays."""
    side_file = add_suffix(path, ".lock")
    lock = filelock.FileLock(side_file, timeout=0, mode=0o600, thread_local=False)
    try:
        if side_file.exists() and not side_file.is_file():
            raise OSError(0, "not a plain file")
        lock.acquire()
        side_file.write_text(str(os.getpid()))
    except filelock.Timeout:
        raise _in_use(path) from None
    except OSError as error:
        raise StoreError(path, "unlockable", f"cannot be locked ({side_file.name}: {error.strerror})") from None
    return lock


def _in_use(path: Path) -> StoreError:
    holder = ""
    with contextlib.suppress(OSError, ValueError):
        holder = f" (process {int(add_suffix(path, '.lock').read_text())})"
    return StoreError(path, "in_use", f"another server has this store{holder} open; stop it, or use another store")


def open_file(path: Path, *, lock: bool) -> int:
    """Open the file, to recognise it later. Create it if it does not exist, for its owner alone."""
    try:
        with contextlib.suppress(FileExistsError):
            create_private_file(path)
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise StoreError(path, "unreadable", f"cannot be opened ({error.strerror})") from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise StoreError(path, "unreadable", "cannot be opened (it is not a plain file)")
        if lock and status.st_nlink > 1:
            problem = "has several names (hard links); SQLite would write a separate log for each name"
            raise StoreError(path, "hard_links", problem)
        # filelock locks side files only. The file itself may be mounted in another folder, beside another side
        # file. Elsewhere than on Linux, flock and SQLite's own locks get in each other's way.
        if lock and sys.platform == "linux":
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise _in_use(path) from None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def identify_file(path: Path, *, exclusive: bool, read_only: bool) -> FileKind:
    """Return EMPTY, CURRENT or DAMAGED; raise :class:`StoreError` for a file that is not a store of this format.

    Nothing is written, so that a file that is not a store stays as it is. A file may be judged to be a damaged store
    where it can be repaired (``exclusive``) or reported (``read_only``).
    """
    # A process that was killed while it created the store leaves a journal, which must be rolled back by writing.
    mode = "rw" if add_suffix(path, "-journal").exists() else "ro"
    try:
        with contextlib.closing(connect(path, mode)) as connection:
            kind, stated = identify(connection)
    except READ_ERRORS as error:
        if exclusive:
            is_store = may_be_damage(error) and is_damaged_store(path)
        else:
            is_foreign = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_NOTADB
            is_store = read_only and is_damage(error) and not is_foreign
        if not is_store:
            raise
        return FileKind.DAMAGED
    if kind in (FileKind.EMPTY, FileKind.FOREIGN) and exclusive and is_damaged_store(path):
        return FileKind.DAMAGED  # its first page, which lists the tables, is damaged
    if kind is FileKind.EMPTY and path.stat().st_size > PAGE_BYTES:  # more than a process leaves that creates a store
        raise StoreError(path, "unreadable", "cannot be used as a store (it has pages, and no tables)")
    if kind is FileKind.FOREIGN:
        raise StoreError(path, "not_a_store", "is an SQLite file of something else")
    if kind is FileKind.OTHER_FORMAT:
        raise StoreError(path, "format", f"has format {stated}; this version reads format {FORMAT}")
    return kind


def create_store(path: Path) -> None:
    """Create the tables of a new store, all or none; another process may be doing the same."""
    with contextlib.closing(connect(path)) as connection:
        connection.execute(f"PRAGMA page_size={PAGE_BYTES}")
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("BEGIN IMMEDIATE")
        if not read_schema(connection):
            create_tables(connection)
            for name, value in (("format", str(FORMAT)), ("id", secrets.token_hex(ID_BYTES)), ("guarded", "no")):
                write_row(connection, "meta", name, value)
        connection.execute("COMMIT")


def restrict_access(path: Path) -> None:
    """Contexts may be personal: a restored file, which others may be able to read, is set to its owner alone."""
    for suffix in ("", "-wal", "-shm"):
        with contextlib.suppress(OSError):
            file = add_suffix(path, suffix)
            status = file.stat()
            if status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) & 0o077:
                file.chmod(0o600)
