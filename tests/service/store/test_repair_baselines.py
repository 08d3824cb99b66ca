"""Repair of stores whose logs are not whole: a sound baseline is kept, and damage costs no more than it must."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest

from support.server import pack_stream
from support.stores import (
    STREAMS,
    build,
    codes,
    compact,
    copy_store,
    edit,
    find_owners,
    flip,
    query,
    recover_all,
    root_page,
    verify,
    zero_page,
)
from windvane.service.store import Baseline, SnapshotError, SqliteStore, UnreadableEventError, check_event
from windvane.service.store.events import STREAM_SPAN, Event
from windvane.service.store.sqlite.database import PAGE_BYTES


class Compacted(NamedTuple):
    """A store after an erasure: "shop" lacks events up to 9, "other" two requests, and "fields" nothing."""

    path: Path
    states: dict[str, bytes]
    baselines: dict[str, Baseline | None]
    logs: dict[str, list[Event]]


@pytest.fixture(scope="module")
def compacted(tmp_path_factory: pytest.TempPathFactory) -> Compacted:
    path = tmp_path_factory.mktemp("store") / "a.db"
    build(path, rounds=30)
    with closing(SqliteStore(path)) as store:
        streams, _ = recover_all(store)
        requests = [event.number for event in store.read_events(3) if event.request is not None]
        compact(store, streams["shop"], 9)
        compact(store, streams["other"], 0, tuple(requests[:2]))
        for stream in streams.values():
            store.append(stream.configure({"title": "later"}, 900.0).events)
        states = {name: pack_stream(stream) for name, stream in streams.items()}
        baselines = {name: store.read_baseline(stream.id) for name, stream in streams.items()}
        logs = {name: list(store.read_events(stream.id)) for name, stream in streams.items()}
    assert verify(path).is_sound
    return Compacted(path, states, baselines, logs)


def check_served(path: Path, compacted: Compacted) -> tuple[set[str], set[str]]:
    """Recover the streams as a server does: what is served is as it was. Return the streams that are set aside, and
    those that are served without their baseline."""
    without: set[str] = set()
    with closing(SqliteStore(path)) as store:
        streams, unavailable = recover_all(store)
        for number, name in enumerate(STREAMS, 1):
            if name not in streams:
                continue
            assert pack_stream(streams[name]) == compacted.states[name]
            try:
                assert store.read_baseline(number) == compacted.baselines[name] or name == "other"
            except SnapshotError:  # of a page that does not show its damage: the stream is served from its snapshot
                without.add(name)
            check_log(store, number, compacted.logs[name])
    return set(unavailable), without


def check_log(store: SqliteStore, stream: int, expected: list[Event]) -> None:
    """Every event that matches its checksum is as it was."""
    for event in store.read_events(stream):
        previous = store.read_chain(stream, event.number - 1)
        try:
            check_event(previous or b"", event)
        except UnreadableEventError:
            continue
        assert event == expected[event.number - expected[0].number]


def test_a_zeroed_page_costs_at_most_the_streams_on_it(compacted: Compacted, tmp_path: Path) -> None:
    """Of a stream with a baseline, a page of events before it costs nothing."""
    content, owners = compacted.path.read_bytes(), find_owners(compacted.path)
    roots = dict(query(compacted.path, "SELECT rootpage, name FROM sqlite_master"))
    costs = {}
    for page in range(1, len(content) // PAGE_BYTES + 1):
        copy = copy_store(compacted.path, tmp_path / "b.db", zero_page(content, page))
        unavailable, without = check_served(copy, compacted)
        costs[roots.get(page, page)] = unavailable
        if roots.get(page) not in ("streams", "events"):
            assert unavailable <= owners.get(page, set()) | {"shop", "other"}, page
        assert without <= {"shop", "other"}, page
        assert not unavailable or not verify(copy).is_sound
    assert "fields" not in costs["baselines"]
    assert costs["events"] == set(STREAMS)
    free = [page for page, streams in owners.items() if "shop" in streams and "shop" not in costs[page]]
    assert free, "no page had only events before the baseline"


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: zero_page(content, 1),
        lambda content: content[:103] + bytes(2) + content[105:],
        lambda content: flip(content, 47, 1),
    ],
)
def test_a_damaged_first_page_costs_nothing(
    compacted: Compacted, tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    copy = copy_store(compacted.path, tmp_path / "b.db", damage(compacted.path.read_bytes()))
    assert not verify(copy).is_sound
    assert check_served(copy, compacted) == (set(), set())
    assert verify(copy).is_sound
    assert query(copy, "SELECT value FROM meta WHERE name = 'last_stream'") == [("3",)]


@pytest.mark.parametrize(("number", "is_served"), [(10, True), (15, True), (-1, False)])
def test_a_damaged_event(compacted: Compacted, tmp_path: Path, number: int, is_served: bool) -> None:
    """Before the baseline it costs itself, and verification reports it; after it, the stream is set aside."""
    copy = copy_store(compacted.path, tmp_path / "b.db")
    last = compacted.logs["shop"][-1].number
    edit(copy, "UPDATE events SET outcome = x'00' WHERE id = ?", STREAM_SPAN + (number if number > 0 else last))
    copy.write_bytes(zero_page(copy.read_bytes(), root_page(copy, "events_by_key")))  # so that it is repaired
    unavailable, _ = check_served(copy, compacted)
    assert unavailable == (set() if is_served else {"shop"})
    assert codes(verify(copy)) == {"shop": ("replay",)}


def test_marks_and_ids_survive_a_repair(compacted: Compacted, tmp_path: Path) -> None:
    """An id that only a removed stream had is not used again."""
    copy = copy_store(compacted.path, tmp_path / "b.db")
    with closing(SqliteStore(copy)) as store:
        row = store.add_stream("new", 1.0, "{}")
        assert row is not None
        store.remove_stream(row)
    copy.write_bytes(zero_page(copy.read_bytes(), root_page(copy, "events_by_key")))
    (tmp_path / "b.db.mark").unlink()
    with closing(SqliteStore(copy)) as store:
        assert (tmp_path / "b.db.damaged-1").exists()
        again = store.add_stream("new", 1.0, "{}")
        assert again is not None
        assert again.id == row.id + 1
