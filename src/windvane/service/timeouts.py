"""Closing decisions whose timeout has passed: some at a time, with other requests in between."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from windvane.agent.times import read_clock
from windvane.service.problems import MovedError, Problem
from windvane.service.streams import Done, Stream
from windvane.service.turns import wait_while_changing, wait_while_held

if TYPE_CHECKING:
    from windvane.service.engine import Engine


class Timeouts:
    """Closes the due decisions of the streams of ``engine``."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def begin(self, stream: Stream) -> None:
        """Begin to close due decisions, if there are any and nobody does. Not while a thread changes the stream, which
        cannot be read then: they are looked for again within a second."""
        if stream.closing is None and not stream.is_changing and stream.is_due(read_clock()):
            stream.closing = asyncio.get_running_loop().create_future()
            self._engine.tasks.start(self._close(stream, stream.closing))

    async def wait_for(self, stream: Stream, decision: str) -> None:
        """Wait until a decision is closed, if it is overdue. Nobody holds the stream, before and after."""
        while stream.is_overdue(decision, read_clock()):
            self._engine.refuse_if_replaced(stream)
            self.begin(stream)
            assert stream.closing is not None  # a decision is due
            await asyncio.shield(stream.closing)
            await wait_while_held(stream)

    async def close_due(self, stream: Stream) -> None:
        """Wait until all decisions that are due now are closed."""
        now = read_clock()
        while stream.is_due(now):
            self._engine.refuse_if_replaced(stream)
            await wait_while_changing(stream)
            self.begin(stream)
            if stream.closing is not None:
                await asyncio.shield(stream.closing)
            await self._engine.turnstile.wait()

    async def _close(self, stream: Stream, closing: asyncio.Future[None]) -> None:
        """Close due decisions, some at a time: other requests have a turn while these are written to disk."""
        try:
            with contextlib.suppress(Problem, MovedError):  # the stream is rebuilt, or has a new owner
                while await self._is_due(stream):
                    await self._engine.turnstile.wait()
                    await self._engine.operations.carry_out(stream, lambda: Done(200, b"", stream.expire(read_clock())))
        finally:
            stream.closing = None
            closing.set_result(None)

    async def _is_due(self, stream: Stream) -> bool:
        await wait_while_changing(stream)
        return stream.is_due(read_clock())
