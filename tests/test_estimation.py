"""The discounted estimator against the literal sums of naive.py: recursions, root, forgetting, lanes, state."""

from __future__ import annotations

import io
import math
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import naive
from windvane import CustomLink, DiscountedEstimator
from windvane.links import get_link
from worlds import ball, draw_reward

TOLERANCE = 1e-6  # the estimator's default
LINK_NAMES = ["logistic", "poisson", "probit", "identity"]
GAMMAS = [0.5, 0.9, 0.99, 0.9999, 1.0]

relaxed = settings(deadline=None, max_examples=40)
seeds = st.integers(0, 2**32 - 1)
by_link = pytest.mark.parametrize("link", LINK_NAMES)


class Twin:
    """An estimator and, for each of its lanes, the literal history; whatever happens, happens to both.

    The estimator's clock is at ``now``: in the oracle's count of rounds, t = now + 1.
    """

    def __init__(self, dim: int, link: str = "logistic", lanes: int = 1, seed: int = 0, **kwargs: Any) -> None:
        self.fast = DiscountedEstimator(dim, link, lanes=lanes, **kwargs)
        self.link = naive.LINKS[link]
        self.rng = np.random.default_rng(seed)
        self.star = ball(self.rng, (), dim)
        S, L, lam = (kwargs.get(name, 1.0) for name in ("S", "L", "lam"))
        self.L, self.ridge = L, lam * naive.constants(self.link, S, L)[1]
        self.slow = [
            naive.NaiveHistory(dim, self.link, gamma, lam, self.ridge, kwargs.get("window"))
            for gamma in self.fast.gamma
        ]
        self.now = 0.0

    def observe(self, age: Any = 0.0, weight: Any = 1.0, mask: Any = None) -> None:
        """One random observation per lane; where masked, the estimator gets NaN to ignore."""
        n = self.fast.lanes
        x = ball(self.rng, (n,), self.fast.dim, self.L)
        reward = draw_reward(self.rng, self.link.name, x @ self.star)
        age, weight = np.broadcast_to(age, (n,)), np.broadcast_to(weight, (n,))
        chosen = np.ones(n, dtype=bool) if mask is None else np.array(mask)
        hidden = [np.where(chosen, value, np.nan) for value in (reward, age, weight)]
        self.fast.observe(np.where(chosen[:, None], x, np.nan), hidden[0], age=hidden[1], weight=hidden[2], mask=mask)
        for lane in np.flatnonzero(chosen):
            self.slow[lane].append(x[lane], float(reward[lane]), self.now - float(age[lane]), float(weight[lane]))

    def advance(self, rounds: float = 1.0) -> None:
        self.fast.advance(rounds)
        self.now += rounds

    def root(self, lane: int = 0) -> np.ndarray:
        return naive.theta_hat(self.slow[lane], self.now + 1, self.link, self.ridge)

    def check_sums(self) -> None:
        """V, V_tilde and b within 1e-10 of their size; g and H too, where nothing was dropped."""
        theta = 2 * ball(self.rng, (self.fast.lanes,), self.fast.dim)
        g, H = self.fast.moments(theta)
        whole = self.fast.truncation_error == 0.0
        for lane, slow in enumerate(self.slow):
            t = self.now + 1
            pairs = [
                (self.fast.V[lane], slow.V(t)),
                (self.fast.V_tilde[lane], slow.V_tilde(t)),
                (self.fast.b[lane], slow.b(t)),
            ]
            if whole[lane]:
                pairs += [(g[lane], slow.g(theta[lane], t)), (H[lane], slow.H(theta[lane], t))]
            size = np.abs(slow.V(t)).max() * (1 + np.abs(slow.rewards).max(initial=0.0))
            for got, expected in pairs:
                np.testing.assert_allclose(got, expected, rtol=1e-10, atol=1e-12 * size)

    def check_root(self) -> None:
        """theta_hat is as near to the root over the full history as its two bounds say; 1e-9 for the oracle's own."""
        self.fast.solve()
        bound = self.fast.truncation_error + self.fast.root_error
        assert (self.fast.root_error <= 0.01 * TOLERANCE).all()
        if self.link.name in ("logistic", "probit"):  # bounded links: a guarantee
            assert (self.fast.truncation_error <= TOLERANCE).all()
        for lane in range(self.fast.lanes):
            error = np.linalg.norm(self.fast.theta_hat[lane] - self.root(lane))
            assert error <= bound[lane] + 1e-9
            assert error <= 1e-6 + 1e-8


eighths = st.integers(0, 40).map(lambda k: k / 8)  # exact in binary, so that both clocks agree to the bit
whole_or_not = st.one_of(st.sampled_from([0.0, 1.0, 1.0, 1.0, 2.0]), eighths)


def schedules(lanes: int) -> st.SearchStrategy[list[tuple[float, list[tuple[Any, Any, Any]]]]]:
    """Rounds: a gap, then any number of observations, each with ages, weights and a mask by lane."""
    observation = st.tuples(
        st.lists(st.one_of(st.just(0.0), eighths), min_size=lanes, max_size=lanes),
        st.lists(st.sampled_from([0.0, 0.5, 1.0, 1.0, 3.0]), min_size=lanes, max_size=lanes),
        st.lists(st.booleans(), min_size=lanes, max_size=lanes),
    )
    return st.lists(st.tuples(whole_or_not, st.lists(observation, max_size=3)), min_size=1, max_size=25)


def play(twin: Twin, schedule: list[tuple[float, list[tuple[Any, Any, Any]]]]) -> None:
    for number, (gap, observations) in enumerate(schedule):
        twin.advance(gap)
        for age, weight, mask in observations:
            twin.observe(age, weight, mask)
        if number % 3 == 0:
            twin.fast.solve()


# --- against the literal sums --------------------------------------------------------------------------------------


@by_link
@pytest.mark.parametrize("dim", [1, 2, 5])
@settings(deadline=None, max_examples=12)
@given(seed=seeds, schedule=schedules(3), gamma=st.lists(st.sampled_from(GAMMAS), min_size=3, max_size=3))
def test_any_schedule(link: str, dim: int, seed: int, schedule: list[Any], gamma: list[float]) -> None:
    """Several observations a round or none, late, out of order, weighted, masked, at fractional times and ages."""
    twin = Twin(dim, link, 3, seed, gamma=gamma)
    play(twin, schedule)
    assert (twin.fast.elapsed == twin.now).all()
    twin.check_sums()
    twin.check_root()


@by_link
@settings(deadline=None, max_examples=12)
@given(seed=seeds, schedule=schedules(2), window=st.integers(1, 80).map(lambda k: k / 8))
def test_any_schedule_in_a_sliding_window(link: str, seed: int, schedule: list[Any], window: float) -> None:
    """Weight 1 below the window's age and 0 from it on; what arrives older than that never counts."""
    twin = Twin(2, link, 2, seed, window=window)
    play(twin, schedule)
    twin.check_sums()
    twin.check_root()
    np.testing.assert_array_equal(twin.fast.V, twin.fast.V_tilde)
    assert (twin.fast.truncation_error == 0.0).all()
    assert twin.fast.remembered.tolist() == [np.count_nonzero(slow.weights(twin.now + 1)) for slow in twin.slow]


@pytest.mark.parametrize("settings_", [{"S": 2.0, "L": 0.5, "lam": 0.1}, {"S": 0.5, "L": 3.0, "lam": 7.0}])
@by_link
def test_other_constants(link: str, settings_: dict[str, float]) -> None:
    """S, L and lam enter through the ridge lam c_mu, and V through lam."""
    twin = Twin(3, link, 2, 4, gamma=[0.95, 1.0], **settings_)
    for _ in range(60):
        twin.advance()
        twin.observe()
    twin.check_sums()
    twin.check_root()
    assert twin.fast.ridge == pytest.approx(twin.ridge, rel=1e-12)


@relaxed
@given(seed=seeds, gamma=st.floats(0.05, 1.0), gap=st.floats(0.0, 50.0), share=st.floats(0.0, 1.0))
def test_forgetting_follows_the_clock_on_the_wall(seed: int, gamma: float, gap: float, share: float) -> None:
    """V <- gamma^D V + (1 - gamma^D) lam I (gamma^2 for V_tilde, no ridge for b), however D is cut in two."""
    one, two = (Twin(3, gamma=gamma, lam=0.7, seed=seed) for _ in range(2))
    for twin in (one, two):
        for _ in range(5):
            twin.advance()
            twin.observe()
    V, V_tilde, b = one.fast.V, one.fast.V_tilde, one.fast.b
    one.advance(gap)
    two.advance(share * gap)
    two.advance(gap - share * gap)
    keep, ridge = gamma**gap, 0.7 * np.eye(3)
    for twin in (one, two):
        np.testing.assert_allclose(twin.fast.V[0], keep * V[0] + (1 - keep) * ridge, rtol=0, atol=1e-12)
        np.testing.assert_allclose(twin.fast.V_tilde[0], keep**2 * (V_tilde[0] - ridge) + ridge, rtol=0, atol=1e-12)
        np.testing.assert_allclose(twin.fast.b[0], keep * b[0], rtol=0, atol=1e-12)


@by_link
@relaxed
@given(seed=seeds, gamma=st.sampled_from(GAMMAS), age=eighths, times=st.integers(2, 4))
def test_an_observation_twice_is_weight_two(link: str, seed: int, gamma: float, age: float, times: int) -> None:
    repeated, weighted = Twin(2, link, gamma=gamma, seed=seed), Twin(2, link, gamma=gamma, seed=seed)
    for twin in (repeated, weighted):
        for _ in range(10):
            twin.advance()
            twin.observe()
    x, reward = repeated.slow[0].features[-1:], repeated.slow[0].rewards[-1]
    for _ in range(times):
        repeated.fast.observe(x, reward, age=age)
    weighted.fast.observe(x, reward, age=age, weight=times)
    for name in ("V", "V_tilde", "b"):
        np.testing.assert_allclose(getattr(repeated.fast, name), getattr(weighted.fast, name), rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(repeated.fast.theta_hat, weighted.fast.theta_hat, rtol=0, atol=0.02 * TOLERANCE)
    assert repeated.fast.remembered[0] == weighted.fast.remembered[0] + times - 1


def same_state(one: dict[str, np.ndarray], two: dict[str, np.ndarray]) -> bool:
    return set(one) == set(two) and all(np.array_equal(one[name], two[name], equal_nan=True) for name in one)


@pytest.mark.parametrize("nothing", [{"weight": 0.0}, {"mask": np.zeros(2, dtype=bool)}, {"weight": 0.0, "age": 3.0}])
def test_weight_zero_or_a_mask_is_nothing(nothing: dict[str, Any]) -> None:
    """Bit for bit, also for thousands of them, which would fill a buffer."""
    twin = Twin(2, lanes=2, gamma=0.9)
    for _ in range(5):
        twin.advance()
        twin.observe()
    twin.fast.solve()
    before = twin.fast.state()
    for _ in range(2000):
        twin.fast.observe(np.ones((2, 2)) / 2, 1.0, **nothing)
    assert same_state(before, twin.fast.state())


def test_order_of_arrival_does_not_matter() -> None:
    """Rewards of 30 decisions in the order they were made, in reverse and shuffled: the same estimate."""
    rng = np.random.default_rng(2)
    x, reward = ball(rng, (30, 1), 2), rng.integers(0, 2, 30) * 1.0
    estimates = []
    for order in (np.arange(30), np.arange(30)[::-1], rng.permutation(30)):
        estimator = DiscountedEstimator(2, gamma=0.9)
        estimator.advance(30)
        for s in order:
            estimator.observe(x[s], reward[s], age=float(30 - s))
        estimates.append(np.concatenate([estimator.theta_hat.ravel(), estimator.V.ravel(), estimator.b.ravel()]))
    np.testing.assert_allclose(estimates[1], estimates[0], rtol=0, atol=0.02 * TOLERANCE)
    np.testing.assert_allclose(estimates[2], estimates[0], rtol=0, atol=0.02 * TOLERANCE)


# --- the sliding window over long runs -----------------------------------------------------------------------------


@pytest.mark.parametrize(("window", "rounds"), [(7.0, 1600), (7.5, 1600), (1200.0, 2700)])
def test_a_window_over_many_removals(window: float, rounds: int) -> None:
    """Beyond 1024 removals (or as many as are held) the sums are rebuilt; before, at and after that they are exact."""
    twin = Twin(2, window=window)
    for t in range(rounds):
        twin.advance()
        twin.observe(age=float(t % 3), weight=1.0 + t % 2)
        if t % (rounds // 8) == 0 or 1020 <= t - window <= 1030:
            twin.check_sums()
    twin.check_root()


def test_a_window_takes_late_rewards_within_it_only() -> None:
    twin = Twin(2, window=5.0)
    for _ in range(20):
        twin.advance()
        twin.observe(age=float(twin.rng.integers(0, 10)))
    before = twin.fast.state()
    twin.observe(age=5.0)  # at the window's edge: out
    assert same_state(before, twin.fast.state())
    twin.observe(age=4.875)
    assert not same_state(before, twin.fast.state())
    twin.check_sums()
    twin.check_root()


def test_an_emptied_window_knows_nothing() -> None:
    twin = Twin(3, window=4.0, lam=0.5)
    for _ in range(30):
        twin.advance()
        twin.observe(weight=100.0)
    twin.advance(4.0)
    assert twin.fast.remembered[0] == 0
    np.testing.assert_allclose(twin.fast.V[0], 0.5 * np.eye(3), rtol=0, atol=1e-11)
    np.testing.assert_allclose(twin.fast.theta_hat, 0.0, rtol=0, atol=1e-10)


@pytest.mark.parametrize("weight", [1e3, 1e8, 1e12])
def test_a_heavy_observation_leaves_the_window_without_a_trace(weight: float) -> None:
    """Weights up to 1e12 are allowed; subtracting one again must not leave its rounding in V and b."""
    twin = Twin(2, window=4.0)
    twin.observe(weight=weight)
    for _ in range(6):
        twin.advance()
        twin.observe()
    twin.check_sums()
    twin.check_root()
    DiscountedEstimator(2, window=4.0).load_state(twin.fast.state())


# --- the root and its certificate ----------------------------------------------------------------------------------


def remembered_root(estimator: DiscountedEstimator, link: naive.NaiveLink) -> tuple[np.ndarray, float]:
    """The root over exactly what lane 0 holds, and what rounding alone may do to it: eps sum w (|mu| + |r|) L / H."""
    state = estimator.state()
    n = int(state["counts"][0])
    now, origin, _ = state["clock"][0]
    features, weights = state["X"][0, :, :n].T, state["W"][0, :n] * estimator.gamma[0] ** (now - origin)
    root = naive.solve_theta_hat(features, weights, state["b"][0], estimator.ridge, link)
    curvature = np.linalg.eigvalsh(naive.H(root, features, weights, estimator.ridge, link))[0]
    size = weights @ (np.linalg.norm(features, axis=1) * (1 + np.abs(link.mean(features @ root))))
    return root, float(1e-14 * (size + np.abs(state["b"][0]).sum()) / curvature)


@by_link
@settings(deadline=None, max_examples=40)
@given(
    seed=seeds,
    dim=st.sampled_from([1, 2, 5]),
    gamma=st.sampled_from([0.9, 0.99, 1.0]),
    lam=st.integers(-2, 1).map(lambda e: 10.0**e),
    S=st.floats(0.3, 2.0),
    L=st.floats(0.3, 2.0),
    heavy=st.integers(0, 2).map(lambda e: 10.0**e),
    solve_every=st.integers(1, 20),
)
def test_the_certificate_of_the_root_is_honest(
    link: str, seed: int, dim: int, gamma: float, lam: float, S: float, L: float, heavy: float, solve_every: int
) -> None:
    """|theta_hat - root of the remembered history| <= root_error <= tolerance / 100, at every solve of a warm run."""
    twin = Twin(dim, link, seed=seed, gamma=gamma, lam=lam, S=S, L=L)
    for t in range(1, 41):
        twin.advance()
        twin.observe(weight=heavy if t % 7 == 0 else 1.0)
        if t % solve_every == 0:
            theta = twin.fast.solve()[0].copy()
            root, rounding = remembered_root(twin.fast, twin.link)
            assert np.linalg.norm(theta - root) <= twin.fast.root_error[0] + 1e-12 + rounding
            assert twin.fast.root_error[0] <= 0.01 * TOLERANCE + rounding


@by_link
def test_the_certificate_of_the_root_is_honest_in_two_thousand_lanes(link: str) -> None:
    """d = 1, where bisection gives the root of every lane to rounding; theta_hat often crosses 0 on its way."""
    lanes, rounds = 2000, 7
    rng, mean = np.random.default_rng(3), naive.LINKS[link].mean
    estimator = DiscountedEstimator(1, link, gamma=0.9, L=1.5, lanes=lanes)
    x, weights, b = np.zeros((0, lanes)), np.zeros(0), np.zeros(lanes)
    for _ in range(rounds):
        new = ball(rng, (lanes,), 1, 1.5)
        reward = draw_reward(rng, link, new[:, 0])
        estimator.advance()
        estimator.observe(new, reward)
        theta = estimator.solve()[:, 0]
        x, weights, b = np.vstack([x, new[:, 0]]), np.append(0.9 * weights, 1.0), 0.9 * b + reward * new[:, 0]
        low, high = np.full(lanes, -100.0), np.full(lanes, 100.0)
        for _ in range(70):
            middle = (low + high) / 2
            above = weights @ (mean(x * middle) * x) + estimator.ridge * middle > b
            low, high = np.where(above, low, middle), np.where(above, middle, high)
        assert (np.abs(theta - low) <= estimator.root_error + 1e-12).all()
        assert np.median(estimator.root_error) <= 0.01 * TOLERANCE


@by_link
@pytest.mark.parametrize("gamma", [0.98, 1.0])
def test_a_warm_start_ends_where_a_cold_one_does(link: str, gamma: float) -> None:
    """Both within 1e-8 of the same root, so within 2e-8 of each other."""
    warm = Twin(3, link, 2, 5, gamma=gamma)
    for _ in range(400):
        warm.advance()
        warm.observe()
        warm.fast.solve()
    cold = DiscountedEstimator(3, link, gamma=gamma, lanes=2)
    cold.advance(warm.now)
    x = np.stack([slow.features for slow in warm.slow], axis=1)
    reward = np.stack([slow.rewards for slow in warm.slow], axis=1)
    for s in range(400):
        cold.observe(x[s], reward[s], age=warm.now - warm.slow[0].rounds[s])
    np.testing.assert_allclose(warm.fast.theta_hat, cold.theta_hat, rtol=0, atol=2e-8)
    assert warm.fast.root_passes.max() <= 2  # the point of it


@pytest.mark.parametrize(
    ("link", "lam", "x", "rewards"),
    [
        ("poisson", 1.0, [[0.2], [1.1]], [0, 9]),
        ("poisson", 1.0, [[0.1, 0.0], [-1.1, -1.4]], [10, 7]),
        ("logistic", 0.01, [[0.7, 0.5], [0.0, 0.8], [1.2, 1.2]], [1, 1, 0]),
        ("probit", 0.1, [[0.6, -1.3], [0.5, 0.1], [-0.4, 1.2]], [1, 0, 1]),
        (
            "probit",
            1.0,
            [[-1.2, -0.1, 0.8], [-0.2, 1.1, -0.8], [-0.4, 0.7, -0.8], [1.0, 0.1, 0.6], [1.1, 0.8, 0.5]],
            [0, 0, 0, 0, 1],
        ),
    ],
    ids=["poisson 1d", "poisson 2d", "logistic", "probit 2d", "probit 3d"],
)
def test_a_warm_start_that_overshoots_comes_back(link: str, lam: float, x: list[Any], rewards: list[int]) -> None:
    """S = L = 2, so a small ridge: the step predicted from the last round lands far out, where mu' says nothing."""
    estimator = DiscountedEstimator(len(x[0]), link, lam=lam, S=2.0, L=2.0)
    for point, reward in zip(x, rewards, strict=True):
        estimator.advance()
        estimator.observe([point], reward)
        estimator.solve()
    X, r = np.array(x), np.array(rewards, dtype=float)
    exact = naive.solve_theta_hat(X, np.ones(len(X)), X.T @ r, estimator.ridge, naive.LINKS[link])
    assert np.linalg.norm(estimator.theta_hat[0] - exact) <= 0.01 * TOLERANCE + 1e-10
    assert estimator.root_error[0] <= 0.01 * TOLERANCE


@by_link
@pytest.mark.parametrize("lam", [1.0, 0.1, 0.01])
def test_the_root_is_found_in_every_round_of_many_runs(link: str, lam: float) -> None:
    """Thirty lanes, d = 5, S = L = 2: c_mu is 0.018 for logistic and poisson, 0.00013 for probit."""
    twin = Twin(5, link, 30, gamma=0.99, lam=lam, S=2.0, L=2.0)
    for _ in range(30):
        twin.advance()
        twin.observe()
        twin.fast.solve()
        assert twin.fast.root_error.max() <= 0.01 * TOLERANCE
    for lane in range(5):
        assert np.linalg.norm(twin.fast.theta_hat[lane] - twin.root(lane)) <= 0.01 * TOLERANCE + 1e-10


def single_count_root(estimator: DiscountedEstimator, reward: float) -> np.ndarray:
    """Poisson, one observation of x = 1."""
    one = np.ones((1, 1))
    return naive.solve_theta_hat(one, one[0], np.array([reward]), estimator.ridge, naive.LINKS["poisson"])


@pytest.mark.parametrize("reward", [100.0, 300.0, 1000.0, 10_000.0])
def test_a_large_count_is_no_trouble_to_poisson(reward: float) -> None:
    """One Newton step from 0 overshoots to z ~ reward, where e^z is astronomical: the root is near log(reward)."""
    estimator = DiscountedEstimator(1, "poisson")
    estimator.observe([[1.0]], reward)
    theta = estimator.solve()[0]
    assert np.abs(theta - single_count_root(estimator, reward)) <= 0.01 * TOLERANCE + 1e-12
    assert estimator.root_error <= 0.01 * TOLERANCE


# --- bounded memory ------------------------------------------------------------------------------------------------


@by_link
def test_memory_is_flat_and_what_it_costs_is_bounded(link: str) -> None:
    """gamma = 0.9, one observation a round: exactly memory + 1 are held, and theta_hat stays within its bound."""
    twin = Twin(2, link, gamma=0.9)
    memory = int(twin.fast.memory[0])
    held = []
    for t in range(2500):
        twin.advance()
        twin.observe()
        held.append(int(twin.fast.remembered[0]))
        if t % 250 == 249:
            twin.check_sums()
            twin.check_root()
            assert twin.fast.truncation_error[0] > 0
    assert held[: memory + 1] == list(range(1, memory + 2))
    assert set(held[memory + 1 :]) == {memory + 1}


def test_memory_is_flat_for_several_observations_a_round() -> None:
    """Three a round weigh three times as much: kept log(3)/log(1/gamma) rounds longer, no more."""
    twin = Twin(2, gamma=0.9)
    most = twin.fast.memory[0] + math.ceil(math.log(3) / -math.log(0.9)) + 1
    for t in range(1000):
        twin.advance()
        for _ in range(3):
            twin.observe()
        assert twin.fast.remembered[0] <= 3 * (most + 1)
        if t % 200 == 199:
            twin.check_root()


def test_heavy_observations_are_kept_until_they_too_are_light() -> None:
    """Weight 1e4: at the ordinary age of forgetting it still counts, and the bound of 1e-6 holds throughout."""
    twin = Twin(2, gamma=0.9)
    memory = int(twin.fast.memory[0])
    twin.observe(weight=1e4)
    for t in range(1, 2 * memory):
        twin.advance()
        twin.observe()
        if t == memory + 20:
            assert twin.fast.remembered[0] == t + 1
        if t >= memory:
            twin.check_root()
    assert twin.fast.remembered[0] == memory + 1


@pytest.mark.parametrize("gamma", [0.5, 0.9, 0.99])
def test_a_late_observation_beyond_memory_is_ignored(gamma: float) -> None:
    """Bit for bit; it could have moved theta_hat by (1 - gamma) tolerance at most."""
    twin = Twin(2, gamma=gamma)
    for _ in range(20):
        twin.advance()
        twin.observe()
    before, root = twin.fast.state(), twin.root()
    twin.observe(age=twin.fast.memory[0] + 1)
    assert same_state(before, twin.fast.state())
    assert np.linalg.norm(twin.root() - root) <= (1 - gamma) * TOLERANCE


@pytest.mark.parametrize("weight", [1.0, 1e3, 1e6])
def test_a_late_observation_is_only_ignored_if_it_hardly_counts(weight: float) -> None:
    """Older than the memory but heavy: leaving it out may not move theta_hat by more than the tolerance."""
    twin = Twin(2, gamma=0.9)
    for _ in range(20):
        twin.advance()
        twin.observe()
    twin.observe(age=twin.fast.memory[0] + 1, weight=weight)
    assert np.linalg.norm(twin.fast.theta_hat[0] - twin.root()) <= 1.01 * TOLERANCE


def test_a_long_silence_and_a_long_run_keep_their_digits() -> None:
    """Stored weights are re-based before they overflow: gamma = 0.5 passes e^300 every 433 rounds."""
    twin = Twin(2, lanes=2, gamma=[0.5, 0.97])
    for t in range(1400):
        twin.advance()
        if t % 2 == 0:
            twin.observe()
        if t % 200 == 0:
            twin.check_sums()
            twin.check_root()
    twin.advance(5000.5)
    np.testing.assert_allclose(twin.fast.V, np.broadcast_to(np.eye(2), (2, 2, 2)), rtol=0, atol=1e-15)
    assert twin.fast.remembered.tolist() == [0, 0]
    for _ in range(3):
        twin.observe()
        twin.advance()
    twin.check_sums()
    twin.check_root()


def test_truncation_error_is_zero_without_forgetting() -> None:
    twin = Twin(2)
    for _ in range(300):
        twin.advance()
        twin.observe()
    assert twin.fast.memory[0] == math.inf
    assert twin.fast.remembered[0] == 300
    assert twin.fast.truncation_error[0] == 0.0


# --- lanes, buffers, reading ---------------------------------------------------------------------------------------


def lane_stream(lane: int, rounds: int, dim: int) -> list[tuple[np.ndarray, float, float, bool]]:
    """(x, reward, age, present) of one lane; lanes differ in how often anything is seen."""
    rng = np.random.default_rng([11, lane])
    presence = [1.0, 0.3, 0.9, 0.6][lane % 4]
    return [
        (ball(rng, (), dim), float(rng.integers(0, 2)), float(rng.integers(0, 4)), bool(rng.random() < presence))
        for _ in range(rounds)
    ]


def feed(estimator: DiscountedEstimator, lanes: list[int], rounds: range, dim: int, solve_every: int = 1) -> None:
    streams = [lane_stream(lane, rounds.stop, dim) for lane in lanes]
    for t in rounds:
        estimator.advance()
        x, reward, age, present = zip(*(stream[t] for stream in streams), strict=True)
        estimator.observe(np.array(x), np.array(reward), age=np.array(age), mask=np.array(present))
        if t % solve_every == 0:
            estimator.solve()


def one_lane(state: dict[str, np.ndarray], lane: int) -> dict[str, np.ndarray]:
    """The part of a state that belongs to a lane, its history cut to length."""
    n = int(state["counts"][lane])
    return {k: v[lane, ..., :n] if k in ("X", "W", "R", "decided") else v[lane] for k, v in state.items()}


@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize(
    "settings_", [{"gamma": [0.7, 1.0, 0.95, 0.5]}, {"window": [20.0, 3.0, 0.5, 400.0]}], ids=["gamma", "window"]
)
def test_lanes_together_equal_lanes_alone(dim: int, settings_: dict[str, Any]) -> None:
    """Bit for bit, though together they double and compact their buffers at other times than alone."""
    together = DiscountedEstimator(dim, lanes=4, **settings_)
    feed(together, [0, 1, 2, 3], range(300), dim)
    for lane in range(4):
        own = {name: value[lane] for name, value in settings_.items()}
        alone = DiscountedEstimator(dim, **own)
        feed(alone, [lane], range(300), dim)
        assert same_state(one_lane(together.state(), lane), one_lane(alone.state(), 0))
        np.testing.assert_array_equal(together.theta_hat[lane], alone.theta_hat[0])


@pytest.mark.parametrize("settings_", [{"gamma": 0.9}, {"window": 9.0}, {}], ids=["gamma", "window", "neither"])
def test_reading_changes_nothing(settings_: dict[str, Any]) -> None:
    """Reading everything in every round, against reading nothing: the same bits, at later solves too."""
    read, unread = (DiscountedEstimator(2, lanes=2, **settings_) for _ in range(2))
    streams = [lane_stream(lane, 200, 2) for lane in (0, 1)]
    for t in range(200):
        for estimator in (read, unread):
            estimator.advance()
            x, reward, age, present = zip(*(stream[t] for stream in streams), strict=True)
            estimator.observe(np.array(x), np.array(reward), age=np.array(age), mask=np.array(present))
        seen = read.theta_hat
        for name in ("V", "V_tilde", "b", "truncation_error", "root_error", "memory", "remembered", "theta_hat"):
            getattr(read, name)[...] = 7  # and writing into what was read
        for array in (*read.moments(np.ones((2, 2))), *read.state().values()):
            array[...] = 0
        if t % 10 == 9:
            np.testing.assert_array_equal(seen, unread.solve())
            read.solve()
        assert same_state(read.state(), unread.state())


def test_theta_hat_read_is_theta_hat_solved() -> None:
    twin = Twin(2, gamma=0.95, lanes=3)
    for _ in range(50):
        twin.advance()
        twin.observe()
        seen = twin.fast.theta_hat
        np.testing.assert_array_equal(seen, twin.fast.solve())
        np.testing.assert_array_equal(seen, twin.fast.theta_hat)


@pytest.mark.parametrize("gamma", [None, 0.8, [0.3, 0.8, 0.6]])
def test_a_reset_lane_is_a_fresh_one(gamma: Any) -> None:
    """Bit for bit, with the new discount; the other lanes do not notice."""
    start = np.array([0.9, 0.99, 1.0])
    chosen = np.array([False, True, False])
    estimator, untouched = (DiscountedEstimator(2, gamma=start, lanes=3) for _ in range(2))
    for each in (estimator, untouched):
        feed(each, [0, 1, 2], range(100), 2)
    estimator.reset(chosen, gamma=gamma)
    new = start[1] if gamma is None else 0.8
    assert estimator.gamma.tolist() == [0.9, new, 1.0]
    fresh = DiscountedEstimator(2, gamma=new)
    assert same_state(one_lane(estimator.state(), 1), one_lane(fresh.state(), 0))
    assert estimator.memory[1] == fresh.memory[0]
    for each, lanes in ((estimator, [0, 1, 2]), (untouched, [0, 1, 2]), (fresh, [1])):
        feed(each, lanes, range(100, 200), 2)
    assert same_state(one_lane(estimator.state(), 1), one_lane(fresh.state(), 0))
    for lane in (0, 2):
        assert same_state(one_lane(estimator.state(), lane), one_lane(untouched.state(), lane))


@pytest.mark.parametrize("link", ["logistic", "identity"])
@pytest.mark.parametrize("window", [None, 7.0, [math.nan, 7.0, math.nan]], ids=["as before", "one", "per lane"])
def test_a_reset_lane_may_have_another_window(link: str, window: Any) -> None:
    """As with a discount; and a saved state carries the windows as they are then."""
    chosen, new = np.array([False, True, False]), 30.0 if window is None else 7.0
    estimator, untouched = (DiscountedEstimator(2, link, window=[5.0, 30.0, 80.0], lanes=3) for _ in range(2))
    for each in (estimator, untouched):
        feed(each, [0, 1, 2], range(100), 2)
    estimator.reset(chosen, window=window)
    assert estimator.window is not None
    assert estimator.window.tolist() == estimator.memory.tolist() == [5.0, new, 80.0]
    fresh = DiscountedEstimator(2, link, window=new)
    for each, lanes in ((estimator, [0, 1, 2]), (untouched, [0, 1, 2]), (fresh, [1])):
        feed(each, lanes, range(100, 200), 2)
    assert same_state(one_lane(estimator.state(), 1), one_lane(fresh.state(), 0))
    for lane in (0, 2):
        assert same_state(one_lane(estimator.state(), lane), one_lane(untouched.state(), lane))
    resumed = DiscountedEstimator(2, link, window=[5.0, 30.0, 80.0], lanes=3)
    resumed.load_state(estimator.state())
    for each in (estimator, resumed):
        feed(each, [0, 1, 2], range(200, 300), 2)
    assert same_state(resumed.state(), estimator.state())


@pytest.mark.parametrize("bad", [0.0, -1.0, math.inf, math.nan, [5.0, 0.0], [5.0, 5.0, 5.0], "x"])
def test_a_refused_window_changes_nothing(bad: Any) -> None:
    estimator, discounted = DiscountedEstimator(2, window=[9.0, 4.0], lanes=2), DiscountedEstimator(2, lanes=2)
    feed(estimator, [0, 1], range(10), 2)
    before = estimator.state()
    with pytest.raises(ValueError, match="window"):
        estimator.reset(window=bad)
    with pytest.raises(ValueError, match=r"window=5.0: this estimator has a discount instead"):
        discounted.reset(window=5.0)
    with pytest.raises(ValueError, match=r"gamma=0.5: this estimator has a window instead"):
        estimator.reset(gamma=0.5)
    with pytest.raises(ValueError, match=r"state\['window'\]"):
        estimator.load_state({**before, "window": np.array([9.0, 0.0])})
    assert same_state(before, estimator.state())


def test_reset_without_a_mask_resets_all() -> None:
    estimator = DiscountedEstimator(2, gamma=[0.9, 1.0], lanes=2)
    feed(estimator, [0, 1], range(30), 2)
    estimator.reset()
    assert same_state(estimator.state(), DiscountedEstimator(2, gamma=[0.9, 1.0], lanes=2).state())


@pytest.mark.parametrize("bad", [0.0, 1.5, math.nan, [0.9, 0.0], [0.9, 0.9, 0.9], "x"])
def test_a_refused_reset_changes_nothing(bad: Any) -> None:
    estimator = DiscountedEstimator(2, gamma=[0.9, 1.0], lanes=2)
    feed(estimator, [0, 1], range(10), 2)
    before = estimator.state()
    with pytest.raises(ValueError, match="gamma"):
        estimator.reset(gamma=bad)
    assert same_state(before, estimator.state())


# --- laws ----------------------------------------------------------------------------------------------------------


@by_link
@relaxed
@given(seed=seeds, gamma=st.sampled_from(GAMMAS))
def test_g_is_strongly_monotone_with_jacobian_h(link: str, seed: int, gamma: float) -> None:
    """<g(a) - g(c), a - c> >= ridge |a - c|^2; H is symmetric, at least the ridge, and the derivative of g."""
    twin = Twin(3, link, gamma=gamma, seed=seed)
    for _ in range(15):
        twin.advance()
        twin.observe()
    a, c = ball(twin.rng, (1,), 3, 3.0), ball(twin.rng, (1,), 3, 3.0)
    gap = twin.fast.moments(a)[0] - twin.fast.moments(c)[0]
    size = np.abs(twin.fast.moments(a)[0]).max() + np.abs(twin.fast.moments(c)[0]).max()
    assert np.vdot(gap, a - c) >= twin.fast.ridge * np.vdot(a - c, a - c) - 1e-13 * size
    H = twin.fast.moments(a)[1][0]
    np.testing.assert_array_equal(H, H.T)
    assert np.linalg.eigvalsh(H)[0] >= twin.fast.ridge * (1 - 1e-12)
    h = 1e-5 * np.eye(3)
    numeric = [(twin.fast.moments(a + e)[0] - twin.fast.moments(a - e)[0])[0] / 2e-5 for e in h]
    np.testing.assert_allclose(numeric, H, rtol=0, atol=1e-8 * (1 + size))


@relaxed
@given(seed=seeds, schedule=schedules(2), gamma=st.sampled_from(GAMMAS))
def test_v_is_at_least_v_tilde_is_at_least_lam(seed: int, schedule: list[Any], gamma: float) -> None:
    twin = Twin(2, lanes=2, gamma=gamma, lam=0.3, seed=seed)
    play(twin, schedule)
    size = np.abs(twin.fast.V).max()
    assert np.linalg.eigvalsh(twin.fast.V - twin.fast.V_tilde).min() >= -1e-13 * size
    assert np.linalg.eigvalsh(twin.fast.V_tilde - 0.3 * np.eye(2)).min() >= -1e-13 * size


@pytest.mark.parametrize("gamma", [0.9, 0.999, 1.0])
def test_the_identity_link_needs_no_history(gamma: float) -> None:
    """remember=False: theta_hat = V^-1 b, the root that remember=True finds; the same V, V_tilde, b to the bit."""
    remembering, forgetful = (
        DiscountedEstimator(2, "identity", gamma=gamma, lanes=2, remember=remember) for remember in (True, False)
    )
    for start in range(0, 400, 50):
        for estimator in (remembering, forgetful):
            feed(estimator, [0, 1], range(start, start + 50), 2)
        for name in ("V", "V_tilde", "b"):
            np.testing.assert_array_equal(getattr(remembering, name), getattr(forgetful, name))
        exact = np.linalg.solve(forgetful.V, forgetful.b[..., None])[..., 0]
        np.testing.assert_allclose(forgetful.theta_hat, exact, rtol=0, atol=1e-13)
        error = np.linalg.norm(remembering.theta_hat - forgetful.theta_hat, axis=1)
        assert (error <= remembering.truncation_error + remembering.root_error + 1e-12).all()
        theta = np.array([[0.3, -0.2], [1.0, 2.0]])
        for one, two in zip(remembering.moments(theta), forgetful.moments(theta), strict=True):
            np.testing.assert_allclose(one, two, rtol=0, atol=1e-5)  # what was dropped: D L |theta|
    assert forgetful.remembered.tolist() == [0, 0]
    assert forgetful.state()["X"].size == 0


@by_link
@pytest.mark.parametrize("settings_", [{"gamma": 0.9}, {"gamma": 1.0}, {"window": 12.0}], ids=str)
def test_a_custom_copy_of_a_link_equals_it(link: str, settings_: dict[str, Any]) -> None:
    """Interpreted kernels against compiled ones. At tolerance 1e-7 both roots are certified to 1e-9."""
    ours = get_link(link)
    copy = CustomLink("copy", ours.mean, ours.slope)
    one, two = (DiscountedEstimator(2, which, lanes=2, tolerance=1e-7, **settings_) for which in (ours, copy))
    for start in range(0, 60, 20):
        for estimator in (one, two):
            feed(estimator, [0, 1], range(start, start + 20), 2, solve_every=5)
        np.testing.assert_allclose(one.theta_hat, two.theta_hat, rtol=0, atol=1e-8)
        np.testing.assert_allclose(one.V, two.V, rtol=1e-13)
        for mine, theirs in zip(one.moments(np.ones((2, 2))), two.moments(np.ones((2, 2))), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-6)  # c_mu of a custom link is found numerically


def test_a_custom_link_gets_as_many_newton_steps_as_a_built_in_one() -> None:
    """A count of 100 takes about 70 steps down from the overshoot, whoever takes them."""
    copy = CustomLink("copy", np.exp, np.exp)
    estimator = DiscountedEstimator(1, copy)
    estimator.observe([[1.0]], 100.0)
    np.testing.assert_allclose(estimator.theta_hat[0], single_count_root(estimator, 100.0), rtol=0, atol=1e-8)


# --- state ---------------------------------------------------------------------------------------------------------

KINDS = {
    "gamma": {"gamma": [0.9, 1.0]},
    "window": {"window": 9.0},
    "linear": {"link": "identity", "gamma": [0.9, 1.0], "remember": False},
}
by_kind = pytest.mark.parametrize("kind", list(KINDS))


def made(kind: str, rounds: int = 0) -> DiscountedEstimator:
    estimator = DiscountedEstimator(2, lanes=2, **KINDS[kind])
    feed(estimator, [0, 1], range(rounds), 2, solve_every=3)
    return estimator


@by_kind
@pytest.mark.parametrize("rounds", [0, 1, 7, 8, 9, 100, 1200])
def test_a_loaded_state_goes_on_bit_for_bit(kind: str, rounds: int) -> None:
    """Mid-run, stale or solved, through a file, into a fresh estimator and into a used one."""
    original, fresh, used = made(kind, rounds), made(kind), made(kind, 40)
    file = io.BytesIO()
    np.savez(file, **original.state())
    file.seek(0)
    with np.load(file) as saved:
        state = dict(saved)
    fresh.load_state(state)
    used.load_state(original.state())
    for array in state.values():
        array[...] = 0  # the estimator keeps no hold of it
    for estimator in (fresh, used):
        assert same_state(original.state(), estimator.state())
        np.testing.assert_array_equal(original.memory, estimator.memory)
        np.testing.assert_array_equal(original.theta_hat, estimator.theta_hat)
    for start in range(rounds, rounds + 90, 30):
        for estimator in (original, fresh, used):
            feed(estimator, [0, 1], range(start, start + 30), 2, solve_every=7)
        assert same_state(original.state(), fresh.state())
        assert same_state(original.state(), used.state())


def spoil(name: str, change: Callable[[np.ndarray], Any]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def spoilt(state: dict[str, Any]) -> dict[str, Any]:
        array = state[name].copy()
        changed = change(array)
        return state | {name: array if changed is None else changed}

    return spoilt


def put(*index: Any, value: Any) -> Callable[[np.ndarray], None]:
    def change(array: np.ndarray) -> None:
        array[index] = value

    return change


BAD_STATES: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "an entry missing": lambda state: {name: array for name, array in state.items() if name != "b"},
    "an entry too many": lambda state: state | {"extra": np.zeros(1)},
    "V of another shape": spoil("V", lambda V: V[:, :1]),
    "V of another lane count": spoil("V", lambda V: V[:1]),
    "V of another type": spoil("V", lambda V: V.astype(np.float32)),
    "V below lam": spoil("V", put(0, 0, 0, value=0.5)),
    "V indefinite": spoil("V", put(0, 0, 0, value=-1.0)),
    "V not symmetric": spoil("V", put(0, 0, 1, value=50.0)),
    "V_tilde below lam": spoil("V_tilde", put(1, 1, 1, value=0.0)),
    "gamma zero": spoil("gamma", put(0, value=0.0)),
    "gamma above one": spoil("gamma", put(0, value=1.5)),
    "theta not finite": spoil("theta", put(0, 0, value=np.nan)),
    "b not finite": spoil("b", put(0, 0, value=np.inf)),
    "pull not finite": spoil("pull", put(0, 0, value=np.inf)),
    "pull partly missing": spoil("pull", put(0, 1, value=np.nan)),
    "an unknown staleness": spoil("stale", put(0, value=3)),
    "clock not finite": spoil("clock", put(0, 0, value=np.inf)),
    "weights from the future": spoil("clock", lambda clock: clock + [0.0, 1e3, 0.0]),
    "dropped weight negative": spoil("clock", put(0, 2, value=-1.0)),
    "more observations than there are": spoil("counts", put(0, value=1000)),
    "fewer observations than none": spoil("counts", put(0, value=-1)),
    "counts of another type": spoil("counts", lambda counts: counts.astype(float)),
    "removals negative": spoil("removals", put(0, value=-1)),
    "a weight of zero": spoil("W", put(0, 3, value=0.0)),
    "a weight below zero": spoil("W", put(0, 3, value=-1.0)),
    "a history without weights": spoil("W", lambda W: W[:, :-1]),
    "a weight that is one number": spoil("W", lambda W: W[0, 0]),
    "a feature not finite": spoil("X", put(0, 0, 0, value=np.nan)),
    "decisions out of order": spoil("decided", lambda decided: decided[:, ::-1]),
    "a decision in the future": spoil("decided", put(0, 8, value=1e6)),
}


@pytest.mark.parametrize("what", list(BAD_STATES))
def test_a_bad_state_is_refused_and_changes_nothing(what: str) -> None:
    """Each lane holds nine observations, one a round."""
    estimator = made("gamma")
    for t in range(9):
        estimator.advance()
        estimator.observe([[0.5, 0.1 * t], [0.2, -0.3]], 1.0)
    estimator.solve()
    before = estimator.state()
    with pytest.raises(ValueError, match=r"^(state|gamma)"):
        estimator.load_state(BAD_STATES[what](estimator.state()))
    assert same_state(before, estimator.state())
    estimator.load_state(before)  # it was good before


def test_a_window_takes_no_state_with_a_discount() -> None:
    """Its constructor and its reset refuse a gamma other than 1; so must this door."""
    estimator = made("window", 20)
    with pytest.raises(ValueError, match="gamma"):
        estimator.load_state(estimator.state() | {"gamma": np.array([0.9, 1.0])})


@contextmanager
def no_hanging(seconds: int) -> Iterator[None]:
    """An endless loop becomes an error; nothing here is measured."""

    def stop(*_: Any) -> None:
        raise TimeoutError("still running")

    previous = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)


@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="no alarm to end a hang on this platform")
def test_an_estimator_without_memory_takes_no_state_with_one() -> None:
    remembering = DiscountedEstimator(2, "identity", gamma=[0.9, 1.0], lanes=2)
    feed(remembering, [0, 1], range(5), 2)
    forgetful = made("linear")
    before = forgetful.state()
    with no_hanging(5), pytest.raises(ValueError, match="state"):
        forgetful.load_state(remembering.state())
    assert same_state(before, forgetful.state())


# --- refusals ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("dim", {"dim": 0}),
        ("dim", {"dim": 1.5}),
        ("dim", {"dim": True}),
        ("lanes", {"lanes": 0}),
        ("lanes", {"lanes": "2"}),
        ("link", {"link": "tanh"}),
        ("gamma", {"gamma": 0.0}),
        ("gamma", {"gamma": 1.0001}),
        ("gamma", {"gamma": math.nan}),
        ("gamma", {"gamma": [0.9, 0.9]}),
        ("gamma", {"gamma": "high"}),
        ("window", {"window": 0.0}),
        ("window", {"window": -3}),
        ("window", {"window": math.inf}),
        ("window", {"window": 10, "gamma": 0.9}),
        ("S", {"S": 0.0}),
        ("S", {"S": None}),
        ("L", {"L": -1.0}),
        ("lam", {"lam": math.nan}),
        ("lam", {"lam": 0}),
        ("tolerance", {"tolerance": 0.0}),
        ("remember", {"remember": False}),
        ("remember", {"remember": False, "link": "identity", "window": 3}),
    ],
    ids=str,
)
def test_the_constructor_names_what_it_refuses(name: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=rf"^{name}(=| has)"):
        DiscountedEstimator(**({"dim": 2} | arguments))


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("x", {"x": [[1.0, 0.0]]}),
        ("x", {"x": [1.0, 0.0]}),
        ("x", {"x": [[1.0, math.nan], [0.0, 0.0]]}),
        ("x", {"x": "features"}),
        ("reward", {"reward": math.inf}),
        ("reward", {"reward": [0.0, math.nan]}),
        ("reward", {"reward": [0.0, 1.0, 1.0]}),
        ("age", {"age": -0.5}),
        ("age", {"age": math.nan}),
        ("age", {"age": [0.0, 0.0, 0.0]}),
        ("weight", {"weight": -1.0}),
        ("weight", {"weight": math.inf}),
        ("weight", {"weight": [1.0, 1.0, 1.0]}),
        ("mask", {"mask": [True]}),
        ("mask", {"mask": [1, 0]}),
    ],
    ids=str,
)
def test_observe_names_what_it_refuses_and_takes_nothing_in(name: str, arguments: dict[str, Any]) -> None:
    estimator = made("gamma", 5)
    before = estimator.state()
    good: dict[str, Any] = {"x": [[0.5, 0.0], [0.0, 0.5]], "reward": 1.0}
    with pytest.raises(ValueError, match=rf"^{name}(=|:| has)"):
        estimator.observe(**(good | arguments))
    assert same_state(before, estimator.state())


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf, "1 day"])
def test_advance_names_what_it_refuses(bad: Any) -> None:
    estimator = made("gamma", 5)
    before = estimator.state()
    with pytest.raises(ValueError, match=r"^rounds="):
        estimator.advance(bad)
    assert same_state(before, estimator.state())


def test_moments_refuse_a_theta_of_another_shape() -> None:
    with pytest.raises(ValueError, match=r"^theta has shape"):
        made("gamma").moments(np.zeros(2))
