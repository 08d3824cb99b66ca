"""How expansions are built and renewed: a bounded number of observations in each round, so that no round pays for all.

An expansion (:mod:`windvane.kernels.expansion`) is used until theta_hat has moved so far from its center that the
certified error of g reaches a share of what is accepted. The next one is then built around the present theta_hat, from
the oldest observation on, while the current one stays in use. When it has reached ``cut`` it takes over.

The most recent observations stay exact. Those that are older enter the expansion in use CHUNK at a time. A late reward
always enters among the exact ones, whatever its age, and waits there for its turn: its weight is that of its age
either way.

The center lies halfway between theta_hat and its radial projection onto the ball, because policies evaluate g at
theta_hat and near the projection. Far outside the ball the projection is the center.

Everything depends only on the lane's own observations and rounds. If an expansion is no longer valid when it is
finished, because theta_hat moves too fast, no other is begun for a number of solves that doubles each time.
"""

from __future__ import annotations

import math

import numpy as np

from windvane.kernels.expansion import SLACK, block_of, bound_remainder, derived_of, refresh
from windvane.kernels.history import NOT_BUILDING
from windvane.kernels.jit import compiled, compiled_inner
from windvane.kernels.lanes import CHUNK, THETA_HAT, V_of
from windvane.kernels.linalg import cholesky, copy, norm, trace_of_inverse
from windvane.kernels.monomials import add_entries

RENEW = 0.1  # share of the accepted error at which the next expansion is begun
FIRST_PAUSE, LONGEST_PAUSE = 16, 4096  # solves without a new expansion after one that came too late
FAR = 0.5  # relative to S: beyond this distance from the ball the center is the projection of theta_hat
HALVINGS = 4  # bisection steps for lambda_min(V), in the logarithm


@compiled_inner
def least_eigenvalue(matrix: np.ndarray, lower: np.ndarray, column: np.ndarray) -> float:
    """Return a lower bound on the smallest eigenvalue of a positive definite matrix, usually within a few percent."""
    if not cholesky(matrix, 0.0, lower):
        return 0.0
    low = 1.0 / trace_of_inverse(lower, column)
    high = math.inf
    for i in range(matrix.shape[0]):
        high = min(high, matrix[i, i])
    for _ in range(HALVINGS):
        middle = math.sqrt(low * high)
        if cholesky(matrix, -middle, lower):
            low = middle
        else:
            high = middle
    return low


@compiled_inner
def _add(
    lane: np.void, expansion: np.ndarray, number: int, rows: np.ndarray, first: int, n: int, d: int,
    buffers: np.ndarray,
) -> None:  # fmt: skip
    """Add entries to a block."""
    block, derived = block_of(expansion, lane, d, number), derived_of(expansion, lane, d)
    sums, moments = block[d : d + lane["sums"]], block[d + lane["sums"] : d + lane["sums"] + lane["moments"]]
    at = lane["columns"] * (d * (d + 1) // 2) + lane["moments"] + d
    counts = derived[at : at + d]
    link, order, columns = lane["link"], lane["order"], lane["columns"]
    last = block.shape[0] - 1
    block[last] += add_entries(link, order, columns, rows, first, n, block[:d], sums, moments, counts, buffers)


@compiled_inner
def _use(lane: np.void, row: np.ndarray, expansion: np.ndarray, point: np.ndarray) -> float:
    """Return the share of the accepted error that the expansion takes at theta_hat or at its projection."""
    theta, S = row[THETA_HAT], lane["S"]
    length, largest = norm(theta), 0.0
    for end in range(2):
        factor = 1.0 if end == 0 or length <= S else S / length
        for j in range(theta.shape[0]):
            point[j] = factor * theta[j]
        error, _, curvature = bound_remainder(lane, expansion, point)
        share = SLACK * error / (lane["budget"] * curvature) if curvature > 0.0 else math.inf
        is_far = length > (1.0 + FAR) * S
        if not (is_far and end == 0):
            largest = max(largest, share)
    return largest


@compiled_inner
def _begin(lane: np.void, row: np.ndarray, expansion: np.ndarray) -> None:
    """Begin a new expansion around the present theta_hat."""
    theta, S = row[THETA_HAT], lane["S"]
    d, length = theta.shape[0], norm(theta)
    block = block_of(expansion, lane, d, 1)
    for i in range(block.shape[0]):
        block[i] = 0.0
    projection = 1.0 if length <= S else S / length
    factor = projection if length > (1.0 + FAR) * S else 0.5 * (1.0 + projection)
    for j in range(d):
        block[j] = factor * theta[j]
    lane["built"] = lane["start"]


@compiled_inner
def maintain(
    lane: np.void,
    row: np.ndarray,
    rows: np.ndarray,
    expansion: np.ndarray,
    table: np.ndarray,
    multiplicity: np.ndarray,
    work: np.ndarray,
    buffers: np.ndarray,
) -> None:
    """Do the share of one solve: absorb observations that are no longer recent, build, renew."""
    d = row.shape[1]
    end, recent = lane["end"], lane["recent"]
    if expansion.shape[0] == 0 or (lane["anchored"] == 0 and end - lane["start"] < 2 * recent):
        return
    size = block_of(expansion, lane, d, 0).shape[0]
    if lane["owed"] != 1.0:
        for i in range(2 * size):
            is_center = i % size < d
            expansion[i] *= 1.0 if is_center else lane["owed"]
        lane["owed"] = 1.0
        lane["stale"] = 1
    lane["least"] = least_eigenvalue(V_of(row), work[0], work[1, 0])
    left = lane["rate"]
    while lane["anchored"] == 1 and left > 0 and end - lane["cut"] >= recent + CHUNK:
        _add(lane, expansion, 0, rows, lane["cut"], CHUNK, d, buffers)
        lane["cut"] += CHUNK
        lane["stale"] = 1
        left -= CHUNK
    is_new = False
    if lane["built"] != NOT_BUILDING:
        goal = lane["cut"] if lane["anchored"] == 1 else end - recent
        left = lane["rate"]
        while left > 0 and lane["built"] < goal:
            n = min(CHUNK, goal - lane["built"])
            _add(lane, expansion, 1, rows, lane["built"], n, d, buffers)
            lane["built"] += n
            left -= n
        if lane["built"] >= goal:
            copy(block_of(expansion, lane, d, 1), block_of(expansion, lane, d, 0))
            lane["anchored"], lane["cut"], lane["built"], lane["stale"] = 1, lane["built"], NOT_BUILDING, 1
            is_new = True
    if lane["anchored"] == 1 and lane["stale"] == 1:
        refresh(lane, expansion, d, table, multiplicity)
        lane["stale"] = 0
    if lane["built"] == NOT_BUILDING:
        share = _use(lane, row, expansion, work[1, 0]) if lane["anchored"] == 1 else math.inf
        if is_new:
            lane["rest"] = 0 if share <= 1.0 else min(max(2 * lane["rest"], FIRST_PAUSE), LONGEST_PAUSE)
            lane["pause"] = lane["rest"]
        if lane["pause"] > 0:
            lane["pause"] -= 1
        elif not share <= RENEW:
            _begin(lane, row, expansion)


@compiled
def refresh_lanes(record: np.ndarray, expansion: np.ndarray, table: np.ndarray, multiplicity: np.ndarray, d: int) -> None:
    """Lay out the tensors of every lane, after they were loaded."""
    for i in range(len(record)):
        if record[i]["anchored"] == 1:
            refresh(record[i], expansion[i], d, table, multiplicity)
            record[i]["stale"] = 0
