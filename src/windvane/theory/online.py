"""Squared radii of confidence sets around online estimates, whose cost per round is constant."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from windvane.arguments import Array
from windvane.theory.formula import formula


@formula
class OnlineToConfidenceRadius:
    """beta_t of GLOC (Jun, Bhargava, Nowak and Willett 2017, equation (5) and Theorem 3), a squared radius.

    ::

        B     = regret / (2 c_mu) + 2 c_mu S^2 lam                                        (kappa = c_mu, epsilon = lam)
        alpha = 1 + 4 B / c_mu + (8 R^2 / c_mu^2) log((2/delta) sqrt(1 + 2 B / c_mu + 4 R^4 / (c_mu^4 delta^2)))
        beta  = alpha + lam S^2 - misfit

    R is sigma. ``regret`` is the sum of g_s^2 ||x_s||^2 in A_s^-1, and
    ``misfit`` the smallest value of sum (z_s - <x_s, theta>)^2 + lam ||theta||^2. It covers all rounds at once. A
    negative value, which implies that the set has missed theta*, counts as 0.

    >>> beta = OnlineToConfidenceRadius(S=1.0, lam=1.0, sigma=0.5, delta=0.05, c_mu=0.2)
    >>> float(beta(0.0, 0.0).round(2))
    470.52
    """

    def __init__(self, *, S: float, lam: float, sigma: float, delta: ArrayLike, c_mu: float) -> None:
        self._c_mu, self._start, self._bias = c_mu, 2.0 * c_mu * S**2 * lam, 1.0 + lam * S**2
        self._noise = 8.0 * (sigma / c_mu) ** 2
        self._log_inverse = math.log(2.0) - np.log(np.asarray(delta))
        self._floor = 4.0 * (sigma / c_mu) ** 4 / np.square(np.asarray(delta))

    def __call__(self, regret: float | Array, misfit: float | Array) -> Array:
        """Return the squared radius, without checking the arguments."""
        B = regret / (2.0 * self._c_mu) + self._start
        log_term = self._log_inverse + 0.5 * np.log1p(2.0 * B / self._c_mu + self._floor)
        return np.asarray(np.maximum(self._bias + 4.0 * B / self._c_mu + self._noise * log_term - misfit, 0.0))


@formula
class ECOLogRadius:
    """The functions of ada-OFU-ECOLog (Faury, Abeille, Jun and Calauzenes 2022, equations (10) to (15)), at S L for S.

    ``eta`` is the squared radius after round t. As printed,

        nu_t  = 1/2 + 2 log(2 sqrt(t/4 + 1) / delta)
        eta_t = 4 + 4 log t + 16 S^2 + (2 + 2S)^2 nu_t / 2 + 8 (1 + S) d log(1 + t/d)

    Its proof has two slips: a bound on a sum is used as one on its square (nu_t), and the factor 1 + 2S of Lemma 6 is
    lost. The form "proved" is what the same argument gives for steps without optimisation error, starting at 0,

        eta_t = S^2 + 2 (1 + S) log(1/delta) + 4 (1 + S) (1 + 2S) d log(1 + t/(4d)),

    with the likelihood ratio of :mod:`windvane.policies.ecolog` for Lemma 5. ``ridge`` (lambda_t) and ``level``
    (beta_t) belong to the set of parameters that rejected rewards leave.

    >>> printed = ECOLogRadius(dim=2, S=1.0, L=1.0, delta=0.05, form="printed")
    >>> proved = ECOLogRadius(dim=2, S=1.0, L=1.0, delta=0.05, form="proved")
    >>> float(printed.eta(3000.0).round(1)), float(proved.eta(3000.0).round(1))
    (402.1, 297.6)
    """

    def __init__(self, *, dim: int, S: float, L: float, delta: ArrayLike, form: str = "printed") -> None:
        self._dim, self._S, self._is_proved = dim, S * L, form == "proved"
        self._log_inverse = -np.log(np.asarray(delta))

    def eta(self, t: float | Array) -> Array:
        """Return the squared radius after round ``t``, at least 1, which is not checked."""
        d, S = self._dim, self._S
        if self._is_proved:
            growth = 4.0 * (1.0 + S) * (1.0 + 2.0 * S) * d * np.log1p(t / (4.0 * d))
            return np.asarray(S**2 + 2.0 * (1.0 + S) * self._log_inverse + growth)
        nu = 0.5 + 2.0 * (math.log(2.0) + 0.5 * np.log1p(t / 4.0) + self._log_inverse)
        growth = 8.0 * (1.0 + S) * d * np.log1p(t / d)
        return np.asarray(4.0 + 4.0 * np.log(t) + 16.0 * S**2 + 2.0 * (1.0 + S) ** 2 * nu + growth)

    def ridge(self, t: float | Array) -> Array:
        """Return lambda_t = d log((4 + t/4) / delta), without checking ``t``."""
        return np.asarray(self._dim * (np.log(4.0 + t / 4.0) + self._log_inverse))

    def level(self, t: float | Array) -> Array:
        """Return beta_t = (5/2 + (S + 3/2)^2 + S)^2 (S + 3/2)^2 lambda_t, without checking ``t``."""
        square = (self._S + 1.5) ** 2
        return np.asarray((2.5 + square + self._S) ** 2 * square * self.ridge(t))
