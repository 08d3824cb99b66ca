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
import numpy.typing as npt

from windvane.arguments import Array, check_whole
from windvane.kernels.sampling import draw_normals
from windvane.policies.base import Card
from windvane.policies.d_lin_ucb import DLinUCB
from windvane.policies.sampling import count_best


class DRandLinUCB(DLinUCB):
    """D-RandLinUCB (Kim and Tewari 2020). Give ``gamma``, or ``horizon`` and ``drift`` for the recommended one.

    Examples
    --------
    >>> DRandLinUCB(dim=2, gamma=0.99).select([[[1.0, 0.0]]])
    array([0])
    """

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

    def estimate(self) -> tuple[Array, Array]:
        """Return theta_hat and the multiplier of ||x|| in the bonus, which is random."""
        theta_hat, multiplier = super().estimate()
        normal = np.empty((self.lane_count, 1))
        draw_normals(self.key, self.lane_ids, self.decisions, normal)
        draw = self.spread * np.abs(normal[:, 0])
        decision = self.begin_decision() if self.decision is None else self.decision
        decision.draw, decision.multiplier = draw, draw * multiplier
        return theta_hat, decision.multiplier

    def probabilities(self, arms: npt.ArrayLike, valid: npt.ArrayLike | None = None, *, draws: int = 1000) -> Array:
        """Estimate how likely ``select`` is to choose each arm, [lanes, K]: the share of quantiles of Z it wins.

        Z takes ``draws`` equally likely values, the midpoints of its quantiles, so the error is of order 1 / draws.
        """
        arms, present = self.check_arms(arms, valid)
        draws = check_whole("draws", draws, 1, 10**6)
        theta_hat, beta = self.estimator.theta_hat, self.bonus_scales * self.compute_beta()
        from scipy.special import ndtri

        z = self.spread * ndtri(0.5 + (np.arange(draws) + 0.5) / (2 * draws))  # quantiles of the half-normal law
        means = np.einsum("lkd,ld->lk", arms, theta_hat)
        widths = self.width(arms)
        return count_best(means[:, :, None] + (beta[:, None] * widths)[:, :, None] * z, present)
