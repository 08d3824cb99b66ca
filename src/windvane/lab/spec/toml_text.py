"""TOML: read a file, and find the line of a field.

The parsers of TOML name lines for errors of syntax only. :class:`Lines` walks over a text that the parser has accepted
and notes the line of each key, table and element, so that an error about a value can name its line.
"""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_right
from os import PathLike
from pathlib import Path
from typing import Any

from windvane.lab.spec.python_objects import LARGEST_INTEGER
from windvane.lab.spec.spec_errors import FieldPath, SpecError

LARGEST_FILE = 1_000_000  # bytes

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_BLANK = re.compile(r"[ \t]*")
_BETWEEN = re.compile(r"(?:[ \t\n,]|#[^\n]*)*")  # blanks, commas and comments
_BARE_VALUE = re.compile(r"[^,\]}#\n]*")
_AT_LINE = re.compile(r" \(at line (\d+), column (\d+)\)$")
_STRING = re.compile(
    r'"""(?:\\[\s\S]|[^\\])*?"{3,5}'  # a multi-line string may end in up to two quotes of its own
    r"|'''[\s\S]*?'{3,5}"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'[^'\n]*'"
)


class Lines:
    """The lines of the fields of a valid TOML text."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0
        self._starts = [0, *(match.end() for match in re.finditer("\n", text))]
        self._lines: dict[FieldPath, int] = {(): 1}
        self._elements: dict[FieldPath, int] = {}  # how many tables an array of tables has so far
        self._document()

    def of(self, path: FieldPath) -> int:
        """Return the line of ``path``, or of the nearest key or table around it; 1 if there is none."""
        while path not in self._lines:
            path = path[:-1]
        return self._lines[path]

    def _note(self, path: FieldPath, at: int) -> None:
        self._lines.setdefault(path, bisect_right(self._starts, at))

    def _skip(self, pattern: re.Pattern[str]) -> str:
        """Move past ``pattern``, which may match nothing, and return what was passed."""
        match = pattern.match(self._text, self._at)
        if match is None:
            return ""
        self._at = match.end()
        return match[0]

    def _next_is(self, token: str) -> bool:
        if self._text.startswith(token, self._at):
            self._at += len(token)
            return True
        return False

    def _ended(self, bracket: str = "") -> bool:
        """Move to the next element, pair or header. Return whether ``bracket`` or the end of the text comes first."""
        self._skip(_BETWEEN)
        return self._next_is(bracket) if bracket else self._at == len(self._text)

    def _document(self) -> None:
        table: FieldPath = ()
        while not self._ended():
            begin = self._at
            if self._next_is("[["):
                array = self._resolved(self._key(), inside=False)
                self._at += len("]]")
                self._note(array, begin)
                table = (*array, self._elements.setdefault(array, 0))
                self._elements[array] += 1
                self._note(table, begin)
            elif self._next_is("["):
                table = self._resolved(self._key(), inside=True)
                self._at += len("]")
                for length in range(1, len(table) + 1):
                    self._note(table[:length], begin)
                self._lines[table] = bisect_right(self._starts, begin)  # not that of a sub-table written before it
            else:
                self._pair(table)

    def _resolved(self, key: list[str], *, inside: bool) -> FieldPath:
        """Return the key of a header as a path; in an array of tables, it belongs to the last table so far."""
        path: FieldPath = ()
        for number, part in enumerate(key):
            path = (*path, part)
            if path in self._elements and (inside or number < len(key) - 1):
                path = (*path, self._elements[path] - 1)
        return path

    def _key(self) -> list[str]:
        """Move past a key and the blanks around it, and return its parts."""
        parts: list[str] = []
        while True:
            self._skip(_BLANK)
            quoted = self._skip(_STRING)
            parts.append(tomllib.loads(f"key = {quoted}")["key"] if quoted else self._skip(_BARE_KEY))
            self._skip(_BLANK)
            if not self._next_is("."):
                return parts

    def _pair(self, table: FieldPath) -> None:
        begin = self._at
        path = table
        for part in self._key():
            path = (*path, part)
            self._note(path, begin)
        self._at += len("=")
        self._skip(_BLANK)
        self._value(path)

    def _value(self, path: FieldPath) -> None:
        if self._next_is("["):
            index = 0
            while not self._ended("]"):
                self._note((*path, index), self._at)
                self._value((*path, index))
                index += 1
        elif self._next_is("{"):
            while not self._ended("}"):
                self._pair(path)
        elif not self._skip(_STRING):
            self._skip(_BARE_VALUE)


def read_text(path: str | PathLike[str]) -> str:
    """Return the text of a spec file."""
    where = str(path)
    try:
        file = Path(path)
        if file.is_dir():
            raise SpecError((), "is a folder: a spec is a TOML file", where)
        if not file.exists():
            raise SpecError((), "no such file", where)
        if not file.is_file():
            raise SpecError((), "is not a regular file: a spec is a TOML file", where)
        with file.open("rb") as stream:
            content = stream.read(LARGEST_FILE + 1)
    except OSError as error:
        raise SpecError((), f"cannot be read: {error.strerror}", where) from error
    if len(content) > LARGEST_FILE:
        raise SpecError((), f"too large: a spec has at most {LARGEST_FILE:,} bytes", where)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SpecError((), f"is not UTF-8 text (byte {error.start}): a spec is a TOML file", where) from error


def load(text: str, source: str) -> tuple[dict[str, Any], Lines]:
    """Return the document in ``text``, and its lines."""
    try:
        document, lines = tomllib.loads(text), Lines(text.replace("\r\n", "\n"))
        too_long = _too_long(document, ())
    except RecursionError:
        raise SpecError((), "not valid TOML: nested too deeply", source) from None
    except ValueError as error:
        problem = str(error)
        found = _AT_LINE.search(problem)
        line = found[1] if found else text.rstrip().count("\n") + 1  # "at end of document"
        column = f" (column {found[2]})" if found else ""
        problem = _AT_LINE.sub("", problem) + column
        raise SpecError((), f"not valid TOML: {problem}", f"{source}:{line}") from error
    if too_long is not None:
        raise SpecError(too_long, "must be a number of at most 64 bits", f"{source}:{lines.of(too_long)}")
    return document, lines


def _too_long(value: Any, path: FieldPath) -> FieldPath | None:
    """Return the path of a whole number beyond 64 bits, which other readers of TOML could not represent."""
    if isinstance(value, int):
        return path if abs(value) >= LARGEST_INTEGER else None
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return next((found for part, item in parts if (found := _too_long(item, (*path, part))) is not None), None)
