"""The horizontal axis of figures over the time of a log: days, hours or minutes since its first row, or rows."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array
from windvane.lab.figures.description import Axis

UNITS = (
    (2 * 86_400.0, 86_400.0, "Days"),
    (2 * 3600.0, 3600.0, "Hours"),
    (120.0, 60.0, "Minutes"),
    (0.0, 1.0, "Seconds"),
)


class TimeAxis:
    """Convert times to positions on an axis.

    Parameters
    ----------
    start, end
        The first and the last time: seconds, or row numbers.
    has_times
        Whether they are seconds.

    Examples
    --------
    >>> axis = TimeAxis(1000.0, 1000.0 + 7200.0, has_times=True)
    >>> axis.label, axis.place([1000.0 + 3600.0]).tolist()
    ('Hours since the first decision', [1.0])
    """

    def __init__(self, start: float, end: float, *, has_times: bool) -> None:
        self._start, self._unit, self.label = 0.0, 1.0, "Row of the log"
        if has_times:
            _, self._unit, name = next(unit for unit in UNITS if end - start >= unit[0])
            self._start, self.label = start, f"{name} since the first decision"
        self.end = self.place([end])[0]

    def place(self, times: npt.ArrayLike) -> Array:
        """Return the positions of these times."""
        return np.asarray((np.asarray(times, dtype=float) - self._start) / self._unit)

    def describe(self) -> Axis:
        """Return the axis."""
        first = float(self.place([self._start])[0]) if self._start else 0.0
        return Axis(
            self.label, low=first, high=float(self.end), value=self.label.partition(" ")[0].lower(), form=",.4g"
        )
