"""Server-sent events: a stream whenever it has changed, so that a page can follow it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from fastapi.sse import ServerSentEvent

from windvane.records import to_json
from windvane.service.engine import Engine
from windvane.service.problems import Problem

PERIOD = 1.0  # seconds between looks


async def follow(
    engine: Engine, name: str, closing: asyncio.Event, is_valid: Callable[[], bool]
) -> AsyncIterator[ServerSentEvent]:
    """Yield the stream in full, and again whenever it has changed.

    It ends when the server closes, when the token of the reader is removed (``is_valid``), or with the stream.
    """
    last = None
    while not closing.is_set() and is_valid():
        try:
            stream = engine.stream(name)
        except Problem:
            return
        if stream.number != last:
            last = stream.number
            data = to_json({"info": stream.info(), "charts": stream.charts.document()}).decode()
            yield ServerSentEvent(event="info", raw_data=data)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(closing.wait(), PERIOD)
