"""Sort rows by time, with a buffer of bounded size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from windvane.arguments import Array, Index
from windvane.logs.raw import RawRows, concatenate

BUFFER = 1 << 16  # rows: rows that are out of place by fewer can be sorted


class OrderCheck:
    """Find out in one pass whether rows are in time order, or can be sorted by :func:`sort_rows`.

    Attributes
    ----------
    unsorted : int
        The number of rows that are earlier than a row before them.
    first_unsorted : tuple of int and float, or None
        The place and the time of the first of them.
    is_sortable : bool
        Whether every row is out of place by few enough rows.
    """

    def __init__(self) -> None:
        self.unsorted = 0
        self.first_unsorted: tuple[int, float] | None = None
        self.is_sortable = True
        self._latest = self._emitted = -np.inf
        self._waiting = np.empty(0)

    def add(self, times: Array, places: Index) -> None:
        """Add the times of the next rows."""
        if not len(times):
            return
        before = np.maximum.accumulate(np.concatenate(([self._latest], times)))
        is_early = times < before[:-1]
        if is_early.any():
            self.unsorted += int(is_early.sum())
            if self.first_unsorted is None:
                first = int(is_early.argmax())
                self.first_unsorted = int(places[first]), float(times[first])
        self._latest = float(before[-1])
        self.is_sortable = self.is_sortable and float(times.min()) >= self._emitted
        self._waiting = np.sort(np.concatenate((self._waiting, times)))
        while len(self._waiting) >= 2 * BUFFER:
            self._emitted = float(self._waiting[BUFFER - 1])
            self._waiting = self._waiting[BUFFER:]


def sort_rows(parts: Iterable[RawRows]) -> Iterator[RawRows]:
    """Yield rows in time order; rows with the same time stay in the order of the file.

    At most two buffers and a part are kept in memory.
    """
    waiting: list[RawRows] = []
    for part in parts:
        waiting.append(part)
        if sum(map(len, waiting)) >= 2 * BUFFER:
            rows = _sort(waiting)
            while len(rows) >= 2 * BUFFER:
                yield rows.select(slice(0, BUFFER))
                rows = rows.select(slice(BUFFER, None))
            waiting = [rows]
    if waiting:
        yield _sort(waiting)


def _sort(parts: list[RawRows]) -> RawRows:
    rows = concatenate(parts)
    return rows.select(np.argsort(rows.time, kind="stable"))
