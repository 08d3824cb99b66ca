"""Replay a log through a bank of filters: score each reward with the beliefs at its decision, learn it at its arrival.

The bank is that of :mod:`windvane.kernels.filters`, with a single lane.
"""

from __future__ import annotations

import math

import numpy as np

from windvane.kernels.filters import (
    PLACES,
    THETA,
    age_lanes,
    learn_lanes,
    list_nonzeros,
    measure_variance,
    prediction_loss,
    sparse_dot,
)
from windvane.kernels.jit import compiled, compiled_inner

ROW, KIND, BLOCK = 0, 1, 2  # columns of ``events``: a row of the log, what happens, the block that its loss belongs to
SCORE, LEARN, BOTH = 0, 1, 2  # kinds of events; BOTH: the reward arrives before the next decision
PASSED, AGE = 0, 1  # columns of ``rounds``: the rounds since the last event, the age of the reward


@compiled_inner
def score_row(
    x: np.ndarray, reward: float, link: int, places: np.ndarray, beliefs: np.ndarray, dense: np.ndarray,
    losses: np.ndarray,
) -> None:  # fmt: skip
    """Add the loss of the prediction of every expert to ``losses``. Nothing is learned."""
    count = list_nonzeros(x, places)
    for g in range(beliefs.shape[0]):
        v = measure_variance(beliefs[g], dense[g], x, places, count)
        z = sparse_dot(x, dense[g, THETA], places, count)
        losses[g] += prediction_loss(link, z, v, reward, beliefs[g]["dispersion"])


@compiled
def replay_events(
    x: np.ndarray, reward: np.ndarray, events: np.ndarray, rounds: np.ndarray, unit: np.ndarray, mask: np.ndarray,
    indices: np.ndarray, bank: tuple, losses: np.ndarray,
) -> float:  # fmt: skip
    """Play events in order, with ``bank`` = (lanes, beliefs, dense, work). Add losses to ``losses[blocks, experts]``.

    ``unit`` and ``mask`` are the weight 1 and the mask True of the only lane. Return the sum of the losses, which is
    NaN if a number is not finite.
    """
    lanes, beliefs, dense, work = bank
    link, places = lanes[0]["link"], indices[PLACES]
    for e in range(events.shape[0]):
        row, kind = events[e, ROW], events[e, KIND]
        if rounds[e, PASSED] > 0.0:
            age_lanes(rounds[e, PASSED], indices, lanes, beliefs, dense, work)
        if kind == SCORE:
            score_row(x[row], reward[row], link, places, beliefs[0], dense[0], losses[events[e, BLOCK]])
            continue
        for g in range(beliefs.shape[1]):
            beliefs[0, g]["run_loss"] = 0.0
        age = rounds[e, AGE : AGE + 1]
        learn_lanes(x[row : row + 1], reward[row : row + 1], age, unit, mask, indices, lanes, beliefs, dense, work)
        if kind == BOTH:
            for g in range(beliefs.shape[1]):
                losses[events[e, BLOCK], g] += beliefs[0, g]["run_loss"]
    total = 0.0
    for b in range(losses.shape[0]):
        for g in range(losses.shape[1]):
            total += losses[b, g]
    return total if math.isfinite(total) else math.nan
