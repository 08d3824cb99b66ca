"""The linear policies against their transcriptions, the laws of what they draw, and the references.

The references are UniformRandom, Oracle and Greedy.
"""

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

import naive
from support.cases import LINEAR_SETTINGS
from support.policies import decision, radius, scores
from support.refusals import refuses
from support.worlds import ball, regret, turning_theta
from windvane import (
    BOFUCB,
    BVDGLMUCB,
    Ball,
    DLinTS,
    DLinUCB,
    DRandLinUCB,
    Greedy,
    LBWeightUCB,
    Oracle,
    Policy,
    RestartUCB,
    Sphere,
    SWLinUCB,
    UniformRandom,
)
from windvane.environments import BallArms, Environment, Rotation
from windvane.lab.spec.experiment_spec import PolicySpec

P_VALUE = 1e-6
by_kind = pytest.mark.parametrize("kind", LINEAR_SETTINGS, ids=lambda kind: kind.name)
OTHERS = {"S": 2.0, "L": 1.5, "lam": 0.3, "sigma": 0.8, "delta": 0.2, "bonus_scale": 0.4}


@pytest.mark.parametrize("dim", [1, 2, 5])
@pytest.mark.parametrize("settings", [{}, OTHERS], ids=["default", "other settings"])
@by_kind
def test_the_literal_transcription_decides_alike(kind: Any, settings: dict[str, float], dim: int) -> None:
    (name,), ids, horizon, L = LINEAR_SETTINGS[kind], [4, 0, 9], 250, settings.get("L", 1.0)
    tunings = {"gamma": [0.9, 0.99, 0.999], "window": [7, 60, 500], "restart_every": [11, 60, 500]}[name]
    names = {"bonus_scale": "posterior_scale", "delta": None} if kind is DLinTS else {}
    taken = {names.get(k, k): v for k, v in settings.items() if names.get(k, k)}
    fast = kind(dim=dim, lanes=ids, seed=3, **{name: tunings}, **taken)
    slow = [naive.NaiveLinear(kind.name, dim, w, lane=i, seed=3, **settings) for w, i in zip(tunings, ids, strict=True)]
    rng = np.random.default_rng([dim, len(settings)])
    for t in range(1, horizon + 1):
        arms = ball(rng, (3, 6), dim, L)
        expected = np.array([one.decide(arms[lane], t) for lane, one in enumerate(slow)])
        choice = fast.select(arms)
        np.testing.assert_allclose(decision(fast).theta_hat, [one.theta_hat for one in slow], rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(decision(fast).theta_tilde, [one.theta_tilde for one in slow], rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(scores(fast), expected, rtol=1e-8, atol=1e-8)
        assert np.array_equal(choice, expected.argmax(axis=1))
        x = arms[np.arange(3), choice]
        reward = x @ turning_theta(t, horizon, dim, 1.0) + 0.5 * rng.normal(size=3)
        fast.update(x, reward)
        for lane, one in enumerate(slow):
            one.update(x[lane], reward[lane], t)


@pytest.mark.parametrize("dim", [1, 2, 5])
@pytest.mark.parametrize("settings", [{}, OTHERS], ids=["default", "other settings"])
def test_bof_ucb_is_the_bayesian_recursion(settings: dict[str, float], dim: int) -> None:
    """And its radius is at most that of D-LinUCB at the number of earlier rounds."""
    gammas, ids, L = [0.9, 0.99, 1.0], [4, 0, 9], settings.get("L", 1.0)
    fast = BOFUCB(dim=dim, gamma=gammas, lanes=ids, seed=3, **settings)  # type: ignore[arg-type]
    slow = [naive.NaiveBOFUCB(dim, gamma, **settings) for gamma in gammas]
    rng = np.random.default_rng(dim)
    wider = DLinUCB(dim=dim, gamma=gammas, lanes=ids, **settings).radius  # type: ignore[arg-type]
    for t in range(1, 200):
        arms = ball(rng, (3, 6), dim, L)
        expected = np.array([one.decide(arms[lane]) for lane, one in enumerate(slow)])
        choice = fast.select(arms)
        np.testing.assert_allclose(decision(fast).beta, [one.beta() for one in slow], rtol=1e-10)
        np.testing.assert_allclose(scores(fast), expected, rtol=1e-8, atol=1e-8)
        assert np.array_equal(choice, expected.argmax(axis=1))
        assert (decision(fast).beta <= wider(t - 1.0) * (1 + 1e-12)).all()
        x = arms[np.arange(3), choice]
        reward = x @ turning_theta(t, 200, dim, 1.0) + 0.5 * rng.normal(size=3)
        fast.update(x, reward)
        for lane, one in enumerate(slow):
            one.update(x[lane], reward[lane])


@pytest.mark.parametrize("dim", [2, 4])
@by_kind
def test_infinite_arm_sets(kind: Any, dim: int) -> None:
    ((name, tuning),), rng = LINEAR_SETTINGS[kind].items(), np.random.default_rng(dim)
    fast, slow = kind(dim=dim, **{name: tuning}), naive.NaiveLinear(kind.name, dim, tuning)
    for t in range(1, 60):
        x = fast.select_from(Sphere(0.8) if t % 2 else Ball(0.8))
        others = ball(rng, (4000,), dim, 0.8)
        others = np.vstack([others, 0.8 * others / np.linalg.norm(others, axis=1, keepdims=True)])
        index = slow.decide(np.vstack([x, others]), t)
        assert np.linalg.norm(x) == pytest.approx(0.8)
        assert index[0] >= index.max() - 1e-9
        reward = float(x[0] @ turning_theta(t, 60, dim, 1.0)) + 0.3 * rng.normal()
        fast.update(x, reward)
        slow.update(x[0], reward, t)


@pytest.mark.parametrize("dim", [1, 3])
def test_radii_are_the_printed_ones(dim: int) -> None:
    settings: dict[str, Any] = {"dim": dim, "S": 1.5, "L": 2.0, "lam": 0.7, "sigma": 0.4, "delta": 0.1}
    bias = math.sqrt(0.7) * 1.5
    window = SWLinUCB(window=[5, 80], lanes=2, **settings)
    expected = [0.4 * math.sqrt(dim * math.log((1 + w * 4.0 / 0.7) / 0.1)) + bias for w in (5, 80)]
    for _ in range(9):
        np.testing.assert_allclose(radius(window), expected, rtol=1e-14)
        window.advance(3)
    restarting = RestartUCB(restart_every=4, **settings)
    weighted = LBWeightUCB(gamma=0.9, **settings)
    for t in range(1, 14):
        since = (t - 1) % 4
        noise = 2 * math.log(10) + dim * math.log(1 + since * 4.0 / (0.7 * dim))
        assert radius(restarting)[0] == pytest.approx(bias + 0.4 * math.sqrt(noise), rel=1e-14)
        noise = 2 * math.log(10) + dim * math.log(1 + 4.0 * (1 - 0.9 ** (2 * t)) / (0.7 * dim * (1 - 0.9**2)))
        assert radius(weighted)[0] == pytest.approx(bias + 0.4 * math.sqrt(noise), rel=1e-14)
        for policy in (restarting, weighted):
            policy.select(np.zeros((1, 2, dim)))


@pytest.mark.parametrize("confidence", ["horizon", "anytime"])
def test_the_window_radius_of_all_rounds_at_once(confidence: str) -> None:
    policy = SWLinUCB(dim=2, window=30, horizon=500, confidence=confidence)
    for t in range(1, 40):
        divisor = 500 if confidence == "horizon" else 2 * t * (1 + math.log(t)) ** 2
        expected = 1.0 + 0.5 * math.sqrt(2 * math.log(31 / (0.05 / divisor)))
        assert radius(policy)[0] == pytest.approx(expected, rel=1e-13)
        policy.advance(1)


def test_a_restart_forgets_everything() -> None:
    policy, rng = RestartUCB(dim=2, restart_every=[5, 8], lanes=2), np.random.default_rng(0)
    for t in range(1, 41):
        assert (policy.periods == [5, 8]).all()
        arms = ball(rng, (2, 4), 2)
        choice = policy.select(arms)
        policy.update(arms[np.arange(2), choice], [1.0, 1.0])
        for lane, every in enumerate((5, 8)):
            fresh = t % every == 0  # the reward of the last round before a restart comes after it
            assert np.array_equal(policy.info().metric[lane], np.eye(2)) == fresh
            assert policy.rounds_since_restart[lane] == t % every + 1


def test_who_forgets_loses_less_where_theta_turns() -> None:
    """A rotation in a linear world: each forgetting policy, at its own tuning, beats OFUL on the same runs."""
    world = Environment(Rotation(), BallArms(count=10), link="identity", horizon=1500, lanes=40, seed=1)
    never = regret(PolicySpec("OFUL").build(world), world)
    for name in ("D-LinUCB", "SW-LinUCB", "RestartUCB", "LB-WeightUCB", "D-LinTS", "D-RandLinUCB", "Greedy"):
        gain = never - regret(PolicySpec(name).build(world), world)
        assert gain.mean() > 5.0 * gain.std(ddof=1) / math.sqrt(len(gain)), name
    chance = regret(PolicySpec("UniformRandom").build(world), world)
    assert never.mean() < chance.mean()


def test_thompson_draws_have_the_right_law() -> None:
    """theta_tilde - theta_hat is normal with covariance a^2 V^-1 V_tilde V^-1, over many lanes with one history."""
    n, d, a, rng = 20_000, 3, 1.7, np.random.default_rng(0)
    policy = DLinTS(dim=d, gamma=0.8, lanes=n, seed=11, posterior_scale=a)
    for _ in range(25):
        x = ball(rng, (1, 1), d)
        policy.select(np.repeat(x, n, axis=0))
        policy.update(np.repeat(x[0], n, axis=0), float(rng.normal()))
    V, V_tilde = policy.estimator.V[0].copy(), policy.estimator.V_tilde[0].copy()
    assert np.abs(V_tilde - V).max() > 0.1  # so that the law tells the two apart
    policy.select(np.zeros((n, 1, d)))
    gap = decision(policy).theta_tilde - decision(policy).theta_hat
    root = np.linalg.cholesky(a**2 * np.linalg.inv(V) @ V_tilde @ np.linalg.inv(V))
    standard = np.linalg.solve(root, gap.T)
    for row in standard:
        assert stats.kstest(row, "norm").pvalue > P_VALUE
    errors = 5.5 / math.sqrt(n)  # standard errors of a mean, a correlation and (times sqrt 2) a variance
    assert np.abs(standard.mean(axis=1)).max() < errors
    np.testing.assert_allclose(np.cov(standard), np.eye(d), rtol=0, atol=math.sqrt(2) * errors)


def draw(policy: Policy, n: int, name: str) -> np.ndarray:
    """What the policy draws in n decisions between nothing, [n, lanes, ...]."""
    drawn = []
    for _ in range(n):
        policy.select(np.zeros((policy.lane_count, 1, 2)))
        drawn.append(getattr(decision(policy), name))
    return np.array(drawn)


def test_thompson_draws_of_one_lane_are_independent_over_time() -> None:
    n = 5000
    z = draw(DLinTS(dim=2, gamma=1.0, seed=5), n, "theta_tilde")[:, 0]  # V = V_tilde = I, theta_hat = 0
    for row in z.T:
        assert stats.kstest(row, "norm").pvalue > P_VALUE
        assert abs(np.corrcoef(row[:-1], row[1:])[0, 1]) < 5.5 / math.sqrt(n)
    assert abs(np.corrcoef(z.T)[0, 1]) < 5.5 / math.sqrt(n)


def test_the_size_of_the_random_bonus_is_half_normal() -> None:
    over_lanes = draw(DRandLinUCB(dim=2, gamma=0.9, lanes=5000, seed=2), 1, "draw")[0]
    over_time = draw(DRandLinUCB(dim=2, gamma=0.9, seed=2), 5000, "draw")[:, 0]
    for sizes in (over_lanes, over_time):
        assert stats.kstest(sizes, stats.halfnorm(scale=0.4).cdf).pvalue > P_VALUE
    assert abs(np.corrcoef(over_time[:-1], over_time[1:])[0, 1]) < 5.5 / math.sqrt(5000)


@pytest.mark.parametrize(("kind", "name"), [(DLinTS, "theta_tilde"), (DRandLinUCB, "draw")])
def test_lanes_draw_by_their_id_and_seed(kind: Any, name: str) -> None:
    n = 4000
    runs = (draw(kind(dim=2, gamma=1.0, lanes=lanes, seed=seed), n, name) for lanes, seed in (([3, 8, 3], 0), ([3], 1)))
    (first, second, again), (other,) = (run.reshape(n, run.shape[1], -1)[:, :, 0].T for run in runs)
    assert np.array_equal(first, again)
    assert abs(np.corrcoef(first, second)[0, 1]) < 5.5 / math.sqrt(n)
    assert abs(np.corrcoef(first, other)[0, 1]) < 5.5 / math.sqrt(n)


# --- references -------------------------------------------------------------------------------------------------------


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
    for means in (np.full((1, 3), np.nan), np.zeros(3)):
        oracle = Oracle(dim=2, truth=lambda _t, _arms: means)
        with refuses("truth"):
            oracle.select(np.zeros((1, 3, 2)))
        with refuses("arm_set"):
            oracle.select_from(Ball(1.0))
        assert oracle.t == 1.0


@pytest.mark.parametrize("link", ["logistic", "identity"])
def test_greedy_is_the_paper_s_policy_without_its_bonus(link: str) -> None:
    settings, rng = {"dim": 3, "link": link, "gamma": 0.95, "lanes": 2}, np.random.default_rng(1)
    greedy, silent = Greedy(**settings), BVDGLMUCB(**settings, bonus_scale=0.0)
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
