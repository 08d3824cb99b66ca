"""D-LinTS and D-RandLinUCB: the laws of what they draw."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from support import access
from support.worlds import ball
from windvane import DLinTS, DRandLinUCB, Policy

P_VALUE = 1e-6


def test_thompson_draws_have_the_right_law() -> None:
    """theta_tilde - theta_hat is normal with covariance a^2 V^-1 V_tilde V^-1, over many lanes with one history."""
    n, d, a, rng = 20_000, 3, 1.7, np.random.default_rng(0)
    policy = DLinTS(dim=d, gamma=0.8, lanes=n, seed=11, bonus_scale=a)
    for _ in range(25):
        x = ball(rng, (1, 1), d)
        policy.select(np.repeat(x, n, axis=0))
        policy.update(np.repeat(x[0], n, axis=0), float(rng.normal()))
    V, V_tilde = access.V(policy)[0], access.V_tilde(policy)[0]
    assert np.abs(V_tilde - V).max() > 0.1  # so that the law tells the two apart
    policy.select(np.zeros((n, 1, d)))
    gap = access.decision(policy)["theta_tilde"] - access.decision(policy)["theta_hat"]
    root = np.linalg.cholesky(a**2 * np.linalg.inv(V) @ V_tilde @ np.linalg.inv(V))
    standard = np.linalg.solve(root, gap.T)
    for row in standard:
        assert stats.kstest(row, "norm").pvalue > P_VALUE
    errors = 5.5 / math.sqrt(n)  # standard errors of a mean, a correlation and (times sqrt 2) a variance
    assert np.abs(standard.mean(axis=1)).max() < errors
    np.testing.assert_allclose(np.cov(standard), np.eye(d), rtol=0, atol=math.sqrt(2) * errors)


def test_thompson_draws_of_one_lane_are_independent_over_time() -> None:
    n, policy = 5000, DLinTS(dim=2, gamma=1.0, seed=5)
    draws = []
    for _ in range(n):
        policy.select(np.zeros((1, 1, 2)))
        draws.append(access.decision(policy)["theta_tilde"][0])
    z = np.array(draws)  # V = V_tilde = I, theta_hat = 0
    for row in z.T:
        assert stats.kstest(row, "norm").pvalue > P_VALUE
        assert abs(np.corrcoef(row[:-1], row[1:])[0, 1]) < 5.5 / math.sqrt(n)
    assert abs(np.corrcoef(z.T)[0, 1]) < 5.5 / math.sqrt(n)


def test_the_size_of_the_random_bonus_is_half_normal() -> None:
    many = DRandLinUCB(dim=2, gamma=0.9, lanes=5000, seed=2)
    many.select(np.zeros((5000, 1, 2)))
    assert stats.kstest(access.decision(many)["Z"], stats.halfnorm(scale=0.4).cdf).pvalue > P_VALUE
    one, sizes = DRandLinUCB(dim=2, gamma=0.9, seed=2), []
    for _ in range(5000):
        one.select(np.zeros((1, 1, 2)))
        sizes.append(access.decision(one)["Z"][0])
    assert stats.kstest(sizes, stats.halfnorm(scale=0.4).cdf).pvalue > P_VALUE
    assert abs(np.corrcoef(sizes[:-1], sizes[1:])[0, 1]) < 5.5 / math.sqrt(5000)


@pytest.mark.parametrize(("kind", "drawn"), [(DLinTS, "theta_tilde"), (DRandLinUCB, "Z")])
def test_lanes_draw_by_their_id_and_seed(kind: type[Policy], drawn: str) -> None:
    n = 4000

    def draws(lanes: list[int], seed: int) -> np.ndarray:
        policy = kind(dim=2, gamma=1.0, lanes=lanes, seed=seed)  # type: ignore[call-arg]
        found = []
        for _ in range(n):
            policy.select(np.zeros((len(lanes), 1, 2)))
            found.append(access.decision(policy)[drawn].reshape(len(lanes), -1)[:, 0])
        return np.array(found).T

    first, second, again = draws([3, 8, 3], 0)
    assert np.array_equal(first, again)
    assert abs(np.corrcoef(first, second)[0, 1]) < 5.5 / math.sqrt(n)
    (other,) = draws([3], 1)
    assert abs(np.corrcoef(first, other)[0, 1]) < 5.5 / math.sqrt(n)
