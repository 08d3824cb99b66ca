"""The base policies of MASTER: OFUL and GLM-UCB with their own radii.

:mod:`windvane.policies.master` gives the formulas and says what is uncertain about them.
"""

from __future__ import annotations

import math

import numpy as np

from windvane.arguments import Array, check_whole
from windvane.policies.glm_ucb import GLMUCB
from windvane.policies.oful import OFUL
from windvane.policies.wrapping import choose_reward_range

SMALLEST = 5e-324  # the smallest positive double, whose logarithm is finite


def log_quotient(a: float, b: float) -> float:
    """Return log(a / b), even if a / b overflows."""
    quotient = a / b if b > 0.0 else math.inf
    return math.log(quotient) if math.isfinite(quotient) else math.log(a) - math.log(max(b, SMALLEST))


class BaseOFUL(OFUL):
    """OFUL with the bonus 2 beta ||x||_{V^-1} times the width of the range of rewards.

    beta = 4 sqrt(d log(T/delta)).

    Parameters
    ----------
    horizon
        Number of rounds T.
    reward_range
        Width of the range of rewards. Default: 2 sigma, and at least 1.
    """

    horizon: int
    reward_range: float | None = None

    name = "base of MASTER-OFUL"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.width_of_rewards = choose_reward_range(self.reward_link, self.noise_scale, self.reward_range)
        self.base_beta = 4.0 * math.sqrt(self.dim * log_quotient(self.horizon, self.levels.item()))

    def compute_beta(self, theta_hat: Array) -> Array:
        """Return 2 beta times the width of the range of rewards."""
        return np.full(self.lane_count, 2.0 * self.width_of_rewards * self.base_beta)


class BaseGLMUCB(GLMUCB):
    """GLM-UCB with the bonus 2 beta ||x||_{V^-1} times the width of the range of rewards.

    beta = 4 R_mu (sqrt(d log(c_mu T/(lam delta))) + c_mu sqrt(lam)). The logarithm is replaced by 0 if it is negative,
    which happens with a large lam.

    Parameters
    ----------
    reward_range
        Width of the range of rewards. Default: 2 sigma, and at least 1 with the identity link.
    """

    reward_range: float | None = None

    name = "base of MASTER-GLM-UCB"

    def __post_init__(self) -> None:
        super().__post_init__()
        horizon = check_whole("horizon", self.horizon, 1)
        self.width_of_rewards = choose_reward_range(self.reward_link, self.noise_scale, self.reward_range)
        c_mu, lam = self.constants.c_mu, self.estimator.lam
        growth = max(0.0, log_quotient(c_mu * horizon, lam * self.levels.item()))
        self.base_beta = 4.0 * self.constants.R_mu * (math.sqrt(self.dim * growth) + c_mu * math.sqrt(lam))
        self.bonus_factors = self.bonus_scales * (2.0 * self.width_of_rewards)

    def compute_beta(self, theta_hat: Array) -> Array:
        """Return beta, which does not depend on the round."""
        return np.full(self.lane_count, self.base_beta)


Base = BaseOFUL | BaseGLMUCB
