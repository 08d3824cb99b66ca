"""Connections that are kept open, for blocking and for asynchronous code.

Both run the same coroutines: over blocking sockets (:class:`BlockingNetwork`) these never wait for an event loop.

Sockets, TLS, timeouts and proxies come from httpcore2, the engine of httpx2; h11 parses HTTP/1.1, as in httpcore2.
httpx2 itself is not used, and the pool of httpcore2 only for a proxy: they take most of the processor time of a small
request (``benchmarks/client.py``).
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections import deque
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import anyio
import h11
import httpcore2

from windvane.client.address import Address, Headers, Request

IDLE_SECONDS = 10.0  # that an unused connection is kept; the server closes it after 30
MOST_AT_ONCE = 100  # concurrent requests of an event loop to one address; more have to wait
READ_BYTES = 1 << 16

UNSENT = (httpcore2.ConnectError, httpcore2.ConnectTimeout, httpcore2.ProxyError, httpcore2.UnsupportedProtocol)
FAILURES = (*UNSENT, httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException, h11.ProtocolError)


class Reply(NamedTuple):
    """An answer whose body has not been read; ``parts`` iterates over it."""

    status: int
    headers: Headers
    parts: AsyncIterator[bytes]


class Answer(NamedTuple):
    """A whole answer."""

    status: int
    headers: Headers
    body: bytes


def get_header(headers: Headers, name: bytes) -> str | None:
    """Return the value of a header; ``name`` is in lower case."""
    return next((value.decode("latin-1") for key, value in headers if key.lower() == name), None)


# --- networks --------------------------------------------------------------------------------------------------------


class _BlockingStream:
    """A blocking socket, as coroutines that never wait for an event loop."""

    def __init__(self, stream: httpcore2.NetworkStream) -> None:
        self._stream, self.get_extra_info = stream, stream.get_extra_info

    async def read(self, most: int, timeout: float) -> bytes:
        return self._stream.read(most, timeout)

    async def write(self, data: bytes, timeout: float) -> None:
        self._stream.write(data, timeout)

    async def close(self) -> None:
        self._stream.close()


class BlockingNetwork:
    """The network as blocking code reaches it."""

    build_pool = httpcore2.ConnectionPool

    def __init__(self) -> None:
        self.turns = contextlib.nullcontext()

    async def connect(self, where: Address, trusted: ssl.SSLContext | None) -> _BlockingStream:
        """Open a connection."""
        seconds = where.connect_timeout
        stream = httpcore2.SyncBackend().connect_tcp(where.host, where.port, seconds)
        return _BlockingStream(stream if trusted is None else stream.start_tls(trusted, where.host, seconds))

    async def relay(self, pool: Any, request: httpcore2.Request) -> Reply:
        """Send a request by way of a proxy."""
        response = pool.handle_request(request)
        return Reply(response.status, response.headers, self._read(response))

    async def _read(self, response: httpcore2.Response) -> AsyncIterator[bytes]:
        with contextlib.closing(response):
            for part in response.iter_stream():
                yield part

    async def close_pool(self, pool: Any) -> None:
        """Close the connections to a proxy."""
        pool.close()


class _AsyncStream:
    """A socket of an event loop."""

    def __init__(self, stream: httpcore2.AsyncNetworkStream) -> None:
        self._stream = stream
        self.read, self.write, self.get_extra_info = stream.read, stream.write, stream.get_extra_info

    async def close(self) -> None:
        with anyio.CancelScope(shield=True):  # also in a task that is being cancelled
            await self._stream.aclose()


class AsyncNetwork:
    """The network as the code of one event loop reaches it."""

    build_pool = httpcore2.AsyncConnectionPool

    def __init__(self) -> None:
        self.turns = asyncio.Semaphore(MOST_AT_ONCE)

    async def connect(self, where: Address, trusted: ssl.SSLContext | None) -> _AsyncStream:
        """Open a connection."""
        seconds = where.connect_timeout
        stream = await httpcore2.AnyIOBackend().connect_tcp(where.host, where.port, seconds)
        return _AsyncStream(stream if trusted is None else await stream.start_tls(trusted, where.host, seconds))

    async def relay(self, pool: Any, request: httpcore2.Request) -> Reply:
        """Send a request by way of a proxy."""
        response = await pool.handle_async_request(request)
        return Reply(response.status, response.headers, self._read(response))

    async def _read(self, response: httpcore2.Response) -> AsyncIterator[bytes]:
        async with contextlib.aclosing(response):
            async for part in response.aiter_stream():
                yield part

    async def close_pool(self, pool: Any) -> None:
        """Close the connections to a proxy."""
        await pool.aclose()


# --- connections -----------------------------------------------------------------------------------------------------


class _Connection:
    """HTTP/1.1 on a socket that carries one request at a time."""

    def __init__(self, stream: _BlockingStream | _AsyncStream, timeout: float) -> None:
        self._stream, self._timeout, self._http, self._used = stream, timeout, h11.Connection(h11.CLIENT), 0.0
        self.close = stream.close

    async def send(self, request: Request) -> None:
        """Send a request in one piece: one packet, if it is small, which the server reads at once."""
        http = self._http
        head = http.send(h11.Request(method=request.method, target=request.target, headers=request.headers)) or b""
        body = http.send(h11.Data(data=request.body)) if request.body else b""
        http.send(h11.EndOfMessage())  # which takes no bytes, because the length is known
        await self._stream.write(head + (body or b""), self._timeout)

    async def receive(self) -> Any:
        """Return the next event."""
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._http.receive_data(await self._stream.read(READ_BYTES, self._timeout))
        return event

    def end(self) -> bool:
        """Return whether another request can be sent, because the answer was read to its end."""
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        self._used = time.monotonic()
        return True

    def has_expired(self) -> bool:
        """Return whether the server may have closed the connection."""
        return time.monotonic() - self._used > IDLE_SECONDS or self._stream.get_extra_info("is_readable")


class Transport:
    """Connections to ``address`` over ``network``. Threads may share it: a connection serves one request at a time.

    ``trusted``: the certificates, if they are loaded already.
    """

    def __init__(
        self, address: Address, network: BlockingNetwork | AsyncNetwork, trusted: ssl.SSLContext | None = None
    ) -> None:
        self._address, self._network, self._is_closed = address, network, False
        self._trusted = (trusted or address.load_certificates()) if address.scheme == "https" else None
        proxy = address.find_proxy()
        self._proxies = proxy and network.build_pool(ssl_context=self._trusted, proxy=proxy)
        self._idle: deque[_Connection] = deque()

    async def exchange(self, request: Request) -> Answer:
        """Send a request and return its answer."""
        async with self._network.turns:
            reply = await self.open(request)
            return Answer(reply.status, reply.headers, b"".join([part async for part in reply.parts]))

    async def open(self, request: Request) -> Reply:
        """Send a request and return the beginning of its answer."""
        if self._proxies:
            return await self._network.relay(self._proxies, self._address.to_httpcore(request))
        connection = await self._take()
        try:
            await connection.send(request)
            while type(event := await connection.receive()) is not h11.Response:  # but a 1xx
                pass
        except BaseException:
            await connection.close()
            raise
        return Reply(event.status_code, list(event.headers), self._read(connection))

    async def _read(self, connection: _Connection) -> AsyncIterator[bytes]:
        """Yield the parts of a body; then keep the connection, or close it if the end was not reached."""
        try:
            while type(event := await connection.receive()) is h11.Data:
                yield bytes(event.data)
        finally:
            if connection.end():
                await self._keep(connection)
            else:
                await connection.close()

    async def _take(self) -> _Connection:
        with contextlib.suppress(IndexError):  # there is none left, or another thread took it
            while connection := self._idle.pop():
                if not connection.has_expired():
                    return connection
                await connection.close()
        return _Connection(await self._network.connect(self._address, self._trusted), self._address.timeout)

    async def _keep(self, connection: _Connection) -> None:
        """Keep a connection, and close the one that has been unused for longest if that is too long."""
        await self._close_oldest()
        self._idle.append(connection)
        if self._is_closed:  # by another thread or task, meanwhile
            await self._close_idle()

    async def _close_oldest(self) -> bool:
        """Close the connection that has been unused for longest, if that is too long; return whether it was."""
        with contextlib.suppress(IndexError):  # there is none, or another thread took it
            oldest = self._idle.popleft()
            if oldest.has_expired():
                await oldest.close()
                return True
            self._idle.appendleft(oldest)
        return False

    async def close_expired(self) -> None:
        """Close the connections that have been unused for too long."""
        while await self._close_oldest():
            pass

    async def close(self) -> None:
        """Close the connections, except those that requests use: these are closed when they end."""
        self._is_closed = True
        if self._proxies:
            await self._network.close_pool(self._proxies)
        await self._close_idle()

    async def _close_idle(self) -> None:
        with contextlib.suppress(IndexError):  # another thread took the last one
            while self._idle:
                await self._idle.pop().close()
