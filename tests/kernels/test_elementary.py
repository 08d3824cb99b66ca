"""Compiled elementary functions and links against 40 digits, NumPy and SciPy."""

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.access import callable_module
from support.numerics import EPS, bend, by_built_in_link, sixty_examples
from windvane.kernels import elementary as elementary_kernels
from windvane.links import Link

elementary = callable_module(elementary_kernels)
FAR = [0.0, 1e-300, 1e-16, 1e-8, 0.5, 1.0, 5.0, 20.0, 37.0, 40.0, 300.0, 700.0]


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
            assert abs(Decimal(elementary.exponential(z)) - exact) <= exact * Decimal("4e-16"), z


def test_exponential_is_held_outside_its_range() -> None:
    for z in (708.5, 1e10, math.inf):
        assert elementary.exponential(z) == elementary.exponential(708.0)
        assert elementary.exponential(-z) == elementary.exponential(-708.0)


def assert_equals_link(link: Link, z: np.ndarray, mean: np.ndarray, slope: np.ndarray) -> None:
    """A few rounding errors; Phi and phi besides pass on the rounding of their argument, a factor z^2 in the tails.

    Below the smallest normal number either side may have been flushed to 0.
    """
    rounding = 2e-15 + (EPS * z * z if link.name == "probit" else 0.0)
    tiny = np.finfo(float).tiny
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
