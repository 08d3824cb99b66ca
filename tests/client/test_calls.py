"""Every call of both clients against a real server, and nothing counted twice whatever the network does."""

from __future__ import annotations

import asyncio
import gc
import inspect
import math
import os
import pickle
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pydantic import TypeAdapter

import windvane
from support.clients import ARMS, Connect, failed_batch, refused
from support.network import LossyProxy
from support.refusals import rejects
from support.server import run_command, run_server
from windvane import BatchError, Client
from windvane.client import AsyncClient, messages
from windvane.records import Counts, Decision, DecisionRecord, Drift, Explanation, to_json

# --- every call ----------------------------------------------------------------------------------------------------


def test_predict_and_rank_decide_nothing(client: Any, name: str) -> None:
    client.create(name, dim=2)
    predicted, ranked = client.predict(name, ARMS), client.rank(name, ARMS)
    assert list(predicted) == list(ARMS)
    assert all(each == predicted[each.arm] for each in ranked)
    assert client.info(name).events == 0
    decision = client.decide(name, ARMS)
    own = predicted[decision.arm]
    assert (own.prediction, own.bonus, ranked[0].arm) == (decision.prediction, decision.bonus, decision.arm)
    assert refused(lambda: client.rank(name, {"red": [1.0]}), 422, "invalid").pointer == "#/arms/red"


def test_features_change_and_a_refit_is_undone(client: Any, name: str) -> None:
    client.create(name, features={"arms": ["red", "blue"]}, epsilon=0.5)
    for decision in client.decide_many(name, [None] * 10):
        client.reward(name, decision, decision.arm == "red")
    info = client.configure(name, features={"arms": ["red", "blue", "green"]})
    assert list(info.theta) == ["1", "red: 1", "blue: 1", "green: 1"]
    trial = client.refit(name, half_life=20, dry_run=True)
    report = client.refit(name, half_life=20, key="once")
    assert (trial.event, trial.comparison) == (None, report.comparison)
    assert client.refit(name, half_life=20, key="once") == report
    assert (report.settings, report.comparison.outcomes) == ({"half_life": 20}, 10)
    assert report.event == client.info(name).events
    assert client.undo_refit(name).settings["half_life"] is None
    refused(lambda: client.undo_refit(name), 409, "no-refit")
    assert refused(lambda: client.refit(name, gamma=3.0), 422, "invalid").pointer == "#/gamma"


def test_a_stream_from_beginning_to_end(client: Any, name: str) -> None:
    assert client.ready()
    info = client.create(name, dim=2, prior=np.array([0.1, 0.2]), epsilon=0.5, max_pending=10)
    assert (info.name, info.policy, info.settings["prior"]) == (name, "AdaptiveGLMUCB", [0.1, 0.2])
    assert abs(info.created - datetime.now(UTC)) < timedelta(minutes=5)
    assert name in [stream.name for stream in client.streams()]
    decision = client.decide(name, ARMS)
    assert isinstance(decision, Decision)
    assert decision.arm in ARMS
    assert decision.propensity is not None
    assert abs(decision.time - datetime.now(UTC)) < timedelta(minutes=5)
    assert client.pending(name) == [decision]
    pending = DecisionRecord(decision=decision, status="pending", reward=None, late_reward=None)
    assert client.decision(name, decision) == pending
    assert client.explain(name, decision) == Explanation.of(decision)
    assert client.reward(name, decision, True) == "recorded"
    assert client.reward(name, decision.id, 1.0) == "unchanged"
    record = client.decision(name, decision.id)
    assert (record.status, record.reward) == ("rewarded", 1.0)
    assert client.configure(name, title="red or blue", epsilon=0.0).title == "red or blue"
    assert client.configure(name, title=None).title is None
    assert client.decide(name, ARMS).propensity is None
    assert client.history(name, np.array([1, 0]), np.array([[0.5, 0.5], [0.1, 0.2]])) == 2
    counts = client.info(name).counts
    assert (counts.decisions, counts.rewards, counts.pending, counts.history_rows) == (2, 1, 1, 2)
    assert client.archive(name).archived == client.archive(name).archived is not None
    refused(lambda: client.decide(name, ARMS), 409, "archived")
    kinds = [event["kind"] for event in client.events(name)]
    assert kinds == ["decided", "rewarded", "configured", "configured", "decided", "history", "archived"]
    assert [event["number"] for event in client.events(name, after=2, limit=3)] == [3, 4, 5]
    assert list(client.events(name, after=7)) == []


def test_ensure(client: Any, name: str) -> None:
    created = client.ensure(name, dim=2, reward_timeout=timedelta(hours=1), default_reward=0.0)
    decision = client.decide(name, ARMS)
    found = client.ensure(name, dim=2, reward_timeout="60m", default_reward=0.0, title=None)
    assert (found.created, found.counts.decisions) == (created.created, 1)
    error = refused(lambda: client.ensure(name, dim=3, reward_timeout="2h", default_reward=0.0), 409, "settings-differ")
    assert error.pointers == ["#/dim", "#/reward_timeout"]
    assert client.reward(name, decision, 1.0) == "recorded"
    client.archive(name)
    refused(lambda: client.ensure(name, dim=2, reward_timeout="1h", default_reward=0.0), 409, "archived")
    with rejects("stream"):
        client.ensure("..", dim=2)


def test_a_memory_of_all_data_is_infinite(client: Any, name: str) -> None:
    """JSON has null for it."""
    assert client.create(name, dim=1, policy="OnePassGLM", gamma=1.0).memory == math.inf
    assert client.info(name).memory == math.inf
    schema = TypeAdapter(Drift).json_schema()["properties"]["memory"]
    assert {entry["type"] for entry in schema["anyOf"]} == {"number", "null"}
    numbers = dict.fromkeys(("evidence", "scale", "rate", "rate_low", "rate_high", "variation"), 1.0)
    drift = Drift(verdict="drift", memory=math.inf, memory_low=320.0, memory_high=math.inf, **numbers)
    assert messages.read(Drift, to_json(drift)) == drift


def test_parts_of_a_reward(client: Any, name: str) -> None:
    client.create(name, dim=2, link="identity", reward_timeout=timedelta(hours=1), learn="at_timeout")
    decision = client.decide(name, ARMS)
    for value, key, total in ((1.0, None, 1.0), (2.5, None, 3.5), (0.5, "third part", 4.0), (0.5, "third part", 4.0)):
        assert client.add_reward(name, decision, value, key=key) == "recorded"
        assert client.decision(name, decision).reward == total


def test_arms_in_every_form(client: Any, name: str) -> None:
    client.create(name, dim=2)
    vectors = np.array([[0.6, 0.1], [0.2, 0.7]], dtype=np.float32)
    for arms in (vectors, list(vectors), vectors.tolist(), [list(row) for row in vectors]):
        assert client.decide(name, arms).arm in (0, 1)
    frame = pd.DataFrame(vectors, index=["a", "b"], columns=["x", "y"])
    by_label = {"a": frame.loc["a"], "b": frame.loc["b"]}
    for named in (
        dict(zip("ab", vectors, strict=True)),
        {"a": [np.float64(0.1), np.int64(0)], "b": (0.2, 0.3)},
        by_label,
    ):
        assert client.decide(name, named).arm in ("a", "b")
    with rejects("arms"):
        client.decide(name, by_label | {"b": frame.loc["b", ["y", "x"]]})


def test_numbers_arrive_as_they_are(client: Any, name: str) -> None:
    """Both ways to encode arms give the same numbers; the log keeps the request."""
    client.create(name, dim=2)
    vectors = [[0.1, 1 / 3], [1e-300, 5e-324], [-0.0, 1], [2**-53 + 0.25, 0]]
    odd = dict(zip(("a", "N", "é", "\\"), vectors, strict=True))
    for arms in (odd, dict(zip("abcd", vectors, strict=True)), dict(zip("abcd", map(tuple, vectors), strict=True))):
        client.decide(name, arms)
    events = [list(event["request"]["arms"].values()) for event in client.events(name)]
    assert [repr(arms) for arms in events] == [repr(vectors)] * 3
    for wrong in (float("nan"), float("inf")):
        with rejects("arms"):
            client.decide(name, {"a": [0.1, wrong]})


def test_contexts(client: Any, name: str) -> None:
    features = windvane.Features(shared={"age": (0, 100)}, by_arm={"night": ["yes", "no"]}, arms=["red", "blue"])
    client.create(name, features=features)
    context = {"age": np.int64(30), "night": "no"}
    assert client.decide(name, context=context).arm in ("red", "blue")
    assert client.decide(name, ["red"], context=context).arm == "red"
    error = failed_batch(lambda: client.decide_many(name, [None, ["blue"]], contexts=[context, {"age": 30}]))
    assert isinstance(error.results[0], Decision)
    assert (error.errors[1].status, error.errors[1].code) == (422, "invalid")
    assert "context" in str(error.errors[1].pointer)
    assert client.history(name, [1.0], contexts=[context], arms=["red"]) == 1


def test_times_of_history(client: Any, name: str) -> None:
    client.create(name, dim=2, half_life="2d")
    now, vectors = datetime.now(UTC), [[0.1, 0.1], [0.1, 0.2]]
    for times in (
        [now - timedelta(hours=4), now - timedelta(hours=3)],
        np.array([now.timestamp() - 7200.0, now.timestamp() - 3600.0]),
        pd.Series(pd.to_datetime([now, now])),
        [now.isoformat(), now.isoformat().replace("+00:00", "Z")],
    ):
        assert client.history(name, [1.0, 0.0], vectors, times=times) == 2
    for wrong in ([datetime(2026, 1, 1), now], [1e12, 1e12], now.isoformat(), 3.0):
        with rejects("times"):
            client.history(name, [1.0, 0.0], vectors, times=wrong)
    error = refused(lambda: client.history(name, [1.0, 0.0], vectors, times=[now, "today"]), 422, "invalid")
    assert error.pointer == "#/times/1"


def test_batches(client: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    client.create(name, dim=2)
    first, second = client.decide_many(name, [ARMS, [[0.5, 0.5]]])
    assert (first.arm in ARMS, second.arm) == (True, 0)
    rewards = [(first, 1.0), (second.id, np.bool_(False)), (first, 1.0)]
    assert client.reward_many(name, rewards) == ["recorded", "recorded", "unchanged"]
    assert client.decide_many(name, []) == client.reward_many(name, []) == []
    many = client.decide_many(name, [[[0.1, 0.1]]] * (messages.MOST_ITEMS + 1))
    assert len({decision.id for decision in many}) == messages.MOST_ITEMS + 1
    assert [decision.id for decision in client.pending(name)] == [decision.id for decision in many]
    monkeypatch.setattr(messages, "MOST_BYTES", 100)
    assert [len(part) for part in messages.split_batch([b"x" * 60] * 3)] == [1, 1, 1]
    assert client.reward_many(name, [(decision, 1.0) for decision in many[:5]]) == ["recorded"] * 5
    assert client.info(name).counts.rewards == 7


def test_a_batch_with_items_that_fail(client: Any, name: str) -> None:
    """It raises, and the answers of the other items are in the error: they were carried out."""
    client.create(name, dim=2)
    error = failed_batch(lambda: client.decide_many(name, [ARMS, {"long": [3.0, 4.0]}, [[0.5, 0.5]]]))
    first, failure, last = error.results
    assert isinstance(first, Decision)
    assert last.arm == 0
    assert error.errors == {1: failure}
    assert (error.status, error.code, error.pointer) == (422, "invalid", failure.pointer)
    assert client.info(name).counts.decisions == 2

    rewards = [(first, 1.0), ("unknown", 1.0), (first, 0.0), (last.id, 0.0), (first, 1.0)]
    error = failed_batch(lambda: client.reward_many(name, rewards))
    assert [error.results[place] for place in (0, 3, 4)] == ["recorded", "recorded", "unchanged"]
    assert {place: entry.code for place, entry in error.errors.items()} == {1: "unknown-decision", 2: "conflict"}
    assert client.info(name).counts.rewards == 2

    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), list(copy.errors)) == (BatchError, str(error), [1, 2])
    assert copy.results[0] == "recorded"
    refused(lambda: client.decide_many("nowhere", [ARMS]), 404, "unknown-stream")


def test_what_the_service_refuses(client: Any, name: str) -> None:
    client.create(name, dim=2, reward_timeout=1)
    assert not refused(lambda: client.create(name, dim=2), 409, "stream-exists").is_unsure
    assert refused(lambda: client.create("no dim"), 422, "invalid").pointer == "#/name"
    assert refused(lambda: client.create("typo", dim=2, half_live=3), 422, "invalid").pointer == "#/half_live"
    refused(lambda: client.decide("nowhere", ARMS), 404, "unknown-stream")
    assert refused(lambda: client.decide(name, {"red": [1.0]}), 422, "invalid").pointer == "#/arms/red"
    decision = client.decide(name, ARMS)
    assert refused(lambda: client.reward(name, decision, 7.0), 422, "invalid").pointer == "#/value"
    client.reward(name, decision, 1.0)
    refused(lambda: client.reward(name, decision, 0.0), 409, "conflict")
    late = client.decide_many(name, [ARMS] * 3)[0]
    assert client.reward(name, late, 0.0) == "expired"
    refused(lambda: client.reward(name, "nobody", 0.0), 404, "unknown-decision")
    refused(lambda: list(client.events("nowhere")), 404, "unknown-stream")
    refused(lambda: client.configure(name, title="x" * 10_000_000), 413, "too-large")
    error = refused(lambda: client.decide(name, ARMS, context={"age": 3}), 422, "invalid")
    assert vars(pickle.loads(pickle.dumps(error))) == vars(error)


def test_a_key_of_ones_own(client: Any, name: str) -> None:
    client.create(name, dim=2)
    first = client.decide(name, ARMS, key="request 17")
    assert client.decide(name, ARMS, key="request 17") == first
    refused(lambda: client.decide(name, {"red": [0.1, 0.1]}, key="request 17"), 409, "key-reused")
    assert client.history(name, [1.0], [[0.1, 0.1]], key="h") == client.history(name, [1.0], [[0.1, 0.1]], key="h")
    assert client.info(name).events == 2


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str, str]]:
    """The address of a service, a token that may do everything, and one that may read."""
    store = tmp_path_factory.mktemp("guarded") / "w.db"
    full = run_command("token", "add", "shop", "--store", store).stdout.strip()
    read_only = run_command("token", "add", "page", "--store", store, "--read-only").stdout.strip()
    with run_server(store) as server:
        yield server.address, full, read_only


def test_tokens(guarded: tuple[str, str, str], connect: Connect, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    url, full, read_only = guarded
    with connect(url, full) as mine, connect(url, read_only) as page, connect(url) as without:
        mine.create(name, dim=2)
        assert name in [stream.name for stream in page.streams()]
        refused(lambda: page.decide(name, ARMS), 403, "read-only-token")
        assert full not in str(refused(without.streams, 401, "no-token"))
    monkeypatch.setenv("WINDVANE_URL", url + "/")
    monkeypatch.setenv("WINDVANE_TOKEN", full)
    with connect() as from_environment:
        assert from_environment.url == url
        assert from_environment.decide(name, ARMS).arm in ARMS
        assert full not in repr(from_environment)


def test_arguments_that_cannot_be_sent(client: Any, connect: Connect) -> None:
    nan, unnamed, pairs = float("nan"), {1: [0.1, 0.2]}, [("d", 1.0)]
    wrong: list[tuple[str, Any, list[Any]]] = [
        ("arms", lambda arms: client.decide("a", arms), [unnamed, {"a": [nan, 0.2]}, {"a": object()}]),
        ("context", lambda at: client.decide("a", ARMS, context={"at": at}), [datetime(2026, 1, 1)]),
        ("stream", client.info, ["", "..", "\ud800", "a" * 100_000]),
        ("value", lambda value: client.reward("a", "d", value), [float("inf")]),
        ("rewards[1]", lambda p: client.reward_many("a", [*pairs, p]), [("d",), 3, ("d", nan), (None, 1.0)]),
        ("rewards[0]", lambda rewards: client.reward_many("a", rewards), [{"d1": 1.0}]),
        ("rewards", lambda rewards: client.reward_many("a", rewards), [3]),
        ("arms[1]", lambda arms: client.decide_many("a", [ARMS, arms]), [unnamed]),
        ("arms[1]['a'][0]", lambda arms: client.decide_many("a", [ARMS, arms]), [{"a": [nan]}]),
        ("contexts[1]['at']", lambda c: client.decide_many("a", [ARMS] * 2, contexts=[None, c]), [{"at": object()}]),
        # What is missing is no value that JSON has, or that a service accepts: neither None nor NaN is sent.
        ("context['at']", lambda v: client.decide("a", context={"at": v}), [None, nan, pd.NA]),
        ("context['at']", lambda v: client.rank("a", context={"at": v}), [None, nan]),
        ("arms['red']['at']", lambda v: client.predict("a", {"red": {"at": v}}), [None, nan]),
        ("contexts[0]['at']", lambda v: client.decide_many("a", [None], contexts=[{"at": v}]), [None, nan]),
        ("contexts[0]['at']", lambda v: client.history("a", [1.0], contexts=[{"at": v}], arms=["red"]), [None, nan]),
        ("arms", lambda arms: client.decide_many("a", arms), [None]),
        ("contexts", lambda contexts: client.decide_many("a", [ARMS], contexts=contexts), [[]]),
        ("after", lambda after: client.events("a", after=after), [-1]),
        ("limit", lambda limit: client.events("a", limit=limit), [0]),
        ("url", connect, ["127.0.0.1:8000", "http://host:port", "http://x y", "http://x\ny", "http://x/?a=b", 3]),
        ("url", connect, ["ftp://x"]),
        ("timeout", lambda timeout: connect(timeout=timeout), [0, 1e100]),
        ("deadline", lambda deadline: connect(deadline=deadline), [-1, float("nan"), 1e7]),
    ]
    for argument, call, values in wrong:
        for value in values:
            with rejects(argument):
                call(value)
    keyed: list[tuple[Any, Any]] = [(client.decide, [ARMS]), (client.add_reward, ["d", 1.0]), (client.history, [[1.0]])]
    for key, (method, arguments) in product(("new\nline", " a", "a ", "", "é", "a" * 201, 3), keyed):
        with rejects("key", value=key):
            method("a", *arguments, key=key)
    for argument, secret in (("token", {"token": "secret\nx"}), ("url", {"url": "http://me:secret@x"})):
        with rejects(argument, value=None) as caught:
            connect(**secret)
        assert "secret" not in str(caught.value)
    assert repr(connect("https://example.org/windvane/")).endswith("Client('https://example.org/windvane')")


@pytest.mark.parametrize("wrong", [None, "", 3, b"a", ["a"], ".", "a\n", "a/b"])
def test_names_that_are_not_sent(wrong: Any, client: Any) -> None:
    arguments: dict[str, tuple[Any, ...]] = {
        "info": (), "configure": (), "archive": (), "decide": (ARMS,), "reward": ("d", 1.0), "add_reward": ("d", 1.0),
        "decide_many": ([],), "reward_many": ([],), "history": ([],), "decision": ("d",), "explain": ("d",),
        "pending": (), "events": (),
    }  # fmt: skip
    for method, (*rest,) in arguments.items():
        with rejects("stream", value=wrong):
            getattr(client, method)(wrong, *rest)
        if rest[:1] == ["d"]:
            with rejects("decision", value=wrong):
                getattr(client, method)("a", wrong, *rest[1:])
    with rejects("stream"):
        client.info(Decision(**dict.fromkeys(Decision.__dataclass_fields__, "a")))


def test_both_clients_have_the_same_methods() -> None:
    names = {name for name in dir(AsyncClient) if not name.startswith("_")}
    assert names == {name for name in vars(Client) if not name.startswith("_")}
    for name in names - {"close"}:
        method, other = getattr(Client, name), getattr(AsyncClient, name)
        assert method.__doc__ == other.__doc__
        assert not inspect.iscoroutinefunction(method)
        assert list(inspect.signature(method).parameters) == list(inspect.signature(other).parameters)
        assert str(inspect.signature(method)) == str(inspect.signature(other)).replace("AsyncIterator", "Iterator")
        assert "Async" not in str(method.__annotations__)


# --- nothing counts twice ------------------------------------------------------------------------------------------


@pytest.fixture
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windvane.client.connection.FIRST_PAUSE", 1e-4)


def check_counted_once(client: Any, name: str, decisions: list[str], rewards: dict[str, float]) -> None:
    """The log holds these decisions and rewards, each of them once, and nothing else."""
    events = list(client.events(name))
    assert Counter(e["decision"] for e in events if e["kind"] == "decided") == Counter(dict.fromkeys(decisions, 1))
    assert Counter(e["decision"] for e in events if e["kind"] == "rewarded") == Counter(dict.fromkeys(rewards, 1))
    info = client.info(name)
    assert (info.counts.decisions, info.counts.rewards, info.counts.pending) == (len(decisions), len(rewards), 0)
    assert info.mean_reward == pytest.approx(np.mean(list(rewards.values())))


@pytest.mark.usefixtures("hurry")
def test_calls_through_a_lossy_network(url: str, client: Any, connect: Connect, name: str) -> None:
    client.create(name, dim=2, policy="OnePassGLM", gamma=0.99)
    client.create(f"{name}-parts", dim=2, link="identity", reward_timeout="1h", learn="at_timeout")
    rewards = dict[str, float]()
    with (
        LossyProxy(url, seed=5, share=0.5) as network,
        connect(network.address, timeout=60.0, deadline=300.0) as unlucky,
    ):
        for i in range(40):
            decision = unlucky.decide(name, ARMS)
            rewards[decision.id] = float(i % 2)
            assert unlucky.reward(name, decision, rewards[decision.id]) in ("recorded", "unchanged")
        for i in range(8):
            batch = {decision.id: float(i % 2) for decision in unlucky.decide_many(name, [ARMS] * 5)}
            unlucky.reward_many(name, batch.items())
            rewards |= batch
        for _ in range(5):
            assert unlucky.history(name, [1.0, 0.0], [[0.1, 0.2], [0.3, 0.4]]) == 2
        decision = unlucky.decide(f"{name}-parts", ARMS)
        assert {unlucky.add_reward(f"{name}-parts", decision, 1.0) for _ in range(10)} == {"recorded"}
    assert min(network.lost_requests, network.lost_answers, network.cut_answers) > 5
    check_counted_once(client, name, list(rewards), rewards)
    assert client.decision(f"{name}-parts", decision).reward == 10.0
    assert client.info(name).counts.history_rows == 10


@pytest.mark.usefixtures("hurry")
def test_many_threads_share_a_client(url: str) -> None:
    decisions, rewards = list[str](), dict[str, float]()
    with Client(url, timeout=60.0) as direct:
        direct.create("threads", dim=2, policy="OnePassGLM", gamma=0.99)
    with LossyProxy(url, seed=7, share=0.2) as network, Client(network.address, timeout=60.0, deadline=300.0) as shared:

        def work(number: int) -> None:
            for i in range(20):
                decision = shared.decide("threads", {f"arm {number}": [0.1, 0.2], f"other {number}": [0.3, 0.1]})
                assert str(decision.arm).endswith(str(number))  # the answer to this thread's own request
                decisions.append(decision.id)
                rewards[decision.id] = float(i % 2)
                shared.reward("threads", decision, rewards[decision.id])

        with ThreadPoolExecutor(6) as pool:
            list(pool.map(work, range(6)))
        assert len(decisions) == 120
        check_counted_once(shared, "threads", decisions, rewards)


@pytest.mark.usefixtures("hurry")
def test_many_tasks_share_a_client(url: str) -> None:
    async def work(shared: AsyncClient, number: int) -> None:
        for _ in range(10):
            decision = await shared.decide("tasks", {f"arm {number}": [0.1, 0.2], f"other {number}": [0.3, 0.1]})
            assert str(decision.arm).endswith(str(number))  # the answer to this task's own request
            await shared.reward("tasks", decision, 1.0)

    async def run(address: str) -> Counts:
        async with AsyncClient(address, timeout=60.0, deadline=300.0) as shared:
            await asyncio.gather(*(work(shared, number) for number in range(8)))
            return (await shared.info("tasks")).counts

    with Client(url, timeout=60.0) as direct, LossyProxy(url, seed=7, share=0.2) as network:
        direct.create("tasks", dim=2, policy="OnePassGLM", gamma=0.99)
        counts = asyncio.run(run(network.address))
    assert (counts.decisions, counts.rewards, counts.pending) == (80, 80, 0)


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # of a loop that ended before the client was closed
@pytest.mark.parametrize("is_closed", [False, True])
def test_a_client_in_several_event_loops(url: str, is_closed: bool) -> None:
    async def ask(client: AsyncClient) -> int:
        await asyncio.gather(*(client.streams() for _ in range(3)))
        transports = len(client._transports)
        if is_closed:
            await client.close()
        return transports

    clients = [AsyncClient(url, timeout=60.0)] * 3  # one client
    assert [asyncio.run(ask(client)) for client in clients] == [1, 1, 1]  # that of the loop before is forgotten
    assert len(clients[0]._transports) == (not is_closed)
    with ThreadPoolExecutor(3) as pool:
        assert all(pool.map(lambda client: asyncio.run(ask(client)), clients * 2))
    clients.clear()
    gc.collect()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_client_after_a_fork(url: str) -> None:
    with Client(url, timeout=60.0) as client:
        client.create("forked", dim=2)
        client.decide("forked", ARMS)
        children = []
        for number in range(2):
            if (pid := os.fork()) == 0:
                try:
                    for _ in range(10):
                        assert client.decide("forked", {f"arm {number}": [0.1, 0.1]}).arm == f"arm {number}"
                    os._exit(0)
                finally:
                    os._exit(1)
            children.append(pid)
        for _ in range(10):
            assert client.decide("forked", ARMS).arm in ARMS
        assert [os.waitpid(pid, 0)[1] for pid in children] == [0, 0]
        assert client.info("forked").counts.decisions == 31


@pytest.mark.usefixtures("hurry")
def test_a_log_that_breaks_off_is_resumed(url: str, client: Any, connect: Connect, name: str) -> None:
    client.create(name, dim=2)
    client.decide_many(name, [[[0.1, 0.1]]] * 300)
    with (
        LossyProxy(url, seed=8, share=0.8) as network,
        connect(network.address, timeout=60.0, deadline=300.0) as unlucky,
    ):
        for _ in range(5):
            assert [event["number"] for event in unlucky.events(name)] == list(range(1, 301))
        assert [event["number"] for event in unlucky.events(name, after=10, limit=250)] == list(range(11, 261))
        events = unlucky.events(name)
        assert next(events)["number"] == 1
        assert unlucky.info(name).counts.decisions == 300  # while reading
        assert next(events)["number"] == 2
        events.close()
    assert network.cut_answers > 3
