"""Comparing what was recorded with the result of a replay: numbers up to rounding, everything else exactly."""

from __future__ import annotations

import enum
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from windvane.agent.archive import read_archive
from windvane.service.store import Snapshot
from windvane.service.streams import Stream

ROUNDING = 1e-9
"""Relative difference that is attributed to rounding. Processors differ by about 1e-16 per operation, which adds up to
about 1e-10 over the 1e6 operations of a long stream. This leaves a factor of ten."""

_SCORES = ("prediction", "bonus", "rival_score")  # sums and differences of each other: one size for all of them
_COMPUTED = frozenset({*_SCORES, "propensity"})  # numbers of an outcome that the model computes; all others are exact
_COMPUTED_ENTRIES = frozenset({"features", "scaling", "reward_total"})  # of an agent: the first two may be fitted
_EXACT_ARRAYS = frozenset({"pending/round", "pending/time", "pending/reward", "pending/delay"})
_SOLVER_STATE = ("checksum", "passes", "status")
"""Last parts of the names of arrays of a policy that rounding changes altogether: the checksum of the others, and how
far an iterative solution has come."""


class Agreement(enum.IntEnum):
    """How well two values agree."""

    EQUAL = 0
    ROUNDED = 1
    DIFFERENT = 2


Comparison = tuple[Agreement, str]
"""How well two things agree, and the name of the part that agrees least."""


def compare_numbers(first: float, second: float, scale: float = 0.0) -> Agreement:
    """Compare two numbers. ``scale``: the size of the numbers that they were computed from."""
    if first == second or (math.isnan(first) and math.isnan(second)):
        return Agreement.EQUAL
    is_close = abs(first - second) <= ROUNDING * max(abs(first), abs(second), scale)
    return Agreement.ROUNDED if is_close else Agreement.DIFFERENT


def compare_outcomes(recorded: Mapping[str, Any], replayed: Mapping[str, Any]) -> Comparison:
    """Return how well two outcomes of an event agree, and the name of the field that agrees least."""
    scores = [outcome[name] for outcome in (recorded, replayed) for name in _SCORES if outcome.get(name) is not None]
    scale = max(map(abs, scores), default=0.0)
    names = sorted({*recorded, *replayed})
    return _find_worst(
        (_compare_values(recorded.get(name), replayed.get(name), scale if name in _COMPUTED else None), name)
        for name in names
    )


def compare_streams(first: Stream, second: Stream, requests: Sequence[bytes]) -> Comparison:
    """Return how well two states of a stream agree, and what agrees least.

    They are compared by the names of features, by their parameters, by the vectors that ``requests`` to decide are
    encoded to, and by all that a snapshot holds. What agrees least is "its bytes" where nothing but the last digits of
    numbers that the model computes is different.
    """
    names, others = first.core.feature_names, second.core.feature_names
    if sorted(names) != sorted(others):
        return Agreement.DIFFERENT, "the names of its features"
    parameters = dict(zip(others, second.core.theta.tolist(), strict=True))
    scale = max(map(abs, parameters.values()), default=0.0)
    pairs = zip(names, first.core.theta.tolist(), strict=True)
    worst = _find_worst(
        [
            *((compare_numbers(value, parameters[name], scale), f"the parameter of {name}") for name, value in pairs),
            *((_compare_offers(first, second, request), "the vectors of the last requests") for request in requests),
        ]
    )
    if worst[0] is Agreement.DIFFERENT:
        return worst
    return _find_worst([worst, _compare_snapshots(first.snapshot(), second.snapshot())])


def _find_worst(comparisons: Any) -> Comparison:
    return max(comparisons, key=lambda comparison: comparison[0], default=(Agreement.EQUAL, ""))


def _compare_offers(first: Stream, second: Stream, request: bytes) -> Agreement:
    offer, other = first.read_offer(request), second.read_offer(request)
    columns = [first.core.feature_names.index(name) for name in second.core.feature_names]
    if offer.names != other.names or offer.vectors.shape != other.vectors.shape:
        return Agreement.DIFFERENT
    return _compare_arrays(offer.vectors[:, columns], other.vectors)


def _compare_snapshots(first: Snapshot, second: Snapshot) -> Comparison:
    """Compare the bytes of two states, and where they differ, what stands in them: only numbers that the model computes
    may be rounded. Counts, ids, rewards, times, the title and all other things must be the same."""
    if first == second:
        return Agreement.EQUAL, ""
    if first[:2] != second[:2]:
        return Agreement.DIFFERENT, "its last event"
    different = next(_find_differences(first, second), None)
    return (Agreement.ROUNDED, "its bytes") if different is None else (Agreement.DIFFERENT, different)


def _find_differences(first: Snapshot, second: Snapshot) -> Iterator[str]:
    """Yield the names of parts that differ by more than rounding."""
    documents, arrays = zip(read_archive(first.agent, "snapshot"), read_archive(second.agent, "replay"), strict=True)
    for texts in ((json.loads(first.extra), json.loads(second.extra)), documents):
        for name in sorted({*texts[0], *texts[1]} - {"digest"}):
            if _compare_values(texts[0].get(name), texts[1].get(name)) is Agreement.DIFFERENT:
                yield name
    for name in sorted({*arrays[0], *arrays[1]}):
        pair = [each[name] for each in arrays if name in each]
        if len(pair) == 1 or not _may_be_rounded(name, *pair):
            yield f"its array {name}"


def _compare_values(first: Any, second: Any, scale: float | None = None) -> Agreement:
    """Compare two JSON values. ``scale``: the size of numbers that may be rounded; None: numbers must be the same."""
    if type(first) is not type(second):
        return Agreement.DIFFERENT
    if isinstance(first, dict):
        if list(first) != list(second):
            return Agreement.DIFFERENT
        scales = [1.0 if name in _COMPUTED_ENTRIES else scale for name in first]
        first, second = list(first.values()), list(second.values())
    elif isinstance(first, list):
        scales = [scale] * len(first)
    elif isinstance(first, float) and scale is not None:
        return compare_numbers(first, second, scale)
    else:
        return Agreement.EQUAL if first == second else Agreement.DIFFERENT
    if len(first) != len(second):
        return Agreement.DIFFERENT
    return max(map(_compare_values, first, second, scales), default=Agreement.EQUAL)


def _may_be_rounded(name: str, first: npt.NDArray[Any], second: npt.NDArray[Any]) -> bool:
    """Whether two arrays of an agent may be the same up to rounding: whole numbers and texts exactly.

    Of the numbers of a policy only their places are compared: some are residuals, which are nothing but rounding. What
    counts of them is in its parameters.
    """
    if first.dtype != second.dtype or first.shape != second.shape:
        return False
    if first.dtype.names is not None:
        return all(_may_be_rounded(f"{name}/{field}", first[field], second[field]) for field in first.dtype.names)
    if first.dtype.kind != "f":
        return name.endswith(_SOLVER_STATE) or np.array_equal(first, second)
    if name in _EXACT_ARRAYS:
        return np.array_equal(first, second, equal_nan=True)
    if name.startswith("policy/"):
        return np.array_equal(np.isfinite(first), np.isfinite(second))
    return _compare_arrays(first, second) is not Agreement.DIFFERENT


def _compare_arrays(first: npt.NDArray[Any], second: npt.NDArray[Any]) -> Agreement:
    """Compare arrays of one shape whose numbers are of one size."""
    if np.array_equal(first, second, equal_nan=True):
        return Agreement.EQUAL
    scale = max(np.abs(values[np.isfinite(values)]).max(initial=0.0) for values in (first, second))
    is_close = np.allclose(first, second, rtol=0.0, atol=ROUNDING * scale, equal_nan=True)
    return Agreement.ROUNDED if is_close else Agreement.DIFFERENT
