"""Tuned parameters: discounts, windows, and the block, grid and rate of the meta-algorithm."""

from __future__ import annotations

import math

import numpy as np

from windvane.arguments import Array, check_not_negative, check_positive, check_whole
from windvane.theory._checks import is_general

# A root such as 1000 ** (2 / 3) falls one ulp short of the integer it stands for; without slack its floor
# would lose a whole unit.
_FLOOR_SLACK = 1.0 + 1e-14


def discount(*, horizon: int, drift: float, dim: int, kind: str = "orthogonal") -> float:
    """The discount of Theorem 1, clipped to [1/2, 1]; drift = 0 gives 1.

    "orthogonal": 1 - (B_T / (d T))^(2/3); "general": 1 - (B_T / (sqrt(d) T))^(2/5). The clip is ours: the
    paper takes B_T sub-linear. Not the gamma* of its appendix on an unknown drift, see `discount_grid`.
    """
    T, d, B = check_whole("horizon", horizon, 1), check_whole("dim", dim, 1), check_not_negative("drift", drift)
    step: float = (B / (math.sqrt(d) * T)) ** 0.4 if is_general(kind) else (B / (d * T)) ** (2.0 / 3.0)
    return min(1.0, max(0.5, 1.0 - step))


def window_length(*, horizon: int, drift: float | None, dim: int, kind: str = "orthogonal") -> int:
    """Sliding window, an integer in [1, T]: 1 / (1 - gamma) of Theorem 1's unclipped discounts, floored.

    "orthogonal": floor((d T / B_T)^(2/3)), also the window of SW-LinUCB (Cheung et al. 2019); "general":
    floor((sqrt(d) T / B_T)^(2/5)), our analogue, for which no rate is proven. `drift=None` (unknown) puts
    B_T = 1, hence floor((d T)^(2/3)); drift = 0 gives T.
    """
    T, d = check_whole("horizon", horizon, 1), check_whole("dim", dim, 1)
    B = 1.0 if drift is None else check_not_negative("drift", drift)
    general = is_general(kind)
    if B == 0.0:
        return T
    length: float = (math.sqrt(d) * T / B) ** 0.4 if general else (d * T / B) ** (2.0 / 3.0)
    return max(1, math.floor(min(float(T), length * _FLOOR_SLACK)))


def block_length(horizon: int, dim: int) -> int:
    """H = min(T, floor(d sqrt(T))), the block of BOB-BVD-GLM-UCB (Faury et al. 2021, Theorem 2).

    The minimum with T is ours, for d > sqrt(T). The paper's T/H = O(sqrt(T/d)) is a slip for sqrt(T)/d.
    """
    T, d = check_whole("horizon", horizon, 1), check_whole("dim", dim, 1)
    return min(T, math.isqrt(d * d * T))


def discount_grid(horizon: int, dim: int, S: float) -> Array:
    """The N discounts that BOB-BVD-GLM-UCB hedges over, decreasing (Faury et al. 2021, appendix version).

    gamma_j = 1 - (1/2) 2^(j-1) / (d^(2/3) T (2S)^(2/3)) for j = 1..N, N = ceil((2/3) log2(2 S T^(3/2))) + 1,
    clipped into [1/2, 1), with N at least 1. It covers gamma* for every drift in [T^(-1/2), 2 S T], none
    below. The main text's N = ceil(2 log2(2 S T^(3/2))) is not used: it gives negative discounts.
    """
    T, d, bound = check_whole("horizon", horizon, 1), check_whole("dim", dim, 1), check_positive("S", S)
    octaves = math.log2(T) + 2.0 / 3.0 * math.log2(2.0 * bound)
    shrink: float = d ** (2.0 / 3.0)
    steps: Array = np.exp2(np.arange(max(1, math.ceil(octaves) + 1)) - 1.0 - octaves) / shrink
    return np.clip(1.0 - steps, 0.5, np.nextafter(1.0, 0.0))


def window_grid(horizon: int, dim: int) -> tuple[int, Array]:
    """H = min(T, floor(d^(2/3) sqrt(T))) and the windows floor(H^(j/n)), j = 0..n, n = ceil(log H) of BOB.

    Bandit-over-bandit of Cheung et al. 2019, section 6. The minimum with T is ours. For H = 3 the window 1 stands
    twice in it, as the formula has it; H = 1 leaves the one window 1.
    """
    T, d = check_whole("horizon", horizon, 1), check_whole("dim", dim, 1)
    H = min(T, math.floor(d ** (2.0 / 3.0) * math.sqrt(T) * _FLOOR_SLACK))
    n = max(1, math.ceil(math.log(H)))
    windows = np.floor(float(H) ** (np.arange(n + 1) / n) * _FLOOR_SLACK)
    return H, windows if H > 1 else windows[:1]


def exp3_rate(arms: int, rounds: int) -> float:
    """alpha = min(1, sqrt(N log N / ((e - 1) n))), N = `arms`, n = `rounds` (Auer et al. 2002, Cor. 3.2).

    The rounds of BOB's master are its blocks, n = ceil(T / H). 0 for a single arm: nothing to explore.
    """
    N, n = check_whole("arms", arms, 1), check_whole("rounds", rounds, 1)
    return min(1.0, math.sqrt(N * math.log(N) / ((math.e - 1.0) * n)))
