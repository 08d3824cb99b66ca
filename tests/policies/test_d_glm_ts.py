"""D-GLM-TS: its samples."""

import math
import threading
from typing import Any

import numpy as np
import pytest
from scipy import stats

import naive
from support.worlds import ball
from windvane import DGLMTS


def teach_lanes(lanes: int, dim: int, **settings: Any) -> tuple[DGLMTS, naive.NaiveHistory]:
    """A policy whose lanes all know the same, and what they know."""
    rng = np.random.default_rng(9)
    policy = DGLMTS(dim, gamma=0.97, lanes=lanes, **settings)
    c_mu = naive.constants(naive.LINKS["logistic"], 1.0, 1.0)[1]
    history = naive.NaiveHistory(dim, naive.LINKS["logistic"], 0.97, 1.0, c_mu)
    for t in range(1, 41):
        x, reward = ball(rng, (), dim), float(rng.random() < 0.6)
        policy.advance(1.0)
        policy.update(np.tile(x, (lanes, 1)), reward, round=t)
        history.append(x, reward, t)
    return policy, history


@pytest.mark.parametrize("dim", [1, 2, 5])
def test_samples_follow_the_laplace_approximation(dim: int) -> None:
    lanes, scale = 6000, 0.5
    policy, history = teach_lanes(lanes, dim, posterior_scale=scale)
    t = policy.t
    mode = naive.theta_hat(history, t, history.link, history.ridge)
    white = (policy.info().theta_tilde - mode) @ np.linalg.cholesky(history.H(mode, t)) / scale
    for i in range(dim):
        assert stats.kstest(white[:, i], "norm").pvalue > 1e-3
    error = np.cov(white.T).reshape(dim, dim) - np.eye(dim)
    assert np.abs(error).max() < 5 * math.sqrt(2 / lanes)
    first = policy.info().theta_tilde
    assert (policy.info().theta_tilde == first).all()  # asking twice is not drawing twice
    policy.select(np.zeros((lanes, 2, dim)))
    assert (policy.info().theta_tilde != first).all()  # another decision, another draw


def test_two_threads_on_one_policy_do_not_crash() -> None:
    """D-GLM-TS reads its history for every decision, while another thread lengthens it."""
    policy, arms = DGLMTS(2, gamma=0.999), np.full((1, 3, 2), 0.4)
    policy.select(arms)
    decided = threading.Event()

    def learn() -> None:
        while not decided.is_set():
            policy.update(arms[:, 0], 1.0, round=1.0)

    learner = threading.Thread(target=learn)
    learner.start()
    for _ in range(400):
        policy.select(arms)
    decided.set()
    learner.join()
    assert np.isfinite(policy.info().theta_hat).all()
