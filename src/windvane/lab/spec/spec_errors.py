"""The errors of a spec, with the place of each: the path of the field, and file and line where there is a file."""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from windvane.errors import ArgumentError, WindvaneError

FieldPath = tuple[str | int, ...]

_NAME = re.compile(r"[A-Za-z_]\w*")
_PART = re.compile(r"""\[(\d+|'[^'\\]*'|"[^"\\]*")\]""")


def rendered(path: FieldPath) -> str:
    """``("environments", 1, "drift", "period")`` as ``environments[1].drift.period``."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")


class SpecError(WindvaneError, ValueError):
    """A spec cannot be run: ``path`` is the field, ``problem`` what is wrong with it, ``where`` file and line."""

    def __init__(self, path: FieldPath, problem: str, where: str = "") -> None:
        self.path, self.problem, self.where = path, " ".join(problem.split()), where
        super().__init__(": ".join(part for part in (where, rendered(path), self.problem) if part))

    @classmethod
    def of(cls, path: FieldPath, value: Any, expected: str, hint: str = "") -> SpecError:
        """Return the error of a field with a value that is not ``expected``."""
        return cls(path, ArgumentError(rendered(path), value, expected, hint=hint).problem)


def argument_path(argument: str) -> tuple[FieldPath, bool]:
    """Return the path that the name of an argument begins with, and whether that is all of the name.

    ``arms[3]['price']`` is ``("arms", 3, "price")``; of ``function(200)`` the path is ``("function",)``.
    """
    name = _NAME.match(argument)
    if name is None:
        return (), False
    path: FieldPath = (name[0],)
    at = name.end()
    while part := _PART.match(argument, at):
        path = (*path, ast.literal_eval(part[1]))
        at = part.end()
    return path, at == len(argument)


def locate(error: ValueError, prefix: FieldPath, known: Collection[str] = ()) -> SpecError:
    """Return ``error`` as an error at ``prefix``, or at the argument that it names if that is a ``known`` field."""
    if isinstance(error, ArgumentError):
        path, is_complete = argument_path(error.argument)
        if path and path[0] in known:
            return SpecError(prefix + path, error.problem if is_complete else str(error))
    return SpecError(prefix, str(error))


@contextmanager
def field_errors(*prefix: str | int, known: Collection[str] = (), foreign: bool = False) -> Iterator[None]:
    """Turn the errors raised inside into a :class:`SpecError` whose path begins with ``prefix``.

    An ``ArgumentError`` is located at the argument that it names, if that is one of the ``known`` fields. With
    ``foreign``, code of the user runs inside, and an error of any type is reported with its type and text.
    """
    try:
        yield
    except SpecError as error:
        raise SpecError(prefix + error.path, error.problem) from error.__cause__
    except ValueError as error:
        raise locate(error, prefix, known) from error
    except Exception as error:
        if not foreign:
            raise
        raise SpecError(prefix, f"{type(error).__name__}: {error}") from error


def suggestion(name: str, allowed: Collection[str]) -> str:
    """Return ``did you mean "runs"?`` if an allowed name is similar, else the list of allowed names."""
    near = difflib.get_close_matches(name, list(allowed), n=1, cutoff=0.7)  # at 0.6, sigma would suggest gamma
    if near:
        return f'did you mean "{near[0]}"?'
    return f"allowed: {', '.join(allowed)}" if allowed else ""


def with_hint(problem: str, hint: str) -> str:
    return f"{problem}; {hint}" if hint else problem


def refuse_unknown(table: Collection[str], allowed: Collection[str], problem: str = "unknown key") -> None:
    """Raise for the first key of ``table`` that is not allowed."""
    for name in table:
        if name not in allowed:
            raise SpecError((name,), with_hint(problem, suggestion(name, allowed)))


NOT_A_FLAG = "a number, not true or false"


def not_a_flag(name: str, value: Any) -> Any:
    """Return ``value`` unless it is true or false, which Python accepts as the numbers 1 and 0."""
    if isinstance(value, bool):
        raise ArgumentError(name, value, NOT_A_FLAG)
    return value


def flag(name: str, value: Any) -> bool:
    """Return ``value`` if it is true or false."""
    if not isinstance(value, bool):
        raise ArgumentError(name, value, "true or false")
    return value


def text_line(name: str, value: Any, *, least: int = 1, most: int = 200) -> str:
    """Return ``value`` if it is a text of one line that can be stored and shown."""
    if not (isinstance(value, str) and least <= len(value) <= most and value.isprintable()):
        raise ArgumentError(name, value, f"a text of {least} to {most} printable characters")
    return value
