"""Comparing what was recorded with what a replay comes to: numbers up to rounding, everything else exactly."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from windvane.service.streams import Stream

ROUNDING = 1e-9
"""Relative difference that is attributed to rounding. Processors differ by about 1e-16 per operation, which adds up to
about 1e-10 over the 1e6 operations of a long stream. This leaves a factor of ten."""


_SCORES = ("prediction", "bonus", "rival_score")  # sums and differences of each other: one size for all of them
_COMPUTED = (*_SCORES, "propensity")  # numbers of an outcome that the model computes; all others were given to it


class Agreement(enum.IntEnum):
    """How well two values agree."""

    EQUAL = 0
    ROUNDED = 1
    DIFFERENT = 2


def compare_numbers(first: float, second: float, scale: float = 0.0) -> Agreement:
    """Compare two numbers. ``scale``: the size of the numbers that they were computed from."""
    if first == second or (math.isnan(first) and math.isnan(second)):
        return Agreement.EQUAL
    is_close = abs(first - second) <= ROUNDING * max(abs(first), abs(second), scale)
    return Agreement.ROUNDED if is_close else Agreement.DIFFERENT


def compare_outcomes(recorded: Mapping[str, Any], replayed: Mapping[str, Any]) -> tuple[Agreement, str]:
    """Return how well two outcomes of an event agree, and the name of the field that agrees least."""
    values = [abs(values[name]) for values in (recorded, replayed) for name in _SCORES if values.get(name) is not None]
    scale = max(values, default=0.0)
    worst, field = Agreement.EQUAL, ""
    for name in sorted({*recorded, *replayed}):
        first, second = recorded.get(name), replayed.get(name)
        if name in _COMPUTED and isinstance(first, float) and isinstance(second, float):
            agreement = compare_numbers(first, second, scale)
        else:
            same = first == second and isinstance(first, bool) == isinstance(second, bool)
            agreement = Agreement.EQUAL if same else Agreement.DIFFERENT
        if agreement > worst:
            worst, field = agreement, name
    return worst, field


def compare_streams(first: Stream, second: Stream, requests: Sequence[bytes]) -> tuple[Agreement, str]:
    """Return how well two states of a stream agree, and what agrees least.

    They are compared by the names of features, by the vectors that ``requests`` to decide are encoded to, and by their
    bytes.
    """
    names = first.agent.feature_names
    if sorted(names) != sorted(second.agent.feature_names):
        return Agreement.DIFFERENT, "the names of its features"
    worst, what = Agreement.EQUAL, ""
    parameters = dict(zip(second.agent.feature_names, second.agent.theta.tolist(), strict=True))
    scale = max(map(abs, parameters.values()), default=0.0)
    for name, value in zip(names, first.agent.theta.tolist(), strict=True):
        agreement = compare_numbers(value, parameters[name], scale)
        if agreement > worst:
            worst, what = agreement, f"the parameter of {name}"
    for request in requests:
        agreement = _compare_offers(first, second, request)
        if agreement > worst:
            worst, what = agreement, "the vectors of the last requests"
    if worst is not Agreement.EQUAL:
        return worst, what
    is_same = first.snapshot() == second.snapshot()
    return (Agreement.EQUAL, "") if is_same else (Agreement.DIFFERENT, "its bytes")


def _compare_offers(first: Stream, second: Stream, request: bytes) -> Agreement:
    one, other = first.read_offer(request), second.read_offer(request)
    columns = [first.agent.feature_names.index(name) for name in second.agent.feature_names]
    rows, others = np.asarray(one.rows)[:, columns], np.asarray(other.rows)
    if list(one.names) != list(other.names) or rows.shape != others.shape:
        return Agreement.DIFFERENT
    if np.array_equal(rows, others):
        return Agreement.EQUAL
    scale = ROUNDING * max(float(np.abs(rows).max()), float(np.abs(others).max()))
    return Agreement.ROUNDED if float(np.abs(rows - others).max()) <= scale else Agreement.DIFFERENT
