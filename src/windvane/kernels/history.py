"""Ageing, observations and forgetting of lanes (layout: :mod:`windvane.kernels.lanes`)."""

from __future__ import annotations

import math

import numpy as np

from windvane.kernels.elementary import mean_slope
from windvane.kernels.jit import compiled, compiled_inner
from windvane.kernels.lanes import LEVELS, LOST, MOVED, PULL, THETA_HAT, B, H_of, V_of, V_tilde_of, is_linearised
from windvane.kernels.linalg import add_outer, copy_matrix, dot

SMALLEST_WEIGHT = 1e-300  # a smaller weight could underflow to zero in the history
NOT_BUILDING = -1  # ``built`` while no expansion is being built
MOST_EXPONENT = 300.0  # stored weights grow like gamma^-(time - origin) and are rescaled before they exceed e^300
# Subtracting an observation leaves a rounding error of 1e-16 times its contribution to V. The sums of a window are
# rebuilt after as many removals as the window holds, so that the cost per round is constant, but not before
# REBUILD_AFTER removals. They are rebuilt at once if a removed observation was so heavy that its error could exceed
# HEAVY * 1e-16 = 1e-12 times lam.
REBUILD_AFTER = 1024
HEAVY = 1e4


@compiled_inner
def _decay_towards(matrix: np.ndarray, factor: float, diagonal: float) -> None:
    """Set matrix to factor matrix + (1 - factor) diagonal I."""
    d = matrix.shape[0]
    for i in range(d):
        for j in range(d):
            matrix[i, j] *= factor
        matrix[i, i] += (1.0 - factor) * diagonal


@compiled_inner
def _add_entry(rows: np.ndarray, i: int, factor: float, V: np.ndarray, b: np.ndarray) -> None:
    """Add ``factor`` times entry i of a history to V and b."""
    d = b.shape[0]
    weight = factor * rows[d, i]
    for j in range(d):
        b[j] += weight * rows[d + 1, i] * rows[j, i]
        for k in range(d):
            V[j, k] += weight * (rows[j, i] * rows[k, i])  # exactly symmetric, as in add_outer


@compiled_inner
def _slide_window(lane: np.void, row: np.ndarray, rows: np.ndarray) -> None:
    """Remove the observations that have left the window."""
    d = row.shape[1]
    V, b = V_of(row), row[B]
    start, end = lane["start"], lane["end"]
    first = start
    heaviest = 0.0
    while start < end and lane["now"] - rows[d + 2, start] >= lane["window"]:
        _add_entry(rows, start, -1.0, V, b)
        square = 0.0
        for j in range(d):
            square += rows[j, start] * rows[j, start]
        length = math.sqrt(square)
        heaviest = max(heaviest, rows[d, start] * length * (length + abs(rows[d + 1, start])))
        start += 1
    if start == first:
        return
    lane["status"] = LOST
    lane["start"] = start
    lane["removals"] += start - first
    if lane["removals"] >= max(REBUILD_AFTER, end - start) or heaviest > HEAVY * lane["floor"]:
        for j in range(d):
            b[j] = 0.0
            for k in range(d):
                V[j, k] = lane["floor"] if j == k else 0.0
        for i in range(start, end):
            _add_entry(rows, i, 1.0, V, b)
        lane["removals"] = 0
    copy_matrix(V, V_tilde_of(row))


@compiled_inner
def _leave_behind(lane: np.void) -> None:
    """Keep the edges of the expansions within the history. A level of dropped observations only is given up."""
    start = lane["start"]
    lane["base"] = max(lane["base"], start)
    for number in range(LEVELS):
        if lane["built"][number] != NOT_BUILDING:
            lane["built"][number] = max(lane["built"][number], start)
        if lane["edge"][number] <= start:
            lane["edge"][number], lane["anchored"][number] = start, 0
            if number == 1 and lane["base"] > start:  # the next young level would leave out what lies before ``base``
                lane["built"][0] = NOT_BUILDING
    if start == lane["end"]:
        for number in range(LEVELS):
            lane["built"][number] = NOT_BUILDING
    is_used = False
    for number in range(LEVELS):
        is_used = is_used or lane["anchored"][number] == 1 or lane["built"][number] != NOT_BUILDING
    if not is_used:  # no tensor waits for it, and a product of many factors would underflow
        lane["owed"] = 1.0


@compiled_inner
def _discount(lane: np.void, row: np.ndarray, rows: np.ndarray, gap: float) -> None:
    """Discount V, V_tilde, b, the linearisation and the weights, and drop observations that are too old."""
    d = row.shape[1]
    gamma, lam, ridge = lane["gamma"], lane["floor"], lane["ridge"]
    lane["status"] = max(lane["status"], MOVED)
    factor = gamma if gap == 1.0 else gamma**gap
    _decay_towards(V_of(row), factor, lam)
    _decay_towards(V_tilde_of(row), factor * factor, lam)
    for j in range(d):
        row[B, j] *= factor
    if is_linearised(row):
        _decay_towards(H_of(row), factor, ridge)
        for j in range(d):
            row[PULL, j] = factor * row[PULL, j] + (1.0 - factor) * ridge * row[THETA_HAT, j]
    lane["dropped"] *= factor
    lane["least"] = lam + factor * (lane["least"] - lam)  # a bound on V that observations only make safer
    start, end, now = lane["start"], lane["end"], lane["now"]
    if end == start:
        return
    exponent = math.log(gamma) * (now - lane["origin"])
    if exponent < -MOST_EXPONENT:
        scale = math.exp(exponent)
        for i in range(start, end):
            rows[d, i] *= scale
        lane["origin"] = now
        lane["owed"] *= scale
    scale = gamma ** (now - lane["origin"])
    lane["scale"] = scale
    while start < end and now - rows[d + 2, start] > lane["memory"]:
        dropped = lane["dropped"] + rows[d, start] * scale
        if dropped > lane["drop_budget"]:
            break
        lane["dropped"] = dropped
        start += 1
    lane["start"] = start
    _leave_behind(lane)


@compiled
def age_lanes(gap: float, record: np.ndarray, dense: np.ndarray, history: np.ndarray) -> None:
    """Let ``gap`` rounds pass in every lane."""
    for i in range(len(record)):
        lane = record[i]
        lane["now"] += gap
        if lane["window"] < math.inf:
            _slide_window(lane, dense[i], history[i])
        elif lane["gamma"] < 1.0:
            _discount(lane, dense[i], history[i], gap)


@compiled_inner
def _insert(lane: np.void, rows: np.ndarray, x: np.ndarray, reward: float, time: float, weight: float) -> None:
    """Insert an observation into a history, sorted by the time of its decision, behind all expanded observations."""
    d = x.shape[0]
    start, end = lane["start"], lane["end"]
    if start == end:
        lane["origin"] = lane["now"]
        lane["scale"], lane["owed"] = 1.0, 1.0
    at, low = end, max(start, lane["edge"][0])
    for number in range(LEVELS):
        low = max(low, lane["built"][number])
    while at > low and rows[d + 2, at - 1] > time:
        for j in range(d + 3):
            rows[j, at] = rows[j, at - 1]
        at -= 1
    for j in range(d):
        rows[j, at] = x[j]
    rows[d, at] = weight * math.exp(math.log(lane["gamma"]) * (lane["origin"] - time))
    rows[d + 1, at] = reward
    rows[d + 2, at] = time
    lane["end"] = end + 1


@compiled
def observe_lanes(
    x: np.ndarray,
    reward: np.ndarray,
    age: np.ndarray,
    weight: np.ndarray,
    mask: np.ndarray,
    record: np.ndarray,
    dense: np.ndarray,
    history: np.ndarray,
) -> None:
    """Learn one observation per lane of ``mask``. Observations older than the memory are ignored."""
    d = x.shape[1]
    for i in range(len(record)):
        if not mask[i] or weight[i] == 0.0:
            continue
        lane, row, point = record[i], dense[i], x[i]
        decay = 1.0 if age[i] == 0.0 else lane["gamma"] ** age[i]
        aged_weight = weight[i] * decay
        if aged_weight < SMALLEST_WEIGHT or age[i] >= lane["window"]:
            continue
        if age[i] > lane["memory"] and aged_weight <= lane["gamma"] ** lane["memory"]:
            continue
        mean, slope = 0.0, 0.0
        if is_linearised(row):  # evaluated before any change, because a custom link can raise
            mean, slope = mean_slope(lane["link"], dot(point, row[THETA_HAT]))
        add_outer(V_of(row), aged_weight, point)
        add_outer(V_tilde_of(row), aged_weight * decay, point)
        for j in range(d):
            row[B, j] += aged_weight * reward[i] * point[j]
        lane["status"] = max(lane["status"], MOVED)
        if is_linearised(row):
            for j in range(d):
                row[PULL, j] += aged_weight * (mean - reward[i]) * point[j]
            add_outer(H_of(row), aged_weight * slope, point)
        if history.shape[2] > 0:
            _insert(lane, history[i], point, reward[i], lane["now"] - age[i], weight[i])
