"""Alerts: what keeps an agent from learning or predicting well is said, with what to do about it."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from support.agents import NOON, RED
from windvane import Agent
from windvane.agent import alerts
from windvane.agent.alerts import RecentShare

ARMS = {"arms": ["a", "b"]}


def live(agent: Agent, rounds: int, rate: float) -> None:
    luck = np.random.default_rng(1).random(rounds)
    for i in range(rounds):
        agent.reward(agent.decide(now=NOON + i), float(luck[i] < rate))


def codes(agent: Agent) -> list[str]:
    assert agent.info()["alerts"] == [alert._asdict() for alert in agent.alerts]
    return [alert.code for alert in agent.alerts]


@pytest.mark.parametrize("policy", ["adaptive", "BVD-GLM-UCB", "OnePassGLM"])
def test_a_norm_bound_that_is_too_small_is_reported(policy: str) -> None:
    """2 % clicks need log-odds of -3.9; with S = 1 and vectors of length 1 they cannot be below -1."""
    settings = {} if policy == "adaptive" else {"gamma": 0.99}
    agent = Agent(features=ARMS, policy=policy, S=1.0, **settings)
    live(agent, 40, 0.02)
    assert codes(agent) == []  # too few decisions to say
    live(agent, 300, 0.02)
    if policy == "OnePassGLM":
        assert agent.info()["recent_projected_share"] == 0.0  # it never projects, and has nothing to report
        return
    (alert,) = agent.alerts
    assert alert.code == "norm_bound_active"
    assert "S=1 " in alert.message
    assert "give a larger S, for example S=2" in alert.message
    assert agent.info()["recent_projected_share"] > 0.5
    assert codes(Agent.from_bytes(agent.to_bytes())) == ["norm_bound_active"]


def test_a_norm_bound_that_is_large_enough_is_not_reported() -> None:
    agent = Agent(features=ARMS, S=12.0)
    live(agent, 400, 0.1)
    assert codes(agent) == []


def test_an_alert_ends_when_recent_decisions_are_fine() -> None:
    agent = Agent(features=ARMS, S=1.0, half_life=20)
    live(agent, 300, 0.02)
    assert codes(agent) == ["norm_bound_active"]
    live(agent, 400, 0.5)
    assert codes(agent) == []
    assert agent.info()["projected_share"] > 0.2  # of all decisions ever


def test_the_advice_is_within_what_the_link_allows() -> None:
    assert "S cannot be larger" in alerts.norm_bound_active(RecentShare([True]), 29.0, 29.0).message
    assert "for example S=29" in alerts.norm_bound_active(RecentShare([True]), 20.0, 29.0).message


def test_a_timeout_beyond_the_memory_is_reported() -> None:
    agent = Agent(dim=2, wait=1000, missing=0.0, half_life=100)
    (alert,) = agent.alerts  # both count decisions: known from the start
    assert alert.code == "timeout_exceeds_memory"
    assert "learned 1e+03 decisions after" in alert.message
    assert "remembers only 145 decisions" in alert.message  # 100 / log 2, and a half
    assert codes(Agent(dim=2, wait=100, missing=0.0, half_life=100)) == []
    assert codes(Agent(dim=2, wait="2h", missing=0.0, half_life="1h")) == ["timeout_exceeds_memory"]
    assert codes(Agent(dim=2, wait="1h", missing=0.0, half_life="1h")) == []
    assert codes(Agent(dim=2, wait=1000, missing=0.0, half_life=100, learn="on_arrival")) == []


def test_a_timeout_within_the_memory_by_the_clock_is_not_reported_later_either() -> None:
    agent = Agent(dim=2, wait="1h", missing=0.0, half_life="2d")
    for i in range(300):
        agent.decide(RED, now=NOON + 60.0 * i)
        assert codes(agent) == []


def test_a_timeout_by_the_clock_is_compared_with_a_memory_in_decisions_once_it_is_known() -> None:
    agent = Agent(dim=2, wait="1h", missing=0.0, half_life=100)
    for i in range(140):
        agent.decide(RED, now=NOON + i)
    assert codes(agent) == []
    for i in range(140, 200):
        agent.decide(RED, now=NOON + i)
    assert codes(agent) == ["timeout_exceeds_memory"]


@pytest.mark.parametrize(
    "settings",
    [
        {"policy": "RestartGLB", "restart_every": 100}, {"policy": "RestartUCB", "restart_every": 100},
        {"policy": "BOB-BVD-GLM-UCB", "horizon": 1000}, {"policy": "SW-LinUCB", "window": 100},
    ],
)  # fmt: skip
def test_the_memory_of_policies_that_restart_is_known(settings: dict) -> None:
    """They learn nothing from before a restart."""
    assert codes(Agent(dim=2, wait=500, missing=0.0, **settings)) == ["timeout_exceeds_memory"]
    assert Agent(dim=2, **settings).memory <= 100


def test_misses_that_are_learned_after_rewards_are_reported() -> None:
    agent = Agent(dim=2, wait=10, missing=0.0, learn="on_arrival", policy="D-LinUCB", gamma=0.99)
    for i in range(200):
        decision = agent.decide(RED, now=NOON + i)
        if i % 3 == 0:
            agent.reward(decision, 1.0)
    (alert,) = agent.alerts
    assert alert.code == "misses_learned_late"
    assert 'set learn to "at_timeout"' in alert.message
    agent.configure(learn=None)
    assert codes(agent) == []
    always = Agent(dim=2, wait=10, missing=0.0, learn="on_arrival")
    for i in range(200):
        always.reward(always.decide(RED, now=NOON + i), float(i % 2))
    assert codes(always) == []


def test_dropped_decisions_are_reported() -> None:
    agent = Agent(dim=2, wait=1000, missing=0.0, max_pending=100)
    for _ in range(140):
        agent.decide(RED)
    assert codes(agent) == []
    for _ in range(60):
        agent.decide(RED)
    (alert,) = agent.alerts
    assert (alert.code, agent.dropped, agent.settled) == ("decisions_dropped", 100, 0)
    assert "max_pending=100" in alert.message
    assert codes(Agent.from_bytes(agent.to_bytes())) == ["decisions_dropped"]


def test_log_lines_are_few(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """One when an alert is first seen, then one in so many decisions while it lasts."""
    monkeypatch.setattr(alerts, "REPEAT", 500)
    agent = Agent(features=ARMS, S=1.0)
    with caplog.at_level(logging.WARNING, logger="windvane.agent"):
        live(agent, 1000, 0.02)
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2
    assert all(line.startswith("agent: norm_bound_active: ") for line in lines)
