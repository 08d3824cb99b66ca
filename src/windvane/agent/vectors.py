"""From the arms of a decision, however they are given, to their names and the vectors that the policy sees."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from windvane.agent.features import Features, check_names
from windvane.agent.scaling import REMEDY, Scaling
from windvane.arguments import Array, check_positive, check_real_array, check_whole
from windvane.errors import ArgumentError, format_value
from windvane.records import Name

ARM_COLUMN = "arm"  # of a frame: the arms' names


class Offer(NamedTuple):
    """The arms of a decision by name, their vectors as the policy sees them, and the columns of the frame, if any,
    that the vectors were read from."""

    names: list[Name]
    vectors: Array
    columns: list[Name] | None = None


class ArmEncoder:
    """Declared features or raw vectors, and the scaling that is applied to them.

    ``columns`` are those of the first frame of raw vectors: they set the order of the coordinates. ``fits_features``:
    the ranges of declared numbers are to be fitted on the first history.
    """

    def __init__(self, dim: int | None, features: Any, scaling: Any, *, L: float, intercept: bool, clip: bool) -> None:
        self.features = Features.parse(features)
        self.columns: list[Name] | None = None
        self.fits_features = False
        if (dim is None) == (self.features is None):
            expected = "given unless `features` is" if dim is None else "omitted when `features` is given"
            raise ArgumentError("dim", dim, expected)
        remedy = REMEDY
        if self.features is None:
            dim = check_whole("dim", dim, 1)
        else:
            for name, value in (("intercept", intercept), ("clip", clip)):
                if value:
                    raise ArgumentError(name, value, "omitted when `features` is given", hint="declare it there")
            dim = self.features.dim
            remedy = 'declare ranges of all numbers, use scaling="fit" with history, or give a larger L'
            if isinstance(scaling, str) and scaling == "fit":  # the ranges of open fields are fitted instead
                self.fits_features, scaling = bool(self.features.open_fields), None
        self.scaling = Scaling(
            dim, check_positive("L", L), scaling=scaling, intercept=intercept, clip=clip, remedy=remedy
        )

    @property
    def feature_names(self) -> list[str]:
        """What each coordinate of a vector belongs to."""
        if self.features is not None:
            raw = self.features.names
        else:
            raw = [str(name) for name in self.columns or (f"x{i}" for i in range(self.scaling.raw_dim))]
        return [*raw, *["1"] * self.scaling.intercept]

    def encode(self, arms: Any, context: Any) -> Offer:
        """Check the arms of a decision and encode them."""
        if arms is None and (self.features is None or not self.features.arms or self.features.per_arm):
            raise ArgumentError("arms", None, "given")
        if self.fits_features:
            raise ArgumentError("scaling", "fit", "fitted first", hint="give history first")
        if self.features is None:
            if context is not None:
                hint = "or give `features` when you create the agent"
                expected = "omitted, because the agent has no declared features"
                raise ArgumentError("context", context, expected, hint=hint)
            names, rows, columns = _read_vectors(arms, self.scaling.raw_dim, self.columns)
            longest = math.inf
        else:
            names, rows = _encode_fields(self.features, arms, context)
            columns, longest = None, self.features.longest
        if not names:
            raise ArgumentError("arms", arms, "at least one arm")
        return Offer(names, self.scaling.apply(rows, "arms", names, longest=longest), columns)


def _encode_fields(features: Features, arms: Any, context: Any) -> tuple[list[Name], Array]:
    """Return names and vectors of declared features; of all declared arms where ``arms`` is None and they have no
    fields of their own."""
    if arms is None and features.arms and not features.per_arm:
        return list(features.arms), features.vectors(context, features.arms)
    if isinstance(arms, Mapping):
        by_name = dict(zip(check_names("arms", list(arms)), arms.values(), strict=True))
        return list(by_name), features.vectors(context, by_name)
    if is_frame(arms):
        names = check_names("arms", frame_names("arms", arms))
        return names, features.vectors(context, dict(zip(names, frame_fields("arms", arms), strict=True)))
    names = check_names("arms", arms)
    try:
        return names, features.vectors(context, names)
    except ArgumentError as error:
        if error.path[0] != "arms":
            raise
        raise error.rename(("arms", names.index(error.path[1]))) from None


def _read_vectors(arms: Any, dim: int, columns: list[Name] | None) -> tuple[list[Name], Array, list[Name] | None]:
    """Return names, vectors, and the columns that set the order of the coordinates, if there are any."""
    if is_frame(arms):
        return check_names("arms", frame_names("arms", arms)), *read_frame("arms", arms, dim, columns)
    if not isinstance(arms, Mapping):
        rows = check_matrix("arms", arms, dim)
        return list(range(len(rows))), rows, columns
    names, vectors = check_names("arms", list(arms)), _align(list(arms.values()))
    try:
        if any(isinstance(vector, np.ma.MaskedArray) for vector in vectors):
            raise ArgumentError("arms", vectors, "vectors without masked entries")
        return names, check_matrix("arms", vectors, dim), columns
    except ValueError:
        for name, vector in zip(names, vectors, strict=True):  # find the vector that is wrong
            row = check_real_array(("arms", name), vector, f"{dim} numbers")
            if row.shape != (dim,):
                got = f"an array of shape {row.shape}"
                raise ArgumentError(("arms", name), vector, f"{dim} numbers", got=got) from None
        if names:
            raise
        return [], np.zeros((0, dim)), columns


def _align(vectors: list[Any]) -> list[Any]:
    """Return labelled vectors (of pandas) in the order of the labels of the first one; others as they are."""
    labels = [list(vector.index) if hasattr(vector, "loc") else None for vector in vectors]
    if not any(label != labels[0] for label in labels):
        return vectors
    if any(label is None or sorted(label, key=str) != sorted(labels[0] or (), key=str) for label in labels):
        raise ArgumentError("arms", vectors, "vectors that all have the same labels", got="different labels")
    return [vector.loc[labels[0]] for vector in vectors]


def check_matrix(argument: str, rows: Any, dim: int) -> Array:
    """Return ``rows`` as a new array [n, dim]."""
    expected = f"an array with rows of {dim} numbers"
    matrix = np.array(check_real_array(argument, rows, expected))
    if matrix.ndim != 2 or matrix.shape[1] != dim:
        raise ArgumentError(argument, rows, expected, got=f"an array of shape {matrix.shape}")
    return matrix


# --- frames of pandas or polars -----------------------------------------------------------------------------------


def is_frame(value: Any) -> bool:
    """Whether it is a table of pandas or polars, or like one."""
    return hasattr(value, "columns") and hasattr(value, "to_numpy")


def frame_rows(argument: str, frame: Any) -> list[dict[Any, Any]]:
    """Return the rows of a frame by the names of its columns."""
    columns = _check_columns(argument, frame)
    values = [list(frame[column]) for column in columns]
    return [dict(zip(columns, row, strict=True)) for row in zip(*values, strict=True)]


def frame_names(argument: str, frame: Any) -> list[Any]:
    """Return the arms' names: the column "arm", else the index, else numbers."""
    if ARM_COLUMN in _check_columns(argument, frame):
        return list(frame[ARM_COLUMN])
    return list(getattr(frame, "index", range(len(frame))))


def frame_fields(argument: str, frame: Any) -> list[dict[Any, Any]]:
    """Return the fields of each arm, without its name."""
    rows = frame_rows(argument, frame) or [{}] * len(frame)
    return [{column: value for column, value in row.items() if column != ARM_COLUMN} for row in rows]


def read_frame(argument: str, frame: Any, dim: int, columns: list[Name] | None) -> tuple[Array, list[Name]]:
    """Return the numbers of a frame, without the column of the arms' names, and the order of the other columns: that of
    ``columns``, the first frame's, or its own."""
    own = check_names(argument, [column for column in _check_columns(argument, frame) if column != ARM_COLUMN])
    if columns is not None and set(own) != set(columns):
        expected = f"a frame with the columns {format_value(columns)} of the first frame"
        hint = f"{format_value(min(set(own) ^ set(columns), key=str))} differs"
        raise ArgumentError(argument, own, expected, hint=hint)
    order = columns or own
    return check_matrix(argument, frame[order].to_numpy(), dim), order


def _check_columns(argument: str, frame: Any) -> list[Any]:
    columns = list(frame.columns)
    for column, times in Counter(columns).items():
        if times > 1:
            got = f"{format_value(column)} {times} times"
            raise ArgumentError(argument, columns, "a frame whose columns have different names", got=got)
    return columns
