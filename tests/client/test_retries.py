"""Servers that cut, stall, refuse or lie: what is sent again, and what the errors say."""

from __future__ import annotations

import gc
import json
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import httpx2
import pytest

from support.clients import ARMS, Connect, failed_batch, refused
from support.network import ScriptedServer, make_answer
from support.server import until
from windvane.client import BatchError, Client, messages
from windvane.records import Decision, RewardReceipt, to_datetime, to_plain

DECISION = Decision(
    id="d1", arm="red", index=0, time=to_datetime(1.5), propensity=None, explored=False, prediction=0.5, bonus=0.1,
    preferred="red", rival="blue", rival_score=0.2, projected=None,
)  # fmt: skip
PLAIN = to_plain(DECISION)
RECEIPT = to_plain(RewardReceipt(decision="d1", status="recorded", value=1.0))
GOOD = make_answer(RECEIPT)


def make_problem(code: str, status: str, *headers: str, detail: str = "it is so", pointer: str | None = None) -> bytes:
    errors = [] if pointer is None else [{"pointer": pointer, "detail": "wrong"}]
    problem = {"type": f"urn:windvane:problem:{code}", "title": "Title", "status": int(status[:3]), "detail": detail}
    return make_answer({**problem, "errors": errors}, status, *headers)


BUSY = make_problem("unavailable", "503 Service Unavailable")


@pytest.mark.parametrize(
    "bad",
    [
        b"",  # hangs up
        b"HTTP/1.1 200 OK\r\nContent-Length: 400\r\n\r\n{",  # breaks off
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"\x16\x03\x01 what?\r\n\r\n",
        make_answer(b'{"id": '),
        make_answer("<html>", "502 Bad Gateway"),
        make_answer("<html>", "504 Gateway Timeout"),
        BUSY,
        make_answer("busy", "503 Service Unavailable"),
        make_problem("rate-limited", "429 Too Many Requests"),
    ],
)
def test_a_bad_answer_is_asked_for_again(bad: bytes, connect: Connect, pauses: list[float]) -> None:
    good = make_answer({**PLAIN, "new": "of a later version"})
    with ScriptedServer(bad, bad, good) as server, connect(server.address) as client:
        assert client.decide("a", ARMS) == DECISION
    assert len(server.keys) == 3
    assert len(set(server.keys)) == len(set(server.bodies)) == 1  # one key for all attempts
    assert 0.05 <= pauses[0] <= 0.15
    assert 0.1 <= pauses[1] <= 0.3


def test_a_server_that_hangs(connect: Connect, pauses: list[float]) -> None:
    with ScriptedServer(None, GOOD) as server, connect(server.address, timeout=0.1) as client:
        assert client.add_reward("a", "d1", 1.0) == "recorded"
    assert len(server.keys) == 2
    assert len(set(server.keys)) == 1
    with ScriptedServer(None) as server, connect(server.address, timeout=0.1, retries=1) as client:
        error = refused(lambda: client.decide("a", ARMS), None, "no-answer")
    assert error.is_unsure
    assert error.message.endswith(
        "; gave up after 2 attempts; an attempt got no answer, and it is not known whether it was carried out"
    )


def test_retry_after(connect: Connect, pauses: list[float]) -> None:
    busy = BUSY.replace(b"\r\n\r\n", b"\r\nRetry-After: 7\r\n\r\n")
    with ScriptedServer(busy, GOOD) as server, connect(server.address) as client:
        assert client.reward("a", "d1", 1.0) == "recorded"
    assert 7.0 < pauses[0] < 7.2
    with ScriptedServer(busy) as server, connect(server.address, retries=2) as client:
        error = refused(lambda: client.decide("a", ARMS), 503, "unavailable")
    assert (error.message, error.is_unsure) == ("it is so; gave up after 3 attempts", False)
    with ScriptedServer(busy.replace(b": 7", b": 7777")) as server, connect(server.address) as client:
        assert refused(lambda: client.decide("a", ARMS), 503, "unavailable").retry_after == 7777.0
        refused(lambda: list(client.events("a")), 503, "unavailable")
    assert len(server.requests) == 2  # not asked again within two hours
    date = busy.replace(b": 7", b": Fri, 31 Dec 1999 23:59:59 GMT")
    with ScriptedServer(date, GOOD) as server, connect(server.address) as client:
        assert client.reward("a", "d1", 1.0) == "recorded"


def test_refusals_are_not_repeated(connect: Connect, pauses: list[float]) -> None:
    for status in ("400 Bad Request", "404 Not Found", "409 Conflict", "500 Internal Server Error", "302 Found"):
        with (
            ScriptedServer(make_answer("<html>", status, "Location: /v2")) as server,
            connect(server.address) as client,
        ):
            refused(lambda: client.decide("a", ARMS), int(status[:3]), "http")
        assert len(server.requests) == 1
    wrong = make_problem("invalid", "422 Unprocessable Content", pointer="#/arms/red/1", detail="is wrong")
    with ScriptedServer(wrong) as server, connect(server.address) as client:
        error = refused(lambda: client.decide("a", ARMS), 422, "invalid")
    assert (error.message, error.pointer) == ("is wrong", "#/arms/red/1")
    assert pauses == []


def test_nobody_there(connect: Connect, pauses: list[float]) -> None:
    with ScriptedServer(GOOD) as server:
        pass
    with connect(server.address, retries=2) as client:
        assert not client.ready()
        error = refused(lambda: client.decide("a", ARMS), None, "unreachable")
    assert not error.is_unsure
    assert error.message.endswith("; gave up after 3 attempts")
    assert server.address in error.message


def test_ready(connect: Connect, pauses: list[float]) -> None:
    with ScriptedServer(BUSY, BUSY, make_answer({})) as server, connect(server.address) as client:
        assert not client.ready()
        assert client.ready(wait=60)
    with ScriptedServer(make_problem("no-token", "401 Unauthorized")) as server, connect(server.address) as client:
        refused(lambda: client.ready(wait=60), 401, "no-token")


def test_a_name_that_exists_after_a_lost_answer(connect: Connect, pauses: list[float]) -> None:
    exists = make_problem("stream-exists", "409 Conflict", detail="a stream with this name already exists")
    with ScriptedServer(b"", exists) as server, connect(server.address) as client:
        error = refused(lambda: client.create("a", dim=2), 409, "stream-exists")
    assert error.is_unsure
    assert error.message.endswith("; an attempt got no answer, and it is not known whether it was carried out")
    with ScriptedServer(exists) as server, connect(server.address) as client:
        error = refused(lambda: client.create("a", dim=2), 409, "stream-exists")
    assert (error.message, error.is_unsure) == ("a stream with this name already exists", False)


def test_a_later_part_of_a_batch_that_fails(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, pauses: list[float]
) -> None:
    monkeypatch.setattr(messages, "MOST_ITEMS", 2)
    good = make_answer({"results": [{"status": 201, "decision": PLAIN}] * 2})
    with ScriptedServer(good, b"") as server, connect(server.address, retries=1) as client:
        error = failed_batch(lambda: client.decide_many("a", [ARMS] * 3))
        assert error.results[:2] == [DECISION] * 2
        assert (error.errors[2].status, error.errors[2].code) == (None, "no-answer")
        first_request = refused(lambda: client.decide_many("a", [ARMS]), None, "no-answer")
        assert not isinstance(first_request, BatchError)
    keys = [item["key"] for body in server.bodies for item in json.loads(body)["decisions"]]
    assert len(keys) == 6
    assert len(set(keys)) == 4  # the third was sent twice with one key, and so was the fourth


def test_an_interrupted_call_leaves_no_answer_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C between request and answer: the next request must not get the answer to that one."""
    with ScriptedServer(GOOD, make_answer(PLAIN)) as server, Client(server.address) as client:
        with monkeypatch.context() as patch:

            def interrupt(_: object) -> None:
                raise KeyboardInterrupt

            patch.setattr(httpx2.Response, "iter_bytes", interrupt)
            with pytest.raises(KeyboardInterrupt):
                client.reward("a", "d1", 1.0)
        assert client.decide("a", ARMS) == DECISION
        assert len(server.connections) == 2


def test_connections_are_kept(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedServer(GOOD) as server, connect(server.address) as client:
        for _ in range(3):
            assert client.reward("a", "d1", 1.0) == "recorded"
        assert len(server.connections) == 1
        client.close()
        assert client.reward("a", "d1", 1.0) == "recorded"
        assert until(lambda: len(server.connections) == 2)


def test_a_forgotten_client_closes_its_connections() -> None:
    with ScriptedServer(GOOD) as server:
        assert Client(server.address).reward("a", "d1", 1.0) == "recorded"
        gc.collect()
        assert until(lambda: server.connections[0].fileno() == -1)


def test_threads_do_not_share_a_connection_at_once() -> None:
    with ScriptedServer(None, GOOD) as server, Client(server.address, timeout=1.0, retries=0) as client:
        waiting = threading.Thread(target=lambda: refused(lambda: client.reward("a", "d1", 1.0), None, "no-answer"))
        waiting.start()
        assert until(lambda: server.requests)
        assert client.reward("a", "d1", 1.0) == "recorded"
        waiting.join()
        assert len(server.connections) == 2


def test_proxies(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment's proxy is used for other machines, and never for this one."""
    with ScriptedServer(GOOD) as proxy, ScriptedServer(GOOD) as server:
        for variable in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(variable, proxy.address)
        for variable in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(variable, raising=False)
        with connect(server.address) as client, connect("http://windvane.invalid/under/here", "token") as far:
            assert client.reward("a", "d1", 1.0) == "recorded"
            assert (len(server.requests), len(proxy.requests)) == (1, 0)
            assert far.reward("a", "d1", 1.0) == "recorded"
    first = b"PUT http://windvane.invalid/under/here/v1/streams/a/decisions/d1/reward HTTP/1.1"
    assert proxy.requests[0].startswith(first)


# --- answers that are not the service's ----------------------------------------------------------------------------

RESULT = {"status": 200, "receipt": RECEIPT}


def decide(client: Any) -> object:
    return client.decide("s", ARMS)


def reward_many(client: Any) -> object:
    return client.reward_many("s", [("a", 1.0)])


@pytest.mark.parametrize(
    ("ask", "answer"),
    [
        (lambda c: c.streams(), {"streams": None, "next": None}),
        (lambda c: c.streams(), {"streams": [1], "next": None}),
        (lambda c: c.streams(), {}),
        (lambda c: c.info("s"), {"hello": "world"}),
        (lambda c: c.info("s"), [1, 2]),
        (decide, {**PLAIN, "id": 5}),
        (decide, {**PLAIN, "index": "0"}),
        (decide, {**PLAIN, "explored": 1}),
        (decide, {**PLAIN, "arm": True}),
        (decide, {**PLAIN, "time": "soon"}),
        (decide, {name: value for name, value in PLAIN.items() if name != "bonus"}),
        (lambda c: c.reward("s", "a", 1.0), {**RESULT["receipt"], "status": "perhaps"}),
        (lambda c: c.history("s", [1.0], [[0.1, 0.2]]), {"rows": "many"}),
        (lambda c: c.history("s", [1.0], [[0.1, 0.2]]), {"rows": True}),
        (lambda c: c.decide_many("s", [ARMS] * 3), {"results": [{"status": 201, "decision": PLAIN}]}),
        (reward_many, {"results": [RESULT] * 5}),
        (reward_many, {"results": [{"receipt": RESULT["receipt"]}]}),
        (reward_many, {"results": [{**RESULT, "status": "200"}]}),
        (reward_many, {"results": [{"status": 200}]}),
        (reward_many, {"results": [{"status": 201, "decision": PLAIN}]}),
        (reward_many, {"results": "no"}),
    ],
)  # fmt: skip
def test_answers_of_another_service(ask: Callable[[Any], object], answer: object, connect: Connect) -> None:
    with ScriptedServer(make_answer(answer)) as server, connect(server.address) as client:
        error = refused(lambda: ask(client), 200, "not-understood")
    assert error.message.endswith("is this a windvane service?")
    assert len(server.requests) == 1


def test_an_answer_without_bottom(connect: Connect) -> None:
    with ScriptedServer(make_answer(b"[" * 200_000)) as server, connect(server.address, retries=0) as client:
        refused(lambda: client.info("s"), 200, "no-answer")


def test_pages(connect: Connect) -> None:
    pages = [
        {"decisions": [{**PLAIN, "id": "d1"}], "next": 0},
        {"decisions": [{**PLAIN, "id": "d/2"}], "next": None},
    ]
    with ScriptedServer(*map(make_answer, pages)) as server, connect(server.address) as client:
        assert client.pending("s") == [DECISION, replace(DECISION, id="d/2")]
    assert b"after=0" in server.requests[1].split(b"\r\n")[0]


# --- a log -----------------------------------------------------------------------------------------------------------


def make_lines(first: int, last: int, *more: object) -> bytes:
    return b"".join(
        json.dumps(line).encode() + b"\n" for line in [*({"number": n} for n in range(first, last + 1)), *more]
    )


def make_cut(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n" % (len(body), body)


def read_log(client: Any, **options: int) -> list[int]:
    return [event["number"] for event in client.events("s", **options)]


def test_a_cut_is_never_the_end_of_a_log(connect: Connect, pauses: list[float]) -> None:
    script = (
        make_cut(make_lines(1, 2)),
        make_cut(make_lines(3, 3) + b'{"number'),
        make_answer(make_lines(4, 4) + b'{"number": 5}'),  # without the end of the line
        b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + make_lines(5, 6),  # without a length
        make_answer(make_lines(7, 7)),
    )
    with ScriptedServer(*script) as server, connect(server.address, retries=1) as client:
        assert read_log(client) == [1, 2, 3, 4, 5, 6, 7]
    assert [request.split()[1].partition(b"after=")[2] for request in server.requests] == [b"0", b"2", b"3", b"4", b"6"]
    with ScriptedServer(make_cut(make_lines(1, 3))) as server, connect(server.address) as client:
        assert read_log(client, limit=3) == [1, 2, 3]  # all that was asked for
        assert len(server.requests) == 1


def test_a_log_that_repeats_itself(connect: Connect, pauses: list[float]) -> None:
    with ScriptedServer(make_cut(make_lines(1, 1))) as server, connect(server.address) as client:
        refused(lambda: read_log(client), 200, "not-understood")


def test_a_log_with_an_unreadable_event(connect: Connect, pauses: list[float]) -> None:
    last = {"number": 3, "kind": "unreadable", "error": "its checksum is wrong"}
    with ScriptedServer(make_cut(make_lines(1, 2, last))) as server, connect(server.address) as client:
        events = client.events("s")
        assert [next(events)["number"] for _ in range(2)] == [1, 2]
        assert "event 3" in refused(lambda: next(events), 200, "unreadable").message
    assert len(server.requests) == 1
