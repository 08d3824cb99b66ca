"""The policies against their transcriptions, teacher-forced: the oracle is fed what the policy did."""

import math
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest

import naive
import windvane as wv
from support.policies import decision
from support.worlds import SIGMA, ball, draw_reward, turning_theta

K = 6
P2_IN_FULL = {"S": 0.3, "lam": 0.01, "sigma": 0.5, "delta": 1.0}  # with theta* far outside the ball P2 is positive
Run = tuple[Any, Any, dict[str, Any], tuple[int, int, int, float], dict[int, int]]


def compare(
    fast, slow, link: str, rounds: int, checkpoints: int, seed: int, length: float, least: dict[int, int]
) -> None:
    """Compare estimates, projections, matrices and the chosen arm's score at the checkpoints of a run.

    theta* has norm ``length``; each stage of the projection must be met at ``least`` so many checkpoints.
    """
    rng, stages = np.random.default_rng(seed), []
    stops = set(np.unique(np.linspace(1, rounds, checkpoints).astype(int)).tolist())
    for t in range(1, rounds + 1):
        arms = ball(rng, (1, K), fast.dim)
        if t in stops:
            scores, info = slow.scores(arms[0]), fast.info()
            np.testing.assert_allclose(info.metric[0], slow.V, rtol=1e-10, atol=1e-12)
            np.testing.assert_allclose(info.squared_metric[0], slow.V_tilde, rtol=1e-10, atol=1e-12)
            np.testing.assert_allclose(info.b[0], slow.b, rtol=1e-10, atol=1e-10)
            np.testing.assert_allclose(info.theta_hat[0], slow.theta_hat, rtol=0, atol=1e-6)
            stages.append(slow.stage)
        choice = int(fast.select(arms)[0])
        if t in stops:
            assert scores[choice] >= scores.max() - 1e-6
            np.testing.assert_allclose(decision(fast).scores[0], scores, rtol=1e-6, atol=1e-4)
            np.testing.assert_allclose(decision(fast).theta_tilde[0], slow.theta_tilde, rtol=0, atol=1e-4)
            assert decision(fast).beta[0] == pytest.approx(slow.beta, rel=1e-12)
        x = arms[:, choice]
        reward = draw_reward(rng, link, x @ turning_theta(t, rounds, fast.dim, length))
        fast.update(x, reward)
        slow.advance(1)
        slow.update(x[0], float(reward[0]))
    assert all(stages.count(stage) >= count for stage, count in least.items()), stages


def linear_runs() -> Iterator[Run]:
    for dim in (1, 2, 5):
        yield wv.OFUL, naive.NaiveOFUL, {"dim": dim}, (300, 20, 5, 1.0), {}
        for gamma in (0.9, 0.9959, 1.0):
            yield wv.DLinUCB, naive.NaiveDLinUCB, {"dim": dim, "gamma": gamma}, (300, 20, 4, 1.0), {}


def glm_runs() -> Iterator[Run]:
    for dim, link in product((1, 2, 5), SIGMA):
        both = {"dim": dim, "link": link, "sigma": SIGMA[link]}
        for gamma, seed in product((0.9, 0.99, 0.9959, 1.0), (0, 1)):
            yield wv.BVDGLMUCB, naive.NaiveBVDGLMUCB, both | {"gamma": gamma}, (300, 20, seed, 1.0), {}
        if link == "identity":
            continue
        yield wv.GLMUCB, naive.NaiveGLMUCB, both, (300, 20, 3, 1.0), {}
        yield wv.RestartGLB, naive.NaiveRestartGLB, both | {"restart_every": 40}, (150, 25, 20 + dim, 1.0), {}
        for window in (15.0, 80.0):
            yield wv.SWBVDGLMUCB, naive.NaiveSWBVDGLMUCB, both | {"window": window}, (160, 12, dim, 1.0), {}
            yield wv.SWGLUCB, naive.NaiveSWGLUCB, both | {"window": window}, (160, 12, dim, 1.0), {}
        for fast, slow in (
            (wv.DGLUCB, naive.NaiveDGLUCB), (wv.GLBWeightUCB, naive.NaiveGLMUCB),
            (wv.SCBWeightUCB, naive.NaiveSCBWeightUCB),
        ):  # fmt: skip
            yield fast, slow, both | {"gamma": 0.97, "lam": 1.0}, (160, 12, 10 + dim, 2.0), {1: 1, 2: 1}
    for dim in (2, 5):
        discounted, windowed = {"dim": dim, "gamma": 0.999}, {"dim": dim, "window": 150.0}
        yield wv.BVDGLMUCB, naive.NaiveBVDGLMUCB, discounted | P2_IN_FULL, (300, 15, 7, 6.0), {3: 3}
        yield wv.SWBVDGLMUCB, naive.NaiveSWBVDGLMUCB, windowed | P2_IN_FULL, (250, 15, 7, 6.0), {3: 3}
    for confidence in ("horizon", "anytime"):
        settings = {"dim": 2, "gamma": 0.98, "confidence": confidence, "horizon": 120, "delta": 0.1, "bonus_scale": 0.5}
        yield wv.BVDGLMUCB, naive.NaiveBVDGLMUCB, settings, (120, 10, 6, 1.0), {}


def name_run(run: Run) -> str:
    return f"{run[0].name} {' '.join(map(str, run[2].values()))} {run[3][2]}"


@pytest.mark.parametrize("run", [*linear_runs(), *glm_runs()], ids=name_run)
def test_a_policy_is_its_transcription(run: Run) -> None:
    fast, slow, settings, world, least = run
    compare(fast(**settings), slow(**settings), settings.get("link", "logistic"), *world, least)


@pytest.mark.slow
def test_the_papers_run_in_full() -> None:
    settings = {"dim": 2, "gamma": 0.995908}
    compare(wv.BVDGLMUCB(**settings), naive.NaiveBVDGLMUCB(**settings), "logistic", 3000, 3000, 8, 1.0, {2: 101})


@pytest.mark.parametrize("dim", [1, 2, 5])
@pytest.mark.parametrize("link", ["logistic", "poisson", "probit"])
@pytest.mark.parametrize("lam", [0.3, None])
def test_self_concordant(dim: int, link: str, lam: float | None) -> None:
    """Both radii are met: lam = 0.3 lets theta_hat leave the ball. The transcriptions need lam written out."""
    T, settings = 150, {"dim": dim, "link": link, "sigma": SIGMA[link], "S": 0.7}
    fast, slow = {"horizon": T, "lam": lam}, {"T": T, "lam": dim * math.log(T) if lam is None else lam}
    for cls, literal, forgetting, seed, least in (
        (wv.SCDGLUCB, naive.NaiveSCDGLUCB, {"gamma": 0.98}, 30 + dim, {2: 0 if lam is None else 1}),
        (wv.SCSWGLUCB, naive.NaiveSCSWGLUCB, {"window": 40.0}, 40 + dim, {}),
    ):
        own = settings | forgetting
        compare(cls(**own, **fast), literal(**own, **slow), link, T, 15, seed, 2.0, least)
