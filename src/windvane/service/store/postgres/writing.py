"""Write events, snapshots and erasures, fenced by the epochs of their shards.

Events and snapshots are written by one statement, which is one round trip and one transaction. A process that is
stopped in the middle of it therefore cannot keep the locks on its shards. Because of these locks (FOR SHARE), the
statement waits for a node that is taking a shard over, and that node waits for the statement. After waiting, PostgreSQL
checks the epoch again.

An event is written only if the event before it exists. The promotion of a standby that was behind may have lost that
event, and a log with a gap could never be replayed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from windvane.service.store.events import Event
from windvane.service.store.postgres.connections import Connection
from windvane.service.store.records import Baseline, DatabaseError, Erasure, FencedError, Snapshot, seal_row

_FENCE = """fence AS MATERIALIZED (
    SELECT streams.id FROM unnest(%b::bigint[], %b::bigint[]) AS claim (stream, epoch)
    JOIN streams ON streams.id = claim.stream
    JOIN shards ON shards.shard = streams.shard AND shards.epoch = claim.epoch
    ORDER BY shards.shard FOR SHARE OF shards
), gaps AS MATERIALIZED (
    SELECT last.stream FROM unnest(%b::bigint[], %b::bigint[]) AS last (stream, number)
    WHERE NOT EXISTS (SELECT FROM events WHERE events.stream = last.stream AND events.number = last.number)
    AND NOT EXISTS (SELECT FROM baselines WHERE baselines.stream = last.stream AND removed >= last.number)
), gate AS MATERIALIZED (
    SELECT count(*) = cardinality(%b::bigint[]) AND NOT EXISTS (SELECT FROM gaps) AS is_open FROM fence
)"""
_EVENTS = """stored AS (
    INSERT INTO events SELECT * FROM unnest(
        %b::bigint[], %b::bigint[], %b::double precision[], %b::smallint[], %b::text[], %b::text[],
        %b::bytea[], %b::bytea[], %b::bytea[], %b::bytea[], %b::bytea[]
    ) WHERE (SELECT is_open FROM gate)
)"""
_SNAPSHOTS = """kept AS (
    INSERT INTO snapshots SELECT * FROM unnest(
        %b::bigint[], %b::bigint[], %b::bytea[], %b::bytea[], %b::bytea[], %b::bytea[]
    ) WHERE (SELECT is_open FROM gate)
    ON CONFLICT (stream) DO UPDATE SET number = excluded.number, chain = excluded.chain, agent = excluded.agent,
        extra = excluded.extra, digest = excluded.digest
)"""
_RESULT = "SELECT ARRAY(SELECT id FROM fence) FROM gate WHERE NOT is_open"
_WITH_EVENTS = f"WITH {_FENCE}, {_EVENTS} {_RESULT}".encode()
_WITH_SNAPSHOTS = f"WITH {_FENCE}, {_EVENTS}, {_SNAPSHOTS} {_RESULT}".encode()
_BASELINE = b"""INSERT INTO baselines VALUES (%s, %s, %b, %b, %b, %s, %b, %s, %s, %b)
    ON CONFLICT (stream) DO UPDATE SET number = excluded.number, chain = excluded.chain, agent = excluded.agent,
        extra = excluded.extra, removed = excluded.removed, removed_chain = excluded.removed_chain,
        first_time = excluded.first_time, last_time = excluded.last_time, digest = excluded.digest"""
EVENT_COLUMNS, SNAPSHOT_COLUMNS = 11, 6


def write_batch(
    connection: Connection,
    events: Sequence[Event],
    snapshots: Sequence[tuple[int, Snapshot]],
    erasures: Sequence[Erasure],
    epochs: Mapping[int, int],
) -> None:
    """Write everything or nothing; it is durable when this returns. Raises :class:`FencedError` if an epoch has ended.

    Without ``epochs`` nothing is fenced. With them, a stream without an epoch counts as owned by another node.
    """
    latest = dict(snapshots)  # one snapshot per stream: a statement cannot write a row twice
    if epochs:
        streams = {event.stream for event in events} | latest.keys() | {erasure.stream for erasure in erasures}
        if unknown := streams - epochs.keys():
            raise FencedError(unknown)
        epochs = {stream: epochs[stream] for stream in streams}
    if not erasures:
        _write(connection, events, latest, epochs)
        return
    with connection.transaction():
        _write(connection, events, latest, epochs)
        for erasure in erasures:
            _erase(connection, erasure)


def _write(
    connection: Connection, events: Sequence[Event], snapshots: Mapping[int, Snapshot], epochs: Mapping[int, int]
) -> None:
    streams = list(epochs)
    columns = _transpose(events, EVENT_COLUMNS)
    columns[2] = [time + 0.0 for time in columns[2]]  # SQLite stores -0.0 as 0.0
    first = {event.stream: event.number for event in reversed(events)}
    before = {stream: number - 1 for stream, number in first.items() if number > 1 and stream in epochs}
    values: list[Any] = [streams, list(epochs.values()), list(before), list(before.values()), streams, *columns]
    query = _WITH_EVENTS
    if snapshots:
        query = _WITH_SNAPSHOTS
        rows = [seal_row("snapshots", stream, *snapshot) for stream, snapshot in snapshots.items()]
        values += _transpose(rows, SNAPSHOT_COLUMNS)
    for (passed,) in connection.execute(query, values, prepare=True, binary=True):
        if fenced := epochs.keys() - set(passed):
            raise FencedError(fenced)
        raise DatabaseError("stored events are missing: a backup was restored, or a standby without them was promoted")


def _transpose(rows: Sequence[Sequence[Any]], columns: int) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(columns)]


def _erase(connection: Connection, erasure: Erasure) -> None:
    """Set the baseline of a stream, and delete the events, requests and snapshot that it replaces."""
    erasure.check()
    stream, baseline, requests = erasure
    connection.execute(_BASELINE, baseline.to_row(stream))
    connection.execute("DELETE FROM events WHERE stream = %s AND number <= %s", (stream, baseline.removed))
    if requests:
        query = "UPDATE events SET request = NULL, salt = NULL WHERE stream = %s AND number = ANY(%s)"
        connection.execute(query, (stream, list(requests)))
    query = "DELETE FROM snapshots WHERE stream = %s AND number < %s"
    connection.execute(query, (stream, baseline.snapshot.number))


def fence_shard(connection: Connection, shard: int, epoch: int | None, streams: Iterable[int] = ()) -> None:
    """Lock a shard until the end of the transaction. Raise :class:`FencedError` if ``epoch`` has ended.

    An epoch of None fences nothing.
    """
    if epoch is not None:
        query = "SELECT 1 FROM shards WHERE shard = %s AND epoch = %s FOR SHARE"
        if connection.execute(query, (shard, epoch)).fetchone() is None:
            raise FencedError(frozenset(streams))


# --- while no server uses the store -----------------------------------------------------------------------------------


def insert_events(connection: Connection, events: Sequence[Event]) -> None:
    """Add events to a stream that no node serves."""
    _write(connection, events, {}, {})


def insert_states(connection: Connection, stream: int, snapshot: Snapshot | None, baseline: Baseline | None) -> None:
    """Add the snapshot and the baseline to a stream that no node serves."""
    if snapshot is not None:
        _write(connection, [], {stream: snapshot}, {})
    if baseline is not None:
        connection.execute(_BASELINE, baseline.to_row(stream))
