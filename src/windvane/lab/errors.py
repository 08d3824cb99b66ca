"""What is wrong with a spec, where: the field's path always, the line where there is a file."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from windvane.errors import format_value

FieldPath = tuple[str | int, ...]

_LEADING_NAME = re.compile(r"[A-Za-z_]\w*")


def rendered(path: FieldPath) -> str:
    """``("environments", 1, "drift", "period")`` as ``environments[1].drift.period``."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")


class SpecError(ValueError):
    """A spec that cannot be run: ``path`` is the field, ``problem`` what is wrong with it, ``where`` file and line.

    ``problem`` follows the path directly: it begins with ``=value: `` or with ``: ``.
    """

    def __init__(self, path: FieldPath, problem: str, where: str = "") -> None:
        self.path, self.problem, self.where = path, " ".join(problem.split()), where
        text = rendered(path) + self.problem
        super().__init__((f"{where}: " if where else "") + text.removeprefix(": "))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.path, self.problem, self.where)


def leading_name(text: str) -> str:
    """The argument that an error of the form ``name=value: must be ...`` is about, or nothing."""
    found = _LEADING_NAME.match(text)
    return found[0] if found else ""


@contextmanager
def field_errors(*prefix: str | int, known: Collection[str] = (), foreign: bool = False) -> Iterator[None]:
    """Errors raised inside become a :class:`SpecError` whose path begins with ``prefix``.

    A ``ValueError`` of the house form ``name=value: must be ...`` is led to the field ``name`` if that is ``known``.
    ``foreign``: code that is not ours runs inside, and whatever it raises is reported by type and text.
    """
    try:
        yield
    except SpecError as error:
        raise SpecError(prefix + error.path, error.problem) from error.__cause__
    except ValueError as error:
        text = str(error)
        name = leading_name(text)
        if name in known:
            rest = text[len(name) :]
            raise SpecError((*prefix, name), f":{rest}" if rest[:1].isspace() else rest) from error
        raise SpecError(prefix, f": {text}") from error
    except Exception as error:
        if not foreign:
            raise
        raise SpecError(prefix, f": {type(error).__name__}: {error}") from error


def suggestion(name: str, allowed: Collection[str]) -> str:
    """``; did you mean "runs"?`` where a name comes near, else the list of names."""
    near = difflib.get_close_matches(name, list(allowed), n=1, cutoff=0.7)  # sigma is no slip for gamma
    if near:
        return f'; did you mean "{near[0]}"?'
    return f"; allowed: {', '.join(allowed)}" if allowed else ""


def refuse_unknown(table: Collection[str], allowed: Collection[str], what: str = "unknown key") -> None:
    for name in table:
        if name not in allowed:
            raise SpecError((name,), f": {what}{suggestion(name, allowed)}")


def not_a_flag(name: str, value: Any) -> Any:
    """``value``, unless it is true or false: Python would take those for the numbers 1 and 0."""
    if isinstance(value, bool):
        raise ValueError(name + not_a_number(value))
    return value


def not_a_number(value: bool) -> str:
    return f"={value}: must be a number, not true or false"


def flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{name}={format_value(value)}: must be true or false")
    return value


def text_line(name: str, value: Any, *, least: int = 1, most: int = 200) -> str:
    """A text of one line that can be stored and shown."""
    if not (isinstance(value, str) and least <= len(value) <= most and value.isprintable()):
        raise ValueError(f"{name}={format_value(value)}: must be a text of {least} to {most} printable characters")
    return value
