"""BOB: SW-LinUCB for a drift nobody knows.

Cheung, Simchi-Levi and Zhu, "Learning to optimize under non-stationarity" (AISTATS 2019), section 6. In each block of H
decisions a fresh SW-LinUCB acts, with a window that EXP3 draws at the start of the block
(:mod:`windvane.policies.bandit_over_bandits`).

===================  ==============================================================================================
symbol               here
===================  ==============================================================================================
H                    min(T, floor(d^(2/3) sqrt(T)))
grid                 n + 1 windows floor(H^(j/n)), j = 0..n, n = ceil(log H)
gain of a block      1/2 + sum of rewards / (2H + 4 sigma sqrt(H log(T/sqrt(H))))
EXP3's rate          min(1, sqrt(N log N / ((e - 1) ceil(T/H)))), N the size of the grid
delta                1/T
===================  ==============================================================================================

Guarantee: regret of order d^{2/3} T^{2/3} max(B_T, d^{-1/2} T^{1/4})^{1/3} for linear rewards with orthogonal arms,
without knowing B_T; for general arms it inherits what SW-LinUCB lacks.

Cost per round and lane: that of SW-LinUCB; O(N) more a block.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array
from windvane.policies.bandit_over_bandits import BanditOverBandits
from windvane.policies.base import Card
from windvane.policies.sw_lin_ucb import SWLinUCB
from windvane.theory import window_grid


class BOB(BanditOverBandits):
    """BOB (Cheung et al. 2019) over SW-LinUCB: needs the horizon T, not the drift.

    Parameters
    ----------
    windows
        The grid; by default the paper's.
    S, lam, sigma, bonus_scale
        As for :class:`windvane.policies.SWLinUCB`.
    delta
        As for :class:`windvane.policies.SWLinUCB`; by default 1/T.

    Examples
    --------
    >>> BOB(dim=2, horizon=1000).select([[[1.0, 0.0]]])
    array([0])
    """

    windows: npt.ArrayLike | None = None
    S: float = 1.0
    lam: float = 1.0
    sigma: float = 0.5
    delta: npt.ArrayLike | None = None
    bonus_scale: npt.ArrayLike = 1.0

    name = "BOB"
    grid_name = "windows"
    card = Card(
        "linear",
        "adaptive",
        "T",
        "d^(2/3) max(B, d^(-1/2) T^(1/4))^(1/3) T^(2/3), orthogonal arms",
        "Cheung et al. 2019",
        "O((K + d) d^2)",
    )

    def choose_block(self) -> int:
        """Return H."""
        return window_grid(self.horizon, self.dim)[0]

    def choose_grid(self) -> npt.ArrayLike:
        """Return the windows that were given, or the paper's."""
        return window_grid(self.horizon, self.dim)[1] if self.windows is None else self.windows

    def build_worker(self, values: Array) -> SWLinUCB:
        """Return a fresh SW-LinUCB with one window per lane."""
        return SWLinUCB(
            self.dim,
            window=values,
            S=self.S,
            L=self.L,
            lam=self.lam,
            sigma=self.sigma,
            delta=1.0 / self.horizon if self.delta is None else self.delta,
            bonus_scale=self.bonus_scale,
            lanes=self.lanes,
            seed=self.seed,
        )

    def compute_gain(self, earned: Array) -> Array:
        """Return 1/2 + the sum over the width that it leaves with probability at most 2/T, means being in [-1, 1]."""
        H, T = self.length, self.horizon
        width = 2.0 * H + 4.0 * self.sigma * math.sqrt(H * max(0.0, math.log(T / math.sqrt(H))))
        return np.asarray(0.5 + earned / width)
