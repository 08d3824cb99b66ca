"""The linear family: all sums anew at every round."""

import math

import numpy as np
from numpy.linalg import solve

from naive.glm import NaiveBVDGLMUCB
from naive.history import Array
from support.draws import sample_pair


class NaiveDLinUCB(NaiveBVDGLMUCB):
    """theta_hat = V^-1 b, not projected; c_mu = 1; norm of V^-1 V_tilde V^-1 (Russac et al. 2019)."""

    linear = True

    def project(self, X: Array, w: Array) -> None:
        self.theta_tilde, self.value, self.stage = solve(self.V, self.b), 0.0, 1

    def bonus(self, x: Array) -> float:
        return float(self.beta * np.sqrt(solve(self.V, x) @ self.V_tilde @ solve(self.V, x)))


class NaiveOFUL(NaiveDLinUCB):
    """gamma = 1 (the default); norm of V^-1; log det(V/lam) in the radius (Abbasi-Yadkori et al. 2011)."""

    def radius(self, delta: float) -> float:
        log_term = 2 * np.log(1 / delta) + np.linalg.slogdet(self.V / self.lam)[1]
        return float(np.sqrt(self.lam) * self.S + self.sigma * np.sqrt(log_term))

    def bonus(self, x: Array) -> float:
        return float(self.beta * np.sqrt(x @ solve(self.V, x)))


class NaiveBOFUCB:
    """Werge et al. 2023 by their recursions, one lane: prior N(0, I / lam), a model of unit noise, R-sub-Gaussian
    noise.

    The penalty is the largest ||Sigma_0^-1 theta|| in the metric Sigma_tilde over ||theta|| <= S. In the logarithm, the
    prior covariance counts by its largest eigenvalue.
    """

    def __init__(
        self, dim: int, gamma: float, *, S: float = 1.0, L: float = 1.0, lam: float = 1.0, sigma: float = 0.5,
        delta: float = 0.05, bonus_scale: float = 1.0,
    ) -> None:  # fmt: skip
        self.d, self.gamma, self.S, self.L, self.R, self.delta = dim, gamma, S, L, sigma, delta
        self.scale, self.prior = bonus_scale, lam * np.eye(dim)
        self.precision, self.precision_tilde, self.mu, self.t = self.prior, self.prior, np.zeros(dim), 1

    def beta(self) -> float:
        ratios = np.linalg.eigvalsh(self.prior @ np.linalg.inv(self.precision_tilde) @ self.prior)
        gamma2, v = self.gamma**2, 1 / self.prior[0, 0]
        count = self.t - 1 if gamma2 == 1.0 else (1 - gamma2 ** (self.t - 1)) / (1 - gamma2)
        log_term = 2 * math.log(1 / self.delta) + self.d * math.log(1 + v * self.L**2 * count / self.d)
        return float(self.S * math.sqrt(ratios[-1]) + self.R * math.sqrt(log_term))

    def decide(self, arms: Array) -> Array:
        """The index of every arm."""
        Sigma = np.linalg.inv(self.precision)
        metric = Sigma @ self.precision_tilde @ Sigma
        return arms @ self.mu + self.scale * self.beta() * np.sqrt(np.einsum("ki,ij,kj->k", arms, metric, arms))

    def update(self, x: Array, reward: float) -> None:
        gamma, before = self.gamma, self.precision
        self.precision = gamma * before + np.outer(x, x) + (1 - gamma) * self.prior
        self.precision_tilde = gamma**2 * self.precision_tilde + np.outer(x, x) + (1 - gamma**2) * self.prior
        self.mu = solve(self.precision, gamma * before @ self.mu + reward * x)
        self.t += 1


def normals(seed: int, lane: int, decision: int, n: int) -> Array:
    """Box and Muller on the uniforms of (seed, lane, decision)."""
    drawn: list[float] = []
    for block in range((n + 1) // 2):
        u, v = sample_pair(seed, lane, decision, block)
        size = math.sqrt(-2.0 * math.log(1.0 - u))
        drawn += [size * math.cos(2 * math.pi * v), size * math.sin(2 * math.pi * v)]
    return np.array(drawn[:n])


class NaiveLinear:
    """SW-LinUCB, RestartUCB, LB-WeightUCB, D-LinTS and D-RandLinUCB, one lane.

    ``kind`` is the name of the policy, ``tuning`` its gamma, window or restart_every. ``decide(arms, t)`` gives the
    index of every arm at round t; ``select`` and ``update`` count the rounds themselves.
    """

    def __init__(
        self, kind: str, dim: int, tuning: float, *, S: float = 1.0, L: float = 1.0, lam: float | None = None,
        sigma: float = 0.5, delta: float = 0.05, bonus_scale: float = 1.0, seed: int = 0, lane: int = 0,
    ) -> None:  # fmt: skip
        self.kind, self.d, self.tuning, self.seed, self.lane = kind, dim, tuning, seed, lane
        self.S, self.L, self.sigma, self.delta, self.scale = S, L, sigma, delta, bonus_scale
        self.lam = lam if lam is not None else (float(dim) if kind == "LB-WeightUCB" else 1.0)
        self.X, self.r, self.s = np.zeros((0, dim)), np.zeros(0), np.zeros(0)
        self.t = 1

    def weights(self, t: int) -> Array:
        if self.kind == "SW-LinUCB":
            return 1.0 * (t - 1 - self.s < self.tuning)
        if self.kind == "RestartUCB":
            return 1.0 * (self.s >= self.restarted(t))
        return self.tuning ** (t - 1 - self.s)

    def restarted(self, t: int) -> float:
        """t_0: the first round since the last restart."""
        return (t - 1) // self.tuning * self.tuning + 1

    def radius(self, t: int) -> float:
        d, L, lam, bias = self.d, self.L, self.lam, math.sqrt(self.lam) * self.S
        if self.kind == "SW-LinUCB":
            return self.sigma * math.sqrt(d * math.log((1 + self.tuning * L**2 / lam) / self.delta)) + bias
        if self.kind == "RestartUCB":
            count = t - self.restarted(t)
        else:
            count = (1 - self.tuning ** (2 * t)) / (1 - self.tuning**2)
        return bias + self.sigma * math.sqrt(2 * math.log(1 / self.delta) + d * math.log(1 + L**2 * count / (lam * d)))

    def decide(self, arms: Array, t: int) -> Array:
        """The index of every arm; theta_hat and theta_tilde are kept."""
        w, X, eye = self.weights(t), self.X, np.eye(self.d)
        V = (X.T * w) @ X + self.lam * eye
        V_tilde = (X.T * w**2) @ X + self.lam * eye
        inverse = np.linalg.inv(V)
        self.theta_hat = self.theta_tilde = inverse @ (X.T @ (w * self.r))
        if self.kind == "D-LinTS":
            z = self.scale * normals(self.seed, self.lane, t - 1, self.d)
            self.theta_tilde = self.theta_hat + inverse @ np.linalg.cholesky(V_tilde) @ z
            return arms @ self.theta_tilde
        factor = self.scale * self.radius(t)
        metric = inverse
        if self.kind == "D-RandLinUCB":
            metric = inverse @ V_tilde @ inverse
            factor *= 0.4 * abs(normals(self.seed, self.lane, t - 1, 1)[0])
        return arms @ self.theta_hat + factor * np.sqrt(np.einsum("ki,ij,kj->k", arms, metric, arms))

    def select(self, arms: Array) -> int:
        best, self.t = int(np.argmax(self.decide(arms, self.t))), self.t + 1
        return best

    def update(self, x: Array, reward: float, round: int | None = None) -> None:
        self.X, self.r = np.vstack([self.X, x]), np.append(self.r, reward)
        self.s = np.append(self.s, self.t - 1 if round is None else round)
