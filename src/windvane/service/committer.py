"""Group commit: while one transaction is being flushed to disk, requests gather for the next.

A request waits for the flush of what it wrote, so nothing is acknowledged before it is durable; but one flush serves
all that gathered in the meantime. The order of events is that in which they were handed over. After a failed commit
nothing more is taken: what was handed over since is not on disk, and whoever owns the state must go back to what is.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Sequence

from windvane.service.store import Event, Snapshot, Store

Promise = asyncio.Future[None]


class _Batch:
    """What is committed together, and the promise that its requests wait for."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.snapshots: list[tuple[int, Snapshot]] = []
        self.promise: Promise | None = None


class Committer:
    """A thread that writes to ``store``; the rest is called in the thread of the event loop.

    ``committed`` is told the number of events of every commit, ``failed`` the error of the one that failed.
    """

    def __init__(self, store: Store, committed: Callable[[int], None], failed: Callable[[Exception], None]) -> None:
        self._store, self._committed, self._failed = store, committed, failed
        self._loop = asyncio.get_running_loop()
        self._gathering, self._closing = _Batch(), False
        self._failure: Exception | None = None
        self.waiting = 0  # events that are not on disk yet
        self._wake = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="windvane-committer", daemon=True)
        self._thread.start()

    def add(self, events: Sequence[Event] = (), snapshot: tuple[int, Snapshot] | None = None) -> Promise:
        """Hand over ``events``; the promise is kept when they, and all before them, are on disk."""
        with self._wake:
            if self._failure is not None:
                refused = self._promise()
                refused.set_exception(self._failure)
                return refused
            batch = self._gathering
            if batch.promise is None:
                batch.promise = self._promise()
            batch.events.extend(events)
            self.waiting += len(events)
            if snapshot is not None:
                batch.snapshots.append(snapshot)
            self._wake.notify()
            return batch.promise

    def _promise(self) -> Promise:
        promise: Promise = self._loop.create_future()
        promise.add_done_callback(_seen)
        return promise

    def close(self) -> None:
        """Write what was handed over, then end."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._wake:
                while self._gathering.promise is None and not self._closing:
                    self._wake.wait()
                if self._gathering.promise is None:
                    return
                batch, self._gathering = self._gathering, _Batch()
            try:
                if batch.events or batch.snapshots:
                    self._store.append(batch.events, batch.snapshots)
            except Exception as error:
                with self._wake:
                    self._failure = error
                    late, self._gathering = self._gathering, _Batch()
                self._tell(self._break, error, batch, late)
                return
            self._tell(self._keep, batch)

    def _tell(self, what: Callable[..., None], *arguments: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(what, *arguments)

    def _keep(self, batch: _Batch) -> None:
        assert batch.promise is not None  # that is why it was committed
        self.waiting -= len(batch.events)
        if not batch.promise.done():
            batch.promise.set_result(None)
        if batch.events or batch.snapshots:
            self._committed(len(batch.events))

    def _break(self, error: Exception, *batches: _Batch) -> None:
        for batch in batches:
            if batch.promise is not None and not batch.promise.done():
                batch.promise.set_exception(error)
        self._failed(error)


def _seen(promise: Promise) -> None:
    """Look at the outcome, so that asyncio does not complain where nobody waited for it."""
    if not promise.cancelled():
        promise.exception()
