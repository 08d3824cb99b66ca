"""Load the streams of a node's shards: each at its first request or in the background, whichever comes first."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from windvane.service.garbage import pause_garbage_collection
from windvane.service.problems import Problem
from windvane.service.readiness import refuse_read
from windvane.service.recovery import rebuild_stream
from windvane.service.store import STORE_ERRORS, NoConnectionError, StreamRow, is_damage
from windvane.service.stream_state import ReplayError
from windvane.service.streams import Stream
from windvane.warmup import warm_up

if TYPE_CHECKING:
    from windvane.service.cluster.placement import Placement
    from windvane.service.engine import Engine

S = TypeVar("S")
T = TypeVar("T")

LOADERS = 2  # threads that load streams

log = logging.getLogger("windvane.service")


class StreamLoader:
    """Loads the streams that this node serves, according to ``placement``, into ``engine``. Used in the event loop."""

    def __init__(self, engine: Engine, placement: Placement) -> None:
        self._engine, self._placement = engine, placement
        self._loading: dict[str, asyncio.Task[None]] = {}
        self._threads = ThreadPoolExecutor(LOADERS, "windvane-loader")

    def begin(self, rows: Sequence[StreamRow]) -> None:
        """Load streams in the background, because their timeouts pass even if no request arrives."""
        self._engine.tasks.start(self._load_all(rows))

    def forget(self) -> None:
        """Forget which streams are loading or loaded, because all were dropped."""
        self._loading = {}

    def stop(self) -> None:
        """Start no more loads."""
        self._threads.shutdown(wait=False)

    async def run(self, work: Callable[[S], T], argument: S) -> T:
        """Run ``work`` in one of the loader threads and return its result."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, argument)

    def load(self, row: StreamRow) -> asyncio.Task[None]:
        """Start to load a stream, unless it is already loading. Return the task."""
        task = self._loading.get(row.name)
        if task is None or task.done():
            epoch = self._placement.epochs[self._placement.shard_of(row.name)]
            task = self._loading[row.name] = self._engine.tasks.run_to_end(self._load_stream(row, epoch))
        return task

    async def _load_all(self, rows: Sequence[StreamRow]) -> None:
        for row in rows:
            while self._is_needed(row):  # the first load may have started in an earlier epoch
                with contextlib.suppress(Problem):
                    await self.load(row)

    def _is_needed(self, row: StreamRow) -> bool:
        """Return whether this node should serve a stream that is not loaded yet."""
        engine = self._engine
        is_missing = row.name not in engine.streams and row.name not in engine.unavailable
        return is_missing and engine.rows.get(row.name) is row and engine.failure is None

    async def _load_stream(self, row: StreamRow, epoch: int) -> None:
        engine = self._engine
        try:
            stream, seconds = await self.run(self._rebuild, row)
        except NoConnectionError as error:
            raise refuse_read(error) from None
        except Exception as error:
            if not self._is_served(row, epoch):
                return  # the stream was lost, or all streams were rebuilt, so the error may be outdated
            if isinstance(error, STORE_ERRORS) and not is_damage(error):
                engine.fail(error)
            else:  # the other streams are not affected
                engine.unavailable[row.name] = str(error)
                is_known = isinstance(error, (ReplayError, *STORE_ERRORS))
                log.error("stream %r is not served: %s", row.name, error, exc_info=not is_known)
            return
        if engine.failure is None and self._is_served(row, epoch):
            self._placement.admit(stream)
            engine.install(stream, seconds)
            engine.tasks.start(engine.views.build_charts([stream]))

    def _is_served(self, row: StreamRow, epoch: int) -> bool:
        return self._engine.rows.get(row.name) is row and self._placement.is_current(row.name, epoch)

    def _rebuild(self, row: StreamRow) -> tuple[Stream, float]:
        began = time.perf_counter()
        with pause_garbage_collection():
            stream = rebuild_stream(row, self._engine.store)
        warm_up([type(stream.core.policy)])
        return stream, time.perf_counter() - began
