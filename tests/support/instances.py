"""Projection instances: histories whose estimate lies far outside the ball."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

import naive
from support.worlds import ball, draw_reward


class Instance(NamedTuple):
    """The arguments of p2, in its order."""

    features: np.ndarray
    weights: np.ndarray
    b: np.ndarray
    V: np.ndarray
    V_tilde: np.ndarray
    beta: float
    S: float
    ridge: float
    link: str

    @property
    def for_naive(self) -> tuple:
        return (*self[:-1], naive.LINKS[self.link])

    @property
    def data(self) -> tuple:
        """Features, weights, b, ridge and the oracle's link."""
        return (*self[:3], self.ridge, naive.LINKS[self.link])

    @property
    def moments(self) -> tuple:
        """What g and H need besides theta."""
        return (*self[:2], self.ridge, naive.LINKS[self.link])


def instance(
    rng: np.random.Generator, dim: int, *, link: str = "logistic", n: int = 150, hard: bool = True, S: float = 1.0
) -> Instance:
    """``hard``: theta* jumps between points far outside the ball, gamma near 1, little noise allowed for (small beta)
    and little regularisation, so that P2 has a positive value. Otherwise a mild one, of value zero."""
    gamma = rng.uniform(0.985, 1.0) if hard else 0.97
    lam = 10 ** rng.uniform(-2, 0) if hard else 1.0
    features = ball(rng, (n,), dim)
    if hard and rng.random() < 0.5:  # badly conditioned features
        features *= 10 ** rng.uniform(-1.5, 0, dim)
    jumps = rng.normal(size=(3, dim))
    jumps *= S * rng.uniform(2, 8, (3, 1)) / np.linalg.norm(jumps, axis=1, keepdims=True)
    path = np.repeat(jumps, -(-n // 3), axis=0)[:n]
    weights = gamma ** np.arange(n)[::-1]
    rewards = draw_reward(rng, link, np.clip(np.sum(features * path, axis=1), -6, 6))
    _, c_mu, _ = naive.constants(naive.LINKS[link], S, 1.0)
    beta = 10 ** rng.uniform(-2, 0) if hard else 50.0
    eye = lam * np.eye(dim)
    V, V_tilde = (features.T @ (weights[:, None] ** power * features) + eye for power in (1, 2))
    return Instance(features, weights, features.T @ (weights * rewards), V, V_tilde, float(beta), S, lam * c_mu, link)


def starts(rng: np.random.Generator, dim: int, S: float, count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Random (theta, eta) in the two balls."""
    return [(ball(rng, (), dim, S), ball(rng, (), dim)) for _ in range(count)]


def collect(count: int, seed: int, dims: list[int], is_wanted: Callable[[Instance], bool], mild: bool = False) -> list:
    """``count`` instances, each with its generator, over dimensions and links; ``mild``: every other trial is mild."""
    cases: list[tuple[np.random.Generator, Instance]] = []
    for trial in range(6 * count):  # hard instances are meant to be hard
        rng, n = np.random.default_rng([seed, trial]), len(cases)
        hard = not mild or trial % 2 == 0
        case = instance(rng, dims[n % len(dims)], link=["logistic", "poisson", "probit"][n % 3], hard=hard)
        if is_wanted(case):
            cases.append((rng, case))
        if len(cases) == count:
            return cases
    raise AssertionError(f"only {len(cases)} of {count} instances")
