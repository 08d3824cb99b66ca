"""Locks that let one process at a time open a store. The system releases them when the process ends."""

from __future__ import annotations

import fcntl
import os
import stat
from pathlib import Path

from windvane.service.store.database import StoreError


def lock_side_file(path: Path, store: Path) -> int:
    """Return an open, locked file. It is never removed: removing it would let two processes lock two files."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    except OSError as error:
        raise StoreError(store, "unlockable", f"cannot be locked ({path.name}: {error.strerror})") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise StoreError(store, "unlockable", f"cannot be locked ({path.name} is not a plain file)")
    try:
        lock_file(descriptor, store)
    except StoreError:
        os.close(descriptor)
        raise
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, str(os.getpid()).encode(), 0)
    return descriptor


def lock_file(descriptor: int, store: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        holder = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip()
        who = f" (process {holder})" if holder.isdigit() else ""
        problem = f"another server has this store{who} open; stop it, or use another store"
        raise StoreError(store, "in_use", problem) from None
