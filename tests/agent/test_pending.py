"""When outcomes are learned: at the timeout, whatever they are and however fast they came; or rewards on arrival."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from late_clicks import AT_TIMEOUT, BY_HAND, Rates, drifting, simulate, static

from support.agents import LIVE, NOON, RED, arm_sets, assert_same_policy, build_agent, refuses, refuses_decision
from support.refusals import rejects
from support.worlds import ball
from windvane import Agent, ConflictingRewardError, DLinUCB, UnknownDecisionError
from windvane.agent.pending import REMEMBERED

ROUNDS, TIMEOUT = 40, 5
OUTCOMES = np.random.default_rng(8).integers(0, 2, ROUNDS).astype(float)


def counts(agent: Agent, *names: str) -> tuple:
    return tuple(getattr(agent.info().counts, name) for name in names)


@pytest.mark.parametrize(("more", "status"), [(2, "recorded"), (3, "expired")])
def test_a_timeout_in_decisions(more: int, status: str) -> None:
    """reward_timeout=2: the reward may come until two more decisions have been made, not three."""
    agent = Agent(dim=2, reward_timeout=2)
    for i in range(1 + more):
        agent.decide(RED, id=f"d{i}")
    assert agent.reward("d0", 1.0) == status
    assert counts(agent, "rewards", "expired") == ((1, 0) if status == "recorded" else (0, 1))


def test_a_timeout_by_the_clock() -> None:
    agent = Agent(dim=2, reward_timeout="1m")
    agent.decide(RED, now=NOON, id="a")
    agent.decide(RED, now=NOON + 0.5, id="b")
    assert agent.expire(NOON + 60) == []
    assert agent.reward("a", 1.0, now=NOON + 60) == "recorded"
    (closed,) = agent.expire(NOON + 60.75)
    assert (closed.id, closed.arm in RED, closed.number) == ("b", True, 1)
    assert (closed.learned, closed.rewarded, closed.dropped) == (None, False, False)
    assert agent.pending() == []
    patient = Agent(dim=2)
    patient.decide(RED, now=0.0, id="old")
    patient.decide(RED, now=1e10)
    assert patient.reward("old", 1.0, now=1e10) == "recorded"


def test_a_late_reward_is_recorded_once_and_not_learned() -> None:
    agent = Agent(dim=2, reward_timeout="1m", default_reward=0.5, policy="D-LinUCB", gamma=0.9)
    agent.decide(RED, now=NOON, id="a")
    for status, is_new in (("expired", True), ("expired", False)):
        assert agent.core.reward("a", 1.0, now=NOON + 61) == (status, is_new)
        assert agent.core.outcome_of("a") == (None, 1.0, False, False)
    assert agent.policy.info().b[0] @ agent.policy.info().b[0] < 0.5  # that of the default
    refuses_decision(agent, "a", lambda: agent.reward("a", 0.0, now=NOON + 61), ConflictingRewardError)
    assert counts(agent, "rewards", "expired", "defaulted", "settled", "pending") == (0, 1, 1, 1, 0)
    again = Agent.from_bytes(agent.to_bytes())
    assert again.reward("a", 1.0) == "expired"
    refuses_decision(again, "a", lambda: again.reward("a", 0.0), ConflictingRewardError)


def test_a_repetition_that_comes_after_the_timeout_changes_nothing() -> None:
    """Even where the decision was not closed yet: it is in no log."""
    agent = Agent(dim=2, reward_timeout="1m", default_reward=0.0)
    for i in range(3):
        agent.decide(RED, now=NOON, id=f"d{i}")
    agent.reward("d1", 1.0, now=NOON)
    before = agent.to_bytes()
    assert agent.reward("d1", 1.0, now=NOON + 100) == "unchanged"
    assert agent.to_bytes() == before
    refuses_decision(agent, "d1", lambda: agent.reward("d1", 0.0, now=NOON + 100), ConflictingRewardError)
    refuses_decision(agent, "d1", lambda: agent.add_reward("d1", 0.0, now=NOON + 100), ConflictingRewardError)


def test_closed_decisions_are_known_for_a_while() -> None:
    agent = Agent(dim=2, policy="UniformRandom")
    for i in range(REMEMBERED + 1):
        agent.decide([[0.1, 0.1]], id=f"d{i}", now=NOON)
        agent.reward(f"d{i}", 1.0)
    assert agent.reward("d1", 1.0) == "unchanged"
    refuses_decision(agent, "d0", lambda: agent.reward("d0", 1.0), UnknownDecisionError)


@pytest.mark.parametrize(("timeout", "after"), [(3, 5), ("4s", 5), ("3.5s", 4)])
def test_no_reward_counts_as_the_default(timeout: object, after: int) -> None:
    """As a hand-driven policy that learns the default at the timeout, before the decision that notices."""
    agent = Agent(dim=2, policy="D-LinUCB", gamma=0.9, reward_timeout=timeout, default_reward=0.25)
    policy, played = DLinUCB(2, gamma=0.9), list[tuple[np.ndarray, float]]()
    for i, arms in enumerate(arm_sets(2, 12)):
        decision = agent.decide(arms, now=NOON + i)
        if i >= after:
            x, round_ = played[i - after]
            policy.update(x, 0.25, round=round_)
        round_, index = policy.t, int(policy.select(arms[None])[0])
        assert decision.index == index
        played.append((arms[None, index], round_))
    np.testing.assert_array_equal(agent.policy.info().b, policy.info().b)
    assert counts(agent, "expired", "pending", "rewards") == (12 - after, after, 0)  # a default is no reward that came


def test_without_a_default_expired_decisions_only_age_the_past() -> None:
    agent = Agent(dim=2, policy="D-LinUCB", gamma=0.9, reward_timeout=1)
    for _ in range(10):
        agent.decide(RED)
    np.testing.assert_array_equal(agent.policy.info().metric[0], np.eye(2))
    assert counts(agent, "expired", "defaulted") == (7, 0)  # as of when the last decision was asked for
    assert len(agent.expire()) == 1
    held = Agent(dim=2, reward_timeout=1, learn="at_timeout")  # rewards are still learned at the timeout
    for name in "abcd":
        held.decide(RED, id=name, now=NOON)
        if name == "b":
            held.reward("b", 1.0)
    assert [(each.id, each.learned, each.rewarded) for each in held.expire()] == [("b", 1.0, True)]
    assert counts(held, "settled", "expired", "defaulted") == (1, 1, 0)


def test_no_more_than_max_pending_are_open() -> None:
    """Beyond, the oldest are dropped and counted; nothing is learned from them, whatever is known of them."""
    agent = Agent(dim=2, max_pending=3, reward_timeout=100, default_reward=0.0)
    for i in range(10):
        agent.decide(RED, id=f"d{i}")
        agent.reward(f"d{i}", 1.0) if i % 2 else None
        assert sum(counts(agent, "pending", "held")) <= 3
    assert [decision.id for decision in agent.pending()] == ["d8"]
    assert counts(agent, "held", "dropped", "expired", "defaulted", "settled") == (2, 7, 0, 0, 0)
    assert agent.expire() == []
    closed = agent.core.expire(now=NOON, room=2)
    assert [each[0:1] + each[2:] for each in closed] == [("d7", 7, None, True, True), ("d8", 8, None, False, True)]
    assert [agent.reward(key, 1.0) for key in ("d7", "d8", "d8")] == ["unchanged", "expired", "expired"]
    np.testing.assert_array_equal(agent.theta, Agent(dim=2).theta)
    single = Agent(dim=2, max_pending=1)
    assert single.reward(single.decide(RED), 1.0) == "recorded"


def test_expiring_in_slices_is_expiring() -> None:
    settings = {"policy": "D-LinUCB", "gamma": 0.9, "reward_timeout": "1h", "default_reward": 0.5}
    whole, slices, later = Agent(dim=2, **settings), Agent(dim=2, **settings), NOON + 3606.5
    for agent in (whole, slices):
        for i in range(10):
            agent.decide(RED, now=NOON + i, id=str(i))
    assert [whole.core.is_due(later, count) for count in (1, 7, 8)] == [True, True, False]
    closed = whole.expire(later)
    assert [(each.id, each.learned) for each in closed] == [(str(i), 0.5) for i in range(7)]
    parts = [slices.core.expire(now=later, most=3) for _ in range(4)]
    assert parts == [closed[:3], closed[3:6], closed[6:], []]
    assert not slices.core.is_due(later)
    assert whole.to_bytes() == slices.to_bytes()


@pytest.mark.parametrize("name", ["OFUL", "D-LinUCB", "GLM-UCB", "BVD-GLM-UCB", "SW-LinUCB"])
def test_the_order_of_rewards_does_not_matter(name: str) -> None:
    """For policies whose estimate is a function of the weighted sums; one arm at a time, so that choices agree."""
    rng = np.random.default_rng(6)
    x, rewards = ball(rng, (60,), 2), rng.integers(0, 2, 60).astype(float)
    prompt, late = build_agent(name), build_agent(name)
    for i in range(60):
        prompt.reward(prompt.decide(x[i, None]), rewards[i])
        late.decide(x[i, None], id=str(i))
    for i in rng.permutation(60):
        assert late.reward(str(i), rewards[i]) == "recorded"
    np.testing.assert_allclose(late.theta, prompt.theta, rtol=1e-6, atol=1e-7)
    assert (late.info().counts, late.info().mean_reward) == (prompt.info().counts, prompt.info().mean_reward)


def live_at_timeout(agent: Agent, delays: Any) -> list:
    """Clicks come after their delay, in rounds; a non-click is never reported."""
    decisions = []
    for i, arms in enumerate(arm_sets(3, ROUNDS)):
        for back in range(min(i, TIMEOUT), -1, -1):
            decided = i - 1 - back
            if decided >= 0 and OUTCOMES[decided] and delays[decided] == back:
                assert agent.reward(str(decided), 1.0, now=NOON + i - 0.5) == "recorded"
        decisions.append(agent.decide(arms, now=NOON + i, id=str(i)))
    return decisions


@pytest.mark.parametrize("timeout", [TIMEOUT - 1, f"{TIMEOUT}.5s"])
@pytest.mark.parametrize("policy", LIVE)
def test_learning_at_the_timeout_is_holding_outcomes_back_by_hand(policy: str, timeout: object) -> None:
    """So that what is learned does not depend on how fast rewards come."""
    agent, other = (build_agent(policy, reward_timeout=timeout, default_reward=0.0) for _ in range(2))
    by_hand = build_agent(policy)
    assert (agent.info().learn, by_hand.info().learn) == ("at_timeout", "on_arrival")
    decisions = live_at_timeout(agent, np.random.default_rng(4).integers(0, TIMEOUT - 1, ROUNDS))
    assert live_at_timeout(other, np.random.default_rng(5).integers(0, TIMEOUT - 1, ROUNDS)) == decisions
    for i, arms in enumerate(arm_sets(3, ROUNDS)):
        if i > TIMEOUT:
            by_hand.reward(str(i - TIMEOUT - 1), OUTCOMES[i - TIMEOUT - 1], now=NOON + i - 0.5)
        assert by_hand.decide(arms, now=NOON + i, id=str(i)) == decisions[i]
    assert_same_policy(agent, by_hand)
    assert_same_policy(other, by_hand)


def test_a_reward_is_counted_when_it_comes_and_learned_at_the_timeout() -> None:
    agent = Agent(dim=2, reward_timeout=2, default_reward=0.0, policy="D-LinUCB", gamma=0.9)
    for name in "ab":
        agent.decide(RED, id=name, now=NOON)
    assert agent.reward("b", 1.0) == "recorded"
    assert counts(agent, "rewards", "held", "pending", "settled") == (1, 1, 1, 0)
    assert agent.info().mean_reward is None
    assert [decision.id for decision in agent.pending()] == ["a"]
    assert agent.reward("b", 1.0) == "unchanged"
    refuses_decision(agent, "b", lambda: agent.reward("b", 0.5), ConflictingRewardError)
    assert not agent.policy.info().b.any()
    for name in "cd":
        agent.decide(RED, id=name, now=NOON)  # the timeouts of a and b pass with the next ones
    assert [(each.id, each.learned, each.rewarded) for each in agent.expire()] == [("a", 0.0, False)]
    agent.decide(RED, id="e", now=NOON)
    assert [(each.id, each.learned, each.rewarded) for each in agent.expire()] == [("b", 1.0, True)]
    assert counts(agent, "rewards", "defaulted", "expired", "held", "settled") == (1, 1, 1, 0, 2)
    assert agent.info().mean_reward == 0.5
    assert agent.policy.info().b.any()
    assert (agent.reward("b", 1.0), agent.reward("a", 1.0)) == ("unchanged", "expired")


def test_the_mean_reward_counts_defaults_and_not_history() -> None:
    """10 % clicks, each reported at once: a mean of 0.1, unknown during the first timeout, and never 1."""
    agent = Agent(dim=2, reward_timeout=49, default_reward=0.0)
    for i in range(150):
        decision = agent.decide(RED)
        if i % 10 == 0:
            agent.reward(decision, 1.0)
        assert (agent.core.mean_reward is None) == (i < 50)
    agent.expire()
    agent.history([1.0] * 50, [[0.1, 0.1]] * 50)  # decided by others
    assert counts(agent, "rewards", "defaulted", "settled", "history_rows") == (15, 90, 100, 50)
    assert agent.info().mean_reward == pytest.approx(0.1)


def test_a_timeout_may_change() -> None:
    agent = Agent(dim=2)
    for i in range(6):
        agent.decide(RED, id=f"d{i}")
    agent.configure(max_pending=4, reward_timeout=4, default_reward=0.5)
    changed = {"reward_timeout": 4, "default_reward": 0.5, "learn": None, "max_pending": 4, "epsilon": 0.0}
    assert {name: agent.settings[name] for name in changed} == changed
    assert agent.reward("d2", 1.0) == "recorded"  # d0 has waited for five decisions, d1 is one too many
    assert counts(agent, "expired", "dropped") == (1, 1)
    refuses(agent, "default_reward", lambda: agent.configure(epsilon=0.5, default_reward=2.0))
    refuses(agent, "seed", lambda: agent.configure(seed=1))
    assert Agent.from_bytes(agent.to_bytes()).settings == agent.settings


@pytest.mark.parametrize("policy", LIVE)
def test_a_change_to_on_arrival_leaves_held_rewards_to_their_timeout(policy: str) -> None:
    """Learning thousands of them at once would hold up everybody; and they came under the earlier setting."""
    agent, unchanged = (build_agent(policy, reward_timeout=4, default_reward=0.0) for _ in range(2))
    for each in (agent, unchanged):
        for i, arms in enumerate(arm_sets(7, 8)):
            each.decide(arms, id=str(i), now=NOON)
            if i % 2:
                each.reward(str(i), 1.0)
    agent.configure(learn="on_arrival")
    assert agent.info().counts == unchanged.info().counts
    refuses(agent, "reward_timeout", lambda: agent.configure(reward_timeout=None, default_reward=None), value=None)
    for each in (agent, unchanged):
        for i, arms in enumerate(arm_sets(8, 6), 8):
            each.decide(arms, id=str(i), now=NOON)
    assert_same_policy(agent, unchanged)
    agent.expire()
    held, settled = counts(agent, "held", "settled")
    agent.reward("13", 1.0)
    assert (held, *counts(agent, "held", "settled")) == (0, 0, settled + 1)
    agent.configure(reward_timeout=None, default_reward=None, learn=None)
    assert agent.info().learn == "on_arrival"


@pytest.mark.parametrize(
    ("argument", "changes"),
    [
        ("default_reward", {"default_reward": 0.0}), ("learn", {"learn": "at_timeout"}), ("learn", {"learn": 5}),
        ("learn", {"learn": "later", "reward_timeout": 5}), ("learn", {"learn": "early"}),
        ("learn", {"learn": "early", "reward_timeout": 5}),
        ("learn", {"learn": "early", "reward_timeout": 0, "default_reward": 0.0}),
    ],
)  # fmt: skip
def test_settings_that_contradict_each_other_are_refused(argument: str, changes: dict) -> None:
    with rejects(argument, value=changes[argument]):
        Agent(dim=2, **changes)
    agent = Agent(dim=2)
    refuses(agent, argument, lambda: agent.configure(**changes), value=changes[argument])


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
    """With clicks learned on arrival the mean prediction was 0.74 of rates below 0.08. Within 20 % of the rate played,
    and playing what outcomes held back by hand play."""
    run, by_hand = (simulate(way, world, 9.0, seed=0, S=S) for way in (AT_TIMEOUT, BY_HAND))
    half = slice(len(run.played) // 2, None)
    np.testing.assert_array_equal(run.played, by_hand.played)
    assert run.predicted[half].mean() == pytest.approx(run.played[half].mean(), rel=0.2)
