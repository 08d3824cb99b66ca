"""Counter-based random numbers: published vectors, the counter, and the law of the uniforms."""

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from support.access import callable_module
from support.numerics import sixty_examples
from windvane.kernels import random as random_kernels

random = callable_module(random_kernels)


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
    others = {
        "next round": np.roll(u, 1),
        "next lane": draws(seed, 1, random.TIES, n),
        "other stream": draws(seed, 0, random.REWARDS, n),
        "next seed": draws((seed + 1) % 2**64, 0, random.TIES, n),
    }
    for what, other in others.items():
        assert abs(np.mean((u - 0.5) * (other - 0.5)) * 12) <= 6 / math.sqrt(n), what


SEED = np.uint64(20240817)
UNLIKELY = 1e-6  # a p-value below it is taken as a failure


def test_every_part_of_the_counter_counts() -> None:
    base = (3, 17, random.ARMS, 5)
    others = [
        (4, 17, random.ARMS, 5),
        (3, 18, random.ARMS, 5),
        (3, 17 + 2**32, random.ARMS, 5),
        (3, 17, random.DRIFT, 5),
        (3, 17, random.ARMS, 6),
        (3, 17, random.ARMS, random.LARGEST_BLOCK),
    ]
    seen = {random.uniform_pair(SEED, *key) for key in (base, *others)} | {random.uniform_pair(SEED + 1, *base)}
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
