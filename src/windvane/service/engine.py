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
from windvane.errors import ArgumentError
from windvane.policies.adaptive_glm_ucb import AdaptiveGLMUCB
from windvane.policies.base import Policy
from windvane.service.committer import Committer, Promise
from windvane.service.errors import ServiceError, internal, invalid, unavailable, unknown_stream
from windvane.service.recovery import rebuilt
from windvane.service.schemas import MOST_DIM, NewStream
from windvane.service.snapshots import ON_START, Snapshots
from windvane.service.store import DamageError, Event, Snapshot, Store, StreamRow, is_damage
from windvane.service.streams import Done, ReplayError, Stream
from windvane.warmup import warm_up

MOST_WAITING = 5000
"""Events that may wait for the disk. All that tells a repeated request from a new one is in memory until then."""
TICK = 1.0  # seconds between looks at what has waited too long
RETRY = 1.0  # seconds between attempts to come back after a failed commit

CHECK_AGAIN = 60 * RETRY  # seconds after which a check of the store that failed is repeated: it reads the whole file

_LOST = "the store could not be written to; repeat the request, and keys tell what of it was kept after all"

log = logging.getLogger("windvane.service")


class Engine:
    """See the module. ``committed`` is told the number of events of every commit. ``broken``: streams that could not be
    rebuilt, by name, and why; all others are served. Their logs can be read up to the damage."""

    def __init__(self, store: Store, committed: Callable[[int], None] = lambda _: None) -> None:
        self.store, self._told = store, committed
        self.streams: dict[str, Stream] = {}
        self.broken: dict[str, str] = {}
        self.failure: str | None = "starting"
        self._committer: Committer | None = None
        self._snapshots = Snapshots(self._store_snapshot)
        self._tasks: set[asyncio.Task[None]] = set()
        self._rows: dict[str, StreamRow] = {}  # of all streams, those that are not served too
        self._is_checking = False
        self._is_damaged = False  # whether the store is to be checked before streams are rebuilt
        self._load()

    def _load(self) -> None:
        """Rebuild all streams from the store. A stream that cannot be read is set aside; the others are served."""
        streams, self.broken, self._snapshots = {}, {}, Snapshots(self._store_snapshot)
        try:
            rows = self.store.read_streams()
        except sqlite3.DatabaseError as error:
            if not is_damage(error):
                raise
            self.store.repair()
            rows = self.store.read_streams()
        self._rows = {row.name: row for row in rows}
        for row in rows:
            began = time.perf_counter()
            try:
                with _no_garbage():
                    stream = streams[row.name] = rebuilt(row, self.store)
            except ReplayError as error:
                self._set_aside(row, str(error))
                continue
            except sqlite3.DatabaseError as error:
                if not is_damage(error):
                    raise
                self.store.is_checked = False  # it is checked once streams are served
                self._set_aside(row, f"stream {row.name!r}: cannot be read")
                continue
            if stream.differences:
                log.warning(
                    "stream %r: in %d rounds other arms would be chosen now than were; the log is what counts",
                    row.name,
                    stream.differences,
                )
            self._snapshots.begin(stream, self._snapshot_number(stream), time.perf_counter() - began)
        self.streams = streams

    def _set_aside(self, row: StreamRow, reason: str) -> None:
        log.error("%s; it is not served", reason)
        self.broken[row.name] = reason

    def _snapshot_number(self, stream: Stream) -> int:
        """Return 0 where the snapshot cannot be read: the next one is due soon."""
        try:
            return self.store.read_snapshot_number(stream.id)
        except sqlite3.DatabaseError:
            return 0

    async def start(self) -> None:
        """From now on requests are answered."""
        self._loop = asyncio.get_running_loop()
        self._open()
        self._background(self._look_at_waits())

    def _open(self) -> None:
        """What took long to replay is not left to be replayed again by the next start."""
        self._committer = Committer(self.store, self._told, self._failed)
        self.failure = None
        self._record_losses()
        for stream in self.streams.values():
            if self._snapshots.due(stream, ON_START):
                self._background(self._snapshots.take(stream))
            self._settle(stream)
        if not self.store.is_checked and not self._is_checking:  # so large that the start did not wait for the check
            self._background(self._check_store())

    def _record_losses(self) -> None:
        """Record in the log of a stream that more was acknowledged than the log has: the write-ahead log was damaged,
        or the store is a restored backup."""
        assert self._committer is not None  # called when there is one
        names = {row.id: row.name for row in self._rows.values()}
        marks = self.store.read_acknowledged()
        self.store.mark_acknowledged(
            {stream.id: stream.number for stream in self.streams.values() if stream.id not in marks}
        )
        for stream_id, acknowledged in marks.items():
            name = names.get(stream_id)
            if name is None:
                log.error("a stream with %d acknowledged events is not in the store", acknowledged)
            elif name in self.streams and acknowledged > self.streams[name].number:
                stream = self.streams[name]
                text = "stream %r: events %d to %d were acknowledged, but are missing from the log"
                log.error(text, name, stream.number + 1, acknowledged)
                self._committer.add([stream.record_loss(acknowledged, time.time())])

    async def _check_store(self) -> None:
        """Check the structure of the file until a check succeeds; repair the store if it is damaged."""
        self._is_checking = True
        try:
            await self._check_until_done()
        finally:
            self._is_checking = False

    async def _check_until_done(self) -> None:
        while not self.store.is_checked:
            try:
                problems = await asyncio.to_thread(self.store.find_damage)
            except Exception:  # the file may be busy, or out of reach for a while
                log.exception("%s: cannot be checked; trying again in %g s", self.store.path, CHECK_AGAIN)
                await asyncio.sleep(CHECK_AGAIN)
            else:
                if problems:
                    self._failed(DamageError(problems[0]))
                return

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

    def used_policies(self) -> set[type[Policy]]:
        """Return the policies of the streams, and the one that a new stream has by default.

        What a stream with another policy needs is compiled when it is created.
        """
        return {AdaptiveGLMUCB, *(type(stream.agent.policy) for stream in self.streams.values())}

    async def find_log(self, name: str) -> tuple[StreamRow, int]:
        """Return a stream, served or not, and the number of its last event; all its events are on disk then."""
        if name in self.broken:
            self.refuse_if_broken()
            row = self._rows[name]
            return row, self.store.last_number(row.id)
        stream = self.stream(name)
        await self.commit(stream)
        return self._rows[name], stream.number

    async def create(self, new: NewStream) -> Stream:
        self.refuse_if_broken()
        given = new.agent()
        if given["seed"] is None:  # or all streams would explore in the same rounds
            given["seed"] = secrets.randbits(63)
        config = json.dumps({"title": new.title, "agent": given})
        try:
            if new.features is not None and (dim := Features(**given["features"]).dim) > MOST_DIM:
                expected = f"features whose vectors have at most {MOST_DIM} numbers"
                raise ArgumentError("features", given["features"], expected, got=str(dim))
            trial = Stream(StreamRow(0, new.name, 0.0, config), self.store)  # errors come before anything is stored
        except (ValueError, TypeError) as error:
            raise invalid(error) from None
        # In a thread, or other requests would wait while kernels are compiled.
        await asyncio.to_thread(warm_up, [type(trial.agent.policy)])
        try:
            row = await asyncio.to_thread(self.store.add_stream, new.name, time.time(), config)
        except sqlite3.Error as error:
            raise unavailable(f"the store cannot be written to ({error})") from None
        if row is None:
            raise ServiceError(409, "exists", f"a stream with the name {new.name!r} already exists", "name")
        self._rows[row.name] = row
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
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _look_at_waits(self) -> None:
        while True:
            await asyncio.sleep(TICK)
            try:
                self.store.check_in_place()
            except sqlite3.Error as error:
                self._failed(error)
            for stream in list(self.streams.values()):
                try:
                    self._settle(stream)
                    stream.log_alerts()
                except Exception:  # one stream must not end the waits of all others
                    log.exception("stream %r: its waits or alerts cannot be checked", stream.name)

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

    def report_damage(self, error: Exception) -> None:
        """Schedule a check and repair of the store if ``error`` is a sign of damage. Thread-safe."""
        if is_damage(error):
            self._loop.call_soon_threadsafe(self._failed, error)

    def _failed(self, error: Exception) -> None:
        self._is_damaged = self._is_damaged or is_damage(error)
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
                if self._is_damaged:
                    await asyncio.to_thread(self.store.repair)
                    self._is_damaged = False
                await asyncio.to_thread(self.store.check_writable)
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
