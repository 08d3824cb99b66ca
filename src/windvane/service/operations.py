"""Execute operations on streams: one at a time on each stream, long ones in threads.

If an operation fails, its events are discarded and its stream is rebuilt; the others are not affected.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from windvane.agent.times import read_clock
from windvane.service.event_lookup import EventsNotLoadedError
from windvane.service.problems import MovedError, Problem, TakenOverError
from windvane.service.promises import Promise
from windvane.service.readiness import refuse_read
from windvane.service.recovery import rebuild_stream
from windvane.service.store import STORE_ERRORS, NoConnectionError
from windvane.service.streams import Done, Stream
from windvane.service.tasks import run_persistently
from windvane.service.turns import hold, is_slow, measure, wait_while_held

if TYPE_CHECKING:
    from windvane.service.engine import Engine

SLOW_COMMIT_SECONDS = 0.1  # if a commit takes longer, operations run in threads, because they may read the disk
REBUILDING = "it is being rebuilt after a failure"

log = logging.getLogger("windvane.service")


class Operations:
    """The operations on the streams of ``engine``."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def carry_out(
        self, stream: Stream, operation: Callable[[], Done], *, size: float = 0, decision: str | None = None
    ) -> Done:
        """Execute an operation on ``stream``; its events are on disk when this returns. See :meth:`operate`.

        Raises :class:`MovedError` if another node has taken the stream over before.
        """
        journal = self._engine.journal
        stream.in_progress += 1
        try:
            try:
                done, stored = await self._operate(stream, operation, size, decision)
            except TakenOverError:
                raise MovedError from None  # nothing was handed over
            except Problem as problem:
                if problem.status < 500:
                    await journal.commit(stream)  # store the events that the refusal relies on, such as another reward
                raise
            await journal.wait_for(stream, stored)
        finally:
            stream.in_progress -= 1
        return done

    async def operate(
        self, stream: Stream, operation: Callable[[], Done], *, size: float = 0, decision: str | None = None
    ) -> Done:
        """Execute an operation and hand its events over, without waiting for the disk.

        ``size``: bytes of the request, infinity if it takes long. ``decision``: the id of the decision that gets a
        reward; if its timeout has passed, it is closed first.
        """
        done, _ = await self._operate(stream, operation, size, decision)
        return done

    async def _operate(
        self, stream: Stream, operation: Callable[[], Done], size: float, decision: str | None
    ) -> tuple[Done, Promise]:
        """Execute an operation; also return the promise that its events are on disk."""
        engine = self._engine
        if stream.busy is not None:
            await wait_while_held(stream)  # no other wait may come between this one and the change
        if decision is not None and stream.is_overdue(decision, read_clock()):
            await engine.timeouts.wait_for(stream, decision)
        if engine.store.is_remote:
            result = await engine.lookups.execute(stream, lambda: self._execute(stream, operation, size))
        else:
            result = await self._execute(stream, operation, size)
        if stream.has_backlog:
            engine.timeouts.begin(stream)
        return result

    async def _execute(self, stream: Stream, operation: Callable[[], Done], size: float) -> tuple[Done, Promise]:
        if is_slow(stream, size) or self._engine.backlog[1] > SLOW_COMMIT_SECONDS:
            return await asyncio.shield(self._engine.tasks.run_to_end(self._operate_in_thread(stream, operation)))
        with self.operating(stream):
            done = measure(stream, operation)
        return done, self._engine.journal.hand_over(stream, done.events)

    async def _operate_in_thread(self, stream: Stream, operation: Callable[[], Done]) -> tuple[Done, Promise]:
        await wait_while_held(stream)  # another request may have come first
        with hold(stream, changing=True):
            with self.operating(stream):
                done = await asyncio.to_thread(measure, stream, operation)
            return done, self._engine.journal.hand_over(stream, done.events)

    def operating(self, stream: Stream, began: float | None = None) -> _Operating:
        """Run an operation inside the block. If it fails, discard its events and rebuild the stream.

        ``began``: the ``time.perf_counter()`` at which the operation began, if that was before the block.
        """
        return _Operating(self, stream, time.perf_counter() if began is None else began)

    def begin(self, stream: Stream) -> None:
        """Raise if no operation on ``stream`` may begin now."""
        self._engine.refuse_if_replaced(stream)
        self._engine.journal.refuse_if_full()

    def end(self, stream: Stream, error: BaseException | None, seconds: float) -> None:
        """Note the end of an operation that took ``seconds``; raise the problem that its failure is."""
        engine = self._engine
        if error is None:
            engine.journal.add_work(stream, seconds)
        elif isinstance(error, Problem | EventsNotLoadedError):
            if events := stream.take_events():  # a rejected request may have closed decisions
                engine.journal.hand_over(stream, events)
        elif isinstance(error, Exception):
            log.exception("an operation on stream %r failed", stream.name)
            if isinstance(error, STORE_ERRORS) and not isinstance(error, NoConnectionError):
                engine.fail(error)
            else:
                self._set_aside(stream)
            if isinstance(error, STORE_ERRORS):
                raise refuse_read(error) from None
            raise Problem("internal", "the operation failed; the log of the server says why") from None

    def _set_aside(self, stream: Stream) -> None:
        """Rebuild a stream whose operation failed: its memory may be ahead of its log. Others are not affected."""
        engine = self._engine
        if engine.streams.get(stream.name) is not stream:  # all streams were rebuilt during the operation
            return
        engine.unavailable[stream.name] = REBUILDING
        del engine.streams[stream.name]
        engine.tasks.start(self._rebuild(stream))

    async def _rebuild(self, stream: Stream) -> None:
        engine, name = self._engine, stream.name
        try:
            await engine.journal.flush()  # until all events of the stream are on disk
            rebuilt = await run_persistently(rebuild_stream, stream.row, engine.store)
        except STORE_ERRORS as error:  # the disk failed: all streams are rebuilt once it can be read
            if self._is_current(stream):
                engine.fail(error)
            return
        except Exception as error:
            log.error("stream %r is not served: %s", name, error)
            if self._is_current(stream):
                engine.unavailable[name] = str(error)
            return
        if engine.failure is None and self._is_current(stream):  # otherwise all streams were rebuilt in the meantime
            rebuilt.epochs = stream.epochs
            engine.install(rebuilt)
            del engine.unavailable[name]

    def _is_current(self, stream: Stream) -> bool:
        """Return whether a stream was neither removed nor replaced."""
        return self._engine.by_id.get(stream.id) is stream and not stream.is_removed


class _Operating:
    """The block of :meth:`Operations.operating`. A generator with ``contextmanager`` would take four times as long."""

    def __init__(self, operations: Operations, stream: Stream, began: float) -> None:
        self._operations, self._stream, self._began = operations, stream, began

    def __enter__(self) -> None:
        self._operations.begin(self._stream)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._operations.end(self._stream, error, time.perf_counter() - self._began)
