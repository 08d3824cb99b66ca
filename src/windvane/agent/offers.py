"""The arms of one decision, however they are given, as names and raw vectors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from windvane.agent.features import Features, Name, named
from windvane.arguments import Array, check_real_array
from windvane.errors import ArgumentError, format_value


class Offer(NamedTuple):
    """The arms of a decision by name, their vectors as the policy sees them, and the columns of the frame, if any,
    that the vectors were read from."""

    names: list[Name]
    rows: Array
    columns: list[Name] | None = None


ARM_COLUMN = "arm"  # of a frame: the arms' names


def offered(
    arms: Any, context: Any, features: Features | None, dim: int, columns: list[Name] | None
) -> tuple[list[Name], Array]:
    """Names and a matrix [K, dim]: of vectors as given, or made of declared ``features``, of all declared arms if
    ``arms`` is None and they have no fields of their own. ``columns``: the order of the coordinates where arms are a
    frame of vectors; None: that of the frame."""
    if features is None:
        if context is not None:
            hint = "or give `features` when you create the agent"
            raise ArgumentError("context", context, "omitted, because the agent has no declared features", hint=hint)
        names, rows = _vectors(arms, dim, columns)
    elif arms is None and features.arms and not features.per_arm:
        names, rows = list(features.arms), features.vectors(context, features.arms)
    else:
        own = _by_name(arms)
        names, rows = list(own), features.vectors(context, own)
    if not names:
        raise ArgumentError("arms", arms, "at least one arm")
    return names, rows


def is_frame(value: Any) -> bool:
    """Whether it is a table of pandas or polars, or like one."""
    return hasattr(value, "columns") and hasattr(value, "to_numpy")


def frame_rows(argument: str, frame: Any) -> list[dict[Any, Any]]:
    """The rows of a frame by the names of its columns."""
    columns = _columns(argument, frame)
    values = [list(frame[column]) for column in columns]
    return [dict(zip(columns, row, strict=True)) for row in zip(*values, strict=True)]


def frame_names(argument: str, frame: Any) -> list[Any]:
    """The arms' names: the column "arm", else the index, else numbers."""
    if ARM_COLUMN in _columns(argument, frame):
        return list(frame[ARM_COLUMN])
    return list(getattr(frame, "index", range(len(frame))))


def frame_fields(argument: str, frame: Any) -> list[dict[Any, Any]]:
    """What a frame says of each arm beside its name."""
    rows = frame_rows(argument, frame) or [{}] * len(frame)
    return [{column: value for column, value in row.items() if column != ARM_COLUMN} for row in rows]


def frame_matrix(argument: str, frame: Any, dim: int, columns: list[Name] | None) -> Array:
    """The numbers of a frame: all columns but that of the arms' names, in the order of ``columns``, or its own."""
    own = named(argument, vector_columns(argument, frame))
    if columns is not None and set(own) != set(columns):
        differing = set(own) ^ set(columns)
        raise ArgumentError(
            argument,
            own,
            f"a frame with the columns {format_value(columns)} of the first frame",
            hint=f"{format_value(min(differing, key=str))} differs",
        )
    return matrix(argument, frame[columns or own].to_numpy(), dim)


def vector_columns(argument: str, frame: Any) -> list[Any]:
    """The columns of a frame that hold the coordinates of vectors."""
    return [column for column in _columns(argument, frame) if column != ARM_COLUMN]


def columns_of(arms: Any, features: Features | None) -> list[Name] | None:
    """The order of the coordinates that a frame of raw vectors sets; None if ``arms`` are no such frame."""
    return None if features is not None or not is_frame(arms) else named("arms", vector_columns("arms", arms))


def _columns(argument: str, frame: Any) -> list[Any]:
    columns = list(frame.columns)
    for column, times in Counter(columns).items():
        if times > 1:
            got = f"{format_value(column)} {times} times"
            raise ArgumentError(argument, columns, "a frame whose columns have different names", got=got)
    return columns


def _by_name(arms: Any) -> dict[Name, Any]:
    """Names with their fields."""
    if is_frame(arms):
        return dict(zip(named("arms", frame_names("arms", arms)), frame_fields("arms", arms), strict=True))
    if isinstance(arms, Mapping):
        return dict(zip(named("arms", list(arms)), arms.values(), strict=True))
    return {name: {} for name in named("arms", arms)}


def _vectors(arms: Any, dim: int, columns: list[Name] | None) -> tuple[list[Name], Array]:
    if is_frame(arms):
        return named("arms", frame_names("arms", arms)), frame_matrix("arms", arms, dim, columns)
    if not isinstance(arms, Mapping):
        rows = matrix("arms", arms, dim)
        return list(range(len(rows))), rows
    names, vectors = named("arms", list(arms)), _aligned(list(arms.values()))
    try:
        if any(isinstance(vector, np.ma.MaskedArray) for vector in vectors):
            raise ArgumentError("arms", vectors, "vectors without masked entries")
        return names, matrix("arms", vectors, dim)
    except ValueError:
        for name, vector in zip(names, vectors, strict=True):  # find the vector that is wrong
            row = check_real_array(f"arms[{name!r}]", vector, f"{dim} numbers")
            if row.shape != (dim,):
                got = f"an array of shape {row.shape}"
                raise ArgumentError(f"arms[{name!r}]", vector, f"{dim} numbers", got=got) from None
        if names:
            raise
        return [], np.zeros((0, dim))


def _aligned(vectors: list[Any]) -> list[Any]:
    """Labelled vectors (of pandas) in the order of the labels of the first one; others as they are."""
    labels = [list(vector.index) if hasattr(vector, "loc") else None for vector in vectors]
    if not any(label != labels[0] for label in labels):
        return vectors
    if any(label is None or sorted(label, key=str) != sorted(labels[0] or (), key=str) for label in labels):
        raise ArgumentError("arms", vectors, "vectors that all have the same labels", got="different labels")
    return [vector.loc[labels[0]] for vector in vectors]


def matrix(argument: str, rows: Any, dim: int) -> Array:
    """``rows`` as a fresh array [n, dim]."""
    found = np.array(check_real_array(argument, rows, f"an array with rows of {dim} numbers"))
    if found.ndim != 2 or found.shape[1] != dim:
        got = f"an array of shape {found.shape}"
        raise ArgumentError(argument, rows, f"an array with rows of {dim} numbers", got=got)
    return found
