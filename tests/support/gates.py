"""A function that waits until a test lets it go on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


class Gate:
    """Stands before a function: those who call it wait until it is opened. ``count`` calls have come."""

    def __init__(self, function: Callable[..., Any], is_guarded: Callable[..., bool] = lambda *_: True) -> None:
        self._function, self._is_guarded, self._opened = function, is_guarded, threading.Event()
        self.count = 0

    def __call__(self, *arguments: Any, **more: Any) -> Any:
        if self._is_guarded(*arguments):
            self.count += 1
            self._opened.wait(30)
        return self._function(*arguments, **more)

    def open(self) -> None:
        self._opened.set()
