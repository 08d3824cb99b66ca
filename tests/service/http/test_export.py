"""The log over HTTP: lines of JSON, Parquet, parts of it, and events that cannot be read."""

from __future__ import annotations

import asyncio
import io
import json
import sqlite3
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from support.server import ARMS, Local, parse_json, read_problem
from windvane.records import to_datetime, to_plain
from windvane.service.store import KINDS, DatabaseError

EVENTS = "/v1/streams/shop/events"


def fill(service: Local, rounds: int) -> None:
    """Create a stream with all kinds of events."""
    service.create("shop", reward_timeout=rounds - 20, epsilon=0.1)
    decisions = []
    for start in range(0, rounds, 1000):
        items = [{**ARMS, "key": f"k{i}"} if i % 2 else ARMS for i in range(start, min(start + 1000, rounds))]
        results = service.post("/v1/streams/shop/decisions/batch", {"decisions": items}).json()["results"]
        decisions += [result["decision"]["id"] for result in results]
    for i, decision in enumerate(decisions[-10:]):
        service.reward(decision, (i % 5) / 4)
    service.reward(decisions[0], 1.0)  # too late
    service.configure("shop", title="Ärger")
    service.post("/v1/streams/shop/history", {"rewards": [1], "vectors": [[0, 1]]})
    service.archive()


def read_table(answer: Any) -> list[dict[str, Any]]:
    assert answer.headers["content-type"] == "application/vnd.apache.parquet"
    rows: list[dict[str, Any]] = pq.read_table(io.BytesIO(answer.content)).to_pylist()
    return rows


@pytest.mark.sqlite
def test_exports_hold_what_the_file_holds(service: Local) -> None:
    """Both formats against the rows of the SQLite file, read without the service's code."""
    fill(service, 1300)  # more than one chunk
    with sqlite3.connect(service.store.path) as connection:
        columns = "id, time, kind, decision, key, outcome, request"
        rows = connection.execute(f"SELECT {columns} FROM events ORDER BY id").fetchall()
    connection.close()
    events = service.events()
    answer = service.get(f"{EVENTS}?format=parquet")
    assert answer.headers["content-disposition"] == 'attachment; filename="shop-events.parquet"'
    table = read_table(answer)
    assert len(events) == len(table) == len(rows) > 1300
    assert len({event["kind"] for event in events}) == 7
    for (rowid, at, kind, decision, key, outcome, request), event, row in zip(rows, events, table, strict=True):
        shared = {"number": rowid % 2**40, "kind": KINDS[kind], "decision": decision, "key": key}
        time = to_datetime(at)
        assert row["time"] == time
        expected = {**shared, "time": to_plain(time), **json.loads(outcome)}
        assert event == expected | ({"request": json.loads(request)} if request else {})
        assert {name: row[name] for name in shared} == shared
        assert json.loads(row["outcome"]) == json.loads(outcome)
        assert row["request"] == (None if request is None else request.decode())
        for name in ("arm", "propensity", "explored", "prediction", "bonus", "value"):
            assert row[name] == json.loads(outcome).get(name)


def test_parts_of_the_log(service: Local) -> None:
    fill(service, 40)
    events = service.events()
    answer = service.get(EVENTS)
    assert answer.headers["content-type"] == "application/x-ndjson"
    for query, part in (
        ("after=5", events[5:]), ("limit=3", events[:3]), ("after=4&limit=2", events[4:6]),
        (f"after={len(events)}", []), ("after=99999", []), (f"after={2**40}&limit={2**40}", []),
    ):  # fmt: skip
        lines = service.get(f"{EVENTS}?{query}").text.splitlines()
        assert [parse_json(line) for line in lines] == part
    assert read_table(service.get(f"{EVENTS}?format=parquet&after={len(events)}")) == []
    for query in ("after=-1", "limit=0", "format=csv", "after=x", f"after={2**41}"):
        problem = read_problem(service.get(f"{EVENTS}?{query}"), 422)
        assert problem["detail"].startswith(query.split("=")[0])


def test_no_file_is_left_behind(service: Local, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    service.create("shop")
    service.decide()
    assert service.get(f"{EVENTS}?format=parquet").status_code == 200
    with monkeypatch.context() as patch:
        patch.setattr("windvane.service.http.export._describe_row", lambda _: 1 / 0)
        assert read_problem(service.get(f"{EVENTS}?format=parquet"), 500)["code"] == "internal"
    assert not list((tmp_path / "temporary").iterdir())


@pytest.mark.sqlite
def test_an_event_that_cannot_be_read_aborts_the_transfer(tmp_path: Path) -> None:
    service = Local(tmp_path / "a.db")
    service.create("shop")
    for _ in range(4):
        service.decide()
    with sqlite3.connect(tmp_path / "a.db") as connection:
        connection.execute("UPDATE events SET time = time + 1 WHERE id % 1099511627776 = 3")
    connection.close()
    assert read_problem(service.get(f"{EVENTS}?format=parquet"), 500)["code"] == "unreadable"
    assert read_problem(service.get(f"{EVENTS}?after=2"), 500)["code"] == "unreadable"
    answer = service.get(f"{EVENTS}?limit=2")
    assert [parse_json(line)["number"] for line in answer.text.splitlines()] == [1, 2]
    lines, is_whole = export(service)
    assert [parse_json(line)["kind"] for line in lines] == ["decided", "decided", "unreadable"]
    assert not is_whole  # the server closes the connection, and clients notice
    service.stop()


def export(service: Local) -> tuple[list[bytes], bool]:
    """Return the lines of an export, and whether it was completed."""
    messages: list[Any] = []

    async def send(message: Any) -> None:
        messages.append(message)

    async def receive() -> Any:
        await asyncio.sleep(60)

    headers = [(b"host", b"127.0.0.1")]
    scope = {"type": "http", "method": "GET", "path": EVENTS, "query_string": b"", "headers": headers}
    service.run(service.app({**scope, "root_path": "", "client": ("127.0.0.1", 1)}, receive, send))
    lines = b"".join(message.get("body", b"") for message in messages).splitlines()
    return lines, not messages[-1].get("more_body", False)


@pytest.mark.parametrize("error", [sqlite3.OperationalError("disk I/O error"), DatabaseError("the server is away")])
def test_a_store_that_is_away_is_no_damage(service: Local, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """The transfer breaks off, and clients resume it: nothing is wrong with the next event."""
    service.create("shop")
    for _ in range(4):
        service.decide()
    monkeypatch.setattr("windvane.service.http.export.CHUNK", 2)
    read_events = service.store.read_events

    def fail(stream: int, after: int = 0, limit: int = 1 << 62) -> Any:
        if after >= first:
            raise error
        return read_events(stream, after, limit)

    with monkeypatch.context() as patch:
        patch.setattr(service.store, "read_events", fail)
        first = 2
        lines, is_whole = export(service)
        assert [parse_json(line)["number"] for line in lines] == [1, 2]
        assert not is_whole
        assert read_problem(service.get(f"{EVENTS}?format=parquet"), 503)["type"].endswith("unavailable")
        first = 0
        assert read_problem(service.get(EVENTS), 503)["type"].endswith("unavailable")
    assert len(service.events()) == 4
