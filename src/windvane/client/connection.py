"""Requests to the service: attempts until a deadline, pages of lists, and the log."""

from __future__ import annotations

import asyncio
import math
import os
import random
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import urlencode

from windvane.arguments import check_number
from windvane.client import messages
from windvane.client.address import Address, Headers, split_urls
from windvane.client.messages import BatchError, ClientError
from windvane.client.pool import TransportPool
from windvane.client.routing import Route, Router
from windvane.client.transport import FAILURES, UNSENT, Answer, AsyncNetwork, BlockingNetwork, get_header
from windvane.cluster_map import ClusterInfo
from windvane.errors import ArgumentError
from windvane.service_records import BatchResults, PendingPage, StreamPage

EXAMPLE = "http://127.0.0.1:8000"
DEADLINE = 30.0  # seconds; an ordinary restart of the service takes up to 5, compiling a new policy 11
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0  # seconds between attempts, doubled each time
OTHER_NAME = (62, 64)  # of OpenSSL: X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH
HINT_TO_TRUST = "; SSL_CERT_FILE names a file with the certificate to trust"
MOST_DOUBLINGS = 20  # more than it takes from the first pause to the longest
NODE_CONNECT_SECONDS = 1.0  # to connect to a node that only the map names; a given address forwards requests to it

T = TypeVar("T")
Page = TypeVar("Page", StreamPage, PendingPage)


class Connection:
    """The service at some addresses, asked until it answers. Subclasses say how to reach the network and to pause."""

    _network_class: type[BlockingNetwork | AsyncNetwork]

    def __init__(
        self,
        url: str | Sequence[str] | None = None,
        token: str | None = None,
        *,
        timeout: float = 10.0,
        deadline: float = DEADLINE,
        follow: bool = True,
        send_trace: bool = False,
    ) -> None:
        # By process, because a fork shares sockets, and by event loop, because asynchronous sockets belong to one.
        self._transports: dict[tuple[int, asyncio.AbstractEventLoop | None], TransportPool] = {}
        self._columns: dict[str, list[Any]] = {}  # of the first frame of vectors, by stream
        headers = {"Content-Type": "application/json", "User-Agent": "windvane"}
        token = os.environ.get("WINDVANE_TOKEN") if token is None else token
        if token is not None:
            if not isinstance(token, str) or not token.isascii() or not token.isprintable() or not token.strip():
                expected = "a string as printed by `windvane token add`"
                raise ArgumentError("token", None, expected, got="another value")  # which may be secret
            headers["Authorization"] = f"Bearer {token.strip()}"
        seconds = check_number("timeout", timeout, "of seconds above 0, at most 1e6", lambda s: 0 < s <= 1e6)
        for name, value in (("follow", follow), ("send_trace", send_trace)):
            if not isinstance(value, bool):
                raise ArgumentError(name, value, "True or False")
        more = _find_trace_headers() if send_trace else None
        given = _check_url(os.environ.get("WINDVANE_URL") or EXAMPLE if url is None else url, headers, seconds, more)
        self._deadline = check_number("deadline", deadline, "of seconds from 0 to 1e6", lambda s: 0 <= s <= 1e6)

        def build(url: str) -> Address:
            return Address(url, headers, seconds, min(seconds, NODE_CONNECT_SECONDS), build_more=more)

        self._router = Router(given, build, is_following=follow)
        self.url = ",".join(given)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    def _get_runtime(self) -> tuple[int, asyncio.AbstractEventLoop | None]:
        """Return the process and the event loop, None for blocking sockets, that may use a transport."""
        raise NotImplementedError

    def _get_pool(self) -> TransportPool:
        """Return the transports of this process and event loop, and forget those of event loops that were closed.

        If two threads create a pool at once, one of the two is dropped before it is used.
        """
        runtime = self._get_runtime()
        if pool := self._transports.get(runtime):
            return pool
        for other in list(self._transports):
            if other[1] is not None and other[1].is_closed():
                self._transports.pop(other, None)
        return self._transports.setdefault(runtime, TransportPool(self._network_class))

    async def _close(self) -> None:
        """Close the connections of this process and event loop."""
        if pool := self._transports.pop(self._get_runtime(), None):
            await pool.close()

    async def _pause(self, seconds: float) -> None:
        raise NotImplementedError

    async def _exchange(
        self, address: Address, method: str, path: str, body: bytes | None = None, key: str | None = None
    ) -> Answer:
        """Send a request once. Return its answer, or raise the error about the network."""
        pool = self._get_pool()
        if pool.is_sweep_due():
            await pool.sweep(self._router.list_addresses())
        try:
            return await pool.get(address).exchange(address.build_request(method, path, body, key))
        except FAILURES as error:
            raise _name_error(error, address) from None

    async def _ask(
        self, route: Route, method: str, path: str, body: bytes | None = None, key: str | None = None
    ) -> bytes:
        """Send a request once. Return the body of the answer, or raise the problem that it describes."""
        answer = await self._exchange(route.address, method, path, body, key)
        route.read_owner(answer.headers, _now)
        return check_answer(answer)

    async def _fetch_map(self) -> None:
        """Fetch the map of the cluster, unless another call does or did a moment ago. Calls work without it."""
        router = self._router
        if (lock := router.begin_fetch(_now())) is None:
            return
        address = next(router.list_given())
        try:
            body = check_answer(await self._exchange(address, "GET", messages.CLUSTER))
            router.use(messages.read(ClusterInfo, body), _now())
        except ClientError as error:
            router.leave(address)
            if error.code == "no-answer" or not error.is_temporary:
                router.suspend(_now())
        finally:
            lock.release()

    async def _send(
        self,
        kind: type[T],
        method: str,
        path: str,
        body: bytes | None = None,
        key: str | None = None,
        *,
        stream: str | None = None,
    ) -> T:
        """Send a request, about ``stream``, until it is answered, and return the answer as a ``kind``."""
        is_unsure, start = False, _now()
        if self._router.wants_map and stream is not None:
            await self._fetch_map()
        route = Route(self._router, stream)
        while True:
            try:
                record = messages.read(kind, await self._ask(route, method, path, body, key))
                if route.is_direct:
                    self._router.confirm(route.address)
                return record
            except ClientError as error:
                is_unsure = error.is_unsure = is_unsure or error.is_unsure
                pause = self._choose_pause(error, route, start)
            if pause:
                await self._pause(pause)

    def _choose_pause(self, error: ClientError, route: Route, start: float) -> float:
        """Return the seconds until the next attempt, or raise ``error`` with a summary of all attempts.

        Pauses grow, and differ between clients that failed together. No attempt begins after the deadline, except the
        one that replaces an attempt at a node which this client cannot use.
        """
        route.attempts += 1
        if route.leave_owner(error, _now()):
            return 0.0
        if error.is_temporary:
            if route.move_on(error) and _now() < start + self._deadline:
                return 0.0
            pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(route.pauses, MOST_DOUBLINGS))
            pause = error.retry_after + pause * _draw_spread()
            route.pauses += 1
            if _now() + pause <= start + self._deadline:
                return pause
            error.message += f"; gave up after {route.attempts} attempt{'s' * (route.attempts > 1)}"
        if error.is_unsure:
            error.code = "no-answer" if error.code == "unreachable" else error.code
            error.message += "; an attempt may have been executed"
        error.args = (error.message,)
        raise error from None

    async def _send_batch(self, stream: str, name: str, items: list[bytes], kind: type[Any]) -> list[Any]:
        """Send ``items`` in as many requests as necessary; return their answers, or raise the errors."""
        path, results = messages.build_path(stream, name, "batch"), list[Any]()
        for part in messages.split_batch(items):
            body = b'{"%s":[%s]}' % (name.encode(), b",".join(part))
            try:
                batch = await self._send(BatchResults, "POST", path, body, stream=stream)
                answers = [messages.read_item(item) for item in batch.results]
                if [isinstance(answer, (kind, ClientError)) for answer in answers] != [True] * len(part):
                    raise messages.not_understood(f"other results than for {len(part)} {name}")
                results += answers
            except ClientError as error:
                if not results:
                    raise
                results += [error] * len(part)
        if any(isinstance(result, ClientError) for result in results):
            raise BatchError(results)
        return results

    async def _pages(self, kind: type[Page], path: str, stream: str | None = None) -> AsyncIterator[Page]:
        """Yield the pages of a list."""
        query: dict[str, Any] = {"limit": messages.MOST_ITEMS}
        while True:
            page = await self._send(kind, "GET", f"{path}?{urlencode(query)}", stream=stream)
            yield page
            if page.next is None or page.next == query.get("after"):
                return
            query["after"] = page.next

    async def _read_events(
        self, stream: str, path: str, after: int, limit: int | None
    ) -> AsyncIterator[dict[str, Any]]:
        """Yield the events after number ``after``, at most ``limit``; resume where an answer breaks off."""
        if self._router.wants_map:
            await self._fetch_map()
        route, start, left = Route(self._router, stream), _now(), math.inf if limit is None else limit
        while left:
            is_first = True  # the events before it may have been removed
            query = {"after": after} | ({} if limit is None else {"limit": int(left)})
            try:
                async for line in self._read_lines(route, f"{path}?{urlencode(query)}"):
                    event = messages.read(dict[str, Any], line)
                    if "error" in event:  # the last line of a log with an unreadable event
                        raise ClientError(200, "unreadable", f"event {event.get('number')}: {event['error']}")
                    number = event.get("number")
                    if not isinstance(number, int) or number <= after or (number > after + 1 and not is_first):
                        raise messages.not_understood(f"not event {after + 1}")
                    after, left, start, is_first = number, left - 1, _now(), False
                    route.note_progress()
                    yield event
                return
            except ClientError as error:
                pause = self._choose_pause(error, route, start)
            if pause:
                await self._pause(pause)

    async def _read_lines(self, route: Route, path: str) -> AsyncIterator[bytes]:
        """Yield the lines of an answer; raise if it breaks off."""
        rest, address = b"", route.address
        try:
            reply = await self._get_pool().get(address).open(address.build_request("GET", path))
            route.read_owner(reply.headers, _now)
            if reply.status != 200:
                body = b"".join([part async for part in reply.parts])
                check_answer(Answer(reply.status, reply.headers, body))
            async for part in reply.parts:
                *lines, rest = (rest + part).split(b"\n")
                for line in lines:
                    yield line
        except FAILURES as error:
            raise _name_error(error, address) from None
        has_end = any(get_header(reply.headers, name) for name in (b"content-length", b"transfer-encoding"))
        if rest or not has_end:
            raise ClientError(200, "no-answer", "the log broke off")


_now = time.monotonic


def _draw_spread() -> float:
    return random.uniform(0.5, 1.5)


def check_answer(answer: Answer) -> bytes:
    """Return the body of an answer, or raise the problem that it describes."""
    if 200 <= answer.status < 300:
        return b"null" if answer.status == 204 else answer.body
    raise messages.build_error(answer.status, answer.body, get_header(answer.headers, b"retry-after") or "")


def _name_error(error: Exception, address: Address) -> ClientError:
    """Return the error about an attempt without an answer."""
    code, what = ("unreachable", "no connection") if isinstance(error, UNSENT) else ("no-answer", "no answer")
    hint = ""
    if isinstance(error.__cause__, ssl.SSLCertVerificationError):
        is_for_others = error.__cause__.verify_code in OTHER_NAME
        code = "untrusted"
        hint = "; use a name of the certificate in the URL" if is_for_others else HINT_TO_TRUST
    return ClientError(None, code, f"{address.url}: {what} ({str(error) or type(error).__name__}){hint}")


def _find_trace_headers() -> Callable[[], Headers]:
    """Return what builds the headers of the current trace. Raise if OpenTelemetry is missing."""
    from windvane.trace_context import build_trace_headers

    return build_trace_headers


def _check_url(
    url: Any, headers: Mapping[str, str], timeout: float, build_more: Callable[[], Headers] | None
) -> dict[str, Address]:
    """Return the addresses of a service by URL; they have no user, query or fragment."""
    try:
        if addresses := {each: Address(each, headers, timeout, build_more=build_more) for each in split_urls(url)}:
            return addresses
    except (ValueError, TypeError, AttributeError):
        pass
    is_secret = "@" in str(url)  # it may hold a password
    expected, got = f"an address such as {EXAMPLE}, or several", "another value" if is_secret else None
    raise ArgumentError("url", None if is_secret else url, expected, got=got)
