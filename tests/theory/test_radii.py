"""Radii against direct sums and exact arithmetic, and how often they cover the noise."""

import math
from collections.abc import Iterator
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from support.numerics import C_LOGISTIC, PAPER, exact_count, many_examples
from windvane import theory

# Hypothesis's deadline reads the clock; no test here may.


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
    got = theory.discounted_count(gamma, t)
    assert got == pytest.approx(float(exact_count(gamma, t)), rel=5e-15, abs=0.0)


@pytest.mark.parametrize("t", [0.0, 0.5, 3.0, 1e4, 12345.678])
def test_discounted_count_is_continuous_at_one(t: float) -> None:
    assert theory.discounted_count(1.0, t) == t
    below = theory.discounted_count(np.nextafter(1.0, 0.0), t)
    assert below == pytest.approx(t, rel=1e-11)


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


@pytest.mark.parametrize("gamma", [0.5, 0.97, 1.0])
@pytest.mark.parametrize("t", [1, 2, 40])
def test_radius_is_the_printed_formula(gamma: float, t: int) -> None:
    dim, S, L, lam, sigma, delta, c_mu = 3, 1.7, 2.3, 0.4, 0.8, 0.03, 0.2
    count = math.fsum(gamma ** (2 * i) for i in range(t))
    noise = sigma * math.sqrt(2 * math.log(1 / delta) + dim * math.log(1 + L * L * count / (lam * dim)))
    common: dict[str, Any] = {"dim": dim, "gamma": gamma, "S": S, "L": L, "lam": lam, "sigma": sigma, "delta": delta}
    bias = math.sqrt(lam) * S
    assert theory.radius(t, c_mu=c_mu, **common) == pytest.approx(c_mu * bias + noise, rel=1e-14)
    assert theory.radius(t, c_mu=1.0, **common) == pytest.approx(bias + noise, rel=1e-14)


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
        assert theory.Radius(gamma=1.0, window=50, **common)(t) == pytest.approx(expected, rel=1e-15)
    anytime = theory.Radius(gamma=1.0, window=50, confidence="anytime", **common)(80)
    level = theory.confidence_level(0.05, 80, confidence="anytime")
    explicit = theory.Radius(gamma=1.0, window=50, **{**common, "delta": level})(80)
    assert anytime == explicit


@pytest.mark.parametrize("confidence", ["horizon", "anytime"])
def test_a_radius_for_all_rounds_is_larger(confidence: str) -> None:
    common: dict[str, Any] = dict(gamma=0.9, delta=0.05, c_mu=1.0, **PAPER)
    assert theory.radius(8, confidence=confidence, horizon=70, **common) > theory.radius(8, **common)


def test_oful_radius() -> None:
    expected = math.sqrt(0.4) * 1.7 + 0.8 * math.sqrt(2 * math.log(1 / 0.03) + 5.5)
    assert theory.OFULRadius(S=1.7, lam=0.4, sigma=0.8, delta=0.03)(5.5) == pytest.approx(expected, rel=1e-15)
    # Round-off in a factorisation of lam I must not stop the first round.
    assert theory.OFULRadius(S=1.0, lam=1.0, sigma=1.0, delta=1.0)(-1e-15) == 1.0


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
        limit = np.asarray(theory.OFULRadius(S=1.0, lam=lam, sigma=sigma, delta=delta)(log_det_ratio))
        escaped |= norm > limit - math.sqrt(lam)
    assert escaped.mean() <= delta + 4 * math.sqrt(delta * (1 - delta) / lanes)
