"""Remove a stream with all of its data.

A stream may have millions of events, and deleting them in one statement could exceed ``statement_timeout``. The first
transaction therefore removes only the stream itself, so that no node serves it and its name is free, and leaves a mark
with its id, which is never used again. Then the events are deleted in slices, and finally the mark. If the process ends
before that, the next process that purges the store finds the mark and deletes the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from windvane.service.store.postgres.connections import Connection
from windvane.service.store.postgres.schema import read_meta, write_meta
from windvane.service.store.protocol import never

Transaction = Callable[[], AbstractContextManager[Connection]]

SLICE_EVENTS = 2000
"""Number of events that one transaction deletes. Measured: 200,000 small events take 0.5 to 1.2 s in all."""
MARK = "removed stream "
"""The prefix of the setting that is the mark; the id of the stream follows."""

_DELETE_SLICE = b"""WITH slice AS (
    SELECT max(number) AS last FROM (
        SELECT number FROM events WHERE stream = %(stream)s AND number > %(after)s ORDER BY number LIMIT %(most)s
    ) AS next
), gone AS (
    DELETE FROM events USING slice WHERE stream = %(stream)s AND number > %(after)s AND number <= last
    AND NOT EXISTS (SELECT FROM streams WHERE id = %(stream)s)
)
SELECT last FROM slice"""
_DELETE_MARK = b"""DELETE FROM meta WHERE name = %(name)s AND (
    NOT EXISTS (SELECT FROM events WHERE stream = %(stream)s) OR EXISTS (SELECT FROM streams WHERE id = %(stream)s))"""


def mark_removed(connection: Connection, stream: int) -> None:
    """Remove a stream and its states, but not its events, in the transaction of the caller."""
    for table, column in (("snapshots", "stream"), ("baselines", "stream"), ("streams", "id")):
        connection.execute(f"DELETE FROM {table} WHERE {column} = %s".encode(), (stream,))
    write_meta(connection, f"{MARK}{stream}", "")


def list_removed(connection: Connection) -> list[int]:
    """Return the ids of removed streams that may have events left."""
    ids = (name.removeprefix(MARK) for name in read_meta(connection) if name.startswith(MARK))
    return sorted(int(text) for text in ids if text.isdigit())


def delete_events(transaction: Transaction, stream: int, is_stopping: Callable[[], bool] = never) -> bool:
    """Delete the events of a removed stream and finally its mark. Return False if ``is_stopping()`` has ended that."""
    last: int | None = 0
    while last is not None:
        if is_stopping():
            return False
        with transaction() as connection, connection.extend_timeout():
            last = delete_slice(connection, stream, last)
    with transaction() as connection:
        delete_mark(connection, stream)
    return True


def delete_slice(connection: Connection, stream: int, after: int) -> int | None:
    """Delete some events of a removed stream after number ``after``. Return the last number, None if none was left.

    Events of an existing stream are never deleted, even if it has a mark.
    """
    values = {"stream": stream, "after": after, "most": SLICE_EVENTS}
    row = connection.execute(_DELETE_SLICE, values).fetchone()
    assert row is not None
    last: int | None = row[0]
    return last


def delete_mark(connection: Connection, stream: int) -> None:
    """Delete the mark of a removed stream, unless the stream has events left."""
    connection.execute(_DELETE_MARK, {"name": f"{MARK}{stream}", "stream": stream})
