"""Columns of a data table from CSV files and Parquet files. Errors name the file, and the line of a CSV file."""

from __future__ import annotations

import csv
import hashlib
import io
import math
import re
import textwrap
from collections.abc import Iterator, Sequence
from itertools import islice
from os import PathLike
from pathlib import Path

import numpy as np

from windvane.arguments import Array
from windvane.environments.columns import NAN, Column, TextCoder, check_names, encode_texts
from windvane.errors import ArgumentError

MISSING = frozenset({"", "na", "nan", "null", "?"})  # cells of a CSV file without a value, in lower case
CHUNK = 2**15  # rows of a CSV file that are held as Python texts at a time: a few MB
PARQUET = (".parquet", ".pq")
LONGEST_LIST = 300  # characters of a list of column names in a message
WHOLE = re.compile(r"0|-?[1-9][0-9]*")  # the texts that equal str(int(text))
DELIMITERS = {";": "semicolons", "\t": "tabs"}  # that other programs write in place of commas


def read_file(path: str | PathLike[str]) -> tuple[bytes, str]:
    """Return the content of a file, and its SHA-256 as 64 hexadecimal digits."""
    if not isinstance(path, str | PathLike):
        raise ArgumentError("path", path, "the path of a CSV or Parquet file")
    try:
        content = Path(path).read_bytes()
    except (OSError, ValueError) as error:  # a ValueError: the path holds a NUL
        expected, reason = "a CSV or Parquet file that can be read", getattr(error, "strerror", None) or str(error)
        raise ArgumentError("path", str(path), expected, hint=reason) from None
    return content, hashlib.sha256(content).hexdigest()


def parse_table(
    path: str | PathLike[str], content: bytes, label: str | None = None, rows: int | None = None
) -> list[Column]:
    """Return the columns of a CSV or Parquet file, that of the labels last, of the first ``rows`` rows if given.

    ``label`` is the name of the column of labels. Default: the last column.
    """
    is_parquet = Path(path).suffix.lower() in PARQUET
    columns = _parse_parquet(path, content, label) if is_parquet else _parse_csv(path, content, label, rows)
    return columns if rows is None else [column.select(slice(rows)) for column in columns]


def _find_label(path: str | PathLike[str], names: Sequence[str], label: str | None, hint: str = "") -> int:
    """Return the place of the column of labels; raise if the names of the columns are not those of a labelled table."""
    if len(names) < 2:
        expected = "a table with a column of labels and at least one other column"
        got = f"the column {names[0]!r} alone" if names else "no column"
        raise ArgumentError("path", str(path), expected, got=got, where=str(path), hint=hint)
    check_names("path", names, str(path), str(path))
    if label is None:
        return len(names) - 1
    if label not in names:
        known = textwrap.shorten(", ".join(names), LONGEST_LIST, placeholder=" ...")
        raise ArgumentError("label", label, f"one of {known}, the columns of {path}")
    return names.index(label)


def _move_last(columns: list[Column], place: int) -> list[Column]:
    return [*columns[:place], *columns[place + 1 :], columns[place]]


# --- CSV files --------------------------------------------------------------------------------------------------------


def _parse_csv(path: str | PathLike[str], content: bytes, label: str | None, rows: int | None) -> list[Column]:
    names = [name.strip() for name in next(_read_rows(path, content))]
    numbers = _parse_numbers(names)
    if numbers is not None and not np.isnan(numbers).any():
        expected = "a CSV file whose first line names the columns"
        raise ArgumentError("path", str(path), expected, got="a first line of numbers", where=str(path))
    used = [word for mark, word in DELIMITERS.items() if any(mark in name for name in names)]
    hint = f"columns must be separated by commas, not by {used[0]}" if used else ""
    place = _find_label(path, names, label, hint)
    texts = {place}  # the columns that hold texts; labels are read as texts, so that 007 is not merged with 7
    while True:  # a column of numbers may turn out to be texts after many rows: then read again
        late = _parse_csv_once(path, content, names, rows, texts)
        if isinstance(late, list):
            late[place] = _parse_labels(late[place])
            return _move_last(late, place)
        texts |= late


def _parse_csv_once(
    path: str | PathLike[str], content: bytes, names: Sequence[str], rows: int | None, texts: set[int]
) -> list[Column] | set[int]:
    """Return the columns, or the places of those whose first rows were taken for numbers, but are texts."""
    numbers: dict[int, list[Array]] = {i: [np.empty(0)] for i in range(len(names)) if i not in texts}
    coders = {i: TextCoder() for i in texts}
    reader = islice(_read_rows(path, content), 1, None)  # without the header
    while chunk := list(islice(reader, CHUNK if rows is None else min(CHUNK, rows))):
        rows = None if rows is None else rows - len(chunk)
        late: set[int] = set()
        for i, cells in enumerate(zip(*chunk, strict=True)):
            if i in coders:
                coders[i].add(None if cell.lower() in MISSING else cell for cell in map(str.strip, cells))
            elif (parsed := _parse_numbers(cells)) is not None:
                numbers[i].append(parsed)
            else:
                late.add(i)
        if late:
            return late
    return [
        coders[i].finish(name) if i in coders else Column(name, np.concatenate(numbers[i]))
        for i, name in enumerate(names)
    ]


def _read_rows(path: str | PathLike[str], content: bytes) -> Iterator[list[str]]:
    """Yield the header and the rows of a CSV file, all of one length."""
    reader = csv.reader(io.TextIOWrapper(io.BytesIO(content), encoding="utf-8-sig", newline=""), strict=True)
    count, line = 0, 1  # the line in which a row begins: a quoted cell may hold several
    try:
        for cells in reader:
            if len(cells) > 1 or "".join(cells).strip():  # else the line is empty or blank
                count = count or len(cells)
                if len(cells) != count:
                    expected, got = f"a CSV file with {count} cells in every row", f"{len(cells)} cells"
                    raise ArgumentError("path", str(path), expected, got=got, where=f"line {line} of {path}")
                yield cells
            line = reader.line_num + 1
    except UnicodeDecodeError:
        place = _find_bad_byte(content)
        where = f"line {len((content[:place] + b'.').splitlines())} of {path}"
        got = f"the byte {content[place : place + 1].hex()}"
        raise ArgumentError("path", str(path), "a CSV file in UTF-8", got=got, where=where) from None
    except csv.Error as error:
        expected, where = "a CSV file with well-formed cells", f"line {line} of {path}"
        raise ArgumentError("path", str(path), expected, got=_describe_cell(error), where=where) from None
    if not count:
        raise ArgumentError("path", str(path), "a CSV file with a header", got="an empty file", where=str(path))


def _find_bad_byte(content: bytes) -> int:
    """Return the place of the first byte that is not UTF-8. The reader decodes ahead, so it does not know the line."""
    try:
        content.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start
    return len(content)  # pragma: no cover


def _describe_cell(error: csv.Error) -> str:
    if "field limit" in str(error):  # an open quote swallows the rest of the file, up to the limit
        return f"a cell of more than {csv.field_size_limit():,} characters or a quote that is not closed"
    if "unexpected end" in str(error):
        return "a quote that is not closed"
    return f"a malformed cell ({error})"


def _parse_numbers(cells: Sequence[str]) -> Array | None:
    """Return the cells as numbers; None if one of them is a text."""
    if any("_" in cell for cell in cells):  # Python reads 10_20 as 1020; in data it is a text
        return None
    try:
        return np.array(list(map(float, cells)))
    except ValueError:
        pass
    try:
        return np.array([NAN if cell.strip().lower() in MISSING else float(cell) for cell in cells])
    except ValueError:
        return None


def _parse_labels(column: Column) -> Column:
    """Return a column of texts as one of numbers if all its texts are written as whole numbers are.

    Numbers with a fraction are numbers, too, and refused later: they are something to predict, and no classes.
    """
    values = column.values or ()
    numbers = _parse_numbers(values)
    if numbers is None or not values:
        return column
    is_whole = all(WHOLE.fullmatch(value) for value in values)
    has_fraction = any(math.isfinite(number) and number % 1.0 for number in numbers.tolist())
    return Column(column.name, np.append(numbers, NAN)[column.data]) if is_whole or has_fraction else column


# --- Parquet files ----------------------------------------------------------------------------------------------------


def _parse_parquet(path: str | PathLike[str], content: bytes, label: str | None) -> list[Column]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        expected = "a CSV file, because pyarrow, which reads Parquet files, is not installed"
        raise ArgumentError("path", str(path), expected, hint="pip install 'windvane[lab]'") from None
    try:
        table = pq.read_table(pa.BufferReader(content))
    except (pa.ArrowInvalid, OSError) as error:
        raise ArgumentError("path", str(path), "a Parquet file", hint=" ".join(str(error).split())) from None
    place = _find_label(path, table.column_names, label)
    columns = []
    for name, data in zip(table.column_names, table.columns, strict=True):
        kind = data.type.value_type if pa.types.is_dictionary(data.type) else data.type
        is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_boolean(kind)
        if is_text:
            columns.append(encode_texts(name, (None if v is None else str(v) for v in data.to_pylist())))
        elif pa.types.is_integer(kind) or pa.types.is_floating(kind):
            columns.append(Column(name, data.cast(pa.float64(), safe=False).to_numpy().astype(float)))
        else:
            expected = "a column of numbers or texts"
            raise ArgumentError(f"columns[{name!r}]", str(path), expected, got=str(kind), where=str(path))
    return _move_last(columns, place)
