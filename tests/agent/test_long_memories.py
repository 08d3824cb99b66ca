"""Agents whose estimator expands old observations: saved and loaded at every step of a long life."""

import numpy as np
import pytest

from windvane import Agent

FEATURES = {"shared": {"hour": (0, 24)}, "arms": ["red", "blue"]}
LATE = 150  # decisions between one and its reward


@pytest.mark.parametrize("policy", ["BVD-GLM-UCB", "D-GLM-TS"])
def test_a_loaded_agent_decides_the_same_with_late_rewards_and_a_new_arm(policy: str) -> None:
    """Loaded after every pair, from the first expansion on. With the new arm, the history is longer than what is
    expanded in more dimensions, and late rewards are not in the order of their decisions."""
    agent, rng = Agent(features=FEATURES, policy=policy, half_life=2000, seed=3), np.random.default_rng(0)
    waiting, anchored = [], 0
    for t in range(620):
        if t == 600:
            agent.add_arm("black")
        waiting.append(agent.decide(context={"hour": float(rng.uniform(0, 24))}))
        if len(waiting) > LATE or t % 7 == 0:
            decision = waiting.pop(0 if t % 3 else -1)
            agent.reward(decision, float(rng.random() < 0.4))
        if t > 400:
            data = agent.to_bytes()
            loaded = Agent.from_bytes(data)
            assert loaded.to_bytes() == data
            np.testing.assert_array_equal(loaded.theta, agent.theta)
            arms = ["red", "blue"]
            assert loaded.rank(arms, context={"hour": 5.0}) == agent.rank(arms, context={"hour": 5.0})
            anchored += int(agent.policy.estimator.record["anchored"].any())
            agent = loaded
    assert anchored > 20
