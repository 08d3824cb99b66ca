"""The regret bounds of Theorems 1 and 2, with their constants."""

from __future__ import annotations

import math
from dataclasses import dataclass

from windvane.arguments import check_not_negative, check_number, check_positive, check_whole
from windvane.theory._checks import is_general
from windvane.theory.radii import Radius, confidence_level, discounted_count
from windvane.theory.tuning import block_length, discount, discount_grid


@dataclass(frozen=True)
class RegretBound:
    """The terms of Theorem 1: `total` = `learning` + `truncation` + `tracking`; D = `depth`, at `gamma`."""

    total: float
    learning: float
    truncation: float
    tracking: float
    depth: int
    gamma: float


def _ratio(k_mu: float, c_mu: float) -> float:
    c = check_positive("c_mu", c_mu)
    return check_number("k_mu", k_mu, f"at least c_mu={c!r}", lambda k: k >= c) / c


def trivial_bound(horizon: int, sigma: float) -> float:
    """2 sigma T: rewards lie in [0, 2 sigma], so no policy can lose more. Not in the paper's theorems."""
    return 2.0 * check_positive("sigma", sigma) * check_whole("horizon", horizon, 1)


def regret_bound(
    *,
    horizon: int,
    drift: float,
    dim: int,
    gamma: float | None = None,
    kind: str = "orthogonal",
    k_mu: float,
    c_mu: float,
    S: float,
    L: float,
    lam: float,
    sigma: float,
    delta: float,
    confidence: str = "horizon",
) -> RegretBound:
    """Theorem 1 of Faury et al. 2021 with its constants; `gamma=None` takes `discount(...)`.

    learning    C1 R beta_T sqrt(d T) sqrt(T log(1/gamma) + log(1 + L^2 (1 - gamma^T) / (lam d (1 - gamma))))
    truncation  orthogonal: C2 R T gamma^D / (1 - gamma)
                general:    C4 R T gamma^D / (1 - gamma) + C5 k R T gamma^D / (1 - gamma)^(3/2)
    tracking    orthogonal: C3 R D B_T
                general:    C6 k R sqrt(d / (1 - gamma)) D B_T + C7 k R sqrt(d) / (1 - gamma) D B_T
    where k = k_mu, R = k_mu / c_mu, D = max(1, ceil(log T / (1 - gamma))), C1 = sqrt(32 max(1, L^2 / lam)),
    C2 = C4 = 8 k L^3 S / lam, C3 = 4 k L, C5 = 8 L^4 S / lam^(3/2), C6 = 4 L^2 / sqrt(lam), C7 = 4 L^3 / lam.
    The paper gives no value to C4..C7; ours carry the factor L that its general tracking lemma lost.

    The proof needs a radius that covers all rounds, so the default here is "horizon" (delta / T), not the
    printed delta. At gamma = 1 the theorem is void unless drift = 0, when both tracking terms of its proof
    vanish; otherwise the bound is infinite (depth is then reported as T). At practical T the value exceeds
    `trivial_bound`. It does not cover `bonus_scale` other than 1, nor an inexact projection.
    """
    T, d, general = check_whole("horizon", horizon, 1), check_whole("dim", dim, 1), is_general(kind)
    B = check_not_negative("drift", drift)
    if gamma is None:
        g = discount(horizon=T, drift=B, dim=d, kind=kind)
    else:
        g = check_number("gamma", gamma, "in (0, 1]", lambda v: 0 < v <= 1)
    level = check_number("delta", delta, "in (0, 1]", lambda v: 0 < v <= 1)
    R, k, ell, reg = _ratio(k_mu, c_mu), float(k_mu), check_positive("L", L), check_positive("lam", lam)
    fixed = Radius(
        dim=d,
        gamma=g,
        S=S,
        L=L,
        lam=lam,
        sigma=sigma,
        delta=level,
        c_mu=c_mu,
        confidence=confidence,
        horizon=T,
    )
    beta = float(fixed(float(T)))
    growth = -T * math.log(g) + math.log1p(ell**2 / (reg * d) * float(discounted_count(g, T)))
    learning = math.sqrt(32.0 * max(1.0, ell**2 / reg)) * R * beta * math.sqrt(d * T) * math.sqrt(growth)
    if g == 1.0:
        void = 0.0 if B == 0.0 else math.inf
        return RegretBound(learning + void, learning, void, void, T, g)
    forget = 1.0 - g
    depth = max(1, math.ceil(math.log(T) / forget))
    truncation = 8.0 * k * ell**3 * S / reg * R * T * math.exp(depth * math.log(g)) / forget
    tracking = 4.0 * k * ell * R * depth * B
    if general:
        # sqrt(lambda_max(V) / lam) <= 1 + L / sqrt(lam (1 - gamma)): the 1 gives C4, C6, the rest C5, C7.
        spread = 1.0 + ell / math.sqrt(reg * forget)
        truncation *= spread
        tracking *= spread * ell * math.sqrt(d / (reg * forget))
    return RegretBound(learning + truncation + tracking, learning, truncation, tracking, depth, g)


@dataclass(frozen=True)
class UnknownDriftBound:
    """The terms of Theorem 2; `total` is the sum of the five others, `gamma` is gamma*."""

    total: float
    restarts: float
    learning: float
    truncation: float
    tracking: float
    master: float
    gamma: float


def regret_bound_unknown_drift(
    *,
    horizon: int,
    drift: float,
    dim: int,
    k_mu: float,
    c_mu: float,
    S: float,
    L: float,
    lam: float,
    sigma: float,
    confidence: str = "pointwise",
) -> UnknownDriftBound:
    """Theorem 2 of Faury et al. 2021 (expected regret of BOB-BVD-GLM-UCB): the display that opens its proof.

    restarts    2 sigma n, n = ceil(T / H)
    learning    C1 R beta* sqrt(d T) sqrt(2 T (1 - gamma*) + n log(1 + 2 L^2 / (d lam (1 - gamma*))))
    truncation  2 C2 R / (sqrt(T) (1 - gamma*))
    tracking    3 C3 R B log(T) / (log(2) (1 - gamma*))
    master      4 sigma H sqrt(e - 1) sqrt(n N log N)
    where beta* = sqrt(lam) c_mu S + sigma sqrt(2 log(1/delta) + d log(1 + 2 L^2 / (lam d (1 - gamma*^2)))),
    delta = 1/T, gamma* = 1 - (1/2) (B / (2 S d T))^(2/3), B = max(drift, T^(-1/2)), C1..C3, R of Theorem 1.

    Departures from the printed display: c_mu in beta* (lost there), n for T / H (the last block may be short)
    and B no smaller than the grid covers. The proof needs a radius that covers all rounds: "horizon" puts
    delta / T = 1/T^2 in beta*; the default keeps the printed 1/T. Orthogonal arms only.
    """
    T, d, bound = check_whole("horizon", horizon, 1), check_whole("dim", dim, 1), check_positive("S", S)
    most = 2.0 * bound * T
    B = check_number("drift", drift, f"in [0, 2 S horizon] = [0, {most:g}]", lambda v: 0 <= v <= most)
    R, ell, reg, noise = (
        _ratio(k_mu, c_mu),
        check_positive("L", L),
        check_positive("lam", lam),
        check_positive("sigma", sigma),
    )
    B = max(B, T**-0.5)
    # Only a grid reduced to the single discount 1/2 (tiny S) makes the clip bind.
    forget = min(0.5, 0.5 * (B / (2.0 * bound * d * T)) ** (2.0 / 3.0))
    level = float(confidence_level(1.0 / T, T, confidence=confidence, horizon=T))
    H, N = block_length(T, d), len(discount_grid(T, d, bound))
    blocks = -(-T // H)
    spread = d * math.log1p(2.0 * ell**2 / (reg * d * forget * (2.0 - forget)))
    beta = math.sqrt(reg) * c_mu * bound + noise * math.sqrt(spread - 2.0 * math.log(level))
    growth = 2.0 * T * forget + blocks * math.log1p(2.0 * ell**2 / (d * reg * forget))
    learning = math.sqrt(32.0 * max(1.0, ell**2 / reg)) * R * beta * math.sqrt(d * T) * math.sqrt(growth)
    restarts = 2.0 * noise * blocks
    truncation = 16.0 * k_mu * ell**3 * bound / reg * R / (math.sqrt(T) * forget)
    tracking = 12.0 * k_mu * ell * R * B * math.log(T) / (math.log(2.0) * forget)
    master = 4.0 * noise * H * math.sqrt((math.e - 1.0) * blocks * N * math.log(N))
    total = restarts + learning + truncation + tracking + master
    return UnknownDriftBound(total, restarts, learning, truncation, tracking, master, 1.0 - forget)
