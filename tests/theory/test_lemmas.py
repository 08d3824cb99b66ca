"""Lemmas on random sequences: elliptical potential, determinant and trace, tracking."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit

from support.estimators import seeds
from support.numerics import many_examples
from windvane import theory


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


@many_examples
@given(seeds, st.integers(1, 6), st.integers(1, 60), st.floats(0.3, 1.0), st.floats(0.2, 4.0), st.floats(0.05, 5.0))
def test_elliptical_potential_and_determinant_trace(seed, dim, rounds, gamma, L, lam) -> None:
    x, size = random_arms(np.random.default_rng(seed), rounds, dim, L), {"dim": dim, "L": L, "lam": lam}
    potential = math.fsum(float(x[t] @ np.linalg.solve(design(x[:t], gamma, lam), x[t])) for t in range(rounds))
    log_det = float(np.linalg.slogdet(design(x, gamma, lam))[1])
    trace_bound = float(theory.determinant_trace_bound(rounds, gamma=gamma, **size))
    assert log_det <= trace_bound + 1e-9
    bound, chained = (
        float(theory.elliptical_potential_bound(each - dim * math.log(lam), gamma=gamma, rounds=rounds, **size))
        for each in (log_det, trace_bound)
    )
    assert potential <= bound * (1 + 1e-9) + 1e-9
    assert bound <= chained * (1 + 1e-9) + 1e-9


def test_the_formulas_of_both_bounds() -> None:
    exact = math.log(float(design(np.full((30, 1), 1.5), 0.9, 0.7)[0, 0]))  # attained in one dimension
    assert theory.determinant_trace_bound(30, gamma=0.9, dim=1, L=1.5, lam=0.7) == pytest.approx(exact, rel=1e-13)
    # exp would overflow here: the bound must stay in logs.
    assert theory.determinant_trace_bound(10, gamma=1.0, dim=5000, L=1.0, lam=1e9) > 1e5
    got = theory.elliptical_potential_bound(3.0, gamma=0.5, rounds=4, dim=2, L=3.0, lam=2.0)
    assert got == pytest.approx(2 * 4.5 * (8 * math.log(2) + 3.0), rel=1e-15)
    assert theory.elliptical_potential_bound(3.0, gamma=1.0, rounds=4, dim=2, L=1.0, lam=2.0) == 6.0


def tracking_norm(
    x: np.ndarray, thetas: np.ndarray, gamma: float, lam: float, mu: Callable[[np.ndarray], np.ndarray]
) -> float:
    """||g_t(theta_bar) - g_t(theta*_t)|| in V_t^-2, from the definition; thetas has one row more than x."""
    weights = gamma ** np.arange(len(x) - 1, -1, -1.0)
    gap = mu(np.sum(x * thetas[:-1], axis=1)) - mu(x @ thetas[-1])
    return float(np.linalg.norm(np.linalg.solve(design(x, gamma, lam), (weights * gap) @ x)))


@many_examples
@given(
    seeds, st.integers(1, 4), st.integers(1, 50), st.integers(1, 50), st.floats(0.5, 0.999), st.floats(0.3, 5.0),
    st.floats(0.05, 30.0), st.sampled_from(theory.ARM_GEOMETRIES),
)  # fmt: skip
def test_tracking_lemmas(seed, dim, rounds, depth, gamma, L, lam, arm_geometry) -> None:
    rng, S = np.random.default_rng(seed), 1.3
    if arm_geometry == "orthogonal":
        basis = np.linalg.qr(rng.standard_normal((dim, dim)))[0]
        x = basis[rng.integers(dim, size=rounds)] * (L * rng.random((rounds, 1)))
    else:
        x = random_arms(rng, rounds, dim, L)
    jumps = rng.standard_normal((rounds + 1, dim)) * (rng.random((rounds + 1, 1)) < 0.2)
    thetas = np.cumsum(jumps, axis=0)
    thetas *= np.minimum(1.0, S / np.maximum(np.linalg.norm(thetas, axis=1, keepdims=True), 1e-12))
    recent = float(np.linalg.norm(np.diff(thetas, axis=0), axis=1)[-depth:].sum())
    value = tracking_norm(x, thetas, gamma, lam, expit)
    bound = theory.tracking_bound(
        gamma, depth, recent, k_mu=0.25, S=S, L=L, lam=lam, dim=dim, arm_geometry=arm_geometry
    )
    assert value <= float(bound) * (1 + 1e-9) + 1e-12


def test_general_tracking_lemma_needs_the_factor_missing_in_print() -> None:
    # One dimension, identity link, one jump just before round t: the norm is count / (count + lam / L^2).
    gamma, L, depth, lam = 0.5, 4.0, 60, 32.0  # lam = 2 L^2
    x, thetas = np.full((200, 1), L), np.array([[0.0]] * 200 + [[1.0]])
    value = tracking_norm(x, thetas, gamma, lam, lambda z: z)
    assert value == pytest.approx(0.5, rel=1e-12)
    common: dict[str, Any] = {"k_mu": 1.0, "S": 1.0, "L": L, "lam": lam, "dim": 1}
    restored = float(theory.tracking_bound(gamma, depth, 1.0, arm_geometry="general", **common))
    old = float(theory.tracking_bound(gamma, depth, 0.0, arm_geometry="general", **common))
    assert old + (restored - old) / L < value <= restored  # the left is as printed
    assert value <= float(theory.tracking_bound(gamma, depth, 1.0, **common))


def test_tracking_bound_formula_lanes_and_limit() -> None:
    common: dict[str, Any] = {"k_mu": 0.25, "S": 1.5, "L": 2.0, "lam": 0.5, "dim": 3}
    old = 2 * 0.25 * 4 * 1.5 / 0.5 * 0.9**7 / 0.1
    assert theory.tracking_bound(0.9, 7, 0.2, **common) == pytest.approx(old + 0.25 * 0.2, rel=1e-13)
    factor = 0.25 * 2 * math.sqrt(3 / 0.05)
    general = theory.tracking_bound(0.9, 7, 0.2, arm_geometry="general", **common)
    assert general == pytest.approx(old + factor * 0.2, rel=1e-13)
    lanes = np.asarray(theory.tracking_bound(np.array([0.9, 1.0]), 7, 0.2, **common))
    assert lanes[0] == theory.tracking_bound(0.9, 7, 0.2, **common)
    assert lanes[1] == math.inf == theory.tracking_bound(1.0, 7, 0.0, arm_geometry="general", **common)
