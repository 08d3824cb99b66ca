"""Compare outcomes and states: numbers that the model computes up to rounding, everything else exactly."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from windvane.agent.archive import read_archive
from windvane.service.store import Snapshot
from windvane.service.streams import Stream

ROUNDING = 1e-9
"""Relative difference that is attributed to rounding. Processors differ by about 1e-16 per operation, which adds up to
about 1e-10 over the 1e6 operations of a long stream. This leaves a factor of ten."""

EQUAL, ROUNDED, DIFFERENT = range(3)  # how well two values agree
_SCORES = ("prediction", "bonus", "rival_score")  # sums and differences of each other: one size for all of them
_COMPUTED = (*_SCORES, "propensity")  # numbers of an outcome that the model computes; all others are exact
_EXACT_ARRAYS = ("pending/round", "pending/time", "pending/reward", "pending/delay")
_SOLVER_STATE = ("checksum", "passes", "status")
"""Last parts of the names of arrays of a policy that rounding changes altogether: the checksum of the others, and how
far an iterative solution has come."""


Comparison = tuple[int, str]  # how well two things agree, and the name of the part that agrees least


def find_worst(comparisons: Iterable[Comparison]) -> Comparison:
    return max(comparisons, key=lambda comparison: comparison[0], default=(EQUAL, ""))


def _compare_numbers(first: Any, second: Any, scale: float = 0.0) -> int:
    """Compare numbers or arrays. ``scale``: the size of what they were computed from, where it may be larger."""
    if np.array_equal(first, second, equal_nan=True):
        return EQUAL
    if np.shape(first) != np.shape(second):
        return DIFFERENT
    sizes = np.abs([first, second])
    tolerance = ROUNDING * sizes[np.isfinite(sizes)].max(initial=scale)
    return ROUNDED if np.allclose(first, second, rtol=0.0, atol=tolerance, equal_nan=True) else DIFFERENT


def compare_outcomes(recorded: Mapping[str, Any], replayed: Mapping[str, Any]) -> Comparison:
    """Return how well two outcomes of an event agree, and the name of the field that agrees least."""
    if json.dumps(recorded) == json.dumps(replayed):  # nearly always, and faster
        return EQUAL, ""
    values = {name: (recorded.get(name), replayed.get(name)) for name in sorted({*recorded, *replayed})}
    scores = [value for name in _SCORES for value in values.get(name, ()) if isinstance(value, float)]
    scale = max(map(abs, scores), default=0.0)
    comparisons = []
    for name, (first, second) in values.items():
        if name in _COMPUTED and isinstance(first, float) and isinstance(second, float):
            comparisons.append((_compare_numbers(first, second, scale), name))
        elif json.dumps(first) != json.dumps(second):
            comparisons.append((DIFFERENT, name))
    return find_worst(comparisons)


def compare_models(first: Stream, second: Stream, requests: Iterable[bytes]) -> Comparison:
    """Compare two states by the names of features: their parameters, and the vectors that ``requests`` to decide are
    encoded to."""
    names, others = first.core.feature_names, second.core.feature_names
    if sorted(names) != sorted(others):
        return DIFFERENT, "the names of its features"
    columns, theta = [names.index(name) for name in others], second.core.theta
    scale = np.abs(theta).max(initial=0.0)
    comparisons = [
        (_compare_numbers(value, other, scale), f"the parameter of {name}")
        for name, value, other in zip(others, first.core.theta[columns], theta, strict=True)
    ]
    for request in requests:
        offer, other = first.read_offer(request), second.read_offer(request)
        is_same = offer.names == other.names
        agreement = _compare_numbers(offer.vectors[:, columns], other.vectors) if is_same else DIFFERENT
        comparisons.append((agreement, "the vectors of the last requests"))
    return find_worst(comparisons)


def compare_snapshots(first: Snapshot, second: Snapshot) -> Comparison:
    """Compare all that two snapshots hold: only numbers that the model computes may be rounded."""
    (exact, computed), (other_exact, other_computed) = _list_parts(first), _list_parts(second)
    for name in sorted({*exact, *other_exact}):
        if exact.get(name) != other_exact.get(name):
            return DIFFERENT, name
    scales = {"fitted": 1.0, "reward_total": 1.0}  # they may be zero but for rounding
    return find_worst(
        (_compare_numbers(value, other_computed[name], scales.get(name, 0.0)), name) for name, value in computed.items()
    )


def _list_parts(snapshot: Snapshot) -> tuple[dict[str, str], dict[str, Any]]:
    """Return what a snapshot holds, by name: as text what must be the same, and numbers that may be rounded.

    Of the numbers of a policy only their places must be the same: some are residuals, which are nothing but rounding.
    What counts of them is in its parameters.
    """
    document, arrays = read_archive(snapshot.agent, "snapshot")
    fitted: list[str] = []  # numbers of features and scaling
    settings = {name: document["settings"].pop(name) for name in ("features", "scaling")}
    document["fitted"] = json.loads(json.dumps(settings), parse_float=fitted.append)
    computed = {"fitted": np.array(fitted, dtype=float), "reward_total": document["tally"].pop("reward_total")}
    exact = {"event": snapshot[:2], **json.loads(snapshot.extra), **document}
    columns = {f"{name}/{field}": array[field] for name, array in arrays.items() for field in array.dtype.names or ()}
    plain = {name: array for name, array in arrays.items() if array.dtype.names is None}
    for name, array in (plain | columns).items():
        exact[f"{name} (type)"] = array.dtype.str, array.shape
        is_computed = array.dtype.kind == "f" and name not in _EXACT_ARRAYS
        if is_computed and not name.startswith("policy/"):
            computed[name] = array
        elif not name.endswith(_SOLVER_STATE):
            exact[name] = (np.isfinite(array) if is_computed else array).tolist()
    return {name: ascii(value) for name, value in exact.items()}, computed
