"""GLB-WeightUCB and SCB-WeightUCB: discounted generalized linear bandits with a simpler projection and a better bound.

Wang, Zhao and Zhou, "Revisiting weighted strategy for non-stationary parametric bandits" (AISTATS 2023). theta_hat_t is
the root of g_t(theta) = b_t, as in BVD-GLM-UCB. theta_tilde_t = theta_hat_t if ||theta_hat_t|| <= S, and otherwise

    GLB:  argmin over the ball of ||g_t(theta) - b_t|| in the metric V_t^-1                                       (P0)
          bonus 2 R_mu beta_t ||x||_{V_t^-1}, beta_t that of BVD-GLM-UCB; lam = d / c_mu^2
          gamma = 1 - max(1/T, sqrt(k_mu c_mu P_T / (d T)))
    SCB:  argmin over the ball of ||g_t(theta) - b_t|| in the metric H_t(theta)^-1   (:mod:`windvane.projection`)
          bonus 2 sqrt(1 + 2S) (k_mu / sqrt(c_mu)) beta_t ||x||_{V_t^-1}, with
          beta_t = sqrt(lam c_mu) S + sqrt(lam c_mu)/(2m) + (2m / sqrt(lam c_mu)) (log(1/delta) + d log 2)
                   + (d m / sqrt(lam c_mu)) log(1 + L^2 k_mu (1-gamma^{2t}) / (lam c_mu d (1-gamma^2)))
          lam = d log T / c_mu, gamma = 1 - max(1/T, sqrt(k_mu P_T / (d T)))

P_T is B_T (``drift``) and m = 2 sigma is the range of rewards. If only ``gamma`` is given, SCB needs ``horizon`` or
``lam``, because the default of lam depends on T.

Guarantee: for GLB, regret of order k_mu^{5/4} c_mu^{-3/4} d^{3/4} P_T^{1/4} T^{3/4} for general arms. This is better
than the T^{4/5} of BVD-GLM-UCB, but not as good as its T^{2/3} for orthogonal arms. For SCB, the same order in d, P_T
and T, with a dependence on c_mu that is claimed to be better and that we could not read. As for BVD-GLM-UCB, the
printed radius holds at any fixed round. SCB requires |mu''| <= mu' (logistic, Poisson, identity; not probit) and
bounded rewards. Its factor 1 + 2S is right for ||x|| <= 1 and is used as printed for other L.

What is uncertain: nothing in the rules as stated here, but we know them from a summary. The lower bound 1/2 on gamma is
ours, and so is the use of log 3 for T < 3. The projection of SCB is not convex: the result is a stationary point, with
its value and residual.

Cost per round and lane: for GLB, as BVD-GLM-UCB. The projection of SCB uses the third derivative of the link, by
differences, and two more passes. With its own lam it is rarely needed.
"""

from __future__ import annotations

import math

from windvane.arguments import Array, check_whole
from windvane.errors import ArgumentError
from windvane.policies.base import Card
from windvane.policies.forgetting import DiscountSettings, DriftSettings
from windvane.policies.glm import GLMPolicy
from windvane.projection import Projection, project_p0, project_p0_in_H
from windvane.theory import WeightedSelfConcordantRadius, weight_discount

SHORTEST = 3  # a smaller horizon counts as 3, so that its logarithm is above 1


class GLBWeightUCB(GLMPolicy, DiscountSettings, DriftSettings):
    """GLB-WeightUCB (Wang et al. 2023). Give ``gamma``, or ``horizon`` and ``drift``; ``lam=None`` is d / c_mu^2.

    Parameters
    ----------
    confidence
        As for :class:`windvane.policies.BVDGLMUCB`.

    Examples
    --------
    >>> GLBWeightUCB(dim=2, gamma=0.99).select([[[1.0, 0.0]]])
    array([0])
    """

    lam: float | None = None
    confidence: str = "pointwise"

    name = "GLB-WeightUCB"
    card = Card(
        "generalized linear",
        "discount",
        "T, B_T",
        "k_mu^(5/4) c_mu^(-3/4) d^(3/4) B^(1/4) T^(3/4)",
        "Wang et al. 2023",
        "O((K + memory) d^2)",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        curvature = self.constants.k_mu * self.constants.c_mu
        self.estimator = self.build_estimator(
            self.tune_discount(lambda T, P: weight_discount(horizon=T, drift=P, dim=self.dim, curvature=curvature))
        )
        self.radius = self.build_radius(self.confidence, self.horizon)
        self.bonus_factors = self.bonus_scales * (2.0 * self.constants.R_mu)

    def choose_lam(self) -> float:
        """Return the given lam, or d / c_mu^2."""
        return self.dim / self.constants.c_mu**2 if self.lam is None else super().choose_lam()

    def project(self, beta: Array) -> Projection:
        """Project by P0 in the metric V^-1."""
        return project_p0(self.estimator)


class SCBWeightUCB(GLMPolicy, DiscountSettings, DriftSettings):
    """SCB-WeightUCB (Wang et al. 2023). Give ``horizon`` and ``drift``; or ``gamma`` and ``horizon`` or ``lam``.

    Parameters
    ----------
    confidence
        As for :class:`windvane.policies.BVDGLMUCB`.

    Examples
    --------
    >>> SCBWeightUCB(dim=2, gamma=0.99, lam=1.0).select([[[1.0, 0.0]]])
    array([0])
    """

    lam: float | None = None
    confidence: str = "pointwise"

    name = "SCB-WeightUCB"
    card = Card(
        "generalized linear",
        "discount",
        "T, B_T",
        "d^(3/4) B^(1/4) T^(3/4), self-concordant",
        "Wang et al. 2023",
        "O((K + memory) d^2)",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        k_mu, c_mu = self.constants.k_mu, self.constants.c_mu
        self.estimator = self.build_estimator(
            self.tune_discount(lambda T, P: weight_discount(horizon=T, drift=P, dim=self.dim, curvature=k_mu))
        )
        self.weighted_radius = WeightedSelfConcordantRadius(
            dim=self.dim,
            gamma=self.estimator.gamma,
            S=self.S,
            L=self.L,
            lam=self.estimator.lam,
            sigma=self.sigma,
            delta=self.levels,
            k_mu=k_mu,
            c_mu=c_mu,
            confidence=self.confidence,
            horizon=self.horizon,
        )
        self.bonus_factors = self.bonus_scales * (2.0 * math.sqrt(1.0 + 2.0 * self.S) * k_mu / math.sqrt(c_mu))

    def choose_lam(self) -> float:
        """Return the given lam, or d log T / c_mu."""
        if self.lam is None:
            return logarithmic_ridge(self.dim, self.horizon) / self.constants.c_mu
        return super().choose_lam()

    def compute_beta(self, theta_hat: Array) -> Array:
        """Return the radius of the next decision, [lanes]."""
        return self.weighted_radius(self.rounds_since_restart)

    def project(self, beta: Array) -> Projection:
        """Project by P0 in the metric H(theta)^-1."""
        return project_p0_in_H(self.estimator)


def logarithmic_ridge(dim: int, horizon: int | None) -> float:
    """Return d log T, the ridge that the self-concordant analyses recommend."""
    if horizon is None:
        raise ArgumentError("lam", None, "given, or `horizon`, from which it follows")
    return dim * math.log(max(SHORTEST, check_whole("horizon", horizon, 1)))
