"""The paper's lemmas as bounds that a run can be compared with."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from windvane.arguments import check_positive, check_whole
from windvane.theory.array_arguments import (
    Lanes,
    check_at_least,
    check_broadcast,
    check_log_det,
    check_proportion,
    is_general,
    to_lanes,
)
from windvane.theory.radii import discounted_count


def tracking_bound(
    gamma: ArrayLike, depth: ArrayLike, recent_drift: ArrayLike, *, k_mu: float, S: float, L: float, lam: float,
    dim: int, kind: str = "orthogonal",
) -> Lanes:  # fmt: skip
    """Return the bound of a tracking lemma of Faury et al. 2021 on ||g_t(theta_bar) - g_t(theta*)|| in V_t^-2.

    Parameters
    ----------
    gamma, k_mu, S, L, lam, dim, kind : see :mod:`windvane.theory`; ``dim`` is not used for orthogonal arms
    depth : the number of rounds D that count as recent, at least 1
    recent_drift : the sum of ||theta*_s - theta*_{s+1}|| over the last D rounds

    Notes
    -----
    2 k_mu L^2 S gamma^D / (lam (1 - gamma)) + factor * recent_drift. "Tracking with orthogonal action sets" has
    factor = k_mu, "Tracking with general action sets" k_mu L sqrt(d / (lam (1 - gamma))). The latter is printed without
    the L, which its proof drops between two lines; for L > 1 the printed form is false. The bound is infinite at
    gamma = 1, where neither lemma applies.

    Examples
    --------
    >>> tracking_bound(0.5, 1, 0.25, k_mu=1.0, S=1.0, L=1.0, lam=1.0, dim=1)
    2.25
    """
    discounts = check_proportion("gamma", gamma)
    rounds, recent = check_at_least("depth", depth, 1), check_at_least("recent_drift", recent_drift, 0)
    check_broadcast(gamma=discounts, depth=rounds, recent_drift=recent)
    k_mu, S, L = check_positive("k_mu", k_mu), check_positive("S", S), check_positive("L", L)
    lam, dim, general = check_positive("lam", lam), check_whole("dim", dim, 1), is_general(kind)
    forget = 1.0 - discounts
    with np.errstate(divide="ignore", invalid="ignore"):
        old = 2.0 * k_mu * L**2 * S / lam * discounts**rounds / forget
        factor = k_mu * L * np.sqrt(dim / (lam * forget)) if general else k_mu
        return to_lanes(np.where(forget > 0.0, old + factor * recent, np.inf))


def elliptical_potential_bound(
    log_det_ratio: ArrayLike, *, gamma: ArrayLike, rounds: int, dim: int, L: float, lam: float
) -> Lanes:
    """Return the bound of the elliptical potential lemma on sum_{t<=T} ||x_t||^2 in V_t^-1.

    Parameters
    ----------
    log_det_ratio : log(det V_{T+1} / lam^d), at least 0
    gamma, rounds, dim, L, lam : see :mod:`windvane.theory`; ``rounds`` is T

    Notes
    -----
    2 max(1, L^2/lam) (d T log(1/gamma) + log(det V_{T+1} / lam^d)) (Faury et al. 2021, "Useful lemmas"). It needs
    lam > 0 (the paper says non-negative) and says nothing about norms in Vtilde.

    Examples
    --------
    >>> elliptical_potential_bound(1.5, gamma=1.0, rounds=10, dim=2, L=1.0, lam=1.0)
    3.0
    """
    logs, discounts = check_log_det("log_det_ratio", log_det_ratio), check_proportion("gamma", gamma)
    check_broadcast(log_det_ratio=logs, gamma=discounts)
    dim, T = check_whole("dim", dim, 1), check_whole("rounds", rounds, 1)
    growth = logs - dim * T * np.log(discounts)
    return to_lanes(np.asarray(2.0 * max(1.0, check_positive("L", L) ** 2 / check_positive("lam", lam)) * growth))


def determinant_trace_bound(t: ArrayLike, *, gamma: ArrayLike, dim: int, L: float, lam: float) -> Lanes:
    """Return the bound of the determinant-trace lemma on log det V_{t+1}.

    Parameters
    ----------
    t, gamma, dim, L, lam : see :mod:`windvane.theory`; t is at least 0

    Notes
    -----
    d log(lam + L^2 (1 - gamma^t) / (d (1 - gamma))) (Faury et al. 2021, "Useful lemmas"), in logarithms so that a large
    d does not overflow. For log det Vtilde_{t+1}, pass gamma^2.

    Examples
    --------
    >>> determinant_trace_bound(0, gamma=0.9, dim=3, L=1.0, lam=1.0)
    0.0
    """
    dim, count = check_whole("dim", dim, 1), np.asarray(discounted_count(gamma, t))
    return to_lanes(np.asarray(dim * np.log(check_positive("lam", lam) + check_positive("L", L) ** 2 * count / dim)))
