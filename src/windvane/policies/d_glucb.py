"""D-GLUCB and SW-GLUCB: generalized linear bandits whose parameter changes abruptly.

Russac, Cappe and Garivier, "Algorithms for non-stationary generalized linear bandits" (2020).

    theta_hat_t   = the root of g_t(theta) = b_t                         (discounted, or on the last w rounds)
    theta_tilde_t = argmin over ||theta|| <= S of ||g_t(theta) - b_t|| in the metric V_tilde_t^-1
    x_t           = argmax over the arms of mu(<x, theta_tilde_t>) + 2 R_mu beta_t ||x||_{V_t^-1}
    gamma         = 1 - (Gamma_T / (d T))^{2/3},     w = floor((d T / Gamma_T)^{2/3})

with Gamma_T the number of abrupt changes (``switches``); Gamma_T = 0 gives gamma = 1 and w = T.

What is uncertain: the exact radius. We could not read it in the paper, and use the beta_t of BVD-GLM-UCB
(:class:`windvane.theory.Radius`, with min(t, w) in a window), which has the form the paper's summary describes. The
window rule is the discount's 1 / (1 - gamma).

Guarantee: the authors prove regret of order d^{2/3} Gamma_T^{1/3} T^{2/3} for abrupt changes and arms of any kind (the
dependence on k_mu and c_mu we could not read). It does not cover a parameter that drifts, and Faury et al. (2021) show
that the analysis cannot simply be carried over to one: there theta_hat may leave the ball because of the drift, which
this projection takes for noise.

Cost per round and lane: as BVD-GLM-UCB; the projection is a little cheaper, having one metric.
"""

from __future__ import annotations

import numpy.typing as npt

from windvane.arguments import Array
from windvane.estimation import Discount, Never, Window
from windvane.policies.base import Card
from windvane.policies.forgetting import choose_discount, choose_window
from windvane.policies.glm import GLMPolicy
from windvane.projection import LaneProjections, project_p0_in_V_tilde
from windvane.theory import discount, window_length

_GUARANTEE = "d^(2/3) Gamma^(1/3) T^(2/3), abrupt changes"


class DGLUCB(GLMPolicy):
    """D-GLUCB (Russac et al. 2020). Give ``gamma``, or ``horizon`` and ``switches`` for the recommended one.

    Parameters
    ----------
    forgetting
        ``Discount(gamma)`` or ``Never()``; or one of the shorthands below.
    gamma
        Discount in (0, 1], one number or one per lane.
    horizon, switches
        Rounds T and number of abrupt changes Gamma_T, from which the recommended discount follows.
    confidence
        As for :class:`windvane.policies.BVDGLMUCB`.

    Examples
    --------
    >>> DGLUCB(dim=2, gamma=0.99).select([[[1.0, 0.0]]])
    array([0])
    """

    forgetting: Discount | Never | None = None
    gamma: npt.ArrayLike | None = None
    horizon: int | None = None
    switches: npt.ArrayLike | None = None
    confidence: str = "pointwise"

    name = "D-GLUCB"
    card = Card("generalized linear", "discount", "T, Gamma_T", _GUARANTEE, "Russac et al. 2020", "O((K + memory) d^2)")

    def __post_init__(self) -> None:
        super().__post_init__()
        rule = choose_discount(self, lambda T, n: discount(horizon=T, drift=n, dim=self.dim), by="switches")
        self.estimator = self.build_estimator(rule)
        self.radius = self.build_radius(self.confidence, self.horizon)
        self.bonus_factors = self.bonus_scales * (2.0 * self.constants.R_mu)

    def project(self, beta: Array) -> LaneProjections:
        """Project by P0 in the metric V_tilde^-1."""
        return project_p0_in_V_tilde(self.estimator)


class SWGLUCB(GLMPolicy):
    """SW-GLUCB (Russac et al. 2020). Give ``window``, or ``horizon`` and ``switches`` for the recommended one.

    Parameters
    ----------
    forgetting
        ``Window(length)``; or one of the shorthands below.
    window
        Rounds, one number or one per lane.
    horizon, switches
        Rounds T and number of abrupt changes Gamma_T, from which the recommended window follows.
    confidence
        As for :class:`windvane.policies.BVDGLMUCB`.

    Examples
    --------
    >>> SWGLUCB(dim=2, window=100).select([[[1.0, 0.0]]])
    array([0])
    """

    forgetting: Window | None = None
    window: npt.ArrayLike | None = None
    horizon: int | None = None
    switches: npt.ArrayLike | None = None
    confidence: str = "pointwise"

    name = "SW-GLUCB"
    card = Card("generalized linear", "window", "T, Gamma_T", _GUARANTEE, "Russac et al. 2020", "O((K + window) d^2)")

    def __post_init__(self) -> None:
        super().__post_init__()
        rule = choose_window(self, lambda T, n: window_length(horizon=T, drift=n, dim=self.dim), by="switches")
        self.estimator = self.build_estimator(rule)
        self.radius = self.build_radius(self.confidence, self.horizon)
        self.bonus_factors = self.bonus_scales * (2.0 * self.constants.R_mu)

    def project(self, beta: Array) -> LaneProjections:
        """Project by P0 in the metric V_tilde^-1, which is V^-1 in a window."""
        return project_p0_in_V_tilde(self.estimator)
