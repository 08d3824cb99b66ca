"""The lemmas and the regret bounds of Faury et al. 2021, with their constants."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from windvane.arguments import check_number
from windvane.documentation import documented
from windvane.theory.formula import Lanes, formula
from windvane.theory.radii import Radius, confidence_level, discounted_count
from windvane.theory.tuning import block_length, discount, discount_grid


@formula
def tracking_bound(
    gamma: ArrayLike, depth: ArrayLike, recent_drift: ArrayLike, *, k_mu: float, S: float, L: float, lam: float,
    dim: int, arm_geometry: str = "orthogonal",
) -> Lanes:  # fmt: skip
    """Return the bound of a tracking lemma on ||g_t(theta_bar) - g_t(theta*)|| in V_t^-2.

    2 k_mu L^2 S gamma^D / (lam (1 - gamma)) + factor * recent_drift. "Tracking with orthogonal action sets" has
    factor = k_mu, "Tracking with general action sets" k_mu L sqrt(d / (lam (1 - gamma))). The latter is printed without
    the L, which its proof drops between two lines; for L > 1 the printed form is false. The bound is infinite at
    gamma = 1, where neither lemma applies. ``dim`` is not used for orthogonal arms.

    >>> tracking_bound(0.5, 1, 0.25, k_mu=1.0, S=1.0, L=1.0, lam=1.0, dim=1)
    2.25
    """
    forget = 1.0 - np.asarray(gamma)
    with np.errstate(divide="ignore", invalid="ignore"):
        old = 2.0 * k_mu * L**2 * S / lam * np.power(gamma, depth) / forget
        factor = k_mu * L * np.sqrt(dim / (lam * forget)) if arm_geometry == "general" else k_mu
        return np.where(forget > 0.0, old + factor * np.asarray(recent_drift), np.inf)


@formula
def elliptical_potential_bound(
    log_det_ratio: ArrayLike, *, gamma: ArrayLike, rounds: int, dim: int, L: float, lam: float
) -> Lanes:
    """Return the bound of the elliptical potential lemma on sum_{t<=T} ||x_t||^2 in V_t^-1.

    2 max(1, L^2/lam) (d T log(1/gamma) + log(det V_{T+1} / lam^d)) ("Useful lemmas"). It needs lam > 0 (the paper says
    non-negative) and says nothing about norms in Vtilde.

    >>> elliptical_potential_bound(1.5, gamma=1.0, rounds=10, dim=2, L=1.0, lam=1.0)
    3.0
    """
    growth = np.maximum(log_det_ratio, 0.0) - dim * rounds * np.log(gamma)
    return np.asarray(2.0 * max(1.0, L**2 / lam) * growth)


@formula
def determinant_trace_bound(t: ArrayLike, *, gamma: ArrayLike, dim: int, L: float, lam: float) -> Lanes:
    """Return the bound of the determinant-trace lemma on log det V_{t+1}; for Vtilde_{t+1}, pass gamma^2.

    d log(lam + L^2 (1 - gamma^t) / (d (1 - gamma))) ("Useful lemmas"), in logarithms so that a large d does not
    overflow.

    >>> determinant_trace_bound(0, gamma=0.9, dim=3, L=1.0, lam=1.0)
    0.0
    """
    return np.asarray(dim * np.log(lam + L**2 * np.asarray(discounted_count(gamma, t)) / dim))


@formula
@dataclass(frozen=True, kw_only=True)
class Problem:
    """The constants of a bandit problem and of its regularised estimator that the theorems depend on.

    >>> problem = Problem(horizon=100, drift=1.0, dim=2, k_mu=0.25, c_mu=0.2, S=1.0, L=1.0, lam=1.0, sigma=0.5)
    >>> problem.R_mu
    1.25
    """

    horizon: int
    drift: float
    dim: int
    k_mu: float
    c_mu: float
    S: float
    L: float
    lam: float
    sigma: float

    def __post_init__(self) -> None:
        check_number("k_mu", self.k_mu, f"at least c_mu={self.c_mu!r}", lambda k: k >= self.c_mu)

    @property
    def R_mu(self) -> float:
        """k_mu / c_mu."""
        return self.k_mu / self.c_mu

    def learning_term(self, beta: float, growth: float) -> float:
        """Return C1 R beta sqrt(d T) sqrt(growth) with C1 = sqrt(32 max(1, L^2 / lam)), as in both theorems."""
        C1 = math.sqrt(32.0 * max(1.0, self.L**2 / self.lam))
        return C1 * self.R_mu * beta * math.sqrt(self.dim * self.horizon) * math.sqrt(growth)


@documented
@dataclass(frozen=True)
class RegretBound:
    """The terms of Theorem 1, as :func:`regret_bound` returns them.

    Parameters
    ----------
    total, learning, truncation, tracking
        The bound, and its three terms.
    depth
        Number of rounds D that the proof counts as recent.
    gamma
        Discount at which the bound is evaluated.

    >>> RegretBound(total=6.0, learning=1.0, truncation=2.0, tracking=3.0, depth=10, gamma=0.9).total
    6.0
    """

    total: float
    learning: float
    truncation: float
    tracking: float
    depth: int
    gamma: float


@formula
def trivial_bound(horizon: int, sigma: float) -> float:
    """Return 2 sigma T: rewards lie in [0, 2 sigma], so no policy can lose more. Not in the paper's theorems.

    >>> trivial_bound(3000, 0.5)
    3000.0
    """
    return 2.0 * sigma * horizon


@formula
def regret_bound(
    problem: Problem,
    *,
    delta: float,
    gamma: float | None = None,
    arm_geometry: str = "orthogonal",
    confidence: str = "horizon",
) -> RegretBound:
    """Evaluate Theorem 1 of Faury et al. 2021 with its constants.

    ::

        learning    C1 R beta_T sqrt(d T) sqrt(T log(1/gamma) + log(1 + L^2 (1 - gamma^T) / (lam d (1 - gamma))))
        truncation  orthogonal: C2 R T gamma^D / (1 - gamma)
                    general:    C4 R T gamma^D / (1 - gamma) + C5 k R T gamma^D / (1 - gamma)^(3/2)
        tracking    orthogonal: C3 R D B_T
                    general:    C6 k R sqrt(d / (1 - gamma)) D B_T + C7 k R sqrt(d) / (1 - gamma) D B_T

    where k = k_mu, R = k_mu / c_mu, D = max(1, ceil(log T / (1 - gamma))), C1 = sqrt(32 max(1, L^2 / lam)),
    C2 = C4 = 8 k L^3 S / lam, C3 = 4 k L, C5 = 8 L^4 S / lam^(3/2), C6 = 4 L^2 / sqrt(lam), C7 = 4 L^3 / lam. The paper
    gives no values for C4..C7; ours have the factor L that is missing from its general tracking lemma. The proof needs
    a radius that covers all rounds, so the default ``confidence`` is "horizon" (delta / T), not the printed delta.

    At gamma = 1 the bound is infinite unless drift = 0, when both tracking terms of the proof vanish. The depth is
    then reported as T. At practical T the value exceeds :func:`trivial_bound`. It does not cover a ``bonus_scale``
    other than 1, nor an inexact projection.

    Parameters
    ----------
    gamma
        Discount in (0, 1]. Default: that of :func:`discount`.

    >>> problem = Problem(horizon=3000, drift=1.5708, dim=2, k_mu=0.25, c_mu=0.2, S=1.0, L=1.0, lam=1.0, sigma=0.5)
    >>> regret_bound(problem, delta=0.05).total > trivial_bound(3000, 0.5)
    True
    """
    p, T = problem, problem.horizon
    gamma = discount(horizon=T, drift=p.drift, dim=p.dim, arm_geometry=arm_geometry) if gamma is None else gamma
    beta = Radius(
        dim=p.dim, gamma=gamma, S=p.S, L=p.L, lam=p.lam, sigma=p.sigma, delta=delta, c_mu=p.c_mu,
        confidence=confidence, horizon=T,
    )  # fmt: skip
    growth = -T * math.log(gamma) + math.log1p(p.L**2 / (p.lam * p.dim) * float(discounted_count(gamma, T)))
    learning = p.learning_term(float(beta(float(T))), growth)
    if gamma == 1.0:
        void = 0.0 if p.drift == 0.0 else math.inf
        return RegretBound(learning + void, learning, void, void, T, gamma)
    forget = 1.0 - gamma
    depth = max(1, math.ceil(math.log(T) / forget))
    truncation = 8.0 * p.k_mu * p.L**3 * p.S / p.lam * p.R_mu * T * math.exp(depth * math.log(gamma)) / forget
    tracking = 4.0 * p.k_mu * p.L * p.R_mu * depth * p.drift
    if arm_geometry == "general":
        # sqrt(lambda_max(V) / lam) <= 1 + L / sqrt(lam (1 - gamma)): the 1 gives C4 and C6, the rest C5 and C7.
        spread = 1.0 + p.L / math.sqrt(p.lam * forget)
        truncation *= spread
        tracking *= spread * p.L * math.sqrt(p.dim / (p.lam * forget))
    return RegretBound(learning + truncation + tracking, learning, truncation, tracking, depth, gamma)


@documented
@dataclass(frozen=True)
class UnknownDriftBound:
    """The terms of Theorem 2, as :func:`regret_bound_unknown_drift` returns them.

    Parameters
    ----------
    total, restarts, learning, truncation, tracking, master
        The bound, and its five terms.
    gamma
        gamma*, the best discount for the drift.

    >>> UnknownDriftBound(15.0, 1.0, 2.0, 3.0, 4.0, 5.0, gamma=0.99).master
    5.0
    """

    total: float
    restarts: float
    learning: float
    truncation: float
    tracking: float
    master: float
    gamma: float


@formula
def regret_bound_unknown_drift(problem: Problem, *, confidence: str = "pointwise") -> UnknownDriftBound:
    """Evaluate Theorem 2 of Faury et al. 2021, the expected regret of BOB-BVD-GLM-UCB.

    ::

        restarts    2 sigma n, n = ceil(T / H)
        learning    C1 R beta* sqrt(d T) sqrt(2 T (1 - gamma*) + n log(1 + 2 L^2 / (d lam (1 - gamma*))))
        truncation  2 C2 R / (sqrt(T) (1 - gamma*))
        tracking    3 C3 R B log(T) / (log(2) (1 - gamma*))
        master      4 sigma H sqrt(e - 1) sqrt(n N log N)

    where beta* = sqrt(lam) c_mu S + sigma sqrt(2 log(1/delta) + d log(1 + 2 L^2 / (lam d (1 - gamma*^2)))),
    delta = 1/T, gamma* = 1 - (1/2) (B / (2 S d T))^(2/3), B = max(drift, T^(-1/2)), C1..C3 and R of Theorem 1.

    Departures from the printed display: c_mu in beta* (missing there), n for T / H (the last block may be short) and B
    not below the range that the grid covers. Orthogonal arms only. The proof needs a radius that covers all rounds:
    ``confidence="horizon"`` puts delta / T = 1/T^2 in beta*; the default keeps the printed 1/T. A drift above 2 S T,
    the largest possible one, raises an error.

    >>> problem = Problem(horizon=3000, drift=1.5708, dim=2, k_mu=0.25, c_mu=0.2, S=1.0, L=1.0, lam=1.0, sigma=0.5)
    >>> regret_bound_unknown_drift(problem).restarts
    28.0
    """
    p, T, d = problem, problem.horizon, problem.dim
    most = 2.0 * p.S * T
    B = max(check_number("drift", p.drift, f"in [0, 2 S horizon] = [0, {most:g}]", lambda v: v <= most), T**-0.5)
    # The clip binds only if the grid consists of the single discount 1/2, which needs a tiny S.
    forget = min(0.5, 0.5 * (B / (2.0 * p.S * d * T)) ** (2.0 / 3.0))
    level = float(confidence_level(1.0 / T, T, confidence=confidence, horizon=T))
    H, N = block_length(T, d), len(discount_grid(T, d, p.S))
    blocks = -(-T // H)
    spread = d * math.log1p(2.0 * p.L**2 / (p.lam * d * forget * (2.0 - forget)))
    beta = math.sqrt(p.lam) * p.c_mu * p.S + p.sigma * math.sqrt(spread - 2.0 * math.log(level))
    growth = 2.0 * T * forget + blocks * math.log1p(2.0 * p.L**2 / (d * p.lam * forget))
    learning = p.learning_term(beta, growth)
    restarts = 2.0 * p.sigma * blocks
    truncation = 16.0 * p.k_mu * p.L**3 * p.S / p.lam * p.R_mu / (math.sqrt(T) * forget)
    tracking = 12.0 * p.k_mu * p.L * p.R_mu * B * math.log(T) / (math.log(2.0) * forget)
    master = 4.0 * p.sigma * H * math.sqrt((math.e - 1.0) * blocks * N * math.log(N))
    total = restarts + learning + truncation + tracking + master
    return UnknownDriftBound(total, restarts, learning, truncation, tracking, master, 1.0 - forget)
