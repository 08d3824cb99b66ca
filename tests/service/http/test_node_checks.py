"""Nodes whose addresses are wrong say so, those that cannot reach themselves do not, and all agree about tokens."""

from __future__ import annotations

import random
import re
import socket
from collections.abc import Iterator

import pytest

from support.network import Listener, ScriptedServer, make_answer, read_message
from support.nodes import Node, ServiceCluster, find_port
from support.server import ARMS, run_command, until

CHECKS = "windvane.service.http.node_checks"
QUICK = {"PAUSE_SECONDS": 0.3, "RETRY_SECONDS": 0.2}


class Relay(Listener):
    """Passes every connection on to one of several servers, at random: in turn, one node might always get its own."""

    def __init__(self, *targets: str, port: int = 0) -> None:
        self._targets, self._rng = targets, random.Random(1)
        super().__init__(port)

    def handle(self, connection: socket.socket) -> None:
        host, _, port = self._rng.choice(self._targets).rpartition(":")
        with socket.create_connection((host, int(port))) as server:
            while request := read_message(connection):
                server.sendall(request)
                connection.sendall(read_message(server))


@pytest.fixture(autouse=True)
def quick(request: pytest.FixtureRequest) -> None:
    if "nodes" in request.fixturenames:
        request.getfixturevalue("nodes").settings = {"modules": {CHECKS: QUICK}}


def read_reachable(node: Node) -> dict[str, float]:
    text = node.exchange("GET", "/metrics")[2].decode()
    return {name: float(value) for name, value in re.findall(r'windvane_node_reachable\{node="(.*)"\} (\S+)', text)}


def free_address() -> str:
    return f"http://127.0.0.1:{find_port()}"


# --- addresses -------------------------------------------------------------------------------------------------------


def test_nobody_answers_at_the_address_of_a_node(nodes: ServiceCluster) -> None:
    """It is not ready, and its log, the metrics of both and the answers of the others say why; the others are ready."""
    first = nodes.start("a")
    wrong = nodes.start("b", wait=False, node_url=(url := free_address()))
    until(lambda: wrong.find_cause() == "address")
    until(lambda: read_reachable(first) == {"a": 1.0, "b": 0.0})
    assert read_reachable(wrong) == {"a": 1.0, "b": 0.0}
    assert url in wrong.call("GET", "/readyz")[1]["detail"]
    until(lambda: url in wrong.log.read_text())
    until(lambda: f"node 'b' cannot be reached at its address, {url}: nothing answers" in first.log.read_text())
    assert first.is_ready()
    until(lambda: "b" in nodes.read_owners().values())
    until(lambda: first.read_owners() == nodes.read_owners())
    stream = next(name for i in range(999) if nodes.find_owner(name := f"s{i}") is wrong)
    status, problem = first.call("POST", "/v1/streams", {"name": stream, "dim": 2})
    assert (status, problem["cause"]) == (503, "unreachable")
    assert f"node 'b', which serves this stream, cannot be reached at {url}" in problem["detail"]
    assert wrong.call("POST", "/v1/streams", {"name": stream, "dim": 2})[0] == 201  # who asks it gets answers


def test_nodes_ask_no_proxy(nodes: ServiceCluster) -> None:
    """A proxy of the environment would see the secret and the tokens."""
    with ScriptedServer(make_answer({})) as proxy:
        names = ("HTTP_PROXY", "http_proxy", "ALL_PROXY")
        nodes.settings["environment"] = dict.fromkeys(names, proxy.address) | dict.fromkeys(
            ("NO_PROXY", "no_proxy"), ""
        )
        first = nodes.start("a")
        far = nodes.start("b", wait=False, node_url="http://node.invalid:8000")
        until(lambda: "b" in read_reachable(first))
        until(lambda: "b" in nodes.read_owners().values() and first.read_owners() == nodes.read_owners())
        stream = next(name for i in range(999) if nodes.find_owner(name := f"s{i}") is far)
        status, problem = first.call("POST", "/v1/streams", {"name": stream, "dim": 2})
        assert (status, problem["cause"]) == (503, "unreachable")
    assert not proxy.requests


def test_an_address_that_is_right_later(nodes: ServiceCluster) -> None:
    """A proxy in front of the node was started after it."""
    nodes.start("a")
    port = find_port()
    node = nodes.start("b", wait=False, node_url=f"http://127.0.0.1:{port}")
    until(lambda: node.find_cause() == "address")
    until(lambda: "no node reaches this one" in node.log.read_text())
    with Relay(node.address, port=port):
        nodes.wait_until_balanced()
        until(lambda: "this node can be reached at its address" in node.log.read_text())


def test_a_node_that_is_alone_needs_no_address(nodes: ServiceCluster) -> None:
    """It warns, and is ready."""
    node = nodes.start("a", node_url=(url := free_address()))
    until(lambda: f"this node cannot reach itself at its address, {url}" in node.log.read_text())
    assert read_reachable(node) == {"a": 0.0}
    nodes.create_streams(["shop"])


def test_a_node_that_cannot_reach_itself(nodes: ServiceCluster) -> None:
    """As in some container networks: it is enough that another node reaches it."""
    nodes.start("a")
    blind = nodes.start("b", modules={CHECKS: {**QUICK, "PROBE_SECONDS": 0.0}})
    until(lambda: "this node cannot reach itself at its address" in blind.log.read_text())
    assert read_reachable(nodes.nodes["a"]) == {"a": 1.0, "b": 1.0}
    nodes.create_streams(["shop", "other"])
    assert blind.is_ready()


def test_the_address_of_another_node(nodes: ServiceCluster) -> None:
    first = nodes.start("a")
    second = nodes.start("b", wait=False, node_url=f"http://{first.address}")
    until(lambda: second.find_cause() == "address")
    assert "node 'a' has the same address" in second.call("GET", "/readyz")[1]["detail"]
    assert first.is_ready()


def test_an_address_at_which_another_program_answers(nodes: ServiceCluster) -> None:
    """Also if the node is alone: clients that follow the map would go there."""
    with ScriptedServer(make_answer({"status": "ok"})) as other:
        node = nodes.start("a", wait=False, node_url=other.address)
        until(lambda: node.find_cause() == "address")
        assert f"another server answers at {other.address}" in node.call("GET", "/readyz")[1]["detail"]


def test_another_program_at_the_address_of_a_node_gets_no_tokens(nodes: ServiceCluster) -> None:
    """Nor the secret of the nodes, which comes with every request that is forwarded. Its answers may have no end."""
    endless = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n{"
    with ScriptedServer(endless) as other:
        first = nodes.start("a")
        nodes.start("b", wait=False, node_url=other.address)
        until(lambda: "another program" in first.log.read_text())
        until(lambda: first.read_owners() == nodes.read_owners())
        stream = next(name for i in range(999) if nodes.find_owner(name := f"s{i}") is nodes.nodes["b"])
        status, problem = first.call("GET", f"/v1/streams/{stream}", authorization="Bearer wv_x")
        assert (status, problem["cause"]) == (503, "unreachable")
        assert f"another server answers at {other.address}" in problem["detail"]
        sent = b"".join(other.requests)
    assert b"GET /healthz" in sent
    assert b"/v1/streams" not in sent
    assert b"wv_x" not in sent


def test_the_address_of_a_load_balancer(nodes: ServiceCluster) -> None:
    """It leads to either node: sometimes to the right one."""
    ports = [find_port(), find_port()]
    with Relay(*(f"127.0.0.1:{port}" for port in ports)) as balancer:
        nodes.start("a", wait=False, port=ports[0])
        node = nodes.start("b", wait=False, port=ports[1], node_url=balancer.address)
        until(lambda: node.find_cause() == "address")
        # The first checks may find nothing, while the other node is starting.
        until(lambda: "another server answers" in node.call("GET", "/readyz")[1]["detail"])


def test_a_proof_is_for_those_who_know_the_secret(nodes: ServiceCluster) -> None:
    node = nodes.start("a")
    for probe in ("", "x", "n b " + "0" * 64, "n  ", "é b c", f"n a {'0' * 64}"):
        status, headers, _ = node.exchange("GET", "/healthz", x_windvane_probe=probe)
        assert (status, "x-windvane-node" in headers) == (200, False)


# --- tokens ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def mixed(nodes: ServiceCluster) -> Iterator[ServiceCluster]:
    """A node on loopback and one that other machines can reach, which was started without the database."""
    nodes.server.stop()
    nodes.start("a", wait=False)
    port = find_port()
    nodes.start("b", wait=False, port=port, host="0.0.0.0", node_url=f"http://127.0.0.1:{port}")
    until(lambda: nodes.nodes["b"].find_cause() == "database")
    nodes.server.start()
    return nodes


def run(nodes: ServiceCluster, *words: str) -> str:
    result = run_command("token", *words, "--store", nodes.server.url(nodes.database))
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_nodes_agree_about_tokens(mixed: ServiceCluster) -> None:
    """Where other machines could get in, nobody does; the node on loopback answers for all streams."""
    local, public = mixed.nodes["a"], mixed.nodes["b"]
    until(lambda: public.find_cause() == "token")
    until(local.is_ready)
    until(lambda: set(mixed.read_owners().values()) == {"a", "b"})
    names = [f"s{i}" for i in range(8)]
    for name in names:
        mixed.ask("POST", "/v1/streams", {"name": name, "dim": 2}, expected=201, node=local)
        mixed.decide(name, node=local)
        assert public.call("POST", f"/v1/streams/{name}/decisions", ARMS)[0] == 401
    listed = local.call("GET", "/v1/streams")[1]
    assert [stream["name"] for stream in listed["streams"]] == names
    token = {"authorization": f"Bearer {run(mixed, 'add', 'shop').split()[-1]}"}
    until(public.is_ready)
    for node in (local, public):
        until(lambda node=node: node.call("GET", "/v1/streams/s0")[0] == 401)  # type: ignore[misc]
        for name in names:
            assert node.call("POST", f"/v1/streams/{name}/decisions", ARMS, **token)[0] == 201
    run(mixed, "open")
    until(lambda: public.find_cause() == "token")
    for name in names:
        until(lambda name=name: local.call("GET", f"/v1/streams/{name}")[0] == 200)  # type: ignore[misc]
        assert public.call("GET", f"/v1/streams/{name}")[0] == 401
