"""Columns of a data table from CSV files and Parquet files. Errors name the file, and the line of a CSV file."""

from __future__ import annotations

import csv
import hashlib
import io
import math
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

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
SHA256 = re.compile(r"[0-9a-f]{64}")


class Selection(NamedTuple):
    """The places of the columns to return, in order, and the place of the column of labels if there is one."""

    places: list[int]
    label: int | None = None


Choose = Callable[[Sequence[str], str], Selection]
"""Select columns by the names in the header; the second argument is a hint for the message of an error."""


def check_sha256(name: str, value: Any) -> str:
    """Return ``value`` if it is written like a SHA-256."""
    if not (isinstance(value, str) and SHA256.fullmatch(value)):
        raise ArgumentError(name, value, "64 hexadecimal digits in lower case")
    return value


def read_file(path: str | PathLike[str], sha256: str | None = None) -> tuple[bytes, str]:
    """Return the content of a file, and its SHA-256 as 64 hexadecimal digits, which must be ``sha256`` if given."""
    if not isinstance(path, str | PathLike):
        raise ArgumentError("path", path, "the path of a CSV or Parquet file")
    try:
        content = Path(path).read_bytes()
    except (OSError, ValueError) as error:  # a ValueError: the path holds a NUL
        expected, reason = "a CSV or Parquet file that can be read", getattr(error, "strerror", None) or str(error)
        raise ArgumentError("path", str(path), expected, hint=reason) from None
    digest = hashlib.sha256(content).hexdigest()
    if sha256 is not None and sha256 != digest:
        raise ArgumentError("sha256", sha256, f"that of {path}, {digest}", hint="the file has changed")
    return content, digest


def parse_table(
    path: str | PathLike[str], content: bytes, label: str | None = None, rows: int | None = None
) -> list[Column]:
    """Return the columns of a CSV or Parquet file, that of the labels last, of the first ``rows`` rows if given.

    ``label`` is the name of the column of labels. Default: the last column.
    """

    def choose(names: Sequence[str], hint: str) -> Selection:
        place = _find_label(path, names, label, hint)
        return Selection([i for i in range(len(names)) if i != place] + [place], place)

    return _parse_selection(path, content, choose, rows)


def parse_columns(
    path: str | PathLike[str], content: bytes, names: Sequence[str] | None = None, rows: int | None = None
) -> list[Column]:
    """Return the columns with these names of a CSV or Parquet file without labels, in this order. Default: all."""

    def choose(header: Sequence[str], hint: str) -> Selection:
        if not header or (hint and len(header) == 1):
            expected, got = "a table with columns", f"the column {header[0]!r} alone" if header else "no column"
            raise ArgumentError("path", str(path), expected, got=got, where=str(path), hint=hint)
        check_names("path", header, str(path), str(path))
        return Selection([_find_column("columns", path, header, name, hint) for name in names or header])

    return _parse_selection(path, content, choose, rows)


def _parse_selection(path: str | PathLike[str], content: bytes, choose: Choose, rows: int | None) -> list[Column]:
    is_parquet = Path(path).suffix.lower() in PARQUET
    columns = _parse_parquet(path, content, choose) if is_parquet else _parse_csv(path, content, choose, rows)
    return columns if rows is None else [column.select(slice(rows)) for column in columns]


def _find_label(path: str | PathLike[str], names: Sequence[str], label: str | None, hint: str = "") -> int:
    """Return the place of the column of labels; raise if the names of the columns are not those of a labelled table."""
    if len(names) < 2:
        expected = "a table with a column of labels and at least one other column"
        got = f"the column {names[0]!r} alone" if names else "no column"
        raise ArgumentError("path", str(path), expected, got=got, where=str(path), hint=hint)
    check_names("path", names, str(path), str(path))
    return len(names) - 1 if label is None else _find_column("label", path, names, label)


def _find_column(argument: str, path: str | PathLike[str], names: Sequence[str], name: str, hint: str = "") -> int:
    """Return the place of the column ``name``."""
    if name not in names:
        known = textwrap.shorten(", ".join(names), LONGEST_LIST, placeholder=" ...")
        raise ArgumentError(argument, name, f"one of {known}, the columns of {path}", hint=hint)
    return names.index(name)


# --- CSV files --------------------------------------------------------------------------------------------------------


def _parse_csv(path: str | PathLike[str], content: bytes, choose: Choose, rows: int | None) -> list[Column]:
    names = [name.strip() for name in next(_read_rows(path, content))]
    numbers = _parse_numbers(names)
    if numbers is not None and not np.isnan(numbers).any():
        expected = "a CSV file whose first line names the columns"
        raise ArgumentError("path", str(path), expected, got="a first line of numbers", where=str(path))
    used = [word for mark, word in DELIMITERS.items() if any(mark in name for name in names)]
    hint = f"columns must be separated by commas, not by {used[0]}" if used else ""
    places, label = choose(names, hint)
    wanted = {i: names[i] for i in places}
    texts = set() if label is None else {label}  # the columns that hold texts; labels are read as texts: 007 is not 7
    while True:  # a column of numbers may turn out to be texts after many rows: then read again
        columns = _parse_csv_once(path, content, wanted, rows, texts)
        if isinstance(columns, dict):
            return [_parse_labels(columns[i]) if i == label else columns[i] for i in places]
        texts |= columns


def _parse_csv_once(
    path: str | PathLike[str], content: bytes, wanted: dict[int, str], rows: int | None, texts: set[int]
) -> dict[int, Column] | set[int]:
    """Return the columns at the places ``wanted``, or the places of those that were taken for numbers, but are texts.

    ``wanted`` are the names by place.
    """
    numbers: dict[int, list[Array]] = {i: [np.empty(0)] for i in wanted if i not in texts}
    coders = {i: TextCoder() for i in texts}
    reader = islice(_read_rows(path, content), 1, None)  # without the header
    while chunk := list(islice(reader, CHUNK if rows is None else min(CHUNK, rows))):
        rows = None if rows is None else rows - len(chunk)
        late: set[int] = set()
        for i, cells in enumerate(zip(*chunk, strict=True)):
            if i in coders:
                coders[i].add(None if cell.lower() in MISSING else cell for cell in map(str.strip, cells))
            elif i not in wanted:
                continue
            elif (parsed := _parse_numbers(cells)) is not None:
                numbers[i].append(parsed)
            else:
                late.add(i)
        if late:
            return late
    return {
        i: coders[i].finish(name) if i in coders else Column(name, np.concatenate(numbers[i]))
        for i, name in wanted.items()
    }


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


def _parse_parquet(path: str | PathLike[str], content: bytes, choose: Choose) -> list[Column]:
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
    columns = []
    for place in choose(table.column_names, "").places:
        name, data = table.column_names[place], table.column(place)
        kind = data.type.value_type if pa.types.is_dictionary(data.type) else data.type
        is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_boolean(kind)
        if is_text:
            columns.append(encode_texts(name, (None if v is None else str(v) for v in data.to_pylist())))
        elif pa.types.is_integer(kind) or pa.types.is_floating(kind):
            columns.append(Column(name, data.cast(pa.float64(), safe=False).to_numpy().astype(float)))
        else:
            expected = "a column of numbers or texts"
            raise ArgumentError(f"columns[{name!r}]", str(path), expected, got=str(kind), where=str(path))
    return columns
