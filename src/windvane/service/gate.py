"""What every request passes before it reaches a route: limits, access, a clean answer whatever goes wrong, counting."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable, MutableMapping
from functools import lru_cache, partial
from typing import Any

from windvane.records import to_json
from windvane.service.access import Access
from windvane.service.errors import AbortedTransferError, ServiceError, internal
from windvane.service.metrics import Metrics

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

OPEN = ("/healthz", "/readyz")  # told to anybody
OPEN_PAGE = ("/", "/page/")  # files of the page: they hold no data, which it asks for with the user's token
ENDLESS = ("/live", "/events")  # answers that are not made only to be left out
CHARGE = "windvane.charge"  # in the scope: counts a request as several
ALLOWED = "windvane.allowed"  # whether the request would be let in now
BODY_SECONDS = 20.0  # that a client may take to send a body

log = logging.getLogger("windvane.service")


class Gate:
    """An ASGI application around another."""

    def __init__(
        self, app: App, access: Access, metrics: Metrics, *, most_bytes: int, hosts: frozenset[str] | None = None
    ) -> None:
        """``hosts``: names under which it may be asked where no token is needed; None: any. A page from elsewhere could
        otherwise ask under a name of its own that leads here. With tokens, a proxy may hand on any name."""
        self._app, self._access, self._metrics = app, access, metrics
        self._most_bytes, self._hosts = most_bytes, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        head = scope["method"] == "HEAD"
        if head:  # the server leaves the body out
            scope = {**scope, "method": "GET"}
        began, status = time.perf_counter(), 500
        answered = False

        async def watched(message: Message) -> None:
            nonlocal status, answered
            if message["type"] == "http.response.start":
                status, answered = message["status"], True
            await send(message)

        try:
            headers = {name: value for name, value in scope["headers"] if name in _WANTED}
            self._check(scope, headers)
            if head and scope["path"].endswith(ENDLESS):
                raise ServiceError(405, "wrong_method", "ask for it with GET")
            body = await self._body(headers, receive) if scope["method"] in ("POST", "PATCH", "PUT", "DELETE") else b""
            await self._app(scope, _replayed(body, receive), watched)
        except ServiceError as error:
            await _answer(watched, error)
        except asyncio.CancelledError:
            raise
        except AbortedTransferError as error:
            log.error("%s %s was broken off: %s", scope["method"], scope["path"], error)
        except Exception:
            log.exception("%s %s failed", scope["method"], scope["path"])
            if not answered:
                await _answer(watched, internal())
        finally:
            route = scope.get("route")
            self._metrics.request(getattr(route, "path", "other"), status, time.perf_counter() - began)

    def _check(self, scope: Scope, headers: dict[bytes, bytes]) -> None:
        path, host = scope["path"], headers.get(b"host", b"")
        if path in OPEN:
            return
        if path == OPEN_PAGE[0] or path.startswith(OPEN_PAGE[1]):
            self._access.allows(None)  # to know whether tokens are needed
            self._check_host(host)
            return
        client = (scope.get("client") or ("unknown",))[0]
        authorization = headers.get(b"authorization")
        told = None if authorization is None else authorization.decode("latin-1")
        changes = scope["method"] not in ("GET", "OPTIONS")
        who = self._access.check(told, client, changes=changes)
        scope[CHARGE], scope[ALLOWED] = partial(self._access.charge, who), partial(self._access.allows, told)
        self._check_host(host)
        origin = headers.get(b"origin")
        if changes and origin is not None and not self._access.guarded and origin.lower() != b"http://" + host.lower():
            raise ServiceError(
                403, "wrong_origin", "a page of another site asks; without tokens, only this server's may"
            )

    def _check_host(self, host: bytes) -> None:
        if self._hosts is not None and not self._access.guarded and _name(host) not in self._hosts:
            raise ServiceError(403, "wrong_host", f"this server answers as {', '.join(sorted(self._hosts))} only")

    async def _body(self, headers: dict[bytes, bytes], receive: Receive) -> bytes:
        too_large = ServiceError(413, "too_large", f"the body must be at most {self._most_bytes:,} bytes")
        told = headers.get(b"content-length", b"0")
        if told.isdigit() and int(told) > self._most_bytes:
            raise too_large
        content_type = headers.get(b"content-type", b"application/json").split(b";")[0].strip().lower()
        if content_type != b"application/json":
            raise ServiceError(415, "not_json", "the body must be application/json")
        parts, size = [], 0
        deadline = asyncio.get_running_loop().time() + BODY_SECONDS
        while True:
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                raise ServiceError(408, "too_slow", f"the body must arrive within {BODY_SECONDS:g} seconds") from None
            if message["type"] == "http.disconnect":
                raise ServiceError(400, "cut_short", "the connection was closed before the body had arrived")
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self._most_bytes:
                raise too_large
            if not message.get("more_body", False):
                return parts[0] if len(parts) == 1 else b"".join(parts)


_WANTED = frozenset((b"authorization", b"content-length", b"content-type", b"host", b"origin"))


@lru_cache(maxsize=64)
def _name(host: bytes) -> str:
    """The header ``host`` without the port."""
    return re.sub(r":\d*$", "", host.decode("latin-1").lower())


def _replayed(body: bytes, receive: Receive) -> Receive:
    """``receive`` for an application that has the whole body at once; afterwards the real one, which tells the end."""
    told = False

    async def replay() -> Message:
        nonlocal told
        if told:
            return await receive()
        told = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


async def _answer(send: Send, error: ServiceError) -> None:
    body = to_json(error.document)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if error.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if error.status in (429, 503):
        headers.append((b"retry-after", b"%d" % error.wait))
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
