"""Stores as tests build, damage and read them: without HTTP, at fixed times, by SQL or by the byte."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

from support.backends import open_backend
from support.server import ARMS, pack_stream
from windvane import Agent
from windvane.service.baselines import build_baseline
from windvane.service.problems import Problem
from windvane.service.recovery import recover
from windvane.service.store import (
    Baseline,
    Erasure,
    Event,
    ReadableStore,
    Store,
    StoreError,
    Token,
    UnreadableEventError,
    check_event,
    open_store,
)
from windvane.service.store.events import STREAM_SPAN
from windvane.service.store.opening import is_postgres
from windvane.service.store.records import digest_row
from windvane.service.store.sqlite.database import PAGE_BYTES
from windvane.service.streams import Done, Stream
from windvane.service.verification import Finding, StoreReport, verify_store

RAW = json.dumps(ARMS).encode()
FIELDS = {"shared": {"age": [0, 100]}, "by_arm": {"device": ["phone", "desk"]}, "arms": ["a", "b"]}
STREAMS = {
    "shop": {"dim": 2, "reward_timeout": 4.0, "default_reward": 0.25},
    "fields": {"features": FIELDS},
    "other": {"dim": 2, "epsilon": 0.3, "reward_timeout": 1000.0, "learn": "at_timeout"},
}


# --- SQL and bytes ---------------------------------------------------------------------------------------------------


def edit(where: str | Path, sql: str, *parameters: Any) -> None:
    """Change a store from outside: the file at a path, or the database at an address of PostgreSQL."""
    if is_postgres(where):
        with psycopg.connect(str(where)) as database:
            database.execute(sql.replace("?", "%b").encode(), parameters)
        return
    with closing(sqlite3.connect(where)) as connection, connection:
        connection.execute(sql, parameters)


def query(where: str | Path, sql: str) -> list[Any]:
    if is_postgres(where):
        with psycopg.connect(str(where)) as database:
            return database.execute(sql.encode()).fetchall()
    with closing(sqlite3.connect(where)) as connection:
        return connection.execute(sql).fetchall()


def reseal(path: Path) -> None:
    """Make all checksums of streams and events match what the rows say, as only this code can. Removes snapshots."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM snapshots")
        for row in connection.execute("SELECT id, name, created, config FROM streams").fetchall():
            chain = digest_row("streams", *row)
            connection.execute("UPDATE streams SET digest = ? WHERE id = ?", (chain, row[0]))
            columns = "id, time, kind, decision, key, outcome, request"
            events = f"SELECT {columns} FROM events WHERE id / {STREAM_SPAN} = {row[0]} ORDER BY id"
            for rowid, *values in connection.execute(events).fetchall():
                event = Event.create(chain, row[0], rowid % STREAM_SPAN, *values)
                connection.execute(f"REPLACE INTO events VALUES ({'?, ' * 9}?)", event.to_row())
                chain = event.chain


def flip(content: bytes, at: int, bit: int) -> bytes:
    """Return ``content`` with one bit of the byte ``at`` changed."""
    return content[:at] + bytes([content[at] ^ bit]) + content[at + 1 :]


def zero_page(content: bytes, page: int) -> bytes:
    start = (page - 1) * PAGE_BYTES
    return content[:start] + bytes(PAGE_BYTES) + content[start + PAGE_BYTES :]


def root_page(path: Path, name: str) -> int:
    return int(query(path, f"SELECT rootpage FROM sqlite_master WHERE name = '{name}'")[0][0])


def find_owners(path: Path) -> dict[int, set[str]]:
    """Return, by page with events, the streams that have an event on it: what damage to the page may cost at most."""
    content, owners, names = path.read_bytes(), dict[int, set[str]](), list(STREAMS)
    for rowid, before, chain in query(path, "SELECT id, coalesce(request_digest, outcome), chain FROM events"):
        at = content.index(before + chain) + len(before)  # chain values are in snapshots too, after something else
        owners.setdefault(at // PAGE_BYTES + 1, set()).add(names[rowid // STREAM_SPAN - 1])
    return owners


def copy_store(path: Path, target: Path, content: bytes | None = None) -> Path:
    """Copy a store that nobody has open, with its marks; ``content``: of the file itself."""
    for old in target.parent.glob(f"{target.name}*"):
        old.unlink()
    for suffix in ("", "-wal", ".mark"):
        source = path.with_name(path.name + suffix)
        if source.exists() and (suffix != "-wal" or content is None):
            shutil.copyfile(source, target.with_name(target.name + suffix))
    if content is not None:
        target.write_bytes(content)
    return target


# --- a small store with everything in it -----------------------------------------------------------------------------


class Facts(NamedTuple):
    """All that a store has acknowledged."""

    states: dict[str, bytes]  # by stream
    logs: dict[str, list[dict[str, Any]]]
    answers: dict[tuple[str, str], tuple[bytes, bytes]]  # by stream and key: the request to decide, and the answer
    tokens: list[Token]


def add_stream(store: Store, name: str, **settings: Any) -> Stream:
    agent = Agent(**({"dim": 2} | settings if "features" not in settings else settings))
    row = store.add_stream(name, 1.0, json.dumps({"title": None, "agent": agent.core.settings}))
    assert row is not None
    return Stream(row, store)


def snapshot_number(store: ReadableStore, stream: int) -> int:
    """Return the number of the event after which the last snapshot was made, 0 if there is none."""
    snapshot = store.read_snapshot(stream)
    return 0 if snapshot is None else snapshot.number


def decide(stream: Stream, store: Store, count: int = 1, now: float = 10.0) -> None:
    """Store some decisions and rewards."""
    for _ in range(count):
        number = stream.number
        done = stream.decide(RAW, f"k{number}", now + number)
        events = [*done.events, *stream.reward(json.loads(done.body)["id"], number % 3 / 2, now + number).events]
        store.append(events)
        stream.lookup.forget(stream.number)


def open_directly(where: str | Path) -> Store:
    """Open a store whose streams look events up at once, also in a database: there is no engine that fetches them."""
    store = open_store(where)
    store.is_remote = False
    return store


def build(where: str | Path, rounds: int = 8) -> Facts:
    """Make a store with three streams: keys, rewards, parts, late ones, expiries, history, tokens and snapshots."""
    with closing(open_directly(where)) as store:
        streams = {name: add_stream(store, name, **settings) for name, settings in STREAMS.items()}
        answers: dict[tuple[str, str], tuple[bytes, bytes]] = {}

        def keep(done: Done) -> bytes:
            store.append(done.events)
            return done.body

        raw = b'{"rewards": [1.0, 0.0], "vectors": [[0.1, 0.2], [0.3, 0.1]]}'
        shop = streams["shop"]
        keep(shop.learn_history(raw, "history", shop.read_history(raw, 5.0), 5.0))
        for i in range(rounds):
            for name, stream in streams.items():
                body = {"context": {"age": 10 * i % 100, "device": "desk"}} if name == "fields" else ARMS
                key, now = f"key {name} {i}", 10.0 + i
                request = json.dumps(body).encode()
                answers[name, key] = request, keep(stream.decide(request, key, now))
                decision = json.loads(answers[name, key][1])["id"]
                if name == "other":
                    keep(stream.add_reward(decision, 0.25, f"part {i}", now))
                if i % 2:
                    value = i % 3 / 4
                    part = name == "other"
                    keep(stream.add_reward(decision, value, None, now) if part else stream.reward(decision, value, now))
        first = json.loads(answers["shop", "key shop 0"][1])["id"]
        keep(shop.reward(first, 1.0, 10.0 + rounds))  # too late
        keep(shop.configure({"title": "a shop"}, 10.0 + rounds))
        store.append([], [(stream.id, stream.snapshot()) for stream in streams.values()])
        for name, full in (("writer", True), ("reader", False)):
            store.tokens.add(Token(name, f"hash of {name}", full, 1.0))
        states = {name: pack_stream(stream) for name, stream in streams.items()}
        logs = {name: [event.to_plain() for event in store.read_events(stream.id)] for name, stream in streams.items()}
        return Facts(states, logs, answers, store.tokens.read())


def compact(store: Store, stream: Stream, removed: int, requests: tuple[int, ...] = ()) -> Baseline:
    """Erase events up to number ``removed`` and the requests of others, as retention does; all events are on disk."""
    baseline = build_baseline(stream.row, store, stream.snapshot(), removed)
    store.append([], erasures=[Erasure(stream.id, baseline, requests)])
    return baseline


# --- reading a store -------------------------------------------------------------------------------------------------


@contextmanager
def open_beside(where: str | Path) -> Iterator[Store]:
    """Open a store as `windvane verify` does."""
    with closing(open_backend(where, shared=True, create=False, read_only=True)) as store:
        yield store


def verify(where: str | Path) -> StoreReport:
    """Return the report of `windvane verify`; a store that is refused is not sound."""
    try:
        with open_beside(where) as store:
            return verify_store(store)
    except StoreError as error:
        return StoreReport([Finding(error.code, error.problem)], [])


def codes(report: StoreReport) -> dict[str, tuple[str, ...]]:
    """Return the codes of the problems, by stream; those of the file under "file"."""
    findings = {stream.stream: stream.problems for stream in report.streams} | {"file": report.problems}
    return {name: tuple(problem.code for problem in problems) for name, problems in findings.items() if problems}


def recover_all(store: Store) -> tuple[dict[str, Stream], dict[str, str]]:
    """Return the streams that a server would serve, and the reasons why others are set aside."""
    recovery = recover(store, lambda _: None)
    return recovery.streams, recovery.unavailable


class Served(NamedTuple):
    """What a server makes of a store: whether all of it is as it was, and which streams are set aside."""

    is_intact: bool
    unavailable: set[str]


def serve_copy(where: str | Path, facts: Facts) -> Served:
    """Recover the streams of a store as a server does, and compare all that they say with ``facts``.

    Whatever is lost must be said: a stream is set aside, an event is called unreadable, a token is refused. Anything
    else that is different fails the test, and so does a store that is refused.
    """
    with closing(open_directly(where)) as store:
        streams, unavailable = recover_all(store)
        is_intact = not unavailable
        assert len(unavailable) <= len(STREAMS), "streams that never were"
        for number, name in enumerate(STREAMS, 1):
            if not {name, f"unreadable-{number}"} & set(unavailable):
                assert pack_stream(streams[name]) == facts.states[name], f"{name}: is in another state"
                assert (store.read_acknowledged() or {}).get(number, 0) <= streams[name].number
                is_intact &= _has_same_log(store, streams[name], facts) & _has_same_answers(streams[name], facts)
        assert set(store.tokens.read()) <= set(facts.tokens), "a token has other rights"
        assert store.tokens.are_required, "tokens are not needed any more"
        return Served(is_intact and store.tokens.read() == facts.tokens, set(unavailable))


def _has_same_log(store: Store, stream: Stream, facts: Facts) -> bool:
    """Return whether all events can be read; those before the first that cannot are the same."""
    chain, log = store.read_chain(stream.id, 0) or b"", facts.logs[stream.name]
    try:
        for number, event in enumerate(store.read_events(stream.id), 1):
            check_event(chain, event)
            assert event.to_plain() == log[number - 1], f"{stream.name}: has another log"
            chain = event.chain
    except UnreadableEventError:
        return False
    assert number == len(log)
    return True


def _has_same_answers(stream: Stream, facts: Facts) -> bool:
    """Return whether all answers can be read; none is different, and no request is carried out twice."""
    is_same = True
    for (name, key), (request, answer) in facts.answers.items():
        if name == stream.name:
            try:
                done = stream.decide(request, key, 0.0)
            except Problem as problem:
                if problem.code != "unreadable":
                    raise
                is_same = False
            else:
                assert (done.body, done.events) == (answer, []), f"{name}, {key}: was carried out twice"
    return is_same
