"""Group commit: while one transaction is flushed to disk, requests gather for the next.

A request waits for the flush of its events, so nothing is acknowledged before it is durable; one flush serves all
requests that gathered meanwhile. Events are stored in the order in which they were added. After a failed commit nothing
more is stored: memory is ahead of the disk, and its owner must rebuild it from the disk. In a cluster, another node may
have taken some of the streams: only their events are not stored.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from windvane.service.promises import Promise
from windvane.service.store import Erasure, Event, EventStore, FencedError, Snapshot
from windvane.service.store.protocol import NO_EPOCHS

NO_EPOCH = -1  # of a stream that was written without one


class _Batch:
    """What is committed together."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.snapshots: list[tuple[int, Snapshot]] = []
        self.epochs: dict[int, int] = {}  # by stream, the latest
        self.fenced: dict[int, int] = {}  # streams that another node has taken, with the epochs that are over
        self.erasures: list[Erasure] = []
        self.promise: Promise | None = None  # once a request waits for it
        self.since = 0.0  # when its first event was added

    def enter(self, stream: int, epoch: int) -> list[Event]:
        """Note the epoch of what is added next. If the stream was lost and taken again since, what it had before can no
        longer be stored: return it."""
        if self.epochs.setdefault(stream, epoch) == epoch:
            return []
        self.epochs[stream] = epoch
        return self._remove({stream})

    def omit(self, streams: Collection[int]) -> None:
        """Store nothing of ``streams``, whose epochs are over."""
        self.fenced |= {stream: self.epochs.get(stream, NO_EPOCH) for stream in streams}
        self._remove(streams)

    def _remove(self, streams: Collection[int]) -> list[Event]:
        removed = [event for event in self.events if event.stream in streams]
        self.events = [event for event in self.events if event.stream not in streams]
        self.snapshots = [(stream, snapshot) for stream, snapshot in self.snapshots if stream not in streams]
        self.erasures = [erasure for erasure in self.erasures if erasure.stream not in streams]
        return removed


class Committer:
    """Writes to ``store`` in its own thread; everything else happens in the thread of the event loop.

    ``on_commit`` is called with the events of every commit and the seconds that it took, ``on_failure`` with the error
    of the one that failed, ``on_fence`` with the streams that another node has taken and the epochs that are over,
    before their promises are kept.
    """

    def __init__(
        self,
        store: EventStore,
        on_commit: Callable[[list[Event], float], None],
        on_failure: Callable[[Exception], None],
        on_fence: Callable[[Mapping[int, int]], None] = lambda _: None,
    ) -> None:
        self._store, self._on_commit, self._on_failure, self._on_fence = store, on_commit, on_failure, on_fence
        self._loop, self._idle, self._ended = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
        self._idle.set()
        self._batch = _Batch()
        self._writing: _Batch | None = None
        self._queue = queue.SimpleQueue[_Batch | None]()
        self._thread = threading.Thread(target=self._write, name="windvane-committer", daemon=True)
        self._thread.start()
        self._failure: Exception | None = None
        self.waiting = self.waiting_bytes = 0  # events that are not on disk yet

    @property
    def oldest_wait(self) -> float:
        """The seconds for which the oldest event has been waiting for the disk; 0 if none waits."""
        oldest = self._writing or self._batch
        return time.monotonic() - oldest.since if oldest.since else 0.0

    def add(
        self,
        events: Sequence[Event] = (),
        snapshots: Sequence[tuple[int, Snapshot]] = (),
        erasures: Sequence[Erasure] = (),
        epochs: Mapping[int, int] = NO_EPOCHS,
    ) -> Promise:
        """Return a promise that is kept when ``events`` and all events before them are on disk.

        ``epochs``: by stream, the epoch of its shard, in a cluster.
        """
        batch = self._batch
        if batch.promise is None:
            batch.promise = Promise()
        if self._failure is not None:
            _break(batch, self._failure)
            return batch.promise
        if not batch.since and (events or snapshots or erasures):
            batch.since = time.monotonic()
        for stream, epoch in epochs.items():
            self._count(batch.enter(stream, epoch), -1)
        batch.events += events
        batch.snapshots += snapshots
        batch.erasures += erasures
        self._count(events, 1)
        if self._idle.is_set():
            self._idle.clear()
            self._loop.call_soon(self._submit)  # together with everything added in this iteration of the loop
        return batch.promise

    def give_up(self, error: Exception) -> None:
        """Break all promises and store nothing more. A commit that is under way may still become durable, and counts as
        waiting until it ends."""
        self._failure = error
        if self._writing is not None:
            _break(self._writing, error)
        _break(self._batch, error)
        self._count(self._batch.events, -1)
        self._batch = _Batch()

    async def close(self) -> None:
        """Write what was added, then end; from now on nothing is stored."""
        while not self._idle.is_set():  # more may be added before this task continues
            await self._idle.wait()
        self._failure = self._failure or RuntimeError("the committer is closed")
        self._queue.put(None)
        await self._ended.wait()
        self._thread.join()  # it has nothing left to do

    def _count(self, events: Sequence[Event], sign: int) -> None:
        for event in events:
            self.waiting += sign
            self.waiting_bytes += sign * event.size

    def _submit(self) -> None:
        batch, self._batch = self._batch, _Batch()
        if batch.promise is None or self._failure is not None:
            self._idle.set()
        elif batch.events or batch.snapshots or batch.erasures:
            self._writing = batch
            self._queue.put(batch)
        else:  # nothing to store: the promise is for earlier events
            batch.promise.keep()
            self._submit()

    def _write(self) -> None:
        """Write batches, in the committer's thread."""
        while (batch := self._queue.get()) is not None:
            error, began, waiting = None, time.perf_counter(), list(batch.events)
            try:
                self._append(batch)
            except Exception as raised:
                error = raised
            seconds = time.perf_counter() - began
            self._call(self._finish, batch, waiting, seconds, error)
        self._call(self._ended.set)

    def _append(self, batch: _Batch) -> None:
        while batch.events or batch.snapshots or batch.erasures:
            try:
                return self._store.append(batch.events, batch.snapshots, batch.erasures, batch.epochs)
            except FencedError as fenced:
                batch.omit(fenced.streams)

    def _call(self, function: Callable[..., None], *arguments: Any) -> None:
        """Call a function in the thread of the event loop."""
        with contextlib.suppress(RuntimeError):  # the loop was closed without waiting for the committer
            self._loop.call_soon_threadsafe(function, *arguments)

    def _finish(self, batch: _Batch, waiting: list[Event], seconds: float, error: Exception | None) -> None:
        """Keep the promise of a batch, or break it and all that follow."""
        self._writing = None
        self._count(waiting, -1)
        if error is None:
            try:
                if batch.fenced:
                    self._on_fence(batch.fenced)
                self._on_commit(batch.events, seconds)
            except Exception as raised:
                error = raised
        if self._failure is not None:  # it was given up: no request waits for it
            self._idle.set()
            return
        if error is not None:
            _break(batch, error)
            self.give_up(error)
            self._idle.set()
            self._on_failure(error)
            return
        assert batch.promise is not None
        batch.promise.keep()
        self._submit()


def _break(batch: _Batch, error: Exception) -> None:
    if batch.promise is not None:
        batch.promise.break_(error)
