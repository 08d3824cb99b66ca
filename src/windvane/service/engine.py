"""The engine: all streams in memory, the store behind them, and the rules that keep the two equal.

An operation changes its stream, hands its events to the committer, and waits until they are on disk. If a commit or an
operation fails, memory is ahead of the disk: no request is answered until all streams are rebuilt from the log on disk.
The old streams are replaced then, and changes to an old stream are no longer stored.

A stream is used by one thread at a time. A thread rebuilds all streams before the event loop gets them. Long work runs
in a thread, on copies (snapshots, charts) or while the stream is held (bulk history, large bodies, operations that took
long before; see :mod:`windvane.service.turns`). Requests that change a held stream wait; other streams are not
affected. Decisions that time out together are closed in slices, with other requests in between.

The engine abandons a commit that takes longer than :data:`STALL_SECONDS`: requests are rejected at once until the disk
responds. Then the streams are rebuilt, because the commit may or may not have become durable.

In a cluster, an engine serves the streams of the shards that its node owns (:mod:`windvane.service.cluster.placement`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator

from windvane.errors import ArgumentError
from windvane.service.cluster.placement import NodeSettings, Placement
from windvane.service.compaction import Compactions
from windvane.service.event_lookup import BulkLookup
from windvane.service.journal import WRITE_FAILED, Journal
from windvane.service.operations import REBUILDING, Operations
from windvane.service.problems import Problem, TakenOverError
from windvane.service.readiness import NotReady, StalledDiskError, unavailable
from windvane.service.recovery import Recovery, check_store, record_losses, recover
from windvane.service.recovery_pauses import RecoveryPauses
from windvane.service.registry import Registry, unknown_stream
from windvane.service.store import STORE_ERRORS, DamageError, ServedStore, StreamRow, is_damage
from windvane.service.streams import Stream
from windvane.service.tasks import Tasks
from windvane.service.timeouts import Timeouts
from windvane.service.turns import Turnstile
from windvane.service.used_keys import UsedKeys, read_stored_keys
from windvane.service.views import Views

STALL_SECONDS = 3.0  # limit of a commit; a flush takes milliseconds, on a busy disk tenths of a second
STOP_SECONDS = 10.0  # limit of a stop; writing snapshots of 1,000 streams takes less than a second
STALL_TICK = 0.25  # seconds between checks of the running commit
TICK = 1.0  # seconds between checks of timeouts, retention and alerts
RETRY = 1.0  # seconds between attempts to recover

log = logging.getLogger("windvane.service")


class Engine:
    """All streams of ``store``. ``count_commit`` is called with the number of events of every commit and the seconds it
    took.

    ``rows`` contains all streams, by name; ``streams`` those in service; ``by_id`` also those that are being rebuilt or
    removed. ``unavailable`` says why the others could not be rebuilt, and ``failure`` why no request is answered now.
    While the service drains, it answers requests but is not ready. ``most_streams``: the largest number of streams.
    """

    def __init__(
        self,
        store: ServedStore,
        count_commit: Callable[[int, float], None] = lambda *_: None,
        most_streams: int | None = None,
        node: NodeSettings | None = None,
    ) -> None:
        self.store = store
        self.registry = Registry(self, most_streams)
        self.placement: Placement | None = None
        if node is not None:
            if store.cluster is None:
                raise ArgumentError("node", node, "left out: the store is a file, which only one server can use")
            self.placement = Placement(self, store.cluster, node)
        self.lookups = BulkLookup(store)
        self.rows: dict[str, StreamRow] = {}
        self.streams: dict[str, Stream] = {}
        self.unavailable: dict[str, str] = {}
        self.failure: NotReady | None = NotReady.of("starting")
        self.is_draining = self.is_closing = False  # is_closing: long operations are abandoned
        self.recoveries = 0  # how often all streams were rebuilt
        self.by_id: dict[int, Stream] = {}
        self.journal, self.operations = Journal(self, count_commit), Operations(self)
        self.views, self.timeouts, self.turnstile, self.tasks = Views(self), Timeouts(self), Turnstile(), Tasks()
        self.compactions = Compactions(self)
        self._is_damaged = self._is_checking = self._is_stopping = False
        self.recovery_pauses = RecoveryPauses()
        self._last_error = ""  # of the last recovery
        self._has_recovered = asyncio.Event()  # or failed to: set once
        self._is_in_place = False  # the store, in this turn of the event loop
        self._used_keys: UsedKeys | None = None

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

        It waits at most :data:`STOP_SECONDS` for a disk that does not respond. Everything acknowledged is on disk.
        """
        self._is_stopping = True
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await self.tasks.end()
                if self.journal.has_begun and self.failure is None:
                    self.failure = NotReady.of("stopping")
                    self.journal.hand_over_all(self.streams.values())
                await self.journal.close()
                if self.placement is not None:
                    await self.placement.stop()
        except TimeoutError:
            error = StalledDiskError(self.store.name, STOP_SECONDS)
            log.error("%s; stopping without the events that wait for it", error)
            self.failure = NotReady.after(error)
            self.journal.give_up(error)

    def begin_draining(self) -> None:
        """Let other nodes take the streams, while requests are still accepted."""
        if self.placement is not None and self.failure is None:
            self.placement.drain()

    @property
    def is_handed_over(self) -> bool:
        """Whether nothing is left to wait for after :meth:`begin_draining`."""
        return self.placement is None or self.failure is not None or self.placement.is_handed_over

    async def wait_until_open(self, seconds: float) -> None:
        """Wait until the first recovery has succeeded or failed, but not longer than ``seconds``."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._has_recovered.wait()

    async def _recover(self) -> None:
        """Rebuild all streams from the log on disk, in a thread, until that succeeds."""
        await self.recovery_pauses.wait()
        while True:
            try:
                async with self.registry.changing:  # no stream is created meanwhile
                    await self.journal.close()
                    self._open(await asyncio.to_thread(self._read_store))
                return
            except Exception as error:  # after any error, the service must not continue with a wrong state
                self._note_failure(error)
                if self.placement is not None:
                    self.placement.note_failed_recovery()
            await asyncio.sleep(RETRY)

    def _read_store(self) -> Recovery:
        """Read all streams, in a thread; after a failure, only once the store is writable again."""
        if self._is_damaged:
            self._report_progress(NotReady.of("damaged"))
            self.store.repair()
            self._is_damaged = False
        if self.journal.has_begun:
            self.store.check_writable()
        if self.placement is not None:
            return self.placement.recover()
        return recover(self.store, self._report_progress)

    def _report_progress(self, progress: NotReady) -> None:
        if self._is_stopping:
            raise RuntimeError("the service is stopping")
        self.failure = progress

    def _open(self, recovery: Recovery) -> None:
        """Start to answer requests."""
        self.rows, self.streams, self.unavailable, replays = recovery
        self.by_id = {stream.id: stream for stream in self.streams.values()}
        self.journal.begin(record_losses(self.store, recovery))
        self._begin_reading_keys()
        for name, stream in self.streams.items():
            self.install(stream, replays[name])
        self.failure, self._last_error = None, ""
        self._has_recovered.set()
        self.recoveries += 1
        self.recovery_pauses.begin()
        self.tasks.start(self.views.build_charts(list(self.streams.values())))
        if self.placement is not None:
            self.placement.open()
        if not self.store.is_checked and not self._is_checking:  # too large to be checked before the start
            self._is_checking = True
            self.tasks.start(check_store(self.store, self._note_check))
        fields = {"streams": len(self.rows), "unavailable": len(self.unavailable)}
        if self.placement is not None:
            fields["shards"] = len(self.placement.epochs)
        log.info("ready", extra={"fields": fields})

    def install(self, stream: Stream, seconds: float = 0.0) -> None:
        """Start to serve a stream, whose replay took ``seconds``."""
        self.streams[stream.name] = self.by_id[stream.id] = stream
        if self._used_keys is not None:
            stream.lookup.know_keys(self._used_keys)
        self.journal.begin_stream(stream, seconds)
        self.timeouts.begin(stream)

    def _begin_reading_keys(self) -> None:
        """Learn which keys were used, of a file, so that new ones need not be looked up."""
        if self.store.keys is not None:
            self._used_keys = UsedKeys()
            for stream in self.by_id.values():
                stream.lookup.know_keys(self._used_keys)
            self.tasks.start(read_stored_keys(self._used_keys, self.store.keys, lambda: self.is_closing))

    def drop(self, row: StreamRow) -> None:
        """Stop serving a stream that another node has taken over. Waiting requests get 503."""
        if self.rows.get(row.name) is not row:
            return
        del self.rows[row.name]
        self.unavailable.pop(row.name, None)
        self.streams.pop(row.name, None)
        if (stream := self.by_id.pop(row.id, None)) is not None:
            stream.is_taken_over = True

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
        self._has_recovered.set()

    def _stall(self) -> None:
        """Refuse requests until the disk answers."""
        error = StalledDiskError(self.store.name, STALL_SECONDS)
        self.journal.give_up(error)
        if self.placement is not None:
            self.placement.step_down()
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
        events, seconds = self.journal.backlog
        return events, max(seconds, self.registry.waiting_seconds)

    def refuse_if_not_ready(self) -> None:
        """Raise if no request is answered now."""
        if self.failure is not None:
            raise unavailable(self.failure)

    def refuse_if_replaced(self, stream: Stream) -> None:
        """Raise if the streams were rebuilt since the request began: its events do not continue the log."""
        self.refuse_if_not_ready()
        if stream.is_taken_over:
            raise TakenOverError
        if stream.is_removed:  # a stream that is only missing here may be served by another node
            raise unknown_stream(stream.name)
        if self.streams.get(stream.name) is not stream:
            raise Problem("unavailable", WRITE_FAILED, cause="recovering")

    def check_in_place(self) -> None:
        """Fail if the store file was moved or removed. Every request calls this once; the first in a turn of the event
        loop looks."""
        if self.failure is None and not self._is_in_place:
            try:
                self.store.check_in_place()
            except STORE_ERRORS as error:
                self.fail(error)
            else:
                self._is_in_place = True
                self.loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        self._is_in_place = False

    # --- streams ---------------------------------------------------------------------------------------------------

    async def find(self, name: str) -> Stream:
        """Return a stream in service. In a cluster, load it if necessary, and raise if another node serves it."""
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
        """Stop serving a stream that is being removed in the block. Its waiting events are still stored.

        The engine keeps the stream in ``by_id`` until the end of the block: if another node has taken the stream over,
        these events are not stored and must not be acknowledged.
        """
        del self.rows[row.name]
        self.streams.pop(row.name, None)
        self.unavailable.pop(row.name, None)
        if (stream := self.by_id.get(row.id)) is not None:
            stream.is_removed = True
        try:
            yield
        finally:
            if self.by_id.get(row.id) is stream:  # otherwise the shard was lost and taken again
                self.by_id.pop(row.id, None)

    # --- in the background -----------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """Check timeouts, retention, alerts, snapshots and the store file periodically."""
        while True:
            await asyncio.sleep(TICK)
            if self.failure is not None:
                continue
            self.check_in_place()
            if self._used_keys is not None and self._used_keys.is_full:
                self._begin_reading_keys()
            for stream in list(self.streams.values()):
                try:
                    self.timeouts.begin(stream)
                    self.compactions.begin(stream)
                    stream.log_alerts()
                    await self.views.sample_model(stream)
                    self.journal.save_snapshot_at_rest(stream)
                except Exception:  # the other streams continue
                    log.exception("the timeouts or alerts of stream %r cannot be checked", stream.name)
