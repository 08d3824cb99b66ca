"""Logistic-UCB-1, UCB-GLM, OFULog-r, OFUGLB and OFUGLB-e: their transcriptions, units, phases, sets and coverage."""

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import minimize

import naive
import windvane as wv
from support.policies import decision
from support.refusals import refuses, refuses_unchanged
from support.worlds import SIGMA, ball, draw_reward
from windvane import Ball, Sphere

K = 6
Run = tuple[Any, Any, dict[str, Any], dict[str, Any], dict[str, Any]]


def follow(fast: Any, slow: Any, link: str, *, length: float, rounds: int, seed: int, least: dict[int, int]) -> None:
    """Compare a policy with its transcription, which is fed what the policy did, at 15 checkpoints of a run.

    theta* has norm ``length``. ``least``: how often each stage of the projection must be met. SLSQP finds theta_hat to
    1e-6 or so, and the value of an arm to 1e-7 of the width of the set.
    """
    rng, d, stages = np.random.default_rng(seed), fast.dim, []
    theta_star = length * np.eye(d)[0]
    stops = set(np.unique(np.linspace(1, rounds, 15).astype(int)).tolist())
    for t in range(1, rounds + 1):
        arms = ball(rng, (1, K), d)
        if t in stops:
            scores = slow.scores(arms[0])
            info = fast.info()
            np.testing.assert_allclose(info.theta_hat[0], slow.theta_hat, rtol=0, atol=1e-5)
            stages.append(getattr(slow, "stage", 1))
            is_random = fast.name == "UCB-GLM" and slow.explores()
            if fast.name == "UCB-GLM":
                assert info.is_exploring.tolist() == [is_random]
        choice = int(fast.select(arms)[0])
        if t in stops:
            made = decision(fast)
            index = made.scores[0] if made.order is None else made.order[0]
            assert made.beta[0] == pytest.approx(slow.beta, rel=1e-9)
            if is_random:
                assert not index.any()
            else:
                size = 1e-5 * (1.0 + np.abs(scores).max())
                assert scores[choice] >= scores.max() - size
                assert index[choice] == pytest.approx(scores.max(), abs=size)
                assert (index >= scores - size).all()
                if not isinstance(slow, naive.NaiveLevelSet) or isinstance(slow, naive.NaiveOFUGLBe):
                    np.testing.assert_allclose(index, scores, rtol=0, atol=size)
        x = arms[:, choice]
        reward = draw_reward(rng, link, x @ theta_star)
        fast.update(x, reward)
        slow.advance(1)
        slow.update(x[0], float(reward[0]))
    assert all(stages.count(stage) >= count for stage, count in least.items()), stages


def runs() -> Iterator[Run]:
    """Policy, transcription, the settings of each, and the world."""
    for d in (1, 2, 5):
        far = {"length": 3.0, "rounds": 160, "seed": d, "least": {2: 3}}
        near = {"length": 1.0, "rounds": 160, "seed": d, "least": {}}
        one, other = {"dim": d, "horizon": 160}, {"dim": d, "lam": d * math.log(160)}
        yield wv.LogisticUCB1, naive.NaiveLogisticUCB1, one, other, near
        small = {"dim": d, "S": 0.7, "lam": 0.3}
        yield wv.LogisticUCB1, naive.NaiveLogisticUCB1, small, small, far
        sharp = {"dim": d, "is_sharp": True, "lam": 0.5, "delta": 0.2, "bonus_scale": 0.3}
        yield wv.LogisticUCB1, naive.NaiveLogisticUCB1, sharp, sharp, far | {"least": {1: 1, 2: 1}}
        for link in SIGMA:
            S = 0.5 if link == "probit" else 1.0
            both = {"dim": d, "link": link, "sigma": SIGMA[link], "S": S, "lam": 1e-6, "delta": 0.1}
            yield wv.UCBGLM, naive.NaiveUCBGLM, both | {"horizon": 300}, both | {"T": 300}, near
        for settings in ({}, {"bonus_scale": 0.1}, {"bonus_scale": 0.02}, {"bonus_scale": 0.05, "lam": 0.4, "S": 0.5}):
            both = {"dim": d, "delta": 0.1} | settings
            yield wv.OFULogR, naive.NaiveOFULogR, both, both, far | {"least": {}}
        proved, lam = {"dim": d, "S": 2.0, "bonus_scale": 0.05, "is_proved": True}, {"lam": d * math.log(200)}
        yield wv.OFULogR, naive.NaiveOFULogR, proved | {"horizon": 200}, proved | lam, near
        for link in ("logistic", "poisson", "identity"):
            for settings in ({"bonus_scale": 0.3}, {"bonus_scale": 0.1, "lipschitz": "data", "S": 0.6}, {"S": 2.0}):
                both = {"dim": d, "link": link, "delta": 0.1} | settings
                both |= {"sigma": SIGMA[link]} if link != "poisson" else {}
                one = both | ({"sigma": 5.0} if link == "poisson" else {})
                yield wv.OFUGLB, naive.NaiveOFUGLB, one, both, near
                yield wv.OFUGLBe, naive.NaiveOFUGLBe, one, both, near


def name_run(run: Run) -> str:
    return f"{run[0].name} {' '.join(map(str, run[2].values()))}"


@pytest.mark.parametrize("run", list(runs()), ids=name_run)
def test_a_policy_is_its_transcription(run: Run) -> None:
    fast, slow, own, literal, world = run
    follow(fast(**own), slow(**literal), own.get("link", "logistic"), **world)


# --- units ------------------------------------------------------------------------------------------------------------

UNITS: dict[str, tuple[Any, dict[str, Any], dict[str, Any]]] = {  # settings at L = 1, and what differs at L = 2
    "Logistic-UCB-1": (wv.LogisticUCB1, {"horizon": 60}, {}),
    "UCB-GLM": (wv.UCBGLM, {"horizon": 60}, {}),
    "OFULog-r": (wv.OFULogR, {"bonus_scale": 0.1}, {}),
    "OFULog-r proved": (wv.OFULogR, {"bonus_scale": 0.1, "horizon": 60, "is_proved": True}, {}),
    "OFUGLB": (wv.OFUGLB, {"bonus_scale": 0.2}, {}),
    "OFUGLB data": (wv.OFUGLB, {"bonus_scale": 0.2, "lipschitz": "data"}, {}),
    "OFUGLB-e": (wv.OFUGLBe, {}, {}),
    "DetectLogisticUCB1": (wv.DetectLogisticUCB1, {"horizon": 60}, {}),
}


@pytest.mark.parametrize(("cls", "settings", "other"), UNITS.values(), ids=UNITS)
def test_longer_arms_are_shorter_ones_in_other_units(cls, settings, other) -> None:
    """Arms L x with S / L: the same decisions, scores and radii, and theta / L."""
    rng, L = np.random.default_rng(1), 2.0
    unit, scaled = cls(3, S=1.5, **settings), cls(3, S=1.5 / L, L=L, **settings | other)
    for _ in range(40):
        arms = ball(rng, (1, K), 3)
        choice = unit.select(arms)
        assert choice == scaled.select(L * arms)
        one, two = decision(unit), decision(scaled)
        np.testing.assert_allclose(two.scores, one.scores, rtol=0, atol=1e-7)
        np.testing.assert_allclose(two.beta, one.beta, rtol=1e-9)
        np.testing.assert_allclose(L * two.theta_hat, one.theta_hat, rtol=1e-5, atol=1e-6)
        x, reward = arms[:, choice[0]], float(rng.random() < 0.6)
        unit.update(x, reward)
        scaled.update(L * x, reward)


# --- UCB-GLM ----------------------------------------------------------------------------------------------------------


def test_phase_one_plays_uniformly_at_random_and_says_so() -> None:
    """In 3000 lanes: each valid arm as often as the others, and the probabilities are 1 / n. Then none is random."""
    lanes, valid = 3000, np.array([True, True, False, True, True])
    policy, rng = wv.UCBGLM(2, horizon=50, lanes=lanes), np.random.default_rng(0)
    arms = np.repeat(ball(rng, (1, 5), 2), lanes, axis=0)
    here = np.repeat(valid[None], lanes, axis=0)
    np.testing.assert_array_equal(policy.probabilities(arms, here), here / 4)
    index = policy.select(arms, here)
    counts = np.bincount(index, minlength=5)
    assert counts[2] == 0
    assert stats.chisquare(counts[valid]).pvalue > 1e-6
    played = policy.select_from(Ball(1.0))  # uniform in the ball: the radius squared is uniform in two dimensions
    assert stats.kstest(np.sum(played**2, axis=1), "uniform").pvalue > 1e-6
    assert np.allclose(np.linalg.norm(policy.select_from(Sphere(0.5)), axis=1), 0.5)
    basis = np.repeat(np.eye(2)[None], lanes, axis=0)
    for k in range(2):
        policy.select(basis)
        policy.update(basis[:, k], (rng.random(lanes) < 0.5).astype(float))
    assert not policy.info().is_exploring.any()
    assert set(np.unique(policy.probabilities(arms))) <= {0.0, 1.0}


def test_each_lane_has_its_own_phase() -> None:
    policy, axes = wv.UCBGLM(2, horizon=100, lanes=3), np.eye(2)
    for k, mask in ((0, [True] * 3), (1, [True, False, False])):
        policy.select(np.repeat(axes[None], 3, axis=0))
        policy.update(np.repeat(axes[[k]], 3, axis=0), 1.0, mask=mask)
    assert policy.info().is_exploring.tolist() == [False, True, True]
    policy.restart([True, False, False])
    policy.update(axes[[1, 1, 1]], 1.0, mask=[True, True, False])  # decided before the restart of lane 0
    assert policy.info().is_exploring.tolist() == [True, False, True]


@pytest.mark.parametrize("cap", [None, 0, 3])
def test_phase_one_ends_where_arms_do_not_span_the_space(cap: int | None) -> None:
    """By default after ceil(d sqrt(T)) rounds. Directions that were never played are then tried first."""
    policy, longest = wv.UCBGLM(2, horizon=10, longest_phase=cap), math.ceil(2 * math.sqrt(10)) if cap is None else cap
    arms = np.array([[[1.0, 0.0], [0.5, 0.0]]])
    for t in range(longest + 3):
        assert policy.info().is_exploring.tolist() == [t < longest]
        policy.select(arms)
        policy.update(arms[:, 0], float(t % 2))
    assert policy.select(np.array([[[1.0, 0.0], [0.0, 0.1]]])).tolist() == [1]
    policy.restart()
    assert policy.info().is_exploring.tolist() == [longest > 0]


@pytest.mark.parametrize("least", [1.0, 5.0])
def test_the_smallest_eigenvalue_ends_phase_one(least: float) -> None:
    policy, rng, X = wv.UCBGLM(3, horizon=10**6, least_eigenvalue=least), np.random.default_rng(3), np.zeros((0, 3))
    for _ in range(120):
        eigenvalue = np.linalg.eigvalsh(X.T @ X)[0]
        assert policy.info().is_exploring[0] == (eigenvalue <= least)
        arms = ball(rng, (1, 4), 3)
        x = arms[0, policy.select(arms)[0]]
        policy.update(x[None], 0.0)
        X = np.vstack([X, x])
    assert eigenvalue > least


@pytest.mark.parametrize("link", ["logistic", "probit", "poisson"])
def test_separable_rewards_do_not_break_the_estimate(link: str) -> None:
    """The likelihood has no maximum while all rewards are 0: theta_hat is finite, and so is every score."""
    sigma, rng = 5.0 if link == "poisson" else 0.5, np.random.default_rng(0)
    policy = wv.UCBGLM(2, link, horizon=100, sigma=sigma, S=0.5)
    for t in range(60):
        arms = ball(rng, (1, K), 2)
        x = arms[:, policy.select(arms)[0]]
        assert np.isfinite(decision(policy).order).all()
        policy.update(x, float(t > 40 and rng.random() < 0.5))
        assert np.isfinite(policy.info().theta_hat).all()
    assert np.linalg.norm(policy.info().theta_hat) < 20.0


def test_what_the_tiny_ridge_changes() -> None:
    """theta_hat is within lam c_mu |theta_hat| / lambda_min(H) of the maximum of the likelihood, and 1e-9 for BFGS."""
    for seed in range(5):
        rng, policy = np.random.default_rng(seed), wv.UCBGLM(3, horizon=100)
        X, r = ball(rng, (150,), 3), np.zeros(150)
        for i, x in enumerate(X):
            r[i] = float(rng.random() < 1 / (1 + math.exp(-2 * x[0])))
            policy.update(x[None], r[i], round=0.0)
        exact = minimize(
            lambda z, X=X, r=r: np.logaddexp(0, X @ z).sum() - r @ X @ z, np.zeros(3), method="BFGS",
            jac=lambda z, X=X, r=r: X.T @ (1 / (1 + np.exp(-X @ z)) - r), options={"gtol": 1e-12},
        ).x  # fmt: skip
        slopes = 1 / (4 * np.cosh(X @ exact / 2) ** 2)
        least = np.linalg.eigvalsh((X.T * slopes) @ X)[0]
        bound = 1e-6 * policy.constants.c_mu * np.linalg.norm(exact) / least
        hat = policy.info().theta_hat[0]
        assert np.linalg.norm(hat - exact) <= 1.1 * bound + 1e-7
        assert bound < 1e-6


# --- sets of the likelihood -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("S", [1.0, 3.0])
def test_the_set_of_ofulog_r_does_not_bind(S: float) -> None:
    """At the paper's constants every decision is the longest arm, whatever the rewards say; those of OFUGLB are not."""
    rng, lanes = np.random.default_rng(0), 10
    policies = [wv.OFULogR(2, S=S, lanes=lanes), wv.OFUGLB(2, S=S, lanes=lanes)]
    shares = np.zeros(2)
    for _ in range(300):
        arms = ball(rng, (lanes, 10), 2)
        longest = np.argmax(np.linalg.norm(arms, axis=2), axis=1)
        for k, policy in enumerate(policies):
            index = policy.select(arms)
            x = arms[np.arange(lanes), index]
            policy.update(x, (rng.random(lanes) < 1 / (1 + np.exp(-S * x[:, 0]))).astype(float))
            shares[k] += (index == longest).mean() / 300
    assert shares[0] == pytest.approx(1.0, abs=1e-12)
    assert shares[1] < 0.9


def test_an_empty_set_is_replaced_by_the_minimiser_over_the_ball() -> None:
    """With a tiny radius and rewards that lead far outside the ball: the best arm for that minimiser is played."""
    policy, rng = wv.OFULogR(2, S=0.2, bonus_scale=1e-3, lam=0.1), np.random.default_rng(2)
    slow = naive.NaiveOFULogR(2, S=0.2, bonus_scale=1e-3, lam=0.1)
    for _ in range(60):
        x = ball(rng, (1,), 2)
        policy.update(x, float(x[0, 0] > 0), round=0.0)
        slow.update(x[0], float(x[0, 0] > 0))
    arms = ball(rng, (1, K), 2)
    values = slow.scores(arms[0])
    assert slow.is_empty
    assert policy.select(arms)[0] == np.argmax(values) == np.argmax(arms[0] @ slow.center)
    np.testing.assert_allclose(decision(policy).theta_tilde[0], slow.center, atol=1e-6)
    np.testing.assert_allclose(decision(policy).optimistic, decision(policy).theta_tilde)


def test_the_optimistic_parameter_is_in_the_set() -> None:
    policy, rng = wv.OFUGLB(2, bonus_scale=0.3, lanes=2), np.random.default_rng(5)
    X, r = np.zeros((2, 0, 2)), np.zeros((2, 0))
    for _ in range(80):
        arms = ball(rng, (2, K), 2)
        x = arms[np.arange(2), policy.select(arms)]
        made = decision(policy)
        for lane in range(2):

            def loss(theta: np.ndarray, X=X[lane], r=r[lane]) -> float:
                return float(np.logaddexp(0, X @ theta).sum() - r @ (X @ theta))

            theta, level = made.optimistic[lane], (0.3 * made.beta[lane]) ** 2
            assert np.linalg.norm(theta) <= 1 + 1e-12
            assert loss(theta) <= loss(made.theta_hat[lane]) + level * (1 + 1e-6)
            best = made.order[lane].max()
            assert theta @ x[lane] == pytest.approx(best, abs=1e-6)
            np.testing.assert_allclose(made.scores[lane], 1 / (1 + np.exp(-made.order[lane])))
        reward = (rng.random(2) < 0.7).astype(float)
        policy.update(x, reward)
        X, r = np.concatenate([X, x[:, None]], axis=1), np.concatenate([r, reward[:, None]], axis=1)


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "link of Logistic-UCB-1": (partial(wv.LogisticUCB1, 2, "poisson", horizon=9), "link"),
    "link of OFULog-r": (partial(wv.OFULogR, 2, "identity"), "link"),
    "link of OFUGLB": (partial(wv.OFUGLB, 2, "probit", S=0.5), "link"),
    "sigma of OFULog-r": (partial(wv.OFULogR, 2, sigma=0.6), "sigma"),
    "sigma of OFUGLB": (partial(wv.OFUGLB, 2, sigma=1.0), "sigma"),
    "no horizon": (partial(wv.LogisticUCB1, 2), "lam"),
    "no horizon, proved": (partial(wv.OFULogR, 2, is_proved=True), "lam"),
    "printed constant for counts": (partial(wv.OFUGLB, 2, "poisson", sigma=5.0, lipschitz="printed"), "lipschitz"),
    "unknown constant": (partial(wv.OFUGLB, 2, lipschitz="best"), "lipschitz"),
    "cap": (partial(wv.UCBGLM, 2, horizon=9, longest_phase=-1), "longest_phase"),
    "eigenvalue": (partial(wv.UCBGLM, 2, horizon=9, least_eigenvalue=0.0), "least_eigenvalue"),
}


@pytest.mark.parametrize(("build", "argument"), REFUSED.values(), ids=REFUSED)
def test_settings_that_are_refused(build, argument: str) -> None:
    with refuses(argument):
        build()


@pytest.mark.parametrize("cls", [wv.OFULogR, wv.OFUGLB])
def test_infinite_arm_sets_are_refused_with_the_reason(cls) -> None:
    policy = cls(2)
    refuses_unchanged(policy, "arm_set", partial(policy.select_from, Ball(1.0)))


# --- coverage ---------------------------------------------------------------------------------------------------------


def misses(policy: Any, link: str, length: float, rounds: int, is_covered: Callable[..., np.ndarray]) -> int:
    """In how many lanes the set of some round, of a policy that chooses its arms, does not contain theta*."""
    rng, n, d = np.random.default_rng(11), policy.lane_count, policy.dim
    theta_star, missed = length * np.eye(d)[0], np.zeros(n, dtype=bool)
    X, r = np.zeros((n, rounds, d)), np.zeros((n, rounds))
    for t in range(rounds):
        arms = ball(rng, (n, 4), d)
        x = arms[np.arange(n), policy.select(arms)]
        missed |= ~is_covered(X[:, :t], r[:, :t], decision(policy), theta_star)
        X[:, t], r[:, t] = x, draw_reward(rng, link, x @ theta_star)
        policy.update(x, r[:, t])
    return int(missed.sum())


def losses(X: np.ndarray, r: np.ndarray, theta: np.ndarray, link: str) -> np.ndarray:
    z = np.einsum("nsd,nd->ns", X, np.broadcast_to(theta, (len(X), X.shape[2])))
    return (naive.PRIMITIVES[link](z) - r * z).sum(axis=1)


@pytest.mark.parametrize("link", ["logistic", "poisson", "identity"])
@pytest.mark.parametrize("lipschitz", [None, "data"])
def test_ofuglb_covers_at_all_rounds_at_once(link: str, lipschitz: str | None) -> None:
    """In 400 runs at delta = 0.2. The radius is loose: runs that miss are far fewer than the 80 that it allows."""
    sigma, delta = {"poisson": 40.0}.get(link, 0.5), 0.2
    settings = {"link": link, "sigma": sigma, "delta": delta, "lipschitz": lipschitz, "lanes": 400}

    def is_covered(X: np.ndarray, r: np.ndarray, made: Any, theta: np.ndarray) -> np.ndarray:
        g = sigma**2 if link == "identity" else 1.0
        return losses(X, r, theta, link) - losses(X, r, made.theta_hat, link) <= g * made.beta**2

    count = misses(wv.OFUGLB(2, **settings), link, 1.0, 60, is_covered)
    assert count <= stats.binom.isf(1e-6, 400, delta)


def test_the_ellipsoid_of_ofuglb_e_covers() -> None:
    """|theta* - theta_hat| in H is at most its factor, at all rounds, and it contains the set of OFUGLB."""

    def is_covered(X: np.ndarray, r: np.ndarray, made: Any, theta: np.ndarray) -> np.ndarray:
        z = np.einsum("nsd,nd->ns", X, made.theta_hat)
        slopes = 1 / (4 * np.cosh(z / 2) ** 2)
        lam = 1 / (8 * 1.5**2 * 2.5)
        H = np.einsum("ns,nsd,nse->nde", slopes, X, X) + lam * np.eye(X.shape[2])
        gap = theta - made.theta_hat
        return np.sqrt(np.einsum("nd,nde,ne->n", gap, H, gap)) <= made.multiplier

    assert misses(wv.OFUGLBe(2, S=1.5, delta=0.2, lanes=300), "logistic", 1.5, 60, is_covered) <= 109  # of 300 * 0.2


@pytest.mark.parametrize("cls", [wv.LogisticUCB1, wv.OFULogR])
def test_the_self_concordant_sets_cover_at_all_rounds_at_once(cls) -> None:
    """Logistic-UCB-1: |g(theta*) - g(theta_hat)| in H(theta*)^-1 is at most gamma_t. OFULog-r: theta* is in E_t."""
    T, lam = 60, 2 * math.log(60)
    settings = {"horizon": T, "delta": 0.2, "lanes": 300} | ({"is_proved": True} if cls is wv.OFULogR else {})

    def is_covered(X: np.ndarray, r: np.ndarray, made: Any, theta: np.ndarray) -> np.ndarray:
        if cls is wv.OFULogR:
            ridges = lam / 2 * (theta @ theta - np.sum(made.theta_hat**2, axis=1))
            gap = losses(X, r, theta, "logistic") - losses(X, r, made.theta_hat, "logistic") + ridges
            return gap <= made.beta**2
        z = X @ theta
        g = np.einsum("nsd,ns->nd", X, 1 / (1 + np.exp(-z)) - r) + lam * theta
        H = np.einsum("ns,nsd,nse->nde", 1 / (4 * np.cosh(z / 2) ** 2), X, X) + lam * np.eye(2)
        return np.sqrt(np.einsum("nd,nd->n", g, np.linalg.solve(H, g[..., None])[..., 0])) <= made.beta

    assert misses(cls(2, **settings), "logistic", 1.0, T, is_covered) <= stats.binom.isf(1e-6, 300, 0.2)
