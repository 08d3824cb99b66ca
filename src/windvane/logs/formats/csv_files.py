"""Read the columns of a CSV file in chunks."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from windvane.arguments import Array, Index
from windvane.environments.data_files import MISSING
from windvane.errors import ArgumentError
from windvane.logs.formats.reader import CHUNK, Report, open_file, read_lines
from windvane.logs.raw import NAN, FieldColumn, encode_texts
from windvane.logs.row_problems import Problems, Verbatim

DELIMITERS = ",;\t"
SAMPLE = 1 << 16  # characters of the header that are used to find the delimiter


def read_header(path: Path) -> tuple[list[str], str]:
    """Return the names of the columns and the delimiter, which is the most frequent candidate in the first line.

    A column without a name is called "".
    """
    with open_file(path) as file:
        place, line = next(read_lines(file, Problems()), (0, ""))
    line = line.rstrip("\r\n")
    if not place or not line.strip():
        raise ArgumentError("path", str(path), "a CSV file with a header", got="an empty first line", where=str(path))
    delimiter = max(DELIMITERS, key=line[:SAMPLE].count)
    try:
        names = [name.strip() for name in next(csv.reader([line], delimiter=delimiter))]
    except csv.Error as error:
        expected = "a CSV file whose first line names the columns"
        hint = "lines end with a carriage return only; they must end with a line feed" if "\r" in line else str(error)
        raise ArgumentError("path", str(path), expected, where=str(path), hint=hint) from None
    named = [name for name in names if name]
    if repeated := [name for name in dict.fromkeys(named) if named.count(name) > 1]:
        expected = "a CSV file whose columns have different names"
        raise ArgumentError("path", str(path), expected, got=f"{repeated[0]!r} twice", where=str(path))
    return names, delimiter


def read_columns(
    path: Path, names: Sequence[str], delimiter: str, wanted: Sequence[str], texts: set[str],
    problems: Problems, report: Report,
) -> Iterator[tuple[Index, dict[str, FieldColumn]]]:  # fmt: skip
    """Yield the lines and the columns ``wanted`` of a chunk of rows. Columns in ``texts`` are read as strings.

    Other columns hold numbers if all their cells in the chunk are numbers.
    """
    places = {name: names.index(name) for name in wanted}
    with open_file(path) as file:
        rows = _read_rows(file_lines := _Lines(read_lines(file, problems)), delimiter, len(names), problems)
        next(file_lines)  # the header
        while chunk := list(islice(rows, CHUNK)):
            cells = list(zip(*(row for _, row in chunk), strict=True))
            yield (
                np.array([place for place, _ in chunk]),
                {name: parse_cells(cells[i], name in texts) for name, i in places.items()},
            )
            report(file.tell())


class _Lines:
    """The lines of a file, with the number of the last one, because a row may span several lines."""

    def __init__(self, lines: Iterator[tuple[int, str]]) -> None:
        self._lines, self.place = lines, 0

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        self.place, text = next(self._lines)
        return text


def _read_rows(lines: _Lines, delimiter: str, count: int, problems: Problems) -> Iterator[tuple[int, list[str]]]:
    """Yield the line number and the cells of each row with ``count`` cells; other rows are problems."""
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    while True:
        before = lines.place
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            value = Verbatim(f"{error}, lines {before + 1} to {lines.place}")
            problems.add("malformed row", before + 1, "line", value, "well-formed CSV")
        else:
            if len(row) == count:
                yield before + 1, row
                continue
            if len(row) <= 1 and not "".join(row).strip():
                continue  # a blank line
            value = Verbatim(f"{len(row)} cells")
            problems.add("malformed row", before + 1, "line", value, f"a row of {count} cells, like the header")
        problems.rows_read += 1
        problems.rows_dropped += 1


def parse_cells(cells: Sequence[str], is_text: bool) -> FieldColumn:
    """Return cells as a column of numbers if all are numbers, else as a column of strings."""
    if not is_text and (numbers := _parse_numbers(cells)) is not None:
        return FieldColumn(numbers)
    return encode_texts(None if cell.lower() in MISSING else cell for cell in map(str.strip, cells))


def _parse_numbers(cells: Sequence[str]) -> Array | None:
    try:
        numbers = np.array(list(map(float, cells)))
    except ValueError:
        try:
            numbers = np.array([NAN if cell.strip().lower() in MISSING else float(cell) for cell in cells])
        except ValueError:
            return None
    return None if any("_" in cell for cell in cells) else numbers  # Python reads 10_20 as 1020; in data it is a string
