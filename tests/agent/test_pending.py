"""When outcomes are learned: at the timeout, whatever they are and however fast they came. The rules: test_core.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from late_clicks import AT_TIMEOUT, Rates, drifting, simulate, static

from support.agents import LIVE, NOON, arm_sets, assert_same_policy, build_agent, refuses
from support.refusals import rejects
from windvane import Agent

ROUNDS, TIMEOUT = 40, 5
OUTCOMES = np.random.default_rng(8).integers(0, 2, ROUNDS).astype(float)


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


@pytest.mark.parametrize(
    ("argument", "changes"),
    [
        ("default_reward", {"default_reward": 0.0}), ("learn", {"learn": "at_timeout"}), ("learn", {"learn": 5}),
        ("learn", {"learn": "later", "reward_timeout": 5}), ("learn", {"learn": "early"}),
        ("learn", {"learn": "early", "reward_timeout": 5}),
        ("learn", {"learn": "early", "reward_timeout": 0, "default_reward": 0.0}),
        ("default_reward", {"epsilon": 0.5, "reward_timeout": 5, "default_reward": 2.0}),
    ],
)  # fmt: skip
def test_settings_that_contradict_each_other_are_refused(argument: str, changes: dict) -> None:
    with rejects(argument, value=changes[argument]):
        Agent(dim=2, **changes)
    agent = Agent(dim=2)
    refuses(agent, argument, lambda: agent.configure(**changes), value=changes[argument])
    refuses(agent, "seed", lambda: agent.configure(seed=1, **changes))


WITHOUT_S = "24 % too high (other seeds: 31 and 24 %); one cause: a loss 1,500 rounds late counts 0.998^1500 = 5 %"
WORLDS = [
    (static, 5.0), (drifting, 5.0), (static, None),
    pytest.param(drifting, None, marks=pytest.mark.xfail(strict=True, raises=AssertionError, reason=WITHOUT_S)),
]  # fmt: skip


@pytest.mark.parametrize(("world", "S"), WORLDS)
def test_predictions_with_late_clicks_are_near_the_truth(world: Rates, S: float | None) -> None:
    """Within 20 % of the rate played. With clicks learned on arrival it was 0.74, of rates below 0.08."""
    run = simulate(AT_TIMEOUT, world, 9.0, seed=0, S=S)
    half = slice(len(run.played) // 2, None)
    assert run.predicted[half].mean() == pytest.approx(run.played[half].mean(), rel=0.2)
