"""Compiled code against NumPy, SciPy and published vectors: links, random numbers, linear algebra, sums, threads."""

from __future__ import annotations

import importlib
import math
import pkgutil
import threading
from collections.abc import Iterator
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

from windvane import kernels
from windvane.estimation import DiscountedEstimator
from windvane.kernels import threads
from windvane.links import LINKS, CustomLink, Link, Logistic
from worlds import ball

k = kernels.load(Logistic())

relaxed = settings(deadline=None, max_examples=60)
EPS = 2.0**-52
FAR = [0.0, 1e-300, 1e-16, 1e-8, 0.5, 1.0, 5.0, 20.0, 37.0, 40.0, 300.0, 700.0]
seeds = st.integers(0, 2**32 - 1)
by_link = pytest.mark.parametrize("link", [kind() for kind in LINKS.values()], ids=list(LINKS))


def bend(link: Link, z: np.ndarray) -> np.ndarray:
    """mu'' in closed form, without the cancellation of 1 - 2 mu near 0."""
    factor = {"logistic": -np.tanh(z / 2), "poisson": np.ones_like(z), "probit": -z, "identity": np.zeros_like(z)}
    return factor[link.name] * link.slope(z)


# --- elementary functions ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", range(4))
def test_exponential_against_forty_digits(part: int) -> None:
    """Within 4e-16 relative on [-708, 708]: random points, small ones, and both sides of where the reduction jumps."""
    rng = np.random.default_rng(part)
    jumps = (rng.integers(-1020, 1020, 500) + 0.5) * math.log(2)
    points = np.concatenate(
        [
            rng.uniform(-708, 708, 3000),
            rng.uniform(-1, 1, 1000),
            rng.choice([-1, 1], 300) * 10 ** rng.uniform(-320, 0, 300),
            np.nextafter(jumps, -np.inf),
            jumps,
            np.nextafter(jumps, np.inf),
            [0.0, -0.0, 708.0, -708.0],
        ]
    )
    points = points[np.abs(points) <= 708.0]
    with localcontext() as context:
        context.prec = 40
        for z in points.tolist():
            exact = Decimal(z).exp()
            assert abs(Decimal(k.exponential(z)) - exact) <= exact * Decimal("4e-16"), z


def test_exponential_is_held_outside_its_range() -> None:
    for z in (708.5, 1e10, math.inf):
        assert k.exponential(z) == k.exponential(708.0)
        assert k.exponential(-z) == k.exponential(-708.0)


def assert_equals_link(link: Link, z: np.ndarray, mean: np.ndarray, slope: np.ndarray) -> None:
    """A few rounding errors; Phi and phi besides pass on the rounding of their argument, a factor z^2 in the tails.

    Below the smallest normal number either side may have been flushed to 0.
    """
    rounding = 2e-15 + (EPS * z * z if link.name == "probit" else 0.0)
    tiny = np.finfo(float).tiny
    assert (np.abs(mean - link.mean(z)) <= rounding * np.abs(link.mean(z)) + tiny).all()
    assert (np.abs(slope - link.slope(z)) <= rounding * link.slope(z) + tiny).all()


@by_link
@relaxed
@given(z=st.one_of(st.sampled_from([*FAR, *(-z for z in FAR)]), st.floats(-700.0, 700.0), st.floats(-5.0, 5.0)))
def test_mean_slope_equals_the_link(link: Link, z: float) -> None:
    mean, slope = k.mean_slope(link.code, z)
    assert_equals_link(link, np.array([z]), np.array([mean]), np.array([slope]))


@by_link
@pytest.mark.parametrize("n", [0, 1, 2, 3, 7, 8, 9, 100])
def test_the_array_forms_equal_the_link_and_write_no_further(link: Link, n: int) -> None:
    """All lengths around the width of a vector register; entries from n on are left alone."""
    rng = np.random.default_rng(n)
    z = rng.uniform(-700, 700, n + 3)
    z[: len(FAR)] = (rng.choice([-1.0, 1.0], len(FAR)) * FAR)[: len(z)]
    z[-2:] = rng.uniform(-5, 5, 2)
    mean, slope, second = (np.full(n + 3, np.nan) for _ in range(3))
    k.mean_slope_array(link.code, z, mean, slope, n)
    assert_equals_link(link, z[:n], mean[:n], slope[:n])
    k.bend_array(link.code, z, mean, slope, second, n)
    scale = link.slope(z[:n]) * np.maximum(1.0, np.abs(z[:n]))  # 1 - 2 mu is exact to rounding of 1, not of itself
    rounding = 2e-15 + (EPS * z[:n] ** 2 if link.name == "probit" else 0.0)
    assert (np.abs(second[:n] - bend(link, z[:n])) <= rounding * scale).all()
    assert np.isnan([mean[n:], slope[n:], second[n:]]).all()


@by_link
@relaxed
@given(z=st.floats(-30.0, 30.0))
def test_bend_ratio_bounds(link: Link, z: float) -> None:
    """|mu''| <= ratio mu' for |z| <= largest_z."""
    assert abs(bend(link, np.array([z]))[0]) <= k.bend_ratio(link.code, abs(z)) * link.slope(z) * (1 + 4 * EPS)


# --- random numbers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counter_and_key", "expected"),
    [
        ("00000000 00000000 00000000 00000000 00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ("ffffffff ffffffff ffffffff ffffffff ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        ("243f6a88 85a308d3 13198a2e 03707344 a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ],
)
def test_philox_gives_the_published_answers(counter_and_key: str, expected: str) -> None:
    """The known-answer vectors of Random123 for philox4x32-10."""
    words = [np.uint64(int(word, 16)) for word in counter_and_key.split()]
    assert [int(word) for word in k.philox(*words)] == [int(word, 16) for word in expected.split()]


@relaxed
@given(
    seed=st.integers(0, 2**64 - 1),
    lane=st.integers(0, 2**32 - 1),
    moment=st.integers(0, 2**63 - 1),
    stream=st.sampled_from([k.TIES, k.REWARDS]),
)
def test_uniform_is_the_first_53_bits_of_philox(seed: int, lane: int, moment: int, stream: int) -> None:
    """Counter (round low, round high, lane, stream) under the key (seed low, seed high); a value in [0, 1)."""
    low = 2**32 - 1
    words = [moment & low, moment >> 32, lane, stream, seed & low, seed >> 32]
    first, second, _, _ = (int(word) for word in k.philox(*map(np.uint64, words)))
    value = k.uniform(np.uint64(seed), lane, moment, stream)
    assert value == ((first << 21) | (second >> 11)) / 2**53
    assert 0.0 <= value < 1.0


def draws(seed: int, lane: int, stream: int, n: int) -> np.ndarray:
    key = np.uint64(seed)
    return np.array([k.uniform(key, lane, moment, stream) for moment in range(n)])


@pytest.mark.parametrize("seed", [0, 1, 2**64 - 1])
def test_uniform_looks_uniform_and_independent(seed: int) -> None:
    """1e5 draws: moments, distribution and correlations within six standard errors (two in a billion each)."""
    n = 100_000
    u = draws(seed, 0, k.TIES, n)
    assert u.min() >= 0.0
    assert u.max() < 1.0
    assert abs(u.mean() - 1 / 2) <= 6 * math.sqrt(1 / 12 / n)
    assert abs(((u - 0.5) ** 2).mean() - 1 / 12) <= 6 * math.sqrt(1 / 180 / n)
    counts = np.bincount((u * 64).astype(int), minlength=64)
    assert abs(((counts - n / 64) ** 2).sum() / (n / 64) - 63) <= 6 * math.sqrt(2 * 63)
    others = {
        "next round": np.roll(u, 1),
        "next lane": draws(seed, 1, k.TIES, n),
        "other stream": draws(seed, 0, k.REWARDS, n),
        "next seed": draws((seed + 1) % 2**64, 0, k.TIES, n),
    }
    for what, other in others.items():
        assert abs(np.mean((u - 0.5) * (other - 0.5)) * 12) <= 6 / math.sqrt(n), what


# --- linear algebra ------------------------------------------------------------------------------------------------


def positive_definite(rng: np.random.Generator, d: int) -> np.ndarray:
    """Eigenvalues over two decades."""
    Q = np.linalg.qr(rng.normal(size=(d, d)))[0]
    A = (Q * 10 ** rng.uniform(-1, 1, d)) @ Q.T
    return (A + A.T) / 2


def only_lower(A: np.ndarray) -> np.ndarray:
    """The upper triangle is poison: kernels must not read it."""
    return np.where(np.tri(len(A), dtype=bool), A, np.nan)


@pytest.mark.parametrize("d", range(1, 11))
@settings(deadline=None, max_examples=10)
@given(seed=seeds)
def test_cholesky_and_what_is_solved_with_it(d: int, seed: int) -> None:
    """Condition number up to 100: errors up to d cond eps ~ 2e-13 relative."""
    rng = np.random.default_rng(seed)
    A, rhs, shift = positive_definite(rng, d), rng.normal(size=d), float(rng.uniform(0, 3))
    lower, out = np.full((d, d), np.nan), np.full(d, np.nan)
    assert k.cholesky(only_lower(A), shift, lower)
    exact = np.linalg.cholesky(A + shift * np.eye(d))
    np.testing.assert_allclose(lower, exact, rtol=0, atol=1e-12 * np.abs(exact).max())
    for solve, matrix in (
        (k.solve_lower, exact),
        (k.solve_lower_transposed, exact.T),
        (k.solve_cholesky, A + shift * np.eye(d)),
    ):
        expected = np.linalg.solve(matrix, rhs)
        solve(lower, rhs, out)
        np.testing.assert_allclose(out, expected, rtol=0, atol=1e-12 * np.abs(expected).max())
        in_place = rhs.copy()
        solve(lower, in_place, in_place)
        np.testing.assert_array_equal(in_place, out)
    inverse = np.linalg.inv(A + shift * np.eye(d))
    assert k.trace_of_inverse(lower, np.empty(d)) == pytest.approx(np.trace(inverse), rel=1e-12)


@pytest.mark.parametrize("d", range(1, 11))
def test_cholesky_says_when_a_matrix_is_not_positive_definite(d: int) -> None:
    rng = np.random.default_rng(d)
    A = positive_definite(rng, d)
    least = np.linalg.eigvalsh(A)[0]
    lower = np.empty((d, d))
    assert k.cholesky(A, -least * (1 - 1e-6), lower)
    assert not k.cholesky(A, -least * (1 + 1e-6), lower)
    assert not k.cholesky(np.zeros((d, d)), 0.0, lower)
    assert not k.cholesky(np.full((d, d), np.nan), 0.0, lower)


@pytest.mark.parametrize("d", [1, 2, 5, 10])
def test_products_norms_and_determinants(d: int) -> None:
    rng = np.random.default_rng(d)
    A, x, y = positive_definite(rng, d), rng.normal(size=d), rng.normal(size=d)
    out, mirrored, log_det = np.empty(d), only_lower(A), np.empty(3)
    k.multiply_symmetric(only_lower(A), x, out)
    np.testing.assert_allclose(out, A @ x, rtol=0, atol=1e-14 * np.abs(A).sum())
    k.mirror(mirrored)
    np.testing.assert_array_equal(mirrored, A)
    assert k.dot(x, y) == pytest.approx(x @ y, abs=1e-14)
    assert k.norm(x) == pytest.approx(np.linalg.norm(x), rel=1e-15 * d)
    V = np.array([A, 2 * A, np.eye(d)])
    k.log_det_lanes(0, 3, V, 0.3, log_det)
    np.testing.assert_allclose(log_det, [np.linalg.slogdet(M / 0.3)[1] for M in V], rtol=0, atol=1e-12)


# --- the quadratic over a ball -------------------------------------------------------------------------------------


def minimise_over_ball(A: np.ndarray, linear: np.ndarray, radius: float) -> tuple[float, np.ndarray]:
    """The oracle: eigenvectors, then the secular equation ||y(kappa)|| = radius by bisection. Not for the hard case."""
    values, Q = np.linalg.eigh(A)
    c = Q.T @ linear

    def y(gap: float) -> np.ndarray:  # kappa = start + gap
        return c / (values + start + gap)

    start = 0.0
    if values[0] > 0 and np.linalg.norm(y(0.0)) <= radius:
        return 0.0, Q @ y(0.0)
    start = max(0.0, -values[0])
    high = np.linalg.norm(linear) / radius + np.abs(values).max() + 1.0
    log_gap = brentq(lambda t: np.log(np.linalg.norm(y(math.exp(t))) / radius), -80.0, math.log(high), xtol=1e-15)
    return start + math.exp(log_gap), Q @ y(math.exp(log_gap))


def assert_minimises(
    A: np.ndarray, linear: np.ndarray, radius: float, guess: float = 0.0, slack: float = 1e-10
) -> tuple[float, np.ndarray]:
    """The conditions of More and Sorensen, necessary and sufficient for a global minimum; then the oracle's value."""
    d = len(linear)
    y, lower = np.full(d, np.nan), np.full((d, d), np.nan)
    kappa = k.ball_quadratic(only_lower(A), linear, radius, guess, y, lower)
    size = np.abs(A).sum(axis=1).max()
    unit = size * radius + np.linalg.norm(linear)  # of a gradient
    assert np.linalg.norm(y) <= radius * (1 + 1e-12)
    assert kappa >= 0.0
    assert np.linalg.norm(A @ y + kappa * y - linear) <= slack * unit
    assert np.linalg.eigvalsh(A)[0] + kappa >= -1e-12 * size
    assert kappa * (radius - np.linalg.norm(y)) <= 1e-12 * (size + kappa) * radius

    def objective(y: np.ndarray) -> float:
        return float(0.5 * y @ A @ y - linear @ y)

    best = minimise_over_ball(A, linear, radius)[1]
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
    A = positive_definite(rng, d)
    free = rng.normal(size=d)
    free *= share * radius / np.linalg.norm(free)
    kappa, y = assert_minimises(A, A @ free, radius)
    if share < 1:
        assert kappa == 0.0
        np.testing.assert_allclose(y, free, rtol=0, atol=1e-12 * radius)
    else:
        assert kappa > 0.0
        assert np.linalg.norm(y) == pytest.approx(radius, rel=1e-12)


@pytest.mark.parametrize("d", range(1, 11))
@settings(deadline=None, max_examples=15)
@given(seed=seeds, radius=radii, scale=scales)
def test_ball_quadratic_semi_definite(d: int, seed: int, radius: float, scale: float) -> None:
    """A direction without curvature and a linear term along it: the minimiser is on the boundary."""
    rng = np.random.default_rng(seed)
    values = 10 ** rng.uniform(-1, 1, d)
    values[: rng.integers(1, d + 1)] = 0.0
    kappa, y = assert_minimises(with_spectrum(rng, values), scale * rng.normal(size=d), radius)
    assert kappa > 0.0
    assert np.linalg.norm(y) == pytest.approx(radius, rel=1e-12)


@pytest.mark.parametrize("d", range(1, 11))
@settings(deadline=None, max_examples=25)
@given(seed=seeds, radius=radii, scale=scales)
def test_ball_quadratic_indefinite(d: int, seed: int, radius: float, scale: float) -> None:
    """At least one negative eigenvalue: always on the boundary, with a multiplier beyond it."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=d)
    values[0] = -abs(values[0])
    kappa, y = assert_minimises(with_spectrum(rng, values), scale * rng.normal(size=d), radius)
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
    values = np.append(-1.0, rng.uniform(0.0, 1.0, d - 1))
    Q = np.linalg.qr(rng.normal(size=(d, d)))[0]
    A = (Q * values) @ Q.T
    components = np.append(share, rng.uniform(-0.2, 0.2, d - 1))
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


@pytest.mark.parametrize("d", [2, 3, 5])
def test_ball_quadratic_semi_definite_with_an_interior_minimiser(d: int) -> None:
    """No curvature along the last axis and no pull along it either: the minimiser of least norm is inside."""
    A = np.diag(np.append(np.ones(d - 1), 0.0))
    linear = np.append(np.full(d - 1, 0.1), 0.0)
    y, lower = np.full(d, np.nan), np.empty((d, d))
    kappa = k.ball_quadratic(A, linear, 1.0, 0.0, y, lower)
    assert kappa == pytest.approx(0.0, abs=1e-12)
    assert 0.5 * y @ A @ y - linear @ y == pytest.approx(-0.005 * (d - 1), rel=1e-9)


@pytest.mark.parametrize("values", [[-1.0], [-1.0, 1.0], [-2.0, -1.0, 3.0], [0.0], [0.0, 0.0]])
def test_without_a_linear_term_the_answer_is_a_point_of_the_ball(values: list[float]) -> None:
    """The hard case: documented as feasible, not as optimal; it must not be whatever was in ``out``."""
    d = len(values)
    y, lower = np.full(d, np.nan), np.empty((d, d))
    kappa = k.ball_quadratic(np.diag(values), np.zeros(d), 1.0, 0.0, y, lower)
    assert kappa >= 0.0
    assert np.linalg.norm(y) <= 1.0 + 1e-12


# --- sums over the history -----------------------------------------------------------------------------------------

DIMS = [1, 2, 3, 4, 5, 7, 8, 9, 20]
LENGTHS = sorted({0, 1, k.BLOCK - 1, k.BLOCK, k.BLOCK + 1, 511, 512, 513, 1500})
SCALE, RIDGE = 0.37, 0.21


def placed(x: np.ndarray, w: np.ndarray, start: int) -> tuple[np.ndarray, np.ndarray]:
    """The history inside a longer buffer; everything around it is poison."""
    n, d = x.shape
    X, W = np.full((d, start + n + 5), np.nan), np.full(start + n + 5, np.nan)
    X[:, start : start + n], W[start : start + n] = x.T, w
    return X, W


def sums(
    link: Link, x: np.ndarray, w: np.ndarray, theta: np.ndarray, u: np.ndarray, start: int, kernel: Any = k
) -> list[np.ndarray]:
    """g, H, H u and the bend matrix of the kernels (of matrices the lower triangle, which is all they promise)."""
    n, d = x.shape
    X, W = placed(x, w, start)
    g, Hu, H, B = np.full(d, np.nan), np.full(d, np.nan), np.full((d, d), np.nan), np.full((d, d), np.nan)
    buffers = np.full((3, max(1, n)), np.nan)
    kernel.mean_sums(link.code, X, W, start, start + n, SCALE, RIDGE, theta, buffers, g)
    kernel.slope_gram(X, W, start, start + n, SCALE, RIDGE, buffers, H)
    kernel.slope_apply(X, W, start, start + n, SCALE, RIDGE, u, buffers, Hu)
    kernel.bend_gram(link.code, X, W, start, start + n, SCALE, u, buffers, B)
    return [g, np.tril(H), Hu, np.tril(B)]


def data(d: int, n: int) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng([d, n])
    return ball(rng, (n,), d), rng.exponential(size=n), 2 * rng.normal(size=d), rng.normal(size=d)


@by_link
@pytest.mark.parametrize("d", DIMS)
@pytest.mark.parametrize("n", LENGTHS)
def test_the_sums_are_what_they_stand_for(link: Link, d: int, n: int) -> None:
    """Errors: some eps a term for the link and its argument, n eps / 8 for the sum, of the sum of absolute values."""
    x, w, theta, u = data(d, n)
    got = sums(link, x, w, theta, u, 0)
    z, w = x @ theta, SCALE * w
    H = x.T @ ((w * link.slope(z))[:, None] * x) + RIDGE * np.eye(d)
    bend_matrix = x.T @ ((w * bend(link, z) * (x @ u))[:, None] * x)
    expected = [x.T @ (w * link.mean(z)) + RIDGE * theta, np.tril(H), H @ u, np.tril(bend_matrix)]
    size, along = np.abs(x), np.abs(x) @ np.abs(u)
    slope = link.slope(z) * (1 + size @ np.abs(theta)) ** 2  # how the rounding of z shows in mu and mu'
    size_H = size.T @ ((w * slope)[:, None] * size) + RIDGE * np.eye(d)
    bounds = [
        size.T @ (w * (np.abs(link.mean(z)) + slope)) + RIDGE * np.abs(theta),
        size_H,
        size_H @ np.abs(u),
        size.T @ ((w * slope * along)[:, None] * size),
    ]
    rounding = (20 + d + n / 8) * EPS
    for value, exact, bound in zip(got, expected, bounds, strict=True):
        assert (np.abs(value - exact) <= rounding * bound).all()


@by_link
@pytest.mark.parametrize("d", DIMS)
def test_sums_do_not_depend_on_where_the_history_lies(link: Link, d: int) -> None:
    """Bit for bit, for starts of every alignment and beyond a block."""
    for n in LENGTHS:
        x, w, theta, u = data(d, n)
        first = sums(link, x, w, theta, u, 0)
        for start in (1, 2, 3, 5, 8, 513):
            for one, other in zip(first, sums(link, x, w, theta, u, start), strict=True):
                np.testing.assert_array_equal(one, other)


@by_link
@pytest.mark.parametrize("d", [1, 2, 5])
@pytest.mark.parametrize("n", [0, 1, 600])
def test_the_interpreted_kernels_of_a_custom_link_give_the_same_sums(link: Link, d: int, n: int) -> None:
    """The bend there is a central difference, h = 1e-5: off by eps mu' / h and h^2, about 1e-10 a term."""
    copy = CustomLink("copy", link.mean, link.slope)
    x, w, theta, u = data(d, n)
    own, compiled = sums(copy, x, w, theta, u, 3, kernels.load(copy)), sums(link, x, w, theta, u, 3)
    for one, other in zip(own[:3], compiled[:3], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)
    total = np.sum(w * np.linalg.norm(x, axis=1) ** 2 * np.abs(x @ u) * (1 + link.slope(x @ theta)))
    np.testing.assert_allclose(own[3], compiled[3], rtol=0, atol=1e-9 * total)


def test_interpreted_kernels_keep_the_constants_of_their_own_modules() -> None:
    """One namespace holds all modules; a name that means two things there would change what a kernel does."""
    meanings: dict[str, object] = {}
    modules = [info.name for info in pkgutil.iter_modules(kernels.__path__) if info.name not in ("jit", "threads")]
    assert "root" in modules
    for module in modules:
        for name, value in vars(importlib.import_module(f"windvane.kernels.{module}")).items():
            if not name.startswith("__"):
                known = meanings.setdefault(name, value)
                assert known is value or known == value, (module, name)


# --- threads -------------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _same_threads_afterwards() -> Iterator[None]:
    before = threads.get_threads()
    yield
    threads.set_threads(before)


MUCH = 10.0 * threads.WORTH_SPLITTING


@pytest.mark.parametrize("count", [1, 2, 3, 7])
@pytest.mark.parametrize("lanes", [1, 2, 5, 9, 64])
def test_over_lanes_covers_every_lane_once(count: int, lanes: int) -> None:
    threads.set_threads(count)
    assert threads.get_threads() == count
    visits, lock = np.zeros(lanes, dtype=int), threading.Lock()

    def kernel(lo: int, hi: int, step: int) -> None:
        with lock:
            visits[lo:hi] += step

    threads.over_lanes(kernel, lanes, MUCH, 1)
    np.testing.assert_array_equal(visits, 1)


def test_small_work_stays_on_the_calling_thread() -> None:
    threads.set_threads(3)
    calls = []
    threads.over_lanes(lambda lo, hi: calls.append((lo, hi, threading.get_ident())), 9, 1.0)
    assert calls == [(0, 9, threading.get_ident())]


def run(lanes: int) -> list[np.ndarray]:
    """A run whose ageing and solving are both worth splitting: 17 lanes of unequal length in ten dimensions."""
    rng = np.random.default_rng(5)
    estimator = DiscountedEstimator(10, gamma=np.linspace(0.9, 1.0, lanes), lanes=lanes)
    for _ in range(300):
        estimator.observe(ball(rng, (lanes,), 10), (rng.random(lanes) < 0.5) * 1.0, mask=rng.random(lanes) < 0.8)
        estimator.advance()
    assert estimator.pass_cost > threads.WORTH_SPLITTING
    return [estimator.solve().copy(), estimator.V, estimator.root_error, estimator.root_passes]


def test_threads_do_not_change_a_result() -> None:
    """Bit for bit with 1, 2 and 3 threads, through the estimator and through a kernel called directly."""
    V = np.array([positive_definite(np.random.default_rng(lane), 6) for lane in range(31)])
    results = []
    for count in (1, 2, 3):
        threads.set_threads(count)
        log_det = np.full(31, np.nan)
        threads.over_lanes(k.log_det_lanes, 31, MUCH, V, 0.5, log_det)
        results.append([log_det, *run(17)])
    for other in results[1:]:
        for one, two in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("bad", [0, 4, 8])
def test_an_exception_in_any_lane_reaches_the_caller(count: int, bad: int) -> None:
    threads.set_threads(count)

    def kernel(lo: int, hi: int) -> None:
        if lo <= bad < hi:
            raise ArithmeticError("lane trouble")

    with pytest.raises(ArithmeticError, match="lane trouble"):
        threads.over_lanes(kernel, 9, MUCH)
    done = []
    threads.over_lanes(lambda lo, hi: done.append(hi - lo), 9, MUCH)  # and the pool still works
    assert sum(done) == 9


def test_no_thread_is_still_at_work_when_an_exception_arrives() -> None:
    """The caller may free or reuse its arrays then. The wait below only gives a straggler time to be caught."""
    threads.set_threads(2)
    caller, started, release = threading.get_ident(), threading.Event(), threading.Event()
    running = []

    def kernel(lo: int, hi: int) -> None:
        if threading.get_ident() == caller:
            started.wait()
            raise ArithmeticError("the caller's own chunk")
        running.append(lo)
        started.set()
        release.wait(0.3)
        running.remove(lo)

    with pytest.raises(ArithmeticError):
        threads.over_lanes(kernel, 2, MUCH)
    still_running = list(running)
    release.set()
    assert still_running == []


@pytest.mark.parametrize("count", [0, -1])
def test_set_threads_refuses_less_than_one(count: int) -> None:
    before = threads.get_threads()
    with pytest.raises(ValueError, match=f"^count={count}"):
        threads.set_threads(count)
    assert threads.get_threads() == before


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5", " 2", "1e3", "²"])
def test_a_bad_thread_count_in_the_environment_is_refused_by_name(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINDVANE_THREADS", text)
    with pytest.raises(ValueError, match=r"^WINDVANE_THREADS="):
        threads._threads_from_environment()


def test_the_thread_count_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINDVANE_THREADS", "5")
    assert threads._threads_from_environment() == 5
    for unset in ("", None):
        if unset is None:
            monkeypatch.delenv("WINDVANE_THREADS")
        else:
            monkeypatch.setenv("WINDVANE_THREADS", unset)
        assert threads._threads_from_environment() == threads.available_cores() >= 1
