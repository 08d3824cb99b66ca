"""D-GLUCB and SW-GLUCB: generalized linear bandits whose parameter changes abruptly.

Russac, Cappe and Garivier, "Algorithms for non-stationary generalized linear bandits" (2020).

    theta_hat_t   = the root of g_t(theta) = b_t                         (discounted, or over the last w rounds)
    theta_tilde_t = argmin over ||theta|| <= S of ||g_t(theta) - b_t|| in the metric V_tilde_t^-1
    x_t           = argmax over the arms of mu(<x, theta_tilde_t>) + 2 R_mu beta_t ||x||_{V_t^-1}
    gamma         = 1 - (Gamma_T / (d T))^{2/3},     w = floor((d T / Gamma_T)^{2/3})

Gamma_T is the number of abrupt changes (``switches``). Gamma_T = 0 gives gamma = 1 and w = T.

What is uncertain: the exact radius. We could not read it in the paper and use the beta_t of BVD-GLM-UCB
(:class:`windvane.theory.Radius`, with min(t, w) for a window), which has the form that the paper's summary describes.
The rule for w is 1 / (1 - gamma) with the recommended gamma.

Guarantee: the authors prove regret of order d^{2/3} Gamma_T^{1/3} T^{2/3} for abrupt changes and general arms (we could
not read the dependence on k_mu and c_mu). The proof does not cover a drifting parameter. Faury et al. (2021) show that
it does not extend directly: under drift, theta_hat can leave the ball because of the drift, and this projection treats
that as noise.

Cost per round and lane: as BVD-GLM-UCB. The projection is slightly cheaper, because it uses one metric.
"""

from __future__ import annotations

from windvane.arguments import Array
from windvane.policies.base import Card
from windvane.policies.forgetting import DiscountSettings, SwitchSettings, WindowSettings
from windvane.policies.glm import GLMPolicy
from windvane.projection import Projection, project_p0_in_V_tilde
from windvane.theory import discount, window_length

_GUARANTEE = "d^(2/3) Gamma^(1/3) T^(2/3), abrupt changes"


class DGLUCB(GLMPolicy, DiscountSettings, SwitchSettings):
    """D-GLUCB (Russac et al. 2020). Give ``gamma``, or ``horizon`` and ``switches`` for the recommended discount.

    Parameters
    ----------
    confidence
        As for :class:`windvane.policies.BVDGLMUCB`.

    Examples
    --------
    >>> DGLUCB(dim=2, gamma=0.99).select([[[1.0, 0.0]]])
    array([0])
    """

    confidence: str = "pointwise"

    name = "D-GLUCB"
    card = Card("generalized linear", "discount", "T, Gamma_T", _GUARANTEE, "Russac et al. 2020", "O((K + memory) d^2)")

    def __post_init__(self) -> None:
        super().__post_init__()
        rule = self.tune_discount(lambda T, n: discount(horizon=T, drift=n, dim=self.dim), by="switches")
        self.estimator = self.build_estimator(rule)
        self.radius = self.build_radius(self.confidence, self.horizon)
        self.bonus_factors = self.bonus_scales * (2.0 * self.constants.R_mu)

    def project(self, beta: Array) -> Projection:
        """Project by P0 in the metric V_tilde^-1."""
        return project_p0_in_V_tilde(self.estimator)


class SWGLUCB(GLMPolicy, WindowSettings, SwitchSettings):
    """SW-GLUCB (Russac et al. 2020). Give ``window``, or ``horizon`` and ``switches`` for the recommended window.

    Parameters
    ----------
    confidence
        As for :class:`windvane.policies.BVDGLMUCB`.

    Examples
    --------
    >>> SWGLUCB(dim=2, window=100).select([[[1.0, 0.0]]])
    array([0])
    """

    confidence: str = "pointwise"

    name = "SW-GLUCB"
    card = Card("generalized linear", "window", "T, Gamma_T", _GUARANTEE, "Russac et al. 2020", "O((K + window) d^2)")

    def __post_init__(self) -> None:
        super().__post_init__()
        rule = self.tune_window(lambda T, n: window_length(horizon=T, drift=n, dim=self.dim), by="switches")
        self.estimator = self.build_estimator(rule)
        self.radius = self.build_radius(self.confidence, self.horizon)
        self.bonus_factors = self.bonus_scales * (2.0 * self.constants.R_mu)

    def project(self, beta: Array) -> Projection:
        """Project by P0 in the metric V_tilde^-1, which equals V^-1 for a window."""
        return project_p0_in_V_tilde(self.estimator)
