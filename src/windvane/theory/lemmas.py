"""The paper's lemmas as bounds that a run can be compared with."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from windvane.arguments import check_positive, check_whole
from windvane.theory._checks import Lanes, at_least, is_general, log_det, plain, proportion
from windvane.theory.radii import discounted_count


def tracking_bound(
    gamma: ArrayLike,
    depth: ArrayLike,
    recent_drift: ArrayLike,
    *,
    k_mu: float,
    S: float,
    L: float,
    lam: float,
    dim: int,
    kind: str = "orthogonal",
) -> Lanes:
    """The two tracking lemmas of Faury et al. 2021: bounds ||g_t(theta_bar) - g_t(theta*)|| in V_t^-2.

    2 k_mu L^2 S gamma^D / (lam (1 - gamma)) + factor * recent_drift, where `recent_drift` sums
    ||theta*_s - theta*_{s+1}|| over the last D = `depth` rounds. "Tracking with orthogonal action sets" has
    factor = k_mu (`dim` plays no part), "Tracking with general action sets" k_mu L sqrt(d/(lam (1 - gamma))).
    The latter is printed without the L, which its proof drops between two lines; for L > 1 it is then false.
    Infinite at gamma = 1, where neither lemma says anything.
    """
    discounts = proportion("gamma", gamma)
    rounds, recent = at_least("depth", depth, 1), at_least("recent_drift", recent_drift, 0)
    k, ell, reg, d = (
        check_positive("k_mu", k_mu),
        check_positive("L", L),
        check_positive("lam", lam),
        check_whole("dim", dim, 1),
    )
    forget = 1.0 - discounts
    with np.errstate(divide="ignore", invalid="ignore"):
        old = 2.0 * k * ell**2 * check_positive("S", S) / reg * discounts**rounds / forget
        factor = k * ell * np.sqrt(d / (reg * forget)) if is_general(kind) else k
        return plain(np.where(forget > 0.0, old + factor * recent, np.inf))


def elliptical_potential_bound(
    log_det_ratio: ArrayLike, *, gamma: ArrayLike, rounds: int, dim: int, L: float, lam: float
) -> Lanes:
    """Elliptical potential lemma (Faury et al. 2021, "Useful lemmas"): bounds sum_{t<=T} ||x_t||^2 in V_t^-1.

    2 max(1, L^2/lam) (d T log(1/gamma) + log(det V_{T+1} / lam^d)), with T = `rounds` and `log_det_ratio` the
    last logarithm. Needs lam > 0 (the paper says non-negative) and says nothing of norms in Vtilde.
    """
    log_gamma = np.log(proportion("gamma", gamma))
    d, T = check_whole("dim", dim, 1), check_whole("rounds", rounds, 1)
    growth = log_det("log_det_ratio", log_det_ratio) - d * T * log_gamma
    return plain(np.asarray(2.0 * max(1.0, check_positive("L", L) ** 2 / check_positive("lam", lam)) * growth))


def determinant_trace_bound(t: ArrayLike, *, gamma: ArrayLike, dim: int, L: float, lam: float) -> Lanes:
    """Determinant-trace lemma (Faury et al. 2021, "Useful lemmas"): a bound on log det V_{t+1}.

    d log(lam + L^2 (1 - gamma^t) / (d (1 - gamma))), in logs so that a large d does not overflow. For
    log det Vtilde_{t+1}, pass gamma**2.
    """
    d, count = check_whole("dim", dim, 1), np.asarray(discounted_count(gamma, t))
    return plain(np.asarray(d * np.log(check_positive("lam", lam) + check_positive("L", L) ** 2 * count / d)))
