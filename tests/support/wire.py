"""Bytes on the wire: requests that no HTTP client would send."""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
import time

PAUSE = 0.05  # seconds between two pieces, so that the server reads them one by one

AMBIGUOUS: list[tuple[list[str], bytes]] = [  # headers and a body whose length two programs might read differently
    (["Content-Length: 5", "Transfer-Encoding: chunked"], b"0\r\n\r\n"),
    (["Transfer-Encoding: chunked", "Content-Length: 5"], b"0\r\n\r\n"),
    (["Content-Length: 0", "Content-Length: {size}"], b""),  # of what follows
    (["Content-Length:\r\n {size}"], b""),
    (["Content-Length: -5"], b""),
    (["Content-Length: 5x"], b"12345"),
    (["Transfer-Encoding: identity, chunked, x"], b"0\r\n\r\n"),
    (["Transfer-Encoding : chunked"], b"0\r\n\r\n"),
    (["Transfer-Encoding: chunked"], b"zz\r\n"),
]


def open_connection(address: str) -> socket.socket:
    """Connect to a server at ``http://HOST:PORT``."""
    host, port = address.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=30)


def send_bytes(connection: socket.socket, *pieces: bytes) -> bytes:
    """Send pieces; return all that comes back until the other side closes the connection, which it must do."""
    answer = b""
    with connection, contextlib.suppress(ConnectionError, ssl.SSLEOFError):
        for i, piece in enumerate(pieces):
            if i:
                time.sleep(PAUSE)
            connection.sendall(piece)
        while data := connection.recv(65536):
            answer += data
    return answer


def read_statuses(answer: bytes) -> list[int]:
    """Return the status of every response in ``answer``."""
    return [int(status) for status in re.findall(rb"HTTP/1\.[01] (\d{3})", answer)]
