"""Free JSON as declared fields, rankings and errors: what holds for any request."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windvane import Agent
from windvane.agent import Features
from windvane.records import to_json
from windvane.service import requests
from windvane.service.personalizer import build_decision, describe_problem, describe_ranking, parse_rank
from windvane.service.problems import KINDS, Problem

FEATURES = Features(
    shared={"a": (0, 1), "b.c": {}, "kind": ["x", "other"]}, per_arm={"size": (-1, 1), "d.0": ["1", "other"]}, clip=True
)
NAMES = st.sampled_from(["a", "b", "c", "d", "kind", "size", "_a", "0", "b.c"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.none() | st.lists(st.dictionaries(NAMES, VALUES, max_size=4), max_size=3)


@given(OBJECTS, st.lists(OBJECTS, min_size=1, max_size=4), st.sets(st.integers(0, 3)))
def test_any_features_become_a_decision_or_a_problem(contexts: Any, actions: list[Any], excluded: set[int]) -> None:
    """What is built has a value for every declared field, and the agent takes it; a text is no number."""
    body = {
        "contextFeatures": contexts, "actions": [{"id": f"n{i}", "features": each} for i, each in enumerate(actions)],
        "excludedActions": [f"n{i}" for i in excluded],
    }  # fmt: skip
    if excluded >= set(range(len(actions))):
        with pytest.raises(Problem) as caught:
            parse_rank(json.dumps(body).encode())
        assert caught.value.errors[0]["pointer"] == "#/excludedActions"
        return
    request = parse_rank(json.dumps(body).encode())
    try:
        built = build_decision(request, FEATURES)
    except Problem as error:
        problem = error
    else:
        problem = None
    if problem is not None:
        assert has_text([contexts, actions])
        assert problem.errors[0]["pointer"].startswith(("#/contextFeatures/", "#/actions/"))
        return
    arms, context = requests.parse_decision(built)
    assert context.keys() == {"a", "b.c", "kind"}
    assert list(arms) == [f"n{i}" for i in range(len(actions)) if i not in excluded]
    assert all(own.keys() == {"size", "d.0"} for own in arms.values())
    texts = [value for fields in (context, *arms.values()) for name, value in fields.items() if name in ("kind", "d.0")]
    assert set(texts) <= {"x", "1", "other"}
    assert FEATURES.vectors(context, arms).shape == (len(arms), FEATURES.dim)


def has_text(values: Any) -> bool:
    """Whether there is a text somewhere in plain data."""
    if isinstance(values, dict | list):
        return any(map(has_text, values.values() if isinstance(values, dict) else values))
    return isinstance(values, str)


@pytest.mark.parametrize("value", ["1e999", "-1e999", "1" + 400 * "0", '"old"'])
def test_what_is_no_finite_number(value: str) -> None:
    raw = '{"actions": [{"id": "one"}], "contextFeatures": [{"b": {"c": VALUE}}]}'.replace("VALUE", value)
    with pytest.raises(Problem) as caught:
        build_decision(parse_rank(raw.encode()), FEATURES)
    assert caught.value.errors[0]["pointer"] == "#/contextFeatures/b.c"


def test_the_id_of_an_event_has_no_slash() -> None:
    """Its reward could not be sent."""
    with pytest.raises(Problem) as caught:
        parse_rank(b'{"actions": [{"id": "one"}], "eventId": "a/b"}')
    assert caught.value.errors[0]["pointer"] == "#/eventId"


@given(st.integers(1, 6), st.sets(st.integers(0, 5)), st.floats(0, 1), st.integers(0, 5), st.integers(0, 5))
def test_rankings(count: int, excluded: set[int], epsilon: float, chosen: int, preferred: int) -> None:
    """Probabilities add up to 1; the chosen action comes first of those on offer; excluded ones keep their places."""
    names = [f"n{i}" for i in range(count)]
    offered = [name for i, name in enumerate(names) if i not in excluded]
    if not offered:
        return
    request = parse_rank(
        json.dumps(
            {"actions": [{"id": name} for name in names], "excludedActions": [f"n{i}" for i in excluded]}
        ).encode()
    )
    arm, best = offered[chosen % len(offered)], offered[preferred % len(offered)]
    answer = json.loads(describe_ranking(request, "e", json.dumps({"arm": arm, "preferred": best}).encode(), epsilon))
    ranking = answer["ranking"]
    assert sorted(each["id"] for each in ranking) == sorted(names)
    assert sum(each["probability"] for each in ranking) == pytest.approx(1.0)
    assert next(each["id"] for each in ranking if each["id"] in offered) == arm == answer["rewardActionId"]
    for place, each in enumerate(ranking):
        assert (place in excluded) == (each["id"] not in offered)
        if place in excluded:
            assert each == {"id": names[place], "probability": 0.0}
    others = [each["probability"] for each in ranking if each["id"] in offered][1:]
    assert others == sorted(others, reverse=True)


def test_the_probability_of_the_choice_is_the_propensity_of_the_decision() -> None:
    agent = Agent(features={"arms": ["n0", "n1", "n2"]}, epsilon=0.6)
    request = parse_rank(json.dumps({"actions": [{"id": name} for name in ("n0", "n1", "n2")]}).encode())
    for _ in range(20):
        decision = agent.decide(["n0", "n1", "n2"])
        answer = json.loads(describe_ranking(request, "e", to_json(decision), 0.6))
        assert answer["ranking"][0]["probability"] == pytest.approx(decision.propensity)


@pytest.mark.parametrize("code", KINDS)
def test_every_problem_has_an_error_of_that_api(code: str) -> None:
    problem = Problem(code, "why", cause="busy" if code == "unavailable" else None)
    status, document = describe_problem(problem)
    assert document["error"]["message"] == "why"
    assert document["error"]["innerError"] == {"code": code}
    expected = {400: "BadRequest", 404: "ResourceNotFound"}.get(
        status, str(status) if status < 500 else "InternalServerError"
    )
    assert document["error"]["code"] == expected
    assert status not in (408, 409, 413, 415, 422)
