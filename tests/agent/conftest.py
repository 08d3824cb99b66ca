"""What fixtures the tests of the agent share."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from windvane.policies.inputs import Feedback
from windvane.policies.optimism import EstimatingPolicy


@pytest.fixture
def interrupt_learning(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """``with interrupt_learning(20):`` expects KeyboardInterrupt, raised once an estimator learned 20 outcomes."""
    learn = EstimatingPolicy.learn

    @contextlib.contextmanager
    def interrupt(after: int = 1) -> Iterator[None]:
        calls = itertools.count(1)

        def learn_and_interrupt(self: EstimatingPolicy, feedback: Feedback) -> None:
            learn(self, feedback)
            if next(calls) == after:
                raise KeyboardInterrupt

        monkeypatch.setattr(EstimatingPolicy, "learn", learn_and_interrupt)
        with pytest.raises(KeyboardInterrupt):
            yield
        monkeypatch.setattr(EstimatingPolicy, "learn", learn)

    return interrupt
