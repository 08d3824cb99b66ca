"""The way to the service: sessions, attempts, retries, pages and the log."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import ipaddress
import itertools
import os
import random
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, TypeVar

import httpx2

from windvane.arguments import check_number, check_whole
from windvane.client import messages
from windvane.client.messages import BatchError, ClientError
from windvane.errors import ArgumentError
from windvane.records import BatchResults, PendingPage, StreamPage

EXAMPLE = "http://127.0.0.1:8000"
IDLE = 10.0  # seconds that an unused connection is kept; the server closes it after 30
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0  # seconds between attempts, doubled each time
LONGEST_WAIT = 60.0  # seconds that Retry-After may ask for; beyond, the error is raised at once
UNSENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.ProxyError, httpx2.UnsupportedProtocol)

T = TypeVar("T")
Page = TypeVar("Page", StreamPage, PendingPage)
_parse_url = functools.lru_cache(httpx2.URL)  # that of decisions is the same again and again


class Connection:
    """The service at ``url``, asked until it answers. Subclasses say how bytes are transferred and how to pause."""

    _session_class: type[Any]

    def __init__(
        self, url: str | None = None, token: str | None = None, *, timeout: float = 10.0, retries: int = 5
    ) -> None:
        # By process, because a fork shares sockets, and by event loop, because asynchronous sockets belong to one.
        self._sessions: dict[tuple[int, asyncio.AbstractEventLoop | None], Any] = {}
        address = _check_url(os.environ.get("WINDVANE_URL") or EXAMPLE if url is None else url)
        headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "windvane"}
        token = os.environ.get("WINDVANE_TOKEN") if token is None else token
        if token is not None:
            if not isinstance(token, str) or not token.isascii() or not token.isprintable() or not token.strip():
                expected = "a text as `windvane token add` prints it"
                raise ArgumentError("token", None, expected, got="another value")  # which may be secret
            headers["Authorization"] = f"Bearer {token.strip()}"
        self.url = str(address).rstrip("/")
        self._retries = check_whole("retries", retries, 0, 100)
        self._options = {
            "headers": headers,
            "timeout": check_number("timeout", timeout, "of seconds above 0, at most 1e6", lambda s: 0 < s <= 1e6),
            "trust_env": not _is_loopback(address.host),  # proxies
            "limits": httpx2.Limits(keepalive_expiry=IDLE),
            # Certificates are loaded for https only: that takes 60 ms. Without any, no https server is trusted.
            "verify": True if address.scheme == "https" else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
        }

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    def _owner(self) -> tuple[int, asyncio.AbstractEventLoop | None]:
        """Return the process and the event loop, None for blocking sockets, that may use a session."""
        raise NotImplementedError

    def _session(self) -> Any:
        """Return the session of this process and event loop, and forget those of event loops that were closed.

        Of two sessions that threads open at once, one is dropped before its use.
        """
        owner = self._owner()
        if session := self._sessions.get(owner):
            return session
        for other in list(self._sessions):
            if other[1] is not None and other[1].is_closed():
                self._sessions.pop(other, None)
        return self._sessions.setdefault(owner, self._session_class(**self._options))

    async def _exchange(self, session: Any, request: httpx2.Request, *, stream: bool) -> httpx2.Response:
        """Return the answer; with ``stream``, without its body."""
        raise NotImplementedError

    def _read_chunks(self, response: httpx2.Response) -> AsyncIterator[bytes]:
        """Yield the parts of a body, and close the answer."""
        raise NotImplementedError

    async def _pause(self, seconds: float) -> None:
        raise NotImplementedError

    @contextlib.contextmanager
    def _name_errors(self) -> Iterator[None]:
        try:
            yield
        except httpx2.HTTPError as error:
            code, what = ("unreachable", "no connection") if isinstance(error, UNSENT) else ("no-answer", "no answer")
            raise ClientError(None, code, f"{self.url}: {what} ({str(error) or type(error).__name__})") from None

    async def _ask(
        self, method: str, path: str, key: str | None = None, *, stream: bool = False, **more: Any
    ) -> httpx2.Response:
        """Send a request once. Return the answer, or raise the problem that it describes."""
        session = self._session()
        headers = httpx2.Headers(session.headers)
        if key is not None:
            headers["Idempotency-Key"] = key
        with self._name_errors():
            # ``session.build_request`` also merges URLs, cookies and parameters, which takes much longer.
            request = httpx2.Request(method, _parse_url(self.url + path), headers=headers, **more)
            response = await self._exchange(session, request, stream=stream)
            if response.is_success:
                return response
            body = b"".join([chunk async for chunk in self._read_chunks(response)])
        raise messages.build_error(response.status_code, body, response.headers.get("Retry-After", ""))

    async def _send(
        self, kind: type[T], method: str, path: str, body: bytes | None = None, key: str | None = None, **more: Any
    ) -> T:
        """Send a request until it is answered, and return the answer as a ``kind``."""
        is_unsure = False
        for attempt in itertools.count(1):
            try:
                return messages.read(kind, (await self._ask(method, path, key, content=body, **more)).content)
            except ClientError as error:
                is_unsure = error.is_unsure = is_unsure or error.is_unsure
                pause = self._choose_pause(error, attempt)
            await self._pause(pause)
        raise AssertionError("the loop above does not end")

    def _choose_pause(self, error: ClientError, attempt: int) -> float:
        """Return the seconds until the next attempt, or raise ``error`` with what is known about all attempts.

        Pauses grow, and differ between clients that failed together.
        """
        if error.is_temporary and attempt <= self._retries and error.retry_after <= LONGEST_WAIT:
            pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** (attempt - 1))
            return error.retry_after + pause * random.uniform(0.5, 1.5)
        if error.is_temporary:
            error.message += f"; gave up after {attempt} attempt{'s' * (attempt > 1)}"
        if error.is_unsure:
            error.code = "no-answer" if error.code == "unreachable" else error.code
            error.message += "; an attempt got no answer, and it is not known whether it was carried out"
        error.args = (error.message,)
        raise error from None

    async def _send_batch(self, stream: str, name: str, items: list[bytes], kind: type[Any]) -> list[Any]:
        """Send ``items`` in as many requests as it takes; return their answers, or raise what failed."""
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
            page = await self._send(kind, "GET", path, params=query)
            yield page
            if page.next is None or page.next == query.get("after"):
                return
            query["after"] = page.next

    async def _read_events(self, path: str, after: int, end: int | None) -> AsyncIterator[dict[str, Any]]:
        """Yield the events after number ``after``, up to number ``end``; resume where an answer breaks off."""
        failures = 0
        while end is None or after < end:
            try:
                async for line in self._read_lines(path, {"after": after} | ({"limit": end - after} if end else {})):
                    event = messages.read(dict[str, Any], line)
                    if "error" in event:  # the last line of a log that the service cannot read on
                        raise ClientError(200, "unreadable", f"event {event.get('number')}: {event['error']}")
                    if event.get("number") != after + 1:
                        raise messages.not_understood(f"not event {after + 1}")
                    after, failures = after + 1, 0
                    yield event
                return
            except ClientError as error:
                failures += 1
                pause = self._choose_pause(error, failures)
            await self._pause(pause)

    async def _read_lines(self, path: str, query: Mapping[str, int]) -> AsyncIterator[bytes]:
        """Yield the lines of an answer; raise if it breaks off."""
        rest, response = b"", await self._ask("GET", path, stream=True, params=query)
        with self._name_errors():
            async for chunk in self._read_chunks(response):
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    yield line
        if rest or not {"content-length", "transfer-encoding"} & response.headers.keys():
            raise ClientError(200, "no-answer", "the log broke off")


def _check_url(url: Any) -> httpx2.URL:
    """Return the address of a service; it has no user, query or fragment."""
    with contextlib.suppress(httpx2.InvalidURL, TypeError):
        address = httpx2.URL(url)
        if address.scheme in ("http", "https") and address.host and not set("@?# ") & set(url):
            return address
    is_secret = "@" in str(url)  # it may hold a password
    expected, got = f"an address such as {EXAMPLE}", "another value" if is_secret else None
    raise ArgumentError("url", None if is_secret else url, expected, got=got)


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
