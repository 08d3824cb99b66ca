"""BOB and BOB-BVD-GLM-UCB: SW-LinUCB and BVD-GLM-UCB for an unknown drift.

At the start of each block of H decisions, EXP3 draws a window or a discount from a grid, and a new policy with this
value acts in the block (:mod:`windvane.policies.bandit_over_bandits`).

===============  =======================================================  =============================================
symbol           BOB                                                      BOB-BVD-GLM-UCB
===============  =======================================================  =============================================
acts             SW-LinUCB                                                BVD-GLM-UCB
H                min(T, floor(d^(2/3) sqrt(T)))                           min(T, floor(d sqrt(T)))
grid             floor(H^(j/n)), j = 0..n, n = ceil(log H)                1 - 2^(j-2) / (d^(2/3) T (2S)^(2/3)), at least
                                                                          1/2; N = ceil((2/3) log2(2 S T^(3/2))) + 1
gain of a block  1/2 + sum r / (2H + 4 sigma sqrt(H log(T/sqrt(H))))      sum r / (2 sigma H)
===============  =======================================================  =============================================

delta is 1/T. The rate of EXP3 is min(1, sqrt(N log N / ((e - 1) ceil(T/H)))), N the size of the grid.

BOB: Cheung, Simchi-Levi and Zhu, "Learning to optimize under non-stationarity" (AISTATS 2019), section 6. Guarantee:
regret of order d^{2/3} T^{2/3} max(B_T, d^{-1/2} T^{1/4})^{1/3} for linear rewards with orthogonal arms, without
knowledge of B_T. For general arms it inherits the gap in the analysis of SW-LinUCB.

BOB-BVD-GLM-UCB: Faury, Russac, Abeille and Calauzenes, "Regret bounds for generalized linear bandits under parameter
drift" (2021), Algorithm 2 in the form of the appendix. Guarantee (Theorem 2): expected regret of R_mu times the same
order for orthogonal arm sets, without knowledge of B_T. The price is high for practical T: with d = 2 and T = 3000
there are 28 blocks for 14 discounts and the rate is 0.88, so the draws are almost uniform.
"""

from __future__ import annotations

import math
from dataclasses import field
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array
from windvane.links import Link
from windvane.policies.bandit_over_bandits import BanditOverBandits
from windvane.policies.base import Card
from windvane.policies.bvd_glm_ucb import BVDGLMUCB
from windvane.policies.forgetting import ForgettingPolicy
from windvane.policies.linear import SWLinUCB
from windvane.theory import block_length, discount_grid, window_grid

COST = "O((K + memory) d^2), memory at most d T^(1/2)"
ORDER = "d^(2/3) max(B, d^(-1/2) T^(1/4))^(1/3) T^(2/3), orthogonal arms"


class BlockPolicy(BanditOverBandits):
    """The base class of BOB and BOB-BVD-GLM-UCB.

    Parameters
    ----------
    delta
        As for the acting policy. Default: 1/T.
    """

    S: float = 1.0
    lam: float = 1.0
    sigma: float = 0.5
    delta: npt.ArrayLike | None = None
    bonus_scale: npt.ArrayLike = 1.0
    worker_type: ClassVar[type[ForgettingPolicy]]

    def build_worker(self, values: Array) -> ForgettingPolicy:
        delta = 1.0 / self.horizon if self.delta is None else self.delta
        return self.derive(self.worker_type, delta=delta, **{self.worker_type.shorthand: values})


class BOB(BlockPolicy):
    """BOB (Cheung et al. 2019) over SW-LinUCB. It needs the horizon T, but not the drift."""

    windows: npt.ArrayLike | None = None
    reward_range: float | None = field(default=None, init=False)  # the gain has a range of its own
    name, grid_name, worker_type = "BOB", "windows", SWLinUCB
    card = Card("linear", "adaptive", "T", ORDER, "cheung2019", "O((K + d) d^2)")

    def choose_block(self) -> int:
        return window_grid(self.horizon, self.dim)[0]

    def choose_grid(self) -> npt.ArrayLike:
        return window_grid(self.horizon, self.dim)[1] if self.windows is None else self.windows

    def compute_gain(self, earned: Array) -> Array:
        H, T = self.length, self.horizon
        width = 2.0 * H + 4.0 * self.sigma * math.sqrt(H * max(0.0, math.log(T / math.sqrt(H))))
        return np.asarray(0.5 + earned / width)


class BOBBVDGLMUCB(BlockPolicy):
    """BOB-BVD-GLM-UCB (Faury et al. 2021, Algorithm 2). It needs the horizon T, but not the drift."""

    link: str | Link = field(default="logistic", kw_only=False)
    discounts: npt.ArrayLike | None = None
    confidence: str = "pointwise"
    tolerance: float = 1e-6
    name, grid_name, worker_type = "BOB-BVD-GLM-UCB", "discounts", BVDGLMUCB
    card = Card("generalized linear", "adaptive", "T", f"R_mu {ORDER}", "faury2021", COST)

    def choose_block(self) -> int:
        return block_length(self.horizon, self.dim)

    def choose_grid(self) -> npt.ArrayLike:
        return discount_grid(self.horizon, self.dim, self.S) if self.discounts is None else self.discounts
