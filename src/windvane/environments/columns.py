"""Columns of a data table, from arrays and data frames; ``data_files`` reads them from files.

A column holds numbers (missing: NaN) or texts (stored as codes; missing: -1). Rows are counted from 1, without the
header, so that row t is round t of a labelled data stream.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from windvane.arguments import LARGEST, Mask
from windvane.errors import ArgumentError, format_value

NAN = math.nan


class Column(NamedTuple):
    """A column of numbers, or of texts if ``values`` is set.

    ``values`` lists the different texts in sorted order, and ``data`` then holds indices into it.
    """

    name: str
    data: npt.NDArray[Any]
    values: tuple[str, ...] | None = None

    @property
    def missing(self) -> Mask:
        """True for the rows without a value, [n]."""
        return np.isnan(self.data) if self.values is None else self.data < 0

    def select(self, rows: slice | Mask) -> Column:
        """Return the column with these rows only, and with the texts that occur in them."""
        data = self.data[rows]
        if self.values is None:
            return self._replace(data=data)
        used = np.unique(data[data >= 0])
        new_codes = np.full(len(self.values) + 1, -1, dtype=np.int32)  # the last entry is for the code -1
        new_codes[used] = np.arange(len(used))
        return Column(self.name, new_codes[data], tuple(self.values[code] for code in used))


class TextCoder:
    """Collect texts as codes. None is a missing value."""

    def __init__(self) -> None:
        self._codes: dict[str | None, int] = {None: -1}
        self._chunks = [np.empty(0, dtype=np.int32)]

    def add(self, texts: Iterable[str | None]) -> None:
        """Append rows."""
        codes = self._codes
        self._chunks.append(np.array([codes.setdefault(text, len(codes) - 1) for text in texts], dtype=np.int32))

    def finish(self, name: str) -> Column:
        """Return the column, with its texts in sorted order."""
        texts = [text for text in self._codes if text is not None]
        new_codes = np.full(len(texts) + 1, -1, dtype=np.int32)  # the last entry is for the code -1
        new_codes[sorted(range(len(texts)), key=texts.__getitem__)] = np.arange(len(texts))
        return Column(name, new_codes[np.concatenate(self._chunks)], tuple(sorted(texts)))


def encode_texts(name: str, texts: Iterable[str | None]) -> Column:
    """Return a column of texts. None is a missing value."""
    coder = TextCoder()
    coder.add(texts)
    return coder.finish(name)


# --- arrays -----------------------------------------------------------------------------------------------------------


def to_columns(argument: str, features: Any, names: Sequence[str] | None = None) -> list[Column]:
    """Return the columns of a mapping from names to columns (such as a data frame), or of an array [n, p]."""
    if isinstance(features, Mapping) or hasattr(features, "columns"):
        if names is not None:
            raise ArgumentError("names", names, f"omitted if `{argument}` has named columns")
        return [to_column(f"{argument}[{name!r}]", str(name), column) for name, column in features.items()]
    try:
        array = np.asarray(features)
    except ValueError:  # ragged
        array = np.empty(0)
    if array.ndim != 2:
        raise ArgumentError(argument, features, "an array [n, p], or a mapping from names to columns")
    names = [f"x{i + 1}" for i in range(array.shape[1])] if names is None else list(names)
    if len(names) != array.shape[1]:
        raise ArgumentError("names", names, f"a list of {array.shape[1]} texts, one for each column")
    return [to_column(f"{argument}[:, {i}]", name, array[:, i]) for i, name in enumerate(names)]


def to_column(argument: str, name: str, values: Any) -> Column:
    """Return a column of numbers or texts. None, NaN and pandas.NA are missing; True and False are texts."""
    if isinstance(values, Column):
        return values
    array = np.asarray(values)
    if array.dtype.kind == "U":  # NumPy would turn all numbers of a mixed list into texts
        array = np.asarray(values, dtype=object)
    is_list = array.ndim == 1 and not isinstance(values, np.ma.MaskedArray)
    if is_list and array.dtype.kind in "iuf":
        return Column(name, array.astype(float))
    entries = [_simplify(entry) for entry in array] if is_list and array.dtype.kind in "bO" else [values]
    kinds = {type(entry) for entry in entries if entry is not None}
    if kinds <= {int, float}:
        return Column(name, np.array([NAN if entry is None else _to_float(entry) for entry in entries]))
    if kinds <= {str}:
        return encode_texts(name, entries)
    raise ArgumentError(argument, values, "a list of numbers or a list of strings", got=f"dtype {array.dtype}")


def _simplify(entry: Any) -> Any:
    """Return an entry as a plain number or text; None for NaN and for ``pandas.NA``."""
    entry = entry.item() if isinstance(entry, np.generic) else entry
    if isinstance(entry, float) and math.isnan(entry):
        return None
    if type(entry).__name__ == "NAType":  # of pandas, which need not be installed
        return None
    return str(entry) if isinstance(entry, bool) else entry


def _to_float(number: float) -> float:
    """Return the number as a float; a whole number that is too large for one is infinite, and refused later."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


# --- checks -----------------------------------------------------------------------------------------------------------


def check_names(argument: str, names: Sequence[str], value: Any, where: str = "") -> None:
    """Raise ``ArgumentError`` unless every column has a different, nonempty name."""
    for place, name in enumerate(names):
        if not isinstance(name, str) or not name.strip() or name in names[:place]:
            expected = "a table whose columns have different, nonempty names"
            raise ArgumentError(argument, value, expected, got=f"the name {name!r} of column {place + 1}", where=where)


def check_numbers(argument: str, column: Column, source: str = "", hint: str = "") -> None:
    """Raise ``ArgumentError`` if the column holds texts; name the first row with a text that is not a number."""
    if column.values is None:
        return
    codes = [code for code, text in enumerate(column.values) if not _is_number(text)]
    is_text = np.isin(column.data, codes) if codes else column.data >= 0
    code = int(column.data[is_text.argmax()]) if is_text.any() else -1
    got = "a missing value" if code < 0 else f"the text {format_value(column.values[code])}"
    where = _describe_row(is_text, source)
    raise ArgumentError(argument, column.name, "a column of numbers", got=got, where=where, hint=hint)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text


def check_values(
    argument: str, column: Column, source: str = "", hint: str = 'use missing="drop" to leave out such rows'
) -> Column:
    """Return the column if it has a value in every row, and every number is within [-1e100, 1e100]."""
    is_missing = column.missing
    if is_missing.any():
        where = _describe_row(is_missing, source)
        raise ArgumentError(argument, None, "present in every row", got="a missing value", where=where, hint=hint)
    if column.values is None:
        is_outside = ~(np.abs(column.data) <= LARGEST)
        if is_outside.any():
            value = float(column.data[is_outside.argmax()])
            raise ArgumentError(
                argument, value, "a number within [-1e100, 1e100]", where=_describe_row(is_outside, source)
            )
    return column


def _describe_row(bad: Mask, source: str) -> str:
    return f"row {int(bad.argmax()) + 1}" + (source and f" of {source}")
