"""RestartUCB and RestartGLB: stationary policies that restart every H decisions.

Zhao, Zhang, Jiang and Zhou, "A simple approach for non-stationary linear bandits" (AISTATS 2020), and its generalized
linear extension. With the rewards of the rounds t_0, ..., t - 1 since the last restart,

    RestartUCB:  theta_hat_t = V_t^-1 b_t                                            (ridge regression)
                 x_t         = argmax over the arms of <x, theta_hat_t> + beta_t ||x||_{V_t^-1}
    RestartGLB:  theta_hat_t = the root of g_t(theta) = b_t, not projected
                 x_t         = argmax over the arms of mu(<x, theta_hat_t>) + R_mu beta_t ||x||_{V_t^-1}
    beta_t = sqrt(lam) c_mu S + sigma sqrt(2 log(1/delta) + d log(1 + (t - t_0) L^2 / (lam d))),   c_mu = 1 if linear
    H      = floor((d T / B_T)^(2/3))

Guarantee of RestartUCB: the paper claims regret of order d^{2/3} B_T^{1/3} T^{2/3} for linear rewards. After an error
in the analysis was found (Touati and Vincent 2020), d^{7/8} B_T^{1/4} T^{3/4} remains in general, and the claimed
order, for which H is tuned, for orthogonal arms (Faury et al. 2021). beta_t holds at all rounds between two restarts at
once. To cover a whole run, divide delta by the number of restarts. Generalized linear rewards are not covered.

Guarantee of RestartGLB: none. The authors claim the same order, but Faury et al. (2021) show that the proof is flawed:
it uses theta_hat as if it were admissible, which is not always true under drift. The policy serves as a baseline.

What is uncertain: for RestartUCB, nothing in the rule. For RestartGLB, whether it uses the same H, and the term
sqrt(lam) c_mu S of the radius; both are from a description of the paper. A reward of a decision before a restart is not
learned after it (the paper has no delays).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array
from windvane.policies.base import Card
from windvane.policies.forgetting import ForgettingPolicy, RestartRule
from windvane.policies.glm import GLMPolicy
from windvane.policies.linear import ORDER, LinearPolicy
from windvane.policies.optimism import OptimisticPolicy
from windvane.theory import window_length


class RestartedPolicy(RestartRule, OptimisticPolicy, ForgettingPolicy):
    """An optimistic policy that restarts after a fixed number of decisions."""

    drift: npt.ArrayLike | None = None
    formula = staticmethod(window_length)

    def compute_beta(self, theta_hat: Array) -> Array:
        return np.asarray(self.radius(self.rounds_since_restart - 1.0))  # after t - t_0 rounds


class RestartUCB(LinearPolicy, RestartedPolicy):
    """RestartUCB (Zhao et al. 2020). Pass ``restart_every``, or ``horizon`` and ``drift`` for the recommended H."""

    name = "RestartUCB"
    card = Card("linear", "restarts", "T, B_T", ORDER, "zhao2020", "O((K + d) d^2)")


class RestartGLB(GLMPolicy, RestartedPolicy):
    """RestartGLB (Zhao et al. 2020). Pass ``restart_every``, or ``horizon`` and ``drift`` for the recommended H."""

    name = "RestartGLB"
    card = Card("generalized linear", "restarts", "T, B_T", "none (flawed proof)", "zhao2020", "O((K + H) d^2)")

    def choose_factor(self) -> float:
        return self.constants.R_mu  # without the factor 2, because nothing is projected
