"""The service as tests need it: in this process, as the command that users run, or in processes made to be killed.

- ``run_local(path)``: the application without a socket; at the end, memory must equal a replay of the log.
- ``Local``: the same without the check; ``stop()`` or ``crash()`` ends it.
- ``serve(store, *options)``: ``windvane serve`` in a process; ``ForkServer``: servers that start at once.
- ``run_command(*line)``: a command that ends by itself, in this process.
- ``until``, ``parse_json``, ``read_problem``: wait, strict JSON, problem details.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import io
import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import httpx2

from windvane.testing import Service

if TYPE_CHECKING:
    from windvane.service.engine import Engine
    from windvane.service.streams import Stream

ADDRESS = "http://127.0.0.1:8000"
ARMS = {"arms": {"red": [0.6, 0.1], "blue": [0.2, 0.7], "green": [-0.3, 0.4]}}
CHANGES: list[tuple[str, str, Any]] = [  # a request of every kind that changes a stream, as path after its name
    ("PATCH", "", {"title": "x"}),
    ("POST", "/decisions", ARMS),
    ("POST", "/decisions/batch", {"decisions": [{**ARMS, "key": "k"}, ARMS]}),
    ("PUT", "/decisions/x/reward", {"value": 1.0}),
    ("POST", "/decisions/x/rewards", {"value": 1.0}),
    ("POST", "/rewards/batch", {"rewards": [{"decision": "x", "value": 1.0}]}),
    ("POST", "/history", {"rewards": [1.0], "vectors": [[0.5, 0.5]], "weights": [1]}),
    ("POST", "/archive", {}),
    ("POST", "/unarchive", {}),
    ("POST", "/compact", {}),
    ("DELETE", "/decisions/x/context", {}),
    ("DELETE", "", {}),
]
SOURCE = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "src")]
T = TypeVar("T")


def until(condition: Callable[[], T], seconds: float = 20.0) -> T:
    """Return the first result of ``condition`` that is true."""
    end = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < end, f"not within {seconds} seconds"
        time.sleep(0.01)
    return result


def parse_json(text: str | bytes) -> Any:
    """Parse JSON strictly: NaN and infinity are no JSON, and no object has a name twice."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    def check_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len(dict(pairs)) == len(pairs), f"a name twice: {[name for name, _ in pairs]}"
        return dict(pairs)

    return json.loads(text, parse_constant=refuse, object_pairs_hook=check_names)


TELLTALE = re.compile(r"Traceback|File \"|\.py\b|/site-packages|/src/|sqlite3|pydantic|numpy|0x[0-9a-f]{6}")


def read_problem(answer: httpx2.Response, *statuses: int) -> dict[str, Any]:
    """Return the problem details of an answer; they say what is wrong, and nothing about the server's inside."""
    assert answer.status_code in statuses, (answer.status_code, answer.text[:300])
    assert answer.headers["content-type"] == "application/problem+json"
    problem = parse_json(answer.content)
    assert problem["status"] == answer.status_code
    assert problem["type"].startswith("urn:windvane:problem:")
    assert problem["title"]
    assert problem["detail"]
    assert all(entry["pointer"].startswith("#") and entry["detail"] for entry in problem.get("errors", []))
    assert len(answer.content) < 2000
    assert not TELLTALE.search(answer.text), answer.text
    return {**problem, "code": problem["type"].removeprefix("urn:windvane:problem:")}


def read_pointers(answer: httpx2.Response, status: int = 422, code: str = "invalid") -> list[str]:
    """Return where in the request something is wrong."""
    problem = read_problem(answer, status)
    assert problem["code"] == code
    return [error["pointer"] for error in problem["errors"]]


# --- in this process -----------------------------------------------------------------------------------------------


class Local:
    """The application without a socket, in an event loop of its own thread. ``options`` are those of ``create_app``."""

    def __init__(self, path: Path, *, wait: bool = True, **options: Any) -> None:
        from support import backends
        from windvane.service.http.app import create_app

        self.store: Any = backends.open_backend(path)
        self.app: Any = create_app(self.store, node=backends.describe_node(), **options)
        self.loop, self._threads = asyncio.new_event_loop(), ThreadPoolExecutor()
        self.loop.set_default_executor(self._threads)
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        self._to_app: asyncio.Queue[dict[str, str]] = asyncio.Queue()
        self._from_app: asyncio.Queue[dict[str, str]] = asyncio.Queue()
        self._lifespan = asyncio.run_coroutine_threadsafe(
            self.app({"type": "lifespan", "state": {}}, self._to_app.get, self._from_app.put), self.loop
        )
        self._send_lifespan("startup")
        transport = httpx2.ASGITransport(self.app, raise_app_exceptions=False)
        self._client = httpx2.AsyncClient(transport=transport, base_url=ADDRESS)
        if wait:
            self.wait_until_ready()

    def wait_until_ready(self) -> None:
        until(lambda: self.get("/readyz").status_code == 200, 60.0)

    def _send_lifespan(self, event: str) -> None:
        async def ask() -> dict[str, str]:
            await self._to_app.put({"type": f"lifespan.{event}"})
            return await self._from_app.get()

        assert self.run(ask())["type"] == f"lifespan.{event}.complete"

    @property
    def engine(self) -> Engine:
        engine: Engine = self.app.engine
        return engine

    def run(self, work: Any) -> Any:
        """Run a coroutine in the loop's thread."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(60)

    def call(self, work: Callable[[], T]) -> T:
        """Call a plain function in the loop's thread."""

        async def wrapper() -> T:
            return work()

        result: T = self.run(wrapper())
        return result

    # --- requests ---

    def request(self, method: str, path: str, **more: Any) -> httpx2.Response:
        answer: httpx2.Response = self.run(self._client.request(method, path, **more))
        return answer

    def get(self, path: str, **more: Any) -> httpx2.Response:
        return self.request("GET", path, **more)

    def post(self, path: str, body: Any = None, **more: Any) -> httpx2.Response:
        return self.request("POST", path, **({} if body is None else {"json": body}), **more)

    def put(self, path: str, body: Any, **more: Any) -> httpx2.Response:
        return self.request("PUT", path, json=body, **more)

    def patch(self, path: str, body: Any, **more: Any) -> httpx2.Response:
        return self.request("PATCH", path, json=body, **more)

    def request_together(self, *requests: tuple[str, str, Any]) -> list[httpx2.Response]:
        """Send requests (method, path, body) that are all under way at once."""

        async def send() -> list[httpx2.Response]:
            return list(await asyncio.gather(*(self._client.request(m, p, json=body) for m, p, body in requests)))

        answers: list[httpx2.Response] = self.run(send())
        return answers

    # --- the usual requests, which must succeed ---

    def create(self, name: str = "shop", **settings: Any) -> dict[str, Any]:
        """Create a stream of two dimensions with seed 0, unless ``settings`` say otherwise."""
        defaults = {"seed": 0} | ({} if "features" in settings else {"dim": 2})
        return _read(self.post("/v1/streams", {"name": name, **defaults, **settings}), 201)

    def info(self, name: str = "shop") -> dict[str, Any]:
        return _read(self.get(f"/v1/streams/{name}"))

    def configure(self, name: str = "shop", **changes: Any) -> dict[str, Any]:
        return _read(self.patch(f"/v1/streams/{name}", changes))

    def archive(self, name: str = "shop") -> dict[str, Any]:
        return _read(self.post(f"/v1/streams/{name}/archive"))

    def decide(self, name: str = "shop", body: Any = None, *, key: str | None = None, **more: Any) -> dict[str, Any]:
        """Decide among ARMS, unless ``body`` says otherwise."""
        if key is not None:
            more["headers"] = {"idempotency-key": key, **more.get("headers", {})}
        return _read(self.post(f"/v1/streams/{name}/decisions", ARMS if body is None else body, **more), 201)

    def reward(self, decision: str, value: float, name: str = "shop", **more: Any) -> httpx2.Response:
        """Send a reward; the answer may be a refusal."""
        return self.put(f"/v1/streams/{name}/decisions/{decision}/reward", {"value": value}, **more)

    def add_reward(self, decision: str, value: float, name: str = "shop", **more: Any) -> httpx2.Response:
        """Send a part of a reward; the answer may be a refusal."""
        return self.post(f"/v1/streams/{name}/decisions/{decision}/rewards", {"value": value}, **more)

    def events(self, name: str = "shop") -> list[dict[str, Any]]:
        """Return the log, as exported."""
        answer = self.get(f"/v1/streams/{name}/events")
        assert answer.status_code == 200, answer.text
        return [parse_json(line) for line in answer.text.splitlines()]

    # --- what a stream is ---

    def state(self, name: str = "shop") -> bytes:
        """Return all that a stream is, as bytes."""
        if self.engine.failure is None:
            self.load(name)
        return self.call(lambda: pack_stream(self.engine.streams[name]))

    def load(self, name: str = "shop") -> Stream:
        """Return a stream; on PostgreSQL it may have to be loaded first."""
        stream: Stream = self.run(self.engine.find(name))
        return stream

    def replay(self, name: str = "shop") -> bytes:
        """Return all that a stream is, built again from its first event on."""
        from windvane.service.recovery import rebuild_stream

        row = next(row for row in self.store.read_streams() if row.name == name)
        return pack_stream(rebuild_stream(row, self.store, from_start=True))

    # --- the end ---

    def stop(self) -> None:
        """Stop in an orderly way, as the server does."""
        self.shut_down()
        self.crash()

    def shut_down(self) -> None:
        """Let the application write what is under way and end."""
        self._send_lifespan("shutdown")
        self._lifespan.result(10)

    def crash(self) -> None:
        """Stop without a last word: what is not on disk is lost."""

        async def end() -> None:
            await self._client.aclose()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        self.run(end())
        if self.engine.placement is not None and self.engine.placement.keeper is not None:
            self.engine.placement.keeper.stop()  # or the next service would have to wait for the lease
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self._end_threads()
        self.loop.close()
        self.store.close()

    def _end_threads(self) -> None:
        """Wait for threads, as the server does: SQLite crashes if a connection is closed while a thread reads with it.

        A test may have stopped one for good, so there is a limit.
        """
        ending = threading.Thread(target=self._threads.shutdown, kwargs={"cancel_futures": True}, daemon=True)
        ending.start()
        ending.join(10)


def _read(answer: httpx2.Response, status: int = 200) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    return dict(parse_json(answer.content))


def pack_stream(stream: Stream) -> bytes:
    """Return all that a stream is, as bytes."""
    rest = (stream.number, stream.chain, stream.title, stream.archived)
    return stream.core.pack()() + repr(rest).encode()


@contextlib.contextmanager
def run_local(path: Path, **options: Any) -> Iterator[Local]:
    """Run the application in this process; at the end, memory must equal a replay of the log."""
    service = Local(path, **options)
    try:
        yield service
        for name in list(service.engine.rows.keys() - service.engine.unavailable.keys()):
            service.load(name)
        service.shut_down()  # from now on no timeout passes
        for name in service.engine.streams:
            assert service.state(name) == service.replay(name), f"{name}: differs from a replay of its log"
    finally:
        service.crash()


# --- in processes of its own ---------------------------------------------------------------------------------------


class Server:
    """A process that answers at ``address``."""

    def __init__(self, pid: int, address: str, service: Service | None = None) -> None:
        self.pid, self.address, self.service = pid, address, service

    def client(self, **more: Any) -> httpx2.Client:
        return httpx2.Client(base_url=self.address, timeout=30.0, trust_env=False, **more)

    def kill(self) -> None:
        """``kill -9``; it is gone when this returns."""
        self._end(signal.SIGKILL)

    def stop(self) -> int | None:
        """Stop it as a service manager does; return the exit code where it is known."""
        return self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> int | None:
        if self.service is not None:
            return self.service.stop() if how == signal.SIGTERM else self.service.kill()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, how)
        until(lambda: not is_running(self.pid))
        return None


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def serve(store: Path, *options: str) -> Server:
    """Start ``windvane serve`` as users do, and wait until it is ready."""
    service = Service(store, *options)
    server = Server(service.pid, service.address, service)
    with server.client() as client:
        until(lambda: client.get("/readyz").status_code != 503, 60.0)
    return server


@contextlib.contextmanager
def run_server(store: Path, *options: str) -> Iterator[Server]:
    """Run ``windvane serve``; at the end it must stop cleanly and have written nothing to standard error."""
    server = serve(store, *options)
    try:
        yield server
    finally:
        code = server.stop()
    assert server.service is not None
    assert (code, server.service.errors) == (0, "")


def command(*line: str | Path) -> list[str]:
    return [sys.executable, "-m", "windvane.cli", *map(str, line)]


class CommandResult(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


@contextlib.contextmanager
def keep_logging() -> Iterator[None]:
    """Let the log of this process be at the end as it was before."""
    root, loggers = logging.getLogger(), [logging.getLogger(name) for name in ("windvane", "windvane.access")]
    before, levels = root.handlers[:], [logger.level for logger in (root, *loggers)]
    root.handlers.clear()
    try:
        yield
    finally:
        logging.captureWarnings(False)
        root.handlers[:] = before
        for logger, level in zip((root, *loggers), levels, strict=True):
            logger.setLevel(level)


def run_command(*line: str | Path) -> CommandResult:
    """Run a command that ends by itself in this process."""
    from windvane.cli import main

    out, err = io.StringIO(), io.StringIO()
    handler, path, loaded = signal.getsignal(signal.SIGTERM), list(sys.path), set(sys.modules)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), keep_logging():
            code = main(list(map(str, line)))
    finally:
        signal.signal(signal.SIGTERM, handler)
        sys.path[:] = path
        for name in set(sys.modules) - loaded:  # the next test may have another module of this name in its folder
            if Path(getattr(sys.modules[name], "__file__", None) or "/").parent == Path.cwd():
                del sys.modules[name]
    return CommandResult(code, out.getvalue(), err.getvalue())


class ForkServer:
    """Servers that start at once: forked from a process that has loaded everything and opened nothing."""

    def __init__(self) -> None:
        path = os.pathsep.join([*SOURCE, os.environ.get("PYTHONPATH", "")])
        line, environment = [sys.executable, "-m", "support.server"], {**os.environ, "PYTHONPATH": path}
        self._process = subprocess.Popen(
            line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def begin(self, store: Path) -> Server:
        """Return a server that has only just begun to start; it has no address yet."""
        assert self._process.stdin is not None
        print(json.dumps(str(store)), file=self._process.stdin, flush=True)
        while "child" not in (message := self._read()):
            pass  # the address of one that was killed since
        return Server(message["child"], "")

    def serve(self, store: Path) -> Server:
        """Return a server that is ready."""
        server = self.begin(store)
        while (message := self._read()).get("pid") != server.pid:
            pass
        assert "address" in message, message
        server.address = message["address"]
        with server.client() as client:
            until(lambda: client.get("/readyz").status_code != 503, 60.0)
        return server

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        return dict(json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        self._process.communicate(timeout=30)


def _fork_servers() -> None:
    from windvane.agent import Agent
    from windvane.service.server import serve as run
    from windvane.warmup import warm_up

    for module in ("uvicorn.protocols.http.httptools_impl", "uvicorn.loops.uvloop", "anyio._backends._asyncio"):
        importlib.import_module(module)  # a server imports them when it starts
    warm_up()
    agent = Agent(dim=2)
    agent.reward(agent.decide(ARMS["arms"]).id, 1.0)
    Agent.from_bytes(agent.to_bytes()).info()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that are killed

    def send(**message: Any) -> None:
        os.write(1, json.dumps(message).encode() + b"\n")

    for line in sys.stdin:
        hold, go = os.pipe()
        if (pid := os.fork()) > 0:
            send(child=pid)
            os.close(hold)
            os.close(go)
            continue
        os.close(go)
        os.read(hold, 1)  # until the parent has written its line
        try:
            run(json.loads(line), port=0, started=lambda address: send(pid=os.getpid(), address=address))
        except Exception as error:
            send(pid=os.getpid(), error=str(error))
        os._exit(0)


if __name__ == "__main__":
    _fork_servers()
