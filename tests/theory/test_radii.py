"""Radii: exact digits, printed formulas, lanes and broadcasting, and how often they cover the noise."""

import math
from collections.abc import Iterator
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import naive
from support.numerics import C_LOGISTIC, PAPER, exact_count, many_examples
from windvane import SCDGLUCB, theory

# No lane at gamma = 1, some, all: Radius takes a path of its own in each.
DISCOUNTS = {
    "none": [0.3, 0.9, 0.995908, 1.0 - 1e-12, 1.0 - 2.0**-53],
    "some": [0.3, 1.0, 1.0 - 1e-12, 1.0, 0.995908],
    "all": [1.0, 1.0, 1.0, 1.0, 1.0],
}
LONG_ARMS: dict[str, Any] = {"dim": 3, "S": 1.7, "L": 2.3, "lam": 0.4, "sigma": 0.8}
PRINTED = [(PAPER, 0.05, C_LOGISTIC), (LONG_ARMS, 0.03, 0.2), (LONG_ARMS, 0.03, 1.0)]
by_confidence = pytest.mark.parametrize("confidence", theory.CONFIDENCES)
by_lanes = pytest.mark.parametrize("lanes", DISCOUNTS)


def exact_radius(count: Decimal, delta: Decimal, c_mu: float, dim: int, **settings: float) -> float:
    """beta for a sum of squared weights ``count``, in the precision of the context."""
    S, L, lam, sigma = (Decimal(settings[name]) for name in ("S", "L", "lam", "sigma"))
    spread = dim * (1 + L**2 / (lam * dim) * count).ln() - 2 * delta.ln()
    return float(lam.sqrt() * Decimal(c_mu) * S + sigma * spread.sqrt())


@pytest.mark.parametrize("gamma", [0.01, 0.3, 0.5, 0.9, 0.995908, 1.0])
@pytest.mark.parametrize("t", [0, 1, 2, 7, 500])
def test_discounted_count_is_the_geometric_sum(gamma: float, t: int) -> None:
    direct = math.fsum(gamma**i for i in range(t))
    assert theory.discounted_count(gamma, t) == pytest.approx(direct, rel=1e-13, abs=0.0)


@many_examples
@given(st.integers(1, 52), st.floats(1.0, 2.0), st.floats(1e-6, 1e9))
def test_discounted_count_keeps_its_digits_near_one(bits: int, scale: float, t: float) -> None:
    gamma = 1.0 - scale * 2.0**-bits
    assume(0.0 < gamma < 1.0)
    assert theory.discounted_count(gamma, t) == pytest.approx(float(exact_count(gamma, t)), rel=5e-15, abs=0.0)
    for t in (0.0, 0.5, 3.0, 1e4, 12345.678):  # continuous at one
        assert theory.discounted_count(1.0, t) == t
        assert theory.discounted_count(np.nextafter(1.0, 0.0), t) == pytest.approx(t, rel=1e-11)


def test_confidence_levels_spend_no_more_than_delta() -> None:
    assert theory.confidence_level(0.05, 7) == 0.05
    assert theory.confidence_level(0.05, 7, confidence="horizon", horizon=200) == 0.05 / 200
    assert theory.confidence_level(0.05, 1, confidence="anytime") == 0.025
    expected = 0.05 / (2 * 7 * (1 + math.log(7)) ** 2)
    assert theory.confidence_level(0.05, 7, confidence="anytime") == pytest.approx(expected, rel=1e-15)
    n = 1_000_000
    rounds = np.arange(1, n + 1)
    spent = float(np.sum(theory.confidence_level(1.0, rounds, confidence="anytime")))
    # The summand decreases, so what is left after n is below its integral, 1 / (2 (1 + log n)).
    assert spent + 0.5 / (1.0 + math.log(n)) <= 1.0
    per_round = np.asarray(theory.confidence_level(0.3, rounds, confidence="horizon", horizon=n))
    assert per_round.shape == (n,)
    assert per_round.sum() == pytest.approx(0.3)


@by_lanes
@by_confidence
@pytest.mark.parametrize("t", [1.0, 2.0, 37.5, 3000.0, 1e7])
def test_radius_agrees_with_exact_arithmetic(lanes: str, confidence: str, t: float) -> None:
    gammas, deltas, T, c_mu = DISCOUNTS[lanes], [0.05, 1.0, 1e-9, 0.3, 0.05], 1000, 0.2
    level = {"gamma": np.array(gammas), "delta": np.array(deltas), "confidence": confidence, "horizon": T}
    got = theory.Radius(c_mu=c_mu, **level, **LONG_ARMS)(t)
    assert got.shape == (5,)
    assert got.dtype == np.float64
    with localcontext() as ctx:
        ctx.prec = 80
        rounds = Decimal(t)
        shrink = {"pointwise": Decimal(1), "horizon": Decimal(T), "anytime": 2 * rounds * (1 + rounds.ln()) ** 2}
        for lane, (gamma, delta) in enumerate(zip(gammas, deltas, strict=True)):
            exact = exact_radius(exact_count(gamma, t, 2), Decimal(delta) / shrink[confidence], c_mu, **LONG_ARMS)
            assert float(got[lane]) == pytest.approx(exact, rel=2e-15, abs=0.0)


@pytest.mark.parametrize("gamma", [0.5, 0.9, 0.97, 0.995908, 1.0])
@pytest.mark.parametrize(("settings_", "delta", "c_mu"), PRINTED)
def test_radius_is_the_printed_formula(gamma: float, settings_: dict[str, Any], delta: float, c_mu: float) -> None:
    fixed = theory.Radius(gamma=gamma, delta=delta, c_mu=c_mu, **settings_)
    with localcontext() as ctx:
        ctx.prec = 60
        square, term, count = Decimal(gamma) ** 2, Decimal(1), Decimal(0)
        for t in range(1, 401):
            count += term
            term *= square
            exact = exact_radius(count, Decimal(delta), c_mu, **settings_)
            assert float(fixed(float(t))) == pytest.approx(exact, rel=2e-15, abs=0.0)
            assert theory.radius(t, gamma=gamma, delta=delta, c_mu=c_mu, **settings_) == float(fixed(float(t)))


def test_radius_keeps_its_digits_when_gamma_squared_would_round() -> None:
    # Squaring is worst when (1 - gamma)^2 is half an ulp of 1, that is near 1 - gamma = 2^-27.
    gamma, t, lam = 1.0 - 1.3 * 2.0**-27, 2e8, 1e11
    with localcontext() as ctx:
        ctx.prec = 80
        expected = float((1 + exact_count(gamma, t, 2) / Decimal(lam)).ln().sqrt())
    # delta = 1 and lam large leave (almost) sqrt(count / lam), which shows every digit of the count.
    got = theory.radius(t, dim=1, gamma=gamma, S=1e-30, L=1.0, lam=lam, sigma=1.0, delta=1.0, c_mu=1e-30)
    assert got == pytest.approx(expected, rel=1e-14)


def test_radius_is_continuous_at_gamma_one() -> None:
    common: dict[str, Any] = dict(delta=0.05, c_mu=C_LOGISTIC, **PAPER)
    at_one = theory.radius(3000, gamma=1.0, **common)
    gaps = [abs(float(theory.radius(3000, gamma=1.0 - eps, **common)) - float(at_one)) for eps in (1e-5, 1e-7, 1e-9)]
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[2] < 1e-5


@by_lanes
@by_confidence
def test_a_fixed_radius_broadcasts_and_leaves_no_trace(lanes: str, confidence: str) -> None:
    gammas, deltas, rounds = np.array(DISCOUNTS[lanes]), np.array([[0.01], [0.2]]), np.arange(1.0, 21.0)
    common: dict[str, Any] = dict(c_mu=0.3, confidence=confidence, horizon=900, **PAPER)
    fixed = theory.Radius(gamma=gammas, delta=deltas, **common)
    assert fixed(7.0).shape == (2, 5)
    got = fixed(rounds[:, None, None])
    assert got.shape == (20, 2, 5)
    for i, t in enumerate(rounds):
        assert np.array_equal(fixed(float(t)), got[i])
        assert np.array_equal(theory.radius(t, gamma=gammas, delta=deltas, **common), got[i])
    single = theory.Radius(gamma=float(gammas[0]), delta=0.2, **common)
    assert isinstance(single(7.0), np.ndarray)
    assert single(7.0).shape == ()
    assert single(7.0) == got[6, 1, 0]
    assert single(rounds).shape == (20,)
    before = fixed(7.0)
    gammas[:] = 0.123  # the caller's own
    assert np.array_equal(fixed(7.0), before)


@by_confidence
@pytest.mark.parametrize("flat", [0, 1, 25, 50])
def test_a_lane_does_not_depend_on_the_others_bit_for_bit(confidence: str, flat: int) -> None:
    rng = np.random.default_rng(flat)
    gammas = 1.0 - np.exp(rng.uniform(-36.0, -0.1, size=50))
    gammas[rng.permutation(50)[:flat]] = 1.0
    deltas = rng.uniform(1e-6, 1.0, size=50)
    common: dict[str, Any] = dict(c_mu=0.3, confidence=confidence, horizon=900, **PAPER)
    rounds = [1.0, 2.0, 3.0, 17.0, 899.0, 123456.0]
    whole = theory.Radius(gamma=gammas, delta=deltas, **common)
    together = np.stack([whole(t) for t in rounds])
    assert np.array_equal(together, whole(np.array(rounds)[:, None]))
    assert np.array_equal(together, theory.radius(np.array(rounds)[:, None], gamma=gammas, delta=deltas, **common))
    for lane, (gamma, delta) in enumerate(zip(gammas.tolist(), deltas.tolist(), strict=True)):
        alone = theory.Radius(gamma=gammas[lane : lane + 1], delta=deltas[lane : lane + 1], **common)
        bare = theory.Radius(gamma=gamma, delta=delta, **common)
        scalars = [theory.radius(t, gamma=gamma, delta=delta, **common) for t in rounds]
        assert {type(beta) for beta in scalars} == {float}
        expected = together[:, lane].tolist()
        assert [alone(t)[0] for t in rounds] == [float(bare(t)) for t in rounds] == scalars == expected
    # Widths on both sides of those of vector registers, and a stride.
    for part in (*(slice(size) for size in (2, 3, 7, 8, 9, 31)), slice(None, None, -2)):
        some = theory.Radius(gamma=gammas[part], delta=deltas[part], **common)
        assert np.array_equal(np.stack([some(t) for t in rounds]), together[:, part])


def test_window_radius_is_the_undiscounted_radius_stopped_at_the_window() -> None:
    common: dict[str, Any] = dict(delta=0.05, c_mu=0.2, **PAPER)
    for t in (1, 49, 50, 51, 4000):
        expected = theory.radius(min(t, 50), gamma=1.0, **common)
        assert theory.Radius(gamma=1.0, window=50, **common)(t) == pytest.approx(expected, rel=1e-15)
    anytime = theory.Radius(gamma=1.0, window=50, confidence="anytime", **common)(80)
    level = theory.confidence_level(0.05, 80, confidence="anytime")
    assert anytime == theory.Radius(gamma=1.0, window=50, **{**common, "delta": level})(80)
    common = dict(gamma=0.9, delta=0.05, c_mu=1.0, **PAPER)
    for confidence in ("horizon", "anytime"):  # a radius for all rounds is larger
        assert theory.radius(8, confidence=confidence, horizon=70, **common) > theory.radius(8, **common)


# dim, S, sigma, horizon, forgetting, round, what the oracle is told for each lane, tolerance
WINDOWS = np.array([30.0, 60.0])
SELF_CONCORDANT = [
    *((1, 1.3, 0.4, 3000, {"gamma": g}, 5.0, [{"gamma": g}], 1e-10) for g in (0.9, 0.99, 0.9998)),
    *((4, 1.3, 0.4, 3000, {"gamma": g}, 5.0, [{"gamma": g}], 1e-10) for g in (0.9, 0.99, 0.9998)),
    *((2, 1.3, 0.4, 900, {"window": WINDOWS}, t, [{"n": min(t, n)} for n in WINDOWS], 1e-12) for t in (1.0, 45.0, 2e2)),
    # At gamma = 1 nothing is older than the run: S_bar = S, and T observations at most.
    (2, 1.0, 0.5, 900, {"gamma": 1.0}, 1.0, [{"n": 900.0}], 1e-12),
]


@pytest.mark.parametrize(("dim", "S", "sigma", "T", "forgetting", "t", "oracle", "rel"), SELF_CONCORDANT)
def test_self_concordant_radii(dim, S, sigma, T, forgetting, t, oracle, rel) -> None:
    settings_ = {"dim": dim, "S": S, "L": 1.0, "lam": 7.0, "sigma": sigma, "delta": 0.1, "k_mu": 0.25, "horizon": T}
    beta = theory.SelfConcordantRadius(**settings_, **forgetting)
    for lane, told in enumerate(oracle):
        inside, outside = naive.self_concordant_radii(dim, S, 7.0, 2 * sigma, 0.1, 0.25, T, **told)
        assert np.atleast_1d(beta.inside(t))[lane] == pytest.approx(inside, rel=rel)
        assert np.atleast_1d(beta.outside(t))[lane] == pytest.approx(outside, rel=rel)
        assert inside < outside
    if forgetting == {"gamma": 1.0}:
        close = theory.SelfConcordantRadius(**settings_, gamma=0.99999)  # (1 - T^-2) / (1 - gamma^2) is beyond T
        assert float(close.rho(1.0)) == float(beta.rho(1.0))
        assert SCDGLUCB(2, horizon=900, switches=0).estimator.gamma.tolist() == [1.0]


@by_confidence
def test_the_radius_of_scb_weight_ucb(confidence: str) -> None:
    gamma, t, level = np.array([0.95, 1.0]), 17.0, {"delta": 0.05, "confidence": confidence, "horizon": 400}
    settings_ = {"dim": 3, "S": 1.2, "L": 0.8, "lam": 5.0, "sigma": 0.5, "k_mu": 0.25, "c_mu": 0.2}
    beta = theory.WeightedSelfConcordantRadius(gamma=gamma, **settings_, **level)
    slow = naive.NaiveSCBWeightUCB(3, S=1.2, lam=5.0, L=0.8)
    slow.k_mu, slow.c_mu, slow.t = 0.25, 0.2, t
    for lane, slow.gamma in enumerate(gamma):
        assert beta(t)[lane] == pytest.approx(slow.radius(naive.delta_at(t, *level.values())), rel=1e-12)


def noise_norms(
    seed: int, *, dim: int, gamma: float, lam: float, sigma: float, rounds: int, lanes: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """For t = 1..rounds, ||S_t|| in Vtilde_t^-1 and log det(Vtilde_t / lam), one entry a lane.

    S_t = sum_{s<t} gamma^(t-1-s) eps_s x_s with Gaussian noise and arms in the unit ball that depend on the
    past (the lemma allows it): along S_t while the norm is small, else shorter or across it.
    """
    rng, total, spread = np.random.default_rng(seed), np.zeros((lanes, dim)), np.zeros((lanes, dim, dim))
    for _ in range(rounds):
        tilde = spread + lam * np.eye(dim)
        if dim == 1:
            det = tilde[:, 0, 0]
            norm = np.abs(total[:, 0]) / np.sqrt(det)
            arm = np.where(norm > 1.0, 0.5, 1.0)[:, None]
        else:
            a, b, c, (u, v) = tilde[:, 0, 0], tilde[:, 0, 1], tilde[:, 1, 1], total.T
            det = a * c - b * b
            norm = np.sqrt((c * u * u - 2 * b * u * v + a * v * v) / det)
            angle = np.arctan2(v, u) + np.where(norm > 1.5, 0.5 * np.pi, 0.0)
            arm = np.stack([np.cos(angle), np.sin(angle)], axis=1)
        yield norm, np.log(det) - dim * math.log(lam)
        total = gamma * total + sigma * rng.standard_normal((lanes, 1)) * arm
        spread = gamma**2 * spread + arm[:, :, None] * arm[:, None, :]


def noise_radius(rounds: int, **settings_: Any) -> np.ndarray:
    """beta_t without its bias, for t = 1..rounds."""
    bias = math.sqrt(settings_["lam"])
    return np.asarray(theory.radius(np.arange(1, rounds + 1), S=1.0, L=1.0, c_mu=1.0, **settings_)) - bias


@pytest.mark.parametrize("dim", [1, 2])
@pytest.mark.parametrize(("gamma", "lam", "delta"), [(0.5, 1.0, 0.2), (0.9, 0.1, 0.05), (1.0, 1.0, 0.1)])
def test_coverage_holds_at_a_fixed_round(dim: int, gamma: float, lam: float, delta: float) -> None:
    rounds, lanes, common = 60, 10_000, {"dim": dim, "gamma": gamma, "lam": lam, "sigma": 0.7}
    limits = noise_radius(rounds, delta=delta, **common)
    allowed = delta + 4 * math.sqrt(delta * (1 - delta) / lanes)
    for t, (norm, _) in enumerate(noise_norms(2021, rounds=rounds, lanes=lanes, **common), start=1):
        if t in (2, 10, rounds):
            assert np.mean(norm > limits[t - 1]) <= allowed


@pytest.mark.parametrize("dim", [1, 2])
def test_pointwise_radius_fails_uniformly_and_the_union_bounds_do_not(dim: int) -> None:
    rounds, lanes, delta = 2000, 2000, 0.2
    common: dict[str, Any] = {"dim": dim, "gamma": 0.5, "lam": 1.0, "sigma": 1.0}
    levels = {c: noise_radius(rounds, delta=delta, confidence=c, horizon=rounds, **common) for c in theory.CONFIDENCES}
    escaped = {c: np.zeros(lanes, dtype=bool) for c in levels}
    for t, (norm, _) in enumerate(noise_norms(7, rounds=rounds, lanes=lanes, **common)):
        for c, limit in levels.items():
            escaped[c] |= norm > limit[t]
    assert escaped["pointwise"].mean() > 0.9
    assert escaped["horizon"].mean() <= delta
    assert escaped["anytime"].mean() <= delta


def test_oful_radius_and_that_it_covers_all_rounds_at_once() -> None:
    expected = math.sqrt(0.4) * 1.7 + 0.8 * math.sqrt(2 * math.log(1 / 0.03) + 5.5)
    assert theory.OFULRadius(S=1.7, lam=0.4, sigma=0.8, delta=0.03)(5.5) == pytest.approx(expected, rel=1e-15)
    # Round-off in a factorisation of lam I must not stop the first round.
    assert theory.OFULRadius(S=1.0, lam=1.0, sigma=1.0, delta=1.0)(-1e-15) == 1.0
    delta, lanes, lam, sigma = 0.2, 2000, 0.5, 0.7
    escaped, radius = np.zeros(lanes, dtype=bool), theory.OFULRadius(S=1.0, lam=lam, sigma=sigma, delta=delta)
    for norm, log_det_ratio in noise_norms(11, dim=2, gamma=1.0, lam=lam, sigma=sigma, rounds=600, lanes=lanes):
        escaped |= norm > np.asarray(radius(log_det_ratio)) - math.sqrt(lam)
    assert escaped.mean() <= delta + 4 * math.sqrt(delta * (1 - delta) / lanes)
