"""Weights, sums and windows of rewards by arm, for arms that are indices (:mod:`windvane.estimation.arm_means`)."""

from __future__ import annotations

import math

import numpy as np

from windvane.kernels.history import HEAVY, REBUILD_AFTER
from windvane.kernels.jit import compiled, compiled_inner

LANE = np.dtype(
    [
        ("gamma", np.float64),
        ("window", np.float64),  # infinite without a window
        ("now", np.float64),  # rounds since the lane started or was reset
        ("start", np.int64),  # the observations in the window are start <= i < end of its history, sorted by time
        ("end", np.int64),
        ("removals", np.int64),  # observations subtracted since the sums were last rebuilt
    ],
    align=True,
)
WEIGHT, REWARD, NUMBER = 0, 1, 2  # rows of ``sums[lane, 3, K]``: sum w, sum w r, and how many are in the window
ARM, OMEGA, VALUE, TIME = 0, 1, 2, 3  # rows of ``history[lane, 4, capacity]``: arm, weight, reward, decision time


@compiled_inner
def _add(sums: np.ndarray, rows: np.ndarray, i: int, sign: float) -> int:
    """Add ``sign`` times entry i of a history to the sums of its arm, which is returned."""
    k = int(rows[ARM, i])
    sums[WEIGHT, k] += sign * rows[OMEGA, i]
    sums[REWARD, k] += sign * (rows[OMEGA, i] * rows[VALUE, i])
    sums[NUMBER, k] += sign
    return k


@compiled_inner
def _slide(lane: np.void, sums: np.ndarray, rows: np.ndarray) -> None:
    """Remove the observations that have left the window.

    As in :mod:`windvane.kernels.history`, subtracting leaves a rounding error, so sums are rebuilt from time to time,
    and at once where a removed observation was much heavier than what remains. The sums of no observation are 0.
    """
    start, end = lane["start"], lane["end"]
    first, is_heavy = start, False
    while start < end and lane["now"] - rows[TIME, start] >= lane["window"]:
        k = _add(sums, rows, start, -1.0)
        if sums[NUMBER, k] == 0.0:
            sums[WEIGHT, k], sums[REWARD, k] = 0.0, 0.0
        elif rows[OMEGA, start] * (1.0 + abs(rows[VALUE, start])) > HEAVY * sums[WEIGHT, k]:
            is_heavy = True
        start += 1
    lane["start"] = start
    lane["removals"] += start - first
    if is_heavy or lane["removals"] >= max(REBUILD_AFTER, end - start):
        for row in range(sums.shape[0]):
            for k in range(sums.shape[1]):
                sums[row, k] = 0.0
        for i in range(start, end):
            _add(sums, rows, i, 1.0)
        lane["removals"] = 0


@compiled
def age_arms(gap: float, lanes: np.ndarray, sums: np.ndarray, history: np.ndarray) -> None:
    """Let ``gap`` rounds pass in every lane."""
    for i in range(len(lanes)):
        lane = lanes[i]
        lane["now"] += gap
        if lane["window"] < math.inf:
            _slide(lane, sums[i], history[i])
        elif lane["gamma"] < 1.0:
            factor = lane["gamma"] if gap == 1.0 else lane["gamma"] ** gap
            for row in range(NUMBER):
                for k in range(sums.shape[2]):
                    sums[i, row, k] *= factor


@compiled
def observe_arms(
    arm: np.ndarray,
    reward: np.ndarray,
    age: np.ndarray,
    weight: np.ndarray,
    mask: np.ndarray,
    lanes: np.ndarray,
    sums: np.ndarray,
    history: np.ndarray,
) -> None:
    """Learn one reward per lane of ``mask``."""
    for i in range(len(lanes)):
        lane, k = lanes[i], arm[i]
        if not mask[i] or weight[i] == 0.0 or age[i] >= lane["window"]:
            continue
        aged_weight = weight[i] if age[i] == 0.0 else weight[i] * lane["gamma"] ** age[i]
        sums[i, WEIGHT, k] += aged_weight
        sums[i, REWARD, k] += aged_weight * reward[i]
        if history.shape[2] > 0:
            sums[i, NUMBER, k] += 1.0
            rows, at, time = history[i], lane["end"], lane["now"] - age[i]
            while at > lane["start"] and rows[TIME, at - 1] > time:
                for row in range(rows.shape[0]):
                    rows[row, at] = rows[row, at - 1]
                at -= 1
            rows[ARM, at], rows[OMEGA, at], rows[VALUE, at], rows[TIME, at] = k, weight[i], reward[i], time
            lane["end"] += 1
