"""When outcomes are learned: at the timeout, whatever they are and however fast they came; or rewards on arrival."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from late_clicks import AT_TIMEOUT, BY_HAND, Rates, drifting, simulate, static

from support.agents import LIVE, NOON, RED, arm_sets, needed, refuses, refuses_decision
from support.refusals import rejects
from windvane import Agent, ConflictingRewardError, ExpiredDecisionError
from windvane.agent import Closing

ROUNDS, WAIT = 40, 5
OUTCOMES = np.random.default_rng(8).integers(0, 2, ROUNDS).astype(float)


def build(policy: str, **settings) -> Agent:
    return Agent(dim=2, policy=policy, **needed(LIVE[policy]), **settings)


def live_at_timeout(agent: Agent, delays: np.ndarray) -> list:
    """Clicks come after their delay, in rounds; a non-click is never told."""
    decisions = []
    for i, arms in enumerate(arm_sets(3, ROUNDS)):
        for back in range(min(i, WAIT), -1, -1):
            decided = i - 1 - back
            if decided >= 0 and OUTCOMES[decided] and delays[decided] == back:
                assert agent.reward(str(decided), 1.0, now=NOON + i - 0.5)
        decisions.append(agent.decide(arms, now=NOON + i, id=str(i)))
    return decisions


def live_by_hand(agent: Agent) -> list:
    """Every outcome is told, in the order of decisions, when the wait of its decision is over."""
    decisions = []
    for i, arms in enumerate(arm_sets(3, ROUNDS)):
        if i > WAIT:
            agent.reward(str(i - WAIT - 1), OUTCOMES[i - WAIT - 1], now=NOON + i - 0.5)
        decisions.append(agent.decide(arms, now=NOON + i, id=str(i)))
    return decisions


@pytest.mark.parametrize("wait", [WAIT - 1, f"{WAIT}.5s"])
@pytest.mark.parametrize("policy", LIVE)
def test_learning_at_the_timeout_is_holding_outcomes_back_by_hand(policy: str, wait: object) -> None:
    delays = np.random.default_rng(4).integers(0, WAIT - 1, ROUNDS)
    agent, by_hand = build(policy, wait=wait, missing=0.0), build(policy)
    assert agent.learn == "at_timeout"
    assert by_hand.learn == "on_arrival"
    ways = live_at_timeout(agent, delays), live_by_hand(by_hand)
    for one, other in zip(*ways, strict=True):
        assert one == other
    mine, theirs = agent.policy.state(), by_hand.policy.state()
    for name, array in mine.items():
        np.testing.assert_array_equal(array, theirs[name], err_msg=name)


@settings(max_examples=25, deadline=None)
@given(
    policy=st.sampled_from(["AdaptiveGLMUCB", "BVD-GLM-UCB", "OnePassGLM", "D-LinUCB"]),
    fast=st.lists(st.integers(0, WAIT - 2), min_size=ROUNDS, max_size=ROUNDS),
    slow=st.lists(st.integers(0, WAIT - 2), min_size=ROUNDS, max_size=ROUNDS),
)
def test_what_is_learned_does_not_depend_on_how_fast_rewards_come(policy: str, fast: list, slow: list) -> None:
    agents = [build(policy, wait=WAIT - 1, missing=0.0) for _ in range(2)]
    lives = [live_at_timeout(agent, np.array(delays)) for agent, delays in zip(agents, (fast, slow), strict=True)]
    assert lives[0] == lives[1]
    states = [agent.policy.state() for agent in agents]
    for name, array in states[0].items():
        np.testing.assert_array_equal(array, states[1][name])


def test_a_reward_is_acknowledged_and_counted_when_it_comes_and_learned_at_the_timeout() -> None:
    agent = Agent(dim=2, wait=2, missing=0.0, policy="D-LinUCB", gamma=0.9)
    untouched = agent.policy.info().b
    agent.decide(RED, id="a", now=NOON)
    agent.decide(RED, id="b", now=NOON)
    assert agent.reward("b", 1.0)
    assert (agent.rewards, agent.held, agent.waiting, agent.settled, agent.mean_reward) == (1, 1, 1, 0, None)
    assert [decision.id for decision in agent.pending] == ["a"]
    assert agent.reward("b", 1.0) is False
    refuses_decision(agent, "b", lambda: agent.reward("b", 0.5), ConflictingRewardError)
    np.testing.assert_array_equal(agent.policy.info().b, untouched)
    agent.decide(RED, id="c", now=NOON)
    agent.decide(RED, id="d", now=NOON)  # the waits of a and b end with the next ones
    assert agent.expire() == [Closing("a", 0.0)]
    agent.decide(RED, id="e", now=NOON)
    assert agent.expire() == [Closing("b", 1.0, rewarded=True)]
    assert (agent.rewards, agent.defaulted, agent.expired, agent.held, agent.settled) == (1, 1, 1, 0, 2)
    assert agent.mean_reward == 0.5
    assert agent.policy.info().b.any()
    assert agent.reward("b", 1.0) is False
    refuses_decision(agent, "a", lambda: agent.reward("a", 1.0), ExpiredDecisionError)


def test_the_mean_is_not_that_of_clicks_alone_while_non_clicks_wait() -> None:
    """10 % clicks, each told at once: a mean of 1 during the first wait was what the page showed."""
    agent = Agent(dim=2, wait=50, missing=0.0)
    for i in range(50):
        decision = agent.decide(RED)
        if i % 10 == 0:
            agent.reward(decision, 1.0)
    assert (agent.rewards, agent.mean_reward) == (5, None)
    for _ in range(101):
        agent.decide(RED)
    agent.expire()
    assert agent.mean_reward == pytest.approx(0.05)


def test_rewards_that_wait_for_their_timeout_survive_a_file() -> None:
    agent = Agent(dim=2, wait=10, missing=0.0, half_life=30)
    for i, arms in enumerate(arm_sets(5, 30)):
        agent.decide(arms, id=str(i), now=NOON + i)
        if i % 3 == 0:
            agent.reward(str(i), 1.0)
    assert agent.held == 4
    loaded = Agent.from_bytes(agent.to_bytes())
    assert (loaded.held, loaded.waiting, loaded.learn) == (agent.held, agent.waiting, "at_timeout")
    for one in (agent, loaded):
        assert one.reward("27", 1.0) is False
        for i, arms in enumerate(arm_sets(6, 30), 30):
            one.decide(arms, id=str(i), now=NOON + i)
    assert loaded.to_bytes() == agent.to_bytes()
    np.testing.assert_array_equal(loaded.theta, agent.theta)


def test_learning_on_arrival_can_be_asked_for() -> None:
    agent, plain = Agent(dim=2, wait=3, missing=0.0, learn="on_arrival"), Agent(dim=2)
    for one in (agent, plain):
        one.reward(one.decide(RED, id="a", now=NOON), 1.0)
    assert agent.settled == 1
    np.testing.assert_array_equal(agent.theta, plain.theta)


@pytest.mark.parametrize("policy", LIVE)
def test_a_change_to_on_arrival_leaves_held_rewards_to_their_timeout(policy: str) -> None:
    """Learning thousands of them at once would hold up everybody; and they came under the earlier setting."""
    agent, unchanged = (build(policy, wait=4, missing=0.0) for _ in range(2))
    for one in (agent, unchanged):
        for i, arms in enumerate(arm_sets(7, 8)):
            one.decide(arms, id=str(i), now=NOON)
            if i % 2:
                one.reward(str(i), 1.0)
    agent.configure(learn="on_arrival")
    assert (agent.held, agent.settled) == (unchanged.held, unchanged.settled)
    refuses(agent, "wait", lambda: agent.configure(wait=None, missing=None), value=None)
    for one in (agent, unchanged):
        for i, arms in enumerate(arm_sets(8, 6), 8):
            one.decide(arms, id=str(i), now=NOON)
    for name, array in agent.policy.state().items():
        np.testing.assert_array_equal(array, unchanged.policy.state()[name])
    agent.expire()
    assert agent.held == 0
    settled = agent.settled
    assert agent.reward("13", 1.0)
    assert agent.settled == settled + 1
    agent.configure(wait=None, missing=None, learn=None)
    assert agent.learn == "on_arrival"


@pytest.mark.parametrize(
    ("argument", "settings"),
    [
        ("missing", {"missing": 0.0}),
        ("learn", {"learn": "at_timeout"}),
        ("learn", {"learn": "later", "wait": 5}),
        ("learn", {"learn": 5}),
    ],
)
def test_settings_that_contradict_each_other_are_refused(argument: str, settings: dict) -> None:
    with rejects(argument, value=settings[argument]):
        Agent(dim=2, **settings)
    agent = Agent(dim=2)
    refuses(agent, argument, lambda: agent.configure(**settings), value=settings[argument])


def test_without_a_default_a_timeout_may_still_be_waited_for() -> None:
    """Then what has no reward is forgotten; what has one is learned when its wait ends."""
    agent = Agent(dim=2, wait=1, learn="at_timeout")
    for name in "abcd":
        agent.decide(RED, id=name, now=NOON)
        if name == "b":
            agent.reward("b", 1.0)
    assert agent.expired == 1  # "a", by the last decision
    assert agent.expire() == [Closing("b", 1.0, rewarded=True)]
    assert (agent.settled, agent.expired, agent.defaulted) == (1, 1, 0)


WITHOUT_S = "24 % too high (other seeds: 31 and 24 %); one cause: a loss 1,500 rounds late counts 0.998^1500 = 5 %"


@pytest.mark.parametrize(
    ("world", "S"),
    [
        (static, 5.0),
        (drifting, 5.0),
        (static, None),
        pytest.param(drifting, None, marks=pytest.mark.xfail(strict=True, raises=AssertionError, reason=WITHOUT_S)),
    ],
)
def test_predictions_with_late_clicks_are_near_the_truth(world: Rates, S: float | None) -> None:
    """The issue's experiment, shortened: with clicks learned on arrival the mean prediction was 0.74 of rates below
    0.08. Within 20 % of the rate played, and playing what outcomes held back by hand play."""
    run, by_hand = (simulate(way, world, 9.0, seed=0, S=S) for way in (AT_TIMEOUT, BY_HAND))
    half = slice(len(run.played) // 2, None)
    np.testing.assert_array_equal(run.played, by_hand.played)
    assert run.predicted[half].mean() == pytest.approx(run.played[half].mean(), rel=0.2)
