"""Asking until there is an answer: connections that are kept open, and retries.

When an answer is lost, nobody can tell whether the request was carried out. So every decision, reward and history goes
out with a key, and is sent again with the same one: the service carries out a key once, and gives its answer again.
Settings may be set twice, and a name is taken once, so that everything else can be repeated as well.
"""

from __future__ import annotations

import http.client
import os
import random
import re
import ssl
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

from windvane.client.messages import ClientError, Request, document_of, entry, lines_of, not_understood, refusal
from windvane.errors import ArgumentError, WindvaneError

EXAMPLE = "http://127.0.0.1:8000"
IDLE = 10.0  # seconds after which a connection is not trusted any more; the server closes it after 30
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0  # seconds between attempts, doubled each time
LONGEST_WAIT = 60.0  # seconds that Retry-After may ask for; beyond, the caller is told instead
AGAIN = (429, 502, 503, 504)
PROXY = (502, 504)  # said by one that lost the service's answer

_VISIBLE = re.compile(r"[!-~]+")

Open = Callable[[], http.client.HTTPConnection]


class FaultError(WindvaneError):
    """An attempt that failed in a way that another may not. ``sent``: it may have been carried out nevertheless."""

    def __init__(self, error: ClientError, *, sent: bool, wait: float = 0.0) -> None:
        super().__init__(error.message)
        self.error, self.sent, self.wait = error, sent, wait


class _Line:
    """A connection that is kept open, of one thread of one process: answers come in the order of requests."""

    def __init__(self, open_one: Open) -> None:
        self.connection, self.process, self.used = open_one(), os.getpid(), time.monotonic()

    def close(self) -> None:
        self.connection.close()

    def __del__(self) -> None:  # with the thread that it belonged to
        if hasattr(self, "connection"):
            self.close()


class Connection:
    """To one service. Safe to use from several threads, and after a fork."""

    def __init__(self, url: str, headers: dict[str, str], *, timeout: float, retries: int) -> None:
        self.url, self.retries, self._headers = url, retries, headers
        self._open, self._prefix = _address(url, timeout)
        self._local = threading.local()
        self._lines: weakref.WeakSet[_Line] = weakref.WeakSet()
        self._guard = threading.Lock()

    def close(self) -> None:
        """Close the connections of all threads; what is asked later opens one again."""
        with self._guard:
            for line in list(self._lines):
                line.close()

    def call(self, request: Request, creates: str | None = None) -> Any:
        """The answer. ``creates``: the name that a repeated request would find taken."""
        unsure, attempt = False, 0
        while True:
            attempt += 1
            try:
                return self.ask(request)
            except FaultError as fault:
                unsure = unsure or fault.sent
                if attempt > self.retries or fault.wait > LONGEST_WAIT:
                    raise _given_up(fault.error, attempt, unsure) from None
                wait = fault.wait
            except ClientError as error:
                if creates is not None and unsure and error.code == "exists":
                    text = (
                        f"{error.message}; an answer was lost, so it may be the one asked for: see state({creates!r})"
                    )
                    raise ClientError(error.status, error.code, text, error.field) from None
                raise
            time.sleep(_pause(attempt, wait))

    def ask(self, request: Request) -> Any:
        """One attempt, on this thread's connection."""
        line: _Line | None = getattr(self._local, "line", None)
        if line is None or line.process != os.getpid():
            line = self._local.line = _Line(self._open)
            with self._guard:
                self._lines.add(line)
        finished = False
        try:
            response = self._sent(line, request)
            body = response.read()
            finished = True
        except (OSError, http.client.HTTPException) as error:
            raise _fault(error, self.url) from None
        finally:  # after Ctrl-C too: what may still come belongs to a question that nobody asks any more
            line.used = time.monotonic()
            if not finished:
                line.close()
        return _checked(response, body)

    def lines(self, path: Callable[[dict[str, Any] | None], str | None]) -> Iterator[dict[str, Any]]:
        """The lines of long answers. ``path`` tells what to ask for after the line that came last (None: the first);
        where an answer breaks off, it goes on from there. It ends with an answer, or where ``path`` is None."""
        last: dict[str, Any] | None = None
        failed = 0
        while (asked := path(last)) is not None:
            line = _Line(self._open)  # its own: the thread may ask for other things in between
            try:
                response = self._sent(line, Request("GET", asked))
                if response.status != 200:
                    _checked(response, response.read())
                for line_ in lines_of(response):
                    if last is not None and not entry(line_, "number", int) > entry(last, "number", int):
                        raise not_understood("repeats itself")
                    failed, last = 0, line_
                    yield line_
                return
            except (FaultError, OSError, http.client.HTTPException) as error:
                fault = _fault(error, self.url)
            finally:
                line.close()
            failed += 1
            if failed > self.retries or fault.wait > LONGEST_WAIT:
                raise _given_up(fault.error, failed, False)
            time.sleep(_pause(failed, fault.wait))

    def _sent(self, line: _Line, request: Request) -> http.client.HTTPResponse:
        connection = line.connection
        if time.monotonic() - line.used > IDLE:
            connection.close()
        if connection.sock is None:
            try:
                connection.connect()
            except OSError as error:
                told = ClientError(None, "unreachable", f"{self.url}: cannot be reached ({_why(error)})")
                raise FaultError(told, sent=False) from None
        headers = self._headers if request.key is None else {**self._headers, "Idempotency-Key": request.key}
        connection.request(request.method, self._prefix + request.path, request.body, headers)
        return connection.getresponse()


def _address(url: str, timeout: float) -> tuple[Open, str]:
    """How to connect to it, and what every path begins with."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
        plain = not (parts.query or parts.fragment or parts.username or parts.password)
        if parts.scheme not in ("http", "https") or not host or not plain or not _VISIBLE.fullmatch(url):
            raise ValueError
    except ValueError:
        raise ArgumentError("url", url, f"an address such as {EXAMPLE}") from None
    if parts.scheme == "http":
        return lambda: http.client.HTTPConnection(host, port, timeout=timeout), parts.path
    trust = ssl.create_default_context()
    return lambda: http.client.HTTPSConnection(host, port, timeout=timeout, context=trust), parts.path


def _checked(response: http.client.HTTPResponse, body: bytes) -> Any:
    """The document of a good answer; raises what a bad one says."""
    status, document = response.status, document_of(body)
    if status in AGAIN:
        asked = response.headers.get("Retry-After", "")
        wait = float(asked) if asked.isascii() and asked.isdigit() else 0.0  # a date is left to the usual pauses
        raise FaultError(refusal(status, document), sent=status in PROXY, wait=wait)
    if not 200 <= status < 300:
        raise refusal(status, document)
    if not isinstance(document, dict):
        raise FaultError(ClientError(status, "no_answer", "the answer cannot be read"), sent=True)
    return document


def _fault(error: Exception, url: str) -> FaultError:
    if isinstance(error, FaultError):
        return error
    return FaultError(ClientError(None, "no_answer", f"{url}: no answer ({_why(error)})"), sent=True)


def _given_up(error: ClientError, attempts: int, unsure: bool) -> ClientError:
    text = f"{error.message}; gave up after {attempts} attempt{'s' * (attempts > 1)}"
    if not unsure:
        return ClientError(error.status, error.code, text, error.field)
    code = "no_answer" if error.status is None else error.code
    return ClientError(error.status, code, f"{text}; whether it was carried out is not known", error.field)


def _why(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _pause(attempt: int, wait: float) -> float:
    """Longer every time, and never the same for two clients that failed together."""
    return wait + min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** (attempt - 1)) * random.uniform(0.5, 1.5)
