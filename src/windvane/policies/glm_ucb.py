"""GLM-UCB: optimism for stationary generalized linear bandits.

Filippi, Cappe, Garivier and Szepesvari, "Parametric bandits: the generalized linear case" (NeurIPS 2010), in the form
that Faury et al. (2021) use as a baseline. It is :mod:`windvane.policies.bvd_glm_ucb` with gamma = 1 and with the
projection P0 instead of P2:

    theta_tilde_t = argmin over ||theta|| <= S of ||g_t(theta) - b_t|| in the metric V_t^-1
    x_t           = argmax over the arms of mu(<x, theta_tilde_t>) + 2 R_mu beta_t(delta) ||x||_{V_t^-1}

Guarantee: regret of order R_mu d sqrt(T), up to logarithms, if theta* is constant. There is no guarantee under drift:
the policy never forgets, so its confidence sets become wrong.

Cost per round and lane: as BVD-GLM-UCB, with a history that keeps growing: O(t d^2).
"""

from __future__ import annotations

from windvane.arguments import Array
from windvane.estimation import Never
from windvane.policies.base import Card
from windvane.policies.glm import GLMPolicy
from windvane.projection import Projection, project_p0


class GLMUCB(GLMPolicy):
    """GLM-UCB (Filippi et al. 2010): no forgetting, projection P0.

    Parameters
    ----------
    horizon
        Number of rounds T, required for ``confidence="horizon"``.
    confidence
        As for :class:`windvane.policies.BVDGLMUCB`.

    Examples
    --------
    >>> GLMUCB(dim=2).select([[[1.0, 0.0]]])
    array([0])
    """

    horizon: int | None = None
    confidence: str = "pointwise"

    name = "GLM-UCB"
    card = Card(
        "generalized linear",
        "none",
        "nothing",
        "R_mu d T^(1/2), theta* fixed",
        "Filippi et al. 2010",
        "O((K + t) d^2)",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.estimator = self.build_estimator(Never())
        self.radius = self.build_radius(self.confidence, self.horizon)
        self.bonus_factors = self.bonus_scales * (2.0 * self.constants.R_mu)

    def project(self, beta: Array) -> Projection:
        """Project by P0 in the metric V^-1."""
        return project_p0(self.estimator)
