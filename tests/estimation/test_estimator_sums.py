"""The estimator against the literal sums, whatever happens to it and in whatever order."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support import access
from support.estimators import GAMMAS, TOLERANCE, Twin, by_link, eighths, play_schedule, relaxed, schedules, seeds
from support.worlds import ball, same_state


@by_link
@pytest.mark.parametrize("dim", [1, 2, 5])
@settings(deadline=None, max_examples=12)
@given(seed=seeds, schedule=schedules(3), gamma=st.lists(st.sampled_from(GAMMAS), min_size=3, max_size=3))
def test_any_schedule(link: str, dim: int, seed: int, schedule: list[Any], gamma: list[float]) -> None:
    """Several observations a round or none, late, out of order, weighted, masked, at fractional times and ages."""
    twin = Twin(dim, link, 3, seed, gamma=gamma)
    play_schedule(twin, schedule)
    assert (twin.fast.elapsed == twin.now).all()
    twin.check_sums()
    twin.check_root()


@by_link
@settings(deadline=None, max_examples=12)
@given(seed=seeds, schedule=schedules(2), window=st.integers(1, 80).map(lambda k: k / 8))
def test_any_schedule_in_a_sliding_window(link: str, seed: int, schedule: list[Any], window: float) -> None:
    """Weight 1 below the window's age and 0 from it on; what arrives older than that never counts."""
    twin = Twin(2, link, 2, seed, window=window)
    play_schedule(twin, schedule)
    twin.check_sums()
    twin.check_root()
    np.testing.assert_array_equal(access.V(twin.fast), access.V_tilde(twin.fast))
    assert (twin.fast.truncation_error == 0.0).all()
    assert twin.fast.remembered.tolist() == [np.count_nonzero(slow.weights(twin.now + 1)) for slow in twin.slow]


@pytest.mark.parametrize("settings_", [{"S": 2.0, "L": 0.5, "lam": 0.1}, {"S": 0.5, "L": 3.0, "lam": 7.0}])
@by_link
def test_other_constants(link: str, settings_: dict[str, float]) -> None:
    """S, L and lam enter through the ridge lam c_mu, and V through lam."""
    twin = Twin(3, link, 2, 4, gamma=[0.95, 1.0], **settings_)
    twin.run(60)
    twin.check_sums()
    twin.check_root()
    assert twin.fast.ridge == pytest.approx(twin.ridge, rel=1e-12)


@relaxed
@given(seed=seeds, gamma=st.floats(0.05, 1.0), gap=st.floats(0.0, 50.0), share=st.floats(0.0, 1.0))
def test_forgetting_follows_the_clock_on_the_wall(seed: int, gamma: float, gap: float, share: float) -> None:
    """V <- gamma^D V + (1 - gamma^D) lam I (gamma^2 for V_tilde, no ridge for b), however D is cut in two."""
    one, two = (Twin(3, gamma=gamma, lam=0.7, seed=seed) for _ in range(2))
    for twin in (one, two):
        twin.run(5)
    V, V_tilde, b = access.V(one.fast), access.V_tilde(one.fast), access.b(one.fast)
    one.advance(gap)
    two.advance(share * gap)
    two.advance(gap - share * gap)
    keep, ridge = gamma**gap, 0.7 * np.eye(3)
    for twin in (one, two):
        np.testing.assert_allclose(access.V(twin.fast)[0], keep * V[0] + (1 - keep) * ridge, rtol=0, atol=1e-12)
        np.testing.assert_allclose(
            access.V_tilde(twin.fast)[0], keep**2 * (V_tilde[0] - ridge) + ridge, rtol=0, atol=1e-12
        )
        np.testing.assert_allclose(access.b(twin.fast)[0], keep * b[0], rtol=0, atol=1e-12)


@by_link
@relaxed
@given(seed=seeds, gamma=st.sampled_from(GAMMAS), age=eighths, times=st.integers(2, 4))
def test_an_observation_twice_is_weight_two(link: str, seed: int, gamma: float, age: float, times: int) -> None:
    repeated, weighted = Twin(2, link, gamma=gamma, seed=seed), Twin(2, link, gamma=gamma, seed=seed)
    for twin in (repeated, weighted):
        twin.run(10)
    x, reward = repeated.slow[0].features[-1:], repeated.slow[0].rewards[-1]
    for _ in range(times):
        repeated.fast.observe(x, reward, age=age)
    weighted.fast.observe(x, reward, age=age, weight=times)
    for name in ("V", "V_tilde", "b"):
        np.testing.assert_allclose(
            access.read(repeated.fast, name), access.read(weighted.fast, name), rtol=1e-13, atol=1e-14
        )
    np.testing.assert_allclose(
        access.theta_hat(repeated.fast), access.theta_hat(weighted.fast), rtol=0, atol=0.02 * TOLERANCE
    )
    assert repeated.fast.remembered[0] == weighted.fast.remembered[0] + times - 1


@pytest.mark.parametrize("nothing", [{"weight": 0.0}, {"mask": np.zeros(2, dtype=bool)}, {"weight": 0.0, "age": 3.0}])
def test_weight_zero_or_a_mask_is_nothing(nothing: dict[str, Any]) -> None:
    """Bit for bit, also for thousands of them, which would fill a buffer."""
    twin = Twin(2, lanes=2, gamma=0.9)
    for _ in range(5):
        twin.advance()
        twin.observe()
    twin.fast.solve()
    before = access.save(twin.fast)
    for _ in range(2000):
        twin.fast.observe(np.ones((2, 2)) / 2, 1.0, **nothing)
    assert same_state(before, access.save(twin.fast))


def test_order_of_arrival_does_not_matter() -> None:
    """Rewards of 30 decisions in the order they were made, in reverse and shuffled: the same estimate."""
    rng = np.random.default_rng(2)
    x, reward = ball(rng, (30, 1), 2), rng.integers(0, 2, 30) * 1.0
    estimates = []
    for order in (np.arange(30), np.arange(30)[::-1], rng.permutation(30)):
        estimator = access.make_estimator(2, gamma=0.9)
        estimator.advance(30)
        for s in order:
            estimator.observe(x[s], reward[s], age=float(30 - s))
        estimates.append(
            np.concatenate(
                [access.theta_hat(estimator).ravel(), access.V(estimator).ravel(), access.b(estimator).ravel()]
            )
        )
    np.testing.assert_allclose(estimates[1], estimates[0], rtol=0, atol=0.02 * TOLERANCE)
    np.testing.assert_allclose(estimates[2], estimates[0], rtol=0, atol=0.02 * TOLERANCE)


@by_link
@relaxed
@given(seed=seeds, gamma=st.sampled_from(GAMMAS))
def test_g_is_strongly_monotone_with_jacobian_h(link: str, seed: int, gamma: float) -> None:
    """<g(a) - g(c), a - c> >= ridge |a - c|^2; H is symmetric, at least the ridge, and the derivative of g."""
    twin = Twin(3, link, gamma=gamma, seed=seed)
    twin.run(15)
    a, c = ball(twin.rng, (1,), 3, 3.0), ball(twin.rng, (1,), 3, 3.0)
    gap = access.moments(twin.fast, a)[0] - access.moments(twin.fast, c)[0]
    size = np.abs(access.moments(twin.fast, a)[0]).max() + np.abs(access.moments(twin.fast, c)[0]).max()
    assert np.vdot(gap, a - c) >= twin.fast.ridge * np.vdot(a - c, a - c) - 1e-13 * size
    H = access.moments(twin.fast, a)[1][0]
    np.testing.assert_array_equal(H, H.T)
    assert np.linalg.eigvalsh(H)[0] >= twin.fast.ridge * (1 - 1e-12)
    h = 1e-5 * np.eye(3)
    numeric = [(access.moments(twin.fast, a + e)[0] - access.moments(twin.fast, a - e)[0])[0] / 2e-5 for e in h]
    np.testing.assert_allclose(numeric, H, rtol=0, atol=1e-8 * (1 + size))


@relaxed
@given(seed=seeds, schedule=schedules(2), gamma=st.sampled_from(GAMMAS))
def test_v_is_at_least_v_tilde_is_at_least_lam(seed: int, schedule: list[Any], gamma: float) -> None:
    twin = Twin(2, lanes=2, gamma=gamma, lam=0.3, seed=seed)
    play_schedule(twin, schedule)
    size = np.abs(access.V(twin.fast)).max()
    assert np.linalg.eigvalsh(access.V(twin.fast) - access.V_tilde(twin.fast)).min() >= -1e-13 * size
    assert np.linalg.eigvalsh(access.V_tilde(twin.fast) - 0.3 * np.eye(2)).min() >= -1e-13 * size
