"""Decisions, rewards and history over HTTP."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from support.server import ARMS, Local, read_pointers, read_problem
from windvane import Agent
from windvane.records import to_plain

DECISIONS = "/v1/streams/shop/decisions"
HISTORY = "/v1/streams/shop/history"
FEATURES = {
    "shared": {"age": {"low": 0, "high": 100}, "noise": {}},
    "per_arm": {"price": {"low": 0, "high": 10}},
    "by_arm": {"device": {"values": ["phone", "desk"]}},
    "arms": ["a", "b", "c"],
}
CONTEXT = {"age": 30, "noise": 0.2, "device": "desk"}
OFFER = {"a": {"price": 1}, "b": {"price": 9}}


# --- decisions -------------------------------------------------------------------------------------------------------


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


WRONG_ARMS: dict[str, list[Any]] = {
    "": [{}, [], 3, [[0.1, 0.2], [0.1]], ["red"], {f"a{i}": [0.1, 0.1] for i in range(1001)}, [[0.1, 0.1]] * 1001],
    "/red": [{"red": vector} for vector in ([0.1], [0.1, "x"], [0.1, None], [3, 4], [10**400, 0], 5)],
    "/blue~1green": [{"red": [0.1, 0.2], "blue/green": [0.1]}],
    "/" + "x" * 90 + "...": [{"x" * 201: [0.1, 0.2]}],
    "/a": [{"a": [0.0] * 501}],
    "/0": [[[0.0] * 501]],
}
WRONG_ARMS_WITH_FIELDS = {"/a/price": {"a": {"price": 11}}, "/z": {"z": {"price": 1}}, "": ["a", "a"], "/0": ["a"]}
WRONG_FIELDS = [("age", 101), ("age", [1]), ("device", "watch"), ("device", "x" * 201), ("devise", "desk")]
WRONG_DECISIONS: list[tuple[str, str, Any]] = [
    *(("plain", f"#/arms{place}", {"arms": arms}) for place, wrong in WRONG_ARMS.items() for arms in wrong),
    ("plain", "#/arms", {}),
    ("plain", "#/context", {"arms": {"red": [0.1, 0.2]}, "context": {}}),
    ("plain", "#/kontext", {"arms": {"red": [0.1, 0.2]}, "kontext": {}}),
    *(("rich", f"#/arms{at}", {"arms": arms, "context": CONTEXT}) for at, arms in WRONG_ARMS_WITH_FIELDS.items()),
    *(("rich", f"#/context/{at}", {"arms": OFFER, "context": CONTEXT | {at: value}}) for at, value in WRONG_FIELDS),
    ("rich", "#/context/age", {"arms": OFFER}),
    ("rich", "#/context", {"arms": OFFER, "context": 3}),
    ("rich", "#/context", {"arms": OFFER, "context": {f"f{i}": 1 for i in range(501)}}),
]


def test_wrong_arms_are_refused(service: Local) -> None:
    service.create("plain")
    service.create("rich", features=FEATURES)
    before = {name: service.state(name) for name in ("plain", "rich")}
    for name, pointer, body in WRONG_DECISIONS:
        assert read_pointers(service.post(f"/v1/streams/{name}/decisions", body))[0] == pointer, body
        answer = service.post(f"/v1/streams/{name}/decisions/batch", {"decisions": [body]})
        if answer.status_code == 200:
            (result,) = answer.json()["results"]
            errors = result["problem"]["errors"]
        else:  # a field that no item has
            errors = read_problem(answer, 422)["errors"]
        assert errors[0]["pointer"] == pointer.replace("#", "#/decisions/0"), body
        assert service.state(name) == before[name]


def test_propensities_of_randomized_decisions(service: Local) -> None:
    service.create("shop", epsilon=0.3)
    results = service.post(f"{DECISIONS}/batch", {"decisions": [ARMS] * 600}).json()["results"]
    decisions = [result["decision"] for result in results]
    for decision in decisions:
        is_preferred = decision["arm"] == decision["preferred"]
        assert decision["propensity"] == pytest.approx(0.1 + 0.7 * is_preferred, abs=1e-12)
    assert abs(sum(decision["explored"] for decision in decisions) - 180) < 4 * (0.3 * 0.7 * 600) ** 0.5
    assert [event["propensity"] for event in service.events()] == [decision["propensity"] for decision in decisions]


def test_records_and_explanations(clock: list[float], service: Local) -> None:
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
    path, before = f"{DECISIONS}/{decision}", service.state()
    for body, pointer in (
        *(({"value": wrong}, "#/value") for wrong in (1.5, -0.1, "1", None, True)),
        ({}, "#/value"), ({"value": 1, "weight": 2}, "#/weight"), ([], "#"),
    ):  # fmt: skip
        assert read_pointers(service.put(f"{path}/reward", body)) == [pointer]
    assert read_pointers(service.post(f"{path}/rewards", {"value": "1"})) == ["#/value"]
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


def test_a_late_reward_is_recorded_and_not_learned(clock: list[float], service: Local) -> None:
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
    made, again = (service.post(DECISIONS, ARMS, **key) for _ in range(2))
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
        assert service.post(HISTORY, {**body, "times": texts}, **key).json() == {"rows": 9}
    agent.history(**body, times=times)
    assert service.call(service.engine.streams["shop"].core.pack()) == agent.core.pack()()
    (event,) = service.events()
    assert (event["kind"], event["rows"], event["request"]["times"]) == ("history", 9, texts)


def test_wrong_history_teaches_nothing(service: Local) -> None:
    service.create("shop")
    before = service.state()
    row = {"rewards": [1], "vectors": [[0, 1]]}
    for pointer, body in (
        ("#/rewards", {"vectors": [[0, 1]]}),
        ("#/rewards", {"rewards": []}),
        ("#/rewards", {"rewards": [1.0] * 20_001}),
        ("#/vectors", {"rewards": [1]}),
        ("#/rewards", {**row, "rewards": [1, 1]}),
        ("#/rewards/1", {"rewards": [1, 2], "vectors": [[0, 1], [0, 1]]}),
        ("#/vectors/1", {"rewards": [1, 1], "vectors": [[0, 1], [3, 4]]}),
        ("#/vectors", {**row, "vectors": [[0, 1, 2]]}),
        ("#/vectors/0/1", {**row, "vectors": [[0, "1"]]}),
        ("#/times", {**row, "times": ["2020-01-01T00:00:00Z"] * 2}),
        *(("#/times/0", {**row, "times": [at]}) for at in ("now", "2020-01-01T00:00:00", 1.5, "2200-01-01T00:00:00Z")),
        ("#/weights/0", {**row, "weights": [-1]}),
    ):
        assert read_pointers(service.post(HISTORY, body))[0] == pointer, body
        assert service.state() == before
