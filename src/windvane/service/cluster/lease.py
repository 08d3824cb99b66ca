"""What a node owns, and until when it may act on it."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping

from windvane.service.cluster.clocks import CLOCK


class Lease:
    """The shards that a node owns, with their epochs, and the time after which it must assume that it lost them.

    The keeper's thread changes it, any thread asks.
    """

    def __init__(self) -> None:
        self._epochs: dict[int, int] = {}  # replaced, never changed
        self._deadline = 0.0
        self._guard = threading.Lock()

    @property
    def epochs(self) -> Mapping[int, int]:
        """The epochs by shard, also after the deadline: they count again once the lease is renewed."""
        return self._epochs

    @property
    def deadline(self) -> float:
        """Until when the shards are owned for sure, on :func:`windvane.service.cluster.clocks.read_clock`."""
        return self._deadline

    def owns(self, shard: int) -> int | None:
        """Return the epoch of a shard, None if it is not owned or the deadline has passed."""
        # The order matters: with a deadline that is read before the epoch, an epoch that has since been lost is not
        # taken for owned because the node has joined again.
        deadline = self._deadline
        epoch = self._epochs.get(shard)
        return epoch if time.clock_gettime(CLOCK) < deadline else None

    def extend(self, deadline: float) -> None:
        """Set the deadline after a renewal."""
        self._deadline = deadline

    def add(self, epochs: Mapping[int, int]) -> None:
        """Own shards under these epochs."""
        with self._guard:
            self._epochs = {**self._epochs, **epochs}

    def drop(self, shards: Collection[int]) -> dict[int, int]:
        """Own these shards no longer; return the epochs of those that were owned."""
        with self._guard:
            dropped = {shard: self._epochs[shard] for shard in shards if shard in self._epochs}
            self._epochs = {shard: epoch for shard, epoch in self._epochs.items() if shard not in dropped}
            return dropped

    def clear(self) -> dict[int, int]:
        """Own nothing; return what was owned."""
        with self._guard:
            dropped, self._epochs = self._epochs, {}
            return dropped
