"""The random numbers that randomised policies draw: one vector, or one point, for every (lane, decision).

As in :mod:`windvane.kernels.random`, a draw depends on (seed, lane id, decision number) alone.
"""

from __future__ import annotations

import numpy as np

from windvane.kernels.drawing import normal_vector, round_point
from windvane.kernels.jit import compiled
from windvane.kernels.linalg import dot, factorise, solve_cholesky
from windvane.kernels.random import SAMPLES


@compiled
def draw_normals(seed: np.uint64, lane_ids: np.ndarray, decision: int, out: np.ndarray) -> None:
    """out[lane] = a standard normal vector."""
    for lane in range(out.shape[0]):
        normal_vector(seed, lane_ids[lane], decision, SAMPLES, 0, out[lane])


@compiled
def draw_points(law: int, radius: float, seed: np.uint64, lane_ids: np.ndarray, decision: int, out: np.ndarray) -> None:
    """out[lane] = a point uniform in the ball (``law`` BALL) or on the sphere (SPHERE)."""
    for lane in range(out.shape[0]):
        round_point(law, radius, seed, lane_ids[lane], decision, SAMPLES, 0, out[lane])


@compiled
def spread_lanes(lo: int, hi: int, V: np.ndarray, V_tilde: np.ndarray, z: np.ndarray, out: np.ndarray) -> None:
    """out[lane] = V^{-1} C z with the lower triangular C C' = V_tilde: for a standard normal z, a normal vector with
    covariance V^{-1} V_tilde V^{-1}. ``z`` is used up."""
    d = V.shape[1]
    lower = np.empty((d, d))
    for lane in range(lo, hi):
        factorise(V_tilde[lane], lower)
        for i in range(d - 1, -1, -1):  # from below, so that what is still needed of z is not overwritten
            z[lane, i] = dot(lower[i, : i + 1], z[lane, : i + 1])
        factorise(V[lane], lower)
        solve_cholesky(lower, z[lane], out[lane])
