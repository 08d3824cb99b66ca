"""The stationary policies that MASTER runs: OFUL and GLM-UCB with radii of their own, telling how optimistic they were.

Which formulas these are, and what of them is uncertain: :mod:`windvane.policies.master`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array
from windvane.arms import ArmSet
from windvane.links import Link
from windvane.policies._wrapping import reward_width
from windvane.policies.base import Index, Policy
from windvane.policies.glm_ucb import GLMUCB
from windvane.policies.oful import OFUL


def log_quotient(a: float, b: float) -> float:
    """log(a / b), also where a / b would be too large for a number."""
    quotient = a / b if b > 0.0 else math.inf
    return math.log(quotient) if math.isfinite(quotient) else math.log(a) - math.log(max(b, 5e-324))


class _Valued(Policy):
    """A base policy, of one lane, that tells the optimistic value of its last decision."""

    optimistic: float

    def _play(self, scores: Array, valid: npt.NDArray[np.bool_]) -> Index:
        self.optimistic = float(scores[valid].max())
        return super()._play(scores, valid)

    def _play_from(self, arm_set: ArmSet, theta: Array, factor: Array, *, sandwich: bool = False) -> Array:
        played = super()._play_from(arm_set, theta, factor, sandwich=sandwich)
        arms = played[:, None, :]
        self.optimistic = float((self._means(arms, theta) + factor[:, None] * self._widths(arms)).item())
        return played


class BaseOFUL(_Valued, OFUL):
    """Ridge with the bonus 2 beta ||x||_{V^-1}, beta = 4 sqrt(d log(T/delta)), times the width of rewards' range."""

    name = "base of MASTER-OFUL"

    def __init__(self, dim: int, *, horizon: int, reward_range: float | None = None, **settings: Any) -> None:
        super().__init__(dim, **settings)
        self.reward_range = reward_width(self.link, self.sigma, reward_range)
        self.base_beta = 4.0 * math.sqrt(dim * log_quotient(horizon, self.delta.item()))

    def radius(self) -> Array:
        return np.full(self.lanes, 2.0 * self.reward_range * self.base_beta)


class BaseGLMUCB(_Valued, GLMUCB):
    """GLM-UCB with the bonus 2 beta ||x||_{V^-1}, beta = 4 R_mu (sqrt(d log(c_mu T/(lam delta))) + c_mu sqrt(lam)),
    times the width of rewards' range. The logarithm is taken of 1 at least: with a large lam it would be negative."""

    name = "base of MASTER-GLM-UCB"

    def __init__(
        self,
        dim: int,
        link: str | Link = "logistic",
        *,
        horizon: int,
        reward_range: float | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(dim, link, **settings)
        self.reward_range = reward_width(self.link, self.sigma, reward_range)
        c_mu, lam = self.constants.c_mu, self.estimator.lam
        growth = max(0.0, log_quotient(c_mu * horizon, lam * self.delta.item()))
        self.base_beta = 4.0 * self.constants.R_mu * (math.sqrt(dim * growth) + c_mu * math.sqrt(lam))

    def factor(self) -> float:
        return 2.0 * self.reward_range

    def _radius(self, theta_hat: Array) -> Array:
        return np.full(self.lanes, self.base_beta)
