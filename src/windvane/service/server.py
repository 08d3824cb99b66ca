"""Running the service: where it may listen, and how it starts and stops."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import re
import signal
import socket
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from windvane.errors import ArgumentError
from windvane.service.app import MOST_BYTES, create_app
from windvane.service.gate import BODY_SECONDS
from windvane.service.store import Store, StoreError

HEAD_SECONDS = 10.0  # that a client may take to send the head of a request
READ_SECONDS = 30.0  # that it may leave an answer, or the rest of one, unread
LINGER_SECONDS = 5.0  # that it may go on sending a body whose request was answered: closing at once, it would not hear
MOST_HEAD = 64 << 10  # bytes of it
LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})


def serve(
    path: str | Path,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    rate: float = 0.0,
    most_bytes: int = MOST_BYTES,
    started: Callable[[str], None] = lambda _: None,
) -> None:
    """Serve the store at ``path`` until the process is told to stop. ``started`` is told the address.

    Beyond loopback only with a token in the store: without one, anybody who can reach the port could do anything.
    """
    store = Store(path)
    try:
        local = on_loopback(host)
        if not local and not store.read_tokens():
            hint = f"other machines can reach it; add a token first: windvane token add NAME --store {path}"
            raise ArgumentError("host", host, "a loopback address while the store has no token", hint=hint)
        name = f"[{host}]" if ":" in host else host
        closing, hosts = asyncio.Event(), LOOPBACK | {name} if local else None
        try:
            app = create_app(store, rate=rate, most_bytes=most_bytes, hosts=hosts, closed=not local, closing=closing)
        except sqlite3.Error as error:
            raise StoreError(store.path, "unreadable", str(error)) from None
        listener = _listen(host, port)
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, timeout_keep_alive=30, timeout_graceful_shutdown=5,
            limit_concurrency=1000, server_header=False, proxy_headers=False, http=_Http, ws="none",
        )  # fmt: skip
        server = _Server(config, lambda: started(f"http://{name}:{listener.getsockname()[1]}"), closing)
        server.run(sockets=[listener])
    finally:
        store.close()


# An offer to speak another protocol may be passed over; but the parser would not read the body after it. So the header
# gets a name that nobody knows.
_UPGRADE, _OFFER = re.compile(rb"\r\nupgrade(?=[ \t]*:)", re.IGNORECASE), b"\r\nx-offer"


class _Alarm:
    """A call that is made after a while, unless it is called off."""

    _handle: asyncio.TimerHandle | None = None

    def __bool__(self) -> bool:
        return self._handle is not None

    def set(self, loop: asyncio.AbstractEventLoop, seconds: float, call: Callable[..., None], *arguments: int) -> None:
        self.off()
        self._handle = loop.call_later(seconds, call, *arguments)

    def off(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None


class _Http(HttpToolsProtocol):
    """A request's head must be short, and come soon, and answers must be read: whoever opens connections and says
    little, or does not listen, holds nobody up."""

    _receiving = False  # a body
    _head = 0  # bytes of a head that is under way

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._head_due, self._body_due, self._reading_due = _Alarm(), _Alarm(), _Alarm()
        self._expect_head()

    def _expect_head(self) -> None:
        self._head = 0
        self._head_due.set(self.loop, HEAD_SECONDS, self.transport.close)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():  # the answer is on its way; nothing after it counts
            return
        if self._head_due:
            self._head += len(data)
        if not self._receiving:
            data = _UPGRADE.sub(_OFFER, data)
        super().data_received(data)
        if self._head_due and self._head > MOST_HEAD and not self.transport.is_closing():
            self.send_400_response("The head of the request is too long.")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._expect_head()

    def on_headers_complete(self) -> None:
        self._head_due.off()
        if self.parser.should_upgrade():  # said in pieces, so that it was not recognised; or CONNECT
            self.send_400_response("Nothing but HTTP is spoken here.")
            return
        waits = self.cycle is not None and not self.cycle.response_complete  # its turn comes after another answer
        self._receiving = True
        super().on_headers_complete()
        if not waits:
            self._expect_body(BODY_SECONDS + LINGER_SECONDS)

    def _unsupported_upgrade_warning(self) -> None:
        """It has been refused."""

    def _expect_body(self, seconds: float) -> None:
        self._body_due.set(self.loop, seconds, self.transport.abort)

    def on_body(self, body: bytes) -> None:
        if self._receiving:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if self._receiving:
            self._receiving = False
            self._body_due.off()
            super().on_message_complete()

    def on_response_complete(self) -> None:
        next_one = bool(self.pipeline)
        super().on_response_complete()
        if self._receiving:  # of the next request; or of this one, answered before all of it was there
            self._expect_body(BODY_SECONDS + LINGER_SECONDS if next_one else LINGER_SECONDS)
        if self.transport.is_closing():
            self._expect_reading()

    def _expect_reading(self) -> None:
        if not self._reading_due:
            left = self.transport.get_write_buffer_size()
            self._reading_due.set(self.loop, READ_SECONDS, self._look_at_reading, left)

    def _look_at_reading(self, before: int) -> None:
        """Slow readers are waited for, those who do not read at all are not."""
        self._reading_due.off()
        if self.transport.get_write_buffer_size() < before:
            self._expect_reading()
        else:
            self.transport.abort()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._expect_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._reading_due.off()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._expect_reading()  # closing waits until all was read

    def connection_lost(self, exc: Exception | None) -> None:
        for due in (self._head_due, self._body_due, self._reading_due):
            due.off()
        super().connection_lost(exc)


class _Server(uvicorn.Server):
    """Tells when it answers, and when it is about to stop; being told to is no failure."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None], closing: asyncio.Event) -> None:
        super().__init__(config)
        self._ready, self._closing = ready, closing

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._closing.set()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        main = threading.current_thread() is threading.main_thread()
        with super().capture_signals():
            previous = signal.signal(signal.SIGHUP, self.handle_exit) if main else None  # the terminal is gone
            try:
                yield
            finally:
                if main:
                    signal.signal(signal.SIGHUP, previous)
            self._captured_signals.clear()  # they are obeyed; uvicorn would raise them again


def on_loopback(host: str) -> bool:
    """Whether only this machine can reach a server that listens there."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        hint = str(error.strerror)
        raise ArgumentError("port", port, f"one that the server can listen on at {host}", hint=hint) from None
    return listener
