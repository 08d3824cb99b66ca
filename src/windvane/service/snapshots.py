"""When a snapshot of a stream is due, and how it is made without delaying requests.

A restart replays the events after the last snapshot. A snapshot is due after many events, or after operations that took
long in total: bulk history, large dimensions and many timeouts cause few events but long replays.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from windvane.service.store import Snapshot
from windvane.service.streams import Stream
from windvane.service.turns import LARGE_DIM, hold, wait_while_held

SNAPSHOT_EVENTS = 2000
SNAPSHOT_SECONDS = 1.0  # of operations
SNAPSHOT_SHARE = 0.2  # largest share of time for the snapshots of a stream: large snapshots are rarer
SNAPSHOT_PAUSE = 1.0
"""Seconds at least between two snapshots of a stream: each delays other requests by some milliseconds, which more than
1 % of the requests of a busy stream would notice. A replay takes at most about as much longer."""
LARGE_COUNT = 20_000  # open decisions whose copy takes less than 10 ms
START_SHARE = 0.1
"""If a replay took this share of the limits at a start, or would take it for a stream that nobody uses at the moment, a
snapshot is made at once."""

log = logging.getLogger("windvane.service")


@dataclass
class _Progress:
    """The event of the last snapshot of a stream, the seconds that operations took since, and when to make the next."""

    number: int
    seconds: float
    earliest: float = 0.0
    is_packing: bool = False
    looked: int = -1  # the last event of the stream at the last look


class Snapshots:
    """The snapshots of all streams. ``save`` is called with a stream and its snapshot when that is ready."""

    def __init__(self, save: Callable[[Stream, Snapshot], None]) -> None:
        self._save = save
        self._progress: dict[int, _Progress] = {}

    def begin(self, stream: Stream, number: int, seconds: float = 0.0) -> None:
        """Record that a stream has a snapshot of event ``number``, and that replaying the rest took ``seconds``. Those
        that are under way are not saved."""
        self._progress[stream.id] = _Progress(number, seconds)

    def add_work(self, stream: Stream, seconds: float) -> None:
        if (progress := self._progress.get(stream.id)) is not None:  # else all streams were rebuilt meanwhile
            progress.seconds += seconds

    def is_changed(self, stream: Stream) -> bool:
        """Return whether the stream has events after its last snapshot, and none is being made."""
        progress = self._progress[stream.id]
        return stream.number != progress.number and not progress.is_packing

    def is_due(self, stream: Stream, share: float = 1.0) -> bool:
        progress = self._progress[stream.id]
        events = stream.number - progress.number
        if progress.is_packing or not events or time.monotonic() < progress.earliest:
            return False
        return events >= share * SNAPSHOT_EVENTS or progress.seconds >= share * SNAPSHOT_SECONDS

    def is_due_at_rest(self, stream: Stream) -> bool:
        """Return whether the stream has no new events since the last call, and should use the time for a snapshot."""
        progress = self._progress[stream.id]
        is_at_rest, progress.looked = progress.looked == stream.number, stream.number
        return is_at_rest and self.is_due(stream, START_SHARE)

    def take(self, stream: Stream) -> Coroutine[Any, Any, None]:
        """Begin a snapshot, and return a coroutine that packs a copy of the stream in a thread and saves it. A small
        stream is copied now; a large one is held and copied in the thread."""
        progress, began = self._progress[stream.id], time.monotonic()
        progress.is_packing = True
        is_large = stream.core.policy.dim > LARGE_DIM or len(stream.core.decisions) > LARGE_COUNT
        now = None if is_large else self._copy(stream)

        async def copy() -> Callable[[], Snapshot]:
            await wait_while_held(stream)
            with hold(stream):
                return await asyncio.to_thread(self._copy, stream)

        async def save() -> None:
            try:
                snapshot = await asyncio.to_thread(now or await copy())
                if self._progress[stream.id] is progress:  # else it may hold what was erased meanwhile
                    self._save(stream, snapshot)
            except Exception:  # the events are enough to rebuild the stream
                log.exception("no snapshot of stream %r could be made", stream.name)
            finally:
                progress.is_packing = False
                seconds = time.monotonic() - began
                progress.earliest = time.monotonic() + max(seconds / SNAPSHOT_SHARE, SNAPSHOT_PAUSE)

        return save()

    def _copy(self, stream: Stream) -> Callable[[], Snapshot]:
        progress = self._progress[stream.id]
        progress.number, progress.seconds = stream.number, 0.0
        return stream.copy()
