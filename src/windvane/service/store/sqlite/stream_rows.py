"""Add streams and events to the tables of an SQLite file, inside a transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import cache
from itertools import chain
from typing import Any

from windvane.service.store.events import STREAM_SPAN, Event
from windvane.service.store.records import Baseline, Snapshot, StreamRow, seal_row
from windvane.service.store.sqlite.database import insert_row, read_meta, write_row
from windvane.service.store.sqlite.repair import REMOVING, is_id

ROWS = 64  # events per statement: each statement releases the GIL and waits to get it back
_COLUMNS = 10  # of an event


def insert_events(connection: sqlite3.Connection, events: Sequence[Event]) -> None:
    """Add events. Up to :data:`ROWS` of them are one statement, which is a transaction of its own outside of one."""
    for i in range(0, len(events), ROWS):
        rows = [event.to_row() for event in events[i : i + ROWS]]
        connection.execute(_write_insert(len(rows)), list(chain.from_iterable(rows)))


@cache
def _write_insert(rows: int) -> str:
    places = ", ".join([f"({', '.join('?' * _COLUMNS)})"] * rows)
    return f"INSERT INTO events VALUES {places}"


def insert_stream(connection: sqlite3.Connection, id_: int, name: str, created: float, config: str) -> StreamRow:
    """Add a stream whose id was never used, or is free (:func:`is_free`)."""
    row: Any = seal_row("streams", id_, name, float(created), config)
    last = find_last_id(connection)
    insert_row(connection, "streams", row, "ABORT")
    write_row(connection, "meta", "last_stream", str(max(id_, last)))
    return StreamRow(*row)


def insert_states(
    connection: sqlite3.Connection, stream: int, snapshot: Snapshot | None, baseline: Baseline | None
) -> None:
    """Add the snapshot and the baseline of a stream that has none."""
    if snapshot is not None:
        write_row(connection, "snapshots", stream, *snapshot)
    if baseline is not None:
        insert_row(connection, "baselines", baseline.to_row(stream), "ABORT")


def find_last_id(connection: sqlite3.Connection) -> int:
    """Return the highest id that a stream has or had, as far as the tables tell."""
    ((last,),) = connection.execute("SELECT max(id) FROM streams")
    return max(last or 0, int(read_meta(connection).get("last_stream", 0)))


def is_free(connection: sqlite3.Connection, id_: int) -> bool:
    """Return whether no stream has this id, and nothing is left in the tables of one that had it."""
    if not is_id(id_) or str(id_) in read_meta(connection).get(REMOVING, "").split():
        return False
    low = id_ * STREAM_SPAN
    queries = {
        "SELECT 1 FROM streams WHERE id = ?": (id_,),
        "SELECT 1 FROM events NOT INDEXED WHERE id > ? AND id < ? LIMIT 1": (low, low + STREAM_SPAN),
    }
    return all(connection.execute(query, values).fetchone() is None for query, values in queries.items())
