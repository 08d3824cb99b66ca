"""Back up a store while a server uses it, and restore a backup.

Both copy the store as of one commit to a temporary file, verify that file as ``windvane verify`` does, and rename it:
the target is either missing or a complete, verified store. The copy of a store of an older format is migrated.

A restored store ends where the backup was made. Later events are lost; the marks of the replaced store
(:mod:`windvane.service.store.sqlite.marks`) tell how many, or marks that were saved beside the backup. By default they
are moved aside with the store, because going back may be intended; with ``record_loss`` they stay, and the next start
records the loss in the log of every stream.

A store that root restores gets the owner of its folder.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from windvane.service.store import SqliteStore, StoreError, try_read
from windvane.service.store.migrations import FORMAT
from windvane.service.store.sqlite.database import (
    add_suffix,
    connect,
    create_private_file,
    find_format,
    flush_folder,
    give_to_folder_owner,
    read_meta,
    remove_database,
)
from windvane.service.store.sqlite.marks import marks_path, read_marks
from windvane.service.store.sqlite.opening import lock_store, open_file
from windvane.service.store.sqlite.repair import BUILDING, COMPLETED, copy_rows
from windvane.service.verification import StoreReport, verify_store

PAGES = 1024  # that are copied between two reports of progress: 4 MiB
TEMPORARY = ".part"
SIDE_FILES = ("-wal", "-shm", "-journal", COMPLETED, BUILDING, ".mark")
"""Suffixes of the files that belong to a store, except its lock. The log comes first, because it must never stand
beside another store."""

Progress = Callable[[str, int, int], None]


@dataclass
class CopyReport:
    """A store that was backed up or restored.

    ``lost``: how many events of each stream were acknowledged and are not in the store that was restored, by name;
    None if there were no marks that could tell.
    ``replaced``: where the store is that was there before, and ``mark`` its marks.
    """

    path: Path
    bytes: int
    seconds: float
    verification: StoreReport
    lost: dict[str, int] | None = field(default_factory=dict)
    replaced: Path | None = None
    mark: Path | None = None

    @property
    def events(self) -> int:
        """The number of events in all streams."""
        return sum(stream.events for stream in self.verification.streams)

    def to_plain(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        streams = [{"stream": stream.stream, "events": stream.events} for stream in self.verification.streams]
        numbers = {"bytes": self.bytes, "seconds": self.seconds}
        return {"file": str(self.path), **numbers, "sound": self.verification.is_sound, "streams": streams}


def back_up(
    store: Path,
    target: Path,
    progress: Progress = lambda *_: None,
    before_rename: Callable[[], None] = lambda: None,
) -> CopyReport:
    """Copy a store to a new file, and verify the copy.

    Parameters
    ----------
    store
        A server may be using it and is not blocked. The copy holds all events up to one commit.
    target
        The file to write. It must not exist.
    progress
        Called with the name of the step, the amount done, and the total.
    before_rename
        Called when the copy is complete and verified, before it gets its name. The commands ignore interrupts from
        then on, so that an interrupted command has changed nothing.

    Raises
    ------
    StoreError
        If the store does not exist, the target exists ("exists"), the copy fails ("not_copied"), or it is not sound
        ("unsound"). Then no file is left.
    """
    began = time.monotonic()
    _refuse_existing(target, "a backup is not overwritten; choose another name")
    # Another backup to the same target may be running: each has a file of its own, and the first wins.
    own = add_suffix(target, f".{secrets.token_hex(4)}{TEMPORARY}")
    with _copy(store, target, own, progress) as (temporary, report):
        _refuse_existing(target, "it was created meanwhile")
        before_rename()
        os.rename(temporary, target)
        flush_folder(target.parent)
    return CopyReport(target, target.stat().st_size, time.monotonic() - began, report)


def restore(
    backup: Path,
    store: Path,
    *,
    replace: bool = False,
    record_loss: bool = False,
    force: bool = False,
    progress: Progress = lambda *_: None,
    before_rename: Callable[[], None] = lambda: None,
) -> CopyReport:
    """Verify a copy of a backup, and install it as the store.

    Parameters
    ----------
    backup
        A file that :func:`back_up` wrote, or any store. It is not changed.
    store
        Path of the store. No server may have it open.
    replace
        Whether to replace an existing store. It is moved aside with all its files, to ``STORE.replaced-1``.
    record_loss
        Whether the next start records events of kind "lost" for what the previous store acknowledged after the backup.
    force
        Whether to restore a backup that has problems. A server sets aside the streams that it cannot rebuild.
    progress, before_rename
        As for :func:`back_up`.

    Raises
    ------
    StoreError
        If the backup cannot be used, a server has the store open ("in_use"), or a store exists ("exists").
    """
    began, store = time.monotonic(), store.resolve()
    if not store.parent.is_dir():
        raise StoreError(store, "no_folder", f"the folder {store.parent} does not exist")
    with lock_store(store), _hold(store):
        if not replace:
            _refuse_existing(store, "a store is not overwritten; --replace moves it aside")
        with _copy(backup, store, add_suffix(store, TEMPORARY), progress, force=force) as (temporary, report):
            marked, lost = _find_lost(temporary, store, backup.resolve())
            before_rename()
            aside, mark = _move_aside(store, keep_mark=record_loss and marked == store)
            if marked not in (None, store):
                mark = marks_path(marked)
                if record_loss:
                    shutil.copyfile(mark, marks_path(store))
                    marks_path(store).chmod(0o600)
            os.rename(temporary, store)
            for path in (store, marks_path(store)):
                give_to_folder_owner(path)
            flush_folder(store.parent)
    return CopyReport(store, store.stat().st_size, time.monotonic() - began, report, lost, aside, mark)


@contextlib.contextmanager
def _copy(
    source: Path, target: Path, temporary: Path, progress: Progress, *, force: bool = False
) -> Iterator[tuple[Path, StoreReport]]:
    """Yield a verified copy of a store at ``temporary``, flushed to disk; remove it at the end if it still exists."""
    options = {"shared": True, "create": False, "read_only": True, "accept_old": True}
    with contextlib.closing(SqliteStore(source, **options)) as opened:
        try:
            remove_database(temporary)
            create_private_file(temporary)
            _copy_pages(opened.path, temporary, progress)
            _migrate(temporary)
            report = _verify(temporary, progress)
            if not report.is_sound and not force:
                first = next(report.list_problems())
                raise StoreError(source, "unsound", f"is not sound ({first.text}); run `windvane verify` for details")
            yield temporary, report
        except (sqlite3.Error, OSError) as error:
            raise StoreError(source, "not_copied", f"could not be copied to {target} ({error})") from None
        finally:
            remove_database(temporary)
            remove_database(add_suffix(temporary, BUILDING))


def _copy_pages(source: Path, target: Path, progress: Progress) -> None:
    """Copy a consistent state of a database."""
    with contextlib.closing(connect(source, "ro")) as reading, contextlib.closing(connect(target)) as writing:
        # A transaction that stays open: SQLite would begin again whenever another process writes.
        reading.execute("BEGIN")
        read_meta(reading)
        reading.backup(
            writing, pages=PAGES, progress=lambda _, left, total: progress("copying", total - left, max(total, 1))
        )
    _flush(target)


def _migrate(path: Path) -> None:
    """Replace a copy of an older format by one of the current format."""
    with contextlib.closing(connect(path, "ro")) as connection:
        format_ = try_read(find_format, path, connection)
    if format_ is not None and format_ < FORMAT:  # a damaged one is reported when it is verified
        new = add_suffix(path, BUILDING)
        copy_rows(path, new)
        _flush(new)
        os.rename(new, path)


def _flush(path: Path) -> None:
    """Make a copy one file, also while it is verified, and flush it to disk. A server changes the mode back."""
    with contextlib.closing(connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _verify(path: Path, progress: Progress) -> StoreReport:
    with contextlib.closing(SqliteStore(path, shared=True, create=False, read_only=True)) as store:
        return verify_store(store, lambda stream, done, total: progress(f"replaying {stream}", done, total))


def _refuse_existing(path: Path, problem: str) -> None:
    if not path.parent.is_dir():
        raise StoreError(path, "no_folder", f"the folder {path.parent} does not exist")
    if path.exists() or path.is_symlink():
        raise StoreError(path, "exists", f"already exists; {problem}")


@contextlib.contextmanager
def _hold(store: Path) -> Iterator[None]:
    """Lock the store file, if it exists, as a server would: a server may be using it from another folder."""
    descriptor = open_file(store, lock=True) if store.exists() else None
    try:
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _find_lost(copy: Path, *places: Path) -> tuple[Path | None, dict[str, int] | None]:
    """Return the first of some stores beside which there are marks of this store, and by stream how many events,
    according to them, the copy lacks. None: there are streams, but no marks of this store."""
    with contextlib.closing(SqliteStore(copy, shared=True, create=False, read_only=True)) as opened:
        id_ = read_meta(opened.connection).get("id", "")
        last = {row.name: (row.id, opened.last_number(row.id)) for row in opened.read_streams()}
    for place in places:
        if marks := read_marks(place, id_):
            missing = {name: marks.get(stream, 0) - number for name, (stream, number) in last.items()}
            return place, {name: number for name, number in missing.items() if number > 0}
    return None, None if last else {}


def _move_aside(store: Path, *, keep_mark: bool) -> tuple[Path | None, Path | None]:
    """Move a store and all its files aside; return the new paths of the store and of its marks, if there were any."""
    names = [suffix for suffix in (*SIDE_FILES, "") if add_suffix(store, suffix).exists()]
    aside = next(path for n in count(1) if not (path := add_suffix(store, f".replaced-{n}")).exists())
    for suffix in names:
        if suffix == ".mark" and keep_mark:
            shutil.copy2(marks_path(store), marks_path(aside))
        else:
            os.rename(add_suffix(store, suffix), add_suffix(aside, suffix))
    flush_folder(store.parent)
    return aside if "" in names else None, marks_path(aside) if ".mark" in names else None
