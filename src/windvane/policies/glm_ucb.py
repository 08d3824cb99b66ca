"""GLM-UCB: optimism for stationary generalized linear bandits.

Filippi, Cappe, Garivier and Szepesvari, "Parametric bandits: the generalized linear case" (NeurIPS 2010), in the form
that Faury et al. (2021) use as a baseline. It is :mod:`windvane.policies.bvd_glm_ucb` with gamma = 1 and with the
projection P0 instead of P2:

    theta_tilde_t = argmin over ||theta|| <= S of ||g_t(theta) - b_t|| in the metric V_t^-1
    x_t           = argmax over the arms of mu(<x, theta_tilde_t>) + 2 R_mu beta_t(delta) ||x||_{V_t^-1}

Guarantee: regret of order R_mu d sqrt(T), up to logarithms, if theta* is constant. There is no guarantee under drift:
the policy never forgets, so its confidence sets become wrong.
"""

from __future__ import annotations

from windvane.arguments import Array
from windvane.policies.base import Card
from windvane.policies.glm import GLMPolicy
from windvane.projection import LaneProjections, project_p0

GUARANTEE = "R_mu d T^(1/2), theta* fixed"


class GLMUCB(GLMPolicy):
    """GLM-UCB (Filippi et al. 2010): no forgetting, projection P0."""

    horizon: int | None = None
    confidence: str = "pointwise"
    name = "GLM-UCB"
    card = Card("generalized linear", "none", "nothing", GUARANTEE, "Filippi et al. 2010", "O((K + t) d^2)")

    def project(self, beta: Array) -> LaneProjections:
        """Project by P0 in the metric V^-1."""
        return project_p0(self.estimator)
