"""Streams over HTTP: create, list, read, change and archive them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from support.server import ARMS, Local, read_problem, run_local, until
from windvane import Agent
from windvane.service import engine as engine_module

FEATURES = {"shared": {"age": {"low": 0, "high": 100}}, "per_arm": {"price": {"low": 0, "high": 10}}, "arms": ["a"]}


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Local]:
    """At its end, every stream must equal a replay of its log."""
    with run_local(tmp_path / "a.db") as service:
        yield service


def read_pointers(answer: Any) -> list[str]:
    """Return the pointers of an answer that says that the request is invalid."""
    problem = read_problem(answer, 422)
    assert problem["code"] == "invalid"
    return [error["pointer"] for error in problem["errors"]]


def test_a_stream_from_its_creation_to_its_end(service: Local) -> None:
    answer = service.post("/v1/streams", {"name": "shop", "dim": 2, "title": "Shop <1>", "reward_timeout": "2d"})
    assert (answer.status_code, answer.headers["location"]) == (201, "/v1/streams/shop")
    created = answer.json()
    assert (created["name"], created["title"], created["events"], created["archived"]) == ("shop", "Shop <1>", 0, None)
    assert abs(datetime.fromisoformat(created["created"]).timestamp() - time.time()) < 60
    assert set(created["counts"].values()) == {0}
    assert created["settings"]["reward_timeout"] == "2d"
    first = service.decide()
    service.decide()
    service.reward(first["id"], 1.0)
    info = service.info()
    assert (info["events"], info["mean_reward"]) == (3, 1.0)
    assert {name: info["counts"][name] for name in ("decisions", "rewards", "pending")} == {
        "decisions": 2, "rewards": 1, "pending": 1,
    }  # fmt: skip
    (summary,) = service.get("/v1/streams").json()["streams"]
    assert summary == {name: info[name] for name in summary}
    charts = service.get("/v1/streams/shop/charts").json()
    assert charts["recent"][0]["id"] == first["id"]
    archived = service.archive()
    assert archived["archived"] is not None
    assert service.archive() == archived == service.info()


@pytest.mark.parametrize(
    ("settings", "pointer"),
    [
        ({"name": "a/b"}, "#/name"),
        ({"name": ""}, "#/name"),
        ({"name": "x" * 65}, "#/name"),
        ({"name": 3}, "#/name"),
        ({"name": "shop\n"}, "#/name"),
        ({"dim": None}, "#/dim"),
        ({"features": FEATURES}, "#/dim"),
        ({"dim": 0}, "#/dim"),
        ({"dim": 501}, "#/dim"),
        ({"dim": 2.5}, "#/dim"),
        ({"dim": True}, "#/dim"),
        ({"dim": "2"}, "#/dim"),
        ({"colour": "red"}, "#/colour"),
        ({"link": "cubic"}, "#/link"),
        ({"policy": "Clairvoyant"}, "#/policy"),
        ({"policy": "Oracle"}, "#/policy"),
        ({"policy": "x" * 100_000}, "#/policy"),
        ({"reward_timeout": "soon"}, "#/reward_timeout"),
        ({"reward_timeout": -1}, "#/reward_timeout"),
        ({"reward_timeout": [1]}, "#/reward_timeout"),
        ({"half_life": "2d", "gamma": 0.9}, "#/gamma"),
        ({"gamma": 1.5}, "#/gamma"),
        ({"default_reward": 3}, "#/default_reward"),
        ({"max_pending": 0}, "#/max_pending"),
        ({"max_pending": None}, "#/max_pending"),
        ({"max_pending": 10**7}, "#/max_pending"),
        ({"epsilon": 1.1}, "#/epsilon"),
        ({"reward_range": [0]}, "#/reward_range"),
        ({"reward_range": [1, 0], "link": "poisson"}, "#/reward_range"),
        ({"S": -1}, "#/S"),
        ({"prior": [1]}, "#/prior"),
        ({"prior": [1, "x"]}, "#/prior/1"),
        ({"scaling": {"center": [0, 0], "spread": [1, 0]}}, "#/scaling"),
        ({"scaling": "guess"}, "#/scaling"),
        ({"settings": {"magic": 1}}, "#/settings/magic"),
        ({"settings": {"dim": 400}}, "#/settings/dim"),
        ({"settings": {"max_pending": 10**9}}, "#/settings/max_pending"),
        ({"settings": {"lanes": 10**9}}, "#/settings/lanes"),
        ({"settings": {f"s{i}": i for i in range(21)}}, "#/settings"),
        ({"policy": "BOB"}, "#/horizon"),
        ({"horizon": 10**10}, "#/horizon"),
        ({"seed": -1}, "#/seed"),
        ({"dim": None, "features": {"shared": {"age": {"low": 1, "high": 0}}}}, "#/features/shared/age"),
        ({"dim": None, "features": {"shared": {"age": 3}}}, "#/features/shared/age"),
        ({"dim": None, "features": {"by_arm": {"age": {}}}}, "#/features/by_arm"),
        ({"dim": None, "features": {"arms": ["a", "a"]}}, "#/features/arms"),
        ({"dim": None, "features": {"colour": {}}}, "#/features"),
        ({"dim": None, "features": {"arms": [f"arm{i}" for i in range(501)]}}, "#/features"),
        ({"dim": None, "features": {"per_arm": {f"f{i}": {} for i in range(500)}}}, "#/features"),
        ({"dim": None, "features": 3}, "#/features"),
    ],
)
def test_wrong_settings_are_refused(service: Local, settings: dict[str, Any], pointer: str) -> None:
    pointers = read_pointers(service.post("/v1/streams", {"name": "shop", "dim": 2, **settings}))
    assert pointers[0] == pointer
    assert service.get("/v1/streams").json() == {"streams": [], "next": None, "unavailable": []}


def test_huge_features_are_refused_before_they_are_built(service: Local) -> None:
    fields = {f"f{i}": {"values": [f"v{j}" for j in range(40)]} for i in range(40)}
    for features in ({"by_arm": fields, "arms": [f"arm{i}" for i in range(4000)]}, {"shared": fields}):
        began = time.process_time()  # which does not depend on the load of the machine
        assert read_pointers(service.post("/v1/streams", {"name": "large", "features": features})) == ["#/features"]
        assert time.process_time() - began < 1.0


def test_every_argument_of_an_agent_can_be_set(service: Local) -> None:
    """What is omitted is left to the library's defaults."""
    import inspect

    from windvane.service.requests import NewStream

    arguments = set(inspect.signature(Agent).parameters)
    assert set(NewStream.model_fields) - {"name", "title"} == arguments
    assert service.create("plain")["settings"] == Agent(dim=2).settings
    seeds = {service.post("/v1/streams", {"name": f"s{i}", "dim": 2}).json()["settings"]["seed"] for i in range(3)}
    assert len(seeds) == 3  # streams do not explore in the same rounds


def test_a_name_is_used_once(service: Local) -> None:
    service.create("shop")
    service.archive()
    problem = read_problem(service.post("/v1/streams", {"name": "shop", "dim": 3}), 409)
    assert (problem["code"], problem["errors"][0]["pointer"]) == ("stream-exists", "#/name")
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
    assert names == [["B", "a"], ["b", "c"], ["d"]]
    assert after is None
    decisions = [service.decide("a")["id"] for _ in range(5)]
    first = service.get("/v1/streams/a/pending?limit=2").json()
    assert ([row["id"] for row in first["decisions"]], first["next"]) == (decisions[:2], 1)
    service.reward(decisions[1], 1.0, "a")  # it is no longer pending, and the next page follows it nevertheless
    rest = service.get(f"/v1/streams/a/pending?after={first['next']}").json()
    assert ([row["id"] for row in rest["decisions"]], rest["next"]) == (decisions[2:], None)
    for query in ("?limit=0", "?limit=1001", "?limit=x", "/a/pending?after=x"):
        assert read_pointers(service.get(f"/v1/streams{query}")) == []  # not in the body


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "", None), ("GET", "/events", None), ("GET", "/live", None), ("GET", "/charts", None),
        ("GET", "/pending", None), ("GET", "/decisions/x", None), ("GET", "/decisions/x/explanation", None),
        ("PATCH", "", {"title": "x"}), ("POST", "/archive", None), ("POST", "/decisions", ARMS),
        ("POST", "/decisions/batch", {"decisions": [ARMS]}), ("PUT", "/decisions/x/reward", {"value": 1}),
        ("POST", "/decisions/x/rewards", {"value": 1}), ("POST", "/history", {"rewards": [1], "vectors": [[0, 1]]}),
        ("POST", "/rewards/batch", {"rewards": [{"decision": "x", "value": 1}]}),
    ],
)  # fmt: skip
def test_an_unknown_stream(service: Local, method: str, path: str, body: Any) -> None:
    for name in ("none", "a%20b", "x" * 300):
        answer = service.request(method, f"/v1/streams/{name}{path}", **({} if body is None else {"json": body}))
        assert read_problem(answer, 404)["code"] == "unknown-stream"


def test_unknown_paths_and_methods(service: Local) -> None:
    for path in ("/v2/streams", "/v1/streams/", "/v1/streams/shop/decide", "/page/none.js", "/page/../engine.py"):
        assert read_problem(service.get(path), 404)["code"] == "not-found"
    for method, path in (("DELETE", "/v1/streams/shop"), ("GET", "/v1/streams/shop/decisions"), ("PUT", "/healthz")):
        answer = service.request(method, path)
        assert read_problem(answer, 405)["code"] == "method-not-allowed"
        assert answer.headers["allow"]


def test_everything_is_there_after_a_restart(tmp_path: Path) -> None:
    paths = ("/v1/streams", "/v1/streams/shop", "/v1/streams/cafe", "/v1/streams/shop/events")
    with run_local(tmp_path / "a.db") as service:
        service.create("shop", title="Shop", reward_timeout=50)
        service.create("cafe", features=FEATURES)
        service.configure("shop", title="New", epsilon=0.5, reward_timeout="3d")
        service.archive("cafe")
        decision = service.decide("shop")["id"]
        service.reward(decision, 1.0, "shop")
        before = [service.get(path).text for path in paths]
    with run_local(tmp_path / "a.db") as service:
        assert [service.get(path).text for path in paths] == before
        assert service.reward(decision, 1.0, "shop").json()["status"] == "unchanged"


def test_each_setting_can_be_changed(service: Local) -> None:
    service.create("shop")
    changes: list[dict[str, Any]] = [
        {"title": "New"}, {"title": None}, {"reward_timeout": "1h"}, {"reward_timeout": 3}, {"default_reward": 0.5},
        {"default_reward": None}, {"learn": "at_timeout"}, {"learn": None}, {"max_pending": 2}, {"epsilon": 1.0},
        {"reward_timeout": None, "title": "Both"}, {},
    ]  # fmt: skip
    for change in changes:
        info = service.configure("shop", **change)
        assert info == service.info()
        assert {name: (info if name == "title" else info["settings"])[name] for name in change} == change
    assert [event["changes"] for event in service.events() if event["kind"] == "configured"] == changes[:-1]
    for _ in range(6):
        assert service.decide()["propensity"] == pytest.approx(1 / 3)
    assert service.info()["counts"]["dropped"] >= 3


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"reward_timeout": "soon"}, "#/reward_timeout"),
        ({"default_reward": 2}, "#/default_reward"),
        ({"default_reward": "1"}, "#/default_reward"),
        ({"learn": "never"}, "#/learn"),
        ({"max_pending": None}, "#/max_pending"),
        ({"max_pending": 1.5}, "#/max_pending"),
        ({"epsilon": -0.1}, "#/epsilon"),
        ({"epsilon": None}, "#/epsilon"),
        ({"title": 3}, "#/title"),
        ({"title": "x" * 201}, "#/title"),
        ({"dim": 3}, "#/dim"),
        ({"half_life": "2d"}, "#/half_life"),
        ({"title": "kept?", "default_reward": 2}, "#/default_reward"),
        ({"reward_timeout": "1h", "default_reward": -1}, "#/default_reward"),
    ],
)
def test_a_wrong_change_changes_nothing(service: Local, change: dict[str, Any], pointer: str) -> None:
    service.create("shop", title="Old", reward_timeout="1d", default_reward=0.0)
    before = service.state()
    assert read_pointers(service.patch("/v1/streams/shop", change))[0] == pointer
    assert service.state() == before
    assert service.events() == []


def test_an_archived_stream_is_only_read(service: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "TICK", 0.02)
    service.create("shop", reward_timeout="100ms")
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
    time.sleep(0.3)
    assert service.state() == before  # nor do timeouts pass
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
