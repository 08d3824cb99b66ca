"""How a policy is told to forget: a rule, a shorthand for it, or what theory recommends."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import naive
import windvane as wv
from support.cases import GLM_SETTINGS, LINEAR_SETTINGS, by_lane
from support.refusals import refuses
from support.worlds import LaneWorld, play, same_state
from windvane import Discount, Never, Restart, Window, state, theory

SETTINGS: dict[Any, dict[str, Any]] = {
    wv.BVDGLMUCB: {"gamma": 0.95},
    wv.DLinUCB: {"gamma": 0.95},
    wv.Greedy: {"gamma": 0.95},
    **{cls: settings for cls, settings in GLM_SETTINGS.items() if cls is not wv.AdaptiveGLMUCB},
    **LINEAR_SETTINGS,
}
RULES = {"gamma": Discount, "window": Window, "restart_every": Restart}
every_forgetter = pytest.mark.parametrize("cls", SETTINGS, ids=lambda cls: cls.name)


def split_settings(cls: Any) -> tuple[str, Any, dict[str, Any], str]:
    """The shorthand with its value, the other settings, and what the recommended value is computed from."""
    settings = dict(SETTINGS[cls])
    name = next(name for name in RULES if name in settings)
    by = "switches" if cls in (wv.DGLUCB, wv.SWGLUCB, wv.SCDGLUCB, wv.SCSWGLUCB) else "drift"
    return name, settings.pop(name), settings, by


@every_forgetter
def test_a_shorthand_is_its_rule(cls) -> None:
    """Also one number per lane; the estimates and the choices are the same, bit for bit."""
    name, value, settings, _ = split_settings(cls)
    several = [value, value] if name == "restart_every" else [value, 0.9 * value]
    for given in (value, several, np.array(several)):
        short = cls(2, lanes=2, **settings, **{name: given})
        long = cls(2, lanes=2, **settings, forgetting=RULES[name](given))
        assert np.array_equal(play(short, LaneWorld([0, 1], 2), 40), play(long, LaneWorld([0, 1], 2), 40))
        assert same_state(state.save(short), state.save(long))
        assert short.forgetting is None
        assert getattr(long, name) is None


@every_forgetter
def test_how_forgetting_may_be_given(cls) -> None:
    name, value, settings, by = split_settings(cls)
    rule = RULES[name](value)
    told = {"horizon": 100, by: 1.0}
    for given, named in (
        ({name: value, **told}, by),
        ({"forgetting": rule, name: value}, name),
        ({"forgetting": rule, **told}, by),
        ({"forgetting": Restart(5) if name == "window" else Window(5)}, "forgetting"),
        ({"forgetting": value}, "forgetting"),
        ({}, name),
        ({by: 1.0}, name),
        ({"horizon": 0, by: 1.0}, "horizon"),
        ({"horizon": 2.5, by: 1.0}, "horizon"),
        ({"horizon": 100, by: -1.0}, by),
        ({"horizon": 100, by: math.nan}, by),
        ({name: 0.0}, name),
        ({name: math.nan}, name),
        ({name: [value] * 3}, name),
        ({"forgetting": RULES[name](0.0)}, name),
    ):
        others = {k: v for k, v in settings.items() if not (k == "horizon" and by in given)}
        with refuses(named):
            cls(2, lanes=2, **(others | given))
    if cls is not wv.SWLinUCB and "horizon" not in settings:  # where the drift is unknown, SW-LinUCB knows a window
        with refuses(name):
            cls(2, horizon=100)
    if hasattr(cls, "arm_geometry"):
        for given in (told, {name: value}):
            with refuses("arm_geometry", value="orthogonl"):
                cls(2, **given, arm_geometry="orthogonl")


@pytest.mark.parametrize("cls", [cls for cls in SETTINGS if "gamma" in SETTINGS[cls]], ids=lambda cls: cls.name)
def test_never_is_a_discount_of_one(cls) -> None:
    _, _, settings, _ = split_settings(cls)
    never, one = cls(2, forgetting=Never(), **settings), cls(2, gamma=1.0, **settings)
    assert np.array_equal(play(never, LaneWorld([0], 2), 30), play(one, LaneWorld([0], 2), 30))


@pytest.mark.parametrize("cls", [wv.BVDGLMUCB, wv.DLinUCB])
@pytest.mark.parametrize("kind", ["orthogonal", "general"])
@pytest.mark.parametrize("drift", [0.0, 1.5708, 1e9])
def test_horizon_and_drift_give_the_discount_of_theorem_1(cls, kind: str, drift: float) -> None:
    """gamma = theory.discount in every lane, as of the tuned rule; no drift: 1; the clip at 1/2."""
    gamma = cls(2, horizon=3000, drift=drift, arm_geometry=kind, lanes=3).info().gamma
    assert (gamma == theory.discount(horizon=3000, drift=drift, dim=2, arm_geometry=kind)).all()
    assert (gamma == Discount.tuned(horizon=3000, drift=drift, dim=2, arm_geometry=kind).gamma).all()
    if cls is wv.BVDGLMUCB and kind == "orthogonal" and drift == 1.5708:
        assert gamma[0] == pytest.approx(0.995908, abs=5e-7)  # the paper's experiment
    if drift == 0.0:
        assert gamma[0] == 1.0


def test_recommended_tuning_of_the_generalized_linear_policies() -> None:
    T, d, B, n = 2000, 3, 1.7, 4
    k, c, _ = naive.constants(naive.LINKS["logistic"], 1.0, 1.0)
    discounts = {
        wv.GLBWeightUCB(d, horizon=T, drift=B): 1 - math.sqrt(k * c * B / (d * T)),
        wv.SCBWeightUCB(d, horizon=T, drift=B): 1 - math.sqrt(k * B / (d * T)),
        wv.DGLUCB(d, horizon=T, switches=n): 1 - (n / (d * T)) ** (2 / 3),
        wv.SCDGLUCB(d, horizon=T, switches=n): 1 - (math.sqrt(c) * n / (d * T)) ** (2 / 3),
        wv.GLBWeightUCB(2, horizon=50, drift=0.0): 1 - 1 / 50,  # no drift at all
        wv.DGLUCB(2, horizon=50, switches=0): 1.0,
    }
    for policy, gamma in discounts.items():
        assert policy.info().gamma[0] == pytest.approx(gamma, rel=1e-12)
    windows = {
        wv.SWBVDGLMUCB(d, horizon=T, drift=B): (d * T / B) ** (2 / 3),
        wv.SWGLUCB(d, horizon=T, switches=n): (d * T / n) ** (2 / 3),
        wv.SCSWGLUCB(d, horizon=T, switches=n): (d * T / (math.sqrt(c) * n)) ** (2 / 3),
        wv.SWGLUCB(2, horizon=50, switches=0): 50,
    }
    for policy, length in windows.items():
        assert policy.estimator.window[0] == math.floor(length)
    assert wv.RestartGLB(d, horizon=T, drift=B).periods[0] == math.floor((d * T / B) ** (2 / 3))
    assert wv.RestartGLB(2, horizon=50, drift=0.0).periods[0] == 50
    several, *alone = (wv.SCSWGLUCB(2, horizon=900, switches=s, lanes=np.size(s)).estimator for s in ([0, 3], 0, 3))
    assert several.window.tolist() == [estimator.window[0] for estimator in alone]


DRIFTS = [0.0, 0.3, 1.5708, 40.0]


def exact_window(T: int, dim: int, drift: float) -> int:
    """floor((d T / B)^(2/3)), at most T: the largest whole n with n^3 <= (d T / B)^2, exactly."""
    n = 1
    while n < T and Fraction(n + 1) ** 3 * Fraction(drift) ** 2 <= Fraction(dim * T) ** 2:
        n += 1
    return n


@pytest.mark.parametrize("dim", [2, 10])
@pytest.mark.parametrize("T", [500, 3000])
def test_tunings_of_the_linear_policies_follow_the_papers_lane_by_lane(dim: int, T: int) -> None:
    told = {"dim": dim, "horizon": T, "drift": DRIFTS, "lanes": len(DRIFTS)}
    lengths = [exact_window(T, dim, B) for B in DRIFTS]
    assert wv.SWLinUCB(**told).estimator.window.tolist() == lengths
    assert wv.RestartUCB(**told).periods.tolist() == lengths
    wang = [1 - max(1 / T, math.sqrt(B / (dim * T))) for B in DRIFTS]
    np.testing.assert_allclose(wv.LBWeightUCB(**told).info().gamma, wang, rtol=1e-15)
    russac = [1 - (B / (dim * T)) ** (2 / 3) for B in DRIFTS]
    for kind in (wv.DLinUCB, wv.DLinTS, wv.DRandLinUCB):
        np.testing.assert_allclose(kind(**told).info().gamma, russac, rtol=1e-15)
    assert wv.LBWeightUCB(dim=dim, gamma=0.9).estimator.lam == dim
    assert wv.SWLinUCB(dim=dim, horizon=T).estimator.window.tolist() == [exact_window(T, dim, 1.0)]
    tuned = {rule: rule.tuned(horizon=T, drift=DRIFTS, dim=dim) for rule in (Window, Restart)}
    assert tuned[Window].length.tolist() == tuned[Restart].every.tolist() == lengths


def test_a_rule_has_one_value_per_lane_or_one_for_all() -> None:
    built = by_lane(wv.BVDGLMUCB, gamma=[0.8, 0.9, 1.0])(dim=2, lanes=[5, 0, 1])
    assert built.info().gamma.tolist() == [1.0, 0.8, 0.9]
    with refuses("gamma"):
        wv.BVDGLMUCB(2, forgetting=Discount([0.9, 0.9, 0.9]), lanes=2)
    with refuses("gamma", where="lane 1"):
        wv.BVDGLMUCB(2, forgetting=Discount([0.9, 1.9]), lanes=2)
