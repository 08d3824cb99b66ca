"""D-LinTS: Thompson sampling for linear bandits with a discount.

Kim and Tewari, "Randomized exploration for non-stationary stochastic linear bandits" (UAI 2020).

    theta_hat_t   = V_t^-1 b_t                                           (discounted ridge regression)
    theta_tilde_t = theta_hat_t + V_t^-1 V_tilde_t^(1/2) Z_t,            Z_t ~ N(0, a^2 I)
    x_t           = argmax over the arms of <x, theta_tilde_t>

``posterior_scale`` is a. The authors use a = 1 in their experiments. Every root of V_tilde gives the same distribution;
we use the Cholesky factor. gamma is that of :mod:`windvane.policies.d_lin_ucb`, as in the authors' public code (which,
unlike this policy, plays at random in the first d rounds).

Guarantee: for linear rewards and an a of the order of a confidence radius, regret with one more logarithm of the number
of arms than the best possible order. a = 1 is outside the theorem. There is no guarantee for generalized linear
rewards.

What is uncertain: the a of the theorem and the exact order, which we could not read.

Cost per round and lane: O(K d + d^3), less than with a bonus. No history is stored.
"""

from __future__ import annotations

import numpy as np

from windvane.arguments import Array
from windvane.kernels.sampling import spread_lanes
from windvane.policies.base import Card
from windvane.policies.forgetting import DiscountedPolicy
from windvane.policies.sampling import SamplingPolicy


class DLinTS(SamplingPolicy, DiscountedPolicy):
    """D-LinTS (Kim and Tewari 2020). Give ``gamma``, or ``horizon`` and ``drift`` for the recommended discount.

    Examples
    --------
    >>> DLinTS(dim=2, gamma=0.99).select([[[1.0, 0.0]]])
    array([0])
    """

    name = "D-LinTS"
    card = Card("linear", "discount", "T, B_T", "none at a = 1", "Kim and Tewari 2020", "O(K d + d^3)")

    def spread(self, theta_hat: Array, z: Array) -> Array:
        """Return V^-1 V_tilde^(1/2) z."""
        steps = np.empty(z.shape)
        spread_lanes(self.estimator.V.copy(), self.estimator.V_tilde.copy(), z, steps)
        return steps
