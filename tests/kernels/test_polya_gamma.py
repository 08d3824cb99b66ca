"""Polya-Gamma numbers: against the package ``polyagamma``, closed forms, and limits; and how they are addressed."""

import math

import numpy as np
import polyagamma
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from naive import Uniforms, naive_polya_gamma
from windvane.kernels import polya_gamma
from windvane.kernels.jit import callable_kernel
from windvane.kernels.random import LARGEST_BLOCK

P_VALUE = 1e-6
draw_one = callable_kernel(polya_gamma.draw_polya_gamma)
draw_omega = callable_kernel(polya_gamma.draw_omega)
correct = callable_kernel(polya_gamma.correct)
next_uniform = callable_kernel(polya_gamma.next_uniform)


def draw(z: float, n: int, seed: int = 0, weight: float | None = None) -> np.ndarray:
    """n numbers from one source."""
    source, out = np.zeros(4), np.empty(n)
    for i in range(n):
        place = np.uint64(seed), 0, 0, source
        out[i] = draw_one(*place, z) if weight is None else draw_omega(*place, weight, z)
    return out


def mean_of(b: float, z: float) -> float:
    return b / 4 if z == 0 else b * math.tanh(z / 2) / (2 * z)


def variance_of(b: float, z: float) -> float:
    if abs(z) < 1e-3:
        return b / 24
    if abs(z) > 700:
        return b / (2 * abs(z) ** 3)
    return b * (math.sinh(z) - z) / (4 * z**3 * math.cosh(z / 2) ** 2)


@pytest.mark.parametrize("z", [0.0, 1e-8, 0.4, -1.0, 2.5, 3.12, 3.13, -6.0, 15.0, 39.9, 40.1, 150.0])
def test_the_same_law_as_the_package(z: float) -> None:
    """An independent implementation with another source of randomness. (It is wrong for |z| above 177.)"""
    n = 20_000
    ours, theirs = draw(z, n), polyagamma.random_polyagamma(1, z, size=n, random_state=np.random.default_rng(3))
    assert stats.ks_2samp(ours, theirs).pvalue > P_VALUE


@pytest.mark.parametrize("z", [0.0, 0.7, -2.0, 3.125, 8.0, 41.0, 300.0, 1e3, -1e6])
def test_mean_and_variance(z: float) -> None:
    n = 20_000
    drawn = draw(z, n, seed=1)
    mean, variance = mean_of(1.0, z), variance_of(1.0, z)
    standard = (drawn - mean) / math.sqrt(variance)  # in these units, a mean of n has the standard error 1 / sqrt(n)
    assert 2 * stats.norm.sf(abs(standard.mean()) * math.sqrt(n)) > P_VALUE
    kurtosis = float((standard**4).mean())
    assert 2 * stats.norm.sf(abs((standard**2).mean() - 1) / math.sqrt((kurtosis - 1) / n)) > P_VALUE


@pytest.mark.parametrize("z", [0.0, 1.3, 3.1, 20.0])
@pytest.mark.parametrize("s", [0.3, 2.0, 30.0])
def test_the_laplace_transform(z: float, s: float) -> None:
    """E exp(-s omega) = cosh(z / 2) / cosh(sqrt(z^2 / 4 + s / 2))."""
    values = np.exp(-s * draw(z, 20_000, seed=2))
    expected = math.cosh(z / 2) / math.cosh(math.sqrt(z**2 / 4 + s / 2))
    error = values.std(ddof=1) / math.sqrt(len(values))
    assert 2 * stats.norm.sf(abs(values.mean() - expected) / error) > P_VALUE


@pytest.mark.parametrize("z", [200.0, 1e4, 1e8])
def test_for_a_large_z_it_is_inverse_gaussian(z: float) -> None:
    """4 omega has mean 2 / |z| and shape 1 up to terms of order exp(-|z|)."""
    drawn = 4.0 * draw(z, 5000, seed=3)
    assert stats.kstest(drawn, stats.invgauss(mu=2.0 / z, scale=1.0).cdf).pvalue > P_VALUE


@settings(deadline=None, max_examples=60)
@given(st.floats(-80, 80), st.integers(0, 2**32 - 1), st.integers(0, 2**40))
def test_the_plain_sampler_takes_the_same_numbers(z: float, lane: int, decision: int) -> None:
    random, source = Uniforms(11, lane, decision), np.zeros(4)
    for _ in range(3):
        expected = naive_polya_gamma(z, random)
        assert draw_one(np.uint64(11), lane, decision, source, z) == pytest.approx(expected, rel=1e-9)


@settings(deadline=None, max_examples=100)
@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(0, 2**32 - 1))
def test_a_number_is_positive_and_finite_for_any_z(z: float, lane: int) -> None:
    if abs(z) < 1e150:
        omega = draw_one(np.uint64(0), lane, 0, np.zeros(4), z)
        assert 0.0 < omega < 20.0  # P(PG(1, z) > 20) < 4 exp(-pi^2 20 / 2) = 5e-43


def test_numbers_continue_beyond_the_blocks_of_a_decision() -> None:
    """The block has 24 bits; what follows uses other bits, and repeats nothing."""
    seen = set()
    for first in (0, LARGEST_BLOCK - 1, LARGEST_BLOCK, LARGEST_BLOCK + 1, 2**30, polya_gamma.FORECAST):
        source = np.array([float(first), 0.0, 0.0, 0.0])
        seen |= {next_uniform(np.uint64(5), 3, 17, source) for _ in range(6)}
    assert len(seen) == 2 * (3 + 5 + 3 + 3)  # two in a block; the three that begin around LARGEST_BLOCK overlap


@pytest.mark.parametrize("weight", [0.0625, 0.3, 2.5, 17.0, 1e3, 1e12])
@pytest.mark.parametrize("z", [0.0, 1.0, 5.0])
def test_the_terms_of_a_weight_that_is_not_a_number_of_draws(weight: float, z: float) -> None:
    """PG(b, z) with its series cut after TERMS: the mean is that of the terms and of the rest at z = 0."""
    n = 4000
    drawn = draw(z, n, seed=4, weight=weight)
    poles = (math.pi * (2 * np.arange(polya_gamma.TERMS) + 1)) ** 2
    mean = 2 * weight * (np.sum(1 / (poles + z**2)) + 1 / 8 - np.sum(1 / poles))
    error = drawn.std(ddof=1) / math.sqrt(n)
    assert 2 * stats.norm.sf(abs(drawn.mean() - mean) / error) > P_VALUE
    assert drawn.std() == pytest.approx(math.sqrt(4 * weight * np.sum(1 / (poles + z**2) ** 2)), rel=0.5)


@settings(deadline=None, max_examples=100)
@given(st.floats(-200, 200))
def test_the_correction_is_what_the_terms_leave_out(z: float) -> None:
    """log of prod over k > TERMS of e^(z^2 / a_k) / (1 + z^2 / a_k), from 10^5 further terms and their tail."""
    k = np.arange(polya_gamma.TERMS, 200_000)
    u = z**2 / (math.pi * (2 * k + 1)) ** 2
    assert correct(z) == pytest.approx(np.sum(u - np.log1p(u)), rel=1e-6, abs=1e-11)
    assert correct(z) >= -1e-13
