"""The sliding window over long runs."""

from __future__ import annotations

import numpy as np
import pytest

from support import access
from support.estimators import Twin
from support.worlds import same_state


@pytest.mark.parametrize(("window", "rounds"), [(7.0, 1600), (7.5, 1600), (1200.0, 2700)])
def test_a_window_over_many_removals(window: float, rounds: int) -> None:
    """Beyond 1024 removals (or as many as are held) the sums are rebuilt; before, at and after that they are exact."""
    twin = Twin(2, window=window)
    for t in range(rounds):
        twin.advance()
        twin.observe(age=float(t % 3), weight=1.0 + t % 2)
        if t % (rounds // 8) == 0 or 1020 <= t - window <= 1030:
            twin.check_sums()
    twin.check_root()


def test_a_window_takes_late_rewards_within_it_only() -> None:
    twin = Twin(2, window=5.0)
    for _ in range(20):
        twin.advance()
        twin.observe(age=float(twin.rng.integers(0, 10)))
    before = twin.fast.state()
    twin.observe(age=5.0)  # at the window's edge: out
    assert same_state(before, twin.fast.state())
    twin.observe(age=4.875)
    assert not same_state(before, twin.fast.state())
    twin.check_sums()
    twin.check_root()


def test_an_emptied_window_knows_nothing() -> None:
    twin = Twin(3, window=4.0, lam=0.5)
    twin.run(30, weight=100.0)
    twin.advance(4.0)
    assert twin.fast.remembered[0] == 0
    np.testing.assert_allclose(access.V(twin.fast)[0], 0.5 * np.eye(3), rtol=0, atol=1e-11)
    np.testing.assert_allclose(access.theta_hat(twin.fast), 0.0, rtol=0, atol=1e-10)


@pytest.mark.parametrize("weight", [1e3, 1e8, 1e12])
def test_a_heavy_observation_leaves_the_window_without_a_trace(weight: float) -> None:
    """Weights up to 1e12 are allowed; subtracting one again must not leave its rounding in V and b."""
    twin = Twin(2, window=4.0)
    twin.observe(weight=weight)
    twin.run(6)
    twin.check_sums()
    twin.check_root()
    access.make_estimator(2, window=4.0).load_state(twin.fast.state())


def test_a_huge_reward_leaves_a_window_without_a_trace() -> None:
    estimator = access.make_estimator(2, "identity", window=3.0)
    points = np.random.default_rng(0).uniform(-0.6, 0.6, (6, 1, 2))
    for x, reward in zip(points, [1e17, 1, 1, 1, 1, 1], strict=True):
        estimator.advance(1)
        estimator.observe(x, reward)
    np.testing.assert_allclose(access.b(estimator)[0], points[-3:, 0].sum(axis=0), rtol=1e-12)
