"""Radii of the self-concordant policies against the printed formulas."""

from __future__ import annotations

import numpy as np
import pytest

import naive
from windvane import SCDGLUCB, theory


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
    assert SCDGLUCB(2, horizon=900, switches=0).gamma[0] == 1.0
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
