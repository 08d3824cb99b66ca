"""How fast decisions are made: what turns a number of decisions into a length of time that people know.

The time of every 16th decision is kept, of the last nine; of every 32nd, of the last nine; of every 64th, and so on. So
the time in which the last n decisions were made is known for every n, to about an eighth of n and interpolated in
between, from a few hundred numbers at most. Nights and weekends are in it as they were.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from windvane.arguments import check_number
from windvane.errors import ArgumentError

STEP = 16  # decisions between two times of the first level; on every further level, twice as many
KEPT = 9  # times of a level: eight steps
LEVELS = 50  # 2**54 decisions
RECENT = 1000  # decisions that the current pace is measured over


class Pace:
    """The times of past decisions, in seconds; see the module. ``count``: how many decisions there were."""

    def __init__(self) -> None:
        self.count, self.first, self.last = 0, 0.0, 0.0
        self.levels: list[deque[float]] = []

    def add(self, time: float) -> None:
        """Add a decision. It is called for every one, and written to be fast."""
        if self.count % STEP == 0:
            self._mark(time)
        self.count += 1
        self.last = time

    def _mark(self, time: float) -> None:
        step = self.count // STEP
        if step == 0:
            self.first = time
            return
        for level in range(LEVELS):
            if level == len(self.levels):
                self.levels.append(deque(maxlen=KEPT))
            self.levels[level].append(time)
            if step >> level & 1:
                return

    def _points(self) -> tuple[list[float], list[float]]:
        """Return the numbers of decisions, the first is 0, and their times, both increasing."""
        points = {0: self.first, self.count - 1: self.last}
        for level, times in enumerate(self.levels):
            width = STEP << level
            latest = (self.count - 1) // width
            points |= {width * (latest - back): time for back, time in enumerate(reversed(times))}
        numbers = sorted(points)
        return [float(number) for number in numbers], [points[number] for number in numbers]

    def seconds_of(self, decisions: float) -> float | None:
        """Return the time in which the last ``decisions`` were made; if there were fewer, by the mean pace of all.

        None if it is not known: before the second decision, or if they all have the same time.
        """
        elapsed, gaps = self.last - self.first, self.count - 1
        if gaps < 1 or elapsed <= 0.0:
            return None
        if decisions >= gaps:
            return elapsed * (decisions / gaps)
        seconds = self.last - float(np.interp(gaps - decisions, *self._points()))
        return seconds if seconds > 0.0 else None

    def decisions_in(self, seconds: float) -> float | None:
        """Return how many decisions were made in the last ``seconds``; by the mean pace if there were none before."""
        elapsed, gaps = self.last - self.first, self.count - 1
        if gaps < 1 or elapsed <= 0.0:
            return None
        if seconds >= elapsed:
            return gaps * (seconds / elapsed)
        numbers, times = self._points()
        return gaps - float(np.interp(self.last - seconds, times, numbers))

    @property
    def per_second(self) -> float | None:
        """Decisions per second over the last :data:`RECENT` decisions; None if it is not known."""
        decisions = float(min(self.count - 1, RECENT))
        seconds = self.seconds_of(decisions)
        return None if seconds is None else decisions / seconds

    # --- saving ----------------------------------------------------------------------------------------------------

    def to_plain(self) -> list[Any]:
        """Return a copy of the state, such as JSON holds."""
        return [self.first, self.last, [list(times) for times in self.levels]]

    def restore(self, count: int, plain: Sequence[Any]) -> None:
        """Take over a state that :meth:`to_plain` returned after ``count`` decisions."""
        first, last, levels = plain
        self.count, self.first, self.last = count, _check_time(first), _check_time(last)
        steps = max(self.count - 1, 0) // STEP
        if [len(times) for times in levels] != [min(steps >> i, KEPT) for i in range(steps.bit_length())]:
            raise ArgumentError("pace", levels, f"the times of {self.count} decisions")
        self.levels = [deque(map(_check_time, times), maxlen=KEPT) for times in levels]
        if self.count and (np.diff([self.first, *self._points()[1]]) < 0.0).any():
            raise ArgumentError("pace", levels, "times that never go back")


def _check_time(value: Any) -> float:
    return check_number("pace", value, "of seconds", math.isfinite, booleans=False)
