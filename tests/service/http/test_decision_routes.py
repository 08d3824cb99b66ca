"""Decisions, rewards and history over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.server import ARMS, Local, read_problem, run_local
from windvane import Agent
from windvane.records import to_plain
from windvane.service import engine as engine_module

DECISIONS = "/v1/streams/shop/decisions"
FEATURES = {
    "shared": {"age": {"low": 0, "high": 100}, "noise": {}},
    "per_arm": {"price": {"low": 0, "high": 10}},
    "by_arm": {"device": {"values": ["phone", "desk"]}},
    "arms": ["a", "b", "c"],
}
CONTEXT = {"age": 30, "noise": 0.2, "device": "desk"}
OFFER = {"a": {"price": 1}, "b": {"price": 9}}


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Local]:
    """At its end, every stream must equal a replay of its log."""
    with run_local(tmp_path / "a.db") as service:
        yield service


def read_pointers(answer: Any) -> list[str]:
    problem = read_problem(answer, 422)
    assert problem["code"] == "invalid"
    return [error["pointer"] for error in problem["errors"]]


# --- decisions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {"dim": 2},
        {"dim": 2, "link": "identity", "reward_range": [0.0, 2.0], "S": 2.0, "seed": 7},
        {"dim": 2, "link": "poisson", "reward_range": [0.0, 4.0], "half_life": 50.0},
        {"dim": 2, "epsilon": 0.3, "seed": 11, "reward_timeout": 4.0, "default_reward": 0.0},
        {"dim": 2, "half_life": "1h", "clip": True, "L": 0.5},
        {"dim": 2, "prior": [1.0, -1.0], "prior_weight": 3.0},
        {"dim": 2, "scaling": {"center": [0.1, 0.2], "spread": [2.0, 1.0]}, "intercept": True},
        {"dim": 2, "policy": "OFUL", "settings": {"lam": 2.0, "delta": 0.1}},
    ],
    ids=lambda settings: next(reversed(settings)),
)
def test_the_service_decides_as_the_library(
    service: Local, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same rounds at the same times give the same decisions and the same state, bit for bit."""
    clock = [1_700_000_000.0]
    monkeypatch.setattr(engine_module, "TICK", 1e9)
    monkeypatch.setattr("windvane.service.http.routes.read_clock", lambda: clock[0])
    agent = Agent(
        **{name: value for name, value in settings.items() if name != "settings"}, **settings.get("settings", {})
    )
    service.create("shop", **settings)
    rng = np.random.default_rng(4)
    for i in range(25):
        clock[0] = round(clock[0] + float(rng.uniform(0, 600)), 6)
        arms = {name: rng.uniform(-0.6, 0.6, 2).round(6).tolist() for name in ("red", "blue", "green")}
        made = service.decide(body={"arms": arms})
        agent.core.expire(now=clock[0], room=1)  # the service closes decisions first, to log it
        assert made == to_plain(agent.decide(arms, now=clock[0], id=made["id"]))
        if i % 4:
            value = round(float(rng.uniform(0, settings.get("reward_range", [0, 1])[1])), 3)
            receipt = {"decision": made["id"], "status": "recorded", "value": value}
            assert service.reward(made["id"], value).json() == receipt
            agent.core.expire(now=clock[0])
            assert agent.reward(made["id"], value, now=clock[0]) == "recorded"
    assert service.call(service.engine.streams["shop"].core.pack()) == agent.core.pack()()


def test_all_forms_of_arms(service: Local) -> None:
    service.create("plain")
    service.create("rich", features=FEATURES)
    service.create("listed", features={"arms": ["a", "b"]})
    names = {"Ärger 🎯": [0.1, 0.2], "x" * 200: [0.2, 0.1]}
    for name, body, arms in (
        ("plain", {"arms": {"only": [1, 0]}}, {"only"}),
        ("plain", {"arms": names}, set(names)),
        ("plain", {"arms": [[0.1, 0.2], [0.3, 0.4], [0, 1]]}, {0, 1, 2}),
        ("rich", {"arms": OFFER, "context": CONTEXT}, {"a", "b"}),
        ("listed", {"arms": ["b"]}, {"b"}),
        ("listed", {}, {"a", "b"}),
        ("listed", {"arms": {"a": {}, "b": {}}}, {"a", "b"}),
        ("listed", {"context": {}}, {"a", "b"}),
    ):
        answer = service.post(f"/v1/streams/{name}/decisions", body)
        made = answer.json()
        assert answer.status_code == 201
        assert answer.headers["location"] == f"/v1/streams/{name}/decisions/{made['id']}"
        assert made["arm"] in arms
        (result,) = service.post(f"/v1/streams/{name}/decisions/batch", {"decisions": [body]}).json()["results"]
        assert (result["status"], result["decision"]["arm"] in arms) == (201, True)


@pytest.mark.parametrize(
    ("name", "body", "pointer"),
    [
        ("plain", {}, "#/arms"),
        ("plain", {"arms": {}}, "#/arms"),
        ("plain", {"arms": []}, "#/arms"),
        ("plain", {"arms": 3}, "#/arms"),
        ("plain", {"arms": {"red": [0.1]}}, "#/arms/red"),
        ("plain", {"arms": {"red": [0.1, 0.2], "blue/green": [0.1]}}, "#/arms/blue~1green"),
        ("plain", {"arms": {"red": [0.1, "x"]}}, "#/arms/red"),
        ("plain", {"arms": {"red": [0.1, None]}}, "#/arms/red"),
        ("plain", {"arms": {"red": [3, 4]}}, "#/arms/red"),
        ("plain", {"arms": {"red": [10**400, 0]}}, "#/arms/red"),
        ("plain", {"arms": {"red": 5}}, "#/arms/red"),
        ("plain", {"arms": {"x" * 201: [0.1, 0.2]}}, "#/arms/" + "x" * 90 + "..."),
        ("plain", {"arms": [[0.1, 0.2], [0.1]]}, "#/arms"),
        ("plain", {"arms": ["red"]}, "#/arms"),
        ("plain", {"arms": {"red": [0.1, 0.2]}, "context": {}}, "#/context"),
        ("plain", {"arms": {"red": [0.1, 0.2]}, "kontext": {}}, "#/kontext"),
        ("plain", {"arms": {f"a{i}": [0.1, 0.1] for i in range(1001)}}, "#/arms"),
        ("plain", {"arms": [[0.1, 0.1]] * 1001}, "#/arms"),
        ("plain", {"arms": {"a": [0.0] * 501}}, "#/arms/a"),
        ("plain", {"arms": [[0.0] * 501]}, "#/arms/0"),
        ("rich", {"arms": OFFER}, "#/context/age"),
        ("rich", {"arms": OFFER, "context": 3}, "#/context"),
        ("rich", {"arms": OFFER, "context": {**CONTEXT, "age": 101}}, "#/context/age"),
        ("rich", {"arms": OFFER, "context": {**CONTEXT, "age": [1]}}, "#/context/age"),
        ("rich", {"arms": OFFER, "context": {**CONTEXT, "device": "watch"}}, "#/context/device"),
        ("rich", {"arms": OFFER, "context": {**CONTEXT, "device": "x" * 201}}, "#/context/device"),
        ("rich", {"arms": OFFER, "context": {**CONTEXT, "devise": "desk"}}, "#/context/devise"),
        ("rich", {"arms": OFFER, "context": {f"f{i}": 1 for i in range(501)}}, "#/context"),
        ("rich", {"arms": {"a": {"price": 11}}, "context": CONTEXT}, "#/arms/a/price"),
        ("rich", {"arms": {"z": {"price": 1}}, "context": CONTEXT}, "#/arms/z"),
        ("rich", {"arms": ["a", "a"], "context": CONTEXT}, "#/arms"),
        ("rich", {"arms": ["a"], "context": CONTEXT}, "#/arms/0"),
    ],
)
def test_wrong_arms_are_refused(service: Local, name: str, body: Any, pointer: str) -> None:
    service.create("plain")
    service.create("rich", features=FEATURES)
    before = service.state(name)
    assert read_pointers(service.post(f"/v1/streams/{name}/decisions", body))[0] == pointer
    answer = service.post(f"/v1/streams/{name}/decisions/batch", {"decisions": [body]})
    if answer.status_code == 200:
        (result,) = answer.json()["results"]
        errors = result["problem"]["errors"]
    else:  # a field that no item has
        errors = read_problem(answer, 422)["errors"]
    assert errors[0]["pointer"] == pointer.replace("#", "#/decisions/0")
    assert service.state(name) == before


def test_propensities_of_randomized_decisions(service: Local) -> None:
    service.create("shop", epsilon=0.3)
    results = service.post(f"{DECISIONS}/batch", {"decisions": [ARMS] * 600}).json()["results"]
    decisions = [result["decision"] for result in results]
    for decision in decisions:
        is_preferred = decision["arm"] == decision["preferred"]
        assert decision["propensity"] == pytest.approx(0.1 + 0.7 * is_preferred, abs=1e-12)
    assert abs(sum(decision["explored"] for decision in decisions) - 180) < 4 * (0.3 * 0.7 * 600) ** 0.5
    assert [event["propensity"] for event in service.events()] == [decision["propensity"] for decision in decisions]


def test_records_and_explanations(service: Local) -> None:
    service.create("shop", reward_timeout=3)
    agent = Agent(dim=2, reward_timeout=3)
    made = service.decide()
    place = f"{DECISIONS}/{made['id']}"
    record: dict[str, Any] = {"decision": made, "status": "pending", "reward": None, "late_reward": None}
    assert service.get(place).json() == record
    explanation = service.get(f"{place}/explanation").json()
    assert explanation == to_plain(agent.explain(agent.decide(ARMS["arms"])))
    service.reward(made["id"], 0.75)
    assert service.get(place).json() == {**record, "status": "rewarded", "reward": 0.75}
    late = service.decide()
    for _ in range(4):
        service.decide()
    service.reward(late["id"], 1.0)
    record = {"decision": late, "status": "expired", "reward": None, "late_reward": 1.0}
    assert service.get(f"{DECISIONS}/{late['id']}").json() == record
    service.create("other")
    for path in (f"{DECISIONS}/x", f"{DECISIONS}/{'x' * 200}", f"/v1/streams/other/decisions/{made['id']}"):
        assert read_problem(service.get(path), 404)["code"] == "unknown-decision"
        assert read_problem(service.get(f"{path}/explanation"), 404)["code"] == "unknown-decision"


# --- rewards ---------------------------------------------------------------------------------------------------------


def test_rewards(service: Local) -> None:
    service.create("shop")
    service.create("other")
    decision = service.decide()["id"]
    path, before = f"{DECISIONS}/{decision}/reward", service.state()
    for body, pointer in (
        ({"value": 1.5}, "#/value"), ({"value": -0.1}, "#/value"), ({}, "#/value"), ({"value": "1"}, "#/value"),
        ({"value": None}, "#/value"), ({"value": True}, "#/value"), ({"value": 1, "weight": 2}, "#/weight"), ([], "#"),
    ):  # fmt: skip
        assert read_pointers(service.put(path, body)) == [pointer]
    for unknown, stream in (("nobody", "shop"), (decision, "other")):
        assert read_problem(service.reward(unknown, 1.0, stream), 404)["code"] == "unknown-decision"
    assert service.state() == before
    assert service.reward(decision, 0.25).json() == {"decision": decision, "status": "recorded", "value": 0.25}
    after = service.state()
    assert after != before
    for _ in range(2):
        answer = service.reward(decision, 0.25)
        assert (answer.status_code, answer.json()["status"]) == (200, "unchanged")
        assert read_problem(service.reward(decision, 0.5), 409)["code"] == "conflict"
    assert service.state() == after


def test_a_late_reward_is_recorded_and_not_learned(service: Local) -> None:
    service.create("shop", reward_timeout=2)
    decision = service.decide()["id"]
    for _ in range(4):
        service.decide()
    before = service.info()
    for _ in range(2):
        answer = service.reward(decision, 1.0)
        assert (answer.status_code, answer.json()["status"]) == (200, "expired")
    assert read_problem(service.reward(decision, 0.0), 409)["code"] == "conflict"
    after = service.info()
    assert (after["theta"], after["counts"]["rewards"]) == (before["theta"], 0)
    assert [event["value"] for event in service.events() if event["kind"] == "late"] == [1.0]


def test_parts_of_a_reward_add_up(service: Local) -> None:
    service.create("shop", link="identity", reward_timeout=3, default_reward=0.0, learn="at_timeout")
    decision = service.decide()["id"]
    key: dict[str, Any] = {"headers": {"idempotency-key": "p"}}
    first = {"decision": decision, "status": "recorded", "value": 0.25}
    for _ in range(2):
        assert service.add_reward(decision, 0.25, **key).json() == first
    assert service.add_reward(decision, 0.5).json() == {**first, "value": 0.75}
    assert service.add_reward(decision, 0.5).json() == {**first, "value": 1.25}
    assert read_problem(service.add_reward(decision, 1.0, **key), 409)["code"] == "key-reused"
    assert service.get(f"{DECISIONS}/{decision}").json()["reward"] == 1.25
    assert read_problem(service.add_reward("nobody", 1.0), 404)["code"] == "unknown-decision"
    assert read_pointers(service.post(f"{DECISIONS}/{decision}/rewards", {"value": "1"})) == ["#/value"]
    service.create("plain")
    answer = service.add_reward(service.decide("plain")["id"], 1.0, "plain")
    assert read_problem(answer, 422)["code"] == "invalid"  # without a timeout it would never be learned


def test_the_range_of_rewards(service: Local) -> None:
    service.create("wide", link="poisson", reward_range=[0, 4])
    service.create("any", link="identity", policy="OFUL")
    for name, value, status in (("wide", 4, 200), ("wide", 4.1, 422), ("any", -3.5, 200), ("any", 1e6, 200)):
        assert service.reward(service.decide(name)["id"], value, name).status_code == status


# --- keys and batches ------------------------------------------------------------------------------------------------


def test_the_same_key_repeats_the_answer(service: Local) -> None:
    service.create("shop")
    key = {"headers": {"idempotency-key": "k"}}
    refused = service.post(DECISIONS, {"arms": {"red": [9, 9]}}, **key)
    assert read_pointers(refused) == ["#/arms/red"]  # which does not use the key up
    made = service.post(DECISIONS, ARMS, **key)
    again = service.post(DECISIONS, ARMS, **key)
    assert (again.status_code, again.content) == (201, made.content)
    assert again.headers["location"] == made.headers["location"]
    assert read_problem(service.post(DECISIONS, {"arms": {"red": [0.1, 0.1]}}, **key), 409)["code"] == "key-reused"
    service.create("other")  # a stream has keys of its own
    assert service.decide("other", key="k")["id"] != made.json()["id"]
    for wrong in ("", "x" * 201):
        answer = service.post(DECISIONS, ARMS, headers={"idempotency-key": wrong})
        assert "Idempotency-Key" in read_problem(answer, 422)["detail"]
    assert service.decide(key="x" * 200)["arm"]
    assert [event["key"] for event in service.events()] == ["k", "x" * 200]


def test_items_of_a_batch_stand_alone(service: Local) -> None:
    service.create("shop")
    wrong, reused = {"arms": {"red": [9, 9]}}, {"arms": {"x": [0, 1]}, "key": "a"}
    items = [{**ARMS, "key": "a"}, wrong, ARMS, {**ARMS, "key": "a"}, reused]
    results = service.post(f"{DECISIONS}/batch", {"decisions": items}).json()["results"]
    assert [result["status"] for result in results] == [201, 422, 201, 201, 409]
    assert results[3] == results[0]
    assert results[1]["problem"]["errors"][0]["pointer"] == "#/decisions/1/arms/red"
    assert results[4]["problem"]["type"].endswith(":key-reused")
    first, second = results[0]["decision"]["id"], results[2]["decision"]["id"]
    pairs = ((first, 0.25), (first, 0.25), (first, 0.5), ("nobody", 0.5), (second, 7))
    rewards = [{"decision": decision, "value": value} for decision, value in pairs]
    results = service.post("/v1/streams/shop/rewards/batch", {"rewards": rewards}).json()["results"]
    assert [result["status"] for result in results] == [200, 200, 409, 404, 422]
    assert [result["receipt"]["status"] for result in results[:2]] == ["recorded", "unchanged"]
    assert results[4]["problem"]["errors"][0]["pointer"] == "#/rewards/4/value"
    assert [event["kind"] for event in service.events()] == ["decided", "decided", "rewarded"]


def test_a_batch_of_the_wrong_shape_does_nothing(service: Local) -> None:
    service.create("shop")
    before = service.state()
    for path, body, pointer in (
        ("decisions", {"decisions": []}, "#/decisions"),
        ("decisions", {"decisions": [ARMS] * 1001}, "#/decisions"),
        ("decisions", {"decisions": [ARMS, {**ARMS, "key": ""}]}, "#/decisions/1/key"),
        ("decisions", {"decisions": ARMS}, "#/decisions"),
        ("decisions", [ARMS], "#"),
        ("decisions", {"decisions": [ARMS], "more": 1}, "#/more"),
        ("rewards", {"rewards": [{"decision": "x"}]}, "#/rewards/0/value"),
        ("rewards", {"rewards": [{"value": 1}]}, "#/rewards/0/decision"),
        ("rewards", {"rewards": [{"decision": "x", "value": "1"}]}, "#/rewards/0/value"),
    ):
        assert read_pointers(service.post(f"/v1/streams/shop/{path}/batch", body)) == [pointer]
    answer = service.post(f"{DECISIONS}/batch", {"decisions": [ARMS]}, headers={"idempotency-key": "k"})
    assert read_problem(answer, 422)["code"] == "invalid"
    assert service.state() == before


def test_other_requests_are_served_while_a_batch_runs(service: Local) -> None:
    service.create("shop")
    service.create("other")
    batch = ("POST", f"{DECISIONS}/batch", {"decisions": [ARMS] * 1000})
    single = ("POST", "/v1/streams/other/decisions", ARMS)
    answers = service.request_together(batch, *[single] * 5, batch)
    assert [answer.status_code for answer in answers] == [200, *[201] * 5, 200]
    assert [event["number"] for event in service.events()] == list(range(1, 2001))


# --- history ---------------------------------------------------------------------------------------------------------


def test_history_is_learned_as_the_library_learns_it(service: Local) -> None:
    features = {**FEATURES, "shared": {"age": {"low": 0, "high": 100}}}
    service.create("shop", features=features, half_life="1d")
    agent = Agent(features=features, half_life="1d")
    times = [1_600_000_000.0 + 3600.0 * i for i in range(9)]
    body: dict[str, Any] = {
        "rewards": [float(i % 2) for i in range(9)],
        "contexts": [{"age": 10 * i, "device": ("phone", "desk")[i % 2]} for i in range(9)],
        "arms": [{"abc"[i % 3]: {"price": i}} for i in range(9)],
        "weights": [1.0 + i for i in range(9)],
    }
    texts = [datetime.fromtimestamp(time, UTC).isoformat() for time in times]
    key = {"headers": {"idempotency-key": "h"}}
    for _ in range(2):
        assert service.post("/v1/streams/shop/history", {**body, "times": texts}, **key).json() == {"rows": 9}
    agent.history(**body, times=times)
    assert service.call(service.engine.streams["shop"].core.pack()) == agent.core.pack()()
    (event,) = service.events()
    assert (event["kind"], event["rows"], event["request"]["times"]) == ("history", 9, texts)


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"vectors": [[0, 1]]}, "#/rewards"),
        ({"rewards": []}, "#/rewards"),
        ({"rewards": [1.0] * 20_001}, "#/rewards"),
        ({"rewards": [1]}, "#/vectors"),
        ({"rewards": [1, 1], "vectors": [[0, 1]]}, "#/rewards"),
        ({"rewards": [1, 2], "vectors": [[0, 1], [0, 1]]}, "#/rewards/1"),
        ({"rewards": [1, 1], "vectors": [[0, 1], [3, 4]]}, "#/vectors/1"),
        ({"rewards": [1], "vectors": [[0, 1, 2]]}, "#/vectors"),
        ({"rewards": [1], "vectors": [[0, "1"]]}, "#/vectors/0/1"),
        ({"rewards": [1], "vectors": [[0, 1]], "times": ["2020-01-01T00:00:00Z"] * 2}, "#/times"),
        ({"rewards": [1], "vectors": [[0, 1]], "times": ["yesterday"]}, "#/times/0"),
        ({"rewards": [1], "vectors": [[0, 1]], "times": ["2020-01-01T00:00:00"]}, "#/times/0"),
        ({"rewards": [1], "vectors": [[0, 1]], "times": [1.5]}, "#/times/0"),
        ({"rewards": [1], "vectors": [[0, 1]], "times": ["2200-01-01T00:00:00Z"]}, "#/times/0"),
        ({"rewards": [1], "vectors": [[0, 1]], "weights": [-1]}, "#/weights/0"),
    ],
)
def test_wrong_history_teaches_nothing(service: Local, body: dict[str, Any], pointer: str) -> None:
    service.create("shop")
    before = service.state()
    assert read_pointers(service.post("/v1/streams/shop/history", body))[0] == pointer
    assert service.state() == before
