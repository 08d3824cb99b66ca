"""Alerts: what keeps an agent from learning or predicting well is said, with what to do about it."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from support.agents import NOON, RED
from windvane import Agent
from windvane.agent import info

ARMS = {"arms": ["a", "b"]}
TIMEOUT = {"dim": 2, "default_reward": 0.0}


def live(agent: Agent, rounds: int, rate: float) -> None:
    luck = np.random.default_rng(1).random(rounds)
    for i in range(rounds):
        agent.reward(agent.decide(now=NOON + i), float(luck[i] < rate))


def codes(agent: Agent) -> list[str]:
    assert agent.info().alerts == agent.alerts
    return [alert.code for alert in agent.alerts]


@pytest.mark.parametrize("policy", ["adaptive", "BVD-GLM-UCB", "OnePassGLM"])
def test_a_norm_bound_that_is_too_small_is_reported(policy: str) -> None:
    """2 % clicks need log-odds of -3.9; with S = 1 and vectors of length 1 they cannot be below -1."""
    agent = Agent(features=ARMS, policy=policy, S=1.0, **{} if policy == "adaptive" else {"gamma": 0.99})
    live(agent, 40, 0.02)
    assert codes(agent) == []  # too few decisions to say
    live(agent, 300, 0.02)
    if policy == "OnePassGLM":
        assert agent.info().recent_projected_share == 0.0  # it never projects, and has nothing to report
        return
    assert codes(agent) == codes(Agent.from_bytes(agent.to_bytes())) == ["norm_bound_active"]
    assert "S=1 " in agent.alerts[0].message
    assert "for example S=2" in agent.alerts[0].message
    assert agent.info().recent_projected_share > 0.5


def test_an_alert_ends_when_recent_decisions_are_fine() -> None:
    agent, unbounded = (Agent(features=ARMS, S=S, half_life=20) for S in (1.0, 12.0))
    for rounds, rate, expected in ((300, 0.02, ["norm_bound_active"]), (400, 0.5, [])):
        for each in (agent, unbounded):
            live(each, rounds, rate)
        assert (codes(agent), codes(unbounded)) == (expected, [])
    assert agent.info().projected_share > 0.2  # of all decisions


def test_the_advice_is_within_what_the_link_allows() -> None:
    largest = Agent(dim=1).policy.reward_link.largest_product
    for S, advice in ((largest, "S cannot be larger"), (0.9 * largest, f"for example S={largest:.3g}")):
        agent = Agent(dim=1, S=S)
        agent.core.recently_projected = info.RecentShare([True] * info.FEWEST)
        assert advice in agent.alerts[0].message


LATE = [
    ({"reward_timeout": 1000, "half_life": 100}, True), ({"reward_timeout": 100, "half_life": 100}, False),
    ({"reward_timeout": "2h", "half_life": "1h"}, True), ({"reward_timeout": "1h", "half_life": "1h"}, False),
    ({"reward_timeout": 1000, "half_life": 100, "learn": "on_arrival"}, False),
    *(({"reward_timeout": 500, "policy": policy, length: size}, True) for policy, length, size in (
        ("RestartGLB", "restart_every", 100), ("RestartUCB", "restart_every", 100), ("SW-LinUCB", "window", 100),
        ("BOB-BVD-GLM-UCB", "horizon", 1000),
    )),
]  # fmt: skip


@pytest.mark.parametrize(("settings", "is_reported"), LATE)
def test_a_timeout_beyond_the_memory_is_reported_from_the_start(settings: dict, is_reported: bool) -> None:
    agent = Agent(**TIMEOUT, **settings)
    assert codes(agent) == ["timeout_exceeds_memory"] * is_reported
    if "policy" in settings:
        assert agent.memory <= 100
    elif is_reported and settings["half_life"] == 100:
        assert "learned 1e+03 decisions after" in agent.alerts[0].message
        assert "remembers only 145 decisions" in agent.alerts[0].message  # 100 / log 2, and a half


@pytest.mark.parametrize(("half_life", "gap", "since"), [("2d", 60.0, None), (100, 1.0, 145)])
def test_a_timeout_by_the_clock_and_a_memory(half_life: object, gap: float, since: int | None) -> None:
    """Within the memory it is never reported; a memory in decisions is compared once the lag is known."""
    agent = Agent(**TIMEOUT, reward_timeout="1h", half_life=half_life)
    for i in range(200):
        agent.decide(RED, now=NOON + gap * i)
        if i % 20 == 0 or i == 199:
            assert codes(agent) == ["timeout_exceeds_memory"] * (since is not None and i >= since)


def test_misses_that_are_learned_after_rewards_are_reported() -> None:
    for every, code in ((3, ["misses_learned_late"]), (1, [])):
        agent = Agent(**TIMEOUT, reward_timeout=10, learn="on_arrival", policy="D-LinUCB", gamma=0.99)
        for i in range(200):
            decision = agent.decide(RED, now=NOON + i)
            if i % every == 0:
                agent.reward(decision, float(i % 2))
        assert codes(agent) == code
        agent.configure(learn=None)
        assert codes(agent) == []


def test_dropped_decisions_are_reported() -> None:
    agent = Agent(**TIMEOUT, reward_timeout=1000, max_pending=100)
    for i in range(200):
        assert codes(agent) == [] or i > 140
        agent.decide(RED)
    assert codes(agent) == codes(Agent.from_bytes(agent.to_bytes())) == ["decisions_dropped"]
    assert (agent.info().counts.dropped, agent.info().counts.settled) == (100, 0)
    assert "max_pending=100" in agent.alerts[0].message


def test_log_lines_are_few(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """One when an alert is first seen, then one in so many decisions while it lasts."""
    monkeypatch.setattr(info, "LOG_AGAIN", 500)
    agent = Agent(features=ARMS, S=1.0)
    with caplog.at_level(logging.WARNING, logger="windvane.agent"):
        live(agent, 1000, 0.02)
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2
    assert all(line.startswith("agent: norm_bound_active: ") for line in lines)
