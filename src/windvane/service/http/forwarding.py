"""Forward requests to the node that owns their stream, once.

A forwarded request keeps its token and its Idempotency-Key. A header with the secret that all nodes of a cluster share
shows that it comes from another node; such a request is never forwarded again.
"""

from __future__ import annotations

import hmac
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

from fastapi import Request, Response
from fastapi.responses import StreamingResponse
from pydantic_core import from_json
from starlette.types import Scope

from windvane.client.address import Address, Headers
from windvane.client.address import Request as Outgoing
from windvane.client.transport import FAILURES, AsyncNetwork, Reply, Transport, get_header
from windvane.service.cluster.placement import ElsewhereError
from windvane.service.logs import current_request
from windvane.service.problems import Problem

FORWARDED = b"x-windvane-forwarded"
OWNER = "x-windvane-owner"  # in answers that were forwarded: the address of the node that owns the stream
BODY = "windvane.body"  # in the scope: the body of the request
IS_FORWARDED = "windvane.is_forwarded"  # in the scope: whether another node sent the request
SECONDS = 30.0  # that another node may take for the next part of an answer
SHORT = 1 << 16  # bytes of an answer that is read before it is passed on
NOT_SENT = frozenset(
    {b"host", b"connection", b"keep-alive", b"te", b"trailer", b"upgrade", b"transfer-encoding", b"content-length",
     b"accept-encoding", b"expect", b"x-request-id", b"x-forwarded-for", b"proxy-authorization", FORWARDED}
)  # fmt: skip
NOT_RETURNED = frozenset({b"connection", b"keep-alive", b"transfer-encoding", b"date", b"server", b"x-request-id"})


class Forwarder:
    """Sends requests to other nodes over connections that are kept open. ``secret`` returns the shared secret."""

    def __init__(self, secret: Callable[[], str]) -> None:
        self._secret = secret
        self._transports: dict[str, Transport] = {}

    def is_from_node(self, headers: dict[bytes, bytes]) -> bool:
        """Return whether another node sent a request."""
        proof = headers.get(FORWARDED)
        secret = self._secret()
        return proof is not None and bool(secret) and hmac.compare_digest(proof, secret.encode())

    async def forward(self, request: Request, owner: ElsewhereError) -> Response:
        """Return the answer of the node that owns the stream."""
        scope = request.scope
        if scope.get(IS_FORWARDED):
            raise Problem("unavailable", "the stream has just moved to another node; try again")
        target = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
        reply = await self._send(owner, request.method, target, scope)
        headers = [(name, value) for name, value in reply.headers if name.lower() not in NOT_RETURNED]
        length = get_header(reply.headers, b"content-length")
        response: Response
        if length is not None and int(length) <= SHORT:
            response = Response(await self._read(owner, reply), reply.status)
        else:
            response = StreamingResponse(_pass_on(reply), reply.status)
        response.raw_headers = [*headers, (OWNER.encode(), owner.url.encode())]
        return response

    async def ask(self, owner: ElsewhereError, target: str, scope: Scope) -> Any:
        """Return the JSON answer of a node to a request to read, with the rights of the request in ``scope``."""
        reply = await self._send(owner, "GET", target.encode(), scope)
        body = await self._read(owner, reply)
        if reply.status != 200:
            raise Problem("unavailable", f"node {owner.node!r} answers {reply.status}")
        return from_json(body)

    async def close(self) -> None:
        """Close the connections."""
        for transport in self._transports.values():
            await transport.close()

    async def _send(self, owner: ElsewhereError, method: str, target: bytes, scope: Scope) -> Reply:
        transport = self._transports.get(owner.url)
        if transport is None:
            transport = self._transports[owner.url] = Transport(Address(owner.url, {}, SECONDS), AsyncNetwork())
        body = b"" if method == "GET" else scope.get(BODY, b"")
        try:
            return await transport.open(
                Outgoing(method.encode(), target, self._build_headers(owner, scope, body), body)
            )
        except FAILURES:
            raise _does_not_answer(owner) from None

    def _build_headers(self, owner: ElsewhereError, scope: Scope, body: bytes) -> Headers:
        own: Headers = [(b"host", owner.url.partition("://")[2].partition("/")[0].encode())]
        own.append((FORWARDED, self._secret().encode()))
        if (info := current_request.get()) is not None:
            own += [(b"x-request-id", info.id.encode()), (b"x-forwarded-for", info.peer.encode())]
        if body:
            own.append((b"content-length", b"%d" % len(body)))
        return own + [(name, value) for name, value in scope["headers"] if name not in NOT_SENT]

    async def _read(self, owner: ElsewhereError, reply: Reply) -> bytes:
        try:
            return b"".join([part async for part in reply.parts])
        except FAILURES:
            raise _does_not_answer(owner) from None


async def _pass_on(reply: Reply) -> AsyncIterator[bytes]:
    """Yield a long answer; if the other node ends it early, the transfer is aborted here too."""
    async with aclosing(reply.parts) as parts:  # type: ignore[type-var]
        async for part in parts:
            yield part


def _does_not_answer(owner: ElsewhereError) -> Problem:
    return Problem("unavailable", f"node {owner.node!r}, which serves this stream, does not answer; try again")
