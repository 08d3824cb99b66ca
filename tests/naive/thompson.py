"""LinTS and GLM-TS (Abeille, Lazaric 2017), GLOC-TS (Jun et al. 2017) and PG-TS (Dumitrascu et al. 2018), one lane."""

import math

import numpy as np
from numpy.linalg import cholesky, inv, solve

from naive.history import LINKS, Array, NaiveHistory, constants, theta_hat
from naive.linear import normals
from naive.online import NaiveGLOC
from support.draws import sample_pair


class NaiveInflatedSampling:
    """Figure 1 and appendix F; the root of V^-1 is V^-1 C with C C' = V. GLM-TS has windvane's estimator."""

    def __init__(
        self, dim: int, link: str, horizon: int | None = None, S: float = 1.0, L: float = 1.0, lam: float = 1.0,
        sigma: float = 0.5, delta: float = 0.05, posterior_scale: float = 1.0, seed: int = 0, lane: int = 0,
    ) -> None:  # fmt: skip
        self.link, self.T, self.S, self.L, self.lam, self.R = LINKS[link], horizon, S, L, lam, sigma
        self.d, self.delta, self.a, self.seed, self.lane, self.t = dim, delta, posterior_scale, seed, lane, 1
        self.c_mu = constants(self.link, S, L)[1]
        self.history = NaiveHistory(dim, self.link, 1.0, lam, lam * self.c_mu)

    def beta(self, delta: float) -> float:
        """R sqrt(2 log((lam + t)^(d/2) lam^(-d/2) / delta)) + sqrt(lam) c_mu S, in units in which arms are short."""
        lam = self.lam / self.L**2
        log_term = self.d / 2 * math.log(lam + self.t) - self.d / 2 * math.log(lam) - math.log(delta)
        return self.R * math.sqrt(2 * log_term) + math.sqrt(lam) * self.c_mu * self.S * self.L

    def decide(self, arms: Array) -> Array:
        """<x, theta_tilde> of every arm; theta_hat and theta_tilde are kept."""
        V = self.history.V(self.t)
        self.theta_hat = theta_hat(self.history, self.t, self.link, self.lam * self.c_mu)
        scale = self.a if self.T is None else self.a * self.beta(self.delta / (4 * self.T)) / self.c_mu
        z = normals(self.seed, self.lane, self.t - 1, self.d)
        self.theta_tilde = self.theta_hat + scale * inv(V) @ cholesky(V) @ z
        return arms @ self.theta_tilde

    def update(self, x: Array, reward: float, weight: float = 1.0) -> None:
        self.history.append(x, reward, self.t, weight)
        self.t += 1


class NaiveGLOCTS(NaiveGLOC):
    """theta_tilde ~ N(theta_hat, beta V^-1)."""

    def sample(self, decision: int, seed: int, lane: int) -> Array:
        V = self.V
        z = normals(seed, lane, decision, len(V))
        return self.theta_hat + math.sqrt(self.beta) * inv(V) @ cholesky(V) @ z


class Uniforms:
    """The uniform numbers of a decision, in order; a normal number takes two that are fresh."""

    def __init__(self, seed: int, lane: int, decision: int) -> None:
        self.place, self.block, self.spare = (seed, lane, decision), 0, [0.0][:0]

    def pair(self) -> tuple[float, float]:
        self.block += 1
        return sample_pair(*self.place, self.block - 1)

    def next(self) -> float:
        if not self.spare:
            first, second = self.pair()
            self.spare = [second]
            return first
        return self.spare.pop()

    def normal(self) -> float:
        u, v = self.pair()
        return math.sqrt(-2.0 * math.log(1.0 - u)) * math.cos(2 * math.pi * v)

    def exponential(self) -> float:
        return -math.log(1.0 - self.next())


def naive_polya_gamma(z: float, random: Uniforms) -> float:
    """PG(1, z) by Devroye's method, as in Polson, Scott and Windle (2013)."""
    y, t = abs(z) / 2, 0.64
    k = math.pi**2 / 8 + y**2 / 2
    p = math.exp(-y) * math.erfc(1 / math.sqrt(2 * t) - y * math.sqrt(t / 2))
    p += math.exp(y) * math.erfc(1 / math.sqrt(2 * t) + y * math.sqrt(t / 2))
    q = math.pi / 2 * math.exp(-k * t) / k
    while True:
        is_left = random.next() < p / (p + q)
        x = naive_inverse_gaussian(y, t, random) if is_left else t + random.exponential() / k

        def a(n: int, x: float = x) -> float:
            if x > t:
                return math.pi * (n + 0.5) * math.exp(-x * math.pi**2 * (n + 0.5) ** 2 / 2)
            return math.pi * (n + 0.5) * (2 / (math.pi * x)) ** 1.5 * math.exp(-2 * (n + 0.5) ** 2 / x)

        u, total, n = random.next() * a(0), a(0), 0
        while True:
            n += 1
            total += -a(n) if n % 2 else a(n)
            if n % 2 and u <= total:
                return x / 4
            if n % 2 == 0 and u > total:
                break


def naive_inverse_gaussian(y: float, t: float, random: Uniforms) -> float:
    """Mean 1 / y, shape 1, truncated to (0, t]."""
    if y < 1 / t:
        while True:
            e, f = random.exponential(), random.exponential()
            while e * e > 2 * f / t:
                e, f = random.exponential(), random.exponential()
            x = t / (1 + t * e) ** 2
            if random.next() <= math.exp(-(y**2) * x / 2):
                return x
    while True:
        w = (y + random.normal() ** 2 / 2) / y**2
        x = w - math.sqrt(w**2 - 1 / y**2)
        if random.next() > 1 / (1 + x * y):
            x = 1 / (x * y**2)
        if x <= t:
            return x


class NaivePGTS:
    """M sweeps before each decision, from the last theta. An observation of weight w is w observations."""

    def __init__(self, dim: int, lam: float = 1.0, sweeps: int = 10, seed: int = 0, lane: int = 0) -> None:
        self.d, self.lam, self.sweeps, self.seed, self.lane = dim, lam, sweeps, seed, lane
        self.X, self.r, self.theta = np.zeros((0, dim)), np.zeros(0), np.zeros(dim)

    def sample(self, decision: int) -> Array:
        random, eye = Uniforms(self.seed, self.lane, decision), np.eye(self.d)
        for _ in range(self.sweeps):
            omega = np.array([naive_polya_gamma(x @ self.theta, random) for x in self.X])
            precision = self.X.T @ (omega[:, None] * self.X) + self.lam * eye
            mean = solve(precision, self.X.T @ (self.r - 1 / 2))
            z = np.array([random.normal() for _ in range(self.d)])
            self.theta = mean + solve(cholesky(precision).T, z)
        return self.theta

    def update(self, x: Array, reward: float, weight: int = 1) -> None:
        for _ in range(weight):
            self.X, self.r = np.vstack([self.X, x]), np.append(self.r, reward)
