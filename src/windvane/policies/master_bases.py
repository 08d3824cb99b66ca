"""The base policies of MASTER: OFUL and GLM-UCB with their own radii.

:mod:`windvane.policies.master` gives the formulas and says what is uncertain about them.
"""

from __future__ import annotations

import math

import numpy as np

from windvane.arguments import Array, check_whole
from windvane.policies.glm import GLMUCB
from windvane.policies.linear import OFUL
from windvane.policies.optimism import OptimisticPolicy

SMALLEST = 5e-324  # the smallest positive double, whose logarithm is finite


def log_quotient(a: float, b: float) -> float:
    """Return log(a / b), even if a / b overflows."""
    return math.log(a) - math.log(max(b, SMALLEST))


class MasterBase(OptimisticPolicy):
    """A policy with the bonus 2 beta ||x||_{V^-1} times the width of the range of rewards."""

    horizon: int | None = None
    reward_range: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.width_of_rewards = self.choose_reward_range(self.reward_range)
        self.base_beta = self.compute_base_beta(check_whole("horizon", self.horizon, 1))

    def compute_base_beta(self, horizon: int) -> float:
        """Return beta, which does not depend on the round."""
        raise NotImplementedError

    def choose_factor(self) -> float:
        """Return 1: the radius contains all factors."""
        return 1.0

    def compute_beta(self, theta_hat: Array) -> Array:
        """Return 2 beta times the width of the range of rewards."""
        return np.full(self.lane_count, 2.0 * self.width_of_rewards * self.base_beta)


class BaseOFUL(MasterBase, OFUL):
    """OFUL with beta = 4 sqrt(d log(T/delta))."""

    name = "base of MASTER-OFUL"

    def compute_base_beta(self, horizon: int) -> float:
        """Return beta, which does not depend on the round."""
        return 4.0 * math.sqrt(self.dim * log_quotient(horizon, self.levels.item()))


class BaseGLMUCB(MasterBase, GLMUCB):
    """GLM-UCB with beta = 4 R_mu (sqrt(d log(c_mu T/(lam delta))) + c_mu sqrt(lam)).

    The logarithm is replaced by 0 if it is negative, which happens with a large lam.
    """

    name = "base of MASTER-GLM-UCB"

    def compute_base_beta(self, horizon: int) -> float:
        """Return beta, which does not depend on the round."""
        c_mu, lam = self.constants.c_mu, self.estimator.lam
        growth = max(0.0, log_quotient(c_mu * horizon, lam * self.levels.item()))
        return 4.0 * self.constants.R_mu * (math.sqrt(self.dim * growth) + c_mu * math.sqrt(lam))
