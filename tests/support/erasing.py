"""Events that can be found again in the bytes of a store, and baselines for them: without agents."""

from __future__ import annotations

from pathlib import Path

from support.stores import query
from windvane.service.store import DECIDED, Baseline, Event, Snapshot, Store, StreamRow
from windvane.service.store.postgres.schema import TABLES


def add_row(store: Store, name: str = "shop") -> StreamRow:
    row = store.add_stream(name, 1.0, "{}")
    assert row is not None
    return row


def make_events(row: StreamRow, count: int, size: int = 30, after: Event | None = None) -> list[Event]:
    """Return events whose request, decision and key name themselves; a long request does so on every page."""
    events, chain, first = list[Event](), row.digest if after is None else after.chain, after.number if after else 0
    for number in range(first + 1, first + count + 1):
        mark = f"{row.name}-{row.id}-{number}-"
        request = f"request of {mark}".encode() * (1 + size // 20)
        decision, key = f"decision {mark}", f"key {mark}"
        events.append(Event.create(chain, row.id, number, 10.0 + number, DECIDED, decision, key, b'{"a": 1}', request))
        chain = events[-1].chain
    return events


def make_baseline(events: list[Event], number: int, removed: int) -> Baseline:
    """Return the baseline after event ``number`` of a log, of which events up to ``removed`` are gone."""
    snapshot = Snapshot(number, events[number - 1].chain, b"agent", b"{}")
    chain = events[removed - 1].chain if removed else b"digest"
    times = (events[0].time, events[removed - 1].time) if removed else (None, None)
    return Baseline(snapshot, removed, chain, *times)


def read_bytes(where: str | Path) -> bytes:
    """Return the bytes of all files of a store. Of a database: all values in its tables, as clients can read them."""
    if isinstance(where, Path):
        return b"".join(file.read_bytes() for file in sorted(where.parent.glob(f"{where.name}*")))
    values = (value for table in TABLES for row in query(where, f"SELECT * FROM {table}") for value in row)
    return b"\n".join(value if isinstance(value, bytes) else str(value).encode() for value in values)
