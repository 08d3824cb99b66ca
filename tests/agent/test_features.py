"""Declared features: the encoding by hand, round trips and order, contexts and arms, errors that name the field."""

from __future__ import annotations

import copy
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.agents import INF, NAN, assert_trustworthy, refuses
from support.declarations import contexts_of, declarations, live
from support.refusals import rejects
from windvane import Agent, Features
from windvane.errors import ArgumentError, json_pointer

ALL = {
    "shared": {"age": (0.0, 100.0), "member": ["yes", "no"]},
    "per_arm": {"price": (0.0, 10.0)},
    "by_arm": {"age": (0.0, 100.0)},
    "arms": ["red", "blue"],
}
CONTEXT, RED = {"age": 1, "member": "no"}, {"red": {"price": 1}}


def test_the_encoding_by_hand() -> None:
    """1 | age, member = yes, member = no | price | red: 1, age | blue: 1, age; over the root of six fields."""
    features = Features(**ALL)
    rows = features.vectors({"age": 75, "member": "no"}, {"blue": {"price": 10}, "red": {"price": 2.5}})
    head = [1.0, 0.5, 0.0, 1.0]
    expected = [[*head, 1.0, 0.0, 0.0, 1.0, 0.5], [*head, -0.5, 1.0, 0.5, 0.0, 0.0]]
    np.testing.assert_allclose(rows, np.array(expected) / math.sqrt(6.0), rtol=1e-15)
    blocks = ["red: 1", "red: age", "blue: 1", "blue: age"]
    assert features.names == ["1", "age", "member = yes", "member = no", "price", *blocks]


@pytest.mark.parametrize(
    ("declaration", "context", "arms", "expected"),
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
def test_small_encodings_by_hand(declaration: dict, context: dict | None, arms: object, expected: list) -> None:
    np.testing.assert_allclose(Features(**declaration).vectors(context, arms), expected, rtol=1e-15)


names = st.text(min_size=1, max_size=6)
finite = st.floats(-1e6, 1e6)
ranges = st.tuples(finite, finite).filter(lambda r: r[0] < r[1])
bounded = st.one_of(ranges, st.lists(names, min_size=1, max_size=4, unique=True))


@given(
    shared=st.dictionaries(names.map("n".__add__), bounded, max_size=3),
    own=st.dictionaries(names.map("p".__add__), bounded, max_size=3),
    arms=st.lists(st.one_of(names, st.integers(-5, 5)), min_size=1, max_size=4, unique_by=str),
    intercept=st.booleans(),
    data=st.data(),
)
def test_no_vector_is_longer_than_1_and_declarations_go_round(shared, own, arms, intercept, data) -> None:
    """With ranges for all numbers; and a declaration through JSON is the same features, that is, the same vectors."""
    by_arm = {name: shared[name] for name in data.draw(st.sets(st.sampled_from(sorted(shared) or ["-"]))) if shared}
    try:
        features = Features(shared=shared, per_arm=own, by_arm=by_arm, arms=arms, intercept=intercept)
    except ArgumentError as error:
        assert (error.argument, error.got is not None) == ("features", True)  # noqa: PT017  (two names are equal)
        return

    def draw_values(fields: dict) -> dict:
        kinds = {name: st.sampled_from(f) if isinstance(f, list) else st.floats(*f) for name, f in fields.items()}
        return {name: data.draw(kind) for name, kind in kinds.items()}

    context, offered = draw_values(shared), {arm: draw_values(own) for arm in arms}
    rows = features.vectors(context, offered)
    assert rows.shape == (len(arms), features.dim)
    assert len(features.names) == features.dim == len(set(features.names))
    assert (np.linalg.norm(rows, axis=1) <= 1.0 + 1e-12).all()
    again = Features(**json.loads(json.dumps(features.declaration())))
    assert again.declaration() == features.declaration()
    np.testing.assert_array_equal(again.vectors(context, offered), rows)
    agent = Agent(features=again, policy="OFUL")  # for which no vector is too long
    for form in (offered, list(offered), None) if not own else (offered,):
        assert_trustworthy(agent, agent.core.offer(form, context))


@settings(max_examples=60)
@given(declaration=declarations(), seed=st.integers(0, 2**32 - 1))
def test_what_is_copied_or_stored_and_read_back_means_the_same(declaration: dict, seed: int) -> None:
    """Same names, same vectors, same predictions and decisions, with rewards that are pending and held."""
    agent = Agent(features=declaration, reward_timeout=6, default_reward=0.0, seed=seed % 1000, epsilon=0.1)
    live(agent, seed, range(25))
    copies = [agent, copy.deepcopy(agent), Agent.from_bytes(agent.to_bytes())]
    for again in copies:
        assert again.to_bytes() == agent.to_bytes()
        assert again.feature_names == list(again.info().theta) == Features(**declaration).names
        assert again.settings["features"] == Features(**declaration).declaration()
        assert list(again.settings["features"]["by_arm"]) == list(declaration["by_arm"])
    for context, arms in contexts_of(declaration, seed + 1, 5):
        offers = [again.core.offer(arms, context) for again in copies]
        assert offers[0].names == offers[1].names == offers[2].names
        assert offers[0].vectors.tobytes() == offers[1].vectors.tobytes() == offers[2].vectors.tobytes()
    lives = [live(again, seed + 2, range(25, 40)) for again in copies]
    assert lives[0] == lives[1] == lives[2]


@given(declaration=declarations(), seed=st.integers(0, 2**32 - 1))
def test_each_coordinate_has_the_value_that_its_name_says(declaration: dict, seed: int) -> None:
    features = Features(**declaration)
    ((context, arms),) = contexts_of(declaration, seed, 1)

    def read(group: str, values: dict, owner: str = "") -> dict[str, float]:
        numbers = {}
        for name, field in declaration[group].items():
            if "values" in field:
                numbers |= {f"{owner}{name} = {each}": float(each == values[name]) for each in field["values"]}
            else:
                numbers[owner + name] = 2.0 * (values[name] - field["low"]) / (field["high"] - field["low"]) - 1.0
        return numbers

    rows = features.vectors(context, arms)
    assert rows.shape == (len(arms), features.dim)
    for arm, row in zip(arms, rows, strict=True):
        own = read("per_arm", arms[arm]) if isinstance(arms, dict) else {}
        block = read("by_arm", context, f"{arm}: ")
        expected = {"1": 1.0, f"{arm}: 1": 1.0} | read("shared", context) | own | block
        np.testing.assert_array_equal(row, [expected.get(name, 0.0) * features.scale for name in features.names])
    if not declaration["per_arm"]:
        every = features.vectors(context, features.arms)
        np.testing.assert_array_equal(every, features.vectors(context, declaration["arms"]))


def test_arms_of_the_past_may_be_unknown_and_no_arms_are_no_rows() -> None:
    features = Features(shared={"age": (0, 100)}, by_arm={"age": (0, 100)}, arms=["red", "blue"])
    known, unknown = features.vectors({"age": 100}, ["blue", "green"], lenient=True) / features.scale
    assert known.tolist() == [1.0, 1.0, 0.0, 0.0, 1.0, 1.0]
    assert unknown.tolist() == [1.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    assert features.vectors({"age": 100}, []).shape == (0, 6)


# fmt: off
WRONG = [
    (("features",), {"intercept": False}), (("shared",), {"shared": "age"}), (("shared",), {"shared": 5}),
    (("shared",), {"shared": {"age", "price"}}), (("shared", "age"), {"shared": ["age", "age"]}),
    (("shared", [1]), {"shared": [[1]]}), (("shared", ""), {"shared": [""]}), (("shared", 5), {"shared": {5: (0, 1)}}),
    *((("shared", "age"), {"shared": {"age": field}}) for field in (
        (1, 0), (0, NAN), (0, INF), (-1e308, 1e308), (0, 1, 2), "0-100", [], ["a", "a"], ["a", 1], {"low": 0},
        {"values": "ab"}, {"values": []},
    )),
    (("by_arm",), {"by_arm": ["age"]}),
    (("by_arm", "age"), {"by_arm": {"age": (0, 1)}, "shared": {"age": (0, 2)}, "arms": ["a"]}),
    *((("arms",), {"arms": arms}) for arms in ("ab", 5, ["a", "a"], [None], [True], {"a", "b"})),
    (("intercept",), {"intercept": "yes", "arms": ["a"]}), (("clip",), {"clip": None, "arms": ["a"]}),
    (("features",), {"shared": ["price"], "per_arm": ["price"]}), (("features",), {"shared": ["1"]}),
    (("features",), {"arms": [1, "1"]}),
]
# fmt: on


@pytest.mark.parametrize(("path", "declaration"), WRONG)
def test_wrong_declarations_are_named(path: tuple, declaration: dict) -> None:
    with rejects(path=path) as caught:
        Features(**declaration)
    assert declaration != {"arms": [1, "1"]} or "'1: 1'" in caught.value.got
    inside = path if path == ("features",) else ("features", *path)
    with rejects(path=inside, pointer=json_pointer(inside)):
        Agent(features=declaration)


# fmt: off
REFUSED = [
    ("#/context/age", {"member": "yes"}, RED), ("#/context/age", None, RED), ("#/context", 5, RED),
    ("#/context/aeg", {**CONTEXT, "aeg": 1}, RED),
    *(("#/context/age", {**CONTEXT, "age": age}, RED) for age in (101, NAN, "7", None, np.array([7.0]))),
    *(("#/context/member", {**CONTEXT, "member": m}, RED) for m in (NAN, None, np.array(["yes", "no"]), [])),
    ("#/arms/red/price", CONTEXT, {"red": {}}), ("#/arms/0", CONTEXT, ["red"]),
    ("#/arms/red/cost", CONTEXT, {"red": {"price": 1, "cost": 2}}),
    ("#/arms/red/price", CONTEXT, {"red": {"price": -1}}),
    ("#/arms/red", CONTEXT, {"red": 5}), ("#/arms/green", CONTEXT, {"green": {"price": 1}}),
    *(("#/arms", CONTEXT, arms) for arms in (
        ["red", "red"], None, "red", b"red", [], {}, np.zeros((2, 9)), np.array("red"),
    )),
]
# fmt: on


@pytest.mark.parametrize(("pointer", "context", "arms"), REFUSED)
def test_wrong_contexts_and_arms_are_named(pointer: str, context: object, arms: object) -> None:
    agent = Agent(features=ALL, reward_timeout=1)
    for _ in range(3):
        agent.decide(RED, context=CONTEXT)
    error = refuses(agent, None, lambda: agent.decide(arms, context=context), pointer=pointer)
    if isinstance(context, dict) and pointer.startswith("#/context/") and error.path[1] in context:
        assert error.value is context[error.path[1]]
    assert ("'age'" in error.hint) == (pointer == "#/context/aeg")  # a misspelt field gets a suggestion


ARMS = ["red", "blue"]
FORMS = [ARMS, {"red": {}, "blue": {}}, dict.fromkeys(ARMS).keys(), np.array(ARMS), (arm for arm in ARMS), None]


@pytest.mark.parametrize("arms", FORMS, ids=lambda arms: type(arms).__name__)
def test_forms_of_names(arms: object) -> None:
    decision = Agent(features={"arms": ARMS, "by_arm": {"age": (0, 100)}}).decide(arms, context={"age": 5})
    assert decision.arm in ARMS
    assert type(decision.arm) is str


def test_arms_with_fields_must_be_given_and_plain_vectors_have_no_context() -> None:
    agent, plain = Agent(features={"per_arm": {"price": (0, 1)}, "arms": ["red"]}), Agent(dim=2)
    refuses(agent, "arms", agent.decide)
    refuses(plain, "context", lambda: plain.decide([[0.1, 0.1]], context={}))


def test_context_times_arm_learns_who_likes_what() -> None:
    """The young want red, the old blue: one context, and opposite answers; shared features alone could not tell."""
    agent = Agent(features={"by_arm": {"age": (20, 80)}, "arms": ["red", "blue"]}, seed=3)
    rng, hits = np.random.default_rng(0), []
    for age in rng.uniform(20, 80, 400):
        decision, wanted = agent.decide(["red", "blue"], context={"age": age}), "red" if age < 50 else "blue"
        agent.reward(decision, float(rng.random() < (0.9 if decision.arm == wanted else 0.1)))
        hits.append(decision.arm == wanted)
    assert np.mean(hits[-200:]) > 0.85
    assert agent.info().theta["red: age"] < 0 < agent.info().theta["blue: age"]


def test_numbers_without_a_range_are_held_by_the_norm_only() -> None:
    agent = Agent(features={"shared": ["z"], "intercept": False})
    agent.decide(["a"], context={"z": 1.0})
    refuses(agent, "arms['a']", lambda: agent.decide(["a"], context={"z": 2.0}))
    Agent(features={"shared": ["z"], "intercept": False}, L=5.0).decide(["a"], context={"z": 2.0})
