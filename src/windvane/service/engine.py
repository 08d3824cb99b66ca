"""The engine: all streams in memory, the store behind them, and what keeps the two equal.

An operation changes its stream, hands its events to the committer, and waits until they are on disk. If a commit or an
operation fails, memory is ahead of the disk: nothing is answered until all streams are rebuilt from what is on disk.
Streams from before are replaced then, and whoever still has one gets nothing stored.

A stream is used by one thread at a time. A thread rebuilds all streams before the event loop gets them. What takes long
is done in a thread, on copies (snapshots, charts) or while the stream is held (bulk history, large bodies, operations
that took long before; see :mod:`windvane.service.turns`). Requests that change a held stream wait; other streams are
not affected. Many timeouts that pass together are closed some at a time, with other requests in between.

A commit that takes longer than :data:`STALL_SECONDS` is given up: requests are refused at once until the disk answers,
and the streams are rebuilt then, because the commit may have become durable or not.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import sqlite3
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, TypeVar

from windvane.agent.times import read_clock
from windvane.service.committer import Committer, Promise
from windvane.service.creation import build_core
from windvane.service.problems import Problem, invalid
from windvane.service.readiness import NotReady, StalledDiskError, unavailable
from windvane.service.recovery import Recovery, rebuild_stream, record_losses, recover
from windvane.service.requests import NewStream, check_features
from windvane.service.snapshots import START_SHARE, Snapshots
from windvane.service.store import DamageError, Event, Snapshot, Store, StreamRow, is_damage
from windvane.service.streams import Done, Stream
from windvane.service.turns import Turnstile, hold, is_slow, wait_while_held
from windvane.service.views import Views
from windvane.warmup import warm_up

MAX_WAITING, MAX_WAITING_BYTES = 5000, 64 << 20  # events that may wait for the disk
STALL_SECONDS = 3.0  # that a commit may take; one flush takes milliseconds, on a busy disk tenths of a second
STALL_TICK = 0.25  # seconds between looks at the commit under way
TICK = 1.0  # seconds between looks at timeouts and alerts
RETRY = 1.0  # seconds between attempts to recover
CHECK_AGAIN = 60.0  # seconds after which a check of the store that failed is repeated: it reads the whole file
REBUILDING = "it is being rebuilt after a failure"

T = TypeVar("T")

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
        self.is_draining = self.is_closing = False  # the latter: what takes long is given up
        self.recoveries = self.snapshots = 0  # how often all streams were rebuilt, and snapshots were made
        self._rows: dict[str, StreamRow] = {}  # of all streams
        self._by_id: dict[int, Stream] = {}
        self._committer: Committer | None = None
        self._snapshots = Snapshots(self._save_snapshot)
        self.views, self.turnstile = Views(self), Turnstile()
        self._tasks: set[asyncio.Task[None]] = set()
        self._threaded: set[asyncio.Task[Any]] = set()  # operations in threads, which cannot be cancelled
        self._is_damaged = self._is_checking = self._is_stopping = False
        self._last_error = ""  # of a recovery

    # --- starting, failing and stopping -----------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin to rebuild the streams. Requests are refused until that is done."""
        self._loop, self._changing = asyncio.get_running_loop(), asyncio.Lock()
        self._run(self._recover())
        self._run(self._watch())
        self._run(self._watch_disk())

    async def stop(self) -> None:
        """Write what is under way and a snapshot of every stream: the next start has nothing to replay."""
        self._is_stopping = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._threaded, return_exceptions=True)
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
        self._run(self.views.build_charts(list(self.streams.values())))
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

    def _stall(self) -> Problem:
        """Refuse requests until the disk answers; return how."""
        error = StalledDiskError(f"{self.store.path}: the disk has not answered for {STALL_SECONDS:g} s")
        if self._committer is not None:
            self._committer.give_up(error)
        self._fail(error)
        return unavailable(NotReady.after(error))

    async def _watch_disk(self) -> None:
        """Look whether a commit takes too long, again and again."""
        while True:
            await asyncio.sleep(STALL_TICK)
            if self.failure is None and self.backlog[1] > STALL_SECONDS:
                self._stall()

    def report_damage(self, error: Exception) -> None:
        """Schedule a check and repair of the store if ``error`` is a sign of damage. Thread-safe."""
        if is_damage(error):
            self._loop.call_soon_threadsafe(self._fail, error)

    @property
    def not_ready(self) -> NotReady | None:
        """Why the service should be sent no requests, for a load balancer."""
        self.check_in_place()
        return NotReady.of("stopping") if self.is_draining and self.failure is None else self.failure

    @property
    def backlog(self) -> tuple[int, float]:
        """How many events wait for the disk, and for how many seconds the oldest has."""
        return (0, 0.0) if self._committer is None else (self._committer.waiting, self._committer.oldest_wait)

    def refuse_if_not_ready(self) -> None:
        """Raise if no request is answered now."""
        if self.failure is not None:
            raise unavailable(self.failure)

    def check_in_place(self) -> None:
        """Fail if the file of the store was moved or removed. Every request does it once (8 µs)."""
        if self.failure is None:
            try:
                self.store.check_in_place()
            except sqlite3.Error as error:
                self._fail(error)

    # --- streams ---------------------------------------------------------------------------------------------------

    def stream(self, name: str) -> Stream:
        """Return a stream that is served."""
        self.refuse_if_not_ready()
        if name in self.unavailable:
            reason = self.unavailable[name]
            if reason == REBUILDING:  # for a moment
                raise Problem("unavailable", f"stream {name!r}: {reason}", retry_after=RETRY)
            raise Problem("unrecovered", f"{reason}; `windvane verify` says more")
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
        """Create a stream."""
        self.refuse_if_not_ready()
        taken = Problem("stream-exists", f"a stream with the name {new.name!r} already exists", pointer="#/name")
        if new.name in self._rows:
            raise taken
        core = await build_core(new)  # errors come before anything is stored
        config = json.dumps({"title": new.title, "agent": core.settings})
        await asyncio.to_thread(warm_up, [type(core.policy)])
        adding = self.run_to_end(self._add_stream(new.name, config))
        await asyncio.wait({adding}, timeout=STALL_SECONDS)
        if not adding.done():
            raise self._stall()
        stream = adding.result()
        if stream is None:
            raise taken
        return stream  # even if a recovery has begun: it is in the store

    async def _add_stream(self, name: str, config: str) -> Stream | None:
        """Store a new stream and serve it; None: the name is taken."""
        async with self._changing:
            self.refuse_if_not_ready()
            try:
                row = await asyncio.to_thread(self.store.add_stream, name, read_clock(), config)
            except sqlite3.Error as error:
                raise Problem("unavailable", f"the store cannot be written to ({error})") from None
            if row is None:
                return None
            stream = self.streams[row.name] = self._by_id[row.id] = Stream(row, self.store)
            self._rows[row.name] = row
            self._snapshots.begin(stream)
            return stream

    # --- operations ------------------------------------------------------------------------------------------------

    async def carry_out(
        self, stream: Stream, operation: Callable[[], Done], *, size: int = 0, decision: str | None = None
    ) -> Done:
        """Carry out an operation on ``stream``; its events are on disk when this returns. See :meth:`operate`."""
        done = await self.operate(stream, operation, size=size, decision=decision)
        await self.commit(stream)
        return done

    async def operate(
        self, stream: Stream, operation: Callable[[], Done], *, size: int = 0, decision: str | None = None
    ) -> Done:
        """Carry out an operation and hand its events over, without waiting for the disk.

        ``size``: bytes of the request; ``decision``: the one that gets a reward, which may be due to be closed first.
        """
        await self._turn(stream, decision)
        if is_slow(stream, size):
            done = await asyncio.shield(self.run_to_end(self._operate_in_thread(stream, operation)))
        else:
            with self.operating(stream):
                done = operation()
            self.hand_over(stream, done.events)
        if stream.has_backlog:
            self._expire(stream)
        return done

    async def _operate_in_thread(self, stream: Stream, operation: Callable[[], Done]) -> Done:
        await wait_while_held(stream)  # another request may have come first
        with hold(stream, changing=True):
            with self.operating(stream):
                done = await asyncio.to_thread(operation)
            self.hand_over(stream, done.events)
        return done

    async def configure(self, stream: Stream, changes: dict[str, Any]) -> Done:
        """Change settings of ``stream``; a shorter timeout may have passed for some decisions."""
        try:
            check_features(changes.get("features"))
        except ValueError as error:
            raise invalid(error) from None

        def operate() -> Done:
            return stream.configure(changes, read_clock())

        if changes.get("features") is None:
            done = await self.carry_out(stream, operate)
        else:  # in a thread, because many of them take long
            done = await asyncio.shield(self.run_to_end(self._operate_in_thread(stream, operate)))
            await self.commit(stream)
        self._expire(stream)
        return done

    async def learn_history(self, stream: Stream, raw: bytes, key: str | None) -> Done:
        """Learn bulk history; it is on disk when this returns."""
        again = await self.operate(stream, lambda: stream.find_history(raw, key), size=len(raw))
        if again.body:
            await self.commit(stream)  # the first request may still wait for the disk
            return again
        await wait_while_held(stream)
        with hold(stream):
            now, began = read_clock(), time.perf_counter()
            learned = await asyncio.to_thread(stream.read_history, raw, now)
            with self.operating(stream):
                self._snapshots.add_work(stream, time.perf_counter() - began)
                done = stream.learn_history(raw, key, learned, now)
            promise = self.hand_over(stream, done.events)
        await self._wait_for(promise)
        return done

    async def _turn(self, stream: Stream, decision: str | None = None) -> None:
        """Wait until ``stream`` may be changed. The caller must change it before it waits for anything else."""
        await wait_while_held(stream)
        while decision is not None and stream.is_overdue(decision, read_clock()):
            self.refuse_if_replaced(stream)
            self._expire(stream)
            assert stream.closing is not None  # a decision is due
            await asyncio.shield(stream.closing)
            await wait_while_held(stream)

    @contextlib.contextmanager
    def operating(self, stream: Stream) -> Iterator[None]:
        """Surround an operation. After one that fails, memory is not trusted: its events are lost."""
        self.refuse_if_replaced(stream)
        if (committer := self._committer) is not None and (
            committer.waiting >= MAX_WAITING or committer.waiting_bytes >= MAX_WAITING_BYTES
        ):
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
        stream.seconds = time.perf_counter() - began
        self._snapshots.add_work(stream, stream.seconds)

    def _set_aside(self, stream: Stream) -> None:
        """Rebuild a stream whose operation failed: its memory may be ahead of its log. The others are not affected."""
        self.unavailable[stream.name] = REBUILDING
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
        self.refuse_if_replaced(stream)
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

    def refuse_if_replaced(self, stream: Stream) -> None:
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

    def run_to_end(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run work that must not be cancelled, because a thread changes something; :meth:`stop` waits for it."""
        task = self._loop.create_task(work)
        self._threaded.add(task)
        task.add_done_callback(self._note_end)
        return task

    def _note_end(self, task: asyncio.Task[Any]) -> None:
        self._threaded.discard(task)
        if not task.cancelled():
            task.exception()  # or asyncio complains if nobody waits for it any more

    async def _watch(self) -> None:
        """Look at timeouts, alerts and the file of the store, again and again."""
        while True:
            await asyncio.sleep(TICK)
            if self.failure is not None:
                continue
            self.check_in_place()
            for stream in list(self.streams.values()):
                try:
                    self._expire(stream)
                    stream.log_alerts()
                    await self.views.sample_model(stream)
                except Exception:  # the other streams go on
                    log.exception("stream %r: its timeouts or alerts cannot be checked", stream.name)

    def _expire(self, stream: Stream) -> None:
        """Begin to close decisions whose timeout has passed, if there are any and nobody does."""
        if stream.closing is None and stream.is_due(read_clock()):
            stream.closing = self._loop.create_future()
            self._run(self._close_due(stream, stream.closing))

    async def _close_due(self, stream: Stream, closing: asyncio.Future[None]) -> None:
        """Close due decisions, some at a time: other requests have a turn while these are written to disk."""
        try:
            with contextlib.suppress(Problem):  # streams are rebuilt after one
                while stream.is_due(read_clock()):
                    await self.turnstile.wait()
                    await self.carry_out(stream, lambda: Done(200, b"", stream.expire(read_clock())))
        finally:
            stream.closing = None
            closing.set_result(None)

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
