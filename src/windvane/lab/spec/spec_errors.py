"""The errors of a spec, with the place of each: the path of the field, and file and line if it comes from a file."""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from windvane.errors import ArgumentError, WindvaneError, format_value

FieldPath = tuple[str | int, ...]

_NAME = re.compile(r"[A-Za-z_]\w*")
_PART = re.compile(r"""\[(\d+|'[^'\\]*'|"[^"\\]*")\]""")
_SIMILAR = 0.7  # how similar a suggested name must be; at 0.6, sigma would suggest gamma


def format_path(path: FieldPath) -> str:
    """Return ``("environments", 1, "drift", "period")`` as ``environments[1].drift.period``."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")


class SpecError(WindvaneError, ValueError):
    """A spec cannot be run.

    Parameters
    ----------
    path, problem
        The field, and what is wrong with it.
    where
        File and line, as ``"spec.toml:12"``; empty if the spec does not come from a file.
    """

    def __init__(self, path: FieldPath, problem: str, where: str = "") -> None:
        self.path, self.problem, self.where = path, " ".join(problem.split()), where
        super().__init__(": ".join(part for part in (where, format_path(path), self.problem) if part))

    @classmethod
    def of(cls, path: FieldPath, value: Any, expected: str, hint: str = "") -> SpecError:
        """Return the error of a field whose value is not ``expected``."""
        return cls(path, ArgumentError(format_path(path), value, expected, hint=hint).problem)


def split_argument(argument: str) -> tuple[FieldPath, bool]:
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


def locate(error: Exception, prefix: FieldPath = (), known: Collection[str] = ()) -> SpecError:
    """Return ``error`` as an error at ``prefix``, or at the argument that it names if that is a ``known`` field there.

    An exception of any other type comes from code of the user, and is reported with its type.
    """
    if isinstance(error, SpecError):
        return SpecError(prefix + error.path, error.problem)
    if isinstance(error, ArgumentError):
        path, is_complete = split_argument(error.argument)
        if path and path[0] in known:
            return SpecError(prefix + path, error.problem if is_complete else str(error))
    if isinstance(error, ValueError):
        return SpecError(prefix, str(error))
    return SpecError(prefix, f"{type(error).__name__}: {error}")


@contextmanager
def located(*prefix: str | int, known: Collection[str] = (), foreign: bool = False) -> Iterator[None]:
    """Turn errors raised inside into a :class:`SpecError` whose path begins with ``prefix``, as :func:`locate` does.

    Only errors of values are turned, unless ``foreign``: then code of the user runs inside and may raise anything.
    """
    try:
        yield
    except Exception as error:
        if not foreign and not isinstance(error, ValueError):
            raise
        cause = error.__cause__ if isinstance(error, SpecError) else error
        raise locate(error, prefix, known) from cause


def suggest(name: str, allowed: Collection[str]) -> str:
    """Return ``did you mean "runs"?`` if an allowed name is similar, else the list of allowed names."""
    near = difflib.get_close_matches(name, list(allowed), n=1, cutoff=_SIMILAR)
    if near:
        return f'did you mean "{near[0]}"?'
    return f"allowed: {', '.join(allowed)}" if allowed else ""


def add_hint(problem: str, hint: str) -> str:
    """Return the problem with a hint after a semicolon, if there is one."""
    return f"{problem}; {hint}" if hint else problem


class Place(NamedTuple):
    """A place in a spec that pydantic found wrong: the path of the field, and the keys and kinds allowed there."""

    path: FieldPath
    keys: Collection[str]
    kinds: Collection[str]


def choose_error(error: ValidationError) -> ErrorDetails:
    """Return the error to report. An unknown key explains a missing one, so it comes first."""
    return min(error.errors(include_url=False), key=lambda each: each["type"] not in _UNKNOWN)


def translate(error: ValidationError, find_place: Callable[[FieldPath], Place]) -> SpecError:
    """Return the error to report as a :class:`SpecError`; ``find_place`` reads pydantic's location."""
    details = choose_error(error)
    (path, keys, kinds), value = find_place(details["loc"]), details["input"]
    match details["type"]:
        case "value_error":
            return _translate_cause(details["ctx"]["error"], path, keys)
        case "missing":
            return SpecError(path, add_hint("missing", _EXPLAINED.get(path, "")))
        case kind if kind in _UNKNOWN:
            return SpecError(path, add_hint("unknown key", suggest(str(path[-1]), keys)))
        case "union_tag_not_found" if isinstance(value, dict):
            return SpecError((*path, "kind"), add_hint("missing", f"allowed: {', '.join(kinds)}"))
        case "union_tag_invalid":
            named = value.get("kind") if isinstance(value, dict) else value
            return SpecError.of((*path, "kind"), named, "a known kind", suggest(str(named), kinds))
        case "tuple_type" | "too_short":
            return SpecError.of(path, value, f"a list of one or more tables: write [[{path[-1]}]]")
        case "dataclass_type" | "model_type" | "model_attributes_type" | "dict_type" | "union_tag_not_found":
            return SpecError.of(path, value, "a table")
    problem = details["msg"].replace("Input should be", "must be")
    return SpecError(path, f"{problem}, got {format_value(value)}")


_UNKNOWN = ("unexpected_keyword_argument", "extra_forbidden")
_EXPLAINED: dict[FieldPath, str] = {
    (name,): f"a spec has one or more tables [[{name}]]" for name in ("environments", "policies")
}


def _translate_cause(cause: Exception, path: FieldPath, keys: Collection[str]) -> SpecError:
    """Return an error that a check of ours raised while pydantic validated the field at ``path``."""
    if isinstance(cause, ArgumentError):
        argument, is_complete = split_argument(cause.argument)
        if path and argument[:1] == path[-1:] and is_complete:  # the check of the field itself
            return SpecError(path + argument[1:], cause.problem)
    return locate(cause, path, keys)
