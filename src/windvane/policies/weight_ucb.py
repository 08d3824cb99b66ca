"""LB-WeightUCB, GLB-WeightUCB and SCB-WeightUCB: discounted bandits with a simpler norm or projection.

Wang, Zhao and Zhou, "Revisiting weighted strategy for non-stationary parametric bandits" (AISTATS 2023).

LB-WeightUCB, for linear rewards, is D-LinUCB (:mod:`windvane.policies.linear`) with widths in V_t^-1, lam = d and gamma
= 1 - max(1/T, sqrt(P_T / (d T))). V_tilde is not needed. ||x|| in V^-1 V_tilde V^-1 is never larger than in V^-1, so
with equal settings this bonus is at least as wide as that of D-LinUCB.

For generalized linear rewards, theta_hat_t is the root of g_t(theta) = b_t, as in BVD-GLM-UCB. theta_tilde_t =
theta_hat_t if ||theta_hat_t|| <= S, and otherwise

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

Guarantee: for general arms, regret of order d^{3/4} P_T^{1/4} T^{3/4}, times k_mu^{5/4} c_mu^{-3/4} for GLB; for SCB
with a dependence on c_mu that is claimed to be better and that we could not check. This is better than the T^{4/5} of
BVD-GLM-UCB, but not as good as its T^{2/3} for orthogonal arms. LB has no guarantee for generalized linear rewards. The
printed radii hold at any fixed round. SCB requires |mu''| <= mu' (logistic, Poisson, identity; not probit) and bounded
rewards. Its factor 1 + 2S is right for ||x|| <= 1 and is used as printed for other L.

What is uncertain: nothing in the rules as stated here, but we know those of GLB and SCB from a summary. The lower bound
1/2 on gamma is ours, and so is the use of log 3 for T < 3. The projection of SCB is not convex: the result is a
stationary point, with its value and residual. It uses the third derivative of the link, by finite differences, and two
more passes than the projection of BVD-GLM-UCB; with SCB's own lam it is rarely needed.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array, check_whole
from windvane.errors import ArgumentError
from windvane.kernels.projection import P0_IN_H, P0_IN_V
from windvane.policies.base import Card
from windvane.policies.forgetting import DiscountSettings
from windvane.policies.glm import GLMPolicy
from windvane.policies.linear import LinearPolicy
from windvane.projection import Projection
from windvane.theory import WeightedSelfConcordantRadius, weight_discount

SHORTEST = 3  # a smaller horizon counts as 3, so that its logarithm is above 1
ORDER = "d^(3/4) B^(1/4) T^(3/4)"


class WeightSettings(DiscountSettings):
    """The settings of LB-, GLB- and SCB-WeightUCB. ``lam=None`` selects the value of the paper."""

    drift: npt.ArrayLike | None = None
    lam: float | None = None
    confidence: str = "pointwise"

    def curvature(self) -> float:
        """Return the factor of P_T in the recommended discount."""
        return 1.0

    def recommend(self, horizon: int, amount: float) -> float:
        return weight_discount(horizon=horizon, drift=amount, dim=self.dim, curvature=self.curvature())

    def recommend_lam(self) -> float:
        return float(self.dim)


class LBWeightUCB(WeightSettings, LinearPolicy):
    """LB-WeightUCB (Wang et al. 2023). Pass ``gamma``, or ``horizon`` and ``drift``; ``lam=None`` is the paper's d."""

    name = "LB-WeightUCB"
    card = Card("linear", "discount", "T, B_T", ORDER, "wang2023", "O((K + d) d^2)")


class GLBWeightUCB(WeightSettings, GLMPolicy):
    """GLB-WeightUCB (Wang et al. 2023). Pass ``gamma``, or ``horizon`` and ``drift``; ``lam=None`` is d / c_mu^2."""

    name = "GLB-WeightUCB"
    card = LBWeightUCB.card._replace(
        rewards="generalized linear", guarantee=f"k_mu^(5/4) c_mu^(-3/4) {ORDER}", cost="O((K + memory) d^2)"
    )

    def curvature(self) -> float:
        return self.constants.k_mu * self.constants.c_mu

    def recommend_lam(self) -> float:
        return self.dim / self.constants.c_mu**2

    def project(self, beta: Array) -> Projection:
        return self.estimator.project(P0_IN_V)


class SCBWeightUCB(WeightSettings, GLMPolicy):
    """SCB-WeightUCB (Wang et al. 2023). Pass ``horizon`` and ``drift``; or ``gamma`` and ``horizon`` or ``lam``."""

    example = "dim=2, gamma=0.99, lam=1.0"
    name = "SCB-WeightUCB"
    card = GLBWeightUCB.card._replace(guarantee=f"{ORDER}, self-concordant")

    def curvature(self) -> float:
        return self.constants.k_mu

    def recommend_lam(self) -> float:
        return logarithmic_ridge(self.dim, self.horizon) / self.constants.c_mu

    def build_radius(self) -> WeightedSelfConcordantRadius:
        e, settings = self.estimator, self.pick_settings("dim", "S", "L", "sigma", "confidence", "horizon")
        settings |= {"k_mu": self.constants.k_mu, "c_mu": self.constants.c_mu}
        return WeightedSelfConcordantRadius(gamma=e.gamma, lam=e.lam, delta=self.levels, **settings)

    def choose_factor(self) -> float:
        return 2.0 * math.sqrt(1.0 + 2.0 * self.S) * self.constants.k_mu / math.sqrt(self.constants.c_mu)

    def compute_beta(self, theta_hat: Array) -> Array:
        return np.asarray(self.radius(self.rounds_since_restart))

    def project(self, beta: Array) -> Projection:
        return self.estimator.project(P0_IN_H)


def logarithmic_ridge(dim: int, horizon: int | None) -> float:
    """Return d log T, the ridge that the self-concordant analyses recommend."""
    if horizon is None:
        raise ArgumentError("lam", None, "given, or `horizon`, which determines it")
    return dim * math.log(max(SHORTEST, check_whole("horizon", horizon, 1)))
