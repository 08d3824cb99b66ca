"""What fixtures the tests of the agent share."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from windvane import Policy


@pytest.fixture
def interrupt_learning(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """``with interrupt_learning(20):`` expects KeyboardInterrupt, which is raised once 20 outcomes were learned."""
    update = Policy.update

    @contextlib.contextmanager
    def interrupt(after: int = 1) -> Iterator[None]:
        calls = itertools.count(1)

        def learn(self: Policy, *arguments: Any, **more: Any) -> None:
            update(self, *arguments, **more)
            if next(calls) == after:
                raise KeyboardInterrupt

        monkeypatch.setattr(Policy, "update", learn)
        with pytest.raises(KeyboardInterrupt):
            yield
        monkeypatch.setattr(Policy, "update", update)

    return interrupt
