"""Two clocks of a node: one that measures how long a lease lasts, and the wall clock, compared with the database's."""

from __future__ import annotations

import time
from collections.abc import Callable

# This clock goes on while the machine is suspended, as the leases in the database do. The other is the next best.
CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
LIMIT_SECONDS = 2.0  # a wall clock that differs more from the database's is wrong
RIGHT_AGAIN = 1 / 2  # of the limit: so close must a wrong clock come, so that one at the limit does not flap


def read_clock() -> float:
    """Return the seconds since the machine was started."""
    return time.clock_gettime(CLOCK)


class WallClock:
    """A node's wall clock, and how much it differs from the database's.

    Parameters
    ----------
    read
        Returns the seconds since 1970.

    Attributes
    ----------
    skew : float or None
        Seconds by which it is ahead of the database's clock; None: not known yet.
    is_right : bool
        Whether it is close enough to the database's clock.
    """

    def __init__(self, read: Callable[[], float] = time.time) -> None:
        self.read = read
        self.skew: float | None = None
        self.is_right = True

    def compare(self, before: float, now: float) -> None:
        """Compare with the database's time ``now``. When it was asked for it, this clock was at ``before``."""
        after = self.read()
        # Half of the round trip is the estimate of how long the answer took, and the largest error of the comparison.
        self.skew, error = (before + after) / 2 - now, abs(after - before) / 2
        self.is_right = abs(self.skew) - error <= LIMIT_SECONDS * (1.0 if self.is_right else RIGHT_AGAIN)
