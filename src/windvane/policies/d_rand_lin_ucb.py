"""D-RandLinUCB: D-LinUCB with a bonus of random size.

Kim and Tewari, "Randomized exploration for non-stationary stochastic linear bandits" (UAI 2020).

    theta_hat_t = V_t^-1 b_t                                             (discounted ridge regression)
    Z_t         = 2/5 |N(0, 1)|, one number a round                      (half-normal)
    x_t         = argmax over the arms of <x, theta_hat_t> + Z_t beta_t ||x||_{V_t^-1 V_tilde_t V_t^-1}

with beta_t and gamma as in :mod:`windvane.policies.d_lin_ucb`. On average the bonus is a third of D-LinUCB's.

Guarantee: the order d^{7/8} B_T^{1/4} T^{3/4} for linear rewards (as corrected on arXiv; the conference version claims
d^{2/3} B_T^{1/3} T^{2/3}). What is uncertain: the theorem's conditions on the law of Z_t, which we could not read. The
half-normal law with 2/5 is that of the authors' experiments and of their public code; whether the theorem covers it is
not known to us, nor is ``bonus_scale`` other than 1 covered. None for generalized linear rewards.

Cost per round and lane: O((K + d) d^2). No history is kept.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from windvane.arguments import Array
from windvane.policies.base import Card
from windvane.policies.d_lin_ucb import DLinUCB


class DRandLinUCB(DLinUCB):
    """D-RandLinUCB (Kim and Tewari 2020). Give ``gamma``, or ``horizon`` and ``drift`` for the recommended one."""

    name = "D-RandLinUCB"
    card = Card(
        "linear",
        "discount",
        "T, B_T",
        "d^(7/8) B^(1/4) T^(3/4), unknown if for the 2/5 law",
        "Kim and Tewari 2020",
        "O((K + d) d^2)",
    )
    spread: ClassVar[float] = 0.4  # Z_t is this times the size of a standard normal number

    def _estimate(self) -> tuple[Array, Array]:
        theta_hat, beta = super()._estimate()
        z = np.empty((self.lanes, 1))
        self._k.draw_normals(np.uint64(self.seed), self.lane_ids, self._decisions, z)
        self.last["Z"] = self.spread * np.abs(z[:, 0])
        return theta_hat, self.last["Z"] * beta
