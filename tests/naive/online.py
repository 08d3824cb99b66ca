"""Online estimates with a confidence set: GLOC, ECOLogUCB and ada-OFU-ECOLog, one lane.

Every matrix is a sum over the whole history, inverted as it is; scipy.optimize solves for the steps. ``indices(arms)``
gives the index of every arm, ``update`` is what the paper does after the reward. For norms up to L, GLOC keeps its
units, and ada-OFU-ECOLog is the paper's for the arms x / L and S L.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.linalg import inv, norm, solve
from scipy.optimize import brentq, minimize

from naive.history import LINKS, Array, constants, solve_theta_hat

EDGE = 1e-13  # brentq's tolerance


def mu(z: float) -> float:
    return 1 / (1 + math.exp(-z)) if z >= 0 else math.exp(z) / (1 + math.exp(z))


def slope(z: float) -> float:
    return mu(z) * mu(-z)


def loss(z: float, r: float) -> float:
    """-r log mu(z) - (1 - r) log(1 - mu(z))."""
    return float(r * np.logaddexp(0, -z) + (1 - r) * np.logaddexp(0, z))


def onto_ball(theta: Array, A: Array, S: float) -> Array:
    """The argmin over |y| <= S of |y - theta| in the metric A: (A + nu I) y = A theta with |y| = S."""
    if norm(theta) <= S:
        return theta
    eye = np.eye(len(theta))
    high = 1.0
    while norm(solve(A + high * eye, A @ theta)) > S:
        high *= 4
    nu = brentq(lambda v: norm(solve(A + v * eye, A @ theta)) - S, 0.0, high, xtol=EDGE, rtol=EDGE)
    return solve(A + nu * eye, A @ theta)


def step(theta: Array, W: Array, a: Array, pull: float, r: float, S: float) -> Array:
    """The argmin over |y| <= S of |y - theta|_W^2 / (2 pull) + l(a'y, r).

    (W + nu I) y = W theta - pull (mu(u) - r) a with u = a'y; brentq finds u inside, and nu outside.
    """
    eye = np.eye(len(theta))

    def at(nu: float) -> Array:
        M = inv(W + nu * eye)
        z, q = a @ M @ W @ theta, a @ M @ a
        ends = sorted([z + pull * q * r, z + pull * q * (r - 1)])
        gap = lambda u: u - z + pull * q * (mu(u) - r)  # noqa: E731
        u = z if gap(ends[0]) >= 0 or gap(ends[1]) <= 0 else brentq(gap, *ends, xtol=EDGE, rtol=EDGE)
        return M @ (W @ theta - pull * (mu(u) - r) * a)

    if norm(at(0.0)) <= S:
        return at(0.0)
    high = 1.0
    while norm(at(high)) > S:
        high *= 4
    return at(brentq(lambda nu: norm(at(nu)) - S, 0.0, high, xtol=EDGE, rtol=EDGE))


class NaiveGLOC:
    """Algorithms 1 and 2 of Jun et al. (2017), with epsilon = lambda and theta_1 = 0."""

    def __init__(
        self, dim: int, link: str = "logistic", S: float = 1.0, L: float = 1.0, lam: float = 1.0, sigma: float = 0.5,
        delta: float = 0.05, bonus_scale: float = 1.0,
    ) -> None:  # fmt: skip
        self.link, self.S, self.lam, self.R, self.delta, self.scale = LINKS[link], S, lam, sigma, delta, bonus_scale
        self.kappa = constants(self.link, S, L)[1]
        self.theta, self.eye = np.zeros(dim), np.eye(dim)
        self.X, self.z, self.w = np.zeros((0, dim)), np.zeros(0), np.zeros(0)
        self.G = 0.0  # sum of g_s^2 |x_s|^2 in A_s^-1

    @property
    def V(self) -> Array:
        return self.lam * self.eye + self.X.T @ (self.w[:, None] * self.X)

    @property
    def theta_hat(self) -> Array:
        return solve(self.V, self.X.T @ (self.w * self.z))

    @property
    def beta(self) -> float:
        k, R, delta = self.kappa, self.R, self.delta
        B = self.G / (2 * k) + 2 * k * self.S**2 * self.lam
        root = math.sqrt(1 + 2 / k * B + 4 * R**4 / (k**4 * delta**2))
        alpha = 1 + 4 / k * B + 8 * R**2 / k**2 * math.log(2 / delta * root)
        rest = self.z @ (self.w * self.z) - self.theta_hat @ self.X.T @ (self.w * self.z)
        return max(alpha + self.lam * self.S**2 - rest, 0.0)  # below 0 the set has missed theta*

    def indices(self, arms: Array) -> Array:
        Vi = inv(self.V)
        return arms @ self.theta_hat + self.scale * math.sqrt(self.beta) * np.sqrt([x @ Vi @ x for x in arms])

    def update(self, x: Array, y: float, w: float = 1.0) -> None:
        z = float(x @ self.theta)
        g = w * (float(self.link.mean(np.array(z))) - y)
        self.X, self.z, self.w = np.vstack([self.X, x]), np.append(self.z, z), np.append(self.w, w)
        A = self.V
        self.G += g**2 * x @ inv(A) @ x
        self.theta = onto_ball(self.theta - g / self.kappa * inv(A) @ x, A, self.S)


class NaiveECOLogUCB:
    def __init__(
        self, dim: int, S: float = 1.0, L: float = 1.0, lam: float | None = None, delta: float = 0.05,
        bonus_scale: float = 1.0,
    ) -> None:  # fmt: skip
        self.S, self.k, self.scale = S, 1 + S * L, bonus_scale
        self.lam = self.k * L**2 if lam is None else lam
        self.theta, self.W = np.zeros(dim), self.lam * np.eye(dim)
        self.rho = self.lam * S**2 + 2 * self.k * math.log(1 / delta)

    def indices(self, arms: Array) -> Array:
        Wi = inv(self.W)
        return arms @ self.theta + self.scale * math.sqrt(self.rho) * np.sqrt([x @ Wi @ x for x in arms])

    def m(self, x: Array, r: float, w: float) -> tuple[float, Array]:
        """The minimum over the ball of w l(x'theta, r) + |theta - theta_t|^2 / (2 k) in W, and where it is."""
        new = step(self.theta, self.W, x, self.k * w, r, self.S)
        gap = new - self.theta
        return w * loss(x @ new, r) + gap @ self.W @ gap / (2 * self.k), new

    def update(self, x: Array, r: float, w: float = 1.0) -> None:
        m0, m1, (m, new) = self.m(x, 0.0, w)[0], self.m(x, 1.0, w)[0], self.m(x, r, w)
        log_Z = math.log(math.exp(-m0 / w) + math.exp(-m1 / w))
        self.rho += 2 * self.k * (w * log_Z + (1 - r) * m0 + r * m1 - m)
        self.theta, self.W = new, self.W + w * slope(x @ new) * np.outer(x, x)


class NaiveAdaOFUECOLog:
    """Algorithm 2 of Faury et al. (2022), equations (8) and (10) to (15), for arms of norm at most 1.

    ``level(t)`` replaces beta_t, so that a test can make the sets of parameters cut the ball.
    """

    def __init__(
        self, dim: int, S: float = 1.0, delta: float = 0.05, corrected: bool = False,
        level: Callable[[float], float] | None = None,
    ) -> None:  # fmt: skip
        self.d, self.S, self.delta, self.corrected = dim, S, delta, corrected
        self.kappa = 1 / constants(LINKS["logistic"], S, 1.0)[1]
        self.D = 2 * S
        self.theta, self.W = np.zeros(dim), np.eye(dim)
        self.squared_radius: float = S**2  # of C_1, the ball
        self.H: list[tuple[Array, float, float]] = []
        self.center, self.shape, self.bound = np.zeros(dim), np.eye(dim), math.inf
        self.level = self.beta_t if level is None else level

    def lambda_t(self, t: float) -> float:
        return self.d * math.log((4 + t / 4) / self.delta)

    def beta_t(self, t: float) -> float:
        gamma = (self.S + 3 / 2) ** 2 * self.lambda_t(t)
        return (5 / 2 + (self.S + 3 / 2) ** 2 + self.S) ** 2 * gamma

    def eta_t(self, t: float) -> float:
        S, d = self.S, self.d
        if self.corrected:
            growth = 4 * (1 + S) * (1 + 2 * S) * d * math.log(1 + t / (4 * d))
            return S**2 + 2 * (1 + S) * math.log(1 / self.delta) + growth
        nu = 1 / 2 + 2 * math.log(2 * math.sqrt(t / 4 + 1) / self.delta)
        return 4 + 4 * math.log(t) + 16 * S**2 + (2 + 2 * S) ** 2 * nu / 2 + 8 * (1 + S) * d * math.log(1 + t / d)

    def indices(self, arms: Array) -> Array:
        Wi = inv(self.W)
        return arms @ self.theta + math.sqrt(self.squared_radius) * np.sqrt([x @ Wi @ x for x in arms])

    def argmin(self, x: Array, pull: float, r: float) -> Array:
        """Over Theta_t; SLSQP only where the ellipsoid cuts."""
        new = step(self.theta, self.W, x, pull, r, self.S)
        if (new - self.center) @ self.shape @ (new - self.center) <= self.bound:
            return new

        def objective(y: Array) -> tuple[float, Array]:
            gap = y - self.theta
            gradient = self.W @ gap / pull + (mu(x @ y) - r) * x
            return gap @ self.W @ gap / (2 * pull) + loss(x @ y, r), gradient

        size = norm(self.shape)

        def slack(y: Array) -> Array:
            """At least 0 in the ball and in the ellipsoid, both in units of about 1."""
            gap = y - self.center
            return np.array([self.S**2 - y @ y, (self.bound - gap @ self.shape @ gap) / size])

        def tilt(y: Array) -> Array:
            return np.array([-2 * y, -2 * self.shape @ (y - self.center) / size])

        sets, options = {"type": "ineq", "fun": slack, "jac": tilt}, {"ftol": 1e-15, "maxiter": 500}
        starts = (new, self.center * min(1.0, self.S / norm(self.center)), 0 * new)
        ends = [minimize(objective, y, jac=True, method="SLSQP", constraints=sets, options=options).x for y in starts]
        return min((y for y in ends if slack(y).min() > -1e-10), key=lambda y: objective(y)[0])

    def update(self, x: Array, r: float, t: float) -> bool:
        """Learn the reward of round t; return whether it was accepted. eta = 1 / (2 + D)."""
        pull = (2 + self.D) / 2
        theta = [self.argmin(x, pull, u) for u in (0.0, 1.0)]
        theta_bar = self.argmin(x, 2 * pull, 0.5)  # l(z, 0) + l(z, 1) = 2 l(z, 1/2)
        if all(slope(x @ theta_bar) <= 2 * slope(x @ theta[u]) for u in (0, 1)):
            self.theta = theta[int(r)] if r in (0.0, 1.0) else self.argmin(x, pull, r)
            self.W = self.W + slope(x @ self.theta) * np.outer(x, x)
            self.squared_radius = self.eta_t(t)
            return True
        self.H.append((x, r, 1.0))
        X, y = np.array([row[0] for row in self.H]), np.array([row[1] for row in self.H])
        lam, link = self.lambda_t(t), LINKS["logistic"]
        self.center = solve_theta_hat(X, np.ones(len(X)), X.T @ y, lam, link)
        self.shape, self.bound = X.T @ X / self.kappa + lam * np.eye(self.d), self.level(t)
        return False
