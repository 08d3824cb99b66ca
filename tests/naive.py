"""The oracle: BVD-GLM-UCB and its baselines, written out literally to be checked by eye (Faury et al. 2021).

Every quantity is a sum over the whole history, computed anew at every round; scipy.optimize does the solving.
Round t sees (x_s, r_{s+1}), s <= t-1, with weights[s] = omega_s gamma^(t-1-s); ``ridge`` is lambda c_mu.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.linalg import norm, solve
from scipy.optimize import minimize, root
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


def into_balls(z: Array, radii: list[float]) -> Array:
    pairs = zip(np.split(z, len(radii)), radii, strict=True)
    return np.concatenate([v * (R / max(R, float(norm(v)))) for v, R in pairs])


def slsqp(objective: Callable[[Array], tuple[float, Array]], start: Array, radii: list[float]) -> Array:
    """Minimise over a product of d-balls; objective returns its value and its gradient."""
    blocks = np.repeat(np.eye(len(radii)), len(start) // len(radii), axis=1)  # which ball holds coordinate i
    scale = norm(objective(start)[1]) + 1e-30  # the objective's unit: SLSQP's tolerances are absolute
    balls = {
        "type": "ineq",
        "fun": lambda z: np.square(radii) - blocks @ z**2,
        "jac": lambda z: -2 * blocks * z,
    }
    result = minimize(
        lambda z: tuple(part / scale for part in objective(z)), start, jac=True, method="SLSQP",
        constraints=balls, options={"ftol": 1e-14, "maxiter": 200},
    )  # fmt: skip
    z = into_balls(result.x, radii)  # it may end outside by a rounding error
    step = objective(z)[1] / (norm(objective(z)[1]) + scale)
    if not norm(into_balls(z - step, radii) - z) <= 1e-5:  # a projected gradient step stays at a minimum
        raise RuntimeError(f"SLSQP: {result.message}")
    return z


def p0_objective(
    theta: Array, features: Array, weights: Array, b: Array, metric: Array, ridge: float, link: NaiveLink
) -> tuple[float, Array]:
    """f = |g(theta) - b|^2 / 2 in the norm of M^-1 (M the metric); its gradient is H M^-1 (g(theta) - b)."""
    gap = g(theta, features, weights, ridge, link) - b
    dual = solve(metric, gap)
    return 0.5 * float(gap @ dual), H(theta, features, weights, ridge, link) @ dual


def p0(
    features: Array, weights: Array, b: Array, metric: Array, S: float, ridge: float, link: NaiveLink,
    hat: Array | None = None,
) -> tuple[Array, float]:  # fmt: skip
    """P0 (Filippi's projection): the argmin over |theta| <= S of |g(theta) - b|_{metric^-1}, and the min."""
    if hat is None:  # a caller that has theta_hat need not pay for it again
        hat = solve_theta_hat(features, weights, b, ridge, link)
    if norm(hat) <= S:
        return hat, 0.0
    data = (features, weights, b, metric, ridge, link)
    theta = slsqp(lambda theta: p0_objective(theta, *data), S * hat / norm(hat), [S])
    return theta, float(np.sqrt(2 * p0_objective(theta, *data)[0]))


def symmetric_root(A: Array) -> Array:
    values, vectors = np.linalg.eigh(A)
    return (vectors * np.sqrt(values)) @ vectors.T


def p2_objective(
    theta: Array, eta: Array, features: Array, weights: Array, b: Array, V: Array, V_tilde: Array,
    beta: float, ridge: float, link: NaiveLink,
) -> tuple[float, Array]:  # fmt: skip
    """f = |V^-1 (g(theta) + beta V_tilde^(1/2) eta - b)|^2 / 2, and its gradient in (theta, eta)."""
    R = symmetric_root(V_tilde)
    gap = solve(V, g(theta, features, weights, ridge, link) + beta * R @ eta - b)
    dual = solve(V, gap)
    gradient = np.concatenate([H(theta, features, weights, ridge, link) @ dual, beta * R @ dual])
    return 0.5 * float(gap @ gap), gradient


def p2_full(
    features: Array, weights: Array, b: Array, V: Array, V_tilde: Array, beta: float, S: float, ridge: float,
    link: NaiveLink, starts: list[tuple[Array, Array]],
) -> tuple[Array, Array, float]:  # fmt: skip
    """P2 itself, over |theta| <= S and |eta| <= 1 jointly: the best (theta, eta, value) from the starts."""
    d, data, found = len(b), (features, weights, b, V, V_tilde, beta, ridge, link), []
    for start in starts:
        z = slsqp(lambda z: p2_objective(z[:d], z[d:], *data), np.concatenate(start), [S, 1.0])
        found.append((z[:d], z[d:], float(np.sqrt(2 * p2_objective(z[:d], z[d:], *data)[0]))))
    return min(found, key=lambda solution: solution[2])


def p2(
    features: Array, weights: Array, b: Array, V: Array, V_tilde: Array, beta: float, S: float, ridge: float,
    link: NaiveLink, hat: Array | None = None,
) -> tuple[Array, Array, float, int]:  # fmt: skip
    """P2 by the canonical rule, which settles its ties: (theta, eta, value, stage that settled it)."""
    if hat is None:
        hat = solve_theta_hat(features, weights, b, ridge, link)
    if norm(hat) <= S:
        return hat, np.zeros(len(b)), 0.0, 1  # g(hat) = b
    theta, distance = p0(features, weights, b, V_tilde, S, ridge, link, hat)
    gap = solve(symmetric_root(V_tilde), b - g(theta, features, weights, ridge, link))
    if distance <= beta:
        return theta, gap / beta, 0.0, 2  # g(theta) + beta V_tilde^(1/2) eta = b
    return *p2_full(features, weights, b, V, V_tilde, beta, S, ridge, link, [(theta, gap / norm(gap))]), 3


def beta(
    t: float, dim: int, gamma: float, S: float, L: float, lam: float, sigma: float, delta: float, c_mu: float
) -> float:
    """sqrt(lam) c_mu S + sigma sqrt(2 log(1/delta) + d log(1 + L^2 (1-gamma^(2t)) / (lam d (1-gamma^2))))."""
    ratio = t if gamma == 1 else np.expm1(2 * t * np.log(gamma)) / np.expm1(2 * np.log(gamma))  # limit: t
    log_term = 2 * np.log(1 / delta) + dim * np.log(1 + L**2 * ratio / (lam * dim))
    return float(np.sqrt(lam) * c_mu * S + sigma * np.sqrt(log_term))


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

    def radius(self, delta: float) -> float:
        return beta(self.t, self.dim, self.gamma, self.S, self.L, self.lam, self.sigma, delta, self.c_mu)

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

    def project(self, X: Array, w: Array) -> None:
        self.theta_tilde, self.value = p0(X, w, self.b, self.V, self.S, self.ridge, self.link, self.theta_hat)
        self.stage = 1 if norm(self.theta_hat) <= self.S else 2


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


def main(rounds: int) -> None:
    """The paper's experiment, its path of theta* squeezed into ``rounds`` (3000 in the paper)."""
    rng, policy = np.random.default_rng(0), NaiveBVDGLMUCB(dim=2, link="logistic", gamma=0.995908, delta=0.05)
    stages, regret, clock = {1: 0, 2: 0, 3: 0}, 0.0, [time.perf_counter()]  # stage 1: theta_hat in the ball
    for t in range(1, rounds + 1):
        angle = np.pi / 2 * np.clip(3 * t / rounds - 1, 0, 1)  # from (1,0) to (0,1) in the second third
        arms = rng.normal(size=(10, 2))
        arms *= np.sqrt(rng.random((10, 1))) / norm(arms, axis=1, keepdims=True)  # uniform in the disc
        means = expit(arms @ np.array([np.cos(angle), np.sin(angle)]))
        k = policy.select(arms)
        policy.update(arms[k], float(rng.random() < means[k]))
        clock.append(time.perf_counter())
        stages[policy.stage] += 1
        regret += float(means.max() - means[k])
    times = 1e6 * np.diff(clock)
    print(f"{times.mean():.0f} us per round, {times[-rounds // 10 :].mean():.0f} in the last tenth")
    print(f"theta_hat outside the ball: {1 - stages[1] / rounds:.1%}; stages {stages}; regret {regret:.2f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 300)
