"""Tuned parameters: discounts, windows, batches, and the block, grid and rates of EXP3 and its relatives."""

from __future__ import annotations

import math

import numpy as np

from windvane.arguments import Array
from windvane.theory.formula import formula

# The floor of a root that should be an integer, such as 1000 ** (2 / 3) = 99.99999999999997, must not lose a whole
# unit to rounding: three roundings of at most 2**-53 each, doubled by the power, are below 1e-14.
_FLOOR_SLACK = 1.0 + 1e-14


@formula
def discount(*, horizon: int, drift: float, dim: int, arm_geometry: str = "orthogonal") -> float:
    """Return the discount of Theorem 1, clipped to [1/2, 1]; drift = 0 gives 1.

    1 - (B_T / (d T))^(2/3) for "orthogonal", 1 - (B_T / (sqrt(d) T))^(2/5) for "general". The clip is ours: the paper
    assumes a sub-linear B_T. This is not the gamma* of its appendix on an unknown drift, for which see
    :func:`discount_grid`.

    >>> discount(horizon=4000, drift=1.0, dim=2)
    0.9975
    """
    T, d, B = horizon, dim, drift
    step: float = (B / (math.sqrt(d) * T)) ** 0.4 if arm_geometry == "general" else (B / (d * T)) ** (2.0 / 3.0)
    return min(1.0, max(0.5, 1.0 - step))


@formula
def weight_discount(*, horizon: int, drift: float, dim: int, curvature: float = 1.0) -> float:
    """Return 1 - max(1/T, sqrt(curvature B_T / (d T))), clipped (by us) to at least 1/2 (Wang, Zhao and Zhou 2023).

    >>> weight_discount(horizon=5000, drift=1.0, dim=2)
    0.99
    """
    return max(0.5, 1.0 - max(1.0 / horizon, math.sqrt(curvature * drift / (dim * horizon))))


@formula
def window_length(*, horizon: int, drift: float | None, dim: int, arm_geometry: str = "orthogonal") -> int:
    """Return a sliding window in [1, T]: 1 / (1 - gamma) of Theorem 1's unclipped discount, floored.

    floor((d T / B_T)^(2/3)) for "orthogonal", floor((sqrt(d) T / B_T)^(2/5)) for "general". "orthogonal" is also the
    window of SW-LinUCB (Cheung et al. 2019). "general" is our analogue, for which no rate is proven.

    Parameters
    ----------
    drift
        Total drift B_T: 0 gives T, and None (unknown) counts as 1.

    >>> window_length(horizon=1000, drift=1.0, dim=1)
    100
    """
    T, d, B = horizon, dim, 1.0 if drift is None else drift
    if B == 0.0:
        return T
    length: float = (math.sqrt(d) * T / B) ** 0.4 if arm_geometry == "general" else (d * T / B) ** (2.0 / 3.0)
    return max(1, math.floor(min(float(T), length * _FLOOR_SLACK)))


@formula
def block_length(horizon: int, dim: int) -> int:
    """Return H = min(T, floor(d sqrt(T))), the block of BOB-BVD-GLM-UCB (Faury et al. 2021, Theorem 2).

    The minimum with T is ours, for d > sqrt(T). The paper's T/H = O(sqrt(T/d)) is a slip for sqrt(T)/d.

    >>> block_length(3000, 2)
    109
    """
    return min(horizon, math.isqrt(dim * dim * horizon))


@formula
def discount_grid(horizon: int, dim: int, S: float) -> Array:
    """Return the N discounts that BOB-BVD-GLM-UCB hedges over, decreasing (Faury et al. 2021, appendix version).

    gamma_j = 1 - (1/2) 2^(j-1) / (d^(2/3) T (2S)^(2/3)) for j = 1..N, clipped into [1/2, 1), with
    N = max(1, ceil((2/3) log2(2 S T^(3/2))) + 1). The grid covers gamma* for every drift in [T^(-1/2), 2 S T], and
    for none below. The main text's N = ceil(2 log2(2 S T^(3/2))) is not used: it gives negative discounts.

    >>> len(discount_grid(3000, 2, 1.0))
    14
    """
    octaves = math.log2(horizon) + 2.0 / 3.0 * math.log2(2.0 * S)
    shrink: float = dim ** (2.0 / 3.0)
    steps: Array = np.exp2(np.arange(max(1, math.ceil(octaves) + 1)) - 1.0 - octaves) / shrink
    return np.clip(1.0 - steps, 0.5, np.nextafter(1.0, 0.0))


@formula
def window_grid(horizon: int, dim: int) -> tuple[int, Array]:
    """Return the block H and the windows of bandit-over-bandit (Cheung et al. 2019, section 6).

    H = min(T, floor(d^(2/3) sqrt(T))). The minimum with T is ours. The windows are floor(H^(j/n)) for j = 0..n, with
    n = ceil(log H). For H = 3 the formula gives 1 twice; for H = 1 the only window is 1.

    >>> block, windows = window_grid(100, 1)
    >>> block, windows.tolist()
    (10, [1.0, 2.0, 4.0, 10.0])
    """
    H = min(horizon, math.floor(dim ** (2.0 / 3.0) * math.sqrt(horizon) * _FLOOR_SLACK))
    n = max(1, math.ceil(math.log(H)))
    windows = np.floor(float(H) ** (np.arange(n + 1) / n) * _FLOOR_SLACK)
    return H, windows if H > 1 else windows[:1]


@formula
def exp3_rate(arms: int, rounds: int) -> float:
    """Return alpha = min(1, sqrt(N log N / ((e - 1) n))), the rate of EXP3 (Auer et al. 2002, Corollary 3.2).

    Parameters
    ----------
    arms
        Number N of arms. The rate is 0 for a single arm, because there is nothing to explore.
    rounds
        Number n of rounds. The rounds of BOB's master are its blocks, n = ceil(T / H).

    >>> exp3_rate(1, 5), exp3_rate(14, 1)
    (0.0, 1.0)
    """
    return min(1.0, math.sqrt(arms * math.log(arms) / ((math.e - 1.0) * rounds)))


@formula
def switching_discount(*, horizon: int, switches: float, bound: float) -> float:
    """Return 1 - sqrt(Gamma_T / T) / (4 B), the discount of D-UCB (Garivier and Moulines 2011), at least 1/2 (ours).

    >>> switching_discount(horizon=10000, switches=4.0, bound=1.0)
    0.995
    """
    return max(0.5, 1.0 - math.sqrt(switches / horizon) / (4.0 * bound))


@formula
def switching_window(*, horizon: int, switches: float, bound: float) -> float:
    """Return 2 B sqrt(T log T / Gamma_T), the window of SW-UCB (Garivier and Moulines 2011), within [1, T] (ours).

    >>> round(switching_window(horizon=10000, switches=4.0, bound=1.0), 1)
    303.5
    """
    if switches == 0.0:
        return float(horizon)
    window = 2.0 * bound * math.sqrt(horizon * math.log(horizon) / switches)
    return min(float(horizon), max(1.0, window))


@formula
def exp3_batch(*, arms: int, horizon: int, drift: float) -> int:
    """Return ceil((K log K)^(1/3) (T / V_T)^(2/3)), the rounds between two restarts of Rexp3 (Besbes et al. 2014).

    It is limited to [1, T] (ours).

    Parameters
    ----------
    arms
        Number K of arms.
    drift
        The bound V_T on the sum over rounds of the largest change of a mean, for rewards in [0, 1]; 0 gives T.

    >>> exp3_batch(arms=2, horizon=1000, drift=3.0)
    54
    """
    K, T, V = arms, horizon, drift
    if V == 0.0:
        return T
    length: float = (K * math.log(K)) ** (1.0 / 3.0) * (T / V) ** (2.0 / 3.0)
    return max(1, math.ceil(min(float(T), length / _FLOOR_SLACK)))


@formula
def sharing_rate(*, arms: int, horizon: int, switches: float | None = None) -> float:
    """Return the rate of EXP3.S (Auer et al. 2002): Corollary 8.3, or 8.2 if the number of changes is unknown.

    min(1, sqrt(K (S log(K T) + e) / ((e - 1) T))) with S = Gamma_T + 1, or min(1, sqrt(K log(K T) / T)).

    Parameters
    ----------
    arms
        Number K of arms.
    switches
        Number of changes of the best arm, at least 0. None: unknown.

    >>> round(sharing_rate(arms=3, horizon=10000, switches=2.0), 4), round(sharing_rate(arms=3, horizon=10000), 4)
    (0.0766, 0.0556)
    """
    K, T = arms, horizon
    share = math.log(K * T)
    if switches is not None:
        share = ((switches + 1.0) * share + math.e) / (math.e - 1.0)
    return min(1.0, math.sqrt(K * share / T))
