"""GLB-WeightUCB and SCB-WeightUCB: discounted generalized linear bandits with a simpler projection, and a better proof.

Wang, Zhao and Zhou, "Revisiting weighted strategy for non-stationary parametric bandits" (AISTATS 2023). theta_hat_t is
the root of g_t(theta) = b_t, as in BVD-GLM-UCB; theta_tilde_t = theta_hat_t where ||theta_hat_t|| <= S, and else

    GLB:  argmin over the ball of ||g_t(theta) - b_t|| in the metric V_t^-1                                       (P0)
          bonus 2 R_mu beta_t ||x||_{V_t^-1}, beta_t that of BVD-GLM-UCB; lam = d / c_mu^2
          gamma = 1 - max(1/T, sqrt(k_mu c_mu P_T / (d T)))
    SCB:  argmin over the ball of ||g_t(theta) - b_t|| in the metric H_t(theta)^-1   (:mod:`windvane.local_projection`)
          bonus 2 sqrt(1 + 2S) (k_mu / sqrt(c_mu)) beta_t ||x||_{V_t^-1}, with
          beta_t = sqrt(lam c_mu) S + sqrt(lam c_mu)/(2m) + (2m / sqrt(lam c_mu)) (log(1/delta) + d log 2)
                   + (d m / sqrt(lam c_mu)) log(1 + L^2 k_mu (1-gamma^{2t}) / (lam c_mu d (1-gamma^2)))
          lam = d log T / c_mu, gamma = 1 - max(1/T, sqrt(k_mu P_T / (d T)))

P_T is B_T (``drift``), and m = 2 sigma the range of rewards. Given ``gamma`` alone, SCB needs ``horizon`` for lam, or
``lam``.

Guarantee: for GLB regret of order k_mu^{5/4} c_mu^{-3/4} d^{3/4} P_T^{1/4} T^{3/4} for arms of any kind (better than
the T^{4/5} of BVD-GLM-UCB; not its T^{2/3} for orthogonal ones); for SCB the same order in d, P_T and T, with a
dependence on c_mu that is meant to be better and that we could not read. As for BVD-GLM-UCB the radius as printed
covers one fixed round. SCB rests on |mu''| <= mu' (logistic, Poisson, identity; not probit) and on bounded rewards; its
1 + 2S is right for ||x|| <= 1, and is used as printed for other L.

What is uncertain: nothing in the rules as given here, but we had them from a summary; the clip of gamma to at least 1/2
is ours, and so is log T for T < 3, taken as log 3. The projection of SCB is not convex: a stationary point is returned,
with its value and residual.

Cost per round and lane: as BVD-GLM-UCB for GLB. The projection of SCB runs in Python, some hundred microseconds in each
lane whose theta_hat lies outside the ball; at its own lam that is rare.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy.typing as npt

from windvane.arguments import check_discount, check_lanes, check_whole
from windvane.estimation import DiscountedEstimator
from windvane.links import Link, get_link
from windvane.policies._tuning import settings_of_confidence, told_or_tuned
from windvane.policies.base import Card
from windvane.policies.glm_index import GLMIndex
from windvane.theory import WeightedSelfConcordantRadius, weight_discount


class GLBWeightUCB(GLMIndex):
    """GLB-WeightUCB (Wang et al. 2023). Give ``gamma``, or ``horizon`` and ``drift``; ``lam=None`` is d / c_mu^2."""

    name = "GLB-WeightUCB"
    card = Card(
        "generalized linear",
        "discount",
        "T, B_T",
        "k_mu^(5/4) c_mu^(-3/4) d^(3/4) B^(1/4) T^(3/4)",
        "Wang et al. 2023",
        "O((K + memory) d^2)",
    )
    program = "P0"

    def __init__(
        self,
        dim: int,
        link: str | Link = "logistic",
        *,
        gamma: npt.ArrayLike | None = None,
        horizon: int | None = None,
        drift: npt.ArrayLike | None = None,
        S: float = 1.0,
        L: float = 1.0,
        lam: float | None = None,
        sigma: float = 0.5,
        delta: npt.ArrayLike = 0.05,
        confidence: str = "pointwise",
        bonus_scale: npt.ArrayLike = 1.0,
        tolerance: float = 1e-6,
        lanes: int | Sequence[int] = 1,
        seed: int = 0,
    ) -> None:
        ids, constants = check_lanes(lanes), get_link(link).constants(S, L)
        curvature = constants.k_mu * constants.c_mu
        tuned = told_or_tuned(
            "gamma",
            gamma,
            lambda T, P: weight_discount(horizon=T, drift=P, dim=dim, curvature=curvature),
            horizon,
            drift,
            len(ids),
        )
        estimator = DiscountedEstimator(
            dim,
            link,
            gamma=check_discount(tuned, len(ids)),
            S=S,
            L=L,
            lam=check_whole("dim", dim, 1) / constants.c_mu**2 if lam is None else lam,
            lanes=len(ids),
            tolerance=tolerance,
        )
        form = settings_of_confidence(confidence, horizon)
        self._assemble(estimator, ids, seed=seed, sigma=sigma, delta=delta, bonus_scale=bonus_scale, **form)
        self.beta = self._plain_radius(confidence, horizon)


class SCBWeightUCB(GLMIndex):
    """SCB-WeightUCB (Wang et al. 2023). Give ``horizon`` and ``drift``; or ``gamma`` and ``horizon`` or ``lam``."""

    name = "SCB-WeightUCB"
    card = Card(
        "generalized linear",
        "discount",
        "T, B_T",
        "d^(3/4) B^(1/4) T^(3/4), self-concordant",
        "Wang et al. 2023",
        "O((K + memory) d^2)",
    )
    program = "P0 in H"

    def __init__(
        self,
        dim: int,
        link: str | Link = "logistic",
        *,
        gamma: npt.ArrayLike | None = None,
        horizon: int | None = None,
        drift: npt.ArrayLike | None = None,
        S: float = 1.0,
        L: float = 1.0,
        lam: float | None = None,
        sigma: float = 0.5,
        delta: npt.ArrayLike = 0.05,
        confidence: str = "pointwise",
        bonus_scale: npt.ArrayLike = 1.0,
        tolerance: float = 1e-6,
        lanes: int | Sequence[int] = 1,
        seed: int = 0,
    ) -> None:
        ids, constants = check_lanes(lanes), get_link(link).constants(S, L)
        tuned = told_or_tuned(
            "gamma",
            gamma,
            lambda T, P: weight_discount(horizon=T, drift=P, dim=dim, curvature=constants.k_mu),
            horizon,
            drift,
            len(ids),
        )
        discounts = check_discount(tuned, len(ids))
        lam = logarithmic_ridge(dim, horizon) / constants.c_mu if lam is None else lam
        estimator = DiscountedEstimator(
            dim, link, gamma=discounts, S=S, L=L, lam=lam, lanes=len(ids), tolerance=tolerance
        )
        form = settings_of_confidence(confidence, horizon)
        self._assemble(estimator, ids, seed=seed, sigma=sigma, delta=delta, bonus_scale=bonus_scale, **form)
        self.beta = WeightedSelfConcordantRadius(
            dim=dim,
            gamma=discounts,
            S=S,
            L=L,
            lam=lam,
            sigma=sigma,
            delta=self.delta,
            k_mu=constants.k_mu,
            c_mu=constants.c_mu,
            confidence=confidence,
            horizon=horizon,
        )

    def factor(self) -> float:
        k = self.constants
        return 2.0 * math.sqrt(1.0 + 2.0 * self.estimator.S) * k.k_mu / math.sqrt(k.c_mu)


def logarithmic_ridge(dim: int, horizon: int | None) -> float:
    """d log T, the ridge that the self-concordant analyses recommend (T < 3 counts as 3)."""
    if horizon is None:
        raise ValueError("lam=None: give lam, or the horizon that it is taken from")
    return check_whole("dim", dim, 1) * math.log(max(3, check_whole("horizon", horizon, 1)))
