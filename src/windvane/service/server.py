"""Running the service: where it may listen, and how it starts and stops."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from windvane.service.app import MOST_BYTES, create_app
from windvane.service.store import Store, StoreError
from windvane.service.streams import ReplayError
from windvane.warmup import warm_up

HEAD_SECONDS = 10.0  # that a client may take to send the head of a request
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
        if not local and not store.tokens():
            raise StoreError(
                f"host={host!r}: can be reached from other machines; make a token first: windvane token add NAME "
                f"--store {path}"
            )
        name = f"[{host}]" if ":" in host else host
        closing, hosts = asyncio.Event(), LOOPBACK | {name} if local else None
        try:
            app = create_app(store, rate=rate, most_bytes=most_bytes, hosts=hosts, closed=not local, closing=closing)
        except (ReplayError, sqlite3.Error) as error:
            raise StoreError(f"{path}: {error}") from None
        listener = _listen(host, port)
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, timeout_keep_alive=30, timeout_graceful_shutdown=5,
            limit_concurrency=1000, server_header=False, http=_Http, ws="none",
        )  # fmt: skip
        server = _Server(config, lambda: started(f"http://{name}:{listener.getsockname()[1]}"), closing)
        server.run(sockets=[listener])
    finally:
        store.close()


class _Http(HttpToolsProtocol):
    """A request's head must be short, and come soon: whoever opens connections and says little holds nobody up."""

    _deadline: asyncio.TimerHandle | None = None
    _head = 0  # bytes of a head that is under way

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect()

    def _expect(self) -> None:
        self._done()
        self._deadline = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _done(self) -> None:
        self._head = 0
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def data_received(self, data: bytes) -> None:
        if self._deadline is not None:
            self._head += len(data)
        super().data_received(data)
        if self._deadline is not None and self._head > MOST_HEAD and not self.transport.is_closing():
            self.send_400_response("The head of the request is too long.")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._expect()

    def on_headers_complete(self) -> None:
        self._done()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._done()
        super().connection_lost(exc)


class _Server(uvicorn.Server):
    """Tells when it answers, and when it is about to stop; being told to is no failure."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None], closing: asyncio.Event) -> None:
        super().__init__(config)
        self._ready, self._closing = ready, closing

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        warm_up()  # or the first decision would hold up all others while kernels are compiled
        await super().startup(sockets)
        if self.started:
            self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._closing.set()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        with super().capture_signals():
            yield
            self._captured_signals.clear()  # they are obeyed; uvicorn would raise them again


def on_loopback(host: str) -> bool:
    """Whether only this machine can reach a server that listens there."""
    if host == "localhost":
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
        raise StoreError(f"host={host!r}, port={port}: cannot listen there ({error.strerror})") from None
    return listener
