"""Group commit: while one transaction is flushed to disk, requests gather for the next.

A request waits for the flush of its events, so nothing is acknowledged before it is durable; one flush serves all that
gathered meanwhile. Events are stored in the order in which they were added. After a failed commit nothing more is
stored: memory is ahead of the disk, and whoever owns it must go back to what is on disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from windvane.service.store import Event, Snapshot, Store

Promise = asyncio.Future[None]


class _Batch:
    """What is committed together."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.snapshots: list[tuple[int, Snapshot]] = []
        self.promise: Promise | None = None  # once somebody waits for it


class Committer:
    """Writes to ``store`` in a thread of its own; everything else happens in the thread of the event loop.

    ``on_commit`` is called with the events of every commit, ``on_failure`` with the error of the one that failed.
    """

    def __init__(
        self, store: Store, on_commit: Callable[[list[Event]], None], on_failure: Callable[[Exception], None]
    ) -> None:
        self._store, self._on_commit, self._on_failure = store, on_commit, on_failure
        self._thread, self._loop = ThreadPoolExecutor(1, "windvane-committer"), asyncio.get_running_loop()
        self._batch = _Batch()
        self._task: asyncio.Task[None] | None = None
        self._failure: Exception | None = None
        self.waiting = 0  # events that are not on disk yet

    def add(self, events: Sequence[Event] = (), snapshots: Sequence[tuple[int, Snapshot]] = ()) -> Promise:
        """Return a promise that is kept when ``events`` and all events before them are on disk."""
        batch = self._batch
        if batch.promise is None:
            batch.promise = self._loop.create_future()
        if self._failure is not None:
            _break(batch, self._failure)
            return batch.promise
        batch.events += events
        batch.snapshots += snapshots
        self.waiting += len(events)
        if self._task is None:
            self._task = self._loop.create_task(self._write())
        return batch.promise

    async def close(self) -> None:
        """Write what was added, then end."""
        if self._task is not None:
            await self._task
        self._thread.shutdown()

    async def _write(self) -> None:
        while (promise := self._batch.promise) is not None:
            batch, self._batch = self._batch, _Batch()
            try:
                if batch.events or batch.snapshots:
                    await self._loop.run_in_executor(self._thread, self._store.append, batch.events, batch.snapshots)
                    self._on_commit(batch.events)
            except Exception as error:
                self._failure = error
                for lost in (batch, self._batch):
                    _break(lost, error)
                self._on_failure(error)
                return
            self.waiting -= len(batch.events)
            promise.set_result(None)
        self._task = None


def _break(batch: _Batch, error: Exception) -> None:
    if batch.promise is not None and not batch.promise.done():
        batch.promise.set_exception(error)
        batch.promise.exception()  # or asyncio complains if nobody waits for it
