"""Erase events, requests and streams, so that their bytes are gone from the file and from its write-ahead log.

SQLite overwrites with zeros what is deleted (``secure_delete``, which every connection that writes must set: pages that
are split or reused would keep old copies otherwise). The write-ahead log still has the pages from before. It is emptied
once it is copied into the file, for which nobody may be reading: :func:`empty_log` is repeated until it succeeds.
"""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

from windvane.service.store.events import STREAM_SPAN
from windvane.service.store.records import Erasure
from windvane.service.store.sqlite.database import connect, insert_row, read_meta, write_row
from windvane.service.store.sqlite.repair import REMOVING

WITHOUT_EVENTS = (".mark", ".lock", "-shm")  # suffixes of files that have no data of events
SLICE = 1000  # events of a removed stream that are deleted in one transaction: other writers wait for it


def erase(connection: sqlite3.Connection, erasure: Erasure) -> None:
    """Set the baseline of a stream, and erase what it makes superfluous, inside a transaction."""
    erasure.check()
    stream, baseline, low = erasure.stream, erasure.baseline, erasure.stream * STREAM_SPAN
    insert_row(connection, "baselines", baseline.to_row(stream), "REPLACE")
    connection.execute("DELETE FROM events WHERE id > ? AND id <= ?", (low, low + baseline.removed))
    for number in erasure.requests:
        connection.execute("UPDATE events SET request = NULL, salt = NULL WHERE id = ?", (low + number,))
    connection.execute("DELETE FROM snapshots WHERE stream = ? AND number < ?", (stream, baseline.snapshot.number))


def begin_removal(connection: sqlite3.Connection, stream: int) -> None:
    """Remove a stream, and note that its events are to be deleted, inside a transaction."""
    for table, column in (("streams", "id"), ("snapshots", "stream"), ("baselines", "stream")):
        connection.execute(f"DELETE FROM {table} WHERE {column} = ?", (stream,))
    settings = read_meta(connection)
    write_row(connection, "meta", "last_stream", str(max(stream, int(settings.get("last_stream", 0)))))
    write_row(connection, "meta", REMOVING, f"{settings.get(REMOVING, '')} {stream}".strip())


def continue_removal(connection: sqlite3.Connection) -> bool:
    """Delete some events of removed streams, inside a transaction; return whether there are more."""
    streams = read_meta(connection).get(REMOVING, "").split()
    if not streams:
        return False
    low = int(streams[0]) * STREAM_SPAN
    some = "SELECT id FROM events NOT INDEXED WHERE id > ? AND id < ? ORDER BY id LIMIT ?"
    query = f"DELETE FROM events WHERE id IN ({some})"
    if connection.execute(query, (low, low + STREAM_SPAN, SLICE)).rowcount < SLICE:
        write_row(connection, "meta", REMOVING, " ".join(streams[1:]))
    return True


def has_erased(connection: sqlite3.Connection) -> bool:
    """Return whether anything may have been erased in a store: events, a request, or a stream."""
    ((streams, baselines),) = connection.execute(
        "SELECT (SELECT count(*) FROM streams), (SELECT count(*) FROM baselines)"
    )
    return bool(baselines > 0 or str(streams) != read_meta(connection).get("last_stream"))


def list_copies(path: Path) -> list[str]:
    """Return the names of old files of the store that are kept: nothing is erased in them."""
    kinds = tuple(f"{path.name}.{kind}-" for kind in ("damaged", "format", "replaced"))
    names = (file.name for file in path.parent.iterdir() if file.name.startswith(kinds))
    return sorted(name for name in names if not name.endswith(WITHOUT_EVENTS))


def empty_log(path: Path) -> bool:
    """Copy the write-ahead log into the file, and cut it to nothing; return False if a reader or a writer is in the
    way. Does not wait for them."""
    with contextlib.closing(connect(path)) as connection:
        connection.execute("PRAGMA busy_timeout=0")
        ((is_busy, _, _),) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return not is_busy
