"""LinTS, GLM-TS and PG-TS: against their transcriptions, and the laws of what they draw."""

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

import naive
import windvane as wv
from support.policies import decision
from support.refusals import refuses
from support.worlds import SIGMA, ball, draw_reward, turning_theta

P_VALUE = 1e-6
OTHERS = {"S": 1.4, "L": 1.5, "lam": 0.3, "sigma": 0.8, "delta": 0.2, "posterior_scale": 0.4}


@pytest.mark.parametrize("dim", [1, 2, 5])
@pytest.mark.parametrize("settings", [{}, OTHERS], ids=["default", "other settings"])
@pytest.mark.parametrize("link", ["linear", *SIGMA])
@pytest.mark.parametrize("inflation", ["theorem", "none"])
def test_the_literal_transcription_decides_alike(link: str, settings: Any, dim: int, inflation: str) -> None:
    ids, T = [4, 0], 120
    cls, own = (wv.LinTS, {}) if link == "linear" else (wv.GLMTS, {"link": link, "tolerance": 1e-10})
    link = "identity" if link == "linear" else link
    settings = {"sigma": SIGMA[link]} | settings | ({"sigma": SIGMA[link]} if link == "poisson" else {})
    fast = cls(
        dim, lanes=ids, seed=3, inflation=inflation, horizon=T if inflation == "theorem" else None, **own, **settings
    )
    horizon = T if inflation == "theorem" else None
    slow = [naive.NaiveInflatedSampling(dim, link, horizon, seed=3, lane=i, **settings) for i in ids]
    rng = np.random.default_rng([dim, len(settings)])
    for t in range(1, T + 1):
        arms = ball(rng, (2, 6), dim, fast.L)
        expected = np.array([one.decide(arms[lane]) for lane, one in enumerate(slow)])
        choice = fast.select(arms)
        shown = decision(fast)
        np.testing.assert_allclose(shown.theta_hat, [one.theta_hat for one in slow], rtol=1e-7, atol=1e-7)
        np.testing.assert_allclose(shown.theta_tilde, [one.theta_tilde for one in slow], rtol=1e-7, atol=1e-6)
        np.testing.assert_allclose(shown.order, expected, rtol=1e-7, atol=1e-6)
        assert (expected[[0, 1], choice] >= expected.max(axis=1) - 1e-6).all()
        x, weight = arms[[0, 1], choice], float(rng.choice([1.0, 2.0]))
        reward = draw_reward(rng, link, x @ turning_theta(t, T, dim, 1.0))
        fast.update(x, reward, weight=weight)
        for lane, one in enumerate(slow):
            one.update(x[lane], float(reward[lane]), weight)


def test_the_theorem_needs_a_horizon() -> None:
    for cls in (wv.LinTS, wv.GLMTS):
        with refuses("horizon"):
            cls(2)
        with refuses("inflation", value="some"):
            cls(2, inflation="some")
        assert cls(2, inflation="none").radius is None


def test_without_inflation_lin_ts_is_d_lin_ts_that_never_forgets() -> None:
    rng, policies = np.random.default_rng(0), (wv.LinTS(3, inflation="none", seed=2), wv.DLinTS(3, gamma=1.0, seed=2))
    for _ in range(40):
        arms = ball(rng, (1, 5), 3)
        choices = [policy.select(arms) for policy in policies]
        assert np.array_equal(*choices)
        for policy in policies:
            policy.update(arms[0, choices[0]], 0.3)


def test_the_inflated_perturbation_is_that_of_the_theorem() -> None:
    """In many lanes: N(theta_hat, beta^2 V^-1) with the beta of delta / (4 T), written out."""
    n, T, d = 4000, 500, 2
    policy, rng = wv.LinTS(d, horizon=T, lanes=n, seed=1, lam=2.0), np.random.default_rng(4)
    V = 2.0 * np.eye(d)
    for _ in range(25):
        x = ball(rng, (), d)
        policy.advance(1.0)
        policy.update(np.tile(x, (n, 1)), 0.5, round=policy.t - 1)
        V += np.outer(x, x)
    policy.select(np.zeros((n, 1, d)))
    beta = math.sqrt(2.0) + 0.5 * math.sqrt(2 * math.log(4 * T / 0.05) + d * math.log(1 + 26 / 2.0))
    white = (decision(policy).theta_tilde - decision(policy).theta_hat) @ np.linalg.cholesky(V) / beta
    for i in range(d):
        assert stats.kstest(white[:, i], "norm").pvalue > P_VALUE


# --- PG-TS ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dim", [1, 2, 5])
@pytest.mark.parametrize("settings", [{"sweeps": 3}, {"sweeps": 1, "lam": 0.05}])
def test_pg_ts_is_its_transcription(dim: int, settings: dict[str, Any]) -> None:
    """The sampler written down plainly, from the same uniform numbers; with weights, a late reward and a wide prior."""
    ids = [5, 0]
    fast = wv.PGTS(dim, lanes=ids, seed=7, **settings)
    slow = [naive.NaivePGTS(dim, seed=7, lane=i, **settings) for i in ids]
    rng = np.random.default_rng([dim, 1])
    for t in range(50):
        arms = ball(rng, (2, 6), dim, fast.L)
        theta = np.array([one.sample(t) for one in slow])
        choice = fast.select(arms)
        np.testing.assert_allclose(decision(fast).theta_tilde, theta, rtol=1e-7, atol=1e-7)
        expected = np.einsum("lkd,ld->lk", arms, theta)
        assert (expected[[0, 1], choice] >= expected.max(axis=1) - 1e-6).all()
        x, weight = arms[[0, 1], choice], int(rng.choice([1, 1, 3]))
        reward = draw_reward(rng, "logistic", 3.0 * x[:, 0])
        fast.update(x, reward, weight=float(weight))
        for lane, one in enumerate(slow):
            one.update(x[lane], float(reward[lane]), weight)


def test_the_chain_goes_on_from_decision_to_decision() -> None:
    """The sample of a decision is where the next one starts; asking for probabilities or ``info()`` moves nothing."""
    policy, rng = wv.PGTS(2, sweeps=2, seed=1), np.random.default_rng(0)
    for _ in range(20):
        arms = ball(rng, (1, 4), 2)
        before = policy.chain.theta.copy()
        shown = policy.info().theta_tilde
        policy.probabilities(arms, draws=5)
        assert np.array_equal(policy.chain.theta, before)
        index = policy.select(arms)
        assert np.array_equal(decision(policy).theta_tilde, shown)
        assert np.array_equal(policy.chain.theta, shown)
        policy.update(arms[0, index], 1.0)


def test_pg_ts_in_a_ball_plays_along_its_sample() -> None:
    policy = wv.PGTS(3, lanes=2, seed=4)
    for arm_set in (wv.Ball(0.7), wv.Sphere(1.0)):
        played, theta = policy.select_from(arm_set), decision(policy).theta_tilde
        along = arm_set.radius * theta / np.linalg.norm(theta, axis=1, keepdims=True)
        np.testing.assert_allclose(played, along, atol=1e-7)


def test_pg_ts_learns_which_arm_is_best() -> None:
    """Its regret over fixed arms is below that of playing at random by far, in every one of 20 lanes."""
    n, T, rng = 20, 300, np.random.default_rng(2)
    policy, arms = wv.PGTS(2, sweeps=2, lanes=n), np.tile(np.eye(2), (n, 1, 1))
    plays = np.zeros((n, 2))
    for _ in range(T):
        index = policy.select(arms)
        plays[np.arange(n), index] += 1
        policy.update(arms[np.arange(n), index], (rng.random(n) < np.where(index == 0, 0.8, 0.3)).astype(float))
    assert (plays[:, 0] > 0.8 * T).all()


@pytest.mark.parametrize("absent", [[], [1, 3]])
def test_pg_ts_chooses_as_often_as_it_says(absent: list[int]) -> None:
    """Over many lanes that know the same and whose chains are in the same place."""
    n, rng, draws = 4000, np.random.default_rng(9), 4000
    policies = wv.PGTS(2, sweeps=2), wv.PGTS(2, sweeps=2, lanes=n, seed=1)
    for _ in range(25):
        x = ball(rng, (1,), 2)
        reward = float(rng.random() < 0.5 + 0.4 * x[0, 0])
        for policy in policies:
            policy.advance(1.0)
            policy.update(np.tile(x, (policy.lane_count, 1)), reward, round=policy.t - 1)
    for policy in policies:
        policy.chain.keep(np.array([0.4, -0.2]))
    arms, valid = ball(rng, (1, 5), 2), np.ones((1, 5), dtype=bool)
    valid[:, absent] = False
    p = policies[0].probabilities(arms, valid, draws=draws)[0]
    chosen = policies[1].select(np.tile(arms, (n, 1, 1)), np.tile(valid, (n, 1)))
    error = np.sqrt(p * (1 - p) * (1 / n + 1 / draws))
    assert (np.abs(np.bincount(chosen, minlength=5) / n - p) <= 5 * error + 1e-3).all()
    assert np.count_nonzero(p > 0.02) >= 2, p
    assert not p[absent].any()
    with refuses("draws", value=0):
        policies[0].probabilities(arms, draws=0)
