"""Compare HTTP servers for the decision service: `python benchmarks/servers.py`. Loopback only, about three minutes.

Two parts, each server measured in turn in this one run. Throughput: pairs a second of benchmarks/load.py with 1 and 16
kept connections, against an application that does nothing and against the real one (policy UniformRandom). Behaviour:
what a server does by itself with slow clients, smuggled requests, floods and signals, with the application that does
nothing. ``windvane`` is the command ``windvane serve``; benchmarks/service.py compares it with an earlier version.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib.util
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import uvloop
from versions import DIM, POLICIES, Load

KINDS = ["uvicorn-httptools", "uvicorn-h11", "uvicorn-zttp", "granian"]
PATIENCE = 12.0  # seconds after which a slow client counts as tolerated
IDLE = 1200  # connections of the flood
LIMIT = 1000  # connections that uvicorn is told to serve at most


# --- servers, each in a process of its own ---------------------------------------------------------------------------


async def trivial(scope: Any, receive: Any, send: Any) -> None:
    """An ASGI application that reads the body and answers with the path and the size of the body."""
    if scope["type"] == "lifespan":
        while (await receive())["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        await send({"type": "lifespan.shutdown.complete"})
        return
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        size, more = size + len(message.get("body", b"")), message.get("more_body", False)
    if scope["path"] == "/slow":
        await asyncio.sleep(1.0)
    about = {"id": "0123456789abcdef", "index": 7, "path": scope["path"], "size": size}
    body = b"x" * (32 << 20) if scope["path"] == "/large" else json.dumps(about, separators=(",", ":")).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def run_server(kind: str, store: str) -> None:
    """Serve the trivial application, or with a store the real one; print the address when the socket is bound."""
    app: Any = trivial
    if store:
        from windvane.service.http.app import create_app
        from windvane.service.store import SqliteStore

        app = create_app(SqliteStore(store))
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    if kind == "granian":
        from granian.http import HTTP1Settings
        from granian.server.embed import Server

        listener.close()  # its server takes no socket, and does not tell which port 0 became
        settings = HTTP1Settings(header_read_timeout=5000)

        async def serve() -> None:
            server = Server(
                app, port=port, interface="asgi", websockets=False, http1_settings=settings, log_enabled=False,
                backpressure=LIMIT,
            )  # fmt: skip
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                asyncio.get_running_loop().add_signal_handler(number, server.stop)
            await server.serve()

        print(f"http://127.0.0.1:{port}", flush=True)
        uvloop.run(serve())
        return
    import uvicorn

    config = uvicorn.Config(
        app, http=kind.removeprefix("uvicorn-"), ws="none", access_log=False, log_level="critical", loop="uvloop",
        limit_concurrency=LIMIT, timeout_keep_alive=30, timeout_graceful_shutdown=5, proxy_headers=False,
    )  # fmt: skip
    server = uvicorn.Server(config)

    def stop(*_: object) -> None:
        server.should_exit = True

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, stop)
    print(f"http://127.0.0.1:{port}", flush=True)
    server.run(sockets=[listener])


@contextlib.contextmanager
def serving(kind: str, store: str = "") -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Address and process of a server that answers /healthz."""
    line = [sys.executable, __file__, "--serve", kind, "--store", store]
    if kind == "windvane":
        line = [sys.executable, "-m", "windvane.cli", "serve", "--port", "0", "--store", store]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().split()[0]
        try:
            wait_for(address, "/healthz")
            yield address, process
        finally:
            process.kill()


def wait_for(address: str, path: str) -> None:
    """Wait until ``path`` is answered with 200."""
    end = time.monotonic() + 60
    while status(ask(address, build(CLOSE, line=f"GET {path}"))) != "200":
        if time.monotonic() > end:
            raise TimeoutError(f"{path} is not answered")
        time.sleep(0.05)


# --- throughput ------------------------------------------------------------------------------------------------------


def measure_throughput(kinds: list[str], pairs: int, repeats: int) -> None:
    apps: list[tuple[str, str]] = [("trivial", kind) for kind in kinds] + [("real", kind) for kind in kinds]
    apps.append(("real", "windvane"))
    loads = {(app, kind, n): Load() for app, kind in apps for n in (1, 16)}
    processes, seconds = {}, dict.fromkeys(loads, 0.0)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        addresses = {}
        for app, kind in apps:
            store = f"{folder}/{kind}.db" if app == "real" else ""
            address, processes[app, kind] = stack.enter_context(serving(kind, store))
            addresses[app, kind] = address
            if app == "real":
                body = json.dumps({"name": "random", "dim": DIM, **POLICIES["random"]})
                head = build("Content-Type: application/json", f"Content-Length: {len(body)}", CLOSE, line=CREATE)
                wait_for(address, "/readyz")
                assert status(ask(address, head + body.encode(), 60.0)) == "201"
            Load().run(address, "random", 200, 16)  # done once: not counted
        for _ in range(repeats):
            for (app, kind, n), load in loads.items():
                before = read_cpu_seconds(processes[app, kind])
                load.run(addresses[app, kind], "random", pairs, n)
                seconds[app, kind, n] += read_cpu_seconds(processes[app, kind]) - before
    print(f"\npairs a second: median of {repeats} and ratio to {apps[0][1]}; p50 and p99 of a request in ms;")
    print("CPU time of the server in µs a pair, which other work on the machine changes least, and its ratio")
    for app in ("trivial", "real"):
        for n in (1, 16):
            first, least = loads[app, kinds[0], n].rate, seconds[app, kinds[0], n]
            for kind in (kind for app_, kind in apps if app_ == app):
                load = loads[app, kind, n]
                times = f"{load.percentile(50):6.2f} {load.percentile(99):6.2f}"
                used = seconds[app, kind, n]
                rate, cpu = f"{load.rate:7,.0f} {load.rate / first:5.2f}x", f"{1e6 * used / pairs / repeats:6.0f}"
                print(f"{app:8} {n:3} connections  {kind:18} {rate}  {times}  {cpu} {used / least:5.2f}x")


def read_cpu_seconds(process: subprocess.Popen[str]) -> float:
    """Return the CPU time that a process has used."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# --- behaviour -------------------------------------------------------------------------------------------------------


def connect(address: str, buffer: int = 0, timeout: float = 2.0) -> socket.socket:
    host, port = address.removeprefix("http://").split(":")
    connection = socket.socket()
    if buffer:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    connection.settimeout(timeout)
    connection.connect((host, int(port)))
    return connection


def ask(address: str, words: bytes, timeout: float = 2.0, pieces: tuple[bytes, ...] = ()) -> bytes:
    """All that the server answers until it closes the connection or is silent for ``timeout`` seconds."""
    answer = b""
    with contextlib.suppress(OSError), connect(address, timeout=timeout) as connection:
        connection.sendall(words)
        for piece in pieces:
            time.sleep(0.1)
            connection.sendall(piece)
        while piece := connection.recv(65536):
            answer += piece
    return answer


def status(answer: bytes) -> str:
    """The statuses of all answers, and which of the requests that must not be seen was carried out."""
    codes = [code.decode() for code in re.findall(rb"HTTP/1\.[01] (\d{3})", answer)]
    return " ".join(codes or ["none"]) + (" SMUGGLED" if b'"/smuggled"' in answer else "")


def build(*headers: str, line: str = "POST /") -> bytes:
    """Return the head of a request."""
    return "\r\n".join([f"{line} HTTP/1.1", "Host: 127.0.0.1", *headers, "", ""]).encode()


CLOSE, CHUNKED, UPGRADE = "Connection: close", "Transfer-Encoding: chunked", ("Connection: Upgrade", "Upgrade: h2c")
GET, NEXT, SMUGGLED = (
    build(CLOSE, line="GET /healthz"),
    build(CLOSE, line="GET /next"),
    build(CLOSE, line="GET /smuggled"),
)
CREATE = "POST /v1/streams"
LENGTH, LAST = f"Content-Length: {len(SMUGGLED)}", b"0\r\n\r\n"
REQUESTS: dict[str, tuple[bytes, ...]] = {  # in pieces
    "Content-Length and Transfer-Encoding": (build("Content-Length: 5", CHUNKED) + LAST + SMUGGLED,),
    "two different Content-Length": (build("Content-Length: 0", LENGTH) + SMUGGLED,),
    "Transfer-Encoding: chunked, x": (build(f"{CHUNKED}, x") + LAST + SMUGGLED,),
    "space before the colon": (build(CHUNKED.replace(":", " :")) + LAST + SMUGGLED,),
    "folded header (obs-fold)": (build(LENGTH.replace(" ", "\r\n ")) + SMUGGLED,),
    "bare LF as end of line": (GET.replace(b"\r", b""),),
    "bare LF after a chunk size": (build(CHUNKED) + b"1\nx\r\n" + LAST + SMUGGLED,),
    "chunk extension": (build(CHUNKED) + b"1;a=b\r\nx\r\n" + LAST + NEXT,),
    "chunk extension of 1 MB": (build(CHUNKED) + b"1;" + b"a" * (1 << 20) + b"\r\nx\r\n" + LAST + NEXT,),
    "Upgrade: h2c with a body, in one piece": (build(*UPGRADE, "Content-Length: 5") + b"12345" + NEXT,),
    "Upgrade: h2c, body in a second piece": (build(*UPGRADE, LENGTH), SMUGGLED),
    "NUL in a header": (build("X: a\x00b"),),
    "no Host": (GET.replace(b"Host", b"X"),),
    "URL of 200 kB": (build(CLOSE, line="GET /" + "x" * 200_000),),
    "header of 200 kB": (build(CLOSE, "X: " + "y" * 200_000, line="GET /"),),
    "50,000 headers": (build(CLOSE, *["X: y"] * 50_000, line="GET /"),),
    "3 requests at once (pipelining)": (build(line="GET /1") + build(line="GET /2") + NEXT,),
}


def probe_head(address: str) -> str:
    answer = ask(address, build(CLOSE, line="HEAD /"))
    return status(answer) + (" without body" if answer.endswith(b"\r\n\r\n") else " WITH BODY")


def probe_slow(address: str, kinds: dict[str, bytes]) -> dict[str, str]:
    """Clients that send a start and then a byte every half second, side by side: when the server hung up."""
    connections = {name: connect(address) for name in kinds}
    results = dict.fromkeys(kinds, f"open after {PATIENCE:g} s")
    began = time.monotonic()
    for name, start in kinds.items():
        connections[name].sendall(start)
    while time.monotonic() - began < PATIENCE and connections:
        time.sleep(0.5)
        for name, connection in list(connections.items()):
            connection.setblocking(False)
            answer = b""
            with contextlib.suppress(BlockingIOError):
                try:
                    answer = connection.recv(65536)
                except ConnectionError:
                    answer = b""
                results[name] = f"{status(answer)} after {time.monotonic() - began:.0f} s"
                connections.pop(name).close()
                continue
            if kinds[name]:
                with contextlib.suppress(OSError):
                    connection.send(b"x")
    for connection in connections.values():
        connection.close()
    return results


def resident(process: subprocess.Popen[str]) -> float:
    """Megabytes of memory."""
    text = Path(f"/proc/{process.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", text)[1]) / 1024  # type: ignore[index]


def probe_deaf(address: str, process: subprocess.Popen[str]) -> str:
    """Clients that ask for 32 MB each and never read."""
    before = resident(process)
    deaf = [connect(address, buffer=4096) for _ in range(4)]
    for connection in deaf:
        connection.sendall(build(line="GET /large"))
    time.sleep(PATIENCE)
    grown = resident(process) - before
    with contextlib.suppress(OSError):
        while deaf[0].recv(1 << 20):
            pass
    for connection in deaf:
        connection.close()
    return f"held, {grown:.0f} MB" if grown > 60 else f"{grown:.0f} MB"


def probe_flood(address: str) -> str:
    """Idle connections, and then a request on a new one and on one that was there before."""
    with connect(address) as early:
        idle = []
        with contextlib.suppress(OSError):
            idle += [connect(address) for _ in range(IDLE)]
        time.sleep(0.5)
        new = status(ask(address, GET))
        answer = b""
        with contextlib.suppress(OSError):
            early.sendall(GET)
            answer = early.recv(1000)
        for connection in idle:
            connection.close()
    time.sleep(0.5)
    after = status(ask(address, GET))
    return f"new {new}, old {status(answer)}, afterwards {after}"


def probe_stop(kind: str, number: signal.Signals) -> str:
    """A request that takes a second is under way, and an idle connection is open."""
    with serving(kind) as (address, process), connect(address, timeout=10), connect(address, timeout=10) as busy:
        busy.sendall(build(line="GET /slow"))
        time.sleep(0.3)
        began = time.monotonic()
        process.send_signal(number)
        answer = b""
        with contextlib.suppress(OSError):
            answer = busy.recv(1000)
        try:
            code: int | None = process.wait(15)
        except subprocess.TimeoutExpired:
            code = None
        return f"{status(answer)}, code {code}, {time.monotonic() - began:.1f} s"


def probe_port(kind: str) -> str:
    """A port that another server listens on."""
    if kind != "granian":
        return "bound socket, refused by bind()"
    code = (
        "import asyncio, sys\nfrom granian.server.embed import Server\nfrom servers import trivial\n"
        "asyncio.run(Server(trivial, port=int(sys.argv[1]), interface='asgi', log_enabled=False).serve())"
    )
    with serving(kind) as (address, _):
        line = [sys.executable, "-c", code, address.rpartition(":")[2]]
        with subprocess.Popen(line, cwd=Path(__file__).parent, stderr=subprocess.DEVNULL) as second:
            try:
                return f"no bound socket; refused with code {second.wait(3)}"
            except subprocess.TimeoutExpired:
                return "no bound socket; BOTH LISTEN"
            finally:
                second.kill()


def probe(kind: str) -> dict[str, str]:
    results: dict[str, str] = {}
    with serving(kind) as (address, process):
        for name, (words, *pieces) in REQUESTS.items():
            results[name] = status(ask(address, words, 1.0, tuple(pieces)))
        results["HEAD"] = probe_head(address)
        slow = {
            "no byte sent": b"",
            "head dripped": b"GET / HTTP/1.1\r\nX: ",
            "body dripped": build("Content-Length: 1000"),
        }
        results |= probe_slow(address, slow)
        results["4 answers of 32 MB never read"] = probe_deaf(address, process)
        results[f"{IDLE} idle connections, limit {LIMIT}"] = probe_flood(address)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        results[f"stop with {number.name}"] = probe_stop(kind, number)
    results["port in use"] = probe_port(kind)
    return results


def print_table(columns: dict[str, dict[str, str]]) -> None:
    names = list(next(iter(columns.values())))
    widths = {kind: max(len(kind), *(len(column[name]) for name in names)) for kind, column in columns.items()}
    print("\n" + " " * 40 + "  ".join(f"{kind:{widths[kind]}}" for kind in columns))
    for name in names:
        print(f"{name:40}" + "  ".join(f"{column[name]:{widths[kind]}}" for kind, column in columns.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--store", default="", help=argparse.SUPPRESS)
    parser.add_argument("--pairs", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", choices=("throughput", "behaviour"))
    arguments = parser.parse_args()
    if arguments.serve:
        run_server(arguments.serve, arguments.store)
        return
    packages = {"uvicorn-zttp": "zttp", "granian": "granian"}
    kinds = [kind for kind in KINDS if importlib.util.find_spec(packages.get(kind, "uvicorn"))]
    print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f} before the first measurement", flush=True)
    if arguments.only != "behaviour":
        measure_throughput(kinds, arguments.pairs, arguments.repeats)
    if arguments.only != "throughput":
        print_table({kind: probe(kind) for kind in kinds})


if __name__ == "__main__":
    main()
