"""Stores as tests damage them: changed by SQL or by the byte, with or without checksums that match."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any, NamedTuple

from serving import ARMS, local, whole
from windvane.service.access import hashed
from windvane.service.engine import Engine
from windvane.service.errors import ServiceError
from windvane.service.export import Log
from windvane.service.store import Event, Store, StoreError, Token, UnreadableEventError
from windvane.service.store.database import PAGE_BYTES
from windvane.service.store.digests import digest_row
from windvane.service.store.events import STREAM_SPAN
from windvane.service.verification import verify_store


def edit(path: Path, sql: str, *parameters: Any) -> None:
    """Change a store from outside."""
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(sql, parameters)
    connection.close()


def query(path: Path, sql: str) -> list[Any]:
    connection = sqlite3.connect(path)
    rows = connection.execute(sql).fetchall()
    connection.close()
    return rows


def reseal(path: Path) -> None:
    """Make all checksums of streams and events match what the rows say, as only this code can."""
    connection = sqlite3.connect(path)
    with connection:
        for stream, name, created, config in connection.execute(
            "SELECT id, name, created, config FROM streams"
        ).fetchall():
            chain = digest_row("streams", stream, name, created, config)
            connection.execute("UPDATE streams SET digest = ? WHERE id = ?", (chain, stream))
            rows = connection.execute(
                "SELECT id, time, kind, decision, key, outcome, request FROM events WHERE id / ? = ? ORDER BY id",
                (STREAM_SPAN, stream),
            ).fetchall()
            for rowid, *values, request in rows:
                event = Event.create(chain, stream, rowid % STREAM_SPAN, *values, request)
                connection.execute("REPLACE INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", event.to_row())
                chain = event.chain
    connection.close()


# --- a small store with everything in it -----------------------------------------------------------------------------

STREAMS = ("shop", "fields", "other")
FIELDS = {"shared": {"age": {"low": 0, "high": 100}}, "by_arm": {"device": {"values": ["phone", "desk"]}}}


class Facts(NamedTuple):
    """All that a store has acknowledged."""

    states: dict[str, bytes]  # by stream
    logs: dict[str, list[dict[str, Any]]]
    answers: dict[tuple[str, str], bytes]  # by stream and key: the answer to the decision
    tokens: list[Token]


def build(path: Path, rounds: int = 8, snapshots: bool = True) -> Facts:
    """Make a store with three streams: keys, rewards, late ones, expiries, history, tokens, and snapshots."""
    with local(path) as service:
        learn = {"learn": "on_arrival"}  # as all streams of format 1 did
        service.create("shop", wait=4, missing=0.25, **learn)
        service.create("fields", features={**FIELDS, "arms": ["a", "b"]}, **learn)
        service.create("other", randomize=0.3, **learn)
        answers = {}
        service.post("/v1/streams/shop/history", {"rewards": [1.0, 0.0], "vectors": [[0.1, 0.2], [0.3, 0.1]]})
        for i in range(rounds):
            for name in STREAMS:
                body: Any = {"context": {"age": 10 * i % 100, "device": "desk"}} if name == "fields" else ARMS
                raw = json.dumps(body).encode()
                headers = {"idempotency-key": f"key {name} {i}", "content-type": "application/json"}
                answer = service.request("POST", f"/v1/streams/{name}/decide", content=raw, headers=headers)
                assert answer.status_code == 200, answer.text
                answers[name, f"key {name} {i}"] = answer.content
                if i % 2:
                    reward = {"decision": answer.json()["decision"], "value": i % 3 / 2, "key": f"reward {name} {i}"}
                    service.post(f"/v1/streams/{name}/reward/batch", {"items": [reward]})
        service.reward(json.loads(answers["shop", "key shop 0"])["decision"], 1.0)  # too late
        service.request("PATCH", "/v1/streams/shop", json={"title": "a shop"})
        states = {name: service.state(name) for name in STREAMS}
        logs = {name: service.log(name) for name in STREAMS}
        for name, full in (("writer", True), ("reader", False)):
            service.store.add_token(Token(name, hashed(f"wv_{name}"), full, 1.0))
        tokens = service.store.read_tokens()
    if not snapshots:
        edit(path, "DELETE FROM snapshots")
    return Facts(states, logs, answers, tokens)


def raw_request(facts: Facts, name: str, key: str) -> bytes:
    event = next(event for event in facts.logs[name] if event["key"] == key)
    return json.dumps(event["request"]).encode()


def copy_store(path: Path, target: Path, content: bytes | None = None) -> Path:
    """Copy a store that nobody has open, with its marks; ``content``: of the file itself."""
    for suffix in ("", "-wal", "-shm", ".mark", ".lock", ".damaged-1", ".damaged-1-wal", ".damaged-1-shm"):
        target.with_name(target.name + suffix).unlink(missing_ok=True)
    target.write_bytes(path.read_bytes() if content is None else content)
    log = path.with_name(path.name + "-wal")
    if content is None and log.exists():
        target.with_name(target.name + "-wal").write_bytes(log.read_bytes())
    mark = path.with_name(path.name + ".mark")
    target.with_name(target.name + ".mark").write_bytes(mark.read_bytes())
    return target


def flip(content: bytes, at: int, bit: int) -> bytes:
    """``content`` with one bit of the byte ``at`` changed."""
    return content[:at] + bytes([content[at] ^ bit]) + content[at + 1 :]


def verify(path: Path) -> dict[str, Any]:
    """The document of `windvane verify`; a store that is refused is not sound."""
    try:
        store = Store(path, shared=True, create=False, read_only=True)
    except StoreError as error:
        return {"sound": False, "store": [str(error)], "streams": []}
    try:
        return verify_store(store).document
    finally:
        store.close()


def find_owners(path: Path) -> dict[int, set[str]]:
    """Return, by page with events, the streams that have an event on it: what damage to the page may cost at most."""
    content, owners = path.read_bytes(), dict[int, set[str]]()
    rows = query(path, "SELECT id, coalesce(request_digest, outcome), chain FROM events")
    for rowid, before, chain in rows:
        at = content.index(before + chain) + len(before)  # chain values are in snapshots too, after something else
        owners.setdefault(at // PAGE_BYTES + 1, set()).add(STREAMS[rowid // STREAM_SPAN - 1])
    return owners


class Served(NamedTuple):
    """What a server makes of a store: whether all of it is as it was, and which streams are set aside."""

    is_intact: bool
    broken: dict[str, str]


def serve_copy(path: Path, facts: Facts) -> Served:
    """Start an engine on a store, and compare all that it says with ``facts``.

    Whatever is lost must be said: a stream is set aside, an event is called unreadable, a token is refused. That
    anything else is different fails the test, and so does a store that is refused.
    """
    store = Store(path)
    try:
        engine = Engine(store)
        is_intact = not engine.broken
        assert len(engine.broken) <= len(STREAMS), "streams that never were"
        for name in STREAMS:
            if {name, f"unreadable-{STREAMS.index(name) + 1}"} & set(engine.broken):
                continue
            stream = engine.streams[name]
            assert whole(stream) == facts.states[name], f"{name}: is in another state"
            assert store.read_acknowledged().get(stream.id, 0) <= stream.number
            is_intact = _compare_log(engine, name, facts) and is_intact
            for (owner, key), answer in facts.answers.items():
                if owner == name:
                    try:
                        done = stream.decide(raw_request(facts, name, key), key, 0.0)
                    except ServiceError as error:
                        if error.code != "unreadable":
                            raise
                        is_intact = False
                        continue
                    assert (done.body, done.events) == (answer, []), f"{name}, {key}: was carried out twice"
        assert set(store.read_tokens()) <= set(facts.tokens), "a token has other rights"
        assert store.requires_token, "tokens are not needed any more"
        return Served(is_intact and store.read_tokens() == facts.tokens, dict(engine.broken))
    finally:
        store.close()


def _compare_log(engine: Engine, name: str, facts: Facts) -> bool:
    row = next(row for row in engine.store.read_streams() if row.name == name)
    log = Log(engine.store, row, engine.streams[name].number, lambda _: None)
    events: list[Any] = []
    try:
        for chunk in log.read_chunks(0, 1 << 40):
            events += [json.loads(json.dumps(event.to_plain())) for event in chunk]
    except UnreadableEventError:
        assert events == facts.logs[name][: len(events)], f"{name}: has another log"
        return False
    assert events == facts.logs[name], f"{name}: has another log"
    return True
