"""SW-BVD-GLM-UCB: BVD-GLM-UCB with a sliding window instead of the discount.

Faury, Russac, Abeille and Calauzenes (2021) state that the sliding-window form of their algorithm follows easily. This
is Algorithm 1 (:mod:`windvane.policies.bvd_glm_ucb`) with weight 1 for the last w rounds and 0 for earlier ones, so
V_tilde = V, and

    beta_t(delta) = sqrt(lam) c_mu S + sigma sqrt(2 log(1/delta) + d log(1 + L^2 min(t, w) / (lam d)))
    w             = floor((d T / B_T)^{2/3})              (``arm_geometry="orthogonal"``)
    w             = floor((sqrt(d) T / B_T)^{2/5})        (``arm_geometry="general"``)

Guarantee: none is printed. By the paper's remark the orders of Theorem 1 should hold here too. We have not proven it.

What is uncertain: everything but the weights, which the paper leaves to the reader.

Cost per round and lane: passes over the window, O(w d^2); O(K d^2) for the arms. Removing observations invalidates the
linearisation of the estimator, so a round takes about one pass more than with a discount of equal memory.
"""

from __future__ import annotations

from windvane.arguments import Array, check_choice
from windvane.policies.base import Card
from windvane.policies.forgetting import DriftSettings, WindowSettings
from windvane.policies.glm import GLMPolicy
from windvane.projection import Projection, project_p2
from windvane.theory import KINDS, window_length


class SWBVDGLMUCB(GLMPolicy, WindowSettings, DriftSettings):
    """SW-BVD-GLM-UCB. Give ``window``, or ``horizon`` and ``drift`` for the recommended window.

    Parameters
    ----------
    arm_geometry
        "orthogonal" or "general": the arm sets for which the window is recommended.
    confidence
        As for :class:`windvane.policies.BVDGLMUCB`.

    Examples
    --------
    >>> SWBVDGLMUCB(dim=2, window=100).select([[[1.0, 0.0]]])
    array([0])
    """

    arm_geometry: str = "orthogonal"
    confidence: str = "pointwise"

    name = "SW-BVD-GLM-UCB"
    card = Card("generalized linear", "window", "T, B_T", "none printed", "Faury et al. 2021", "O((K + window) d^2)")

    def __post_init__(self) -> None:
        super().__post_init__()
        kind = check_choice("arm_geometry", self.arm_geometry, KINDS)
        rule = self.tune_window(lambda T, B: window_length(horizon=T, drift=B, dim=self.dim, kind=kind))
        self.estimator = self.build_estimator(rule)
        self.radius = self.build_radius(self.confidence, self.horizon)
        self.bonus_factors = self.bonus_scales * (2.0 * self.constants.R_mu)

    def project(self, beta: Array) -> Projection:
        """Project by P2."""
        return project_p2(self.estimator, beta)
