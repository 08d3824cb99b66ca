"""A pool of connections to PostgreSQL.

psycopg_pool does not fit: it connects in its own threads and retries with growing pauses. A caller would notice an
unreachable server only by a timeout, without the reason, and would find a restarted server late. In this pool the
caller itself connects, and succeeds or fails at once.
"""

from __future__ import annotations

import contextlib
import select
import threading
from collections.abc import Iterator

from psycopg.pq import ConnStatus, TransactionStatus

from windvane.service.store.postgres.connections import Address, Connection
from windvane.service.store.records import DatabaseError, NoConnectionError

WAIT_SECONDS = 2.0  # for a free connection: less than a lookup may take, so that the request fails with this reason


def is_usable(connection: Connection) -> bool:
    """Return whether an idle connection is open, as far as this machine knows. Nothing is sent."""
    if connection.closed or connection.pgconn.transaction_status != TransactionStatus.IDLE:
        return False
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return not poll.poll(0)  # an idle server sends something only when it ends the session


class ConnectionPool:
    """At most ``size`` connections, which threads borrow for a moment.

    Parameters
    ----------
    address
        The database.
    size
        The largest number of connections.
    settings
        Settings of their sessions.
    """

    def __init__(self, address: Address, size: int, **settings: str | int) -> None:
        self.address, self.size, self._settings = address, size, settings
        self._places = threading.Semaphore(size)
        self._guard = threading.Lock()
        self._idle: list[Connection] = []  # a stack: the connection used last is used next
        self.is_closed = False

    @contextlib.contextmanager
    def borrow(self) -> Iterator[Connection]:
        """Yield a connection. Raise :class:`NoConnectionError` if none becomes free in time, and
        :class:`DatabaseError` if the server is unreachable.

        Errors of psycopg are translated. After an error, the connection is reused only if no transaction is open.
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
        """Close all connections; those in use are closed when they are given back."""
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
            self.drop_idle()  # the cause, such as a restart or a broken network, may affect all
        if connection.pgconn.transaction_status == TransactionStatus.IDLE and not self.is_closed:
            with self._guard:
                self._idle.append(connection)
        else:
            connection.close()
        if self.is_closed:  # the pool may have been closed in the meantime
            self.drop_idle()

    def drop_idle(self) -> None:
        """Close the idle connections."""
        with self._guard:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()
