"""SW-LinUCB: optimism for linear bandits on a sliding window.

Cheung, Simchi-Levi and Zhu, "Learning to optimize under non-stationarity" (AISTATS 2019).

    theta_hat_t = V_t^-1 b_t, over the last w rounds                     (ridge regression)
    x_t         = argmax over the arms of <x, theta_hat_t> + beta ||x||_{V_t^-1}
    beta        = sqrt(lam) S + sigma sqrt(d log((1 + w L^2 / lam) / delta))
    w           = floor((d T / B_T)^(2/3)), or floor((d T)^(2/3)) where B_T is unknown

Guarantee: the paper claims regret of order d^{2/3} B_T^{1/3} T^{2/3} for linear rewards; an error in its analysis
(Touati and Vincent 2020) leaves d^{7/8} B_T^{1/4} T^{3/4} in general, and the order claimed where arms are orthogonal
(Faury et al. 2021). beta covers one fixed round with probability 1 - delta; all rounds at once need
``confidence="horizon"`` or ``"anytime"``. None for generalized linear rewards.

What is uncertain: nothing in the rule; w is the one of the claimed order, not tuned anew for the corrected one.

Cost per round and lane: O((K + d) d^2), and O(w d) memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array, check_lanes
from windvane.policies._tuning import settings_of_confidence, told_or_tuned
from windvane.policies.base import Card
from windvane.policies.linear import LinearUCB
from windvane.theory import confidence_level, window_length


class SWLinUCB(LinearUCB):
    """SW-LinUCB (Cheung et al. 2019). Give ``window``, or ``horizon`` and, where it is known, ``drift``."""

    name = "SW-LinUCB"
    card = Card(
        "linear",
        "window",
        "T, B_T",
        "d^(2/3) B^(1/3) T^(2/3), orthogonal arms",
        "Cheung et al. 2019",
        "O((K + d) d^2)",
    )

    def __init__(
        self,
        dim: int,
        *,
        window: npt.ArrayLike | None = None,
        horizon: int | None = None,
        drift: npt.ArrayLike | None = None,
        S: float = 1.0,
        L: float = 1.0,
        lam: float = 1.0,
        sigma: float = 0.5,
        delta: npt.ArrayLike = 0.05,
        confidence: str = "pointwise",
        bonus_scale: npt.ArrayLike = 1.0,
        lanes: int | Sequence[int] = 1,
        seed: int = 0,
    ) -> None:
        if window is None and drift is None and horizon is not None:
            window = window_length(horizon=horizon, drift=None, dim=dim)
        window = told_or_tuned(
            "window",
            window,
            lambda T, B: window_length(horizon=T, drift=B, dim=dim),
            horizon,
            drift,
            len(check_lanes(lanes)),
        )
        super().__init__(
            dim,
            window=window,
            S=S,
            L=L,
            lam=lam,
            sigma=sigma,
            delta=delta,
            bonus_scale=bonus_scale,
            lanes=lanes,
            seed=seed,
            **settings_of_confidence(confidence, horizon),
        )
        self._level = partial(confidence_level, self.delta, confidence=confidence, horizon=horizon)
        self._level(1.0)  # refuses what cannot be

    def radius(self) -> Array:
        """beta of the coming decision, per lane."""
        e = self.estimator
        log_term = np.log1p(e._window * e.L**2 / e.lam) - np.log(self._level(self.local_t))
        return np.asarray(math.sqrt(e.lam) * e.S + self.sigma * np.sqrt(e.dim * log_term))
