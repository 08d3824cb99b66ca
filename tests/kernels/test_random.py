"""Counter-based random numbers, and the loops behind environments: circles, normals, walks, inverse distributions."""

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from support.access import callable_module
from support.numerics import sixty_examples
from windvane.kernels import drawing as drawing_kernels
from windvane.kernels import random as random_kernels

drawing, random = callable_module(drawing_kernels), callable_module(random_kernels)
SEED = np.uint64(20240817)
UNLIKELY = 1e-6  # a p-value below it is taken as a failure
PUBLISHED = [  # the known-answer vectors of Random123 for philox4x32-10: counter and key, answer
    ("00000000 00000000 00000000 00000000 00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344 a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


@pytest.mark.parametrize(("counter_and_key", "expected"), PUBLISHED)
def test_philox_gives_the_published_answers(counter_and_key: str, expected: str) -> None:
    words = [np.uint64(int(word, 16)) for word in counter_and_key.split()]
    assert [int(word) for word in random.philox(*words)] == [int(word, 16) for word in expected.split()]


@sixty_examples
@given(
    seed=st.integers(0, 2**64 - 1),
    lane=st.integers(0, 2**32 - 1),
    moment=st.integers(0, 2**63 - 1),
    stream=st.sampled_from([random.TIES, random.REWARDS, random.DELAYS]),
)
def test_uniform_is_the_first_53_bits_of_philox(seed: int, lane: int, moment: int, stream: int) -> None:
    """Counter (round low, round high, lane, stream) under the key (seed low, seed high); a value in [0, 1)."""
    low = 2**32 - 1
    words = [moment & low, moment >> 32, lane, stream, seed & low, seed >> 32]
    first, second, _, _ = (int(word) for word in random.philox(*map(np.uint64, words)))
    value = random.uniform(np.uint64(seed), lane, moment, stream)
    assert value == ((first << 21) | (second >> 11)) / 2**53
    assert 0.0 <= value < 1.0
    pair = random.uniform_pair(np.uint64(seed), lane, moment, stream, 0)
    assert value == pair[0] != pair[1]


def draws(seed: int, lane: int, stream: int, n: int) -> np.ndarray:
    key = np.uint64(seed)
    return np.array([random.uniform(key, lane, moment, stream) for moment in range(n)])


@pytest.mark.parametrize("seed", [0, 1, 2**64 - 1])
def test_uniforms_are_uniform_and_independent(seed: int) -> None:
    """1e5 draws: moments, distribution and correlations within six standard errors (two in a billion each)."""
    n = 100_000
    u = draws(seed, 0, random.TIES, n)
    assert u.min() >= 0.0
    assert u.max() < 1.0
    assert abs(u.mean() - 1 / 2) <= 6 * math.sqrt(1 / 12 / n)
    assert abs(((u - 0.5) ** 2).mean() - 1 / 12) <= 6 * math.sqrt(1 / 180 / n)
    counts = np.bincount((u * 64).astype(int), minlength=64)
    assert abs(((counts - n / 64) ** 2).sum() / (n / 64) - 63) <= 6 * math.sqrt(2 * 63)
    others = {"next round": np.roll(u, 1), "next seed": draws((seed + 1) % 2**64, 0, random.TIES, n)}
    others |= {"next lane": draws(seed, 1, random.TIES, n), "other stream": draws(seed, 0, random.REWARDS, n)}
    for what, other in others.items():
        assert abs(np.mean((u - 0.5) * (other - 0.5)) * 12) <= 6 / math.sqrt(n), what


def test_every_part_of_the_counter_counts() -> None:
    base = (3, 17, random.ARMS, 5)
    others = [(0, 4), (1, 18), (1, 17 + 2**32), (2, random.DRIFT), (3, 6), (3, random.LARGEST_BLOCK)]
    keys = [base, *((*base[:part], value, *base[part + 1 :]) for part, value in others)]
    seen = {random.uniform_pair(SEED, *key) for key in keys} | {random.uniform_pair(SEED + 1, *base)}
    assert len(seen) == len(others) + 2


def test_uniform_pairs_are_uniform_and_independent() -> None:
    u = np.array([random.uniform_pair(SEED, 5, 1 + i // 10, random.ARMS, i % 10) for i in range(4000)])
    assert (u >= 0).all()
    assert (u < 1).all()
    for column in u.T:
        assert scipy.stats.kstest(column, "uniform").pvalue > UNLIKELY
    assert scipy.stats.pearsonr(*u.T).pvalue > UNLIKELY
    cells = np.histogram2d(*u.T, bins=8, range=[[0, 1], [0, 1]])[0]
    assert scipy.stats.chisquare(cells.ravel()).pvalue > UNLIKELY


@given(st.integers(0, 2**53 - 1))
def test_circle_points_are_cosine_and_sine(numerator: int) -> None:
    turn = numerator / 2**53
    c, s = drawing.circle_point(turn)
    quarters = round(4 * turn)
    rest = (4 * turn - quarters) * math.pi / 2  # reduced exactly: cos(2 pi turn) itself would lose digits near 1
    exact = complex(math.cos(rest), math.sin(rest)) * 1j**quarters
    assert abs(complex(c, s) - exact) <= 4e-16


def test_exact_points() -> None:
    """Quarters of the circle; no uniform makes an infinite or a zero exponential; what lies outside is found."""
    assert [drawing.circle_point(turn) for turn in (0.0, 0.25, 0.5, 0.75)] == [(1, 0), (0, 1), (-1, 0), (0, -1)]
    assert 0 < drawing.exponential_variate(0.0) < 1e-15
    assert drawing.exponential_variate(1 - 2.0**-53) < 40
    assert drawing.first_outside(np.array([0.0, 1.0, 0.5]), 0.0, 1.0) == -1
    assert drawing.first_outside(np.array([0.0, 1.1, -3.0]), 0.0, 1.0) == 1
    assert drawing.first_outside(np.array([0.5, math.nan]), 0.0, 1.0) == 1


@pytest.mark.parametrize("d", [1, 2, 3, 4, 7])
def test_normal_vectors_are_normal(d: int) -> None:
    # normals by twos, and one block for the radius: the last that an arm may use comes before the next arm's first
    assert all(drawing.blocks_of(dim) >= (dim + 1) // 2 + 1 for dim in range(1, 30))
    z = np.empty((4000, d))
    for i, row in enumerate(z):
        square = drawing.normal_vector(SEED, 1, i, random.DRIFT, 3, row)
        assert square == pytest.approx(row @ row, rel=1e-14)
    for column in z.T:
        assert scipy.stats.kstest(column, "norm").pvalue > UNLIKELY
    assert scipy.stats.kstest(np.square(z).sum(axis=1), "chi2", (d,)).pvalue > UNLIKELY


special_means, ends = [0.0, 1.0, 5.0, 1e-12, 745.0, 800.0, 1e6], [0.0, 2.0**-53, 0.5, 1 - 2.0**-53, 1 - 1e-9]
means = st.one_of(st.floats(0.0, 30.0), st.floats(30.0, 1e4), st.sampled_from(special_means))
uniforms = st.one_of(st.floats(0.0, 1.0, exclude_max=True), st.sampled_from(ends))


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
    counts, shares = np.empty((2, len(u)))
    drawing.draw_poisson(np.sort(u), np.full(len(u), mean), 10**9, counts)
    drawing.draw_binomial(np.sort(u), np.full(len(u), mean / (1 + mean)), 50, shares)
    assert (np.diff([counts, shares]) >= 0).all()


def test_a_walk_does_what_its_formula_says() -> None:
    d, step, S, first, ids = 3, 0.4, 1.0, 11, np.array([4, 9])
    state = np.array([[0.9, 0.0, 0.1], [0.0, -0.5, 0.5]])
    theta, out = state.copy(), np.empty((40, 2, d))
    drawing.walk(first, step, S, SEED, ids, state, out)
    z, pulled = np.empty(d), 0
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
