"""BOB-BVD-GLM-UCB: BVD-GLM-UCB for an unknown drift.

Faury, Russac, Abeille and Calauzenes, "Regret bounds for generalized linear bandits under parameter drift" (2021),
Algorithm 2 in the form of the appendix. Time is divided into blocks of H decisions. EXP3 draws a discount at the start
of each block, and a new BVD-GLM-UCB with this discount acts in the block
(:mod:`windvane.policies.bandit_over_bandits`).

===================  ==============================================================================================
symbol               here
===================  ==============================================================================================
H                    min(T, floor(d sqrt(T)))
N, grid              N = ceil((2/3) log2(2 S T^(3/2))) + 1 discounts 1 - 2^(j-2) / (d^(2/3) T (2S)^(2/3)), in [1/2, 1)
gain of a block      sum of rewards / (2 sigma H)
rate of EXP3         min(1, sqrt(N log N / ((e - 1) ceil(T/H))))
delta                1/T
===================  ==============================================================================================

Guarantee (Theorem 2): expected regret of order R_mu d^{2/3} T^{2/3} max(B_T, d^{-1/2} T^{1/4})^{1/3} for orthogonal arm
sets, without knowledge of B_T. The price is high for practical T: with d = 2 and T = 3000 there are 28 blocks for 14
discounts and the rate is 0.88, so the draws are almost uniform.
"""

from __future__ import annotations

from dataclasses import field

import numpy.typing as npt

from windvane.arguments import Array
from windvane.links import Link
from windvane.policies.bandit_over_bandits import BanditOverBandits
from windvane.policies.base import Card
from windvane.policies.bvd_glm_ucb import BVDGLMUCB
from windvane.theory import block_length, discount_grid

GUARANTEE = "R_mu d^(2/3) max(B, d^(-1/2) T^(1/4))^(1/3) T^(2/3), orthogonal arms"
COST = "O((K + memory) d^2), memory at most d T^(1/2)"


class BOBBVDGLMUCB(BanditOverBandits):
    """BOB-BVD-GLM-UCB (Faury et al. 2021, Algorithm 2). It needs the horizon T, but not the drift.

    Parameters
    ----------
    discounts
        The grid. Default: that of the paper.
    delta
        As for :class:`windvane.policies.BVDGLMUCB`. Default: 1/T.
    """

    link: str | Link = field(default="logistic", kw_only=False)
    discounts: npt.ArrayLike | None = None
    S: float = 1.0
    lam: float = 1.0
    sigma: float = 0.5
    delta: npt.ArrayLike | None = None
    confidence: str = "pointwise"
    bonus_scale: npt.ArrayLike = 1.0
    tolerance: float = 1e-6
    name = "BOB-BVD-GLM-UCB"
    grid_name = "discounts"
    card = Card("generalized linear", "adaptive", "T", GUARANTEE, "Faury et al. 2021", COST)

    def choose_block(self) -> int:
        """Return H."""
        return block_length(self.horizon, self.dim)

    def choose_grid(self) -> npt.ArrayLike:
        """Return the given discounts, or those of the paper."""
        return discount_grid(self.horizon, self.dim, self.S) if self.discounts is None else self.discounts

    def build_worker(self, values: Array) -> BVDGLMUCB:
        """Return a new BVD-GLM-UCB with one discount per lane."""
        return self.derive(BVDGLMUCB, gamma=values, delta=1.0 / self.horizon if self.delta is None else self.delta)
