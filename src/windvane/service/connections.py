"""Limits on connections: their number, and how long one may be silent before its first request.

An idle connection costs a file descriptor and about 10 kB. The limit on open files is raised to what the system allows,
and some descriptors are reserved for the store: without one it could not be read.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from windvane.service.problems import MEDIA_TYPE, Problem

try:
    import resource
except ImportError:  # not on Windows, which has no such limit
    resource = None  # type: ignore[assignment]

MAX_CONNECTIONS = 10_000
RESERVED_FILES = 128  # descriptors for the store, its readers, exports and the system
FIRST_SECONDS = 20.0  # within which the headers of the first request must arrive
HAS_ARRIVED = "windvane.has_arrived"  # in the scope: whether the whole body has, so that nobody must wait for it
REFUSED_SECONDS = 1.0  # in which a connection over the limit must send a request to get an answer

_BODY = Problem("overloaded", "the service has too many connections; try again", retry_after=1).to_json()
_REFUSAL = (
    f"HTTP/1.1 503 Service Unavailable\r\nContent-Type: {MEDIA_TYPE}\r\nRetry-After: 1\r\n"
    f"Content-Length: {len(_BODY)}\r\nConnection: close\r\n\r\n"
).encode() + _BODY


def raise_file_limit() -> int:
    """Raise the limit on open files as far as the system allows, and return how many connections there may be."""
    if resource is None:
        return MAX_CONNECTIONS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_CONNECTIONS + RESERVED_FILES
    unlimited = resource.RLIM_INFINITY
    if soft != unlimited and soft < wanted:
        soft = wanted if hard == unlimited else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return MAX_CONNECTIONS if soft == unlimited else max(1, min(MAX_CONNECTIONS, soft - RESERVED_FILES))


class JoinedWrites:
    """A transport that holds what is written until the next write or the end of this turn of the event loop.

    uvicorn writes the head and the body of an answer one after the other: together they are one system call and one
    packet, and wake the client once.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._held = b""

    def write(self, data: bytes) -> None:
        """Write ``data`` after what is held, or hold it."""
        if self._held:
            held, self._held = self._held, b""
            self._transport.writelines((held, data))
        elif data:
            self._held = data
            self._loop.call_soon(self._flush)

    def close(self) -> None:
        """Write what is held, and close the connection."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._held:
            held, self._held = self._held, b""
            self._transport.write(held)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class LimitedProtocol(HttpToolsProtocol):
    """uvicorn's protocol with a limit on connections. One over it gets a problem document."""

    most = MAX_CONNECTIONS
    _is_refused = _has_asked = False
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._is_refused = len(self.connections) >= self.most
        if self._is_refused:
            self.transport = transport
        else:
            super().connection_made(JoinedWrites(transport, self.loop))  # type: ignore[arg-type]
        seconds = REFUSED_SECONDS if self._is_refused else FIRST_SECONDS
        self._deadline = self.loop.call_later(seconds, transport.close)

    def data_received(self, data: bytes) -> None:
        if not self._is_refused:
            super().data_received(data)
        elif not self.transport.is_closing():
            self.transport.write(_REFUSAL)
            self.transport.close()

    def on_headers_complete(self) -> None:
        if not self._has_asked:
            self._has_asked = True
            self._cancel()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self.scope[HAS_ARRIVED] = True  # type: ignore[literal-required]
        super().on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel()
        if not self._is_refused:
            super().connection_lost(exc)

    def _cancel(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def limit_connections(most: int) -> Any:
    """Return the protocol with this limit."""
    return type("LimitedProtocol", (LimitedProtocol,), {"most": most})
