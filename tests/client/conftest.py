"""Every test of the client runs with both clients: ``connect(url, **options)`` returns either as a blocking one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from support.clients import Awaited, Connect
from support.server import run_server
from windvane.client import AsyncClient, Client


@pytest.fixture(params=[Client, Awaited], ids=["sync", "async"])
def connect(request: pytest.FixtureRequest) -> Connect:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(scope="session")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with run_server(tmp_path_factory.mktemp("store") / "windvane.db") as server:
        yield server.address


@pytest.fixture
def client(url: str, connect: Connect) -> Iterator[Any]:
    with connect(url, timeout=60.0) as client:
        yield client


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """The name of a stream that no other test has."""
    return request.node.name.replace("[", "-").replace("]", "").removeprefix("test_")  # type: ignore[no-any-return]


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Pauses are of mean length, recorded and not waited for: only they take time, by the clock of deadlines."""
    seconds: list[float] = []

    async def pause(_: object, length: float) -> None:
        seconds.append(length)

    for client in (Client, AsyncClient):
        monkeypatch.setattr(client, "_pause", pause)
    monkeypatch.setattr("windvane.client.connection._now", lambda: sum(seconds))
    monkeypatch.setattr("windvane.client.connection._draw_spread", lambda: 1.0)
    return seconds
