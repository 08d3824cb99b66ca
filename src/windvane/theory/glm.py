"""Radii and discounts of the generalized-linear siblings of BVD-GLM-UCB.

What Growth and Radius of `windvane.theory.radii` do not cover: the self-concordant (Bernstein-like) deviation, which
trades a factor sqrt(1 / c_mu) for heavier lower-order terms, and the discounts of the weighted strategies.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from windvane.arguments import Array, check_not_negative, check_positive, check_whole
from windvane.theory._checks import Lanes, entries, plain, proportion
from windvane.theory.radii import Growth, confidence_level


def self_concordant_deviation(
    growth: ArrayLike, *, dim: int, ridge: float, reward_range: float, delta: ArrayLike
) -> Lanes:
    """sqrt(l)/(2m) + (2m/sqrt(l)) (log(1/delta) + d log 2) + (d m/sqrt(l)) log(1 + growth).

    Here l is the `ridge`, and rewards lie in [0, m], m the `reward_range`. The bound on the noise in the metric H^-1
    that Faury et al. (2020, Theorem 1) prove for logistic bandits, as Russac et al. (2021) carry it over to forgetting;
    `growth` is k_mu times the weighted count of observations, over d l.
    """
    d, root, m = (
        check_whole("dim", dim, 1),
        math.sqrt(check_positive("ridge", ridge)),
        check_positive("reward_range", reward_range),
    )
    grown = np.log1p(entries("growth", growth, "at least 0", lambda v: v >= 0))
    level = -np.log(proportion("delta", delta)) + d * math.log(2.0)
    return plain(np.asarray(root / (2.0 * m) + 2.0 * m / root * level + d * m / root * grown))


class SelfConcordantRadius:
    """beta_t of SC-D-GLUCB and SC-SW-GLUCB (Russac, Faury, Cappe and Garivier 2021), everything but t fixed.

        rho     = `self_concordant_deviation` at delta / T with growth k_mu n / (d lam)
        inside  = k_mu sqrt(1 + 2 S) (sqrt(lam) S + rho)                            where ||theta_hat|| <= S
        outside = k_mu sqrt(lam) (1 + Sb + sqrt((1 + Sb) / lam) rho + rho^2 / lam)^(3/2)               elsewhere

    With a discount n = (1 - T^-2) / (1 - gamma^2) and Sb = S + (2 S k_mu + m) / (T lam (1 - gamma)), the second for
    what is older than log T / (1 - gamma) rounds. With a window n = min(t, tau) and Sb = S. Two choices are ours: at
    gamma = 1 nothing is that old, and Sb = S; and n is never above T, the number of rounds there are, which binds where
    changes are few (gamma > 1 - 1 / (2 T) or so) and makes the radius a little smaller than printed.

    The paper has arms of norm at most 1. For another L the formulas are evaluated at S L and lam / L^2, that is for the
    arms x / L: the same algorithm in other units.
    """

    def __init__(
        self,
        *,
        dim: int,
        S: float,
        L: float,
        lam: float,
        sigma: float,
        delta: ArrayLike,
        k_mu: float,
        horizon: int,
        gamma: ArrayLike = 1.0,
        window: Array | None = None,
    ) -> None:
        T, d = check_whole("horizon", horizon, 1), check_whole("dim", dim, 1)
        self._S, self._lam = check_positive("S", S) * check_positive("L", L), check_positive("lam", lam) / L**2
        self._k_mu, m = check_positive("k_mu", k_mu), 2.0 * check_positive("sigma", sigma)
        self._dim, self._m, self._level = d, m, proportion("delta", delta) / T
        self._window, discounts = window, proportion("gamma", gamma)
        gone = 1.0 - discounts
        discounted = gone > 0.0
        safe = np.where(discounted, gone, 1.0)
        count = (1.0 - float(T) ** -2) / (safe * (1.0 + discounts))  # 1 - gamma^2, without rounding gamma^2
        self._count = np.where(discounted, np.minimum(count, T), float(T))
        self._S_bar = self._S + np.where(discounted, (2.0 * self._S * self._k_mu + m) / (T * self._lam * safe), 0.0)

    def rho(self, t: float | Array) -> Array:
        """The deviation of the noise at round t."""
        n = self._count if self._window is None else np.minimum(t, self._window)
        growth = self._k_mu * n / (self._dim * self._lam)
        noise = self_concordant_deviation(
            growth, dim=self._dim, ridge=self._lam, reward_range=self._m, delta=self._level
        )
        return np.asarray(noise)

    def inside(self, t: float | Array) -> Array:
        """The radius where theta_hat is admissible."""
        spread = math.sqrt(1.0 + 2.0 * self._S)
        return np.asarray(self._k_mu * spread * (math.sqrt(self._lam) * self._S + self.rho(t)))

    def outside(self, t: float | Array) -> Array:
        """The radius where it is not."""
        reach, rho = 1.0 + self._S_bar, self.rho(t)
        base = reach + np.sqrt(reach / self._lam) * rho + np.square(rho) / self._lam
        return np.asarray(self._k_mu * math.sqrt(self._lam) * base**1.5)


class WeightedSelfConcordantRadius:
    """The radius of SCB-WeightUCB (Wang, Zhao and Zhou 2023), everything but t fixed.

    sqrt(lam c_mu) S + `self_concordant_deviation` with ridge lam c_mu and growth
    L^2 k_mu (1 - gamma^(2t)) / (lam c_mu d (1 - gamma^2)). "pointwise" is as printed; see `confidence_level`.
    """

    def __init__(
        self,
        *,
        dim: int,
        gamma: ArrayLike,
        S: float,
        L: float,
        lam: float,
        sigma: float,
        delta: ArrayLike,
        k_mu: float,
        c_mu: float,
        confidence: str = "pointwise",
        horizon: int | None = None,
    ) -> None:
        self._dim, self._ridge = check_whole("dim", dim, 1), check_positive("lam", lam) * check_positive("c_mu", c_mu)
        self._bias, self._m = math.sqrt(self._ridge) * check_positive("S", S), 2.0 * check_positive("sigma", sigma)
        self._delta, self._form = proportion("delta", delta), (confidence, horizon)
        confidence_level(self._delta, 1.0, confidence=confidence, horizon=horizon)  # refused now, not in a round
        ratio = check_positive("L", L) ** 2 * check_positive("k_mu", k_mu) / (self._ridge * self._dim)
        self._growth = Growth(ratio, proportion("gamma", gamma))

    def __call__(self, t: float | Array) -> Array:
        confidence, horizon = self._form
        level = confidence_level(self._delta, t, confidence=confidence, horizon=horizon)
        noise = self_concordant_deviation(
            self._growth(t), dim=self._dim, ridge=self._ridge, reward_range=self._m, delta=level
        )
        return np.asarray(self._bias + noise)


def weight_discount(*, horizon: int, drift: float, dim: int, curvature: float = 1.0) -> float:
    """1 - max(1/T, sqrt(curvature P_T / (d T))), clipped to at least 1/2 (Wang, Zhao and Zhou 2023).

    `curvature` is 1 for LB-WeightUCB, k_mu c_mu for GLB-WeightUCB and k_mu for SCB-WeightUCB. The clip is ours.
    """
    T, d, B = check_whole("horizon", horizon, 1), check_whole("dim", dim, 1), check_not_negative("drift", drift)
    return max(0.5, 1.0 - max(1.0 / T, math.sqrt(check_positive("curvature", curvature) * B / (d * T))))
