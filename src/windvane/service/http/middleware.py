"""The middleware of every request: an id, access control, limits on bodies, and a last-resort answer."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from fastapi import FastAPI, Response
from starlette.middleware.gzip import DEFAULT_EXCLUDED_CONTENT_TYPES, GZipMiddleware
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from windvane.records import to_json
from windvane.service.connections import HAS_ARRIVED
from windvane.service.engine import Engine
from windvane.service.http.access import Access
from windvane.service.http.exchange import AbortedTransferError, Exchange
from windvane.service.http.forwarding import BODY, IS_FORWARDED, MOVED, RefusedError
from windvane.service.http.json_routes import JsonRoutes
from windvane.service.http.metrics import Metrics
from windvane.service.http.moved_streams import replay
from windvane.service.http.other_nodes import OtherNodes
from windvane.service.http.overload import SMALL_BODY, Load
from windvane.service.http.personalizer_routes import KEY_HEADER, is_personalizer, move_to_stream
from windvane.service.logs import RareLog, current_request
from windvane.service.personalizer import describe_problem
from windvane.service.problems import MEDIA_TYPE, Problem

if TYPE_CHECKING:
    from windvane.service.http.tracing import Tracing

METRICS = "/metrics"
PUBLIC = ("/healthz", "/readyz")  # answered without a token
PROBES = (*PUBLIC, METRICS)  # asked again and again by machines
FILES = ("/", "/docs", "/openapi.json")  # contain no data; the page requests data with the user's token
FOLDERS = ("/page/", "/docs/")  # of such files
ENDLESS = ("/live", "/events")  # too long to produce only for HEAD
CHARGE = "windvane.charge"  # in the scope: count the request as several
IS_VALID = "windvane.is_valid"  # in the scope: whether the request would still be admitted
BODY_SECONDS = 20.0  # in which a client must send a body
PARQUET = "application/vnd.apache.parquet"
SEE_LOG = "the request failed; the server's log says why"

log = logging.getLogger("windvane.service")


def respond(problem: Problem, path: str) -> Response:
    """Return the response of a problem, with the id of the request, in the format of the API at ``path``."""
    headers = {} if problem.retry_after is None else {"retry-after": f"{problem.retry_after:.0f}"}
    if problem.status == 401:
        headers["www-authenticate"] = "Bearer"
    if isinstance(problem, RefusedError) and problem.cause == "moving":
        headers[MOVED.decode()] = "1"
    document, request = problem.document, current_request.get()
    if request is not None:
        request.problem, request.cause = problem.code, problem.cause
        document["request_id"] = request.id
    if is_personalizer(path):
        status, document = describe_problem(problem)
        return Response(to_json(document), status, headers, "application/json")
    return Response(to_json(document) + b"\n", problem.status, headers, MEDIA_TYPE)


class ServiceMiddleware:
    """An ASGI application around the service's.

    ``hosts``: host names that are allowed while no token is needed; None: any. Otherwise a page of another site could
    reach this server under a host name of its own (DNS rebinding). With tokens, a proxy may use any name.
    Starlette's TrustedHostMiddleware is not used because it answers in plain text. ``log_requests``: write a line for
    every request, with ``skips_probes`` except for successful probes. ``tracing``: makes the spans of requests, if that
    is on. ``personalizer``: the stream of requests of the Personalizer API whose path names none, if it is on.
    """

    def __init__(
        self,
        app: FastAPI,
        engine: Engine,
        access: Access,
        metrics: Metrics,
        *,
        most_bytes: int,
        hosts: frozenset[str] | None,
        log_requests: bool,
        skips_probes: bool = False,
        json_routes: JsonRoutes,
        others: OtherNodes | None = None,
        tracing: Tracing | None = None,
        personalizer: str | None = None,
    ) -> None:
        self.app, self.engine, self._access, self._metrics = app, engine, access, metrics
        self._json_routes, self._others, self._tracing = json_routes, others, tracing
        self._personalizer = personalizer
        self._most_bytes, self._hosts = most_bytes, hosts
        self._log_requests, self._skips_probes = log_requests, skips_probes
        self._refusals, self._load = RareLog(log), Load()
        excluded = (*DEFAULT_EXCLUDED_CONTENT_TYPES, PARQUET)
        self._compressing = GZipMiddleware(app, 1024, compresslevel=6, exclude_content_types=excluded)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if self._personalizer is not None:
            scope = move_to_stream(scope, self._personalizer)
        if self._tracing is not None and self._tracing.is_traced(scope):
            await self._tracing.trace(scope, send, partial(self._answer, scope, receive))
        else:
            await self._answer(scope, receive, Exchange(scope, send))

    async def _answer(self, scope: Scope, receive: Receive, exchange: Exchange) -> None:
        exchange.is_last = self.engine.is_draining
        try:
            if not self._access.is_fresh and scope["path"] not in PUBLIC:
                # Metrics say why the store cannot be read, so they must not depend on it.
                await self._access.refresh(may_fail=scope["path"] == METRICS)
            self._check(scope, exchange)
            if self._load.is_crowded(scope):  # its client has many others in progress
                await self.engine.turnstile.wait()
            if exchange.method == "HEAD":
                if scope["path"].endswith(ENDLESS):
                    raise Problem("method-not-allowed", "use GET")
                scope = {**scope, "method": "GET"}  # a copy: the server reads its own when it sends the answer
            if exchange.is_reading:
                await self._compressing(scope, receive, exchange.send)
            else:
                body = scope[BODY] = await self._read_body(scope, exchange.headers, receive)
                response = await self._json_routes.respond(scope, receive, body)
                if response is None:
                    await self.app(scope, replay(body, receive), exchange.send)
                else:
                    await exchange.answer(response, scope, receive)
        except Problem as problem:
            response = respond(problem, scope["path"])
            if b"upgrade" in exchange.headers:
                response.headers["connection"] = "close"
            await response(scope, receive, exchange.send)
        except asyncio.CancelledError:
            exchange.status = exchange.status or 503  # the server stops, and waits no longer for it
            raise
        except ClientDisconnect:
            exchange.status = 499  # the client disconnected; nginx logs the same code
        except AbortedTransferError as error:
            log.error("%s %s: transfer aborted: %s", scope["method"], scope["path"], error)
        except Exception:
            log.exception("%s %s failed", scope["method"], scope["path"])
            if not exchange.status:
                await respond(Problem("internal", SEE_LOG), scope["path"])(scope, receive, exchange.send)
        finally:
            self._load.end(scope)
            is_probe = exchange.status == 200 and scope["path"] in PROBES
            exchange.finish(scope, self._metrics, log=self._log_requests and not (is_probe and self._skips_probes))

    def _check(self, scope: Scope, exchange: Exchange) -> None:
        """Raise if the request is not allowed."""
        path, headers = scope["path"], exchange.headers
        if b"upgrade" in headers and not headers.keys().isdisjoint((b"content-length", b"transfer-encoding")):
            # uvicorn's parser takes what follows the headers for the next request: the connection must be closed.
            raise Problem("invalid", "a request with a body must not have the header Upgrade; use HTTP/1.1 without it")
        if path in PUBLIC:
            return
        host, is_open = headers.get(b"host", b"").lower(), not self._access.needs_token()
        is_forwarded = self._others is not None and self._others.forwarder.is_from_node(headers)
        scope[IS_FORWARDED] = is_forwarded
        if (
            is_open
            and not is_forwarded
            and self._hosts is not None
            and _remove_port(host.decode("latin-1")) not in self._hosts
        ):
            raise Problem("wrong-host", f"this server answers as {', '.join(sorted(self._hosts))} only")
        if path in FILES or path.startswith(FOLDERS):
            self._load.begin(scope, f"address {exchange.info.peer}")
            return
        authorization, changes = headers.get(b"authorization"), scope["method"] not in ("GET", "HEAD", "OPTIONS")
        if authorization is None and self._personalizer is not None and is_personalizer(path):
            authorization = b"Bearer " + headers.get(KEY_HEADER, b"")
        bearer = None if authorization is None else authorization.decode("latin-1")
        needs = "full" if changes else "metrics" if path == METRICS else "read"
        try:
            token = self._access.authenticate(bearer, exchange.info.peer, is_forwarded=is_forwarded)
            exchange.info.token = None if token is None else token.name
            client = self._access.admit(token, exchange.info.peer, needs=needs, is_forwarded=is_forwarded)
        except Problem as problem:
            self._refusals.info(f"a request was refused: {problem.code}")
            raise
        scope[CHARGE] = partial(self._access.charge, client)
        scope[IS_VALID] = partial(self._access.is_valid, bearer, is_forwarded=is_forwarded)
        origin = headers.get(b"origin")
        is_foreign = origin is not None and origin.lower() != b"http://" + host and not is_forwarded
        if changes and is_foreign and is_open:
            raise Problem("wrong-origin", "without tokens, only pages of this server may change anything")
        self._load.begin(scope, client)

    def _too_large(self) -> Problem:
        return Problem("too-large", f"the body must have at most {self._most_bytes:,} bytes")

    async def _read_body(self, scope: Scope, headers: dict[bytes, bytes], receive: Receive) -> bytes:
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > self._most_bytes:
            raise self._too_large()
        media_type = headers.get(b"content-type", b"application/json").split(b";")[0].strip().lower()
        if media_type != b"application/json":
            raise Problem("not-json", "the body must be application/json")
        if scope.get(HAS_ARRIVED):
            return await self._receive(scope, receive)
        try:
            async with asyncio.timeout(BODY_SECONDS):
                return await self._receive(scope, receive)
        except TimeoutError:
            raise Problem("too-slow", f"the body must arrive within {BODY_SECONDS:g} seconds") from None

    async def _receive(self, scope: Scope, receive: Receive) -> bytes:
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            body += message.get("body", b"")
            if len(body) > self._most_bytes:
                raise self._too_large()
            if len(body) > SMALL_BODY:
                self._load.grow(scope, len(body))
            if not message.get("more_body", False):
                return bytes(body)


def _remove_port(host: str) -> str:
    name, _, port = host.rpartition(":")
    return name if name and (port.isdigit() or not port) else host
