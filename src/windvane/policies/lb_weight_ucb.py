"""LB-WeightUCB: D-LinUCB with a simpler norm, and a better proof.

Wang, Zhao and Zhou, "Revisiting weighted strategy for non-stationary parametric bandits" (AISTATS 2023).

    theta_hat_t = V_t^-1 b_t                                             (discounted ridge regression)
    x_t         = argmax over the arms of <x, theta_hat_t> + beta_t ||x||_{V_t^-1}
    gamma       = 1 - max(1/T, sqrt(B_T / (d T))),   lam = d

with beta_t the radius of :mod:`windvane.policies.d_lin_ucb`. V_tilde is not needed: ||x|| in V^-1 V_tilde V^-1 is never
larger than in V^-1, so that at equal settings the bonus here is the wider one.

Guarantee: regret of order d^{3/4} B_T^{1/4} T^{3/4} for linear rewards with arms of any kind. The radius as printed
covers one fixed round, as for D-LinUCB. None for generalized linear rewards.

What is uncertain: nothing in the rule. The clip of gamma to at least 1/2 is ours.

Cost per round and lane: O((K + d) d^2). No history is kept.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy.typing as npt

from windvane.arguments import check_lanes
from windvane.policies._tuning import told_or_tuned
from windvane.policies.base import Card
from windvane.policies.d_lin_ucb import DLinUCB
from windvane.theory import weight_discount


class LBWeightUCB(DLinUCB):
    """LB-WeightUCB (Wang et al. 2023). Give ``gamma``, or ``horizon`` and ``drift``; ``lam=None`` is the paper's d."""

    name = "LB-WeightUCB"
    card = Card("linear", "discount", "T, B_T", "d^(3/4) B^(1/4) T^(3/4)", "Wang et al. 2023", "O((K + d) d^2)")
    sandwich = False

    def __init__(
        self,
        dim: int,
        *,
        gamma: npt.ArrayLike | None = None,
        horizon: int | None = None,
        drift: npt.ArrayLike | None = None,
        S: float = 1.0,
        L: float = 1.0,
        lam: float | None = None,
        sigma: float = 0.5,
        delta: npt.ArrayLike = 0.05,
        confidence: str = "pointwise",
        bonus_scale: npt.ArrayLike = 1.0,
        lanes: int | Sequence[int] = 1,
        seed: int = 0,
    ) -> None:
        super().__init__(
            dim,
            gamma=told_or_tuned(
                "gamma",
                gamma,
                lambda T, B: weight_discount(horizon=T, drift=B, dim=dim),
                horizon,
                drift,
                len(check_lanes(lanes)),
            ),
            horizon=horizon,
            S=S,
            L=L,
            lam=dim if lam is None else lam,
            sigma=sigma,
            delta=delta,
            confidence=confidence,
            bonus_scale=bonus_scale,
            lanes=lanes,
            seed=seed,
        )
