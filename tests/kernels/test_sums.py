"""Compiled elementary functions and links against 40 digits, NumPy and SciPy, and the sums over a history."""

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support import access
from support.numerics import EPS, bend, by_built_in_link, custom_copy, sixty_examples, third
from support.worlds import ball
from windvane.kernels import elementary as elementary_kernels
from windvane.kernels import sums
from windvane.kernels.lanes import BUFFERS, RECORD
from windvane.links import Link

elementary = access.callable_module(elementary_kernels)
FAR = [0.0, 1e-300, 1e-16, 1e-8, 0.5, 1.0, 5.0, 20.0, 37.0, 40.0, 300.0, 700.0]
DIMS = [1, 2, 3, 4, 5, 7, 8, 9, 20]
LENGTHS = sorted({0, 1, sums.BLOCK - 1, sums.BLOCK, sums.BLOCK + 1, 511, 512, 513, 1500})
SCALE, RIDGE = 0.37, 0.21


@pytest.mark.parametrize("part", range(4))
def test_exponential_against_forty_digits(part: int) -> None:
    """Within 4e-16 relative on [-708, 708]: random points, small ones, and both sides of where the reduction jumps."""
    rng = np.random.default_rng(part)
    jumps = (rng.integers(-1020, 1020, 500) + 0.5) * math.log(2)
    points = [*rng.uniform(-708, 708, 3000), *rng.uniform(-1, 1, 1000), 0.0, -0.0, 708.0, -708.0]
    points += [*(rng.choice([-1, 1], 300) * 10 ** rng.uniform(-320, 0, 300)), *jumps]
    points += [*np.nextafter(jumps, -np.inf), *np.nextafter(jumps, np.inf)]
    with localcontext() as context:
        context.prec = 40
        for z in (float(z) for z in points if abs(z) <= 708.0):
            exact = Decimal(z).exp()
            assert abs(Decimal(elementary.exponential(z)) - exact) <= exact * Decimal("4e-16"), z
    for z in (708.5, 1e10, math.inf):  # held outside its range
        assert elementary.exponential(z) == elementary.exponential(708.0)
        assert elementary.exponential(-z) == elementary.exponential(-708.0)


def assert_equals_link(link: Link, z: np.ndarray, mean: np.ndarray, slope: np.ndarray) -> None:
    """A few rounding errors; Phi and phi besides pass on the rounding of their argument, a factor z^2 in the tails."""
    rounding = 2e-15 + (EPS * z * z if link.name == "probit" else 0.0)
    tiny = np.finfo(float).tiny  # below the smallest normal number either side may have been flushed to 0
    assert (np.abs(mean - link.mean(z)) <= rounding * np.abs(link.mean(z)) + tiny).all()
    assert (np.abs(slope - link.slope(z)) <= rounding * link.slope(z) + tiny).all()


@by_built_in_link
@sixty_examples
@given(z=st.one_of(st.sampled_from([*FAR, *(-z for z in FAR)]), st.floats(-700.0, 700.0), st.floats(-5.0, 5.0)))
def test_mean_slope_equals_the_link(link: Link, z: float) -> None:
    mean, slope = elementary.mean_slope(link.code, z)
    assert_equals_link(link, np.array([z]), np.array([mean]), np.array([slope]))


@by_built_in_link
@pytest.mark.parametrize("n", [0, 1, 2, 3, 7, 8, 9, 100])
def test_the_array_forms_equal_the_link_and_write_no_further(link: Link, n: int) -> None:
    """All lengths around the width of a vector register; entries from n on are left alone."""
    rng = np.random.default_rng(n)
    z = rng.uniform(-700, 700, n + 3)
    z[: len(FAR)] = (rng.choice([-1.0, 1.0], len(FAR)) * FAR)[: len(z)]
    z[-2:] = rng.uniform(-5, 5, 2)
    mean, slope, second = (np.full(n + 3, np.nan) for _ in range(3))
    elementary.mean_slope_array(link.code, z, mean, slope, n)
    assert_equals_link(link, z[:n], mean[:n], slope[:n])
    elementary.bend_array(link.code, z, mean, slope, second, n)
    scale = link.slope(z[:n]) * np.maximum(1.0, np.abs(z[:n]))  # 1 - 2 mu is exact to rounding of 1, not of itself
    rounding = 2e-15 + (EPS * z[:n] ** 2 if link.name == "probit" else 0.0)
    assert (np.abs(second[:n] - bend(link, z[:n])) <= rounding * scale).all()
    assert np.isnan([mean[n:], slope[n:], second[n:]]).all()


@by_built_in_link
@sixty_examples
@given(z=st.floats(-30.0, 30.0))
def test_bend_ratio_bounds(link: Link, z: float) -> None:
    """|mu''| <= ratio mu' for |z| <= largest_z."""
    assert abs(bend(link, np.array([z]))[0]) <= elementary.bend_ratio(link.code, abs(z)) * link.slope(z) * (1 + 4 * EPS)


def compute_sums(link: Link, x, w, theta, u, start: int) -> list[np.ndarray]:
    """g, H, H u, and the matrices of mu'' and mu''', of a history inside a longer one; all around it is poison."""
    (n, d), kernel, record = x.shape, access.kernels_for(link), np.zeros(1, RECORD)
    settings = {"link": link.code, "scale": SCALE, "ridge": RIDGE, "first": start, "end": start + n}
    for name, value in settings.items():
        record[name] = value
    rows, lane = np.full((d + 3, start + n + 5), np.nan), record[0]
    rows[:d, start : start + n], rows[d, start : start + n] = x.T, w
    g, Hu, H, bend_matrix, third_matrix = (np.full(shape, np.nan) for shape in (d, d, (d, d), (d, d), (d, d)))
    buffers = np.full((BUFFERS, max(1, n)), np.nan)
    kernel.mean_sums(lane, rows, theta, buffers, g)
    kernel.gram(sums.SLOPE_GRAM, lane, rows, u, buffers, H)
    kernel.slope_apply(lane, rows, u, buffers, Hu)
    kernel.gram(sums.BEND_GRAM, lane, rows, u, buffers, bend_matrix)
    kernel.gram(sums.THIRD_GRAM, lane, rows, u, buffers, third_matrix)
    return [g, H, Hu, bend_matrix, third_matrix]


def data(d: int, n: int) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng([d, n])
    return ball(rng, (n,), d), rng.exponential(size=n), 2 * rng.normal(size=d), rng.normal(size=d)


@by_built_in_link
@pytest.mark.parametrize("d", DIMS)
@pytest.mark.parametrize("n", LENGTHS)
def test_the_sums_are_what_they_stand_for(link: Link, d: int, n: int) -> None:
    """Errors: some eps a term for the link and its argument, n eps / 8 for the sum, of the sum of absolute values."""
    x, w, theta, u = data(d, n)
    got = compute_sums(link, x, w, theta, u, 0)
    z, w = x @ theta, SCALE * w
    H = x.T @ ((w * link.slope(z))[:, None] * x) + RIDGE * np.eye(d)
    bend_matrix = x.T @ ((w * bend(link, z) * (x @ u))[:, None] * x)
    expected = [x.T @ (w * link.mean(z)) + RIDGE * theta, H, H @ u, bend_matrix]
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
    for value, exact, bound in zip(got[:4], expected, bounds, strict=True):
        assert (np.abs(value - exact) <= rounding * bound).all()
    third_matrix = x.T @ ((w * third(link, z) * (x @ u) ** 2)[:, None] * x)
    terms = w * (link.slope(z) + np.abs(third(link, z))) * along**2  # differences over 1e-4 lose 8 digits of mu'
    assert (np.abs(got[4] - third_matrix) <= 1e-7 * (size.T @ (terms[:, None] * size))).all()


@by_built_in_link
@pytest.mark.parametrize("d", DIMS)
def test_sums_do_not_depend_on_where_the_history_lies(link: Link, d: int) -> None:
    for n in LENGTHS:
        x, w, theta, u = data(d, n)
        first = compute_sums(link, x, w, theta, u, 0)
        for start in (1, 2, 3, 5, 8, 513):
            for one, other in zip(first, compute_sums(link, x, w, theta, u, start), strict=True):
                np.testing.assert_array_equal(one, other)


@by_built_in_link
@pytest.mark.parametrize("d", [1, 2, 5])
@pytest.mark.parametrize("n", [0, 1, 600])
def test_the_interpreted_kernels_of_a_custom_link_give_the_same_sums(link: Link, d: int, n: int) -> None:
    """The bend there is a central difference, h = 1e-5: off by eps mu' / h and h^2, about 1e-10 a term."""
    x, w, theta, u = data(d, n)
    own, compiled = (compute_sums(which, x, w, theta, u, 3) for which in (custom_copy(link), link))
    for one, other in zip(own[:3], compiled[:3], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)
    total = np.sum(w * np.linalg.norm(x, axis=1) ** 2 * np.abs(x @ u) * (1 + link.slope(x @ theta)))
    np.testing.assert_allclose(own[3], compiled[3], rtol=0, atol=1e-9 * total)
    np.testing.assert_allclose(own[4], compiled[4], rtol=0, atol=1e-7 * total * (1 + np.linalg.norm(u)))
