"""RestartUCB: OFUL that restarts every H decisions.

Zhao, Zhang, Jiang and Zhou, "A simple approach for non-stationary linear bandits" (AISTATS 2020).

    theta_hat_t = V_t^-1 b_t, over the rounds t_0, ..., t - 1 since the last restart     (ridge regression)
    x_t         = argmax over the arms of <x, theta_hat_t> + beta_t ||x||_{V_t^-1}
    beta_t      = sqrt(lam) S + sigma sqrt(2 log(1/delta) + d log(1 + (t - t_0) L^2 / (lam d)))
    H           = floor((d T / B_T)^(2/3))

Guarantee: the paper claims regret of order d^{2/3} B_T^{1/3} T^{2/3} for linear rewards. After an error in the analysis
was found (Touati and Vincent 2020), d^{7/8} B_T^{1/4} T^{3/4} remains in general, and the claimed order for orthogonal
arms (Faury et al. 2021). beta_t holds at all rounds between two restarts at once. To cover a whole run, divide delta by
the number of restarts. There is no guarantee for generalized linear rewards.

What is uncertain: nothing in the rule. H is the one for the claimed order; it was not tuned again for the corrected
order. A reward of a decision before a restart is not learned after it (the paper has no delays).

Cost per round and lane: O((K + d) d^2). No history is stored.
"""

from __future__ import annotations

from windvane.arguments import Array
from windvane.estimation import Never
from windvane.policies.base import Card
from windvane.policies.forgetting import RestartedPolicy
from windvane.policies.linear import LinearPolicy, build_ridge


class RestartUCB(LinearPolicy, RestartedPolicy):
    """RestartUCB (Zhao et al. 2020). Give ``restart_every``, or ``horizon`` and ``drift`` for the recommended period.

    Examples
    --------
    >>> RestartUCB(dim=2, restart_every=100).select([[[1.0, 0.0]]])
    array([0])
    """

    name = "RestartUCB"
    card = Card(
        "linear",
        "restarts",
        "T, B_T",
        "d^(2/3) B^(1/3) T^(2/3), orthogonal arms",
        "Zhao et al. 2020",
        "O((K + d) d^2)",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.estimator = build_ridge(self, Never())
        self.radius = self.build_radius()

    def compute_beta(self, theta_hat: Array) -> Array:
        """Return the radius after t - t_0 rounds since the restart, [lanes]."""
        return self.radius(self.rounds_since_restart - 1.0)
