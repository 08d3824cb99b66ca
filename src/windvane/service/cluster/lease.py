"""The shards that a node owns, and the deadline until which it may rely on owning them."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping

from windvane.service.cluster.clocks import CLOCK


class Lease:
    """The shards that a node owns, with their epochs, and the deadline after which it must assume that it lost them.

    Only the keeper's thread changes it; any thread may read it.
    """

    def __init__(self) -> None:
        self._epochs: dict[int, int] = {}  # replaced as a whole, never mutated
        self._deadline = 0.0
        self._guard = threading.Lock()

    @property
    def epochs(self) -> Mapping[int, int]:
        """The epochs by shard, even after the deadline: they are valid again once the lease is renewed."""
        return self._epochs

    @property
    def deadline(self) -> float:
        """Until when the node certainly owns the shards, on :func:`windvane.service.cluster.clocks.read_clock`."""
        return self._deadline

    def owns(self, shard: int) -> int | None:
        """Return the epoch of a shard, None if it is not owned or the deadline has passed."""
        # The deadline must be read before the epoch. Otherwise, if the node lost the shard and joined again in between,
        # the new deadline would make the old epoch look valid.
        deadline = self._deadline
        epoch = self._epochs.get(shard)
        return epoch if time.clock_gettime(CLOCK) < deadline else None

    def extend(self, deadline: float) -> None:
        """Set the deadline after a renewal."""
        self._deadline = deadline

    def add(self, epochs: Mapping[int, int]) -> None:
        """Add shards that the node owns under these epochs."""
        with self._guard:
            self._epochs = {**self._epochs, **epochs}

    def drop(self, shards: Collection[int]) -> dict[int, int]:
        """Stop owning these shards. Return the epochs of those that were owned."""
        with self._guard:
            dropped = {shard: self._epochs[shard] for shard in shards if shard in self._epochs}
            self._epochs = {shard: epoch for shard, epoch in self._epochs.items() if shard not in dropped}
            return dropped

    def clear(self) -> dict[int, int]:
        """Stop owning all shards. Return their epochs."""
        with self._guard:
            dropped, self._epochs = self._epochs, {}
            return dropped
