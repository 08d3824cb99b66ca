"""Connections to one service that are kept open, blocking and asynchronous.

Sockets, TLS, timeouts and proxies come from httpcore2, the engine of httpx2; h11 parses HTTP/1.1, as in httpcore2.
httpx2 itself is not used, and the pool of httpcore2 only for a proxy: they take most of the processor time of a small
request (``benchmarks/client.py``).
"""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
import time
import urllib.parse
import urllib.request
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

import anyio
import h11
import httpcore2

IDLE_SECONDS = 10.0  # that an unused connection is kept; the server closes it after 30
MOST_AT_ONCE = 100  # concurrent requests of an event loop; more have to wait
READ_BYTES = 1 << 16

UNSENT = (httpcore2.ConnectError, httpcore2.ConnectTimeout, httpcore2.ProxyError, httpcore2.UnsupportedProtocol)
FAILURES = (*UNSENT, httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException, h11.ProtocolError)

Headers = list[tuple[bytes, bytes]]
Parts = TypeVar("Parts")


class Request(NamedTuple):
    """What is sent."""

    method: bytes
    target: bytes
    headers: Headers
    body: bytes


class Reply(NamedTuple, Generic[Parts]):
    """An answer whose body has not been read; ``parts`` iterates over it."""

    status: int
    headers: Headers
    parts: Parts


class Answer(NamedTuple):
    """A whole answer."""

    status: int
    headers: Headers
    body: bytes


def get_header(headers: Headers, name: bytes) -> str | None:
    """Return the value of a header; ``name`` is in lower case."""
    return next((value.decode("latin-1") for key, value in headers if key.lower() == name), None)


class Address:
    """Where the service is, and what all requests to it share.

    Raises
    ------
    ValueError
        If ``url`` is not an address of http or https, or has a user, query or fragment.
    """

    def __init__(self, url: str, headers: Mapping[str, str], timeout: float) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or set("@?#") & set(url):
            raise ValueError(url)
        if not url.isprintable() or " " in url or not parts.path.isascii():
            raise ValueError(url)
        self.url, self.timeout = url.rstrip("/"), timeout
        self.scheme, self.host = parts.scheme, parts.hostname.encode("idna").decode()
        usual = {"http": 80, "https": 443}[self.scheme]
        self._given_port, self.port = parts.port, parts.port or usual
        host = f"[{self.host}]" if ":" in self.host else self.host
        shared = {"Host": host if self.port == usual else f"{host}:{self.port}", **headers}
        self._headers = [(name.encode(), value.encode()) for name, value in shared.items()]
        self._prefix = parts.path.rstrip("/")

    def build_request(self, method: str, path: str, body: bytes | None = None, key: str | None = None) -> Request:
        """Return a request; ``key`` is its Idempotency-Key."""
        headers = self._headers.copy()
        if key is not None:
            headers.append((b"Idempotency-Key", key.encode()))
        if body is not None:
            headers.append((b"Content-Length", b"%d" % len(body)))
        return Request(method.encode(), f"{self._prefix}{path}".encode(), headers, body or b"")

    def to_httpcore(self, request: Request) -> httpcore2.Request:
        """Return a request as httpcore2 takes it."""
        url = httpcore2.URL(scheme=self.scheme, host=self.host, port=self._given_port, target=request.target)
        timeouts = {"timeout": dict.fromkeys(("connect", "read", "write", "pool"), self.timeout)}
        return httpcore2.Request(
            request.method, url, headers=request.headers, content=request.body, extensions=timeouts
        )

    def load_certificates(self) -> ssl.SSLContext | None:
        """Return the trusted certificates; only https needs them, and loading takes 60 ms."""
        return httpcore2.default_ssl_context() if self.scheme == "https" else None

    def find_proxy(self) -> httpcore2.Proxy | None:
        """Return the proxy of the environment; an address of this machine has none."""
        if self._is_loopback() or urllib.request.proxy_bypass(self.host):
            return None
        proxies = urllib.request.getproxies()
        if not (proxy := proxies.get(self.scheme) or proxies.get("all")):
            return None
        parts = urllib.parse.urlsplit(proxy if "://" in proxy else f"http://{proxy}")
        user, password = (urllib.parse.unquote(text or "") for text in (parts.username, parts.password))
        where = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
        return httpcore2.Proxy(where, auth=(user, password) if parts.username else None)

    def _is_loopback(self) -> bool:
        try:
            return self.host == "localhost" or ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


class _Protocol:
    """HTTP/1.1 on a connection that carries one request at a time."""

    def __init__(self, stream: Any) -> None:
        self.stream, self._http, self._used = stream, h11.Connection(h11.CLIENT), 0.0

    def encode(self, request: Request) -> bytes:
        """Return a request in one piece: one packet, if it is small, which the server reads at once."""
        http = self._http
        event = h11.Request(method=request.method, target=request.target, headers=request.headers)
        head = http.send(event) or b""
        body = http.send(h11.Data(data=request.body)) if request.body else b""
        http.send(h11.EndOfMessage())  # which takes no bytes, because the length is known
        return head + (body or b"")

    def receive(self, data: bytes | None = None) -> Any:
        """Return the next event, or None if more data is needed."""
        if data is not None:
            self._http.receive_data(data)
        event = self._http.next_event()
        return None if event is h11.NEED_DATA else event

    def end(self) -> bool:
        """Return whether another request can be sent, because the answer was read to its end."""
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        self._used = time.monotonic()
        return True

    def has_expired(self) -> bool:
        """Return whether the server may have closed the connection."""
        return time.monotonic() - self._used > IDLE_SECONDS or self.stream.get_extra_info("is_readable")


def _is_answer(event: Any) -> bool:
    return type(event) is h11.Response  # not a 1xx


# --- blocking --------------------------------------------------------------------------------------------------------


class Transport:
    """Connections of blocking code. Threads may share it: a connection belongs to one request at a time."""

    def __init__(self, address: Address) -> None:
        self._address, self._backend = address, httpcore2.SyncBackend()
        self._trusted, proxy = address.load_certificates(), address.find_proxy()
        self._proxies = proxy and httpcore2.ConnectionPool(ssl_context=self._trusted, proxy=proxy)
        self._idle: deque[_Protocol] = deque()

    def exchange(self, request: Request) -> Answer:
        """Send a request and return its answer."""
        reply = self.open(request)
        return Answer(reply.status, reply.headers, b"".join(reply.parts))

    def open(self, request: Request) -> Reply[Iterator[bytes]]:
        """Send a request and return the beginning of its answer."""
        if self._proxies:
            response = self._proxies.handle_request(self._address.to_httpcore(request))
            return Reply(response.status, response.headers, self._relay(response))
        connection = self._take()
        try:
            connection.stream.write(connection.encode(request), self._address.timeout)
            while not _is_answer(event := self._receive(connection)):
                pass
        except BaseException:
            connection.stream.close()
            raise
        return Reply(event.status_code, list(event.headers), self._read(connection))

    def _receive(self, connection: _Protocol) -> Any:
        event = connection.receive()
        while event is None:
            event = connection.receive(connection.stream.read(READ_BYTES, self._address.timeout))
        return event

    def _read(self, connection: _Protocol) -> Iterator[bytes]:
        """Yield the parts of a body; then keep the connection, or close it if the end was not reached."""
        try:
            while type(event := self._receive(connection)) is h11.Data:
                yield bytes(event.data)
        finally:
            if connection.end():
                self._keep(connection)
            else:
                connection.stream.close()

    def _relay(self, response: Any) -> Iterator[bytes]:
        try:
            yield from response.stream
        finally:
            response.close()

    def _take(self) -> _Protocol:
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:  # another thread took it
                break
            if not connection.has_expired():
                return connection
            connection.stream.close()
        where = self._address
        stream = self._backend.connect_tcp(where.host, where.port, where.timeout)
        if self._trusted is not None:
            stream = stream.start_tls(self._trusted, where.host, where.timeout)
        return _Protocol(stream)

    def _keep(self, connection: _Protocol) -> None:
        self._idle.append(connection)
        if len(self._idle) > 1:  # those that have been unused for long are at the front
            oldest = self._idle.popleft()
            if oldest.has_expired():
                oldest.stream.close()
            else:
                self._idle.appendleft(oldest)

    def close(self) -> None:
        """Close the connections that no request uses."""
        if self._proxies:
            self._proxies.close()
        while self._idle:
            self._idle.pop().stream.close()


# --- asynchronous: line by line the same -----------------------------------------------------------------------------


class AsyncTransport:
    """Connections of one event loop."""

    def __init__(self, address: Address) -> None:
        self._address, self._backend = address, httpcore2.AnyIOBackend()
        self._trusted, proxy = address.load_certificates(), address.find_proxy()
        self._proxies = proxy and httpcore2.AsyncConnectionPool(ssl_context=self._trusted, proxy=proxy)
        self._idle: deque[_Protocol] = deque()
        self._turns = asyncio.Semaphore(MOST_AT_ONCE)

    async def exchange(self, request: Request) -> Answer:
        """Send a request and return its answer."""
        async with self._turns:
            reply = await self.open(request)
            return Answer(reply.status, reply.headers, b"".join([part async for part in reply.parts]))

    async def open(self, request: Request) -> Reply[AsyncIterator[bytes]]:
        """Send a request and return the beginning of its answer."""
        if self._proxies:
            response = await self._proxies.handle_async_request(self._address.to_httpcore(request))
            return Reply(response.status, response.headers, self._relay(response))
        connection = await self._take()
        try:
            await connection.stream.write(connection.encode(request), self._address.timeout)
            while not _is_answer(event := await self._receive(connection)):
                pass
        except BaseException:
            await _close_now(connection)
            raise
        return Reply(event.status_code, list(event.headers), self._read(connection))

    async def _receive(self, connection: _Protocol) -> Any:
        event = connection.receive()
        while event is None:
            event = connection.receive(await connection.stream.read(READ_BYTES, self._address.timeout))
        return event

    async def _read(self, connection: _Protocol) -> AsyncIterator[bytes]:
        """Yield the parts of a body; then keep the connection, or close it if the end was not reached."""
        try:
            while type(event := await self._receive(connection)) is h11.Data:
                yield bytes(event.data)
        finally:
            if connection.end():
                await self._keep(connection)
            else:
                await _close_now(connection)

    async def _relay(self, response: Any) -> AsyncIterator[bytes]:
        try:
            async for part in response.stream:
                yield part
        finally:
            await response.aclose()

    async def _take(self) -> _Protocol:
        while self._idle:
            connection = self._idle.pop()
            if not connection.has_expired():
                return connection
            await connection.stream.aclose()
        where = self._address
        stream = await self._backend.connect_tcp(where.host, where.port, where.timeout)
        if self._trusted is not None:
            stream = await stream.start_tls(self._trusted, where.host, where.timeout)
        return _Protocol(stream)

    async def _keep(self, connection: _Protocol) -> None:
        self._idle.append(connection)
        if len(self._idle) > 1 and self._idle[0].has_expired():
            await self._idle.popleft().stream.aclose()

    async def close(self) -> None:
        """Close the connections that no request uses."""
        if self._proxies:
            await self._proxies.aclose()
        while self._idle:
            await self._idle.pop().stream.aclose()


async def _close_now(connection: _Protocol) -> None:
    """Close a connection, even in a task that is being cancelled."""
    with anyio.CancelScope(shield=True):
        await connection.stream.aclose()
