"""From arms to vectors: scaling, length, frames of pandas and polars and the order of their columns."""

from __future__ import annotations

import math
from types import ModuleType

import numpy as np
import pandas
import polars
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.agents import INF, NAN, RED, assert_trustworthy, refuses
from support.refusals import rejects
from windvane import Agent, DLinUCB
from windvane.agent.vectors import REMEDY
from windvane.arguments import NORM_SLACK


def test_scaling_is_fitted_on_the_first_history_and_then_frozen() -> None:
    rng = np.random.default_rng(8)
    raw = rng.normal([5.0, -300.0, 0.1], [2.0, 100.0, 0.0], (50, 3))  # the last does not vary
    rewards, agent = rng.normal(size=50), Agent(dim=3, policy="D-LinUCB", gamma=0.99, scaling="fit", intercept=True)
    refuses(agent, "scaling", lambda: agent.decide(raw[:2]), value="fit")
    assert agent.history(rewards, raw) == 50
    z = (raw - raw.mean(axis=0)) / [raw[:, 0].std(), raw[:, 1].std(), 1.0]
    z /= 1.25 * np.linalg.norm(z, axis=1).max()
    policy = DLinUCB(4, gamma=0.99, L=math.hypot(1.0, 1.0))
    for row, reward in zip(z, rewards, strict=True):
        round_ = policy.t
        policy.advance(1.0)
        policy.update([[*row, 1.0]], reward, round=round_)
    np.testing.assert_allclose(agent.theta, policy.info().theta_hat[0], rtol=1e-9, atol=1e-12)
    center = agent.core.encoder.scaling.center.copy()
    agent.history(rewards[:10], raw[:10] + 1.0)
    np.testing.assert_array_equal(agent.core.encoder.scaling.center, center)
    agent.decide(raw[:4])
    refuses(agent, "arms[1]", lambda: agent.decide([raw[0], raw[0] * 100]), hint=REMEDY)


def test_declared_scaling_intercept_and_clip() -> None:
    center, spread = [1.0, 2.0], [2.0, 4.0]
    agent = Agent(dim=2, policy="OFUL", scaling=(center, spread), intercept=True, clip=True)
    for raw, scaled in (([2.0, 2.0], [0.5, 0.0, 1.0]), ([1.0, 10.0], [0.0, 1.0, 1.0])):  # the second was twice as long
        np.testing.assert_allclose(agent.core.offer([raw]).vectors, [scaled], rtol=1e-12)
    assert agent.feature_names == ["x0", "x1", "1"]
    assert pytest.approx(math.sqrt(2.0)) == agent.policy.L
    assert agent.settings["scaling"] == Agent(dim=2, scaling={"center": center, "spread": spread}).settings["scaling"]


def test_a_vector_that_is_too_long_says_what_to_do() -> None:
    agent = Agent(dim=2)
    refuses(agent, "arms['red']", lambda: agent.decide({"blue": [0.1, 0.1], "red": [1.0, 1.0]}), hint=REMEDY)
    for huge in (1e200, 1e308, INF, -INF, NAN):
        refuses(agent, "arms['red']", lambda huge=huge: agent.decide({"red": [huge, 0.1]}), hint="")
    np.testing.assert_allclose(Agent(dim=2, clip=True).core.offer({"red": [300.0, 400.0]}).vectors, [[0.6, 0.8]])


LENGTHS = st.floats(0.99, 1.01).filter(lambda length: abs(length - NORM_SLACK) > 1e-12)  # beyond rounding


@given(st.lists(LENGTHS, min_size=1, max_size=4), st.booleans(), st.integers(0, 2**32 - 1))
def test_vectors_up_to_the_bound_are_accepted_in_every_form(lengths: list[float], has_spread: bool, seed: int) -> None:
    """Lists, tuples, arrays, rows of a matrix in either order of memory; scaled, or used as they are."""
    rows = np.random.default_rng(seed).normal(size=(len(lengths), 3))
    rows *= (np.array(lengths) / np.linalg.norm(rows, axis=1))[:, None]
    spread = 2.0 if has_spread else 1.0
    agent = Agent(dim=3, L=1.0 / spread, scaling=(np.zeros(3), np.full(3, spread)))
    named = dict(enumerate(rows))
    forms = [named, {i: row.tolist() for i, row in named.items()}, {i: tuple(row) for i, row in named.items()}]
    forms += [rows, np.asfortranarray(rows), rows.tolist()]
    forms += [pandas.DataFrame(rows), dict(enumerate(map(pandas.Series, rows)))]
    is_allowed = max(lengths) <= NORM_SLACK
    for arms in forms:
        if is_allowed:
            offer = agent.core.offer(arms)
            np.testing.assert_array_equal(offer.vectors, rows / spread)
            assert_trustworthy(agent, offer)
        else:
            with rejects("arms", hint=REMEDY):
                agent.core.offer(arms)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("clip", [False, True])
def test_scaled_vectors_need_no_second_check(intercept: bool, clip: bool) -> None:
    rows = np.random.default_rng(0).normal(size=(30, 3)) * [1.0, 100.0, 0.0]
    agent = Agent(dim=3, scaling="fit", L=2.0, intercept=intercept, clip=clip)
    agent.history(np.ones(len(rows)), rows)
    for arms in (rows, np.asfortranarray(rows), pandas.DataFrame(rows), 1.24 * rows, 50.0 * rows):
        if clip or np.max(arms) <= 1.24 * np.max(rows):
            assert_trustworthy(agent, agent.core.offer(arms))


def test_vectors_must_not_be_masked() -> None:
    masked = np.ma.masked_array([0.1, 0.2], mask=[False, True])
    agent = Agent(dim=2)
    for vectors in ([masked], [[0.1, 0.2], masked], [masked, pandas.Series([0.1, 0.2])]):
        refuses(agent, "arms", lambda vectors=vectors: agent.decide(dict(enumerate(vectors))))


@pytest.mark.parametrize("frames", [pandas, polars])
def test_frames_of_vectors(frames: ModuleType) -> None:
    agent, plain = Agent(dim=2, policy="OFUL"), Agent(dim=2, policy="OFUL")
    columns = {"arm": ["red", "blue"], "size": [0.6, 0.2], "price": [0.1, 0.7]}
    for _ in range(5):
        decision = agent.decide(frames.DataFrame(columns))
        assert decision.arm == plain.decide(RED, id=decision.id).arm
        agent.reward(decision, 1.0)
        plain.reward(decision.id, 1.0)
    assert agent.feature_names == ["size", "price"]
    assert agent.decide(frames.DataFrame({"size": [0.9, 0.0], "price": [0.0, 0.0]})).arm == 0
    agent.history(frames.Series([1.0, 0.0]), frames.DataFrame({"size": [0.1, 0.2], "price": [0.3, 0.4]}))
    plain.decide([[0.9, 0.0], [0.0, 0.0]])
    plain.history([1.0, 0.0], [[0.1, 0.3], [0.2, 0.4]])
    np.testing.assert_array_equal(agent.theta, plain.theta)
    for bad in (
        {"arm": ["red", "red"], "size": [0.1, 0.2], "price": [0.1, 0.2]}, {"arm": ["red"], "size": [0.1]},
        {"arm": ["red"], "size": [0.1], "price": ["x"]}, {"size": [0.1, None], "price": [0.1, 0.2]},
        {"arm": [], "size": [], "price": []},
    ):  # fmt: skip
        refuses(agent, "arms", lambda bad=bad: agent.decide(frames.DataFrame(bad)))


@pytest.mark.parametrize("frames", [pandas, polars])
def test_the_columns_of_frames_are_known_by_name(frames: ModuleType) -> None:
    """A later frame may have its columns in another order; the coefficients stay with their columns, also in a file."""
    agent = Agent(dim=2, policy="OFUL")
    agent.history([1.0, 0.0], frames.DataFrame({"size": [0.5, 0.0], "price": [0.0, 0.5]}))
    assert agent.feature_names == ["size", "price"]
    for each in (agent, Agent.from_bytes(agent.to_bytes())):
        plain = each.decide({"a": [0.5, 0.1]}).prediction
        assert plain > 0.1  # size pays, price does not
        assert each.decide(frames.DataFrame({"price": [0.1], "size": [0.5]})).prediction == plain
        renamed = frames.DataFrame({"x": [0.1], "size": [0.5]})
        refuses(each, "arms", lambda each=each, renamed=renamed: each.decide(renamed), value=["x", "size"])
        assert each.history([1.0], frames.DataFrame({"price": [0.0], "size": [0.5]})) == 1
        assert each.theta[0] > each.theta[1]


@pytest.mark.parametrize("frames", [pandas, polars])
def test_frames_of_fields(frames: ModuleType) -> None:
    features = {"shared": {"age": (0, 100), "member": ["yes", "no"]}, "per_arm": {"price": (0, 10)}, "arms": list(RED)}
    one, other = Agent(features=features, policy="OFUL"), Agent(features=features, policy="OFUL")
    frame, context = frames.DataFrame({"arm": ["red", "blue"], "price": [1.0, 9.0]}), {"age": 30, "member": "yes"}
    own = {"red": {"price": 1.0}, "blue": {"price": 9.0}}
    offers = [agent.core.offer(arms, context) for agent, arms in ((one, frame), (other, own))]
    assert offers[0].names == offers[1].names
    np.testing.assert_array_equal(offers[0].vectors, offers[1].vectors)
    contexts = {"age": [10, 20], "member": ["yes", "no"]}
    assert one.history([1.0, 0.0], contexts=frames.DataFrame(contexts), arms=frame) == 2
    rows = [{"age": 10, "member": "yes"}, {"age": 20, "member": "no"}]
    other.history([1, 0], contexts=rows, arms=[{name: own[name]} for name in own])
    np.testing.assert_array_equal(one.theta, other.theta)
    bad = frames.DataFrame({"arm": ["red"], "cost": [1.0]})
    refuses(one, "arms['red']['price']", lambda: one.decide(bad, context=context))


def test_labelled_vectors_are_read_by_their_labels() -> None:
    core = Agent(dim=2, policy="OFUL").core
    arms = {"r": pandas.Series([0.5, 0.1], ["a", "b"]), "q": pandas.Series([0.2, 0.6], ["b", "a"])}
    np.testing.assert_array_equal(core.offer(arms).vectors, [[0.5, 0.1], [0.6, 0.2]])
    for bad in ([0.1, 0.2], pandas.Series([0.5, 0.1], ["a", "c"])):
        with rejects("arms"):
            core.offer(arms | {"s": bad})


@pytest.mark.parametrize("columns", [[0.5, 1.5], [("a", 1), ("a", 2)], [True, False], ["a", "a"]])
def test_columns_that_cannot_be_saved_or_repeat_are_refused(columns: list) -> None:
    frame = pandas.DataFrame([[0.5, 0.1]], columns=pandas.Index(columns, tupleize_cols=False))
    agent = Agent(dim=2, policy="OFUL")
    value = columns if columns == ["a", "a"] else columns[0]
    refuses(agent, "arms", lambda: agent.decide(frame), value=value)
    refuses(agent, "vectors", lambda: agent.history([1.0], frame), value=value)


def test_frames_of_pandas_with_an_index_or_numbered_columns_or_times() -> None:
    agent = Agent(dim=2, policy="OFUL")
    assert agent.decide(pandas.DataFrame(RED).T).arm in ("red", "blue")  # columns 0 and 1
    agent.history([1.0], pandas.DataFrame([[0.1, 0.2]]))
    stamps = pandas.Series(pandas.to_datetime(["2024-01-01", "2024-01-02"], utc=True))
    assert Agent(dim=2, half_life="1d").history([1.0, 0.0], [[0.1, 0.1]] * 2, times=stamps) == 2
