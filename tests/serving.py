"""The service as tests need it: in this process, as the command that users run, or in processes made to be killed."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import httpx

from windvane.cli import main
from windvane.service.app import create_app
from windvane.service.engine import Engine
from windvane.service.recovery import rebuilt
from windvane.service.store import Store
from windvane.service.streams import Stream

ADDRESS = "http://127.0.0.1:8000"
ARMS = {"arms": {"red": [0.6, 0.1], "blue": [0.2, 0.7], "green": [-0.3, 0.4]}}
T = TypeVar("T")


def until(condition: Callable[[], T], seconds: float = 20.0) -> T:
    """The first result of ``condition`` that is true."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, f"not within {seconds} seconds"
        time.sleep(0.01)
    return found


def parsed(text: str | bytes) -> Any:
    """JSON as the standard has it: what is not a number, or infinite, is no JSON."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


# --- in this process -----------------------------------------------------------------------------------------------


class Local:
    """The application without a socket, in an event loop of its own thread."""

    def __init__(self, path: Path, **options: Any) -> None:
        self.store = Store(path)
        self.app: Any = create_app(self.store, **options)
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()
        self._told: asyncio.Queue[dict[str, str]] = asyncio.Queue()
        self._heard: asyncio.Queue[dict[str, str]] = asyncio.Queue()
        self._life = asyncio.run_coroutine_threadsafe(self._live(), self.loop)
        self._lifespan("startup")
        transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
        self._client = httpx.AsyncClient(transport=transport, base_url=ADDRESS)

    async def _live(self) -> None:
        await self.app({"type": "lifespan", "state": {}}, self._told.get, self._heard.put)

    def _lifespan(self, what: str) -> None:
        async def ask() -> dict[str, str]:
            await self._told.put({"type": f"lifespan.{what}"})
            return await self._heard.get()

        assert self.run(ask())["type"] == f"lifespan.{what}.complete"

    @property
    def engine(self) -> Engine:
        found: Engine = self.app._app.state.engine  # behind the gate
        return found

    def run(self, work: Any) -> Any:
        """A coroutine, in the loop's thread."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(60)

    def call(self, work: Callable[[], T]) -> T:
        """A plain function, in the loop's thread."""

        async def wrapped() -> T:
            return work()

        found: T = self.run(wrapped())
        return found

    def request(self, method: str, path: str, **more: Any) -> httpx.Response:
        found: httpx.Response = self.run(self._client.request(method, path, **more))
        return found

    def get(self, path: str, **more: Any) -> httpx.Response:
        return self.request("GET", path, **more)

    def post(self, path: str, body: Any = None, **more: Any) -> httpx.Response:
        return self.request("POST", path, **({} if body is None else {"json": body}), **more)

    def together(self, *requests: tuple[str, Any]) -> list[httpx.Response]:
        """POSTs that are all under way at once."""

        async def all_of_them() -> list[httpx.Response]:
            return list(await asyncio.gather(*(self._client.post(path, json=body) for path, body in requests)))

        found: list[httpx.Response] = self.run(all_of_them())
        return found

    def create(self, name: str = "shop", **settings: Any) -> None:
        settings = {"dim": 2} | settings if "features" not in settings else settings
        settings = {"seed": 0} | settings  # the library's own; the service takes a random one
        answer = self.post("/v1/streams", {"name": name, **settings})
        assert answer.status_code == 201, answer.text

    def decide(self, name: str = "shop", body: Any = None, **more: Any) -> dict[str, Any]:
        answer = self.post(f"/v1/streams/{name}/decide", ARMS if body is None else body, **more)
        assert answer.status_code == 200, answer.text
        return dict(parsed(answer.content))

    def reward(self, decision: str, value: float, name: str = "shop", **more: Any) -> httpx.Response:
        return self.post(f"/v1/streams/{name}/reward", {"decision": decision, "value": value}, **more)

    def state(self, name: str = "shop") -> bytes:
        """All that a stream is, as bytes."""
        return self.call(lambda: whole(self.engine.streams[name]))

    def log(self, name: str = "shop") -> list[dict[str, Any]]:
        """The events, as exported."""
        answer = self.get(f"/v1/streams/{name}/events")
        assert answer.status_code == 200
        return [parsed(line) for line in answer.text.splitlines()]

    def replayed(self, name: str = "shop") -> bytes:
        """All that a stream is, made again from its first event on."""
        row = next(row for row in self.store.read_streams() if row.name == name)
        return whole(rebuilt(row, self.store, from_start=True))

    def stop(self) -> None:
        """As the server stops: in an orderly way."""
        self._lifespan("shutdown")
        self._life.result(10)
        self.crash()

    def crash(self) -> None:
        """Without a last word: what is not on disk is gone."""

        async def end() -> None:
            await self._client.aclose()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        self.run(end())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()
        self.store.close()


def whole(stream: Stream) -> bytes:
    """All that a stream is, as bytes."""
    found = stream.snapshot()
    return found.agent + found.extra + str(found.number).encode()


TELLTALE = re.compile(r"Traceback|File \"|\.py\b|/site-packages|/src/|sqlite3|pydantic|numpy|0x[0-9a-f]{6}")


@contextlib.contextmanager
def local(path: Path, **options: Any) -> Iterator[Local]:
    """The application in this process; at the end, memory must be what a replay of the log gives."""
    service = Local(path, **options)
    try:
        yield service
        for name in list(service.engine.streams):
            service.get(f"/v1/streams/{name}/events?after={2**39}")  # answered when all is on disk
            assert service.state(name) == service.replayed(name), f"{name}: is not what its log says"
    finally:
        service.stop()


def clean(answer: Any, *statuses: int) -> dict[str, Any]:
    """The error of an answer; it tells what is wrong, and nothing of what is behind it."""
    assert answer.status_code in statuses, (answer.status_code, answer.text[:300])
    error = dict(parsed(answer.content))["error"]
    assert error["code"]
    assert error["message"]
    assert len(answer.content) < 2000
    assert not TELLTALE.search(answer.text), answer.text
    return dict(error)


# --- in processes of its own ---------------------------------------------------------------------------------------


class Server:
    """A process that answers at ``address``."""

    def __init__(self, pid: int, address: str, process: subprocess.Popen[str] | None = None) -> None:
        self.pid, self.address, self._process = pid, address, process
        self.lines: Callable[[], int] = lambda: -1  # connections that are open, where that is known

    def client(self, **more: Any) -> httpx.Client:
        return httpx.Client(base_url=self.address, timeout=30.0, **more)

    def kill(self) -> None:
        """``kill -9``; it is gone when this returns."""
        self._end(signal.SIGKILL)

    def stop(self) -> int | None:
        """As a service manager does; the exit code, where it is known."""
        return self._end(signal.SIGTERM)

    def _end(self, how: int) -> int | None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, how)
        if self._process is not None:
            self._process.communicate(timeout=30)
            return self._process.returncode
        until(lambda: not Path(f"/proc/{self.pid}").exists() if Path("/proc").is_dir() else not _there(self.pid))
        return None


def _there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def command(*line: str | Path) -> list[str]:
    return [sys.executable, "-m", "windvane.cli", *map(str, line)]


class Told(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


def windvane(*line: str | Path) -> Told:
    """A command that ends by itself, run in this process."""
    out, err = io.StringIO(), io.StringIO()
    handler, path = signal.getsignal(signal.SIGTERM), list(sys.path)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(list(map(str, line)))
    finally:
        signal.signal(signal.SIGTERM, handler)
        sys.path[:] = path
    return Told(code, out.getvalue(), err.getvalue())


def served(store: Path, *options: str) -> Server:
    """``windvane serve``, as users start it; what it prints first is its address."""
    line = command("serve", "--store", store, "--port", "0", *options)
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], 120)
    first = process.stdout.readline() if ready else ""
    if not first.startswith("http://"):
        process.kill()
        raise AssertionError(f"no server: {first}{process.communicate()[1]}")
    return Server(process.pid, first.split()[0], process)


class Nursery:
    """Servers that start at once: forked from a process that has loaded everything, and that has opened nothing."""

    def __init__(self) -> None:
        source = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "src")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*source, os.environ.get("PYTHONPATH", "")])}
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def born(self, store: Path) -> Server:
        """A server that has only just begun to start."""
        assert self._process.stdin is not None
        print(json.dumps(str(store)), file=self._process.stdin, flush=True)
        while "born" not in (found := self._heard()):
            pass  # the address of one that was killed since
        return Server(found["born"], "")

    def served(self, store: Path) -> Server:
        """A server that answers."""
        server = self.born(store)
        while (found := self._heard()).get("pid") != server.pid:
            pass
        assert "address" in found, found
        return Server(server.pid, found["address"])

    def _heard(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        return dict(json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        self._process.communicate(timeout=30)


def _nursery() -> None:
    from windvane.agent import Agent
    from windvane.service.server import serve
    from windvane.warmup import warm_up

    warm_up()
    agent = Agent(dim=2)
    agent.reward(agent.decide(ARMS["arms"]).id, 1.0)
    Agent.from_bytes(agent.to_bytes()).info()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that are killed

    def tell(**found: Any) -> None:
        os.write(1, json.dumps(found).encode() + b"\n")

    for line in sys.stdin:
        hold, go = os.pipe()
        if (pid := os.fork()) > 0:
            tell(born=pid)
            os.close(hold)
            os.close(go)
            continue
        os.close(go)
        os.read(hold, 1)  # until the one line is written before the other
        try:
            serve(json.loads(line), port=0, started=lambda address: tell(pid=os.getpid(), address=address))
        except Exception as error:
            tell(pid=os.getpid(), error=str(error))
        os._exit(0)


if __name__ == "__main__":
    _nursery()
