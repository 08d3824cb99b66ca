"""Bulk history: all rows are learned or none, by age, also to fit ranges and scaling; rows that are wrong are named."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from support.agents import NAN, NOON, RED, assert_same_policy, build_agent, build_policy, refuses, weighted_sums
from support.refusals import rejects
from support.worlds import ball
from windvane import Agent

ROW = [[0.1, 0.1]]


@pytest.mark.parametrize("name", ["AdaptiveGLMUCB", "D-LinUCB", "BVD-GLM-UCB"])
def test_history_in_bulk_is_history_row_by_row(name: str) -> None:
    rng = np.random.default_rng(9)
    x, rewards, weights = ball(rng, (40,), 2), rng.random(40), rng.uniform(0.5, 2.0, 40)
    bulk, single, policy = build_agent(name, S=1.0), build_agent(name, S=1.0), build_policy(name, S=1.0)
    assert bulk.history(rewards, x, weights=weights) == 40
    for i in range(40):
        assert single.history(rewards[i, None], x[i, None], weights=weights[i, None]) == 1
        round_ = policy.t
        policy.advance(1.0)
        policy.update(x[i, None], rewards[i], round=round_, weight=weights[i])
    assert bulk.to_bytes() == single.to_bytes()
    assert_same_policy(bulk, policy)
    counts = bulk.info().counts
    assert (counts.decisions, counts.rewards, counts.history_rows, bulk.info().mean_reward) == (0, 0, 40, None)


def test_a_history_with_a_bad_row_is_not_learned_at_all() -> None:
    rng = np.random.default_rng(10)
    rows = {"vectors": ball(rng, (100,), 2), "rewards": rng.random(100), "times": NOON + np.arange(100.0)}
    agent = Agent(dim=2, half_life="1h")
    agent.history(rows["rewards"][:5], rows["vectors"][:5], times=rows["times"][:5] - 100)
    bad_values = {"vectors": [NAN, 3.0], "rewards": [1.5, NAN], "weights": [-1.0], "times": [NAN]}
    for argument, bad in [(name, value) for name, values in bad_values.items() for value in values]:
        given = {name: values.copy() for name, values in rows.items()} | {"weights": np.ones(100)}
        given[argument][57] = bad
        refuses(agent, None, lambda given=given: agent.history(**given), path=(argument, 57))
    assert agent.history(**rows) == 100


def test_a_history_that_is_interrupted_is_not_learned_at_all(interrupt_learning: Callable) -> None:
    agent = Agent(dim=2, policy="GLM-UCB")
    agent.decide(RED)
    before = agent.to_bytes()
    with interrupt_learning(20):
        agent.history(np.ones(50), np.full((50, 2), 0.3))
    assert agent.to_bytes() == before


def test_history_by_the_clock_counts_by_its_age() -> None:
    """Rows in any order; then a live decision, an hour after the last of them."""
    rng = np.random.default_rng(13)
    x, rewards, times = ball(rng, (30,), 2), rng.normal(size=30), NOON + rng.uniform(0, 36_000, 30)
    agent = Agent(dim=2, policy="D-LinUCB", half_life="2h")
    refuses(agent, "times", lambda: agent.history(rewards, x))
    assert agent.expire() == []  # asking for the time must not make the history old
    agent.history(rewards, x, times=[datetime.fromtimestamp(at, UTC) for at in times])
    agent.decide(x[:1], now=times.max() + 3600)
    V, b = weighted_sums(x, rewards, 0.5 ** ((times.max() + 3600 - times) / 7200))
    np.testing.assert_allclose(agent.policy.info().metric[0], V, rtol=1e-5)
    np.testing.assert_allclose(agent.policy.info().b[0], b, rtol=1e-5, atol=1e-6)
    refuses(agent, "times[0]", lambda: agent.history(rewards[:1], x[:1], times=times[:1]))


def test_times_put_history_in_order_where_decisions_count() -> None:
    rng = np.random.default_rng(14)
    x, rewards, shuffled = ball(rng, (20,), 2), rng.random(20), rng.permutation(20)
    ordered, mixed = Agent(dim=2, gamma=0.9), Agent(dim=2, gamma=0.9)
    ordered.history(rewards, x)
    mixed.history(rewards[shuffled], x[shuffled], times=NOON + shuffled)
    np.testing.assert_array_equal(ordered.theta, mixed.theta)


@pytest.mark.parametrize("settings", [{"reward_timeout": "1h"}, {"half_life": "1h"}], ids=str)
def test_history_of_the_past_and_of_the_future_is_refused(settings: dict) -> None:
    """It would count as newer than what followed it; and a row from the year 2255 would stop the clock for good."""
    agent = Agent(dim=2, **settings)
    refuses(agent, "times[1]", lambda: agent.history([1.0, 0.0], ROW * 2, times=[1.0, 9e9]), value=9e9)
    refuses(agent, "times[0]", lambda: agent.history([1.0], ROW, times=[1000.5], now=1000.0), value=1000.5)
    agent.decide(RED, now=NOON)
    early = [NOON + 1, NOON - 1e5]
    refuses(agent, "times[1]", lambda: agent.history([1.0, 0.0], ROW * 2, times=early), value=NOON - 1e5)
    assert agent.decide(RED, now=NOON - 10).time.timestamp() == NOON
    assert agent.history([1.0], ROW, times=[9e9], now=9e9) == 1


# fmt: off
VECTORS: dict[str, Any] = {"dim": 2}
WRONG_VECTORS: list[tuple[str, dict[str, Any]]] = [
    ("vectors", {}), ("arms", {"vectors": ROW, "arms": ["a"]}), ("contexts", {"vectors": ROW, "contexts": [{}]}),
    *(("vectors", {"vectors": bad}) for bad in ([[0.1]], "ab", [["0.1", "0.2"]], [], np.array([["0.1", 0.2]], object))),
    *(("rewards", {"vectors": ROW, "rewards": bad}) for bad in (1.0, ["1"], None, [], [1.0, 1.0])),
    *(("weights", {"vectors": ROW, "weights": bad}) for bad in ([1.0, 2.0], [1e10])),
    *(("times", {"vectors": ROW, "times": bad}) for bad in (5, [1.0, 2.0], ["noon"], [datetime(2024, 1, 1)])),
]
FIELDS: dict[str, Any] = {"features": {"by_arm": {"age": (0, 100)}, "arms": ["red"]}}
AGE = [{"age": 1}]
WRONG_FIELDS: list[tuple[str, dict[str, Any]]] = [
    ("arms", {"contexts": AGE}), ("vectors", {"vectors": [[1.0]]}), ("arms", {"arms": 5}), ("arms", {"arms": "red"}),
    ("arms[1]", {"arms": ["red", None]}), ("arms[0]", {"arms": [{"red": {}, "blue": {}}]}),
    ("contexts", {"arms": ["red", "red"], "contexts": AGE}), ("contexts", {"arms": ["red"], "contexts": 5}),
    ("contexts[1]['age']", {"arms": ["red"] * 2, "contexts": [*AGE, {"age": 200}]}),
    ("arms[0]", {"arms": ["green"], "contexts": AGE}), ("contexts[0]['age']", {"arms": ["red"]}),
    ("contexts[0]", {"arms": ["red"], "contexts": [5]}),
    ("arms[0]['red']['cost']", {"arms": [{"red": {"cost": 1}}], "contexts": AGE}),
    ("rewards", {"arms": ["red"], "contexts": AGE, "rewards": [1, 1]}),
]
# fmt: on


@pytest.mark.parametrize(
    ("settings", "argument", "rows"),
    [(VECTORS, *row) for row in WRONG_VECTORS] + [(FIELDS, *row) for row in WRONG_FIELDS],
)
def test_wrong_history_is_named(settings: dict, argument: str, rows: dict) -> None:
    agent = Agent(**settings)
    refuses(agent, argument, lambda: agent.history(**{"rewards": [1.0]} | rows))


def test_an_empty_history_is_nothing() -> None:
    agent = Agent(**FIELDS)
    before = agent.to_bytes()
    assert agent.history([], contexts=[], arms=[]) == 0
    assert agent.to_bytes() == before


def test_ranges_are_fitted_on_history_and_then_frozen() -> None:
    rng = np.random.default_rng(1)
    ages, prices, credit = rng.normal(40, 10, 50), rng.exponential(3.0, 50), rng.exponential(3.0, 50)
    prices[7], credit[9] = 500.0, -500.0  # far beyond four standard deviations
    features = {"shared": ["age", "credit"], "per_arm": ["price"], "by_arm": ["age"], "arms": ["red"]}
    agent = Agent(features=features, scaling="fit", policy="OFUL")
    refuses(agent, "scaling", lambda: agent.decide({"red": {"price": 1}}, context={"age": 5}))
    contexts = [{"age": age, "credit": each} for age, each in zip(ages, credit, strict=True)]
    arms = [{"red": {"price": price}} for price in prices]
    assert agent.history(np.ones(50), contexts=contexts, arms=arms) == 50
    fitted = agent.settings["features"]
    low, high = ages.mean() - 4 * ages.std(), ages.mean() + 4 * ages.std()
    assert fitted["shared"]["age"] == fitted["by_arm"]["age"] == pytest.approx({"low": low, "high": high})
    assert (fitted["per_arm"]["price"]["high"], fitted["shared"]["credit"]["low"]) == (500.0, -500.0)
    agent.history(np.ones(50), contexts=contexts, arms=arms)
    assert agent.settings["features"] == fitted
    context = {"age": 1000, "credit": 1}
    refuses(agent, "context['age']", lambda: agent.decide({"red": {"price": 1}}, context=context))
    assert Agent.from_bytes(agent.to_bytes()).info() == agent.info()


UNFIT: list[tuple[str, list]] = [
    ("contexts", [3.0, 3.0, 3.0]), ("contexts", [0.1, 0.1, 0.1]),  # whose mean is not 0.1
    ("contexts", [3.0]), ("contexts[1]['age']", [3.0, NAN]), ("contexts[1]['age']", [3.0, 1e300]),
    ("contexts[0]['age']", ["x", 2.0]),
]  # fmt: skip


@pytest.mark.parametrize(("argument", "ages"), UNFIT)
def test_ranges_cannot_be_fitted_on_everything(argument: str, ages: list) -> None:
    agent = Agent(features={"shared": ["age"]}, scaling="fit")
    contexts = [{"age": age} for age in ages]
    refuses(agent, argument, lambda: agent.history([1] * len(ages), contexts=contexts, arms=["a"] * len(ages)))


@pytest.mark.parametrize("rows", [ROW, ROW * 3, [[NAN, 1.0], [1.0, 1.0]], [[1e308, -1e308]] * 2])
def test_scaling_cannot_be_fitted_on_everything(rows: list) -> None:
    agent = Agent(dim=2, scaling="fit")
    refuses(agent, "vectors", lambda: agent.history([0.5] * len(rows), rows))
    with rejects("scaling"):
        agent.decide(RED)
