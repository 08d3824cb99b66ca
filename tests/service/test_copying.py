"""Streams are copied and moved between stores of both kinds, bit for bit, verified, all of a stream or nothing."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from support.postgres import Cluster
from support.refusals import rejects
from support.server import pack_stream
from support.stores import RAW, Facts, add_stream, compact, decide, edit, open_directly
from windvane.service import copying
from windvane.service.copying import copy_streams
from windvane.service.recovery import rebuild_stream
from windvane.service.store import Event, SqliteStore, StoreError, StreamRow, Token, is_postgres, open_store
from windvane.service.store.postgres.store import PostgresStore
from windvane.service.verification import verify_store

Place = str | Path
PAIRS = [("sqlite", "postgres"), ("postgres", "sqlite"), ("sqlite", "sqlite"), ("postgres", "postgres")]


@pytest.fixture
def create_place(cluster: Cluster, template: str, tmp_path: Path) -> Iterator[Callable[[str], Place]]:
    """A function that returns where a new store may be, by its kind."""
    numbers, databases = itertools.count(1), list[str]()

    def create(kind: str) -> Place:
        if kind == "sqlite":
            return tmp_path / f"{next(numbers)}.db"
        databases.append(cluster.create_database(template))
        return cluster.url(databases[-1])

    yield create
    for name in databases:
        cluster.drop_database(name)


class Content(NamedTuple):
    """All that a store holds."""

    rows: list[StreamRow]
    events: dict[str, list[Event]]
    states: dict[str, tuple[Any, Any]]
    tokens: list[Token]


def read(where: Place) -> Content:
    with closing(open_store(where, shared=True, read_only=True)) as store:
        rows = store.read_streams()
        events = {row.name: list(store.read_events(row.id)) for row in rows}
        states = {row.name: (store.read_snapshot(row.id), store.read_baseline(row.id)) for row in rows}
        return Content(rows, events, states, store.tokens.read())


def check(where: Place) -> None:
    """Verify a store, as the command does."""
    with closing(open_store(where, shared=True, read_only=True)) as store:
        report = verify_store(store)
        assert report.is_sound, report
        assert [note for stream in report.streams for note in stream.notes if note.code == "no_mark"] == []


def recover(where: Place) -> dict[str, bytes]:
    """Return the states from which a server would start, by stream."""
    with closing(open_store(where, shared=True, read_only=True)) as store:
        return {row.name: pack_stream(rebuild_stream(row, store)) for row in store.read_streams()}


def fill(where: Place, *names: str, rounds: int = 3) -> None:
    """Add small streams; the last one has lost its first events and a request."""
    with closing(open_directly(where)) as store:
        streams = [add_stream(store, name) for name in names]
        for stream in streams:
            decide(stream, store, rounds)
        store.append([], [(stream.id, stream.snapshot()) for stream in streams])
        compact(store, streams[-1], 2, (3,))
        decide(streams[-1], store, 1)


@pytest.mark.parametrize("kinds", PAIRS, ids="-".join)
def test_a_copy_has_the_same_bytes(
    kinds: tuple[str, str], copy: Path, facts: Facts, create_place: Callable[[str], Place]
) -> None:
    source, target = copy, create_place(kinds[1])
    if kinds[0] == "postgres":
        source = create_place("postgres")
        copy_streams(copy, source)
    fill(source, "short", "compacted")
    before = read(source)
    steps: dict[str, int] = {}
    result = copy_streams(source, target, progress=lambda step, done, total: steps.update({step: total - done}))
    assert read(target) == before == read(source)
    assert recover(target) == recover(source)
    assert facts.states.items() <= recover(target).items()
    check(target)
    assert result.to_plain()["streams"] == [
        {"stream": row.name, "events": before.events[row.name][-1].number, "copied": True, "same_id": True}
        for row in before.rows
    ]
    assert (result.tokens, result.other_tokens) == (["reader", "writer"], [])
    assert set(steps.values()) == {0}
    assert [step for step in steps if step.endswith("short")] == [
        "verifying short", "copying short", "verifying the copy of short",
    ]  # fmt: skip


@pytest.mark.parametrize("kinds", PAIRS, ids="-".join)
def test_a_taken_id_is_replaced_and_the_chain_computed_again(
    kinds: tuple[str, str], create_place: Callable[[str], Place]
) -> None:
    source, target = map(create_place, kinds)
    fill(source, "a", "b")
    fill(source, "c")
    fill(target, "x", "y")
    before, theirs = read(source), read(target)
    result = copy_streams(source, target)
    after = read(target)
    assert [(copy.stream, copy.keeps_id) for copy in result.streams] == [("c", True), ("a", False), ("b", False)]
    assert [(row.id, row.name) for row in after.rows] == [(1, "x"), (2, "y"), (3, "c"), (4, "a"), (5, "b")]
    assert all(row.is_sound for row in after.rows)
    assert after.events["c"] == before.events["c"]
    for name in ("a", "b"):
        assert [event[1:10] for event in after.events[name]] == [event[1:10] for event in before.events[name]]
        assert {event.chain for event in after.events[name]}.isdisjoint(event.chain for event in before.events[name])
    assert {name: after.events[name] for name in "xy"} == theirs.events
    snapshot, baseline = after.states["b"]
    assert (baseline.removed, baseline.removed_chain) == (2, before.states["b"][1].removed_chain)
    assert snapshot.chain == after.events["b"][snapshot.number - 3].chain
    assert baseline.snapshot.agent == before.states["b"][1].snapshot.agent
    assert after.states["a"][0].agent == before.states["a"][0].agent
    check(target)


def test_an_id_that_is_taken_is_found_in_all_places(tmp_path: Path) -> None:
    """A stream with it, events of a removed one that are left, a mark of a lost one."""
    fill(tmp_path / "a.db", "a", "b")
    for name, spoil in {
        "events.db": lambda store: store.append([Event.create(b"", 1, 1, 1.0, 1)]),
        "mark.db": lambda store: store.mark_acknowledged({1: 1}),
    }.items():
        with closing(open_store(tmp_path / name)) as store:
            spoil(store)
        result = copy_streams(tmp_path / "a.db", tmp_path / name)
        assert [copy.keeps_id for copy in result.streams] == [False, False]


@pytest.mark.parametrize("kinds", PAIRS, ids="-".join)
def test_moved_streams_are_gone_from_the_source(kinds: tuple[str, str], create_place: Callable[[str], Place]) -> None:
    source, target = map(create_place, kinds)
    fill(source, "a", "b", "c")
    before, states = read(source), recover(source)
    result = copy_streams(source, target, ["c", "a"], move=True)
    assert [copy.stream for copy in result.streams] == ["a", "c"]
    assert result.to_plain()["moved"]
    assert [row.name for row in read(source).rows] == ["b"]
    assert read(target).events == {name: before.events[name] for name in "ac"}
    copy_streams(target, source, move=True)  # and back: the ids are free again
    assert read(source) == before
    assert recover(source) == states
    assert read(target).rows == []
    for place in (source, target):
        check(place)


def test_a_service_continues_equally_on_both(copy: Path, create_place: Callable[[str], Place]) -> None:
    places = [copy, create_place("postgres"), create_place("sqlite")]
    for source, target in itertools.pairwise(places):
        copy_streams(source, target)
    answers = []
    for place in places:
        with closing(open_store(place)) as store:
            row = store.find_stream("other")
            assert row is not None
            stream = rebuild_stream(row, store)
            bodies = [json.loads(stream.decide(RAW, None, 100.0 + i).body) for i in range(20)]
            answers.append([{name: value for name, value in body.items() if name != "id"} for body in bodies])
    assert answers[0] == answers[1] == answers[2]


# --- refusals --------------------------------------------------------------------------------------------------------


def refuse(code: str, *arguments: Any, **more: Any) -> str:
    with pytest.raises(StoreError) as caught:
        copy_streams(*arguments, **more)
    assert caught.value.code == code, caught.value
    return str(caught.value)


@pytest.mark.parametrize("kinds", PAIRS, ids="-".join)
def test_a_stream_of_the_same_name_is_not_replaced(
    kinds: tuple[str, str], create_place: Callable[[str], Place]
) -> None:
    source, target = map(create_place, kinds)
    fill(source, "a", "b", "c")
    fill(target, "b")
    before = read(source), read(target)
    assert "different streams with the same names: 'b'" in refuse("exists", source, target, move=True)
    assert (read(source), read(target)) == before
    assert [copy.stream for copy in copy_streams(source, target, ["a", "c"]).streams] == ["c", "a"]
    with (
        closing(open_store(target)) as store,
        pytest.raises(StoreError) as caught,
        store.import_stream(before[0].rows[0]),
    ):
        pass
    assert caught.value.code == "exists"


def test_stores_and_streams_that_cannot_be_used(tmp_path: Path, database_url: str) -> None:
    path = tmp_path / "a.db"
    assert "does not exist" in refuse("no_store", path, tmp_path / "b.db")
    assert "does not exist" in refuse("no_store", database_url, tmp_path / "b.db")
    fill(path, "a")
    assert "same store" in refuse("in_use", path, tmp_path / "." / "a.db")
    assert "same store" in refuse("in_use", database_url, database_url)
    assert "no stream named 'b', 'c'" in refuse("no_stream", path, tmp_path / "b.db", ["c", "a", "b"])
    assert [file.name for file in tmp_path.glob("b.db*")] == []
    with closing(open_store(path)):
        assert "another server has this store" in refuse("in_use", path, tmp_path / "b.db")
        fill(tmp_path / "b.db", "b")
        assert "another server has this store" in refuse("in_use", tmp_path / "b.db", path)


def test_a_damaged_store_is_not_repaired_unasked(tmp_path: Path) -> None:
    """Its structure is damaged: a server would build a new file."""
    path = tmp_path / "a.db"
    fill(path, "a")
    edit(path, "DROP INDEX events_by_key")
    content = path.read_bytes()
    for source, target in ((path, tmp_path / "b.db"), (tmp_path / "c.db", path)):
        if source != path:
            fill(source, "c")
        with rejects(error=StoreError, where=str(path), code="damaged"):
            copy_streams(source, target)
        assert path.read_bytes() == content
    assert not list(tmp_path.glob("*.damaged-*"))
    assert not (tmp_path / "b.db").exists()


def test_the_same_database_under_two_names(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(database_url, "a")
    other = f"{database_url}&options=-clock_timeout%3D100"
    assert "both the source and the target of this command" in refuse("in_use", database_url, other, move=True)
    assert [row.name for row in read(database_url).rows] == ["a"]


def test_a_database_that_is_served_is_refused(
    tmp_path: Path, database_url: str, database: str, cluster: Cluster
) -> None:
    fill(tmp_path / "a.db", "a")
    fill(database_url, "b")
    values = "'i', 'node-7', 'http://h', '1', 4, now(), now() + interval '1 hour'"
    cluster.execute(f"INSERT INTO nodes VALUES ({values})", database=database)
    for places in (
        (tmp_path / "a.db", database_url),
        (database_url, tmp_path / "a.db"),
        (database_url, tmp_path / "n"),
    ):
        assert "is served by the nodes node-7; stop them first" in refuse("in_use", *places)
    assert not (tmp_path / "n").exists()
    # A node whose lease has run out is removed, and what it still writes is refused.
    cluster.execute("UPDATE nodes SET lease_until = now() - interval '1 second'", database=database)
    cluster.execute("UPDATE shards SET node = 'i', epoch = -5", database=database)
    copy_streams(tmp_path / "a.db", database_url)
    free = cluster.execute("SELECT count(*) FROM shards WHERE node IS NULL AND epoch <> -5", database=database)
    assert free == [(64,)]
    with closing(open_store(database_url)) as store:
        assert [row.name for row in store.read_streams()] == ["b", "a"]


@pytest.mark.parametrize("kinds", PAIRS, ids="-".join)
def test_a_damaged_stream_is_not_copied(kinds: tuple[str, str], create_place: Callable[[str], Place]) -> None:
    """Also not under a new id, with checksums that would match the damage."""
    source, target = map(create_place, kinds)
    fill(source, "a", "b", "c")
    fill(target, "x", "y")
    id_column = "stream" if is_postgres(source) else "id >> 40"
    edit(source, f"UPDATE events SET key = 'other' WHERE {id_column} = 2 AND key = 'k2'")
    text = refuse("unsound", source, target, move=True)
    assert "stream 'b', event 3: does not match its checksum" in text
    assert [row.name for row in read(source).rows] == ["b"]
    assert [row.name for row in read(target).rows] == ["x", "y", "c", "a"]
    check(target)


# --- interruptions ---------------------------------------------------------------------------------------------------


class StopError(Exception):
    """Stands for a process that ends."""


def stop_at(step: str) -> Callable[[str, int, int], None]:
    def progress(name: str, done: int, total: int) -> None:
        if name.startswith(step) and done:
            raise StopError

    return progress


@pytest.mark.parametrize("step", ["verifying b", "copying b", "verifying the copy of b"])
@pytest.mark.parametrize("kinds", PAIRS, ids="-".join)
def test_an_interrupted_copy_leaves_no_part(
    kinds: tuple[str, str], step: str, create_place: Callable[[str], Place]
) -> None:
    source, target = map(create_place, kinds)
    fill(source, "a", "b", "c")
    before = read(source)
    with pytest.raises(StopError):
        copy_streams(source, target, progress=stop_at(step))
    assert [row.name for row in read(target).rows] == ["a"]
    check(target)
    result = copy_streams(source, target, progress=lambda *_: None)
    assert [(copy.stream, copy.is_new) for copy in result.streams] == [("a", False), ("b", True), ("c", True)]
    assert read(target) == before == read(source)


@pytest.mark.parametrize("kinds", PAIRS, ids="-".join)
@pytest.mark.parametrize("takes_id", [False, True])
def test_a_repeated_move_finishes(
    kinds: tuple[str, str], takes_id: bool, create_place: Callable[[str], Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped between the copy and the removal, both stores have the stream; also if the copy was served since."""
    source, target = map(create_place, kinds)
    fill(source, "a", "b")
    if takes_id:
        fill(target, "x")
    first, second = ("b", "a") if takes_id else ("a", "b")

    def fail(*_: Any) -> None:
        raise StopError

    with monkeypatch.context() as patch:
        patch.setattr(PostgresStore if is_postgres(source) else SqliteStore, "remove_stream", fail)
        with pytest.raises(StopError):
            copy_streams(source, target, move=True)
    assert [row.name for row in read(source).rows] == ["a", "b"]
    with closing(open_directly(target)) as store:
        row = store.find_stream(first)
        assert row is not None
        decide(rebuild_stream(row, store), store)
    number = read(target).events[first][-1].number
    result = copy_streams(source, target, move=True)
    assert {(copy.stream, copy.is_new) for copy in result.streams} == {(first, False), (second, True)}
    assert read(source).rows == []
    assert read(target).events[first][-1].number == number
    check(target)


def test_a_stream_that_changed_after_its_copy_is_not_removed(
    tmp_path: Path, create_place: Callable[[str], Place]
) -> None:
    source, target = tmp_path / "a.db", create_place("postgres")
    fill(source, "a", "b")
    copy_streams(source, target)
    with closing(open_store(source)) as store:
        decide(rebuild_stream(store.read_streams()[0], store), store)
    assert "different streams with the same names: 'a'" in refuse("exists", source, target, move=True)


# --- tokens ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kinds", PAIRS, ids="-".join)
def test_tokens_go_with_all_streams(kinds: tuple[str, str], create_place: Callable[[str], Place]) -> None:
    source, *targets = create_place(kinds[0]), *(create_place(kinds[1]) for _ in range(4))
    fill(source, "a", "b")
    tokens = [Token("page", "hash 1", False, 1.5), Token("shop", "hash 2", True, 2.5)]
    with closing(open_store(source)) as store:
        assert all(store.tokens.add(token) for token in tokens)
    expected = [
        (targets[0], {}, tokens),
        (targets[1], {"names": ["a"]}, []),
        (targets[2], {"tokens": False}, []),
        (targets[3], {"names": ["a"], "tokens": True}, tokens),
    ]
    for target, options, found in expected:
        result = copy_streams(source, target, **options)
        assert read(target).tokens == found
        assert result.tokens == [token.name for token in found]
        with closing(open_store(target, shared=True)) as store:
            assert store.tokens.are_required is bool(found)
    assert read(source).tokens == tokens


def test_other_tokens_of_the_same_name_stay(tmp_path: Path, create_place: Callable[[str], Place]) -> None:
    source, target = tmp_path / "a.db", create_place("postgres")
    fill(source, "a")
    for place, hash_ in ((source, "1"), (target, "2")):
        with closing(open_store(place)) as store:
            store.tokens.add(Token("shop", hash_, True, 1.0))
    result = copy_streams(source, target)
    assert (result.tokens, result.other_tokens) == ([], ["shop"])
    assert [token.hash for token in read(target).tokens] == ["2"]


@pytest.mark.parametrize("kinds", PAIRS, ids="-".join)
def test_authentication_stays_on_without_tokens(kinds: tuple[str, str], create_place: Callable[[str], Place]) -> None:
    source, target = map(create_place, kinds)
    fill(source, "a")
    with closing(open_store(source)) as store:
        store.tokens.add(Token("shop", "1", True, 1.0))
        store.tokens.remove("shop")
    copy_streams(source, target)
    with closing(open_store(target, shared=True)) as store:
        assert store.tokens.are_required
        assert store.tokens.read() == []


def test_events_are_written_in_chunks_of_limited_size(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(copying, "CHUNK", 4)
    monkeypatch.setattr(copying, "CHUNK_BYTES", 10_000)
    fill(tmp_path / "a.db", "a", "b", rounds=5)
    seen: list[int] = []

    def progress(step: str, done: int, _: int) -> None:
        if step == "copying a":
            seen.append(done)

    copy_streams(tmp_path / "a.db", tmp_path / "b.db", ["a"], progress=progress)
    assert seen == [4, 8, 10]
    monkeypatch.setattr(copying, "CHUNK_BYTES", 1)
    seen.clear()
    copy_streams(tmp_path / "a.db", tmp_path / "c.db", ["a"], progress=progress)
    assert seen == list(range(1, 11))
