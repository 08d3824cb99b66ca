"""How expansions are built and renewed: a bounded number of observations in each solve, so that none pays for all.

A level's expansion (:mod:`windvane.kernels.expansion`) is used until theta_hat has moved so far from its center that
the certified error of g reaches a share of what is accepted. The next one is then built around the present theta_hat,
from its oldest observation on, while the current one stays in use. When it has reached the newest observation of the
level it takes over.

==============  =====================================  ==================================================
observations    in the history                         where
==============  =====================================  ==================================================
old             ``start <= i < edge[1]``               level 1
young           ``edge[1] <= i < edge[0]``             level 0, about ``young`` of them
recent          ``edge[0] <= i < end``                 exact, at least ``recent`` of them
==============  =====================================  ==================================================

Recent observations enter level 0 CHUNK at a time. The oldest of level 0 pass on to level 1 whenever level 0 is renewed:
the next expansion of level 0 begins at ``base``, and what lies before is added to level 1 when it takes over. A late
reward always enters among the recent ones, whatever its age, and waits there for its turn: its weight is that of its
age either way.

The center lies halfway between theta_hat and its radial projection onto the ball, because policies evaluate g at
theta_hat and near the projection. If they are too far from each other, the projection is the center, because a
projection takes several evaluations.

Everything depends only on the lane's own observations and rounds. If an expansion is no longer valid when it is
finished, because theta_hat moves too fast, no other is begun for a number of solves that doubles each time.
"""

from __future__ import annotations

import math

import numpy as np

from windvane.kernels.expansion import SLACK, block_of, bound_curvature, bound_remainder, delta_of, refresh
from windvane.kernels.history import NOT_BUILDING
from windvane.kernels.jit import compiled_inner
from windvane.kernels.lanes import CHUNK, EXPANDED_FROM, LEVELS, THETA_HAT, V_of
from windvane.kernels.linalg import cholesky, copy, norm, trace_of_inverse
from windvane.kernels.monomials import add_entries

RENEW = 0.4  # share of the accepted error at which the next expansion is begun
FIRST_PAUSE, LONGEST_PAUSE = 16, 4096  # solves without a new expansion after one that came too late
NEAR = 1.0  # relative to ``reach``: largest distance of theta_hat from the ball for a center in between
MOST_PASSED_ON = 256  # observations that pass from level 0 to level 1 at once
LOOK_AGAIN = 3  # solves between two looks at an expansion that is good enough
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
    lane: np.void, level: np.ndarray, number: int, rows: np.ndarray, first: int, end: int, d: int, vectors: np.ndarray
) -> None:
    """Add entries to a block of a level."""
    block, counts = block_of(level, lane, d, number), delta_of(level, lane, d)[d:]
    link, order, columns = lane["link"], lane["order"], lane["columns"]
    while first < end:
        n = min(CHUNK, end - first)
        add_entries(link, order, columns, rows, first, n, block, counts, vectors)
        first += n


@compiled_inner
def _covers_gap(lane: np.void, number: int, length: float) -> bool:
    """Return whether one center can serve both theta_hat, of this length, and its projection."""
    return length - lane["S"] <= NEAR * lane["reach"][number]


@compiled_inner
def _measure_use(lane: np.void, row: np.ndarray, level: np.ndarray, number: int, point: np.ndarray) -> float:
    """Return the share of the accepted error that a level takes, at the projection and, if it is near, at theta_hat.

    The error grows like the power ``order`` + 1 of the distance. So ``reach`` is the distance at which it would take
    everything.
    """
    theta, S = row[THETA_HAT], lane["S"]
    length, largest = norm(theta), 0.0
    for end in range(1 if length <= S or not _covers_gap(lane, number, length) else 2):
        factor = S / length if end == 0 and length > S else 1.0
        square = 0.0
        for j in range(theta.shape[0]):
            point[j] = factor * theta[j]
            square += (point[j] - level[j]) ** 2
        error, _ = bound_remainder(lane, level, point)
        accepted = lane["budget"] * bound_curvature(lane, lane["L"] * factor * length)
        share = SLACK * error / accepted if accepted > 0.0 else math.inf
        if end == 0 and share > 0.0:
            lane["reach"][number] = math.sqrt(square) * share ** (-1.0 / (lane["order"] + 1))
        largest = max(largest, share)
    return largest


@compiled_inner
def _begin(lane: np.void, row: np.ndarray, level: np.ndarray, number: int) -> None:
    """Begin the next expansion of a level around the present theta_hat."""
    theta, S = row[THETA_HAT], lane["S"]
    d, length = theta.shape[0], norm(theta)
    block = block_of(level, lane, d, 1)
    for i in range(block.shape[0]):
        block[i] = 0.0
    projection = 1.0 if length <= S else S / length
    factor = 0.5 * (1.0 + projection) if _covers_gap(lane, number, length) else projection
    for j in range(d):
        block[j] = factor * theta[j]
    if number == 0:
        excess = min(lane["edge"][0] - lane["edge"][1] - lane["young"], MOST_PASSED_ON)
        lane["base"] = lane["edge"][1] + (max(excess, 0) if lane["anchored"][1] == 1 else 0)
        lane["built"][0] = lane["base"]
    else:
        lane["built"][1] = lane["start"]


@compiled_inner
def _take_over(
    lane: np.void, expansion: np.ndarray, number: int, rows: np.ndarray, d: int, vectors: np.ndarray
) -> None:
    """Use the expansion of a level that has been built."""
    level, built = expansion[number], lane["built"][number]
    copy(block_of(level, lane, d, 1), block_of(level, lane, d, 0))
    lane["stale"][number] = 1
    if number == 0:
        if lane["base"] > lane["edge"][1]:
            _add(lane, expansion[1], 0, rows, lane["edge"][1], lane["base"], d, vectors)
            lane["edge"][1], lane["stale"][1] = lane["base"], 1
        lane["edge"][0] = built
    elif lane["anchored"][1] == 0:  # the first one: level 0 contained its entries until now
        lane["edge"][0], lane["edge"][1] = built, built
        lane["anchored"][0], lane["built"][0] = 0, NOT_BUILDING
    lane["anchored"][number], lane["built"][number] = 1, NOT_BUILDING


@compiled_inner
def _bring_weights(lane: np.void, expansion: np.ndarray, d: int) -> None:
    """Multiply all tensors by ``owed``."""
    for number in range(LEVELS):
        for half in range(2):
            tensors = block_of(expansion[number], lane, d, half)[d:]
            for i in range(tensors.shape[0]):
                tensors[i] *= lane["owed"]
        lane["stale"][number] = 1
    lane["owed"] = 1.0


@compiled_inner
def _find_goal(lane: np.void, number: int) -> int:
    """Return the entry before which the next expansion of a level ends, or -1 if the level must wait."""
    newest = lane["end"] - lane["recent"]
    if lane["anchored"][number] == 1:
        return lane["edge"][number]
    is_long = newest - lane["start"] > lane["young"] + MOST_PASSED_ON
    if number == 1:
        return newest - lane["young"] if is_long else -1
    if lane["anchored"][1] == 0 and is_long:
        return -1  # level 1 comes first
    return newest if newest - lane["edge"][1] >= lane["recent"] else -1


@compiled_inner
def _lay_out(lane: np.void, expansion: np.ndarray, d: int, table: np.ndarray, multiplicity: np.ndarray) -> None:
    """Lay out the tensors that have changed."""
    for number in range(LEVELS):
        if lane["anchored"][number] == 1 and lane["stale"][number] == 1:
            refresh(lane, expansion[number], d, table, multiplicity)
            lane["stale"][number] = 0


@compiled_inner
def maintain(
    lane: np.void,
    row: np.ndarray,
    rows: np.ndarray,
    expansion: np.ndarray,
    table: np.ndarray,
    multiplicity: np.ndarray,
    work: np.ndarray,
    vectors: np.ndarray,
) -> None:
    """Do the share of one solve: absorb observations that are no longer recent, build, renew."""
    if expansion.shape[1] == 0 or lane["end"] - lane["start"] < EXPANDED_FROM * lane["recent"]:
        return
    d, point, left = row.shape[1], work[1, 0], lane["rate"]
    if lane["owed"] != 1.0:
        _bring_weights(lane, expansion, d)
    if lane["end"] - lane["edge"][0] >= lane["recent"] + CHUNK:  # from here on, ``least`` decays as V does
        lane["least"] = least_eigenvalue(V_of(row), work[0], point)
    while lane["anchored"][0] == 1 and left > 0 and lane["end"] - lane["edge"][0] >= lane["recent"] + CHUNK:
        _add(lane, expansion[0], 0, rows, lane["edge"][0], lane["edge"][0] + CHUNK, d, vectors)
        lane["edge"][0] += CHUNK
        lane["stale"][0] = 1
        left -= CHUNK
    for number in range(LEVELS):
        goal, is_new = _find_goal(lane, number), False
        first = lane["built"][number]
        if goal < 0:
            continue
        if first != NOT_BUILDING:
            end = max(min(goal, first + max(left, 0)), first)
            _add(lane, expansion[number], 1, rows, first, end, d, vectors)
            lane["built"][number] = end
            left -= end - first
            if end < goal:
                continue
            _take_over(lane, expansion, number, rows, d, vectors)
            is_new = True
        _lay_out(lane, expansion, d, table, multiplicity)
        if lane["pause"][number] > 0 and not is_new:
            lane["pause"][number] -= 1
            continue
        share = math.inf
        if lane["anchored"][number] == 1:
            share = _measure_use(lane, row, expansion[number], number, point)
        if is_new and not share <= 1.0:
            lane["rest"][number] = min(max(2 * lane["rest"][number], FIRST_PAUSE), LONGEST_PAUSE)
            lane["pause"][number] = lane["rest"][number]
            continue
        if is_new:
            lane["rest"][number] = 0
        is_long = number == 0 and lane["edge"][0] - lane["edge"][1] > lane["young"] + MOST_PASSED_ON
        if not share <= RENEW or (is_long and lane["anchored"][1] == 1):
            _begin(lane, row, expansion[number], number)
        else:
            lane["pause"][number] = LOOK_AGAIN
    _lay_out(lane, expansion, d, table, multiplicity)
