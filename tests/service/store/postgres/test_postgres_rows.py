"""Events, snapshots and streams of all shapes are the same, bit for bit, in both stores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.stores import query
from windvane.service.store import Event, Snapshot, SqliteStore, Store, Token, check_event
from windvane.service.store.events import KINDS
from windvane.service.store.postgres import lookups
from windvane.service.store.postgres.store import PostgresStore

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
TIMES = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([0.0, -0.0, 5e-324, 1.7976931348623157e308])
BYTES = st.binary(max_size=60) | st.sampled_from([b"", b"\0", b"\\x00", b"\xff" * 3000])
NUMBERS = st.integers(1, (1 << 40) - 1)
CONTENTS = st.tuples(TIMES, st.sampled_from(sorted(KINDS)), st.none() | TEXT, BYTES, st.none() | BYTES)

Pair = tuple[SqliteStore, PostgresStore]


@pytest.fixture
def pair(tmp_path: Path, pg: PostgresStore) -> Iterator[Pair]:
    with closing(SqliteStore(tmp_path / "a.db")) as store:
        yield store, pg


def read_all(store: Store, stream: int) -> list[Event]:
    return list(store.read_events(stream))


_streams = iter(range(1, 1 << 20))


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(CONTENTS, max_size=8), st.lists(TEXT, max_size=8, unique=True), st.data())
def test_events_of_all_shapes(pair: Pair, contents: list[Any], keys: list[str], data: st.DataObject) -> None:
    """Every example has a stream of its own."""
    stream, chain, events = next(_streams), b"start", []
    for number, (time, kind, decision, outcome, request) in enumerate(contents, 1):
        key = keys[number - 1] if number <= len(keys) else None
        event = Event.create(chain, stream, number, time, kind, decision, key, outcome, request)
        chain = event.chain
        events.append(event)
    snapshot = Snapshot(data.draw(NUMBERS), data.draw(BYTES), data.draw(BYTES), data.draw(BYTES))
    for store in pair:
        store.append(events, [(stream, snapshot)])
    first, second = (read_all(store, stream) for store in pair)
    assert first == second == events
    assert [list(map(type, event)) for event in first] == [list(map(type, event)) for event in second]
    assert [str(event.time) for event in first] == [str(event.time) for event in second]  # -0.0 is 0.0
    chain = b"start"
    for event in second:
        check_event(chain, event)
        chain = event.chain
    assert [store.read_snapshot(stream) for store in pair] == [snapshot] * 2
    for event in events:
        if event.key is not None:
            assert [store.find_events([(stream, event.key)]) for store in pair] == [[event]] * 2
        if event.decision is not None:
            one, two = (store.find_events(decisions=[(stream, event.decision)]) for store in pair)
            assert one == two
    names = [(stream, event.key) for event in events if event.key is not None]
    decisions = [(stream, event.decision) for event in events if event.decision is not None]
    one, two = (store.find_events(names, decisions) for store in pair)
    assert one == two


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(TEXT, TIMES, TEXT)
def test_streams_and_tokens_of_all_shapes(pair: Pair, name: str, created: float, text: str) -> None:
    created = created + 0.0
    rows = [store.find_stream(name) or store.add_stream(name, created, text) for store in pair]
    assert rows[0] == rows[1]
    assert rows[0] == pair[1].find_stream(name)
    assert rows[0] is not None
    assert rows[0].is_sound
    added = [store.tokens.add(Token(name, text, bool(len(name) % 2), created)) for store in pair]
    assert added[0] == added[1]
    assert pair[0].tokens.read() == pair[1].tokens.read()
    assert pair[1].tokens.read_damaged() == []


def test_rows_have_the_same_checksums(pair: Pair, tmp_path: Path, database_url: str) -> None:
    for store in pair:
        store.add_stream("shop", 1.0, '{"a": 1}')
        store.tokens.add(Token("writer", "hash", True, 2.0))
        store.append([], [(1, Snapshot(3, b"chain", b"agent", b"{}"))])
    for table in ("streams", "tokens", "snapshots"):
        (first,), (second,) = (
            query(where, f"SELECT digest FROM {table}") for where in (tmp_path / "a.db", database_url)
        )
        assert first == second, table


def test_large_events_are_read_in_small_chunks(pg: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """No chunk has many more bytes than the limit, and none is empty before the end."""
    sizes = [100, 3 << 20, 10, 600_000, 600_000, 600_000, *[50] * 2500, 2 << 20]
    events = [Event(1, n, 1.0, 1, None, None, b"{}", bytes(size)) for n, size in enumerate(sizes, 1)]
    pg.append(events)
    chunks: list[int] = []
    read = pg.query

    def count(text: str, *values: object) -> list[Any]:
        rows = read(text, *values)
        chunks.append(sum(len(row[7]) for row in rows))
        assert len(rows) <= lookups.CHUNK
        return rows

    monkeypatch.setattr(pg, "query", count)
    assert read_all(pg, 1) == events
    assert max(chunks) <= lookups.CHUNK_BYTES + (3 << 20)
    assert len(chunks) == 6  # the last is empty
    chunks.clear()
    assert list(pg.read_events(1, after=2, limit=4)) == events[2:6]
    assert list(pg.read_events(1, limit=0)) == list(pg.read_events(1, after=len(events))) == []


def test_a_table_that_grew_after_its_plans_were_made_is_not_scanned(pg: PostgresStore) -> None:
    """Plans are kept; those made for an empty table must use the indexes too."""
    queries = {
        lookups.NEXT_EVENTS: (1, 0, 1000),
        lookups.BY_KEYS_AND_DECISIONS: ([1], ["k"], [1], ["d"]),
        lookups.LAST_NUMBER: (1, 1),
        lookups.CHAIN: (1, 1, 1, 1),
    }
    for text, values in queries.items():
        plan = "\n".join(line for (line,) in pg.query(f"EXPLAIN {text}", *values))
        assert "Seq Scan" not in plan, plan
        assert "Hash" not in plan, plan
        assert "Index" in plan


def test_what_no_text_in_a_database_can_be_is_not_found(pair: Pair) -> None:
    """Whatever a client sends as an id must not look like a failure of the database, nor disturb other lookups."""
    event = Event.create(b"start", 1, 1, 1.0, sorted(KINDS)[0], "d", "k", b"{}", None)
    for store in pair:
        store.append([event])
        assert store.find_events(decisions=[(1, "d\0")]) == []
        assert store.find_events([(1, "\0k")]) == []
        assert store.find_events([(1, "\0"), (1, "k")], [(1, "a\0b"), (1, "d")]) == [event]
