"""Time: durations, moments, the clock, and forgetting by decisions or by the clock."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pytest

from support.agents import INF, NAN, NOON, RED, arm_sets, refuses, weighted_sums
from support.refusals import rejects
from support.worlds import ball
from windvane import Agent, theory
from windvane.agent.times import TICK, parse_duration, to_seconds


@pytest.mark.parametrize(
    ("text", "length"),
    [("2d", 172_800.0), ("36h", 129_600.0), ("1h30m", 5400.0), ("250 ms", 0.25), ("1w 2d", 777_600.0), ("1.5s", 1.5),
     ("1 day", 86_400.0), ("2 weeks 1 hour", 1_213_200.0), ("1hour30minutes", 5400.0), ("90 seconds", 90.0)],
)  # fmt: skip
def test_durations(text: str, length: float) -> None:
    assert parse_duration("reward_timeout", text) == pytest.approx(length, rel=1e-15)
    agent = Agent(dim=2, half_life=timedelta(seconds=length), reward_timeout=timedelta(seconds=length))
    assert agent.memory == pytest.approx(Agent(dim=2, half_life=text).memory)
    assert agent.core.reward_timeout == (length, True)


@pytest.mark.parametrize("text", ["1 month", "1 dayx", "1 dy", "day", "1 day ago", "1 DAY", "1d2", "1.d"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with rejects("reward_timeout") as caught:
        Agent(dim=1, reward_timeout=text)
    assert "words such as days" in caught.value.expected


def test_datetimes_texts_and_seconds_are_the_same_time() -> None:
    at = datetime(2024, 5, 1, 12, 0, 0, 123_456, tzinfo=timezone(timedelta(hours=2)))
    decisions = [Agent(dim=2).decide(RED, now=now, id="a") for now in (at, at.timestamp(), at.isoformat())]
    assert decisions[0] == decisions[1] == decisions[2]
    assert decisions[0].time == at
    assert decisions[0].time.utcoffset() == timedelta(0)
    assert to_seconds("now", 0.123_456_789) == 0.123_457  # to the microsecond
    assert datetime.now(UTC) - Agent(dim=2).decide(RED).time < timedelta(minutes=10)  # the clock's by default


NO_TIMES = [
    "noon", NAN, INF, 1e11, [NOON], np.array([NOON]), b"1", 1j, {}, np.datetime64("2024-01-01"),
    datetime(2024, 1, 1), datetime.max.replace(tzinfo=UTC), "2024-01-01T00:00:00",
]  # fmt: skip


@pytest.mark.parametrize("now", NO_TIMES, ids=repr)
def test_what_is_no_time_is_refused(now: object) -> None:
    agent = Agent(dim=2, half_life="1d", reward_timeout="1d", learn="at_timeout")
    agent.decide(RED, now=NOON, id="a")
    for call in (
        lambda: agent.decide(RED, now=now),
        lambda: agent.reward("a", 1.0, now=now),
        lambda: agent.add_reward("a", 1.0, now=now),
        lambda: agent.expire(now),
        lambda: agent.history([1.0], [[0.1, 0.1]], times=[NOON], now=now),
    ):
        refuses(agent, "now", call)


@pytest.mark.parametrize(
    ("settings", "scale", "is_clock"),
    [
        ({"half_life": "10s"}, 10.0, True), ({"half_life": "2d"}, 172_800.0, True),
        ({"half_life": "1h30m"}, 5400.0, True), ({"half_life": 7.0}, 7.0, False),
        ({"gamma": 0.5 ** (1 / 7)}, 7.0, False),
    ],
)  # fmt: skip
def test_forgetting_is_a_weighted_sum(settings: dict, scale: float, is_clock: bool) -> None:
    """V = lam I + sum 2^(-age/half_life) x x', whatever the gaps, and in whatever order the rewards come."""
    rng = np.random.default_rng(3)
    x, rewards = ball(rng, (30,), 3), rng.normal(size=30)
    times = NOON + np.cumsum(rng.exponential(0.4 * scale, 30))
    agent = Agent(dim=3, policy="D-LinUCB", **settings)
    ids = [agent.decide(row[None], now=at).id for row, at in zip(x, times, strict=True)]  # all before any reward
    for i in rng.permutation(30):
        agent.reward(ids[i], rewards[i])
    ages, rounding = (times[-1] - times, 1e-5) if is_clock else (np.arange(30)[::-1], 1e-11)
    V, b = weighted_sums(x, rewards, 0.5 ** (ages / scale))
    np.testing.assert_allclose(agent.policy.info().metric[0], V, rtol=rounding)
    np.testing.assert_allclose(agent.policy.info().b[0], b, rtol=rounding, atol=rounding)
    np.testing.assert_allclose(agent.theta, np.linalg.solve(V, b), rtol=10 * rounding, atol=rounding)
    assert agent.info().memory_unit == ("seconds" if is_clock else "decisions")
    assert agent.memory == pytest.approx(scale / math.log(2), rel=1e-5 if is_clock else 0.06)


def test_many_decisions_within_a_moment_hold_the_clock_up_by_ticks_only() -> None:
    """1000 decisions at one time are as if made within 1000 ticks; an hour later that is made up for."""
    assert TICK == 1e-5
    agent = Agent(dim=1, policy="D-LinUCB", half_life="1h")
    first = agent.decide([[1.0]], now=NOON)
    for _ in range(999):
        agent.decide([[1.0]], now=NOON)
    agent.decide([[0.0]], now=NOON + 3600)
    agent.reward(first, 1.0)
    assert agent.policy.info().b[0, 0] == pytest.approx(0.5, rel=1e-6)


@pytest.mark.parametrize("now", [NOON, NOON + 3e7, None])
def test_the_time_of_a_reward_does_not_count(now: float | None) -> None:
    """The clock is the decision's: a reward that comes a year later, or at no time at all, is no older."""
    agent = Agent(dim=1, policy="D-LinUCB", half_life="1h")
    agent.reward(agent.decide([[1.0]], now=NOON), 1.0, now=now)
    assert agent.decide([[1.0]], now=NOON - 5000.0).time.timestamp() == NOON  # a clock that goes back stands still
    agent.decide([[1.0]], now=NOON + 3600)
    assert agent.policy.info().b[0, 0] == pytest.approx(0.5, rel=1e-6)


def test_drift_and_horizon_give_the_discount_of_theory() -> None:
    gamma = theory.discount(horizon=1000, drift=2.0, dim=2)
    assert Agent(dim=2, policy="D-LinUCB", drift=2.0, horizon=1000).policy.info().gamma[0] == gamma
    adaptive = Agent(dim=2, drift=2.0, horizon=1000)  # takes neither: a memory of its own
    assert adaptive.memory == pytest.approx(1 / (1 - gamma))
    assert adaptive.drift_estimate() is None


def test_the_adaptive_policy_keeps_a_memory_that_is_set() -> None:
    fixed, free = Agent(dim=2, half_life=10), Agent(dim=2)
    assert fixed.memory == pytest.approx(1 / (1 - 0.5**0.1))
    for agent in (fixed, free):
        for i, arms in enumerate(arm_sets(9, 60)):
            agent.reward(agent.decide(arms), float(i % 2))
    assert fixed.policy.info().acting_memory[0] == pytest.approx(1 / (1 - 0.5**0.1))
    assert fixed.drift_estimate() is None
    assert free.policy.info().memories.size > 1
    drift = free.drift_estimate()
    assert drift == free.info().drift
    assert drift is not None
    assert drift.verdict == "too little data to tell"


@pytest.mark.parametrize("half_life", [3600, "1h"])
def test_the_scale_is_learned_where_forgetting_goes_by_the_clock(half_life: object) -> None:
    """2,000 rewards in 2,000 seconds, 2 % of them 1: they refute a scale of 64, as they do by decisions."""
    agent = Agent(dim=2, half_life=half_life)
    for i in range(2000):
        agent.reward(agent.decide({"a": [1.0, 0.0], "b": [0.0, 1.0]}, now=NOON + i), float(i % 50 == 0))
    assert agent.policy.info().weights[0, 0, 2] < 0.01
    assert 1.0 < agent.memory < 3 * 3600.0  # longer than the time between decisions


def test_memory_of_windows_and_of_policies_that_never_forget() -> None:
    assert Agent(dim=2, policy="SW-LinUCB", window=30).memory == 30.0
    assert Agent(dim=2, policy="OFUL").memory == math.inf
    assert Agent(dim=2, policy="OFUL").info().memory == math.inf
