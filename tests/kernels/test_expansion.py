"""The expansion of old observations: its tensors, its derivatives, and the certified bounds on its errors."""

import math
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import naive
from support.expansions import exact_sums, expand
from support.worlds import ball
from windvane.links import LINKS

LINK_NAMES = ["logistic", "poisson", "probit", "identity"]
by_link = pytest.mark.parametrize("link", LINK_NAMES)
few_examples = settings(deadline=None, max_examples=25)
ORDERS = {1: [2, 10], 2: [2, 4, 10], 3: [2, 8], 5: [2, 4, 6], 10: [2, 4]}
shapes = st.sampled_from([(d, p) for d, orders in ORDERS.items() for p in orders])
EPS = 2.0**-52


def draw(seed: int, d: int, n: int, collinear: bool = False) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, weights over many orders of magnitude, and a center."""
    rng = np.random.default_rng(seed)
    x = ball(rng, (n,), d)
    if collinear:
        x = rng.uniform(-1, 1, (n, 1)) * ball(rng, (), d) / 1.01
    return x, rng.random(n) ** 8, ball(rng, (), d, 1.5)


@pytest.mark.parametrize("link", ["logistic", "poisson"])
@few_examples
@given(
    seed=st.integers(0, 2**32 - 1), shape=shapes, n=st.integers(1, 90), distance=st.floats(1e-3, 1.5),
    collinear=st.booleans(),
)  # fmt: skip
def test_the_bounds_hold_in_40_digits(link, seed, shape, n, distance, collinear) -> None:
    """For g and H, up to the rounding of sums whose terms have the size of the weights times (1 + distance)^order."""
    d, order = shape
    x, weights, center = draw(seed, d, n, collinear)
    direction = ball(np.random.default_rng([seed, 1]), (), d)
    theta = center + distance * direction / np.linalg.norm(direction)
    expanded = expand(x, weights, center, link, order)
    g_bound, H_bound = expanded.bound(theta)
    g, H, _, _ = expanded.evaluate(theta, theta)
    exact_g, exact_H = exact_sums(x, weights, theta, link)
    rounding = 1000 * EPS * weights.sum() * (1 + distance) ** order * math.exp(1.5 if link == "poisson" else 0.0)
    gap = np.array([Decimal(float(a)) - b for a, b in zip(g, exact_g, strict=True)], dtype=float)
    assert np.linalg.norm(gap) <= g_bound + rounding
    pairs = zip(H.ravel(), exact_H.ravel(), strict=True)
    error = np.array([Decimal(float(a)) - b for a, b in pairs], dtype=float).reshape(d, d)
    assert np.linalg.norm(error, 2) <= H_bound + rounding * order


@by_link
@few_examples
@given(seed=st.integers(0, 2**32 - 1), shape=shapes, n=st.integers(1, 200), distance=st.floats(0.0, 1.0))
def test_the_bounds_hold_for_every_link(link, seed, shape, n, distance) -> None:
    d, order = shape
    x, weights, center = draw(seed, d, n)
    theta = center + distance * ball(np.random.default_rng([seed, 1]), (), d)
    expanded = expand(x, weights, center, link, order, ridge=0.3)
    g, H, _, _ = expanded.evaluate(theta, theta)
    data = (x, weights, 0.3, naive.LINKS[link])
    g_bound, H_bound = expanded.bound(theta)
    rounding = 1000 * EPS * (1 + weights.sum()) * 2**order * math.exp(2.5 if link == "poisson" else 0.0)
    assert np.linalg.norm(g - naive.g(theta, *data)) <= g_bound + rounding
    assert np.linalg.norm(H - naive.H(theta, *data), 2) <= H_bound + rounding * order


@pytest.mark.parametrize(("link", "order"), [(link, p) for link in LINK_NAMES for p in (2, 4, 6, 8, 10)])
def test_the_remainder_of_a_link_is_the_largest_derivative(link: str, order: int) -> None:
    """|mu^(p+1)| / (p+1)! by differences of the Taylor polynomials that the kernels use: S of one entry in d = 1."""
    z = np.linspace(-12.0, 0.0 if link == "poisson" else 12.0, 2401)
    if order == 10:  # the kernels list derivatives up to order 10, so the next is a difference quotient
        tops = np.array([expand(np.ones((1, 1)), np.ones(1), np.array([c]), link, 10).levels[0, 11] for c in z])
        values = np.abs(np.gradient(tops, z)) / 11
    else:
        tops = [expand(np.ones((1, 1)), np.ones(1), np.array([c]), link, order + 2).levels[0, order + 2] for c in z]
        values = np.abs(np.array(tops))
    bound = LINKS[link]().remainder(order)
    assert values.max() <= bound * (1 + 1e-4) + 1e-18
    assert values.max() >= bound * (1 - 1e-2)


@by_link
@few_examples
@given(seed=st.integers(0, 2**32 - 1), shape=shapes)
def test_derivatives_are_those_of_the_polynomial(link: str, seed: int, shape: tuple[int, int]) -> None:
    """H u, and the derivatives of H along u, by differences of what the expansion itself returns."""
    d, order = shape
    x, weights, center = draw(seed, d, 40)
    rng = np.random.default_rng([seed, 2])
    theta, u, expanded = center + 0.3 * ball(rng, (), d), ball(rng, (), d), expand(x, weights, center, link, order)
    _, H, Hu, (bend, third) = expanded.evaluate(theta, u)
    size = 1e-9 + np.abs(H).max()
    np.testing.assert_allclose(Hu, H @ u, rtol=0, atol=1e-13 * size)
    np.testing.assert_array_equal(H, H.T)
    h = 1e-4
    (above, H_above, _, _), (below, H_below, _, _) = (expanded.evaluate(theta + s * h * u, u) for s in (1, -1))
    np.testing.assert_allclose((above - below) / (2 * h), Hu, rtol=0, atol=1e-6 * size)
    np.testing.assert_allclose((H_above - H_below) / (2 * h), bend, rtol=0, atol=1e-6 * size)
    np.testing.assert_allclose((H_above - 2 * H + H_below) / h**2, third, rtol=0, atol=1e-5 * size)
