"""The exceptions that windvane raises on purpose. Code should read their attributes and never parse their messages."""

from __future__ import annotations

import copyreg
from itertools import takewhile
from typing import Any
from urllib.parse import quote

LONGEST_VALUE = 80  # characters of a value in a message, so that it fits on one line
_FRAGMENT = "~!$&'()*+,;=:@/?"  # what a URI fragment may hold beside letters, digits and "-._~" (RFC 3986)


def format_value(value: Any) -> str:
    """Return ``repr(value)`` of any object on one line, shortened to :data:`LONGEST_VALUE` characters."""
    try:
        text = " ".join(repr(_abridge(value, [LONGEST_VALUE])).split())
    except Exception:  # an integer with more digits than Python converts, or a broken __repr__
        text = f"<{type(value).__name__}>"
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 3] + "..."


def _abridge(value: Any, room: list[int]) -> Any:
    """Return as much of a list, tuple, dict or text as can be seen in a message: it may hold millions of numbers.

    ``room``: how many more entries may be seen; each takes a character or more.
    """
    room[0] -= 1
    if type(value) in (str, bytes):
        return value[: 2 * LONGEST_VALUE]
    if type(value) in (list, tuple):
        return type(value)(_abridge(entry, room) for entry in takewhile(lambda _: room[0] > 0, value))
    if type(value) is dict:
        return {key: _abridge(entry, room) for key, entry in takewhile(lambda _: room[0] > 0, value.items())}
    return value


class WindvaneError(Exception):
    """Base class of the errors that windvane raises on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by attributes, because constructors differ. Worker processes send errors this way."""
        return copyreg.__newobj__, (type(self), *self.args), vars(self)  # type: ignore[attr-defined]


Path = tuple[str | int, ...]
"""Where a value is in the arguments of a call: ``("arms", "red", 1)``."""


class ArgumentError(WindvaneError, ValueError):
    """An argument has a value that is not allowed.

    Parameters
    ----------
    argument
        Name of the argument, such as ``"gamma"`` or ``"state['t']"``; or the path of an entry of it, such as
        ``("arms", "red", 1)``.
    value, expected
        The rejected value, and what is allowed, worded to follow "must be", such as ``"in (0, 1]"``.
    got
        How the message describes the value. Default: its ``repr``.
    where, hint
        Where in the argument the value is, such as ``"lane 3"``; advice, printed after a semicolon.

    Attributes
    ----------
    path
        The path of the value; the name alone where only a name was given.
    argument
        The path as Python would write it: ``arms['red'][1]``.
    pointer
        The path as a JSON Pointer in a URI fragment (RFC 6901): ``#/arms/red/1``.
    problem
        The message without the name of the argument: "must be in (0, 1], got 1.2".

    Examples
    --------
    >>> raise ArgumentError("gamma", 1.2, "in (0, 1]")
    Traceback (most recent call last):
    windvane.errors.ArgumentError: `gamma` must be in (0, 1], got 1.2
    >>> error = ArgumentError(("arms", "red", 1), "two", "a number")
    >>> error.argument, error.pointer
    ("arms['red'][1]", '#/arms/red/1')
    """

    def __init__(
        self,
        argument: str | Path,
        value: Any,
        expected: str,
        *,
        got: str | None = None,
        where: str = "",
        hint: str = "",
    ) -> None:
        self.path: Path = (argument,) if isinstance(argument, str) else argument
        first, *rest = self.path
        self.argument = f"{first}" + "".join(f"[{format_value(key)}]" for key in rest)
        self.value, self.expected = value, expected
        self.got, self.where, self.hint = got, where, hint
        value_text = format_value(value) if got is None else got
        self.problem = f"must be {expected}, got {value_text}" + (where and f" in {where}") + (hint and f"; {hint}")
        super().__init__(f"`{self.argument}` {self.problem}")

    @property
    def pointer(self) -> str:
        """Return the path as a JSON Pointer."""
        return json_pointer(self.path)

    def rename(self, argument: str | Path) -> ArgumentError:
        """Return the same error for an argument that the caller knows under another name or path."""
        return ArgumentError(argument, self.value, self.expected, got=self.got, where=self.where, hint=self.hint)


def json_pointer(path: Path) -> str:
    """Return ``path`` as a JSON Pointer in a URI fragment (RFC 6901).

    Examples
    --------
    >>> json_pointer(("arms", "a/b", 0))
    '#/arms/a~1b/0'
    """
    keys = (str(key).replace("~", "~0").replace("/", "~1") for key in path)
    return "#" + "".join(f"/{quote(key, safe=_FRAGMENT)}" for key in keys)
