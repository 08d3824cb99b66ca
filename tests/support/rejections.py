"""Assert that a call is rejected, by the attributes of the error. The texts are tested in ``test_errors.py``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from windvane.errors import ArgumentError, WindvaneError

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
