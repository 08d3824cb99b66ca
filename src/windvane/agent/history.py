"""Bulk history: past decisions with their rewards, all checked before any is learned."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from windvane.agent.features import Features
from windvane.agent.names import check_name, check_sequence
from windvane.agent.times import Clock, to_seconds
from windvane.agent.vectors import ArmEncoder, check_matrix, read_frame
from windvane.arguments import Array, check_real_array
from windvane.errors import ArgumentError
from windvane.frames import frame_arms, frame_rows, is_frame
from windvane.policies.base import Policy
from windvane.records import Name

LARGEST_WEIGHT = 1e9


class LearnedHistory(NamedTuple):
    """The result of learning history: a policy, its clock and its encoder, after ``rows`` rows."""

    policy: Policy
    clock: Clock
    encoder: ArmEncoder
    rows: int


def learn_history(
    policy: Policy, clock: Clock, encoder: ArmEncoder, reward_range: tuple[float, float], *, rewards: Any, vectors: Any,
    contexts: Any, arms: Any, times: Any, weights: Any, now: float | None,
) -> LearnedHistory:  # fmt: skip
    """Check the arguments of :meth:`windvane.Agent.history`, and learn the rows, the oldest first, with copies of
    ``policy``, ``clock`` and ``encoder``. ``now``: None for a replay, whose times are not checked again."""
    policy, clock, encoder = copy.deepcopy(policy), copy.copy(clock), copy.copy(encoder)
    if encoder.features is None:
        where, raw = "vectors", _read_vectors(encoder, vectors, contexts, arms)
    else:
        where, raw = "arms", _encode_fields(encoder, encoder.features, vectors, contexts, arms)
    encoder.to_fit = False
    x, count = encoder.scale(raw, where), len(raw)
    values = _check_column("rewards", rewards, count, *reward_range)
    weight = np.ones(count) if weights is None else _check_column("weights", weights, count, 0.0, LARGEST_WEIGHT)
    at = _check_times(clock, times, count, now)
    for row in range(count) if at is None else np.argsort(at, kind="stable"):
        if at is not None:
            clock.pass_to(float(at[row]), policy)
        round_ = policy.t
        policy.advance(1.0)
        policy.update(x[row, None], float(values[row]), round=round_, weight=float(weight[row]))
    return LearnedHistory(policy, clock, encoder, count)


def _read_vectors(encoder: ArmEncoder, vectors: Any, contexts: Any, arms: Any) -> Array:
    """Return the rows of ``vectors``; fit the scaling on them if it is not fitted yet."""
    if vectors is None:
        raise ArgumentError("vectors", vectors, "given, with the features of every row")
    for name, value in (("contexts", contexts), ("arms", arms)):
        if value is not None:
            raise ArgumentError(name, value, "omitted, because the agent has no declared features")
    dim = encoder.scaling.raw_dim
    if is_frame(vectors):
        rows, encoder.columns = read_frame("vectors", vectors, dim, encoder.columns)
    else:
        rows = check_matrix("vectors", vectors, dim)
    if encoder.to_fit:
        encoder.scaling = encoder.scaling.fit(rows)
    return rows


def _encode_fields(encoder: ArmEncoder, features: Features, vectors: Any, contexts: Any, arms: Any) -> Array:
    """Return the rows of ``contexts`` and ``arms``; fit the features on them if they are not fitted yet."""
    if vectors is not None:
        expected = "omitted, because the agent has declared features"
        raise ArgumentError("vectors", vectors, expected, hint="give `arms`")
    if arms is None:
        raise ArgumentError("arms", arms, "given for every row, because the agent has declared features")
    played = _read_arms(arms)
    context_rows: list[Any] = [{}] * len(played)
    if contexts is not None:
        context_rows = frame_rows("contexts", contexts) if is_frame(contexts) else check_sequence("contexts", contexts)
    if len(context_rows) != len(played):
        expected = f"{len(played)} rows, one for each of `arms`"
        raise ArgumentError("contexts", contexts, expected, got=str(len(context_rows)))
    if encoder.to_fit:
        features = encoder.features = features.fit(context_rows, [own for _, own in played])
    rows = np.zeros((len(played), features.dim))
    for i, (context, (name, own)) in enumerate(zip(context_rows, played, strict=True)):
        try:
            rows[i] = features.vectors(context, {name: own}, lenient=encoder.is_lenient)
        except ArgumentError as error:
            argument, *rest = error.path
            if argument == "arms" and not own:
                rest = rest[1:]  # the row is the name itself
            raise error.rename(("contexts" if argument == "context" else argument, i, *rest)) from None
    return rows


def _read_arms(arms: Any) -> list[tuple[Name, Any]]:
    """Return the arm played in every row, and its own fields."""
    pairs: list[tuple[Any, Any]] = []
    if is_frame(arms):
        pairs += frame_arms("arms", arms)
    else:
        for i, arm in enumerate(check_sequence("arms", arms)):
            if isinstance(arm, Mapping) and len(arm) != 1:
                raise ArgumentError(("arms", i), arm, "a name, or a mapping from one name to its fields")
            pairs += arm.items() if isinstance(arm, Mapping) else [(arm, {})]
    return [(check_name(("arms", i), name), own) for i, (name, own) in enumerate(pairs)]


def _check_column(name: str, values: Any, count: int, low: float, high: float) -> Array:
    """Return a number within [low, high] for every row."""
    column = np.array(check_real_array(name, values, "a list of numbers"))
    if column.shape != (count,):
        got = f"an array of shape {column.shape}"
        raise ArgumentError(name, values, f"a list with a number for each of the {count} rows", got=got)
    bad = ~((column >= low) & (column <= high))  # written this way so that NaN is rejected
    if bad.any():
        row = int(np.argmax(bad))
        raise ArgumentError((name, row), float(column[row]), f"a number in [{low:g}, {high:g}]")
    return column


def _check_times(clock: Clock, times: Any, count: int, now: float | None) -> Array | None:
    if times is None:
        if clock.by_clock:
            raise ArgumentError("times", times, "given for each row, because this agent forgets by the clock")
        return None
    seconds = np.array([to_seconds(("times", i), time) for i, time in enumerate(check_sequence("times", times))])
    if seconds.shape != (count,):
        raise ArgumentError("times", times, f"{count} times, one for each row", got=str(len(seconds)))
    if not count or now is None:
        return seconds
    first, last = float(seconds.min()), float(seconds.max())
    if last > now:
        raise ArgumentError(("times", int(np.argmax(seconds))), last, f"at most the time now, {now!r}")
    if first < clock.last:
        hint = "" if clock.by_clock else "give history first, or omit `times`: the rows then count as the latest"
        expected = f"at least {clock.last!r}, the time of the last decision or row"
        raise ArgumentError(("times", int(np.argmin(seconds))), first, expected, hint=hint)
    return seconds
