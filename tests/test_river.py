"""The agent as a policy of river, in river's own evaluations."""

from __future__ import annotations

import copy
import pickle
import random
from typing import Any

import gymnasium
import numpy as np
import pytest
from river import bandit, stats

from support.refusals import rejects
from windvane import BVDGLMUCB, Agent, ArgumentError
from windvane.river import AgentPolicy

ARMS = ["tea", "juice"]
HOURS = {"by_arm": {"hour": (0, 24)}, "arms": ARMS}


class TwoSeasons(gymnasium.Env[int, np.int64]):
    """Three arms without a context. The best one changes in the middle."""

    def __init__(self, rounds: int = 400) -> None:
        self.rounds, self.action_space = rounds, gymnasium.spaces.Discrete(3)
        self.observation_space = gymnasium.spaces.Discrete(1)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        return 0, {}

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        best = 0 if self.t < self.rounds // 2 else 2
        self.t += 1
        reward = float(self.np_random.random() < (0.9 if action == best else 0.2))
        return 0, reward, False, self.t >= self.rounds, {}


def evaluate(policies: list[Any], episodes: int = 3) -> np.ndarray:
    """The total reward of each episode and policy."""
    totals = np.zeros((episodes, len(policies)))
    for row in bandit.evaluate(policies, TwoSeasons(), n_episodes=episodes, seed=1):
        totals[row["episode"], row["policy_idx"]] = row["reward_stat"]
    return totals


def make_history(rounds: int = 600) -> list[tuple[list[str], dict[str, int], str, float]]:
    """Random pulls. Tea is better in the morning, juice in the evening."""
    rng, rows = random.Random(1), []
    for _ in range(rounds):
        hour, arm = rng.choice([8, 20]), rng.choice(ARMS)
        rows.append((ARMS, {"hour": hour}, arm, float(rng.random() < (0.9 if (arm == "tea") == (hour == 8) else 0.2))))
    return rows


def test_it_is_a_contextual_policy() -> None:
    assert issubclass(AgentPolicy, bandit.base.ContextualPolicy)


@pytest.mark.parametrize(
    "settings",
    [{}, {"policy": "Greedy", "gamma": 0.97}, {"policy": BVDGLMUCB, "gamma": 0.97, "bonus_scale": 0.01, "S": 3.0}],
)
def test_in_evaluate(settings: dict[str, Any]) -> None:
    """Without a context; each episode starts afresh, and episodes are reproducible."""
    ours = AgentPolicy(Agent(features={"arms": [0, 1, 2]}, **settings))
    totals = evaluate([ours, bandit.RandomPolicy(seed=1)])
    assert (totals[:, 0] > totals[:, 1]).all()
    assert totals[:, 0].mean() > 0.55 * 400  # of 0.9 at best; 0.43 at random
    np.testing.assert_array_equal(evaluate([ours])[0], totals[0, :1])
    assert ours.learner.info().counts.decisions == 0


def test_in_evaluate_offline() -> None:
    policy = AgentPolicy(Agent(features=HOURS))
    total, used = bandit.evaluate_offline(policy, make_history())
    assert total.get() / used > 0.75
    counts = policy.learner.info().counts
    assert (counts.decisions, counts.rewards, counts.history_rows) == (600, used, 0)
    assert [policy.pull(ARMS, context={"hour": hour}) for hour in (8, 20)] == ARMS


def test_it_decides_as_the_agent() -> None:
    """The same decisions and the same state as the agent alone."""
    agent, policy = Agent(features=HOURS), AgentPolicy(Agent(features=HOURS))
    for arms, context, _, _ in make_history(100):
        decision = agent.decide(arms, context=context)
        arm = policy.pull(arms, context=context)
        assert arm == decision.arm
        reward = float(arm == "tea")
        agent.reward(decision, reward)
        policy.update(arm, context, reward)
    np.testing.assert_array_equal(policy.learner.theta, agent.theta)
    assert policy.ranking == ARMS
    assert "tea" in bandit.base.Policy.__repr__(policy)


def test_rewards_of_the_burn_in_are_learned_as_history() -> None:
    policy = AgentPolicy(Agent(features=HOURS), reward_obj=stats.Sum(), burn_in=2)
    pulled = []
    for hour in (8, 9, 10, 11):
        pulled.append(policy.pull(ARMS, context={"hour": hour}))
        policy.update(pulled[-1], {"hour": hour}, 1.0)
    assert pulled == ["tea", "tea", "juice", "juice"]
    assert policy.learner.info().counts.history_rows == 4
    assert policy.reward_obj.clone().get() == 0.0
    policy.pull(ARMS, context={"hour": 12})
    assert policy.learner.info().counts.decisions == 1


def test_a_reward_belongs_to_the_last_pull_with_its_context() -> None:
    agent = Agent(features={"arms": ["only"], "shared": {"x": (0, 1)}})
    policy = AgentPolicy(agent)
    for x in (0.0, 1.0, 0.0):
        policy.pull(["only"], context={"x": x})
    policy.update("only", {"x": 0.0}, 1.0)
    assert [decision.index for decision in policy.learner.pending()] == [0, 0]
    policy.update("only", {"x": 0.0}, 1.0)  # once more: its first pull was replaced by the later one
    counts = policy.learner.info().counts
    assert (counts.rewards, counts.history_rows) == (1, 1)


def test_a_reward_that_is_refused_changes_nothing() -> None:
    policy = AgentPolicy(Agent(features={"shared": {"hour": (0, 24)}, "arms": ["a", "b"]}))
    arm = policy.pull(["a", "b"], context={"hour": 3})
    with rejects("value"):
        policy.update(arm, {"hour": 3}, 5.0)
    policy.update(arm, {"hour": 3}, 1.0)
    counts = policy.learner.info().counts
    assert (counts.pending, counts.rewards, counts.history_rows) == (0, 1, 0)


def test_a_reward_that_comes_too_late_is_not_learned() -> None:
    """Soon after the decision was closed, and when the agent no longer remembers it."""
    for later in (1, 11_000):
        policy = AgentPolicy(Agent(features={"arms": [0, 1], "shared": {"x": (0, 1)}}, reward_timeout=1))
        first = policy.pull([0, 1], context={"x": 0.0})
        for _ in range(later + 1):
            policy.pull([0, 1], context={"x": 1.0})
        before = policy.learner.theta
        policy.update(first, {"x": 0.0}, 1.0)
        np.testing.assert_array_equal(policy.learner.theta, before)
        assert policy.learner.info().counts.history_rows == 0


def test_clones_are_fresh_and_copies_continue() -> None:
    policy = AgentPolicy(Agent(features=HOURS))
    bandit.evaluate_offline(policy, make_history(50))
    assert policy.clone().learner.info().counts.decisions == 0
    twins = copy.deepcopy(policy), pickle.loads(pickle.dumps(policy))
    arms = [each.pull(ARMS, context={"hour": 3}) for each in (policy, *twins)]
    assert len(set(arms)) == 1
    for twin in twins:
        np.testing.assert_array_equal(twin.learner.theta, policy.learner.theta)


@pytest.mark.parametrize("agent", ["adaptive", Agent(dim=2)], ids=str)
def test_other_agents_are_refused(agent: Any) -> None:
    with pytest.raises(ArgumentError) as caught:
        AgentPolicy(agent)
    assert caught.value.argument == "agent"
