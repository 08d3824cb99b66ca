"""D-LinUCB: discounted optimism for linear bandits.

Russac, Vernade and Cappe, "Weighted linear bandits for non-stationary environments" (NeurIPS 2019).

    theta_hat_t = V_t^-1 b_t                                             (discounted ridge regression)
    x_t         = argmax over the arms of <x, theta_hat_t> + beta_t(delta) ||x||_{V_t^-1 V_tilde_t V_t^-1}

with beta_t(delta) = sqrt(lam) S + sigma sqrt(2 log(1/delta) + d log(1 + L^2 (1-gamma^{2t}) / (lam d (1-gamma^2)))),
:class:`windvane.theory.Radius` with c_mu = 1. V_tilde has its own recursion with gamma^2. Public code that updates it
from V computes something else.

Guarantee: regret of order d^{2/3} B_T^{1/3} T^{2/3} for linear rewards with orthogonal arms at gamma =
1 - (B_T/(dT))^{2/3}. For general arms the published proof has a gap (Faury et al. 2021, Touati and Vincent 2020). There
is no guarantee for generalized linear rewards.
"""

from __future__ import annotations

from typing import ClassVar

from windvane.policies.base import Card
from windvane.policies.forgetting import DiscountedPolicy
from windvane.policies.optimism import LinearPolicy

GUARANTEE = "d^(2/3) B^(1/3) T^(2/3), orthogonal arms"


class DLinUCB(LinearPolicy, DiscountedPolicy):
    """D-LinUCB (Russac et al. 2019). Give ``gamma``, or ``horizon`` and ``drift`` for the recommended discount."""

    confidence: str = "pointwise"
    name = "D-LinUCB"
    card = Card("linear", "discount", "T, B_T", GUARANTEE, "Russac et al. 2019", "O((K + d) d^2)")
    is_sandwich: ClassVar[bool] = True
