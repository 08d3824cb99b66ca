"""Learning a log again under other settings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from support.agents import LIVE, NOON, RED, refuses, required_settings
from windvane import Agent, Features
from windvane.errors import ArgumentError
from windvane.records import Decision, to_plain

SHOP: dict[str, Any] = {"by_arm": {"plan": ["free", "pro"]}, "arms": ["red", "blue", "green"]}


class Keeper:
    """An agent and the log that its user keeps."""

    def __init__(self, rounds: int = 0, **settings: Any) -> None:
        self.agent, self.log, self.rng = Agent(**settings), list[dict[str, Any]](), np.random.default_rng(0)
        for _ in range(rounds):
            self.step()

    @property
    def now(self) -> float:
        return NOON + len(self.log)

    def decide(self, arms: Any = None, context: Any = None) -> Decision:
        decision = self.agent.decide(arms, context=context, now=self.now, id=f"d{len(self.log)}")
        row = {"kind": "decided", "decision": decision.id, "request": {"arms": arms, "context": context}}
        self.log.append({**to_plain(decision), **row, "time": self.now})
        return decision

    def reward(self, decision: Decision, value: float) -> None:
        status = self.agent.reward(decision, value, now=self.now)
        kind = "late" if status == "expired" else "rewarded"
        self.log.append({"kind": kind, "decision": decision.id, "value": value, "time": self.now})

    def step(self) -> None:
        context = None if self.agent.settings["features"] is None else {"plan": ["free", "pro"][self.rng.integers(2)]}
        decision = self.decide(RED if context is None else None, context)
        if self.rng.random() < 0.8:
            self.reward(decision, float(self.rng.random() < {"red": 0.2, "blue": 0.6}.get(str(decision.arm), 0.4)))


@pytest.mark.parametrize("policy", LIVE)
def test_the_same_settings_give_the_same_agent(policy: str) -> None:
    keeper = Keeper(
        40, dim=2, policy=policy, seed=3, reward_timeout=20, default_reward=0.0, **required_settings(policy)
    )
    new, comparison = keeper.agent.refit(keeper.log)
    assert new.to_bytes() == keeper.agent.to_bytes()
    assert comparison.old == comparison.new
    assert comparison.outcomes == keeper.agent.info().counts.settled
    assert comparison.mean_reward == pytest.approx(keeper.agent.info().mean_reward)


def test_other_settings_give_the_agent_that_had_them_from_the_start() -> None:
    keeper = Keeper(60, dim=2, seed=1)
    for settings in ({"S": 2.0}, {"half_life": 30}, {"policy": "BVD-GLM-UCB", "gamma": 0.99}, {"link": "probit"}):
        new, comparison = keeper.agent.refit(keeper.log, **settings)
        same = Agent(**{**keeper.agent.settings, **settings})
        predictions, outcomes = {}, []
        for row in keeper.log:
            if row["kind"] == "decided":  # the arm of the log is played, not the one that is preferred
                core = same.core
                decision = core.decide(core.offer(RED), id=row["decision"], now=row["time"], played=row["index"])
                predictions[decision.id] = decision.prediction
            else:
                outcomes.append((predictions[row["decision"]], row["value"]))
                same.reward(row["decision"], row["value"], now=row["time"])
        assert new.to_bytes() == same.to_bytes()
        assert new.pending() == same.pending()
        p, r = np.array(outcomes).T
        assert comparison.new is not None
        assert comparison.new.mean_prediction == pytest.approx(p.mean())
        assert comparison.new.squared_error == pytest.approx(((p - r) ** 2).mean())
        assert comparison.new.log_loss == pytest.approx(-(r * np.log(p) + (1 - r) * np.log(1 - p)).mean())
        assert comparison.old is not None
        assert comparison.value is None
        assert comparison.reason is not None
        assert "epsilon" in comparison.reason


def test_a_new_agent_goes_on_where_the_log_ends() -> None:
    keeper = Keeper(30, dim=2, half_life="1h", reward_timeout="1d", default_reward=0.0)
    pending = keeper.agent.pending()
    new, _ = keeper.agent.refit(keeper.log, half_life="2h")
    assert [decision.id for decision in new.pending()] == [decision.id for decision in pending]
    assert new.info().counts == keeper.agent.info().counts
    assert new.reward(pending[-1].id, 1.0, now=keeper.now) == "recorded"
    assert new.memory == pytest.approx(2 * keeper.agent.memory, rel=1e-6)
    refuses(new, "log", lambda: keeper.agent.refit(keeper.log[:5]))


def test_a_longer_timeout_learns_rewards_that_came_too_late() -> None:
    keeper = Keeper(dim=2, reward_timeout=2, default_reward=0.0)
    first = keeper.decide(RED)
    for _ in range(4):
        keeper.decide(RED)
    keeper.reward(first, 1.0)
    assert keeper.log[-1]["kind"] == "late"
    new, comparison = keeper.agent.refit(keeper.log, reward_timeout=100)
    assert (new.info().counts.held, new.info().counts.expired, comparison.outcomes) == (1, 0, 0)


def test_what_was_closed_at_the_end_of_a_log_is_learned() -> None:
    """Nothing was decided since: its row says when it was closed."""
    keeper = Keeper(3, dim=2, reward_timeout="10s", default_reward=0.0, seed=1)
    assert keeper.agent.expire(now=NOON + 100)
    keeper.log.append({"kind": "closed", "time": NOON + 100})
    new, comparison = keeper.agent.refit(keeper.log)
    assert (comparison.decisions, comparison.outcomes) == (3, 3)
    assert new.to_bytes() == keeper.agent.to_bytes()
    assert keeper.agent.refit(keeper.log, reward_timeout="1h")[1].outcomes == 0


def test_history_and_parts_are_learned() -> None:
    keeper = Keeper(dim=2, reward_timeout=2, default_reward=0.0, learn="at_timeout")
    keeper.agent.history([1.0, 0.0], [[0.5, 0.5], [0.1, 0.2]], now=keeper.now)
    request = {"rewards": [1.0, 0.0], "vectors": [[0.5, 0.5], [0.1, 0.2]]}
    keeper.log.append({"kind": "history", "time": keeper.now, "request": request})
    decision = keeper.decide(RED)
    for part in (0.25, 0.5):
        keeper.agent.add_reward(decision, part, now=keeper.now)
        row = {"kind": "reward_part", "decision": decision.id, "value": part, "sum": 0.0, "time": keeper.now}
        keeper.log.append(row)
    for _ in range(5):
        keeper.decide(RED)
    new, _ = keeper.agent.refit(keeper.log)
    assert new.to_bytes() == keeper.agent.to_bytes()


def test_parts_that_a_user_keeps_need_no_sum() -> None:
    keeper = Keeper(dim=2, reward_timeout=2, default_reward=0.0)
    decision = keeper.decide(RED)
    for part in (0.25, 0.5):
        keeper.agent.add_reward(decision, part, now=keeper.now)
        keeper.log.append({"kind": "reward_part", "decision": decision.id, "value": part, "time": keeper.now})
    new, _ = keeper.agent.refit(keeper.log)
    assert new.to_bytes() == keeper.agent.to_bytes()


def test_another_policy_does_not_get_what_other_features_have_set() -> None:
    """``prior_dim`` or ``lam``, with which a policy keeps what it learned, are settings of that policy alone."""
    for policy, more in (("adaptive", {}), ("D-LinUCB", {"gamma": 0.99})):
        keeper = Keeper(5, features=SHOP, policy=policy, S=1.0, **more)
        keeper.agent.configure(features={**SHOP, "shared": {"hour": (0, 24)}})
        assert {"prior_dim", "lam"} & keeper.agent.settings.keys()
        first = {"kind": "configured", "time": NOON, "changes": {"features": SHOP}}
        new, _ = keeper.agent.refit([first, *keeper.log], policy="OnePassGLM", gamma=0.9)
        assert not {"prior_dim", "lam"} & new.settings.keys()
        same, _ = Agent.from_bytes(keeper.agent.to_bytes()).refit([first, *keeper.log], policy="OnePassGLM", gamma=0.9)
        assert same.to_bytes() == new.to_bytes()


def test_a_pending_decision_that_the_new_agent_has_closed_is_in_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windvane.agent.pending.REMEMBERED", 3)
    keeper = Keeper(dim=2)
    for _ in range(10):
        keeper.decide(RED)
    new, _ = keeper.agent.refit(keeper.log, reward_timeout=1)
    assert new.info().counts.expired == 7


def test_other_features_read_old_rows_as_far_as_they_can() -> None:
    """What a row lacks is 0 in its coordinates, and an arm that is gone counts for what is shared."""
    keeper = Keeper(30, features=SHOP)
    fields = {"shared": {"hour": (0, 24)}, "by_arm": {"plan": ["pro", "plus"]}, "arms": ["blue", "black"]}
    new, comparison = keeper.agent.refit(keeper.log, features=fields, policy="D-LinUCB", gamma=1.0, S=2.0)
    x, rewards = [], []
    decided = {row["decision"]: row for row in keeper.log if row["kind"] == "decided"}
    for row in keeper.log:
        if row["kind"] == "rewarded":
            then = decided[row["decision"]]
            own, is_pro = then["arm"] == "blue", then["request"]["context"]["plan"] == "pro"
            # 1 | hour | blue: 1, plan = pro, plan = plus | black: the same. Four fields are active.
            x.append(np.array([1, 0, own, own and is_pro, 0, 0, 0, 0]) / 2.0)
            rewards.append(row["value"])
    vectors = np.array(x)
    V, b = np.eye(8) + vectors.T @ vectors, vectors.T @ np.array(rewards)
    np.testing.assert_allclose(new.theta, np.linalg.solve(V, b), atol=1e-12)
    assert comparison.outcomes == len(rewards)
    new.decide(context={"hour": 3, "plan": "plus"})
    refuses(new, "context['hour']", lambda: new.decide(context={"plan": "plus"}))


def test_arms_that_were_not_named_are_those_declared_at_the_time() -> None:
    keeper = Keeper(10, features=SHOP)
    before = dict(keeper.agent.settings["features"])
    keeper.agent.remove_arm("red")
    keeper.log.append(
        {"kind": "configured", "time": keeper.now, "changes": {"features": {**SHOP, "arms": ["blue", "green"]}}}
    )
    for _ in range(10):
        keeper.step()
    for features in (before, Features(**before)):
        first = {"kind": "configured", "time": NOON, "changes": {"features": features}}
        new, comparison = keeper.agent.refit([first, *keeper.log], half_life=100)
        assert new.feature_names == keeper.agent.feature_names
        assert comparison.decisions == 20
    error = refuses(keeper.agent, "log", lambda: keeper.agent.refit(keeper.log))  # red is not declared any more
    assert "configured" in error.hint


def test_the_replayed_value_is_that_of_the_new_policy() -> None:
    """Against a log of uniform play, in which the truth is known: greedy play earns about the best arm's reward."""
    keeper = Keeper(1500, dim=2, epsilon=1.0, seed=7)
    _, comparison = keeper.agent.refit(keeper.log, epsilon=0.0)
    value = comparison.value
    assert value is not None
    assert abs(value.logged - 0.4) < 0.06  # the mean of 0.2 and 0.6
    assert abs(value.value - 0.6) < 4 * value.standard_error < 0.3
    assert value.logged < value.value
    assert 0.3 * value.decisions < value.effective_sample_size < 0.7 * value.decisions  # it agrees in half of them
    _, same = keeper.agent.refit(keeper.log)  # the policy of the log: all weights are one
    assert same.value is not None
    assert same.value.value == pytest.approx(same.value.logged)
    assert same.value.effective_sample_size == pytest.approx(same.value.decisions)


def test_rows_that_cannot_be_learned_are_refused() -> None:
    keeper = Keeper(5, dim=2)
    row = keeper.log[0]
    for bad, argument in (
        ({**row, "kind": "drunk"}, "log"),
        ({**row, "arm": "pink"}, "log"),
        ({**row, "time": "noon"}, "log"),
        ({**row, "decision": None, "id": None}, "log"),
        ({**row, "request": {"arms": {"red": [0.1]}}}, "log"),
        ({**row, "request": 5}, "log"),
        ({**row, "prediction": "high"}, "log"),
        ({**row, "propensity": float("nan")}, "log"),
        ({"kind": "history", "request": 5}, "log"),
        ({"kind": "configured", "changes": 5}, "log"),
        ({"kind": "configured", "changes": {"features": 5}}, "log"),
        (None, "log"),
    ):
        refuses(keeper.agent, argument, lambda bad=bad: keeper.agent.refit([bad]))
    refuses(keeper.agent, "log", lambda: keeper.agent.refit(None))
    refuses(keeper.agent, "log", lambda: keeper.agent.refit(keeper.log, reward_range=(0.0, 0.5)))
    with pytest.raises(ArgumentError) as caught:
        keeper.agent.refit([*keeper.log, {**row, "decision": "new", "arm": "pink"}])
    assert caught.value.path == ("log", len(keeper.log), "arm")
    refuses(keeper.agent, "colour", lambda: keeper.agent.refit(keeper.log, colour=1))
    refuses(keeper.agent, "gamma", lambda: keeper.agent.refit(keeper.log, gamma=2.0))
