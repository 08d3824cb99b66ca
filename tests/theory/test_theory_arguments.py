"""Every public function and class of windvane.theory rejects bad arguments by an ArgumentError that names them."""

import inspect
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.numerics import sixty_examples
from support.refusals import rejects
from windvane import theory
from windvane.errors import ArgumentError

NOT_NUMBERS = ["half", b"1", True, np.True_, 1j, object(), np.ma.masked_array([1.0], mask=[True]), [True, False]]
NOT_FINITE = [math.nan, math.inf, -math.inf]
NOT_REAL = [*NOT_NUMBERS, *NOT_FINITE]
WHOLE = [*NOT_REAL, 0, -1, 1.5, 2.0, [3], np.array([3]), None]
POSITIVE = [*NOT_REAL, 0.0, -1.0, 1e-101, 1e101, [1.0, 1.0], np.ones(2), None]
NOT_NEGATIVE = [*NOT_REAL, -1e-9, [1.0, 1.0]]
ROUNDS = [*NOT_REAL, -1, [1, -1], np.array([1.0, math.inf]), None]
PROPORTION = [*NOT_REAL, 0.0, -0.5, 1.0 + 1e-9, [0.5, 1.5], np.array([[0.5], [math.nan]]), [[0.5], [0.5, 0.5]]]
CHOICE = ["always", "", None, 1, ["general"], True]
# Bad values by argument: those that no function accepts for it.
BAD: dict[str, list[Any]] = {
    **dict.fromkeys(("dim", "horizon", "rounds", "arms"), WHOLE),
    **dict.fromkeys(("S", "L", "lam", "sigma", "c_mu", "k_mu", "curvature", "bound"), POSITIVE),
    **dict.fromkeys(("drift", "ratio", "switches"), NOT_NEGATIVE),
    **dict.fromkeys(("recent_drift", "t"), ROUNDS),
    **dict.fromkeys(("gamma", "delta"), PROPORTION),
    **dict.fromkeys(("arm_geometry", "confidence", "form"), CHOICE),
    "depth": [*ROUNDS, 0, 0.5],
    "window": [bad for bad in [*ROUNDS, 0.0] if bad is not None],
    "log_det_ratio": [*NOT_REAL, -0.5, [1.0, -0.5], None],
}

Arguments = dict[str, Any]
SIZES: Arguments = {"dim": 2, "L": 1.0, "lam": 1.0}
CONSTANTS: Arguments = {**SIZES, "S": 1.0, "sigma": 0.5}
LINK: Arguments = {"k_mu": 0.25, "c_mu": 0.2}
LEVEL: Arguments = {"delta": 0.05, "confidence": "horizon", "horizon": 9}
PROBLEM: Arguments = {"horizon": 100, "drift": 1.0, **CONSTANTS, **LINK}
TUNING: Arguments = {"horizon": 100, "drift": 1.0, "dim": 2, "arm_geometry": "general"}
SELF_CONCORDANT: Arguments = {"gamma": 1.0, "window": 5.0, "delta": 0.1, "k_mu": 0.25, "horizon": 9, **CONSTANTS}
TRACKING: Arguments = {
    "gamma": 0.9,
    "depth": 2,
    "recent_drift": 1.0,
    "k_mu": 1.0,
    "S": 1.0,
    "arm_geometry": "general",
    **SIZES,
}
# Every public name with good arguments; each of them is then replaced by each of its bad values.
GOOD: dict[str, Arguments] = {
    "ConfidenceLevel": LEVEL,
    "ECOLogRadius": {"dim": 2, "S": 1.0, "L": 2.0, "delta": 0.1, "form": "proved"},
    "Growth": {"ratio": 0.5, "gamma": 0.9, "window": 3.0},
    "LikelihoodRatioRadius": {"dim": 2, "delta": 0.1},
    "LogLossRadius": {"dim": 2, "S": 1.0, "L": 2.0, "delta": 0.1, "form": "proved"},
    "OFULRadius": {"S": 1.0, "lam": 1.0, "sigma": 1.0, "delta": 0.1},
    "OnlineToConfidenceRadius": {"S": 1.0, "lam": 1.0, "sigma": 1.0, "delta": 0.1, "c_mu": 0.2},
    "Problem": PROBLEM,
    "Radius": {"gamma": 1.0, "c_mu": 0.2, "window": 4, **CONSTANTS, **LEVEL},
    "SelfConcordantRadius": SELF_CONCORDANT,
    "WeightedSelfConcordantRadius": {"gamma": 0.9, **CONSTANTS, **LINK, **LEVEL},
    "block_length": {"horizon": 10, "dim": 2},
    "confidence_level": {"t": 3, **LEVEL},
    "determinant_trace_bound": {"t": 3, "gamma": 0.9, **SIZES},
    "discount": TUNING,
    "discount_grid": {"horizon": 10, "dim": 2, "S": 1.0},
    "discounted_count": {"gamma": 0.5, "t": 3},
    "elliptical_potential_bound": {"log_det_ratio": 1.0, "gamma": 0.9, "rounds": 5, **SIZES},
    "exp3_batch": {"arms": 3, "horizon": 100, "drift": 2.0},
    "exp3_rate": {"arms": 3, "rounds": 4},
    "radius": {"t": 5, "gamma": 0.9, "c_mu": 0.2, **CONSTANTS, **LEVEL},
    "regret_bound": {"delta": 0.05, "gamma": 0.9, "arm_geometry": "general", "confidence": "horizon"},
    "regret_bound_unknown_drift": {"confidence": "horizon"},
    "sharing_rate": {"arms": 3, "horizon": 100, "switches": 2.0},
    "switching_discount": {"horizon": 100, "switches": 2.0, "bound": 1.0},
    "switching_window": {"horizon": 100, "switches": 2.0, "bound": 1.0},
    "tracking_bound": TRACKING,
    "trivial_bound": {"horizon": 10, "sigma": 0.5},
    "weight_discount": {"horizon": 100, "drift": 1.0, "dim": 2, "curvature": 0.5},
    "window_grid": {"horizon": 10, "dim": 2},
    "window_length": TUNING,
}
RESULTS = {"RegretBound", "UnknownDriftBound"}  # records that functions return; nothing to check
# A window may have an unknown drift, and the rate of EXP3.S an unknown number of changes.
MAY_BE_UNKNOWN = [("window_length", "drift"), ("sharing_rate", "switches")]
ARGUMENTS = [(name, argument) for name, good in GOOD.items() for argument in good]


def call(name: str, **changes: Any) -> Any:
    """Call a public name with good arguments except for ``changes``."""
    of_a_problem = {"problem": theory.Problem(**PROBLEM)} if name.startswith("regret_bound") else {}
    return getattr(theory, name)(**of_a_problem | GOOD[name] | changes)


def reject(name: str, argument: str, **changes: Any) -> ArgumentError:
    """Return the error, which must name ``argument``."""
    with rejects(argument) as caught:
        call(name, **changes)
    assert caught.value.argument == argument  # all of it, not an entry
    return caught.value


def test_the_table_covers_every_public_name_and_argument() -> None:
    assert {name for name in theory.__all__ if callable(getattr(theory, name))} - RESULTS - {"Lanes"} == set(GOOD)
    for name, good in GOOD.items():
        assert set(inspect.signature(getattr(theory, name)).parameters) - {"problem"} == set(good), name
    assert theory.CONFIDENCES == ("pointwise", "horizon", "anytime")
    assert theory.ARM_GEOMETRIES == ("orthogonal", "general")


@pytest.mark.parametrize(("name", "argument"), ARGUMENTS)
def test_bad_values_are_rejected(name: str, argument: str) -> None:
    call(name)
    bad_values = [bad for bad in BAD[argument] if bad is not None or (name, argument) not in MAY_BE_UNKNOWN]
    assert len(bad_values) >= len(CHOICE)
    for bad in bad_values:
        assert reject(name, argument, **{argument: bad}).expected


@pytest.mark.parametrize("gamma", [None, 0.0, 1.5, "x", True, math.nan, [0.5]])
def test_theorem_1_takes_the_recommended_discount_or_a_number(gamma: Any) -> None:
    if gamma is None:
        good = {"arm_geometry": "orthogonal", "delta": 0.1, "gamma": None}
        assert call("regret_bound", **good).gamma == theory.discount(horizon=100, drift=1.0, dim=2)
    else:
        reject("regret_bound", "gamma", gamma=gamma)


def test_what_depends_on_another_argument() -> None:
    reject("regret_bound_unknown_drift", "drift", problem=theory.Problem(**{**PROBLEM, "drift": 1e9}))
    assert reject("Problem", "k_mu", k_mu=0.1).expected == "a number at least c_mu=0.2"
    for name in ("confidence_level", "radius"):  # the rounds of an anytime radius start at 1
        call(name, t=0.5)
        assert reject(name, "t", t=0.5, confidence="anytime").expected == "a number at least 1"
    for name in ("ConfidenceLevel", "Radius", "radius", "WeightedSelfConcordantRadius"):
        call(name, confidence="anytime", horizon=None)
        assert "confidence is 'horizon'" in reject(name, "horizon", horizon=None).expected
    error = reject("discounted_count", "gamma", gamma=np.array([0.5, 1.5, 0.9]))
    assert (error.value, error.expected) == (1.5, "a number in (0, 1]")  # the offending entry


ARRAYS = {"gamma": 0.5, "delta": 0.5, **dict.fromkeys(("t", "window", "depth", "recent_drift", "log_det_ratio"), 3.0)}
PAIRS = [(name, [argument for argument in good if argument in ARRAYS][-2:]) for name, good in GOOD.items()]


@pytest.mark.parametrize(("name", "pair"), [case for case in PAIRS if len(case[1]) == 2 and case[0] != "regret_bound"])
def test_shapes_must_broadcast(name: str, pair: list[str]) -> None:
    first, second = pair
    lanes = {first: np.full((2, 3), ARRAYS[first]), second: np.full(3, ARRAYS[second])}
    call(name, **lanes)
    with rejects() as caught:
        call(name, **lanes | {second: np.full(2, ARRAYS[second])})
    assert caught.value.argument in pair
    assert "broadcasts" in caught.value.expected


NEITHER = st.one_of(
    st.text(), st.binary(), st.booleans(), st.none(), st.complex_numbers(), st.lists(st.text(min_size=1), min_size=1),
    st.dictionaries(st.text(), st.floats(), min_size=1), st.sampled_from(NOT_FINITE),
)  # fmt: skip


@sixty_examples
@given(case=st.sampled_from([case for case in ARGUMENTS if case[1] not in ("window", "drift", "horizon")]), bad=NEITHER)
def test_nothing_but_numbers_passes_for_a_number(case: tuple[str, str], bad: Any) -> None:
    name, argument = case
    if not (bad is None and (name == "regret_bound" or case in MAY_BE_UNKNOWN)):
        if isinstance(bad, str) and argument in ("arm_geometry", "confidence"):
            bad = f"not {bad}"
        reject(name, argument, **{argument: bad})


@sixty_examples
@given(
    gamma=st.floats(0.0, 1.0, exclude_min=True),
    delta=st.floats(1e-300, 1.0),
    t=st.floats(1.0, 1e15),
    confidence=st.sampled_from(theory.CONFIDENCES),
)
def test_every_good_value_gives_a_finite_radius(gamma: float, delta: float, t: float, confidence: str) -> None:
    beta = call("radius", t=t, gamma=gamma, delta=delta, confidence=confidence, horizon=10)
    assert isinstance(beta, float)
    assert math.isfinite(beta)
    assert beta >= 0.2
