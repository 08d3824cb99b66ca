"""UniformRandom, Oracle and Greedy."""

import math

import numpy as np
import pytest
from scipy import stats

from support.policies import decision
from support.refusals import refuses
from support.worlds import ball, regret
from windvane import BVDGLMUCB, Ball, Greedy, Oracle, Sphere, UniformRandom
from windvane.environments import BallArms, Environment, Rotation
from windvane.lab.spec import PolicySpec

P_VALUE = 1e-6


def test_uniform_play_is_uniform_over_the_arms_that_are_there() -> None:
    n, policy, rng = 20_000, UniformRandom(dim=2, lanes=20_000, seed=3), np.random.default_rng(0)
    valid = np.ones((n, 5), dtype=bool)
    valid[:, 2] = False
    counts = np.bincount(policy.select(ball(rng, (n, 5), 2), valid), minlength=5)
    assert counts[2] == 0
    assert stats.chisquare(counts[[0, 1, 3, 4]]).pvalue > P_VALUE


@pytest.mark.parametrize("dim", [1, 2, 3, 6])
def test_uniform_play_in_a_ball_and_on_a_sphere(dim: int) -> None:
    policy = UniformRandom(dim=dim, L=3.0, lanes=5000, seed=1)
    inside = policy.select_from(Ball(2.0))
    lengths = np.linalg.norm(inside, axis=1)
    assert stats.kstest((lengths / 2.0) ** dim, "uniform").pvalue > P_VALUE
    around = policy.select_from(Sphere(2.0))
    np.testing.assert_allclose(np.linalg.norm(around, axis=1), 2.0, rtol=1e-14)
    assert abs(around.mean(axis=0)).max() < 5.5 * 2.0 / math.sqrt(5000 * dim)
    assert policy.t == 3.0


@pytest.mark.parametrize("intercept", [None, 0.5])
@pytest.mark.parametrize("link", ["identity", "logistic", "poisson"])
def test_the_oracle_built_by_the_lab_has_no_regret(link: str, intercept: float | None) -> None:
    world = Environment(Rotation(), BallArms(count=6), link=link, intercept=intercept, horizon=90, lanes=3, seed=2)
    assert np.abs(regret(PolicySpec("Oracle").build(world), world)).max() < 1e-9
    assert regret(PolicySpec("UniformRandom").build(world), world).min() > 1.0


def test_an_oracle_says_what_it_cannot_do() -> None:
    oracle = Oracle(dim=2, truth=lambda _t, arms: np.full(arms.shape[:2], np.nan))
    with refuses("truth"):
        oracle.select(np.zeros((1, 3, 2)))
    oracle = Oracle(dim=2, truth=lambda _t, _arms: np.zeros(3))
    with refuses("truth"):
        oracle.select(np.zeros((1, 3, 2)))
    with refuses("arm_set"):
        oracle.select_from(Ball(1.0))
    assert oracle.t == 1.0


@pytest.mark.parametrize("link", ["logistic", "identity"])
def test_greedy_is_the_paper_s_policy_without_its_bonus(link: str) -> None:
    greedy = Greedy(dim=3, link=link, gamma=0.95, lanes=2)
    silent = BVDGLMUCB(dim=3, link=link, gamma=0.95, bonus_scale=0.0, lanes=2)
    rng = np.random.default_rng(1)
    for t in range(150):
        arms = ball(rng, (2, 5), 3)
        if t % 10 == 9:
            x = greedy.select_from(Sphere(1.0))
            assert np.array_equal(silent.select_from(Sphere(1.0)), x)
            theta = decision(greedy).theta_tilde
            np.testing.assert_allclose(x, theta / np.linalg.norm(theta, axis=1, keepdims=True), atol=1e-9)
        else:
            choice = greedy.select(arms)
            assert np.array_equal(silent.select(arms), choice)
            x = arms[np.arange(2), choice]
            theta = decision(greedy).theta_tilde
            best = np.einsum("lkd,ld->lk", arms, theta).argmax(axis=1)
            assert ((choice == best) | (theta == 0).all(axis=1)).all()  # theta = 0: all arms tie
        reward = (rng.random(2) < 0.5 + 0.4 * x[:, 0]).astype(float)
        greedy.update(x, reward)
        silent.update(x, reward)
