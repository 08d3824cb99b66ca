"""The generalized-linear family, written out literally to be checked by eye.

BVD-GLM-UCB and its relatives (Faury et al. 2021): every quantity is a sum over the whole history, computed anew at
every round; scipy.optimize does the solving. Round t sees (x_s, r_{s+1}), s <= t-1, with
weights[s] = omega_s gamma^(t-1-s); ``ridge`` is lambda c_mu.
"""

import math
from typing import Any

import numpy as np
from numpy.linalg import norm, solve

from naive.history import LINKS, Array, NaiveHistory, constants, theta_hat
from naive.projection import h_objective, p0, p2, slsqp


def delta_at(t: float, delta: float, confidence: str, horizon: float | None) -> float:
    if confidence == "horizon" and horizon is not None:
        return delta / horizon
    if confidence == "anytime":
        return float(delta / (2 * t * (1 + np.log(t)) ** 2))
    if confidence == "pointwise":
        return delta
    raise ValueError(f"confidence {confidence!r}, horizon {horizon!r}")


class NaiveBVDGLMUCB:
    """Algorithm 1, one lane. ``scores`` stores all it computes and leaves t alone; ``round`` decided x."""

    linear = False  # True: the link plays no part (it is the identity)

    def __init__(
        self, dim: int, link: str = "logistic", gamma: float = 1.0, S: float = 1.0, L: float = 1.0,
        lam: float = 1.0, sigma: float = 0.5, delta: float = 0.05, confidence: str = "pointwise",
        horizon: float | None = None, bonus_scale: float = 1.0,
    ) -> None:  # fmt: skip
        self.dim, self.link, self.gamma = dim, LINKS["identity" if self.linear else link], gamma
        self.S, self.L, self.lam, self.sigma, self.delta = S, L, lam, sigma, delta
        self.confidence, self.horizon, self.bonus_scale = confidence, horizon, bonus_scale
        self.k_mu, self.c_mu, self.R_mu = constants(self.link, S, L)
        self.ridge = lam * self.c_mu
        self.history = NaiveHistory(dim, self.link, gamma, lam, self.ridge)
        self.t: float = 1

    def scores(self, arms: Array) -> Array:
        h, t, arms = self.history, self.t, np.asarray(arms, dtype=float)
        self.V, self.V_tilde, self.b = h.V(t), h.V_tilde(t), h.b(t)
        self.beta = self.radius(delta_at(t, self.delta, self.confidence, self.horizon))
        self.theta_hat = theta_hat(h, t, self.link, self.ridge)
        self.project(h.features, h.weights(t))
        means = self.link.mean(arms @ self.theta_tilde)
        return means + self.bonus_scale * np.array([self.bonus(x) for x in arms])

    def count(self) -> float:
        """The sum of gamma^(2 s) over s < t."""
        g = self.gamma
        return self.t if g == 1 else float(np.expm1(2 * self.t * np.log(g)) / np.expm1(2 * np.log(g)))

    def radius(self, delta: float) -> float:
        """sqrt(lam) c_mu S + sigma sqrt(2 log(1/delta) + d log(1 + L^2 count / (lam d)))."""
        log_term = 2 * np.log(1 / delta) + self.dim * np.log(1 + self.L**2 * self.count() / (self.lam * self.dim))
        return float(np.sqrt(self.lam) * self.c_mu * self.S + self.sigma * np.sqrt(log_term))

    def project(self, X: Array, w: Array) -> None:
        self.theta_tilde, self.eta, self.value, self.stage = p2(
            X, w, self.b, self.V, self.V_tilde, self.beta, self.S, self.ridge, self.link, self.theta_hat
        )

    def bonus(self, x: Array) -> float:
        return float(2 * self.R_mu * self.beta * np.sqrt(x @ solve(self.V, x)))

    def select(self, arms: Array) -> int:
        best, self.t = int(np.argmax(self.scores(arms))), self.t + 1  # the first best
        return best

    def update(self, x: Array, reward: float, round: float | None = None, weight: float = 1.0) -> None:
        self.history.append(x, reward, self.t - 1 if round is None else round, weight)

    def advance(self, n: float) -> None:
        self.t += n


class NaiveGLMUCB(NaiveBVDGLMUCB):
    """gamma = 1 (the default), and P0 in the metric V^-1 in place of P2 (Filippi et al. 2010): "stage 2"."""

    metric = "V"

    def project(self, X: Array, w: Array) -> None:
        metric, hat = getattr(self, self.metric), self.theta_hat
        self.theta_tilde, self.value = p0(X, w, self.b, metric, self.S, self.ridge, self.link, hat)
        self.stage = 1 if norm(hat) <= self.S else 2


class NaiveSWBVDGLMUCB(NaiveBVDGLMUCB):
    """SW-BVD-GLM-UCB: weight 1 on the last w rounds, of which there are min(t, w)."""

    def __init__(self, dim: int, window: float, **settings: Any) -> None:
        super().__init__(dim, **settings)
        self.window = window
        self.history = NaiveHistory(dim, self.link, 1.0, self.lam, self.ridge, window)

    def count(self) -> float:
        return min(self.t, self.window)


class NaiveDGLUCB(NaiveGLMUCB):
    """P0 in the metric V_tilde^-1."""

    metric = "V_tilde"


class NaiveSWGLUCB(NaiveDGLUCB, NaiveSWBVDGLMUCB):
    pass


class NaiveUnprojected(NaiveBVDGLMUCB):
    def project(self, X: Array, w: Array) -> None:
        self.theta_tilde, self.stage = self.theta_hat, 1 if norm(self.theta_hat) <= self.S else 2


class NaiveRestartGLB(NaiveUnprojected):
    """RestartGLB: all is forgotten every H rounds; R_mu in the bonus, not 2 R_mu; t - t_0 rounds in the radius."""

    def __init__(self, dim: int, restart_every: int, **settings: Any) -> None:
        super().__init__(dim, **settings)
        self.H, self.born = restart_every, 1

    def count(self) -> float:
        return self.t - self.born

    def bonus(self, x: Array) -> float:
        return float(self.R_mu * self.beta * np.sqrt(x @ solve(self.V, x)))

    def update(self, x: Array, reward: float, round: float | None = None, weight: float = 1.0) -> None:
        decided = self.t - 1
        if decided % self.H == 0:  # the round just decided was the last of its epoch
            self.history = NaiveHistory(self.dim, self.link, 1.0, self.lam, self.ridge)
            self.born = self.t
        else:
            super().update(x, reward, round, weight)


class NaiveSCBWeightUCB(NaiveBVDGLMUCB):
    def radius(self, delta: float) -> float:
        m, lc = 2 * self.sigma, self.lam * self.c_mu
        return float(
            np.sqrt(lc) / (2 * m)
            + 2 * m / np.sqrt(lc) * (np.log(1 / delta) + self.dim * np.log(2))
            + self.dim * m / np.sqrt(lc) * np.log(1 + self.L**2 * self.k_mu * self.count() / (lc * self.dim))
            + np.sqrt(lc) * self.S
        )

    def bonus(self, x: Array) -> float:
        factor = 2 * np.sqrt(1 + 2 * self.S) * self.k_mu / np.sqrt(self.c_mu)
        return float(factor * self.beta * np.sqrt(x @ solve(self.V, x)))

    def project(self, X: Array, w: Array) -> None:
        self.theta_tilde, self.stage = self.theta_hat, 1
        if norm(self.theta_hat) > self.S:
            start = self.S * self.theta_hat / norm(self.theta_hat)
            data = (X, w, self.b, self.ridge, self.link)
            self.theta_tilde, self.stage = slsqp(lambda theta: h_objective(theta, *data), start, [self.S]), 2


def self_concordant_radii(
    d: int, S: float, lam: float, m: float, delta: float, k: float, T: int, gamma: float = 1.0, n: float | None = None
) -> tuple[float, float]:
    """(inside, outside) of SC-D-GLUCB, or of SC-SW-GLUCB where n = min(t, tau) is given."""
    count = (1 - T**-2) / (1 - gamma**2) if n is None else n
    S_bar = S + (2 * S * k + m) / (T * lam * (1 - gamma)) if n is None else S
    rho = (
        math.sqrt(lam) / (2 * m)
        + 2 * m / math.sqrt(lam) * (math.log(T / delta) + d * math.log(2))
        + d * m / math.sqrt(lam) * math.log(1 + k * count / (d * lam))
    )
    inside = k * math.sqrt(1 + 2 * S) * (math.sqrt(lam) * S + rho)
    base = 1 + S_bar + math.sqrt((1 + S_bar) / lam) * rho + (rho / math.sqrt(lam)) ** 2
    return inside, k * math.sqrt(lam) * base**1.5


class NaiveSCDGLUCB(NaiveUnprojected):
    """SC-D-GLUCB; ``lam`` is the paper's: the ridge of the likelihood, with lam / c_mu in V."""

    tau: float | None = None

    def __init__(self, dim: int, *, lam: float, T: int, gamma: float = 1.0, **settings: Any) -> None:
        super().__init__(dim, gamma=gamma, lam=lam, **settings)
        self.T = T
        self.history = NaiveHistory(dim, self.link, gamma, lam / self.c_mu, lam, self.tau)
        self.ridge = lam

    def project(self, X: Array, w: Array) -> None:
        super().project(X, w)
        n = None if self.tau is None else min(self.t, self.tau)
        radii = self_concordant_radii(
            self.dim, self.S, self.lam, 2 * self.sigma, self.delta, self.k_mu, self.T, self.gamma, n
        )
        self.beta = radii[self.stage - 1]

    def bonus(self, x: Array) -> float:
        return float(self.beta / np.sqrt(self.c_mu) * np.sqrt(x @ solve(self.V, x)))


class NaiveSCSWGLUCB(NaiveSCDGLUCB):
    def __init__(self, dim: int, *, window: float, **settings: Any) -> None:
        self.tau = window
        super().__init__(dim, **settings)
