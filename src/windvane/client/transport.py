"""Connections to one service that are kept open, blocking and asynchronous, on httpcore2.

httpcore2 is the engine of httpx2: connections, TLS, proxies, timeouts and HTTP/1.1. httpx2 itself and the pool of
httpcore2 are left out, because they take most of the processor time of a small request: benchmarks/client.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import ssl
import urllib.parse
import urllib.request
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import httpcore2

IDLE_SECONDS = 10.0  # that an unused connection is kept; the server closes it after 30
MOST_AT_ONCE = 100  # requests of an event loop that are under way at the same time; the others wait
MOST_HELD = 1 << 16  # bytes that are held back to be sent in one piece

FAILURES = (
    httpcore2.NetworkError,
    httpcore2.ProtocolError,
    httpcore2.ProxyError,
    httpcore2.TimeoutException,
    httpcore2.UnsupportedProtocol,
)
UNSENT = (httpcore2.ConnectError, httpcore2.ConnectTimeout, httpcore2.ProxyError, httpcore2.UnsupportedProtocol)


class Answer(NamedTuple):
    """A whole answer."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes


def get_header(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> str | None:
    """Return the value of a header; ``name`` is in lower case."""
    return next((value.decode("latin-1") for key, value in headers if key.lower() == name), None)


class Address:
    """Where the service is: the ``url`` that all paths begin with, and how to connect.

    Raises
    ------
    ValueError
        If ``url`` is not an address of http or https, or has a user, query or fragment.
    """

    def __init__(self, url: str, headers: Mapping[str, str], timeout: float) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or set("@?#") & set(url):
            raise ValueError(url)
        if any(c.isspace() or not c.isprintable() for c in url) or not parts.path.isascii():
            raise ValueError(url)
        self.scheme, self.host, self._port = parts.scheme, parts.hostname.encode("idna").decode(), parts.port
        self.url = url.rstrip("/")
        self._prefix = parts.path.rstrip("/")
        host = f"[{self.host}]" if ":" in self.host else self.host
        is_usual = self._port in (None, {"http": 80, "https": 443}[self.scheme])
        shared = {"Host": host if is_usual else f"{host}:{self._port}", **headers}
        self._headers = [(name.encode(), value.encode()) for name, value in shared.items()]
        self._extensions = {"timeout": dict.fromkeys(("connect", "read", "write", "pool"), timeout)}

    @property
    def origin(self) -> httpcore2.Origin:
        """What connections are made to."""
        return self._build_url("").origin

    def _build_url(self, path: str) -> httpcore2.URL:
        return httpcore2.URL(scheme=self.scheme, host=self.host, port=self._port, target=self._prefix + path)

    def build_request(self, method: str, path: str, body: bytes | None, key: str | None) -> httpcore2.Request:
        """Return a request; ``key`` is its Idempotency-Key."""
        headers = self._headers.copy()
        if key is not None:
            headers.append((b"Idempotency-Key", key.encode()))
        if body is not None:
            headers.append((b"Content-Length", b"%d" % len(body)))
        url = self._build_url(path)
        return httpcore2.Request(method, url, headers=headers, content=body, extensions=self._extensions)

    @property
    def is_loopback(self) -> bool:
        """Whether the service is on this machine."""
        try:
            return self.host == "localhost" or ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def connection_options(self) -> dict[str, Any]:
        """Return arguments of httpcore2's pools: certificates, and the proxy of the environment."""
        # Certificates are loaded for https only: that takes 60 ms. Without any, no https server is trusted.
        is_secure = self.scheme == "https"
        trust = httpcore2.default_ssl_context() if is_secure else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        return {"ssl_context": trust, "keepalive_expiry": IDLE_SECONDS, "proxy": self._find_proxy()}

    def _find_proxy(self) -> httpcore2.Proxy | None:
        """Return the proxy of the environment; an address of this machine has none."""
        if self.is_loopback or urllib.request.proxy_bypass(self.host):
            return None
        proxies = urllib.request.getproxies()
        if not (proxy := proxies.get(self.scheme) or proxies.get("all")):
            return None
        parts = urllib.parse.urlsplit(proxy if "://" in proxy else f"http://{proxy}")
        user, password = (urllib.parse.unquote(text or "") for text in (parts.username, parts.password))
        where = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
        return httpcore2.Proxy(where, auth=(user, password) if parts.username else None)


# --- blocking --------------------------------------------------------------------------------------------------------


class _Stream(httpcore2.NetworkStream):
    """Sends the head and the body of a request in one piece: one packet, which the server reads at once."""

    def __init__(self, stream: httpcore2.NetworkStream) -> None:
        self._stream, self._held = stream, b""

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._held += buffer
        if len(self._held) > MOST_HELD:
            self._flush(timeout)

    def _flush(self, timeout: float | None) -> None:
        held, self._held = self._held, b""
        self._stream.write(held, timeout)

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        if self._held:
            with contextlib.suppress(httpcore2.WriteError):  # the server may have answered before it hung up
                self._flush(timeout)
        return self._stream.read(max_bytes, timeout)

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.NetworkStream:
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class _Backend(httpcore2.SyncBackend):
    def connect_tcp(self, *arguments: Any, **options: Any) -> httpcore2.NetworkStream:
        return _Stream(super().connect_tcp(*arguments, **options))


class Transport:
    """Connections of blocking code. Threads may share it: a connection belongs to one request at a time."""

    def __init__(self, address: Address) -> None:
        self._factory = httpcore2.ConnectionPool(network_backend=_Backend(), **address.connection_options())
        self._origin = address.origin
        self._idle: deque[httpcore2.ConnectionInterface] = deque()

    def exchange(self, request: httpcore2.Request) -> Answer:
        """Send a request and return its answer."""
        response = self.open(request)
        return Answer(response.status, response.headers, b"".join(self.read(response)))

    def open(self, request: httpcore2.Request) -> httpcore2.Response:
        """Send a request and return its answer, whose body is then to be read."""
        connection = self._take()
        response = connection.handle_request(request)
        response.extensions["connection"] = connection
        return response

    def read(self, response: httpcore2.Response) -> Iterator[bytes]:
        """Yield the parts of a body; at the end, also an early one, close the answer."""
        try:
            yield from response.stream  # type: ignore[misc]
        finally:
            response.close()
            self._keep(response.extensions["connection"])

    def _take(self) -> httpcore2.ConnectionInterface:
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:  # another thread took it
                break
            if not connection.has_expired():
                return connection
            connection.close()
        return self._factory.create_connection(self._origin)

    def _keep(self, connection: httpcore2.ConnectionInterface) -> None:
        if connection.is_available():
            self._idle.append(connection)
        if len(self._idle) > 1:  # those that have been unused for long are at the front
            oldest = self._idle.popleft()
            if oldest.has_expired():
                oldest.close()
            else:
                self._idle.appendleft(oldest)

    def close(self) -> None:
        """Close the connections that no request uses."""
        while self._idle:
            self._idle.pop().close()


# --- asynchronous ----------------------------------------------------------------------------------------------------


class _AsyncStream(httpcore2.AsyncNetworkStream):
    """As :class:`_Stream`."""

    def __init__(self, stream: httpcore2.AsyncNetworkStream) -> None:
        self._stream, self._held = stream, b""

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._held += buffer
        if len(self._held) > MOST_HELD:
            await self._flush(timeout)

    async def _flush(self, timeout: float | None) -> None:
        held, self._held = self._held, b""
        await self._stream.write(held, timeout)

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        if self._held:
            with contextlib.suppress(httpcore2.WriteError):
                await self._flush(timeout)
        return await self._stream.read(max_bytes, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.AsyncNetworkStream:
        return _AsyncStream(await self._stream.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class _AsyncBackend(httpcore2.AnyIOBackend):
    async def connect_tcp(self, *arguments: Any, **options: Any) -> httpcore2.AsyncNetworkStream:
        return _AsyncStream(await super().connect_tcp(*arguments, **options))


class AsyncTransport:
    """Connections of one event loop."""

    def __init__(self, address: Address) -> None:
        self._factory = httpcore2.AsyncConnectionPool(network_backend=_AsyncBackend(), **address.connection_options())
        self._origin = address.origin
        self._idle: deque[httpcore2.AsyncConnectionInterface] = deque()
        self._turns = asyncio.Semaphore(MOST_AT_ONCE)

    async def exchange(self, request: httpcore2.Request) -> Answer:
        """Send a request and return its answer."""
        async with self._turns:
            response = await self.open(request)
            return Answer(response.status, response.headers, b"".join([part async for part in self.read(response)]))

    async def open(self, request: httpcore2.Request) -> httpcore2.Response:
        """Send a request and return its answer, whose body is then to be read."""
        connection = await self._take()
        response = await connection.handle_async_request(request)
        response.extensions["connection"] = connection
        return response

    async def read(self, response: httpcore2.Response) -> AsyncIterator[bytes]:
        """Yield the parts of a body; at the end, also an early one, close the answer."""
        try:
            async for part in response.stream:  # type: ignore[union-attr]
                yield part
        finally:
            await response.aclose()
            await self._keep(response.extensions["connection"])

    async def _take(self) -> httpcore2.AsyncConnectionInterface:
        while self._idle:
            connection = self._idle.pop()
            if not connection.has_expired():
                return connection
            await connection.aclose()
        return self._factory.create_connection(self._origin)

    async def _keep(self, connection: httpcore2.AsyncConnectionInterface) -> None:
        if connection.is_available():
            self._idle.append(connection)
        if len(self._idle) > 1 and self._idle[0].has_expired():
            await self._idle.popleft().aclose()

    async def close(self) -> None:
        """Close the connections that no request uses."""
        while self._idle:
            await self._idle.pop().aclose()
