"""Radii of confidence sets that are level sets of the likelihood: how far it may be below its maximum."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from windvane.arguments import Array
from windvane.theory.formula import formula


@formula
class LogLossRadius:
    """beta_t of OFULog-r (Abeille, Faury and Calauzenes 2021, equation 11), as printed.

    ::

        gamma_t = sqrt(lam_t) (S + 1/2) + (d / sqrt(lam_t)) log((4 / delta) (1 + t / (16 d lam_t)))
        beta_t  = gamma_t + gamma_t^2 / sqrt(lam_t)

    The set is {||theta|| <= S: loss(theta) - loss(theta_hat) <= beta_t^2}. The printed gamma_t is slightly too small:
    the paper's own Theorem 4 needs 4 in place of 16, and (2 / d) log(1/delta) <= log(1/delta) only if d >= 2.
    The form "proved" has the gamma_t that the theorem proves for a fixed lam, which is that of Faury et al. (2020):
    sqrt(lam) (S + 1/2) + (2 / sqrt(lam)) (d log 2 + log(1/delta) + (d / 2) log(1 + t / (4 d lam))).

    The paper has arms of norm at most 1. For another L the formulas are evaluated at S L and lam / L^2, that is for
    the arms x / L.

    >>> beta = LogLossRadius(dim=2, S=1.0, L=1.0, delta=0.05)
    >>> float(beta(3000.0, 16.0).round(2))
    30.1
    """

    def __init__(self, *, dim: int, S: float, L: float, delta: ArrayLike, form: str = "printed") -> None:
        self._dim, self._S, self._unit, self._is_proved = dim, S * L, L**2, form == "proved"
        self._log_inverse = -np.log(np.asarray(delta))

    def deviation(self, t: float | Array, lam: float | Array) -> Array:
        """Return gamma_t for the regularisation lam_t, without checking the arguments."""
        d, lam = self._dim, np.asarray(lam) / self._unit
        bias, root = np.sqrt(lam) * (self._S + 0.5), np.sqrt(lam)
        if self._is_proved:
            logs = d * math.log(2.0) + self._log_inverse + 0.5 * d * np.log1p(t / (4.0 * d * lam))
            return np.asarray(bias + 2.0 / root * logs)
        return np.asarray(bias + d / root * (math.log(4.0) + self._log_inverse + np.log1p(t / (16.0 * d * lam))))

    def __call__(self, t: float | Array, lam: float | Array) -> Array:
        """Return beta_t for the regularisation lam_t, without checking the arguments."""
        gamma = self.deviation(t, lam)
        return np.asarray(gamma + gamma**2 / np.sqrt(np.asarray(lam) / self._unit))


@formula
class LikelihoodRatioRadius:
    """beta_t of OFUGLB (Lee, Yun and Jun 2024): sqrt(log(1/delta) + d log(max(e, 2 e S Lip_t / d))).

    Lip_t is a Lipschitz constant, over the ball ||theta|| <= S, of the negative log-likelihood of the rewards before
    round t. It may depend on the rewards. The radius holds for all rounds at once. Proof: for a fixed theta, the
    likelihood ratio of theta to theta* is a martingale of mean 1, and so is its average over the ball. By Ville's
    inequality and the variational formula of Donsker and Varadhan, with the uniform law on the ball of radius c S
    around (1 - c) theta_hat,

        loss(theta*) - loss(theta_hat) <= log(1/delta) + d log(1/c) + 2 S Lip_t c        for all c in (0, 1]

    and c = min(1, d / (2 S Lip_t)).

    >>> beta = LikelihoodRatioRadius(dim=2, delta=0.05)
    >>> float((beta(1.5 * 2998) ** 2).round(1))
    21.8
    """

    def __init__(self, *, dim: int, delta: ArrayLike) -> None:
        self._dim, self._log_inverse = dim, -np.log(np.asarray(delta))

    def __call__(self, steepness: float | Array) -> Array:
        """Return beta_t for ``steepness`` = S Lip_t, at least 0, which is not checked."""
        growth = np.log(np.maximum(math.e, 2.0 * math.e * np.asarray(steepness) / self._dim))
        return np.asarray(np.sqrt(self._log_inverse + self._dim * growth))
