"""Every public function and class of windvane.theory rejects bad arguments by an ArgumentError that names them."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windvane import theory
from windvane.errors import ArgumentError

relaxed = settings(deadline=None, max_examples=60)

NOT_NUMBERS = ["half", b"1", True, np.True_, 1j, object(), np.ma.masked_array([1.0], mask=[True]), [True, False]]
NOT_FINITE = [math.nan, math.inf, -math.inf]
NOT_REAL = [*NOT_NUMBERS, *NOT_FINITE]

# Bad values by argument: those that no function accepts for it.
WHOLE = [*NOT_REAL, 0, -1, 1.5, 2.0, [3], np.array([3]), None]
POSITIVE = [*NOT_REAL, 0.0, -1.0, 1e-101, 1e101, [1.0, 1.0], np.ones(2), None]
NOT_NEGATIVE = [*NOT_REAL, -1e-9, [1.0, 1.0]]
PROPORTION = [*NOT_REAL, 0.0, -0.5, 1.0 + 1e-9, [0.5, 1.5], np.array([[0.5], [math.nan]]), [[0.5], [0.5, 0.5]]]
ROUNDS = [*NOT_REAL, -1, [1, -1], np.array([1.0, math.inf]), None]
LOG_DET = [*NOT_REAL, -0.5, [1.0, -0.5], None]
CHOICE = ["always", "", None, 1, ["general"], True]

BAD: dict[str, list[Any]] = {
    **dict.fromkeys(("dim", "horizon", "rounds", "arms"), WHOLE),
    **dict.fromkeys(("S", "L", "lam", "sigma", "c_mu", "k_mu", "curvature"), POSITIVE),
    **dict.fromkeys(("drift", "ratio"), NOT_NEGATIVE),
    **dict.fromkeys(("recent_drift", "t"), ROUNDS),
    **dict.fromkeys(("gamma", "delta"), PROPORTION),
    **dict.fromkeys(("kind", "confidence"), CHOICE),
    "depth": [*ROUNDS, 0, 0.5],
    "window": [bad for bad in [*ROUNDS, 0.0] if bad is not None],
    "log_det_ratio": LOG_DET,
}

CONSTANTS: dict[str, Any] = {"dim": 2, "S": 1.0, "L": 1.0, "lam": 1.0, "sigma": 0.5}
LINK: dict[str, Any] = {"k_mu": 0.25, "c_mu": 0.2}
LEVEL: dict[str, Any] = {"delta": 0.05, "confidence": "horizon", "horizon": 9}
PROBLEM: dict[str, Any] = {"horizon": 100, "drift": 1.0, **CONSTANTS, **LINK}
TUNING: dict[str, Any] = {"horizon": 100, "drift": 1.0, "dim": 2, "kind": "general"}


def theorem_1(**options: Any) -> theory.RegretBound:
    return theory.regret_bound(theory.Problem(**PROBLEM), **options)


def theorem_2(**options: Any) -> theory.UnknownDriftBound:
    return theory.regret_bound_unknown_drift(theory.Problem(**PROBLEM), **options)


# What to call with which good arguments; every argument is then replaced by each of its bad values.
GOOD: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "ConfidenceLevel": (theory.ConfidenceLevel, LEVEL),
    "Growth": (theory.Growth, {"ratio": 0.5, "gamma": 0.9, "window": 3.0}),
    "OFULRadius": (theory.OFULRadius, {"S": 1.0, "lam": 1.0, "sigma": 1.0, "delta": 0.1}),
    "Problem": (theory.Problem, PROBLEM),
    "Radius": (theory.Radius, {"gamma": 1.0, "c_mu": 0.2, "window": 4, **CONSTANTS, **LEVEL}),
    "SelfConcordantRadius": (
        theory.SelfConcordantRadius,
        {"gamma": 1.0, "window": 5.0, "delta": 0.1, "k_mu": 0.25, "horizon": 9, **CONSTANTS},
    ),
    "WeightedSelfConcordantRadius": (
        theory.WeightedSelfConcordantRadius,
        {"gamma": 0.9, **CONSTANTS, **LINK, **LEVEL},
    ),
    "block_length": (theory.block_length, {"horizon": 10, "dim": 2}),
    "confidence_level": (theory.confidence_level, {"t": 3, **LEVEL}),
    "determinant_trace_bound": (
        theory.determinant_trace_bound,
        {"t": 3, "gamma": 0.9, "dim": 2, "L": 1.0, "lam": 1.0},
    ),
    "discount": (theory.discount, TUNING),
    "discount_grid": (theory.discount_grid, {"horizon": 10, "dim": 2, "S": 1.0}),
    "discounted_count": (theory.discounted_count, {"gamma": 0.5, "t": 3}),
    "elliptical_potential_bound": (
        theory.elliptical_potential_bound,
        {"log_det_ratio": 1.0, "gamma": 0.9, "rounds": 5, "dim": 2, "L": 1.0, "lam": 1.0},
    ),
    "exp3_rate": (theory.exp3_rate, {"arms": 3, "rounds": 4}),
    "radius": (theory.radius, {"t": 5, "gamma": 0.9, "c_mu": 0.2, **CONSTANTS, **LEVEL}),
    "regret_bound": (theorem_1, {"delta": 0.05, "gamma": 0.9, "kind": "general", "confidence": "horizon"}),
    "regret_bound_unknown_drift": (theorem_2, {"confidence": "horizon"}),
    "tracking_bound": (
        theory.tracking_bound,
        {
            "gamma": 0.9, "depth": 2, "recent_drift": 1.0, "k_mu": 1.0, "S": 1.0, "L": 1.0, "lam": 1.0, "dim": 1,
            "kind": "general",
        },
    ),
    "trivial_bound": (theory.trivial_bound, {"horizon": 10, "sigma": 0.5}),
    "weight_discount": (theory.weight_discount, {"horizon": 100, "drift": 1.0, "dim": 2, "curvature": 0.5}),
    "window_grid": (theory.window_grid, {"horizon": 10, "dim": 2}),
    "window_length": (theory.window_length, TUNING),
}  # fmt: skip

RESULTS = {"RegretBound", "UnknownDriftBound"}  # records that functions return; nothing to check
ARGUMENTS = [(name, argument) for name, (_, good) in GOOD.items() for argument in good]


def test_the_table_covers_every_public_name_and_argument() -> None:
    callables = {
        name for name in theory.__all__ if inspect.isclass(getattr(theory, name)) or callable(getattr(theory, name))
    }
    assert callables - RESULTS - {"Lanes"} == set(GOOD)
    for name, (_, good) in GOOD.items():
        assert set(inspect.signature(getattr(theory, name)).parameters) - {"problem"} == set(good), name


def reject(name: str, argument: str, bad: Any) -> ArgumentError:
    """Return the error of calling ``name`` with good arguments except for one."""
    function, good = GOOD[name]
    with pytest.raises(ArgumentError) as caught:
        function(**{**good, argument: bad})
    return caught.value


@pytest.mark.parametrize(("name", "argument"), ARGUMENTS)
def test_bad_values_are_rejected(name: str, argument: str) -> None:
    function, good = GOOD[name]
    function(**good)
    tried = 0
    for bad in BAD[argument]:
        if argument == "drift" and bad is None and name == "window_length":
            continue  # an unknown drift
        error = reject(name, argument, bad)
        assert error.argument == argument
        assert error.expected
        assert "\n" not in str(error)
        tried += 1
    assert tried >= len(CHOICE)


@pytest.mark.parametrize("gamma", [None, 0.0, 1.5, "x", True, math.nan, [0.5]])
def test_theorem_1_takes_the_recommended_discount_or_a_number(gamma: Any) -> None:
    if gamma is None:
        assert theorem_1(delta=0.1, gamma=gamma).gamma == theory.discount(horizon=100, drift=1.0, dim=2)
    else:
        assert reject("regret_bound", "gamma", gamma).argument == "gamma"


def test_theorem_2_rejects_a_drift_that_no_path_has() -> None:
    problem = theory.Problem(**{**PROBLEM, "drift": 1e9})
    with pytest.raises(ArgumentError) as caught:
        theory.regret_bound_unknown_drift(problem)
    assert caught.value.argument == "drift"


def test_k_mu_is_at_least_c_mu() -> None:
    assert reject("Problem", "k_mu", 0.1).expected == "a number at least c_mu=0.2"


def test_the_rounds_of_an_anytime_radius_start_at_1() -> None:
    for name in ("confidence_level", "radius"):
        function, good = GOOD[name]
        function(**{**good, "t": 0.5})
        with pytest.raises(ArgumentError) as caught:
            function(**{**good, "t": 0.5, "confidence": "anytime"})
        assert caught.value.argument == "t"
        assert caught.value.expected == "a number at least 1"


@pytest.mark.parametrize("name", ["ConfidenceLevel", "Radius", "radius", "WeightedSelfConcordantRadius"])
def test_a_horizon_is_needed_for_its_confidence_only(name: str) -> None:
    function, good = GOOD[name]
    function(**{**good, "confidence": "anytime", "horizon": None})
    assert "confidence is 'horizon'" in reject(name, "horizon", None).expected


def test_the_error_shows_the_offending_entry() -> None:
    error = reject("discounted_count", "gamma", np.array([0.5, 1.5, 0.9]))
    assert (error.value, error.expected) == (1.5, "a number in (0, 1]")


ARRAYS = {"gamma": 0.5, "delta": 0.5, "t": 3.0, "window": 3.0, "depth": 3.0, "recent_drift": 3.0,
          "log_det_ratio": 3.0}  # fmt: skip
PAIRS = [
    (name, *pair)
    for name, (_, good) in GOOD.items()
    if name != "regret_bound"
    for pair in [[argument for argument in good if argument in ARRAYS][-2:]]
    if len(pair) == 2
]


@pytest.mark.parametrize(("name", "first", "second"), PAIRS)
def test_shapes_must_broadcast(name: str, first: str, second: str) -> None:
    function, good = GOOD[name]
    lanes = {first: np.full((2, 3), ARRAYS[first]), second: np.full(3, ARRAYS[second])}
    function(**{**good, **lanes})
    with pytest.raises(ArgumentError) as caught:
        function(**{**good, **lanes, second: np.full(2, ARRAYS[second])})
    assert caught.value.argument in (first, second)
    assert "broadcasts" in caught.value.expected


NEITHER = st.one_of(
    st.text(), st.binary(), st.booleans(), st.none(), st.complex_numbers(), st.lists(st.text(min_size=1), min_size=1),
    st.dictionaries(st.text(), st.floats(), min_size=1), st.sampled_from(NOT_FINITE),
)  # fmt: skip


@relaxed
@given(case=st.sampled_from([case for case in ARGUMENTS if case[1] not in ("window", "drift", "horizon")]), bad=NEITHER)
def test_nothing_but_numbers_passes_for_a_number(case: tuple[str, str], bad: Any) -> None:
    name, argument = case
    if not (bad is None and name == "regret_bound"):
        if isinstance(bad, str) and argument in ("kind", "confidence"):
            bad = f"not {bad}"
        assert reject(name, argument, bad).argument == argument


@relaxed
@given(
    gamma=st.floats(0.0, 1.0, exclude_min=True),
    delta=st.floats(1e-300, 1.0),
    t=st.floats(1.0, 1e15),
    confidence=st.sampled_from(theory.CONFIDENCES),
)
def test_every_good_value_gives_a_finite_radius(gamma: float, delta: float, t: float, confidence: str) -> None:
    beta = theory.radius(t, gamma=gamma, delta=delta, c_mu=0.2, confidence=confidence, horizon=10, **CONSTANTS)
    assert isinstance(beta, float)
    assert math.isfinite(beta)
    assert beta >= 0.2


def test_every_public_name_is_there() -> None:
    assert theory.CONFIDENCES == ("pointwise", "horizon", "anytime")
    assert theory.KINDS == ("orthogonal", "general")
    assert all(hasattr(theory, name) for name in theory.__all__)
