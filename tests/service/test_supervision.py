"""What systemd is told, over real sockets: one with a name in the file system, and an abstract one."""

from __future__ import annotations

import os
import secrets
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from windvane.service import supervision
from windvane.service.readiness import NotReady
from windvane.service.supervision import Supervisor


class Manager:
    """A service manager that listens."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind("\0" + address[1:] if address.startswith("@") else address)
        self.socket.setblocking(False)

    def read(self) -> list[str]:
        """Return the lines that came since the last call."""
        lines: list[str] = []
        while True:
            try:
                lines += self.socket.recv(10_000).decode().splitlines()
            except BlockingIOError:
                return lines


@pytest.fixture(params=["file", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Manager]:
    if request.param == "abstract" and sys.platform != "linux":
        pytest.skip("abstract sockets exist on Linux only")
    name = str(tmp_path / "notify") if request.param == "file" else f"@windvane-test-{secrets.token_hex(8)}"
    listening = Manager(name)
    yield listening
    listening.socket.close()


class Clock:
    now = 1000.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(supervision.time, "monotonic", lambda: clock.now)
    return clock


def make_engine(failure: NotReady | None) -> Any:
    return SimpleNamespace(failure=failure, not_ready=failure, backlog=(0, 0.0))


def test_a_start_and_a_stop(manager: Manager, clock: Clock) -> None:
    engine = make_engine(NotReady.of("starting"))
    called: list[str] = []
    supervisor = Supervisor(engine, {"NOTIFY_SOCKET": manager.address}, lambda: called.append("ready"))
    supervisor.look()
    extension = f"EXTEND_TIMEOUT_USEC={supervision.EXTENSION * 1e6:.0f}"
    assert manager.read() == [extension, "STATUS=starting: the service is starting"]
    engine.failure = engine.not_ready = NotReady.of("recovering", "1 of 2 streams")
    supervisor.look()
    supervisor.look()
    assert manager.read() == ["STATUS=recovering: 1 of 2 streams"]
    clock.now += supervision.EXTENSION / 2.0
    supervisor.look()
    assert manager.read() == [extension]
    engine.failure = engine.not_ready = None
    assert called == []
    supervisor.look()
    supervisor.look()
    assert manager.read() == ["READY=1", "STATUS=ready"]
    engine.failure = engine.not_ready = NotReady.of("disk")
    clock.now += supervision.EXTENSION
    supervisor.look()
    assert manager.read() == ["STATUS=disk: the store cannot be read or written"]
    engine.failure = engine.not_ready = NotReady.of("disk", "the file a\nMAINPID=1 is gone")
    supervisor.look()
    assert manager.read() == ["STATUS=disk: the file a MAINPID=1 is gone"]
    engine.failure = engine.not_ready = None
    supervisor.look()
    assert manager.read() == ["STATUS=ready"]
    assert called == ["ready"]  # once
    supervisor.stop()
    assert manager.read() == ["STOPPING=1"]


def test_the_watchdog_hears_only_of_a_service_that_proceeds(manager: Manager, clock: Clock) -> None:
    engine = make_engine(None)
    environment = {"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "20000000", "WATCHDOG_PID": str(os.getpid())}
    supervisor = Supervisor(engine, environment)

    def look() -> list[str]:
        clock.now += 5.0
        supervisor.look()
        return [line for line in manager.read() if line == "WATCHDOG=1"]

    assert look() == ["WATCHDOG=1"]
    supervisor.look()
    assert manager.read() == []  # not more often than four times in the time that it has
    engine.backlog = (3, 19.0)
    assert look() == ["WATCHDOG=1"]
    engine.backlog = (3, 20.0)  # the disk does not answer
    assert look() == []
    engine.backlog = (0, 0.0)
    engine.failure = NotReady.of("disk")  # it tries again and again; a restart would not help
    assert look() == ["WATCHDOG=1"]
    engine.failure = NotReady.of("stalled")
    assert look() == []


def test_a_process_that_stood_still_says_so(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    supervisor = Supervisor(make_engine(None), {})
    for pause in (0.5, supervision.PAUSE, 40.25):
        clock.now += pause
        supervisor.look()
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.__dict__["fields"] == {"seconds": 40.2}


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"NOTIFY_SOCKET": "/nowhere/notify"},
        {"NOTIFY_SOCKET": "", "WATCHDOG_USEC": "5"},
        {"WATCHDOG_USEC": "soon"},
        {"WATCHDOG_USEC": "\u00b2"},
        {"WATCHDOG_USEC": "9" * 400},
    ],
)
def test_without_a_manager_nothing_happens(environment: dict[str, str]) -> None:
    supervisor = Supervisor(make_engine(None), environment)
    supervisor.look()
    supervisor.stop()


def test_a_watchdog_of_another_process_is_not_ours(manager: Manager, clock: Clock) -> None:
    environment = {"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "20000000", "WATCHDOG_PID": "1"}
    Supervisor(make_engine(None), environment).look()
    assert "WATCHDOG=1" not in manager.read()
