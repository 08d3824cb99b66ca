"""Radii with their settings fixed: exact digits, lanes, broadcasting, printed formulas."""

from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import pytest

import naive
from support.numerics import C_LOGISTIC, PAPER, exact_count
from windvane import SCDGLUCB, theory

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
        shrink = {"pointwise": Decimal(1), "horizon": Decimal(T), "anytime": 2 * rounds * (1 + rounds.ln()) ** 2}
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


@pytest.mark.parametrize("gamma", [0.9, 0.99, 0.9998])
@pytest.mark.parametrize("d", [1, 4])
def test_the_radius_of_sc_d_glucb(gamma: float, d: int) -> None:
    T, settings = 3000, {"dim": d, "S": 1.3, "lam": 7.0, "sigma": 0.4, "delta": 0.1, "k_mu": 0.25}
    beta = theory.SelfConcordantRadius(**settings, L=1.0, horizon=T, gamma=gamma)
    inside, outside = naive.self_concordant_radii(d, 1.3, 7.0, 0.8, 0.1, 0.25, T, gamma)
    assert float(beta.inside(5.0)) == pytest.approx(inside, rel=1e-10)
    assert float(beta.outside(5.0)) == pytest.approx(outside, rel=1e-10)
    assert inside < outside


def test_the_radius_of_sc_sw_glucb() -> None:
    settings = {"dim": 2, "S": 1.3, "lam": 7.0, "sigma": 0.4, "delta": 0.1, "k_mu": 0.25}
    beta = theory.SelfConcordantRadius(**settings, L=1.0, horizon=900, window=np.array([30.0, 60.0]))
    for t in (1.0, 45.0, 200.0):
        for lane, tau in enumerate((30.0, 60.0)):
            wanted = naive.self_concordant_radii(2, 1.3, 7.0, 0.8, 0.1, 0.25, 900, n=min(t, tau))
            assert beta.inside(t)[lane] == pytest.approx(wanted[0], rel=1e-12)
            assert beta.outside(t)[lane] == pytest.approx(wanted[1], rel=1e-12)


def test_the_self_concordant_radius_without_forgetting() -> None:
    """At gamma = 1 nothing is older than the run: S_bar = S, and T observations at most."""
    settings = {"dim": 2, "S": 1.0, "L": 1.0, "lam": 7.0, "sigma": 0.5, "delta": 0.1, "k_mu": 0.25, "horizon": 900}
    whole = theory.SelfConcordantRadius(**settings, gamma=1.0)
    inside, outside = naive.self_concordant_radii(2, 1.0, 7.0, 1.0, 0.1, 0.25, 900, n=900.0)
    assert float(whole.inside(1.0)) == pytest.approx(inside, rel=1e-12)
    assert float(whole.outside(1.0)) == pytest.approx(outside, rel=1e-12)
    assert SCDGLUCB(2, horizon=900, switches=0).estimator.gamma.tolist() == [1.0]
    close = theory.SelfConcordantRadius(**settings, gamma=0.99999)  # (1 - T^-2) / (1 - gamma^2) is beyond T
    assert float(close.rho(1.0)) == float(whole.rho(1.0))


@pytest.mark.parametrize("confidence", theory.CONFIDENCES)
def test_the_radius_of_scb_weight_ucb(confidence: str) -> None:
    gamma, t, T = np.array([0.95, 1.0]), 17.0, 400
    beta = theory.WeightedSelfConcordantRadius(
        dim=3, gamma=gamma, S=1.2, L=0.8, lam=5.0, sigma=0.5, delta=0.05, k_mu=0.25, c_mu=0.2,
        confidence=confidence, horizon=T,
    )  # fmt: skip
    slow = naive.NaiveSCBWeightUCB(3, S=1.2, lam=5.0, L=0.8)
    slow.k_mu, slow.c_mu, slow.t = 0.25, 0.2, t
    for lane, slow.gamma in enumerate(gamma):
        wanted = slow.radius(naive.delta_at(t, 0.05, confidence, T))
        assert beta(t)[lane] == pytest.approx(wanted, rel=1e-12)
