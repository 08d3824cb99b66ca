"""D-LinTS: Thompson sampling for linear bandits with a discount.

Kim and Tewari, "Randomized exploration for non-stationary stochastic linear bandits" (UAI 2020).

    theta_hat_t   = V_t^-1 b_t                                           (discounted ridge regression)
    theta_tilde_t = theta_hat_t + V_t^-1 V_tilde_t^(1/2) Z_t,            Z_t ~ N(0, a^2 I)
    x_t           = argmax over the arms of <x, theta_tilde_t>

``bonus_scale`` is a; 1 is what the authors use in their experiments. Any root of V_tilde gives the same law; here it is
the Cholesky factor. gamma as in :mod:`windvane.policies.d_lin_ucb`, as in the authors' public code (which, unlike this,
plays at random in the first d rounds).

Guarantee: for linear rewards and an a of the order of a confidence radius, regret with one more logarithm of the number
of arms than the best possible order. a = 1 is outside the theorem. What is uncertain: the a of the theorem and the
exact order, which we could not read. None for generalized linear rewards.

Cost per round and lane: O((K + d) d^2), less than a bonus costs: one product an arm. No history is kept.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array, check_lanes
from windvane.arms import ArmSet
from windvane.policies._tuning import choose_discount
from windvane.policies.base import Card, Index
from windvane.policies.linear import LinearUCB


class DLinTS(LinearUCB):
    """D-LinTS (Kim and Tewari 2020). Give ``gamma``, or ``horizon`` and ``drift`` for the recommended one."""

    name = "D-LinTS"
    card = Card(
        "linear",
        "discount",
        "T, B_T",
        "none at a = 1",
        "Kim and Tewari 2020",
        "O(K d + d^3)",
    )

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
            delta=1.0,
            bonus_scale=bonus_scale,
            lanes=lanes,
            seed=seed,
        )

    def select(self, arms: npt.ArrayLike, valid: npt.ArrayLike | None = None) -> Index:
        arms, present = self._checked_arms(arms, valid)
        return self._play(self._means(arms, self._sample()), present)

    def select_from(self, arm_set: ArmSet) -> Array:
        arm_set = self._checked_set(arm_set)
        return self._play_from(arm_set, self._sample(), np.zeros(self.lanes))

    def _sample(self) -> Array:
        theta_hat = self.estimator.solve()
        theta_tilde = self._perturbed(theta_hat)
        self.last = {"theta_hat": theta_hat.copy(), "theta_tilde": theta_tilde}
        return theta_tilde

    def _perturbed(self, theta_hat: Array) -> Array:
        """theta_tilde of the coming decision: the same however often it is asked for."""
        z, step = np.empty((2, self.lanes, self.dim))
        self._k.draw_normals(np.uint64(self.seed), self.lane_ids, self._decisions, z)
        self._k.spread_lanes(self.estimator._V, self.estimator._V_tilde, z, step)
        return theta_hat + self.bonus_scale[:, None] * step

    @property
    def theta_tilde(self) -> Array:
        """The perturbed parameter that a decision made now would use."""
        return self._perturbed(self.theta_hat)
