"""What the functions of theory refuse."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from support.numerics import LINK, PAPER
from support.refusals import refuses
from windvane import theory

LEVEL: dict[str, Any] = {"delta": 0.5, "t": 3}
FIXED: dict[str, Any] = dict(gamma=0.9, delta=0.05, c_mu=0.2, **PAPER)
RADIUS: dict[str, Any] = dict(t=5, **FIXED)
THEOREM_1: dict[str, Any] = dict(horizon=100, drift=1.0, delta=0.05, **PAPER, **LINK)
THEOREM_2: dict[str, Any] = dict(horizon=100, drift=1.0, **PAPER, **LINK)
TUNING: dict[str, Any] = {"horizon": 100, "drift": 1.0, "dim": 2}
OFUL: dict[str, Any] = {"log_det_ratio": 1.0, "S": 1.0, "lam": 1.0, "sigma": 1.0, "delta": 0.1}
TRACKING: dict[str, Any] = {
    "gamma": 0.9,
    "depth": 2,
    "recent_drift": 1.0,
    "k_mu": 1.0,
    "S": 1.0,
    "L": 1.0,
    "lam": 1.0,
    "dim": 1,
}
FACTORS = ("t", "gamma", "S", "L", "lam", "sigma", "delta", "c_mu")


@pytest.mark.parametrize(
    ("function", "good", "name", "bad"),
    [
        (theory.discounted_count, {"gamma": 0.5, "t": 3}, "gamma", 0.0),
        (theory.discounted_count, {"gamma": 0.5, "t": 3}, "gamma", "half"),
        (theory.discounted_count, {"gamma": 0.5, "t": 3}, "t", -1),
        (theory.confidence_level, LEVEL, "delta", 0.0),
        (theory.confidence_level, {**LEVEL, "confidence": "horizon", "horizon": 9}, "horizon", None),
        (theory.confidence_level, {**LEVEL, "confidence": "anytime"}, "t", 0.5),
        *((theory.radius, RADIUS, name, -1.0) for name in FACTORS),
        (theory.radius, RADIUS, "gamma", math.nan),
        (theory.radius, RADIUS, "S", math.inf),
        (theory.radius, RADIUS, "dim", 0),
        (theory.radius, RADIUS, "dim", 2.5),
        (theory.radius, RADIUS, "confidence", "always"),
        (theory.radius, {**RADIUS, "confidence": "anytime"}, "t", 0),
        (theory.Radius, FIXED, "delta", 0.0),
        (theory.Radius, FIXED, "lam", -1.0),
        (theory.Radius, FIXED, "confidence", "always"),
        (theory.Radius, {**FIXED, "confidence": "horizon", "horizon": 9}, "horizon", None),
        (theory.linear_radius, {k: v for k, v in RADIUS.items() if k != "c_mu"}, "t", -1),
        (theory.window_radius, dict(t=5, window=9, delta=0.1, c_mu=0.2, **PAPER), "window", 0),
        (theory.oful_radius, OFUL, "log_det_ratio", -0.5),
        (theory.discount, TUNING, "drift", -0.5),
        (theory.discount, TUNING, "horizon", 0),
        (theory.discount, TUNING, "kind", "square"),
        (theory.window_length, TUNING, "drift", math.nan),
        (theory.tracking_bound, TRACKING, "depth", 0),
        (theory.regret_bound, THEOREM_1, "gamma", 1.5),
        (theory.regret_bound, THEOREM_1, "k_mu", 0.01),
        (theory.regret_bound, THEOREM_1, "delta", 2.0),
        (theory.regret_bound_unknown_drift, THEOREM_2, "drift", 1e9),
        (theory.regret_bound_unknown_drift, THEOREM_2, "sigma", 0),
        (theory.discount_grid, {"horizon": 10, "dim": 2, "S": 1.0}, "S", 0.0),
        (theory.exp3_rate, {"arms": 3, "rounds": 4}, "arms", 0),
        (theory.block_length, {"horizon": 10, "dim": 2}, "horizon", 1.5),
        (theory.trivial_bound, {"horizon": 10, "sigma": 0.5}, "sigma", [0.5, 0.5]),
    ],
)
def test_errors_name_the_argument_and_the_value(
    function: Callable[..., Any], good: dict[str, Any], name: str, bad: Any
) -> None:
    function(**good)
    with refuses(name, value=bad):
        function(**{**good, name: bad})


def test_errors_in_lanes_show_the_offending_entry() -> None:
    with refuses("gamma", value=1.5):
        theory.discounted_count(np.array([0.5, 1.5, 0.9]), 3)
    with refuses("gamma", value=1.5):
        theory.Radius(**{**FIXED, "gamma": [0.5, 1.5]})


def test_radius_refuses_lanes_that_do_not_broadcast() -> None:
    with refuses("gamma", "delta"):
        theory.Radius(**{**FIXED, "gamma": [0.5, 0.6, 0.7], "delta": [0.1, 0.2]})


def test_every_public_name_is_there() -> None:
    assert theory.CONFIDENCES == ("pointwise", "horizon", "anytime")
    assert theory.KINDS == ("orthogonal", "general")
    assert all(hasattr(theory, name) for name in theory.__all__)
