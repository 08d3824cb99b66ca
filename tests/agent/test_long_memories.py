"""Agents whose estimator expands old observations: saved and loaded at every step of a long life."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

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


@pytest.mark.parametrize(
    ("policy", "settings"),
    [
        ("UCB-GLM", {"horizon": 1000, "S": 20.0}),  # its ridge is 1e-6 c_mu, and c_mu is 2e-9 here
        ("GLM-UCB", {"lam": 1e-14}),
        ("OFUGLB-e", {"lam": 1e-17}),
        ("GLM-TS", {"lam": 1e-20, "horizon": 1000}),  # rounding decides where the root is
    ],
)
@pytest.mark.parametrize("seed", range(4))
def test_agents_with_next_to_no_regularisation_are_loaded(
    policy: str, settings: dict[str, Any], seed: int, tmp_path: Path
) -> None:
    """Rewards are separable at times, so the estimate is far away and rounding moves it."""
    features = {"by_arm": {"hour": (0, 24)}, "arms": ["a", "b", "c"]}
    agent, rng = Agent(features=features, policy=policy, seed=seed, **settings), random.Random(seed)
    for _ in range(40):
        decision = agent.decide(context={"hour": rng.uniform(0, 24)})
        agent.reward(decision, float(rng.random() < 0.5))
    agent.decide(context={"hour": 3.0})
    agent.save(tmp_path / "a.windvane")
    loaded = Agent.load(tmp_path / "a.windvane")
    for hour in range(24):
        first, second = (each.decide(context={"hour": float(hour)}) for each in (agent, loaded))
        assert (first.arm, first.prediction) == (second.arm, second.prediction)
