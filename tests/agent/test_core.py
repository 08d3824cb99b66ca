"""AgentCore: rewards in parts, settings that make the same again, and replays that are equal to the last bit."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.agents import INF, NAN, NOON, RED, refuses, refuses_decision
from support.refusals import rejects
from windvane import Agent, ConflictingRewardError, DecisionError, Features, Logistic, UnknownDecisionError
from windvane.agent import AgentCore
from windvane.errors import ArgumentError
from windvane.records import to_plain


def baskets(**more: Any) -> Agent:
    """Return an agent with the decisions a, b and c at noon."""
    parts = {"link": "identity", "reward_range": (-5, 10), "reward_timeout": "1h", "default_reward": 1.0}
    agent = Agent(dim=2, policy="D-LinUCB", gamma=1.0, **parts | more)
    for name in "abc":
        agent.decide(RED, now=NOON, id=name)
    return agent


def test_parts_add_up_and_are_learned_at_the_timeout() -> None:
    agent = baskets()
    sums = [agent.core.add_reward("a", part, now=NOON + 60) for part in (2.0, 5.0, -4.0)]
    assert sums == [(("recorded", True), total) for total in (2.0, 7.0, 3.0)]  # repeated parts are not recognised
    assert agent.add_reward("b", 0.0, now=NOON + 60) == "recorded"
    counts = agent.info().counts
    assert (counts.rewards, counts.held, counts.pending, counts.settled) == (2, 2, 1, 0)
    assert not agent.policy.info().b.any()
    agent = Agent.from_bytes(agent.to_bytes())
    assert agent.core.add_reward("a", 1.0, now=NOON + 3600)[1] == 4.0
    closed = agent.expire(NOON + 3601)
    assert [(each.id, each.learned, each.rewarded) for each in closed] == [
        ("a", 4.0, True),
        ("b", 0.0, True),
        ("c", 1.0, False),
    ]
    counts = agent.info().counts
    assert (counts.rewards, counts.settled, counts.expired, counts.defaulted) == (2, 3, 1, 1)
    assert agent.info().mean_reward == pytest.approx(5 / 3)
    x = [np.array(RED[each.arm]) for each in closed]
    np.testing.assert_allclose(agent.policy.info().b[0], 4.0 * x[0] + 1.0 * x[2], rtol=1e-12)


def test_the_sum_of_parts_is_a_possible_reward() -> None:
    agent = baskets()
    agent.add_reward("a", 8.0, now=NOON)
    for bad in (2.1, -13.1, 1e308, NAN, INF, "1", None, [1.0]):
        refuses(agent, "value", lambda bad=bad: agent.add_reward("a", bad, now=NOON))
    assert agent.core.add_reward("a", -13.0, now=NOON)[1] == -5.0


def test_a_reward_comes_whole_or_in_parts() -> None:
    agent = baskets()
    agent.add_reward("a", 2.0, now=NOON)
    agent.reward("b", 2.0, now=NOON)

    def refuse(now: float) -> None:
        refuses_decision(agent, "a", lambda: agent.reward("a", 2.0, now=now), ConflictingRewardError)
        refuses_decision(agent, "b", lambda: agent.add_reward("b", 1.0, now=now), ConflictingRewardError)
        refuses_decision(agent, "d", lambda: agent.add_reward("d", 1.0, now=now), UnknownDecisionError)

    refuse(NOON)
    refuse(NOON + 3601)  # not closed yet
    agent.expire(NOON + 3601)
    refuse(NOON + 3601)
    agent = Agent.from_bytes(agent.to_bytes())
    refuse(NOON + 3601)


@pytest.mark.parametrize("is_closed", [False, True])
def test_parts_that_come_late_are_recorded_and_not_learned(is_closed: bool) -> None:
    agent, late = baskets(), NOON + 3601
    agent.add_reward("a", 2.0, now=NOON)
    if is_closed:
        agent.expire(late)
    assert agent.core.add_reward("a", 5.0, now=late) == (("expired", True), 5.0)
    b = agent.policy.info().b
    assert agent.core.add_reward("a", -1.0, now=late) == (("expired", True), 4.0)
    assert agent.core.add_reward("c", 3.0, now=late) == (("expired", True), 3.0)
    refuses(agent, "value", lambda: agent.add_reward("a", 4.1, now=late))  # 10.1 in all
    assert agent.reward("b", 3.0, now=late) == "expired"
    agent = Agent.from_bytes(agent.to_bytes())
    outcomes = [agent.core.outcome_of(key)[:3] for key in "abc"]
    assert outcomes == [(2.0, 4.0, True), (None, 3.0, False), (None, 3.0, True)]
    refuses_decision(agent, "c", lambda: agent.reward("c", 3.0, now=late), ConflictingRewardError)
    refuses_decision(agent, "b", lambda: agent.add_reward("b", 3.0, now=late), ConflictingRewardError)
    np.testing.assert_array_equal(agent.policy.info().b, b)
    assert agent.info().counts.rewards == 1


def test_a_decision_with_parts_may_be_dropped() -> None:
    agent = baskets(max_pending=3)
    agent.add_reward("a", 2.0, now=NOON)
    agent.decide(RED, now=NOON, id="d")
    assert (agent.info().counts.dropped, agent.info().counts.held) == (1, 0)
    assert agent.core.outcome_of("a") == (2.0, None, True, True)
    assert agent.add_reward("a", 1.0, now=NOON) == "expired"
    assert not agent.policy.info().b.any()


@pytest.mark.parametrize("changes", [{"learn": "on_arrival"}, {"learn": "early"}, {"default_reward": None}])
def test_parts_need_learning_at_the_timeout(changes: dict) -> None:
    agent = baskets()
    agent.add_reward("a", 2.0, now=NOON)
    agent.configure(**changes)
    refuses(agent, "value", lambda: agent.add_reward("a", 1.0, now=NOON))
    agent.configure(learn="at_timeout")
    assert agent.core.add_reward("a", 1.0, now=NOON)[1] == 3.0


def test_an_offer_is_checked_without_deciding() -> None:
    agent = Agent(dim=2)
    before, offer = agent.to_bytes(), agent.core.offer(RED)
    assert (offer.names, offer.vectors.shape) == (list(RED), (2, 2))
    with rejects("arms['long']", pointer="#/arms/long"):
        agent.core.offer({"long": [30.0, 40.0]})
    refuses(agent, "played", lambda: agent.core.decide(offer, now=NOON, id="a", played=2))
    assert agent.to_bytes() == before
    assert agent.core.decide(offer, now=NOON, id="a") == Agent(dim=2).decide(RED, now=NOON, id="a")


MIXED = {"shared": {"age": (0, 100)}, "per_arm": {"price": (0, 10)}, "by_arm": {"plan": ["a", "b"]}, "arms": ["r", 2]}
ARGUMENTS: list[dict[str, Any]] = [
    {"dim": 3, "prior": np.array([0.1, -0.2, 0.3]), "prior_weight": 3},
    {"dim": np.int64(2), "gamma": np.float32(0.5), "seed": np.uint8(3), "max_pending": np.int32(9)},
    {"dim": 2, "scaling": ([1.0, 2.0], np.array([0.5, 0.25])), "intercept": np.True_, "clip": True, "L": 2},
    {"dim": 2, "scaling": "fit", "half_life": timedelta(hours=36), "reward_timeout": timedelta(minutes=90)},
    {"dim": 2, "link": Logistic(), "policy": "GLM-UCB", "delta": np.array([0.3])},
    {"dim": 2, "link": "identity", "reward_range": (-4, np.float32(2)), "default_reward": -3, "reward_timeout": 5},
    {"features": MIXED, "learn": "early", "reward_timeout": "1d", "default_reward": 0.0, "epsilon": np.float64(0.1)},
    {"features": Features(shared=["z"]), "scaling": "fit"},
    {"dim": 2, "policy": "SW-LinUCB", "window": 12},
    {"dim": 2, "memories": (10.0, np.inf)},
]  # fmt: skip


@pytest.mark.parametrize("arguments", ARGUMENTS)
def test_settings_and_files_make_the_same_again(arguments: dict) -> None:
    agent = Agent(**arguments)
    again = AgentCore(**agent.settings)
    assert again.settings == agent.settings == agent.info().settings or "memories" in arguments
    assert again.pack()() == agent.to_bytes()
    if "memories" in arguments:
        assert to_plain(agent.info())["settings"]["memories"] == [10.0, None]  # JSON has no infinity
    else:
        assert AgentCore(**json.loads(json.dumps(agent.settings))).pack()() == agent.to_bytes()
        assert AgentCore(**to_plain(agent.info())["settings"]).pack()() == agent.to_bytes()
    loaded = Agent.from_bytes(agent.to_bytes())
    assert loaded.to_bytes() == agent.to_bytes()
    assert loaded.settings == agent.settings
    assert loaded.policy.config_hash == agent.policy.config_hash
    assert (loaded.reward_range, loaded.feature_names) == (agent.reward_range, agent.feature_names)
    assert vars(loaded.core.encoder.scaling).keys() == vars(agent.core.encoder.scaling).keys()
    assert loaded.core.encoder.to_fit == agent.core.encoder.to_fit


def test_a_replay_plays_the_arms_of_the_log() -> None:
    """Whatever would be played; and learns from them."""
    agent = Agent(dim=2, policy="D-LinUCB", gamma=0.9)
    for place, name in enumerate(RED):
        decision = agent.core.decide(agent.core.offer(RED), id=name, now=NOON, played=place)
        assert decision.arm == name
        agent.reward(name, 1.0)
    weights = 0.9 ** np.arange(2)[::-1]
    np.testing.assert_allclose(agent.policy.info().b[0], weights @ np.array(list(RED.values())), rtol=1e-12)


FEATURES = {"shared": ["age"], "by_arm": {"plan": ["x", "y"]}, "arms": ["red", "blue"]}
SETTINGS = [
    {"dim": 2, "half_life": "1h", "reward_timeout": "30s", "default_reward": 0.0, "epsilon": 0.3},
    {"dim": 2, "policy": "BVD-GLM-UCB", "gamma": 0.9, "reward_timeout": 3, "max_pending": 4, "learn": "at_timeout"},
    {"dim": 2, "reward_timeout": 4, "default_reward": 0.0, "learn": "early", "epsilon": 0.1},
    {
        "features": FEATURES,
        "scaling": "fit",
        "policy": "OnePassGLM",
        "gamma": 0.95,
        "reward_timeout": "20s",
        "learn": "at_timeout",
    },
]
CHANGES = [
    {"epsilon": 0.5}, {"learn": "on_arrival"}, {"reward_timeout": 5, "default_reward": 0.5, "learn": "early"},
    {"learn": "at_timeout"}, {"max_pending": 2}, {"reward_timeout": "25s", "default_reward": None, "learn": None},
]  # fmt: skip
steps = st.tuples(
    st.sampled_from(
        ["decide"] * 4 + ["reward"] * 3 + ["add_reward"] * 2 + ["expire", "history", "configure", "restart"]
    ),
    st.integers(0, 5),  # which decision, change, ...
    st.sampled_from([0.0, 0.25, 0.5, 1.0]),  # the reward
    st.sampled_from([0.0, 1.5, 12.25]),  # seconds that pass
)


ROWS = {"rewards": [0.0, 1.0], "vectors": [[0.1, 0.2], [0.3, 0.0]]}
FIELDS = {
    "rewards": [0.0, 1.0],
    "contexts": [{"age": 20, "plan": "x"}, {"age": 60, "plan": "y"}],
    "arms": ["red", "blue"],
}


def replay(core: AgentCore, step: str, arguments: dict[str, Any], call: dict[str, Any]) -> None:
    """Repeat a call of an agent: ``arguments`` are the rows of history or the offer of a decision."""
    if step == "decide":
        core.decide(core.offer(**arguments), **call)
    elif step == "history":
        none = dict.fromkeys(("vectors", "contexts", "arms", "weights"))
        core.adopt(core.learn_history(**none | arguments, times=call["times"], now=None))
    else:
        getattr(core, step)(**call)


@pytest.mark.parametrize("given_settings", SETTINGS, ids=["clock", "decisions", "early", "features"])
@settings(max_examples=40, deadline=None)
@given(life=st.lists(steps, min_size=30, max_size=60))
def test_a_life_can_be_replayed_to_the_last_bit(given_settings: dict, life: list) -> None:
    """A log of the calls that changed something, with the arms that were played, makes an equal core."""
    agent, ids, log, now = Agent(**given_settings), ["unknown"], list[Any](), NOON
    untrained, has_fields = agent.settings, "features" in given_settings
    for number, (step, choice, value, gap) in enumerate([("history", 0, 0.0, 0.0), *life]):
        now, arguments, is_new = now + gap, dict[str, Any](), True
        call: dict[str, Any] = {"id": ids[-1 - choice % len(ids)], "value": value, "now": now}
        try:
            if step == "decide":
                arms = np.random.default_rng(number).uniform(-0.6, 0.6, (3, 2))
                arguments = {"context": {"age": 30 + choice, "plan": "x"}} if has_fields else {"arms": arms}
                decision = agent.decide(**arguments, id=f"d{number}", now=now)
                call = {"id": decision.id, "now": now, "played": decision.index}
                ids.append(decision.id)
            elif step == "history":
                arguments, call = FIELDS if has_fields else ROWS, {"times": [now, now]}
                agent.history(**arguments, **call, now=now)
            elif step == "reward":
                is_new = agent.core.reward(**call).is_new
            elif step == "add_reward":
                is_new = agent.core.add_reward(**call)[0].is_new
            elif step == "expire":
                call = {"now": now}
                is_new = bool(agent.expire(now))
            elif step == "configure":
                call = CHANGES[choice]
                agent.configure(**call)
            else:
                agent, is_new = Agent.from_bytes(agent.to_bytes()), False
        except (ArgumentError, DecisionError):
            continue  # refused: nothing changed, and it is not in the log
        log += [(step, arguments, call)] * is_new
    again = AgentCore(**untrained)
    for entry in log:
        replay(again, *entry)
    assert again.pack()() == agent.to_bytes()


def test_more_decisions_are_closed_at_once_than_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windvane.agent.pending.REMEMBERED", 3)
    for call in ("reward", "add_reward"):
        agent = Agent(dim=2, reward_timeout="1h", default_reward=0.0)
        for i in range(6):
            agent.decide(RED, now=NOON, id=f"d{i}")
        assert getattr(agent, call)("d0", 1.0, now=NOON + 4000) == "expired"


def test_settings_are_copies() -> None:
    agent = Agent(features={"arms": ["x", "y"], "shared": {"age": [0, 1]}})
    before = agent.to_bytes()
    for copied in (agent.settings, agent.info().settings):
        copied["features"]["arms"].append("z")
    assert agent.to_bytes() == before


def test_parts_are_not_learned_early() -> None:
    agent = Agent(dim=2, policy="D-LinUCB", gamma=1.0, reward_range=(0, 10), reward_timeout=3, default_reward=0.0)
    agent.decide({"a": [1.0, 0.0]}, id="a")
    agent.add_reward("a", 1.0)
    agent.configure(learn="early")
    agent.decide({"a": [0.0, 0.0]})
    agent.configure(learn="at_timeout")
    agent.add_reward("a", 8.0)
    for _ in range(4):
        agent.decide({"a": [0.0, 0.0]})
    assert agent.policy.info().b[0, 0] == 9.0
