"""The progress of a run, in lane-rounds.

Workers on this machine count into a small shared file, one number per cell, which the main process reads a few times
a second. For workers on other machines, progress is known when a cell is finished.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Protocol

import numpy as np

READ_EVERY = 0.2  # seconds
WRITE_EVERY = 0.1  # seconds


class Progress(Protocol):
    """Something that shows progress."""

    def compile(self, done: int, total: int) -> None:
        """Show that the kernels of ``done`` of ``total`` policies are compiled, before the run begins."""

    def begin(self, total: int, done: int) -> None:
        """Start with ``total`` lane-rounds, ``done`` of them in earlier runs."""

    def show(self, done: int) -> None:
        """Show that ``done`` lane-rounds are finished."""

    def end(self) -> None:
        """Stop showing progress."""


class SilentProgress:
    """Show nothing."""

    def compile(self, done: int, total: int) -> None:
        """Do nothing."""

    def begin(self, total: int, done: int) -> None:
        """Do nothing."""

    def show(self, done: int) -> None:
        """Do nothing."""

    def end(self) -> None:
        """Do nothing."""


class ProgressReader:
    """A shared file with one counter per cell, and a thread that shows their sum."""

    def __init__(self, path: Path, cells: int, earlier: int, progress: Progress) -> None:
        self.path = path.resolve()
        self._counts = np.memmap(self.path, dtype=np.int64, mode="w+", shape=(cells,))
        self._earlier, self._progress = earlier, progress
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)

    def _read(self) -> None:
        while not self._stopped.wait(READ_EVERY):
            self._progress.show(self._earlier + int(self._counts.sum()))

    def finish(self, index: int, lane_rounds: int) -> None:
        """Count a finished cell in full."""
        self._counts[index] = lane_rounds
        self._progress.show(self._earlier + int(self._counts.sum()))

    def __enter__(self) -> ProgressReader:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        self._thread.join()
        del self._counts
        self.path.unlink(missing_ok=True)


class ProgressWriter:
    """The counter of one cell, for its worker: call it after each round."""

    def __init__(self, path: str | None, index: int, lanes: int) -> None:
        is_here = path is not None and os.path.exists(path)  # not on another machine
        self._counts = np.memmap(path, dtype=np.int64, mode="r+") if is_here and path else None
        self._index, self._lanes = index, lanes
        self._written = time.monotonic()

    def __call__(self, t: int) -> None:
        """Count the rounds up to ``t``, at most every :data:`WRITE_EVERY` seconds."""
        if self._counts is not None and (now := time.monotonic()) - self._written >= WRITE_EVERY:
            self._counts[self._index] = t * self._lanes
            self._written = now
