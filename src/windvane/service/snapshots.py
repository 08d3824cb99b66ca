"""When a stream's snapshot is due, and how it comes into the store without holding anybody up.

A restart replays what came after the last snapshot. One is due after so many events, or after operations that took so
long together: bulk history, large dimensions and many ends of waits make few events, and long replays.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from windvane.service.store import Snapshot
from windvane.service.streams import Stream

SNAPSHOT_EVENTS = 2000
SNAPSHOT_SECONDS = 1.0  # of operations
SNAPSHOT_SHARE = 0.2
"""Of the time that may go into a stream's snapshots: where they are large, they are rarer."""
ON_START = 0.1  # a start whose replay took this share of what is allowed does not leave it to the next

log = logging.getLogger("windvane.service")


class _Since:
    """What has happened since the last snapshot."""

    def __init__(self, number: int, seconds: float = 0.0) -> None:
        self.number, self.seconds = number, seconds
        self.next = 0.0  # not before this moment
        self.packing = False


class Snapshots:
    """Of all streams. ``store`` takes one that is ready, and the stream it was made of."""

    def __init__(self, store: Callable[[Stream, Snapshot], None]) -> None:
        self._store = store
        self._since: dict[int, _Since] = {}

    def begin(self, stream: Stream, number: int, seconds: float) -> None:
        """The stored snapshot goes up to event ``number``; what came after it took ``seconds`` to replay."""
        self._since[stream.id] = _Since(number, seconds)

    def worked(self, stream: Stream, seconds: float) -> None:
        self._since[stream.id].seconds += seconds

    def due(self, stream: Stream, share: float = 1.0) -> bool:
        since = self._since[stream.id]
        if since.packing or stream.number == since.number or time.monotonic() < since.next:
            return False
        many = stream.number - since.number >= share * SNAPSHOT_EVENTS
        return many or since.seconds >= share * SNAPSHOT_SECONDS

    def take(self, stream: Stream) -> Coroutine[Any, Any, None]:
        """The stream is copied now; what is returned does the rest, which may take a while, in a thread."""
        since, began = self._since[stream.id], time.monotonic()
        since.packing = True
        try:
            pack = stream.copied()
        except Exception as error:  # the events are what counts
            pack = partial(_raise, error)
        since.number, since.seconds = stream.number, 0.0
        return self._packed(stream, pack, since, began)

    async def _packed(self, stream: Stream, pack: Callable[[], Snapshot], since: _Since, began: float) -> None:
        try:
            snapshot = await asyncio.to_thread(pack)
        except Exception:
            log.exception("no snapshot of stream %r could be made", stream.name)
        else:
            self._store(stream, snapshot)
        finally:
            since.packing = False
            since.next = time.monotonic() + (time.monotonic() - began) / SNAPSHOT_SHARE


def _raise(error: Exception) -> Snapshot:
    raise error
