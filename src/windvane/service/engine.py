"""The engine: all streams in memory, the store behind them, and what keeps the two the same.

An operation changes its stream, hands its events to the committer, and waits for them to be on disk before it answers.
Streams are only touched in the thread of the event loop, so operations never overlap. If a commit fails, or an
operation breaks off, memory is ahead of the disk: then nothing is answered any more until all streams have been rebuilt
from what is on disk. Who still has a stream from before is told so, and gets nothing stored.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import sqlite3
import time
from collections.abc import Callable, Iterator
from typing import Any

from windvane.agent import Features
from windvane.service.committer import Committer, Promise
from windvane.service.errors import ServiceError, internal, invalid, unavailable, unknown_stream
from windvane.service.events import Event
from windvane.service.schemas import MOST_DIM, NewStream
from windvane.service.store import Snapshot, Store, StreamRow
from windvane.service.streams import Done, ReplayError, Stream

SNAPSHOT_EVENTS = 2000
"""A snapshot is due after so many events: what a restart has to replay at most, plus what came during the last one."""
SNAPSHOT_SHARE = 0.05
"""Of the time that may go into snapshots: where they are large, they are rarer."""
TICK = 1.0  # seconds between looks at what has waited too long
RETRY = 1.0  # seconds between attempts to come back after a failed commit

_LOST = "the store could not be written to; repeat the request, and keys tell what of it was kept after all"

log = logging.getLogger("windvane.service")


class Engine:
    """See the module. ``committed`` is told the number of events of every commit. Made with all streams rebuilt, or not
    at all: then the error says what is wrong with the log."""

    def __init__(self, store: Store, committed: Callable[[int], None] = lambda _: None) -> None:
        self.store, self._told = store, committed
        self.streams: dict[str, Stream] = {}
        self.failure: str | None = "starting"
        self._committer: Committer | None = None
        self._snapshot_due: dict[int, tuple[int, float]] = {}  # by stream: event number, time
        self._tasks: set[asyncio.Task[None]] = set()
        self._load()

    def _load(self) -> None:
        """All streams, as the disk has them."""
        self.streams = {row.name: rebuilt(row, self.store) for row in self.store.streams()}
        stored = {stream.id: self.store.snapshot_number(stream.id) for stream in self.streams.values()}
        self._snapshot_due = {stream: (number, time.monotonic()) for stream, number in stored.items()}

    async def start(self) -> None:
        """From now on requests are answered."""
        self._open()
        self._background(self._look_at_waits())

    def _open(self) -> None:
        """What took long to replay is not left to be replayed again by the next start."""
        self._committer = Committer(self.store, self._told, self._failed)
        self.failure = None
        for stream in self.streams.values():
            if stream.number - self._snapshot_due[stream.id][0] >= SNAPSHOT_EVENTS // 10:
                self._committer.add(snapshot=self._new_snapshot(stream))

    async def stop(self) -> None:
        """Write what is under way and a snapshot of every stream; the next start has nothing to replay."""
        for task in self._tasks:
            task.cancel()
        if self._committer is None:
            return
        if self.failure is None:
            self.failure = "stopping"
            for stream in self.streams.values():
                self._committer.add(snapshot=(stream.id, stream.snapshot()))
        await asyncio.to_thread(self._committer.close)

    # --- streams ---------------------------------------------------------------------------------------------------

    def stream(self, name: str) -> Stream:
        self.refuse_if_broken()
        found = self.streams.get(name)
        if found is None:
            raise unknown_stream(name)
        return found

    def create(self, new: NewStream) -> Stream:
        self.refuse_if_broken()
        config = json.dumps({"title": new.title, "agent": new.agent()})
        try:
            if new.features is not None and (dim := Features(**new.agent()["features"]).dim) > MOST_DIM:
                raise ValueError(f"features: make vectors of {dim} numbers: must be at most {MOST_DIM}")
            Stream(StreamRow(0, new.name, 0.0, config), self.store)  # what is wrong is told before anything is stored
        except (ValueError, TypeError) as error:
            raise invalid(ValueError(str(error))) from None
        try:
            row = self.store.add_stream(new.name, time.time(), config)
        except sqlite3.Error as error:
            raise unavailable(f"the store cannot be written to ({error})") from None
        if row is None:
            raise ServiceError(409, "exists", f"stream {new.name!r}: there is one of this name", "name")
        stream = self.streams[new.name] = Stream(row, self.store)
        self._snapshot_due[stream.id] = (0, time.monotonic())
        return stream

    @contextlib.contextmanager
    def operating(self, stream: Stream) -> Iterator[None]:
        """Around every operation. One that breaks off may have changed the stream, and its events are lost: then memory
        is not to be trusted."""
        self._refuse_if_gone(stream)
        try:
            yield
        except ServiceError:
            raise  # said before anything was changed
        except Exception as error:
            log.exception("an operation on stream %r broke off", stream.name)
            self._failed(error)
            if isinstance(error, sqlite3.Error):
                raise unavailable("the store cannot be read") from None
            raise internal() from None

    async def carry_out(self, stream: Stream, operation: Callable[[], Done]) -> Done:
        """An operation on ``stream``: on disk when this returns."""
        with self.operating(stream):
            done = operation()
        await self.commit(stream, done.events)
        return done

    def hand_over(self, stream: Stream, events: list[Event]) -> Promise:
        """To be called at once after what made the events: their numbers are the order they must be stored in."""
        self._refuse_if_gone(stream)
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
            raise unavailable(_LOST) from None

    def _refuse_if_gone(self, stream: Stream) -> None:
        """Since the request began, streams may have been rebuilt: this one's events no longer continue the log."""
        self.refuse_if_broken()
        if self.streams.get(stream.name) is not stream:
            raise unavailable(_LOST)

    def _due_snapshot(self, stream: Stream) -> tuple[int, Snapshot] | None:
        number, moment = self._snapshot_due[stream.id]
        if stream.number - number < SNAPSHOT_EVENTS or time.monotonic() < moment:
            return None
        return self._new_snapshot(stream)

    def _new_snapshot(self, stream: Stream) -> tuple[int, Snapshot] | None:
        began = time.monotonic()
        try:
            return stream.id, stream.snapshot()
        except Exception:  # the events are what counts
            log.exception("no snapshot of stream %r could be made", stream.name)
            return None
        finally:
            spent = time.monotonic() - began
            self._snapshot_due[stream.id] = (stream.number, began + spent / SNAPSHOT_SHARE)

    # --- in the background -----------------------------------------------------------------------------------------

    def _background(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _look_at_waits(self) -> None:
        while True:
            await asyncio.sleep(TICK)
            for stream in list(self.streams.values()):
                with contextlib.suppress(ServiceError):  # it comes back by itself
                    with self.operating(stream):
                        events = stream.expire(time.time())
                    if events:
                        await self.commit(stream, events)

    def refuse_if_broken(self) -> None:
        """While streams are not what the disk has, nothing is answered."""
        if self.failure is not None:
            raise unavailable(f"not ready: {self.failure}")

    def _failed(self, error: Exception) -> None:
        if self.failure is not None:
            return  # it is being seen to
        log.error("%s; streams are rebuilt from what is on disk", error)
        self.failure = "the streams are being rebuilt from what is on disk"
        self._background(self._come_back())

    async def _come_back(self) -> None:
        while True:
            try:
                if self._committer is not None:
                    await asyncio.to_thread(self._committer.close)  # what it still has is acknowledged when written
                await asyncio.to_thread(self.store.probe)
                self._load()
                self._open()
                log.warning("the streams are as the disk has them, and requests are answered again")
                return
            except Exception as error:  # whatever it is, the service must not stay up with a wrong state
                log.error("not yet: %s", error)
            await asyncio.sleep(RETRY)


def rebuilt(row: StreamRow, store: Store, *, from_start: bool = False) -> Stream:
    """A stream as its events made it: from its last snapshot, or ``from_start``."""
    stream = Stream(row, store)
    snapshot = None if from_start else store.snapshot(row.id)
    if snapshot is not None:
        try:
            stream.restore(snapshot)
        except (ValueError, TypeError, KeyError) as error:
            log.warning("the snapshot of stream %r cannot be read (%s); its log is replayed in full", row.name, error)
            return rebuilt(row, store, from_start=True)
    for event in store.events(row.id, after=stream.number):
        try:
            stream.apply(event)
        except ReplayError:
            raise
        except Exception as error:
            raise ReplayError(f"stream {row.name!r}, event {event.number}: cannot be replayed ({error!r})") from error
    return stream
