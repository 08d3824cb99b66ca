"""A request and its answer, as the log and the metrics see them."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from windvane.errors import WindvaneError
from windvane.service.http.endpoints import JsonResponse
from windvane.service.http.metrics import Metrics
from windvane.service.logs import RequestInfo, access_log, current_request, read_request_id

OTHER = "other"  # instead of a route
UNREAD_SECONDS = 60.0  # after which an answer that the client does not read is aborted
SHORT = 1 << 15  # bytes of an answer to a change that fit into the buffers of a connection, read or not
MAX_PATH = 200  # characters that are logged
CLOSE = (b"connection", b"close")
SECURITY_HEADERS = [
    (b"cache-control", b"no-cache"),
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
        b"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
]


class AbortedTransferError(WindvaneError):
    """A response has begun and cannot be completed. The connection is closed, so that the client notices."""


class Exchange:
    """Forwards an answer to ``send``, completes its headers, and counts it.

    Attributes
    ----------
    headers : dict
        Of the request.
    info : RequestInfo
        The id and the peer of the request, also in :data:`windvane.service.logs.current_request`.
    status : int
        Of the answer; 0 until it begins.
    is_last : bool
        Whether the connection is closed afterwards, because the server will stop: a client that sent its next request
        at that moment could not know whether it was executed.
    """

    def __init__(self, scope: Scope, send: Send) -> None:
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.method: str = scope["method"]
        self.is_reading = self.method in ("GET", "HEAD")
        peer = (scope.get("client") or ("unknown",))[0]
        self.info = RequestInfo(read_request_id(self.headers.get(b"x-request-id")), peer)
        self.status = self._bytes = 0
        self.is_last = False
        self._send, self._began = send, time.perf_counter()
        current_request.set(self.info)

    async def answer(self, response: Response, scope: Scope, receive: Receive) -> None:
        """Send an answer to a change. One that is short and complete passes through nothing else."""
        if not isinstance(response, JsonResponse) or len(response.body) > SHORT:
            return await response(scope, receive, self.send)
        self.status, self._bytes = response.status_code, len(response.body)
        headers = [*response.raw_headers, (b"x-request-id", self.info.id.encode())]
        if self.is_last:
            headers.append(CLOSE)
        await self._send({"type": "http.response.start", "status": self.status, "headers": headers})
        await self._send({"type": "http.response.body", "body": response.body})

    async def send(self, message: Message) -> None:
        """Send a part of the answer."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = [*message["headers"], (b"x-request-id", self.info.id.encode())]
            if self.is_last and CLOSE not in headers:
                headers.append(CLOSE)
            if self.is_reading:
                names = {name for name, _ in headers}
                headers += [header for header in SECURITY_HEADERS if header[0] not in names]
            message["headers"] = headers
        elif self.method == "HEAD":
            message = {**message, "body": b""}
        size = len(message.get("body", b""))
        self._bytes += size
        if size <= SHORT and not self.is_reading:
            return await self._send(message)
        try:
            async with asyncio.timeout(UNREAD_SECONDS):
                await self._send(message)
        except TimeoutError:
            raise ClientDisconnect from None

    def finish(self, scope: Scope, metrics: Metrics, *, log: bool) -> None:
        """Count the request, and log it. ``scope`` names the route."""
        route, seconds = getattr(scope.get("route"), "path", OTHER), time.perf_counter() - self._began
        metrics.count_request(route, self.status, seconds)
        if self.info.problem is not None:
            metrics.count_problem(self.info.problem)
        if log:
            fields: dict[str, Any] = {
                "method": self.method,
                "route": route,
                "path": scope["path"][:MAX_PATH] if route == OTHER else None,  # refused before it had a route
                "stream": scope.get("path_params", {}).get("stream"),
                "status": self.status,
                "duration_ms": round(1000.0 * seconds, 3),
                "bytes": self._bytes,
                "token": self.info.token,
                "problem": self.info.problem,
                "cause": self.info.cause,
            }
            known = {name: value for name, value in fields.items() if value is not None}
            access_log.info("request", extra={"fields": known})
