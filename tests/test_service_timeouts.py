"""The service with rewards that are learned at the timeout, and its alerts: answers, log, metrics, replay."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from serving import ARMS, Local, clean, local, until
from windvane.agent import alerts
from windvane.service import engine as engines


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Local]:
    with local(tmp_path / "a.db") as running:
        yield running


def test_a_reward_is_acknowledged_logged_and_shown_at_once_and_learned_at_the_timeout(service: Local) -> None:
    service.create(wait=3, missing=0.0)
    first, second = service.decide()["decision"], service.decide()["decision"]
    start = service.get("/v1/streams/shop").json()
    assert (start["learn"], start["config"]["learn"]) == ("at_timeout", None)
    assert service.reward(second, 1.0).json() == {"decision": second, "learnt": True}
    held = service.get("/v1/streams/shop").json()
    assert held["theta"] == start["theta"]
    counts = {"rewards": 1, "held": 1, "pending": 1, "settled": 0, "mean_reward": None}
    assert {name: held[name] for name in counts} == counts
    assert [row["state"] for row in held["statistics"]["recent"]] == ["pending", "rewarded"]
    assert service.log()[-1]["kind"] == "rewarded"
    assert service.get(f"/v1/streams/shop/decisions/{second}").json()["state"] == "rewarded"
    assert service.reward(second, 1.0).json()["learnt"] is False
    clean(service.reward(second, 0.5), 409)
    for _ in range(4):
        service.decide()
    closed = [event for event in service.log() if event["kind"] == "expired"]
    assert [(event["decisions"], event["learned"]) for event in closed] == [([first], [0.0])]
    service.decide()
    after = service.get("/v1/streams/shop").json()
    assert after["theta"] != start["theta"]
    counts = {"rewards": 1, "held": 0, "settled": 2, "defaulted": 1, "expired": 1, "mean_reward": 0.5}
    assert {name: after[name] for name in counts} == counts
    (bucket,) = after["statistics"]["buckets"]
    assert (bucket["rewards"], bucket["total"]) == (2, 1.0)
    clean(service.reward(first, 1.0), 410)


def test_a_change_of_learn_leaves_what_is_held_to_its_timeout(service: Local) -> None:
    service.create(wait=2, missing=0.0)
    decision = service.decide()["decision"]
    service.reward(decision, 1.0)
    answer = service.request("PATCH", "/v1/streams/shop", json={"learn": "on_arrival"}).json()
    assert (answer["held"], answer["settled"]) == (1, 0)
    error = clean(service.request("PATCH", "/v1/streams/shop", json={"wait": None, "missing": None}), 422)
    assert error["field"] == "wait"
    for _ in range(4):
        service.decide()
    state = service.get("/v1/streams/shop").json()
    assert (state["held"], state["settled"], state["mean_reward"]) == (0, 1, 1.0)


@pytest.mark.parametrize(
    ("body", "field"),
    [({"missing": 0.0}, "missing"), ({"learn": "at_timeout"}, "learn"), ({"learn": "soon", "wait": 3}, "learn")],
)
def test_settings_that_contradict_each_other_are_refused(service: Local, body: dict[str, Any], field: str) -> None:
    error = clean(service.post("/v1/streams", {"name": "wrong", "dim": 2, **body}), 422)
    assert error["field"] == field
    service.create()
    assert clean(service.request("PATCH", "/v1/streams/shop", json=body), 422)["field"] == field


def test_held_rewards_survive_a_crash_and_a_stop(tmp_path: Path) -> None:
    """Through the log alone, and through a snapshot."""
    for end in ("crash", "stop"):
        service = Local(tmp_path / f"{end}.db")
        service.create(wait=50, missing=0.0)
        made = [service.decide()["decision"] for _ in range(20)]
        for decision in made[::3]:
            service.reward(decision, 1.0)
        before = service.state()
        getattr(service, end)()
        with local(tmp_path / f"{end}.db") as again:
            assert again.state() == before
            assert again.get("/v1/streams/shop").json()["held"] == 7
            assert again.reward(made[0], 1.0).json()["learnt"] is False


def test_early_learning_is_replayed_to_the_last_bit(tmp_path: Path) -> None:
    """Looks happen inside of decisions: the log of decisions, rewards and closings is enough."""
    service = Local(tmp_path / "a.db")
    service.create(wait=30, missing=0.0, learn="early")
    made: list[str] = []
    for i in range(200):
        made.append(service.decide()["decision"])
        if i > 5 and i % 3:
            service.reward(made[-1 - i % 5], 1.0)
    assert service.engine.streams["shop"].agent.settled > 100
    before = service.state()
    service.crash()
    with local(tmp_path / "a.db") as again:
        assert again.state() == before
        for _ in range(10):
            again.decide()


def live_at_the_bound(service: Local, rounds: int) -> None:
    """No clicks at all: the estimate soon lies at the bound S = 1 in every decision."""
    service.create(S=1.0, half_life=50)
    items = [ARMS] * rounds
    answer = service.post("/v1/streams/shop/decide/batch", {"items": items}).json()
    ids = [result["answer"]["decision"] for result in answer["results"]]
    service.post("/v1/streams/shop/reward/batch", {"items": [{"decision": one, "value": 0.0} for one in ids]})
    service.post("/v1/streams/shop/decide/batch", {"items": items})


def test_alerts_are_in_the_state_the_list_and_the_metrics(service: Local) -> None:
    live_at_the_bound(service, 200)
    (alert,) = service.get("/v1/streams/shop").json()["alerts"]
    assert alert["code"] == "norm_bound_active"
    assert "give a larger S" in alert["message"]
    share = service.get("/v1/streams/shop").json()["recent_projected_share"]
    assert share > 0.5
    assert service.get("/v1/streams").json()["streams"][0]["alerts"] == [alert]
    metrics = service.get("/metrics").text
    assert 'windvane_alert{code="norm_bound_active",stream="shop"} 1.0' in metrics
    assert 'windvane_alert{code="decisions_dropped",stream="shop"} 0.0' in metrics
    assert f'windvane_recent_projected_share{{stream="shop"}} {share}' in metrics
    for name in ("settled_total", "dropped_total", "held"):
        assert f'windvane_{name}{{stream="shop"}}' in metrics


def test_alerts_are_logged_with_the_stream_and_rarely(
    service: Local, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with caplog.at_level(logging.WARNING, logger="windvane.agent"):
        monkeypatch.setattr(engines, "TICK", 0.01)
        live_at_the_bound(service, 200)
        lines = until(lambda: [r.getMessage() for r in caplog.records if r.name == alerts.log.name])
        service.post("/v1/streams/shop/decide/batch", {"items": [ARMS] * 300})
        service.post("/v1/streams/shop/decide/batch", {"items": [ARMS] * 300})
    lines = [r.getMessage() for r in caplog.records if r.name == alerts.log.name]
    assert len(lines) == 1, json.dumps(lines)
    assert lines[0].startswith("stream 'shop': norm_bound_active: the estimate was at the norm bound S=1 ")
