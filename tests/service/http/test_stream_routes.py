"""Streams over HTTP: create, list, read, change and archive them."""

from __future__ import annotations

import inspect
import time
from datetime import datetime
from typing import Any

import pytest

from support.server import CHANGES, Local, read_pointers, read_problem, until
from windvane import Agent
from windvane.records import STREAM_NAME_IN_WORDS
from windvane.service import engine as engine_module
from windvane.service.stream_settings import NewStream

FIELDS = {"shared": {"age": {"low": 0, "high": 100}}, "arms": ["a"]}
EMPTY = {"streams": [], "next": None, "unavailable": []}
LARGE_FIELDS = {f"f{i}": {"values": [f"v{j}" for j in range(40)]} for i in range(40)}


def test_a_stream_from_its_creation_to_its_end(service: Local) -> None:
    answer = service.post("/v1/streams", {"name": "shop", "dim": 2, "title": "Shop <1>", "reward_timeout": "2d"})
    assert (answer.status_code, answer.headers["location"]) == (201, "/v1/streams/shop")
    created = answer.json()
    assert (created["name"], created["title"], created["events"], created["archived"]) == ("shop", "Shop <1>", 0, None)
    assert abs(datetime.fromisoformat(created["created"]).timestamp() - time.time()) < 60
    assert set(created["counts"].values()) == {0}
    assert created["settings"]["reward_timeout"] == "2d"
    first, _ = service.decide(), service.decide()
    service.reward(first["id"], 1.0)
    info = service.info()
    assert (info["events"], info["mean_reward"]) == (3, 1.0)
    assert [info["counts"][name] for name in ("decisions", "rewards", "pending")] == [2, 1, 1]
    (summary,) = service.get("/v1/streams").json()["streams"]
    assert summary == {name: info[name] for name in summary}
    assert service.get("/v1/streams/shop/charts").json()["recent"][0]["id"] == first["id"]
    archived = service.archive()
    assert archived["archived"] is not None
    assert service.archive() == archived == service.info()


WRONG_VALUES: dict[str, list[Any]] = {  # of one argument; the pointer leads to it
    "name": ["a/b", "", "x" * 65, 3, "shop\n"],
    "dim": [None, 0, 501, 2.5, True, "2"],
    "colour": ["red"],
    "link": ["cubic"],
    "policy": ["Clairvoyant", "Oracle", "x" * 100_000],
    "reward_timeout": ["soon", -1, [1]],
    "gamma": [1.5],
    "default_reward": [3],
    "max_pending": [0, None, 10**7],
    "epsilon": [1.1],
    "reward_range": [[0]],
    "S": [-1],
    "prior": [[1]],
    "scaling": [{"center": [0, 0], "spread": [1, 0]}, "guess"],
    "settings": [{f"s{i}": i for i in range(21)}],
    "horizon": [10**10],
    "seed": [-1],
}
WRONG_FEATURES: dict[str, list[Any]] = {
    "/shared/age": [{"shared": {"age": {"low": 1, "high": 0}}}, {"shared": {"age": 3}}],
    "/by_arm": [{"by_arm": {"age": {}}}],
    "/arms": [{"arms": ["a", "a"]}],
    "": [{"colour": {}}, 3, {"arms": [f"arm{i}" for i in range(501)]}, {"per_arm": {f"f{i}": {} for i in range(500)}}],
}
WRONG_SETTINGS: list[tuple[str, dict[str, Any]]] = [
    *((f"#/{name}", {name: value}) for name, values in WRONG_VALUES.items() for value in values),
    *((f"#/features{at}", {"dim": None, "features": value}) for at, wrong in WRONG_FEATURES.items() for value in wrong),
    ("#/dim", {"features": FIELDS}),
    ("#/gamma", {"half_life": "2d", "gamma": 0.9}),
    ("#/reward_range", {"reward_range": [1, 0], "link": "poisson"}),
    ("#/prior/1", {"prior": [1, "x"]}),
    ("#/horizon", {"policy": "BOB"}),
    *((f"#/settings/{name}", {"settings": {name: 10**9}}) for name in ("magic", "dim", "max_pending", "lanes")),
]


def test_wrong_settings_are_refused(service: Local) -> None:
    for pointer, settings in WRONG_SETTINGS:
        pointers = read_pointers(service.post("/v1/streams", {"name": "shop", "dim": 2, **settings}))
        assert pointers[0] == pointer, settings
        assert service.get("/v1/streams").json() == EMPTY
    for features in ({"by_arm": LARGE_FIELDS, "arms": [f"arm{i}" for i in range(4000)]}, {"shared": LARGE_FIELDS}):
        began = time.process_time()  # which does not depend on the load of the machine
        assert read_pointers(service.post("/v1/streams", {"name": "large", "features": features})) == ["#/features"]
        assert time.process_time() - began < 1.0  # they are not built


def test_a_wrong_name_is_refused_in_words(service: Local) -> None:
    body = {"dim": 2}
    for answer in (service.post("/v1/streams", {"name": "a b", **body}), service.put("/v1/streams/a%20b", body)):
        problem = read_problem(answer, 422)
        assert (problem["errors"][0]["pointer"], problem["errors"][0]["detail"]) == (
            "#/name",
            f"must have {STREAM_NAME_IN_WORDS}",
        )


def test_every_argument_of_an_agent_can_be_set(service: Local) -> None:
    """What is omitted is left to the library's defaults, but streams do not explore in the same rounds."""
    assert set(NewStream.model_fields) - {"name", "title", "retention"} == set(inspect.signature(Agent).parameters)
    assert service.create("plain")["settings"] == Agent(dim=2).settings
    seeds = {service.post("/v1/streams", {"name": f"s{i}", "dim": 2}).json()["settings"]["seed"] for i in range(3)}
    assert len(seeds) == 3


def test_a_name_is_used_once(service: Local) -> None:
    service.create("shop")
    service.archive()
    taken = service.post("/v1/streams", {"name": "shop", "dim": 3})
    assert read_pointers(taken, 409, "stream-exists") == ["#/name"]
    assert "`ensure` it: PUT /v1/streams/shop with the settings" in taken.json()["detail"]
    answers = service.request_together(*[("POST", "/v1/streams", {"name": "other", "dim": 2})] * 5)
    assert sorted(answer.status_code for answer in answers) == [201, 409, 409, 409, 409]


def test_lists_have_pages(service: Local) -> None:
    for name in ("c", "a", "B", "b", "d"):
        service.create(name)
    names, after = [], ""
    for _ in range(3):
        page = service.get(f"/v1/streams?limit=2&after={after}").json()
        names.append([stream["name"] for stream in page["streams"]])
        after = page["next"]
    assert (names, after) == ([["B", "a"], ["b", "c"], ["d"]], None)
    decisions = [service.decide("a")["id"] for _ in range(5)]
    first = service.get("/v1/streams/a/pending?limit=2").json()
    assert ([row["id"] for row in first["decisions"]], first["next"]) == (decisions[:2], 1)
    service.reward(decisions[1], 1.0, "a")  # it is no longer pending, and the next page follows it nevertheless
    rest = service.get(f"/v1/streams/a/pending?after={first['next']}").json()
    assert ([row["id"] for row in rest["decisions"]], rest["next"]) == (decisions[2:], None)
    for query in ("?limit=0", "?limit=1001", "?limit=x", "/a/pending?after=x"):
        assert read_pointers(service.get(f"/v1/streams{query}")) == []  # not in the body


def test_unknown_streams_paths_and_methods(service: Local) -> None:
    reads = ("", "/events", "/live", "/charts", "/pending", "/decisions/x", "/decisions/x/explanation")
    for method, path, body in (*CHANGES, *(("GET", path, None) for path in reads)):
        for name in ("none", "a%20b", "x" * 300):
            answer = service.request(method, f"/v1/streams/{name}{path}", **({} if body is None else {"json": body}))
            assert read_problem(answer, 404)["code"] == "unknown-stream"
    for path in ("/v2/streams", "/v1/streams/", "/v1/streams/shop/decide", "/page/none.js", "/page/../engine.py"):
        assert read_problem(service.get(path), 404)["code"] == "not-found"
    for method, path in (("DELETE", "/v1/streams"), ("GET", "/v1/streams/shop/decisions"), ("PUT", "/healthz")):
        answer = service.request(method, path)
        assert read_problem(answer, 405)["code"] == "method-not-allowed"
        assert answer.headers["allow"]


def test_each_setting_can_be_changed(service: Local) -> None:
    service.create("shop")
    changes: list[dict[str, Any]] = [
        {"title": "New"}, {"title": None}, {"retention": "90d"}, {"retention": None}, {"reward_timeout": "1h"},
        {"reward_timeout": 3}, {"default_reward": 0.5}, {"default_reward": None}, {"learn": "at_timeout"},
        {"learn": None}, {"max_pending": 2}, {"epsilon": 1.0},
        {"reward_timeout": None, "title": "Both"}, {},
    ]  # fmt: skip
    for change in changes:
        info = service.configure("shop", **change)
        assert info == service.info()
        assert {name: (info if name in ("title", "retention") else info["settings"])[name] for name in change} == change
    assert [event["changes"] for event in service.events() if event["kind"] == "configured"] == changes[:-1]
    for _ in range(6):
        assert service.decide()["propensity"] == pytest.approx(1 / 3)
    assert service.info()["counts"]["dropped"] >= 3


def test_a_wrong_change_changes_nothing(service: Local) -> None:
    service.create("shop", title="Old", reward_timeout="1d", default_reward=0.0)
    before = service.state()
    for change in (
        {"reward_timeout": "soon"}, {"default_reward": 2}, {"default_reward": "1"}, {"learn": "never"},
        {"max_pending": None}, {"max_pending": 1.5}, {"epsilon": -0.1}, {"epsilon": None}, {"title": 3},
        {"title": "x" * 201}, {"dim": 3}, {"half_life": "2d"}, {"title": "kept?", "default_reward": 2},
        {"reward_timeout": "1h", "default_reward": -1},
    ):  # fmt: skip
        assert read_pointers(service.patch("/v1/streams/shop", change))[0] == f"#/{list(change)[-1]}"
        assert service.state() == before
    assert service.events() == []


def test_an_archived_stream_is_only_read(service: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "TICK", 0.02)
    for name in ("shop", "open"):
        service.create(name, reward_timeout="50ms")
    decision = service.decide(key="k")
    place = f"/v1/streams/shop/decisions/{decision['id']}"
    service.archive()
    before = service.state()
    for method, path, body in (
        ("POST", "/v1/streams/shop/decisions", {"arms": {"x": [0, 1]}}),
        ("PUT", f"{place}/reward", {"value": 1}),
        ("POST", f"{place}/rewards", {"value": 1}),
        ("POST", "/v1/streams/shop/history", {"rewards": [1], "vectors": [[0, 1]]}),
        ("PATCH", "/v1/streams/shop", {"title": "x"}),
    ):
        assert read_problem(service.request(method, path, json=body), 409)["code"] == "archived"
    batch = {"rewards": [{"decision": decision["id"], "value": 1}]}
    (result,) = service.post("/v1/streams/shop/rewards/batch", batch).json()["results"]
    assert (result["status"], result["problem"]["status"]) == (409, 409)
    assert service.decide(key="k") == decision  # an answer from before
    service.decide("open")
    until(lambda: service.info("open")["counts"]["expired"] == 1)
    assert service.state() == before  # nor do timeouts pass, which began earlier here
    assert service.get(place).json()["status"] == "pending"


def test_timeouts_pass_by_the_clock_of_the_server(service: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "TICK", 0.02)
    service.create("shop", reward_timeout="150ms", default_reward=1.0)
    decision = service.decide()
    until(lambda: service.info()["counts"]["expired"] == 1)
    event = next(event for event in service.events() if event["kind"] == "closed")
    assert event["decisions"] == [decision["id"]]
    times = [datetime.fromisoformat(text).timestamp() for text in (decision["time"], event["time"])]
    assert times[1] - times[0] > 0.15
    assert service.reward(decision["id"], 1.0).json()["status"] == "expired"
