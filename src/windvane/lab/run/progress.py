"""How far a run is: lane-rounds done, the rate, and the time left.

Workers on this machine count into a small shared file, one number per cell; the process that watches reads it a few
times a second. On a cluster elsewhere the bar moves when a cell is done.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Protocol

import numpy as np

WATCH_EVERY = 0.2  # seconds
TELL_EVERY = 0.1  # seconds between a worker's notes


class Progress(Protocol):
    """Where progress is shown."""

    def begin(self, total: int, done: int) -> None:
        """``total`` lane-rounds in all, ``done`` of them in earlier runs."""

    def show(self, done: int) -> None: ...

    def end(self) -> None: ...


class Silent:
    """Shows nothing."""

    def begin(self, total: int, done: int) -> None: ...

    def show(self, done: int) -> None: ...

    def end(self) -> None: ...


class Counters:
    """A shared file with one counter per cell, and a thread that shows their sum."""

    def __init__(self, path: Path, cells: int, earlier: int, progress: Progress) -> None:
        self.path = path.resolve()
        self._counts = np.memmap(self.path, dtype=np.int64, mode="w+", shape=(cells,))
        self._earlier, self._progress = earlier, progress
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        while not self._over.wait(WATCH_EVERY):
            self._progress.show(self._earlier + int(self._counts.sum()))

    def finish(self, index: int, lane_rounds: int) -> None:
        """The cell is done: whatever its worker told, it counts in full."""
        self._counts[index] = lane_rounds
        self._progress.show(self._earlier + int(self._counts.sum()))

    def __enter__(self) -> Counters:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        del self._counts
        self.path.unlink(missing_ok=True)


class Teller:
    """A worker's side: ``teller(t)`` after each round, noted a few times a second."""

    def __init__(self, path: str | None, index: int, lanes: int) -> None:
        exists = path is not None and os.path.exists(path)  # not on another machine
        self._counts = np.memmap(path, dtype=np.int64, mode="r+") if exists and path else None
        self._index, self._lanes = index, lanes
        self._told = time.monotonic()

    def __call__(self, t: int) -> None:
        if self._counts is None:
            return
        now = time.monotonic()
        if now - self._told >= TELL_EVERY:
            self._counts[self._index] = t * self._lanes
            self._told = now
