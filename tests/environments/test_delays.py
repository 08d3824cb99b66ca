"""Delay laws."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

from windvane import environments as E

N = 20_000
GRID = (np.arange(N) + 0.5) / N  # for a monotone draw within [0, m], the mean over the grid is within m/(2N)


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
