"""D-LinUCB: discounted optimism for linear bandits.

Russac, Vernade and Cappe, "Weighted linear bandits for non-stationary environments" (NeurIPS 2019).

    theta_hat_t = V_t^-1 b_t                                             (discounted ridge regression)
    x_t         = argmax over the arms of <x, theta_hat_t> + beta_t(delta) ||x||_{V_t^-1 V_tilde_t V_t^-1}

with beta_t(delta) = sqrt(lam) S + sigma sqrt(2 log(1/delta) + d log(1 + L^2 (1-gamma^{2t}) / (lam d (1-gamma^2)))),
:class:`windvane.theory.Radius` with c_mu = 1. V_tilde follows its own recursion with gamma^2; public code that updates
it from V instead computes something else.

Guarantee: regret of order d^{2/3} B_T^{1/3} T^{2/3} for linear rewards with orthogonal arms at gamma =
1 - (B_T/(dT))^{2/3} (for general arms the published proof has a gap; Faury et al. 2021, Touati and Vincent 2020). None
for generalized linear rewards.

Cost per round and lane: O((K + d) d^2). No history is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy.typing as npt

from windvane.arguments import Array, check_lanes
from windvane.policies._tuning import choose_discount, settings_of_confidence
from windvane.policies.base import Card
from windvane.policies.linear import LinearUCB


class DLinUCB(LinearUCB):
    """D-LinUCB (Russac et al. 2019). Give ``gamma``, or ``horizon`` and ``drift`` for the recommended one."""

    name = "D-LinUCB"
    card = Card(
        "linear",
        "discount",
        "T, B_T",
        "d^(2/3) B^(1/3) T^(2/3), orthogonal arms",
        "Russac et al. 2019",
        "O((K + d) d^2)",
    )
    sandwich: ClassVar[bool] = True

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
        super().__init__(
            dim,
            gamma=choose_discount(gamma, horizon, drift, discount, dim, len(check_lanes(lanes))),
            S=S,
            L=L,
            lam=lam,
            sigma=sigma,
            delta=delta,
            bonus_scale=bonus_scale,
            lanes=lanes,
            seed=seed,
            **settings_of_confidence(confidence, horizon),
        )
        self.beta = self._discounted_radius(confidence, horizon)

    def radius(self) -> Array:
        """beta_t(delta) of the coming decision, per lane."""
        return self.beta(self.local_t)
