"""Read files with one JSON object per line."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from windvane.arguments import LARGEST
from windvane.logs.formats.conversions import parse_time, scale_time
from windvane.logs.formats.reader import Report, open_file, read_lines
from windvane.logs.row_problems import Problems

NAN = math.nan
REPORT_EVERY = 1000  # lines


def read_objects(
    path: Path, problems: Problems, report: Report, words: Sequence[str] = ("",)
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the number and the object of each line. Lines that do not hold an object are problems.

    Lines that contain none of ``words`` are skipped without parsing.
    """
    with open_file(path) as file:
        for place, line in read_lines(file, problems):
            if place % REPORT_EVERY == 0:
                report(file.tell())
            if line.isspace() or not any(word in line for word in words):
                continue
            record = parse_object(line, place, problems)
            if record is not None:
                yield place, record


def parse_object(text: str, place: int, problems: Problems) -> dict[str, Any] | None:
    """Parse a JSON object; return None, and add a problem, if it is not one."""
    try:
        record = json.loads(text)
    except RecursionError:
        reason = "nested less deeply"
    except ValueError:  # not JSON, or an integer with too many digits
        reason = "a JSON object on one line"
    else:
        if isinstance(record, dict):
            return record
        reason = "a JSON object"
    problems.rows_read += 1
    problems.rows_dropped += 1
    problems.add("malformed line", place, "line", text, reason)
    return None


def to_number(value: Any) -> float:
    """Return a JSON value as a number; infinity if it is not a number, NaN if it is null."""
    if value is None:
        return NAN
    if isinstance(value, int | float):
        try:
            number = float(value)
        except OverflowError:
            return math.inf
        return number if abs(number) <= LARGEST else math.inf
    return math.inf


def to_time(value: Any) -> float:
    """Return a JSON value as seconds since 1970; infinity if it is not a time, NaN if it is null."""
    return parse_time(value) if isinstance(value, str) else scale_time(to_number(value))
