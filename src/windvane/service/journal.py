"""Pass the events and snapshots of an engine's streams to the store, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from windvane.service.committer import Committer
from windvane.service.problems import Problem, TakenOverError
from windvane.service.promises import Promise
from windvane.service.snapshots import START_SHARE, Snapshots
from windvane.service.store import Erasure, Event, Snapshot
from windvane.service.streams import Stream
from windvane.service.turns import wait_while_held

if TYPE_CHECKING:
    from windvane.service.engine import Engine

MAX_WAITING, MAX_WAITING_BYTES = 5000, 64 << 20  # events that may wait for the disk
WRITE_FAILED = "the store could not be written; retry with the same Idempotency-Key"


class Journal:
    """Passes events and snapshots to the store of ``engine``, through a committer that each recovery replaces.

    ``count_commit`` is called with the number of events of every commit and the seconds it took. ``snapshots`` is the
    number of snapshots made.
    """

    def __init__(self, engine: Engine, count_commit: Callable[[int, float], None]) -> None:
        self._engine, self._count_commit = engine, count_commit
        self._committer: Committer | None = None
        self._snapshots = Snapshots(self._save_snapshot)
        self.snapshots = 0

    # --- beginning and ending ---------------------------------------------------------------------------------------

    @property
    def has_begun(self) -> bool:
        """Whether the journal has accepted events at least once, now or before the last failure."""
        return self._committer is not None

    def begin(self, losses: Iterable[Sequence[Event]]) -> None:
        """Start to accept events and snapshots. First store the events that record ``losses``."""
        self._snapshots = Snapshots(self._save_snapshot)
        self._committer = Committer(self._engine.store, self._note_commit, self._engine.fail, self._note_fence)
        for events in losses:
            self._committer.add(events)

    def begin_stream(self, stream: Stream, seconds: float) -> None:
        """Start to make snapshots of a stream, whose replay took ``seconds``."""
        self._snapshots.begin(stream, stream.restored, seconds)
        if self._snapshots.is_due(stream, START_SHARE):
            self._engine.tasks.start(self._snapshots.take(stream))

    async def close(self) -> None:
        """Store everything that was handed over, and accept no more."""
        if self._committer is not None:
            await self._committer.close()

    def give_up(self, error: Exception) -> None:
        """Store nothing more, and fail everything that waits for the store."""
        if self._committer is not None:
            self._committer.give_up(error)

    # --- handing over -----------------------------------------------------------------------------------------------

    @property
    def backlog(self) -> tuple[int, float]:
        """The number of events that wait for the disk, and for how many seconds the oldest has waited."""
        return (0, 0.0) if self._committer is None else (self._committer.waiting, self._committer.oldest_wait)

    def refuse_if_full(self) -> None:
        """Raise if too many events wait for the disk."""
        if (committer := self._committer) is not None and (
            committer.waiting >= MAX_WAITING or committer.waiting_bytes >= MAX_WAITING_BYTES
        ):
            raise Problem("unavailable", "the disk does not keep up; try again", cause="busy")

    def hand_over(self, stream: Stream, events: Sequence[Event], erasures: Sequence[Erasure] = ()) -> Promise:
        """Hand the events of an operation to the committer, immediately after it, so that the log keeps their order."""
        self._engine.refuse_if_replaced(stream)
        assert self._committer is not None  # a stream is served
        promise = self._committer.add(events, erasures=erasures, epochs=stream.epochs)
        if erasures:
            self._snapshots.begin(stream, erasures[-1].baseline.snapshot.number)
        # A caller without events may be a request that waits while a thread changes the stream, or while the stream is
        # ahead of what was handed over. A snapshot taken then would be inconsistent, or of events never stored.
        if events and self._snapshots.is_due(stream):
            self._engine.tasks.start(self._snapshots.take(stream))
        return promise

    async def commit(self, stream: Stream, events: Sequence[Event] = ()) -> None:
        """Hand ``events`` over, and wait until they and all earlier ones are on disk."""
        await self.wait_for(stream, self.hand_over(stream, events))

    async def wait_for(self, stream: Stream, stored: Promise) -> None:
        """Wait until the events of an operation on ``stream`` and all earlier ones are on disk."""
        await self._wait(stored)
        if stream.is_taken_over:
            raise TakenOverError

    async def flush(self) -> None:
        """Wait until all events that were handed over are stored."""
        if self._committer is not None:
            await self._wait(self._committer.add())

    async def _wait(self, promise: Promise) -> None:
        try:
            await promise
        except Exception:
            failure = self._engine.failure
            cause = "recovering" if failure is None else failure.code
            raise Problem("unavailable", WRITE_FAILED, cause=cause) from None

    def _note_commit(self, events: list[Event], seconds: float) -> None:
        for id_, number in {event.stream: event.number for event in events}.items():
            if (stream := self._engine.by_id.get(id_)) is not None:  # otherwise the stream was removed
                stream.lookup.forget(number)
        if events:
            self._engine.recovery_pauses.note_events()
        self._count_commit(len(events), seconds)

    def _note_fence(self, epochs: Mapping[int, int]) -> None:
        """Drop streams that another node has taken over, and whose last events were therefore not stored."""
        placement, by_id = self._engine.placement, self._engine.by_id
        assert placement is not None
        known = ((by_id.get(id_), epoch) for id_, epoch in epochs.items())
        streams = [stream for stream, epoch in known if stream is not None and stream.epochs.get(stream.id) == epoch]
        for stream in streams:
            stream.is_taken_over = True  # including streams that are being removed
        placement.note_fence({stream.name: epochs[stream.id] for stream in streams})

    # --- snapshots --------------------------------------------------------------------------------------------------

    def add_work(self, stream: Stream, seconds: float) -> None:
        """Record that an operation took ``seconds``: a replay would take as long."""
        self._snapshots.add_work(stream, seconds)

    def save_snapshot_at_rest(self, stream: Stream) -> None:
        """Begin a snapshot of a stream that has no events lately, if a replay would take long. Call it regularly."""
        is_served = self._engine.failure is None and self._engine.streams.get(stream.name) is stream
        if is_served and stream.busy is None and self._snapshots.is_due_at_rest(stream):
            self._engine.tasks.start(self._snapshots.take(stream))

    def hand_over_all(self, streams: Iterable[Stream]) -> None:
        """Hand over a snapshot of every stream, made now."""
        assert self._committer is not None  # streams are served
        for stream in streams:
            self._committer.add(snapshots=[(stream.id, stream.snapshot())], epochs=stream.epochs)

    async def save_snapshot(self, stream: Stream) -> None:
        """Make a snapshot of ``stream`` if it has changed since the last one, and hand it over."""
        await wait_while_held(stream)
        if self._engine.streams.get(stream.name) is stream and self._snapshots.is_changed(stream):
            await self._snapshots.take(stream)

    def _save_snapshot(self, stream: Stream, snapshot: Snapshot) -> None:
        """Store a snapshot, unless the streams were rebuilt while it was made: it may not match the events on disk."""
        engine = self._engine
        if engine.failure is None and engine.streams.get(stream.name) is stream and self._committer is not None:
            self.snapshots += 1
            self._committer.add(snapshots=[(stream.id, snapshot)], epochs=stream.epochs)
