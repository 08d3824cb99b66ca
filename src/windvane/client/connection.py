"""Requests to the service: retries until a deadline, pages of lists, and the log."""

from __future__ import annotations

import asyncio
import itertools
import math
import os
import random
import ssl
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any, TypeVar
from urllib.parse import urlencode

from windvane.arguments import check_number
from windvane.client import messages
from windvane.client.address import Address
from windvane.client.messages import BatchError, ClientError
from windvane.client.transport import FAILURES, UNSENT, AsyncNetwork, BlockingNetwork, Transport, get_header
from windvane.errors import ArgumentError
from windvane.records import BatchResults, PendingPage, StreamPage

EXAMPLE = "http://127.0.0.1:8000"
DEADLINE = 30.0  # seconds; an ordinary restart of the service takes up to 5, compiling a new policy 11
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0  # seconds between attempts, doubled each time

T = TypeVar("T")
Page = TypeVar("Page", StreamPage, PendingPage)


class Connection:
    """The service at ``url``, asked until it answers. Subclasses say how the network is reached and how to pause."""

    _network_class: type[BlockingNetwork | AsyncNetwork]

    def __init__(
        self, url: str | None = None, token: str | None = None, *, timeout: float = 10.0, deadline: float = DEADLINE
    ) -> None:
        # By process, because a fork shares sockets, and by event loop, because asynchronous sockets belong to one.
        self._transports: dict[tuple[int, asyncio.AbstractEventLoop | None], Transport] = {}
        self._columns: dict[str, list[Any]] = {}  # of the first frame of vectors, by stream
        headers = {"Content-Type": "application/json", "User-Agent": "windvane"}
        token = os.environ.get("WINDVANE_TOKEN") if token is None else token
        if token is not None:
            if not isinstance(token, str) or not token.isascii() or not token.isprintable() or not token.strip():
                expected = "a string as printed by `windvane token add`"
                raise ArgumentError("token", None, expected, got="another value")  # which may be secret
            headers["Authorization"] = f"Bearer {token.strip()}"
        seconds = check_number("timeout", timeout, "of seconds above 0, at most 1e6", lambda s: 0 < s <= 1e6)
        self._address = _check_url(os.environ.get("WINDVANE_URL") or EXAMPLE if url is None else url, headers, seconds)
        self._deadline = check_number("deadline", deadline, "of seconds from 0 to 1e6", lambda s: 0 <= s <= 1e6)
        self.url = self._address.url

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    def _owner(self) -> tuple[int, asyncio.AbstractEventLoop | None]:
        """Return the process and the event loop, None for blocking sockets, that may use a transport."""
        raise NotImplementedError

    def _transport(self) -> Transport:
        """Return the transport of this process and event loop, and forget those of event loops that were closed.

        If two threads create a transport at once, one of the two is dropped before it is used.
        """
        owner = self._owner()
        if transport := self._transports.get(owner):
            return transport
        for other in list(self._transports):
            if other[1] is not None and other[1].is_closed():
                self._transports.pop(other, None)
        return self._transports.setdefault(owner, Transport(self._address, self._network_class()))

    async def _close(self) -> None:
        """Close the connections of this process and event loop."""
        if transport := self._transports.pop(self._owner(), None):
            await transport.close()

    async def _pause(self, seconds: float) -> None:
        raise NotImplementedError

    def _name_error(self, error: Exception) -> ClientError:
        """Return the error about an attempt without an answer."""
        code, what = ("unreachable", "no connection") if isinstance(error, UNSENT) else ("no-answer", "no answer")
        if isinstance(error.__cause__, ssl.SSLCertVerificationError):
            code = "untrusted"
        return ClientError(None, code, f"{self.url}: {what} ({str(error) or type(error).__name__})")

    async def _ask(self, method: str, path: str, body: bytes | None = None, key: str | None = None) -> bytes:
        """Send a request once. Return the body of the answer, or raise the problem that it describes."""
        try:
            answer = await self._transport().exchange(self._address.build_request(method, path, body, key))
        except FAILURES as error:
            raise self._name_error(error) from None
        if 200 <= answer.status < 300:
            return b"null" if answer.status == 204 else answer.body
        raise messages.build_error(answer.status, answer.body, get_header(answer.headers, b"retry-after") or "")

    async def _send(
        self, kind: type[T], method: str, path: str, body: bytes | None = None, key: str | None = None
    ) -> T:
        """Send a request until it is answered, and return the answer as a ``kind``."""
        is_unsure, start = False, _now()
        for attempt in itertools.count(1):
            try:
                return messages.read(kind, await self._ask(method, path, body, key))
            except ClientError as error:
                is_unsure = error.is_unsure = is_unsure or error.is_unsure
                pause = self._choose_pause(error, attempt, start)
            await self._pause(pause)
        raise AssertionError("the loop above does not end")

    def _choose_pause(self, error: ClientError, attempt: int, start: float) -> float:
        """Return the seconds until the next attempt, or raise ``error`` with a summary of all attempts.

        Pauses grow, and differ between clients that failed together. No attempt begins after the deadline.
        """
        if error.is_temporary:
            pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** (attempt - 1))
            pause = error.retry_after + pause * _draw_spread()
            if _now() + pause <= start + self._deadline:
                return pause
            error.message += f"; gave up after {attempt} attempt{'s' * (attempt > 1)}"
        if error.is_unsure:
            error.code = "no-answer" if error.code == "unreachable" else error.code
            error.message += "; an attempt got no answer and may have been executed"
        error.args = (error.message,)
        raise error from None

    async def _send_batch(self, stream: str, name: str, items: list[bytes], kind: type[Any]) -> list[Any]:
        """Send ``items`` in as many requests as necessary; return their answers, or raise the errors."""
        path, results = messages.build_path(stream, name, "batch"), list[Any]()
        for part in messages.split_batch(items):
            body = b'{"%s":[%s]}' % (name.encode(), b",".join(part))
            try:
                batch = await self._send(BatchResults, "POST", path, body)
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

    async def _pages(self, kind: type[Page], path: str) -> AsyncIterator[Page]:
        """Yield the pages of a list."""
        query: dict[str, Any] = {"limit": messages.MOST_ITEMS}
        while True:
            page = await self._send(kind, "GET", f"{path}?{urlencode(query)}")
            yield page
            if page.next is None or page.next == query.get("after"):
                return
            query["after"] = page.next

    async def _read_events(self, path: str, after: int, limit: int | None) -> AsyncIterator[dict[str, Any]]:
        """Yield the events after number ``after``, at most ``limit``; resume where an answer breaks off."""
        failures, start, left = 0, _now(), math.inf if limit is None else limit
        while left:
            try:
                is_first = True  # the events before it may have been removed
                query = {"after": after} | ({} if limit is None else {"limit": int(left)})
                async for line in self._read_lines(path, query):
                    event = messages.read(dict[str, Any], line)
                    if "error" in event:  # the last line of a log with an unreadable event
                        raise ClientError(200, "unreadable", f"event {event.get('number')}: {event['error']}")
                    number = event.get("number")
                    if not isinstance(number, int) or number <= after or (number > after + 1 and not is_first):
                        raise messages.not_understood(f"not event {after + 1}")
                    after, left, failures, start, is_first = number, left - 1, 0, _now(), False
                    yield event
                return
            except ClientError as error:
                failures += 1
                pause = self._choose_pause(error, failures, start)
            await self._pause(pause)

    async def _read_lines(self, path: str, query: Mapping[str, int]) -> AsyncIterator[bytes]:
        """Yield the lines of an answer; raise if it breaks off."""
        rest, request = b"", self._address.build_request("GET", f"{path}?{urlencode(query)}")
        try:
            reply = await self._transport().open(request)
            if reply.status != 200:
                retry_after = get_header(reply.headers, b"retry-after") or ""
                raise messages.build_error(reply.status, b"".join([part async for part in reply.parts]), retry_after)
            async for part in reply.parts:
                *lines, rest = (rest + part).split(b"\n")
                for line in lines:
                    yield line
        except FAILURES as error:
            raise self._name_error(error) from None
        has_end = any(get_header(reply.headers, name) for name in (b"content-length", b"transfer-encoding"))
        if rest or not has_end:
            raise ClientError(200, "no-answer", "the log broke off")


_now = time.monotonic


def _draw_spread() -> float:
    return random.uniform(0.5, 1.5)


def _check_url(url: Any, headers: Mapping[str, str], timeout: float) -> Address:
    """Return the address of a service; it has no user, query or fragment."""
    try:
        return Address(url, headers, timeout)
    except (ValueError, TypeError, AttributeError):
        is_secret = "@" in str(url)  # it may hold a password
        expected, got = f"an address such as {EXAMPLE}", "another value" if is_secret else None
        raise ArgumentError("url", None if is_secret else url, expected, got=got) from None
