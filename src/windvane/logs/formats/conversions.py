"""Convert cells of tables and JSON values to numbers and times."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from windvane.arguments import LARGEST, Array, Index, Mask
from windvane.environments.data_files import MISSING
from windvane.logs.raw import NAN, FieldColumn
from windvane.logs.row_problems import Problems

TIME = "a time: ISO 8601, or seconds since 1970"
NUMBER = "a number within [-1e100, 1e100]"
# Numbers above these bounds are milliseconds, microseconds and nanoseconds since 1970: in seconds they would be the
# years 5138 and later, while in the smaller unit 1e11 is the year 1973.
UNITS = ((1e11, 1e3), (1e14, 1e6), (1e17, 1e9))
LATEST = 1e11  # seconds


def to_numbers(column: FieldColumn, field: str, places: Index, problems: Problems) -> tuple[Array, Mask]:
    """Return the numbers of a column, and which rows are invalid. Missing values are NaN, and valid."""
    numbers = _apply(column, parse_number)
    is_missing = column.missing
    is_bad = ~(np.abs(numbers) <= LARGEST) & ~is_missing
    if is_bad.any():
        problems.add_rows("invalid number", places[is_bad], field, get_values(column, is_bad), NUMBER)
    return np.where(is_bad, NAN, numbers), is_bad


def to_times(column: FieldColumn, field: str, places: Index, problems: Problems) -> tuple[Array, Mask]:
    """Return the times of a column in seconds since 1970, and which rows are invalid."""
    times = _apply(column, parse_time)
    if column.values is None:
        size = np.abs(times)
        for bound, per_second in UNITS:
            times = np.where(size > bound, column.data / per_second, times)
    is_bad = ~(np.abs(times) <= LATEST) & ~column.missing
    if is_bad.any():
        problems.add_rows("invalid time", places[is_bad], field, get_values(column, is_bad), TIME)
    return np.where(is_bad, NAN, times), is_bad


def _apply(column: FieldColumn, parse: Callable[[str], float]) -> Array:
    if column.values is None:
        return np.asarray(column.data, dtype=float)
    table = np.array([*(parse(text) for text in column.values), NAN])
    return np.asarray(table[column.data])


def get_values(column: FieldColumn, rows: Mask) -> Sequence[Any]:
    """Return the first values of some rows as Python objects, for messages."""
    data = column.data[rows][:100]
    return data.tolist() if column.values is None else [None if i < 0 else column.values[i] for i in data.tolist()]


def parse_number(text: str) -> float:
    """Parse a number; return infinity if the string is not a number, NaN if it means a missing value."""
    if text.strip().lower() in MISSING:
        return NAN
    words = {"true": 1.0, "false": 0.0}
    try:
        return words[text.lower()] if text.lower() in words else math.inf if "_" in text else float(text)
    except ValueError:
        return math.inf


def parse_time(text: str) -> float:
    """Parse a time in seconds since 1970; return infinity if the string is not a time. The default time zone is UTC.

    Examples
    --------
    >>> parse_time("2021-02-04T16:31:29.5Z"), parse_time("1612456289.5"), parse_time("soon")
    (1612456289.5, 1612456289.5, inf)
    """
    number = parse_number(text)  # first, because 1612012912300 is also a time of the year 1612 in ISO 8601
    if not math.isinf(number):
        return scale_time(number)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return math.inf
    try:
        return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()
    except OverflowError:
        return math.inf


def scale_time(number: float) -> float:
    """Return a number of seconds, milliseconds, microseconds or nanoseconds since 1970 as seconds."""
    factor = 1.0
    for bound, per_second in UNITS:
        if abs(number) > bound:
            factor = per_second
    return number / factor
