"""An estimator next to the literal history, and streams of observations to feed."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st

import naive
from support import access
from support.worlds import ball, draw_reward
from windvane.estimation.base import EXPANSION_SHARE, ROOT_SHARE

TOLERANCE = 1e-6  # the estimator's default
LINK_NAMES = ["logistic", "poisson", "probit", "identity"]
GAMMAS = [0.5, 0.9, 0.99, 0.9999, 1.0]
KINDS: dict[str, dict[str, Any]] = {
    "gamma": {"gamma": [0.9, 1.0]},
    "window": {"window": 9.0},
    "linear": {"gamma": [0.9, 1.0]},
    "linear window": {"window": [9.0, 30.0]},
}

relaxed = settings(deadline=None, max_examples=40)
seeds = st.integers(0, 2**32 - 1)
by_link = pytest.mark.parametrize("link", LINK_NAMES)


class Twin:
    """An estimator and, for each of its lanes, the literal history; whatever happens, happens to both.

    The estimator's clock is at ``now``: in the oracle's count of rounds, t = now + 1.
    """

    def __init__(self, dim: int, link: str = "logistic", lanes: int = 1, seed: int = 0, **kwargs: Any) -> None:
        self.fast = access.make_estimator(dim, link, lanes=lanes, **kwargs)
        self.link = naive.LINKS[link]
        self.rng = np.random.default_rng(seed)
        self.star = ball(self.rng, (), dim)
        S, L, lam = (kwargs.get(name, 1.0) for name in ("S", "L", "lam"))
        self.L, self.ridge = L, lam * naive.constants(self.link, S, L)[1]
        windows = [None] * lanes if self.fast.window is None else self.fast.window
        self.slow = [
            naive.NaiveHistory(dim, self.link, gamma, lam, self.ridge, window)
            for gamma, window in zip(self.fast.gamma, windows, strict=True)
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

    def run(self, rounds: int, **observation: Any) -> None:
        """A round and one observation per lane, again and again."""
        for _ in range(rounds):
            self.advance()
            self.observe(**observation)

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
                (self.fast.metric()[lane], slow.V(t)),
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
        assert (self.fast.root_error - self.fast.expansion_error <= ROOT_SHARE * TOLERANCE).all()
        assert (self.fast.expansion_error <= EXPANSION_SHARE * TOLERANCE).all()
        if self.link.name in ("logistic", "probit"):  # bounded links: a guarantee
            assert (self.fast.truncation_error <= TOLERANCE).all()
        for lane in range(self.fast.lanes):
            error = np.linalg.norm(self.fast.theta_hat[lane] - self.root(lane))
            assert error <= bound[lane] + 1e-9
            assert error <= 1e-6 + 1e-8

    def check(self) -> None:
        """Sums, their order V >= V_tilde >= lam I, and the root."""
        self.check_sums()
        self.check_root()
        V, V_tilde = self.fast.metric(), self.fast.V_tilde
        size = np.abs(V).max()
        assert np.linalg.eigvalsh(V - V_tilde).min() >= -1e-13 * size
        assert np.linalg.eigvalsh(V_tilde - self.slow[0].lam * np.eye(self.fast.dim)).min() >= -1e-13 * size


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


def play_schedule(twin: Twin, schedule: list[tuple[float, list[tuple[Any, Any, Any]]]]) -> None:
    for number, (gap, observations) in enumerate(schedule):
        twin.advance(gap)
        for age, weight, mask in observations:
            twin.observe(age, weight, mask)
        if number % 3 == 0:
            twin.fast.solve()


def lane_stream(lane: int, rounds: int, dim: int) -> list[tuple[np.ndarray, float, float, bool]]:
    """(x, reward, age, present) of one lane; lanes differ in how often anything is seen."""
    rng = np.random.default_rng([11, lane])
    presence = [1.0, 0.3, 0.9, 0.6][lane % 4]
    return [
        (ball(rng, (), dim), float(rng.integers(0, 2)), float(rng.integers(0, 4)), bool(rng.random() < presence))
        for _ in range(rounds)
    ]


def feed(estimator: Any, lanes: list[int], rounds: range, dim: int, solve_every: int = 1) -> None:
    streams = [lane_stream(lane, rounds.stop, dim) for lane in lanes]
    for t in rounds:
        estimator.advance()
        x, reward, age, present = zip(*(stream[t] for stream in streams), strict=True)
        estimator.observe(np.array(x), np.array(reward), age=np.array(age), mask=np.array(present))
        if t % solve_every == 0:
            estimator.solve()


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


def make_kind(kind: str, rounds: int = 0) -> Any:
    """An estimator of two lanes of one of :data:`KINDS`, after some rounds."""
    make = access.make_ridge if kind.startswith("linear") else access.make_estimator
    estimator = make(2, lanes=2, **KINDS[kind])
    feed(estimator, [0, 1], range(rounds), 2, solve_every=3)
    return estimator
