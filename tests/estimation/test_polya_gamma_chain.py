"""The Gibbs sampler of Bayesian logistic regression: against quadrature of the posterior, for any weights."""

import numpy as np
import pytest
from scipy import stats

from support import access
from support.worlds import ball
from windvane import state
from windvane.estimation.polya_gamma import PolyaGammaChain
from windvane.state import CoordinateChange

P_VALUE = 1e-6
LANES = 3000


def learn(chain: PolyaGammaChain, X: np.ndarray, r: np.ndarray, w: np.ndarray) -> None:
    """The same observations in every lane."""
    n, ones = chain.lanes, np.ones(chain.lanes)
    for x, reward, weight in zip(X, r, w, strict=True):
        chain.absorb(np.tile(x, (n, 1)), reward * ones, 0.0 * ones, weight * ones, ones > 0)


def log_posterior(theta: np.ndarray, X: np.ndarray, r: np.ndarray, w: np.ndarray, lam: float) -> np.ndarray:
    z = theta @ X.T
    return (z * (w * r) - w * np.logaddexp(0.0, z)).sum(axis=-1) - 0.5 * lam * (theta**2).sum(axis=-1)


@pytest.mark.parametrize(
    ("weights", "lam", "reach"),
    [
        ([1.0], 1.0, 2.0), ([1.0], 0.01, 1.0), ([3.0, 1.0, 16.0], 0.3, 2.0), ([0.25, 0.5], 0.3, 3.0),
        ([0.3, 2.5, 0.05], 0.05, 12.0), ([1e3, 0.2, 17.0], 0.3, 1.0), ([0.4], 0.002, 40.0), ([1e-3], 1e-5, 1.0),
    ],
)  # fmt: skip
def test_in_one_dimension_the_samples_are_those_of_the_posterior(
    weights: list[float], lam: float, reach: float
) -> None:
    """Independent chains of 80 sweeps. The last case, where |z| is large, fails without Metropolis and Hastings."""
    rng = np.random.default_rng(len(weights))
    X, r = rng.uniform(-reach, reach, (14, 1)), np.round(rng.random(14), 1)
    w = np.resize(weights, 14)
    chain = PolyaGammaChain(1, lam=lam, lanes=LANES)
    learn(chain, X, r, w)
    theta, mean, _ = chain.sample(np.uint64(3), np.arange(LANES), decision=0, sweeps=80)
    grid = np.linspace(-60.0, 60.0, 600_001) / min(1.0, 10.0 * np.sqrt(lam))  # six deviations of a prior
    density = log_posterior(grid[:, None], X, r, w, lam)
    p = np.exp(density - density.max())
    share = np.cumsum(p)
    assert stats.kstest(theta[:, 0], lambda t: np.interp(t, grid, share / share[-1])).pvalue > P_VALUE
    if all(
        weight in (1.0, 3.0, 16.0) for weight in weights
    ):  # nothing is rejected: the mean of the normals is the same
        error = mean[:, 0].std(ddof=1) / np.sqrt(LANES)
        assert 2 * stats.norm.sf(abs(mean[:, 0].mean() - grid @ p / p.sum()) / error) > P_VALUE


def test_in_two_dimensions_the_moments_are_those_of_the_posterior() -> None:
    rng = np.random.default_rng(5)
    X, r, w = ball(rng, (40,), 2, 3.0), (rng.random(40) < 0.4).astype(float), np.ones(40)
    chain = PolyaGammaChain(2, lam=0.5, lanes=LANES)
    learn(chain, X, r, w)
    theta, *_ = chain.sample(np.uint64(1), np.arange(LANES), decision=4, sweeps=60)
    axis = np.linspace(-6.0, 6.0, 601)
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    density = log_posterior(grid, X, r, w, 0.5)
    p = np.exp(density - density.max())
    p /= p.sum()
    for moment in (lambda t: t[:, 0], lambda t: t[:, 1], lambda t: t[:, 0] * t[:, 1], lambda t: t[:, 1] ** 2):
        values, expected = moment(theta), p @ moment(grid)
        assert 2 * stats.norm.sf(abs(values.mean() - expected) / (values.std(ddof=1) / np.sqrt(LANES))) > P_VALUE


def test_without_rewards_it_samples_the_prior() -> None:
    chain = PolyaGammaChain(2, lam=4.0, lanes=LANES)
    theta, mean, _ = chain.sample(np.uint64(0), np.arange(LANES), decision=0, sweeps=1)
    assert not mean.any()
    for i in range(2):
        assert stats.kstest(2.0 * theta[:, i], "norm").pvalue > P_VALUE
    forecast = chain.forecast(np.uint64(0), np.arange(LANES), decision=0, sweeps=1, draws=2)
    assert abs(np.corrcoef(forecast[:, 0, 0], theta[:, 0])[0, 1]) < 5.5 / np.sqrt(LANES)
    assert abs(np.corrcoef(forecast[:, 0, 0], forecast[:, 1, 0])[0, 1]) < 5.5 / np.sqrt(LANES)


def test_memory_grows_and_blocks_of_the_history_do_not_matter() -> None:
    """More rewards than a block of the sums: the mean given omega is the solution of the normal equations."""
    rng, chain = np.random.default_rng(2), PolyaGammaChain(3, lam=1.0)
    X, r = ball(rng, (1300,), 3), (rng.random(1300) < 0.5).astype(float)
    learn(chain, X, r, np.ones(1300))
    assert chain.remembered.tolist() == [1300]
    theta, mean, precision = chain.sample(np.uint64(0), np.array([0]), decision=0, sweeps=30)
    np.testing.assert_array_equal(precision, precision.transpose(0, 2, 1))
    np.testing.assert_allclose(precision[0] @ mean[0], X.T @ (r - 0.5), atol=1e-9)
    information = X.T @ X / 4 + np.eye(3)  # of about 1/4 each, because theta is small
    score = X.T @ (r - 1 / (1 + np.exp(-X @ mean[0]))) - mean[0]
    assert np.sqrt(score @ np.linalg.solve(information, score)) < 1.0  # near the mode, in standard deviations
    assert np.linalg.norm(theta - mean) < 1.0


def test_other_coordinates_continue_the_chain() -> None:
    rng, change = np.random.default_rng(4), CoordinateChange(np.array([1, -1, 0]), 2.0)
    old, new = PolyaGammaChain(2, lam=0.5), PolyaGammaChain(3, lam=2.0)
    fed = PolyaGammaChain(3, lam=2.0)
    X, r = ball(rng, (30,), 2), (rng.random(30) < 0.7).astype(float)
    learn(old, X, r, np.ones(30))
    learn(fed, change.move(X, 2.0), r, np.ones(30))
    old.keep(np.array([[0.3, -0.4]]))
    fed.keep(np.array([[-0.2, 0.0, 0.15]]))
    state.swap(state.check(new, state.map_state(old, new, change)))
    place = {"decision": 3, "sweeps": 4}
    for one, two in zip(*(c.sample(np.uint64(1), np.array([2]), **place) for c in (new, fed)), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-9)


def test_a_state_continues_bit_for_bit() -> None:
    rng, chain = np.random.default_rng(6), PolyaGammaChain(2)
    learn(chain, ball(rng, (9,), 2), np.ones(9), np.resize([1.0, 0.5], 9))
    chain.keep(chain.sample(np.uint64(1), np.array([0]), decision=0, sweeps=2)[0])
    twin = PolyaGammaChain(2)
    access.load(twin, state.save(chain))
    for one, two in zip(
        *(c.sample(np.uint64(1), np.array([0]), decision=1, sweeps=3) for c in (chain, twin)), strict=True
    ):
        np.testing.assert_array_equal(one, two)
