"""Any node answers any request: what it forwards is answered as the owner itself would answer it."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import json
import secrets
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from support.nodes import Node, NodeForks, ServiceCluster
from support.postgres import Cluster
from support.server import ARMS, run_command, until

SAME_HEADERS = ("content-type", "retry-after", "allow", "location", "www-authenticate", "content-disposition")
SAME_HEADERS += ("cache-control", "content-security-policy", "x-content-type-options", "vary")
SHOP = "/v1/streams/{stream}"


class Pair:
    """A stream, the node that owns it, and another node."""

    def __init__(self, nodes: ServiceCluster, stream: str) -> None:
        self.nodes, self.stream = nodes, stream
        self.path = f"/v1/streams/{stream}"
        self.owner = nodes.wait_for_owner(stream)
        self.other = next(node for node in nodes.nodes.values() if node is not self.owner)

    def compare(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, bytes]:
        """Send a request to both nodes; the answers must be equal."""
        answers = []
        for node in (self.owner, self.other):
            status, given, content = node.exchange(method, path.format(stream=self.stream), body, **headers)
            if content and "problem+json" in given["content-type"]:
                content = json.dumps({**json.loads(content), "request_id": ""}).encode()
            answers.append((status, {name: given.get(name) for name in SAME_HEADERS}, content))
        assert answers[0] == answers[1], (method, path)
        return answers[0][0], answers[0][2]


@pytest.fixture(scope="module")
def shared(node_forks: NodeForks, cluster: Cluster) -> Iterator[ServiceCluster]:
    """Two nodes, for all tests that do them no harm."""
    cluster.start()
    database = cluster.create_database()
    running = ServiceCluster(node_forks, cluster, database)
    with contextlib.closing(running):
        running.start("a", "b")
        yield running
    cluster.drop_database(database)


@pytest.fixture
def pair(shared: ServiceCluster) -> Pair:
    """A new stream of either node."""
    settings = {"title": "Shop", "reward_timeout": "1h", "learn": "at_timeout"}
    return Pair(shared, shared.create_streams([f"shop-{secrets.token_hex(4)}"], **settings)[0])


# --- the same answers ------------------------------------------------------------------------------------------------


def test_reads(pair: Pair) -> None:
    decision = pair.nodes.decide(pair.stream)["id"]
    pair.nodes.decide(pair.stream)
    for path in ("", "/pending", "/pending?limit=1", f"/decisions/{decision}", f"/decisions/{decision}/explanation"):
        status, content = pair.compare("GET", SHOP + path)
        assert (status, bool(content)) == (200, True)
        assert pair.compare("HEAD", SHOP + path) == (200, b"")
    for path in ("/predict", "/rank"):
        assert pair.compare("POST", SHOP + path, ARMS)[0] == 200
    for node in (pair.owner, pair.other):
        assert node.call("GET", f"{pair.path}/charts")[0] == 200
    assert pair.compare("GET", "/v1/streams?limit=1000")[0] == 200


PROBLEMS: list[tuple[int, str, str, Any, dict[str, str]]] = [
    (404, "GET", SHOP + "-unknown", None, {}),
    (404, "POST", SHOP + "-unknown/decisions", ARMS, {}),
    (404, "GET", SHOP + "/decisions/unknown", None, {}),
    (404, "PUT", SHOP + "/decisions/unknown/reward", {"value": 1.0}, {}),
    (404, "GET", SHOP + "/unknown", None, {}),
    (404, "GET", SHOP + "/", None, {}),
    (405, "PUT", SHOP + "/decisions", ARMS, {}),
    (405, "HEAD", SHOP + "/live", None, {}),
    (422, "GET", SHOP + "/pending?limit=0", None, {}),
    (422, "GET", SHOP + "/events?format=csv", None, {}),
    (422, "POST", SHOP + "/decisions", {"arms": {"red": [0.1]}}, {}),
    (422, "POST", SHOP + "/decisions", b"{", {}),
    (422, "POST", SHOP + "/decisions", b"", {}),
    (422, "POST", SHOP + "/decisions", ARMS, {"idempotency_key": "é"}),
    (422, "PATCH", SHOP, {"unknown": 1}, {}),
    (422, "POST", SHOP + "/decisions/batch", {"decisions": [ARMS]}, {"idempotency_key": "k"}),
    (422, "POST", SHOP + "/history", {"rewards": [1.0], "vectors": [[1.0]]}, {}),
    (422, "POST", SHOP + "/refit", {"unknown": 1}, {}),
    (409, "POST", SHOP + "/refit/undo", None, {}),
    (409, "POST", "/v1/streams", {"name": "{stream}", "dim": 2}, {}),
    (409, "PUT", SHOP, {"dim": 3}, {}),
    (413, "POST", SHOP + "/decisions", b" " * (5 << 20), {}),
    (415, "POST", SHOP + "/decisions", ARMS, {"content_type": "text/plain"}),
]


@pytest.mark.parametrize(("status", "method", "path", "body", "headers"), PROBLEMS)
def test_problems(pair: Pair, status: int, method: str, path: str, body: Any, headers: dict[str, str]) -> None:
    if isinstance(body, dict) and "name" in body:
        body = {**body, "name": pair.stream}
    found, content = pair.compare(method, path, body, **headers)
    assert found == status, content


def test_results_of_batches(pair: Pair) -> None:
    """Each item has its own problem, with its own pointer."""
    body = {"decisions": [{**ARMS, "key": "k1"}, {"arms": {}}, {**ARMS, "key": "k1"}]}
    status, content = pair.compare("POST", SHOP + "/decisions/batch", body)
    results = json.loads(content)["results"]
    assert (status, [result["status"] for result in results]) == (200, [201, 422, 201])
    assert results[0] == results[2]
    rewards = [{"decision": results[0]["decision"]["id"], "value": 1.0}, {"decision": "x", "value": 1.0}]
    for node in (pair.other, pair.owner):
        results = node.call("POST", f"{pair.path}/rewards/batch", {"rewards": rewards})[1]["results"]
        assert [result["status"] for result in results] == [200, 404]


def test_keys(pair: Pair) -> None:
    """The key of a request is that of the forwarded one."""
    path = f"{pair.path}/decisions"
    first = pair.other.call("POST", path, ARMS, "k1")
    assert first[0] == 201
    assert pair.owner.call("POST", path, ARMS, "k1") == first
    assert pair.other.call("POST", path, ARMS, "k1") == first
    assert pair.compare("POST", path, {"arms": {"x": [0.1, 0.1]}}, idempotency_key="k1")[0] == 409
    part = f"{path}/{first[1]['id']}/rewards"
    assert pair.other.call("POST", part, {"value": 1.0}, "r1") == pair.owner.call("POST", part, {"value": 1.0}, "r1")
    log = pair.nodes.read_log(pair.stream)
    keys = [(event["kind"], event["key"]) for event in log if event["key"] in ("k1", "r1")]
    assert keys == [("decided", "k1"), ("reward_part", "r1")]


def test_large_bodies(pair: Pair) -> None:
    """Almost as large as allowed, in both directions."""
    arms = {"arms": {f"arm {i} {'x' * 70}": [0.1, 0.2] for i in range(500)}}
    body = {"decisions": [{**arms, "key": f"k{i}"} for i in range(80)]}
    assert len(json.dumps(body)) > 3_500_000
    _, content = pair.compare("POST", SHOP + "/decisions/batch", body)
    assert [result["status"] for result in json.loads(content)["results"]] == [201] * 80
    history = {"rewards": [0.5] * 20_000, "vectors": [[0.25, 0.5]] * 20_000}
    assert pair.compare("POST", SHOP + "/history", history, idempotency_key="h") == (200, b'{"rows":20000}\n')


def test_streams_are_created_and_changed_at_any_node(shared: ServiceCluster) -> None:
    name = f"new-{secrets.token_hex(4)}"
    nodes = list(shared.nodes.values())
    status, headers, content = nodes[0].exchange("POST", "/v1/streams", {"name": name, "dim": 2})
    assert (status, headers["location"]) == (201, f"/v1/streams/{name}")
    for node in nodes:
        assert node.call("PUT", f"/v1/streams/{name}", {"dim": 2})[0] == 200
        assert node.call("PATCH", f"/v1/streams/{name}", {"title": node.name})[1]["title"] == node.name
    assert json.loads(content)["name"] == name
    pair = Pair(shared, name)
    assert pair.other.call("POST", f"{pair.path}/archive")[1]["archived"] is not None
    assert pair.compare("POST", SHOP + "/decisions", ARMS)[0] == 409
    assert pair.other.call("DELETE", pair.path)[0] in (200, 204)
    assert pair.compare("GET", SHOP)[0] == 404


# --- long answers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", ["ndjson", "parquet"])
def test_exports(pair: Pair, format: str) -> None:
    pair.owner.call("POST", f"{pair.path}/decisions/batch", {"decisions": [ARMS] * 400})
    path = f"{SHOP}/events?format={format}"
    status, content = pair.compare("GET", path)
    assert status == 200
    assert len(content) > 1 << 14
    if format == "ndjson":
        assert len(content.splitlines()) == 400
        _, headers, packed = pair.other.exchange("GET", path.format(stream=pair.stream), accept_encoding="gzip")
        assert (headers["content-encoding"], headers["vary"]) == ("gzip", "Accept-Encoding")
        assert gzip.decompress(packed) == content
        assert pair.compare("GET", f"{path}&after=395&limit=2")[1] == b"".join(content.splitlines(True)[395:397])


class Follower:
    """A connection that follows a stream."""

    def __init__(self, node: Node, path: str) -> None:
        self._connection = http.client.HTTPConnection(node.address, timeout=20.0)
        self._connection.request("GET", f"{path}/live")
        self._answer = self._connection.getresponse()
        self.status = self._answer.status

    def read(self) -> Any:
        """Return the next message; None at the end."""
        while line := self._answer.readline():
            if line.startswith(b"data:"):
                return json.loads(line.removeprefix(b"data:"))
        return None

    def wait_for_end(self) -> float:
        """Read until the other side ends it; return the seconds that took."""
        began = time.monotonic()
        with contextlib.suppress(OSError, http.client.HTTPException):
            while self.read() is not None:
                pass
        self.close()
        return time.monotonic() - began

    def close(self) -> None:
        self._answer.close()
        self._connection.close()


def test_a_stream_is_followed_through_another_node(pair: Pair) -> None:
    follower = Follower(pair.other, pair.path)
    assert follower.status == 200
    assert follower.read()["info"]["counts"]["decisions"] == 0
    pair.nodes.decide(pair.stream)
    assert follower.read()["info"]["counts"]["decisions"] == 1
    pair.owner.call("POST", f"{pair.path}/archive")
    assert follower.read()["info"]["archived"] is not None
    follower.close()


# --- access ----------------------------------------------------------------------------------------------------------


def test_odd_headers_are_no_obstacle(pair: Pair) -> None:
    """White space at the end of a value, and characters that are not ASCII, which the server accepts."""
    for node in (pair.owner, pair.other):
        with contextlib.closing(
            socket.create_connection(("127.0.0.1", node.settings["port"]), timeout=20.0)
        ) as connection:
            lines = [f"GET {pair.path} HTTP/1.1", "Host: localhost", "X-Odd:  \xe9 a\tb \t ", "X-Empty:  ", "", ""]
            connection.sendall("\r\n".join(lines).encode("latin-1"))
            assert connection.recv(15) == b"HTTP/1.1 200 OK"


def test_a_forged_proof_is_ignored(pair: Pair) -> None:
    """A request that claims to come from another node is forwarded, and checked, like any other."""
    for proof in ("", "x", "0" * 64, "é"):
        status, headers, _ = pair.other.exchange("GET", pair.path, x_windvane_forwarded=proof)
        assert (status, headers["x-windvane-owner"]) == (200, f"http://{pair.owner.address}")
        assert pair.owner.exchange("GET", pair.path, x_windvane_forwarded=proof)[0] == 200
        for node in (pair.owner, pair.other):
            assert node.call("GET", pair.path, host="evil.example", x_windvane_forwarded=proof)[0] == 403


def test_nothing_is_forwarded_twice(pair: Pair) -> None:
    """With the true secret, a node that does not own the stream says so: there are no loops."""
    ((secret,),) = pair.nodes.execute("SELECT value FROM meta WHERE name = 'secret'")
    status, headers, content = pair.other.exchange("GET", pair.path, x_windvane_forwarded=secret)
    problem = json.loads(content)
    assert (status, problem["title"], problem["cause"]) == (503, "The service is unavailable", "moving")
    assert (headers["x-windvane-moved"], headers["retry-after"]) == ("1", "0")  # the other node may ask the next owner
    assert pair.owner.call("GET", pair.path, x_windvane_forwarded=secret)[0] == 200


def test_tokens(nodes: ServiceCluster) -> None:
    """The rights of a request are those of its token, at the owner as well; the proof of a node gives none."""
    nodes.start("a", "b")
    pair = Pair(nodes, nodes.create_streams(["shop"])[0])
    url = nodes.server.url(nodes.database)
    full, reader = (
        run_command("token", "add", name, "--store", url, *options).stdout.split()[-1]
        for name, options in (("full", []), ("reader", ["--read-only"]))
    )
    for node in (pair.owner, pair.other):
        until(lambda node=node: node.call("GET", pair.path)[0] == 401)  # type: ignore[misc]
    ((secret,),) = nodes.execute("SELECT value FROM meta WHERE name = 'secret'")
    for more in ({}, {"x_windvane_forwarded": "forged"}):
        assert pair.compare("GET", SHOP, **more)[0] == 401
        assert pair.compare("GET", SHOP, authorization="Bearer wrong", **more)[0] == 401
        assert pair.compare("GET", SHOP, authorization=f"Bearer {reader}", **more)[0] == 200
        assert pair.compare("GET", "/v1/streams", authorization=f"Bearer {reader}", **more)[0] == 200
        assert pair.compare("POST", SHOP + "/decisions", ARMS, authorization=f"Bearer {reader}", **more)[0] == 403
    proven = {"x_windvane_forwarded": secret}
    assert pair.owner.call("POST", f"{pair.path}/decisions", ARMS, authorization=f"Bearer {reader}", **proven)[0] == 403
    assert pair.owner.call("GET", pair.path, **proven)[0] == 401
    for node in (pair.owner, pair.other):
        answer = node.call("POST", f"{pair.path}/decisions", ARMS, "k", authorization=f"Bearer {full}")
        assert answer[0] == 201
    assert len(nodes.read_log("shop")) == 1


# --- owners that do not answer ---------------------------------------------------------------------------------------


def test_an_owner_that_does_not_answer(nodes: ServiceCluster) -> None:
    """It is waited for until it has left the cluster, and no longer; then another node serves the stream."""
    nodes.settings = {"lease": 0.8, "tick": 0.2}
    nodes.start("a", "b")
    pair = Pair(nodes, nodes.create_streams(["shop"])[0])
    follower = Follower(pair.other, pair.path)
    assert follower.read() is not None
    pair.owner.pause()
    began = time.monotonic()
    with ThreadPoolExecutor(3) as pool:
        unsafe = pool.submit(pair.other.call, "POST", f"{pair.path}/decisions", ARMS, seconds=25.0)
        keyed = pool.submit(pair.other.call, "POST", f"{pair.path}/decisions", ARMS, "k", seconds=25.0)
        read = pool.submit(pair.other.call, "GET", pair.path, seconds=25.0)
        status, problem = unsafe.result()
        assert (status, problem["type"]) == (504, "urn:windvane:problem:no-answer")  # it may have been executed
        status, decision = keyed.result()
        assert (status, read.result()[0]) == (201, 200)  # by the next owner
    assert follower.wait_for_end() < 15.0
    listed = pair.other.call("GET", "/v1/streams")
    assert listed[0] == 200
    print(f"another node answered after {time.monotonic() - began:.1f} s")
    pair.owner.resume()
    assert nodes.decide("shop", "k", pair.owner) == decision
    assert [event["key"] for event in nodes.read_log("shop")].count("k") == 1


def test_an_owner_that_cannot_be_reached(nodes: ServiceCluster) -> None:
    """Who it is and at which address it should be is said to the client: perhaps the address is wrong."""
    nodes.settings = {"lease": 20.0}
    nodes.start("a", "b")
    pair = Pair(nodes, nodes.create_streams(["shop"])[0])
    pair.owner.kill()
    status, problem = pair.other.call("POST", f"{pair.path}/decisions", ARMS)
    assert (status, problem["cause"]) == (503, "unreachable")
    assert f"{pair.owner.name!r}" in problem["detail"]
    assert f"http://{pair.owner.address};" in problem["detail"]
