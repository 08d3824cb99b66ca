"""The client: every call against a real server, and nothing counted twice whatever the network does."""

from __future__ import annotations

import json
import pickle
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import windvane
from network import Fake, Lossy, answer, served
from support.refusals import rejects
from windvane import BatchError, Client, ClientError
from windvane.client import connection
from windvane.client.messages import MOST_ITEMS, Decided

ARMS = {"red": [0.6, 0.1], "blue": [0.2, 0.7]}
MADE = {
    "decision": "d1", "arm": "red", "index": 0, "time": 1.0, "propensity": None, "explored": False, "prediction": 0.5,
    "bonus": 0.1, "preferred": "red", "rival": "blue", "rival_score": 0.2, "projected": None,
    "new": "of a later version",
}  # fmt: skip
BUSY = {"error": {"code": "unavailable", "message": "not ready: starting", "field": None}}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(tmp_path_factory.mktemp("store") / "windvane.db") as address:
        yield address


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with Client(url, timeout=60.0) as made:
        yield made


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Pauses between attempts are noted, and not made."""
    found: list[float] = []
    monkeypatch.setattr(connection.time, "sleep", found.append)
    return found


def refused(call: object, status: int | None, code: str) -> ClientError:
    with pytest.raises(ClientError) as found:
        call()  # type: ignore[operator]
    assert (found.value.status, found.value.code) == (status, code), found.value
    assert "\n" not in str(found.value)
    return found.value


def failed_batch(call: Callable[[], object]) -> BatchError:
    with pytest.raises(BatchError) as caught:
        call()
    error = caught.value
    assert error.errors == {i: result for i, result in enumerate(error.results) if isinstance(result, ClientError)}
    assert "\n" not in str(error)
    return error


# --- every call ----------------------------------------------------------------------------------------------------


def test_a_stream_from_beginning_to_end(client: Client) -> None:
    assert client.ready()
    made = client.create("whole", dim=2, prior=np.array([0.1, 0.2]), wait=3, randomize=0.5)
    assert (made["name"], made["policy"], made["config"]["prior"]) == ("whole", "AdaptiveGLMUCB", [0.1, 0.2])
    assert "whole" in [one["name"] for one in client.streams()]
    decision = client.decide("whole", ARMS)
    assert decision.arm in ARMS
    assert decision.propensity is not None
    assert client.reward("whole", decision, True)
    assert client.reward("whole", decision.id, 1.0) is False  # known already
    told = client.past("whole", decision)
    assert (told["state"], told["reward"]) == ("rewarded", 1.0)
    assert client.configure("whole", title="red or blue", randomize=0.0)["title"] == "red or blue"
    assert client.decide("whole", ARMS).propensity is None
    assert client.history("whole", np.array([1, 0]), np.array([[0.5, 0.5], [0.1, 0.2]])) == 2
    state = client.state("whole")
    assert (state["decisions"], state["rewards"], state["pending"], state["history"]) == (2, 1, 1, 2)
    assert client.archive("whole")["archived"] is not None
    assert client.archive("whole")["archived"] is not None
    refused(lambda: client.decide("whole", ARMS), 409, "archived")
    kinds = [event["kind"] for event in client.events("whole")]
    assert kinds == ["decided", "rewarded", "configured", "decided", "history", "archived"]
    assert [event["number"] for event in client.events("whole", after=2, limit=3)] == [3, 4, 5]


def test_arms_in_every_form(client: Client) -> None:
    client.create("forms", dim=2)
    vectors = np.array([[0.6, 0.1], [0.2, 0.7]], dtype=np.float32)
    for arms in (vectors, list(vectors), vectors.tolist(), [list(row) for row in vectors]):
        assert client.decide("forms", arms).arm in (0, 1)
    for named in ({"a": vectors[0], "b": vectors[1]}, {"a": [np.float64(0.1), np.int64(0)], "b": (0.2, 0.3)}):
        assert client.decide("forms", named).arm in ("a", "b")


def test_contexts(client: Client) -> None:
    features = windvane.Features(shared={"age": (0, 100)}, by_arm={"night": ["yes", "no"]}, arms=["red", "blue"])
    client.create("contexts", features=features)
    context = {"age": np.int64(30), "night": "no"}
    decision = client.decide("contexts", context=context)
    assert decision.arm in ("red", "blue")
    assert client.decide("contexts", ["red"], context).arm == "red"
    error = failed_batch(lambda: client.decide_many("contexts", [None, ["blue"]], [context, {"age": 30}]))
    assert isinstance(error.results[0], Decided)
    assert (error.errors[1].status, error.errors[1].field) == (422, "context['night']")
    assert client.history("contexts", [1.0], contexts=[context], arms=["red"]) == 1


def test_batches(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    client.create("batches", dim=2)
    first, second = client.decide_many("batches", [ARMS, [[0.5, 0.5]]])
    assert (first.arm in ARMS, second.arm) == (True, 0)
    assert client.reward_many("batches", [(first, 1.0), (second.id, np.bool_(False)), (first, 1.0)]) == [
        True,
        True,
        False,
    ]
    assert client.decide_many("batches", []) == []
    assert client.reward_many("batches", []) == []
    many = client.decide_many("batches", [[[0.1, 0.1]]] * (MOST_ITEMS + 1))
    assert len({decision.id for decision in many}) == MOST_ITEMS + 1
    monkeypatch.setattr("windvane.client.messages.MOST_BYTES", 100)
    assert client.reward_many("batches", [(decision, 1.0) for decision in many[:5]]) == [True] * 5
    assert client.state("batches")["rewards"] == 7


def test_a_batch_with_items_that_fail(client: Client) -> None:
    """It raises, and the answers of the other items are in the error: they were carried out."""
    client.create("failing-items", dim=2)
    error = failed_batch(lambda: client.decide_many("failing-items", [ARMS, {"long": [3.0, 4.0]}, [[0.5, 0.5]]]))
    first, failure, last = error.results
    assert isinstance(first, Decided)
    assert isinstance(last, Decided)
    assert last.arm == 0
    assert error.errors == {1: failure}
    assert (error.status, error.code, error.field) == (422, "invalid", error.errors[1].field)
    assert error.message == f"1 of 3 items failed; results[1]: {error.errors[1].message}"
    assert client.state("failing-items")["decisions"] == 2

    rewards = [(first, 1.0), ("unknown", 1.0), (first, 0.0), (last.id, 0.0), (first, 1.0)]
    error = failed_batch(lambda: client.reward_many("failing-items", rewards))
    assert [result for result in error.results if isinstance(result, bool)] == [True, True, False]
    assert {place: one.code for place, one in error.errors.items()} == {1: "unknown_decision", 2: "conflict"}
    assert error.message.startswith("2 of 5 items failed; results[1]: ")
    assert client.state("failing-items")["rewards"] == 2

    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is BatchError
    assert str(copy) == str(error)
    assert list(copy.errors) == [1, 2]
    assert copy.results[0] is True

    refused(lambda: client.decide_many("nowhere", [ARMS]), 404, "unknown_stream")


def test_what_the_service_refuses(client: Client) -> None:
    client.create("refusals", dim=2, wait=1)
    assert refused(lambda: client.create("refusals", dim=2), 409, "exists").field == "name"
    assert refused(lambda: client.create("no dim"), 422, "invalid").field == "name"
    assert refused(lambda: client.create("typo", dim=2, half_live=3), 422, "invalid").field == "half_live"
    refused(lambda: client.decide("nowhere", ARMS), 404, "unknown_stream")
    assert "arms['red']" in str(refused(lambda: client.decide("refusals", {"red": [1.0]}), 422, "invalid"))
    decision = client.decide("refusals", ARMS)
    assert refused(lambda: client.reward("refusals", decision, 7.0), 422, "invalid").field == "value"
    client.reward("refusals", decision, 1.0)
    refused(lambda: client.reward("refusals", decision, 0.0), 409, "conflict")
    late = client.decide_many("refusals", [ARMS] * 3)[0]
    refused(lambda: client.reward("refusals", late, 0.0), 410, "too_late")
    refused(lambda: client.reward("refusals", "nobody", 0.0), 404, "unknown_decision")
    refused(lambda: client.past("refusals", "no/body"), 404, "not_found")
    refused(lambda: list(client.events("nowhere")), 404, "unknown_stream")
    refused(lambda: client.history("refusals", [0.0] * 900_000, np.zeros((900_000, 2))), 413, "too_large")
    error = refused(lambda: client.decide("refusals", ARMS, {"age": 3}), 422, "invalid")
    again = pickle.loads(pickle.dumps(error))
    assert (again.status, again.code, again.message, again.field) == (422, "invalid", error.message, error.field)


def test_a_key_of_ones_own(client: Client) -> None:
    client.create("keys", dim=2)
    first = client.decide("keys", ARMS, key="request 17")
    assert client.decide("keys", ARMS, key="request 17") == first
    refused(lambda: client.decide("keys", {"red": [0.1, 0.1]}, key="request 17"), 409, "key_reused")
    assert client.reward("keys", first, 1.0, key="reward 17")
    assert client.reward("keys", first, 1.0, key="reward 17")  # the same answer again
    assert client.history("keys", [1.0], [[0.1, 0.1]], key="h") == client.history("keys", [1.0], [[0.1, 0.1]], key="h")
    assert client.state("keys")["events"] == 3


def test_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from windvane.service.access import new_token
    from windvane.service.store import Store

    store = Store(tmp_path / "w.db")
    full, reading = new_token(store, "shop", full=True), new_token(store, "page", full=False)
    store.close()
    with served(tmp_path / "w.db") as url, Client(url, full) as mine, Client(url, reading) as page, Client(url) as none:
        mine.create("a", dim=2)
        assert [one["name"] for one in page.streams()] == ["a"]
        refused(lambda: page.decide("a", ARMS), 403, "read_only")
        refused(none.streams, 401, "no_token")
        monkeypatch.setenv("WINDVANE_URL", url + "/")
        monkeypatch.setenv("WINDVANE_TOKEN", f"{full}")
        with Client() as told_by_the_environment:
            assert told_by_the_environment.url == url
            assert told_by_the_environment.decide("a", ARMS).arm in ARMS
            assert str(full) not in repr(told_by_the_environment)


def test_what_cannot_be_sent_is_said_before(client: Client) -> None:
    for wrong, argument in (
        (lambda: client.decide("a", {1: [0.1, 0.2]}), "arms"),
        (lambda: client.decide("a", {"a": [np.nan, 0.2]}), "arms"),
        (lambda: client.decide("a", {"a": object()}), "arms"),
        (lambda: client.decide("", ARMS), "stream"),
        (lambda: client.decide("a", ARMS, key="new\nline"), "key"),
        (lambda: client.reward("a", 3, 1.0), "decision"),  # type: ignore[arg-type]
        (lambda: client.reward("a", "d", float("inf")), "value"),
        (lambda: client.decide_many("a", [ARMS], []), "contexts"),
        (lambda: client.events("a", after=-1), "after"),
        (lambda: Client("127.0.0.1:8000"), "url"),
        (lambda: Client("http://host:port"), "url"),
        (lambda: Client(3), "url"),  # type: ignore[arg-type]
        (lambda: Client(timeout=0), "timeout"),
        (lambda: Client(retries=-1), "retries"),
    ):
        with rejects(argument):
            wrong()
    with rejects("token", value=None) as caught:
        Client(token="secret\ntoken")
    assert "secret" not in str(caught.value)
    assert Client("https://example.org/windvane")._service._prefix == "/windvane"


# --- nothing counts twice ------------------------------------------------------------------------------------------


def counted_once(client: Client, name: str, decisions: list[str], rewards: dict[str, float]) -> None:
    """The log holds these decisions and rewards, each of them once, and nothing else."""
    events = list(client.events(name))
    assert Counter(e["decision"] for e in events if e["kind"] == "decided") == Counter(decisions)
    assert max(Counter(decisions).values()) == 1
    found = [(e["decision"], e["value"]) for e in events if e["kind"] == "rewarded"]
    assert len(found) == len(rewards)
    assert dict(found) == rewards
    state = client.state(name)
    assert (state["decisions"], state["rewards"], state["pending"]) == (len(decisions), len(rewards), 0)
    assert state["mean_reward"] == pytest.approx(np.mean(list(rewards.values())))


def test_single_calls_through_a_network_that_loses_things(
    url: str, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "FIRST_PAUSE", 1e-4)
    client.create("lossy", dim=2, policy="OnePassGLM", gamma=0.99)
    rng, decisions, rewards = np.random.default_rng(5), [], {}
    with Lossy(url, seed=5, share=0.4) as network, Client(network.address, timeout=60.0, retries=50) as unlucky:
        for _ in range(150):
            decision = unlucky.decide("lossy", rng.uniform(-0.7, 0.7, size=(3, 2)))
            decisions.append(decision.id)
            rewards[decision.id] = float(rng.random() < 0.5)
            assert unlucky.reward("lossy", decision, rewards[decision.id])
    assert min(network.lost_requests, network.lost_answers, network.cut_answers) > 10
    counted_once(client, "lossy", decisions, rewards)


def test_batches_and_history_through_it(url: str, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "FIRST_PAUSE", 1e-4)
    client.create("lossy-batches", dim=2)
    with Lossy(url, seed=6, share=0.6) as network, Client(network.address, timeout=60.0, retries=100) as unlucky:
        decisions = [decision for _ in range(8) for decision in unlucky.decide_many("lossy-batches", [ARMS] * 5)]
        rewards = {decision.id: float(i % 2) for i, decision in enumerate(decisions)}
        for i in range(0, 40, 10):
            assert all(unlucky.reward_many("lossy-batches", list(rewards.items())[i : i + 10]))
        assert network.lost_answers + network.cut_answers > 3
        counted_once(client, "lossy-batches", list(rewards), rewards)
        for _ in range(5):
            assert unlucky.history("lossy-batches", [1.0, 0.0], [[0.1, 0.2], [0.3, 0.4]]) == 2
    state = client.state("lossy-batches")
    assert (state["rewards"], state["history"]) == (40, 10)


def test_many_threads_share_a_client(url: str, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "FIRST_PAUSE", 1e-4)
    client.create("threads", dim=2, policy="OnePassGLM", gamma=0.99)
    decisions: list[str] = []
    rewards: dict[str, float] = {}
    with Lossy(url, seed=7, share=0.2) as network, Client(network.address, timeout=60.0, retries=50) as shared:

        def work(number: int) -> None:
            for i in range(20):
                decision = shared.decide("threads", {f"arm {number}": [0.1, 0.2], f"other {number}": [0.3, 0.1]})
                assert str(decision.arm).endswith(str(number))  # the answer to this thread's own question
                decisions.append(decision.id)
                rewards[decision.id] = float(i % 2)
                assert shared.reward("threads", decision, rewards[decision.id])

        threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(decisions) == 120
    counted_once(client, "threads", decisions, rewards)


def test_a_log_that_breaks_off_is_read_on(url: str, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "FIRST_PAUSE", 1e-4)
    client.create("log", dim=2)
    client.decide_many("log", [[[0.1, 0.1]]] * 2000)
    with Lossy(url, seed=8, share=0.8) as network, Client(network.address, timeout=60.0, retries=100) as unlucky:
        for _ in range(5):
            assert [event["number"] for event in unlucky.events("log")] == list(range(1, 2001))
        assert [event["number"] for event in unlucky.events("log", after=10, limit=1500)] == list(range(11, 1511))
        reading = unlucky.events("log")
        assert next(reading)["number"] == 1
        assert unlucky.state("log")["decisions"] == 2000  # in the midst of reading
        assert next(reading)["number"] == 2
        reading.close()  # type: ignore[attr-defined]
    assert network.cut_answers > 3


# --- what servers may do -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bad",
    [
        b"",  # hangs up
        b"HTTP/1.1 200 OK\r\nContent-Length: 400\r\n\r\n{",  # breaks off
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"\x16\x03\x01 what?\r\n\r\n",
        answer(["not", "an", "object"]),
        answer(None).replace(b"null", b"nil!"),
        answer("<html>", "502 Bad Gateway"),
        answer("<html>", "504 Gateway Timeout"),
        answer(BUSY, "503 Service Unavailable"),
        answer("busy", "503 Service Unavailable"),
        answer(BUSY, "429 Too Many Requests"),
    ],
)
def test_a_bad_answer_is_asked_for_again(bad: bytes, pauses: list[float]) -> None:
    with Fake(bad, bad, answer(MADE)) as server, Client(server.address) as client:
        assert client.decide("a", ARMS) == Decided("d1", *list(MADE.values())[1:-1])  # type: ignore[arg-type]
    assert len(server.keys) == 3
    assert len(set(server.keys)) == 1  # one key for all attempts
    assert len({request.partition(b"\r\n\r\n")[2] for request in server.requests}) == 1
    assert 0.05 <= pauses[0] <= 0.15
    assert 0.1 <= pauses[1] <= 0.3


def test_a_server_that_hangs(pauses: list[float]) -> None:
    with (
        Fake(None, answer({"decision": "d1", "learnt": True})) as server,
        Client(server.address, timeout=0.1) as client,
    ):
        assert client.reward("a", "d1", 1.0)
    assert len(server.keys) == 2
    assert len(set(server.keys)) == 1
    with Fake(None) as server, Client(server.address, timeout=0.1, retries=1) as client:
        error = refused(lambda: client.decide("a", ARMS), None, "no_answer")
    assert "(timed out); gave up after 2 attempts; whether it was carried out is not known" in error.message


def test_what_the_server_asks_for_is_waited_for(pauses: list[float]) -> None:
    busy = answer(BUSY, "503 Service Unavailable", "Retry-After: 7")
    with Fake(busy, answer({"learnt": True})) as server, Client(server.address) as client:
        assert client.reward("a", "d1", 1.0)
    assert 7.0 < pauses[0] < 7.2
    with Fake(busy) as server, Client(server.address, retries=2) as client:
        error = refused(lambda: client.decide("a", ARMS), 503, "unavailable")
    assert error.message == "not ready: starting; gave up after 3 attempts"
    with Fake(busy.replace(b": 7", b": 7777")) as server, Client(server.address) as client:
        refused(lambda: client.decide("a", ARMS), 503, "unavailable")
        refused(lambda: list(client.events("a")), 503, "unavailable")
    assert len(server.requests) == 2  # not asked again within two hours
    dated = busy.replace(b": 7", b": Fri, 31 Dec 1999 23:59:59 GMT")
    with Fake(dated, answer({"learnt": True})) as server, Client(server.address) as client:
        assert client.reward("a", "d1", 1.0)


def test_refusals_are_not_repeated(pauses: list[float]) -> None:
    for status in ("400 Bad Request", "404 Not Found", "409 Conflict", "500 Internal Server Error", "302 Found"):
        with Fake(answer("<html>", status)) as server, Client(server.address) as client:
            refused(lambda: client.decide("a", ARMS), int(status[:3]), "http")
        assert len(server.requests) == 1
    with Fake(answer({"hello": "world"})) as server, Client(server.address) as client:
        error = refused(lambda: client.decide("a", ARMS), 200, "not_understood")
        assert error.message == "the answer has no 'decision'; is this a windvane service?"
    assert pauses == []


def test_nobody_there(pauses: list[float]) -> None:
    with Fake(answer({})) as server:
        pass
    with Client(server.address, retries=2) as client:
        assert not client.ready()
        error = refused(lambda: client.decide("a", ARMS), None, "unreachable")
        assert error.message.endswith("cannot be reached (Connection refused); gave up after 3 attempts")


def test_a_name_that_is_taken_after_a_lost_answer(pauses: list[float]) -> None:
    taken = answer(
        {"error": {"code": "exists", "message": "stream 'a': there is one of this name", "field": "name"}},
        "409 Conflict",
    )
    with Fake(b"", taken) as server, Client(server.address) as client:
        error = refused(lambda: client.create("a", dim=2), 409, "exists")
    assert error.message.endswith("an answer was lost, so it may be the one asked for: see state('a')")
    with Fake(taken) as server, Client(server.address) as client:
        error = refused(lambda: client.create("a", dim=2), 409, "exists")
    assert error.message == "stream 'a': there is one of this name"


def test_a_later_part_of_a_batch_that_fails(monkeypatch: pytest.MonkeyPatch, pauses: list[float]) -> None:
    monkeypatch.setattr("windvane.client.messages.MOST_ITEMS", 2)
    good = answer({"results": [{"status": 200, "answer": MADE}] * 2})
    with Fake(good, b"") as server, Client(server.address, retries=1) as client:
        error = failed_batch(lambda: client.decide_many("a", [ARMS] * 3))
        assert [isinstance(result, Decided) for result in error.results] == [True, True, False]
        assert (error.errors[2].status, error.errors[2].code) == (None, "no_answer")
        first_request = refused(lambda: client.decide_many("a", [ARMS]), None, "no_answer")
        assert not isinstance(first_request, BatchError)
    keys = [
        item["key"] for request in server.requests for item in json.loads(request.partition(b"\r\n\r\n")[2])["items"]
    ]
    assert len(keys) == 6
    assert len(set(keys)) == 4  # the third was sent twice with one key, and so was the fourth


def test_an_interrupted_call_leaves_no_answer_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C between question and answer: the next question must not get the answer of that one."""
    script = (answer({"learnt": True}), answer(MADE))
    with Fake(*script) as server, Client(server.address) as client:
        read = connection.http.client.HTTPConnection.getresponse

        def interrupted(_: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(connection.http.client.HTTPConnection, "getresponse", interrupted)
        with pytest.raises(KeyboardInterrupt):
            client.reward("a", "d1", 1.0)
        while not server.requests:  # the server thread may be slower than we are
            time.sleep(0.01)
        monkeypatch.setattr(connection.http.client.HTTPConnection, "getresponse", read)
        assert client.decide("a", ARMS).arm == "red"


def test_connections_are_kept_and_not_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    with Fake(answer({"learnt": True})) as server, Client(server.address) as client:
        ask = lambda: client.reward("a", "d1", 1.0)  # noqa: E731
        assert ask()
        assert ask()
        assert len(server._open) == 1
        other = threading.Thread(target=ask)
        other.start()
        other.join()
        assert len(server._open) == 2
        with monkeypatch.context() as patched:
            patched.setattr(connection.os, "getpid", lambda: 0)  # as in the child after a fork
            assert ask()
        assert len(server._open) == 3
        kept = len(server._open)
        with monkeypatch.context() as patched:
            patched.setattr(connection, "IDLE", -1.0)  # as if it had waited for long
            assert ask()
        client.close()
        assert ask()
        assert len(server._open) >= kept + 2


# --- a server that lies --------------------------------------------------------------------------------------------


def said(document: object, status: bytes = b"200 OK") -> bytes:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)


DECISION = {
    "decision": "a", "arm": "red", "index": 0, "time": 1.0, "propensity": None, "explored": False, "prediction": 0.5,
    "bonus": 0.1, "preferred": "red", "rival": None, "rival_score": None, "projected": None,
}  # fmt: skip


@pytest.mark.parametrize(
    ("ask", "answer"),
    [
        (lambda c: c.streams(), {"streams": None}),
        (lambda c: c.streams(), {"streams": [1]}),
        (lambda c: c.streams(), {}),
        (lambda c: c.decide("s", ARMS), {**DECISION, "decision": 5}),
        (lambda c: c.decide("s", ARMS), {**DECISION, "index": "0"}),
        (lambda c: c.decide("s", ARMS), {**DECISION, "explored": 1}),
        (lambda c: c.decide("s", ARMS), {**DECISION, "arm": True}),
        (lambda c: c.decide("s", ARMS), {name: DECISION[name] for name in DECISION if name != "bonus"}),
        (lambda c: c.reward("s", "a", 1.0), {"learnt": "no"}),
        (lambda c: c.history("s", [1.0], [[0.1, 0.2]]), {"learnt": "many"}),
        (lambda c: c.history("s", [1.0], [[0.1, 0.2]]), {"learnt": True}),
        (lambda c: c.decide_many("s", [ARMS] * 3), {"results": [{"status": 200, "answer": DECISION}]}),
        (lambda c: c.reward_many("s", [("a", 1.0)]), {"results": [{"status": 200, "answer": {"learnt": True}}] * 5}),
        (lambda c: c.reward_many("s", [("a", 1.0)]), {"results": [{"answer": {"learnt": True}}]}),
        (lambda c: c.reward_many("s", [("a", 1.0)]), {"results": [{"status": "200", "answer": {"learnt": True}}]}),
        (lambda c: c.reward_many("s", [("a", 1.0)]), {"results": "no"}),
    ],
)  # fmt: skip
def test_answers_that_are_not_the_service_s(ask: Callable[[Client], object], answer: object) -> None:
    with Fake(said(answer)) as server, Client(server.address, retries=0) as client:
        assert refused(lambda: ask(client), 200, "not_understood").message.endswith("is this a windvane service?")


def test_an_entry_of_a_batch_that_cannot_be_read_leaves_the_others() -> None:
    entries = [{"status": 200, "answer": {"learnt": True}}, {"status": 200, "answer": {"learnt": "no"}}]
    with Fake(said({"results": [*entries, entries[0]]})) as server, Client(server.address, retries=0) as client:
        error = failed_batch(lambda: client.reward_many("s", [("a", 1.0), ("b", 1.0), ("c", 1.0)]))
    assert (error.results[0], error.errors[1].code, error.results[2]) == (True, "not_understood", True)


def test_an_answer_without_bottom() -> None:
    with Fake(said(b"[" * 200_000)) as server, Client(server.address, retries=0) as client:
        refused(lambda: client.state("s"), 200, "no_answer")


def test_a_log_that_turns_in_circles() -> None:
    line = b'{"number": 1}\n'
    cut = b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n" + line
    with Fake(cut) as server, Client(server.address, retries=3) as client:
        refused(lambda: list(client.events("s")), 200, "not_understood")


@pytest.mark.parametrize("url", ["http://x y", "http://x\ny", "http://x\u00e9", "http://x/\x00"])
def test_addresses_that_are_none(url: str) -> None:
    with rejects("url", value=url):
        Client(url)
    with rejects("timeout", value=1e100):
        Client(timeout=1e100)
