"""The lemmas of Faury et al. 2021 as bounds that a run can be compared with."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from windvane.theory.formula import Lanes, formula
from windvane.theory.radii import discounted_count


@formula
def tracking_bound(
    gamma: ArrayLike, depth: ArrayLike, recent_drift: ArrayLike, *, k_mu: float, S: float, L: float, lam: float,
    dim: int, kind: str = "orthogonal",
) -> Lanes:  # fmt: skip
    """Return the bound of a tracking lemma on ||g_t(theta_bar) - g_t(theta*)|| in V_t^-2.

    2 k_mu L^2 S gamma^D / (lam (1 - gamma)) + factor * recent_drift. "Tracking with orthogonal action sets" has
    factor = k_mu, "Tracking with general action sets" k_mu L sqrt(d / (lam (1 - gamma))). The latter is printed without
    the L, which its proof drops between two lines; for L > 1 the printed form is false. The bound is infinite at
    gamma = 1, where neither lemma applies.

    Parameters
    ----------
    recent_drift
        The sum of ||theta*_s - theta*_{s+1}|| over the last D rounds.
    dim
        Number of features of an arm; not used for orthogonal arms.

    >>> tracking_bound(0.5, 1, 0.25, k_mu=1.0, S=1.0, L=1.0, lam=1.0, dim=1)
    2.25
    """
    forget = 1.0 - np.asarray(gamma)
    with np.errstate(divide="ignore", invalid="ignore"):
        old = 2.0 * k_mu * L**2 * S / lam * np.power(gamma, depth) / forget
        factor = k_mu * L * np.sqrt(dim / (lam * forget)) if kind == "general" else k_mu
        return np.where(forget > 0.0, old + factor * np.asarray(recent_drift), np.inf)


@formula
def elliptical_potential_bound(
    log_det_ratio: ArrayLike, *, gamma: ArrayLike, rounds: int, dim: int, L: float, lam: float
) -> Lanes:
    """Return the bound of the elliptical potential lemma on sum_{t<=T} ||x_t||^2 in V_t^-1.

    2 max(1, L^2/lam) (d T log(1/gamma) + log(det V_{T+1} / lam^d)) ("Useful lemmas"). It needs lam > 0 (the paper says
    non-negative) and says nothing about norms in Vtilde.

    Parameters
    ----------
    log_det_ratio
        log(det V_{T+1} / lam^d), at least 0; values that are negative by rounding count as 0.

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
