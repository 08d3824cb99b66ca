"""LB-WeightUCB: D-LinUCB with a simpler norm and a better bound.

Wang, Zhao and Zhou, "Revisiting weighted strategy for non-stationary parametric bandits" (AISTATS 2023).

    theta_hat_t = V_t^-1 b_t                                             (discounted ridge regression)
    x_t         = argmax over the arms of <x, theta_hat_t> + beta_t ||x||_{V_t^-1}
    gamma       = 1 - max(1/T, sqrt(B_T / (d T))),   lam = d

with the radius beta_t of :mod:`windvane.policies.d_lin_ucb`. V_tilde is not needed. ||x|| in V^-1 V_tilde V^-1 is never
larger than in V^-1, so with equal settings this bonus is at least as wide as that of D-LinUCB.

Guarantee: regret of order d^{3/4} B_T^{1/4} T^{3/4} for linear rewards with general arms. The printed radius holds at
any fixed round, as for D-LinUCB. There is no guarantee for generalized linear rewards.

What is uncertain: nothing in the rule. The lower bound 1/2 on gamma is ours.

Cost per round and lane: O((K + d) d^2). No history is stored.
"""

from __future__ import annotations

from windvane.policies.base import Card
from windvane.policies.forgetting import DiscountSettings, DriftSettings
from windvane.policies.linear import LinearPolicy, build_ridge
from windvane.theory import weight_discount


class LBWeightUCB(LinearPolicy, DiscountSettings, DriftSettings):
    """LB-WeightUCB (Wang et al. 2023). Give ``gamma``, or ``horizon`` and ``drift``; ``lam=None`` is the paper's d.

    Parameters
    ----------
    confidence
        As for :class:`windvane.policies.BVDGLMUCB`.

    Examples
    --------
    >>> LBWeightUCB(dim=2, gamma=0.99).select([[[1.0, 0.0]]])
    array([0])
    """

    lam: float | None = None
    confidence: str = "pointwise"

    name = "LB-WeightUCB"
    card = Card("linear", "discount", "T, B_T", "d^(3/4) B^(1/4) T^(3/4)", "Wang et al. 2023", "O((K + d) d^2)")

    def __post_init__(self) -> None:
        super().__post_init__()
        rule = self.tune_discount(lambda T, B: weight_discount(horizon=T, drift=B, dim=self.dim))
        self.estimator = build_ridge(self, rule)
        self.radius = self.build_radius(self.confidence, self.horizon)

    def choose_lam(self) -> float:
        """Return the given lam, or d."""
        return float(self.dim) if self.lam is None else super().choose_lam()
