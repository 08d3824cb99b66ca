"""Running the service: where it may listen, and how it starts and stops."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import uvicorn

from windvane.service.app import MOST_BYTES, create_app
from windvane.service.store import Store, StoreError
from windvane.warmup import warm_up

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
        listener = _listen(host, port)
        name = f"[{host}]" if ":" in host else host
        closing = asyncio.Event()
        app = create_app(store, rate=rate, most_bytes=most_bytes, hosts=LOOPBACK if local else None, closing=closing)
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, timeout_keep_alive=30, timeout_graceful_shutdown=5,
            limit_concurrency=1000, server_header=False,
        )  # fmt: skip
        server = _Server(config, lambda: started(f"http://{name}:{listener.getsockname()[1]}"), closing)
        server.run(sockets=[listener])
    finally:
        store.close()


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
