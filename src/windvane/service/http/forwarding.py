"""Forward requests to the node that owns their stream, once.

A forwarded request keeps its token and its Idempotency-Key. A header with the secret that all nodes of a cluster share
shows that the request comes from another node; such a request is never forwarded again. When a node was evicted,
because it cannot be reached, requests stop waiting for it: other nodes serve its streams. A node that has left by
itself still answers what it was sent, for a while.

:mod:`windvane.service.http.moved_streams` decides what happens to a request whose stream has moved.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import math
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from typing import Any

from fastapi import Request, Response
from fastapi.responses import StreamingResponse
from pydantic_core import from_json
from starlette.types import Scope

from windvane.client.address import Address, Headers
from windvane.client.address import Request as Outgoing
from windvane.client.transport import FAILURES, UNSENT, AsyncNetwork, Reply, Transport, get_header
from windvane.service.cluster.placement import ElsewhereError
from windvane.service.cluster.shard_map import ShardMap
from windvane.service.http.cluster_metrics import ForwardOutcome
from windvane.service.http.exchange import AbortedTransferError
from windvane.service.logs import current_request
from windvane.service.problems import Problem

FORWARDED = b"x-windvane-forwarded"
OWNER = "x-windvane-owner"  # header of forwarded answers: the address of the node that owns the stream
MOVED = b"x-windvane-moved"  # header of a 503 to another node: the stream has moved, and nothing was executed
BODY = "windvane.body"  # key in the scope: the body of the request
IS_FORWARDED = "windvane.is_forwarded"  # key in the scope: whether another node sent the request
CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 600.0  # how long a node may take for the next part of an answer: a refit takes long
LEFT_SECONDS = 5.0  # how long a node that has left by itself may take
REPEATABLE = ("GET", "HEAD", "PUT")  # methods of requests that give the same result when they are repeated
MOVED_DETAIL = "the stream has just moved to another node; try again"
MAX_GONE = 1000  # instances that are remembered to be gone, because a slow client may still read their answers
MAX_BUFFERED_BYTES = 1 << 16  # an answer up to this size is read completely before it is passed on
NOT_SENT = frozenset(
    {b"host", b"connection", b"keep-alive", b"te", b"trailer", b"upgrade", b"transfer-encoding", b"content-length",
     b"accept-encoding", b"expect", b"x-request-id", b"x-forwarded-for", b"proxy-authorization", FORWARDED}
)  # fmt: skip
# The answer is compressed here, which is also what the header Vary is about.
NOT_RETURNED = frozenset(
    {b"connection", b"keep-alive", b"transfer-encoding", b"date", b"server", b"vary", b"x-request-id"}
)


class RefusedError(Problem):
    """A node did not execute a request, because the stream has moved, or could not be asked to."""


class UnansweredError(Problem):
    """A node may have executed a request, which gives the same result if it is repeated."""


class Forwarder:
    """Sends requests to other nodes over persistent connections. ``secret`` returns the shared secret, ``is_wrong_url``
    whether another program was found at an address, and ``has_left`` whether an instance that is not in the map has
    left by itself.

    ``outcomes`` counts the requests by name of the node and outcome, one of
    :data:`windvane.service.http.cluster_metrics.OUTCOMES`.
    """

    def __init__(
        self,
        secret: Callable[[], str],
        is_wrong_url: Callable[[str], bool] = lambda _: False,
        has_left: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._secret, self._is_wrong_url, self._has_left = secret, is_wrong_url, has_left
        self.outcomes: Counter[tuple[str, ForwardOutcome]] = Counter()
        self._transports: dict[str, tuple[Address, Transport]] = {}
        self._waiting: dict[str, set[asyncio.Timeout]] = {}  # waits for a node, by its instance
        self._live: frozenset[str] = frozenset()  # the instances in the last map
        self._ends: dict[str, float] = {}  # when waits end, by instance that is gone, most recent last
        self._closing: set[asyncio.Task[None]] = set()  # close connections to addresses that are not used any more
        self._not_sent = NOT_SENT
        self._build_trace_headers: Callable[[], Headers] = list

    def continue_traces(self, names: frozenset[bytes], build: Callable[[], Headers]) -> None:
        """Replace the headers with these names by those that ``build`` returns, so that traces go on from this node."""
        self._not_sent, self._build_trace_headers = NOT_SENT | names, build

    def is_from_node(self, headers: dict[bytes, bytes]) -> bool:
        """Return whether another node sent a request."""
        proof = headers.get(FORWARDED)
        secret = self._secret()
        return proof is not None and bool(secret) and hmac.compare_digest(proof, secret.encode())

    async def forward(self, request: Request, owner: ElsewhereError) -> Response:
        """Return the answer of the node that owns the stream.

        Raises :class:`RefusedError` or :class:`UnansweredError` if the request may be sent again, and another
        :class:`Problem` if not.
        """
        scope = request.scope
        target = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
        may_repeat = request.method in REPEATABLE or "idempotency-key" in request.headers
        with self._translate(owner, may_repeat=may_repeat):
            async with self._wait_for(owner):
                reply = await self._send(owner, request.method, target, scope)
            if reply.status == 503 and get_header(reply.headers, MOVED) is not None:
                await self._read(owner, reply)
                self._count(owner, "moved")
                raise RefusedError("unavailable", MOVED_DETAIL, cause="moving")
            self._count(owner, "unavailable" if reply.status == 503 else "answered")
            headers = [(name, value) for name, value in reply.headers if name.lower() not in NOT_RETURNED]
            length = get_header(reply.headers, b"content-length")
            response: Response
            if length is not None and int(length) <= MAX_BUFFERED_BYTES:
                response = Response(await self._read(owner, reply), reply.status)
            else:
                response = StreamingResponse(self._pass_on_or_abort(owner, reply), reply.status)
        response.raw_headers = [*headers, (OWNER.encode(), owner.url.encode())]
        return response

    async def ask(self, owner: ElsewhereError, target: str, scope: Scope, seconds: float) -> Any:
        """Send a GET request to a node, with the token of the request in ``scope``. Return its JSON answer."""
        with self._translate(owner):
            async with asyncio.timeout(seconds), self._wait_for(owner):
                reply = await self._send(owner, "GET", target.encode(), scope)
                body = await self._read(owner, reply)
            self._count(owner, "unavailable" if reply.status == 503 else "answered")
        if reply.status != 200:
            raise Problem("unavailable", f"node {owner.node!r} answered {reply.status}", cause="unreachable")
        return from_json(body)

    def note_map(self, shard_map: ShardMap) -> None:
        """Stop waiting for nodes that were evicted, and soon for those that have left by themselves, and forget the
        addresses at which no node is any more. Connections to them that requests use are closed when these end.

        Only an instance that was in an earlier map is gone: requests may know a newer map than this one.
        """
        now = asyncio.get_running_loop().time()
        live = frozenset(node.instance for node in shard_map.nodes)
        for instance in self._live - live:
            self._ends[instance] = end = now + (LEFT_SECONDS if self._has_left(instance) else 0.0)
            for limit in self._waiting.get(instance, ()):
                limit.reschedule(end)
        self._live = live
        # An instance whose lease had expired can renew it until it is evicted.
        ends = {instance: end for instance, end in self._ends.items() if instance not in live}
        self._ends = dict(list(ends.items())[-MAX_GONE:])
        for url in self._transports.keys() - {node.url for node in shard_map.nodes}:
            _, transport = self._transports.pop(url)
            self._closing.add(task := asyncio.create_task(transport.close()))
            task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Close the connections."""
        for _, transport in self._transports.values():
            await transport.close()
        await asyncio.gather(*self._closing, return_exceptions=True)

    @contextlib.asynccontextmanager
    async def _wait_for(self, owner: ElsewhereError) -> AsyncIterator[None]:
        """Raise TimeoutError in the block when the node has left the cluster."""
        waiting = self._waiting.setdefault(owner.instance, set())
        try:
            async with asyncio.timeout_at(self._ends.get(owner.instance)) as limit:
                waiting.add(limit)
                try:
                    yield
                finally:
                    waiting.discard(limit)
        finally:
            if not waiting:
                self._waiting.pop(owner.instance, None)

    @contextlib.contextmanager
    def _translate(self, owner: ElsewhereError, *, may_repeat: bool = True) -> Iterator[None]:
        """Raise the problem of a request without an answer. ``may_repeat``: whether repeating it changes nothing."""
        try:
            yield
        except UNSENT:
            self._count(owner, "no-answer")
            detail = f"node {owner.node!r}, which serves this stream, cannot be reached at {owner.url}; try again"
            raise RefusedError("unavailable", detail, cause="unreachable") from None
        except (*FAILURES, TimeoutError):
            self._count(owner, "no-answer")
            place = f"node {owner.node!r} at {owner.url}"
            detail = f"{place} did not answer, and may have executed the request; retry with the same Idempotency-Key"
            raise (UnansweredError if may_repeat else Problem)("no-answer", detail) from None

    def _count(self, owner: ElsewhereError, outcome: ForwardOutcome) -> None:
        self.outcomes[owner.node, outcome] += 1

    async def _send(self, owner: ElsewhereError, method: str, target: bytes, scope: Scope) -> Reply:
        if self._is_wrong_url(owner.url):
            detail = (
                f"another server answers at {owner.url}, the address of node {owner.node!r}; nothing was sent there"
            )
            raise Problem("unavailable", detail, cause="unreachable")
        if self._ends.get(owner.instance, math.inf) <= asyncio.get_running_loop().time():
            raise RefusedError("unavailable", MOVED_DETAIL, cause="moving")
        if owner.url not in self._transports:
            try:
                # Without a proxy, which would see the secret.
                where = Address(owner.url, {}, ANSWER_SECONDS, CONNECT_SECONDS, uses_proxy=False)
            except ValueError:  # somebody has edited the table of nodes
                raise Problem("unavailable", f"node {owner.node!r} has no valid address", cause="unreachable") from None
            self._transports[owner.url] = where, Transport(where, AsyncNetwork())
        address, transport = self._transports[owner.url]
        body = b"" if method == "GET" else scope.get(BODY, b"")
        headers = self._build_headers(owner, scope, body)
        return await transport.open(Outgoing(method.encode(), address.prefix.encode() + target, headers, body))

    def _build_headers(self, owner: ElsewhereError, scope: Scope, body: bytes) -> Headers:
        own: Headers = [(b"host", owner.url.partition("://")[2].partition("/")[0].encode())]
        own.append((FORWARDED, self._secret().encode()))
        if (info := current_request.get()) is not None:
            own += [(b"x-request-id", info.id.encode()), (b"x-forwarded-for", info.peer.encode())]
        if body:
            own.append((b"content-length", b"%d" % len(body)))
        own += self._build_trace_headers()
        # The server does not strip white space from values, but sending it at their ends is not allowed.
        return own + [(name, value.strip()) for name, value in scope["headers"] if name not in self._not_sent]

    async def _read(self, owner: ElsewhereError, reply: Reply) -> bytes:
        """Return the whole body of an answer."""
        return b"".join([part async for part in self._pass_on(owner, reply)])

    async def _pass_on_or_abort(self, owner: ElsewhereError, reply: Reply) -> AsyncGenerator[bytes]:
        """Yield the parts of an answer. If the other node ends it early, abort this transfer too."""
        try:
            async with contextlib.aclosing(self._pass_on(owner, reply)) as parts:
                async for part in parts:
                    yield part
        except (*FAILURES, TimeoutError) as error:
            raise AbortedTransferError(f"node {owner.node!r} did not complete it ({type(error).__name__})") from None

    async def _pass_on(self, owner: ElsewhereError, reply: Reply) -> AsyncGenerator[bytes]:
        """Yield the parts of an answer. Raise TimeoutError if the other node leaves the cluster."""
        async with contextlib.aclosing(reply.parts) as parts:  # type: ignore[type-var]
            while True:
                async with self._wait_for(owner):
                    part = await anext(parts, None)
                if part is None:
                    return
                yield part
