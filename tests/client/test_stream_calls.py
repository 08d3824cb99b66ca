"""The calls that keep, erase and bring back: of whole streams, of old events, of one context."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest
from test_retries import BUSY, FAILED, make_problem

from support.clients import ARMS, Connect, refused
from support.network import LossyProxy, ScriptedServer, make_answer
from windvane.service_records import Compaction, ErasedContext

GONE = b"HTTP/1.1 204 No Content\r\n\r\n"
UNKNOWN = make_problem("unknown-stream", "404 Not Found")


def test_archived_and_brought_back(client: Any, name: str) -> None:
    client.create(name, dim=2)
    assert client.archive(name).archived is not None
    refused(lambda: client.decide(name, ARMS), 409, "archived")
    assert client.unarchive(name).archived is None
    assert client.unarchive(name).archived is None
    client.decide(name, ARMS)


def test_a_retention(client: Any, name: str) -> None:
    info = client.ensure(name, dim=2, retention=timedelta(milliseconds=1))
    assert (info.retention, info.removed) == ("0.001000s", None)
    assert client.ensure(name, dim=2, retention="1ms") == info
    refused(lambda: client.ensure(name, dim=2, retention="90d"), 409, "settings-differ")
    assert refused(lambda: client.configure(name, retention=90), 422, "invalid").pointer == "#/retention"
    decision = client.decide(name, ARMS)
    time.sleep(0.002)
    done = client.compact(name)
    assert done == Compaction(stream=name, removed=1, left=1)
    removed = client.info(name).removed
    assert removed.number == 1
    assert removed.first == removed.last <= decision.time
    refused(lambda: client.decision(name, decision), 404, "unknown-decision")
    refused(lambda: client.reward(name, decision, 1.0), 404, "unknown-decision")
    assert client.configure(name, retention=None).retention is None
    refused(lambda: client.compact(name), 409, "no-retention")
    summary = next(stream for stream in client.streams() if stream.name == name)
    assert (summary.retention, summary.removed) == (None, removed)


def test_a_log_that_does_not_begin_at_the_beginning(client: Any, name: str) -> None:
    """What was removed is left out, however little is asked for at a time."""
    client.create(name, dim=2, retention="1ms")
    client.decide_many(name, [ARMS] * 20)
    time.sleep(0.002)
    client.compact(name)
    client.configure(name, retention=None)
    client.decide_many(name, [ARMS] * 5)
    numbers = [event["number"] for event in client.events(name)]
    assert numbers == list(range(21, 28))
    assert [event["number"] for event in client.events(name, limit=2)] == [21, 22]
    assert [event["number"] for event in client.events(name, after=23)] == numbers[3:]
    assert [event["number"] for event in client.events(name, after=5, limit=3)] == numbers[:3]
    assert list(client.events(name, after=100)) == []


def test_a_context_is_erased(client: Any, name: str) -> None:
    client.create(name, dim=2)
    first, second = client.decide_many(name, [ARMS] * 2)
    client.reward(name, first, 1.0)
    erased = client.erase_context(name, first)
    assert erased == ErasedContext(decision=first.id, event=1, status="rewarded")
    assert client.erase_context(name, first.id) == erased
    assert client.erase_context(name, second).status == "dropped"
    assert client.reward(name, second, 1.0) == "expired"
    assert ["request" in event for event in client.events(name, limit=2)] == [False, False]
    refused(lambda: client.erase_context(name, "x"), 404, "unknown-decision")


def test_a_stream_is_deleted(client: Any, name: str) -> None:
    client.create(name, dim=2)
    client.decide(name, ARMS)
    assert client.delete_stream(name) is None
    refused(lambda: client.info(name), 404, "unknown-stream")
    refused(lambda: client.delete_stream(name), 404, "unknown-stream")
    assert client.create(name, dim=3).events == 0


@pytest.mark.parametrize("lost", [b"", b"HTTP/1.1 204 No Con", make_answer("<html>", "502 Bad Gateway"), FAILED])
def test_an_answer_to_a_deletion_that_is_lost(connect: Connect, pauses: list[float], lost: bytes) -> None:
    """The next attempt finds no stream: it was deleted. If nothing of any attempt was executed, there never was one."""
    with ScriptedServer(lost, UNKNOWN) as server, connect(server.address) as client:
        assert client.delete_stream("a") is None
    assert len(server.requests) == 2
    with ScriptedServer(BUSY, UNKNOWN) as server, connect(server.address) as client:
        refused(lambda: client.delete_stream("a"), 404, "unknown-stream")
    with ScriptedServer(lost, GONE) as server, connect(server.address) as client:
        assert client.delete_stream("a") is None


def test_a_network_that_loses_things(url: str, connect: Connect, name: str) -> None:
    """All of these calls can be repeated."""
    with LossyProxy(url, seed=3, share=0.2) as proxy, connect(proxy.address, timeout=5.0, deadline=120.0) as client:
        for i in range(6):
            client.ensure(f"{name}-{i}", dim=2, seed=0)
            decision = client.decide(f"{name}-{i}", ARMS)
            assert client.erase_context(f"{name}-{i}", decision).status == "dropped"
            client.archive(f"{name}-{i}")
            assert client.unarchive(f"{name}-{i}").archived is None
            client.delete_stream(f"{name}-{i}")
    with connect(url) as client:
        assert not [stream for stream in client.streams() if stream.name.startswith(f"{name}-")]


def test_a_log_whose_numbers_jump(connect: Connect, pauses: list[float]) -> None:
    """Only before the first event of an answer may some be missing."""
    lines = b'{"number": 7}\n{"number": 9}\n'
    with ScriptedServer(make_answer(lines)) as server, connect(server.address) as client:
        events = iter(client.events("a"))
        assert next(events) == {"number": 7}
        refused(lambda: next(events), 200, "not-understood")
