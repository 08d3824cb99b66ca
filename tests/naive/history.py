"""Links, and the sums over a history that every policy is made of."""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.linalg import norm, solve
from scipy.optimize import root
from scipy.special import expit, ndtr

Array = np.ndarray


class NaiveLink(NamedTuple):
    name: str
    mean: Callable[[Array], Array]
    slope: Callable[[Array], Array]


LINKS = {
    "logistic": NaiveLink("logistic", expit, lambda z: expit(z) * expit(-z)),
    "poisson": NaiveLink("poisson", np.exp, np.exp),
    "probit": NaiveLink("probit", ndtr, lambda z: np.exp(-z * z / 2) / np.sqrt(2 * np.pi)),
    "identity": NaiveLink("identity", lambda z: 1.0 * z, np.ones_like),
}


@cache
def constants(link: NaiveLink, S: float, L: float) -> tuple[float, float, float]:
    """k_mu = sup, c_mu = inf of the slope mu' over |z| <= S L, and R_mu = k_mu / c_mu."""
    slopes = link.slope(np.linspace(-S * L, S * L, 20_001))  # an odd number: holds both ends and 0
    return float(slopes.max()), float(slopes.min()), float(slopes.max() / slopes.min())


def g(theta: Array, features: Array, weights: Array, ridge: float, link: NaiveLink) -> Array:
    """g(theta) = sum_s w_s mu(<x_s, theta>) x_s + lambda c_mu theta."""
    return features.T @ (weights * link.mean(features @ theta)) + ridge * theta


def H(theta: Array, features: Array, weights: Array, ridge: float, link: NaiveLink) -> Array:
    """The Jacobian of g: sum_s w_s mu'(<x_s, theta>) x_s x_s' + lambda c_mu I."""
    slopes = weights * link.slope(features @ theta)
    return features.T @ (slopes[:, None] * features) + ridge * np.eye(len(theta))


class NaiveHistory:
    """All observations, and the sums over them at round t. ``window=w``: the last w rounds, undiscounted."""

    def __init__(
        self, dim: int, link: NaiveLink, gamma: float, lam: float, ridge: float, window: float | None = None
    ) -> None:
        self.link, self.gamma, self.lam, self.ridge, self.window = link, gamma, lam, ridge, window
        self.features, self.rewards = np.zeros((0, dim)), np.zeros(0)  # x_s, r_{s+1}
        self.rounds, self.omegas = np.zeros(0), np.zeros(0)  # s, weight of the observation

    def append(self, x: Array, reward: float, round: float, weight: float = 1.0) -> None:
        self.features = np.vstack([self.features, x])
        self.rewards = np.append(self.rewards, reward)
        self.rounds = np.append(self.rounds, round)
        self.omegas = np.append(self.omegas, weight)

    def discounts(self, t: float) -> Array:
        """gamma^(t-1-s), or 1{t-1-s < window}; 0 for what is not yet past (s > t-1)."""
        age = t - 1 - self.rounds
        kept = self.gamma ** np.maximum(age, 0.0) if self.window is None else 1.0 * (age < self.window)
        return np.where(age >= 0, kept, 0.0)

    def weights(self, t: float) -> Array:
        return self.omegas * self.discounts(t)

    def V(self, t: float) -> Array:
        X, w = self.features, self.weights(t)
        return X.T @ (w[:, None] * X) + self.lam * np.eye(X.shape[1])

    def V_tilde(self, t: float) -> Array:
        """The discount is squared, omega is not: weight 2 stands for the same observation twice."""
        X, w = self.features, self.omegas * self.discounts(t) ** 2
        return X.T @ (w[:, None] * X) + self.lam * np.eye(X.shape[1])

    def b(self, t: float) -> Array:
        return self.features.T @ (self.weights(t) * self.rewards)

    def g(self, theta: Array, t: float) -> Array:
        return g(theta, self.features, self.weights(t), self.ridge, self.link)

    def H(self, theta: Array, t: float) -> Array:
        return H(theta, self.features, self.weights(t), self.ridge, self.link)


def solve_theta_hat(features: Array, weights: Array, b: Array, ridge: float, link: NaiveLink) -> Array:
    """The unique root of g(theta) = b, to 1e-10: scipy's hybrid method, then (damped) Newton steps."""
    data = (features, weights, ridge, link)

    def gap(theta: Array) -> Array:
        return g(theta, *data) - b

    with np.errstate(over="ignore", invalid="ignore"):  # exp may overflow far from the root
        hybr = root(gap, 0 * b, jac=lambda theta: H(theta, *data), method="hybr", options={"xtol": 1e-13}).x
        theta: Array = min(0 * b, hybr, key=lambda theta: norm(gap(theta)))
        for _ in range(100):
            step = solve(H(theta, *data), -gap(theta))
            if norm(step) <= 1e-10 * (1 + norm(theta)):  # the distance to the root, to first order
                return theta + step
            while norm(step) > 1e-16 and not norm(gap(theta + step)) < norm(gap(theta)):
                step = step / 2
            theta = theta + step
    raise RuntimeError(f"theta_hat not found: |g - b| = {norm(gap(theta)):.3g} at {theta}")


def theta_hat(history: NaiveHistory, t: float, link: NaiveLink, ridge: float) -> Array:
    return solve_theta_hat(history.features, history.weights(t), history.b(t), ridge, link)
