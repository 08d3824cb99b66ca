"""Agents whose policy knows arms by their index: they get unit vectors from the declared arms."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from support.agents import INDEXED, NOON, assert_same_policy, refuses
from windvane import Agent, Features
from windvane.records import to_json, to_plain

SETTINGS: dict[str, dict[str, Any]] = {
    "D-UCB": {"gamma": 0.995},
    "SW-UCB": {"window": 150.0},
    "Rexp3": {"restart_every": 500, "rate": 0.3},
    "EXP3.S": {"horizon": 300},
}
ARMS = ["red", "green", "blue"]
MEANS = {"red": 0.2, "green": 0.5, "blue": 0.8}
by_name = pytest.mark.parametrize("name", INDEXED)
changing = pytest.mark.parametrize("name", ["D-UCB", "SW-UCB"])


def make_agent(name: str, **settings: Any) -> Agent:
    return Agent(features={"arms": ARMS}, policy=name, **SETTINGS[name] | settings)


def play(agent: Agent, rounds: int, seed: int = 0) -> list[str]:
    """Every third reward is a decision late."""
    rng, arms, late = np.random.default_rng(seed), [], None
    for i in range(rounds):
        decision = agent.decide(now=NOON + i, id=f"{seed}-{agent.core.tally.decisions}")
        reward = float(rng.random() < MEANS.get(str(decision.arm), 0.5))
        arms.append(str(decision.arm))
        if late is not None:
            agent.reward(*late)
        late = (decision, reward) if i % 3 == 0 else None
        if late is None:
            agent.reward(decision, reward)
    return arms


def test_every_indexed_policy_is_tested() -> None:
    assert set(SETTINGS) == set(INDEXED)


@by_name
def test_declared_arms_are_unit_vectors(name: str) -> None:
    """Without the intercept that other policies share among arms, whatever the declaration says."""
    for features in ({"arms": ARMS}, {"arms": ARMS, "intercept": False}, Features(arms=ARMS)):
        agent = Agent(features=features, policy=name, **SETTINGS[name])
        assert agent.feature_names == ["red: 1", "green: 1", "blue: 1"]
        assert np.array_equal(agent.core.offer().vectors, np.eye(3))
        assert agent.info().settings["features"]["intercept"] is False
    plain = Agent(features={"arms": ARMS}, policy="OFUL")
    assert plain.feature_names == ["1", "red: 1", "green: 1", "blue: 1"]


@by_name
def test_choices_are_those_of_the_policy_driven_by_hand(name: str) -> None:
    agent, raw = make_agent(name, seed=5), Agent(dim=3, policy=name, seed=5, **SETTINGS[name])
    policy = INDEXED[name](3, seed=5, **SETTINGS[name])
    rng = np.random.default_rng(0)
    for _ in range(60):
        some = [int(k) for k in rng.permutation(3)[: rng.integers(1, 4)]]
        decision = agent.decide([ARMS[k] for k in some])
        same = raw.decide({ARMS[k]: np.eye(3)[k] for k in some})
        index = int(policy.select(np.eye(3)[None, some])[0])
        assert decision.arm == same.arm == ARMS[some[index]]
        reward = float(rng.random() < MEANS[str(decision.arm)])
        for each in (agent, raw):
            each.reward(decision if each is agent else same, reward)
        policy.update(np.eye(3)[None, some[index]], reward)
    assert_same_policy(agent, policy)
    assert_same_policy(raw, policy)


@by_name
def test_it_learns_and_everything_that_is_shown_is_a_number(name: str) -> None:
    agent = make_agent(name)
    first = agent.decide()
    for shown in (first, agent.explain(first), agent.rank(), agent.info()):
        json.loads(json.dumps(to_plain(shown), allow_nan=False))  # also before anything is known
    assert to_json(first)
    arms = play(agent, 299)
    assert arms[-100:].count("blue") > 50
    info = agent.info()
    assert info.theta["blue: 1"] == pytest.approx(0.8, abs=0.25)
    assert (info.policy, info.memory is None) == (name, name == "EXP3.S" and info.memory is None)
    ranked = agent.rank()
    assert sorted(str(each.arm) for each in ranked) == sorted(ARMS)
    assert {str(each.arm): each.prediction for each in ranked} == pytest.approx(
        {arm: info.theta[f"{arm}: 1"] for arm in ARMS}
    )


@by_name
def test_a_saved_agent_goes_on_alike(name: str) -> None:
    agent = make_agent(name, seed=3)
    assert Agent.from_bytes(agent.to_bytes()).to_bytes() == agent.to_bytes()
    agent.decide(now=NOON, id="open")  # whose arm is not known yet
    play(agent, 50)
    again = Agent.from_bytes(agent.to_bytes())
    assert play(agent, 50, seed=1) == play(again, 50, seed=1)
    assert agent.to_bytes() == again.to_bytes()


@by_name
def test_timeouts_and_partial_outcomes(name: str) -> None:
    for learn in ("at_timeout", "on_arrival", "early"):
        agent = make_agent(name, reward_timeout=5, default_reward=0.0, learn=learn)
        rng = np.random.default_rng(0)
        for i in range(120):
            decision = agent.decide(now=NOON + i)
            if rng.random() < MEANS[str(decision.arm)]:
                agent.reward(decision, 1.0)
        assert agent.info().counts.settled > 100
        assert max(agent.info().theta.values()) > 0.4


@by_name
def test_history_of_the_arms(name: str) -> None:
    """The means learn it. The weights of Rexp3 and EXP3.S do not: it has no probabilities."""
    agent = make_agent(name)
    assert agent.history([1.0, 0.0, 1.0, 1.0], arms=["red", "green", "red", "blue"]) == 4
    assert agent.info().theta == pytest.approx({"red: 1": 1.0, "green: 1": 0.0, "blue: 1": 1.0})
    if name in ("Rexp3", "EXP3.S"):
        assert not agent.core.policy.exp3.log_weights.any()  # type: ignore[attr-defined]
        assert agent.core.policy.info().unused.tolist() == [4]  # type: ignore[attr-defined]
    refuses(agent, "arms[1]", lambda: agent.history([1.0, 0.0], arms=["red", "pink"]))
    raw = Agent(dim=3, policy=name, **SETTINGS[name])
    raw.history([1.0], vectors=[[0.0, 1.0, 0.0]])
    refuses(raw, "vectors[1]", lambda: raw.history([1.0, 1.0], vectors=[[0.0, 1.0, 0.0], [0.5, 0.5, 0.0]]))


@by_name
def test_anything_but_arms_is_refused(name: str) -> None:
    for features in (
        {"shared": {"age": (0, 1)}, "arms": ARMS}, {"by_arm": {"age": (0, 1)}, "arms": ARMS},
        {"per_arm": {"price": (0, 1)}, "arms": ARMS}, {"per_arm": {"price": (0, 1)}}, {"shared": {"age": (0, 1)}},
    ):  # fmt: skip
        with pytest.raises(ValueError, match="features"):
            Agent(features=features, policy=name, **SETTINGS[name])
    agent = make_agent(name)
    refuses(agent, "arms", lambda: agent.decide(["red", "pink"]))
    refuses(agent, "context", lambda: agent.decide(context={"age": 1.0}))
    raw = Agent(dim=2, policy=name, **SETTINGS[name])
    for vector in ([0.6, 0.1], [0.0, 0.0], [-1.0, 0.0]):
        refuses(raw, "arms['b']", lambda: raw.decide({"a": [1.0, 0.0], "b": vector}))
        refuses(raw, "arms['b']", lambda: raw.rank({"a": [1.0, 0.0], "b": vector}))
    scaled = Agent(dim=2, policy=name, intercept=True, **SETTINGS[name])
    refuses(scaled, "arms", lambda: scaled.decide({"a": [1.0, 0.0]}))
    with pytest.raises(ValueError, match="prior"):
        make_agent(name, prior=[0.1, 0.2, 0.3])


def test_the_range_of_rewards_is_that_of_the_policy() -> None:
    for name in INDEXED:
        agent = make_agent(name, reward_range=(0.0, 4.0))
        assert agent.core.policy.noise_scale == 2.0
        agent.reward(agent.decide(), 4.0)
    for name in ("Rexp3", "EXP3.S"):
        with pytest.raises(ValueError, match="reward_range"):
            make_agent(name, reward_range=(-1.0, 1.0))
        agent = make_agent(name)
        decision = agent.decide()
        refuses(agent, "value", lambda: agent.reward(decision, 1.5))
    anything = make_agent("D-UCB", reward_range=(-1.0, 1.0))
    anything.reward(anything.decide(), -1.0)


@changing
def test_arms_come_and_go(name: str) -> None:
    """What was learned about an arm that stays does not change; a new one is played next."""
    agent = make_agent(name)
    play(agent, 40)
    before = agent.info().theta
    agent.add_arm("pink")
    assert agent.info().theta == before | {"pink: 1": 0.0}
    assert agent.decide().arm == "pink"
    agent.remove_arm("green")
    assert agent.feature_names == ["red: 1", "blue: 1", "pink: 1"]
    kept = {"red: 1": before["red: 1"], "blue: 1": before["blue: 1"], "pink: 1": 0.0}
    assert agent.info().theta == pytest.approx(kept, rel=1e-12)
    play(agent, 40)
    agent.configure(features={"arms": ["pink", "green", "blue"]})
    assert agent.feature_names == ["pink: 1", "green: 1", "blue: 1"]
    assert agent.decide().arm == "green"
    refuses(agent, "features", lambda: agent.configure(features={"shared": {"age": (0, 1)}, "arms": ARMS}))


@changing
def test_a_tuned_policy_keeps_its_rate_when_arms_change(name: str) -> None:
    agent = Agent(features={"arms": ARMS}, policy=name, horizon=1000, switches=3)
    play(agent, 20)
    before = agent.core.policy.choose_forgetting()
    agent.add_arm("pink")
    assert agent.core.policy.choose_forgetting() == before
    assert Agent.from_bytes(agent.to_bytes()).to_bytes() == agent.to_bytes()


@pytest.mark.parametrize("name", ["Rexp3", "EXP3.S"])
def test_weights_cannot_change_their_arms(name: str) -> None:
    agent = make_agent(name)
    play(agent, 20)
    refuses(agent, "features", lambda: agent.add_arm("pink"))


@by_name
def test_random_play_by_the_agent_does_not_mislead(name: str) -> None:
    agent = make_agent(name, epsilon=0.3)
    arms = play(agent, 290)
    assert arms[-100:].count("blue") > 40
    assert agent.decide().propensity is not None


@by_name
def test_a_log_is_learned_again_by_another_policy(name: str) -> None:
    """From declared fields to arms alone, and what the log has but the declaration lacks."""
    agent, rng, log = (
        Agent(features={"shared": {"age": (0, 1)}, "arms": ARMS}, policy="OFUL"),
        np.random.default_rng(0),
        [],
    )
    for i in range(60):
        request = {"arms": ARMS, "context": {"age": float(rng.random())}}
        decision = agent.decide(ARMS, context=request["context"], now=NOON + 2 * i)
        reward = float(rng.random() < MEANS[str(decision.arm)])
        agent.reward(decision, reward, now=NOON + 2 * i + 1)
        row = {
            "kind": "decided",
            "decision": decision.id,
            "time": NOON + 2 * i,
            "arm": decision.arm,
            "request": request,
        }
        log += [row, {"kind": "rewarded", "decision": decision.id, "time": NOON + 2 * i + 1, "value": reward}]
    refit = agent.refit(log, policy=name, features={"arms": ARMS}, **SETTINGS[name])
    assert refit.comparison.decisions == 60
    means = refit.agent.core.policy.info().theta_hat
    assert means is not None
    assert means[0].argmax() == 2
    with pytest.raises(ValueError, match="declared arms"):
        agent.refit(log, policy=name, features={"arms": ARMS[:2]}, **SETTINGS[name])
