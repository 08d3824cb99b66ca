"""The engine: all streams in memory, the store behind them, and the rules that keep the two equal.

An operation changes its stream, hands its events to the committer, and waits until they are on disk. If a commit or an
operation fails, memory is ahead of the disk: no request is answered until all streams are rebuilt from the log on disk.
The old streams are replaced then, and changes to an old stream are no longer stored.

A stream is used by one thread at a time. A thread rebuilds all streams before the event loop gets them. Long work runs
in a thread, on copies (snapshots, charts) or while the stream is held (bulk history, large bodies, operations that took
long before; see :mod:`windvane.service.turns`). Requests that change a held stream wait; other streams are not
affected. Decisions that time out together are closed in slices, with other requests in between.

A commit that takes longer than :data:`STALL_SECONDS` is given up: requests are rejected at once until the disk
responds. The streams are rebuilt then, because the commit may or may not have become durable.

In a cluster, an engine serves the streams of the shards that its node owns (:mod:`windvane.service.cluster.placement`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from windvane.service.cluster.placement import NodeSettings, Placement
from windvane.service.committer import Committer, Promise
from windvane.service.compaction import Compactions
from windvane.service.event_lookup import BulkLookup, EventsNotLoadedError
from windvane.service.problems import Problem
from windvane.service.readiness import NotReady, StalledDiskError, unavailable, unreadable
from windvane.service.recovery import Recovery, check_store, rebuild_stream, record_losses, recover
from windvane.service.registry import TAKEN_OVER, Registry, unknown_stream
from windvane.service.snapshots import START_SHARE, Snapshots
from windvane.service.store import (
    STORE_ERRORS,
    DamageError,
    Erasure,
    Event,
    Snapshot,
    Store,
    StreamRow,
    is_damage,
)
from windvane.service.streams import Done, Stream
from windvane.service.tasks import Tasks
from windvane.service.timeouts import Timeouts
from windvane.service.turns import Turnstile, hold, is_slow, measure, wait_while_held
from windvane.service.views import Views

MAX_WAITING, MAX_WAITING_BYTES = 5000, 64 << 20  # events that may wait for the disk
STALL_SECONDS = 3.0  # that a commit may take; one flush takes milliseconds, on a busy disk tenths of a second
SLOW_COMMIT_SECONDS = 0.1  # of the commit under way, after which operations run in threads: they may read the disk
STOP_SECONDS = 10.0  # that a stop may take; snapshots of 1,000 streams are written in less than one
STALL_TICK = 0.25  # seconds between checks of the running commit
TICK = 1.0  # seconds between checks of timeouts, retention and alerts
RETRY = 1.0  # seconds between attempts to recover
REST = 0.25  # seconds after a recovery until the next: one after the other would do nothing else, and fill the log
REBUILDING = "it is being rebuilt after a failure"
WRITE_FAILED = "the store could not be written; retry with the same Idempotency-Key"

log = logging.getLogger("windvane.service")


class Engine:
    """All streams of ``store``. ``count_commit`` is called with the number of events of every commit and the seconds it
    took.

    ``rows`` are all streams, by name, ``streams`` those in service; ``unavailable`` says why the others could not be
    rebuilt, ``failure`` why no request is answered now. While the service drains, it answers requests but is not ready.
    ``most_streams``: how many there may be.
    """

    def __init__(
        self,
        store: Store,
        count_commit: Callable[[int, float], None] = lambda *_: None,
        most_streams: int | None = None,
        node: NodeSettings | None = None,
    ) -> None:
        self.store, self._count_commit = store, count_commit
        self.registry = Registry(self, most_streams)
        self.placement = None if node is None else Placement(self, node)
        self.lookups = BulkLookup(store)
        self.rows: dict[str, StreamRow] = {}
        self.streams: dict[str, Stream] = {}
        self.unavailable: dict[str, str] = {}
        self.failure: NotReady | None = NotReady.of("starting")
        self.is_draining = self.is_closing = False  # the latter: what takes long is given up
        self.recoveries = self.snapshots = 0  # how often all streams were rebuilt, and snapshots were made
        self._by_id: dict[int, Stream] = {}
        self._committer: Committer | None = None
        self._snapshots = Snapshots(self._save_snapshot)
        self.views, self.timeouts, self.turnstile, self.tasks = Views(self), Timeouts(self), Turnstile(), Tasks()
        self.compactions = Compactions(self)
        self._is_damaged = self._is_checking = self._is_stopping = False
        self._last_error, self._recovers_from = "", 0.0  # of a recovery; when the next may begin

    # --- starting, failing and stopping -----------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin to rebuild the streams. Requests are rejected until that is done."""
        self.loop = asyncio.get_running_loop()
        self.tasks.start(self._recover())
        self.tasks.start(self._watch())
        self.tasks.start(self._watch_disk())
        self.tasks.start(self.compactions.purge())

    async def stop(self) -> None:
        """Store all waiting events and a snapshot of every stream, so that the next start has nothing to replay.

        A disk that does not answer is not waited for longer than :data:`STOP_SECONDS`. What was acknowledged is on it.
        """
        self._is_stopping = True
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await self.tasks.end()
                if self._committer is not None:
                    if self.failure is None:
                        self.failure = NotReady.of("stopping")
                        for stream in self.streams.values():
                            self._committer.add(snapshots=[(stream.id, stream.snapshot())], epochs=stream.epochs)
                    await self._committer.close()
                if self.placement is not None:
                    await self.placement.stop()
        except TimeoutError:
            error = StalledDiskError(self.store.name, STOP_SECONDS)
            log.error("%s; what waits for it is given up", error)
            self.failure = NotReady.after(error)
            if self._committer is not None:
                self._committer.give_up(error)

    def begin_draining(self) -> None:
        """Let other nodes take the streams, while requests are still accepted."""
        if self.placement is not None and self.failure is None:
            self.placement.leave()

    async def _recover(self) -> None:
        """Rebuild all streams from the log on disk, in a thread, until that succeeds."""
        await asyncio.sleep(self._recovers_from - time.monotonic())
        while True:
            try:
                async with self.registry.changing:  # no stream is created meanwhile
                    if self._committer is not None:
                        await self._committer.close()
                    self._open(await asyncio.to_thread(self._read_store))
                return
            except Exception as error:  # after any error, the service must not continue with a wrong state
                self._note_failure(error)
            await asyncio.sleep(RETRY)

    def _read_store(self) -> Recovery:
        """Read all streams, in a thread; after a failure, only once the store is writable again."""
        if self._is_damaged:
            self._report_progress(NotReady.of("damaged"))
            self.store.repair()
            self._is_damaged = False
        if self._committer is not None:
            self.store.check_writable()
        if self.placement is not None:
            return self.placement.recover()
        return recover(self.store, self._report_progress)

    def _report_progress(self, progress: NotReady) -> None:
        if self._is_stopping:
            raise RuntimeError("the service is stopping")
        self.failure = progress

    def _open(self, recovery: Recovery) -> None:
        """Answer requests from now on."""
        self.rows, self.streams, self.unavailable, replays = recovery
        self._by_id, self._snapshots = {}, Snapshots(self._save_snapshot)
        committer = self._committer = Committer(self.store, self._note_commit, self.fail, self._note_fence)
        for stream in self.streams.values():
            self._by_id[stream.id] = stream
        for events in record_losses(self.store, recovery):
            committer.add(events)
        for name, stream in self.streams.items():
            self.install(stream, *replays[name])
        self.failure, self._last_error, self._recovers_from = None, "", time.monotonic() + REST
        self.recoveries += 1
        self.tasks.start(self.views.build_charts(list(self.streams.values())))
        if self.placement is not None:
            self.placement.open()
        if not self.store.is_checked and not self._is_checking:  # too large to be checked before the start
            self._is_checking = True
            self.tasks.start(check_store(self.store, self._note_check))
        fields = {"streams": len(self.streams), "unavailable": len(self.unavailable)}
        log.info("ready", extra={"fields": fields})

    def install(self, stream: Stream, number: int = 0, seconds: float = 0.0) -> None:
        """Serve a stream; ``number``: the event of its snapshot, ``seconds``: those that its replay took."""
        self.streams[stream.name] = self._by_id[stream.id] = stream
        self._snapshots.begin(stream, number, seconds)
        if self._snapshots.is_due(stream, START_SHARE):
            self.tasks.start(self._snapshots.take(stream))
        self.timeouts.begin(stream)

    def drop(self, row: StreamRow) -> None:
        """Serve a stream no longer: another node does. Requests that wait for it are told to try again."""
        if self.rows.get(row.name) is not row:
            return
        del self.rows[row.name]
        self.unavailable.pop(row.name, None)
        self.streams.pop(row.name, None)
        if (stream := self._by_id.pop(row.id, None)) is not None:
            stream.is_gone = True

    def _note_check(self, problems: list[str]) -> None:
        self._is_checking = False
        if problems:
            self.fail(DamageError(problems[0]))

    def fail(self, error: Exception) -> None:
        """Rebuild the streams: memory may differ from the disk."""
        self._is_damaged = self._is_damaged or is_damage(error)
        if self.failure is None:
            log.error("%s; rebuilding the streams from the log on disk", error)
            self.failure = NotReady.after(error)
            self.tasks.start(self._recover())

    def _note_failure(self, error: Exception) -> None:
        """Record why a recovery failed. It is retried every second; the same error is logged once."""
        self.failure = NotReady.after(error)
        if str(error) != self._last_error:
            fields = {"cause": self.failure.code, "store": self.store.name}
            log.error("not ready: %s", error, exc_info=fields["cause"] == "internal", extra={"fields": fields})
        self._last_error = str(error)

    def _stall(self) -> None:
        """Refuse requests until the disk answers."""
        error = StalledDiskError(self.store.name, STALL_SECONDS)
        if self._committer is not None:
            self._committer.give_up(error)
        self.fail(error)

    async def _watch_disk(self) -> None:
        """Check periodically whether a commit takes too long."""
        while True:
            await asyncio.sleep(STALL_TICK)
            if self.failure is None and self.backlog[1] > STALL_SECONDS:
                self._stall()

    def report_damage(self, error: Exception) -> None:
        """Schedule a check and repair of the store if ``error`` is a sign of damage. Thread-safe."""
        if is_damage(error):
            self.loop.call_soon_threadsafe(self.fail, error)

    @property
    def not_ready(self) -> NotReady | None:
        """Why a load balancer should send no requests; None if the service is ready."""
        self.check_in_place()
        if self.failure is None and self.placement is not None and self.placement.not_ready is not None:
            return self.placement.not_ready
        return NotReady.of("stopping") if self.is_draining and self.failure is None else self.failure

    @property
    def backlog(self) -> tuple[int, float]:
        """How many events wait for the disk, and for how many seconds the oldest of them, or a new stream, has."""
        seconds = self.registry.waiting_seconds
        committer = self._committer
        return (0, seconds) if committer is None else (committer.waiting, max(seconds, committer.oldest_wait))

    def refuse_if_not_ready(self) -> None:
        """Raise if no request is answered now."""
        if self.failure is not None:
            raise unavailable(self.failure)

    def check_in_place(self) -> None:
        """Fail if the store file was moved or removed. Every request calls this once."""
        if self.failure is None:
            try:
                self.store.check_in_place()
            except STORE_ERRORS as error:
                self.fail(error)

    # --- streams ---------------------------------------------------------------------------------------------------

    async def find(self, name: str) -> Stream:
        """Return a stream that is in service. In a cluster, load it if necessary, or raise if another node has it."""
        if self.placement is not None:
            self.refuse_if_not_ready()
            await self.placement.prepare(name)
        return self.stream(name)

    def stream(self, name: str) -> Stream:
        """Return a stream that is in service and in memory."""
        self.refuse_if_not_ready()
        if name in self.unavailable:
            if (reason := self.unavailable[name]) == REBUILDING:  # temporary
                raise Problem("unavailable", f"stream {name!r}: {reason}", retry_after=RETRY, cause="recovering")
            raise Problem("unrecovered", f"{reason}; run `windvane verify` for details")
        if name not in self.streams:
            raise unknown_stream(name)
        return self.streams[name]

    @contextlib.contextmanager
    def removing(self, row: StreamRow) -> Iterator[None]:
        """Serve a stream no longer, because it is removed. Events that wait to be stored are still stored.

        Until the end, the engine knows whose they are: if another node has taken the stream, they are not stored, and
        must not be acknowledged.
        """
        del self.rows[row.name]
        self.streams.pop(row.name, None)
        self.unavailable.pop(row.name, None)
        if (stream := self._by_id.get(row.id)) is not None:
            stream.is_removed = True
        try:
            yield
        finally:
            if self._by_id.get(row.id) is stream:  # else the shard was lost and taken again
                self._by_id.pop(row.id, None)

    # --- operations ------------------------------------------------------------------------------------------------

    async def carry_out(
        self, stream: Stream, operation: Callable[[], Done], *, size: float = 0, decision: str | None = None
    ) -> Done:
        """Execute an operation on ``stream``; its events are on disk when this returns. See :meth:`operate`."""
        try:
            done = await self.operate(stream, operation, size=size, decision=decision)
        except Problem as problem:
            if problem.status < 500:
                await self.commit(stream)  # also what it was refused for, such as another reward
            raise
        await self.commit(stream)
        return done

    async def operate(
        self, stream: Stream, operation: Callable[[], Done], *, size: float = 0, decision: str | None = None
    ) -> Done:
        """Execute an operation and hand its events over, without waiting for the disk.

        ``size``: bytes of the request, infinity if it takes long; ``decision``: the one that gets a reward, which may
        be due to be closed first.
        """
        await wait_while_held(stream)  # and change it before anything else is waited for
        if decision is not None:
            await self.timeouts.wait_for(stream, decision)
        done = await self.lookups.execute(stream, lambda: self._execute(stream, operation, size))
        if stream.has_backlog:
            self.timeouts.begin(stream)
        return done

    async def _execute(self, stream: Stream, operation: Callable[[], Done], size: float) -> Done:
        if is_slow(stream, size) or self.backlog[1] > SLOW_COMMIT_SECONDS:
            return await asyncio.shield(self.tasks.run_to_end(self._operate_in_thread(stream, operation)))
        with self.operating(stream):
            done = measure(stream, operation)
        self.hand_over(stream, done.events)
        return done

    async def _operate_in_thread(self, stream: Stream, operation: Callable[[], Done]) -> Done:
        await wait_while_held(stream)  # another request may have come first
        with hold(stream, changing=True):
            with self.operating(stream):
                done = await asyncio.to_thread(measure, stream, operation)
            self.hand_over(stream, done.events)
        return done

    @contextlib.contextmanager
    def operating(self, stream: Stream, began: float | None = None) -> Iterator[None]:
        """Surround an operation. If it fails, its events are discarded and the stream is rebuilt. ``began``: the
        ``time.perf_counter()`` of its start, if that was before."""
        self.refuse_if_replaced(stream)
        if (committer := self._committer) is not None and (
            committer.waiting >= MAX_WAITING or committer.waiting_bytes >= MAX_WAITING_BYTES
        ):
            raise Problem("unavailable", "the disk does not keep up; try again", cause="busy")
        began = time.perf_counter() if began is None else began
        try:
            yield
        except (Problem, EventsNotLoadedError):
            if events := stream.take_events():  # a rejected request may have closed decisions
                self.hand_over(stream, events)
            raise
        except Exception as error:
            log.exception("an operation on stream %r failed", stream.name)
            if isinstance(error, STORE_ERRORS):
                self.fail(error)
                raise unreadable(error) from None
            self._set_aside(stream)
            raise Problem("internal", "the operation failed; the server's log says why") from None
        self._snapshots.add_work(stream, time.perf_counter() - began)

    def _set_aside(self, stream: Stream) -> None:
        """Rebuild a stream whose operation failed: its memory may be ahead of its log. The others are not affected."""
        if self.streams.get(stream.name) is not stream:  # it was in a thread while all streams were rebuilt
            return
        self.unavailable[stream.name] = REBUILDING
        del self.streams[stream.name]
        self.tasks.start(self._rebuild(stream))

    async def _rebuild(self, stream: Stream) -> None:
        assert self._committer is not None  # the stream was served
        name, promise = stream.name, self._committer.add()
        try:
            await self._wait_for(promise)  # until all events of the stream are on disk
            rebuilt = await asyncio.to_thread(rebuild_stream, stream.row, self.store)
            snapshot = await asyncio.to_thread(self.store.read_snapshot_number, stream.id)
        except STORE_ERRORS as error:  # of the disk: all streams are rebuilt when it can be read again
            self.fail(error)
            return
        except Exception as error:
            log.error("stream %r is not served: %s", name, error)
            if self._by_id.get(stream.id) is stream and not stream.is_removed:
                self.unavailable[name] = str(error)
            return
        is_current = self._by_id.get(stream.id) is stream and not stream.is_removed
        if self.failure is None and is_current:  # else all streams were rebuilt meanwhile
            rebuilt.epochs = stream.epochs
            self.install(rebuilt, snapshot)
            del self.unavailable[name]

    def hand_over(self, stream: Stream, events: Sequence[Event], erasures: Sequence[Erasure] = ()) -> Promise:
        """Hand the events of an operation to the committer, right after it: their order is that of the log."""
        self.refuse_if_replaced(stream)
        assert self._committer is not None  # a stream is served
        promise = self._committer.add(events, erasures=erasures, epochs=stream.epochs)
        if erasures:
            self._snapshots.begin(stream, erasures[-1].baseline.snapshot.number)
        # Without events, the caller may be a request that waits while a thread changes the stream, or while the stream
        # is ahead of what was handed over: a snapshot would be torn, or of an event that may never be stored.
        if events and self._snapshots.is_due(stream):
            self.tasks.start(self._snapshots.take(stream))
        return promise

    async def commit(self, stream: Stream, events: Sequence[Event] = ()) -> None:
        """Hand ``events`` over, and wait until they and all before them are on disk."""
        await self._wait_for(self.hand_over(stream, events))
        if stream.is_gone:
            raise Problem("unavailable", TAKEN_OVER, cause="moving")

    async def _wait_for(self, promise: Promise) -> None:
        try:
            await asyncio.shield(promise)
        except Exception:
            cause = "recovering" if self.failure is None else self.failure.code
            raise Problem("unavailable", WRITE_FAILED, cause=cause) from None

    def refuse_if_replaced(self, stream: Stream) -> None:
        """Raise if the streams were rebuilt since the request began: its events do not continue the log."""
        self.refuse_if_not_ready()
        if stream.is_gone:
            raise Problem("unavailable", TAKEN_OVER, cause="moving")
        if stream.is_removed:  # one that is merely not here may be served by another node
            raise unknown_stream(stream.name)
        if self.streams.get(stream.name) is not stream:
            raise Problem("unavailable", WRITE_FAILED, cause="recovering")

    def _note_commit(self, events: list[Event], seconds: float) -> None:
        for id_, number in {event.stream: event.number for event in events}.items():
            if (stream := self._by_id.get(id_)) is not None:  # else it was removed
                stream.lookup.forget(number)
        self._count_commit(len(events), seconds)

    def _note_fence(self, epochs: Mapping[int, int]) -> None:
        """Drop streams that another node has taken: their last events were not stored."""
        assert self.placement is not None
        known = ((self._by_id.get(id_), epoch) for id_, epoch in epochs.items())
        streams = [stream for stream, epoch in known if stream is not None and stream.epochs.get(stream.id) == epoch]
        for stream in streams:
            stream.is_gone = True  # also one that is being removed
        self.placement.note_fence({stream.name: epochs[stream.id] for stream in streams})

    def _save_snapshot(self, stream: Stream, snapshot: Snapshot) -> None:
        """Store a snapshot, unless streams were rebuilt while it was made: its events may not be those on disk."""
        if self.failure is None and self.streams.get(stream.name) is stream and self._committer is not None:
            self.snapshots += 1
            self._committer.add(snapshots=[(stream.id, snapshot)], epochs=stream.epochs)

    async def save_snapshot(self, stream: Stream) -> None:
        """Make a snapshot of ``stream`` if it has changed since the last one, and hand it over."""
        await wait_while_held(stream)
        if self.streams.get(stream.name) is stream and self._snapshots.is_changed(stream):
            await self._snapshots.take(stream)

    async def flush(self) -> None:
        """Wait until all events that were handed over are stored."""
        if self._committer is not None:
            await self._wait_for(self._committer.add())

    # --- in the background -----------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """Check timeouts, retention, alerts and the store file periodically."""
        while True:
            await asyncio.sleep(TICK)
            if self.failure is not None:
                continue
            self.check_in_place()
            for stream in list(self.streams.values()):
                try:
                    self.timeouts.begin(stream)
                    self.compactions.begin(stream)
                    stream.log_alerts()
                    await self.views.sample_model(stream)
                except Exception:  # the other streams continue
                    log.exception("stream %r: its timeouts or alerts cannot be checked", stream.name)
