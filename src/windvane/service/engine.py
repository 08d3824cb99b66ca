"""The engine: all streams in memory, the store behind them, and what keeps the two equal.

An operation changes its stream, hands its events to the committer, and waits until they are on disk. If a commit or an
operation fails, memory is ahead of the disk: nothing is answered until all streams are rebuilt from what is on disk.
Streams from before are replaced then, and whoever still has one gets nothing stored.

A stream is used by one thread at a time. A thread rebuilds all streams before the event loop gets them, and from then
on only the loop uses them. What takes long is done in a thread on copies (snapshots, charts) or while the stream is
held: bulk history in a thread, many timeouts bit by bit. Requests that change a held stream wait; it can be read, and
other streams are not affected.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import secrets
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from typing import Any

from windvane.agent import Agent
from windvane.agent.times import read_clock
from windvane.records import to_json
from windvane.service.committer import Committer, Promise
from windvane.service.problems import Problem, invalid
from windvane.service.readiness import NotReady, unavailable
from windvane.service.recovery import Recovery, rebuild_stream, record_losses, recover
from windvane.service.requests import NewStream, check_features
from windvane.service.snapshots import START_SHARE, Snapshots
from windvane.service.store import DamageError, Event, Snapshot, Store, StreamRow, is_damage
from windvane.service.streams import Done, Stream
from windvane.warmup import warm_up

MAX_WAITING = 5000  # events that may wait for the disk
TICK = 1.0  # seconds between looks at timeouts and alerts
RETRY = 1.0  # seconds between attempts to recover
CHECK_AGAIN = 60.0  # seconds after which a check of the store that failed is repeated: it reads the whole file

log = logging.getLogger("windvane.service")


class Engine:
    """All streams of ``store``. ``count_commit`` is called with the number of events of every commit and the seconds it
    took.

    ``streams`` are those served, by name; ``unavailable`` says of the others why they could not be rebuilt, and
    ``failure`` why no request is answered now. While the service drains, requests are answered, and it is not ready.
    """

    def __init__(self, store: Store, count_commit: Callable[[int, float], None] = lambda *_: None) -> None:
        self.store, self._count_commit = store, count_commit
        self.streams: dict[str, Stream] = {}
        self.unavailable: dict[str, str] = {}
        self.failure: NotReady | None = NotReady.of("starting")
        self.is_draining = False
        self.recoveries = self.snapshots = 0  # how often all streams were rebuilt, and snapshots were made
        self._rows: dict[str, StreamRow] = {}  # of all streams
        self._by_id: dict[int, Stream] = {}
        self._committer: Committer | None = None
        self._snapshots = Snapshots(self._save_snapshot)
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_damaged = self._is_checking = self._is_stopping = False
        self._last_error = ""  # of a recovery

    # --- starting, failing and stopping -----------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin to rebuild the streams. Requests are refused until that is done."""
        self._loop, self._changing = asyncio.get_running_loop(), asyncio.Lock()
        self._run(self._recover())
        self._run(self._watch())

    async def stop(self) -> None:
        """Write what is under way and a snapshot of every stream: the next start has nothing to replay."""
        self._is_stopping = True
        for task in self._tasks:
            task.cancel()
        if self._committer is not None:
            if self.failure is None:
                self.failure = NotReady.of("stopping")
                self._committer.add(snapshots=[(stream.id, stream.snapshot()) for stream in self.streams.values()])
            await self._committer.close()

    async def _recover(self) -> None:
        """Rebuild all streams from what is on disk, in a thread, until that succeeds."""
        while True:
            try:
                async with self._changing:  # no stream is created meanwhile
                    if self._committer is not None:
                        await self._committer.close()
                    self._open(await asyncio.to_thread(self._read_store))
                return
            except Exception as error:  # whatever it is, the service must not stay up with a wrong state
                self._note_failure(error)
            await asyncio.sleep(RETRY)

    def _read_store(self) -> Recovery:
        """Read all streams, in a thread; after a failure, when the store can be written to again."""
        if self._is_damaged:
            self._report_progress(NotReady.of("damaged"))
            self.store.repair()
            self._is_damaged = False
        if self._committer is not None:
            self.store.check_writable()
        return recover(self.store, self._report_progress)

    def _report_progress(self, progress: NotReady) -> None:
        if self._is_stopping:
            raise RuntimeError("the service is stopping")
        self.failure = progress

    def _open(self, recovery: Recovery) -> None:
        """Answer requests from now on."""
        self._rows, self.streams, self.unavailable, replays = recovery
        self._by_id = {stream.id: stream for stream in self.streams.values()}
        self._snapshots = Snapshots(self._save_snapshot)
        committer = self._committer = Committer(self.store, self._note_commit, self._fail)
        for events in record_losses(self.store, recovery):
            committer.add(events)
        for name, stream in self.streams.items():
            self._snapshots.begin(stream, *replays[name])
            if self._snapshots.is_due(stream, START_SHARE):
                self._run(self._snapshots.take(stream))
            self._expire(stream)
        self.failure, self._last_error = None, ""
        self.recoveries += 1
        self._run(self._build_charts(list(self.streams.values())))
        if not self.store.is_checked and not self._is_checking:  # so large that the start did not wait for the check
            self._is_checking = True
            self._run(self._check_store())
        fields = {"streams": len(self.streams), "unavailable": len(self.unavailable)}
        log.info("ready", extra={"fields": fields})

    def _fail(self, error: Exception) -> None:
        """Rebuild the streams: memory may differ from the disk."""
        self._is_damaged = self._is_damaged or is_damage(error)
        if self.failure is None:
            log.error("%s; the streams are rebuilt from what is on disk", error)
            self.failure = NotReady.after(error)
            self._run(self._recover())

    def _note_failure(self, error: Exception) -> None:
        """Note why a recovery failed; it is repeated every second, and logged once."""
        self.failure = NotReady.after(error)
        if str(error) != self._last_error:
            fields = {"cause": self.failure.code, "store": str(self.store.path)}
            log.error("not ready: %s", error, exc_info=fields["cause"] == "internal", extra={"fields": fields})
        self._last_error = str(error)

    def report_damage(self, error: Exception) -> None:
        """Schedule a check and repair of the store if ``error`` is a sign of damage. Thread-safe."""
        if is_damage(error):
            self._loop.call_soon_threadsafe(self._fail, error)

    @property
    def not_ready(self) -> NotReady | None:
        """Why the service should be sent no requests, for a load balancer."""
        return NotReady.of("stopping") if self.is_draining and self.failure is None else self.failure

    @property
    def backlog(self) -> tuple[int, float]:
        """How many events wait for the disk, and for how many seconds the oldest has."""
        return (0, 0.0) if self._committer is None else (self._committer.waiting, self._committer.oldest_wait)

    def refuse_if_not_ready(self) -> None:
        """Raise if no request is answered now."""
        if self.failure is not None:
            raise unavailable(self.failure)

    # --- streams ---------------------------------------------------------------------------------------------------

    def stream(self, name: str) -> Stream:
        """Return a stream that is served."""
        self.refuse_if_not_ready()
        if name in self.unavailable:
            raise Problem("unavailable", f"{self.unavailable[name]}; `windvane verify` says more")
        if name not in self.streams:
            raise Problem("unknown-stream", f"there is no stream {name!r}")
        return self.streams[name]

    async def find_log(self, name: str) -> tuple[StreamRow, int]:
        """Return a stream, served or not, and the number of its last event, which is on disk."""
        self.refuse_if_not_ready()
        if name in self.unavailable:
            return self._rows[name], self.store.last_number(self._rows[name].id)
        stream = self.stream(name)
        number = stream.number
        await self.commit(stream)
        return self._rows[name], number

    async def create(self, new: NewStream) -> Stream:
        """Create a stream. Without a seed it gets a random one, or all streams would explore in the same rounds."""
        self.refuse_if_not_ready()
        taken = Problem("stream-exists", f"a stream with the name {new.name!r} already exists", pointer="#/name")
        if new.name in self._rows:
            raise taken
        arguments = {"seed": secrets.randbits(63), **new.agent_arguments()}
        try:
            check_features(arguments.get("features"))
            core = (await asyncio.to_thread(Agent, **arguments)).core  # errors come before anything is stored
        except (ValueError, TypeError) as error:
            raise invalid(error) from None
        config = json.dumps({"title": new.title, "agent": core.settings})
        await asyncio.to_thread(warm_up, [type(core.policy)])
        async with self._changing:
            self.refuse_if_not_ready()
            try:
                row = await asyncio.to_thread(self.store.add_stream, new.name, read_clock(), config)
            except sqlite3.Error as error:
                raise Problem("unavailable", f"the store cannot be written to ({error})") from None
            if row is None:
                raise taken
            stream = self.streams[row.name] = self._by_id[row.id] = Stream(row, self.store)
            self._rows[row.name] = row
            self._snapshots.begin(stream)
        return stream  # even if a recovery has begun: it is in the store

    # --- operations ------------------------------------------------------------------------------------------------

    async def carry_out(self, stream: Stream, operation: Callable[[], Done]) -> Done:
        """Carry out an operation on ``stream``; its events are on disk when this returns."""
        await self.turn(stream)
        with self.operating(stream):
            done = operation()
        await self.commit(stream, done.events)
        return done

    async def configure(self, stream: Stream, changes: dict[str, Any]) -> Done:
        """Change settings of ``stream``; a shorter timeout may have passed for some decisions."""
        try:
            check_features(changes.get("features"))
        except ValueError as error:
            raise invalid(error) from None
        async with self.hold(stream):
            with self.operating(stream):  # in a thread, because many features take long
                done = await asyncio.to_thread(stream.configure, changes, read_clock())
            await self.commit(stream, done.events)
        self._expire(stream)
        return done

    async def learn_history(self, stream: Stream, raw: bytes, key: str | None) -> Done:
        """Learn bulk history; it is on disk when this returns."""
        await self.turn(stream)
        with self.operating(stream):
            again = stream.find_history(raw, key)
        if again is not None:
            await self.commit(stream)  # the first request may still wait for the disk
            return again
        stream.busy = self._loop.create_future()
        with _release(stream):
            now, began = read_clock(), time.perf_counter()
            learned = await asyncio.to_thread(stream.read_history, raw, now)
            with self.operating(stream):
                self._snapshots.add_work(stream, time.perf_counter() - began)
                done = stream.learn_history(raw, key, learned, now)
            promise = self.hand_over(stream, done.events)
        await self._wait_for(promise)
        return done

    @contextlib.asynccontextmanager
    async def hold(self, stream: Stream) -> AsyncIterator[None]:
        """Hold ``stream``: other requests that change it wait."""
        await self.turn(stream)
        stream.busy = self._loop.create_future()
        with _release(stream):
            yield

    async def turn(self, stream: Stream) -> None:
        """Wait until ``stream`` may be changed. The caller must change it before it waits for anything else."""
        await _wait_while_busy(stream)
        if stream.is_due(read_clock(), many=True):  # the operation would have to close them all
            self._expire(stream)
            await _wait_while_busy(stream)

    @contextlib.contextmanager
    def operating(self, stream: Stream) -> Iterator[None]:
        """Surround an operation. After one that fails, memory is not trusted: its events are lost."""
        self._refuse_if_replaced(stream)
        if self._committer is not None and self._committer.waiting >= MAX_WAITING:
            raise Problem("unavailable", "the disk does not keep up; try again")
        began = time.perf_counter()
        try:
            yield
        except Problem:
            if events := stream.take_events():  # a request that is refused may have closed decisions
                self.hand_over(stream, events)
            raise
        except Exception as error:
            log.exception("an operation on stream %r failed", stream.name)
            if isinstance(error, sqlite3.Error):
                self._fail(error)
                raise Problem("unavailable", "the store cannot be read") from None
            self._set_aside(stream)
            raise Problem("internal", "the operation failed; the server's log says why") from None
        self._snapshots.add_work(stream, time.perf_counter() - began)

    def _set_aside(self, stream: Stream) -> None:
        """Rebuild a stream whose operation failed: its memory may be ahead of its log. The others are not affected."""
        self.unavailable[stream.name] = f"stream {stream.name!r} is being rebuilt after a failure"
        del self.streams[stream.name]
        self._run(self._rebuild(stream))

    async def _rebuild(self, stream: Stream) -> None:
        assert self._committer is not None  # the stream was served
        name, promise = stream.name, self._committer.add()
        try:
            await self._wait_for(promise)  # until all events of the stream are on disk
            rebuilt = await asyncio.to_thread(rebuild_stream, self._rows[name], self.store)
            snapshot = await asyncio.to_thread(self.store.read_snapshot_number, stream.id)
        except Exception as error:
            log.error("stream %r is not served: %s", name, error)
            if self._by_id.get(stream.id) is stream:
                self.unavailable[name] = str(error)
            return
        if self.failure is None and self._by_id.get(stream.id) is stream:  # else all streams were rebuilt meanwhile
            self.streams[name] = self._by_id[stream.id] = rebuilt
            self._snapshots.begin(rebuilt, snapshot)
            del self.unavailable[name]

    def hand_over(self, stream: Stream, events: Sequence[Event]) -> Promise:
        """Hand the events of an operation to the committer, right after it: their order is that of the log."""
        self._refuse_if_replaced(stream)
        assert self._committer is not None  # a stream is served
        promise = self._committer.add(events)
        if self._snapshots.is_due(stream):
            self._run(self._snapshots.take(stream))
        return promise

    async def commit(self, stream: Stream, events: Sequence[Event] = ()) -> None:
        """Hand ``events`` over, and wait until they and all before them are on disk."""
        await self._wait_for(self.hand_over(stream, events))

    async def _wait_for(self, promise: Promise) -> None:
        try:
            await asyncio.shield(promise)
        except Exception:
            raise Problem("unavailable", _WRITE_FAILED) from None

    def _refuse_if_replaced(self, stream: Stream) -> None:
        """Refuse if streams were rebuilt since the request began: the log does not continue with its events."""
        self.refuse_if_not_ready()
        if self.streams.get(stream.name) is not stream:
            raise Problem("unavailable", _WRITE_FAILED)

    def _note_commit(self, events: list[Event], seconds: float) -> None:
        for id_, number in {event.stream: event.number for event in events}.items():
            self._by_id[id_].lookup.forget(number)
        self._count_commit(len(events), seconds)

    def _save_snapshot(self, stream: Stream, snapshot: Snapshot) -> None:
        """Store a snapshot, unless streams were rebuilt while it was made: its events may not be those on disk."""
        if self.failure is None and self.streams.get(stream.name) is stream and self._committer is not None:
            self.snapshots += 1
            self._committer.add(snapshots=[(stream.id, snapshot)])

    # --- in the background -----------------------------------------------------------------------------------------

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _watch(self) -> None:
        """Look at timeouts, alerts and the file of the store, again and again."""
        while True:
            await asyncio.sleep(TICK)
            if self.failure is not None:
                continue
            try:
                self.store.check_in_place()
            except sqlite3.Error as error:
                self._fail(error)
                continue
            for stream in list(self.streams.values()):
                try:
                    self._expire(stream)
                    stream.log_alerts()
                    await self._sample_model(stream)
                except Exception:  # the other streams go on
                    log.exception("stream %r: its timeouts or alerts cannot be checked", stream.name)

    def _expire(self, stream: Stream) -> None:
        """Close decisions whose timeout has passed, bit by bit, with the stream held from now on."""
        if stream.busy is None and stream.is_due(read_clock()):
            stream.busy = self._loop.create_future()
            self._run(self._expire_held(stream))

    async def _expire_held(self, stream: Stream) -> None:
        with _release(stream), contextlib.suppress(Problem):  # streams are rebuilt after one
            while True:
                with self.operating(stream):
                    events = stream.expire(read_clock())
                if not events:
                    return
                await self.commit(stream, events)

    async def _build_charts(self, streams: list[Stream]) -> None:
        """Let the charts of the streams catch up with their logs, one after the other."""
        for stream in streams:
            with contextlib.suppress(Problem):  # streams were rebuilt
                while await self._advance_charts(stream):
                    self._refuse_if_replaced(stream)

    async def read_charts(self, stream: Stream) -> bytes:
        """Return the charts as JSON; of a log that is still being read, those of its first part."""
        await self._advance_charts(stream)
        async with stream.charts_lock:
            return to_json(stream.charts.data)

    async def read_live(self, stream: Stream) -> bytes:
        """Return info and charts as JSON; they are encoded once, however many follow the stream."""
        if stream.live[0] != stream.progress:
            number = stream.number
            charts = await self.read_charts(stream)
            progress = number, *stream.progress[1:]  # events that came meanwhile are not in the charts
            stream.live = progress, b'{"info":%b,"charts":%b}' % (to_json(stream.info()), charts)
        return stream.live[1]

    async def _advance_charts(self, stream: Stream) -> bool:
        """Read some of the events on disk into the charts, in a thread; return whether there are more."""
        number = stream.number
        await self.commit(stream)
        async with stream.charts_lock:
            try:
                return await asyncio.to_thread(stream.charts.read, self.store, stream.id, number)
            except Exception as error:  # the charts stay as they are
                log.exception("the charts of stream %r cannot be built", stream.name)
                self.report_damage(error)
                return False

    async def _sample_model(self, stream: Stream) -> None:
        """Let charts show the model as it is now: in a thread, because it may take long with many features."""
        if stream.busy is None and stream.number != stream.sampled:
            stream.busy = self._loop.create_future()
            with _release(stream):
                stream.charts.set_model(await asyncio.to_thread(stream.describe_model))
                stream.sampled = stream.number

    async def _check_store(self) -> None:
        """Check the structure of the file until a check succeeds; repair the store if it is damaged."""
        while not self.store.is_checked:
            try:
                problems = await asyncio.to_thread(self.store.find_damage)
                if problems:
                    self._fail(DamageError(problems[0]))
                break
            except Exception:  # the file may be busy, or out of reach for a while
                log.exception("%s: cannot be checked; trying again in %g s", self.store.path, CHECK_AGAIN)
                await asyncio.sleep(CHECK_AGAIN)
        self._is_checking = False


_WRITE_FAILED = "the store could not be written; retry with the same Idempotency-Key"


async def _wait_while_busy(stream: Stream) -> None:
    while stream.busy is not None:
        await asyncio.shield(stream.busy)


@contextlib.contextmanager
def _release(stream: Stream) -> Iterator[None]:
    """Let requests that change ``stream`` go on at the end."""
    try:
        yield
    finally:
        if stream.busy is not None:
            stream.busy.set_result(None)
        stream.busy = None
