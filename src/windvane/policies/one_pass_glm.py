"""OnePassGLM: a discounted generalized linear bandit at constant cost. An algorithm of our own.

At round t, with H_t and theta_t of :mod:`windvane.estimation.one_pass` (each observation becomes a quadratic once, and
the quadratics are discounted by gamma),

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

from windvane.estimation import Estimator, OnePassEstimator
from windvane.links import Link
from windvane.policies.base import Card
from windvane.policies.forgetting import DiscountedPolicy
from windvane.policies.optimism import OptimisticPolicy


class OnePassGLM(OptimisticPolicy, DiscountedPolicy):
    """OnePassGLM (ours). Give ``gamma``, or ``horizon`` and ``drift`` for the discount of BVD-GLM-UCB."""

    link: str | Link = field(default="logistic", kw_only=False)
    confidence: str = "pointwise"
    estimator: OnePassEstimator = field(init=False)
    estimator_type: ClassVar[type[Estimator]] = OnePassEstimator
    name = "OnePassGLM"
    card = Card("generalized linear", "discount", "T, B_T", "none", "windvane", "O((K + d) d^2)")

    def choose_factor(self) -> float:
        return self.constants.k_mu / math.sqrt(self.constants.c_mu)
