"""Policies for generalized linear rewards: their base classes, GLM-UCB, SW-BVD-GLM-UCB and OnePassGLM.

At round t, the reward of round s < t has weight w_s, and

    theta_hat_t   = the root of g_t(theta) = b_t                            (weighted maximum likelihood)
    theta_tilde_t = theta_hat_t, or its projection if it is outside the ball ||theta|| <= S             (Step 1)
    x_t           = argmax over the arms of mu(<x, theta_tilde_t>) + bonus_scale factor beta_t ||x||_{V_t^-1}   (Step 2)

The policies differ in the weights, the projection, the factor (2 R_mu unless stated otherwise) and the radius beta_t
(:class:`windvane.theory.Radius` unless stated otherwise). For a ball or a sphere the best arm is known in closed form
up to a one-dimensional search (:mod:`windvane.arms`).

GLM-UCB (Filippi, Cappe, Garivier and Szepesvari, "Parametric bandits: the generalized linear case", NeurIPS 2010), in
the form that Faury et al. (2021) use as a baseline: w_s = 1, and theta_tilde_t is the argmin over ||theta|| <= S of
||g_t(theta) - b_t|| in the metric V_t^-1 (P0). Guarantee: regret of order R_mu d sqrt(T), up to logarithms, if theta*
is constant. There is no guarantee under drift: the policy never forgets, so its confidence sets become wrong.

SW-BVD-GLM-UCB: Faury, Russac, Abeille and Calauzenes (2021) state that the sliding-window form of their algorithm
follows easily. This is Algorithm 1 (:mod:`windvane.policies.bvd_glm_ucb`) with weight 1 for the last w rounds and 0 for
earlier ones, so V_tilde = V, and

    beta_t(delta) = sqrt(lam) c_mu S + sigma sqrt(2 log(1/delta) + d log(1 + L^2 min(t, w) / (lam d)))
    w             = floor((d T / B_T)^{2/3})              (``arm_geometry="orthogonal"``)
    w             = floor((sqrt(d) T / B_T)^{2/5})        (``arm_geometry="general"``)

Guarantee: none is printed. By the paper's remark the orders of Theorem 1 should hold here too. We have not proven it.
What is uncertain: everything but the weights, which the paper leaves to the reader. Removing observations invalidates
the linearisation of the estimator, so a round takes about one pass more than with a discount of equal memory.

OnePassGLM, an algorithm of our own, costs the same in every round. With H_t and theta_t of
:mod:`windvane.estimation.one_pass` (each observation becomes a quadratic once, and the quadratics are discounted),

    x_t = argmax over the arms of mu(<x, theta_t>) + (k_mu / sqrt(c_mu)) beta_t(delta) ||x||_{H_t^-1}

H_t = sum gamma^(t-1-s) s_s x_s x_s' + lam c_mu I with slopes s_s of at least c_mu, so H_t is at least c_mu V_t with the
V_t of BVD-GLM-UCB. With the beta_t of BVD-GLM-UCB the bonus is then at most R_mu beta_t ||x||_{V_t^-1}, which is half
of the bonus of that policy: there is no projection to account for.

Guarantee: none. Nothing is proven about this policy. Its ingredients are known: ECOLog (Faury et al. 2022), GLB-OMD
(Zhang et al. 2025) and DOMD-GLB (Lee and Oh 2026, with a discount) use online mirror descent in the metric of the
running Hessian, and regret bounds are proven for them. OnePassGLM differs from them: its step minimises the new loss
itself, not a quadratic at theta_t; its step size is 1; it has no projection, no warm-up and no set of admissible
parameters; and its radius is that of BVD-GLM-UCB, which does not account for the loss of information in one pass. We
know only the general form of those papers and claim none of their names.

Late rewards enter with the weight of their age, but are linearised at the current parameter, so the order of rewards
matters. For the identity link it does not, and theta_t is discounted ridge regression.
"""

from __future__ import annotations

import math
from dataclasses import field
from typing import ClassVar

import numpy.typing as npt

from windvane.arguments import Array
from windvane.estimation import Estimator, MaximumLikelihoodEstimator, OnePassEstimator
from windvane.kernels.projection import P0_IN_V, P2
from windvane.links import Link
from windvane.policies.base import Card
from windvane.policies.forgetting import DiscountedPolicy, WindowSettings
from windvane.policies.optimism import EstimatingPolicy, OptimisticPolicy
from windvane.projection import Projection

FIXED = "R_mu d T^(1/2), theta* fixed"


class LikelihoodPolicy(EstimatingPolicy):
    """A policy for generalized linear rewards with a maximum-likelihood estimate."""

    link: str | Link = field(default="logistic", kw_only=False)
    tolerance: float = 1e-6
    estimator: MaximumLikelihoodEstimator = field(init=False)
    estimator_type: ClassVar[type[Estimator]] = MaximumLikelihoodEstimator


class GLMPolicy(LikelihoodPolicy, OptimisticPolicy):
    """An optimistic policy for generalized linear rewards with a maximum-likelihood estimate."""

    def choose_factor(self) -> float:
        return 2.0 * self.constants.R_mu


class GLMUCB(GLMPolicy):
    """GLM-UCB (Filippi et al. 2010): no forgetting, projection P0."""

    horizon: int | None = None
    confidence: str = "pointwise"
    name = "GLM-UCB"
    card = Card("generalized linear", "none", "nothing", FIXED, "filippi2010", "O((K + t) d^2)")

    def project(self, beta: Array) -> Projection:
        return self.estimator.project(P0_IN_V)


class SWBVDGLMUCB(GLMPolicy, WindowSettings):
    """SW-BVD-GLM-UCB. Pass ``window``, or ``horizon`` and ``drift`` for the recommended window."""

    drift: npt.ArrayLike | None = None
    arm_geometry: str = "orthogonal"
    confidence: str = "pointwise"
    name = "SW-BVD-GLM-UCB"
    card = Card("generalized linear", "window", "T, B_T", "none printed", "faury2021", "O((K + window) d^2)")

    def project(self, beta: Array) -> Projection:
        return self.estimator.project(P2, beta)


class OnePassGLM(OptimisticPolicy, DiscountedPolicy):
    """OnePassGLM (ours). Pass ``gamma``, or ``horizon`` and ``drift`` for the discount of BVD-GLM-UCB.

    Parameters
    ----------
    lam
        Regularisation: the metric H starts as lam c_mu I.
    """

    link: str | Link = field(default="logistic", kw_only=False)
    confidence: str = "pointwise"
    estimator: OnePassEstimator = field(init=False)
    estimator_type: ClassVar[type[Estimator]] = OnePassEstimator
    is_one_pass: ClassVar[bool] = True  # with the identity link the order of rewards does not matter all the same
    name = "OnePassGLM"
    card = Card("generalized linear", "discount", "T, B_T", "none", "windvane", "O((K + d) d^2)")

    def choose_factor(self) -> float:
        return self.constants.k_mu / math.sqrt(self.constants.c_mu)
