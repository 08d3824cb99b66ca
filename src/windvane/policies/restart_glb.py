"""RestartGLB: a stationary generalized linear bandit that restarts every H decisions.

Zhao, Zhang, Jiang and Zhou, "A simple approach for non-stationary linear bandits" (AISTATS 2020), its generalized
linear extension.

    theta_hat_t = the root of g_t(theta) = b_t over the rounds since the last restart t_0, not projected
    x_t         = argmax over the arms of mu(<x, theta_hat_t>) + R_mu beta_t ||x||_{V_t^-1}
    beta_t      = sqrt(lam) c_mu S + sigma sqrt(2 log(1/delta) + d log(1 + (t - t_0) L^2 / (lam d)))
    H           = floor((d T / B_T)^{2/3})

Guarantee: none. The authors claim regret of order d^{2/3} B_T^{1/3} T^{2/3}, but Faury et al. (2021) show that the
proof is flawed: it uses theta_hat as if it were admissible, which is not always true under drift. The policy serves as
a baseline.

What is uncertain: whether the extension uses the same H as RestartUCB, and the term sqrt(lam) c_mu S of the radius.
Both are from a description of the paper, not from the paper itself.

Cost per round and lane: one or two passes over the rounds since the restart, at most O(H d^2); O(K d^2) for the arms.
"""

from __future__ import annotations

from windvane.arguments import Array
from windvane.estimation import Never
from windvane.policies.base import Card
from windvane.policies.forgetting import RestartedPolicy
from windvane.policies.glm import GLMPolicy


class RestartGLB(GLMPolicy, RestartedPolicy):
    """RestartGLB (Zhao et al. 2020). Give ``restart_every``, or ``horizon`` and ``drift`` for the recommended period.

    Examples
    --------
    >>> RestartGLB(dim=2, restart_every=100).select([[[1.0, 0.0]]])
    array([0])
    """

    name = "RestartGLB"
    card = Card("generalized linear", "restarts", "T, B_T", "none (flawed proof)", "Zhao et al. 2020", "O((K + H) d^2)")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.estimator = self.build_estimator(Never())
        self.radius = self.build_radius()
        self.bonus_factors = self.bonus_scales * (self.constants.R_mu)

    def compute_beta(self, theta_hat: Array) -> Array:
        """Return the radius after t - t_0 rounds since the restart, [lanes]."""
        return self.radius(self.rounds_since_restart - 1.0)
