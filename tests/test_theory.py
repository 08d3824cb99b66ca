"""Tests of windvane.theory against direct sums, exact arithmetic, random sequences and simulation."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from windvane import theory

# Hypothesis's deadline reads the clock; no test here may.
relaxed = settings(deadline=None, max_examples=150)

K_LOGISTIC = 0.25
C_LOGISTIC = math.e / (1.0 + math.e) ** 2
PAPER: dict[str, Any] = {"dim": 2, "S": 1.0, "L": 1.0, "lam": 1.0, "sigma": 0.5}
LINK: dict[str, Any] = {"k_mu": K_LOGISTIC, "c_mu": C_LOGISTIC}
seeds = st.integers(0, 2**32 - 1)


def split_problem(**settings: Any) -> tuple[theory.Problem, dict[str, Any]]:
    """Return the settings that make a ``Problem``, and the others."""
    names = [field.name for field in dataclasses.fields(theory.Problem)]
    return theory.Problem(**{name: settings.pop(name) for name in names}), settings


def exact_count(gamma: float, t: float, power: int = 1) -> Decimal:
    with localcontext() as ctx:
        ctx.prec = 80
        g = Decimal(gamma) ** power
        return Decimal(t) if g == 1 else (1 - g ** Decimal(t)) / (1 - g)


# --------------------------------------------------------------------------------------- discounted_count


@pytest.mark.parametrize("gamma", [0.01, 0.3, 0.5, 0.9, 0.995908, 1.0])
@pytest.mark.parametrize("t", [0, 1, 2, 7, 500])
def test_discounted_count_is_the_geometric_sum(gamma: float, t: int) -> None:
    direct = math.fsum(gamma**i for i in range(t))
    assert theory.discounted_count(gamma, t) == pytest.approx(direct, rel=1e-13, abs=0.0)


@relaxed
@given(st.integers(1, 52), st.floats(1.0, 2.0), st.floats(1e-6, 1e9))
def test_discounted_count_keeps_its_digits_near_one(bits: int, scale: float, t: float) -> None:
    gamma = 1.0 - scale * 2.0**-bits
    assume(0.0 < gamma < 1.0)
    got = theory.discounted_count(gamma, t)
    assert got == pytest.approx(float(exact_count(gamma, t)), rel=5e-15, abs=0.0)


@pytest.mark.parametrize("t", [0.0, 0.5, 3.0, 1e4, 12345.678])
def test_discounted_count_is_continuous_at_one(t: float) -> None:
    assert theory.discounted_count(1.0, t) == t
    below = theory.discounted_count(np.nextafter(1.0, 0.0), t)
    assert below == pytest.approx(t, rel=1e-11)


# --------------------------------------------------------------------------------------------- confidence


def test_confidence_levels() -> None:
    assert theory.confidence_level(0.05, 7) == 0.05
    assert theory.confidence_level(0.05, 7, confidence="horizon", horizon=200) == 0.05 / 200
    assert theory.confidence_level(0.05, 1, confidence="anytime") == 0.025
    expected = 0.05 / (2 * 7 * (1 + math.log(7)) ** 2)
    assert theory.confidence_level(0.05, 7, confidence="anytime") == pytest.approx(expected, rel=1e-15)


def test_union_bounds_spend_no_more_than_delta() -> None:
    n = 1_000_000
    rounds = np.arange(1, n + 1)
    spent = float(np.sum(theory.confidence_level(1.0, rounds, confidence="anytime")))
    # The summand decreases, so what is left after n is below its integral, 1 / (2 (1 + log n)).
    assert spent + 0.5 / (1.0 + math.log(n)) <= 1.0
    per_round = np.asarray(theory.confidence_level(0.3, rounds, confidence="horizon", horizon=n))
    assert per_round.shape == (n,)
    assert per_round.sum() == pytest.approx(0.3)


# -------------------------------------------------------------------------------------------------- radii


def test_radius_at_the_settings_of_the_experiment() -> None:
    assert pytest.approx(0.196612, abs=5e-7) == C_LOGISTIC
    assert pytest.approx(1.271540, abs=5e-7) == K_LOGISTIC / C_LOGISTIC
    gamma, t, delta = 0.995908, 3000, 0.05
    count = math.fsum(gamma ** (2 * i) for i in range(t))
    expected = C_LOGISTIC + 0.5 * math.sqrt(2 * math.log(1 / delta) + 2 * math.log(1 + count / 2))
    assert theory.radius(t, gamma=gamma, delta=delta, c_mu=C_LOGISTIC, **PAPER) == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize("gamma", [0.5, 0.97, 1.0])
@pytest.mark.parametrize("t", [1, 2, 40])
def test_radius_is_the_printed_formula(gamma: float, t: int) -> None:
    dim, S, L, lam, sigma, delta, c_mu = 3, 1.7, 2.3, 0.4, 0.8, 0.03, 0.2
    count = math.fsum(gamma ** (2 * i) for i in range(t))
    noise = sigma * math.sqrt(2 * math.log(1 / delta) + dim * math.log(1 + L * L * count / (lam * dim)))
    common: dict[str, Any] = {
        "dim": dim,
        "gamma": gamma,
        "S": S,
        "L": L,
        "lam": lam,
        "sigma": sigma,
        "delta": delta,
    }
    bias = math.sqrt(lam) * S
    assert theory.radius(t, c_mu=c_mu, **common) == pytest.approx(c_mu * bias + noise, rel=1e-14)
    assert theory.linear_radius(t, **common) == pytest.approx(bias + noise, rel=1e-14)


def test_radius_keeps_its_digits_when_gamma_squared_would_round() -> None:
    # Squaring is worst when (1 - gamma)^2 is half an ulp of 1, that is near 1 - gamma = 2^-27.
    gamma, t, lam = 1.0 - 1.3 * 2.0**-27, 2e8, 1e11
    with localcontext() as ctx:
        ctx.prec = 80
        spread = (1 + exact_count(gamma, t, 2) / Decimal(lam)).ln()
        expected = float(spread.sqrt())
    # delta = 1 and lam large leave (almost) sqrt(count / lam), which shows every digit of the count.
    got = theory.radius(t, dim=1, gamma=gamma, S=1e-30, L=1.0, lam=lam, sigma=1.0, delta=1.0, c_mu=1e-30)
    assert got == pytest.approx(expected, rel=1e-14)


def test_radius_is_continuous_at_gamma_one() -> None:
    common: dict[str, Any] = dict(delta=0.05, c_mu=C_LOGISTIC, **PAPER)
    at_one = theory.radius(3000, gamma=1.0, **common)
    gaps = [abs(float(theory.radius(3000, gamma=1.0 - eps, **common)) - float(at_one)) for eps in (1e-5, 1e-7, 1e-9)]
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[2] < 1e-5


@pytest.mark.parametrize("confidence", ["pointwise", "horizon", "anytime"])
def test_lanes_broadcast_and_agree_with_scalars(confidence: str) -> None:
    gammas, deltas, rounds = np.array([0.5, 0.99, 1.0]), np.array([[0.01], [0.2]]), np.array([1, 10, 900])
    common: dict[str, Any] = dict(c_mu=0.3, confidence=confidence, horizon=900, **PAPER)
    got = theory.radius(rounds, gamma=gammas, delta=deltas, **common)
    assert isinstance(got, np.ndarray)
    assert got.shape == (2, 3)
    for i in range(2):
        for j in range(3):
            one = theory.radius(int(rounds[j]), gamma=float(gammas[j]), delta=float(deltas[i, 0]), **common)
            assert type(one) is float
            assert got[i, j] == pytest.approx(one, rel=1e-15)


def test_window_radius_is_the_undiscounted_radius_stopped_at_the_window() -> None:
    common: dict[str, Any] = dict(delta=0.05, c_mu=0.2, **PAPER)
    for t in (1, 49, 50, 51, 4000):
        expected = theory.radius(min(t, 50), gamma=1.0, **common)
        assert theory.window_radius(t, window=50, **common) == pytest.approx(expected, rel=1e-15)
    anytime = theory.window_radius(80, window=50, confidence="anytime", **common)
    level = theory.confidence_level(0.05, 80, confidence="anytime")
    explicit = theory.window_radius(80, window=50, **{**common, "delta": level})
    assert anytime == explicit


@pytest.mark.parametrize("confidence", ["horizon", "anytime"])
def test_linear_radius_passes_its_confidence_on(confidence: str) -> None:
    common: dict[str, Any] = dict(gamma=0.9, delta=0.05, confidence=confidence, horizon=70, **PAPER)
    linear = theory.linear_radius(8, **common)
    assert linear == theory.radius(8, c_mu=1.0, **common)
    assert linear > theory.linear_radius(8, gamma=0.9, delta=0.05, **PAPER)


def test_oful_radius() -> None:
    expected = math.sqrt(0.4) * 1.7 + 0.8 * math.sqrt(2 * math.log(1 / 0.03) + 5.5)
    assert theory.oful_radius(5.5, S=1.7, lam=0.4, sigma=0.8, delta=0.03) == pytest.approx(expected, rel=1e-15)
    # Round-off in a factorisation of lam I must not stop the first round.
    assert theory.oful_radius(-1e-15, S=1.0, lam=1.0, sigma=1.0, delta=1.0) == 1.0


# ------------------------------------------------------------------------------------------- fixed radius

# No lane at gamma = 1, some, all: Radius takes a path of its own in each.
DISCOUNTS = {
    "none": [0.3, 0.9, 0.995908, 1.0 - 1e-12, 1.0 - 2.0**-53],
    "some": [0.3, 1.0, 1.0 - 1e-12, 1.0, 0.995908],
    "all": [1.0, 1.0, 1.0, 1.0, 1.0],
}


@pytest.mark.parametrize("lanes", DISCOUNTS)
@pytest.mark.parametrize("confidence", theory.CONFIDENCES)
@pytest.mark.parametrize("t", [1.0, 2.0, 37.5, 3000.0, 1e7])
def test_fixed_radius_agrees_with_exact_arithmetic(lanes: str, confidence: str, t: float) -> None:
    gammas, deltas, T = DISCOUNTS[lanes], [0.05, 1.0, 1e-9, 0.3, 0.05], 1000
    dim, S, L, lam, sigma, c_mu = 3, 1.7, 2.3, 0.4, 0.8, 0.2
    fixed = theory.Radius(
        dim=dim,
        gamma=np.array(gammas),
        S=S,
        L=L,
        lam=lam,
        sigma=sigma,
        delta=np.array(deltas),
        c_mu=c_mu,
        confidence=confidence,
        horizon=T,
    )
    got = fixed(t)
    assert got.shape == (5,)
    assert got.dtype == np.float64
    with localcontext() as ctx:
        ctx.prec = 80
        rounds = Decimal(t)
        shrink = {
            "pointwise": Decimal(1),
            "horizon": Decimal(T),
            "anytime": 2 * rounds * (1 + rounds.ln()) ** 2,
        }
        ratio = Decimal(L) ** 2 / (Decimal(lam) * dim)
        for lane, (gamma, delta) in enumerate(zip(gammas, deltas, strict=True)):
            spread = dim * (1 + ratio * exact_count(gamma, t, 2)).ln()
            spread += 2 * (shrink[confidence] / Decimal(delta)).ln()
            exact = Decimal(lam).sqrt() * Decimal(c_mu) * Decimal(S) + Decimal(sigma) * spread.sqrt()
            assert float(got[lane]) == pytest.approx(float(exact), rel=2e-15, abs=0.0)


@pytest.mark.parametrize("gamma", [0.9, 0.995908, 1.0])
def test_fixed_radius_agrees_with_the_direct_sum(gamma: float) -> None:
    delta = 0.05
    fixed = theory.Radius(gamma=gamma, delta=delta, c_mu=C_LOGISTIC, **PAPER)
    with localcontext() as ctx:
        ctx.prec = 60
        square, term, count = Decimal(gamma) ** 2, Decimal(1), Decimal(0)
        for t in range(1, 401):
            count += term
            term *= square
            spread = 2 * (1 + count / 2).ln() - 2 * Decimal(delta).ln()
            exact = Decimal(C_LOGISTIC) + spread.sqrt() / 2
            assert float(fixed(float(t))) == pytest.approx(float(exact), rel=2e-15, abs=0.0)


@pytest.mark.parametrize("lanes", DISCOUNTS)
@pytest.mark.parametrize("confidence", theory.CONFIDENCES)
def test_fixed_radius_is_radius_and_broadcasts(lanes: str, confidence: str) -> None:
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
    # A call leaves no trace, and the caller's arrays may change without changing the radius.
    before = fixed(7.0)
    gammas[:] = 0.123
    assert np.array_equal(fixed(7.0), before)


@pytest.mark.parametrize("confidence", theory.CONFIDENCES)
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
    for lane in range(50):
        one = theory.Radius(gamma=gammas[lane : lane + 1], delta=deltas[lane : lane + 1], **common)
        bare = theory.Radius(gamma=float(gammas[lane]), delta=float(deltas[lane]), **common)
        assert [one(t)[0] for t in rounds] == together[:, lane].tolist()
        assert [float(bare(t)) for t in rounds] == together[:, lane].tolist()
    for size in (2, 3, 7, 8, 9, 31):  # widths on both sides of those of vector registers
        some = theory.Radius(gamma=gammas[:size], delta=deltas[:size], **common)
        assert np.array_equal(np.stack([some(t) for t in rounds]), together[:, :size])
    every_other = theory.Radius(gamma=gammas[::-2], delta=deltas[::-2], **common)
    assert np.array_equal(np.stack([every_other(t) for t in rounds]), together[:, ::-2])


# --------------------------------------------------------------------------------------- tuned parameters


def test_discount_of_the_experiment() -> None:
    T = 3000
    drift = 2 * T / 3 * math.sin(3 * math.pi / (4 * T))
    assert drift == pytest.approx(1.5708, abs=5e-5)
    assert theory.discount(horizon=T, drift=drift, dim=2) == pytest.approx(0.995908, abs=5e-7)


def test_discount_formulas_and_clips() -> None:
    # 1 - (1/1000)^(2/3) and 1 - (1/1024)^(2/5).
    assert theory.discount(horizon=500, drift=1.0, dim=2) == pytest.approx(0.99, rel=1e-14)
    assert theory.discount(horizon=512, drift=1.0, dim=4, kind="general") == pytest.approx(0.9375, rel=1e-14)
    for kind in ("orthogonal", "general"):
        assert theory.discount(horizon=100, drift=0.0, dim=3, kind=kind) == 1.0
        assert theory.discount(horizon=100, drift=1e9, dim=3, kind=kind) == 0.5


@relaxed
@given(st.integers(1, 10**4), st.integers(1, 100), st.integers(1, 10**4))
def test_window_length_is_the_exact_floor(horizon: int, dim: int, drift: int) -> None:
    # floor((dT/B)^(2/3)) is the largest n with n^3 B^2 <= (dT)^2: integers decide it without round-off.
    n = theory.window_length(horizon=horizon, drift=drift, dim=dim)
    assert 1 <= n <= horizon
    assert n == 1 or n**3 * drift**2 <= (dim * horizon) ** 2
    assert n == horizon or (n + 1) ** 3 * drift**2 > (dim * horizon) ** 2


@relaxed
@given(st.integers(1, 10**4), st.integers(1, 100), st.integers(1, 10**4))
def test_general_window_length_is_the_exact_floor(horizon: int, dim: int, drift: int) -> None:
    # n <= (sqrt(d) T / B)^(2/5) iff n^5 B^2 <= d T^2.
    n = theory.window_length(horizon=horizon, drift=drift, dim=dim, kind="general")
    assert 1 <= n <= horizon
    assert n == 1 or n**5 * drift**2 <= dim * horizon**2
    assert n == horizon or (n + 1) ** 5 * drift**2 > dim * horizon**2


def test_window_length_corner_cases() -> None:
    for root in range(2, 300):
        assert theory.window_length(horizon=root**3, drift=None, dim=1) == root**2
    assert theory.window_length(horizon=1000, drift=None, dim=1) == 100
    assert theory.window_length(horizon=1000, drift=0.0, dim=2) == 1000
    assert theory.window_length(horizon=1000, drift=1e-320, dim=2) == 1000
    assert theory.window_length(horizon=1000, drift=1e9, dim=2) == 1


# ------------------------------------------------------------------------------------------------- lemmas


def random_arms(rng: np.random.Generator, rounds: int, dim: int, L: float) -> np.ndarray:
    """Arms of norm at most L, with the awkward cases in: repeats, zeros, the boundary, one-axis runs."""
    x = rng.standard_normal((rounds, dim))
    x *= L / np.linalg.norm(x, axis=1, keepdims=True)
    style = rng.integers(4)
    if style == 1:
        x *= rng.random((rounds, 1))
    elif style == 2:
        x[:] = x[0]
    elif style == 3:
        x[rng.random(rounds) < 0.5] = 0.0
    return x


def design(x: np.ndarray, gamma: float, lam: float) -> np.ndarray:
    weights = gamma ** np.arange(len(x) - 1, -1, -1.0)
    return np.asarray((x * weights[:, None]).T @ x + lam * np.eye(x.shape[1]))


@relaxed
@given(
    seeds,
    st.integers(1, 6),
    st.integers(1, 60),
    st.floats(0.3, 1.0),
    st.floats(0.2, 4.0),
    st.floats(0.05, 5.0),
)
def test_elliptical_potential_and_determinant_trace(
    seed: int, dim: int, rounds: int, gamma: float, L: float, lam: float
) -> None:
    x = random_arms(np.random.default_rng(seed), rounds, dim, L)
    potential = math.fsum(float(x[t] @ np.linalg.solve(design(x[:t], gamma, lam), x[t])) for t in range(rounds))
    log_det = float(np.linalg.slogdet(design(x, gamma, lam))[1])
    bound = theory.elliptical_potential_bound(
        log_det - dim * math.log(lam), gamma=gamma, rounds=rounds, dim=dim, L=L, lam=lam
    )
    assert potential <= float(bound) * (1 + 1e-9) + 1e-9
    trace_bound = float(theory.determinant_trace_bound(rounds, gamma=gamma, dim=dim, L=L, lam=lam))
    assert log_det <= trace_bound + 1e-9
    chained = theory.elliptical_potential_bound(
        trace_bound - dim * math.log(lam), gamma=gamma, rounds=rounds, dim=dim, L=L, lam=lam
    )
    assert float(bound) <= float(chained) * (1 + 1e-9) + 1e-9


def test_determinant_trace_is_attained_in_one_dimension() -> None:
    x = np.full((30, 1), 1.5)
    exact = math.log(float(design(x, 0.9, 0.7)[0, 0]))
    assert theory.determinant_trace_bound(30, gamma=0.9, dim=1, L=1.5, lam=0.7) == pytest.approx(exact, rel=1e-13)
    # exp would overflow here: the bound must stay in logs.
    assert theory.determinant_trace_bound(10, gamma=1.0, dim=5000, L=1.0, lam=1e9) > 1e5


def test_elliptical_potential_formula() -> None:
    got = theory.elliptical_potential_bound(3.0, gamma=0.5, rounds=4, dim=2, L=3.0, lam=2.0)
    assert got == pytest.approx(2 * 4.5 * (8 * math.log(2) + 3.0), rel=1e-15)
    assert theory.elliptical_potential_bound(3.0, gamma=1.0, rounds=4, dim=2, L=1.0, lam=2.0) == 6.0


def logistic(z: np.ndarray) -> np.ndarray:
    return np.asarray(1.0 / (1.0 + np.exp(-z)))


def tracking_norm(
    x: np.ndarray, thetas: np.ndarray, gamma: float, lam: float, mu: Callable[[np.ndarray], np.ndarray]
) -> float:
    """||g_t(theta_bar) - g_t(theta*_t)|| in V_t^-2, from the definition; thetas has one row more than x."""
    weights = gamma ** np.arange(len(x) - 1, -1, -1.0)
    gap = mu(np.sum(x * thetas[:-1], axis=1)) - mu(x @ thetas[-1])
    return float(np.linalg.norm(np.linalg.solve(design(x, gamma, lam), (weights * gap) @ x)))


@relaxed
@given(
    seeds,
    st.integers(1, 4),
    st.integers(1, 50),
    st.integers(1, 50),
    st.floats(0.5, 0.999),
    st.floats(0.3, 5.0),
    st.floats(0.05, 30.0),
    st.booleans(),
)
def test_tracking_lemmas(
    seed: int, dim: int, rounds: int, depth: int, gamma: float, L: float, lam: float, orthogonal: bool
) -> None:
    rng = np.random.default_rng(seed)
    S = 1.3
    if orthogonal:
        basis = np.linalg.qr(rng.standard_normal((dim, dim)))[0]
        x = basis[rng.integers(dim, size=rounds)] * (L * rng.random((rounds, 1)))
    else:
        x = random_arms(rng, rounds, dim, L)
    jumps = rng.standard_normal((rounds + 1, dim)) * (rng.random((rounds + 1, 1)) < 0.2)
    thetas = np.cumsum(jumps, axis=0)
    thetas *= np.minimum(1.0, S / np.maximum(np.linalg.norm(thetas, axis=1, keepdims=True), 1e-12))
    recent = float(np.linalg.norm(np.diff(thetas, axis=0), axis=1)[-depth:].sum())
    value = tracking_norm(x, thetas, gamma, lam, logistic)
    bound = theory.tracking_bound(
        gamma,
        depth,
        recent,
        k_mu=0.25,
        S=S,
        L=L,
        lam=lam,
        dim=dim,
        kind="orthogonal" if orthogonal else "general",
    )
    assert value <= float(bound) * (1 + 1e-9) + 1e-12


def test_general_tracking_lemma_needs_the_factor_missing_in_print() -> None:
    # One dimension, identity link, one jump just before round t: the norm is count / (count + lam / L^2).
    gamma, L, depth = 0.5, 4.0, 60
    lam = 2 * L**2
    x = np.full((200, 1), L)
    thetas = np.zeros((201, 1))
    thetas[-1] = 1.0
    value = tracking_norm(x, thetas, gamma, lam, lambda z: z)
    assert value == pytest.approx(0.5, rel=1e-12)
    common: dict[str, Any] = {"k_mu": 1.0, "S": 1.0, "L": L, "lam": lam, "dim": 1}
    restored = float(theory.tracking_bound(gamma, depth, 1.0, kind="general", **common))
    old = float(theory.tracking_bound(gamma, depth, 0.0, kind="general", **common))
    as_printed = old + (restored - old) / L
    assert as_printed < value <= restored
    assert value <= float(theory.tracking_bound(gamma, depth, 1.0, **common))


def test_tracking_bound_formula_lanes_and_limit() -> None:
    common: dict[str, Any] = {"k_mu": 0.25, "S": 1.5, "L": 2.0, "lam": 0.5, "dim": 3}
    old = 2 * 0.25 * 4 * 1.5 / 0.5 * 0.9**7 / 0.1
    assert theory.tracking_bound(0.9, 7, 0.2, **common) == pytest.approx(old + 0.25 * 0.2, rel=1e-13)
    factor = 0.25 * 2 * math.sqrt(3 / 0.05)
    general = theory.tracking_bound(0.9, 7, 0.2, kind="general", **common)
    assert general == pytest.approx(old + factor * 0.2, rel=1e-13)
    lanes = np.asarray(theory.tracking_bound(np.array([0.9, 1.0]), 7, 0.2, **common))
    assert lanes[0] == theory.tracking_bound(0.9, 7, 0.2, **common)
    assert lanes[1] == math.inf == theory.tracking_bound(1.0, 7, 0.0, kind="general", **common)


# ---------------------------------------------------------------------------------------------- theorem 1


@pytest.mark.parametrize("kind", ["orthogonal", "general"])
@pytest.mark.parametrize("confidence", ["pointwise", "horizon", "anytime"])
def test_theorem_1_term_by_term(kind: str, confidence: str) -> None:
    T, B, d, g, k, c, S, L, lam, sigma, delta = 400, 2.5, 3, 0.97, 0.25, 0.1, 1.5, 1.8, 0.6, 0.5, 0.04
    R = k / c
    shrink = {"pointwise": 1.0, "horizon": T, "anytime": 2 * T * (1 + math.log(T)) ** 2}[confidence]
    squares = math.fsum(g ** (2 * i) for i in range(T))
    plain = math.fsum(g**i for i in range(T))
    beta = math.sqrt(lam) * c * S + sigma * math.sqrt(
        2 * math.log(shrink / delta) + d * math.log(1 + L**2 * squares / (lam * d))
    )
    C1 = math.sqrt(32 * max(1, L**2 / lam))
    D = math.ceil(math.log(T) / (1 - g))
    learning = (
        C1 * R * beta * math.sqrt(d * T) * math.sqrt(T * math.log(1 / g) + math.log(1 + L**2 * plain / (lam * d)))
    )
    if kind == "orthogonal":
        truncation = 8 * k * L**3 * S / lam * R * g**D / (1 - g) * T
        tracking = 4 * k * L * R * D * B
    else:
        C4, C5 = 8 * k * L**3 * S / lam, 8 * L**4 * S / lam**1.5
        C6, C7 = 4 * L**2 / math.sqrt(lam), 4 * L**3 / lam
        truncation = C4 * R * T * g**D / (1 - g) + C5 * k * R * T * g**D / (1 - g) ** 1.5
        tracking = C6 * k * R * math.sqrt(d / (1 - g)) * D * B + C7 * k * R * math.sqrt(d) / (1 - g) * D * B
    problem = theory.Problem(horizon=T, drift=B, dim=d, k_mu=k, c_mu=c, S=S, L=L, lam=lam, sigma=sigma)
    got = theory.regret_bound(problem, gamma=g, kind=kind, delta=delta, confidence=confidence)
    assert got.depth == D
    assert got.gamma == g
    assert got.learning == pytest.approx(learning, rel=1e-12)
    assert got.truncation == pytest.approx(truncation, rel=1e-12)
    assert got.tracking == pytest.approx(tracking, rel=1e-12)
    assert got.total == pytest.approx(learning + truncation + tracking, rel=1e-12)


def theorem_1(horizon: int, drift: float, **more: Any) -> theory.RegretBound:
    problem, options = split_problem(horizon=horizon, drift=drift, **{**PAPER, **LINK, "delta": 0.05, **more})
    return theory.regret_bound(problem, **options)


def test_theorem_1_defaults_and_the_experiment() -> None:
    bound = theorem_1(3000, 1.5708)
    assert bound.gamma == theory.discount(horizon=3000, drift=1.5708, dim=2)
    assert bound == theorem_1(3000, 1.5708, gamma=bound.gamma, confidence="horizon", kind="orthogonal")
    assert bound.total > theory.trivial_bound(3000, 0.5) == 3000.0
    assert theorem_1(1, 0.5, gamma=0.9).depth == 1


@pytest.mark.parametrize("kind", ["orthogonal", "general"])
def test_theorem_1_at_gamma_one(kind: str) -> None:
    still = theorem_1(1000, 0.0, kind=kind)
    assert (still.gamma, still.truncation, still.tracking) == (1.0, 0.0, 0.0)
    assert math.isfinite(still.total)
    assert still.total == still.learning
    near = theorem_1(1000, 0.0, kind=kind, gamma=1.0 - 1e-12)
    assert near.learning == pytest.approx(still.learning, rel=1e-8)
    moving = theorem_1(1000, 0.1, kind=kind, gamma=1.0)
    assert moving.total == math.inf
    assert moving.learning == still.learning


@pytest.mark.parametrize(
    ("kind", "rate", "small", "large"), [("orthogonal", 2 / 3, 12, 18), ("general", 4 / 5, 18, 30)]
)
def test_theorem_1_grows_at_the_announced_rate(kind: str, rate: float, small: int, large: int) -> None:
    # The bound is T^rate times one log (up to lower order); its exponent is read between two huge horizons.
    low, high = (theorem_1(10**e, 1.0, kind=kind).total / math.log(10.0**e) for e in (small, large))
    slope = math.log(high / low) / math.log(10.0 ** (large - small))
    assert slope == pytest.approx(rate, abs=0.015)


@pytest.mark.parametrize(("kind", "rate"), [("orthogonal", 1 / 3), ("general", 1 / 5)])
def test_theorem_1_grows_with_the_drift_at_the_announced_rate(kind: str, rate: float) -> None:
    low, high = (theorem_1(10**15, B, kind=kind).total for B in (1.0, 1e3))
    assert math.log(high / low) / math.log(1e3) == pytest.approx(rate, abs=0.03)


# ------------------------------------------------------------------------------------- unknown drift (BOB)


@relaxed
@given(st.integers(1, 10**12), st.integers(1, 10**4))
def test_block_length_is_the_exact_floor(horizon: int, dim: int) -> None:
    length = theory.block_length(horizon, dim)
    assert 1 <= length <= horizon
    assert length**2 <= dim**2 * horizon
    assert length == horizon or (length + 1) ** 2 > dim**2 * horizon


def test_discount_grid_of_the_experiment() -> None:
    T, d, S = 3000, 2, 1.0
    grid = theory.discount_grid(T, d, S)
    N = math.ceil(2 / 3 * math.log2(2 * S * T**1.5)) + 1
    raw = [1 - 0.5 * 2 ** (j - 1) / (d ** (2 / 3) * T * (2 * S) ** (2 / 3)) for j in range(1, N + 1)]
    assert grid.shape == (N,) == (14,)
    assert grid == pytest.approx(np.maximum(raw, 0.5), rel=1e-14)
    assert raw[-1] < 0.5 == grid[-1]


@settings(deadline=None, max_examples=300)
@given(st.integers(1, 10**6), st.integers(1, 50), st.floats(0.01, 100.0), st.floats(0.0, 1.0))
def test_grid_covers_the_discount_of_every_drift(horizon: int, dim: int, S: float, position: float) -> None:
    low, high = horizon**-0.5, 2 * S * horizon
    assume(low <= high)
    drift = low * (high / low) ** position
    forget = 0.5 * (drift / (dim * horizon * 2 * S)) ** (2 / 3)
    grid = theory.discount_grid(horizon, dim, S)
    assert np.all((grid >= 0.5) & (grid < 1.0))
    assert np.all(np.diff(grid) < 0)
    # Lemma "gamma_k": some gamma_k has gamma_{k+1} <= gamma* <= gamma_k, that is mu_k <= mu* <= 2 mu_k.
    steps = 1.0 - grid
    slack = 1e-6  # 1 - grid has lost digits when the grid is within 1e-9 of 1
    assert np.any((steps <= forget * (1 + slack)) & (forget <= 2 * steps * (1 + slack)))
    assert grid[-1] <= 1.0 - forget * (1 - slack)
    assert 1.0 - forget * (1 + slack) <= grid[0]


def test_grid_is_never_empty() -> None:
    grid = theory.discount_grid(10, 1, 1e-6)
    assert grid.tolist() == [0.5]
    assert theory.discount_grid(10**17, 10, 1.0)[0] < 1.0


def test_exp3_rate() -> None:
    assert theory.exp3_rate(14, 28) == pytest.approx(math.sqrt(14 * math.log(14) / ((math.e - 1) * 28)), rel=1e-15)
    assert theory.exp3_rate(14, 1) == 1.0
    assert theory.exp3_rate(1, 5) == 0.0


def theorem_2(horizon: int, drift: float, **more: Any) -> theory.UnknownDriftBound:
    problem, options = split_problem(horizon=horizon, drift=drift, **{**PAPER, **LINK, **more})
    return theory.regret_bound_unknown_drift(problem, **options)


@pytest.mark.parametrize("drift", [0.0, 0.3, 40.0])
def test_theorem_2_term_by_term(drift: float) -> None:
    T, d, k, c, S, L, lam, sigma = 5000, 3, 0.25, 0.1, 1.5, 1.8, 0.6, 0.5
    R, B = k / c, max(drift, T**-0.5)
    g = 1 - 0.5 * (B / (d * T * 2 * S)) ** (2 / 3)
    H = math.floor(d * math.sqrt(T))
    n = math.ceil(T / H)
    N = math.ceil(2 / 3 * math.log2(2 * S * T**1.5)) + 1
    beta = math.sqrt(lam) * c * S + sigma * math.sqrt(
        2 * math.log(T) + d * math.log(1 + 2 * L**2 / (lam * d * (1 - g**2)))
    )
    C1, C2, C3 = math.sqrt(32 * max(1, L**2 / lam)), 8 * k * L**3 * S / lam, 4 * k * L
    growth = 2 * T * (1 - g) + n * math.log(1 + 2 * L**2 / (d * lam * (1 - g)))
    parts = {
        "restarts": 2 * sigma * n,
        "learning": C1 * R * beta * math.sqrt(d * T) * math.sqrt(growth),
        "truncation": C2 * R * 2 / math.sqrt(T) / (1 - g),
        "tracking": 3 * C3 * R / math.log(2) * B * math.log(T) / (1 - g),
        "master": 4 * sigma * H * math.sqrt(math.e - 1) * math.sqrt(n * N * math.log(N)),
    }
    got = theorem_2(T, drift, dim=d, k_mu=k, c_mu=c, S=S, L=L, lam=lam, sigma=sigma)
    assert got.gamma == pytest.approx(g, rel=1e-15)
    for name, value in parts.items():
        assert getattr(got, name) == pytest.approx(value, rel=1e-9), name
    assert got.total == pytest.approx(sum(parts.values()), rel=1e-9)
    safe = theorem_2(T, drift, dim=d, k_mu=k, c_mu=c, S=S, L=L, lam=lam, sigma=sigma, confidence="horizon")
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


# ----------------------------------------------------------------------------------------------- coverage


def noise_norms(
    rng: np.random.Generator, *, dim: int, gamma: float, lam: float, sigma: float, rounds: int, lanes: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """For t = 1..rounds, ||S_t|| in Vtilde_t^-1 and log det(Vtilde_t / lam), one entry a lane.

    S_t = sum_{s<t} gamma^(t-1-s) eps_s x_s with Gaussian noise and arms in the unit ball that depend on the
    past (the lemma allows it): along S_t while the norm is small, else shorter or across it.
    """
    total = np.zeros((lanes, dim))
    spread = np.zeros((lanes, dim, dim))
    for _ in range(rounds):
        tilde = spread + lam * np.eye(dim)
        if dim == 1:
            det = tilde[:, 0, 0]
            norm = np.abs(total[:, 0]) / np.sqrt(det)
            arm = np.where(norm > 1.0, 0.5, 1.0)[:, None]
        else:
            a, b, c = tilde[:, 0, 0], tilde[:, 0, 1], tilde[:, 1, 1]
            det = a * c - b * b
            u, v = total[:, 0], total[:, 1]
            norm = np.sqrt((c * u * u - 2 * b * u * v + a * v * v) / det)
            angle = np.arctan2(v, u) + np.where(norm > 1.5, 0.5 * np.pi, 0.0)
            arm = np.stack([np.cos(angle), np.sin(angle)], axis=1)
        yield norm, np.log(det) - dim * math.log(lam)
        noise = sigma * rng.standard_normal((lanes, 1))
        total = gamma * total + noise * arm
        spread = gamma**2 * spread + arm[:, :, None] * arm[:, None, :]


def noise_radius(rounds: int, **settings_: Any) -> np.ndarray:
    """beta_t without its bias, for t = 1..rounds."""
    bias = math.sqrt(settings_["lam"])
    return np.asarray(theory.radius(np.arange(1, rounds + 1), S=1.0, L=1.0, c_mu=1.0, **settings_)) - bias


@pytest.mark.parametrize("dim", [1, 2])
@pytest.mark.parametrize(("gamma", "lam", "delta"), [(0.5, 1.0, 0.2), (0.9, 0.1, 0.05), (1.0, 1.0, 0.1)])
def test_coverage_holds_at_a_fixed_round(dim: int, gamma: float, lam: float, delta: float) -> None:
    rounds, lanes, sigma = 60, 10_000, 0.7
    rng = np.random.default_rng(2021)
    limits = noise_radius(rounds, dim=dim, gamma=gamma, lam=lam, sigma=sigma, delta=delta)
    allowed = delta + 4 * math.sqrt(delta * (1 - delta) / lanes)
    run = noise_norms(rng, dim=dim, gamma=gamma, lam=lam, sigma=sigma, rounds=rounds, lanes=lanes)
    for t, (norm, _) in enumerate(run, start=1):
        if t in (2, 10, rounds):
            assert np.mean(norm > limits[t - 1]) <= allowed


@pytest.mark.parametrize("dim", [1, 2])
def test_pointwise_radius_fails_uniformly_and_the_union_bounds_do_not(dim: int) -> None:
    rounds, lanes, delta = 2000, 2000, 0.2
    common: dict[str, Any] = {"dim": dim, "gamma": 0.5, "lam": 1.0, "sigma": 1.0}
    limits = {
        c: noise_radius(rounds, delta=delta, confidence=c, horizon=rounds, **common)
        for c in ("pointwise", "horizon", "anytime")
    }
    escaped = {c: np.zeros(lanes, dtype=bool) for c in limits}
    for t, (norm, _) in enumerate(noise_norms(np.random.default_rng(7), rounds=rounds, lanes=lanes, **common)):
        for c, limit in limits.items():
            escaped[c] |= norm > limit[t]
    assert escaped["pointwise"].mean() > 0.9
    assert escaped["horizon"].mean() <= delta
    assert escaped["anytime"].mean() <= delta


def test_oful_radius_covers_all_rounds_at_once() -> None:
    delta, lanes, lam, sigma = 0.2, 2000, 0.5, 0.7
    escaped = np.zeros(lanes, dtype=bool)
    run = noise_norms(np.random.default_rng(11), dim=2, gamma=1.0, lam=lam, sigma=sigma, rounds=600, lanes=lanes)
    for norm, log_det_ratio in run:
        limit = np.asarray(theory.oful_radius(log_det_ratio, S=1.0, lam=lam, sigma=sigma, delta=delta))
        escaped |= norm > limit - math.sqrt(lam)
    assert escaped.mean() <= delta + 4 * math.sqrt(delta * (1 - delta) / lanes)


def test_every_public_name_is_there() -> None:
    assert theory.CONFIDENCES == ("pointwise", "horizon", "anytime")
    assert theory.KINDS == ("orthogonal", "general")
    assert all(hasattr(theory, name) for name in theory.__all__)
