"""How tests state that an argument is refused: by its name, never by the sentence of the message."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from support import access
from support.worlds import same_state

ANY = object()


@contextmanager
def refuses(*arguments: str, value: Any = ANY, where: str = "") -> Iterator[Any]:
    """Expect a ``ValueError`` of one line about one of ``arguments``; yield pytest's ``ExceptionInfo``.

    An ``ArgumentError`` must say so in its attribute ``argument``: the name, or an entry of it such as ``state['t']``.
    The text of any other ``ValueError`` must contain the name as a word. ``value`` is what the error must report,
    ``where`` the place in the argument.
    """
    with pytest.raises(ValueError) as caught:
        yield caught
    error, word = caught.value, rf"(?<!\w)(?:{'|'.join(map(re.escape, arguments))})(?!\w)"
    named = getattr(error, "argument", None)
    if named is None:
        assert re.search(word, str(error)), f"{arguments} not named: {error}"
    else:
        assert re.match(word, named), f"{named!r} is named, not {arguments}: {error}"
    assert value is ANY or repr(value) in (str(error) if named is None else repr(error.value))
    assert where in (getattr(error, "where", "") or str(error))
    assert "\n" not in str(error), "the message must be one line"


def refuses_unchanged(component: Any, argument: str, call: Callable[[], Any]) -> None:
    """Expect ``call`` to be refused because of ``argument`` and to leave the state of ``component`` as it was."""
    before = access.save(component)
    with refuses(argument):
        call()
    assert same_state(access.save(component), before)
