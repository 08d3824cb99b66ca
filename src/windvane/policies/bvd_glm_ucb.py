"""BVD-GLM-UCB: optimism for generalized linear bandits under parameter drift.

Faury, Russac, Abeille and Calauzenes, "Regret bounds for generalized linear bandits under parameter drift" (2021),
Algorithm 1.

At round t, with discounted weights gamma^(t-1-s) on the past,

    theta_hat_t   = the root of g_t(theta) = b_t                          (weighted maximum likelihood)
    theta_tilde_t = a solution of P2 for theta_hat_t                      (Step 1: back to the ball ||theta|| <= S)
    bonus_t(x)    = 2 R_mu beta_t(delta) ||x||_{V_t^-1}                   (Step 2)
    x_t           = argmax over the arms of mu(<x, theta_tilde_t>) + bonus_t(x)

===============  ====================  ===================================================================
symbol           here                  meaning
===============  ====================  ===================================================================
gamma            ``gamma``             discount; from ``horizon`` and ``drift`` (B_T) when not given
theta hat        ``theta_hat``         the discounted estimate, may lie outside the ball
theta tilde      ``theta_tilde``       its projection, what predictions are made with
V, V tilde, b    ``V, V_tilde, b``     see :mod:`windvane.estimation`
beta_t(delta)    ``beta(t)``           confidence radius, :class:`windvane.theory.Radius`
R_mu             ``constants.R_mu``    k_mu / c_mu over ||theta|| <= S, ||x|| <= L
lambda           ``lam``               regularisation (the likelihood is penalised by lam c_mu ||theta||^2 / 2)
sigma            ``sigma``             rewards lie in [0, 2 sigma]
===============  ====================  ===================================================================

Guarantee (Theorem 1): with high probability regret of order R_mu d^{2/3} B_T^{1/3} T^{2/3} for orthogonal arm sets, and
R_mu d^{9/10} B_T^{1/5} T^{4/5} in general, at the discount of the same name. What it does not cover: the printed
radius holds at each fixed round, not at all rounds at once (beta_t stays bounded while the noise does not tire); a
proof for the whole run needs ``confidence="horizon"`` or ``"anytime"``. ``bonus_scale`` other than 1, several or
weighted observations a round, and rewards that arrive late are outside the theorem.

Cost per round and lane: one or two passes over the remembered history, O(n d^2), for theta_hat; about four more when
theta_hat lies outside the ball; O(K d^2) for the arms. n is at most ``memory``, about log(1/tolerance)/(1 - gamma).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy.typing as npt

from windvane.arguments import check_lanes
from windvane.estimation import DiscountedEstimator
from windvane.links import Link
from windvane.policies._tuning import choose_discount, settings_of_confidence
from windvane.policies.base import Card
from windvane.policies.glm_index import GLMIndex


class BVDGLMUCB(GLMIndex):
    """BVD-GLM-UCB (Algorithm 1). Give ``gamma``, or ``horizon`` and ``drift`` for the recommended one."""

    name = "BVD-GLM-UCB"
    card = Card(
        "generalized linear",
        "discount",
        "T, B_T",
        "R_mu d^(2/3) B^(1/3) T^(2/3), orthogonal arms; R_mu d^(9/10) B^(1/5) T^(4/5)",
        "Faury et al. 2021",
        "O((K + memory) d^2)",
    )
    program: ClassVar[str] = "P2"  # Step 1: theta_tilde_t

    def __init__(
        self,
        dim: int,
        link: str | Link = "logistic",
        *,
        gamma: npt.ArrayLike | None = None,
        horizon: int | None = None,
        drift: npt.ArrayLike | None = None,
        discount: str = "orthogonal",
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
        gamma = choose_discount(gamma, horizon, drift, discount, dim, len(ids))
        estimator = DiscountedEstimator(dim, link, gamma=gamma, S=S, L=L, lam=lam, lanes=len(ids), tolerance=tolerance)
        form = settings_of_confidence(confidence, horizon)
        self._assemble(estimator, ids, seed=seed, sigma=sigma, delta=delta, bonus_scale=bonus_scale, **form)
        self.beta = self._plain_radius(confidence, horizon)  # beta_t(delta)

    def factor(self) -> float:
        """Step 2: bonus_t(x) = 2 R_mu beta_t(delta) ||x||_{V_t^-1}."""
        return 2.0 * self.constants.R_mu
