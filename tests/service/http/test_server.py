"""How the server starts and stops: where it may listen, what comes first, and what signals do."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from support.server import ARMS, Server, command, run_command, run_server, serve, until
from support.stores import snapshot_number
from windvane.errors import ArgumentError
from windvane.service import server as server_module
from windvane.service.engine import Engine
from windvane.service.server import STOP_SIGNALS, is_loopback
from windvane.service.store import SqliteStore

GET = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"


def read_all(connection: socket.socket) -> bytes:
    """Read until the server closes the connection."""
    connection.settimeout(60)
    return b"".join(iter(lambda: connection.recv(65536), b""))


def listens(host: str, port: int) -> bool:
    with socket.socket() as other:
        return other.connect_ex((host, port)) == 0


# --- where it may listen -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True), ("127.8.9.10", True), ("::1", True), ("localhost", True), ("0:0:0:0:0:0:0:1", True),
        ("0.0.0.0", False), ("::", False), ("192.168.1.5", False), ("10.0.0.1", False), ("", False),
        ("localhost.example.com", False), ("127.0.0.1.example.com", False), ("128.0.0.1", False), ("fe80::1", False),
    ],
)  # fmt: skip
def test_loopback_addresses(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_other_machines_need_a_token(tmp_path: Path, host: str) -> None:
    result = run_command("serve", "--store", tmp_path / "a.db", "--host", host, "--port", "0")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("windvane: error: `host` ")
    assert f"windvane token add NAME --store {tmp_path}/a.db\n" in result.stderr


def test_other_machines_with_a_token(tmp_path: Path) -> None:
    secret = run_command("token", "add", "shop", "--store", tmp_path / "a.db").stdout.strip()
    with run_server(tmp_path / "a.db", "--host", "0.0.0.0") as server:
        assert server.address.startswith("http://0.0.0.0:")
        server.address = server.address.replace("0.0.0.0", "127.0.0.1")
        with server.client(headers={"host": "shop.example.com"}) as client:
            assert client.get("/v1/streams").status_code == 401
            assert client.get("/v1/streams", headers={"authorization": f"Bearer {secret}"}).status_code == 200


def test_a_store_and_names_on_loopback(tmp_path: Path) -> None:
    """The address it listens on is a name of its own; other names may lead here from a hostile page."""
    with run_server(tmp_path / "a.db", "--host", "127.0.0.7") as server, server.client() as client:
        assert client.get("/v1/streams").status_code == 200
        assert client.get("/v1/streams", headers={"host": "evil.example"}).status_code == 403
        result = run_command("serve", "--store", tmp_path / "a.db", "--port", "0")
        assert (result.returncode, result.stdout) == (2, "")
        assert f"(process {server.pid})" in result.stderr


def test_port_in_use(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ArgumentError) as caught:
            server_module.serve(tmp_path / "a.db", port=port)
    assert (caught.value.argument, caught.value.value) == ("port", port)


# --- starting and stopping, in this process --------------------------------------------------------------------------


async def trivial_app(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        while (await receive())["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        await send({"type": "lifespan.shutdown.complete"})
        return
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_socket_first_then_application(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals) -> None:
    """A client that connects before the application is built gets its answer; a signal ends ``serve`` normally."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    early: list[socket.socket] = []
    steps: list[str] = []
    options: dict[str, Any] = {}

    def create_app(store: Any, **more: Any) -> Any:
        early.append(socket.create_connection(("127.0.0.1", port)))
        early[0].sendall(GET)
        steps.append("application")
        options.update(more)
        trivial_app.engine = Engine(store)  # type: ignore[attr-defined]
        return trivial_app

    def read_and_stop() -> None:
        with early[0]:
            steps.append(read_all(early[0]).partition(b"\r\n")[0].decode())
        os.kill(os.getpid(), number)

    def started(address: str) -> None:
        steps.append(address)
        assert not options["closing"].is_set()
        thread.start()

    thread = threading.Thread(target=read_and_stop)
    monkeypatch.setattr(server_module, "create_app", create_app)
    handlers = [signal.getsignal(number) for number in STOP_SIGNALS]
    server_module.serve(tmp_path / "a.db", port=port, started=started)
    thread.join()
    assert steps == ["application", f"http://127.0.0.1:{port}", "HTTP/1.1 200 OK"]
    assert options["closing"].is_set()
    assert [signal.getsignal(number) for number in STOP_SIGNALS] == handlers


# --- the command -----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def follow(server: Server) -> Iterator[None]:
    """Read a stream's live updates while the block runs."""
    with server.client() as client:
        assert client.post("/v1/streams", json={"name": "shop", "dim": 2}).status_code == 201
        with client.stream("GET", "/v1/streams/shop/live") as answer:
            lines = answer.iter_lines()
            assert next(lines).startswith("event: ")
            yield
            list(lines)  # until the server ends it


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_signals_end_the_command_with_code_0(tmp_path: Path, number: signal.Signals) -> None:
    """It ends without a word, even while a page follows a stream."""
    server = serve(tmp_path / "a.db")
    with follow(server):
        os.kill(server.pid, number)
    assert server.service is not None
    assert (server.stop(), server.service.errors) == (0, "")


def test_requests_under_way_are_answered(tmp_path: Path) -> None:
    """Half a body was sent when the signal came; the socket is closed for others, and the decision is kept."""
    server = serve(tmp_path / "a.db")
    host, port = server.address.removeprefix("http://").split(":")
    with server.client() as client:
        assert client.post("/v1/streams", json={"name": "shop", "dim": 2}).status_code == 201
    body = json.dumps(ARMS).encode()
    head = "POST /v1/streams/shop/decisions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(f"{head}Content-Length: {len(body)}\r\nExpect: 100-continue\r\n\r\n".encode())
        assert connection.recv(1000).startswith(b"HTTP/1.1 100 ")  # the application waits for the body
        connection.sendall(body[:9])
        os.kill(server.pid, signal.SIGTERM)
        until(lambda: not listens(host, int(port)))
        connection.sendall(body[9:])
        assert read_all(connection).startswith(b"HTTP/1.1 201 ")
    assert server.stop() == 0


def test_further_signals_do_not_wait_for_requests(tmp_path: Path) -> None:
    """Somebody is impatient: half a body was sent, and Ctrl-C is pressed again. The streams are stopped as ever."""
    server = serve(tmp_path / "a.db")
    host, port = server.address.removeprefix("http://").split(":")
    with server.client() as client:
        assert client.post("/v1/streams", json={"name": "shop", "dim": 2}).status_code == 201
        assert client.post("/v1/streams/shop/decisions", json=ARMS).status_code == 201
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(b"POST /v1/streams HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n{")
        os.kill(server.pid, signal.SIGTERM)
        until(lambda: not listens(host, int(port)))
        os.kill(server.pid, signal.SIGINT)
        assert server.service is not None
        assert (server.stop(), server.service.errors) == (0, "")
    with closing(SqliteStore(tmp_path / "a.db")) as store:
        assert snapshot_number(store, 1) == 1


@pytest.mark.parametrize("seconds", [0.0, 0.5, 1.5])
def test_stopped_while_it_starts(tmp_path: Path, seconds: float) -> None:
    """Whatever it was doing, it ends without a traceback. Early on, it is interrupted like any command."""
    line = command("serve", "--store", tmp_path / "a.db", "--port", "0")
    with subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
        process.terminate()
        _, log = process.communicate(timeout=60)
    errors = "".join(line for line in log.splitlines(keepends=True) if " INFO " not in line)
    said = "windvane: interrupted; nothing was changed\n"  # Python ends by SIGINT if it was inside of `exec`
    ends = ((0, ""), (130, said), (-signal.SIGINT, said), (-signal.SIGTERM, ""))
    assert (process.returncode, errors) in ends
