"""BOB: SW-LinUCB for an unknown drift.

Cheung, Simchi-Levi and Zhu, "Learning to optimize under non-stationarity" (AISTATS 2019), section 6. Time is divided
into blocks of H decisions. EXP3 draws a window at the start of each block, and a new SW-LinUCB with this window acts in
the block (:mod:`windvane.policies.bandit_over_bandits`).

===================  ==============================================================================================
symbol               here
===================  ==============================================================================================
H                    min(T, floor(d^(2/3) sqrt(T)))
grid                 n + 1 windows floor(H^(j/n)), j = 0..n, n = ceil(log H)
gain of a block      1/2 + sum of rewards / (2H + 4 sigma sqrt(H log(T/sqrt(H))))
rate of EXP3         min(1, sqrt(N log N / ((e - 1) ceil(T/H)))), N the size of the grid
delta                1/T
===================  ==============================================================================================

Guarantee: regret of order d^{2/3} T^{2/3} max(B_T, d^{-1/2} T^{1/4})^{1/3} for linear rewards with orthogonal arms,
without knowledge of B_T. For general arms it inherits the gap in the analysis of SW-LinUCB.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array
from windvane.policies.bandit_over_bandits import BanditOverBandits
from windvane.policies.base import Card
from windvane.policies.linear import SWLinUCB
from windvane.theory import window_grid

GUARANTEE = "d^(2/3) max(B, d^(-1/2) T^(1/4))^(1/3) T^(2/3), orthogonal arms"


class BOB(BanditOverBandits):
    """BOB (Cheung et al. 2019) over SW-LinUCB. It needs the horizon T, but not the drift.

    Parameters
    ----------
    windows
        The grid. Default: that of the paper.
    delta
        As for :class:`windvane.policies.SWLinUCB`. Default: 1/T.
    """

    windows: npt.ArrayLike | None = None
    S: float = 1.0
    lam: float = 1.0
    sigma: float = 0.5
    delta: npt.ArrayLike | None = None
    bonus_scale: npt.ArrayLike = 1.0
    name = "BOB"
    grid_name = "windows"
    card = Card("linear", "adaptive", "T", GUARANTEE, "Cheung et al. 2019", "O((K + d) d^2)")

    def choose_block(self) -> int:
        """Return H."""
        return window_grid(self.horizon, self.dim)[0]

    def choose_grid(self) -> npt.ArrayLike:
        """Return the given windows, or those of the paper."""
        return window_grid(self.horizon, self.dim)[1] if self.windows is None else self.windows

    def build_worker(self, values: Array) -> SWLinUCB:
        """Return a new SW-LinUCB with one window per lane."""
        return self.derive(SWLinUCB, window=values, delta=1.0 / self.horizon if self.delta is None else self.delta)

    def compute_gain(self, earned: Array) -> Array:
        """Return the gain of a block.

        With means in [-1, 1], the gain leaves [0, 1] with probability at most 2/T in total.
        """
        H, T = self.length, self.horizon
        width = 2.0 * H + 4.0 * self.sigma * math.sqrt(H * max(0.0, math.log(T / math.sqrt(H))))
        return np.asarray(0.5 + earned / width)
