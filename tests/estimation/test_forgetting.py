"""Forgetting rules: their numbers per lane, what theory recommends, what they refuse, and the weights they give."""

import math
from typing import Any

import numpy as np
import pytest

from support.refusals import refuses
from windvane import theory
from windvane.estimation import Discount, MaximumLikelihoodEstimator, Never, Restart, RidgeEstimator, Window

TUNING: dict[str, Any] = {"horizon": 3000, "dim": 2}


NONE = [math.inf, math.inf]
PER_LANE = [  # rule, gammas, windows, memory
    (Discount(0.99), [0.99, 0.99], NONE, [100.0, 100.0]),
    (Discount([0.9, 1.0]), [0.9, 1.0], NONE, [10.0, math.inf]),
    (Window(7.5), [1.0, 1.0], [7.5, 7.5], [7.5, 7.5]),
    (Window(np.array([3, 40])), [1.0, 1.0], [3.0, 40.0], [3.0, 40.0]),
    (Restart(200), [1.0, 1.0], NONE, [200.0, 200.0]),
    (Restart([5, 6]), [1.0, 1.0], NONE, [5.0, 6.0]),
    (Never(), [1.0, 1.0], NONE, NONE),
]


@pytest.mark.parametrize(("rule", "gammas", "windows", "memory"), PER_LANE, ids=repr)
def test_a_rule_per_lane(rule: Any, gammas: list[float], windows: list[float], memory: list[float]) -> None:
    assert rule.gammas(2).tolist() == gammas
    assert rule.windows(2).tolist() == windows
    np.testing.assert_allclose(rule.memory(2), memory, rtol=1e-13)


@pytest.mark.parametrize("arm_geometry", theory.ARM_GEOMETRIES)
def test_tuned_rules_are_what_theory_recommends(arm_geometry: str) -> None:
    """For one drift, and for one per lane; a restart has the period of the window, which needs no drift."""
    for drift in (0.0, 0.5, 2.0, 1e9, [0.5, 2.0, 0.5], np.array([0.5, 2.0, 0.5])):
        discount, window = (rule.tuned(drift=drift, arm_geometry=arm_geometry, **TUNING) for rule in (Discount, Window))
        restart, each = Restart.tuned(drift=drift, **TUNING), np.broadcast_to(drift, 3).tolist()
        gammas = [theory.discount(drift=drift, arm_geometry=arm_geometry, **TUNING) for drift in each]
        lengths = [theory.window_length(drift=drift, arm_geometry=arm_geometry, **TUNING) for drift in each]
        assert discount.gammas(3).tolist() == gammas
        assert window.windows(3).tolist() == lengths
        assert restart.memory(3).tolist() == lengths or arm_geometry == "general"
        if isinstance(drift, float):
            assert (discount.gamma, window.length) == (gammas[0], lengths[0])
            assert restart.every == lengths[0] or arm_geometry == "general"
    unknown = theory.window_length(drift=None, arm_geometry=arm_geometry, **TUNING)
    assert Window.tuned(drift=None, arm_geometry=arm_geometry, **TUNING).length == unknown


@pytest.mark.parametrize("rule", [Discount, Window, Restart])
@pytest.mark.parametrize(("name", "bad"), [("drift", -1.0), ("drift", [1.0, math.nan]), ("horizon", 0), ("dim", 0)])
def test_tuning_names_what_it_refuses(rule: Any, name: str, bad: Any) -> None:
    with refuses(name):
        rule.tuned(**TUNING | {"drift": 1.0, name: bad})


BAD_RULES = [
    *((Discount(bad).gammas, "gamma") for bad in (0.0, 1.0001, math.nan, [0.9, 0.0], [0.9] * 3, "high", None)),
    *((Window(bad).windows, "window") for bad in (0.0, -3, math.inf, [5.0, 0.0], [5.0] * 3, "long")),
    *((Restart(bad).memory, "restart_every") for bad in (0, 2.5, -1, math.inf, [3, 0], [3] * 3, "often")),
]


@pytest.mark.parametrize(("call", "name"), BAD_RULES)
def test_a_rule_names_what_it_refuses_and_the_lane(call: Any, name: str) -> None:
    with refuses(name):
        call(2)
    with refuses("gamma", value=1.5, where="lane 1"):
        Discount([0.9, 1.5]).gammas(2)


WEIGHTS = {
    "discount": (Discount([0.5, 1.0]), lambda age: [0.5**age, 1.0]),
    "window": (Window([2.0, 5.0]), lambda age: [1.0 * (age < 2), 1.0 * (age < 5)]),
    "never": (Never(), lambda _: [1.0, 1.0]),
}


@pytest.mark.parametrize("make", [MaximumLikelihoodEstimator, RidgeEstimator])
@pytest.mark.parametrize(("rule", "weights"), WEIGHTS.values(), ids=WEIGHTS)
def test_the_weight_of_an_observation_of_any_age(make: Any, rule: Any, weights: Any) -> None:
    """b of a single observation is its weight: as it ages, and where it arrives late."""
    ageing = make(1, forgetting=rule, lanes=2)
    ageing.observe([[1.0], [1.0]], 1.0)
    for age in range(8):
        late = make(1, forgetting=rule, lanes=2)
        late.advance(age)
        late.observe([[1.0], [1.0]], 1.0, age=float(age))
        np.testing.assert_allclose([ageing.b[:, 0], late.b[:, 0]], [weights(age)] * 2, rtol=1e-14)
        np.testing.assert_allclose(ageing.metric()[:, 0, 0], 1.0 + np.array(weights(age)), rtol=1e-14)
        ageing.advance()
