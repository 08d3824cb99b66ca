"""OFUL: optimism in the face of uncertainty for (stationary) linear bandits.

Abbasi-Yadkori, Pal and Szepesvari, "Improved algorithms for linear stochastic bandits" (NeurIPS 2011).

    theta_hat_t = V_t^-1 b_t                                             (ridge regression)
    x_t         = argmax over the arms of <x, theta_hat_t> + beta_t(delta) ||x||_{V_t^-1}

with beta_t(delta) = sqrt(lam) S + sigma sqrt(2 log(1/delta) + log det(V_t / lam)).

Guarantee: regret of order d sqrt(T) up to logarithms for linear rewards with a fixed theta*; the radius holds for all
rounds at once. None under drift or for a generalized linear reward.

Cost per round and lane: O((K + d) d^2). No history is kept.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array
from windvane.policies.base import Card
from windvane.policies.linear import LinearUCB
from windvane.theory import oful_radius


class OFUL(LinearUCB):
    """OFUL (Abbasi-Yadkori et al. 2011): no forgetting, radius from the determinant, widths in V^-1."""

    name = "OFUL"
    card = Card("linear", "none", "nothing", "d T^(1/2), theta* fixed", "Abbasi-Yadkori et al. 2011", "O((K + d) d^2)")

    def __init__(
        self,
        dim: int,
        *,
        S: float = 1.0,
        L: float = 1.0,
        lam: float = 1.0,
        sigma: float = 0.5,
        delta: npt.ArrayLike = 0.05,
        bonus_scale: npt.ArrayLike = 1.0,
        lanes: int | Sequence[int] = 1,
        seed: int = 0,
    ) -> None:
        super().__init__(
            dim,
            S=S,
            L=L,
            lam=lam,
            sigma=sigma,
            delta=delta,
            bonus_scale=bonus_scale,
            lanes=lanes,
            seed=seed,
        )

    def radius(self) -> Array:
        """beta_t(delta) of the coming decision, per lane."""
        e = self.estimator
        log_det_ratio = np.empty(self.lanes)
        self._k.log_det_lanes(0, self.lanes, e._V, e.lam, log_det_ratio)
        return np.asarray(oful_radius(log_det_ratio, S=e.S, lam=e.lam, sigma=self.sigma, delta=self.delta))
