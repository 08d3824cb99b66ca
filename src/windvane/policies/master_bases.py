"""The stationary policies that MASTER runs: OFUL and GLM-UCB with radii of their own, telling how optimistic they were.

Which formulas these are, and what of them is uncertain: :mod:`windvane.policies.master`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from windvane._validation import Array
from windvane.arms import ArmSet
from windvane.links import Link
from windvane.policies.base import Index, Policy
from windvane.policies.glm_ucb import GLMUCB
from windvane.policies.oful import OFUL


class _Valued(Policy):
    """A base policy, of one lane, that tells the optimistic value of its last decision."""

    optimistic: float

    def _play(self, scores: Array, valid: npt.NDArray[np.bool_], means: Array | None = None) -> Index:
        self.optimistic = float(scores[valid].max())
        return super()._play(scores, valid, means)

    def _play_from(self, arm_set: ArmSet, theta: Array, factor: Array, *, sandwich: bool = False) -> Array:
        played = super()._play_from(arm_set, theta, factor, sandwich=sandwich)
        arms = played[:, None, :]
        self.optimistic = float((self._means(arms, theta) + factor[:, None] * self._widths(arms)).item())
        return played


class BaseOFUL(_Valued, OFUL):
    """Ridge with the bonus 2 beta ||x||_{V^-1}, beta = 4 sqrt(d log(T/delta)), for rewards in [0, 2 sigma]."""

    name = "base of MASTER-OFUL"

    def __init__(self, dim: int, *, horizon: int, **settings: Any) -> None:
        super().__init__(dim, **settings)
        self.base_beta = 4.0 * math.sqrt(dim * math.log(horizon / self.delta.item()))

    def radius(self) -> Array:
        return np.full(self.lanes, 4.0 * self.sigma * self.base_beta)


class BaseGLMUCB(_Valued, GLMUCB):
    """GLM-UCB with the bonus 2 beta ||x||_{V^-1}, beta = 4 R_mu (sqrt(d log(c_mu T/(lam delta))) + c_mu sqrt(lam))."""

    name = "base of MASTER-GLM-UCB"

    def __init__(self, dim: int, link: str | Link = "logistic", *, horizon: int, **settings: Any) -> None:
        super().__init__(dim, link, **settings)
        c_mu, lam = self.constants.c_mu, self.estimator.lam
        growth = math.log(max(1.0, c_mu * horizon / (lam * self.delta.item())))
        self.base_beta = 4.0 * self.constants.R_mu * (math.sqrt(dim * growth) + c_mu * math.sqrt(lam))

    def factor(self) -> float:
        return 4.0 * self.sigma

    def _radius(self, theta_hat: Array) -> Array:
        return np.full(self.lanes, self.base_beta)
