"""The linear policies and the references against what their papers say, retyped in NumPy."""

from __future__ import annotations

import math
import pickle
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy import stats

from windvane import (
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
    check_policy,
)
from windvane.environments import BallArms, Environment, Rotation
from windvane.kernels.random import SAMPLES, uniform_pair
from windvane.lab.spec import PolicySpec
from worlds import ball, turning_theta

P_VALUE = 1e-6
FORGETTING = {
    SWLinUCB: {"window": 40},
    RestartUCB: {"restart_every": 30},
    LBWeightUCB: {"gamma": 0.95},
    DLinTS: {"gamma": 0.97},
    DRandLinUCB: {"gamma": 0.9},
}
RANDOM = (DLinTS, DRandLinUCB, UniformRandom)


# --- a literal transcription, one lane -------------------------------------------------------------------------------


def normals(seed: int, lane: int, decision: int, n: int) -> np.ndarray:
    """Box and Muller on the uniforms of (seed, lane, decision)."""
    found: list[float] = []
    for block in range((n + 1) // 2):
        u, v = uniform_pair(np.uint64(seed), lane, decision, SAMPLES, block)
        size = math.sqrt(-2.0 * math.log(1.0 - u))
        found += [size * math.cos(2 * math.pi * v), size * math.sin(2 * math.pi * v)]
    return np.array(found[:n])


class Literal:
    """All sums anew at every round. ``kind`` is the policy; ``tuning`` its gamma, window or restart_every."""

    def __init__(
        self, kind: type[Policy], dim: int, tuning: float, *, S: float = 1.0, L: float = 1.0, lam: float | None = None,
        sigma: float = 0.5, delta: float = 0.05, bonus_scale: float = 1.0, seed: int = 0, lane: int = 0,
    ) -> None:  # fmt: skip
        self.kind, self.d, self.tuning, self.seed, self.lane = kind, dim, tuning, seed, lane
        self.S, self.L, self.sigma, self.delta, self.scale = S, L, sigma, delta, bonus_scale
        self.lam = lam if lam is not None else (float(dim) if kind is LBWeightUCB else 1.0)
        self.X, self.r, self.s = np.zeros((0, dim)), np.zeros(0), np.zeros(0)

    def weights(self, t: int) -> np.ndarray:
        if self.kind is SWLinUCB:
            return 1.0 * (t - 1 - self.s < self.tuning)
        if self.kind is RestartUCB:
            return 1.0 * (self.s >= self.restarted(t))
        return self.tuning ** (t - 1 - self.s)

    def restarted(self, t: int) -> float:
        """t_0: the first round since the last restart."""
        return (t - 1) // self.tuning * self.tuning + 1

    def radius(self, t: int) -> float:
        d, L, lam, bias = self.d, self.L, self.lam, math.sqrt(self.lam) * self.S
        if self.kind is SWLinUCB:
            return self.sigma * math.sqrt(d * math.log((1 + self.tuning * L**2 / lam) / self.delta)) + bias
        if self.kind is RestartUCB:
            count = t - self.restarted(t)
        else:
            count = (1 - self.tuning ** (2 * t)) / (1 - self.tuning**2)
        return bias + self.sigma * math.sqrt(2 * math.log(1 / self.delta) + d * math.log(1 + L**2 * count / (lam * d)))

    def decide(self, arms: np.ndarray, t: int) -> np.ndarray:
        """The index of every arm; theta_hat and theta_tilde are kept."""
        w, X, eye = self.weights(t), self.X, np.eye(self.d)
        V = (X.T * w) @ X + self.lam * eye
        V_tilde = (X.T * w**2) @ X + self.lam * eye
        inverse = np.linalg.inv(V)
        self.theta_hat = self.theta_tilde = inverse @ (X.T @ (w * self.r))
        if self.kind is DLinTS:
            z = self.scale * normals(self.seed, self.lane, t - 1, self.d)
            self.theta_tilde = self.theta_hat + inverse @ np.linalg.cholesky(V_tilde) @ z
            return arms @ self.theta_tilde
        factor = self.scale * self.radius(t)
        self.metric = inverse
        if self.kind is DRandLinUCB:
            self.metric = inverse @ V_tilde @ inverse
            factor *= 0.4 * abs(normals(self.seed, self.lane, t - 1, 1)[0])
        self.factor = factor
        return arms @ self.theta_hat + factor * np.sqrt(np.einsum("ki,ij,kj->k", arms, self.metric, arms))

    def learn(self, x: np.ndarray, reward: float, t: int) -> None:
        self.X, self.r, self.s = np.vstack([self.X, x]), np.append(self.r, reward), np.append(self.s, t)


def recording(policy: Policy) -> list[np.ndarray]:
    """The scores of every decision from now on, as they are made."""
    seen: list[np.ndarray] = []
    play = policy._play

    def recorded(scores: np.ndarray, valid: np.ndarray) -> np.ndarray:
        seen.append(scores.copy())
        return play(scores, valid)

    policy._play = recorded  # type: ignore[method-assign]
    return seen


OTHERS = {"S": 2.0, "L": 1.5, "lam": 0.3, "sigma": 0.8, "delta": 0.2, "bonus_scale": 0.4}


@pytest.mark.parametrize("dim", [1, 2, 5])
@pytest.mark.parametrize("settings", [{}, OTHERS], ids=["default", "other settings"])
@pytest.mark.parametrize("kind", FORGETTING, ids=lambda kind: kind.name)
def test_the_literal_transcription_decides_alike(kind: type[Policy], settings: dict[str, float], dim: int) -> None:
    name, ids, horizon, L = next(iter(FORGETTING[kind])), [4, 0, 9], 250, settings.get("L", 1.0)
    tunings = {"gamma": [0.9, 0.99, 0.999], "window": [7, 60, 500], "restart_every": [11, 60, 500]}[name]
    taken = {k: v for k, v in settings.items() if kind is not DLinTS or k != "delta"}
    fast = kind(dim=dim, lanes=ids, seed=3, **{name: tunings}, **taken)  # type: ignore[call-arg]
    slow = [Literal(kind, dim, w, lane=i, seed=3, **settings) for w, i in zip(tunings, ids, strict=True)]
    scores, rng = recording(fast), np.random.default_rng([dim, len(settings)])
    for t in range(1, horizon + 1):
        arms = ball(rng, (3, 6), dim, L)
        expected = np.array([one.decide(arms[lane], t) for lane, one in enumerate(slow)])
        choice = fast.select(arms)
        np.testing.assert_allclose(fast.last["theta_hat"], [one.theta_hat for one in slow], rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(fast.last["theta_tilde"], [one.theta_tilde for one in slow], rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(scores[-1], expected, rtol=1e-8, atol=1e-8)
        assert np.array_equal(choice, expected.argmax(axis=1))
        x = arms[np.arange(3), choice]
        reward = x @ turning_theta(t, horizon, dim, 1.0) + 0.5 * rng.normal(size=3)
        fast.update(x, reward)
        for lane, one in enumerate(slow):
            one.learn(x[lane], reward[lane], t)


@pytest.mark.parametrize("dim", [2, 4])
@pytest.mark.parametrize("kind", FORGETTING, ids=lambda kind: kind.name)
def test_infinite_arm_sets(kind: type[Policy], dim: int) -> None:
    """No arm of the set has a better index than the one played, as the literal transcription sees it."""
    (name, tuning), rng = next(iter(FORGETTING[kind].items())), np.random.default_rng(dim)
    fast, slow = kind(dim=dim, **{name: tuning}), Literal(kind, dim, tuning)  # type: ignore[call-arg]
    for t in range(1, 60):
        x = fast.select_from(Sphere(0.8) if t % 2 else Ball(0.8))
        others = ball(rng, (4000,), dim, 0.8)
        others = np.vstack([others, 0.8 * others / np.linalg.norm(others, axis=1, keepdims=True)])
        index = slow.decide(np.vstack([x, others]), t)
        assert np.linalg.norm(x) == pytest.approx(0.8)
        assert index[0] >= index.max() - 1e-9
        reward = float(x[0] @ turning_theta(t, 60, dim, 1.0)) + 0.3 * rng.normal()
        fast.update(x, reward)
        slow.learn(x[0], reward, t)


# --- radii and tunings -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dim", [1, 3])
def test_radii_are_the_printed_ones(dim: int) -> None:
    settings: dict[str, Any] = {"dim": dim, "S": 1.5, "L": 2.0, "lam": 0.7, "sigma": 0.4, "delta": 0.1}
    bias = math.sqrt(0.7) * 1.5
    window = SWLinUCB(window=[5, 80], lanes=2, **settings)
    expected = [0.4 * math.sqrt(dim * math.log((1 + w * 4.0 / 0.7) / 0.1)) + bias for w in (5, 80)]
    for _ in range(9):
        np.testing.assert_allclose(window.radius(), expected, rtol=1e-14)
        window.advance(3)
    restarting = RestartUCB(restart_every=4, **settings)
    weighted = LBWeightUCB(gamma=0.9, **settings)
    for t in range(1, 14):
        since = (t - 1) % 4
        noise = 2 * math.log(10) + dim * math.log(1 + since * 4.0 / (0.7 * dim))
        assert restarting.radius()[0] == pytest.approx(bias + 0.4 * math.sqrt(noise), rel=1e-14)
        noise = 2 * math.log(10) + dim * math.log(1 + 4.0 * (1 - 0.9 ** (2 * t)) / (0.7 * dim * (1 - 0.9**2)))
        assert weighted.radius()[0] == pytest.approx(bias + 0.4 * math.sqrt(noise), rel=1e-14)
        for policy in (restarting, weighted):
            policy.select(np.zeros((1, 2, dim)))


@pytest.mark.parametrize("confidence", ["horizon", "anytime"])
def test_the_window_radius_of_all_rounds_at_once(confidence: str) -> None:
    policy = SWLinUCB(dim=2, window=30, horizon=500, confidence=confidence)
    for t in range(1, 40):
        divisor = 500 if confidence == "horizon" else 2 * t * (1 + math.log(t)) ** 2
        expected = 1.0 + 0.5 * math.sqrt(2 * math.log(31 / (0.05 / divisor)))
        assert policy.radius()[0] == pytest.approx(expected, rel=1e-13)
        policy.advance(1)


DRIFTS = [0.0, 0.3, 1.5708, 40.0]


def window(T: int, dim: int, drift: float) -> int:
    """floor((d T / B)^(2/3)), at most T: the largest whole n with n^3 <= (d T / B)^2, exactly."""
    n = 1
    while n < T and Fraction(n + 1) ** 3 * Fraction(drift) ** 2 <= Fraction(dim * T) ** 2:
        n += 1
    return n


@pytest.mark.parametrize("dim", [2, 10])
@pytest.mark.parametrize("T", [500, 3000])
def test_tunings_follow_the_papers_lane_by_lane(dim: int, T: int) -> None:
    told = {"dim": dim, "horizon": T, "drift": DRIFTS, "lanes": len(DRIFTS)}
    lengths = [window(T, dim, B) for B in DRIFTS]
    assert SWLinUCB(**told).estimator.window.tolist() == lengths
    assert RestartUCB(**told).restart_every.tolist() == lengths
    wang = [1 - max(1 / T, math.sqrt(B / (dim * T))) for B in DRIFTS]
    np.testing.assert_allclose(LBWeightUCB(**told).gamma, wang, rtol=1e-15)
    russac = [1 - (B / (dim * T)) ** (2 / 3) for B in DRIFTS]
    for kind in (DLinUCB, DLinTS, DRandLinUCB):
        np.testing.assert_allclose(kind(**told).gamma, russac, rtol=1e-15)
    assert LBWeightUCB(dim=dim, gamma=0.9).estimator.lam == dim
    assert SWLinUCB(dim=dim, horizon=T).estimator.window.tolist() == [window(T, dim, 1.0)]


@pytest.mark.parametrize("kind", FORGETTING, ids=lambda kind: kind.name)
def test_a_lane_tuned_to_its_own_drift_is_that_lane_alone(kind: type[Policy]) -> None:
    drifts, rng = [0.1, 9.0, 2.0], np.random.default_rng(0)
    together = kind(dim=3, horizon=60, drift=drifts, lanes=[5, 1, 8])  # type: ignore[call-arg]
    alone = [kind(dim=3, horizon=60, drift=b, lanes=[i]) for b, i in zip(drifts, [5, 1, 8], strict=True)]  # type: ignore[call-arg]
    for _ in range(60):
        arms, noise = ball(rng, (3, 5), 3), rng.normal(size=3)
        choice = together.select(arms)
        together.update(arms[np.arange(3), choice], noise)
        for lane, one in enumerate(alone):
            assert one.select(arms[lane : lane + 1])[0] == choice[lane]
            one.update(arms[lane, choice[lane]][None], noise[lane])
    for lane, one in enumerate(alone):
        assert np.array_equal(together.theta_hat[lane], one.theta_hat[0])
        assert np.array_equal(together.V[lane], one.V[0])


def test_a_restart_forgets_everything() -> None:
    policy, rng = RestartUCB(dim=2, restart_every=[5, 8], lanes=2), np.random.default_rng(0)
    for t in range(1, 41):
        assert (policy.restart_every == [5, 8]).all()
        arms = ball(rng, (2, 4), 2)
        choice = policy.select(arms)
        policy.update(arms[np.arange(2), choice], [1.0, 1.0])
        for lane, every in enumerate((5, 8)):
            fresh = t % every == 0  # the reward of the last round before a restart comes after it
            assert np.array_equal(policy.V[lane], np.eye(2)) == fresh
            assert policy.local_t[lane] == t % every + 1


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (SWLinUCB, {}, r"^window=None: give window, or horizon and drift"),
        (SWLinUCB, {"window": 5, "drift": 1.0, "horizon": 9}, r"^window=5 and drift=1.0: give one"),
        (SWLinUCB, {"window": 0}, r"^window=0.0: must be a number above 0"),
        (SWLinUCB, {"window": [3, 4]}, r"^window has shape \(2,\)"),
        (SWLinUCB, {"window": 5, "confidence": "often"}, r"^confidence='often'"),
        (SWLinUCB, {"window": 5, "confidence": "horizon"}, r"^horizon=None"),
        (RestartUCB, {"horizon": 10}, r"^restart_every=None: give restart_every, or horizon and drift"),
        (RestartUCB, {"restart_every": 0}, r"^restart_every=0.0: must be a number that is whole, at least 1"),
        (RestartUCB, {"restart_every": 2.5}, r"^restart_every=2.5"),
        (LBWeightUCB, {"gamma": 1.5}, r"^gamma=1.5"),
        (LBWeightUCB, {"horizon": 10, "drift": -1.0}, r"^drift=-1.0"),
        (LBWeightUCB, {"gamma": 0.9, "lam": 0}, r"^lam=0"),
        (DLinTS, {}, r"^gamma=None: give gamma, or horizon and drift"),
        (DLinTS, {"gamma": 0.9, "bonus_scale": -1}, r"^bonus_scale=-1.0"),
        (DRandLinUCB, {"horizon": 10, "drift": 1.0, "discount": "best"}, r"^discount='best'"),
        (Oracle, {"truth": 3}, r"^truth=3: must be a function"),
    ],
)
def test_bad_settings_are_refused(kind: type[Policy], settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        kind(dim=2, **settings)  # type: ignore[call-arg]
    assert "\n" not in str(caught.value)


# --- the contract ----------------------------------------------------------------------------------------------------


def first_feature(t: float, arms: np.ndarray) -> np.ndarray:
    return arms[..., 0]


EVERY: dict[str, tuple[Any, dict[str, bool]]] = {
    **{kind.name: (partial(kind, **tuned), {}) for kind, tuned in FORGETTING.items()},  # type: ignore[arg-type]
    "SW-LinUCB short": (partial(SWLinUCB, window=3), {}),
    "RestartUCB short": (partial(RestartUCB, restart_every=2), {}),
    "UniformRandom": (UniformRandom, {"learns": False}),
    "Oracle": (partial(Oracle, truth=first_feature), {"learns": False}),
    "Greedy": (partial(Greedy, gamma=0.9), {}),
    "Greedy linear": (partial(Greedy, link="identity", gamma=0.9), {}),
}


@pytest.mark.parametrize("name", EVERY)
def test_check_policy(name: str) -> None:
    factory, knowing = EVERY[name]
    deterministic = name.split()[0] not in {kind.name for kind in RANDOM}
    if name == "Greedy linear":  # until a reward is not 0, theta_hat is, and all arms tie
        deterministic = False
    check_policy(factory, deterministic=deterministic, **knowing)


@pytest.mark.parametrize("name", EVERY)
def test_a_pickled_policy_goes_on_alike(name: str) -> None:
    policy, rng = EVERY[name][0](dim=2, lanes=3, seed=1), np.random.default_rng(0)
    for t in range(40):
        arms = ball(rng, (3, 4), 2)
        if t == 20:
            twin = pickle.loads(pickle.dumps(policy))
        choice = policy.select(arms)
        policy.update(arms[np.arange(3), choice], [1.0, 0.0, 1.0])
        if t >= 20:
            assert np.array_equal(twin.select(arms), choice)
            twin.update(arms[np.arange(3), choice], [1.0, 0.0, 1.0])


# --- what is random --------------------------------------------------------------------------------------------------


def test_thompson_draws_have_the_right_law() -> None:
    """theta_tilde - theta_hat is normal with covariance a^2 V^-1 V_tilde V^-1, over many lanes with one history."""
    n, d, a, rng = 20_000, 3, 1.7, np.random.default_rng(0)
    policy = DLinTS(dim=d, gamma=0.8, lanes=n, seed=11, bonus_scale=a)
    for _ in range(25):
        x = ball(rng, (1, 1), d)
        policy.select(np.repeat(x, n, axis=0))
        policy.update(np.repeat(x[0], n, axis=0), float(rng.normal()))
    V, V_tilde = policy.V[0], policy.V_tilde[0]
    assert np.abs(V_tilde - V).max() > 0.1  # so that the law tells the two apart
    policy.select(np.zeros((n, 1, d)))
    gap = policy.last["theta_tilde"] - policy.last["theta_hat"]
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
        draws.append(policy.last["theta_tilde"][0])
    z = np.array(draws)  # V = V_tilde = I, theta_hat = 0
    for row in z.T:
        assert stats.kstest(row, "norm").pvalue > P_VALUE
        assert abs(np.corrcoef(row[:-1], row[1:])[0, 1]) < 5.5 / math.sqrt(n)
    assert abs(np.corrcoef(z.T)[0, 1]) < 5.5 / math.sqrt(n)


def test_the_size_of_the_random_bonus_is_half_normal() -> None:
    many = DRandLinUCB(dim=2, gamma=0.9, lanes=5000, seed=2)
    many.select(np.zeros((5000, 1, 2)))
    assert stats.kstest(many.last["Z"], stats.halfnorm(scale=0.4).cdf).pvalue > P_VALUE
    one, sizes = DRandLinUCB(dim=2, gamma=0.9, seed=2), []
    for _ in range(5000):
        one.select(np.zeros((1, 1, 2)))
        sizes.append(one.last["Z"][0])
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
            found.append(policy.last[drawn].reshape(len(lanes), -1)[:, 0])
        return np.array(found).T

    first, second, again = draws([3, 8, 3], 0)
    assert np.array_equal(first, again)
    assert abs(np.corrcoef(first, second)[0, 1]) < 5.5 / math.sqrt(n)
    (other,) = draws([3], 1)
    assert abs(np.corrcoef(first, other)[0, 1]) < 5.5 / math.sqrt(n)


# --- references ------------------------------------------------------------------------------------------------------


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


def regret(policy: Policy, world: Environment) -> np.ndarray:
    """Of each lane, over the whole horizon."""
    lanes, lost = np.arange(world.lanes), np.zeros(world.lanes)
    for t in range(1, world.horizon + 1):
        offer = world.round(t)
        choice = policy.select(offer.arms, offer.valid)
        mean = offer.means[lanes, choice]
        policy.update(offer.arms[lanes, choice], world.reward(t, mean))
        lost += offer.best - mean
    return lost


@pytest.mark.parametrize("intercept", [None, 0.5])
@pytest.mark.parametrize("link", ["identity", "logistic", "poisson"])
def test_the_oracle_built_by_the_lab_has_no_regret(link: str, intercept: float | None) -> None:
    world = Environment(Rotation(), BallArms(count=6), link=link, intercept=intercept, horizon=90, lanes=3, seed=2)
    assert np.abs(regret(PolicySpec("Oracle").build(world), world)).max() < 1e-9
    assert regret(PolicySpec("UniformRandom").build(world), world).min() > 1.0


def test_the_truth_of_an_environment() -> None:
    world = Environment(Rotation(), BallArms(count=6), intercept=-0.3, horizon=30, lanes=3)
    for t in (1, 17.0, np.float64(30)):
        offer = world.round(int(t))
        assert np.array_equal(world.means(t, offer.arms), offer.means)
    for wrong in (1.5, 0, 31, "1", math.nan):
        with pytest.raises(ValueError, match=r"^t="):
            world.means(wrong, offer.arms)  # type: ignore[arg-type]


def test_an_oracle_says_what_it_cannot_do() -> None:
    oracle = Oracle(dim=2, truth=lambda _t, arms: np.full(arms.shape[:2], np.nan))
    with pytest.raises(ValueError, match=r"^truth\(t, arms\) at t=1: must be finite"):
        oracle.select(np.zeros((1, 3, 2)))
    oracle = Oracle(dim=2, truth=lambda _t, _arms: np.zeros(3))
    with pytest.raises(ValueError, match=r"^truth\(t, arms\) has shape \(3,\)"):
        oracle.select(np.zeros((1, 3, 2)))
    with pytest.raises(ValueError, match=r"^arm_set=Ball\(radius=1.0\): the oracle is told"):
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
            theta = greedy.last["theta_tilde"]
            np.testing.assert_allclose(x, theta / np.linalg.norm(theta, axis=1, keepdims=True), atol=1e-9)
        else:
            choice = greedy.select(arms)
            assert np.array_equal(silent.select(arms), choice)
            x = arms[np.arange(2), choice]
            theta = greedy.last["theta_tilde"]
            best = np.einsum("lkd,ld->lk", arms, theta).argmax(axis=1)
            assert ((choice == best) | (theta == 0).all(axis=1)).all()  # theta = 0: all arms tie
        reward = (rng.random(2) < 0.5 + 0.4 * x[:, 0]).astype(float)
        greedy.update(x, reward)
        silent.update(x, reward)


# --- does it help? ---------------------------------------------------------------------------------------------------


def test_who_forgets_loses_less_where_theta_turns() -> None:
    """A rotation in a linear world: each forgetting policy, at its own tuning, beats OFUL on the same runs."""
    world = Environment(Rotation(), BallArms(count=10), link="identity", horizon=1500, lanes=40, seed=1)
    never = regret(PolicySpec("OFUL").build(world), world)
    for name in ("D-LinUCB", "SW-LinUCB", "RestartUCB", "LB-WeightUCB", "D-LinTS", "D-RandLinUCB", "Greedy"):
        gain = never - regret(PolicySpec(name).build(world), world)
        assert gain.mean() > 5.0 * gain.std(ddof=1) / math.sqrt(len(gain)), name
    chance = regret(PolicySpec("UniformRandom").build(world), world)
    assert never.mean() < chance.mean()
