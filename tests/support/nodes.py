"""Servers that share a database: started at once, killed, stopped for a while, given a wrong clock or another version.

- ``NodeForks``: a process that has loaded everything, from which servers are forked.
- ``Node``: such a server. ``ServiceCluster``: all of them on one database, and what the database says about them.
"""

from __future__ import annotations

import contextlib
import http.client
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psycopg

from support.postgres import Cluster
from support.server import ARMS, SOURCE, is_running, pack_stream, run_command, until
from windvane.cluster_map import shard_of
from windvane.service.recovery import rebuild_stream
from windvane.service.store.postgres.store import PostgresStore

PRELOADED = (
    "uvicorn.protocols.http.httptools_impl",
    "uvicorn.loops.uvloop",
    "anyio._backends._asyncio",
    "windvane.service.cluster.keeper",
    "windvane.service.store.postgres.store",
)
SHARDS = 64


class Node:
    """A server that was forked. ``log`` is what it wrote to standard error."""

    def __init__(self, name: str, pid: int, settings: dict[str, Any], log: Path) -> None:
        self.name, self.pid, self.settings, self.log = name, pid, settings, log
        self.address = f"127.0.0.1:{settings['port']}"

    def call(
        self, method: str, path: str, body: Any = None, key: str | None = None, seconds: float = 10.0, **headers: str
    ) -> tuple[int, Any]:
        """Send one request over a new connection; return the status and the JSON of the answer."""
        status, _, content = self.exchange(method, path, body, key, seconds, **headers)
        return status, json.loads(content) if content else None

    def exchange(
        self, method: str, path: str, body: Any = None, key: str | None = None, seconds: float = 10.0, **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        """Send one request over a new connection; return the status, the headers and the body of the answer."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        sent |= {} if key is None else {"idempotency-key": key}
        content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        if content is not None:
            sent.setdefault("content-type", "application/json")
        with contextlib.closing(http.client.HTTPConnection(self.address, timeout=seconds)) as connection:
            connection.request(method, path, content, sent)
            answer = connection.getresponse()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()

    def is_ready(self) -> bool:
        """Return whether it answers, and is ready."""
        with contextlib.suppress(OSError, http.client.HTTPException):
            return self.call("GET", "/readyz")[0] == 200
        return False

    def find_cause(self) -> str | None:
        """Return why it is not ready; None if it is, or does not answer."""
        with contextlib.suppress(OSError, http.client.HTTPException):
            return self.call("GET", "/readyz")[1].get("cause")
        return None

    def read_owners(self) -> dict[int, str] | None:
        """Return the owners of shards as this node knows them, and serves them itself; None if it wants a token."""
        nodes = self.call("GET", "/v1/cluster")[1].get("nodes")
        if nodes is None:
            return None
        own = self.call("GET", "/readyz")[1].get("shards", [])
        owners = {shard: node["name"] for node in nodes for shard in node["shards"] if node["name"] != self.name}
        return owners | dict.fromkeys(own, self.name)

    def send_signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def pause(self) -> None:
        """Stop the process; it is stopped when this returns."""
        self.send_signal(signal.SIGSTOP)
        until(lambda: _read_state(self.pid) == "T")

    def resume(self) -> None:
        self.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """``kill -9``; it is gone when this returns."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Stop it as a service manager does; it is gone when this returns."""
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.send_signal(number)
            self.send_signal(signal.SIGCONT)
        until(lambda: not is_running(self.pid), 30.0)


def _read_state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


class NodeForks:
    """Forks servers from a process that has loaded everything and opened nothing."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="wv-nodes-"))
        path = os.pathsep.join([*SOURCE, os.environ.get("PYTHONPATH", "")])
        line, environment = [sys.executable, "-m", "support.nodes"], {**os.environ, "PYTHONPATH": path}
        self._process = subprocess.Popen(
            line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def start(self, store: str, name: str, **settings: Any) -> Node:
        """Start a server on ``store``; it may not answer yet. ``settings``: see :func:`apply_settings`."""
        settings.setdefault("port", find_port())
        log = self.folder / f"{name}-{settings['port']}.log"
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        message = {"store": store, "node": name, "log": str(log), **settings}
        print(json.dumps(message), file=self._process.stdin, flush=True)
        return Node(name, json.loads(self._process.stdout.readline())["child"], settings, log)

    def close(self) -> None:
        self._process.communicate(timeout=30)


def find_port() -> int:
    """Return a port that nobody listens on: a node that is restarted keeps it."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


def name_streams(shards: Iterable[int], prefix: str = "p") -> list[str]:
    """Return the name of a stream for each of some shards."""
    names: dict[int, str] = {}
    for name in (f"{prefix}{i}" for i in range(20 * SHARDS)):
        names.setdefault(shard_of(name, SHARDS), name)
    return [names[shard] for shard in shards]


class ServiceCluster:
    """Nodes that share a database of ``server``.

    Parameters
    ----------
    forks
        Where nodes come from.
    server, database
        The PostgreSQL server, and the name of a database there.
    url
        The connection string that nodes use. Default: that of the database.
    settings
        Of all nodes.
    """

    def __init__(
        self, forks: NodeForks, server: Cluster, database: str, *, url: str | None = None, **settings: Any
    ) -> None:
        self.forks, self.server, self.database, self.settings = forks, server, database, settings
        self.url = url or server.url(database)
        self.nodes: dict[str, Node] = {}
        self._connection: psycopg.Connection[Any] | None = None

    def start(self, *names: str, wait: bool = True, **settings: Any) -> Node:
        """Start nodes, and wait until they are ready and every node has its share; return the last one."""
        for name in names:
            self.nodes[name] = self.forks.start(self.url, name, **{**self.settings, **settings})
        if wait:
            self.wait_until_balanced()
        return self.nodes[names[-1]]

    def restart(self, name: str, wait: bool = True) -> Node:
        """Start a node again that has ended, at the same port."""
        self.nodes[name] = self.forks.start(self.url, name, **self.nodes[name].settings)
        if wait:
            until(self.nodes[name].is_ready, 60.0)
        return self.nodes[name]

    def close(self) -> None:
        for node in self.nodes.values():
            node.kill()
        if self._connection is not None:
            self._connection.close()

    # --- what the database says --------------------------------------------------------------------------------------

    def execute(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run a statement as the superuser; return its rows. The connection is kept: this is called often."""
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(self.server.url(self.database), autocommit=True)
        try:
            cursor = self._connection.execute(sql.encode(), values or None)
        except psycopg.OperationalError:
            if not self._connection.closed:
                raise
            return self.execute(sql, *values)  # the server was restarted meanwhile
        return cursor.fetchall() if cursor.description else []

    def read_owners(self) -> dict[int, str]:
        """Return the name of the node that owns a shard, by shard."""
        query = "SELECT shard, name FROM shards JOIN nodes ON node = instance WHERE lease_until > clock_timestamp()"
        return dict(self.execute(query))

    def find_owner(self, stream: str) -> Node | None:
        """Return the node that owns a stream, None if nobody does."""
        owner = self.read_owners().get(shard_of(stream, SHARDS))
        return None if owner is None else self.nodes[owner]

    def wait_for_owner(self, stream: str) -> Node:
        return until(lambda: self.find_owner(stream), 30.0)

    def find_other(self, stream: str) -> Node:
        """Return a node that runs and does not own a stream."""
        owner = self.wait_for_owner(stream)
        return next(node for node in self.nodes.values() if node is not owner and is_running(node.pid))

    def wait_until_balanced(self, *names: str) -> None:
        """Wait until these nodes, or all, are ready, each owns its share of the shards, and all of them know it."""
        expected = set(names or self.nodes)

        def is_balanced() -> bool:
            owners = self.read_owners()
            counts = [list(owners.values()).count(name) for name in expected]
            if sum(counts) < SHARDS or max(counts) - min(counts) > 1:
                return False
            return all(self.nodes[name].read_owners() in (None, owners) for name in expected)

        until(lambda: all(self.nodes[name].is_ready() for name in expected), 60.0)
        until(is_balanced, 60.0)

    # --- streams -----------------------------------------------------------------------------------------------------

    def create_streams(self, names: Iterable[str], **settings: Any) -> list[str]:
        """Create streams at any of the nodes; return their names."""
        nodes, created = list(self.nodes.values()), list(names)
        for i, name in enumerate(created):
            body = {"name": name, "seed": i, **({} if "features" in settings else {"dim": 2}), **settings}
            status, answer = nodes[i % len(nodes)].call("POST", "/v1/streams", body)
            assert status == 201, answer
        return created

    def create_owned(self, owner: str, prefix: str = "s", **settings: Any) -> str:
        """Create a stream that a given node owns now; return its name."""
        shard = next(shard for shard, name in self.read_owners().items() if name == owner)
        return self.create_streams(name_streams([shard], prefix), **settings)[0]

    def decide(
        self, stream: str, key: str | None = None, node: Node | None = None, seconds: float = 30.0
    ) -> dict[str, Any]:
        """Decide at one node or any, and again until one answers."""
        path = f"/v1/streams/{stream}/decisions"
        answer: dict[str, Any] = self.ask("POST", path, ARMS, key, 201, node=node, seconds=seconds)
        return answer

    def ask(
        self, method: str, path: str, body: Any = None, key: str | None = None, expected: int = 200,
        node: Node | None = None, seconds: float = 30.0,
    ) -> Any:  # fmt: skip
        """Send a request to one node, or one after the other, until it is answered; 503 and 504 are no answer."""

        def attempt() -> Any:
            for node in asked:
                with contextlib.suppress(OSError, http.client.HTTPException):
                    status, answer = node.call(method, path, body, key, seconds=3.0)
                    if status not in (503, 504):
                        assert status == expected, (node.name, status, answer)
                        return answer
            return None

        asked = list(self.nodes.values()) if node is None else [node]
        return until(attempt, seconds)

    def read_log(self, stream: str) -> list[dict[str, Any]]:
        """Return the events of a stream as the database has them."""
        with contextlib.closing(self.open_store()) as store:
            row = store.find_stream(stream)
            assert row is not None
            return [event.to_plain() for event in store.read_events(row.id)]

    def open_store(self) -> PostgresStore:
        return PostgresStore(self.server.url(self.database), shared=True, read_only=True)

    def verify(self) -> None:
        """Check with ``windvane verify``, and that snapshots equal replays of the whole log."""
        result = run_command("verify", "--json", "--store", self.server.url(self.database))
        assert result.returncode == 0, result.stdout + result.stderr
        assert json.loads(result.stdout)["sound"], result.stdout
        with contextlib.closing(self.open_store()) as store:
            for row in store.read_streams():
                replayed = rebuild_stream(row, store, from_start=True)
                assert pack_stream(rebuild_stream(row, store)) == pack_stream(replayed), row.name


# --- the process that forks ------------------------------------------------------------------------------------------


def apply_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """Change this process as a test wants it; return the arguments of ``serve``.

    ``lease``, ``tick``: seconds. ``clock``: seconds by which the wall clock is wrong. ``version``, ``format``: those
    that this node claims to have. ``modules``: attributes to be set, by module. ``environment``: variables. The rest
    are arguments of ``serve``.
    """
    import windvane
    from windvane.service.cluster import keeper, placement

    defaults: Any = keeper.Keeper.__init__.__kwdefaults__
    for name in ("lease", "tick"):
        if name in settings:
            defaults[name] = settings.pop(name)
    if shift := settings.pop("clock", 0.0):
        seconds, nanoseconds = time.time, time.time_ns
        time.time = defaults["read_time"] = lambda: seconds() + shift
        time.time_ns = lambda: nanoseconds() + round(shift * 1e9)
    os.environ.update(settings.pop("environment", {}))
    windvane.__version__ = settings.pop("version", windvane.__version__)
    placement.FORMAT = settings.pop("format", placement.FORMAT)
    for module, values in settings.pop("modules", {}).items():
        for name, value in values.items():
            setattr(importlib.import_module(module), name, value)
    return settings


def _run(settings: dict[str, Any]) -> None:
    from windvane.service.logs import configure_logging
    from windvane.service.server import serve

    log = os.open(settings.pop("log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 2)
    configure_logging("text", settings.pop("log_level", "info"))
    store = settings.pop("store")
    serve(store, **apply_settings(settings))


def _fork_nodes() -> None:
    from windvane.agent import Agent
    from windvane.policies.adaptive_glm_ucb import AdaptiveGLMUCB
    from windvane.warmup import warm_up

    for module in PRELOADED:
        importlib.import_module(module)  # a server imports them when it starts
    warm_up([AdaptiveGLMUCB])
    agent = Agent(dim=2)
    agent.reward(agent.decide(ARMS["arms"]).id, 1.0)
    Agent.from_bytes(agent.to_bytes()).info()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that are killed
    for line in sys.stdin:
        if (pid := os.fork()) > 0:
            os.write(1, json.dumps({"child": pid}).encode() + b"\n")
            continue
        os.close(0)
        try:
            _run(json.loads(line))
        except BaseException as error:
            os.write(2, f"the node ended: {error!r}\n".encode())
            os._exit(1)
        os._exit(0)


if __name__ == "__main__":
    _fork_nodes()
