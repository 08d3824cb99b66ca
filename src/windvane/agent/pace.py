"""The rate of decisions: converts a number of decisions into a length of time.

The first level keeps the times of every 16th decision, nine of them; the next levels keep those of every 32nd, every
64th, and so on. The time that the last n decisions took is therefore known for every n, to about an eighth of n with
interpolation in between, from a few hundred numbers at most. It includes nights and weekends.
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
    """The times of past decisions, in seconds; see the module. ``steps``: how many there were since the first mark."""

    def __init__(self) -> None:
        self.steps, self.first = -1, 0.0
        self.levels: list[deque[float]] = []

    def mark(self, time: float) -> None:
        """Record the time of a decision. Call it for the first decision and every :data:`STEP` decisions later."""
        self.steps += 1
        if self.steps == 0:
            self.first = time
            return
        for level in range(LEVELS):
            if level == len(self.levels):
                self.levels.append(deque(maxlen=KEPT))
            self.levels[level].append(time)
            if self.steps >> level & 1:
                return

    def _points(self) -> tuple[list[float], list[float]]:
        """Return the numbers of decisions, the first is 0, and their times, both increasing."""
        points = {0: self.first}
        for level, times in enumerate(self.levels):
            latest = self.steps >> level
            points |= {(latest - back) << level: time for back, time in enumerate(reversed(times))}
        steps = sorted(points)
        return [float(STEP * step) for step in steps], [points[step] for step in steps]

    @property
    def _span(self) -> tuple[int, float]:
        """The decisions between the first mark and the last, and the time."""
        return STEP * max(self.steps, 0), self.levels[0][-1] - self.first if self.levels else 0.0

    def seconds_of(self, decisions: float) -> float | None:
        """Return how long the last ``decisions`` took; if there were fewer, extrapolate with the mean pace of all.

        None if it is not known: during the first decisions, or if they all have the same time.
        """
        gaps, elapsed = self._span
        if elapsed <= 0.0:
            return None
        if decisions >= gaps:
            return elapsed * (decisions / gaps)
        numbers, times = self._points()
        seconds = times[-1] - float(np.interp(gaps - decisions, numbers, times))
        return seconds if seconds > 0.0 else None

    def decisions_in(self, seconds: float) -> float | None:
        """Return how many decisions were made in the last ``seconds``; before the first, use the mean pace."""
        gaps, elapsed = self._span
        if elapsed <= 0.0:
            return None
        if seconds >= elapsed:
            return gaps * (seconds / elapsed)
        numbers, times = self._points()
        return gaps - float(np.interp(times[-1] - seconds, times, numbers))

    @property
    def per_second(self) -> float | None:
        """Decisions per second over the last :data:`RECENT` decisions; None if it is not known."""
        decisions = float(min(self._span[0], RECENT))
        seconds = self.seconds_of(decisions)
        return None if seconds is None else decisions / seconds

    # --- saving ----------------------------------------------------------------------------------------------------

    def to_plain(self) -> list[Any]:
        """Return a copy of the state as JSON-compatible data."""
        return [self.first, [list(times) for times in self.levels]]

    def restore(self, decisions: int, plain: Sequence[Any]) -> None:
        """Take over a state that :meth:`to_plain` returned after so many ``decisions``."""
        first, levels = plain
        self.steps, self.first = (decisions - 1) // STEP, _check_time(first)
        steps = max(self.steps, 0)
        if [len(times) for times in levels] != [min(steps >> i, KEPT) for i in range(steps.bit_length())]:
            raise ArgumentError("pace", levels, f"the times of {decisions} decisions")
        self.levels = [deque(map(_check_time, times), maxlen=KEPT) for times in levels]
        if (np.diff(self._points()[1]) < 0.0).any():
            raise ArgumentError("pace", levels, "times that never go back")


def _check_time(value: Any) -> float:
    return check_number("pace", value, "of seconds", math.isfinite, booleans=False)
