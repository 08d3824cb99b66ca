"""What a stream does with decisions, rewards, keys, timeouts, history and changes: what the library's agent does."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.server import ARMS, Local, read_problem, run_local, until
from windvane import Agent
from windvane.records import to_plain
from windvane.service import engine as engines

FEATURES = {
    "shared": {"age": {"low": 0, "high": 100}},
    "per_arm": {"price": {"low": 0, "high": 10}},
    "by_arm": {"device": {"values": ["phone", "desk"]}},
    "arms": ["a", "b", "c"],
}


# --- as the library ------------------------------------------------------------------------------------------------

SETTINGS: list[dict[str, Any]] = [
    {"seed": 3, "reward_timeout": 4.0, "default_reward": 0.0, "learn": "on_arrival"},
    {"epsilon": 0.3, "reward_timeout": "20m", "default_reward": 0.0, "learn": "early"},
    {"half_life": "1h", "max_pending": 5, "clip": True, "L": 0.5},
    {"link": "identity", "reward_range": [0.0, 2.0], "S": 2.0, "seed": 7},
    {"link": "poisson", "reward_range": [0.0, 4.0], "half_life": 50.0},
    {"epsilon": 0.3, "seed": 11, "reward_timeout": 4.0, "default_reward": 0.0},
    {"scaling": {"center": [0.1, 0.2], "spread": [2.0, 1.0]}, "prior": [1.0, -1.0, 0.5], "intercept": True},
    {"prior_weight": 3.0, "prior": [1.0, -1.0]},
    {"policy": "OFUL", "settings": {"lam": 2.0, "delta": 0.1}},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda s: next(reversed(s)))
def test_the_service_decides_as_the_library_does(clock: list[float], service: Local, settings: dict[str, Any]) -> None:
    """The same rounds at the same times, through HTTP and with an Agent: the same answers and bytes."""
    arguments = {name: value for name, value in settings.items() if name != "settings"}
    agent, rng = Agent(dim=2, **arguments, **settings.get("settings", {})), np.random.default_rng(4)
    service.create(**settings)
    for i in range(25):
        clock[0] = round(clock[0] + float(rng.uniform(0, 600)), 6)
        arms = {name: rng.uniform(-0.6, 0.6, 2).round(6).tolist() for name in ("red", "blue", "green")}
        answer = service.decide(body={"arms": arms})
        agent.core.expire(now=clock[0], room=1)  # the service closes what has expired before all else, to log it
        assert answer == to_plain(agent.decide(arms, now=clock[0], id=answer["id"]))
        if i % 4:
            value = round(float(rng.uniform(0, settings.get("reward_range", [0, 1])[1])), 3)
            receipt = {"decision": answer["id"], "status": "recorded", "value": value}
            assert service.reward(answer["id"], value).json() == receipt
            agent.expire(now=clock[0])
            assert agent.reward(answer["id"], value, now=clock[0]) == "recorded"
    info, expected = service.info(), to_plain(agent.info())
    assert {name: info[name] for name in expected} == expected
    assert service.call(service.engine.streams["shop"].core.pack()) == agent.to_bytes()


def test_what_is_learned_does_not_depend_on_how_fast_rewards_arrive(clock: list[float], service: Local) -> None:
    """The same decisions and outcomes, with the positive rewards at once or just before the timeout."""
    thetas = []
    for name, lag in (("fast", 0), ("slow", 3)):
        service.create(name, reward_timeout=4, default_reward=0.0)
        ids = []
        for i in range(60):
            ids.append(service.decide(name, {"arms": {"only": [0.6, 0.1 * (i % 5)]}})["id"])
            if (i - lag) % 3 == 0 and 0 <= i - lag < 50:
                assert service.reward(ids[i - lag], 1.0, name).json()["status"] == "recorded"
        thetas.append(service.info(name)["theta"])
    assert thetas[0] == thetas[1]


# --- rewards -------------------------------------------------------------------------------------------------------


def test_parts_of_a_reward_add_up(clock: list[float], service: Local) -> None:
    service.create(reward_timeout=3, default_reward=0.0)
    decision, whole, late = (service.decide()["id"] for _ in range(3))
    for part, total, key in ((0.25, 0.25, "a"), (0.5, 0.75, "b"), (0.25, 0.25, "a"), (0.5, 0.75, "b")):
        answer = service.add_reward(decision, part, headers={"idempotency-key": key})
        assert answer.json() == {"decision": decision, "status": "recorded", "value": total}  # repeated by the key
    for other, part in ((decision, 0.1), (whole, 0.25)):
        problem = read_problem(service.add_reward(other, part, headers={"idempotency-key": "a"}), 409)
        assert problem["code"] == "key-reused"
    assert read_problem(service.add_reward(decision, 0.5), 422)["errors"][0]["pointer"] == "#/value"  # the sum is 1.25
    assert read_problem(service.reward(decision, 0.75), 409)["code"] == "conflict"
    assert service.get(f"/v1/streams/shop/decisions/{decision}").json()["reward"] == 0.75
    assert read_problem(service.add_reward("nobody", 1.0), 404)["code"] == "unknown-decision"
    service.reward(whole, 1.0)
    assert read_problem(service.add_reward(whole, 0.1), 409)["code"] == "conflict"
    for _ in range(6):
        service.decide()
    assert service.info()["mean_reward"] == pytest.approx((0.75 + 1.0) / service.info()["counts"]["settled"])
    for total, key in ((0.5, "x"), (1.0, "y"), (0.5, "x")):
        answer = service.add_reward(late, 0.5, headers={"idempotency-key": key})
        assert answer.json() == {"decision": late, "status": "expired", "value": total}
    kinds = [event["kind"] for event in service.events() if event["decision"] in (decision, late)]
    assert kinds == ["decided", "decided", "reward_part", "reward_part", "late", "late"]
    service.create("other")
    assert read_problem(service.add_reward(service.decide("other")["id"], 0.5, "other"), 422)["code"] == "invalid"


def test_what_the_agent_has_forgotten_is_in_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys, rewards, parts and late rewards are known for ever, after a restart too."""
    monkeypatch.setattr("windvane.agent.pending.REMEMBERED", 3)
    with run_local(tmp_path / "a.db") as service:
        service.create(reward_timeout=20, learn="at_timeout")
        made = [service.decide(key=f"k{i}") for i in range(10)]
        for one in made[:5]:
            assert service.reward(one["id"], 1.0).json()["status"] == "recorded"
        parts = service.add_reward(made[5]["id"], 0.5, headers={"idempotency-key": "p"}).json()
        for _ in range(50):
            service.decide()
        count = len(service.events())
    for _ in range(2):
        with run_local(tmp_path / "a.db") as service:
            assert [service.decide(key=f"k{i}") for i in range(10)] == made
            for one in made[:5]:
                assert service.reward(one["id"], 1.0).json()["status"] == "unchanged"
                assert read_problem(service.reward(one["id"], 0.0), 409)["code"] == "conflict"
            assert service.add_reward(made[5]["id"], 0.5, headers={"idempotency-key": "p"}).json() == parts
            assert read_problem(service.reward(made[5]["id"], 0.5), 409)["code"] == "conflict"
            more = service.add_reward(made[5]["id"], 0.25, headers={"idempotency-key": "more"}).json()
            assert (more["status"], more["value"]) == ("expired", 0.25)
            for _ in range(3):
                assert service.reward(made[9]["id"], 1.0).json()["status"] == "expired"
            assert read_problem(service.reward(made[9]["id"], 0.0), 409)["code"] == "conflict"
            part = service.add_reward(made[8]["id"], 0.5, headers={"idempotency-key": "late"})
            assert part.json() == {"decision": made[8]["id"], "status": "expired", "value": 0.5}
            kinds = [event["kind"] for event in service.events()[count:]]
            assert sorted(kind for kind in kinds if kind != "closed") == ["late"] * 3


# --- timeouts ------------------------------------------------------------------------------------------------------


def test_a_reward_is_acknowledged_at_once_and_learned_at_the_timeout(clock: list[float], service: Local) -> None:
    service.create(reward_timeout=3, default_reward=0.0)
    first, second = service.decide()["id"], service.decide()["id"]
    start = service.info()
    assert (start["learn"], start["settings"]["learn"]) == ("at_timeout", None)
    assert service.reward(second, 1.0).json()["status"] == "recorded"
    held = service.info()
    assert held["theta"] == start["theta"]
    expected = {"rewards": 1, "held": 1, "pending": 1, "settled": 0}
    assert {name: held["counts"][name] for name in expected} == expected
    assert service.get(f"/v1/streams/shop/decisions/{second}").json()["status"] == "rewarded"
    assert read_problem(service.reward(second, 0.5), 409)["code"] == "conflict"
    for _ in range(5):
        service.decide()
    closed = [event for event in service.events() if event["kind"] == "closed"]
    assert [(event["decisions"], event["learned"]) for event in closed] == [([first], [0.0]), ([second], [1.0])]
    after = service.info()
    assert after["theta"] != start["theta"]
    expected = {"rewards": 1, "held": 0, "settled": 2, "defaulted": 1, "expired": 1}
    assert {name: after["counts"][name] for name in expected} == expected
    assert after["mean_reward"] == 0.5
    assert service.reward(first, 1.0).json()["status"] == "expired"


@pytest.mark.parametrize(
    "settings", [{"max_pending": 4}, {"reward_timeout": 3}, {"max_pending": 1, "reward_timeout": 9}]
)
def test_whatever_closes_a_decision_is_logged(clock: list[float], service: Local, settings: dict[str, Any]) -> None:
    """Also if it makes room for another; also if the operation itself is refused."""
    service.create(**settings)
    made = [service.decide()["id"] for _ in range(12)]
    assert read_problem(service.reward(made[-1], 9.0), 422)["code"] == "invalid"
    closed = [id_ for event in service.events() if event["kind"] == "closed" for id_ in event["decisions"]]
    counts, end = service.info()["counts"], "dropped" if "max_pending" in settings else "expired"
    assert closed == made[: len(closed)]
    assert len(closed) == counts[end] >= 8
    assert counts["pending"] == 12 - len(closed)
    recent = service.get("/v1/streams/shop/charts").json()["recent"]
    assert [row["status"] for row in recent][: len(closed)] == [end] * len(closed)


def test_a_decision_that_is_refused_closes_none(service: Local) -> None:
    service.create(max_pending=1)
    made = service.decide()
    for arms in ({"a": [30, 40]}, {}):
        assert read_problem(service.post("/v1/streams/shop/decisions", {"arms": arms}), 422)["code"] == "invalid"
    assert service.reward(made["id"], 1.0).json()["status"] == "recorded"


# --- changes, archives, restarts -----------------------------------------------------------------------------------


def test_a_change_of_learn_leaves_held_rewards_to_their_timeout(clock: list[float], service: Local) -> None:
    service.create(reward_timeout=2, default_reward=0.0)
    service.reward(service.decide()["id"], 1.0)
    counts = service.configure(learn="on_arrival")["counts"]
    assert (counts["held"], counts["settled"]) == (1, 0)
    before = service.state()
    problem = read_problem(service.patch("/v1/streams/shop", {"reward_timeout": None, "default_reward": None}), 422)
    assert problem["errors"][0]["pointer"] == "#/reward_timeout"
    assert service.state() == before
    for _ in range(4):
        service.decide()
    info = service.info()
    assert (info["counts"]["held"], info["counts"]["settled"], info["mean_reward"]) == (0, 1, 1.0)


@pytest.mark.parametrize("end", ["crash", "stop"])
def test_everything_is_there_after_a_restart(tmp_path: Path, end: str) -> None:
    """Through the log alone, and through a snapshot."""
    service = Local(tmp_path / "a.db")
    service.create(title="Shop", reward_timeout=50, default_reward=0.0)
    service.create("cafe", features=FEATURES)
    service.configure(title="New", epsilon=0.5)
    service.archive("cafe")
    made = [service.decide()["id"] for _ in range(20)]
    for decision in made[::3]:
        service.reward(decision, 1.0)
    before = service.info(), service.info("cafe"), service.events(), service.state()
    getattr(service, end)()
    with run_local(tmp_path / "a.db") as service:
        assert (service.info(), service.info("cafe"), service.events(), service.state()) == before
        assert (before[0]["title"], before[0]["counts"]["held"]) == ("New", 7)
        assert service.reward(made[0], 1.0).json()["status"] == "unchanged"


def test_alerts_are_logged_with_the_stream_and_rarely(
    service: Local, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without any clicks, the estimate soon lies at the bound S = 1 in every decision."""
    monkeypatch.setattr(engines, "TICK", 0.01)
    service.create(S=1.0, half_life=50)
    with caplog.at_level(logging.WARNING, logger="windvane.agent"):
        for _ in range(3):
            answer = service.post("/v1/streams/shop/decisions/batch", {"decisions": [ARMS] * 200})
            ids = [result["decision"]["id"] for result in answer.json()["results"]]
            rewards = [{"decision": id_, "value": 0.0} for id_ in ids]
            assert service.post("/v1/streams/shop/rewards/batch", {"rewards": rewards}).status_code == 200
        lines = until(lambda: [r.getMessage() for r in caplog.records if r.name == "windvane.agent"])
        time.sleep(0.1)
    assert [alert["code"] for alert in service.info()["alerts"]] == ["norm_bound_active"]
    assert len(lines) == 1
    assert lines[0].startswith("stream 'shop': norm_bound_active: ")
