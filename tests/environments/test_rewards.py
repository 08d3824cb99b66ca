"""Reward laws and delay laws: exact means and variances, bounds, inverse distributions."""

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from support.refusals import refuses
from windvane import environments as E
from windvane.links import Identity, Logistic, Poisson, Probit

N = 20_000
GRID = (np.arange(N) + 0.5) / N  # for a monotone draw within [0, m], the mean over the grid is within m/(2N)
MEANS = (0.0, 0.01, 0.3, 0.9, 1.0)
MOMENTS = [  # law, link, largest |z|, mean, variance, tolerance
    *((E.BernoulliRewards(), Logistic(), 1.0, m, m * (1 - m), 1 / N) for m in (*MEANS, 0.5)),
    *((E.BinomialRewards(k), Probit(), 3.0, m, m * (1 - m) / k, 2 / N) for k in (1, 10, 1000) for m in MEANS),
    *((E.PoissonRewards(), Poisson(), 1.0, m, m, None) for m in (0.0, 0.05, 1.0, math.e)),
]


@pytest.mark.parametrize(("law", "link", "reach", "mean", "variance", "tolerance"), MOMENTS)
def test_the_moments_of_discrete_rewards(law, link, reach, mean, variance, tolerance) -> None:
    bound = law.bind(link, reach)
    rewards, most = bound.draw(GRID, np.full(N, mean)), 2 * bound.sigma
    assert (rewards.mean(), rewards.var()) == pytest.approx((mean, variance), abs=tolerance or (most + most**2) / N)
    assert bound.draw(np.array([1 - 2.0**-53]), np.array([mean]))[0] <= most
    assert most == 1.0 or link.name == "poisson"
    if law == E.BernoulliRewards():
        np.testing.assert_array_equal(rewards, mean > GRID)


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
    with refuses("bound", value=bound - 1):
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


LAWS = [(E.GaussianRewards(), Identity()), (E.GaussianRewards(2.0, sigma=0.5), Logistic())]
LAWS += [(E.BinomialRewards(7), Logistic()), (E.PoissonRewards(), Poisson())]
uniforms = st.lists(st.floats(0, 1, exclude_max=True), min_size=2, max_size=8)


@given(st.sampled_from(LAWS), st.floats(0.05, 0.95), uniforms)
def test_rewards_grow_with_the_uniform(law: tuple[E.RewardLaw, Logistic], mean: float, u: list[float]) -> None:
    bound = law[0].bind(law[1], 1.0)
    assert (np.diff(bound.draw(np.sort(u), np.full(len(u), mean))) >= 0).all()


def test_the_rewards_of_an_environment_have_their_means() -> None:
    worlds = [(None, "logistic", 0.5), (E.GaussianRewards(0.3), "identity", 0.3)]
    worlds += [(E.BinomialRewards(4), "probit", 0.25), (None, "poisson", math.sqrt(math.e))]
    for law, link, sd in worlds:
        world = E.Environment(E.Arc(), E.BallArms(3), law, link=link, horizon=10, lanes=400)
        off = [world.reward(t, means := world.round(t).means[:, 1]) - means for t in range(1, 11)]
        assert abs(np.mean(off)) < 6 * sd / math.sqrt(4000)  # six standard errors, over 400 lanes and 10 rounds


@pytest.mark.parametrize("mean", [0.0, 0.2, 3.0, 50.0])
def test_geometric_delays(mean: float) -> None:
    law = E.GeometricDelay(mean)
    delays = law.draw(GRID)
    assert delays.dtype == np.int64
    beyond = mean / (1 + mean)  # P(delay > k) = beyond^{k+1}, and the delay is the least k with P(delay <= k) > u
    assert (1 - beyond ** (delays + 1.0) > GRID - 1e-12).all()
    assert (1 - beyond**delays <= GRID + 1e-12).all()
    assert law.draw(np.array([1 - 2.0**-53]))[0] == law.most
    short = E.GeometricDelay(mean, most=2)
    np.testing.assert_array_equal(short.draw(GRID), np.minimum(delays, 2))
    assert short.most == 2
    assert E.GeometricDelay(mean, most=law.most) == law


def test_fixed_and_uniform_delays() -> None:
    assert E.NoDelay().draw(GRID).sum() == E.NoDelay().most == 0
    assert (E.FixedDelay(4).draw(GRID) == 4).all()
    assert E.FixedDelay(4).most == 4
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
