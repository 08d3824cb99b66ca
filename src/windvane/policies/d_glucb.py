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

from collections.abc import Sequence

import numpy.typing as npt

from windvane.arguments import check_discount, check_lanes
from windvane.estimation import DiscountedEstimator
from windvane.links import Link
from windvane.policies._tuning import settings_of_confidence, told_or_tuned
from windvane.policies.base import Card
from windvane.policies.glm_index import GLMIndex
from windvane.theory import discount, window_length

_GUARANTEE = "d^(2/3) Gamma^(1/3) T^(2/3), abrupt changes"


class DGLUCB(GLMIndex):
    """D-GLUCB (Russac et al. 2020). Give ``gamma``, or ``horizon`` and ``switches`` for the recommended one."""

    name = "D-GLUCB"
    card = Card("generalized linear", "discount", "T, Gamma_T", _GUARANTEE, "Russac et al. 2020", "O((K + memory) d^2)")
    program = "P0 in V_tilde"

    def __init__(
        self,
        dim: int,
        link: str | Link = "logistic",
        *,
        gamma: npt.ArrayLike | None = None,
        horizon: int | None = None,
        switches: npt.ArrayLike | None = None,
        S: float = 1.0,
        L: float = 1.0,
        lam: float = 1.0,
        sigma: float = 0.5,
        delta: npt.ArrayLike = 0.05,
        confidence: str = "pointwise",
        bonus_scale: npt.ArrayLike = 1.0,
        tolerance: float = 1e-6,
        lanes: int | Sequence[int] = 1,
        seed: int = 0,
    ) -> None:
        ids = check_lanes(lanes)
        tuned = told_or_tuned(
            "gamma",
            gamma,
            lambda T, n: discount(horizon=T, drift=n, dim=dim),
            horizon,
            switches,
            len(ids),
            by="switches",
        )
        estimator = DiscountedEstimator(
            dim,
            link,
            gamma=check_discount(tuned, len(ids)),
            S=S,
            L=L,
            lam=lam,
            lanes=len(ids),
            tolerance=tolerance,
        )
        form = settings_of_confidence(confidence, horizon)
        self._assemble(estimator, ids, seed=seed, sigma=sigma, delta=delta, bonus_scale=bonus_scale, **form)
        self.beta = self._plain_radius(confidence, horizon)


class SWGLUCB(GLMIndex):
    """SW-GLUCB (Russac et al. 2020). Give ``window``, or ``horizon`` and ``switches`` for the recommended one."""

    name = "SW-GLUCB"
    card = Card("generalized linear", "window", "T, Gamma_T", _GUARANTEE, "Russac et al. 2020", "O((K + window) d^2)")
    program = "P0 in V_tilde"

    def __init__(
        self,
        dim: int,
        link: str | Link = "logistic",
        *,
        window: npt.ArrayLike | None = None,
        horizon: int | None = None,
        switches: npt.ArrayLike | None = None,
        S: float = 1.0,
        L: float = 1.0,
        lam: float = 1.0,
        sigma: float = 0.5,
        delta: npt.ArrayLike = 0.05,
        confidence: str = "pointwise",
        bonus_scale: npt.ArrayLike = 1.0,
        tolerance: float = 1e-6,
        lanes: int | Sequence[int] = 1,
        seed: int = 0,
    ) -> None:
        ids = check_lanes(lanes)
        window = told_or_tuned(
            "window",
            window,
            lambda T, n: window_length(horizon=T, drift=n, dim=dim),
            horizon,
            switches,
            len(ids),
            by="switches",
        )
        estimator = DiscountedEstimator(
            dim, link, window=window, S=S, L=L, lam=lam, lanes=len(ids), tolerance=tolerance
        )
        form = settings_of_confidence(confidence, horizon)
        self._assemble(estimator, ids, seed=seed, sigma=sigma, delta=delta, bonus_scale=bonus_scale, **form)
        self.beta = self._plain_radius(confidence, horizon)
