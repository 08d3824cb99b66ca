"""Commands that other threads send to the keeper's thread, and whose results they wait for."""

from __future__ import annotations

import concurrent.futures
import contextlib
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from windvane.service.cluster.clocks import read_clock
from windvane.service.store.postgres.connections import Connection
from windvane.service.store.records import DatabaseError

T = TypeVar("T")


class _Command(Generic[T]):
    def __init__(self, work: Callable[[Connection], T], seconds: float) -> None:
        self.work, self.end = work, read_clock() + seconds
        self.result: concurrent.futures.Future[T] = concurrent.futures.Future()


class Commands:
    """A queue of commands. Each is retried until it succeeds or times out."""

    def __init__(self) -> None:
        self._queue: deque[_Command[Any]] = deque()
        self._guard = threading.Lock()
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._queue)

    def ask(self, work: Callable[[Connection], T], seconds: float, wake: Callable[[], None]) -> T:
        """Let the other thread do ``work``, and return the result. Raise :class:`DatabaseError` if it times out."""
        command = _Command(work, seconds)
        with self._guard:
            if self._is_closed:
                raise DatabaseError("this node is not in the cluster")
            self._queue.append(command)
        wake()
        try:
            return command.result.result(seconds + 1.0)  # the other thread reports the timeout first, with its reason
        except concurrent.futures.TimeoutError:
            command.result.cancel()
            raise DatabaseError("the database does not respond") from None

    def run_first(self, connection: Connection) -> None:
        """Run the first command. If it raises, it stays first in the queue."""
        command = self._queue[0]
        if not command.result.cancelled():
            result = command.work(connection)
            with contextlib.suppress(concurrent.futures.InvalidStateError):  # it was cancelled meanwhile
                command.result.set_result(result)
        with self._guard:
            self._queue.remove(command)

    def expire(self, reason: str) -> None:
        """Fail the commands that have timed out."""
        self._give_up(read_clock(), reason)

    def close(self) -> None:
        """Fail all commands, and accept no more."""
        with self._guard:
            self._is_closed = True
        self._give_up(float("inf"), "this node is leaving the cluster")

    def _give_up(self, now: float, reason: str) -> None:
        with self._guard:
            expired = [command for command in self._queue if command.end <= now]
            for command in expired:
                self._queue.remove(command)
        for command in expired:
            with contextlib.suppress(concurrent.futures.InvalidStateError):
                command.result.set_exception(DatabaseError(f"the shards were not changed: {reason}"))
