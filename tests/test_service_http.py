"""The service over HTTP: every route, every status of the contract, and the same decisions as the library makes."""

from __future__ import annotations

import io
import json
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from serving import ARMS, Local, Server, local, parsed, served, until
from windvane import Agent
from windvane.service import engine as engines
from windvane.service.app import create_app
from windvane.service.store import Store

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
    """At its end, every stream must be what a replay of its log gives."""
    with local(tmp_path / "a.db") as found:
        yield found


def refused(answer: Any, status: int, code: str | None = None) -> dict[str, Any]:
    """The error of an answer that has this status."""
    assert answer.status_code == status, answer.text
    found = dict(parsed(answer.content))
    assert found.keys() == {"error"}
    error = found["error"]
    assert error.keys() == {"code", "message", "field"}
    assert code is None or error["code"] == code
    assert "\n" not in error["message"]
    return dict(error)


# --- streams -------------------------------------------------------------------------------------------------------


def test_a_stream_from_its_creation_to_its_end(service: Local) -> None:
    began = time.time()
    answer = service.post("/v1/streams", {"name": "shop", "dim": 2, "title": "Shop <1>", "wait": "2d"})
    assert answer.status_code == 201
    made = answer.json()
    assert made["name"] == "shop"
    assert made["title"] == "Shop <1>"
    assert began <= made["created"] <= time.time()
    counts = ("decisions", "rewards", "pending", "expired", "events")
    assert [made[name] for name in counts] == [0] * 5
    assert made["mean_reward"] is None
    assert (made["policy"], made["link"], made["dim"], made["archived"]) == ("AdaptiveGLMUCB", "logistic", 2, None)
    assert made["config"]["wait"] == "2d"
    first, second = service.decide(), service.decide()
    assert service.reward(first["decision"], 1.0).json() == {"decision": first["decision"], "learnt": True}
    (told,) = service.get("/v1/streams").json()["streams"]
    assert [told[name] for name in counts] == [2, 1, 1, 0, 3]
    assert told["mean_reward"] == 1.0
    state = service.get("/v1/streams/shop").json()
    assert {name: state[name] for name in told} == told
    assert state["theta"].keys() == {"x0", "x1"}
    assert state["config"]["S"] is None
    assert state["S"] in (1.0, 8.0, 64.0)  # it is learned
    assert state["S"] == state["drift"]["scale"]
    assert state["drift"]["verdict"]
    assert state["statistics"]["arms"] == {first["arm"]: 1} | {second["arm"]: 1 + (first["arm"] == second["arm"])}
    ended = service.post("/v1/streams/shop/archive")
    assert ended.status_code == 200
    assert began <= ended.json()["archived"] <= time.time()
    assert service.get("/v1/streams").json()["streams"][0]["archived"] == ended.json()["archived"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "name"),
        ({"name": "a/b", "dim": 2}, "name"),
        ({"name": "", "dim": 2}, "name"),
        ({"name": "x" * 65, "dim": 2}, "name"),
        ({"name": 3, "dim": 2}, "name"),
        ({"name": "shop\n", "dim": 2}, "name"),
        ({"name": "shop"}, "dim"),
        ({"name": "shop", "dim": 2, "features": {"arms": ["a"]}}, "dim"),
        ({"name": "shop", "dim": 0}, "dim"),
        ({"name": "shop", "dim": 501}, "dim"),
        ({"name": "shop", "dim": 2.5}, "dim"),
        ({"name": "shop", "dim": True}, "dim"),
        ({"name": "shop", "dim": 2, "colour": "red"}, "colour"),
        ({"name": "shop", "dim": 2, "link": "cubic"}, "link"),
        ({"name": "shop", "dim": 2, "policy": "Clairvoyant"}, "policy"),
        ({"name": "shop", "dim": 2, "policy": "Oracle"}, "policy"),
        ({"name": "shop", "dim": 2, "wait": "soon"}, "wait"),
        ({"name": "shop", "dim": 2, "wait": -1}, "wait"),
        ({"name": "shop", "dim": 2, "half_life": "2d", "gamma": 0.9}, "gamma"),
        ({"name": "shop", "dim": 2, "gamma": 1.5}, "gamma"),
        ({"name": "shop", "dim": 2, "missing": 3}, "missing"),
        ({"name": "shop", "dim": 2, "max_pending": 0}, "max_pending"),
        ({"name": "shop", "dim": 2, "max_pending": None}, "max_pending"),
        ({"name": "shop", "dim": 2, "randomize": 1.1}, "randomize"),
        ({"name": "shop", "dim": 2, "S": -1}, "S"),
        ({"name": "shop", "dim": 2, "prior": [1]}, "prior"),
        ({"name": "shop", "dim": 2, "scaling": {"center": [0, 0], "spread": [1, 0]}}, "scaling"),
        ({"name": "shop", "dim": 2, "scaling": "guess"}, "scaling"),
        ({"name": "shop", "dim": 2, "settings": {"magic": 1}}, "magic"),
        ({"name": "shop", "dim": 2, "settings": {"dim": 400}}, "settings"),
        ({"name": "shop", "dim": 2, "settings": {"max_pending": 10**9}}, "settings"),
        ({"name": "shop", "dim": 2, "policy": "BOB"}, "horizon"),
        ({"name": "shop", "dim": 2, "seed": -1}, "seed"),
        ({"name": "shop", "features": {}, "intercept": True}, "intercept"),
        ({"name": "shop", "features": {"shared": {"age": {"low": 1, "high": 0}}}}, "shared['age']"),
        ({"name": "shop", "features": {"shared": {"age": {"low": 1}}}}, "features.shared.age.high"),
        ({"name": "shop", "features": {"shared": {"age": 3}}}, "features.shared.age"),
        ({"name": "shop", "features": {"by_arm": {"age": {}}}}, "by_arm"),
        ({"name": "shop", "features": {"arms": ["a", "a"]}}, "arms"),
        ({"name": "shop", "features": {"shared": {"c": {"values": ["a", "a"]}}}}, "shared['c']"),
        ({"name": "shop", "features": {"intercept": False}}, "features"),
    ],
)
def test_a_wrong_stream_is_refused_by_field(service: Local, body: dict[str, Any], field: str) -> None:
    error = refused(service.post("/v1/streams", body), 422, "invalid")
    assert error["field"] is not None
    assert error["field"].startswith(field), error
    assert field.rpartition(".")[2] in error["message"]
    assert service.get("/v1/streams").json() == {"streams": [], "broken": {}}


def test_a_name_is_given_once(service: Local) -> None:
    service.create("shop")
    assert refused(service.post("/v1/streams", {"name": "shop", "dim": 3}), 409, "exists")["field"] == "name"
    service.post("/v1/streams/shop/archive")
    refused(service.post("/v1/streams", {"name": "shop", "dim": 3}), 409, "exists")
    answers = service.together(*[("/v1/streams", {"name": "other", "dim": 2})] * 5)
    assert sorted(answer.status_code for answer in answers) == [201, 409, 409, 409, 409]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/v1/streams/none", None),
        ("GET", "/v1/streams/none/events", None),
        ("GET", "/v1/streams/none/live", None),
        ("GET", "/v1/streams/none/decisions/x", None),
        ("PATCH", "/v1/streams/none", {"title": "x"}),
        ("POST", "/v1/streams/none/archive", None),
        ("POST", "/v1/streams/none/decide", ARMS),
        ("POST", "/v1/streams/none/decide/batch", {"items": [ARMS]}),
        ("POST", "/v1/streams/none/reward", {"decision": "x", "value": 1}),
        ("POST", "/v1/streams/none/reward/batch", {"items": [{"decision": "x", "value": 1}]}),
        ("POST", "/v1/streams/none/history", {"rewards": [1], "vectors": [[0, 1]]}),
    ],
)
def test_a_stream_that_is_not_there(service: Local, method: str, path: str, body: Any) -> None:
    answer = service.request(method, path, **({} if body is None else {"json": body}))
    assert "'none'" in refused(answer, 404, "unknown_stream")["message"]


def test_paths_and_methods_that_are_not_there(service: Local) -> None:
    refused(service.get("/v2/streams"), 404, "not_found")
    refused(service.get("/v1/streams/"), 404)
    answer = service.request("DELETE", "/v1/streams/shop")
    refused(answer, 405, "wrong_method")
    assert answer.headers["allow"]
    refused(service.get("/v1/streams/shop/decide"), 405, "wrong_method")


def test_everything_is_there_after_a_restart(tmp_path: Path) -> None:
    with local(tmp_path / "a.db") as service:
        service.create("shop", title="Shop", wait=50)
        service.create("cafe", features=FEATURES, scaling=None)
        service.request("PATCH", "/v1/streams/shop", json={"title": "New", "randomize": 0.5, "wait": "3d"})
        service.post("/v1/streams/cafe/archive")
        decision = service.decide("shop")["decision"]
        service.reward(decision, 1.0, "shop")
        before = [service.get(path).json() for path in ("/v1/streams", "/v1/streams/shop", "/v1/streams/cafe")]
        log = service.log("shop")
    with local(tmp_path / "a.db") as service:
        assert [service.get(path).json() for path in ("/v1/streams", "/v1/streams/shop", "/v1/streams/cafe")] == before
        assert service.log("shop") == log
        assert service.get("/v1/streams/shop").json()["title"] == "New"
        assert service.get("/v1/streams/cafe").json()["archived"] is not None
        assert service.reward(decision, 1.0, "shop").json()["learnt"] is False


# --- decisions, as the library makes them --------------------------------------------------------------------------

SETTINGS: list[dict[str, Any]] = [
    {"dim": 2},
    {"dim": 2, "link": "identity", "sigma": 1.0, "S": 2.0, "seed": 7},
    {"dim": 2, "link": "poisson", "sigma": 2.0, "half_life": 50.0},
    {"dim": 2, "randomize": 0.3, "seed": 11, "wait": 4.0, "missing": 0.0},
    {"dim": 2, "half_life": "1h", "clip": True, "L": 0.5},
    {"dim": 2, "prior": [1.0, -1.0], "prior_weight": 3.0, "intercept": False},
    {"dim": 2, "scaling": {"center": [0.1, 0.2], "spread": [2.0, 1.0]}, "intercept": True},
    {"dim": 2, "policy": "OFUL", "settings": {"lam": 2.0, "delta": 0.1}},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda s: next(reversed(s)))
def test_the_service_decides_as_the_library_does(
    service: Local, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same rounds at the same times, through HTTP and with an Agent in hand: the same answers, bit for bit."""
    clock = [1_700_000_000.0]
    monkeypatch.setattr(engines, "TICK", 1e9)
    monkeypatch.setattr("windvane.service.app.time.time", lambda: clock[0])
    arguments = dict(settings) | settings.get("settings", {})
    arguments.pop("settings", None)
    if "scaling" in arguments:
        arguments["scaling"] = (arguments["scaling"]["center"], arguments["scaling"]["spread"])
    agent = Agent(**arguments)
    service.create("shop", **settings)
    rng = np.random.default_rng(4)
    top = 2 * arguments.get("sigma", 0.5)
    for i in range(25):
        clock[0] += float(rng.uniform(0, 600))
        arms = {name: rng.uniform(-0.6, 0.6, 2).round(6).tolist() for name in ("red", "blue", "green")}
        told = service.decide(body={"arms": arms})
        agent.expire(now=clock[0], room=1)  # the service closes what is overdue before all else, to log it
        mine = agent.decide(arms, now=clock[0], id=told["decision"])
        assert told == {name: getattr(mine, name if name != "decision" else "id") for name in told}
        if i % 4:
            value = round(float(rng.uniform(0, top)), 3)
            assert service.reward(told["decision"], value).json()["learnt"]
            agent.expire(now=clock[0])
            assert agent.reward(mine.id, value, now=clock[0])
    state = service.get("/v1/streams/shop").json()
    info = agent.info()
    assert state["theta"] == info["theta"]
    for name in ("decisions", "rewards", "mean_reward", "pending", "expired", "projected_share"):
        assert state[name] == info[name]
    assert service.call(service.engine.streams["shop"].agent.to_bytes) == agent.to_bytes()


def test_all_forms_of_arms(service: Local) -> None:
    service.create("plain")
    service.create("rich", features=FEATURES)
    service.create("listed", features={"arms": ["a", "b"]})
    forms: list[tuple[str, dict[str, Any], set[Any]]] = [
        ("plain", {"arms": {"red": [0.1, 0.2], "blue": [0.3, 0]}}, {"red", "blue"}),
        ("plain", {"arms": {"only": [1, 0]}}, {"only"}),
        ("plain", {"arms": [[0.1, 0.2], [0.3, 0.4], [0, 1]]}, {0, 1, 2}),
        ("rich", {"arms": OFFER, "context": CONTEXT}, {"a", "b"}),
        ("listed", {"arms": ["a", "b"]}, {"a", "b"}),
        ("listed", {"arms": ["b"]}, {"b"}),
        ("listed", {}, {"a", "b"}),
        ("listed", {"arms": {"a": {}, "b": {}}}, {"a", "b"}),
        ("listed", {"context": {}}, {"a", "b"}),
    ]
    for name, body, arms in forms:
        assert service.decide(name, body)["arm"] in arms
        (one,) = service.post(f"/v1/streams/{name}/decide/batch", {"items": [body]}).json()["results"]
        assert one["status"] == 200
        assert one["answer"]["arm"] in arms
    assert service.decide("plain", {"arms": [[0.1, 0.2]]})["arm"] == 0
    names = {"Ärger 🎯": [0.1, 0.2], "x" * 200: [0.2, 0.1]}
    assert service.decide("plain", {"arms": names})["arm"] in names


@pytest.mark.parametrize(
    ("name", "body", "field"),
    [
        ("plain", {}, "arms"),
        ("plain", {"arms": {}}, "arms"),
        ("plain", {"arms": []}, "arms"),
        ("plain", {"arms": {"red": [0.1]}}, "arms['red']"),
        ("plain", {"arms": {"red": [0.1, 0.2], "blue": [0.1]}}, "arms['blue']"),
        ("plain", {"arms": {"red": [0.1, "x"]}}, "arms.red.1"),
        ("plain", {"arms": {"red": [0.1, None]}}, "arms.red.1"),
        ("plain", {"arms": {"red": [0.1, True]}}, "arms.red.1"),
        ("plain", {"arms": {"red": [True, False]}}, "arms.red.0"),
        ("plain", {"arms": {"red": [3, 4]}}, "arms['red']"),
        ("plain", {"arms": {"red": [1e13, 0]}}, "arms.red.0"),
        ("plain", {"arms": {"red": 5}}, "arms.red"),
        ("plain", {"arms": {"": [0.1, 0.2]}}, "arms"),
        ("plain", {"arms": {"x" * 201: [0.1, 0.2]}}, "arms." + "x" * 92 + "..."),
        ("plain", {"arms": [[0.1, 0.2], [0.1]]}, "arms"),
        ("plain", {"arms": [[0.1, 0.2, 0.3]]}, "arms"),
        ("plain", {"arms": ["red"]}, "arms"),
        ("plain", {"arms": {"red": {"price": 3}}}, "arms['red']"),
        ("plain", {"arms": {"red": [0.1, 0.2]}, "context": {}}, "context"),
        ("plain", {"arms": {"red": [0.1, 0.2]}, "kontext": {}}, "kontext"),
        ("rich", {"arms": OFFER}, "context['age']"),
        ("rich", {"arms": OFFER, "context": {**CONTEXT, "age": 101}}, "context['age']"),
        ("rich", {"arms": OFFER, "context": {**CONTEXT, "age": "old"}}, "context['age']"),
        ("rich", {"arms": OFFER, "context": {**CONTEXT, "device": "watch"}}, "context['device']"),
        ("rich", {"arms": OFFER, "context": {**CONTEXT, "devise": "desk"}}, "context['devise']"),
        ("rich", {"arms": OFFER, "context": {**CONTEXT, "age": [1]}}, "context.age"),
        ("rich", {"arms": {"a": {}}, "context": CONTEXT}, "arms['a']['price']"),
        ("rich", {"arms": {"a": {"price": 11}}, "context": CONTEXT}, "arms['a']['price']"),
        ("rich", {"arms": {"z": {"price": 1}}, "context": CONTEXT}, "arms['z']"),
        ("rich", {"arms": ["a", "a"], "context": CONTEXT}, "arms"),
        ("rich", {"arms": ["a"], "context": CONTEXT}, "arms['a']['price']"),
    ],
)
def test_a_wrong_decision_is_refused_by_field(service: Local, name: str, body: Any, field: str) -> None:
    service.create("plain")
    service.create("rich", features=FEATURES)
    before = service.state(name)
    error = refused(service.post(f"/v1/streams/{name}/decide", body), 422, "invalid")
    assert error["field"] == field, error
    (one,) = service.together((f"/v1/streams/{name}/decide/batch", {"items": [body]}))
    if one.status_code == 200:
        assert [result["status"] for result in one.json()["results"]] == [422]
    else:
        assert refused(one, 422)["field"].startswith("items.0")
    assert service.state(name) == before


def test_a_misspelt_field_gets_a_hint(service: Local) -> None:
    service.create("rich", features=FEATURES)
    body = {"arms": OFFER, "context": {**CONTEXT, "devise": "desk"}}
    assert "'device'" in refused(service.post("/v1/streams/rich/decide", body), 422)["message"]


def test_randomized_decisions_log_their_propensities(service: Local) -> None:
    """epsilon/K for an arm that was not wanted, 1 - epsilon + epsilon/K for the one that was; and as often as said."""
    service.create("shop", randomize=0.3)
    count, explored = 600, 0
    results = service.post("/v1/streams/shop/decide/batch", {"items": [ARMS] * count}).json()["results"]
    for one in results:
        answer = one["answer"]
        wanted = answer["arm"] == answer["preferred"]
        assert answer["propensity"] == pytest.approx(0.1 + 0.7 * wanted, abs=1e-12)
        assert answer["explored"] or wanted
        explored += answer["explored"]
    assert abs(explored - 0.3 * count) < 4 * (0.3 * 0.7 * count) ** 0.5
    assert [event["propensity"] for event in service.log()] == [one["answer"]["propensity"] for one in results]
    assert service.post("/v1/streams", {"name": "sure", "dim": 2}).status_code == 201
    assert service.decide("sure")["propensity"] is None


# --- batches -------------------------------------------------------------------------------------------------------


def test_each_item_of_a_batch_is_one_round(service: Local) -> None:
    """The same rounds one by one, and in batches: the same arms, and the same estimate to the last bit."""
    rng = np.random.default_rng(8)
    bodies = [{"arms": rng.uniform(-0.6, 0.6, (3, 2)).round(6).tolist()} for _ in range(40)]
    values = (rng.uniform(size=40) < 0.4).astype(float).tolist()
    for name in ("single", "batched"):
        service.create(name, randomize=0.2)
    singly = [service.decide("single", body) for body in bodies]
    results = service.post("/v1/streams/batched/decide/batch", {"items": bodies}).json()["results"]
    together = [one["answer"] for one in results]
    assert {one["status"] for one in results} == {200}
    for name in ("arm", "prediction", "bonus", "propensity", "preferred", "explored"):
        assert [one[name] for one in singly] == [one[name] for one in together]
    for one, value in zip(singly, values, strict=True):
        service.reward(one["decision"], value, "single")
    items = [{"decision": one["decision"], "value": value} for one, value in zip(together, values, strict=True)]
    results = service.post("/v1/streams/batched/reward/batch", {"items": items}).json()["results"]
    assert results == [{"status": 200, "answer": {"decision": i["decision"], "learnt": True}} for i in items]
    one, other = (service.get(f"/v1/streams/{name}").json() for name in ("single", "batched"))
    assert one["theta"] == other["theta"]
    assert one["drift"] == other["drift"]


def test_items_stand_and_fall_by_themselves(service: Local) -> None:
    service.create("shop")
    items = [
        {**ARMS, "key": "a"},
        {"arms": {"red": [9, 9]}},
        ARMS,
        {**ARMS, "key": "a"},
        {"arms": {"x": [0, 1]}, "key": "a"},
    ]
    answer = service.post("/v1/streams/shop/decide/batch", {"items": items})
    assert answer.status_code == 200
    results = answer.json()["results"]
    assert [one["status"] for one in results] == [200, 422, 200, 200, 409]
    assert results[3] == results[0]
    assert results[1]["answer"]["error"]["field"] == "arms['red']"
    assert results[4]["answer"]["error"]["code"] == "key_reused"
    first = results[0]["answer"]["decision"]
    items = [
        {"decision": first, "value": 0.25},
        {"decision": first, "value": 0.25},
        {"decision": first, "value": 0.5},
        {"decision": "nobody", "value": 0.5},
        {"decision": results[2]["answer"]["decision"], "value": 7},
    ]
    results = service.post("/v1/streams/shop/reward/batch", {"items": items}).json()["results"]
    assert [one["status"] for one in results] == [200, 200, 409, 404, 422]
    assert [one["answer"].get("learnt") for one in results[:2]] == [True, False]
    assert [event["kind"] for event in service.log()] == ["decided", "decided", "rewarded"]


def test_a_batch_of_the_wrong_shape_does_nothing(service: Local) -> None:
    """What the schema can tell is told before the first item."""
    service.create("shop")
    before = service.state()
    for body, field in (
        ({"items": []}, "items"),
        ({"items": [ARMS] * 1001}, "items"),
        ({"items": [ARMS, {"arms": 3}]}, "items.1.arms"),
        ({"items": [ARMS, {**ARMS, "key": ""}]}, "items.1.key"),
        ({"items": ARMS}, "items"),
        ({}, "items"),
        ([ARMS], None),
        ({"items": [ARMS], "more": 1}, "more"),
    ):
        error = refused(service.post("/v1/streams/shop/decide/batch", body), 422, "invalid")
        assert field is None or error["field"].startswith(field), error
    for body, field in (
        ({"items": [{"decision": "x"}]}, "items.0.value"),
        ({"items": [{"value": 1}]}, "items.0.decision"),
        ({"items": [{"decision": "x", "value": "1"}]}, "items.0.value"),
        ({"items": [{"decision": "x" * 65, "value": 1}]}, "items.0.decision"),
    ):
        assert refused(service.post("/v1/streams/shop/reward/batch", body), 422)["field"] == field
    assert service.state() == before


def test_others_get_through_while_a_batch_runs(service: Local) -> None:
    service.create("shop")
    service.create("other")
    batch = ("/v1/streams/shop/decide/batch", {"items": [ARMS] * 1000})
    single = ("/v1/streams/other/decide", ARMS)
    answers = service.together(batch, *[single] * 5, batch)
    assert {answer.status_code for answer in answers} == {200}
    assert [event["number"] for event in service.log()] == list(range(1, 2001))


# --- rewards -------------------------------------------------------------------------------------------------------


def test_rewards_and_what_can_be_wrong_with_them(service: Local) -> None:
    service.create("shop")
    decision = service.decide()["decision"]
    before = service.state()
    for value in (1.5, -0.1, 1e12):
        assert refused(service.reward(decision, value), 422, "invalid")["field"] == "value"
    for body, field in (
        ({"decision": decision}, "value"),
        ({"value": 1}, "decision"),
        ({"decision": decision, "value": "1"}, "value"),
        ({"decision": decision, "value": None}, "value"),
        ({"decision": decision, "value": True}, "value"),
        ({"decision": 7, "value": 1}, "decision"),
        ({"decision": decision, "value": 1, "weight": 2}, "weight"),
        ({"decision": decision, "value": 1, "key": "k"}, "key"),
    ):
        assert refused(service.post("/v1/streams/shop/reward", body), 422)["field"] == field
    error = refused(service.reward("nobody", 1.0), 404, "unknown_decision")
    assert error["field"] == "decision"
    assert "'nobody'" in error["message"]
    service.create("other")
    refused(service.reward(decision, 1.0, "other"), 404, "unknown_decision")
    assert service.state() == before
    assert service.reward(decision, 0.25).json() == {"decision": decision, "learnt": True}
    after = service.state()
    assert after != before
    for _ in range(2):
        answer = service.reward(decision, 0.25)
        assert (answer.status_code, answer.json()) == (200, {"decision": decision, "learnt": False})
        error = refused(service.reward(decision, 0.5), 409, "conflict")
        assert "0.25" in error["message"]
        assert "0.5" in error["message"]
        refused(service.reward(decision, 1.5), 422)  # whatever else it may be
    assert service.state() == after


def test_after_the_wait_a_reward_is_recorded_and_not_learnt(service: Local) -> None:
    service.create("shop", wait=2)
    decision = service.decide()["decision"]
    for _ in range(4):
        service.decide()
    before = service.get("/v1/streams/shop").json()
    assert before["expired"] == 1
    error = refused(service.reward(decision, 1.0), 410, "too_late")
    assert error["field"] == "decision"
    refused(service.reward(decision, 1.0), 410, "too_late")
    refused(service.reward(decision, 0.0), 409, "conflict")
    after = service.get("/v1/streams/shop").json()
    assert (after["theta"], after["rewards"]) == (before["theta"], 0)
    late = [event for event in service.log() if event["kind"] == "late"]
    assert [(event["decision"], event["value"]) for event in late] == [(decision, 1.0)]


def test_waits_end_by_the_servers_clock(service: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody asks anything: the end of a wait is found, logged, and where a reward is assumed, learnt."""
    monkeypatch.setattr(engines, "TICK", 0.02)
    service.create("shop", wait="150ms", missing=1.0)
    made = service.decide()
    theta = service.get("/v1/streams/shop").json()["theta"]
    until(lambda: service.get("/v1/streams/shop").json()["expired"] == 1)
    assert time.time() - made["time"] > 0.15
    event = until(lambda: next((e for e in service.log() if e["kind"] == "expired"), None))
    assert event["decisions"] == [made["decision"]]
    assert event["time"] - made["time"] > 0.15
    assert service.get("/v1/streams/shop").json()["theta"] != theta
    refused(service.reward(made["decision"], 1.0), 410)
    state = service.get(f"/v1/streams/shop/decisions/{made['decision']}").json()
    assert (state["state"], state["reward"]) == ("expired", None)


@pytest.mark.parametrize("settings", [{"max_pending": 4}, {"wait": 3}, {"max_pending": 1, "wait": 9, "missing": 0.0}])
def test_every_end_of_a_wait_is_logged(service: Local, settings: dict[str, Any]) -> None:
    """Also where a decision had to make room for another."""
    service.create("shop", **settings)
    made = [service.decide()["decision"] for _ in range(12)]
    assert service.reward(made[-1], 1.0).status_code == 200
    gone = [decision for event in service.log() if event["kind"] == "expired" for decision in event["decisions"]]
    state = service.get("/v1/streams/shop").json()
    assert gone == made[: len(gone)]
    end = "dropped" if "max_pending" in settings else "expired"
    assert len(gone) == state[end] >= 8
    assert state["pending"] == 11 - len(gone)
    assert [row["state"] for row in state["statistics"]["recent"]][: len(gone)] == [end] * len(gone)


@pytest.mark.parametrize(
    ("settings", "fine", "wrong"),
    [
        ({}, (0, 0.5, 1), (-0.01, 1.01)),
        ({"sigma": 2.0, "link": "poisson"}, (0, 4), (4.1, -1)),
        ({"link": "identity", "sigma": 1.0, "policy": "OFUL"}, (-3.5, 1e6), ()),
    ],
)
def test_the_range_of_rewards(service: Local, settings: dict[str, Any], fine: Any, wrong: Any) -> None:
    service.create("shop", **settings)
    for value in wrong:
        refused(service.reward(service.decide()["decision"], value), 422, "invalid")
    for value in fine:
        assert service.reward(service.decide()["decision"], value).status_code == 200


# --- keys ----------------------------------------------------------------------------------------------------------


def test_the_same_key_repeats_the_answer(service: Local) -> None:
    service.create("shop")
    key = {"idempotency-key": "k"}
    made = service.decide(headers=key)
    assert service.decide(headers=key) == made
    other = {"arms": {"red": [0.1, 0.1]}}
    error = refused(service.post("/v1/streams/shop/decide", other, headers=key), 409, "key_reused")
    assert error["field"] == "key"
    refused(service.reward(made["decision"], 1.0, headers=key), 409, "key_reused")
    given = {"idempotency-key": "r"}
    for _ in range(3):
        assert service.reward(made["decision"], 1.0, headers=given).json()["learnt"] is True
    refused(service.reward(made["decision"], 0.0, headers=given), 409, "key_reused")
    service.create("other")  # a stream has keys of its own
    assert service.decide("other", headers=key)["decision"] != made["decision"]
    for wrong in ("", "x" * 201):
        error = refused(service.post("/v1/streams/shop/decide", ARMS, headers={"idempotency-key": wrong}), 422)
        assert error["field"] == "Idempotency-Key"
    assert service.decide(headers={"idempotency-key": "x" * 200})["arm"]
    assert [event["key"] for event in service.log()] == ["k", "r", "x" * 200]


def test_a_refused_request_does_not_use_its_key_up(service: Local) -> None:
    service.create("shop")
    key = {"idempotency-key": "k"}
    refused(service.post("/v1/streams/shop/decide", {"arms": {"red": [9, 9]}}, headers=key), 422)
    assert service.decide(headers=key)["arm"]


# --- configuration, archive, history -------------------------------------------------------------------------------


def test_each_setting_can_be_changed(service: Local) -> None:
    service.create("shop")
    changes: list[dict[str, Any]] = [
        {"title": "New"}, {"title": None}, {"wait": "1h"}, {"wait": 3}, {"missing": 0.5}, {"missing": None},
        {"learn": "at_timeout"}, {"learn": None}, {"max_pending": 2}, {"randomize": 1.0},
        {"wait": None, "title": "Both"}, {},
    ]  # fmt: skip
    for change in changes:
        answer = service.request("PATCH", "/v1/streams/shop", json=change)
        assert answer.status_code == 200, answer.text
        told = answer.json()
        assert all((told if name == "title" else told["config"])[name] == value for name, value in change.items())
        assert service.get("/v1/streams").json()["streams"] == [told]
    log = [event for event in service.log() if event["kind"] == "configured"]
    assert [event["changes"] for event in log] == changes
    for _ in range(6):
        assert service.decide()["propensity"] == pytest.approx(1 / 3)
    state = service.get("/v1/streams/shop").json()
    assert (state["title"], state["config"]["max_pending"]) == ("Both", 2)
    assert state["pending"] <= 3
    assert state["dropped"] >= 3


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"wait": "soon"}, "wait"),
        ({"wait": 0}, "wait"),
        ({"wait": True}, "wait"),
        ({"missing": 2}, "missing"),
        ({"max_pending": 0}, "max_pending"),
        ({"max_pending": None}, "max_pending"),
        ({"max_pending": 1.5}, "max_pending"),
        ({"randomize": -0.1}, "randomize"),
        ({"randomize": None}, "randomize"),
        ({"title": 3}, "title"),
        ({"title": "x" * 201}, "title"),
        ({"dim": 3}, "dim"),
        ({"name": "x"}, "name"),
        ({"half_life": "2d"}, "half_life"),
        ({"title": "kept?", "wait": "soon"}, "wait"),
        ({"title": "kept?", "missing": 2}, "missing"),
        ({"wait": "1h", "missing": -1}, "missing"),
    ],
)
def test_a_wrong_change_changes_nothing(service: Local, change: dict[str, Any], field: str) -> None:
    service.create("shop", title="Old", wait="1d", missing=0.0)
    before = service.state()
    error = refused(service.request("PATCH", "/v1/streams/shop", json=change), 422, "invalid")
    assert error["field"].startswith(field), error
    assert service.state() == before
    assert service.log() == []
    assert service.get("/v1/streams/shop").json()["title"] == "Old"


def test_an_archived_stream_is_only_read(service: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "TICK", 0.02)
    service.create("shop", wait="100ms")
    made = service.decide(headers={"idempotency-key": "k"})
    first = service.post("/v1/streams/shop/archive").json()
    before = service.state()
    for path, body in (
        ("decide", {"arms": {"x": [0, 1]}}),
        ("reward", {"decision": made["decision"], "value": 1}),
        ("history", {"rewards": [1], "vectors": [[0, 1]]}),
    ):
        refused(service.post(f"/v1/streams/shop/{path}", body), 409, "archived")
    refused(service.request("PATCH", "/v1/streams/shop", json={"title": "x"}), 409, "archived")
    for path, body in (("decide", ARMS), ("reward", {"decision": made["decision"], "value": 1})):
        (one,) = service.post(f"/v1/streams/shop/{path}/batch", {"items": [body]}).json()["results"]
        assert one["status"] == 409
    assert service.post("/v1/streams/shop/archive").json() == first
    assert service.decide(headers={"idempotency-key": "k"}) == made  # an answer given before
    time.sleep(0.3)
    assert service.state() == before  # nor do its waits end
    assert [event["kind"] for event in service.log()] == ["decided", "archived"]
    assert service.get(f"/v1/streams/shop/decisions/{made['decision']}").json()["state"] == "pending"


def test_history_is_learnt_as_the_library_learns_it(service: Local) -> None:
    rng = np.random.default_rng(5)
    vectors = rng.uniform(-3, 3, (60, 2)).round(4).tolist()
    rewards = (rng.uniform(size=60) < 0.3).astype(float).tolist()
    service.create("shop", scaling="fit")
    agent = Agent(dim=2, scaling="fit")
    error = refused(service.post("/v1/streams/shop/decide", ARMS), 422)
    assert error["field"] == "scaling"
    key = {"idempotency-key": "h"}
    for _ in range(2):
        answer = service.post("/v1/streams/shop/history", {"rewards": rewards, "vectors": vectors}, headers=key)
        assert (answer.status_code, answer.json()) == (200, {"learnt": 60})
    assert service.post("/v1/streams/shop/history", {"rewards": [1], "vectors": [[1, 1]], "weights": [3]}).json()
    agent.update_many(vectors, rewards)
    agent.update_many([[1, 1]], [1], weights=[3])
    assert service.call(service.engine.streams["shop"].agent.to_bytes) == agent.to_bytes()
    assert service.decide()["arm"]
    event, _ = [event for event in service.log() if event["kind"] == "history"]
    assert (event["rows"], event["request"]["rewards"]) == (60, rewards)


def test_history_of_fields_with_times(service: Local) -> None:
    features = {**FEATURES, "shared": {"age": {"low": 0, "high": 100}}}
    service.create("shop", features=features, half_life="1d")
    agent = Agent(features=features, half_life="1d")
    contexts = [{"age": 10 * i, "device": ("phone", "desk")[i % 2]} for i in range(9)]
    arms = [{"abc"[i % 3]: {"price": i}} for i in range(9)]
    body = {
        "rewards": [float(i % 2) for i in range(9)],
        "contexts": contexts,
        "arms": arms,
        "times": [1_600_000_000.0 + 3600.0 * ((7 * i) % 9) for i in range(9)],
    }
    refused(service.post("/v1/streams/shop/history", {k: v for k, v in body.items() if k != "times"}), 422)
    assert service.post("/v1/streams/shop/history", body).json() == {"learnt": 9}
    agent.update_many(None, body["rewards"], contexts=contexts, arms=arms, times=body["times"])
    assert service.call(service.engine.streams["shop"].agent.to_bytes) == agent.to_bytes()


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"vectors": [[0, 1]]}, "rewards"),
        ({"rewards": []}, "rewards"),
        ({"rewards": [1]}, "vectors"),
        ({"rewards": [1, 1], "vectors": [[0, 1]]}, "rewards"),
        ({"rewards": [1, 2], "vectors": [[0, 1], [0, 1]]}, "rewards[1]"),
        ({"rewards": [1, 1], "vectors": [[0, 1], [3, 4]]}, "vectors[1]"),
        ({"rewards": [1], "vectors": [[0, 1, 2]]}, "vectors"),
        ({"rewards": [1], "vectors": [[0, "1"]]}, "vectors.0.1"),
        ({"rewards": [1], "vectors": [[0, 1]], "times": [1, 2]}, "times"),
        ({"rewards": [1], "contexts": [{}], "arms": ["a"]}, "vectors"),
        ({"rewards": [1], "vectors": [[0, 1]], "weights": [1, 1]}, "weights"),
        ({"rewards": [1], "vectors": [[0, 1]], "weights": [-1]}, "weights[0]"),
        ({"rewards": [1], "vectors": [[0, 1]], "times": [9e9]}, "times[0]"),
    ],
)
def test_wrong_history_teaches_nothing(service: Local, body: dict[str, Any], field: str) -> None:
    service.create("shop")
    before = service.state()
    error = refused(service.post("/v1/streams/shop/history", body), 422, "invalid")
    assert error["field"] == field, error
    assert service.state() == before


# --- the log and what is read from it ------------------------------------------------------------------------------


def filled(service: Local, rounds: int = 1300) -> None:
    """A stream with every kind of event, and more events than one chunk of an export."""
    service.create("shop", wait=1200, randomize=0.1)
    items = [{**ARMS, "key": f"k{i}"} if i % 2 else ARMS for i in range(rounds)]
    decisions = []
    for start in range(0, rounds, 1000):
        results = service.post("/v1/streams/shop/decide/batch", {"items": items[start : start + 1000]}).json()[
            "results"
        ]
        decisions += [one["answer"]["decision"] for one in results]
    rewards = [{"decision": decision, "value": (i % 5) / 4} for i, decision in enumerate(decisions[-50:])]
    service.post("/v1/streams/shop/reward/batch", {"items": rewards})
    service.reward(decisions[0], 1.0)  # too late
    service.request("PATCH", "/v1/streams/shop", json={"title": "Ärger"})
    service.post("/v1/streams/shop/history", {"rewards": [1], "vectors": [[0, 1]]})
    service.post("/v1/streams/shop/archive")


def test_exports_hold_what_the_file_holds(service: Local) -> None:
    """Both formats against the rows of the SQLite file, read without the service's code."""
    import pyarrow.parquet as pq

    filled(service)
    with sqlite3.connect(service.store.path) as connection:
        columns = "id, time, kind, decision, key, outcome, request"
        rows = connection.execute(f"SELECT {columns} FROM events ORDER BY id").fetchall()
    connection.close()
    kinds = {1: "decided", 2: "rewarded", 3: "expired", 4: "configured", 5: "archived", 6: "late", 7: "history"}
    log = service.log()
    assert {event["kind"] for event in log} == set(kinds.values())
    assert len(log) == len(rows) > 1300
    answer = service.get("/v1/streams/shop/events?format=parquet")
    assert answer.headers["content-type"] == "application/vnd.apache.parquet"
    assert answer.headers["content-disposition"] == 'attachment; filename="shop-events.parquet"'
    table = pq.read_table(io.BytesIO(answer.content)).to_pylist()
    assert len(table) == len(rows)
    for (rowid, at, kind, decision, key, outcome, request), line, row in zip(rows, log, table, strict=True):
        common = {"number": rowid % 2**40, "time": at, "kind": kinds[kind], "decision": decision, "key": key}
        told = {**common, **json.loads(outcome)} | ({"request": json.loads(request)} if request else {})
        assert line == told
        assert {name: row[name] for name in common} == common
        assert json.loads(row["outcome"]) == json.loads(outcome)
        assert row["request"] == (None if request is None else request.decode())
        for name in ("arm", "propensity", "explored", "prediction", "bonus", "value"):
            assert row[name] == json.loads(outcome).get(name)


def test_parts_of_the_log(service: Local) -> None:
    filled(service, rounds=20)
    log = service.log()
    answer = service.get("/v1/streams/shop/events")
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert answer.text.endswith("\n")
    for query, part in (
        ("after=5", log[5:]),
        ("limit=3", log[:3]),
        ("after=4&limit=2", log[4:6]),
        (f"after={len(log)}", []),
        ("after=99999", []),
        (f"after={2**40}&limit={2**40}", []),
    ):
        found = service.get(f"/v1/streams/shop/events?{query}")
        assert [parsed(line) for line in found.text.splitlines()] == part
    for query, field in (("after=-1", "after"), ("limit=0", "limit"), ("format=csv", "format"), ("after=x", "after")):
        assert refused(service.get(f"/v1/streams/shop/events?{query}"), 422)["field"] == field
    import pyarrow.parquet as pq

    empty = service.get(f"/v1/streams/shop/events?format=parquet&after={len(log)}")
    assert pq.read_table(io.BytesIO(empty.content)).num_rows == 0


def test_an_export_leaves_no_file_behind(service: Local, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    service.create("shop")
    service.decide()
    assert service.get("/v1/streams/shop/events?format=parquet").status_code == 200
    assert not list((tmp_path / "temporary").iterdir())
    with monkeypatch.context() as patch:
        patch.setattr("windvane.service.export._row", lambda _: 1 / 0)
        assert service.get("/v1/streams/shop/events?format=parquet").status_code == 500
    assert not list((tmp_path / "temporary").iterdir())


def test_a_decision_of_the_past(service: Local) -> None:
    """Its explanation is the sentence that the library prints."""
    service.create("shop", wait=3)
    agent = Agent(dim=2, wait=3)
    made = service.decide()
    path = f"/v1/streams/shop/decisions/{made['decision']}"
    told = service.get(path).json()
    assert told["decision"] == made["decision"]
    assert (told["state"], told["reward"]) == ("pending", None)
    assert told["explanation"] == str(agent.explain(agent.decide(ARMS["arms"])))
    assert told["events"] == service.log()
    service.reward(made["decision"], 0.75)
    told = service.get(path).json()
    assert (told["state"], told["reward"]) == ("rewarded", 0.75)
    assert [event["kind"] for event in told["events"]] == ["decided", "rewarded"]
    lost = service.decide()["decision"]
    for _ in range(4):
        service.decide()
    service.reward(lost, 1.0)
    told = service.get(f"/v1/streams/shop/decisions/{lost}").json()
    assert (told["state"], told["reward"]) == ("expired", None)
    assert [event["kind"] for event in told["events"]] == ["decided", "late"]
    refused(service.get("/v1/streams/shop/decisions/nobody"), 404, "unknown_decision")
    refused(service.get(f"/v1/streams/shop/decisions/{'x' * 65}"), 422)
    service.create("other")
    refused(service.get(f"/v1/streams/other/decisions/{made['decision']}"), 404, "unknown_decision")


# --- the service itself --------------------------------------------------------------------------------------------


def test_health_and_readiness(service: Local) -> None:
    assert service.get("/healthz").json() == {"status": "ok"}
    assert service.get("/readyz").json() == {"status": "ready"}
    service.engine.failure = "testing"
    assert service.get("/healthz").status_code == 200
    answer = service.get("/readyz")
    assert "testing" in refused(answer, 503, "unavailable")["message"]
    assert answer.headers["retry-after"] == "1"
    refused(service.get("/v1/streams"), 503, "unavailable")
    service.engine.failure = None


def test_metrics_count_what_happened(service: Local) -> None:
    service.create("shop", wait=3)
    decisions = [service.decide()["decision"] for _ in range(6)]
    for decision, value in zip(decisions[-2:], (0.25, 1.0), strict=True):
        service.reward(decision, value)
    service.reward("nobody", 1.0)
    service.get("/nowhere")
    answer = service.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    numbers = {}
    for line in answer.text.splitlines():
        if not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            numbers[name] = float(value)
    expected = {
        "windvane_ready": 1,
        'windvane_decisions_total{stream="shop"}': 6,
        'windvane_rewards_total{stream="shop"}': 2,
        'windvane_reward_value_total{stream="shop"}': 1.25,
        'windvane_expired_total{stream="shop"}': 2,
        'windvane_pending{stream="shop"}': 2,
        'windvane_requests_total{route="/v1/streams/{name}/decide",status="200"}': 6,
        'windvane_requests_total{route="/v1/streams/{name}/reward",status="200"}': 2,
        'windvane_requests_total{route="/v1/streams/{name}/reward",status="404"}': 1,
        'windvane_requests_total{route="/v1/streams",status="201"}': 1,
        'windvane_request_seconds_count{route="/v1/streams/{name}/decide"}': 6,
    }
    assert {name: numbers.get(name) for name in expected} == expected
    assert numbers["windvane_events_total"] == len(service.log()) == 10
    assert 1 <= numbers["windvane_commits_total"] <= 8
    assert (
        sum(value for name, value in numbers.items() if name.startswith('windvane_requests_total{route="other"')) == 1
    )


ROUTES = {
    "/healthz": {"get"},
    "/readyz": {"get"},
    "/metrics": {"get"},
    "/v1/streams": {"get", "post"},
    "/v1/streams/{name}": {"get", "patch"},
    "/v1/streams/{name}/archive": {"post"},
    "/v1/streams/{name}/decide": {"post"},
    "/v1/streams/{name}/decide/batch": {"post"},
    "/v1/streams/{name}/reward": {"post"},
    "/v1/streams/{name}/reward/batch": {"post"},
    "/v1/streams/{name}/history": {"post"},
    "/v1/streams/{name}/events": {"get"},
    "/v1/streams/{name}/live": {"get"},
    "/v1/streams/{name}/decisions/{decision}": {"get"},
}


def test_the_openapi_document_is_complete(service: Local) -> None:
    answer = service.get("/openapi.json")
    document = parsed(answer.content)
    assert {path: set(methods) for path, methods in document["paths"].items()} == ROUTES
    assert document["openapi"].startswith("3.")
    assert document["components"]["securitySchemes"]["token"] == {"type": "http", "scheme": "bearer"}
    references = {part.split('"')[0] for part in answer.text.split('"$ref":"')[1:]}
    for reference in references:  # nothing leads nowhere
        place: Any = document
        for step in reference.removeprefix("#/").split("/"):
            place = place[step]
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            assert operation["description"]
            assert operation["tags"]
            statuses = set(operation["responses"])
            assert statuses & {"200", "201"}
            if path.startswith("/v1"):
                assert {"401", "403", "429", "503"} <= statuses
            if "{name}" in path:
                assert {"404", "422"} <= statuses
            if method in ("post", "patch") and not path.endswith("archive"):
                assert operation["requestBody"]["required"]
                assert {"400", "408", "413", "415", "422"} <= statuses
            if path.endswith(("decide", "reward", "history")):
                assert "Idempotency-Key" in {one["name"] for one in operation["parameters"]}
    assert "410" in document["paths"]["/v1/streams/{name}/reward"]["post"]["responses"]


def test_the_documented_schema_is_the_one_that_is_checked(service: Local) -> None:
    """The limits of the document are those of the service."""
    schemas = service.get("/openapi.json").json()["components"]["schemas"]
    assert schemas["DecideBatch"]["properties"]["items"]["maxItems"] == 1000
    assert schemas["NewStream"]["properties"]["name"]["pattern"]
    assert schemas["Reward"]["required"] == ["decision", "value"]
    assert all(schemas[name]["additionalProperties"] is False for name in ("NewStream", "Changes", "Decide", "History"))


# --- the live state ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    found = served(tmp_path_factory.mktemp("served") / "a.db")
    yield found
    assert found.stop() in (0, 130)


def test_a_stream_can_be_followed(server: Server) -> None:
    """The state at once, and again when it has changed."""
    with server.client() as client, server.client() as other:
        client.post("/v1/streams", json={"name": "live", "dim": 2})
        assert client.get("/v1/streams/none/live").status_code == 404
        with other.stream("GET", "/v1/streams/live/live") as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            assert answer.headers["cache-control"] == "no-store"
            lines = answer.iter_lines()
            assert next(lines) == "event: state"
            first = parsed(next(lines).removeprefix("data: "))
            assert first == client.get("/v1/streams/live").json()
            decision = client.post("/v1/streams/live/decide", json=ARMS).json()["decision"]
            assert next(lines) == ""
            assert next(lines) == "event: state"
            second = parsed(next(lines).removeprefix("data: "))
            assert second["statistics"]["recent"][-1]["decision"] == decision
            assert second["events"] == 1


def test_the_same_over_a_real_connection(server: Server) -> None:
    """A round trip through the socket: the pieces in between change nothing."""
    with server.client() as client:
        assert client.post("/v1/streams", json={"name": "wired", "dim": 2}).status_code == 201
        made = client.post("/v1/streams/wired/decide", json=ARMS)
        assert made.headers["content-type"] == "application/json"
        assert "server" not in made.headers
        decision = made.json()["decision"]
        for status, value in ((200, 1), (200, 1), (409, 0)):
            answer = client.post("/v1/streams/wired/reward", json={"decision": decision, "value": value})
            assert answer.status_code == status
        lines = client.get("/v1/streams/wired/events").text.splitlines()
        assert [parsed(line)["kind"] for line in lines] == ["decided", "rewarded"]
        assert client.get("/v1/streams/wired/events?format=parquet").content.startswith(b"PAR1")


def test_an_app_can_be_made_without_a_server(tmp_path: Path) -> None:
    """For whoever runs it under an ASGI server of their own."""
    store = Store(tmp_path / "a.db")
    assert callable(create_app(store))
    store.close()
