"""Servers that cut, stall, refuse or lie: what is sent again, and what the errors say."""

from __future__ import annotations

import gc
import json
import threading
import traceback
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import h11
import pytest

from support.clients import ARMS, Connect, failed_batch, refused
from support.network import ScriptedServer, make_answer
from support.refusals import rejects
from support.server import until
from windvane.client import BatchError, Client, messages
from windvane.client.connection import DEADLINE
from windvane.records import Decision, RewardReceipt, to_datetime, to_plain
from windvane.service_records import UnavailableStream

DECISION = Decision(
    id="d1", arm="red", index=0, time=to_datetime(1.5), propensity=None, explored=False, prediction=0.5, bonus=0.1,
    preferred="red", rival="blue", rival_score=0.2, projected=None,
)  # fmt: skip
PLAIN = to_plain(DECISION)
RECEIPT = to_plain(RewardReceipt(decision="d1", status="recorded", value=1.0))
GOOD = make_answer(RECEIPT)


ONE_MORE, TWO_MORE = 0.15, 0.35  # seconds in which a request is sent once or twice more: pauses of 0.1, 0.2, 0.4, ...


def make_problem(code: str, status: str, pointer: str | None = None, cause: str | None = None) -> bytes:
    errors = [] if pointer is None else [{"pointer": pointer, "detail": "wrong"}]
    problem = {"type": f"urn:windvane:problem:{code}", "title": "Title", "detail": "it is so", "errors": errors}
    return make_answer({**problem, "status": int(status[:3]), "cause": cause}, status)


BUSY = make_problem("unavailable", "503 Service Unavailable")
FAILED = make_problem("unavailable", "503 Service Unavailable", cause="database")
EXISTS = make_problem("stream-exists", "409 Conflict")
WRONG = make_problem("invalid", "422 Unprocessable Content", pointer="#/arms/red/1")


def ask_to_wait(until: bytes) -> bytes:
    return BUSY.replace(b"\r\n\r\n", b"\r\nRetry-After: %s\r\n\r\n" % until)


@pytest.mark.parametrize(
    "bad",
    [
        None,  # hangs
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
        ask_to_wait(b"7"),
        ask_to_wait(b"Fri, 31 Dec 1999 23:59:59 GMT"),
    ],
)
def test_a_bad_answer_is_asked_for_again(bad: bytes | None, connect: Connect, pauses: list[float]) -> None:
    good = make_answer({**PLAIN, "new": "of a later version"})
    with (
        ScriptedServer(bad, bad, good) as server,
        connect(server.address, timeout=0.1 if bad is None else 10.0) as client,
    ):
        assert client.decide("a", ARMS) == DECISION
    assert len(server.keys) == 3
    assert len(set(server.keys)) == len(set(server.bodies)) == 1  # one key for all attempts
    wait = 7.0 if bad == ask_to_wait(b"7") else 0.0
    assert pauses == pytest.approx([wait + 0.1, wait + 0.2])


def test_until_the_deadline(connect: Connect, pauses: list[float]) -> None:
    """Pauses double up to two seconds; the last attempt begins before the deadline."""
    with ScriptedServer(BUSY) as server, connect(server.address) as client:
        refused(lambda: client.decide("a", ARMS), 503, "unavailable")
    assert pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, *[2.0] * 13])
    assert len(server.requests) == 19
    assert 5.0 < sum(pauses) <= DEADLINE < sum(pauses) + 2.0  # an ordinary restart takes up to 5


def test_pauses_are_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that failed together do not come back together."""
    lengths = list[float]()

    async def pause(_: object, seconds: float) -> None:
        lengths.append(seconds)

    monkeypatch.setattr(Client, "_pause", pause)
    with ScriptedServer(*[BUSY] * 20, GOOD) as server, Client(server.address, deadline=1e6) as client:
        client.reward("a", "d1", 1.0)
    assert all(
        0.5 <= length / usual <= 1.5 for length, usual in zip(lengths[:5], (0.1, 0.2, 0.4, 0.8, 1.6), strict=True)
    )
    assert len({round(length, 3) for length in lengths[5:]}) > 10


UNSURE = "; an attempt may have been executed"


@pytest.mark.parametrize(
    ("script", "status", "code", "requests", "end"),
    [
        ([None], None, "no-answer", 3, "; gave up after 3 attempts" + UNSURE),
        ([BUSY], 503, "unavailable", 3, "it is so; gave up after 3 attempts"),
        ([ask_to_wait(b"7777")], 503, "unavailable", 1, "it is so; gave up after 1 attempt"),  # not within two hours
        ([b"", EXISTS], 409, "stream-exists", 2, "it is so" + UNSURE),
        ([FAILED, EXISTS], 409, "stream-exists", 2, "it is so" + UNSURE),
        ([FAILED], 503, "unavailable", 3, "it is so; gave up after 3 attempts" + UNSURE),
        ([EXISTS], 409, "stream-exists", 1, "it is so"),
        ([WRONG], 422, "invalid", 1, "it is so"),
        *(
            ([make_answer("<html>", status, "Location: /v2")], int(status[:3]), "http", 1, "")
            for status in ("400 Bad Request", "404 Not Found", "409 Conflict", "500 Internal Server Error", "302 Found")
        ),
    ],
)
def test_errors_say_what_is_known_about_all_attempts(
    script: list, status: int | None, code: str, requests: int, end: str, connect: Connect, pauses: list[float]
) -> None:
    timeout = 0.1 if script == [None] else 10.0
    with ScriptedServer(*script) as server, connect(server.address, timeout=timeout, deadline=TWO_MORE) as client:
        error = refused(lambda: client.decide("a", ARMS), status, code)
        assert (error.message.endswith(end), error.is_unsure) == (True, UNSURE in end)
        assert error.pointer == ("#/arms/red/1" if script == [WRONG] else None)
        assert error.retry_after == (7777.0 if b"7777" in (script[0] or b"") else 0.0)
        assert len(server.requests) == len(pauses) + 1 == requests
        if not error.is_unsure:
            refused(lambda: list(client.events("a")), status, code)
            assert len(server.requests) == 2 * requests


def test_ready(connect: Connect, pauses: list[float]) -> None:
    with ScriptedServer(BUSY, BUSY, make_answer({})) as server, connect(server.address, deadline=TWO_MORE) as client:
        assert not client.ready()
        assert client.ready(wait=60)
    pauses.clear()
    with connect(server.address, deadline=TWO_MORE) as client:  # nobody is there any more
        assert not client.ready()
        error = refused(lambda: client.decide("a", ARMS), None, "unreachable")
    assert (len(pauses), error.is_unsure, server.address in error.message) == (2, False, True)
    with ScriptedServer(make_problem("no-token", "401 Unauthorized")) as server, connect(server.address) as client:
        refused(lambda: client.ready(wait=60), 401, "no-token")


def test_a_later_part_of_a_batch_that_fails(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, pauses: list[float]
) -> None:
    monkeypatch.setattr(messages, "MOST_ITEMS", 2)
    good = make_answer({"results": [{"status": 201, "decision": PLAIN}] * 2})
    with ScriptedServer(good, b"") as server, connect(server.address, deadline=ONE_MORE) as client:
        error = failed_batch(lambda: client.decide_many("a", [ARMS] * 3))
        assert error.results[:2] == [DECISION] * 2
        assert (error.errors[2].status, error.errors[2].code) == (None, "no-answer")
        refusal = messages.ClientError(422, "invalid", "wrong")
        assert [error.is_unsure, BatchError([refusal, *error.results]).is_unsure] == [True, True]
        assert not BatchError([refusal]).is_unsure
        first_request = refused(lambda: client.decide_many("a", [ARMS]), None, "no-answer")
        assert not isinstance(first_request, BatchError)
    keys = [item["key"] for body in server.bodies for item in json.loads(body)["decisions"]]
    assert len(keys) == 6
    assert len(set(keys)) == 4  # the third was sent twice with one key, and so was the fourth


def test_an_interrupted_call_leaves_no_answer_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C between request and answer: the next request must not get the answer to that one."""

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with ScriptedServer(GOOD, make_answer(PLAIN)) as server, Client(server.address) as client:
        with monkeypatch.context() as patch:
            patch.setattr(h11.Connection, "receive_data", interrupt)
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
    with ScriptedServer(None, GOOD) as server, Client(server.address, timeout=1.0, deadline=0) as client:
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


@pytest.mark.parametrize(
    "rest", ["123/secret@h:1", "secret/1@h:1", "secret#1@h:1", "é-secret@h:1", "x@h:secret", "x@h:0"]
)
def test_a_proxy_that_is_no_address(connect: Connect, monkeypatch: pytest.MonkeyPatch, rest: str) -> None:
    monkeypatch.setenv("http_proxy", f"http://user:{rest}")
    for variable in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(variable, raising=False)
    with connect("http://windvane.invalid") as client, rejects("HTTP_PROXY", value=None) as caught:
        client.info("a")
    assert "secret" not in "".join(traceback.format_exception(caught.value))
    monkeypatch.setenv("http_proxy", "ftp://h:1")
    with connect("http://windvane.invalid") as client, rejects("HTTP_PROXY"):
        client.info("a")


# --- answers that are not the service's ----------------------------------------------------------------------------

RESULT = {"status": 200, "receipt": RECEIPT}


CALLS: dict[str, Callable[[Any], object]] = {
    "streams": lambda client: client.streams(),
    "info": lambda client: client.info("s"),
    "decide": lambda client: client.decide("s", ARMS),
    "reward": lambda client: client.reward("s", "a", 1.0),
    "history": lambda client: client.history("s", [1.0], [[0.1, 0.2]]),
    "decide_many": lambda client: client.decide_many("s", [ARMS] * 3),
    "reward_many": lambda client: client.reward_many("s", [("a", 1.0)]),
}
OTHERS: dict[str, list[Any]] = {
    "streams": [{"streams": None, "next": None}, {"streams": [1], "next": None}, {}],
    "info": [{"hello": "world"}, [1, 2]],
    "decide": [
        *(PLAIN | wrong for wrong in ({"id": 5}, {"index": "0"}, {"explored": 1}, {"arm": True}, {"time": "soon"})),
        {name: value for name, value in PLAIN.items() if name != "bonus"},
    ],
    "reward": [{**RECEIPT, "status": "perhaps"}],
    "history": [{"rows": "many"}, {"rows": True}],
    "decide_many": [{"results": [{"status": 201, "decision": PLAIN}]}],
    "reward_many": [
        {"results": results} for results in (
            [RESULT] * 5, [{"receipt": RECEIPT}], [{**RESULT, "status": "200"}], [{"status": 200}],
            [{"status": 201, "decision": PLAIN}], "no",
        )
    ],
}  # fmt: skip


@pytest.mark.parametrize(("call", "answer"), [(call, answer) for call in OTHERS for answer in OTHERS[call]])
def test_answers_of_another_service(call: str, answer: object, connect: Connect) -> None:
    with ScriptedServer(make_answer(answer)) as server, connect(server.address) as client:
        error = refused(lambda: CALLS[call](client), 200, "not-understood")
    assert error.message.endswith("is this a windvane service?")
    assert len(server.requests) == 1


def test_an_answer_without_bottom(connect: Connect) -> None:
    with ScriptedServer(make_answer(b"[" * 200_000)) as server, connect(server.address, deadline=0) as client:
        refused(lambda: client.info("s"), 200, "no-answer")


def test_streams_that_were_not_recovered(connect: Connect) -> None:
    page = {"streams": [], "next": None, "unavailable": [{"name": "shop", "reason": "its log ends early"}]}
    with ScriptedServer(make_answer(page)) as server, connect(server.address) as client:
        assert client.streams() == []
        assert client.unrecovered() == [UnavailableStream(name="shop", reason="its log ends early")]


def test_pages(connect: Connect) -> None:
    pages = [{"decisions": [{**PLAIN, "id": key}], "next": after} for key, after in (("d1", 0), ("d/2", None))]
    with ScriptedServer(*map(make_answer, pages)) as server, connect(server.address) as client:
        assert client.pending("s") == [DECISION, replace(DECISION, id="d/2")]
    assert b"after=0" in server.requests[1].split(b"\r\n")[0]


# --- a log -----------------------------------------------------------------------------------------------------------


def make_lines(first: int, last: int, *more: object) -> bytes:
    lines = [*({"number": number} for number in range(first, last + 1)), *more]
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


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
    with ScriptedServer(*script) as server, connect(server.address, deadline=ONE_MORE) as client:
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
