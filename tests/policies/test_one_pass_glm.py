"""OnePassGLM: the implicit step, constant memory, and how close it stays to maximum likelihood."""

import math

import numpy as np
import pytest
from numpy.linalg import norm

import naive
from support.policies import ESTIMATES, radius
from support.worlds import ball, draw_reward, turning_theta
from windvane import BVDGLMUCB, OnePassGLM


@pytest.mark.parametrize("gamma", [0.99, 1.0])
@pytest.mark.parametrize("dim", [1, 2, 5])
def test_one_pass_stays_close_to_maximum_likelihood(gamma: float, dim: int) -> None:
    """In the metric of the Hessian, where the estimate's own standard error is about 1 in each direction: a tenth."""
    rng, lanes = np.random.default_rng([12, dim]), 20
    settings = {"dim": dim, "gamma": gamma, "lanes": lanes}
    one, full = OnePassGLM(**settings), BVDGLMUCB(**settings)
    for t in range(600):
        x = ball(rng, (lanes,), dim)
        reward = draw_reward(rng, "logistic", x @ turning_theta(t, 600, dim, 1.0, turns=0.25))
        for policy in (one, full):
            policy.advance(1.0)
            policy.update(x, reward, round=policy.t - 1)
    H = full.estimator.moments(full.info().theta_hat)[1]
    gap = one.info().theta_hat - full.info().theta_hat
    away = np.sqrt(np.einsum("li,lij,lj->l", gap, H, gap) / dim)
    assert away.mean() < 0.1
    # V sums slopes between c_mu and k_mu where H has slopes between mu'(|theta_hat|) and k_mu
    relative, flattest = (
        np.linalg.eigvals(np.linalg.solve(H, one.info().metric)).real,
        norm(full.info().theta_hat, axis=1),
    )
    assert (relative >= 1 / full.constants.R_mu - 1e-9).all()
    assert (relative.max(axis=1) <= full.constants.k_mu / naive.LINKS["logistic"].slope(flattest) + 1e-9).all()


def test_one_pass_keeps_no_history() -> None:
    rng, policy = np.random.default_rng(13), OnePassGLM(3, gamma=1.0, lanes=2)
    sizes = set()
    for _ in range(50):
        arms = ball(rng, (2, 4), 3)
        policy.update(arms[np.arange(2), policy.select(arms)], 1.0)
        sizes.add(sum(array.nbytes for array in policy.state().values()))
    assert len(sizes) == 1
    assert policy.info().remembered is None
    assert policy.estimator.history.size == 0


def test_one_pass_masks_and_zero_weights() -> None:
    policy, untouched = OnePassGLM(2, gamma=0.9, lanes=3), OnePassGLM(2, gamma=0.9, lanes=3)
    for t in range(5):
        x = np.array([[0.5, 0.1], [0.3, 0.2], [np.nan, 1.0]])
        policy.advance(1.0)
        untouched.advance(1.0)
        policy.update(x, 1.0, round=float(t + 1), weight=[1.0, 0.0, np.nan], mask=[True, True, False])
    info, other = policy.info(), untouched.info()
    for name in ESTIMATES:
        np.testing.assert_array_equal(getattr(info, name)[1:], getattr(other, name)[1:])
    assert (info.theta_hat[0] != 0).all()


def test_the_bonus_of_one_pass_is_at_most_half_of_the_papers() -> None:
    """k_mu / sqrt(c_mu) ||x|| in its V^-1 against 2 R_mu ||x|| in the V^-1 of BVD-GLM-UCB, fed the same."""
    rng, settings = np.random.default_rng(14), {"dim": 3, "gamma": 0.98, "lanes": 4, "S": 2.0}
    one, paper = OnePassGLM(**settings), BVDGLMUCB(**settings)
    for t in range(60):
        x = ball(rng, (4,), 3)
        reward = draw_reward(rng, "logistic", x @ turning_theta(t, 60, 3, 2.0))
        for policy in (one, paper):
            policy.advance(1.0)
            policy.update(x, reward, round=policy.t - 1)
    np.testing.assert_array_equal(radius(one), radius(paper))
    k_mu, c_mu, _ = naive.constants(naive.LINKS["logistic"], 2.0, 1.0)
    np.testing.assert_allclose(one.bonus_factors, k_mu / math.sqrt(c_mu), rtol=1e-9)
    arms = ball(rng, (4, 50), 3)
    half = 0.5 * paper.bonus(arms, paper.bonus_factors)
    assert (one.bonus(arms, one.bonus_factors) <= half * (1 + 1e-12)).all()
