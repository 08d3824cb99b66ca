"""The engine: all streams in memory, the store behind them, and what keeps the two the same.

An operation changes its stream, hands its events to the committer, and waits for them to be on disk before it answers.
Streams are only touched in the thread of the event loop, so operations never overlap. If a commit fails, memory is
ahead of the disk: then nothing is answered any more until all streams have been rebuilt from what is on disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import Callable
from typing import Any

from windvane.service.committer import Committer, Promise
from windvane.service.errors import ServiceError, invalid, unavailable, unknown_stream
from windvane.service.events import Event
from windvane.service.schemas import NewStream
from windvane.service.store import Store, StreamRow
from windvane.service.streams import Stream

SNAPSHOT_EVENTS = 2000
"""A snapshot is due after so many events: what a restart has to replay at most, plus what came during the last one."""
SNAPSHOT_SHARE = 0.05
"""Of the time that may go into snapshots: where they are large, they are rarer."""
TICK = 1.0  # seconds between looks at what has waited too long
RETRY = 1.0  # seconds between attempts to come back after a failed commit

log = logging.getLogger("windvane.service")


class Engine:
    """See the module. ``committed`` is told the number of events of every commit."""

    def __init__(self, store: Store, committed: Callable[[int], None] = lambda _: None) -> None:
        self.store, self._told = store, committed
        self.streams: dict[str, Stream] = {}
        self.failure: str | None = "starting"
        self._committer: Committer | None = None
        self._snapshot_due: dict[int, tuple[int, float]] = {}  # by stream: event number, time
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Rebuild all streams; from then on requests are answered."""
        self._rebuild()
        self._background(self._look_at_waits())

    def _rebuild(self) -> None:
        self.streams = {row.name: rebuilt(row, self.store) for row in self.store.streams()}
        self._snapshot_due = {stream.id: (stream.number, time.monotonic()) for stream in self.streams.values()}
        self._committer = Committer(self.store, self._told, self._failed)
        self.failure = None

    async def stop(self) -> None:
        """Write what is under way and a snapshot of every stream; the next start has nothing to replay."""
        for task in self._tasks:
            task.cancel()
        if self._committer is not None and self.failure is None:
            self.failure = "stopping"
            for stream in self.streams.values():
                self._committer.add(snapshot=(stream.id, stream.snapshot()))
            await asyncio.to_thread(self._committer.close)

    # --- streams ---------------------------------------------------------------------------------------------------

    def stream(self, name: str) -> Stream:
        self._refuse_if_broken()
        found = self.streams.get(name)
        if found is None:
            raise unknown_stream(name)
        return found

    def create(self, new: NewStream) -> Stream:
        self._refuse_if_broken()
        config = json.dumps({"title": new.title, "agent": new.agent()})
        try:
            Stream(StreamRow(0, new.name, 0.0, config), self.store)  # what is wrong is told before anything is stored
        except (ValueError, TypeError) as error:
            raise invalid(ValueError(str(error))) from None
        if new.name in self.streams:
            raise ServiceError(409, "exists", f"stream {new.name!r}: there is one of this name", "name")
        row = self.store.add_stream(new.name, time.time(), config)
        if row is None:
            raise ServiceError(409, "exists", f"stream {new.name!r}: there is one of this name", "name")
        stream = self.streams[new.name] = Stream(row, self.store)
        self._snapshot_due[stream.id] = (0, time.monotonic())
        return stream

    def hand_over(self, stream: Stream, events: list[Event]) -> Promise:
        """To be called at once after what made the events: their numbers are the order they must be stored in."""
        assert self._committer is not None  # the stream was given out, so it runs
        return self._committer.add(events, self._due_snapshot(stream))

    async def commit(self, stream: Stream, events: list[Event]) -> None:
        """Hand ``events`` over, and wait until they and all before them are on disk."""
        promise = self.hand_over(stream, events)
        try:
            await asyncio.shield(promise)
        except asyncio.CancelledError:
            raise
        except Exception:
            raise unavailable("the store cannot be written to; nothing of this request was kept") from None

    def _due_snapshot(self, stream: Stream) -> Any:
        number, moment = self._snapshot_due[stream.id]
        if stream.number - number < SNAPSHOT_EVENTS or time.monotonic() < moment:
            return None
        began = time.monotonic()
        snapshot = stream.snapshot()
        spent = time.monotonic() - began
        self._snapshot_due[stream.id] = (stream.number, began + spent / SNAPSHOT_SHARE)
        return stream.id, snapshot

    # --- in the background -----------------------------------------------------------------------------------------

    def _background(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _look_at_waits(self) -> None:
        while True:
            await asyncio.sleep(TICK)
            if self.failure is None:
                for stream in list(self.streams.values()):
                    if events := stream.expire(time.time()):
                        with contextlib.suppress(ServiceError):
                            await self.commit(stream, events)

    def _refuse_if_broken(self) -> None:
        if self.failure is not None:
            raise unavailable(f"not ready: {self.failure}")

    def _failed(self, error: Exception) -> None:
        log.error("a commit failed: %s; streams are rebuilt from what is on disk", error)
        self.failure = f"the store cannot be written to ({error})"
        self._background(self._come_back())

    async def _come_back(self) -> None:
        while self.failure is not None:
            await asyncio.sleep(RETRY)
            try:
                self.store.probe()
                self._rebuild()
                log.warning("the store can be written to again")
            except Exception as error:  # whatever it is, the service must not stay up with a wrong state
                log.error("still not: %s", error)


def rebuilt(row: StreamRow, store: Store, *, from_start: bool = False) -> Stream:
    """A stream as its events made it: from its last snapshot, or ``from_start``."""
    stream = Stream(row, store)
    snapshot = None if from_start else store.snapshot(row.id)
    if snapshot is not None:
        stream.restore(snapshot)
    for event in store.events(row.id, after=stream.number):
        stream.apply(event)
    return stream
