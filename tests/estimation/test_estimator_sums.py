"""The estimator against the literal sums, whatever happens to it; how much it holds, and what the rest costs."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support import access
from support.estimators import GAMMAS, TOLERANCE, Twin, by_link, eighths, play_schedule, relaxed, schedules, seeds
from support.worlds import ball, same_state

three_gammas = st.lists(st.sampled_from(GAMMAS), min_size=3, max_size=3)


@by_link
@pytest.mark.parametrize("dim", [1, 2, 5])
@settings(deadline=None, max_examples=12)
@given(seed=seeds, schedule=schedules(3), gamma=three_gammas, lam=st.sampled_from([1.0, 0.3]))
def test_any_schedule(link: str, dim: int, seed: int, schedule: list[Any], gamma: list[float], lam: float) -> None:
    """Several observations a round or none, late, out of order, weighted, masked, at fractional times and ages."""
    twin = Twin(dim, link, 3, seed, gamma=gamma, lam=lam)
    play_schedule(twin, schedule)
    assert (twin.fast.elapsed == twin.now).all()
    twin.check()


@by_link
@settings(deadline=None, max_examples=12)
@given(seed=seeds, schedule=schedules(2), window=st.integers(1, 80).map(lambda k: k / 8))
def test_any_schedule_in_a_sliding_window(link: str, seed: int, schedule: list[Any], window: float) -> None:
    """Weight 1 below the window's age and 0 from it on; what arrives older than that never counts."""
    twin = Twin(2, link, 2, seed, window=window)
    play_schedule(twin, schedule)
    twin.check()
    np.testing.assert_array_equal(twin.fast.metric(), twin.fast.V_tilde)
    assert (twin.fast.truncation_error == 0.0).all()
    assert twin.fast.remembered.tolist() == [np.count_nonzero(slow.weights(twin.now + 1)) for slow in twin.slow]


@pytest.mark.parametrize("settings_", [{"S": 2.0, "L": 0.5, "lam": 0.1}, {"S": 0.5, "L": 3.0, "lam": 7.0}])
@by_link
def test_other_constants(link: str, settings_: dict[str, float]) -> None:
    """S, L and lam enter through the ridge lam c_mu, and V through lam."""
    twin = Twin(3, link, 2, 4, gamma=[0.95, 1.0], **settings_)
    twin.run(60)
    twin.check()
    assert twin.fast.ridge == pytest.approx(twin.ridge, rel=1e-12)


@relaxed
@given(seed=seeds, gamma=st.floats(0.05, 1.0), gap=st.floats(0.0, 50.0), share=st.floats(0.0, 1.0))
def test_forgetting_follows_the_clock_on_the_wall(seed: int, gamma: float, gap: float, share: float) -> None:
    """V <- gamma^D V + (1 - gamma^D) lam I (gamma^2 for V_tilde, no ridge for b), however D is cut in two."""
    one, two = (Twin(3, gamma=gamma, lam=0.7, seed=seed) for _ in range(2))
    for twin in (one, two):
        twin.run(5)
    V, V_tilde, b = one.fast.metric(), one.fast.V_tilde.copy(), one.fast.b
    one.advance(gap)
    two.advance(share * gap)
    two.advance(gap - share * gap)
    keep, ridge = gamma**gap, 0.7 * np.eye(3)
    for twin in (one, two):
        np.testing.assert_allclose(twin.fast.metric()[0], keep * V[0] + (1 - keep) * ridge, rtol=0, atol=1e-12)
        np.testing.assert_allclose(twin.fast.V_tilde[0], keep**2 * (V_tilde[0] - ridge) + ridge, rtol=0, atol=1e-12)
        np.testing.assert_allclose(twin.fast.b[0], keep * b[0], rtol=0, atol=1e-12)


@by_link
@relaxed
@given(seed=seeds, gamma=st.sampled_from(GAMMAS), age=eighths, times=st.integers(2, 4))
def test_an_observation_twice_is_weight_two(link: str, seed: int, gamma: float, age: float, times: int) -> None:
    repeated, weighted = (Twin(2, link, gamma=gamma, seed=seed) for _ in range(2))
    for twin in (repeated, weighted):
        twin.run(10)
    x, reward = repeated.slow[0].features[-1:], repeated.slow[0].rewards[-1]
    for _ in range(times):
        repeated.fast.observe(x, reward, age=age)
    weighted.fast.observe(x, reward, age=age, weight=times)
    for name in ("V", "V_tilde", "b"):
        np.testing.assert_allclose(getattr(repeated.fast, name), getattr(weighted.fast, name), rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(repeated.fast.theta_hat, weighted.fast.theta_hat, rtol=0, atol=0.02 * TOLERANCE)
    assert repeated.fast.remembered[0] == weighted.fast.remembered[0] + times - 1


@pytest.mark.parametrize("nothing", [{"weight": 0.0}, {"mask": np.zeros(2, dtype=bool)}, {"weight": 0.0, "age": 3.0}])
def test_weight_zero_or_a_mask_is_nothing(nothing: dict[str, Any]) -> None:
    """Bit for bit, also for thousands of them, which would fill a buffer."""
    twin = Twin(2, lanes=2, gamma=0.9)
    twin.run(5)
    twin.fast.solve()
    before = access.save(twin.fast)
    for _ in range(2000):
        twin.fast.observe(np.ones((2, 2)) / 2, 1.0, **nothing)
    assert same_state(before, access.save(twin.fast))


def test_order_of_arrival_does_not_matter() -> None:
    rng, estimates = np.random.default_rng(2), []
    x, reward = ball(rng, (30, 1), 2), rng.integers(0, 2, 30) * 1.0
    for order in (np.arange(30), np.arange(30)[::-1], rng.permutation(30)):
        estimator = access.make_estimator(2, gamma=0.9)
        estimator.advance(30)
        for s in order:
            estimator.observe(x[s], reward[s], age=float(30 - s))
        estimates.append(np.concatenate([estimator.theta_hat.ravel(), estimator.metric().ravel(), estimator.b.ravel()]))
    np.testing.assert_allclose(estimates, [estimates[0]] * 3, rtol=0, atol=0.02 * TOLERANCE)


@by_link
@relaxed
@given(seed=seeds, gamma=st.sampled_from(GAMMAS))
def test_g_is_strongly_monotone_with_jacobian_h(link: str, seed: int, gamma: float) -> None:
    """<g(a) - g(c), a - c> >= ridge |a - c|^2; H is symmetric, at least the ridge, and the derivative of g."""
    twin = Twin(3, link, gamma=gamma, seed=seed)
    twin.run(15)
    a, c = ball(twin.rng, (1,), 3, 3.0), ball(twin.rng, (1,), 3, 3.0)
    (g_a, (H,)), (g_c, _) = twin.fast.moments(a), twin.fast.moments(c)
    size = np.abs(g_a).max() + np.abs(g_c).max()
    assert np.vdot(g_a - g_c, a - c) >= twin.fast.ridge * np.vdot(a - c, a - c) - 1e-13 * size
    np.testing.assert_array_equal(H, H.T)
    assert np.linalg.eigvalsh(H)[0] >= twin.fast.ridge * (1 - 1e-12)
    numeric = [(twin.fast.moments(a + e)[0] - twin.fast.moments(a - e)[0])[0] / 2e-5 for e in 1e-5 * np.eye(3)]
    np.testing.assert_allclose(numeric, H, rtol=0, atol=1e-8 * (1 + size))


@by_link
def test_memory_is_flat_and_what_it_costs_is_bounded(link: str) -> None:
    """gamma = 0.9, one observation a round: exactly memory + 1 are held, and theta_hat stays within its bound."""
    twin = Twin(2, link, gamma=0.9)
    memory, held = int(twin.fast.memory[0]), []
    for t in range(2500):
        twin.run(1)
        held.append(int(twin.fast.remembered[0]))
        if t % 250 == 249:
            twin.check()
            assert twin.fast.truncation_error[0] > 0
    assert held[: memory + 1] == list(range(1, memory + 2))
    assert set(held[memory + 1 :]) == {memory + 1}
    remembering = Twin(2, link)  # nothing is dropped without forgetting
    remembering.run(300)
    fast = remembering.fast
    assert (fast.memory[0], fast.remembered[0], fast.truncation_error[0]) == (math.inf, 300, 0.0)


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
        twin.run(1)
        if t == memory + 20:
            assert twin.fast.remembered[0] == t + 1
        if t >= memory:
            twin.check_root()
    assert twin.fast.remembered[0] == memory + 1


@pytest.mark.parametrize(("gamma", "weight"), [(0.5, 1.0), (0.9, 1.0), (0.99, 1.0), (0.9, 1e3), (0.9, 1e6)])
def test_a_late_observation_beyond_memory_is_only_ignored_if_it_hardly_counts(gamma: float, weight: float) -> None:
    """Of weight 1, bit for bit: it could have moved theta_hat by (1 - gamma) tolerance at most."""
    twin = Twin(2, gamma=gamma)
    twin.run(20)
    before, root = access.save(twin.fast), twin.root()
    twin.observe(age=twin.fast.memory[0] + 1, weight=weight)
    assert same_state(before, access.save(twin.fast)) or weight > 1.0
    assert np.linalg.norm(twin.root() - root) <= (1 - gamma) * TOLERANCE * weight
    assert np.linalg.norm(twin.fast.theta_hat[0] - twin.root()) <= 1.01 * TOLERANCE


def test_a_long_silence_and_a_long_run_keep_their_digits() -> None:
    """Stored weights are re-based before they overflow: gamma = 0.5 passes e^300 every 433 rounds."""
    twin, eye = Twin(2, lanes=2, gamma=[0.5, 0.97]), np.eye(2)
    for t in range(1400):
        twin.advance()
        if t % 2 == 0:
            twin.observe()
        if t % 200 == 0:
            twin.check()
    twin.advance(5000.5)
    np.testing.assert_allclose(twin.fast.metric(), [eye, eye], rtol=0, atol=1e-15)
    assert twin.fast.remembered.tolist() == [0, 0]
    twin.observe()
    twin.run(2)
    twin.advance()
    twin.check()


@pytest.mark.parametrize(("window", "rounds"), [(7.0, 1600), (7.5, 1600), (1200.0, 2700)])
def test_a_window_over_many_removals(window: float, rounds: int) -> None:
    """Beyond 1024 removals (or as many as are held) the sums are rebuilt; before, at and after that they are exact."""
    twin = Twin(2, window=window)
    for t in range(rounds):
        twin.advance()
        twin.observe(age=float(t % 3), weight=1.0 + t % 2)
        if t % (rounds // 8) == 0 or 1020 <= t - window <= 1030:
            twin.check()


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
    twin.check()


@pytest.mark.parametrize("weight", [1e3, 1e8, 1e12])
def test_a_heavy_observation_leaves_the_window_without_a_trace(weight: float) -> None:
    """Weights up to 1e12 are allowed; subtracting one again must not leave its rounding in V and b."""
    twin = Twin(2, window=4.0)
    twin.observe(weight=weight)
    twin.run(6)
    twin.check()
    access.load(access.make_estimator(2, window=4.0), access.save(twin.fast))


def test_an_emptied_window_knows_nothing_and_keeps_no_trace_of_a_huge_reward() -> None:
    twin = Twin(3, window=4.0, lam=0.5)
    twin.run(30, weight=100.0)
    twin.advance(4.0)
    assert twin.fast.remembered[0] == 0
    np.testing.assert_allclose(twin.fast.metric()[0], 0.5 * np.eye(3), rtol=0, atol=1e-11)
    np.testing.assert_allclose(twin.fast.theta_hat, 0.0, rtol=0, atol=1e-10)
    estimator = access.make_estimator(2, "identity", window=3.0)
    points = np.random.default_rng(0).uniform(-0.6, 0.6, (6, 1, 2))
    for x, reward in zip(points, [1e17, 1, 1, 1, 1, 1], strict=True):
        estimator.advance(1)
        estimator.observe(x, reward)
    np.testing.assert_allclose(estimator.b[0], points[-3:, 0].sum(axis=0), rtol=1e-12)


def test_removals_keep_sums_symmetric_so_that_the_state_loads() -> None:
    """Entries that cancel up to rounding must have the same rounding error on both sides of the diagonal."""
    rng = np.random.default_rng(0)
    estimator, other = (access.make_ridge(3, window=3) for _ in range(2))
    for _ in range(60):
        estimator.advance(1.0)
        estimator.observe(rng.uniform(-0.5, 0.5, (1, 3)), 1.0, weight=50.0 * rng.random())
        np.testing.assert_array_equal(estimator.V, estimator.V.transpose(0, 2, 1))
        access.load(other, access.save(estimator))
    estimator.advance(3.0)
    np.testing.assert_allclose(estimator.V[0], np.eye(3), atol=1e-12)
    access.load(other, access.save(estimator))
