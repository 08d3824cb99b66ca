"""Policies for generalized linear rewards: their common classes.

At round t, the reward of round s < t has weight w_s, and

    theta_hat_t   = the root of g_t(theta) = b_t                            (weighted maximum likelihood)
    theta_tilde_t = theta_hat_t, or its projection if it is outside the ball ||theta|| <= S             (Step 1)
    x_t           = argmax over the arms of mu(<x, theta_tilde_t>) + bonus_scale factor beta_t ||x||_{V_t^-1}   (Step 2)

The policies differ in the weights, the projection, the factor (2 R_mu unless stated otherwise) and the radius beta_t
(:class:`windvane.theory.Radius` unless stated otherwise). For a ball or a sphere the best arm is known in closed form
up to a one-dimensional search (:mod:`windvane.arms`).
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
