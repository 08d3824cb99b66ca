"""The keeper's connection to the database. It receives notifications of map changes, and other threads can wake it."""

from __future__ import annotations

import contextlib
import os
import selectors
import threading

import psycopg

from windvane.service.store.postgres.connections import Address, Connection
from windvane.service.store.postgres.eviction import CHANNEL


class Session:
    """A connection for one thread. It is reopened after it was lost.

    Parameters
    ----------
    address
        The database.
    lock_seconds, statement_seconds
        The longest time that a statement may wait for a lock, and may run.
    """

    def __init__(self, address: Address, lock_seconds: float, statement_seconds: float) -> None:
        self.address, self._seconds = address, (lock_seconds, statement_seconds)
        self._connection: Connection | None = None
        self._watched: int | None = None  # its file descriptor
        self._is_notified = False
        self._guard = threading.Lock()  # protects the write end of the pipe
        self._is_closed = False
        self._read_end, self._write_end = os.pipe()
        os.set_blocking(self._read_end, False)
        os.set_blocking(self._write_end, False)
        self._selector = selectors.DefaultSelector()  # select.select() fails for file descriptors above 1023
        self._selector.register(self._read_end, selectors.EVENT_READ)

    def open(self) -> Connection:
        """Return the connection. Connect first if it is not open."""
        if self._connection is None:
            connection = self.address.connect()
            connection.answer_timeout = 2 * self._seconds[1]  # the server normally cancels a statement much earlier
            try:
                connection.add_notify_handler(self._note_notification)
                lock, statement = (f"{max(1, round(1000 * seconds))}ms" for seconds in self._seconds)
                settings = "SELECT set_config('lock_timeout', %s, false), set_config('statement_timeout', %s, false)"
                connection.execute(settings, (lock, statement))
                connection.execute(f"LISTEN {CHANNEL}".encode())
            except BaseException:
                connection.close()
                raise
            self._connection, self._watched = connection, connection.fileno()
            self._selector.register(self._watched, selectors.EVENT_READ)
        return self._connection

    def drop(self) -> None:
        """Close the connection, if it is open. :meth:`open` opens a new one."""
        connection, self._connection = self._connection, None
        if self._watched is not None:
            self._selector.unregister(self._watched)
            self._watched = None
        if connection is not None:
            connection.close()

    def close(self) -> None:
        """Close the connection and the pipe."""
        self.drop()
        with self._guard:
            self._is_closed = True
            self._selector.close()
            os.close(self._read_end)
            os.close(self._write_end)

    def wake(self) -> None:
        """End the current or the next :meth:`wait`, from another thread."""
        with self._guard, contextlib.suppress(BlockingIOError):  # a full pipe wakes the other thread anyway
            if not self._is_closed:
                os.write(self._write_end, b"\0")

    def wait(self, seconds: float) -> None:
        """Wait until the map may have changed, another thread calls :meth:`wake`, or ``seconds`` have passed.

        Raises psycopg.OperationalError if the server has ended the connection.
        """
        if self._is_notified:
            seconds = 0.0
        self._is_notified = False
        for key, _ in self._selector.select(max(0.0, seconds)):
            if key.fd == self._read_end:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._read_end, 4096)
            elif self._connection is not None:
                self._connection.pgconn.consume_input()
                while self._connection.pgconn.notifies() is not None:
                    pass

    def _note_notification(self, _: psycopg.Notify) -> None:
        self._is_notified = True
