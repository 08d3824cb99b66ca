"""How long a service that has just rebuilt its streams waits before it rebuilds them again."""

from __future__ import annotations

import asyncio
import time

SHORTEST_SECONDS = 0.25  # recoveries one after the other would do nothing else, and fill the log
LONGEST_SECONDS = 5.0  # also how much later a store that was repaired is noticed


class RecoveryPauses:
    """Pauses from a recovery to the next, which double as long as no events are stored between recoveries.

    A database may accept the probe of a recovery and refuse every commit, for example because of missing privileges.

    Attributes
    ----------
    seconds : float
        The pause after the last recovery.
    """

    def __init__(self) -> None:
        self.seconds, self._end, self._has_stored = 0.0, 0.0, True

    def note_events(self) -> None:
        """Record that events were stored."""
        self._has_stored = True

    def begin(self) -> None:
        """Begin the pause after a recovery."""
        self.seconds = SHORTEST_SECONDS if self._has_stored else min(2 * self.seconds, LONGEST_SECONDS)
        self._end, self._has_stored = time.monotonic() + self.seconds, False

    async def wait(self) -> None:
        """Wait for the end of the pause."""
        await asyncio.sleep(self._end - time.monotonic())
