"""How tests state that a call is refused: by attributes of the error. The texts are tested in ``test_errors.py``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from support import access
from support.worlds import same_state
from windvane.errors import ArgumentError, WindvaneError

ANY = object()
LONGEST_MESSAGE = 600


@contextmanager
def rejects(
    argument: str | None = None, *, error: type[WindvaneError] = ArgumentError, **attributes: Any
) -> Iterator[pytest.ExceptionInfo[Any]]:
    """Expect an ``error`` in one line with these ``attributes``; ``argument`` is the one that it names.

    ``rejects("arms")`` also accepts a part of the argument, such as ``arms['red']``; ``rejects("arms['red']")`` asks
    for that part and no other.
    """
    with pytest.raises(error) as caught:
        yield caught
    message = str(caught.value)
    assert message
    assert "\n" not in message
    assert len(message) < LONGEST_MESSAGE
    if argument is not None:
        named = caught.value.argument
        assert named == argument or ("[" not in argument and named.startswith(f"{argument}[")), message
    for name, value in attributes.items():
        assert getattr(caught.value, name) == value, message


@contextmanager
def refuses(*arguments: str, value: Any = ANY, where: str = "") -> Iterator[Any]:
    """Expect an ``ArgumentError`` about one of ``arguments``, or an entry of it such as ``state['t']``.

    ``value`` is what the error must report, ``where`` the place in the argument.
    """
    with rejects() as caught:
        yield caught
    error, word = caught.value, rf"(?<!\w)(?:{'|'.join(map(re.escape, arguments))})(?!\w)"
    assert re.match(word, error.argument), f"{error.argument!r} is named, not {arguments}: {error}"
    assert value is ANY or repr(value) in repr(error.value)
    assert where in (error.where or str(error))


def refuses_unchanged(component: Any, argument: str, call: Callable[[], Any]) -> None:
    """Expect ``call`` to be refused because of ``argument`` and to leave the state of ``component`` as it was."""
    before = access.save(component)
    with refuses(argument):
        call()
    assert same_state(access.save(component), before)
