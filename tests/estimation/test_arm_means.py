"""Means by arm against sums over all rewards, the error of long windows, other arms, and states that are refused."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.numerics import sixty_examples
from support.refusals import refuses
from windvane import Discount, Never, RidgeEstimator, Window
from windvane.estimation.arm_means import ArmMeans
from windvane.state import CoordinateChange, check, map_state, save, swap

K = 4
RULES = [Never(), Discount(0.9), Discount([0.3, 1.0]), Window(3.0), Window([2.5, 40.0])]


class Sums:
    """The same from all rewards of a lane: (decision time, arm, weight, reward)."""

    def __init__(self, gamma: float, window: float) -> None:
        self.gamma, self.window, self.now = gamma, window, 0.0
        self.rewards: list[tuple[float, int, float, float]] = []

    def sums(self) -> np.ndarray:
        """N and b of every arm."""
        total = np.zeros((2, K))
        for time, arm, weight, reward in self.rewards:
            age = self.now - time
            aged = weight * self.gamma**age if age < self.window else 0.0
            total[:, arm] += aged, aged * reward
        return total


def learn(means: ArmMeans, sums: list[Sums], rng: np.random.Generator, rounds: int, scale: float = 1.0) -> None:
    """Let time pass and learn rewards of any age and weight, some of them masked or of weight 0."""
    for _ in range(rounds):
        gap = float(rng.choice([0.0, 0.375, 1.0, 1.0, 2.5]))
        means.age(gap)
        for lane in sums:
            lane.now += gap
        arm, reward = rng.integers(K, size=2), scale * rng.normal(size=2)
        age, weight = rng.choice([0.0, 0.0, 0.5, 3.0, 7.0], size=2), rng.choice([0.0, 1.0, 1.0, 0.3, 2.0], size=2)
        mask = rng.random(2) < 0.8
        means.absorb(arm, np.where(mask, reward, np.nan), age, weight, mask)
        for lane in np.flatnonzero(mask & (weight > 0.0)):
            sums[lane].rewards.append((sums[lane].now - age[lane], int(arm[lane]), weight[lane], reward[lane]))


@pytest.mark.parametrize("rule", RULES, ids=repr)
@sixty_examples
@given(st.integers(0, 2**32 - 1))
def test_they_are_sums_over_all_rewards(rule: Any, seed: int) -> None:
    means = ArmMeans(K, forgetting=rule, lanes=2)
    sums = [Sums(g, w) for g, w in zip(rule.gammas(2), rule.windows(2), strict=True)]
    rng = np.random.default_rng(seed)
    for _ in range(4):
        learn(means, sums, rng, 15)
        expected = np.array([lane.sums() for lane in sums])
        np.testing.assert_allclose(means.N, expected[:, 0], rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(means.b, expected[:, 1], rtol=1e-12, atol=1e-13)
        assert np.array_equal(means.N == 0.0, expected[:, 0] == 0.0)  # an arm without rewards has exactly none
        is_known = means.N > 0.0
        np.testing.assert_allclose(means.means[is_known], means.b[is_known] / means.N[is_known], rtol=1e-15)
        assert not means.means[~is_known].any()
        np.testing.assert_allclose(means.total, means.N.sum(axis=1), rtol=1e-14)


@pytest.mark.parametrize("rule", [Discount(0.95), Window(20.0)], ids=repr)
def test_they_are_ridge_regression_of_unit_vectors(rule: Any) -> None:
    means, ridge, rng = (
        ArmMeans(K, forgetting=rule),
        RidgeEstimator(K, forgetting=rule, lam=1e-9),
        np.random.default_rng(0),
    )
    for t in range(300):
        for each in (means, ridge):
            each.age(1.0)
        arm, reward, age = rng.integers(K, size=1), rng.random(1), np.array([float(t % 3 == 0)])
        means.absorb(arm, reward, age, np.ones(1), np.array([True]))
        ridge.absorb(np.eye(K)[arm], reward, age, np.ones(1), np.array([True]))
    np.testing.assert_allclose(means.means, ridge.solve(), rtol=1e-7)
    np.testing.assert_allclose(np.diag(means.N[0]), ridge.V[0], rtol=1e-7, atol=1e-8)


def test_rounding_does_not_accumulate_in_a_long_run() -> None:
    """20,000 removals, and rewards a million times as large as others that leave the window."""
    means, sums = ArmMeans(K, forgetting=Window(50.0), lanes=2), [Sums(1.0, 50.0), Sums(1.0, 50.0)]
    rng = np.random.default_rng(0)
    for block in range(300):
        learn(means, sums, rng, 60, scale=1e6 if block % 3 == 0 else 1.0)
        for lane in sums:
            lane.rewards = [entry for entry in lane.rewards if lane.now - entry[0] < 50.0]
    expected = np.array([lane.sums() for lane in sums])
    np.testing.assert_allclose(means.N, expected[:, 0], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(means.b, expected[:, 1], rtol=1e-9, atol=1e-9)  # of rewards of order 1
    assert means.history.shape[2] <= 4 * 60  # the history stays short


def test_a_small_weight_loses_no_digits() -> None:
    """An arm that was not played for 3000 rounds has N = gamma^3000, to full relative precision."""
    means, one = ArmMeans(2, forgetting=Discount(0.8)), np.ones(1)
    for arm in (0, 1):
        means.absorb(np.array([arm]), 0.5 * one, 0.0 * one, one, np.array([True]))
    for _ in range(3000):
        means.age(1.0)
        means.absorb(np.array([1]), one, 0.0 * one, one, np.array([True]))
    assert means.N[0, 0] == pytest.approx(0.8**3000, rel=1e-12)
    assert means.means[0, 0] == pytest.approx(0.5, rel=1e-12)


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_a_lane_does_not_depend_on_others_and_a_state_goes_on(rule: Any) -> None:
    together, sums, rng = (
        ArmMeans(K, forgetting=rule, lanes=2),
        [Sums(1.0, 9.0), Sums(1.0, 9.0)],
        np.random.default_rng(3),
    )
    learn(together, sums, rng, 40)
    twin = ArmMeans(K, forgetting=rule, lanes=2)
    swap(check(twin, save(together)))
    for each in (together, twin):
        learn(each, sums, np.random.default_rng(5), 40)
    assert all(np.array_equal(a, b) for a, b in zip(save(together).values(), save(twin).values(), strict=True))
    together.reset(np.array([True, False]))
    assert not together.N[0].any()
    assert np.array_equal(together.N[1], twin.N[1])
    for each in (together, twin):
        learn(each, sums, np.random.default_rng(6), 40)
    assert np.array_equal(together.N[1], twin.N[1])


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_other_arms_keep_the_rewards_of_those_that_stay(rule: Any) -> None:
    """Arms 2 and 0 stay, in this order, between two new ones: as if only their rewards had been learned."""
    sums = [Sums(g, w) for g, w in zip(rule.gammas(2), rule.windows(2), strict=True)]
    before, after = ArmMeans(K, forgetting=rule, lanes=2), ArmMeans(4, forgetting=rule, lanes=2)
    learn(before, sums, np.random.default_rng(1), 60)
    change = CoordinateChange(np.array([-1, 2, 0, -1]), 1.0)
    state = map_state(before, after, change)
    assert state is not None
    swap(check(after, state))
    for _ in range(50):
        expected = np.array([lane.sums() for lane in sums])
        np.testing.assert_allclose(after.N[:, 1:3], expected[:, 0][:, [2, 0]], rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(after.b[:, 1:3], expected[:, 1][:, [2, 0]], rtol=1e-12, atol=1e-13)
        assert not after.N[:, [0, 3]].any()
        after.age(1.0)
        for lane in sums:
            lane.now += 1.0


@pytest.mark.parametrize(
    ("name", "place", "value"),
    [
        ("sums", (0, 0, 1), -1.0), ("sums", (0, 2, 0), 99.0), ("now", 0, -1.0), ("removals", 1, -1),
        ("count", 0, 10**6),
        ("count", 1, -1), ("history", (0, 0, 0), 0.5), ("history", (0, 0, 0), float(K)), ("history", (0, 0, 0), -1.0),
        ("history", (0, 1, 0), -1.0), ("history", (0, 3, 0), 1e9),
    ],
)  # fmt: skip
def test_impossible_states_are_refused(name: str, place: Any, value: float) -> None:
    means, sums = ArmMeans(K, forgetting=Window(30.0), lanes=2), [Sums(1.0, 30.0), Sums(1.0, 30.0)]
    learn(means, sums, np.random.default_rng(0), 30)
    state = save(means)
    state[name][place] = value
    with refuses(f"state['{name}']", "state['sums']"):
        check(ArmMeans(K, forgetting=Window(30.0), lanes=2), state)


def test_without_a_window_nothing_is_stored() -> None:
    means, sums = ArmMeans(K, forgetting=Window(30.0), lanes=2), [Sums(1.0, 30.0), Sums(1.0, 30.0)]
    learn(means, sums, np.random.default_rng(0), 30)
    with refuses("state['history']"):
        check(ArmMeans(K, lanes=2), save(means))
