"""OFUL: optimism in the face of uncertainty for stationary linear bandits.

Abbasi-Yadkori, Pal and Szepesvari, "Improved algorithms for linear stochastic bandits" (NeurIPS 2011).

    theta_hat_t = V_t^-1 b_t                                             (ridge regression)
    x_t         = argmax over the arms of <x, theta_hat_t> + beta_t(delta) ||x||_{V_t^-1}

with beta_t(delta) = sqrt(lam) S + sigma sqrt(2 log(1/delta) + log det(V_t / lam)).

Guarantee: regret of order d sqrt(T), up to logarithms, for linear rewards with a constant theta*. The radius holds at
all rounds at once. There is no guarantee under drift or for generalized linear rewards.

Cost per round and lane: O((K + d) d^2). No history is stored.
"""

from __future__ import annotations

from windvane.arguments import Array
from windvane.estimation import Never
from windvane.policies.base import Card
from windvane.policies.linear import LinearPolicy, build_ridge
from windvane.theory import OFULRadius


class OFUL(LinearPolicy):
    """OFUL (Abbasi-Yadkori et al. 2011): no forgetting, radius from the determinant, widths in V^-1.

    Examples
    --------
    >>> OFUL(dim=2).select([[[1.0, 0.0]]])
    array([0])
    """

    name = "OFUL"
    card = Card("linear", "none", "nothing", "d T^(1/2), theta* fixed", "Abbasi-Yadkori et al. 2011", "O((K + d) d^2)")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.estimator = build_ridge(self, Never())
        self.determinant_radius = OFULRadius(S=self.S, lam=self.estimator.lam, sigma=self.sigma, delta=self.levels)

    def compute_beta(self, theta_hat: Array) -> Array:
        """Return the radius of the next decision from the determinant of V, [lanes]."""
        return self.determinant_radius(self.estimator.log_det_ratio())
