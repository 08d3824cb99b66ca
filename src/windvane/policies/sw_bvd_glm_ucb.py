"""SW-BVD-GLM-UCB: BVD-GLM-UCB with a sliding window in place of the discount.

Faury, Russac, Abeille and Calauzenes (2021) say that the sliding-window form of their algorithm follows easily; this is
it, read off Algorithm 1 (:mod:`windvane.policies.bvd_glm_ucb`) with weight 1 on the last w rounds and 0 before, hence
V_tilde = V, and

    beta_t(delta) = sqrt(lam) c_mu S + sigma sqrt(2 log(1/delta) + d log(1 + L^2 min(t, w) / (lam d)))
    w             = floor((d T / B_T)^{2/3})     (``discount="orthogonal"``), floor((sqrt(d) T / B_T)^{2/5}) ("general")

Guarantee: none is printed. By the paper's remark, the orders of Theorem 1 should carry over; we have not proven it.
What is uncertain: everything but the weights, which the paper leaves to the reader.

Cost per round and lane: passes over the window, O(w d^2); what leaves it is subtracted, and the warm start is lost with
it, so a round costs about one pass more than with a discount of equal memory. O(K d^2) for the arms.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy.typing as npt

from windvane.arguments import check_choice, check_lanes
from windvane.estimation import DiscountedEstimator
from windvane.links import Link
from windvane.policies._tuning import settings_of_confidence, told_or_tuned
from windvane.policies.base import Card
from windvane.policies.glm_index import GLMIndex
from windvane.theory import KINDS, window_length


class SWBVDGLMUCB(GLMIndex):
    """SW-BVD-GLM-UCB. Give ``window``, or ``horizon`` and ``drift`` for the recommended one."""

    name = "SW-BVD-GLM-UCB"
    card = Card("generalized linear", "window", "T, B_T", "none printed", "Faury et al. 2021", "O((K + window) d^2)")
    program = "P2"

    def __init__(
        self,
        dim: int,
        link: str | Link = "logistic",
        *,
        window: npt.ArrayLike | None = None,
        horizon: int | None = None,
        drift: npt.ArrayLike | None = None,
        discount: str = "orthogonal",
        S: float = 1.0,
        L: float = 1.0,
        lam: float = 1.0,
        sigma: float = 0.5,
        delta: npt.ArrayLike = 0.05,
        confidence: str = "pointwise",
        bonus_scale: npt.ArrayLike = 1.0,
        tolerance: float = 1e-6,
        lanes: int | Sequence[int] = 1,
        seed: int = 0,
    ) -> None:
        ids, kind = check_lanes(lanes), check_choice("discount", discount, KINDS)
        window = told_or_tuned(
            "window",
            window,
            lambda T, B: window_length(horizon=T, drift=B, dim=dim, kind=kind),
            horizon,
            drift,
            len(ids),
        )
        estimator = DiscountedEstimator(
            dim, link, window=window, S=S, L=L, lam=lam, lanes=len(ids), tolerance=tolerance
        )
        form = settings_of_confidence(confidence, horizon)
        self._assemble(estimator, ids, seed=seed, sigma=sigma, delta=delta, bonus_scale=bonus_scale, **form)
        self.beta = self._plain_radius(confidence, horizon)
