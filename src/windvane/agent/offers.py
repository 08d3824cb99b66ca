"""The arms of one decision, however they are given, as names and raw vectors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from windvane._validation import Array, real_array, shown
from windvane.agent.features import Features, Name, named

ARM_COLUMN = "arm"  # of a frame: the arms' names


def offered(arms: Any, context: Any, features: Features | None, dim: int) -> tuple[list[Name], Array]:
    """Names and a matrix [K, dim]: of vectors as given, or made of declared ``features``."""
    if features is None:
        if context is not None:
            raise ValueError("context: this agent has no declared features; give features= when you make it")
        names, rows = _vectors(arms, dim)
    else:
        own = _by_name(arms)
        names, rows = named("arms", own), features.vectors(context, own)
    if not names:
        raise ValueError("arms: must offer at least one arm")
    return names, rows


def is_frame(value: Any) -> bool:
    """Whether it is a table of pandas or polars, or like one."""
    return hasattr(value, "columns") and hasattr(value, "to_numpy")


def frame_rows(frame: Any) -> tuple[list[Any], list[str]]:
    """The arms' names (a column "arm", else the index, else numbers), and the other columns."""
    columns = [str(column) for column in frame.columns]
    others = [column for column in columns if column != ARM_COLUMN]
    if ARM_COLUMN in columns:
        names = list(frame[ARM_COLUMN])
    else:
        names = list(getattr(frame, "index", range(len(frame))))
    return names, others


def _by_name(arms: Any) -> Any:
    """Names, or names with their fields."""
    if is_frame(arms):
        names, columns = frame_rows(arms)
        values = {column: list(arms[column]) for column in columns}
        return {name: {column: values[column][i] for column in columns} for i, name in enumerate(named("arms", names))}
    if isinstance(arms, Mapping):
        return arms
    if isinstance(arms, str) or not hasattr(arms, "__iter__"):
        raise ValueError(f"arms={shown(arms)}: must be names of arms, or map them to their fields")
    return named("arms", arms)


def _vectors(arms: Any, dim: int) -> tuple[list[Name], Array]:
    if is_frame(arms):
        names, columns = frame_rows(arms)
        return named("arms", names), matrix("arms", arms[columns].to_numpy(), dim)
    if not isinstance(arms, Mapping):
        rows = matrix("arms", arms, dim)
        return list(range(len(rows))), rows
    names = named("arms", arms)
    try:
        found = np.array(list(arms.values()), dtype=float)
    except (TypeError, ValueError):
        found = np.empty(0)
    if found.shape != (len(names), dim):
        for name, vector in arms.items():  # which of them is it?
            row = real_array(f"arms[{name!r}]", vector, f"{dim} numbers")
            if row.shape != (dim,):
                raise ValueError(f"arms[{name!r}] has shape {row.shape}: must be {dim} numbers")
    return names, found


def matrix(argument: str, rows: Any, dim: int) -> Array:
    """``rows`` as a fresh array [n, dim]."""
    found = np.array(real_array(argument, rows, f"an array with rows of {dim} numbers"))
    if found.ndim != 2 or found.shape[1] != dim:
        raise ValueError(f"{argument} has shape {found.shape}: must have rows of {dim} numbers")
    return found
