"""BVD-GLM-UCB: optimism for generalized linear bandits under parameter drift.

Faury, Russac, Abeille and Calauzenes, "A technical note on non-stationary parametric bandits: existing mistakes and
preliminary solutions" (2021), Algorithm 1.

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
from typing import Any, ClassVar

import numpy.typing as npt

from windvane._validation import Array, lane_identities
from windvane.arms import ArmSet
from windvane.estimation import DiscountedEstimator
from windvane.links import Link
from windvane.policies.base import Index, Policy, choose_discount, level_per_lane
from windvane.projection import LaneProjections, project
from windvane.theory import Radius


class BVDGLMUCB(Policy):
    """BVD-GLM-UCB (Algorithm 1). Give ``gamma``, or ``horizon`` and ``drift`` for the recommended one."""

    name = "BVD-GLM-UCB"
    program: ClassVar[str] = "P2"

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
        ids = lane_identities(lanes)
        discounts = choose_discount(gamma, horizon, drift, discount, dim, len(ids))
        estimator = DiscountedEstimator(
            dim, link, gamma=discounts, S=S, L=L, lam=lam, lanes=len(ids), tolerance=tolerance
        )
        self.constants = estimator.constants
        delta = level_per_lane(delta, len(ids))
        self.beta = Radius(
            dim=dim,
            gamma=discounts,
            S=S,
            L=L,
            lam=lam,
            sigma=sigma,
            delta=delta,
            c_mu=self.constants.c_mu,
            confidence=confidence,
            horizon=horizon,
        )
        settings: dict[str, Any] = {"confidence": confidence, "horizon": horizon if confidence == "horizon" else None}
        self._begin(estimator, ids, seed=seed, sigma=sigma, delta=delta, bonus_scale=bonus_scale, **settings)

    def select(self, arms: npt.ArrayLike, valid: npt.ArrayLike | None = None) -> Index:
        arms, present = self._checked_arms(arms, valid)
        beta = self.beta(self.local_t)
        theta_tilde = self._step_1(beta)
        bonus = self._step_2(beta)[:, None] * self._widths(arms)
        return self._play(self._means(arms, theta_tilde) + bonus, present)

    def select_from(self, arm_set: ArmSet) -> Array:
        arm_set = self._checked_set(arm_set)
        beta = self.beta(self.local_t)
        return self._play_from(arm_set, self._step_1(beta), self._step_2(beta))

    def _step_1(self, beta: Array) -> Array:
        """theta_hat_t, the root of g_t(theta) = b_t, and from it the admissible theta_tilde_t, a solution of P2."""
        theta_hat = self.estimator.solve()
        projected = self._project(theta_hat, beta)
        self.last = {
            "theta_hat": theta_hat.copy(),
            "theta_tilde": projected.theta,
            "beta": beta,
            "stage": projected.stage,
            "value": projected.value,
            "residual": projected.residual,
        }
        return projected.theta

    def _step_2(self, beta: Array) -> Array:
        """2 R_mu beta_t(delta): what ||x||_{V_t^-1} is multiplied by in the exploration bonus."""
        return 2.0 * self.constants.R_mu * self.bonus_scale * beta

    def _project(self, theta_hat: Array, beta: Array) -> LaneProjections:
        return project(self.estimator, self.program, theta_hat, beta, self.estimator.S)

    @property
    def theta_tilde(self) -> Array:
        """The admissible parameter that a decision made now would use."""
        return self._project(self.theta_hat, self.beta(self.local_t)).theta
