"""theta_hat is the root of g(theta) = b, and its certificate is honest."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import naive
from support import access
from support.estimators import TOLERANCE, Twin, by_link, seeds
from support.worlds import ball, draw_reward
from windvane import CustomLink


def remembered_root(estimator: Any, link: naive.NaiveLink) -> tuple[np.ndarray, float]:
    """The root over exactly what lane 0 holds, and what rounding alone may do to it: eps sum w (|mu| + |r|) L / H."""
    features, weights, b = access.lane_history(estimator)
    root = naive.solve_theta_hat(features, weights, b, estimator.ridge, link)
    curvature = np.linalg.eigvalsh(naive.H(root, features, weights, estimator.ridge, link))[0]
    size = weights @ (np.linalg.norm(features, axis=1) * (1 + np.abs(link.mean(features @ root))))
    return root, float(1e-14 * (size + np.abs(b).sum()) / curvature)


@by_link
@settings(deadline=None, max_examples=40)
@given(
    seed=seeds,
    dim=st.sampled_from([1, 2, 5]),
    gamma=st.sampled_from([0.9, 0.99, 1.0]),
    lam=st.integers(-2, 1).map(lambda e: 10.0**e),
    S=st.floats(0.3, 2.0),
    L=st.floats(0.3, 2.0),
    heavy=st.integers(0, 2).map(lambda e: 10.0**e),
    solve_every=st.integers(1, 20),
)
def test_the_certificate_of_the_root_is_honest(
    link: str, seed: int, dim: int, gamma: float, lam: float, S: float, L: float, heavy: float, solve_every: int
) -> None:
    """|theta_hat - root of the remembered history| <= root_error <= tolerance / 100, at every solve of a warm run."""
    twin = Twin(dim, link, seed=seed, gamma=gamma, lam=lam, S=S, L=L)
    for t in range(1, 41):
        twin.advance()
        twin.observe(weight=heavy if t % 7 == 0 else 1.0)
        if t % solve_every == 0:
            theta = twin.fast.solve()[0].copy()
            root, rounding = remembered_root(twin.fast, twin.link)
            assert np.linalg.norm(theta - root) <= twin.fast.root_error[0] + 1e-12 + rounding
            assert twin.fast.root_error[0] <= 0.01 * TOLERANCE + rounding


@by_link
def test_the_certificate_of_the_root_is_honest_in_two_thousand_lanes(link: str) -> None:
    """d = 1, where bisection gives the root of every lane to rounding; theta_hat often crosses 0 on its way."""
    lanes, rounds = 2000, 7
    rng, mean = np.random.default_rng(3), naive.LINKS[link].mean
    estimator = access.make_estimator(1, link, gamma=0.9, L=1.5, lanes=lanes)
    x, weights, b = np.zeros((0, lanes)), np.zeros(0), np.zeros(lanes)
    for _ in range(rounds):
        new = ball(rng, (lanes,), 1, 1.5)
        reward = draw_reward(rng, link, new[:, 0])
        estimator.advance()
        estimator.observe(new, reward)
        theta = estimator.solve()[:, 0]
        x, weights, b = np.vstack([x, new[:, 0]]), np.append(0.9 * weights, 1.0), 0.9 * b + reward * new[:, 0]
        low, high = np.full(lanes, -100.0), np.full(lanes, 100.0)
        for _ in range(70):
            middle = (low + high) / 2
            above = weights @ (mean(x * middle) * x) + estimator.ridge * middle > b
            low, high = np.where(above, low, middle), np.where(above, middle, high)
        assert (np.abs(theta - low) <= estimator.root_error + 1e-12).all()
        assert np.median(estimator.root_error) <= 0.01 * TOLERANCE


@by_link
@pytest.mark.parametrize("gamma", [0.98, 1.0])
def test_a_warm_start_ends_where_a_cold_one_does(link: str, gamma: float) -> None:
    """Both within 1e-8 of the same root, so within 2e-8 of each other."""
    warm = Twin(3, link, 2, 5, gamma=gamma)
    for _ in range(400):
        warm.advance()
        warm.observe()
        warm.fast.solve()
    cold = access.make_estimator(3, link, gamma=gamma, lanes=2)
    cold.advance(warm.now)
    x = np.stack([slow.features for slow in warm.slow], axis=1)
    reward = np.stack([slow.rewards for slow in warm.slow], axis=1)
    for s in range(400):
        cold.observe(x[s], reward[s], age=warm.now - warm.slow[0].rounds[s])
    np.testing.assert_allclose(warm.fast.theta_hat, cold.theta_hat, rtol=0, atol=2e-8)
    assert warm.fast.root_passes.max() <= 2  # the point of it


@pytest.mark.parametrize(
    ("link", "lam", "x", "rewards"),
    [
        ("poisson", 1.0, [[0.2], [1.1]], [0, 9]),
        ("poisson", 1.0, [[0.1, 0.0], [-1.1, -1.4]], [10, 7]),
        ("logistic", 0.01, [[0.7, 0.5], [0.0, 0.8], [1.2, 1.2]], [1, 1, 0]),
        ("probit", 0.1, [[0.6, -1.3], [0.5, 0.1], [-0.4, 1.2]], [1, 0, 1]),
        (
            "probit",
            1.0,
            [[-1.2, -0.1, 0.8], [-0.2, 1.1, -0.8], [-0.4, 0.7, -0.8], [1.0, 0.1, 0.6], [1.1, 0.8, 0.5]],
            [0, 0, 0, 0, 1],
        ),
    ],
    ids=["poisson 1d", "poisson 2d", "logistic", "probit 2d", "probit 3d"],
)
def test_a_warm_start_that_overshoots_comes_back(link: str, lam: float, x: list[Any], rewards: list[int]) -> None:
    """S = L = 2, so a small ridge: the step predicted from the last round lands far out, where mu' says nothing."""
    estimator = access.make_estimator(len(x[0]), link, lam=lam, S=2.0, L=2.0)
    for point, reward in zip(x, rewards, strict=True):
        estimator.advance()
        estimator.observe([point], reward)
        estimator.solve()
    X, r = np.array(x), np.array(rewards, dtype=float)
    exact = naive.solve_theta_hat(X, np.ones(len(X)), X.T @ r, estimator.ridge, naive.LINKS[link])
    assert np.linalg.norm(estimator.theta_hat[0] - exact) <= 0.01 * TOLERANCE + 1e-10
    assert estimator.root_error[0] <= 0.01 * TOLERANCE


@by_link
@pytest.mark.parametrize("lam", [1.0, 0.1, 0.01])
def test_the_root_is_found_in_every_round_of_many_runs(link: str, lam: float) -> None:
    """Thirty lanes, d = 5, S = L = 2: c_mu is 0.018 for logistic and poisson, 0.00013 for probit."""
    twin = Twin(5, link, 30, gamma=0.99, lam=lam, S=2.0, L=2.0)
    for _ in range(30):
        twin.advance()
        twin.observe()
        twin.fast.solve()
        assert twin.fast.root_error.max() <= 0.01 * TOLERANCE
    for lane in range(5):
        assert np.linalg.norm(twin.fast.theta_hat[lane] - twin.root(lane)) <= 0.01 * TOLERANCE + 1e-10


def single_count_root(estimator: Any, reward: float) -> np.ndarray:
    """Poisson, one observation of x = 1."""
    one = np.ones((1, 1))
    return naive.solve_theta_hat(one, one[0], np.array([reward]), estimator.ridge, naive.LINKS["poisson"])


@pytest.mark.parametrize("reward", [100.0, 300.0, 1000.0, 10_000.0])
def test_a_large_count_is_no_trouble_to_poisson(reward: float) -> None:
    """One Newton step from 0 overshoots to z ~ reward, where e^z is astronomical: the root is near log(reward)."""
    estimator = access.make_estimator(1, "poisson")
    estimator.observe([[1.0]], reward)
    theta = estimator.solve()[0]
    assert np.abs(theta - single_count_root(estimator, reward)) <= 0.01 * TOLERANCE + 1e-12
    assert estimator.root_error <= 0.01 * TOLERANCE


def test_a_custom_link_gets_as_many_newton_steps_as_a_built_in_one() -> None:
    """A count of 100 takes about 70 steps down from the overshoot, whoever takes them."""
    copy = CustomLink("copy", np.exp, np.exp)
    estimator = access.make_estimator(1, copy)
    estimator.observe([[1.0]], 100.0)
    np.testing.assert_allclose(estimator.theta_hat[0], single_count_root(estimator, 100.0), rtol=0, atol=1e-8)


def test_theta_hat_at_the_edge_of_precision() -> None:
    """Separable data and next to no regularisation: still the root, as SciPy finds it."""
    rng = np.random.default_rng(0)
    points = rng.normal(size=(60, 3))
    points /= 1.01 * np.linalg.norm(points, axis=1, keepdims=True)
    estimator = access.make_estimator(3, lam=1e-4)
    for x in points:
        estimator.observe(x[None], float(x[0] > 0))
    root = naive.solve_theta_hat(
        points, np.ones(60), points.T @ (points[:, 0] > 0), estimator.ridge, naive.LINKS["logistic"]
    )
    np.testing.assert_allclose(estimator.theta_hat[0], root, rtol=1e-8)
