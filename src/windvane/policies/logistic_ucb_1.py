"""Logistic-UCB-1: an optimistic logistic bandit whose bonus grows like sqrt(1 / c_mu) instead of 1 / c_mu.

Faury, Abeille, Calauzenes and Fercoq, "Improved optimistic algorithms for logistic bandits" (ICML 2020), Algorithm 1.
The rewards of all past rounds have weight 1, and mu is logistic. At round t,

    theta_hat_t = argmin of the negative log-likelihood + (lam/2) ||theta||^2, over all theta
    V_t         = sum x_s x_s' + kappa lam I
    theta_t     = argmin over ||theta|| <= S of ||g_t(theta) - b_t|| in the metric H_t(theta)^-1; theta_hat_t if inside
    gamma_t     = sqrt(lam) (S + 1/2) + (2/sqrt(lam)) log((2^d / delta) (1 + t / (4 d lam))^(d/2))
    x_t         = argmax over the arms of mu(<x, theta_t>) + (1/4) sqrt(4 + 8 S) sqrt(kappa) gamma_t ||x||_{V_t^-1}
    lam         = d log T

===========  ==================  ==================================================================
symbol       here                meaning
===========  ==================  ==================================================================
kappa        1 / ``constants.c_mu``  supremum of 1 / mu' over ||theta|| <= S, ||x|| <= L
1/4          ``constants.k_mu``  supremum of mu'
lam          ``lam``             coefficient of ||theta||^2 / 2: the ridge of :mod:`windvane.estimation`
gamma_t      ``radius(t)``       :class:`windvane.theory.WeightedSelfConcordantRadius` at gamma = 1
===========  ==================  ==================================================================

Guarantee (Theorem 2): with probability 1 - delta, regret of order sqrt(kappa) d sqrt(T) log T at lam = d log T for a
constant theta*, for arm sets that may change in every round and may be infinite. The radius holds at all rounds at once
for a fixed lam, so there is no ``confidence`` argument. None under drift.

What is uncertain: nothing in the rule, which we read in the paper. The projection is not convex. The result is a
stationary point, with its value and residual (:mod:`windvane.projection`); at lam = d log T it is rarely needed. The
authors' public code differs from the paper: a smaller V, sqrt(lam) S outside of gamma_t, no projection, and a lam that
grows with t, for which nothing is proven.

Choices that are ours: rewards in [0, m] with m = 2 sigma, for which 1/2 and 2 in gamma_t become 1/(2m) and 2m (Russac
et al. 2021); for arms of norm up to L the rule is applied to x / L with the norm bound S L, so the default is lam = L^2
d log T; log 3 for T < 3. ``is_sharp=True`` halves the bonus at rounds with ||theta_hat_t|| <= S. The paper's proof
allows this, because theta_t is then theta_hat_t and one of two deviations vanishes; the printed rule does not do it.

Cost per round and lane: one or two passes over the history for theta_hat, O(t d^2), and more where it is projected;
O(K d^2) for the arms. Up to ten dimensions, old observations are expanded (:mod:`windvane.estimation.mle`), and the
cost does not grow with t.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from windvane.arguments import Array
from windvane.kernels.projection import P0_IN_H
from windvane.links import Link, Logistic
from windvane.policies.base import Card
from windvane.policies.glm import GLMPolicy
from windvane.policies.weight_ucb import logarithmic_ridge
from windvane.projection import Projection
from windvane.theory import WeightedSelfConcordantRadius


class LogisticUCB1(GLMPolicy):
    """Logistic-UCB-1 (Faury et al. 2020). Pass ``horizon`` or ``lam``; ``lam=None`` is L^2 d log T.

    Parameters
    ----------
    lam
        Regularisation of the paper: V starts as (lam / c_mu) I. Default: L^2 d log T.
    is_sharp
        Whether the bonus is halved at rounds in which theta_hat is in the ball.
    """

    horizon: int | None = None
    lam: float | None = None
    is_sharp: bool = False
    example = "dim=2, horizon=1000"
    name = "Logistic-UCB-1"
    card = Card("generalized linear", "none", "T", "c_mu^(-1/2) d T^(1/2), theta* fixed", "faury2020", "O((K + t) d^2)")
    links: ClassVar[tuple[type[Link], ...]] = (Logistic,)

    def recommend_lam(self) -> float:
        return self.L**2 * logarithmic_ridge(self.dim, self.horizon)

    def choose_lam(self) -> float:
        return self.given_lam() / self.constants.c_mu  # V starts at kappa lam I, and the ridge is lam

    def carry_settings(self, scale: float, S: float | None) -> dict[str, Any]:
        return {"lam": scale**2 * self.given_lam()}

    def build_radius(self) -> Any:
        return self.build_gamma("pointwise")

    def build_gamma(self, confidence: str) -> WeightedSelfConcordantRadius:
        """Return gamma_t(delta), or gamma_t(delta / T) if ``confidence`` is "horizon"."""
        k_mu, c_mu = self.constants.k_mu, self.constants.c_mu
        return WeightedSelfConcordantRadius(
            dim=self.dim, gamma=1.0, S=self.S * self.L, L=1.0, lam=self.choose_lam() / self.L**2, sigma=self.sigma,
            delta=self.levels, k_mu=k_mu, c_mu=c_mu, confidence=confidence, horizon=self.horizon,
        )  # fmt: skip

    def choose_factor(self) -> float:
        return self.constants.k_mu * math.sqrt((4.0 + 8.0 * self.S * self.L) / self.constants.c_mu)

    def compute_beta(self, theta_hat: Array) -> Array:
        return np.asarray(self.radius(self.rounds_since_restart))

    def project(self, beta: Array) -> Projection:
        return self.estimator.project(P0_IN_H)

    def estimate(self) -> tuple[Array, Array]:
        theta_hat = self.estimator.solve()
        gamma = self.compute_beta(theta_hat)
        projection = self.project(gamma)
        factors = self.bonus_factors * np.where(self.is_sharp & (projection.stage == 1), 0.5, 1.0)
        return self.record(theta_hat, gamma, factors * gamma, projection)
