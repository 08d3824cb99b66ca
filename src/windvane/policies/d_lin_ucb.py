"""D-LinUCB: discounted optimism for linear bandits.

Russac, Vernade and Cappe, "Weighted linear bandits for non-stationary environments" (NeurIPS 2019).

    theta_hat_t = V_t^-1 b_t                                             (discounted ridge regression)
    x_t         = argmax over the arms of <x, theta_hat_t> + beta_t(delta) ||x||_{V_t^-1 V_tilde_t V_t^-1}

with beta_t(delta) = sqrt(lam) S + sigma sqrt(2 log(1/delta) + d log(1 + L^2 (1-gamma^{2t}) / (lam d (1-gamma^2)))),
:class:`windvane.theory.Radius` with c_mu = 1. V_tilde follows its own recursion with gamma^2; public code that updates
it from V instead computes something else.

Guarantee: regret of order d^{2/3} B_T^{1/3} T^{2/3} for linear rewards with orthogonal arms at gamma =
1 - (B_T/(dT))^{2/3} (for general arms the published proof has a gap; Faury et al. 2021, Touati and Vincent 2020). None
for generalized linear rewards, where the model is misspecified. Rewards: any finite number; sigma is the noise's
sub-Gaussian scale (1/2 for rewards in [0, 1]).

Cost per round and lane: O((K + d) d^2). No history is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy.typing as npt

from windvane._validation import Array, lane_identities
from windvane.arms import ArmSet
from windvane.estimation import DiscountedEstimator
from windvane.policies.base import Index, Policy, choose_discount, level_per_lane
from windvane.theory import Radius


class DLinUCB(Policy):
    """D-LinUCB (Russac et al. 2019). Give ``gamma``, or ``horizon`` and ``drift`` for the recommended one."""

    name = "D-LinUCB"
    sandwich = True  # widths in the metric V^-1 V_tilde V^-1

    def __init__(
        self,
        dim: int,
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
        lanes: int | Sequence[int] = 1,
        seed: int = 0,
    ) -> None:
        ids = lane_identities(lanes)
        discounts = choose_discount(gamma, horizon, drift, discount, dim, len(ids))
        estimator = DiscountedEstimator(
            dim, "identity", gamma=discounts, S=S, L=L, lam=lam, lanes=len(ids), remember=False
        )
        delta = level_per_lane(delta, len(ids))
        self.beta = Radius(
            dim=dim,
            gamma=discounts,
            S=S,
            L=L,
            lam=lam,
            sigma=sigma,
            delta=delta,
            c_mu=1.0,
            confidence=confidence,
            horizon=horizon,
        )
        settings: dict[str, Any] = {"confidence": confidence, "horizon": horizon if confidence == "horizon" else None}
        self._begin(estimator, ids, seed=seed, sigma=sigma, delta=delta, bonus_scale=bonus_scale, **settings)

    def select(self, arms: npt.ArrayLike, valid: npt.ArrayLike | None = None) -> Index:
        arms, present = self._checked_arms(arms, valid)
        theta_hat, beta = self._estimate()
        bonus = (self.bonus_scale * beta)[:, None] * self._widths(arms, sandwich=self.sandwich)
        return self._play(self._means(arms, theta_hat) + bonus, present)

    def select_from(self, arm_set: ArmSet) -> Array:
        arm_set = self._checked_set(arm_set)
        theta_hat, beta = self._estimate()
        return self._play_from(arm_set, theta_hat, self.bonus_scale * beta, sandwich=self.sandwich)

    def _estimate(self) -> tuple[Array, Array]:
        theta_hat, beta = self.estimator.solve(), self.radius()
        self.last = {"theta_hat": theta_hat.copy(), "theta_tilde": theta_hat.copy(), "beta": beta}
        return theta_hat, beta

    def radius(self) -> Array:
        """beta_t(delta) of the coming decision, per lane."""
        return self.beta(self.local_t)

    @property
    def theta_tilde(self) -> Array:
        """theta_hat itself: a linear model is used as estimated."""
        return self.theta_hat
