"""Open the file of a store: one process at a time, only files that are stores, readable only by the owner.

A store whose first page is damaged can also be opened, to be repaired.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path

import filelock

from windvane.service.store.migrations import FORMAT, check_format
from windvane.service.store.records import READ_ERRORS, StoreError, is_damage, try_read
from windvane.service.store.sqlite.database import (
    PAGE_BYTES,
    add_suffix,
    connect,
    create_private_file,
    create_tables,
    find_format,
    give_to_folder_owner,
    match_tables,
    may_be_damage,
    read_meta,
    remove_database,
    write_row,
)
from windvane.service.store.sqlite.marks import ID_BYTES

SALVAGE = ".salvage"  # ending of the name of a copy of a damaged store, which has its data


def lock_store(path: Path) -> filelock.BaseFileLock:
    """Lock ``FILE.lock``. The system releases the lock when the process ends; the file stays."""
    side_file = add_suffix(path, ".lock")
    lock = filelock.FileLock(side_file, timeout=0, mode=0o600, thread_local=False)
    try:
        if side_file.exists() and not side_file.is_file():
            raise OSError(0, "not a plain file")
        lock.acquire()
        side_file.write_text(str(os.getpid()))
        give_to_folder_owner(side_file)
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
    """Open the file, to recognise it later. Create it if it does not exist, readable only by its owner."""
    try:
        with contextlib.suppress(FileExistsError):
            create_private_file(path)
            give_to_folder_owner(path)
        if not path.is_file():
            raise OSError(0, "it is not a plain file")
        if lock and path.stat().st_nlink > 1:
            problem = "has several names (hard links); SQLite would write a separate log for each name"
            raise StoreError(path, "hard_links", problem)
        descriptor = os.open(path, os.O_RDONLY)
    except OSError as error:
        raise StoreError(path, "unreadable", f"cannot be opened ({error.strerror})") from None
    # filelock locks side files only. The file itself may be mounted in another folder, beside another side file.
    # Elsewhere than on Linux, flock and SQLite's own locks get in each other's way.
    if lock and sys.platform == "linux":
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise _in_use(path) from None
    return descriptor


def recognise_store(path: Path, *, exclusive: bool, read_only: bool) -> int | None:
    """Return the format of a store, which may be damaged, None for an empty file; raise :class:`StoreError` for a file
    of another application, or of a format that this version does not read.

    Nothing is written, so a file that is not a store is not changed. A file may count as a damaged store if it can be
    repaired (``exclusive``) or reported (``read_only``).
    """
    # A process that was killed while it created the store leaves a journal, which must be rolled back by writing.
    mode = "rw" if add_suffix(path, "-journal").exists() else "ro"
    bytes_before = path.stat().st_size  # another process may be creating the store: a file grows after its tables exist
    try:
        with contextlib.closing(connect(path, mode)) as connection:
            format_ = find_format(path, connection)
            if format_ is not None:
                return format_
    except (StoreError, *READ_ERRORS) as error:
        if exclusive:
            may_be_store = getattr(error, "code", "") == "not_a_store" or may_be_damage(error)
            format_ = find_damaged_format(path) if may_be_store else None
        else:
            is_foreign = getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_NOTADB
            format_ = FORMAT if read_only and is_damage(error) and not is_foreign else None
        if format_ is None:
            raise
        return format_
    if exclusive and (format_ := find_damaged_format(path)) is not None:
        return format_  # its first page, which lists the tables, is damaged
    if bytes_before > PAGE_BYTES:  # more than a process leaves that creates a store
        raise StoreError(path, "unreadable", "cannot be used as a store (it has pages, and no tables)")
    return None


def create_store(path: Path) -> None:
    """Create a new store in an empty file."""

    def write_settings(connection: sqlite3.Connection) -> None:
        settings = {"format": str(FORMAT), "id": secrets.token_hex(ID_BYTES), "guarded": "no", "last_stream": "0"}
        for name, value in settings.items():
            write_row(connection, "meta", name, value)

    with contextlib.closing(connect(path)) as connection:
        connection.execute(f"PRAGMA page_size={PAGE_BYTES}")
        connection.execute("PRAGMA journal_mode=WAL")  # before there is anything that another process may be reading
    create_tables(path, write_settings)


def restrict_access(path: Path) -> None:
    """Contexts may be personal: a restored file, which others may be able to read, is set to its owner alone."""
    for suffix in ("", "-wal", "-shm"):
        with contextlib.suppress(OSError):
            add_suffix(path, suffix).chmod(0o600)


# --- a damaged first page --------------------------------------------------------------------------------------------


@contextlib.contextmanager
def open_damaged(path: Path) -> Iterator[tuple[sqlite3.Connection, int]]:
    """Open a damaged store for reading, and yield its format, too; raise :class:`StoreError` if the file is none.

    A first page that cannot be read is replaced, in a copy, by that of a new store: all stores have the same tables at
    the same pages. One of an older format lacks some of them, which must not be read.
    """
    with contextlib.closing(connect(path, "ro")) as connection:
        format_ = try_read(match_tables, connection)
        if format_ is not None:
            yield connection, format_
            return
    if not _may_hold_settings(path):
        raise StoreError(path, "damaged", "cannot be used as a store (its first page is damaged)")
    copy = add_suffix(path, SALVAGE)
    try:
        _copy_with_first_page(path, copy)
        with contextlib.closing(connect(copy)) as connection:
            settings = try_read(read_meta, connection) or {}
            if "format" not in settings:
                raise StoreError(path, "damaged", "cannot be used as a store (its settings are damaged)")
            yield connection, check_format(path, settings["format"])
    finally:
        remove_database(copy)


def _may_hold_settings(path: Path) -> bool:
    """Whether it makes sense to copy the file: its settings are on its second page, or may be in its log."""
    with path.open("rb") as file:
        file.seek(PAGE_BYTES)
        return b"guarded" in file.read(PAGE_BYTES) or add_suffix(path, "-wal").exists()


def find_damaged_format(path: Path) -> int | None:
    """Return the format of a file that does not open as a store, but is one apart from its first page or its settings;
    None if it is none."""
    with contextlib.suppress(StoreError, OSError, *READ_ERRORS), open_damaged(path) as (_, format_):
        return format_
    return None


def _copy_with_first_page(path: Path, copy: Path) -> None:
    """Write the first page of a new store, and all other pages and the log of the store at ``path``, to ``copy``."""
    remove_database(copy)
    create_private_file(copy)
    create_tables(copy)
    size = copy.stat().st_size
    with path.open("rb") as source, copy.open("r+b") as target:
        target.seek(28)
        target.write(bytes(4))  # the number of pages: 0 makes SQLite go by the size of the file
        source.seek(PAGE_BYTES)
        target.seek(PAGE_BYTES)
        shutil.copyfileobj(source, target)
        # SQLite reads no table if a file is too short for all of them: where it was cut off, they are unreadable pages.
        target.truncate()
        target.truncate(max(size, target.tell()))
    if (log := add_suffix(path, "-wal")).exists():
        create_private_file(add_suffix(copy, "-wal"))
        shutil.copyfile(log, add_suffix(copy, "-wal"))
