"""Bounded memory: how much is held, and what leaving the rest out costs."""

from __future__ import annotations

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
    before, root = twin.fast.state(), twin.root()
    twin.observe(age=twin.fast.memory[0] + 1)
    assert same_state(before, twin.fast.state())
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
