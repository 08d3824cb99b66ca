"""Theorems 1 and 2, term by term, and the rates at which they grow."""

import math
from typing import Any

import pytest

from support.numerics import LINK, PAPER
from windvane import theory


@pytest.mark.parametrize("arm_geometry", theory.ARM_GEOMETRIES)
@pytest.mark.parametrize("confidence", theory.CONFIDENCES)
def test_theorem_1_term_by_term(arm_geometry: str, confidence: str) -> None:
    T, B, d, g, k, c, S, L, lam, sigma, delta = 400, 2.5, 3, 0.97, 0.25, 0.1, 1.5, 1.8, 0.6, 0.5, 0.04
    R = k / c
    shrink = {"pointwise": 1.0, "horizon": T, "anytime": 2 * T * (1 + math.log(T)) ** 2}[confidence]
    squares = math.fsum(g ** (2 * i) for i in range(T))
    plain = math.fsum(g**i for i in range(T))
    spread = 2 * math.log(shrink / delta) + d * math.log(1 + L**2 * squares / (lam * d))
    beta = math.sqrt(lam) * c * S + sigma * math.sqrt(spread)
    C1 = math.sqrt(32 * max(1, L**2 / lam))
    D = math.ceil(math.log(T) / (1 - g))
    growth = T * math.log(1 / g) + math.log(1 + L**2 * plain / (lam * d))
    learning = C1 * R * beta * math.sqrt(d * T) * math.sqrt(growth)
    if arm_geometry == "orthogonal":
        truncation = 8 * k * L**3 * S / lam * R * g**D / (1 - g) * T
        tracking = 4 * k * L * R * D * B
    else:
        C4, C5 = 8 * k * L**3 * S / lam, 8 * L**4 * S / lam**1.5
        C6, C7 = 4 * L**2 / math.sqrt(lam), 4 * L**3 / lam
        truncation = C4 * R * T * g**D / (1 - g) + C5 * k * R * T * g**D / (1 - g) ** 1.5
        tracking = C6 * k * R * math.sqrt(d / (1 - g)) * D * B + C7 * k * R * math.sqrt(d) / (1 - g) * D * B
    problem = theory.Problem(horizon=T, drift=B, dim=d, k_mu=k, c_mu=c, S=S, L=L, lam=lam, sigma=sigma)
    got = theory.regret_bound(problem, gamma=g, arm_geometry=arm_geometry, delta=delta, confidence=confidence)
    assert (got.depth, got.gamma) == (D, g)
    parts = (learning, truncation, tracking)
    assert (got.learning, got.truncation, got.tracking) == pytest.approx(parts, rel=1e-12)
    assert got.total == pytest.approx(sum(parts), rel=1e-12)


def theorem_1(horizon: int, drift: float, **more: Any) -> theory.RegretBound:
    return theory.regret_bound(theory.Problem(horizon=horizon, drift=drift, **PAPER, **LINK), delta=0.05, **more)


def test_theorem_1_defaults_and_the_experiment() -> None:
    bound = theorem_1(3000, 1.5708)
    assert bound.gamma == theory.discount(horizon=3000, drift=1.5708, dim=2)
    assert bound == theorem_1(3000, 1.5708, gamma=bound.gamma, confidence="horizon", arm_geometry="orthogonal")
    assert bound.total > theory.trivial_bound(3000, 0.5) == 3000.0
    assert theorem_1(1, 0.5, gamma=0.9).depth == 1


@pytest.mark.parametrize("arm_geometry", theory.ARM_GEOMETRIES)
def test_theorem_1_at_gamma_one(arm_geometry: str) -> None:
    still = theorem_1(1000, 0.0, arm_geometry=arm_geometry)
    assert (still.gamma, still.truncation, still.tracking) == (1.0, 0.0, 0.0)
    assert math.isfinite(still.total)
    assert still.total == still.learning
    near = theorem_1(1000, 0.0, arm_geometry=arm_geometry, gamma=1.0 - 1e-12)
    assert near.learning == pytest.approx(still.learning, rel=1e-8)
    moving = theorem_1(1000, 0.1, arm_geometry=arm_geometry, gamma=1.0)
    assert moving.total == math.inf
    assert moving.learning == still.learning


@pytest.mark.parametrize(
    ("arm_geometry", "rate", "drift_rate", "small", "large"),
    [("orthogonal", 2 / 3, 1 / 3, 12, 18), ("general", 4 / 5, 1 / 5, 18, 30)],
)
def test_theorem_1_grows_at_the_announced_rates(arm_geometry, rate, drift_rate, small, large) -> None:
    # The bound is T^rate times one log (up to lower order); its exponent is read between two huge horizons.
    low, high = (theorem_1(10**e, 1.0, arm_geometry=arm_geometry).total / math.log(10.0**e) for e in (small, large))
    assert math.log(high / low) / math.log(10.0 ** (large - small)) == pytest.approx(rate, abs=0.015)
    low, high = (theorem_1(10**15, B, arm_geometry=arm_geometry).total for B in (1.0, 1e3))
    assert math.log(high / low) / math.log(1e3) == pytest.approx(drift_rate, abs=0.03)


def theorem_2(horizon: int, drift: float, confidence: str = "pointwise", **changes: Any) -> theory.UnknownDriftBound:
    problem = theory.Problem(horizon=horizon, drift=drift, **{**PAPER, **LINK, **changes})
    return theory.regret_bound_unknown_drift(problem, confidence=confidence)


@pytest.mark.parametrize("drift", [0.0, 0.3, 40.0])
def test_theorem_2_term_by_term(drift: float) -> None:
    T, d, k, c, S, L, lam, sigma = 5000, 3, 0.25, 0.1, 1.5, 1.8, 0.6, 0.5
    settings = {"dim": d, "k_mu": k, "c_mu": c, "S": S, "L": L, "lam": lam, "sigma": sigma}
    R, B = k / c, max(drift, T**-0.5)
    g = 1 - 0.5 * (B / (d * T * 2 * S)) ** (2 / 3)
    n = math.ceil(T / (H := math.floor(d * math.sqrt(T))))
    N = math.ceil(2 / 3 * math.log2(2 * S * T**1.5)) + 1
    spread = 2 * math.log(T) + d * math.log(1 + 2 * L**2 / (lam * d * (1 - g**2)))
    beta = math.sqrt(lam) * c * S + sigma * math.sqrt(spread)
    C1, C2, C3 = math.sqrt(32 * max(1, L**2 / lam)), 8 * k * L**3 * S / lam, 4 * k * L
    growth = 2 * T * (1 - g) + n * math.log(1 + 2 * L**2 / (d * lam * (1 - g)))
    parts = {
        "restarts": 2 * sigma * n,
        "learning": C1 * R * beta * math.sqrt(d * T) * math.sqrt(growth),
        "truncation": C2 * R * 2 / math.sqrt(T) / (1 - g),
        "tracking": 3 * C3 * R / math.log(2) * B * math.log(T) / (1 - g),
        "master": 4 * sigma * H * math.sqrt(math.e - 1) * math.sqrt(n * N * math.log(N)),
    }
    got = theorem_2(T, drift, **settings)
    assert got.gamma == pytest.approx(g, rel=1e-15)
    for name, value in parts.items():
        assert getattr(got, name) == pytest.approx(value, rel=1e-9), name
    assert got.total == pytest.approx(sum(parts.values()), rel=1e-9)
    safe = theorem_2(T, drift, confidence="horizon", **settings)
    assert safe.learning > got.learning
    assert safe.tracking == got.tracking


def test_theorem_2_below_the_grid_and_corner_cases() -> None:
    assert theorem_2(3000, 0.0) == theorem_2(3000, 3000**-0.5)
    assert theorem_2(3000, 1.5708).total > theory.trivial_bound(3000, 0.5)
    assert theorem_2(10, 1e-6, S=1e-6).gamma == 0.5
    assert math.isfinite(theorem_2(1, 0.0).total)


@pytest.mark.parametrize(("exponent", "rate"), [(0.0, 3 / 4), (0.5, 5 / 6)])
def test_theorem_2_grows_at_the_announced_rate(exponent: float, rate: float) -> None:
    # T^(2/3) max(B, d^(-1/2) T^(1/4))^(1/3): T^(3/4) for a fixed drift, T^(5/6) for a drift of sqrt(T).
    low, high = (theorem_2(10**e, 10.0 ** (exponent * e)).total / math.log(10.0**e) for e in (14, 20))
    assert math.log(high / low) / math.log(1e6) == pytest.approx(rate, abs=0.02)
