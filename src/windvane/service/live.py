"""Server-sent events: a stream's state whenever it has changed, so that a page can follow it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from fastapi.responses import StreamingResponse

from windvane.service.engine import Engine
from windvane.service.errors import ServiceError

PERIOD = 1.0  # seconds between looks
SILENCE = 10.0  # seconds after which something is sent even if nothing changed, to tell that the server is there


def events(engine: Engine, name: str, closing: asyncio.Event, allowed: Callable[[], bool]) -> StreamingResponse:
    """``closing``: set when the server is to stop, which would otherwise wait for whoever follows a stream.
    ``allowed``: whether the reader's token is still good."""
    engine.stream(name)  # whether there is one is told before the answer begins
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return StreamingResponse(_follow(engine, name, closing, allowed), media_type="text/event-stream", headers=headers)


async def _follow(
    engine: Engine, name: str, closing: asyncio.Event, allowed: Callable[[], bool]
) -> AsyncIterator[bytes]:
    seen, quiet = -1, 0.0
    while not closing.is_set() and allowed():
        try:
            stream = engine.stream(name)
        except ServiceError:
            return
        if stream.number != seen:
            seen, quiet = stream.number, 0.0
            yield b"event: state\ndata: " + stream.state_json() + b"\n\n"
        elif quiet >= SILENCE:
            quiet = 0.0
            yield b": still here\n\n"
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(closing.wait(), PERIOD)
        quiet += PERIOD
