"""The base class of readers of log files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from windvane.errors import ArgumentError
from windvane.logs.raw import RawRows
from windvane.logs.row_problems import Problems

CHUNK = 8192  # rows that a reader returns at a time
LONGEST_LINE = 1 << 24  # bytes of a line; a longer one is skipped, so that memory stays bounded
Report = Callable[[int], None]
"""Called with the number of bytes read so far."""


class Reader(ABC):
    """Read one file, any number of times, as :class:`windvane.logs.raw.RawRows`.

    Attributes
    ----------
    format : str
        The name of the format.
    place : str
        What the place of a row counts: "line", or "row" of a file without lines.
    path : Path
        The file.
    stamp : tuple of int
        Its size and the time of its last change when the reader was created.
    texts, arm_texts : set of str
        The fields of contexts and of arms that hold strings. The first pass sets them: a field that holds numbers in
        some rows and strings in others is a field of strings.
    arm_features : mapping or None
        The features of each arm by name, where a separate file has them.
    extra_passes : int
        How many passes over the file ``prepare`` makes.
    """

    format: str
    extra_passes = 0
    place = "line"

    def __init__(self, path: Path) -> None:
        self.path, self.stamp = path, read_stamp(path)
        self.texts: set[str] = set()
        self.arm_texts: set[str] = set()
        self.arm_features: Mapping[str, Mapping[str, Any]] | None = None

    def prepare(self, report: Report) -> None:  # noqa: B027 - most formats need nothing
        """Read what must be known before the first row can be returned."""

    @abstractmethod
    def read(self, problems: Problems, report: Report) -> Iterator[RawRows]:
        """Yield all rows in file order. Lines that are not rows are added to ``problems``."""


def read_stamp(path: Path) -> tuple[int, int]:
    """Return the size of a file and the time of its last change; zeros if there is no file."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return 0, 0
    return status.st_size, status.st_mtime_ns


def open_file(path: Path, argument: str = "path") -> BinaryIO:
    """Open a file for reading, or raise ``ArgumentError`` with the reason."""
    try:
        is_stream = path.exists() and not path.is_file() and not path.is_dir()  # a pipe would wait for its writer
        if not is_stream:
            return path.open("rb")
    except (OSError, ValueError) as error:  # a ValueError: the path holds a NUL
        reason = getattr(error, "strerror", None) or str(error)
        raise ArgumentError(argument, str(path), "a file that can be read", hint=reason) from None
    hint = "a log is read more than once: write it to a file first"
    raise ArgumentError(argument, str(path), "a file", got="a pipe or a device", where=str(path), hint=hint)


def read_lines(file: BinaryIO, problems: Problems) -> Iterator[tuple[int, str]]:
    """Yield the number and the text of each line, with its line break. Lines not in UTF-8 or too long are problems."""
    place = 0
    while line := file.readline(LONGEST_LINE):
        place += 1
        if not line.endswith(b"\n") and len(line) == LONGEST_LINE:
            while (rest := file.readline(LONGEST_LINE)) and not rest.endswith(b"\n"):
                pass
            problems.rows_read += 1
            problems.rows_dropped += 1
            problems.add("line too long", place, "line", f"{line[:40]!r}...", f"at most {LONGEST_LINE:,} bytes long")
            continue
        if place == 1 and line.startswith(b"\xef\xbb\xbf"):  # a byte order mark
            line = line[3:]
        try:
            yield place, line.decode("utf-8")
        except UnicodeDecodeError as error:
            problems.rows_read += 1
            problems.rows_dropped += 1
            expected = "UTF-8"
            problems.add("not UTF-8", place, "line", line[max(error.start - 10, 0) : error.start + 10], expected)
