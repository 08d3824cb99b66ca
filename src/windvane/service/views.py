"""Views of streams: the record of a stream, its charts, and both together for live updates."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from windvane.records import StreamInfo, to_json
from windvane.service.problems import Problem
from windvane.service.streams import Stream
from windvane.service.turns import LARGE_DIM, hold, wait_while_changing, wait_while_held

if TYPE_CHECKING:
    from windvane.service.engine import Engine

log = logging.getLogger("windvane.service")


class Views:
    """Views of the streams of ``engine``. Long work runs in threads."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def build_charts(self, streams: list[Stream]) -> None:
        """Update the charts of the streams from their logs, one after the other."""
        for stream in streams:
            with contextlib.suppress(Problem):  # streams were rebuilt
                while await self._advance_charts(stream):
                    self._engine.refuse_if_replaced(stream)

    async def read_info(self, stream: Stream) -> StreamInfo:
        """Return the record of ``stream``, built in a thread if it has many features."""
        if stream.core.policy.dim <= LARGE_DIM:
            await wait_while_changing(stream)
            return stream.info()
        return await asyncio.shield(self._engine.tasks.run_to_end(self._read_in_thread(stream)))

    async def _read_in_thread(self, stream: Stream) -> StreamInfo:
        await wait_while_held(stream)
        with hold(stream):
            return await asyncio.to_thread(stream.info)

    async def read_charts(self, stream: Stream) -> bytes:
        """Return the charts as JSON; while the log is still being read, they cover its first part."""
        await self._advance_charts(stream)
        async with stream.charts_lock:
            return to_json(stream.charts.data)

    async def read_live(self, stream: Stream) -> bytes:
        """Return info and charts as JSON, encoded once for all followers of the stream."""
        if stream.live[0] != stream.progress:
            number = stream.number
            charts = await self.read_charts(stream)
            # Events that came meanwhile are not in the charts. The next call reads further those that lack events.
            progress = min(number, stream.charts.number), *stream.progress[1:]
            stream.live = progress, b'{"info":%b,"charts":%b}' % (to_json(await self.read_info(stream)), charts)
        return stream.live[1]

    async def _advance_charts(self, stream: Stream) -> bool:
        """Read some of the events on disk into the charts, in a thread; return whether there are more."""
        number = stream.number
        await self._engine.journal.commit(stream)
        async with stream.charts_lock:
            try:
                return await asyncio.to_thread(stream.charts.read, self._engine.store, stream.id, number)
            except Exception as error:  # the charts stay as they are
                log.exception("the charts of stream %r cannot be built", stream.name)
                self._engine.report_damage(error)
                return False

    async def sample_model(self, stream: Stream) -> None:
        """Add the current model to the charts, in a thread, because it may take long with many features."""
        if stream.busy is None and stream.number != stream.sampled:
            with hold(stream):
                stream.charts.set_model(await asyncio.to_thread(stream.describe_model))
                stream.sampled = stream.number
