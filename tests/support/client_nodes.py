"""Nodes of a cluster, as a client sees them: real servers in threads that forward requests for each other's streams."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from support.network import Listener, make_answer, read_message
from windvane.cluster_map import shard_of
from windvane.records import Decision, RewardReceipt, to_datetime, to_plain

SHARDS = 4
DECISION = Decision(
    id="d1", arm="red", index=0, time=to_datetime(1.5), propensity=None, explored=False, prediction=0.5, bonus=0.1,
    preferred="red", rival="blue", rival_score=0.2, projected=None,
)  # fmt: skip
RECEIPT = RewardReceipt(decision="d1", status="recorded", value=1.0)


def make_problem(code: str, status: str, *headers: str) -> bytes:
    problem = {"type": f"urn:windvane:problem:{code}", "title": "Title", "detail": "it is so", "errors": []}
    return make_answer({**problem, "status": int(status[:3])}, status, *headers)


UNAVAILABLE = make_problem("unavailable", "503 Service Unavailable")


def name_stream(shard: int) -> str:
    """Return the name of a stream of a shard."""
    return next(name for number in range(1000) if shard_of(name := f"stream-{number}", SHARDS) == shard)


class Request(NamedTuple):
    """A request that a node got from a client."""

    method: str
    path: str
    key: str | None
    token: str | None

    @classmethod
    def parse(cls, message: bytes) -> Request:
        def find(header: str) -> str | None:
            match = re.search(rf"(?im)^{header}: ([^\r]+)", head)
            return match and match[1]

        head = message.partition(b"\r\n\r\n")[0].decode()
        method, path, _ = head.split(" ", 2)
        return cls(method, path, find("idempotency-key"), find("authorization"))


class Node(Listener):
    """A node of ``cluster``.

    ``handle_directly``: if set, what the node does with requests for its own streams, instead of executing them; it
    gets the connection and returns an answer, or None to hang up.
    """

    handle_directly: Callable[[socket.socket], bytes | None] | None = None
    is_up = True

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster, self.requests = cluster, list[Request]()
        super().__init__()
        self.url = self.address  # as the map names it

    def handle(self, connection: socket.socket) -> None:
        while message := read_message(connection):
            request = Request.parse(message)
            self.requests.append(request)
            answer = self._answer(request, message, connection)
            if answer is None:
                return
            connection.sendall(answer)

    def _answer(self, request: Request, message: bytes, connection: socket.socket) -> bytes | None:
        if request.path == "/v1/cluster":
            return make_answer(self._cluster.describe())
        if request.path == "/readyz":
            return make_answer({"status": "ready"})
        owner = self._cluster.find_owner(request, message)
        if owner is None or owner is self:
            return self.handle_directly(connection) if self.handle_directly else self._cluster.execute(request)
        answer = self._cluster.execute(request) if owner.is_up else UNAVAILABLE
        return answer.replace(b"\r\n", f"\r\nX-Windvane-Owner: {owner.url}\r\n".encode(), 1)

    def stop(self) -> None:
        """Stop for good; nobody else gets the port, so that connections are refused."""
        if self.is_up:
            self.is_up = False
            super().__exit__()
            port = int(self.address.rpartition(":")[2])
            self._reserved = socket.socket()
            self._reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._reserved.bind(("127.0.0.1", port))

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._reserved.close()

    @property
    def maps(self) -> int:
        """How often the map was fetched here."""
        return sum(request.path == "/v1/cluster" for request in self.requests)

    @property
    def calls(self) -> int:
        """How many other requests came here."""
        return len(self.requests) - self.maps


class FakeCluster:
    """Nodes that share the log of executed requests. Shard i belongs to node i modulo their number, at first."""

    def __init__(self, nodes: int) -> None:
        self._guard = threading.Lock()
        self.executed: Counter[str] = Counter()  # decisions by key: a node repeats its answer to a known key
        self.nodes = [Node(self) for _ in range(nodes)]
        self.owners: dict[int, Node] = {shard: self.nodes[shard % nodes] for shard in range(SHARDS)}
        self.shards = SHARDS

    def describe(self) -> dict[str, Any]:
        nodes = [
            {"name": f"n{number}", "url": node.url, "version": "1", "shards": self._list_shards(node)}
            for number, node in enumerate(self.nodes)
        ]
        return {"node": "n0", "shards": self.shards, "nodes": nodes, "unowned": [], "new": "of a later version"}

    def _list_shards(self, node: Node) -> list[int]:
        return [shard for shard, owner in self.owners.items() if owner is node]

    def find_owner(self, request: Request, message: bytes) -> Node | None:
        """Return the node that owns the stream of a request; None if it is about no stream."""
        parts = request.path.partition("?")[0].split("/")
        name = parts[3] if len(parts) > 3 else None
        if request.method == "POST" and name is None:
            name = json.loads(message.partition(b"\r\n\r\n")[2]).get("name")
        is_name = isinstance(name, str) and name.isprintable() and name
        return self.owners.get(shard_of(str(name), SHARDS)) if is_name else None

    def execute(self, request: Request) -> bytes:
        path = request.path.partition("?")[0]
        if request.key is not None:
            with self._guard:
                self.executed[request.key] += 1
        if path.endswith("/decisions"):
            return make_answer(to_plain(DECISION), "201 Created")
        if path.endswith("/reward"):
            return make_answer(to_plain(RECEIPT))
        if path.endswith("/pending"):
            return make_answer({"decisions": [to_plain(DECISION)], "next": None})
        if path.endswith("/events"):
            return make_answer(b'{"number":1}\n{"number":2}\n')
        return make_problem("stream-exists", "409 Conflict")

    @property
    def maps(self) -> int:
        return sum(node.maps for node in self.nodes)


@contextlib.contextmanager
def run_nodes(nodes: int) -> Iterator[FakeCluster]:
    cluster = FakeCluster(nodes)
    with contextlib.ExitStack() as stack:
        for node in cluster.nodes:
            stack.enter_context(node)
        yield cluster


@contextlib.contextmanager
def reserve_address() -> Iterator[str]:
    """Yield an address at which connections are refused."""
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{reserved.getsockname()[1]}"
