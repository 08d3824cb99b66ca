"""The estimate from one look at each observation: its quadratic, the identity link, and rewards of any size."""

from typing import Any

import numpy as np
import pytest

from support import access
from support.estimators import by_link, feed
from support.worlds import ball, draw_reward
from windvane.estimation import Discount, Never, OnePassEstimator
from windvane.kernels import one_pass
from windvane.kernels.jit import callable_kernel
from windvane.links import get_link


def test_for_the_identity_link_it_is_ridge_regression() -> None:
    one_pass = OnePassEstimator(2, "identity", forgetting=Discount([0.9, 1.0]), lanes=2)
    ridge = access.make_ridge(2, gamma=[0.9, 1.0], lanes=2)
    for estimator in (one_pass, ridge):
        feed(estimator, [0, 1], range(200), 2)
    np.testing.assert_allclose(one_pass.theta_hat, ridge.theta_hat, rtol=0, atol=1e-12)
    np.testing.assert_allclose(one_pass.metric(), ridge.metric(), rtol=1e-12)


@by_link
@pytest.mark.parametrize("dim", [1, 2, 5])
def test_each_observation_is_a_proximal_step_and_a_quadratic(link: str, dim: int) -> None:
    """theta+ minimises the new loss plus the quadratic so far; H gains w mu'(<x, theta+>) x x'."""
    rng, gamma = np.random.default_rng(4), 0.95
    made, estimator = get_link(link), OnePassEstimator(dim, link, forgetting=Discount(gamma), S=1.5, lam=0.7)
    H = estimator.ridge * np.eye(dim)
    for _ in range(60):
        estimator.advance()
        H = gamma * H + (1 - gamma) * estimator.ridge * np.eye(dim)
        np.testing.assert_allclose(estimator.metric()[0], H, rtol=1e-10)
        theta = estimator.theta_hat[0]
        x, weight, age = ball(rng, (1,), dim), float(rng.choice([0.5, 1.0, 4.0])), float(rng.integers(0, 3))
        reward = draw_reward(rng, link, 0.9 * x[:, 0] - 0.3 * x[:, -1])
        estimator.observe(x, reward, weight=weight, age=age)
        new, w = estimator.theta_hat[0], weight * gamma**age
        gradient = w * (made.mean(x[0] @ new) - reward) * x[0] + H @ (new - theta)
        np.testing.assert_allclose(gradient, 0.0, rtol=0, atol=1e-9)
        H = H + w * max(float(made.slope(x[0] @ new)), estimator.constants.c_mu) * np.outer(x[0], x[0])


HUGE = [1e3, 1e10, 1e14, 1e20, 1e50, 1e100, -1e100]


@by_link
@pytest.mark.parametrize("forgetting", [Discount(0.9), Never()], ids=repr)
@pytest.mark.parametrize("weight", [1e-12, 1.0, 1e12])
def test_rewards_of_any_size_leave_everything_finite(link: str, forgetting: Any, weight: float) -> None:
    """Poisson used to become NaN from 1e14 on: the bracket of the proximal point reached as far as the reward."""
    for reward in HUGE:
        rng, estimator = np.random.default_rng(0), OnePassEstimator(2, link, forgetting=forgetting)
        for t in range(40):
            huge = t % 3 == 0
            estimator.observe(ball(rng, (1,), 2), reward if huge else 1.0, weight=weight if huge else 1.0)
            estimator.advance()
            assert np.isfinite(estimator.solve()).all(), (reward, t)
        assert np.isfinite(estimator.dense).all()
        access.load(OnePassEstimator(2, link, forgetting=forgetting), access.save(estimator))
    for reward in HUGE[:-1]:  # a large count moves a Poisson estimate to its logarithm
        estimator = OnePassEstimator(1, "poisson")
        estimator.observe([[1.0]], reward)
        assert 0.5 * np.log(reward) <= estimator.theta_hat[0, 0] <= np.log(reward) + 1e-12


@by_link
@pytest.mark.parametrize("pull", [0.0, 1e-100, 1e-12, 1.0, 1e6, 1e12, 1e30])
def test_the_proximal_point_brackets_its_root_at_any_scale(link: str, pull: float) -> None:
    """y - z + pull (mu(y) - reward) changes sign within rounding of the answer."""
    made = get_link(link)
    for z in (-1e100, -1e50, -300.0, -30.0, -3.0, 0.0, 0.4, 8.0, 300.0, 1e50, 1e100):
        for reward in (-1e100, -5.0, 0.0, 1.0, 10.0, 1e3, 1e14, 1e50, 1e100):
            y = callable_kernel(one_pass.proximal_point)(made.code, z, pull, reward)
            near = 4e-14 * (1 + abs(y)) + 1e-15 * abs(z)
            below, above = ((at - z) + pull * (float(made.mean(at)) - reward) for at in (y - near, y + near))
            assert below <= 0.0 <= above, (z, reward, y)
