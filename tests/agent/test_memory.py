"""The information half-life of every kind of forgetting, and how the pace of decisions turns it into time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.agents import LIVE, NOON, RED, build_agent
from windvane import Agent
from windvane.agent.memory import CALM_TEXTS, describe_seconds, find_half_life, half_life_of
from windvane.agent.pace import STEP, Pace

DAY = 86400.0


# --- half-life -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("policy", "settings", "expected"), [
    ("adaptive", {"half_life": 500}, 500.0), ("adaptive", {"gamma": 0.99}, math.log(0.5) / math.log(0.99)),
    ("D-LinUCB", {"half_life": 20}, 20.0), ("BVD-GLM-UCB", {"gamma": 0.9}, math.log(0.5) / math.log(0.9)),
    ("SW-LinUCB", {"window": 100}, 50.0), ("RestartUCB", {"restart_every": 300}, 150.0), ("OFUL", {}, math.inf),
    ("D-LinUCB", {"gamma": 1.0}, math.inf),
])  # fmt: skip
def test_the_half_life_of_a_fixed_memory(policy: str, settings: dict[str, Any], expected: float) -> None:
    agent = Agent(dim=2, policy=policy, **settings)
    assert half_life_of(agent.policy) == pytest.approx(expected, rel=1e-9)
    half_life = agent.info().half_life
    if math.isinf(expected):
        assert (half_life.decisions, half_life.text) == (None, "none, nothing is forgotten")
    else:
        assert half_life.decisions == pytest.approx(expected)
        assert (half_life.seconds, half_life.text) == (None, f"{expected:.{expected < 10:d}f} decisions")


@given(st.lists(st.tuples(st.floats(1.5, 1e9), st.floats(0.0, 1.0)), min_size=1, max_size=6), st.floats(0.0, 1.0))
def test_the_half_life_of_a_mixture(experts: list[tuple[float, float]], static: float) -> None:
    """Half of the mixture is gone then, or never where experts without drift have half of the weight."""
    memories, weights = [*(m for m, _ in experts), math.inf], np.array([*(w for _, w in experts), static + 1e-9])
    weights /= weights.sum()
    k = find_half_life(memories, weights.tolist())
    if math.isinf(k):
        assert weights[-1] >= 0.5 - 1e-12
    else:
        remaining = weights[:-1] @ [math.exp(k * math.log1p(-1.0 / m)) for m, _ in experts] + weights[-1]
        assert remaining == pytest.approx(0.5, abs=1e-9)


def test_the_half_life_in_words() -> None:
    texts = {name: build_agent(name).info().half_life.text for name in ("BOB", "MASTER-OFUL", "DetectGLMUCB", "OFUL")}
    restarts = "none, the policy forgets only when it restarts"
    forever = "none, nothing is forgotten"
    assert texts == {"BOB": "1 decision", "MASTER-OFUL": restarts, "DetectGLMUCB": restarts, "OFUL": forever}


def test_experts_that_forget_at_once() -> None:
    """Rewards that count a billion times say so much that nothing before them matters: a memory of one round."""
    agent, rewards = Agent(dim=1, link="identity", S=1000.0, reward_range=(-1, 1)), np.sin(np.arange(60))
    agent.history(rewards, [[1.0]] * 60, weights=[1e9] * 60)
    half_life = agent.info().half_life
    assert half_life.decisions is not None
    assert 0.0 < half_life.decisions < 0.1
    assert 0.0 < find_half_life([1.0, math.inf], [0.9, 0.1]) < 0.1


def test_the_adaptive_policy_shows_what_it_learned() -> None:
    rng = np.random.default_rng(0)
    steady, moving = Agent(features={"arms": ["a", "b"]}), Agent(features={"arms": ["a", "b"]})
    for i in range(3000):
        for agent, good in ((steady, "a"), (moving, "ab"[i // 100 % 2])):
            decision = agent.decide(now=NOON + 60 * i)
            agent.reward(decision, float(rng.random() < (0.9 if decision.arm == good else 0.1)))
    assert steady.info().half_life.text == "none, the rewards fit a world without drift"
    half_life = moving.info().half_life
    assert half_life.decisions is not None
    assert 5 < half_life.decisions < 100  # the good arm changes every 100 decisions
    assert half_life.seconds == pytest.approx(60 * half_life.decisions)
    assert half_life.text.endswith((" minutes", " hours", " hour"))


def test_the_half_life_and_the_verdict_on_drift_do_not_contradict_each_other() -> None:
    """A world that changes often and then becomes calm: the verdict is about all rewards, the half-life about the
    latest ones, and its text says so."""
    rng, agent = np.random.default_rng(0), Agent(features={"arms": ["a", "b"]})
    assert agent.info().half_life.decisions is not None  # of the prior, which expects some drift
    for i in range(8000):
        decision = agent.decide(now=NOON + 60 * i)
        good = "ab"[min(i, 3000) // 100 % 2]
        agent.reward(decision, float(rng.random() < (0.8 if decision.arm == good else 0.2)))
        if i % 100 == 99 and (info := agent.info()).half_life.decisions is None:
            assert info.drift is not None
            assert info.half_life.text == CALM_TEXTS[info.drift.verdict]
    assert info.drift is not None
    assert info.drift.verdict == "drift"
    assert info.half_life.text.startswith("none now: the latest rewards fit a world without drift")


@pytest.mark.parametrize("name", LIVE)
def test_info_of_every_policy_has_its_estimate(name: str) -> None:
    """It is read without the matrices of the policy's own ``info()``."""
    agent = build_agent(name)
    for i in range(12):
        agent.reward(agent.decide(RED, now=NOON + i), float(i % 3 == 0))
    before, full = agent.to_bytes(), agent.policy.info().theta_hat
    info = agent.info()
    np.testing.assert_allclose(
        list(info.theta.values()), np.zeros(2) if full is None else full[0], rtol=1e-6, atol=1e-9
    )
    assert (info.half_life.decisions is None) == (half_life_of(agent.policy) == math.inf)
    assert agent.to_bytes() == before


def test_lengths_of_time_in_words() -> None:
    lengths = [2.3 * DAY, DAY, 40 * DAY, 5400.0, 60.0, 1.0, 0.25]
    words = ["2.3 days", "1 day", "40 days", "1.5 hours", "1 minute", "1 second", "0.2 seconds"]
    assert [describe_seconds(seconds) for seconds in lengths] == words


# --- the pace of decisions -------------------------------------------------------------------------------------------


def fill(times: np.ndarray) -> Pace:
    pace = Pace()
    for time in times[::STEP].tolist():
        pace.mark(time)
    return pace


@given(st.lists(st.floats(0.0, 1e4), min_size=1, max_size=700), st.floats(0.1, 900.0))
def test_the_pace_is_that_of_the_last_decisions(gaps: list[float], decisions: float) -> None:
    """Between the two times that are known around it, or by the mean pace if there were not so many."""
    times = NOON + np.cumsum(gaps)
    pace, last = fill(times), (len(times) - 1) // STEP * STEP  # the last that is marked
    seconds, elapsed = pace.seconds_of(decisions), float(times[last] - times[0])
    if elapsed == 0.0:
        assert seconds is None
    elif decisions >= last:
        assert seconds == pytest.approx(elapsed / last * decisions)
    else:
        reach = STEP + decisions / 4  # the distance of two times that are kept, at this age
        early, late = max(0, math.floor(last - decisions - reach)), min(last, math.ceil(last - decisions + reach))
        assert times[last] - times[late] <= (seconds or 0.0) + 1e-3 <= times[last] - times[early] + 2e-3
    again = Pace()
    again.restore(len(times), pace.to_plain())
    for each in (again, pace):
        each.mark(NOON + 1e8)
    assert again.to_plain() == pace.to_plain()


def test_a_pace_with_nights_and_a_long_life() -> None:
    """A decision a minute for twelve hours a day: 1440 decisions took two days, not one; little is kept."""
    times = NOON + np.concatenate([day * DAY + 60.0 * np.arange(720) for day in range(100)])
    times = times[: -360 + STEP + 1]  # as seen at midday
    pace, times = fill(times), times[: (len(times) - 1) // STEP * STEP + 1]
    for days in (1, 2, 10, 50):
        assert pace.seconds_of(720.0 * days) == pytest.approx(days * DAY, rel=0.15)
        assert pace.decisions_in(days * DAY) == pytest.approx(720.0 * days, rel=0.15)
    assert pace.seconds_of(1e6) == pytest.approx(1e6 * (times[-1] - times[0]) / (len(times) - 1))
    assert pace.decisions_in(1e8) == pytest.approx(1e8 / (times[-1] - times[0]) * (len(times) - 1))
    assert sum(map(len, pace.levels)) < 150
    assert pace.per_second == pytest.approx(1000 / pace.seconds_of(1000.0))  # type: ignore[operator]
    assert Pace().per_second is None


@pytest.mark.parametrize("half_life", ["2d", 120])
def test_the_half_life_in_both_units(half_life: object) -> None:
    agent = Agent(dim=2, half_life=half_life)
    for i in range(500):
        agent.decide(RED, now=NOON + 1440 * i)  # sixty a day
    seen = Agent.from_bytes(agent.to_bytes()).info()
    assert seen == agent.info()
    assert seen.half_life.decisions == pytest.approx(120.0)
    assert seen.half_life.seconds == pytest.approx(2 * DAY)
    assert seen.half_life.text == "2 days"
    assert seen.decisions_per_second == pytest.approx(1 / 1440)
