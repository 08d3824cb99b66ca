"""Policies for generalized linear rewards: their common classes, and a table of their parts.

At round t, the reward of round s < t has weight w_s, and

    theta_hat_t   = the root of g_t(theta) = b_t                            (weighted maximum likelihood)
    theta_tilde_t = theta_hat_t, or its projection if it is outside the ball ||theta|| <= S             (Step 1)
    x_t           = argmax over the arms of mu(<x, theta_tilde_t>) + bonus_scale factor beta_t ||x||_{V_t^-1}   (Step 2)

==============  ======================  =================  ======================  =====================================
policy          weight w_s              projection         factor                  beta_t
==============  ======================  =================  ======================  =====================================
GLM-UCB         1                       P0 in V^-1         2 R_mu                  Radius, gamma = 1
BVD-GLM-UCB     gamma^(t-1-s)           P2                 2 R_mu                  Radius
SW-BVD-GLM-UCB  1 in the last w rounds  P2                 2 R_mu                  Radius, window
D-GLUCB         gamma^(t-1-s)           P0 in V_tilde^-1   2 R_mu                  Radius
SW-GLUCB        1 in the last w rounds  P0 in V_tilde^-1   2 R_mu                  Radius, window
RestartGLB      1 since the restart     none               R_mu                    Radius, gamma = 1, t from the restart
GLB-WeightUCB   gamma^(t-1-s)           P0 in V^-1         2 R_mu                  Radius, lam = d / c_mu^2
SCB-WeightUCB   gamma^(t-1-s)           P0 in H^-1(theta)  2 sqrt(1 + 2 S) k_mu /  WeightedSelfConcordantRadius
                                                           sqrt(c_mu)
SC-D-GLUCB      gamma^(t-1-s)           none               1 / sqrt(c_mu)          SelfConcordantRadius
SC-SW-GLUCB     1 in the last w rounds  none               1 / sqrt(c_mu)          SelfConcordantRadius, window
OnePassGLM      gamma^(t-1-s)           none               k_mu / sqrt(c_mu)       Radius; V and theta_hat by one pass
==============  ======================  =================  ======================  =====================================

The radii are in :mod:`windvane.theory`. With a window, V_tilde = V. For a ball or a sphere the best arm is known in
closed form up to a one-dimensional search (:mod:`windvane.arms`).
"""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar

from windvane.estimation import Estimator, MaximumLikelihoodEstimator
from windvane.links import Link
from windvane.policies.optimism import EstimatingPolicy, OptimisticPolicy


class LinkPolicy(EstimatingPolicy):
    """A policy for generalized linear rewards."""

    link: str | Link = field(default="logistic", kw_only=False)


class LikelihoodPolicy(LinkPolicy):
    """A policy for generalized linear rewards with a maximum-likelihood estimate."""

    tolerance: float = 1e-6

    estimator: MaximumLikelihoodEstimator = field(init=False)
    estimator_type: ClassVar[type[Estimator]] = MaximumLikelihoodEstimator


class GLMPolicy(LikelihoodPolicy, OptimisticPolicy):
    """An optimistic policy for generalized linear rewards with a maximum-likelihood estimate."""

    def choose_factor(self) -> float:
        """Return 2 R_mu, the factor of beta ||x|| in the bonus."""
        return 2.0 * self.constants.R_mu
