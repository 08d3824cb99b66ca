"""Comparing what was recorded with what a replay comes to: numbers up to rounding, everything else exactly."""

from __future__ import annotations

import enum
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from windvane.agent import file
from windvane.service.store import Snapshot
from windvane.service.streams import Stream

ROUNDING = 1e-9
"""Relative difference that is attributed to rounding. Processors differ by about 1e-16 per operation, which adds up to
about 1e-10 over the 1e6 operations of a long stream. This leaves a factor of ten."""

_SCORES = ("prediction", "bonus", "rival_score")  # sums and differences of each other: one size for all of them
_COMPUTED = (*_SCORES, "propensity")  # numbers of an outcome that the model computes; all others were given to it
_COMPUTED_STATISTICS = frozenset({"prediction", "total", "model"})
_COMPUTED_ENTRIES = frozenset({"features", "reward_total"})  # of the document of an agent: ranges may have been fitted
_GIVEN_REALS = (0, 1, 6, 7)  # columns of ``pending/reals``: round, time, reward and delay; see windvane.agent.saving
_SOLVER_STATE = ("checksum", "passes", "status")
"""Last parts of the names of arrays of a policy that rounding changes altogether: the checksum of the others, and how
far an iterative solution has come."""


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

    They are compared by the names of features, by their parameters, by the vectors that ``requests`` to decide are
    encoded to, and by all that a snapshot holds. What agrees least is "its bytes" where nothing but the last digits of
    numbers that the model computes is different.
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
    if worst is Agreement.DIFFERENT:
        return worst, what
    agreement, part = _compare_snapshots(first.snapshot(), second.snapshot())
    return (agreement, part) if agreement > worst else (worst, what)


def _compare_snapshots(first: Snapshot, second: Snapshot) -> tuple[Agreement, str]:
    """Compare the bytes of two states, and where they differ, what stands in them: only numbers that the model computes
    may be rounded. Counts, ids, rewards, times, the title and whatever else was given must be the same."""
    if first == second:
        return Agreement.EQUAL, ""
    if (first.number, first.chain) != (second.number, second.chain):
        return Agreement.DIFFERENT, "its last event"
    extras = json.loads(first.extra), json.loads(second.extra)
    agents = file.unpacked(first.agent, "the snapshot"), file.unpacked(second.agent, "the replay")
    documents = [{name: value for name, value in agent[0].items() if name != "digest"} for agent in agents]
    for texts, computed in ((extras, _COMPUTED_STATISTICS), (documents, _COMPUTED_ENTRIES)):
        for name in sorted({*texts[0], *texts[1]}):
            values = texts[0].get(name), texts[1].get(name)
            if _compare_values(*values, computed, name in computed) is Agreement.DIFFERENT:
                return Agreement.DIFFERENT, name
    arrays, others = agents[0][1], agents[1][1]
    for name in sorted({*arrays, *others}):
        if name not in arrays or name not in others or not _is_close(name, arrays[name], others[name]):
            return Agreement.DIFFERENT, f"its array {name}"
    return Agreement.ROUNDED, "its bytes"


def _compare_values(first: Any, second: Any, computed: frozenset[str], is_computed: bool) -> Agreement:
    """Compare two JSON values. ``computed``: the entries with numbers that may be rounded; ``is_computed``: whether
    these are in such an entry."""
    if type(first) is not type(second):
        return Agreement.DIFFERENT
    if isinstance(first, dict):
        if list(first) != list(second):
            return Agreement.DIFFERENT
        pairs = [(first[name], second[name], is_computed or name in computed) for name in first]
    elif isinstance(first, list):
        if len(first) != len(second):
            return Agreement.DIFFERENT
        pairs = [(*pair, is_computed) for pair in zip(first, second, strict=True)]
    elif isinstance(first, float):
        agreement = compare_numbers(first, second, 1.0 if is_computed else 0.0)
        return agreement if is_computed or agreement is Agreement.EQUAL else Agreement.DIFFERENT
    else:
        return Agreement.EQUAL if first == second else Agreement.DIFFERENT
    return max((_compare_values(*pair[:2], computed, pair[2]) for pair in pairs), default=Agreement.EQUAL)


def _is_close(name: str, first: npt.NDArray[Any], second: npt.NDArray[Any]) -> bool:
    """Whether two arrays of an agent may be the same up to rounding: whole numbers and texts exactly.

    Of the numbers of a policy only their places are compared: some are residuals, which are nothing but rounding. What
    counts of them is in its parameters.
    """
    if first.dtype != second.dtype or first.shape != second.shape:
        return False
    if first.dtype.kind != "f":
        return name.endswith(_SOLVER_STATE) or np.array_equal(first, second)
    if name == "pending/reals":
        given = list(_GIVEN_REALS)
        if not np.array_equal(first[:, given], second[:, given], equal_nan=True):
            return False
        first, second = np.delete(first, given, axis=1), np.delete(second, given, axis=1)
    is_finite = np.isfinite(first)
    if not np.array_equal(is_finite, np.isfinite(second)):
        return False
    if name.startswith("policy/"):
        return True
    first, second = first[is_finite], second[is_finite]
    scale = max(np.abs(first).max(initial=0.0), np.abs(second).max(initial=0.0))
    return bool(np.abs(first - second).max(initial=0.0) <= ROUNDING * scale)


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
