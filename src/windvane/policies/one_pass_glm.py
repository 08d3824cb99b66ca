"""OnePassGLM: a discounted generalized linear bandit at constant cost (our own).

At round t, with V_t, b_t and theta_t of :mod:`windvane.estimation.one_pass` (a sum of quadratics, one for each observation, each
made once and never looked at again, discounted by gamma),

    x_t = argmax over the arms of mu(<x, theta_t>) + (k_mu / sqrt(c_mu)) beta_t(delta) ||x||_{V_t^-1}

V_t holds curvature, sum gamma^(t-1-s) s_s x_s x_s' + lam c_mu I with s_s at least c_mu, so it is at least c_mu times
the V_t of BVD-GLM-UCB. With the beta_t of BVD-GLM-UCB the bonus is then at most R_mu beta_t ||x|| in that policy's
metric, half of its bonus, or less: there is no projection to pay for.

Guarantee: none. Nothing is proven about this policy. What it is made of is known: the step is that of ECOLog (Faury et
al. 2022), GLB-OMD (Zhang et al. 2025) and DOMD-GLB (Lee and Oh 2026, who discount), online mirror descent in the metric
of the running Hessian, for which regret bounds are proven. It differs from them in the step (ours minimises the new
loss itself, they a quadratic at theta_t), in the step size (ours is 1), in having no projection, warm-up or set of
admissible parameters, and in the radius, which is borrowed from BVD-GLM-UCB and does not account for what the one pass
loses. Of those papers we know the general form only; none of their names is claimed here.

Late rewards enter with the weight of their age, but are linearised at the parameter of now, so their order matters; for
the identity link it does not, and theta_t is discounted ridge regression.

Cost per round and lane: O((K + d) d^2) time and O(d^2) memory, whatever t and gamma. No history is kept.
"""

from __future__ import annotations

import math
from dataclasses import field

from windvane.estimation import OnePassEstimator
from windvane.policies.base import Card
from windvane.policies.forgetting import DiscountedPolicy
from windvane.policies.glm import LinkPolicy


class OnePassGLM(LinkPolicy, DiscountedPolicy):
    """OnePassGLM (ours). Give ``gamma``, or ``horizon`` and ``drift`` for the discount of BVD-GLM-UCB.

    Parameters
    ----------
    confidence
        As for :class:`windvane.policies.BVDGLMUCB`.

    Examples
    --------
    >>> OnePassGLM(dim=2, gamma=0.99).select([[[1.0, 0.0]]])
    array([0])
    """

    confidence: str = "pointwise"

    estimator: OnePassEstimator = field(init=False)

    name = "OnePassGLM"
    card = Card("generalized linear", "discount", "T, B_T", "none", "windvane", "O((K + d) d^2)")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.estimator = OnePassEstimator(
            self.dim,
            self.link,
            forgetting=self.choose_discount(),
            S=self.S,
            L=self.L,
            lam=self.choose_lam(),
            lanes=self.lane_count,
        )
        self.radius = self.build_radius(self.confidence, self.horizon)
        self.bonus_factors = self.bonus_scales * (self.constants.k_mu / math.sqrt(self.constants.c_mu))
