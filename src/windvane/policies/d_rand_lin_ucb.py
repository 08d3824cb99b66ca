"""D-RandLinUCB: D-LinUCB with a random factor in the bonus.

Kim and Tewari, "Randomized exploration for non-stationary stochastic linear bandits" (UAI 2020).

    theta_hat_t = V_t^-1 b_t                                             (discounted ridge regression)
    Z_t         = 2/5 |N(0, 1)|, one number per round                    (half-normal)
    x_t         = argmax over the arms of <x, theta_hat_t> + Z_t beta_t ||x||_{V_t^-1 V_tilde_t V_t^-1}

with beta_t and gamma as in :mod:`windvane.policies.d_lin_ucb`. The average bonus is a third of that of D-LinUCB.

Guarantee: regret of order d^{7/8} B_T^{1/4} T^{3/4} for linear rewards (as corrected on arXiv; the conference version
claims d^{2/3} B_T^{1/3} T^{2/3}). There is no guarantee for generalized linear rewards.

What is uncertain: the conditions of the theorem on the distribution of Z_t, which we could not read. The half-normal
distribution with 2/5 is that of the authors' experiments and public code. We do not know whether the theorem covers it.
A ``bonus_scale`` other than 1 is not covered.
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

GUARANTEE = "d^(7/8) B^(1/4) T^(3/4), unknown if for the 2/5 law"


class DRandLinUCB(DLinUCB):
    """D-RandLinUCB (Kim and Tewari 2020). Give ``gamma``, or ``horizon`` and ``drift`` for the recommended discount."""

    name = "D-RandLinUCB"
    card = Card("linear", "discount", "T, B_T", GUARANTEE, "Kim and Tewari 2020", "O((K + d) d^2)")
    spread: ClassVar[float] = 0.4  # Z_t is this factor times |N(0, 1)|

    def estimate(self) -> tuple[Array, Array]:
        """Return theta_hat and the factor of ||x|| in the bonus, which is random."""
        theta_hat, multiplier = super().estimate()
        normal = np.empty((self.lane_count, 1))
        draw_normals(self.key, self.lane_ids, self.decisions, normal)
        draw = self.spread * np.abs(normal[:, 0])
        assert self.decision is not None  # made by the estimate of D-LinUCB
        self.decision.draw, self.decision.multiplier = draw, draw * multiplier
        return theta_hat, self.decision.multiplier

    def probabilities(self, arms: npt.ArrayLike, valid: npt.ArrayLike | None = None, *, draws: int = 1000) -> Array:
        """Estimate the probability that ``select`` chooses each arm, [lanes, K]. Nothing changes.

        The distribution of Z_t is replaced by equally likely values, the midpoints of its quantiles. The estimate is
        the share of these values for which an arm is best. Its error is of order 1 / draws.
        """
        from scipy.special import ndtri

        arms, present = self.check_arms(arms, valid)
        draws = check_whole("draws", draws, 1, 10**6)
        theta_hat = self.estimator.theta_hat
        bonus = self.bonus(arms, self.bonus_scales * self.compute_beta(theta_hat))
        z = self.spread * ndtri(0.5 + (np.arange(draws) + 0.5) / (2 * draws))  # half-normal quantiles
        return count_best(self.predict(arms, theta_hat)[:, :, None] + bonus[:, :, None] * z, present)
