"""Forgetting: how much is held, what leaving the rest out costs, and the sliding window."""

import math

import numpy as np
import pytest

from support import access
from support.estimators import TOLERANCE, Twin, by_link
from support.worlds import same_state


@by_link
def test_memory_is_flat_and_what_it_costs_is_bounded(link: str) -> None:
    """gamma = 0.9, one observation a round: exactly memory + 1 are held, and theta_hat stays within its bound."""
    twin = Twin(2, link, gamma=0.9)
    memory = int(twin.fast.memory[0])
    held = []
    for t in range(2500):
        twin.advance()
        twin.observe()
        held.append(int(twin.fast.remembered[0]))
        if t % 250 == 249:
            twin.check_sums()
            twin.check_root()
            assert twin.fast.truncation_error[0] > 0
    assert held[: memory + 1] == list(range(1, memory + 2))
    assert set(held[memory + 1 :]) == {memory + 1}


def test_memory_is_flat_for_several_observations_a_round() -> None:
    """Three a round weigh three times as much: kept log(3)/log(1/gamma) rounds longer, no more."""
    twin = Twin(2, gamma=0.9)
    most = twin.fast.memory[0] + math.ceil(math.log(3) / -math.log(0.9)) + 1
    for t in range(1000):
        twin.advance()
        for _ in range(3):
            twin.observe()
        assert twin.fast.remembered[0] <= 3 * (most + 1)
        if t % 200 == 199:
            twin.check_root()


def test_heavy_observations_are_kept_until_they_too_are_light() -> None:
    """Weight 1e4: at the ordinary age of forgetting it still counts, and the bound of 1e-6 holds throughout."""
    twin = Twin(2, gamma=0.9)
    memory = int(twin.fast.memory[0])
    twin.observe(weight=1e4)
    for t in range(1, 2 * memory):
        twin.advance()
        twin.observe()
        if t == memory + 20:
            assert twin.fast.remembered[0] == t + 1
        if t >= memory:
            twin.check_root()
    assert twin.fast.remembered[0] == memory + 1


@pytest.mark.parametrize("gamma", [0.5, 0.9, 0.99])
def test_a_late_observation_beyond_memory_is_ignored(gamma: float) -> None:
    """Bit for bit; it could have moved theta_hat by (1 - gamma) tolerance at most."""
    twin = Twin(2, gamma=gamma)
    twin.run(20)
    before, root = access.save(twin.fast), twin.root()
    twin.observe(age=twin.fast.memory[0] + 1)
    assert same_state(before, access.save(twin.fast))
    assert np.linalg.norm(twin.root() - root) <= (1 - gamma) * TOLERANCE


@pytest.mark.parametrize("weight", [1.0, 1e3, 1e6])
def test_a_late_observation_is_only_ignored_if_it_hardly_counts(weight: float) -> None:
    """Older than the memory but heavy: leaving it out may not move theta_hat by more than the tolerance."""
    twin = Twin(2, gamma=0.9)
    twin.run(20)
    twin.observe(age=twin.fast.memory[0] + 1, weight=weight)
    assert np.linalg.norm(access.theta_hat(twin.fast)[0] - twin.root()) <= 1.01 * TOLERANCE


def test_a_long_silence_and_a_long_run_keep_their_digits() -> None:
    """Stored weights are re-based before they overflow: gamma = 0.5 passes e^300 every 433 rounds."""
    twin = Twin(2, lanes=2, gamma=[0.5, 0.97])
    for t in range(1400):
        twin.advance()
        if t % 2 == 0:
            twin.observe()
        if t % 200 == 0:
            twin.check_sums()
            twin.check_root()
    twin.advance(5000.5)
    np.testing.assert_allclose(access.V(twin.fast), np.broadcast_to(np.eye(2), (2, 2, 2)), rtol=0, atol=1e-15)
    assert twin.fast.remembered.tolist() == [0, 0]
    for _ in range(3):
        twin.observe()
        twin.advance()
    twin.check_sums()
    twin.check_root()


def test_truncation_error_is_zero_without_forgetting() -> None:
    twin = Twin(2)
    twin.run(300)
    assert twin.fast.memory[0] == math.inf
    assert twin.fast.remembered[0] == 300
    assert twin.fast.truncation_error[0] == 0.0


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
    before = access.save(twin.fast)
    twin.observe(age=5.0)  # at the window's edge: out
    assert same_state(before, access.save(twin.fast))
    twin.observe(age=4.875)
    assert not same_state(before, access.save(twin.fast))
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
    access.load(access.make_estimator(2, window=4.0), access.save(twin.fast))


def test_a_huge_reward_leaves_a_window_without_a_trace() -> None:
    estimator = access.make_estimator(2, "identity", window=3.0)
    points = np.random.default_rng(0).uniform(-0.6, 0.6, (6, 1, 2))
    for x, reward in zip(points, [1e17, 1, 1, 1, 1, 1], strict=True):
        estimator.advance(1)
        estimator.observe(x, reward)
    np.testing.assert_allclose(access.b(estimator)[0], points[-3:, 0].sum(axis=0), rtol=1e-12)
