"""GLM-UCB: optimism for stationary generalized linear bandits.

Filippi, Cappe, Garivier and Szepesvari, "Parametric bandits: the generalized linear case" (NeurIPS 2010), in the form
used as a baseline by Faury et al. (2021): the gamma = 1 case of :mod:`windvane.policies.bvd_glm_ucb` with the
projection P0 in place of P2,

    theta_tilde_t = argmin over ||theta|| <= S of ||g_t(theta) - b_t|| in the metric V_t^-1
    x_t           = argmax over the arms of mu(<x, theta_tilde_t>) + 2 R_mu beta_t(delta) ||x||_{V_t^-1}

Guarantee: regret of order R_mu d sqrt(T) up to logarithms when theta* does not move. None under drift: it never
forgets, and late in a drifting run its confidence is misplaced.

Cost per round and lane: as BVD-GLM-UCB, with a history that grows for ever: O(t d^2).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy.typing as npt

from windvane.links import Link
from windvane.policies.base import Card
from windvane.policies.bvd_glm_ucb import BVDGLMUCB


class GLMUCB(BVDGLMUCB):
    """GLM-UCB (Filippi et al. 2010): no forgetting, projection P0."""

    name = "GLM-UCB"
    card = Card(
        "generalized linear",
        "none",
        "nothing",
        "R_mu d T^(1/2), theta* fixed",
        "Filippi et al. 2010",
        "O((K + t) d^2)",
    )
    program: ClassVar[str] = "P0"

    def __init__(
        self,
        dim: int,
        link: str | Link = "logistic",
        *,
        horizon: int | None = None,
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
        super().__init__(
            dim,
            link,
            gamma=1.0,
            horizon=horizon,
            S=S,
            L=L,
            lam=lam,
            sigma=sigma,
            delta=delta,
            confidence=confidence,
            bonus_scale=bonus_scale,
            tolerance=tolerance,
            lanes=lanes,
            seed=seed,
        )
