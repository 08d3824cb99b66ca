"""Promises that many tasks wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Generator


class Promise:
    """Kept or broken once. Any number of tasks may await it: cancelling one of them does not affect the others.

    A future that is shared needs ``asyncio.shield`` for each task, which takes three times as long.

    Examples
    --------
    >>> async def scene() -> None:
    ...     promise = Promise()
    ...     asyncio.get_running_loop().call_soon(promise.keep)
    ...     await promise
    >>> asyncio.run(scene())
    """

    def __init__(self) -> None:
        self._waiters: list[asyncio.Future[None]] = []
        self._is_settled = False
        self._error: Exception | None = None

    def keep(self) -> None:
        """Let all tasks that await it continue."""
        self._settle(None)

    def break_(self, error: Exception) -> None:
        """Raise ``error`` in all tasks that await it, unless it was kept or broken before."""
        if not self._is_settled:
            self._settle(error)

    def done(self) -> bool:
        """Return whether it was kept or broken."""
        return self._is_settled

    def __await__(self) -> Generator[asyncio.Future[None], None, None]:
        if not self._is_settled:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            yield from waiter
        if self._error is not None:
            raise self._error

    def _settle(self, error: Exception | None) -> None:
        assert not self._is_settled
        self._is_settled, self._error = True, error
        for waiter in self._waiters:
            if not waiter.done():  # its task was cancelled
                waiter.set_result(None)
        self._waiters.clear()
