"""Compactions: remove the events of a stream that are older than its retention.

Each stream is checked on a schedule, at most once a minute. It is compacted when the age of its oldest event exceeds
the retention by :func:`allow_delay`. A compaction every minute would be too expensive, because each one stores the
state of the stream.
"""

from __future__ import annotations

import asyncio
import logging
import math
from typing import TYPE_CHECKING

from windvane.agent.times import read_clock
from windvane.service.problems import Problem
from windvane.service.retention import read_retention
from windvane.service.store import STORE_ERRORS
from windvane.service.stream_erasure import remove_events
from windvane.service_records import Compaction

if TYPE_CHECKING:
    from windvane.service.engine import Engine
    from windvane.service.streams import Stream

CHECK_SECONDS = 60.0  # between two checks of a stream
PURGE_SECONDS = 1.0  # between two attempts to purge erased data
SHORTEST_DELAY, LONGEST_DELAY, DELAY_SHARE = 60.0, 3600.0, 0.05

log = logging.getLogger("windvane.service")


def allow_delay(retention: float) -> float:
    """Return how many seconds longer than ``retention`` an event may be kept: 5 % of it, from a minute to an hour."""
    return min(max(DELAY_SHARE * retention, SHORTEST_DELAY), LONGEST_DELAY)


class Compactions:
    """Compacts the streams of ``engine``, one at a time."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._turn = engine, asyncio.Lock()

    def begin(self, stream: Stream) -> None:
        """Start to check the age of the oldest event, if a check is due."""
        now = read_clock()
        if stream.retention is not None and now >= stream.compact_at:
            stream.compact_at = math.inf  # until the check has ended
            self._engine.tasks.start(self._check(stream))

    async def _check(self, stream: Stream) -> None:
        async with self._turn:
            try:
                await self.check(stream)
            except Problem as problem:  # the stream was replaced or deleted, or is being refitted, or the disk fails
                log.info("stream %r was not compacted: %s", stream.name, problem)
            except Exception:
                log.exception("stream %r cannot be compacted", stream.name)
            finally:
                if stream.compact_at == math.inf:
                    stream.compact_at = read_clock() + CHECK_SECONDS

    async def check(self, stream: Stream) -> None:
        """Compact ``stream`` if its oldest event is too old, and schedule the next check."""
        seconds = read_retention(stream.retention)
        if seconds is None:
            return
        kept = seconds + allow_delay(seconds)
        oldest, now = await asyncio.to_thread(read_oldest, stream), read_clock()
        if oldest is not None and oldest + kept <= now:
            await self.compact(stream)
            oldest = await asyncio.to_thread(read_oldest, stream)
        next_time = now if oldest is None else oldest + kept
        stream.compact_at = min(max(next_time, now + CHECK_SECONDS), now + LONGEST_DELAY)

    async def purge(self) -> None:
        """Delete the remains of erased data, in a thread. Readers of the store may prevent that: try every second."""
        store, known = self._engine.store, ""
        while True:
            await asyncio.sleep(PURGE_SECONDS)
            if self._engine.failure is None:
                problem = ""
                try:
                    await asyncio.to_thread(store.purge, lambda: self._engine.is_closing)
                except STORE_ERRORS as error:
                    self._engine.report_damage(error)
                    problem = str(error)
                if problem not in ("", known):
                    log.warning("%s: erased data cannot be purged yet (%s); retrying", store.name, problem)
                known = problem

    async def compact(self, stream: Stream) -> Compaction:
        """Remove all events that are older than the retention."""
        seconds = read_retention(stream.retention)
        if seconds is None:
            raise Problem("no-retention", f"stream {stream.name!r} has no retention, so its events are kept forever")
        until, removed = read_clock() - seconds, 0
        await self._engine.timeouts.close_due(stream)  # or decisions that get the default reward would be dropped
        while count := await remove_events(self._engine, stream, until):
            removed += count
            await self._engine.turnstile.wait()
        left = stream.number - (0 if stream.removed is None else stream.removed.number)
        if removed:
            fields = {"stream": stream.name, "removed": removed, "left": left}
            log.info("stream %r was compacted", stream.name, extra={"fields": fields})
        return Compaction(stream=stream.name, removed=removed, left=left)


def read_oldest(stream: Stream) -> float | None:
    """Return the time of the first event in the log, None if there is none."""
    for event in stream.store.read_events(stream.id, limit=1):
        return event.time
    return None
