"""The connection over which a store writes events."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator

from windvane.service.store.postgres.connections import Connection, check_replication
from windvane.service.store.postgres.pool import ConnectionPool, is_usable
from windvane.service.store.postgres.schema import has_standby, read_timeline
from windvane.service.store.records import DatabaseError, FencedError

log = logging.getLogger("windvane.service")


class EventWriter:
    """One connection besides those of ``pool``, with the given settings. It is closed after an error.

    Attributes
    ----------
    lacks_standby : bool or None
        Whether commits wait for no standby, when this last connected. None if no standby is needed.
    """

    def __init__(self, pool: ConnectionPool, *, needs_standby: bool = False, **settings: str | int) -> None:
        self.lacks_standby = False if needs_standby else None
        self._pool, self._settings = pool, settings
        self._lock = threading.Lock()  # held while events are written: the connection is not closed meanwhile
        self._connection: Connection | None = None
        self._timeline: str | None = None  # of the write-ahead log, when the streams were read last

    @contextlib.contextmanager
    def connect(self) -> Iterator[Connection]:
        """Yield the connection to one thread at a time. Reconnect if the server has closed it.

        Raises :class:`DatabaseError` once after a standby was promoted or the database was recovered to an earlier
        time. Commits may be missing then. Events that follow them must not be written, so the streams must be read
        again.
        """
        with self._lock:
            try:
                with self._pool.address.translate_errors():
                    connection = self._take()
                    with check_replication(connection):
                        yield connection
            except FencedError:
                raise
            except BaseException:
                if self._connection is not None and self._connection.closed:
                    self._pool.drop_idle()  # the cause may affect all connections
                self._drop()
                raise

    def note_timeline(self, connection: Connection) -> None:
        """Remember the timeline of the database, because the streams are about to be read for the first time."""
        self._timeline = read_timeline(connection)

    def start_anew(self) -> None:
        """Close the connection and forget the timeline, because the streams are about to be read again."""
        with self._lock:
            self._drop()
            self._timeline = None

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._drop()

    def _take(self) -> Connection:
        if self._pool.is_closed:
            raise DatabaseError("the store is closed")
        if self._connection is None or not is_usable(self._connection):
            self._drop()
            self._connection = self._pool.address.connect(**self._settings)
            self._check_standby(self._connection)
            self._check_timeline(self._connection)
        return self._connection

    def _check_standby(self, connection: Connection) -> None:
        """Log it if the database has no standby any more, or has one again. After a promotion it often has none: to
        refuse to serve would turn the loss of one machine into an outage."""
        if self.lacks_standby is None:
            return
        before, self.lacks_standby = self.lacks_standby, not has_standby(connection)
        if self.lacks_standby and not before:
            text = "%s: commits to no standby, although `ha` is set; set synchronous_standby_names in PostgreSQL"
            log.warning(text, self._pool.address.name)
        elif before and not self.lacks_standby:
            log.info("%s: commits to a standby again", self._pool.address.name)

    def _check_timeline(self, connection: Connection) -> None:
        known, self._timeline = self._timeline, read_timeline(connection)
        if known is not None and self._timeline not in (None, known):
            raise DatabaseError("a standby was promoted or the database was recovered: it may have lost commits")

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
