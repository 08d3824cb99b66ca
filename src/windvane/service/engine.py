"""The engine: all streams in memory, the store behind them, and what keeps the two the same.

An operation changes its stream, hands its events to the committer, and waits for them to be on disk before it answers.
Streams are only touched in the thread of the event loop, so operations never overlap. If a commit fails, or an
operation breaks off, memory is ahead of the disk: then nothing is answered any more until all streams have been rebuilt
from what is on disk. Who still has a stream from before is told so, and gets nothing stored.

What takes long (bulk history, the end of very many waits) is done in a thread or bit by bit, with the stream held: what
would change it waits, while it can be read, and other streams go on.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from windvane.agent import Features
from windvane.service.committer import Committer, Promise
from windvane.service.errors import ServiceError, internal, invalid, unavailable, unknown_stream
from windvane.service.events import Event
from windvane.service.schemas import MOST_DIM, NewStream
from windvane.service.snapshots import ON_START, Snapshots
from windvane.service.store import Snapshot, Store, StreamRow
from windvane.service.streams import Done, ReplayError, Stream

MOST_WAITING = 5000
"""Events that may wait for the disk. All that tells a repeated request from a new one is in memory until then."""
TICK = 1.0  # seconds between looks at what has waited too long
RETRY = 1.0  # seconds between attempts to come back after a failed commit

_LOST = "the store could not be written to; repeat the request, and keys tell what of it was kept after all"

log = logging.getLogger("windvane.service")


class Engine:
    """See the module. ``committed`` is told the number of events of every commit. ``broken``: streams that could not be
    rebuilt, by name, and why; all others are served."""

    def __init__(self, store: Store, committed: Callable[[int], None] = lambda _: None) -> None:
        self.store, self._told = store, committed
        self.streams: dict[str, Stream] = {}
        self.broken: dict[str, str] = {}
        self.failure: str | None = "starting"
        self._committer: Committer | None = None
        self._snapshots = Snapshots(self._store_snapshot)
        self._tasks: set[asyncio.Task[None]] = set()
        self._load()

    def _load(self) -> None:
        """All streams, as the disk has them."""
        streams, self.broken, self._snapshots = {}, {}, Snapshots(self._store_snapshot)
        for row in self.store.streams():
            began = time.perf_counter()
            try:
                with _no_garbage():
                    stream = streams[row.name] = rebuilt(row, self.store)
            except ReplayError as error:
                log.error("%s; it is not served", error)
                self.broken[row.name] = str(error)
                continue
            if stream.differences:
                log.warning(
                    "stream %r: in %d rounds other arms would be chosen now than were; the log is what counts",
                    row.name,
                    stream.differences,
                )
            self._snapshots.begin(stream, self.store.snapshot_number(row.id), time.perf_counter() - began)
        self.streams = streams

    async def start(self) -> None:
        """From now on requests are answered."""
        self._open()
        self._background(self._look_at_waits())

    def _open(self) -> None:
        """What took long to replay is not left to be replayed again by the next start."""
        self._committer = Committer(self.store, self._told, self._failed)
        self.failure = None
        for stream in self.streams.values():
            if self._snapshots.due(stream, ON_START):
                self._background(self._snapshots.take(stream))
            self._settle(stream)

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
        if found is not None:
            return found
        if name in self.broken:
            raise unavailable(f"{self.broken[name]}; `windvane verify` says more")
        raise unknown_stream(name)

    async def create(self, new: NewStream) -> Stream:
        self.refuse_if_broken()
        given = new.agent()
        if given["seed"] is None:  # or all streams would explore in the same rounds
            given["seed"] = secrets.randbits(63)
        config = json.dumps({"title": new.title, "agent": given})
        try:
            if new.features is not None and (dim := Features(**given["features"]).dim) > MOST_DIM:
                raise ValueError(f"features: make vectors of {dim} numbers: must be at most {MOST_DIM}")
            Stream(StreamRow(0, new.name, 0.0, config), self.store)  # what is wrong is told before anything is stored
        except (ValueError, TypeError) as error:
            raise invalid(ValueError(str(error))) from None
        try:
            row = await asyncio.to_thread(self.store.add_stream, new.name, time.time(), config)
        except sqlite3.Error as error:
            raise unavailable(f"the store cannot be written to ({error})") from None
        if row is None:
            raise ServiceError(409, "exists", f"stream {new.name!r}: there is one of this name", "name")
        if new.name not in self.streams:  # it may have been found in the store meanwhile
            stream = self.streams[new.name] = Stream(row, self.store)
            self._snapshots.begin(stream, 0, 0.0)
        return self.stream(new.name)

    @contextlib.contextmanager
    def operating(self, stream: Stream) -> Iterator[None]:
        """Around every operation. One that breaks off may have changed the stream, and its events are lost: then memory
        is not to be trusted."""
        self._refuse_if_gone(stream)
        if self._committer is not None and self._committer.waiting >= MOST_WAITING:
            raise unavailable("the disk does not keep up; try again")
        began = time.perf_counter()
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
        self._snapshots.worked(stream, time.perf_counter() - began)

    async def turn(self, stream: Stream) -> None:
        """Wait until the stream may be changed. What follows must not wait again before it changes it."""
        await _free(stream)
        if stream.waits_over(time.time(), many=True):  # or the operation would have to close them all
            self._settle(stream)
            await _free(stream)

    async def carry_out(self, stream: Stream, operation: Callable[[], Done]) -> Done:
        """An operation on ``stream``: on disk when this returns."""
        await self.turn(stream)
        with self.operating(stream):
            done = operation()
        await self.commit(stream, done.events)
        return done

    async def configure(self, stream: Stream, changes: dict[str, Any]) -> Done:
        done = await self.carry_out(stream, lambda: stream.configure(changes, time.time()))
        self._settle(stream)  # a shorter wait may be over for some
        return done

    async def learn(self, stream: Stream, raw: bytes, key: str | None) -> Done:
        """Bulk history: on disk when this returns."""
        await self.turn(stream)
        with self.operating(stream):
            repeated = stream.asked_before(raw, key)
        if repeated is not None:
            await self.commit(stream)  # what it repeats may still be on its way
            return repeated
        with _held(stream):
            now, began = time.time(), time.perf_counter()
            learnt = await asyncio.to_thread(stream.learnt, raw, now)
            with self.operating(stream):
                self._snapshots.worked(stream, time.perf_counter() - began)
                done = stream.learn(raw, key, learnt, now)
            promise = self.hand_over(stream, done.events)
        await self._kept(promise)
        return done

    def hand_over(self, stream: Stream, events: Sequence[Event]) -> Promise:
        """To be called at once after what made the events: their numbers are the order they must be stored in."""
        self._refuse_if_gone(stream)
        assert self._committer is not None  # the stream was given out, so it runs
        promise = self._committer.add(events)
        if self._snapshots.due(stream):
            self._background(self._snapshots.take(stream))
        return promise

    async def commit(self, stream: Stream, events: Sequence[Event] = ()) -> None:
        """Hand ``events`` over, and wait until they and all before them are on disk."""
        await self._kept(self.hand_over(stream, events))

    @staticmethod
    async def _kept(promise: Promise) -> None:
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

    def _store_snapshot(self, stream: Stream, snapshot: Snapshot) -> None:
        """Unless streams were rebuilt while it was made: its events may not be those on disk."""
        with contextlib.suppress(ServiceError):
            self._refuse_if_gone(stream)
            assert self._committer is not None  # a stream that is served has one
            self._committer.add(snapshot=(stream.id, snapshot))

    # --- in the background -----------------------------------------------------------------------------------------

    def _background(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _look_at_waits(self) -> None:
        while True:
            await asyncio.sleep(TICK)
            try:
                self.store.check()
            except sqlite3.Error as error:
                self._failed(error)
            for stream in list(self.streams.values()):
                self._settle(stream)

    def _settle(self, stream: Stream) -> None:
        """See to the ends of waits, bit by bit, with the stream held from now on."""
        if stream.held is None and stream.waits_over(time.time()):
            holding = contextlib.ExitStack()
            holding.enter_context(_held(stream))
            self._background(self._close_waits(stream, holding))

    async def _close_waits(self, stream: Stream, holding: contextlib.ExitStack) -> None:
        with holding, contextlib.suppress(ServiceError):  # it comes back by itself
            while True:
                with self.operating(stream):
                    events = stream.expire(time.time())
                if not events:
                    return
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


@contextlib.contextmanager
def _no_garbage() -> Iterator[None]:
    """What is rebuilt stays: looking for garbage among 100,000 waiting decisions, again and again while they are made,
    would take as long as making them."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


async def _free(stream: Stream) -> None:
    """Wait until nothing long is under way on ``stream``."""
    while stream.held is not None:
        await asyncio.shield(stream.held)


@contextlib.contextmanager
def _held(stream: Stream) -> Iterator[None]:
    assert stream.held is None  # who wants to hold it has waited
    stream.held = asyncio.get_running_loop().create_future()
    try:
        yield
    finally:
        stream.held.set_result(None)
        stream.held = None


def rebuilt(row: StreamRow, store: Store, *, from_start: bool = False) -> Stream:
    """A stream as its events made it: from its last snapshot, or ``from_start``."""
    try:
        stream = Stream(row, store)
    except Exception as error:  # its configuration was changed from outside, or is of another version
        raise ReplayError(f"stream {row.name!r}: cannot be made again ({error})") from error
    try:
        snapshot = None if from_start else store.snapshot(row.id)
        if snapshot is not None:
            stream.restore(snapshot)
    except (ValueError, TypeError, KeyError, sqlite3.Error) as error:
        log.warning("the snapshot of stream %r cannot be read (%s); its log is replayed in full", row.name, error)
        return rebuilt(row, store, from_start=True)
    if stream.number > (last := store.last_number(row.id)):
        raise ReplayError(
            f"stream {row.name!r}: its log ends with event {last}, and its snapshot is of {stream.number}"
        )
    for event in store.events(row.id, after=stream.number):
        try:
            stream.apply(event)
        except ReplayError:
            raise
        except Exception as error:
            raise ReplayError(f"stream {row.name!r}, event {event.number}: cannot be replayed ({error!r})") from error
    return stream
