"""RestartGLB: a stationary generalized linear bandit that starts anew every H rounds.

Zhao, Zhang, Jiang and Zhou, "A simple approach for non-stationary linear bandits" (AISTATS 2020), its generalized
linear extension.

    theta_hat_t = the root of g_t(theta) = b_t over the rounds since the last restart t_0, not projected
    x_t         = argmax over the arms of mu(<x, theta_hat_t>) + R_mu beta_t ||x||_{V_t^-1}
    beta_t      = sqrt(lam) c_mu S + sigma sqrt(2 log(1/delta) + d log(1 + (t - t_0) L^2 / (lam d)))
    H           = floor((d T / B_T)^{2/3})

Guarantee: regret of order d^{2/3} B_T^{1/3} T^{2/3} is claimed, but Faury et al. (2021) show the proof flawed: it
uses theta_hat as if it were admissible, and under drift it need not be. Keep it as the baseline that it is.

What is uncertain: that the extension uses the same H as RestartUCB, and the sqrt(lam) c_mu S of the radius, are taken
from a description of the paper, not from the paper itself.

Cost per round and lane: one or two passes over the rounds since the restart, at most O(H d^2); O(K d^2) for the arms.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy.typing as npt

from windvane.arguments import Array, check_lanes
from windvane.estimation import DiscountedEstimator
from windvane.links import Link
from windvane.policies._tuning import told_or_tuned
from windvane.policies.base import Card
from windvane.policies.glm_index import GLMIndex
from windvane.theory import window_length


class RestartGLB(GLMIndex):
    """RestartGLB (Zhao et al. 2020). Give ``restart_every``, or ``horizon`` and ``drift`` for the recommended one."""

    name = "RestartGLB"
    card = Card("generalized linear", "restarts", "T, B_T", "none (flawed proof)", "Zhao et al. 2020", "O((K + H) d^2)")
    program = "none"

    def __init__(
        self,
        dim: int,
        link: str | Link = "logistic",
        *,
        restart_every: npt.ArrayLike | None = None,
        horizon: int | None = None,
        drift: npt.ArrayLike | None = None,
        S: float = 1.0,
        L: float = 1.0,
        lam: float = 1.0,
        sigma: float = 0.5,
        delta: npt.ArrayLike = 0.05,
        bonus_scale: npt.ArrayLike = 1.0,
        tolerance: float = 1e-6,
        lanes: int | Sequence[int] = 1,
        seed: int = 0,
    ) -> None:
        ids = check_lanes(lanes)
        H = told_or_tuned(
            "restart_every",
            restart_every,
            lambda T, B: window_length(horizon=T, drift=B, dim=dim),
            horizon,
            drift,
            len(ids),
        )
        estimator = DiscountedEstimator(dim, link, S=S, L=L, lam=lam, lanes=len(ids), tolerance=tolerance)
        self._assemble(estimator, ids, seed=seed, sigma=sigma, delta=delta, bonus_scale=bonus_scale, restart_every=H)
        self.beta = self._plain_radius()

    def factor(self) -> float:
        return self.constants.R_mu

    def _radius(self, theta_hat: Array) -> Array:
        """t - t_0 rounds have passed since the restart."""
        return self.beta(self.local_t - 1.0)
