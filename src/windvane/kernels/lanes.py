"""The packed state of lanes: a lane is a row of three arrays.

``record[lanes]``
    Named scalars, of type :data:`RECORD`: settings, clock, extent of the history and how the last solve went.
``dense[lanes, rows, d]``
    Vectors and matrices in rows of length d: theta_hat, b, pull, then V, V_tilde and, with a linearisation, H.
``history[lanes, d + 3, capacity]``
    The remembered observations ``start <= i < end``, sorted by deciding time: d rows of features, then stored weight,
    reward and deciding time. Loops over time are contiguous. The capacity is 0 where nothing is remembered.

The weight of entry i now is ``weight[i] * scale`` with ``scale = gamma^(now - origin)``: ageing the history costs one
multiplication and not a pass. Kernels read a field as ``lane["now"]``, which numba and NumPy both understand, so the
same source also runs interpreted (see :mod:`windvane.kernels.custom`).
"""

from __future__ import annotations

import numpy as np

from windvane.kernels.jit import compiled_inner

RECORD = np.dtype(
    [
        # settings
        ("link", np.int64),  # code of the compiled link, -1 for a custom one
        ("S", np.float64),  # norm bound of the parameter
        ("L", np.float64),  # norm bound of the arms
        ("lam", np.float64),  # V and V_tilde start as lam I and decay towards it
        ("ridge", np.float64),  # coefficient of theta in g; the same for H
        ("least_slope", np.float64),  # smallest curvature that a one-pass update uses (c_mu)
        ("root_tolerance", np.float64),  # certified distance of theta_hat from the root
        ("drop_budget", np.float64),  # total weight that may be dropped from the history
        ("gamma", np.float64),
        ("window", np.float64),  # infinite without a window
        ("memory", np.float64),  # age beyond which an observation may be dropped
        # clock
        ("now", np.float64),  # rounds since the lane started or was reset
        ("origin", np.float64),  # time to which stored weights refer
        ("scale", np.float64),  # gamma^(now - origin)
        ("dropped", np.float64),  # weight that was dropped, as of now
        # history
        ("start", np.int64),
        ("end", np.int64),
        ("removals", np.int64),  # observations subtracted since the window's sums were last rebuilt
        # root
        ("status", np.int64),  # FRESH, MOVED or LOST
        ("passes", np.int64),  # passes over the history of the last solve
        ("error", np.float64),  # bound on the error of theta_hat at the last solve
        ("strayed", np.float64),  # how far theta_hat may be from the points at which H was evaluated
    ],
    align=True,
)
SETTINGS = RECORD.names[: RECORD.names.index("now")]  # type: ignore[index,union-attr]

# theta_hat is the root; (pull, H) tell how to move it there; they do not, because observations were removed
FRESH, MOVED, LOST = 0, 1, 2

THETA_HAT, B, PULL = 0, 1, 2  # rows of ``dense``; pull = g(theta_hat) - b, carried along between solves
VECTORS = 3

# Rows of ``buffers[BUFFERS, capacity]``: z, mu(z), mu'(z) of every entry, then scratch of one block.
Z, MEAN, SLOPE, FACTOR, SCALED, SCRATCH = 0, 1, 2, 3, 4, 6
BUFFERS = 8

WORK = 24  # matrices of the workspace ``work[WORK, d, d]`` that solvers are given


def dense_rows(dim: int, *, linearised: bool) -> int:
    """Return how many rows of ``dense`` a lane needs."""
    return VECTORS + (3 if linearised else 2) * dim


@compiled_inner
def V_of(row: np.ndarray) -> np.ndarray:
    """V of a lane, a view."""
    return row[VECTORS : VECTORS + row.shape[1]]


@compiled_inner
def V_tilde_of(row: np.ndarray) -> np.ndarray:
    """V_tilde of a lane, a view."""
    return row[VECTORS + row.shape[1] : VECTORS + 2 * row.shape[1]]


@compiled_inner
def H_of(row: np.ndarray) -> np.ndarray:
    """The carried Hessian of a lane, a view."""
    return row[VECTORS + 2 * row.shape[1] : VECTORS + 3 * row.shape[1]]


@compiled_inner
def is_linearised(row: np.ndarray) -> bool:
    """Whether a lane carries (pull, H)."""
    return row.shape[0] > VECTORS + 2 * row.shape[1]
