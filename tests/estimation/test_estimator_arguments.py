"""What the estimator refuses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from support import access
from support.estimators import make_kind
from support.refusals import refuses
from support.worlds import same_state


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("dim", {"dim": 0}),
        ("dim", {"dim": 1.5}),
        ("dim", {"dim": True}),
        ("lanes", {"lanes": 0}),
        ("lanes", {"lanes": "2"}),
        ("link", {"link": "tanh"}),
        ("gamma", {"gamma": 0.0}),
        ("gamma", {"gamma": 1.0001}),
        ("gamma", {"gamma": math.nan}),
        ("gamma", {"gamma": [0.9, 0.9]}),
        ("gamma", {"gamma": "high"}),
        ("window", {"window": 0.0}),
        ("window", {"window": -3}),
        ("window", {"window": math.inf}),
        ("window", {"window": 10, "gamma": 0.9}),
        ("S", {"S": 0.0}),
        ("S", {"S": None}),
        ("L", {"L": -1.0}),
        ("lam", {"lam": math.nan}),
        ("lam", {"lam": 0}),
        ("tolerance", {"tolerance": 0.0}),
        ("remember", {"remember": False}),
        ("remember", {"remember": False, "link": "identity", "window": 3}),
    ],
    ids=str,
)
def test_the_constructor_names_what_it_refuses(name: str, arguments: dict[str, Any]) -> None:
    with refuses(name):
        access.make_estimator(**({"dim": 2} | arguments))


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("x", {"x": [[1.0, 0.0]]}),
        ("x", {"x": [1.0, 0.0]}),
        ("x", {"x": [[1.0, math.nan], [0.0, 0.0]]}),
        ("x", {"x": "features"}),
        ("reward", {"reward": math.inf}),
        ("reward", {"reward": [0.0, math.nan]}),
        ("reward", {"reward": [0.0, 1.0, 1.0]}),
        ("age", {"age": -0.5}),
        ("age", {"age": math.nan}),
        ("age", {"age": [0.0, 0.0, 0.0]}),
        ("weight", {"weight": -1.0}),
        ("weight", {"weight": math.inf}),
        ("weight", {"weight": [1.0, 1.0, 1.0]}),
        ("mask", {"mask": [True]}),
        ("mask", {"mask": [1, 0]}),
    ],
    ids=str,
)
def test_observe_names_what_it_refuses_and_takes_nothing_in(name: str, arguments: dict[str, Any]) -> None:
    estimator = make_kind("gamma", 5)
    before = estimator.state()
    good: dict[str, Any] = {"x": [[0.5, 0.0], [0.0, 0.5]], "reward": 1.0}
    with refuses(name):
        estimator.observe(**(good | arguments))
    assert same_state(before, estimator.state())


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf, "1 day"])
def test_advance_names_what_it_refuses(bad: Any) -> None:
    estimator = make_kind("gamma", 5)
    before = estimator.state()
    with refuses("rounds"):
        estimator.advance(bad)
    assert same_state(before, estimator.state())


def test_moments_refuse_a_theta_of_another_shape() -> None:
    with refuses("theta"):
        access.moments(make_kind("gamma"), np.zeros(2))
