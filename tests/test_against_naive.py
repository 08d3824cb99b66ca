"""The fast policies against the literal transcription, teacher-forced: the oracle is fed what the policy did."""

from __future__ import annotations

import numpy as np
import pytest

import naive
from windvane import BVDGLMUCB, GLMUCB, OFUL, DLinUCB
from worlds import SIGMA, ball, draw_reward, turning_theta

K = 6


def compare(fast, slow, link: str, horizon: int, checkpoints: int, seed: int, S: float) -> dict[int, int]:
    """Play ``horizon`` rounds; at the checkpoints compare estimates, projections, matrices, the chosen arm's score."""
    rng = np.random.default_rng(seed)
    stages: dict[int, int] = {}
    stops = set(np.unique(np.linspace(1, horizon, checkpoints).astype(int)).tolist())
    for t in range(1, horizon + 1):
        arms = ball(rng, (1, K), fast.dim)
        if t in stops:
            scores = slow.scores(arms[0])
            np.testing.assert_allclose(fast.V[0], slow.V, rtol=1e-10, atol=1e-12)
            np.testing.assert_allclose(fast.V_tilde[0], slow.V_tilde, rtol=1e-10, atol=1e-12)
            np.testing.assert_allclose(fast.b[0], slow.b, rtol=1e-10, atol=1e-10)
            np.testing.assert_allclose(fast.theta_hat[0], slow.theta_hat, rtol=0, atol=1e-6)
            stages[slow.stage] = stages.get(slow.stage, 0) + 1
        choice = int(fast.select(arms)[0])
        if t in stops:
            assert scores[choice] >= scores.max() - 1e-6
            np.testing.assert_allclose(fast.last["theta_tilde"][0], slow.theta_tilde, rtol=0, atol=1e-4)
            assert fast.info()["beta"][0] == pytest.approx(slow.beta, rel=1e-12)
        x = arms[:, choice]
        reward = draw_reward(rng, link, x @ turning_theta(t, horizon, fast.dim, S))
        fast.update(x, reward)
        slow.advance(1)
        slow.update(x[0], float(reward[0]))
    return stages


@pytest.mark.parametrize("dim", [1, 2, 5])
@pytest.mark.parametrize("gamma", [0.9, 0.99, 0.9959, 1.0])
@pytest.mark.parametrize("link", ["logistic", "poisson", "probit", "identity"])
@pytest.mark.parametrize("seed", [0, 1])
def test_bvd_glm_ucb(dim: int, gamma: float, link: str, seed: int) -> None:
    settings = {"dim": dim, "link": link, "gamma": gamma, "sigma": SIGMA[link]}
    compare(BVDGLMUCB(**settings), naive.NaiveBVDGLMUCB(**settings), link, 300, 20, seed, 1.0)


@pytest.mark.parametrize("dim", [1, 2, 5])
@pytest.mark.parametrize("link", ["logistic", "poisson", "probit"])
def test_glm_ucb(dim: int, link: str) -> None:
    settings = {"dim": dim, "link": link, "sigma": SIGMA[link]}
    stages = compare(GLMUCB(**settings), naive.NaiveGLMUCB(**settings), link, 300, 20, 3, 1.0)
    assert set(stages) <= {1, 2}


@pytest.mark.parametrize("dim", [1, 2, 5])
@pytest.mark.parametrize("gamma", [0.9, 0.9959, 1.0])
def test_d_lin_ucb(dim: int, gamma: float) -> None:
    compare(DLinUCB(dim=dim, gamma=gamma), naive.NaiveDLinUCB(dim=dim, gamma=gamma), "logistic", 300, 20, 4, 1.0)


@pytest.mark.parametrize("dim", [1, 2, 5])
def test_oful(dim: int) -> None:
    compare(OFUL(dim=dim), naive.NaiveOFUL(dim=dim), "logistic", 300, 20, 5, 1.0)


@pytest.mark.parametrize("confidence", ["horizon", "anytime"])
def test_other_forms_of_delta(confidence: str) -> None:
    settings = {"dim": 2, "gamma": 0.98, "confidence": confidence, "horizon": 120, "delta": 0.1, "bonus_scale": 0.5}
    compare(BVDGLMUCB(**settings), naive.NaiveBVDGLMUCB(**settings), "logistic", 120, 10, 6, 1.0)


@pytest.mark.parametrize("dim", [2, 5])
def test_where_p2_is_solved_in_full(dim: int) -> None:
    """theta* far outside the assumed ball, little regularisation, small noise: the value of P2 is positive."""
    settings = {"dim": dim, "gamma": 0.999, "S": 0.3, "lam": 0.01, "sigma": 0.5, "delta": 1.0}
    fast, slow = BVDGLMUCB(**settings), naive.NaiveBVDGLMUCB(**settings)
    stages = compare(fast, slow, "logistic", 300, 15, 7, 6.0)
    assert stages.get(3, 0) >= 3, stages


@pytest.mark.slow
def test_the_papers_run_in_full() -> None:
    settings = {"dim": 2, "gamma": 0.995908}
    stages = compare(BVDGLMUCB(**settings), naive.NaiveBVDGLMUCB(**settings), "logistic", 3000, 3000, 8, 1.0)
    assert stages[2] > 100, stages
