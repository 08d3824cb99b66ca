"""The compiled loops behind environments: circles, normals, walks, inverse distributions."""

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from support.access import callable_module
from windvane.kernels import drawing as drawing_kernels
from windvane.kernels import random as random_kernels

drawing, random = callable_module(drawing_kernels), callable_module(random_kernels)
SEED = np.uint64(20240817)
N = 4000
UNLIKELY = 1e-6  # a p-value below it is taken as a failure


@given(st.integers(0, 2**53 - 1))
def test_circle_points_are_cosine_and_sine(numerator: int) -> None:
    turn = numerator / 2**53
    c, s = drawing.circle_point(turn)
    quarters = round(4 * turn)
    rest = (4 * turn - quarters) * math.pi / 2  # reduced exactly: cos(2 pi turn) itself would lose digits near 1
    exact = complex(math.cos(rest), math.sin(rest)) * 1j**quarters
    assert abs(complex(c, s) - exact) <= 4e-16


def test_circle_points_at_the_quarters_are_exact() -> None:
    assert [drawing.circle_point(turn) for turn in (0.0, 0.25, 0.5, 0.75)] == [(1, 0), (0, 1), (-1, 0), (0, -1)]


def test_no_uniform_makes_an_infinite_or_a_zero_exponential() -> None:
    assert 0 < drawing.exponential_variate(0.0) < 1e-15
    assert drawing.exponential_variate(1 - 2.0**-53) < 40


@pytest.mark.parametrize("d", [1, 2, 3, 4, 7])
def test_normal_vectors_are_normal(d: int) -> None:
    z = np.empty((N, d))
    for i, row in enumerate(z):
        square = drawing.normal_vector(SEED, 1, i, random.DRIFT, 3, row)
        assert square == pytest.approx(row @ row, rel=1e-14)
    for column in z.T:
        assert scipy.stats.kstest(column, "norm").pvalue > UNLIKELY
    assert scipy.stats.kstest(np.square(z).sum(axis=1), "chi2", (d,)).pvalue > UNLIKELY


def test_blocks_of_a_point_do_not_overlap() -> None:
    """The last block an arm may use comes before the next arm's first."""
    for d in range(1, 30):
        used = (d + 1) // 2 + 1  # normals by twos, and one for the radius
        assert drawing.blocks_of(d) >= used


means = st.one_of(
    st.floats(0.0, 30.0), st.floats(30.0, 1e4), st.sampled_from([0.0, 1.0, 5.0, 1e-12, 745.0, 800.0, 1e6])
)
uniforms = st.one_of(
    st.floats(0.0, 1.0, exclude_max=True), st.sampled_from([0.0, 2.0**-53, 0.5, 1 - 2.0**-53, 1 - 1e-9])
)


@given(means, uniforms)
def test_poisson_counts_invert_the_distribution_function(mean: float, u: float) -> None:
    out = np.empty(1)
    drawing.draw_poisson(np.array([u]), np.array([mean]), 10**9, out)
    law, slack = scipy.stats.poisson(mean), 1e-12
    assert out[0] == int(out[0]) >= 0
    assert law.cdf(out[0]) >= u - slack
    assert law.cdf(out[0] - 1) <= u + slack
    if law.cdf(law.ppf(u)) - u > slack and u - law.cdf(law.ppf(u) - 1) > slack:
        assert out[0] == law.ppf(u)
    drawing.draw_poisson(np.array([u]), np.array([mean]), 3, cut := np.empty(1))
    assert cut[0] == min(out[0], 3)


@given(st.integers(1, 3000), st.one_of(st.floats(0.0, 1.0), st.sampled_from([1e-9, 1 - 1e-9])), uniforms)
def test_binomial_shares_invert_the_distribution_function(trials: int, p: float, u: float) -> None:
    out = np.empty(1)
    drawing.draw_binomial(np.array([u]), np.array([p]), trials, out)
    law, slack, count = scipy.stats.binom(trials, p), 1e-11, round(out[0] * trials)
    assert out[0] == count / trials
    assert 0 <= count <= trials
    assert law.cdf(count) >= u - slack
    assert law.cdf(count - 1) <= u + slack


@given(means, st.lists(uniforms, min_size=2, max_size=10))
def test_counts_grow_with_the_uniform(mean: float, u: list[float]) -> None:
    given = np.sort(u)
    counts, shares = np.empty(len(u)), np.empty(len(u))
    drawing.draw_poisson(given, np.full(len(u), mean), 10**9, counts)
    drawing.draw_binomial(given, np.full(len(u), mean / (1 + mean)), 50, shares)
    assert (np.diff(counts) >= 0).all()
    assert (np.diff(shares) >= 0).all()


def test_a_walk_does_what_its_formula_says() -> None:
    d, step, S, first, ids = 3, 0.4, 1.0, 11, np.array([4, 9])
    state = np.array([[0.9, 0.0, 0.1], [0.0, -0.5, 0.5]])
    theta, out = state.copy(), np.empty((40, 2, d))
    drawing.walk(first, step, S, SEED, ids, state, out)
    z = np.empty(d)
    pulled = 0
    for i in range(len(out)):
        np.testing.assert_allclose(out[i], theta, atol=1e-14)
        for lane, identity in enumerate(ids):
            drawing.normal_vector(SEED, identity, first + i, random.DRIFT, 0, z)
            moved = theta[lane] + step * z / math.sqrt(d)
            length = np.linalg.norm(moved)
            pulled += length > S
            theta[lane] = moved * min(1.0, S / length)
    np.testing.assert_allclose(state, theta, atol=1e-14)
    assert 0 < pulled < 80


def test_the_first_value_outside_is_found() -> None:
    assert drawing.first_outside(np.array([0.0, 1.0, 0.5]), 0.0, 1.0) == -1
    assert drawing.first_outside(np.array([0.0, 1.1, -3.0]), 0.0, 1.0) == 1
    assert drawing.first_outside(np.array([0.5, math.nan]), 0.0, 1.0) == 1
