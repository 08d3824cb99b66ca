"""A pool of connections to PostgreSQL.

It is not that of psycopg_pool, which connects in threads of its own and repeats a failed attempt after longer and
longer pauses: a caller would learn of an unreachable server only by a timeout, without the reason, and a server that is
back would be found late. Here the caller connects, and fails or succeeds at once.
"""

from __future__ import annotations

import contextlib
import select
import threading
from collections.abc import Iterator

from psycopg.pq import ConnStatus, TransactionStatus

from windvane.service.store.postgres.connections import Address, Connection
from windvane.service.store.records import DatabaseError, NoConnectionError

WAIT_SECONDS = 2.0  # for a connection of the pool; less than lookups may take, so that their requests learn the reason


def is_usable(connection: Connection) -> bool:
    """Whether a connection that waits for nothing is open, as far as this machine knows; nothing is sent."""
    if connection.closed or connection.pgconn.transaction_status != TransactionStatus.IDLE:
        return False
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return not poll.poll(0)  # without a request, a server only says that it ends the session


class ConnectionPool:
    """At most ``size`` connections, for threads that need one for a moment.

    Parameters
    ----------
    address
        The database.
    size
        Number of connections.
    settings
        Of their sessions.
    """

    def __init__(self, address: Address, size: int, **settings: str | int) -> None:
        self.address, self.size, self._settings = address, size, settings
        self._places = threading.Semaphore(size)
        self._guard = threading.Lock()
        self._idle: list[Connection] = []  # the last one used comes last, and is used first
        self.is_closed = False

    @contextlib.contextmanager
    def borrow(self) -> Iterator[Connection]:
        """Yield a connection. Raise :class:`NoConnectionError` if none becomes free in time, and
        :class:`DatabaseError` if the server is unreachable.

        Errors of psycopg are translated. After an error, the connection is used again only if no transaction is open.
        """
        if not self._places.acquire(timeout=WAIT_SECONDS):
            raise NoConnectionError(f"all {self.size} connections of this process to the database are in use")
        try:
            connection = self._take() or self.address.connect(**self._settings)
            try:
                with self.address.translate_errors():
                    yield connection
            finally:
                self._give_back(connection)
        finally:
            self._places.release()

    def close(self) -> None:
        """Close the connections, those in use when they are given back."""
        self.is_closed = True
        self.drop_idle()

    def _take(self) -> Connection | None:
        if self.is_closed:
            raise DatabaseError("the store is closed")
        while True:
            with self._guard:
                if not self._idle:
                    return None
                connection = self._idle.pop()
            if is_usable(connection):
                return connection
            connection.close()

    def _give_back(self, connection: Connection) -> None:
        if connection.pgconn.status != ConnStatus.OK:
            self.drop_idle()  # what ended this one may have ended all: a restart, a network that is gone
        if connection.pgconn.transaction_status == TransactionStatus.IDLE and not self.is_closed:
            with self._guard:
                self._idle.append(connection)
        else:
            connection.close()
        if self.is_closed:  # it may have been closed in between
            self.drop_idle()

    def drop_idle(self) -> None:
        """Close the connections that nobody uses."""
        with self._guard:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()
