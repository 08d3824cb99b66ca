"""The policies against their transcriptions, teacher-forced: the oracle is fed what the policy did."""

import math

import numpy as np
import pytest

import naive
import windvane as wv
from support.policies import decision
from support.worlds import SIGMA, ball, draw_reward, turning_theta

K = 6
DIMS = pytest.mark.parametrize("dim", [1, 2, 5])
LINKS = pytest.mark.parametrize("link", ["logistic", "poisson", "probit"])


def compare(fast, slow, link: str, horizon: int, checkpoints: int, seed: int, S: float) -> dict[int, int]:
    """Play ``horizon`` rounds; at the checkpoints compare estimates, projections, matrices, the chosen arm's score."""
    rng = np.random.default_rng(seed)
    stages: dict[int, int] = {}
    stops = set(np.unique(np.linspace(1, horizon, checkpoints).astype(int)).tolist())
    for t in range(1, horizon + 1):
        arms = ball(rng, (1, K), fast.dim)
        if t in stops:
            scores = slow.scores(arms[0])
            np.testing.assert_allclose(fast.info().metric[0], slow.V, rtol=1e-10, atol=1e-12)
            np.testing.assert_allclose(fast.info().squared_metric[0], slow.V_tilde, rtol=1e-10, atol=1e-12)
            np.testing.assert_allclose(fast.info().b[0], slow.b, rtol=1e-10, atol=1e-10)
            np.testing.assert_allclose(fast.info().theta_hat[0], slow.theta_hat, rtol=0, atol=1e-6)
            stages[slow.stage] = stages.get(slow.stage, 0) + 1
        choice = int(fast.select(arms)[0])
        if t in stops:
            assert scores[choice] >= scores.max() - 1e-6
            np.testing.assert_allclose(decision(fast).theta_tilde[0], slow.theta_tilde, rtol=0, atol=1e-4)
            assert decision(fast).beta[0] == pytest.approx(slow.beta, rel=1e-12)
        x = arms[:, choice]
        reward = draw_reward(rng, link, x @ turning_theta(t, horizon, fast.dim, S))
        fast.update(x, reward)
        slow.advance(1)
        slow.update(x[0], float(reward[0]))
    return stages


@DIMS
@pytest.mark.parametrize("gamma", [0.9, 0.99, 0.9959, 1.0])
@pytest.mark.parametrize("link", ["logistic", "poisson", "probit", "identity"])
@pytest.mark.parametrize("seed", [0, 1])
def test_bvd_glm_ucb(dim: int, gamma: float, link: str, seed: int) -> None:
    settings = {"dim": dim, "link": link, "gamma": gamma, "sigma": SIGMA[link]}
    compare(wv.BVDGLMUCB(**settings), naive.NaiveBVDGLMUCB(**settings), link, 300, 20, seed, 1.0)


@DIMS
@LINKS
def test_glm_ucb(dim: int, link: str) -> None:
    settings = {"dim": dim, "link": link, "sigma": SIGMA[link]}
    stages = compare(wv.GLMUCB(**settings), naive.NaiveGLMUCB(**settings), link, 300, 20, 3, 1.0)
    assert set(stages) <= {1, 2}


@DIMS
@pytest.mark.parametrize("gamma", [0.9, 0.9959, 1.0])
def test_d_lin_ucb(dim: int, gamma: float) -> None:
    compare(wv.DLinUCB(dim=dim, gamma=gamma), naive.NaiveDLinUCB(dim=dim, gamma=gamma), "logistic", 300, 20, 4, 1.0)


@DIMS
def test_oful(dim: int) -> None:
    compare(wv.OFUL(dim=dim), naive.NaiveOFUL(dim=dim), "logistic", 300, 20, 5, 1.0)


@pytest.mark.parametrize("confidence", ["horizon", "anytime"])
def test_other_forms_of_delta(confidence: str) -> None:
    settings = {"dim": 2, "gamma": 0.98, "confidence": confidence, "horizon": 120, "delta": 0.1, "bonus_scale": 0.5}
    compare(wv.BVDGLMUCB(**settings), naive.NaiveBVDGLMUCB(**settings), "logistic", 120, 10, 6, 1.0)


@pytest.mark.parametrize("dim", [2, 5])
def test_where_p2_is_solved_in_full(dim: int) -> None:
    """theta* far outside the assumed ball, little regularisation, small noise: the value of P2 is positive."""
    settings = {"dim": dim, "gamma": 0.999, "S": 0.3, "lam": 0.01, "sigma": 0.5, "delta": 1.0}
    fast, slow = wv.BVDGLMUCB(**settings), naive.NaiveBVDGLMUCB(**settings)
    stages = compare(fast, slow, "logistic", 300, 15, 7, 6.0)
    assert stages.get(3, 0) >= 3, stages


@pytest.mark.slow
def test_the_papers_run_in_full() -> None:
    settings = {"dim": 2, "gamma": 0.995908}
    stages = compare(wv.BVDGLMUCB(**settings), naive.NaiveBVDGLMUCB(**settings), "logistic", 3000, 3000, 8, 1.0)
    assert stages[2] > 100, stages


@DIMS
@LINKS
@pytest.mark.parametrize(("fast", "slow"), [(wv.SWBVDGLMUCB, naive.NaiveSWBVDGLMUCB), (wv.SWGLUCB, naive.NaiveSWGLUCB)])
@pytest.mark.parametrize("window", [15.0, 80.0])
def test_windows(fast, slow, dim: int, link: str, window: float) -> None:
    settings = {"dim": dim, "link": link, "sigma": SIGMA[link], "window": window}
    compare(fast(**settings), slow(**settings), link, 160, 12, dim, 1.0)


@pytest.mark.parametrize("dim", [2, 5])
def test_a_window_where_p2_is_solved_in_full(dim: int) -> None:
    """theta* far outside the assumed ball, little regularisation: the value of P2 is positive."""
    settings = {"dim": dim, "window": 150.0, "S": 0.3, "lam": 0.01, "sigma": 0.5, "delta": 1.0}
    stages = compare(wv.SWBVDGLMUCB(**settings), naive.NaiveSWBVDGLMUCB(**settings), "logistic", 250, 15, 7, 6.0)
    assert stages.get(3, 0) >= 3, stages


@DIMS
@LINKS
@pytest.mark.parametrize(
    ("fast", "slow"),
    [(wv.DGLUCB, naive.NaiveDGLUCB), (wv.GLBWeightUCB, naive.NaiveGLMUCB), (wv.SCBWeightUCB, naive.NaiveSCBWeightUCB)],
    ids=["D-GLUCB", "GLB", "SCB"],
)
def test_discounts(fast, slow, dim: int, link: str) -> None:
    """At lam = 1, where theta_hat often leaves the ball."""
    settings = {"dim": dim, "link": link, "sigma": SIGMA[link], "gamma": 0.97, "lam": 1.0}
    stages = compare(fast(**settings), slow(**settings), link, 160, 12, 10 + dim, 2.0)
    assert set(stages) == {1, 2}


@DIMS
@LINKS
def test_restarts(dim: int, link: str) -> None:
    settings = {"dim": dim, "link": link, "sigma": SIGMA[link], "restart_every": 40}
    compare(wv.RestartGLB(**settings), naive.NaiveRestartGLB(**settings), link, 150, 25, 20 + dim, 1.0)


@DIMS
@LINKS
@pytest.mark.parametrize("lam", [0.3, None])
def test_self_concordant(dim: int, link: str, lam: float | None) -> None:
    """Both radii are met: lam = 0.3 lets theta_hat leave the ball."""
    T, settings = 150, {"dim": dim, "link": link, "sigma": SIGMA[link], "S": 0.7}
    written = dim * math.log(T) if lam is None else lam
    stages = compare(
        wv.SCDGLUCB(**settings, horizon=T, gamma=0.98, lam=lam),
        naive.NaiveSCDGLUCB(**settings, T=T, gamma=0.98, lam=written),
        link, T, 15, 30 + dim, 2.0,
    )  # fmt: skip
    compare(
        wv.SCSWGLUCB(**settings, horizon=T, window=40.0, lam=lam),
        naive.NaiveSCSWGLUCB(**settings, T=T, window=40.0, lam=written),
        link, T, 15, 40 + dim, 2.0,
    )  # fmt: skip
    assert lam is None or 2 in stages
