"""Exclusive use of streams: requests that change a stream take turns, and long work runs in a thread.

A stream is held while ``Stream.busy`` is a future. It can be read then, unless a thread is changing it
(``Stream.is_changing``).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

from windvane.service.bodies import LARGE_BODY

if TYPE_CHECKING:
    from windvane.service.streams import Stream

T = TypeVar("T")

SLOW_SECONDS = 0.005  # if the last operation of a stream took longer, the next one runs in a thread
LARGE_DIM = 200  # above it, describing or copying the model takes more than 2 ms (190 ms with 500 features)

IN_PROGRESS_TICK = 0.002  # seconds between looks whether requests are in progress
PAUSE, PAUSE_SECONDS = 16, 0.002  # items of a batch or a list, and seconds, after which other requests are served


class Turnstile:
    """Admits waiting tasks one at a time, in order, with all other requests served in between.

    However many batches and concurrent requests wait, another request is delayed by at most one slice.
    """

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def wait(self) -> None:
        """Wait for the next turn."""
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        self._waiting.append(turn)
        if len(self._waiting) == 1:
            loop.call_soon(self._let_through)
        await turn

    def _let_through(self) -> None:
        turn = self._waiting.popleft()
        if not turn.done():  # else its request was cancelled
            turn.set_result(None)
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._let_through)


class Pauses:
    """Pauses of a long loop, in which other requests are served."""

    def __init__(self, turnstile: Turnstile) -> None:
        self._turnstile, self._count, self._last = turnstile, 0, time.perf_counter()

    async def take(self) -> None:
        """Pause if it is time to; call it after every item."""
        self._count += 1
        if self._count % PAUSE == 0 or time.perf_counter() - self._last > PAUSE_SECONDS:
            await self._turnstile.wait()
            self._last = time.perf_counter()


def is_slow(stream: Stream, size: float = 0) -> bool:
    """Return whether an operation on ``stream`` with a body of ``size`` bytes would delay all other requests."""
    return size > LARGE_BODY or stream.seconds > SLOW_SECONDS


def measure(stream: Stream, operation: Callable[[], T]) -> T:
    """Carry out an operation in this thread, and note how long it takes: waiting for a thread is no part of it."""
    began = time.perf_counter()
    try:
        return operation()
    finally:
        stream.seconds = time.perf_counter() - began


async def wait_while_held(stream: Stream) -> None:
    """Wait until ``stream`` may be changed."""
    while stream.busy is not None:
        await asyncio.shield(stream.busy)


async def wait_while_changing(stream: Stream) -> None:
    """Wait until ``stream`` may be read."""
    while stream.busy is not None and stream.is_changing:
        await asyncio.shield(stream.busy)


@contextlib.contextmanager
def count_in_progress(stream: Stream) -> Iterator[None]:
    """Count a request that changes ``stream``, until its events are stored."""
    stream.in_progress += 1
    try:
        yield
    finally:
        stream.in_progress -= 1


async def wait_while_in_progress(streams: Iterable[Stream], seconds: float) -> None:
    """Wait until no request changes any of ``streams``, but not longer than ``seconds``."""
    end, waiting = time.monotonic() + seconds, list(streams)
    while any(stream.in_progress for stream in waiting) and time.monotonic() < end:
        await asyncio.sleep(IN_PROGRESS_TICK)


@contextlib.contextmanager
def hold(stream: Stream, *, changing: bool = False) -> Iterator[None]:
    """Make requests that change ``stream`` wait until the end; readers too, if a thread is ``changing`` it."""
    busy = stream.busy = asyncio.get_running_loop().create_future()
    stream.is_changing = changing
    try:
        yield
    finally:
        stream.busy, stream.is_changing = None, False
        busy.set_result(None)
