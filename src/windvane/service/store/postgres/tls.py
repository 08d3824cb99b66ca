"""Whether a server answers with which a connection over TLS fails: it has no TLS, or its certificate is not accepted.

libpq reports this only as text.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time

from psycopg import pq

REQUIRING = ("require", "verify-ca", "verify-full")  # the values of sslmode without which libpq tries to do without TLS
_QUESTION = struct.pack("!ii", 8, 80877103)  # the message SSLRequest of PostgreSQL's protocol
_ANSWERS = (b"S", b"N")  # yes and no


def is_tls_refused(connection: pq.abc.PGconn, end: float) -> bool:
    """Return whether a connection that needs TLS, and failed without a message of a server, has failed because of it.

    That is so if one of its servers answers until ``end``, on the monotonic clock.
    """
    options = {item.keyword.decode(): (item.val or b"").decode() for item in connection.info}
    if options.get("sslmode") not in REQUIRING:
        return False
    hosts = (options.get("hostaddr") or options.get("host", "")).split(",")
    ports = options.get("port", "").split(",")
    places = zip(hosts, ports * len(hosts) if len(ports) == 1 else ports, strict=False)
    return any(_answers(host, int(port), end) for host, port in places if host[:1] not in ("", "/", "@") and port)


def _answers(host: str, port: int, end: float) -> bool:
    """Return whether a PostgreSQL server answers there when it is asked for TLS."""
    left = end - time.monotonic()
    if left <= 0:
        return False
    with contextlib.suppress(OSError, UnicodeError), socket.create_connection((host, port), left) as connection:
        connection.sendall(_QUESTION)
        return connection.recv(1) in _ANSWERS
    return False
