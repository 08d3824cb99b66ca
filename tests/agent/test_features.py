"""Declared features: the encoding by hand, round trips, contexts and arms in every form, errors that name the field."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.agents import refuses
from support.refusals import rejects
from windvane import Agent, Features
from windvane.errors import ArgumentError

NAN, INF = float("nan"), float("inf")
ALL = {
    "shared": {"age": (0.0, 100.0), "member": ["yes", "no"]},
    "per_arm": {"price": (0.0, 10.0)},
    "by_arm": {"age": (0.0, 100.0)},
    "arms": ["red", "blue"],
}


# --- the encoding --------------------------------------------------------------------------------------------------


def test_the_encoding_by_hand() -> None:
    """1 | age, member = yes, member = no | price | red: 1, age | blue: 1, age; over the root of six fields."""
    features = Features(**ALL)
    assert features.dim == 9
    rows = features.vectors({"age": 75, "member": "no"}, {"blue": {"price": 10}, "red": {"price": 2.5}})
    head = [1.0, 0.5, 0.0, 1.0]
    expected = [[*head, 1.0, 0.0, 0.0, 1.0, 0.5], [*head, -0.5, 1.0, 0.5, 0.0, 0.0]]
    np.testing.assert_allclose(rows, np.array(expected) / math.sqrt(6.0), rtol=1e-15)
    assert features.names == [
        *("1", "age", "member = yes", "member = no", "price"),
        *("red: 1", "red: age", "blue: 1", "blue: age"),
    ]


@pytest.mark.parametrize(
    ("given_", "context", "arms", "expected"),
    [
        ({"shared": {"z": (-1, 3)}, "intercept": False}, {"z": 3}, ["a"], [[1.0]]),
        ({"shared": ["z"], "intercept": False}, {"z": 0.3}, ["a", "b"], [[0.3], [0.3]]),
        ({"arms": ["a", "b"], "intercept": False}, None, ["b"], [[0.0, 1.0]]),
        ({"arms": ["a", 2]}, {}, [2], [[0.5**0.5, 0.0, 0.5**0.5]]),
        ({"per_arm": {"k": ["x", "y", "z"]}, "intercept": False}, None, {"a": {"k": "y"}}, [[0.0, 1.0, 0.0]]),
        ({"shared": {"z": {"low": 0, "high": 2}}, "clip": True}, {"z": 99}, ["a"], [[0.5**0.5, 0.5**0.5]]),
        ({"shared": {"z": {}}, "intercept": False}, {"z": True}, ["a"], [[1.0]]),
    ],
)
def test_small_encodings_by_hand(given_: dict, context: dict | None, arms: object, expected: list) -> None:
    np.testing.assert_allclose(Features(**given_).vectors(context, arms), expected, rtol=1e-15)


names = st.text(min_size=1, max_size=6)
finite = st.floats(-1e6, 1e6)
ranges = st.tuples(finite, finite).filter(lambda r: r[0] < r[1])
categories = st.lists(names, min_size=1, max_size=4, unique=True)
bounded = st.dictionaries(names.map("n".__add__), st.one_of(ranges, categories), max_size=3)


@given(
    shared=bounded,
    own=st.dictionaries(names.map("p".__add__), st.one_of(ranges, categories), max_size=3),
    arms=st.lists(st.one_of(names, st.integers(-5, 5)), min_size=1, max_size=4, unique_by=str),
    intercept=st.booleans(),
    data=st.data(),
)
def test_no_vector_is_longer_than_1_and_declarations_go_round(shared, own, arms, intercept, data) -> None:
    """With ranges for all numbers; and declared() through JSON is the same features, that is, the same vectors."""
    by_arm = (
        {name: shared[name] for name in data.draw(st.sets(st.sampled_from(sorted(shared)))) if shared} if shared else {}
    )
    try:
        features = Features(shared=shared, per_arm=own, by_arm=by_arm, arms=arms, intercept=intercept)
    except ArgumentError as error:
        assert (error.argument, error.got is not None) == ("features", True)  # noqa: PT017  (two names are equal)
        return

    def drawn(declared: dict) -> dict:
        return {
            name: data.draw(st.sampled_from(one) if isinstance(one, list) else st.floats(*one))
            for name, one in declared.items()
        }

    context, offered = drawn(shared), {arm: drawn(own) for arm in arms}
    rows = features.vectors(context, offered)
    assert rows.shape == (len(arms), features.dim)
    assert len(features.names) == features.dim == len(set(features.names))
    assert (np.linalg.norm(rows, axis=1) <= 1.0 + 1e-12).all()
    told = json.loads(json.dumps(features.declared()))
    again = Features(**told)
    assert again.declared() == features.declared()
    np.testing.assert_array_equal(again.vectors(context, offered), rows)
    agent = Agent(features=told, policy="OFUL")
    agent.decide(offered, context=context)  # and no range is ever too long for an agent


# --- declarations that are refused ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argument", "given_"),
    [
        ("features", {"intercept": False}),
        ("shared", {"shared": "age"}),
        ("shared", {"shared": 5}),
        ("shared", {"shared": {"age", "price"}}),
        ("shared['age']", {"shared": ["age", "age"]}),
        ("shared[[1]]", {"shared": [[1]]}),
        ("shared['']", {"shared": [""]}),
        ("shared[5]", {"shared": {5: (0, 1)}}),
        ("shared['age']", {"shared": {"age": (1, 0)}}),
        ("shared['age']", {"shared": {"age": (0, NAN)}}),
        ("shared['age']", {"shared": {"age": (0, INF)}}),
        ("shared['age']", {"shared": {"age": (-1e308, 1e308)}}),
        ("shared['age']", {"shared": {"age": (0, 1, 2)}}),
        ("shared['age']", {"shared": {"age": "0-100"}}),
        ("shared['age']", {"shared": {"age": []}}),
        ("shared['age']", {"shared": {"age": ["a", "a"]}}),
        ("shared['age']", {"shared": {"age": ["a", 1]}}),
        ("shared['age']", {"shared": {"age": {"low": 0}}}),
        ("shared['age']", {"shared": {"age": {"values": "ab"}}}),
        ("shared['age']", {"shared": {"age": {"values": []}}}),
        ("by_arm", {"by_arm": ["age"]}),
        ("by_arm['age']", {"by_arm": {"age": (0, 1)}, "shared": {"age": (0, 2)}, "arms": ["a"]}),
        ("arms", {"arms": "ab"}),
        ("arms", {"arms": 5}),
        ("arms", {"arms": ["a", "a"]}),
        ("arms", {"arms": [None]}),
        ("arms", {"arms": [True]}),
        ("arms", {"arms": {"a", "b"}}),
        ("intercept", {"intercept": "yes", "arms": ["a"]}),
        ("clip", {"clip": None, "arms": ["a"]}),
        ("features", {"shared": ["price"], "per_arm": ["price"]}),
        ("features", {"shared": ["1"]}),
        ("features", {"arms": [1, "1"]}),
    ],
)
def test_wrong_declarations_are_named(argument: str, given_: dict) -> None:
    for make in (lambda: Features(**given_), lambda: Agent(features=given_)):
        with rejects(argument):
            make()


# --- contexts and arms of a decision -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argument", "context", "arms"),
    [
        ("context['age']", {"member": "yes"}, {"red": {"price": 1}}),
        ("context['age']", None, {"red": {"price": 1}}),
        ("context", 5, {"red": {"price": 1}}),
        ("context['aeg']", {"age": 1, "member": "no", "aeg": 1}, {"red": {"price": 1}}),
        ("context['age']", {"age": 101, "member": "no"}, {"red": {"price": 1}}),
        ("context['age']", {"age": NAN, "member": "no"}, {"red": {"price": 1}}),
        ("context['age']", {"age": "7", "member": "no"}, {"red": {"price": 1}}),
        ("context['age']", {"age": None, "member": "no"}, {"red": {"price": 1}}),
        ("context['age']", {"age": np.array([7.0]), "member": "no"}, {"red": {"price": 1}}),
        ("context['member']", {"age": 1, "member": NAN}, {"red": {"price": 1}}),
        ("context['member']", {"age": 1, "member": None}, {"red": {"price": 1}}),
        ("context['member']", {"age": 1, "member": np.array(["yes", "no"])}, {"red": {"price": 1}}),
        ("context['member']", {"age": 1, "member": []}, {"red": {"price": 1}}),
        ("arms['red']['price']", {"age": 1, "member": "no"}, {"red": {}}),
        ("arms['red']['price']", {"age": 1, "member": "no"}, ["red"]),
        ("arms['red']['cost']", {"age": 1, "member": "no"}, {"red": {"price": 1, "cost": 2}}),
        ("arms['red']['price']", {"age": 1, "member": "no"}, {"red": {"price": -1}}),
        ("arms['red']", {"age": 1, "member": "no"}, {"red": 5}),
        ("arms['green']", {"age": 1, "member": "no"}, {"green": {"price": 1}}),
        ("arms", {"age": 1, "member": "no"}, ["red", "red"]),
        ("arms", {"age": 1, "member": "no"}, None),
        ("arms", {"age": 1, "member": "no"}, "red"),
        ("arms", {"age": 1, "member": "no"}, b"red"),
        ("arms", {"age": 1, "member": "no"}, []),
        ("arms", {"age": 1, "member": "no"}, {}),
        (r"arms", {"age": 1, "member": "no"}, np.zeros((2, 9))),
        (r"arms", {"age": 1, "member": "no"}, np.array("red")),
    ],
)  # fmt: skip
def test_wrong_contexts_and_arms_are_named(argument: str, context: object, arms: object) -> None:
    agent = Agent(features=ALL, wait=1)
    for _ in range(3):
        agent.decide({"red": {"price": 1}}, context={"age": 1, "member": "no"})
    error = refuses(agent, argument, lambda: agent.decide(arms, context=context))
    field = argument.removeprefix("context['").removesuffix("']")
    if isinstance(context, dict) and field in context:
        assert error.value is context[field]


def test_a_misspelt_field_gets_a_suggestion() -> None:
    agent = Agent(features=ALL)
    context = {"age": 1, "member": "no", "aeg": 1}
    error = refuses(agent, "context['aeg']", lambda: agent.decide({"red": {"price": 1}}, context=context))
    assert "'age'" in error.hint


@pytest.mark.parametrize(
    ("name", "given_"),
    [("price", {"shared": ["price"], "per_arm": ["price"]}), ("1", {"shared": ["1"]}), ("1: 1", {"arms": [1, "1"]})],
)
def test_two_coordinates_of_one_name_are_named(name: str, given_: dict) -> None:
    with rejects("features") as caught:
        Features(**given_)
    assert repr(name) in caught.value.got


def test_missing_values_of_pandas_are_refused() -> None:
    pandas = pytest.importorskip("pandas")
    agent = Agent(features=ALL)
    for field in ("age", "member"):
        for missing in (pandas.NA, pandas.NaT, np.nan):
            context = {"age": 1, "member": "no"} | {field: missing}
            refuses(agent, f"context['{field}']", lambda c=context: agent.decide({"red": {"price": 1}}, context=c))


def test_a_context_without_declared_features_is_refused() -> None:
    agent = Agent(dim=2)
    refuses(agent, "context", lambda: agent.decide([[0.1, 0.1]], context={}))


def test_declared_arms_need_not_be_named_again() -> None:
    agent = Agent(features={"by_arm": {"age": (0, 100)}, "arms": ["red", "blue"]})
    assert agent.decide(context={"age": 5}).arm in ("red", "blue")
    other = Agent(features={"per_arm": {"price": (0, 1)}, "arms": ["red"]})
    refuses(other, "arms", other.decide)


@pytest.mark.parametrize("forms", ["names", "mapping", "keys", "array", "tuple", "generator"])
def test_forms_of_names(forms: str) -> None:
    given_ = ["red", "blue"]
    arms = {
        "names": given_,
        "mapping": {"red": {}, "blue": {}},
        "keys": dict.fromkeys(given_).keys(),
        "array": np.array(given_),
        "tuple": tuple(given_),
        "generator": (name for name in given_),
    }[forms]
    decision = Agent(features={"arms": given_}).decide(arms)
    assert decision.arm in given_
    assert type(decision.arm) is str


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frames_of_fields(library: str) -> None:
    frames = pytest.importorskip(library)
    frame = frames.DataFrame({"arm": ["red", "blue"], "price": [1.0, 9.0]})
    one, other = Agent(features=ALL, policy="OFUL"), Agent(features=ALL, policy="OFUL")
    context = {"age": 30, "member": "yes"}
    for i in range(4):
        assert (
            one.decide(frame, context=context, id=str(i)).arm
            == other.decide({"red": {"price": 1.0}, "blue": {"price": 9.0}}, context=context, id=str(i)).arm
        )
        one.reward(str(i), 1.0)
        other.reward(str(i), 1.0)
    contexts = frames.DataFrame({"age": [10, 20], "member": ["yes", "no"]})
    assert one.update_many(contexts=contexts, arms=frame, rewards=[1.0, 0.0]) == 2
    own = [{"red": {"price": 1.0}}, {"blue": {"price": 9.0}}]
    other.update_many(contexts=[{"age": 10, "member": "yes"}, {"age": 20, "member": "no"}], arms=own, rewards=[1, 0])
    np.testing.assert_array_equal(one.theta, other.theta)
    bad = frames.DataFrame({"arm": ["red"], "cost": [1.0]})
    refuses(one, "arms['red']['price']", lambda: one.decide(bad, context=context))


# --- what is learnt ------------------------------------------------------------------------------------------------


def test_context_times_arm_learns_who_likes_what() -> None:
    """The young want red, the old blue: one context, and opposite answers; shared features alone could not tell."""
    agent = Agent(features={"by_arm": {"age": (20, 80)}, "arms": ["red", "blue"]}, seed=3)
    rng = np.random.default_rng(0)
    right = []
    for _ in range(400):
        age = float(rng.uniform(20, 80))
        decision = agent.decide(["red", "blue"], context={"age": age})
        wanted = "red" if age < 50 else "blue"
        agent.reward(decision, float(rng.random() < (0.9 if decision.arm == wanted else 0.1)))
        right.append(decision.arm == wanted)
    assert np.mean(right[-200:]) > 0.85
    theta = agent.info()["theta"]
    assert theta["red: age"] < 0 < theta["blue: age"]


def test_arms_may_change_every_time() -> None:
    agent = Agent(features={"per_arm": {"price": (0, 10)}})
    for i in range(20):
        offered = {f"item {j}": {"price": j % 11} for j in range(i, i + 1 + i % 5)}
        agent.reward(agent.decide(offered), float(i % 2))
    assert agent.rewards == 20


# --- ranges fitted on history --------------------------------------------------------------------------------------


def test_ranges_are_fitted_on_history_and_then_frozen() -> None:
    rng = np.random.default_rng(1)
    ages, prices = rng.normal(40, 10, 50), rng.exponential(3.0, 50)
    prices[7] = 500.0  # far beyond four standard deviations
    credit = rng.exponential(3.0, 50)
    credit[9] = -500.0
    agent = Agent(
        features={"shared": ["age", "credit"], "per_arm": ["price"], "by_arm": ["age"], "arms": ["red"]},
        scaling="fit",
        policy="OFUL",
    )
    refuses(agent, "scaling", lambda: agent.decide({"red": {"price": 1}}, context={"age": 5}))
    history = {
        "contexts": [{"age": age, "credit": one} for age, one in zip(ages, credit, strict=True)],
        "arms": [{"red": {"price": price}} for price in prices],
        "rewards": np.ones(50),
    }
    assert agent.update_many(**history) == 50
    declared = agent.features.declared()
    low, high = ages.mean() - 4 * ages.std(), ages.mean() + 4 * ages.std()
    assert declared["shared"]["age"] == declared["by_arm"]["age"] == pytest.approx({"low": low, "high": high})
    assert declared["per_arm"]["price"]["high"] == 500.0  # the history itself lies inside
    assert declared["shared"]["credit"]["low"] == -500.0
    agent.update_many(**history)
    assert agent.features.declared() == declared
    refuses(agent, "context['age']", lambda: agent.decide({"red": {"price": 1}}, context={"age": 1000, "credit": 1}))
    again = Agent.from_bytes(agent.to_bytes())
    assert again.features.declared() == declared


@pytest.mark.parametrize(
    ("argument", "ages"),
    [
        ("contexts", [3.0, 3.0, 3.0]),
        ("contexts", [0.1, 0.1, 0.1]),  # whose mean is not 0.1
        ("contexts", [3.0]),
        ("contexts[1]['age']", [3.0, NAN]),
        ("contexts[1]['age']", [3.0, 1e300]),
        ("contexts[0]['age']", ["x", 2.0]),
    ],
)
def test_history_that_cannot_be_fitted_on(argument: str, ages: list) -> None:
    agent = Agent(features={"shared": ["age"]}, scaling="fit")
    contexts = [{"age": age} for age in ages]
    refuses(
        agent, argument, lambda: agent.update_many(contexts=contexts, arms=["a"] * len(ages), rewards=[1] * len(ages))
    )


def test_numbers_without_a_range_are_held_by_the_norm_only() -> None:
    agent = Agent(features={"shared": ["z"], "intercept": False})
    agent.decide(["a"], context={"z": 1.0})
    refuses(agent, "arms['a']", lambda: agent.decide(["a"], context={"z": 2.0}))
    Agent(features={"shared": ["z"], "intercept": False}, L=5.0).decide(["a"], context={"z": 2.0})


@pytest.mark.parametrize(
    ("argument", "given_"),
    [
        ("arms", {"contexts": [{"age": 1}], "rewards": [1]}),
        ("X", {"X": [[1.0]], "rewards": [1]}),
        ("arms", {"arms": 5, "rewards": [1]}),
        ("arms", {"arms": "red", "rewards": [1]}),
        ("arms[1]", {"arms": ["red", None], "rewards": [1, 1]}),
        ("arms[0]", {"arms": [{"red": {}, "blue": {}}], "rewards": [1]}),
        ("contexts", {"arms": ["red", "red"], "contexts": [{"age": 1}], "rewards": [1, 1]}),
        ("contexts", {"arms": ["red"], "contexts": 5, "rewards": [1]}),
        ("contexts[1]['age']", {"arms": ["red"] * 2, "contexts": [{"age": 1}, {"age": 200}]}),
        ("arms[0]['green']", {"arms": ["green"], "contexts": [{"age": 1}], "rewards": [1]}),
        ("contexts[0]['age']", {"arms": ["red"], "rewards": [1]}),
        ("contexts[0]", {"arms": ["red"], "contexts": [5], "rewards": [1]}),
        ("rewards", {"arms": ["red"], "contexts": [{"age": 1}], "rewards": [1, 1]}),
    ],
)  # fmt: skip
def test_wrong_history_is_named(argument: str, given_: dict) -> None:
    agent = Agent(features={"by_arm": {"age": (0, 100)}, "arms": ["red"]})
    refuses(agent, argument, lambda: agent.update_many(**given_))


def test_an_empty_history_is_nothing() -> None:
    agent = Agent(features={"by_arm": {"age": (0, 100)}, "arms": ["red"]})
    before = agent.to_bytes()
    assert agent.update_many(contexts=[], arms=[], rewards=[]) == 0
    assert agent.to_bytes() == before
