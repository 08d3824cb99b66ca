"""The random numbers of randomised policies: one vector, or one point, for every (lane, decision).

As in :mod:`windvane.kernels.random`, a draw depends on (seed, lane id, decision number) only.
"""

from __future__ import annotations

import numpy as np

from windvane.kernels.drawing import normal_vector, round_point
from windvane.kernels.jit import compiled
from windvane.kernels.linalg import dot, factorise, solve_cholesky
from windvane.kernels.random import OWN, SAMPLES, uniform_pair


@compiled
def draw_normals(seed: np.uint64, lane_ids: np.ndarray, decision: int, first: int, out: np.ndarray) -> None:
    """Write the standard normal vectors of a decision from number ``first`` on to the rows of each out[lane]."""
    blocks = (out.shape[2] + 1) // 2
    for lane in range(out.shape[0]):
        for n in range(out.shape[1]):
            normal_vector(seed, lane_ids[lane], decision, SAMPLES, blocks * (first + n), out[lane, n])


@compiled
def draw_points(law: int, radius: float, seed: np.uint64, lane_ids: np.ndarray, decision: int, out: np.ndarray) -> None:
    """Write to each out[lane] a point uniform in the ball (``law`` BALL) or on the sphere (SPHERE)."""
    for lane in range(out.shape[0]):
        round_point(law, radius, seed, lane_ids[lane], decision, SAMPLES, 0, out[lane])


@compiled
def draw_own_uniforms(seed: np.uint64, lane_ids: np.ndarray, decision: int, first_block: int, out: np.ndarray) -> None:
    """Write the uniforms of a decision that a policy of the user's own draws to the row of each out[lane]."""
    for lane in range(out.shape[0]):
        for i in range(0, out.shape[1], 2):
            first, second = uniform_pair(seed, lane_ids[lane], decision, OWN, first_block + i // 2)
            out[lane, i] = first
            if i + 1 < out.shape[1]:
                out[lane, i + 1] = second


@compiled
def spread_lanes(V: np.ndarray, V_tilde: np.ndarray, z: np.ndarray, lower: np.ndarray, out: np.ndarray) -> None:
    """Write V^{-1} C z to each row of out[lane], with C lower triangular, C C' = V_tilde; ``z`` is overwritten.

    If z is standard normal, the result is a normal vector with covariance V^{-1} V_tilde V^{-1}.
    """
    d = V.shape[1]
    for lane in range(V.shape[0]):
        factorise(V_tilde[lane], lower)
        for n in range(z.shape[1]):
            for i in range(d - 1, -1, -1):  # from the last row up: row i still needs the entries of z before i
                z[lane, n, i] = dot(lower[i, : i + 1], z[lane, n, : i + 1])
        factorise(V[lane], lower)
        for n in range(z.shape[1]):
            solve_cholesky(lower, z[lane, n], out[lane, n])
