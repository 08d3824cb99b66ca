"""Tasks of the event loop: work in the background, and work that must not be cancelled because a thread does it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from windvane.service.store import NoConnectionError

T = TypeVar("T")

PAUSE_SECONDS = 0.1  # between attempts; each of them waits for a connection


async def run_persistently(work: Callable[..., T], *arguments: Any) -> T:
    """Return the result of ``work``, done in a thread as soon as it gets a connection to the store."""
    while True:
        try:
            return await asyncio.to_thread(work, *arguments)
        except NoConnectionError:
            await asyncio.sleep(PAUSE_SECONDS)


class Tasks:
    """The tasks of an engine. asyncio itself keeps no reference to a task, which could vanish before it ends."""

    def __init__(self) -> None:
        self._background: set[asyncio.Task[None]] = set()
        self._threaded: set[asyncio.Task[Any]] = set()  # threads cannot be cancelled

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin work in the background."""
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def run_to_end(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Begin work that must not be cancelled, because a thread changes something; :meth:`end` waits for it."""
        task = asyncio.get_running_loop().create_task(work)
        self._threaded.add(task)
        task.add_done_callback(self._note_end)
        return task

    def _note_end(self, task: asyncio.Task[Any]) -> None:
        self._threaded.discard(task)
        if not task.cancelled():
            task.exception()  # or asyncio complains if nobody waits for it any more

    async def end(self) -> None:
        """Cancel the work in the background, and wait for the other; cancelling this cancels none of it."""
        for task in self._background:
            task.cancel()
        if self._threaded:
            await asyncio.wait(self._threaded)
