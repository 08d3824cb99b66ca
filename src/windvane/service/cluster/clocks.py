"""The two clocks of a node: the monotonic clock that times leases, and the wall clock, compared with the database's."""

from __future__ import annotations

import time
from collections.abc import Callable

# CLOCK_BOOTTIME keeps counting while the machine is suspended, as leases in the database do. CLOCK_MONOTONIC is the
# fallback where it does not exist.
CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
LIMIT_SECONDS = 2.0  # a wall clock that differs from the database's by more than this is wrong
RIGHT_AGAIN = 1 / 2  # as a share of the limit: a wrong clock must come this close, so that its state does not flap


def read_clock() -> float:
    """Return the number of seconds since the machine was started."""
    return time.clock_gettime(CLOCK)


class WallClock:
    """A node's wall clock, and how much it differs from the database's.

    Parameters
    ----------
    read
        Returns the Unix time in seconds.

    Attributes
    ----------
    skew : float or None
        How many seconds it is ahead of the database's clock. None if it is not known yet.
    is_right : bool
        Whether it is close enough to the database's clock.
    """

    def __init__(self, read: Callable[[], float] = time.time) -> None:
        self.read = read
        self.skew: float | None = None
        self.is_right = True

    def compare(self, before: float, now: float) -> None:
        """Compare this clock with ``now``, the database's time. ``before``: this clock when the database was asked."""
        after = self.read()
        # The answer is assumed to have taken half of the round trip. The error is at most that half.
        self.skew, error = (before + after) / 2 - now, abs(after - before) / 2
        self.is_right = abs(self.skew) - error <= LIMIT_SECONDS * (1.0 if self.is_right else RIGHT_AGAIN)
