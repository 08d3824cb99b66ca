"""Reward laws and delay laws: exact means and variances, bounds, inverse distributions, refusals."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from windvane import Identity, Logistic, Poisson, Probit
from windvane import environments as E
from windvane.errors import ArgumentError

N = 20_000
GRID = (np.arange(N) + 0.5) / N  # for a monotone draw within [0, m], the mean over the grid is within m/(2N)


def moments(bound: E.BoundRewards, mean: float) -> tuple[float, float]:
    rewards = bound.draw(GRID, np.full(N, mean))
    return float(rewards.mean()), float(rewards.var())


@pytest.mark.parametrize("mean", [0.0, 0.01, 0.3, 0.5, 0.9, 1.0])
def test_bernoulli_rewards(mean: float) -> None:
    bound = E.BernoulliRewards().bind(Logistic(), 1.0)
    rewards = bound.draw(GRID, np.full(N, mean))
    np.testing.assert_array_equal(rewards, mean > GRID)
    assert moments(bound, mean) == pytest.approx((mean, mean * (1 - mean)), abs=1 / N)
    assert bound.sigma == 0.5


@pytest.mark.parametrize("trials", [1, 10, 1000])
@pytest.mark.parametrize("mean", [0.0, 0.01, 0.3, 0.9, 1.0])
def test_binomial_rewards(trials: int, mean: float) -> None:
    bound = E.BinomialRewards(trials).bind(Probit(), 3.0)
    assert moments(bound, mean) == pytest.approx((mean, mean * (1 - mean) / trials), abs=2 / N)
    assert bound.sigma == 0.5


@pytest.mark.parametrize("mean", [0.0, 0.05, 1.0, math.e])
def test_poisson_rewards(mean: float) -> None:
    bound = E.PoissonRewards().bind(Poisson(), 1.0)
    most = 2 * bound.sigma
    assert moments(bound, mean) == pytest.approx((mean, mean), abs=(most + most**2) / N)
    assert bound.draw(np.array([1 - 2.0**-53]), np.array([mean]))[0] <= most


@pytest.mark.parametrize("z", [1e-3, 0.5, 1.0, 3.0, 6.0, 13.0])
def test_the_default_bound_of_counts_is_the_smallest_allowed_one(z: float) -> None:
    mean = math.exp(z)
    bound = round(2 * E.PoissonRewards().bind(Poisson(), z).sigma)
    counts = np.arange(bound - 1, bound + 2000 + round(20 * math.sqrt(mean)))
    above = scipy.stats.poisson(mean).pmf(counts)

    def shift(b: int) -> float:
        return float(np.sum(np.maximum(counts - b, 0) * above))

    assert shift(bound) < 1e-6 <= shift(bound - 1)
    assert E.PoissonRewards(bound).bind(Poisson(), z).sigma == bound / 2
    assert E.PoissonRewards(bound + 7).bind(Poisson(), z).sigma == (bound + 7) / 2
    with pytest.raises(ArgumentError, match=f"`bound` must be at least {bound}"):
        E.PoissonRewards(bound - 1).bind(Poisson(), z)


@pytest.mark.parametrize("mean", [-1.0, 0.0, 0.7])
def test_gaussian_rewards_where_any_reward_goes(mean: float) -> None:
    bound = E.GaussianRewards(sd=0.3).bind(Identity(), 1.0)
    rewards = bound.draw(GRID, np.full(N, mean))
    np.testing.assert_allclose(rewards, mean + 0.3 * scipy.stats.norm.ppf(GRID), atol=1e-12)
    assert bound.sigma == 0.3
    ends = bound.draw(np.array([0.0, 1 - 2.0**-53]), np.full(2, mean))
    assert np.isfinite(ends).all()
    assert ends[0] < rewards[0] < rewards[-1] < ends[1]


@pytest.mark.parametrize("sd", [0.01, 0.5, 20.0])
@pytest.mark.parametrize("mean", [0.0, 0.02, 0.4, 0.73, 1.0])
def test_gaussian_rewards_within_bounds_have_the_exact_mean(sd: float, mean: float) -> None:
    bound = E.GaussianRewards(sd, sigma=0.5).bind(Logistic(), 1.0)
    rewards = bound.draw(GRID, np.full(N, mean))
    assert rewards.min() >= 0
    assert rewards.max() <= 1
    assert (np.diff(rewards) >= 0).all()
    np.testing.assert_allclose(rewards + rewards[::-1], 2 * mean, atol=1e-13)  # symmetric, so the mean is exact
    a = min(mean, 1 - mean) / sd
    if a > 0:
        law = scipy.stats.truncnorm(-a, a, loc=mean, scale=sd)
        np.testing.assert_allclose(rewards, law.ppf(GRID), atol=1e-9)
        assert rewards.var() == pytest.approx(law.var(), abs=1 / N)
    assert bound.sigma == 0.5


@given(
    st.sampled_from(
        [
            (E.GaussianRewards(), Identity()),
            (E.GaussianRewards(2.0, sigma=0.5), Logistic()),
            (E.BinomialRewards(7), Logistic()),
            (E.PoissonRewards(), Poisson()),
        ]
    ),
    st.floats(0.05, 0.95),
    st.lists(st.floats(0, 1, exclude_max=True), min_size=2, max_size=8),
)
def test_rewards_grow_with_the_uniform(law: tuple[E.RewardLaw, Logistic], mean: float, u: list[float]) -> None:
    bound = law[0].bind(law[1], 1.0)
    assert (np.diff(bound.draw(np.sort(u), np.full(len(u), mean))) >= 0).all()


def test_the_rewards_of_an_environment_have_their_means() -> None:
    """Over 400 lanes and 10 rounds the mean of (reward - mean) is within six standard errors of 0."""
    for law, link, sd in (
        (None, "logistic", 0.5),
        (E.GaussianRewards(0.3), "identity", 0.3),
        (E.BinomialRewards(4), "probit", 0.25),
        (None, "poisson", math.sqrt(math.e)),
    ):
        world = E.Environment(E.Arc(), E.BallArms(3), law, link=link, horizon=10, lanes=400)
        off = [world.reward(t, means) - means for t, means in ((t, world.round(t).means[:, 1]) for t in range(1, 11))]
        assert abs(np.mean(off)) < 6 * sd / math.sqrt(4000)


@pytest.mark.parametrize(
    ("make", "argument"),
    [
        (lambda: E.BernoulliRewards().bind(Poisson(), 1.0), "rewards"),
        (lambda: E.BernoulliRewards().bind(Identity(), 0.5), "rewards"),
        (lambda: E.BinomialRewards().bind(Poisson(), 1.0), "rewards"),
        (lambda: E.PoissonRewards().bind(Identity(), 1.0), "rewards"),
        (lambda: E.PoissonRewards().bind(Poisson(), 20.0), "rewards"),
        (lambda: E.GaussianRewards().bind(Logistic(), 1.0), "sigma"),
        (lambda: E.GaussianRewards(sigma=0.5).bind(Identity(), 1.0), "sigma"),
        (lambda: E.GaussianRewards(sigma=0.3).bind(Logistic(), 1.0), "rewards"),
        (lambda: E.GaussianRewards(sd=0.0), "sd"),
        (lambda: E.GaussianRewards(sigma=-1), "sigma"),
        (lambda: E.BinomialRewards(0), "trials"),
        (lambda: E.PoissonRewards(0), "bound"),
        (lambda: E.PoissonRewards(2.5), "bound"),
        (lambda: E.FixedDelay(-1), "rounds"),
        (lambda: E.GeometricDelay(-0.5), "mean"),
        (lambda: E.GeometricDelay(2.0, most=-1), "most"),
        (lambda: E.UniformDelay(3, 2), "most"),
        (lambda: E.UniformDelay(-1, 2), "least"),
    ],
)
def test_bad_arguments_are_refused_in_one_line_that_names_them(make: object, argument: str) -> None:
    with pytest.raises(ArgumentError) as refusal:
        make()  # type: ignore[operator]
    assert argument == re.match(r"\w+", refusal.value.argument)[0]
    assert "\n" not in str(refusal.value)


# --- delays ---------------------------------------------------------------------------------------------------------


def test_delays_without_chance() -> None:
    assert E.NoDelay().draw(GRID).sum() == E.NoDelay().most == 0
    assert (E.FixedDelay(4).draw(GRID) == 4).all()
    assert E.FixedDelay(4).most == 4


@pytest.mark.parametrize("mean", [0.0, 0.2, 3.0, 50.0])
def test_geometric_delays(mean: float) -> None:
    law = E.GeometricDelay(mean)
    delays = law.draw(GRID)
    assert delays.dtype == np.int64
    beyond = mean / (1 + mean)  # P(delay > k) = beyond^{k+1}, and the delay is the least k with P(delay <= k) > u
    assert (1 - beyond ** (delays + 1.0) > GRID - 1e-12).all()
    assert (1 - beyond**delays <= GRID + 1e-12).all()
    largest = law.draw(np.array([1 - 2.0**-53]))
    assert largest[0] == law.most
    short = E.GeometricDelay(mean, most=2)
    np.testing.assert_array_equal(short.draw(GRID), np.minimum(delays, 2))
    assert short.most == 2
    assert E.GeometricDelay(mean, most=law.most) == law


def test_uniform_delays() -> None:
    delays = E.UniformDelay(2, 6).draw(GRID)
    np.testing.assert_array_equal(np.bincount(delays), [0, 0] + [N // 5] * 5)
    assert (E.UniformDelay(3, 3).draw(GRID) == 3).all()


def test_an_environment_delays_by_its_law_and_by_numbers_of_their_own() -> None:
    def world(delay: E.DelayLaw | None) -> E.Environment:
        return E.Environment(E.Static(), E.BallArms(), delay=delay, horizon=9, lanes=300)

    late = world(E.UniformDelay(0, 3))
    assert world(None).delays(4) is None
    assert world(E.NoDelay()).delays(4).tolist() == [0] * 300  # type: ignore[union-attr]
    delays = np.array([late.delays(t) for t in range(1, 10)])
    assert scipy.stats.chisquare(np.bincount(delays.ravel())).pvalue > 1e-6
    # the delay tells nothing about the reward
    rewards = np.array([late.reward(t, np.full(300, 0.5)) for t in range(1, 10)])
    assert scipy.stats.pearsonr(delays.ravel(), rewards.ravel()).pvalue > 1e-6
    np.testing.assert_array_equal(rewards[3], world(None).reward(4, np.full(300, 0.5)))
