"""Notifications for the service manager: systemd's datagram protocol (``sd_notify(3)``), without its library."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from windvane.service.engine import Engine

EXTENSION = 60.0  # seconds by which a start in progress extends its timeout; a recovery may take long
PAUSE = 5.0  # seconds without a look after which the process itself stood still

log = logging.getLogger("windvane.service")


class Supervisor:
    """Reports the state of the service to the service manager.

    ``READY=1`` when requests are answered for the first time, ``STATUS=`` with the cause whenever it is not ready, and
    ``STOPPING=1``. ``WATCHDOG=1`` is sent by the event loop itself, and only while commits proceed: a service that
    hangs, or waits for its disk for longer than the manager allows, is restarted.

    Parameters
    ----------
    engine
        The engine whose state is reported.
    environment
        ``NOTIFY_SOCKET``: the address to send to; without it nothing is sent. ``WATCHDOG_USEC`` and ``WATCHDOG_PID``:
        the watchdog's interval, and the process that it watches.
    ready
        Called once, when requests are answered for the first time.
    """

    def __init__(
        self,
        engine: Engine,
        environment: Mapping[str, str] = os.environ,
        ready: Callable[[], None] = lambda: None,
    ) -> None:
        self._engine, self._report_ready = engine, ready
        address = environment.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address  # an abstract socket
        is_watched = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        self._seconds = 0.0
        with contextlib.suppress(ValueError, OverflowError):  # a number that makes no sense is none
            self._seconds = max(int(environment.get("WATCHDOG_USEC", "0")) / 1e6, 0.0) if is_watched else 0.0
        self._status = ""
        self._has_been_ready = False
        self._last_look = time.monotonic()
        self._next_ping = self._next_extension = 0.0

    def look(self) -> None:
        """Report the current state; call this several times a second."""
        failure, now = self._engine.not_ready, time.monotonic()
        if (pause := now - self._last_look) > PAUSE:
            log.warning("the process stood still: nothing was answered", extra={"fields": {"seconds": round(pause, 1)}})
        self._last_look = now
        lines = []
        if failure is None and not self._has_been_ready:
            self._has_been_ready = True
            lines.append("READY=1")
            self._report_ready()
        elif not self._has_been_ready and now >= self._next_extension:
            self._next_extension = now + EXTENSION / 2.0
            lines.append(f"EXTEND_TIMEOUT_USEC={EXTENSION * 1e6:.0f}")
        status = "ready" if failure is None else failure.text
        if status != self._status:
            self._status = status
            lines.append(f"STATUS={' '.join(status.split())}")  # a path in it may hold a line feed
        if self._seconds and now >= self._next_ping and self._is_proceeding():
            self._next_ping = now + self._seconds / 4.0
            lines.append("WATCHDOG=1")
        self._send(lines)

    def stop(self) -> None:
        """Report that the service begins to stop."""
        self._send(["STOPPING=1"])

    def _is_proceeding(self) -> bool:
        failure, (_, oldest_wait) = self._engine.failure, self._engine.backlog
        return oldest_wait < self._seconds and not (failure is not None and failure.code == "stalled")

    def _send(self, lines: list[str]) -> None:
        if lines and self._address:
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.setblocking(False)  # a manager that does not listen must not block the service
                sender.sendto("\n".join(lines).encode(), self._address)
