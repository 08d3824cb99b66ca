"""Run the service: bind the socket, serve the application with uvicorn, drain and stop on a signal.

uvicorn is used unmodified. It has no time limit for slow clients and no limit on the length of headers; on the open
internet a reverse proxy adds them (``deploy/nginx.conf``, explained in ``docs/howto/nginx-systemd.md``).
``benchmarks/servers.py`` compares it with other servers.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import ipaddress
import logging
import math
import os
import re
import shlex
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import uvicorn

import windvane
from windvane.client.address import Address
from windvane.errors import ArgumentError
from windvane.service.cluster.placement import NodeSettings
from windvane.service.connections import limit_connections, raise_file_limit
from windvane.service.http.app import MOST_BYTES, MOST_STREAMS, create_app
from windvane.service.http.middleware import ServiceMiddleware
from windvane.service.store import STORE_ERRORS, ServedStore, StoreError, is_postgres, open_store
from windvane.service.supervision import Supervisor

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

BACKLOG = 1000  # connections that wait to be accepted
KEEP_ALIVE_SECONDS = 30  # that a connection may be idle between two requests
SWITCH_SECONDS = 0.001  # that a thread keeps the interpreter while the event loop waits; 0.005 by default
STOP_SECONDS = 5  # to wait for requests in progress
HANDOVER_SECONDS = 6.0  # to wait until other nodes have taken the streams
NOTICE_SECONDS = 0.3  # until all of them know it
ACCEPT_TURNS = 3  # of the event loop, in which it accepts the connections that have arrived before the socket is closed
LAST_SECONDS = 0.1  # to answer the requests that clients are sending while the socket is closed
EXIT_SECONDS = 10.0  # that threads are waited for once the streams are stopped: one may wait for a disk for ever
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
LARGEST_PORT = 65535
NODE_NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}"
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})

log = logging.getLogger("windvane.service")


def serve(
    path: str | Path,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    rate: float = 0.0,
    most_bytes: int = MOST_BYTES,
    most_streams: int = MOST_STREAMS,
    drain: float = 0.0,
    log_requests: bool = False,
    skip_probes: bool = False,
    node: str | None = None,
    node_url: str | None = None,
    ha: bool = False,
    tracing: str | None = None,
    personalizer: str | None = None,
    started: Callable[[str], None] = lambda _: None,
    ready: Callable[[str], None] = lambda _: None,
) -> None:
    """Serve the store at ``path``, or a part of its streams, until SIGTERM, SIGINT or SIGHUP. Call it from the main
    thread.

    From then on ``/readyz`` answers 503. After ``drain`` seconds, or at a second signal, no new request is accepted; in
    a cluster, other nodes serve the streams by then. Requests in progress are answered, and a snapshot of every stream
    is stored. If a thread is then still waiting for the disk after :data:`EXIT_SECONDS`, the process ends with code 1:
    whatever was answered is on disk.

    Parameters
    ----------
    path
        The store: a file, or the address of a PostgreSQL database, which several servers can share. It is created if it
        does not exist. A database that cannot be reached is waited for.
    host, port
        Where to listen. Port 0 chooses a free one. Addresses that other machines can reach need a token in the store.
    rate, most_bytes
        Requests per second per client (0: no limit), and the largest request body in bytes.
    most_streams
        How many streams there may be, including archived ones.
    drain
        Seconds after the signal in which requests are still accepted, so that a load balancer notices in time.
    log_requests, skip_probes
        Whether to write a line to the log for every request; whether to leave out successful probes.
    node, node_url, ha
        Of a server that shares a database: its name, the address at which the other servers and clients reach it, and
        whether the database must commit to a standby as well.
    tracing
        Where to send OpenTelemetry spans: "otlp" or "console" (:mod:`windvane.service.http.tracing`). Default: none.
    personalizer
        The stream behind the routes of the Personalizer API. Default: there are none.
    started
        Called with the address once ``/healthz`` is answered. Recovery may still be running, as ``/readyz`` reports.
    ready
        Called with the address once all requests are answered for the first time.

    Raises
    ------
    ArgumentError
        If the server cannot listen there, or must not without a token.
    StoreError
        If the store cannot be opened.
    """
    options: dict[str, bool] = {"lazy": True, "needs_standby": ha} if is_postgres(path) else {}
    for argument, value in (("node", node), ("node_url", node_url), ("ha", ha or None)):
        if value is not None and not options:
            raise ArgumentError(argument, value, "left out: the store is a file, which only one server can use")
    _check_node(node, node_url)  # before a store is created
    with (
        _bind(host, port) as listener,
        _exit_in_time() as begin_exit,
        contextlib.closing(open_store(path, **options)) as store,
        _trace(tracing) as tracer_provider,
    ):
        is_local = is_loopback(host)
        if not is_local and not _has_token(store):
            command = f"windvane token add NAME --store {shlex.quote(store.name)}"
            hint = f"other machines can reach it; add a token first: {command}"
            raise ArgumentError("host", host, "a loopback address while the store has no token", hint=hint)
        name = f"[{host}]" if ":" in host else host
        settings = _describe_node(listener, name, node, node_url) if options else None
        closing, hosts = asyncio.Event(), LOOPBACK_NAMES | {name} if is_local else None
        app = create_app(
            store, rate=rate, most_bytes=most_bytes, most_streams=most_streams, hosts=hosts, closed=not is_local,
            closing=closing, log_requests=log_requests, skip_probes=skip_probes, node=settings,
            tracer_provider=tracer_provider, personalizer=personalizer,
        )  # fmt: skip
        address = f"http://{name}:{listener.getsockname()[1]}"

        def report_start() -> None:
            fields = {"address": address, "store": store.name, "version": windvane.__version__}
            log.info("listening", extra={"fields": fields})
            started(address)

        _run(_Server(app, drain, report_start, partial(ready, address), closing, begin_exit), listener)
        log.info("stopped")


def _trace(exporter: str | None) -> contextlib.AbstractContextManager[TracerProvider | None]:
    """Return what yields the source of spans. Without an exporter, OpenTelemetry is not imported."""
    if exporter is None:
        return contextlib.nullcontext()
    from windvane.service.http.tracing import open_provider

    return open_provider(exporter)


def _check_node(node: str | None, url: str | None) -> None:
    """Raise if the name or the address of a node is not valid."""
    if node and not re.fullmatch(NODE_NAME, node):
        raise ArgumentError("node", node, "1 to 64 letters, digits, '.', '_' and '-'")
    try:
        Address(url or "http://127.0.0.1", {}, 1.0)
    except ValueError:
        got = "another value" if url and "@" in url else None  # it may have a password
        raise ArgumentError("node_url", url, "an address such as http://10.0.0.5:8000", got=got) from None


def _describe_node(listener: socket.socket, host: str, node: str | None, url: str | None) -> NodeSettings:
    """Return the name and the address of this server; raise if they are not valid."""
    port = listener.getsockname()[1]
    if host in ("0.0.0.0", "[::]"):
        host = socket.gethostname()
    name, address = node or f"{socket.gethostname()}-{port}", (url or f"http://{host}:{port}").rstrip("/")
    _check_node(name, address)  # the name of the machine may not be a valid one
    return NodeSettings(name, address, windvane.__version__)


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a server that listens at ``host``."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _has_token(store: ServedStore) -> bool:
    try:
        return bool(store.tokens.read())
    except STORE_ERRORS as error:
        if store.is_remote:  # it is waited for, and without a token nobody is admitted
            return True
        raise StoreError(store.name, "unreadable", str(error)) from None


def _bind(host: str, port: int) -> socket.socket:
    """Return a listening socket: clients that connect before the application has started wait for it."""
    try:
        is_name = "\0" not in host and host.encode("idna") is not None
    except UnicodeError:
        is_name = False
    if not is_name:
        raise ArgumentError("host", host, "an address, or the name of a host")
    is_ipv6 = ":" in host
    family = socket.AF_INET6 if is_ipv6 else socket.AF_INET
    try:
        socket.getaddrinfo(host or None, port, family)
        return socket.create_server(
            (host, port), family=family, dualstack_ipv6=is_ipv6 and socket.has_dualstack_ipv6(), backlog=BACKLOG
        )
    except OSError as error:
        hint = str(error.strerror).partition(" (while")[0]
        if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
            raise ArgumentError("host", host, "an address of this machine, or its name", hint=hint) from None
        if error.errno == errno.EADDRINUSE:
            hint += f": another server may run there; choose another port, such as --port {_next_port(port)}"
        raise ArgumentError("port", port, f"one that the server can listen on at {host}", hint=hint) from None


def _next_port(port: int) -> int:
    """Return a port to propose where ``port`` is in use."""
    return port + 1 if port < LARGEST_PORT else port - 1


class _Server(uvicorn.Server):
    """uvicorn's server; it reports when it has started, and drains before it stops."""

    def __init__(
        self, app: ServiceMiddleware, drain: float, started: Callable[[], None], ready: Callable[[], None],
        closing: asyncio.Event, stopped: Callable[[], None],
    ) -> None:  # fmt: skip
        # What uvicorn warns about are faults of clients, and some of its advice does not apply here.
        super().__init__(
            uvicorn.Config(
                app, http=limit_connections(raise_file_limit()), ws="none", log_level="error", access_log=False,
                log_config=None, proxy_headers=False, server_header=False, backlog=BACKLOG,
                timeout_keep_alive=KEEP_ALIVE_SECONDS, timeout_graceful_shutdown=STOP_SECONDS,
            )
        )  # fmt: skip
        self._report_start, self._closing, self._report_stop = started, closing, stopped
        self._engine, self._drain, self._stop_at = app.engine, drain, math.inf
        self._signalled_at = self._handed_over_at = math.inf
        self._is_hurried = False  # by a second signal
        self._supervisor, self._is_announced = Supervisor(app.engine, ready=ready), False
        self._frozen = 0, 0  # recoveries and streams when objects were last frozen

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._report_start()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Drain at the first signal, stop at the second. A further SIGINT does not wait for requests."""
        if self.should_exit:
            super().handle_exit(sig, frame)
        elif self._engine.is_draining:
            self._stop_at, self._is_hurried = 0.0, True
        else:
            self._engine.is_draining = True
            self._signalled_at = time.monotonic()
            self._stop_at = self._signalled_at + self._drain

    async def on_tick(self, counter: int) -> bool:
        """Return whether to stop; called ten times a second."""
        self._supervisor.look()
        if (self._engine.recoveries, len(self._engine.streams)) != self._frozen:
            # Garbage collection need not look again at streams, modules and compiled code, which stay: a full
            # collection takes 0.1 to 0.8 s. A new stream may have compiled its policy.
            gc.freeze()
            self._frozen = self._engine.recoveries, len(self._engine.streams)
        if self._engine.is_draining and not self._is_announced:
            self._is_announced = True
            self._supervisor.stop()
            self._engine.begin_draining()
            log.info("stopping", extra={"fields": {"drain_seconds": self._drain}})
        if self._stop_at <= time.monotonic() and self._is_handed_over():
            self.should_exit = True
        return await super().on_tick(counter)

    def _is_handed_over(self) -> bool:
        """Return whether other nodes have taken the streams and know it, so that they send no more requests here."""
        now = time.monotonic()
        if not self._engine.is_handed_over and now < self._signalled_at + HANDOVER_SECONDS:
            self._handed_over_at = math.inf
            return self._is_hurried
        self._handed_over_at = min(self._handed_over_at, now)
        has_others = self._engine.placement is not None
        return self._is_hurried or not has_others or now >= self._handed_over_at + NOTICE_SECONDS

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._engine.placement is not None and not self._is_hurried:
            for _ in range(ACCEPT_TURNS):
                await asyncio.sleep(0.0)
            for server in self.servers:  # new connections are refused, and clients use another node
                server.close()
            await asyncio.sleep(LAST_SECONDS)  # connections that were just accepted get an answer
        self._closing.set()  # ends answers that would otherwise never end
        self._engine.is_closing = True
        await super().shutdown(sockets)
        if self.force_exit:  # at one more SIGINT, uvicorn leaves the application as it is; stopping it is bounded
            await self.lifespan.shutdown()
        self._report_stop()


@contextlib.contextmanager
def _exit_in_time() -> Iterator[Callable[[], None]]:
    """Yield what to call when only threads and the store are left to end; if they do not, the process ends.

    Python waits for threads without a limit, and nothing can interrupt one that waits for a disk.
    """

    def end() -> None:
        log.critical("a thread still waits for the disk after %g s; the process ends", EXIT_SECONDS)
        logging.shutdown()
        os._exit(1)

    timer = threading.Timer(EXIT_SECONDS, end)
    timer.daemon = True
    try:
        yield timer.start
    finally:
        timer.cancel()


def _run(server: uvicorn.Server, listener: socket.socket) -> None:
    """Run ``server`` until a signal; a request to stop is not a failure."""
    sys.setswitchinterval(SWITCH_SECONDS)
    # uvicorn does the same for SIGTERM and SIGINT while it runs, and afterwards raises some again for this handler.
    previous = {number: signal.signal(number, server.handle_exit) for number in STOP_SIGNALS}
    try:
        server.run(sockets=[listener])
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
