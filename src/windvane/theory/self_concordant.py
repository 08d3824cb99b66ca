"""Radii of the self-concordant siblings of BVD-GLM-UCB.

The self-concordant (Bernstein-like) deviation saves a factor sqrt(1 / c_mu) and has larger lower-order terms.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from windvane.arguments import Array, check_positive
from windvane.theory.formula import formula
from windvane.theory.radii import ConfidenceLevel, Growth


class _Deviation:
    """The self-concordant bound on the noise in the metric H^-1, with rewards in [0, m] and regularisation l of H.

    sqrt(l)/(2m) + (2m/sqrt(l)) (log(1/delta) + d log 2) + (d m/sqrt(l)) log(1 + growth), where the growth is k_mu times
    the weighted count of observations, over d l. Faury et al. (2020, Theorem 1) prove it for logistic bandits; Russac
    et al. (2021) extend it to forgetting.
    """

    def __init__(self, dim: int, ridge: float, reward_range: float) -> None:
        root = math.sqrt(ridge)
        self._constant, self._per_log = root / (2.0 * reward_range), 2.0 * reward_range / root
        self._log_room, self.per_growth = dim * math.log(2.0), np.asarray(dim * reward_range / root)

    def without_growth(self, log_inverse: Array) -> Array:
        return np.asarray(self._constant + self._per_log * (log_inverse + self._log_room))


@formula
class SelfConcordantRadius:
    """beta_t of SC-D-GLUCB and SC-SW-GLUCB (Russac, Faury, Cappe and Garivier 2021), with everything but t fixed.

    ::

        rho     = sqrt(l)/(2m) + (2m/sqrt(l)) (log(T/delta) + d log 2) + (d m/sqrt(l)) log(1 + k_mu n / (d l)), l = lam
        inside  = k_mu sqrt(1 + 2 S) (sqrt(lam) S + rho)                            if ||theta_hat|| <= S
        outside = k_mu sqrt(lam) (1 + Sb + sqrt((1 + Sb) / lam) rho + rho^2 / lam)^(3/2)        otherwise

    with m = 2 sigma. With a discount n = (1 - T^-2) / (1 - gamma^2) and Sb = S + (2 S k_mu + m) / (T lam (1 - gamma));
    the second term is for data older than log T / (1 - gamma) rounds. With a window (instead of a discount)
    n = min(t, window) and Sb = S. Two choices are ours: at gamma = 1 no data is that old, and Sb = S; and n is at most
    T, the number of rounds, which binds if changes are few (gamma > 1 - 1 / (2 T) or so) and makes the radius
    a little smaller than printed.

    The paper has arms of norm at most 1. For another L the formulas are evaluated at S L and lam / L^2, that is for
    the arms x / L: the same algorithm in other units.

    Parameters
    ----------
    delta
        Probability, for the whole run, that the confidence set misses the parameter: one number, or one per lane.

    >>> beta = SelfConcordantRadius(dim=2, S=1, L=1, lam=1, sigma=0.5, delta=0.05, k_mu=0.25, horizon=100, window=10)
    >>> float(beta.inside(5.0).round(3)), float(beta.outside(5.0).round(3))
    (8.853, 2057.451)
    """

    def __init__(
        self, *, dim: int, S: float, L: float, lam: float, sigma: float, delta: ArrayLike, k_mu: float, horizon: int,
        gamma: ArrayLike = 1.0, window: ArrayLike | None = None,
    ) -> None:  # fmt: skip
        S, T, m, lam = S * L, horizon, 2.0 * sigma, check_positive("lam / L**2", lam / L**2)
        terms = _Deviation(dim, lam, m)
        self._constant, self._per_growth = terms.without_growth(-np.log(np.asarray(delta) / T)), terms.per_growth
        self._ratio = np.asarray(k_mu / (dim * lam))
        # 1 - gamma^2 is evaluated without rounding gamma^2.
        forget = 1.0 - np.asarray(gamma)
        is_discounted = forget > 0.0
        safe = np.where(is_discounted, forget, 1.0)
        count = np.minimum((1.0 - float(T) ** -2) / (safe * (1.0 + np.asarray(gamma))), T)
        S_bar = S + np.where(is_discounted, (2.0 * S * k_mu + m) / (T * lam * safe), 0.0)
        # inside = inside_bias + inside_scale rho; outside = outside_scale (c0 + c1 rho + c2 rho^2)^(3/2).
        self._inside_scale = np.asarray(k_mu * math.sqrt(1.0 + 2.0 * S))
        self._inside_bias = self._inside_scale * (math.sqrt(lam) * S)
        self._outside_scale = np.asarray(k_mu * math.sqrt(lam))
        self._c0, self._c1, self._c2 = 1.0 + S_bar, np.sqrt((1.0 + S_bar) / lam), np.asarray(1.0 / lam)
        self._window = None if window is None else np.array(window)
        self._fixed_rho = self._rho_of_count(np.where(is_discounted, count, float(T)))

    def _rho_of_count(self, n: Array) -> Array:
        return np.asarray(self._constant + self._per_growth * np.log1p(self._ratio * n))

    def rho(self, t: float | Array) -> Array:
        """Return the deviation of the noise at round ``t``, which is not checked. It varies with t only in a window."""
        return self._fixed_rho.copy() if self._window is None else self._rho_of_count(np.minimum(t, self._window))

    def inside(self, t: float | Array) -> Array:
        """Return the radius for an estimate of norm at most S, without checking ``t``."""
        return np.asarray(self._inside_bias + self._inside_scale * self.rho(t))

    def outside(self, t: float | Array) -> Array:
        """Return the radius for an estimate of norm above S, without checking ``t``."""
        rho = self.rho(t)
        return np.asarray(self._outside_scale * (self._c0 + rho * (self._c1 + self._c2 * rho)) ** 1.5)


@formula
class WeightedSelfConcordantRadius:
    """The radius of SCB-WeightUCB (Wang, Zhao and Zhou 2023), with everything but t fixed.

    sqrt(lam c_mu) S + the deviation of :class:`SelfConcordantRadius` with regularisation lam c_mu and growth
    L^2 k_mu (1 - gamma^(2t)) / (lam c_mu d (1 - gamma^2)). ``confidence="pointwise"`` is as printed.

    >>> world = dict(dim=2, S=1, L=1, lam=1, sigma=0.5, k_mu=0.25, c_mu=0.2)
    >>> beta = WeightedSelfConcordantRadius(**world, gamma=0.99, delta=0.05)
    >>> float(beta(100.0).round(3))
    35.202
    """

    def __init__(
        self, *, dim: int, gamma: ArrayLike, S: float, L: float, lam: float, sigma: float, delta: ArrayLike,
        k_mu: float, c_mu: float, confidence: str = "pointwise", horizon: int | None = None,
    ) -> None:  # fmt: skip
        ridge = check_positive("lam * c_mu", lam * c_mu)
        self._terms, self._bias = _Deviation(dim, ridge, 2.0 * sigma), math.sqrt(ridge) * S
        self._growth = Growth(L**2 * k_mu / (ridge * dim), gamma)
        self._level = ConfidenceLevel(delta, confidence, horizon)
        self._fixed = None if self._level.is_anytime else self._without_growth(1.0)

    def _without_growth(self, t: float | Array) -> Array:
        return np.asarray(self._bias + self._terms.without_growth(self._level.log_inverse(t)))

    def __call__(self, t: float | Array) -> Array:
        """Return the radius at round ``t``, which is not checked."""
        rest = self._without_growth(t) if self._fixed is None else self._fixed
        return np.asarray(rest + self._terms.per_growth * np.log1p(self._growth(t)))
