"""Compiled linear algebra: Cholesky factors, and a quadratic over a ball."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

from support.access import callable_module
from support.estimators import seeds
from support.numerics import EPS, only_lower, positive_definite
from windvane.kernels import ball
from windvane.kernels import linalg as linalg_kernels
from windvane.kernels.lanes import VECTORS
from windvane.kernels.scoring import log_det_lanes

linalg, ball_quadratic = callable_module(linalg_kernels), callable_module(ball).ball_quadratic


@pytest.mark.parametrize("d", range(1, 11))
@settings(deadline=None, max_examples=10)
@given(seed=seeds)
def test_cholesky_and_what_is_solved_with_it(d: int, seed: int) -> None:
    """Condition number up to 100: errors up to d cond eps ~ 2e-13 relative."""
    rng = np.random.default_rng(seed)
    A, rhs, shift = positive_definite(rng, d), rng.normal(size=d), float(rng.uniform(0, 3))
    lower, out = np.full((d, d), np.nan), np.full(d, np.nan)
    assert linalg.cholesky(only_lower(A), shift, lower)
    exact = np.linalg.cholesky(A + shift * np.eye(d))
    np.testing.assert_allclose(lower, exact, rtol=0, atol=1e-12 * np.abs(exact).max())
    solvers = (linalg.solve_lower, linalg.solve_lower_transposed, linalg.solve_cholesky)
    for solve, matrix in zip(solvers, (exact, exact.T, A + shift * np.eye(d)), strict=True):
        expected = np.linalg.solve(matrix, rhs)
        solve(lower, rhs, out)
        np.testing.assert_allclose(out, expected, rtol=0, atol=1e-12 * np.abs(expected).max())
        in_place = rhs.copy()
        solve(lower, in_place, in_place)
        np.testing.assert_array_equal(in_place, out)
    inverse = np.linalg.inv(A + shift * np.eye(d))
    assert linalg.trace_of_inverse(lower, np.empty(d)) == pytest.approx(np.trace(inverse), rel=1e-12)
    least = np.linalg.eigvalsh(A)[0]  # and it says when a matrix is not positive definite
    assert linalg.cholesky(A, -least * (1 - 1e-6), lower)
    assert not linalg.cholesky(A, -least * (1 + 1e-6), lower)
    assert not linalg.cholesky(np.zeros((d, d)), 0.0, lower)
    assert not linalg.cholesky(np.full((d, d), np.nan), 0.0, lower)


@pytest.mark.parametrize("d", [1, 2, 5, 10])
def test_products_norms_and_determinants(d: int) -> None:
    rng = np.random.default_rng(d)
    A, x, y = positive_definite(rng, d), rng.normal(size=d), rng.normal(size=d)
    mirrored, log_det = only_lower(A), np.empty(3)
    linalg.mirror(mirrored)
    np.testing.assert_array_equal(mirrored, A)
    assert linalg.dot(x, y) == pytest.approx(x @ y, abs=1e-14)
    assert linalg.norm(x) == pytest.approx(np.linalg.norm(x), rel=1e-15 * d)
    V = np.array([A, 2 * A, np.eye(d)])
    dense = np.concatenate([np.full((3, VECTORS, d), np.nan), V, np.full((3, d, d), np.nan)], axis=1)
    log_det_lanes(dense, 0.3, np.full((1, d, d), np.nan), log_det)
    np.testing.assert_allclose(log_det, [np.linalg.slogdet(M / 0.3)[1] for M in V], rtol=0, atol=1e-12)


def minimise_over_ball(A: np.ndarray, linear: np.ndarray, radius: float) -> np.ndarray:
    """The oracle: eigenvectors, then the secular equation ||y(kappa)|| = radius by bisection. Not for the hard case."""
    values, Q = np.linalg.eigh(A)
    c = Q.T @ linear

    def y(gap: float) -> np.ndarray:  # kappa = start + gap
        return c / (values + start + gap)

    start = 0.0
    if values[0] > 0 and np.linalg.norm(y(0.0)) <= radius:
        return Q @ y(0.0)
    start = max(0.0, -values[0])
    high = np.linalg.norm(linear) / radius + np.abs(values).max() + 1.0
    log_gap = brentq(lambda t: np.log(np.linalg.norm(y(math.exp(t))) / radius), -80.0, math.log(high), xtol=1e-15)
    return Q @ y(math.exp(log_gap))


def minimise(A: np.ndarray, linear: np.ndarray, radius: float = 1.0, guess: float = 0.0) -> tuple[float, np.ndarray]:
    """The compiled answer: the multiplier and the point."""
    d = len(linear)
    y = np.full(d, np.nan)
    kappa = ball_quadratic(only_lower(A), linear, radius, guess, y, np.full((d, d), np.nan), np.full(d, np.nan))
    return kappa, y


def assert_minimises(A, linear, radius, guess=0.0, slack=1e-10) -> tuple[float, np.ndarray]:
    """The conditions of More and Sorensen, necessary and sufficient for a global minimum; then the oracle's value."""
    kappa, y = minimise(A, linear, radius, guess)
    size = np.abs(A).sum(axis=1).max()
    unit = size * radius + np.linalg.norm(linear)  # of a gradient
    assert np.linalg.norm(y) <= radius * (1 + 1e-12)
    assert kappa >= 0.0
    assert np.linalg.norm(A @ y + kappa * y - linear) <= slack * unit
    assert np.linalg.eigvalsh(A)[0] + kappa >= -1e-12 * size
    assert kappa * (radius - np.linalg.norm(y)) <= 1e-12 * (size + kappa) * radius

    def objective(y: np.ndarray) -> float:
        return float(0.5 * y @ A @ y - linear @ y)

    best = minimise_over_ball(A, linear, radius)
    assert objective(y) == pytest.approx(objective(best), rel=0, abs=1e-11 * unit * radius)
    return kappa, y


def with_spectrum(rng: np.random.Generator, values: np.ndarray) -> np.ndarray:
    Q = np.linalg.qr(rng.normal(size=(len(values), len(values))))[0]
    A = (Q * values) @ Q.T
    return (A + A.T) / 2


radii, scales = st.floats(0.01, 100.0), st.floats(1e-3, 1e3)


@pytest.mark.parametrize("d", range(1, 11))
@settings(deadline=None, max_examples=15)
@given(seed=seeds, radius=radii, share=st.floats(0.0, 3.0).filter(lambda s: abs(s - 1) > 1e-6))
def test_ball_quadratic_positive_definite(d: int, seed: int, radius: float, share: float) -> None:
    """The free minimiser has the norm share * radius: inside the ball (no multiplier) or outside it."""
    rng = np.random.default_rng(seed)
    A, free = positive_definite(rng, d), rng.normal(size=d)
    free *= share * radius / np.linalg.norm(free)
    kappa, y = assert_minimises(A, A @ free, radius)
    if share < 1:
        assert kappa == 0.0
        np.testing.assert_allclose(y, free, rtol=0, atol=1e-12 * radius)
    else:
        assert kappa > 0.0
        assert np.linalg.norm(y) == pytest.approx(radius, rel=1e-12)


@pytest.mark.parametrize("definiteness", ["semi-definite", "indefinite"])
@pytest.mark.parametrize("d", range(1, 11))
@settings(deadline=None, max_examples=25)
@given(seed=seeds, radius=radii, scale=scales)
def test_ball_quadratic_on_the_boundary(definiteness: str, d: int, seed: int, radius: float, scale: float) -> None:
    """A direction without curvature and a linear term along it, or a negative eigenvalue: a multiplier beyond it."""
    rng = np.random.default_rng(seed)
    if definiteness == "indefinite":
        values = rng.normal(size=d)
        values[0] = -abs(values[0])
    else:
        values = 10 ** rng.uniform(-1, 1, d)
        values[: rng.integers(1, d + 1)] = 0.0
    kappa, y = assert_minimises(with_spectrum(rng, values), scale * rng.normal(size=d), radius)
    assert kappa > 0.0
    assert kappa >= -values.min() * (1 - 1e-12)
    assert np.linalg.norm(y) == pytest.approx(radius, rel=1e-12)


@pytest.mark.parametrize("d", [2, 3, 6, 10])
@settings(deadline=None, max_examples=15)
@given(seed=seeds, share=st.integers(-10, -2).map(lambda e: 10.0**e))
def test_ball_quadratic_near_the_hard_case(d: int, seed: int, share: float) -> None:
    """The linear term has hardly any component along the most negative eigenvector; the minimiser still needs it.

    ||y(kappa)|| is share / (kappa - 1): the rounding of kappa moves it by eps / share, which the gradient shows and
    the value, being least there, only shows squared.
    """
    rng = np.random.default_rng(seed)
    values, Q = np.append(-1.0, rng.uniform(0.0, 1.0, d - 1)), np.linalg.qr(rng.normal(size=(d, d)))[0]
    A, components = (Q * values) @ Q.T, np.append(share, rng.uniform(-0.2, 0.2, d - 1))
    assert_minimises((A + A.T) / 2, Q @ components, 1.0, slack=1e-10 + 10 * EPS / share)


@pytest.mark.parametrize("d", [1, 2, 5, 10])
@settings(deadline=None, max_examples=25)
@given(seed=seeds, guess=st.floats(0.0, 1e6), definite=st.booleans())
def test_the_guess_changes_nothing(d: int, seed: int, guess: float, definite: bool) -> None:
    rng = np.random.default_rng(seed)
    values = rng.normal(size=d)
    A = with_spectrum(rng, np.abs(values) + 0.1 if definite else values)
    linear, radius = rng.normal(size=d), float(rng.uniform(0.1, 3.0))
    kappa, y = assert_minimises(A, linear, radius)
    guessed_kappa, guessed_y = assert_minimises(A, linear, radius, guess)
    assert guessed_kappa == pytest.approx(kappa, rel=1e-9, abs=1e-12)
    np.testing.assert_allclose(guessed_y, y, rtol=0, atol=1e-7 * radius)


INTERIOR = [([1.0] * (d - 1) + [0.0], [0.1] * (d - 1) + [0.0], -0.005 * (d - 1)) for d in (2, 3, 5)]
SPECTRA = [[-1.0], [-1.0, 1.0], [-2.0, -1.0, 3.0], [-3.0, -3.0], [0.0], [0.0, 0.0]]
NO_PULL = [(values, [0.0] * len(values), 0.5 * min(values)) for values in SPECTRA]


@pytest.mark.parametrize(("values", "linear", "best"), [*INTERIOR, *NO_PULL])
def test_ball_quadratic_without_a_pull_along_the_lowest_eigenvector(values, linear, best) -> None:
    """Without curvature along it the minimiser is inside; without any linear term it is the lowest eigenvector."""
    kappa, y = minimise(np.diag(values), np.array(linear))
    assert kappa >= 0.0
    assert np.linalg.norm(y) <= 1.0 + 1e-12
    value, tolerance = 0.5 * y @ np.diag(values) @ y - y @ linear, 1e-12
    if any(linear):
        assert kappa == pytest.approx(0.0, abs=1e-12)
        tolerance = 1e-9 * abs(best)
    assert value == pytest.approx(best, rel=0, abs=tolerance)


@pytest.mark.parametrize("d", [2, 3, 6, 10])
@settings(deadline=None, max_examples=15)
@given(seed=seeds)
def test_ball_quadratic_in_the_hard_case(d: int, seed: int) -> None:
    """The linear term is orthogonal to the lowest eigenvector: the best point is y(-lowest) plus a multiple of it."""
    rng = np.random.default_rng(seed)
    values, components = np.append(-1.0, rng.uniform(0.0, 1.0, d - 1)), np.append(0.0, rng.uniform(-0.1, 0.1, d - 1))
    kappa, y = minimise(np.diag(values), components)
    inner = components[1:] / (values[1:] + 1.0)
    best = -0.5 * (1 - inner @ inner) + 0.5 * inner @ (values[1:] * inner) - components[1:] @ inner
    assert kappa == pytest.approx(1.0, rel=1e-6)
    assert np.linalg.norm(y) == pytest.approx(1.0, rel=1e-12)
    assert 0.5 * y @ (values * y) - components @ y == pytest.approx(best, abs=1e-10)
