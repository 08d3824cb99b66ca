"""Read pandas and polars data frames by their columns, without importing either library."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from windvane.errors import ArgumentError, format_value

ARM_COLUMN = "arm"  # the arms' names


def is_frame(value: Any) -> bool:
    """Whether ``value`` is a data frame of pandas or polars, or similar."""
    return hasattr(value, "columns") and hasattr(value, "to_numpy")


def frame_rows(argument: str, frame: Any) -> list[dict[Any, Any]]:
    """Return the rows of a frame by the names of its columns."""
    columns = _check_columns(argument, frame)
    values = [list(frame[column]) for column in columns]
    return [dict(zip(columns, row, strict=True)) for row in zip(*values, strict=True)] or [
        {} for _ in range(len(frame))
    ]


def frame_arms(argument: str, frame: Any) -> list[tuple[Any, dict[Any, Any]]]:
    """Return the name of each arm (from the column "arm", else the index, else its number) and its fields."""
    rows, index = frame_rows(argument, frame), getattr(frame, "index", range(len(frame)))
    return [(row.pop(ARM_COLUMN, place), row) for row, place in zip(rows, index, strict=True)]


def frame_columns(argument: str, frame: Any) -> list[Any]:
    """Return the columns of a frame of vectors: all but the one with the arms' names."""
    return [column for column in _check_columns(argument, frame) if column != ARM_COLUMN]


def order_columns(argument: str, own: list[Any], first: Sequence[Any] | None) -> list[Any]:
    """Return the columns of a frame in the order of those of the ``first`` frame, or else in their own."""
    if first is not None and set(own) != set(first):
        expected = f"a frame with the columns {format_value(list(first))} of the first frame"
        hint = f"{format_value(min(set(own) ^ set(first), key=str))} differs"
        raise ArgumentError(argument, own, expected, hint=hint)
    return own if first is None else list(first)


def _check_columns(argument: str, frame: Any) -> list[Any]:
    columns = list(frame.columns)
    if repeated := [column for column, times in Counter(columns).items() if times > 1]:
        got = f"{format_value(repeated[0])} twice"
        raise ArgumentError(argument, columns, "a frame whose columns have different names", got=got)
    return columns
