"""Predicting and ranking without deciding: nothing changes, and the numbers are those of the next decision."""

from __future__ import annotations

import copy
from dataclasses import field
from typing import Any

import numpy as np
import pytest

from support.agents import LIVE, NOON, arm_sets, assert_same_policy, build_agent, refuses
from windvane import AdaptiveGLMUCB, Agent
from windvane.agent.preview import learn_outcome

NAMES = ["a", "b", "c", "d"]


def offer(vectors: np.ndarray) -> dict[str, np.ndarray]:
    return dict(zip(NAMES, vectors, strict=True))


@pytest.mark.parametrize("policy", LIVE)
def test_predictions_are_those_of_the_next_decision(policy: str) -> None:
    agent, rng = build_agent(policy, seed=3), np.random.default_rng(0)
    for i, vectors in enumerate(arm_sets(1, 25)):
        arms, before = offer(vectors), agent.to_bytes()
        predicted, ranked = agent.predict(arms, now=NOON + i), agent.rank(arms, now=NOON + i)
        assert agent.to_bytes() == before
        decision = agent.decide(arms, now=NOON + i, id=str(i))
        own = predicted[decision.arm]
        assert (own.prediction, own.bonus) == (decision.prediction, decision.bonus)
        assert list(predicted) == NAMES
        assert sorted(each.arm for each in ranked) == NAMES
        assert ranked[0].arm == decision.preferred == decision.arm
        scores = [each.score for each in ranked]
        assert scores == sorted(scores, reverse=True)
        assert all(each == predicted[each.arm] for each in ranked)
        agent.reward(decision, float(rng.random() < 0.5), now=NOON + i)


@pytest.mark.parametrize("policy", LIVE)
def test_an_outcome_is_learned_as_update_learns_it(policy: str) -> None:
    """The agent leaves out only the checks of ``update``: early parts, late rewards, and those before a restart."""
    agent = build_agent(policy, seed=3)
    twin = copy.deepcopy(agent.policy)
    for i, vectors in enumerate(arm_sets(4, 60)):
        agent.decide(offer(vectors), now=NOON + i, id=str(i))
        twin.select(vectors[None])
        for back, weight in ((0, 0.25), (7, 1.0), (40, 0.5)):
            if i >= back:
                pending, reward = agent.core.decisions.open[str(i - back)], float((i + back) % 3 == 0)
                learn_outcome(agent.policy, pending, reward, weight)
                twin.update(pending.x[None], reward, round=pending.round, weight=weight)
    assert_same_policy(agent.policy, twin)


@pytest.mark.parametrize("learn", ["on_arrival", "at_timeout", "early"])
def test_a_policy_that_overrides_update_learns_there(learn: str) -> None:
    class Doubting(AdaptiveGLMUCB):
        """It learns half of every reward."""

        rewards: list[float] = field(default_factory=list, init=False)

        def update(self, x: Any, reward: Any, round: Any = None, weight: Any = 1.0, mask: Any = None) -> None:
            self.rewards.append(float(np.asarray(reward).item()))
            super().update(x, 0.5 * np.asarray(reward), round, weight, mask)

    settings: dict[str, Any] = {"reward_timeout": 2, "default_reward": 0.0, "learn": learn}
    agent, twin = Agent(dim=2, policy=Doubting, **settings), Agent(dim=2, **settings)
    for i, vectors in enumerate(arm_sets(2, 12)):
        for each, share in ((agent, 1.0), (twin, 0.5)):
            each.decide(offer(vectors), now=NOON + i, id=str(i))
            if i < 2:
                each.reward(str(i), share * (1 - i), now=NOON + i)
    assert set(agent.policy.rewards) == {0.0, 1.0}
    assert np.array_equal(agent.policy.read_theta(), twin.policy.read_theta())
    assert agent.policy.read_theta().any()


@pytest.mark.parametrize("policy", ["adaptive", "D-LinTS", "UniformRandom", "MASTER-OFUL"])
def test_decisions_after_it_are_as_without_it(policy: str) -> None:
    settings = {"horizon": 100} if policy.startswith("MASTER") else {"gamma": 0.99} if policy == "D-LinTS" else {}
    one, other = (Agent(dim=2, policy=policy, epsilon=0.2, seed=5, **settings) for _ in range(2))
    for i, vectors in enumerate(arm_sets(2, 30)):
        one.predict(offer(vectors), now=NOON + i)
        one.rank(vectors[::-1], now=NOON + 10 * i)
        for agent in (one, other):
            decision = agent.decide(offer(vectors), now=NOON + i, id=str(i))
            agent.reward(decision, float(i % 3 == 0), now=NOON + i)
    assert one.to_bytes() == other.to_bytes()


def test_a_policy_that_does_not_predict_gives_zeros() -> None:
    agent = Agent(dim=1, policy="UniformRandom")
    predicted = agent.predict({"x": [1.0], "y": [0.5]})
    assert [(p.prediction, p.bonus, p.score) for p in predicted.values()] == [(0.0, 0.0, 0.0)] * 2


def test_equal_arms_are_ranked_by_the_draw_and_then_in_their_order() -> None:
    arms = {name: [0.5] for name in NAMES}
    for seed in range(8):
        agent = Agent(dim=1, seed=seed)
        ranked = [each.arm for each in agent.rank(arms)]
        assert ranked[1:] == [name for name in NAMES if name != ranked[0]]
        assert ranked[0] == agent.decide(arms).arm
    assert len({Agent(dim=1, seed=seed).rank(arms)[0].arm for seed in range(8)}) > 1


def test_saturated_means_are_ranked_by_what_lies_below_them() -> None:
    """With a parameter so large that mu rounds to 1, scores are equal, and the ranking still is the policy's."""
    agent = Agent(dim=1, S=1000.0, prior=[900.0], prior_weight=1e6)
    ranked = agent.rank({"small": [0.5], "large": [1.0], "middle": [0.7]})
    assert [each.arm for each in ranked] == ["large", "middle", "small"]
    assert len({each.score for each in ranked}) == 1


def test_time_passes_for_the_prediction_alone() -> None:
    agent = Agent(dim=1, half_life="1h")
    agent.reward(agent.decide({"x": [1.0]}, now=NOON), 1.0, now=NOON)
    before = agent.to_bytes()
    now, later = (agent.predict({"x": [1.0]}, now=NOON + age)["x"] for age in (0.0, 36_000.0))
    assert later.bonus > now.bonus
    assert abs(later.prediction - 0.5) < abs(now.prediction - 0.5)
    assert agent.to_bytes() == before
    assert agent.decide({"x": [1.0]}, now=NOON + 36_000.0).prediction == later.prediction


@pytest.mark.parametrize("learn", ["at_timeout", "on_arrival"])
def test_outcomes_that_are_due_count_as_they_will_for_the_decision(learn: str) -> None:
    agent, rng = Agent(dim=2, reward_timeout=3, default_reward=0.0, learn=learn), np.random.default_rng(0)
    for i, vectors in enumerate(arm_sets(3, 30)):
        before, predicted = agent.to_bytes(), agent.predict(offer(vectors), now=NOON + i)
        assert agent.to_bytes() == before
        decision = agent.decide(offer(vectors), now=NOON + i)
        assert predicted[decision.arm].prediction == decision.prediction
        if rng.random() < 0.5:
            agent.reward(decision, 1.0, now=NOON + i)


def test_bad_arms_are_refused() -> None:
    agent = Agent(dim=2)
    refuses(agent, "arms", agent.predict)
    refuses(agent, "arms['red']", lambda: agent.rank({"red": [1.0]}))
