"""Policies with a maximum-likelihood estimate for a constant theta*, one lane, for arms of norm at most 1.

Logistic-UCB-1, UCB-GLM, OFULog-r, OFUGLB and OFUGLB-e, from their formulas: all sums anew at every round, the estimates
by SciPy's BFGS or SLSQP, and one SLSQP program per arm for the largest <x, theta> over a level set of the loss.
"""

import math
from typing import Any

import numpy as np
from numpy.linalg import norm, solve
from scipy.optimize import minimize

from naive.glm import NaiveBVDGLMUCB
from naive.history import LINKS, Array, constants
from naive.projection import h_objective, slsqp

PRIMITIVES = {"logistic": lambda z: np.logaddexp(0.0, z), "poisson": np.exp, "identity": lambda z: z * z / 2.0}


class NaiveLogisticUCB1(NaiveBVDGLMUCB):
    """Faury et al. 2020, Algorithm 1. ``lam`` is theirs: the ridge of the likelihood; kappa lam in V."""

    def __init__(self, dim: int, *, lam: float, is_sharp: bool = False, **settings: Any) -> None:
        c_mu = constants(LINKS["logistic"], settings.get("S", 1.0), 1.0)[1]
        super().__init__(dim, "logistic", lam=lam / c_mu, **settings)
        self.lamda, self.is_sharp = lam, is_sharp

    def radius(self, delta: float) -> float:
        """gamma_t(delta)."""
        d, lam, t = self.dim, self.lamda, self.t
        log_term = math.log(2**d / delta * (1 + t / (4 * d * lam)) ** (d / 2))
        return math.sqrt(lam) * (self.S + 0.5) + 2 / math.sqrt(lam) * log_term

    def project(self, X: Array, w: Array) -> None:
        """theta^(1): the argmin over the ball of |g(theta) - g(theta_hat)| in H(theta)^-1."""
        self.theta_tilde, self.stage = self.theta_hat, 1
        if norm(self.theta_hat) > self.S:
            start, data = self.S * self.theta_hat / norm(self.theta_hat), (X, w, self.b, self.ridge, self.link)
            self.theta_tilde, self.stage = slsqp(lambda theta: h_objective(theta, *data), start, [self.S]), 2

    def bonus(self, x: Array) -> float:
        kappa = 1 / self.c_mu
        factor = 0.25 * math.sqrt(4 + 8 * self.S) * math.sqrt(kappa)
        if self.is_sharp and self.stage == 1:
            factor = 0.25 * math.sqrt(1 + 2 * self.S) * math.sqrt(kappa)
        return float(factor * self.beta * math.sqrt(x @ solve(self.V, x)))


class NaiveUCBGLM(NaiveBVDGLMUCB):
    """Li et al. 2017, Algorithm 1, with a tiny ridge. ``scores`` are <x, theta_hat> + alpha |x|, also in phase 1."""

    def __init__(self, dim: int, link: str = "logistic", *, T: int, lam: float, **settings: Any) -> None:
        super().__init__(dim, link, lam=lam, **settings)
        self.T = T

    def explores(self) -> bool:
        """Phase 1: until the smallest eigenvalue of the sum of x x' is 1."""
        X = self.history.features
        return bool(np.linalg.eigvalsh(X.T @ X)[0] < 1.0)

    def scores(self, arms: Array) -> Array:
        super().scores(arms)
        self.theta_tilde = self.theta_hat
        return arms @ self.theta_hat + self.bonus_scale * np.array([self.bonus(x) for x in arms])

    def project(self, X: Array, w: Array) -> None:
        self.theta_tilde, self.stage = self.theta_hat, 1

    def radius(self, delta: float) -> float:
        """alpha, with kappa = inf mu' over |z| <= S + 1."""
        kappa = constants(self.link, self.S + 1.0, 1.0)[1]
        d = self.dim
        return self.sigma / kappa * math.sqrt(d / 2 * math.log(1 + 2 * self.T / d) + math.log(1 / delta))

    def bonus(self, x: Array) -> float:
        return float(self.beta * math.sqrt(x @ solve(self.V, x)))


def argmin_over_ball(loss: Any, gradient: Any, start: Array, S: float) -> Array:
    return slsqp(lambda theta: (loss(theta), gradient(theta)), start, [S])


def value_over_set(x: Array, loss: Any, gradient: Any, C: float, S: float, center: Array) -> float:
    """max <x, theta> over |theta| <= S, loss(theta) <= C, by SLSQP from the center: the best of a few runs."""
    best = float(x @ center)
    if norm(x) == 0 or loss(center) >= C:
        return best
    if loss(S * x / norm(x)) <= C:
        return float(S * norm(x))
    unit = max(C - loss(center), 1e-12)
    constraints = [
        {"type": "ineq", "fun": lambda z: (C - loss(z)) / unit, "jac": lambda z: -gradient(z) / unit},
        {"type": "ineq", "fun": lambda z: 1 - z @ z / S**2, "jac": lambda z: -2 * z / S**2},
    ]
    u = x / norm(x)
    for start in (center, 0.5 * center, 0.9 * center + 0.1 * S * u):
        found = minimize(
            lambda z: (float(-u @ z), -u), start, jac=True, method="SLSQP", constraints=constraints,
            options={"ftol": 1e-14, "maxiter": 500},
        ).x  # fmt: skip
        if loss(found) <= C + 1e-7 * unit and norm(found) <= S * (1 + 1e-8):
            best = max(best, float(x @ found))
    return best


class NaiveLevelSet:
    """The largest <x, theta> over {|theta| <= S: loss(theta) - loss(theta_hat) <= level}: what the two below share."""

    def __init__(self, dim: int, link: str, S: float, delta: float, bonus_scale: float) -> None:
        self.d, self.link, self.S, self.delta, self.scale = dim, link, S, delta, bonus_scale
        self.X, self.r, self.w = np.zeros((0, dim)), np.zeros(0), np.zeros(0)
        self.t = 1

    def likelihood(self, theta: Array) -> float:
        z = self.X @ theta
        return float(np.sum(self.w * (PRIMITIVES[self.link](z) - self.r * z)))

    def gradient(self, theta: Array) -> Array:
        return self.X.T @ (self.w * (LINKS[self.link].mean(self.X @ theta) - self.r))

    def hessian(self, theta: Array) -> Array:
        return self.X.T @ ((self.w * LINKS[self.link].slope(self.X @ theta))[:, None] * self.X)

    def update(self, x: Array, reward: float, weight: float = 1.0) -> None:
        self.X, self.r, self.w = np.vstack([self.X, x]), np.append(self.r, reward), np.append(self.w, weight)

    def advance(self, n: int) -> None:
        self.t += n


class NaiveOFULogR(NaiveLevelSet):
    """Abeille et al. 2021, section 6. ``lam`` is lam_t in all rounds; None: d log(1 + t)."""

    def __init__(
        self, dim: int, *, S: float = 1.0, delta: float = 0.05, bonus_scale: float = 1.0, lam: float | None = None,
        is_proved: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(dim, "logistic", S, delta, bonus_scale)
        self.lam, self.is_proved = lam, is_proved

    def scores(self, arms: Array) -> Array:
        d, t, S = self.d, self.t, self.S
        lam = d * math.log(1 + t) if self.lam is None else self.lam

        def loss(theta: Array) -> float:
            return self.likelihood(theta) + lam / 2 * float(theta @ theta)

        def gradient(theta: Array) -> Array:
            return self.gradient(theta) + lam * theta

        gamma = math.sqrt(lam) * (S + 0.5) + d / math.sqrt(lam) * math.log(4 / self.delta * (1 + t / (16 * d * lam)))
        if self.is_proved:
            log_term = math.log(2**d / self.delta * (1 + t / (4 * d * lam)) ** (d / 2))
            gamma = math.sqrt(lam) * (S + 0.5) + 2 / math.sqrt(lam) * log_term
        self.beta = gamma + gamma**2 / math.sqrt(lam)
        found = minimize(loss, np.zeros(d), jac=gradient, method="BFGS", options={"gtol": 1e-11})
        self.theta_hat = found.x - solve(self.hessian(found.x) + lam * np.eye(d), gradient(found.x))
        self.center = self.theta_hat
        if norm(self.theta_hat) > S:
            self.center = argmin_over_ball(loss, gradient, S * self.theta_hat / norm(self.theta_hat), S)
        C = loss(self.theta_hat) + (self.scale * self.beta) ** 2
        self.is_empty = loss(self.center) > C
        return np.array([value_over_set(x, loss, gradient, C, S, self.center) for x in arms])


class NaiveOFUGLB(NaiveLevelSet):
    """Lee et al. 2024. g(tau) = sigma^2 for the identity link, else 1."""

    def __init__(
        self, dim: int, link: str = "logistic", *, S: float = 1.0, sigma: float = 0.5, delta: float = 0.05,
        bonus_scale: float = 1.0, lipschitz: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(dim, link, S, delta, bonus_scale)
        self.g = sigma**2 if link == "identity" else 1.0
        self.lipschitz = lipschitz or ("printed" if link == "logistic" else "data")

    def loss(self, theta: Array) -> float:
        return self.likelihood(theta) / self.g

    def loss_gradient(self, theta: Array) -> Array:
        return self.gradient(theta) / self.g

    def steepness(self) -> float:
        """S Lip_t."""
        if self.lipschitz == "printed":
            return self.S * (1 + self.S / 2) * float(self.w.sum())
        mean, total = LINKS[self.link].mean, 0.0
        for x, r, w in zip(self.X, self.r, self.w, strict=True):
            reach = self.S * norm(x)
            total += w * norm(x) * max(abs(float(mean(np.array(s * reach))) - r) for s in (1, -1)) / self.g
        return self.S * total

    def fit(self) -> None:
        d, S = self.d, self.S
        self.beta = math.sqrt(math.log(1 / self.delta) + d * math.log(max(math.e, 2 * math.e * self.steepness() / d)))
        self.theta_hat = np.zeros(d)
        if len(self.X):
            self.theta_hat = argmin_over_ball(self.loss, self.loss_gradient, np.full(d, 1e-3 * S), S)
        self.center = self.theta_hat

    def scores(self, arms: Array) -> Array:
        self.fit()
        C = self.loss(self.theta_hat) + (self.scale * self.beta) ** 2
        values = (self.loss, self.loss_gradient, C, self.S, self.theta_hat)
        return np.array([value_over_set(x, *values) for x in arms])


class NaiveOFUGLBe(NaiveOFUGLB):
    """The ellipsoid: index <x, theta_hat> + sqrt(2 (1 + S) (1 + beta^2)) |x| in (Hessian + lam I)^-1."""

    def scores(self, arms: Array) -> Array:
        self.fit()
        bend = 0.0 if self.link == "identity" else self.S
        lam = 1 / (8 * self.S**2 * (1 + self.S))
        H = self.hessian(self.theta_hat) / self.g + lam * np.eye(self.d)
        factor = self.scale * math.sqrt(2 * (1 + bend) * (1 + self.beta**2))
        return np.array([x @ self.theta_hat + factor * math.sqrt(x @ solve(H, x)) for x in arms])
