"""GLOC, ECOLogUCB and ada-OFU-ECOLog: against their transcriptions, their confidence sets, and what sets them apart."""

import math
from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy import stats

import naive
import windvane as wv
from support.policies import decision
from support.worlds import BENT, SIGMA, ball, draw_reward, turning_theta
from windvane.links import get_link

P_VALUE = 1e-6
GLOC_OTHERS: dict[str, Any] = {"S": 1.7, "L": 1.5, "lam": 0.3, "sigma": 0.8, "delta": 0.2, "bonus_scale": 0.01}
ECOLOG_OTHERS: dict[str, Any] = {"S": 2.5, "L": 1.6, "lam": 0.4, "delta": 0.2, "bonus_scale": 0.1}


def expit(z: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-z))


# --- the transcriptions -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("link", "dim", "settings"),
    [*product(SIGMA, (1, 2, 5), [{}]), *product(["logistic", "identity"], (1, 3), [GLOC_OTHERS])],
)
def test_gloc_is_its_transcription(link: str, dim: int, settings: dict[str, Any]) -> None:
    settings = {"sigma": SIGMA[link]} | settings
    fast, slow = wv.GLOC(dim, link, **settings), naive.NaiveGLOC(dim, link, **settings)
    rng, projected = np.random.default_rng([dim, len(settings)]), 0
    for t in range(1, 201):
        arms = ball(rng, (1, 6), dim, fast.L)
        expected = slow.indices(arms[0])
        choice = int(fast.select(arms)[0])
        np.testing.assert_allclose(decision(fast).order[0], expected, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(decision(fast).theta_hat[0], slow.theta_hat, rtol=0, atol=1e-8)
        np.testing.assert_allclose(fast.estimator.iterate[0], slow.theta, rtol=0, atol=1e-7)
        assert decision(fast).beta[0] ** 2 == pytest.approx(slow.beta, rel=1e-9)
        assert expected[choice] >= expected.max() - 1e-8
        x, weight = arms[0, choice], float(rng.choice([1.0, 1.0, 1.0, 2.5]))
        reward = draw_reward(rng, link, x @ turning_theta(t, 200, dim, 2.0))  # outside the ball
        fast.update(x[None], reward, weight=weight)
        slow.update(x, float(reward), weight)
        projected += math.isclose(float(np.linalg.norm(slow.theta)), fast.S, rel_tol=1e-9)
    assert projected > 10  # the projection of the iterate is tested


@pytest.mark.parametrize("dim", [1, 2, 5])
@pytest.mark.parametrize("settings", [{}, {"S": 4.0, "bonus_scale": 0.1}, ECOLOG_OTHERS], ids=str)
def test_ecolog_ucb_is_its_transcription(dim: int, settings: dict[str, Any]) -> None:
    fast, slow = wv.ECOLogUCB(dim, **settings), naive.NaiveECOLogUCB(dim, **settings)
    rng, projected = np.random.default_rng([dim, 2]), 0
    for t in range(1, 151):
        arms = ball(rng, (1, 6), dim, fast.L)
        expected = slow.indices(arms[0])
        choice = int(fast.select(arms)[0])
        np.testing.assert_allclose(decision(fast).order[0], expected, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(decision(fast).theta_hat[0], slow.theta, rtol=0, atol=1e-8)
        np.testing.assert_allclose(fast.info().metric[0], slow.W, rtol=1e-9, atol=1e-10)
        assert decision(fast).beta[0] ** 2 == pytest.approx(slow.rho, rel=1e-9)
        assert expected[choice] >= expected.max() - 1e-8
        x, weight = arms[0, choice], float(rng.choice([1.0, 1.0, 0.3, 2.0]))
        z = x @ turning_theta(t, 150, dim, 3.0 * fast.S / fast.L)  # beyond the ball, so that steps are projected
        reward = float(rng.random()) if t % 5 == 0 else float(draw_reward(rng, "logistic", z))
        fast.update(x[None], reward, weight=weight)
        slow.update(x, reward, weight)
        projected += math.isclose(float(np.linalg.norm(slow.theta)), fast.S, rel_tol=1e-9)
    assert projected > 5 or fast.S > 1.0


@pytest.mark.parametrize("dim", [1, 2, 4])
@pytest.mark.parametrize(
    "settings",
    [{}, {"radius_form": "proved"}, {"S": 6.0, "delta": 0.2}, {"S": 6.0, "level": 60.0}, {"S": 2.0, "L": 2.0}],
    ids=str,
)
def test_ada_ofu_ecolog_is_its_transcription(dim: int, settings: dict[str, Any]) -> None:
    """``level`` stands for beta_t, which is so large that the set of parameters would not cut the ball for ages."""
    settings = dict(settings)
    level, L, form = settings.pop("level", None), settings.get("L", 1.0), settings.get("radius_form", "printed")
    fast = wv.AdaOFUECOLog(dim, **settings)
    S, delta = fast.S * L, settings.get("delta", 0.05)
    slow = naive.NaiveAdaOFUECOLog(dim, S, delta, form == "proved", None if level is None else lambda _: level)
    if level is not None:
        fast.radius.level = lambda _: np.full(1, level)  # type: ignore[method-assign]
    rng, rejected, cut = np.random.default_rng([dim, 3]), 0, 0
    for t in range(1, 121):
        arms = ball(rng, (1, 8), dim, L)
        expected = slow.indices(arms[0] / L)
        choice = int(fast.select(arms)[0])
        np.testing.assert_allclose(decision(fast).order[0], expected, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(decision(fast).theta_hat[0] * L, slow.theta, rtol=0, atol=2e-6)
        assert decision(fast).beta[0] ** 2 == pytest.approx(slow.squared_radius, rel=1e-9)
        x = arms[0, choice]
        if t % 10 == 0:
            x = -x  # a reward of another arm than the one that is best by now
        reward = float(draw_reward(rng, "logistic", x @ turning_theta(t, 120, dim, S / L)))
        fast.update(x[None], reward)
        accepted = slow.update(x / L, reward, t)
        rejected += not accepted
        assert int(fast.info().remembered[0]) == rejected
        if not accepted:
            np.testing.assert_allclose(fast.sets[0, 0] * L, slow.center, rtol=0, atol=1e-5)
            np.testing.assert_allclose(fast.sets[0, 1:-1] / L**2, slow.shape, rtol=1e-9)
        gap = slow.theta - slow.center
        cut += rejected > 0 and math.isclose(gap @ slow.shape @ gap, slow.bound, rel_tol=1e-6)
    if S == 6.0:
        assert rejected > (5 if level is None else 0)
    if level is not None and dim > 1:
        assert cut > 0, "the set of parameters never decided"


# --- confidence sets --------------------------------------------------------------------------------------------------


def choose_arm(law: str, rng: np.random.Generator, policy: Any, theta: np.ndarray, t: int) -> np.ndarray:
    """Arms of an adversary who knows theta*, [lanes, dim]."""
    n, d = theta.shape
    if law == "own":  # those of the policy, among some in the ball
        arms = ball(rng, (n, 10), d, policy.L)
        return arms[np.arange(n), policy.select(arms)]
    if law == "axes":
        x = np.tile(policy.L * np.eye(d)[t % d], (n, 1))
    elif law == "error":  # along the error of the estimate
        gap = policy.estimator.theta_hat - theta
        x = policy.L * gap / np.maximum(np.linalg.norm(gap, axis=1, keepdims=True), 1e-12)
    else:  # along theta*, where means are extreme and the curvature is least, with a short one now and then
        x = policy.L * theta / np.linalg.norm(theta, axis=1, keepdims=True) * (0.05 if t % 3 == 0 else 1.0)
    policy.select(x[:, None])
    return x


def play_against(law: str, policy: Any, theta: np.ndarray, rounds: int, rng: np.random.Generator) -> np.ndarray:
    """Play, and return whether the confidence set of each lane ever missed theta*."""
    missed, mean = np.zeros(len(theta), dtype=bool), policy.reward_link.mean
    for t in range(rounds):
        e = policy.estimator
        gap = e.theta_hat - theta
        radius = policy.compute_beta(e.theta_hat)
        missed |= np.einsum("li,lij,lj->l", gap, e.V, gap) > radius**2 * (1 + 1e-9)
        x = choose_arm(law, rng, policy, theta, t)
        policy.update(x, (rng.random(len(theta)) < mean(np.einsum("ld,ld->l", x, theta))).astype(float))
    return missed


def directions(rng: np.random.Generator, n: int, d: int, length: float) -> np.ndarray:
    x = rng.normal(size=(n, d))
    return length * x / np.linalg.norm(x, axis=1, keepdims=True)


LAWS = ["own", "axes", "error", "along"]


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("dim", [1, 3])
@pytest.mark.parametrize(
    ("cls", "settings"),
    [
        (wv.GLOC, {"S": 1.0}), (wv.GLOC, {"S": 2.0, "link": "probit"}), (wv.ECOLogUCB, {"S": 1.0}),
        (wv.ECOLogUCB, {"S": 4.0, "lam": 0.1}), (wv.ECOLogUCB, {"S": 8.0, "L": 0.5}),
        (wv.AdaOFUECOLog, {"S": 1.0, "radius_form": "proved"}),
    ],
    ids=str,
)  # fmt: skip
def test_confidence_sets_cover_at_all_rounds_at_once(cls: Any, settings: dict[str, Any], dim: int, law: str) -> None:
    """At delta = 1/2, a share of at most 1/2 of 300 lanes may miss theta*, at any round, whatever the arms."""
    n, rng = 300, np.random.default_rng([dim, LAWS.index(law)])
    policy = cls(dim, delta=0.5, lanes=n, **settings)
    missed = play_against(law, policy, directions(rng, n, dim, policy.S), 150, rng)
    assert stats.binom.sf(missed.sum() - 1, n, 0.5) > P_VALUE, missed.mean()


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize(("S", "dim"), [(1.0, 2), (3.0, 2), (3.0, 10), (6.0, 5)])
def test_ecolog_ucb_covers_for_long(S: float, dim: int, law: str) -> None:
    n, rng = 1000, np.random.default_rng([dim, LAWS.index(law), 9])
    policy = wv.ECOLogUCB(dim, S=S, delta=0.3, lanes=n)
    missed = play_against(law, policy, directions(rng, n, dim, S), 1500, rng)
    assert stats.binom.sf(missed.sum() - 1, n, 0.3) > P_VALUE, missed.mean()


class Twins:
    """The quantities of the proof of ECOLogUCB, from what the policy shows: theta_s, W_s and rho_s."""

    def __init__(self, dim: int, S: float, lanes: int, **settings: Any) -> None:
        self.policy = wv.ECOLogUCB(dim, S=S, lanes=lanes, delta=1.0, **settings)  # rho without log(1/delta)
        self.k = 1.0 + S * self.policy.L

    def learn(self, x: np.ndarray, reward: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return theta and W before, and m_s(r), from the step that the policy takes."""
        e = self.policy.estimator
        theta, W = e.theta_hat, e.V.copy()
        self.policy.advance(1.0)
        self.policy.update(x, reward, round=self.policy.t - 1)
        z, gap = np.einsum("ld,ld->l", x, e.theta_hat), e.theta_hat - theta
        m = np.logaddexp(0, z) - reward * z + np.einsum("li,lij,lj->l", gap, W, gap) / (2 * self.k)
        return theta, W, m


@pytest.mark.parametrize(("S", "dim"), [(0.5, 1), (1.0, 2), (3.0, 2), (6.0, 4)])
@pytest.mark.parametrize("rewards", ["clicks", "shares", "the worst"])
def test_the_deterministic_step_of_the_proof(S: float, dim: int, rewards: str) -> None:
    """|theta_{s+1} - u|^2 in W_{s+1} <= |theta_s - u|^2 in W_s + 2 k (l_s(u) - m_s(r_s)), for any u of the ball."""
    n, rng = 60, np.random.default_rng([dim, len(rewards)])
    twins, others = Twins(dim, S, n), ball(rng, (n,), dim, S)
    others[: n // 2] *= S / np.linalg.norm(others[: n // 2], axis=1, keepdims=True)
    for _ in range(80):
        x = ball(rng, (n,), dim)
        z = np.einsum("ld,ld->l", x, others)
        likely = expit(z) if rewards != "the worst" else 1.0 * (z < 0)
        reward = rng.random(n) if rewards == "shares" else (rng.random(n) < likely).astype(float)
        theta, W, m = twins.learn(x, reward)
        e = twins.policy.estimator
        before, after = theta - others, e.theta_hat - others
        distances = [np.einsum("li,lij,lj->l", v, M, v) for v, M in ((before, W), (after, e.V))]
        loss = np.logaddexp(0, z) - reward * z
        slack = distances[0] + 2 * twins.k * (loss - m) - distances[1]
        assert (slack >= -1e-9 * (1 + distances[0])).all()


def test_the_likelihood_ratio_of_the_proof_has_mean_one() -> None:
    """exp(sum l_s(theta*) - q_s) is a martingale for clicks: its mean stays at 1. For shares it is at most 1.

    After few rounds, so that its variance is small: each lane's ratio is at most 2^5.
    """
    n, dim, S, rng = 20_000, 2, 1.0, np.random.default_rng(3)
    for shares in (False, True):
        twins, theta = Twins(dim, S, n), directions(rng, n, dim, S)
        ratio = np.zeros(n)
        for t in range(5):
            x = np.tile(np.eye(dim)[t % dim], (n, 1))
            z, before = np.einsum("ld,ld->l", x, theta), twins.policy.estimator.regret
            reward = (rng.random(n) < expit(z)).astype(float)
            if shares:
                reward = np.where(rng.random(n) < 0.5, reward, expit(z))
            m = twins.learn(x, reward)[2]
            q = twins.policy.estimator.regret - before + m
            ratio += np.logaddexp(0, z) - reward * z - q
        values = np.exp(ratio)
        error = values.std(ddof=1) / math.sqrt(n)
        assert stats.norm.sf((values.mean() - 1.0) / error) > P_VALUE  # not above
        assert shares or stats.norm.cdf((values.mean() - 1.0) / error) > P_VALUE


@pytest.mark.parametrize(("S", "L", "dim"), [(1.0, 1.0, 2), (3.0, 2.0, 3), (8.0, 0.5, 5)])
def test_the_radius_is_bounded_as_the_regret_bound_needs(S: float, L: float, dim: int) -> None:
    """rho_T <= lam S^2 + 2 k log(1/delta) + 7.2 k^2 A, with the default lam = k L^2, on any run; rho never falls."""
    n, T, rng = 50, 400, np.random.default_rng(dim)
    policy, k = wv.ECOLogUCB(dim, S=S, L=L, lanes=n), 1.0 + S * L
    last = np.zeros(n)
    for t in range(1, T + 1):
        x = ball(rng, (n,), dim, L)
        x *= L / np.linalg.norm(x, axis=1, keepdims=True)
        policy.advance(1.0)
        reward = (rng.random(n) < 0.5).astype(float) if t % 2 else (x[:, 0] > 0).astype(float)
        policy.update(x, reward, round=policy.t - 1)
        rho = policy.compute_beta(policy.estimator.theta_hat) ** 2
        A = dim * math.log(1 + t * L**2 / (4 * dim * policy.estimator.lam))
        assert (rho >= last).all()
        assert (rho <= policy.estimator.lam * S**2 + 2 * k * math.log(20) + 7.2 * k**2 * A).all()
        last = rho


# --- what sets them apart ---------------------------------------------------------------------------------------------


def rejected_share(S: float, *, fixed: bool) -> float:
    """Rejected rewards of ada-OFU-ECOLog in 300 rounds, of 20 lanes with 20 arms in the disc and |theta*| = S - 1."""
    n, T, rng = 20, 300, np.random.default_rng(7)
    policy, theta = wv.AdaOFUECOLog(2, S=S, lanes=n), directions(rng, n, 2, max(S - 1.0, 1.0))
    arms = ball(rng, (n, 20), 2)
    for _ in range(T):
        arms = arms if fixed else ball(rng, (n, 20), 2)
        x = arms[np.arange(n), policy.select(arms)]
        policy.update(x, (rng.random(n) < expit(np.einsum("ld,ld->l", x, theta))).astype(float))
    return float(policy.info().remembered.mean() / T)


def test_ada_ofu_ecolog_locks_up_on_fixed_arms() -> None:
    """As the docstring says: no rejection for S <= 2; on fixed arms almost every reward for S >= 4."""
    assert rejected_share(1.0, fixed=True) == rejected_share(2.0, fixed=True) == 0.0
    assert rejected_share(3.0, fixed=True) > 0.5
    assert rejected_share(4.0, fixed=True) > 0.95
    assert rejected_share(4.0, fixed=False) > 0.4


def test_the_radius_of_ecolog_ucb_is_a_fraction_of_the_papers() -> None:
    rng = np.random.default_rng(1)
    for S in (1.0, 2.0, 5.0):
        ours, paper = wv.ECOLogUCB(2, S=S), wv.AdaOFUECOLog(2, S=S)
        for _ in range(300):
            x = ball(rng, (1,), 2)
            reward = draw_reward(rng, "logistic", x[:, 0])
            for policy in (ours, paper):
                policy.advance(1.0)
                policy.update(x, reward, round=policy.t - 1)
        ratio = ours.compute_beta(ours.estimator.theta_hat) ** 2 / paper.radius.eta(300.0)
        assert ratio < 0.25


@pytest.mark.parametrize("cls", [wv.ECOLogUCB, wv.AdaOFUECOLog, wv.PGTS])
@pytest.mark.parametrize("link", ["probit", "identity", BENT])
def test_the_logistic_link_only(cls: Any, link: Any) -> None:
    with pytest.raises(wv.ArgumentError) as caught:
        cls(2, link=link)
    assert caught.value.argument == "link"


@pytest.mark.parametrize("cls", [wv.GLOC, wv.ECOLogUCB, wv.AdaOFUECOLog])
def test_time_and_memory_do_not_grow(cls: Any) -> None:
    rng, policy, sizes = np.random.default_rng(13), cls(3, lanes=2), set()
    for _ in range(60):
        arms = ball(rng, (2, 4), 3)
        policy.update(arms[np.arange(2), policy.select(arms)], 1.0)
        sizes.add(sum(array.nbytes for array in policy.state().values()))
    assert len(sizes) == 1
    assert policy.estimator.history.size == 0


@pytest.mark.parametrize("cls", [wv.GLOC, wv.ECOLogUCB, wv.AdaOFUECOLog])
@pytest.mark.parametrize("arm_set", [wv.Ball(0.8), wv.Sphere(1.0)], ids=repr)
def test_the_arm_of_a_ball_has_the_largest_index(cls: Any, arm_set: Any) -> None:
    """The index is linear: no arm of the set has a larger <x, theta> + multiplier |x|."""
    rng, policy = np.random.default_rng(5), cls(3, lanes=2, S=2.0)
    for _ in range(30):
        x = ball(rng, (2,), 3)
        policy.advance(1.0)
        policy.update(x, draw_reward(rng, "logistic", 2.0 * x[:, 0]), round=policy.t - 1)
    inverse, theta = np.linalg.inv(policy.estimator.V), policy.estimator.theta_hat
    played = policy.select_from(arm_set)
    factor = decision(policy).multiplier
    others = directions(rng, 40_000, 3, arm_set.radius)
    for lane in range(2):
        index = others @ theta[lane] + factor[lane] * np.sqrt(np.einsum("ki,ij,kj->k", others, inverse[lane], others))
        x = played[lane]
        own = x @ theta[lane] + factor[lane] * math.sqrt(x @ inverse[lane] @ x)
        assert np.linalg.norm(x) == pytest.approx(arm_set.radius)
        assert own >= index.max() - 1e-9


def test_saturated_means_do_not_tie() -> None:
    """Bounds so far out that mu rounds to 1 are still compared, by ``select`` and by ``probabilities``."""
    policy = wv.GLOC(2, S=4.0)
    arms = np.array([[[1.0, 0.0], [0.9, 0.0], [0.0, 0.95]]])
    assert policy.probabilities(arms).tolist() == [[1.0, 0.0, 0.0]]
    assert policy.select(arms).tolist() == [0]
    assert (decision(policy).scores == 1.0).all()
    assert (decision(policy).order > 40.0).all()


def test_gloc_ts_samples_from_the_confidence_set() -> None:
    """theta_tilde is that of the transcription, and in many lanes N(theta_hat, a^2 beta V^-1)."""
    n, a, rng = 4000, 0.7, np.random.default_rng(2)
    policy, slow = wv.GLOCTS(2, lanes=n, seed=5, posterior_scale=a), naive.NaiveGLOCTS(2)
    for _ in range(30):
        x, reward = ball(rng, (), 2), float(rng.random() < 0.7)
        policy.advance(1.0)
        policy.update(np.tile(x, (n, 1)), reward, round=policy.t - 1)
        slow.update(x, reward)
    policy.select(np.zeros((n, 1, 2)))
    theta_hat, theta_tilde = decision(policy).theta_hat, decision(policy).theta_tilde
    for lane in (0, 17):
        literal = slow.theta_hat + a * (slow.sample(0, 5, lane) - slow.theta_hat)
        np.testing.assert_allclose(theta_tilde[lane], literal, rtol=1e-8, atol=1e-8)
    white = (theta_tilde - theta_hat) @ np.linalg.cholesky(slow.V) / (a * math.sqrt(slow.beta))
    for i in range(2):
        assert stats.kstest(white[:, i], "norm").pvalue > P_VALUE


def test_the_weight_of_a_reward_below_one_covers() -> None:
    """Weights that do not depend on rewards: at delta = 1/2, at most half of the lanes may miss theta*."""
    n, rng = 400, np.random.default_rng(8)
    policy, theta = wv.ECOLogUCB(2, S=2.0, lam=0.1, delta=0.5, lanes=n), directions(rng, n, 2, 2.0)
    missed = np.zeros(n, dtype=bool)
    for t in range(150):
        e = policy.estimator
        gap = e.theta_hat - theta
        missed |= np.einsum("li,lij,lj->l", gap, e.V, gap) > policy.compute_beta(e.theta_hat) ** 2
        x = choose_arm("error", rng, policy, theta, t)
        reward = (rng.random(n) < get_link("logistic").mean(np.einsum("ld,ld->l", x, theta))).astype(float)
        policy.update(x, reward, weight=[1.0, 0.5, 0.01, 0.9][t % 4])
    assert stats.binom.sf(missed.sum() - 1, n, 0.5) > P_VALUE
