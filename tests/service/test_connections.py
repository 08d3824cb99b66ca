"""Connections: how many there may be, what those over the limit get, and how long a silent one stays."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn

from support.server import until
from windvane.service import connections
from windvane.service.connections import RESERVED_FILES, JoinedWrites, limit_connections, raise_file_limit

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


async def app(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@contextlib.contextmanager
def run(most: int) -> Iterator[tuple[str, int]]:
    """Serve with a limit on connections; yield the address."""
    config = uvicorn.Config(app, http=limit_connections(most), lifespan="off", log_config=None, timeout_keep_alive=60)
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            until(lambda: server.started)
            yield listener.getsockname()
        finally:
            server.should_exit = True
            thread.join()


def ask(connection: socket.socket, request: bytes = GET) -> bytes:
    """Return the whole answer, which may come in several parts."""
    connection.settimeout(60)
    connection.sendall(request)
    answer = b""
    while part := connection.recv(65536):
        answer += part
        head, end, body = answer.partition(b"\r\n\r\n")
        if end and len(body) == int(head.lower().partition(b"content-length: ")[2].split()[0]):
            break
    return answer


def test_a_connection_over_the_limit_gets_a_problem() -> None:
    with run(2) as address, contextlib.ExitStack() as stack:
        connect = lambda: stack.enter_context(socket.create_connection(address))  # noqa: E731
        idle, asking = connect(), connect()
        assert ask(asking).endswith(b"ok")
        refused = connect()
        answer = ask(refused)
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 503 ")
        assert b"\r\nRetry-After: 1" in head
        assert b"\r\nContent-Type: application/problem+json" in head
        assert json.loads(body)["type"] == "urn:windvane:problem:overloaded"
        assert refused.recv(1) == b""  # it is closed
        assert ask(asking).endswith(b"ok")  # the others are not
        idle.close()
        until(lambda: ask(connect()).endswith(b"ok"))


def is_closed(connection: socket.socket) -> bool:
    """Wait until the server closes a connection, without an answer."""
    connection.settimeout(60)
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:  # something was sent after it had closed it
        return True


def test_silent_connections_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the first request; afterwards uvicorn's own limit counts."""
    monkeypatch.setattr(connections, "REFUSED_SECONDS", 0.1)
    with run(3) as address, contextlib.ExitStack() as stack:
        connect = lambda: stack.enter_context(socket.create_connection(address))  # noqa: E731
        asking = connect()
        assert ask(asking).endswith(b"ok")  # however long that took
        monkeypatch.setattr(connections, "FIRST_SECONDS", 0.2)
        silent, slow, refused = connect(), connect(), connect()
        with contextlib.suppress(ConnectionError):  # it may be closed already
            slow.sendall(GET[:9])
        assert all(map(is_closed, (refused, silent, slow)))
        assert ask(asking).endswith(b"ok")


class Wire(asyncio.Transport):
    """Records what is written, call by call."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[bytes] = []
        self.is_closed = False

    def write(self, data: Any) -> None:
        self.calls.append(bytes(data))

    def writelines(self, parts: Any) -> None:
        self.write(b"".join(parts))

    def close(self) -> None:
        self.is_closed = True


def test_the_head_and_the_body_of_an_answer_are_written_together() -> None:
    async def answer() -> list[bytes]:
        wire = Wire()
        transport = JoinedWrites(wire, asyncio.get_running_loop())
        transport.write(b"head,")
        transport.write(b"body;")
        transport.write(b"head of an event stream;")
        assert len(wire.calls) == 1
        await asyncio.sleep(0)
        transport.write(b"")  # nothing to hold
        transport.write(b"first event;")
        await asyncio.sleep(0)
        transport.write(b"last;")
        transport.close()
        assert wire.is_closed
        return wire.calls

    assert asyncio.run(answer()) == [b"head,body;", b"head of an event stream;", b"first event;", b"last;"]


@pytest.mark.parametrize(
    ("soft", "hard", "raised", "most"),
    [(1024, 4096, 4096, 4096 - RESERVED_FILES), (1024, -1, 10_128, 10_000), (65_536, 65_536, None, 10_000),
     (-1, -1, None, 10_000), (100, 100, 100, 1)],
)  # fmt: skip
def test_the_limit_on_open_files(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, raised: int | None, most: int
) -> None:
    """It is raised as far as the system allows, and some files are kept for the store."""
    limits = list[tuple[int, int]]()
    monkeypatch.setattr(connections.resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(connections.resource, "setrlimit", lambda _, limit: limits.append(limit))
    assert raise_file_limit() == most
    assert limits == ([] if raised is None else [(raised, hard)])
