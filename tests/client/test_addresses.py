"""Several addresses of one service: a request that one of them does not answer goes to the next."""

from __future__ import annotations

from typing import Any

import pytest

from support.client_nodes import DECISION, RECEIPT, UNAVAILABLE, make_problem, reserve_address, run_nodes
from support.clients import ARMS, Connect, refused
from support.network import ScriptedServer, make_answer
from support.refusals import rejects
from windvane.client.address import split_urls
from windvane.records import to_plain

GOOD = make_answer(to_plain(RECEIPT))
DECIDED = make_answer(to_plain(DECISION), "201 Created")
FIRST, SECOND = "http://first:8000", "https://second/windvane"


@pytest.mark.parametrize(
    "url", [f"{FIRST},{SECOND}", f" {FIRST}/ , {SECOND}/", [FIRST, SECOND], (FIRST, f"{SECOND},{FIRST}/")]
)
def test_several_addresses_in_every_form(url: Any, connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    assert split_urls(url) == [FIRST, SECOND]
    client = connect(url)
    assert client.url == f"{FIRST},{SECOND}"
    assert repr(client).endswith(f"Client('{FIRST},{SECOND}')")
    assert connect(client.url).url == client.url
    monkeypatch.setenv("WINDVANE_URL", url if isinstance(url, str) else ",".join(url))
    assert connect().url == client.url


@pytest.mark.parametrize("url", [[], "", ",", f"{FIRST},", [FIRST, ""], [FIRST, 3], [None], {}, b"http://x", "http://"])
def test_addresses_that_are_refused(url: Any, connect: Connect) -> None:
    with rejects("url"):
        connect(url)


def test_other_arguments(connect: Connect) -> None:
    with rejects("follow", value=1):
        connect(FIRST, follow=1)
    with rejects("url", value=None) as caught:
        connect([FIRST, "http://me:secret@second"])
    assert "secret" not in str(caught.value)


def test_an_address_that_cannot_be_reached_is_left_at_once(connect: Connect, pauses: list[float]) -> None:
    with (
        reserve_address() as nobody,
        reserve_address() as nobody_either,
        ScriptedServer(DECIDED) as server,
        connect([nobody, nobody_either, server.address], "secret") as client,
    ):
        assert client.decide("a", ARMS) == DECISION
        assert client.decide("a", ARMS) == DECISION
    assert pauses == []
    assert len(server.requests) == 2
    assert all(b"Authorization: Bearer secret" in request for request in server.requests)


def test_calls_begin_with_the_address_that_answered(connect: Connect, pauses: list[float]) -> None:
    with run_nodes(2) as cluster, connect(",".join(node.address for node in cluster.nodes)) as client:
        first, second = cluster.nodes
        cluster.owners = {}  # any node executes any request
        client.reward("a", "d1", 1.0)
        first.stop()
        for _ in range(3):
            client.reward("a", "d1", 1.0)
        assert (first.calls, second.calls, pauses) == (1, 3, [])


def test_rounds_with_pauses_until_the_deadline(connect: Connect, pauses: list[float]) -> None:
    """The first round takes no time; then each attempt goes to the next address, after the usual pause."""
    with reserve_address() as first, reserve_address() as second:
        with connect([first, second], deadline=1.0) as client:
            error = refused(lambda: client.decide("a", ARMS), None, "unreachable")
        assert pauses == pytest.approx([0.1, 0.2, 0.4])
        assert error.message.endswith("; gave up after 5 attempts")
        assert error.message.startswith(first)  # which of them failed last
        assert not error.is_unsure


def test_no_deadline_means_one_attempt(connect: Connect, pauses: list[float]) -> None:
    with (
        reserve_address() as nobody,
        ScriptedServer(GOOD) as server,
        connect([nobody, server.address], deadline=0) as client,
    ):
        error = refused(lambda: client.reward("a", "d1", 1.0), None, "unreachable")
        assert error.message.endswith("; gave up after 1 attempt")
        assert client.reward("a", "d1", 1.0) == "recorded"  # the next call begins elsewhere
    assert pauses == []


@pytest.mark.parametrize(
    "bad",
    [
        b"",  # hangs up
        None,  # hangs
        make_answer("<html>", "502 Bad Gateway"),
        UNAVAILABLE,
    ],
)
def test_an_address_that_fails_is_left_after_a_pause(bad: Any, connect: Connect, pauses: list[float]) -> None:
    with (
        ScriptedServer(bad) as first,
        ScriptedServer(bad, DECIDED) as second,
        connect([first.address, second.address], timeout=0.2 if bad is None else 10.0) as client,
    ):
        assert client.decide("a", ARMS) == DECISION
        assert pauses == pytest.approx([0.1, 0.2, 0.4])
        assert (len(first.requests), len(second.requests)) == (2, 2)
        keys = {*first.keys, *second.keys}
        assert len(keys) == 1  # one key for all attempts
        assert client.decide("a", ARMS) == DECISION
        assert len(second.requests) == 3


@pytest.mark.parametrize(
    "busy",
    [make_problem("rate-limited", "429 Too Many Requests"), make_problem("overloaded", "503 Service Unavailable")],
)
def test_who_is_asked_to_slow_down_does_not_go_elsewhere(busy: bytes, connect: Connect, pauses: list[float]) -> None:
    with (
        ScriptedServer(busy, busy, GOOD) as first,
        ScriptedServer(GOOD) as second,
        connect([first.address, second.address]) as client,
    ):
        assert client.reward("a", "d1", 1.0) == "recorded"
    assert pauses == pytest.approx([0.1, 0.2])
    assert (len(first.requests), len(second.requests)) == (3, 0)


def test_errors_are_not_asked_for_twice(connect: Connect, pauses: list[float]) -> None:
    with (
        ScriptedServer(make_problem("conflict", "409 Conflict")) as first,
        ScriptedServer(GOOD) as second,
        connect([first.address, second.address]) as client,
    ):
        refused(lambda: client.reward("a", "d1", 1.0), 409, "conflict")
    assert (len(second.requests), pauses) == (0, [])


def test_an_attempt_without_an_answer_is_remembered(connect: Connect, pauses: list[float]) -> None:
    with (
        reserve_address() as nobody,
        ScriptedServer(b"") as first,
        connect([first.address, nobody], deadline=0.15) as client,
    ):
        error = refused(lambda: client.reward("a", "d1", 1.0), None, "no-answer")
    assert error.is_unsure
    assert error.message.endswith("; gave up after 3 attempts; an attempt may have been executed")


def test_ready_at_any_address(connect: Connect) -> None:
    with (
        reserve_address() as nobody,
        ScriptedServer(UNAVAILABLE) as starting,
        ScriptedServer(make_answer({"status": "ready"})) as server,
    ):
        with connect([nobody, starting.address, server.address]) as client:
            assert client.ready()
        with connect([nobody, starting.address]) as client:
            assert not client.ready()


def test_a_log_is_read_on_from_another_address(connect: Connect, pauses: list[float]) -> None:
    lines = [b'{"number":%d}\n' % number for number in range(1, 5)]
    cut = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + b"".join(lines[:2])
    with (
        reserve_address() as nobody,
        ScriptedServer(cut) as first,
        ScriptedServer(make_answer(b"".join(lines[2:]))) as second,
        connect([first.address, nobody, second.address]) as client,
    ):
        assert [event["number"] for event in client.events("a")] == [1, 2, 3, 4]
    assert b"after=2" in second.requests[0]
    assert pauses == pytest.approx([0.1])  # after the answer that broke off


def test_a_deadline_of_hours(connect: Connect, pauses: list[float]) -> None:
    """Pauses do not grow beyond what a number can hold."""
    with reserve_address() as nobody, connect(nobody, deadline=2500.0) as client:
        refused(lambda: client.reward("a", "d1", 1.0), None, "unreachable")
    assert len(pauses) > 1100
    assert max(pauses) == 2.0
