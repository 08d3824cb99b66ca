"""The packed state of lanes: a lane is a row in each of three arrays.

``record[lanes]``
    Named scalars of type :data:`RECORD`: settings, clock, extent of the history, result of the last solve.
``dense[lanes, rows, d]``
    Vectors and matrices, stored in rows of length d: theta_hat, b, pull, then V, V_tilde and, if linearised, H.
``history[lanes, d + 3, capacity]``
    The stored observations ``start <= i < end``, sorted by the time of their decision: d rows of features, then stored
    weight, reward and decision time. Loops over time are contiguous. The capacity is 0 if nothing is stored.

The current weight of entry i is ``weight[i] * scale`` with ``scale = gamma^(now - origin)``, so ageing the history
takes one multiplication instead of a pass. Kernels read a field as ``lane["now"]``, which works in numba and in NumPy,
so the same source can also run interpreted (see :mod:`windvane.kernels.custom`).
"""

from __future__ import annotations

import numpy as np

from windvane.kernels.jit import compiled_inner, compiled_view

EXPANDED_FROM = 8  # a history is expanded once it is this many times as long as what always stays exact
LEVELS = 2  # expansions of a lane: of its young observations (0), and of the old ones, which are many and light (1)

RECORD = np.dtype(
    [
        # settings
        ("link", np.int64),  # code of the compiled link, -1 for a custom link
        ("S", np.float64),  # norm bound of the parameter
        ("L", np.float64),  # norm bound of the arms
        ("floor", np.float64),  # metrics start as floor I and decay towards it: lam; in one pass, ridge
        ("ridge", np.float64),  # coefficient of theta in g; H starts as ridge I and decays towards it
        ("least_slope", np.float64),  # smallest curvature that a one-pass update uses (c_mu)
        ("root_tolerance", np.float64),  # largest certified distance between theta_hat and the root
        ("drop_budget", np.float64),  # total weight that can be dropped from the history
        ("gamma", np.float64),
        ("window", np.float64),  # infinite without a window
        ("memory", np.float64),  # age beyond which an observation can be dropped
        # settings of the expansion (see :mod:`windvane.kernels.expansion`)
        ("order", np.int64),  # Taylor polynomials of mu have this degree, which is even; 0: nothing is expanded
        ("recent", np.int64),  # observations that always stay exact
        ("young", np.int64),  # about as many older ones are in the young level, and the rest in the old one
        ("rate", np.int64),  # observations that one solve may add to an expansion
        ("sums", np.int64),  # length of the packed tensors S
        ("moments", np.int64),  # length of the packed tensor M
        ("columns", np.int64),  # number of monomials of degree below ``order``
        ("remainder", np.float64),  # sup |mu^(order + 1)| / (order + 1)!, up to a factor that depends on theta
        ("budget", np.float64),  # largest certified effect of an expansion on theta_hat
        # clock
        ("now", np.float64),  # rounds since the lane started or was reset
        ("origin", np.float64),  # reference time of the stored weights
        ("scale", np.float64),  # gamma^(now - origin)
        ("dropped", np.float64),  # current weight of the dropped observations
        # what the radius of an online estimate adds up (see :mod:`windvane.kernels.online`)
        ("regret", np.float64),  # of the online learner
        ("misfit", np.float64),  # of the ridge regression on its predictions
        # history
        ("start", np.int64),
        ("end", np.int64),
        ("removals", np.int64),  # observations subtracted since the sums of the window were last rebuilt
        # root
        ("status", np.int64),  # FRESH, MOVED or LOST
        ("passes", np.int64),  # passes over the history in the last solve
        ("error", np.float64),  # bound on the error of theta_hat after the last solve
        ("strayed", np.float64),  # bound on the distance between theta_hat and the points where H was evaluated
        ("bent", np.float64),  # bound on the error of H by an expansion, relative to its smallest eigenvalue
        # expansion
        ("anchored", np.int64, (LEVELS,)),  # 1 if the level has an expansion to use
        ("edge", np.int64, (LEVELS,)),  # it represents entries before this one, down to the edge of the older level
        ("built", np.int64, (LEVELS,)),  # the next one contains entries before this one; -1 if none is being built
        ("pause", np.int64, (LEVELS,)),  # solves until another expansion can be begun
        ("rest", np.int64, (LEVELS,)),  # length of the last pause
        ("reach", np.float64, (LEVELS,)),  # distance from the center up to which an expansion was last valid, about
        ("base", np.int64),  # first entry of the next expansion of the young level
        ("owed", np.float64),  # factor by which stored weights were rescaled since the tensors were last brought along
        ("least", np.float64),  # lower bound on the smallest eigenvalue of V
        # not part of the state: the radius of a projection, and the last evaluation of g
        ("beta", np.float64),
        ("first", np.int64),  # entries from this one on were summed
        ("expanded", np.int64),  # number of levels, the oldest, that represented the others
        ("slack", np.float64),  # bound on their effect on a root, the largest since this field was set to 0
        ("bend", np.float64),  # ``bent`` for H at this point
        ("levels", np.int64),  # number of levels that all evaluations of a loss must use; -1: the next one decides
        ("mixed", np.int64),  # 1 if one of them could not
        ("stale", np.int64, (LEVELS,)),  # 1 if the tensors have changed since they were laid out
    ],
    align=True,
)

# FRESH: theta_hat is the root. MOVED: (pull, H) predict the root. LOST: they do not, because observations were removed.
FRESH, MOVED, LOST = 0, 1, 2

THETA_HAT, B, PULL = 0, 1, 2  # rows of ``dense``; pull = g(theta_hat) - b, updated between solves
ITERATE = PULL  # the same row of an online estimator: the parameter of the online learner
VECTORS = 3

# Rows of ``buffers[BUFFERS, capacity]``: z, mu(z), mu'(z) of every entry, then scratch space for one block.
Z, MEAN, SLOPE, FACTOR, SCALED, SCRATCH = 0, 1, 2, 3, 4, 6
BUFFERS = 8

CHUNK = 64  # observations that enter an expansion at a time: their monomials fit in the L2 cache

WORK = 24  # matrices in ``work[WORK, d, d]``, the workspace of the solvers


def dense_rows(dim: int, *, linearised: bool) -> int:
    """Return the number of rows of ``dense`` that a lane needs."""
    return VECTORS + (3 if linearised else 2) * dim


@compiled_view
def V_of(row: np.ndarray) -> np.ndarray:
    """Return V of a lane, as a view."""
    return row[VECTORS : VECTORS + row.shape[1]]


@compiled_view
def V_tilde_of(row: np.ndarray) -> np.ndarray:
    """Return V_tilde of a lane, as a view."""
    return row[VECTORS + row.shape[1] : VECTORS + 2 * row.shape[1]]


@compiled_view
def H_of(row: np.ndarray) -> np.ndarray:
    """Return H of a lane as it is updated between solves, as a view."""
    return row[VECTORS + 2 * row.shape[1] : VECTORS + 3 * row.shape[1]]


@compiled_inner
def is_linearised(row: np.ndarray) -> bool:
    """Return whether a lane has (pull, H)."""
    return row.shape[0] > VECTORS + 2 * row.shape[1]
