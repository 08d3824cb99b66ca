"""SW-LinUCB: optimism for linear bandits with a sliding window.

Cheung, Simchi-Levi and Zhu, "Learning to optimize under non-stationarity" (AISTATS 2019).

    theta_hat_t = V_t^-1 b_t, over the last w rounds                     (ridge regression)
    x_t         = argmax over the arms of <x, theta_hat_t> + beta ||x||_{V_t^-1}
    beta        = sqrt(lam) S + sigma sqrt(d log((1 + w L^2 / lam) / delta))
    w           = floor((d T / B_T)^(2/3)), or floor((d T)^(2/3)) if B_T is unknown

Guarantee: the paper claims regret of order d^{2/3} B_T^{1/3} T^{2/3} for linear rewards. After an error in the analysis
was found (Touati and Vincent 2020), d^{7/8} B_T^{1/4} T^{3/4} remains in general, and the claimed order for orthogonal
arms (Faury et al. 2021). beta holds at any fixed round with probability 1 - delta. For all rounds at once use
``confidence="horizon"`` or ``"anytime"``. There is no guarantee for generalized linear rewards.

What is uncertain: nothing in the rule. w is the one for the claimed order; it was not tuned again for the corrected
order.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array
from windvane.estimation import Forgetting, Window
from windvane.policies.base import Card
from windvane.policies.forgetting import WindowSettings
from windvane.policies.optimism import LinearPolicy
from windvane.theory import ConfidenceLevel

GUARANTEE = "d^(2/3) B^(1/3) T^(2/3), orthogonal arms"


class SWLinUCB(LinearPolicy, WindowSettings):
    """SW-LinUCB (Cheung et al. 2019). Give ``window``, or ``horizon`` and, if it is known, ``drift``."""

    drift: npt.ArrayLike | None = None
    confidence: str = "pointwise"
    name = "SW-LinUCB"
    card = Card("linear", "window", "T, B_T", GUARANTEE, "Cheung et al. 2019", "O((K + d) d^2)")

    def choose_forgetting(self) -> Forgetting:
        """Return the given rule, the one of the given window, or the recommended one."""
        if self.forgetting is None and self.window is None and self.drift is None and self.horizon is not None:
            return Window.tuned(horizon=self.horizon, drift=None, dim=self.dim)
        return super().choose_forgetting()

    def build_radius(self) -> ConfidenceLevel:
        """Return the part of the radius that can depend on the round."""
        self.log_growth = np.log1p(self.estimator.record["window"] * self.estimator.L**2 / self.estimator.lam)
        return ConfidenceLevel(self.levels, self.confidence, self.horizon)

    def compute_beta(self, theta_hat: Array) -> Array:
        """Return the radius of the next decision, [lanes]."""
        e = self.estimator
        log_term = self.log_growth + self.radius.log_inverse(self.rounds_since_restart)
        return np.asarray(math.sqrt(e.lam) * e.S + self.sigma * np.sqrt(e.dim * log_term))
