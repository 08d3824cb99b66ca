"""Following with threads, event loops and forks that share a client, with certificates, and what is kept open."""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import socket
import ssl
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from support.certificates import make_certificate
from support.client_nodes import DECISION, SHARDS, FakeCluster, Node, name_stream, run_nodes
from support.clients import ARMS, Connect, refused
from support.network import Listener, read_message
from support.server import until
from windvane.client import AsyncClient, Client

STREAMS = [name_stream(shard) for shard in range(SHARDS)]
FIRST, SECOND, THIRD, _ = STREAMS


def list_keys(cluster: FakeCluster) -> Counter[str]:
    return Counter(request.key for node in cluster.nodes for request in node.requests if request.key)


# --- threads, tasks, loops, forks ------------------------------------------------------------------------------------


def test_threads_share_the_map(pauses: list[float]) -> None:
    """Within a second it is fetched once; each request is sent once or, if its answer was an old node's, forwarded."""
    with run_nodes(3) as cluster, Client(cluster.nodes[0].address) as client:

        def work(number: int) -> None:
            for i in range(20):
                assert client.decide(STREAMS[(number + i) % SHARDS], ARMS, key=f"{number}-{i}") == DECISION

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(work, range(8)))
        assert cluster.maps == 1
        assert len(cluster.executed) == 160
        assert set(cluster.executed.values()) == {1}
        assert min(node.calls for node in cluster.nodes) >= 30


def test_one_thread_fetches_while_others_go_on(pauses: list[float]) -> None:
    """A node that is slow to return the map delays one call, not all."""
    is_asked, may_answer = threading.Event(), threading.Event()
    with run_nodes(2) as cluster, Client(cluster.nodes[0].address) as client:
        describe = cluster.describe

        def describe_late() -> dict[str, Any]:
            is_asked.set()
            assert may_answer.wait(30)
            return describe()

        cluster.describe = describe_late  # type: ignore[method-assign]
        client.reward(SECOND, "d1", 1.0)
        with ThreadPoolExecutor(1) as pool:
            slow = pool.submit(client.reward, SECOND, "d1", 1.0)
            assert is_asked.wait(30)
            for _ in range(3):
                assert client.reward(SECOND, "d1", 1.0) == "recorded"
            assert (cluster.nodes[0].calls, cluster.nodes[1].calls) == (4, 0)
            may_answer.set()
            assert slow.result() == "recorded"
        assert (cluster.nodes[0].calls, cluster.nodes[1].calls, cluster.maps) == (4, 1, 1)


def test_nodes_come_and_go_under_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """No call fails, and none is executed with two keys."""
    monkeypatch.setattr("windvane.client.connection.FIRST_PAUSE", 1e-3)
    monkeypatch.setattr("windvane.client.routing.FETCH_SECONDS", 0.0)
    made, done = Counter[int](), threading.Event()
    with run_nodes(3) as cluster, Client([node.address for node in cluster.nodes[:2]]) as client:

        def work(number: int) -> None:
            while not done.is_set():
                key = f"{number}-{made[number]}"
                assert client.decide(STREAMS[made[number] % SHARDS], ARMS, key=key) == DECISION
                made[number] += 1

        def wait_for_calls() -> None:
            before = made.copy()
            until(lambda: all(made[number] > before[number] + 8 for number in range(4)))

        with ThreadPoolExecutor(4) as pool:
            futures = [pool.submit(work, number) for number in range(4)]
            try:
                for shard in range(SHARDS):
                    wait_for_calls()
                    cluster.owners[shard] = cluster.nodes[(shard + 1) % 3]
                wait_for_calls()
                cluster.owners = dict.fromkeys(range(SHARDS), cluster.nodes[0])
                cluster.nodes[2].stop()
                wait_for_calls()
                cluster.nodes[1].stop()
                wait_for_calls()
            finally:
                done.set()
            for future in futures:
                future.result()
        assert len(cluster.executed) == made.total()


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # of a loop that ended before the client was closed
@pytest.mark.parametrize("is_closed", [False, True])
def test_event_loops_share_the_map(is_closed: bool, pauses: list[float]) -> None:
    async def ask(client: AsyncClient) -> None:
        answers = await asyncio.gather(*(client.decide(STREAMS[i % SHARDS], ARMS) for i in range(12)))
        assert answers == [DECISION] * 12
        if is_closed:
            await client.close()

    with run_nodes(3) as cluster:
        clients = [AsyncClient(cluster.nodes[0].address)] * 3  # one client
        for client in clients:
            asyncio.run(ask(client))
        assert len(clients[0]._transports) == (not is_closed)
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(lambda client: asyncio.run(ask(client)), clients * 2))
        assert cluster.maps == 1
        assert set(list_keys(cluster).values()) == {1}
        assert sum(node.calls for node in cluster.nodes) == 9 * 12
        clients.clear()
        del client
        gc.collect()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("is_fetching", [False, True])
def test_forks_share_nothing_but_the_map(is_fetching: bool, pauses: list[float]) -> None:
    """Also if a thread is fetching the map at the time: a child fetches its own."""
    with run_nodes(3) as cluster, Client(cluster.nodes[0].address) as client:
        client.decide(SECOND, ARMS, key="first")
        if is_fetching:
            lock = client._router.begin_fetch(0.0)
            assert lock is not None
            pauses.append(1.0)
        else:
            client.decide(SECOND, ARMS, key="second")
        children = []
        for number in range(2):
            if (pid := os.fork()) == 0:
                try:
                    for i in range(10):
                        assert client.decide(STREAMS[i % SHARDS], ARMS, key=f"{number}-{i}") == DECISION
                    assert client._router.map is not None
                    os._exit(0)
                finally:
                    os._exit(1)
            children.append(pid)
        for i in range(10):
            assert client.decide(STREAMS[i % SHARDS], ARMS, key=f"parent-{i}") == DECISION
        assert [os.waitpid(pid, 0)[1] for pid in children] == [0, 0]
        assert set(list_keys(cluster).values()) == {1}
        assert cluster.maps == (2 if is_fetching else 1)
        assert (client._router.map is None) == is_fetching


# --- what is kept open -----------------------------------------------------------------------------------------------


def count_open(node: Node) -> int:
    return sum(connection.fileno() != -1 for connection in node.connections)


def test_all_connections_are_closed_with_the_client(connect: Connect, pauses: list[float]) -> None:
    with run_nodes(3) as cluster:
        with connect(cluster.nodes[0].address) as client:
            for name in STREAMS * 2:
                client.decide(name, ARMS)
            assert [count_open(node) for node in cluster.nodes] == [1, 1, 1]
        assert until(lambda: [count_open(node) for node in cluster.nodes] == [0, 0, 0])
        client = Client(cluster.nodes[0].address)
        for name in STREAMS * 2:
            client.decide(name, ARMS)
        del client
        gc.collect()
        assert until(lambda: [count_open(node) for node in cluster.nodes] == [0, 0, 0])


def test_connections_outlive_a_new_map(connect: Connect, pauses: list[float]) -> None:
    with run_nodes(3) as cluster, connect(cluster.nodes[0].address) as client:
        for round_ in range(4):
            for name in STREAMS:
                client.decide(name, ARMS)
            cluster.owners[3] = cluster.nodes[round_ % 3]
            pauses.append(1.0)
        assert cluster.maps > 1
        assert [len(node.connections) for node in cluster.nodes] == [1, 1, 1]


def test_connections_to_nodes_that_left_are_closed(
    connect: Connect, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    with run_nodes(3) as cluster, connect(cluster.nodes[0].address) as client:
        for name in STREAMS * 2:
            client.decide(name, ARMS)
        left = cluster.nodes.pop()
        cluster.owners = {shard: cluster.nodes[shard % 2] for shard in range(SHARDS)}
        client.decide(THIRD, ARMS)  # the node that left forwards it, for the last time
        pauses.append(1.0)
        monkeypatch.setattr("windvane.client.pool.IDLE_SECONDS", 0.0)
        client._transports[next(iter(client._transports))]._next_sweep = 0.0
        for _ in range(2):
            client.decide(SECOND, ARMS)
        assert until(lambda: count_open(left) == 0)
        assert [count_open(node) for node in cluster.nodes] == [1, 1]
        left.__exit__()


def test_unused_connections_are_closed(connect: Connect, pauses: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of nodes that get no requests any more."""
    with run_nodes(3) as cluster, connect(cluster.nodes[0].address) as client:
        for name in STREAMS * 2:
            client.decide(name, ARMS)
        monkeypatch.setattr("windvane.client.pool.IDLE_SECONDS", 0.0)
        client._transports[next(iter(client._transports))]._next_sweep = 0.0
        monkeypatch.setattr("windvane.client.transport.IDLE_SECONDS", -1.0)
        client.decide(SECOND, ARMS)
        assert until(lambda: (count_open(cluster.nodes[0]), count_open(cluster.nodes[2])) == (0, 0))


def test_a_client_that_is_closed_in_the_middle_of_a_request() -> None:
    """The connection of that request is closed when it ends."""
    with run_nodes(1) as cluster:
        node, may_answer = cluster.nodes[0], threading.Event()
        client = Client(node.address)
        node.handle_directly = lambda _: (may_answer.wait(30), cluster.execute(node.requests[-1]))[1]
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(client.decide, FIRST, ARMS)
            assert until(lambda: node.calls == 1)
            client.close()
            may_answer.set()
            assert answer.result() == DECISION
        assert until(lambda: count_open(node) == 0)


# --- certificates ----------------------------------------------------------------------------------------------------


class SecureFront(Listener):
    """TLS in front of a node; ``context`` has the certificate."""

    def __init__(self, node: Node, certificate: Path) -> None:
        self._node, self._context = node, ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate)
        super().__init__()
        self.address = self.address.replace("http:", "https:")

    def handle(self, connection: socket.socket) -> None:
        port = int(self._node.address.rpartition(":")[2])
        with (
            self._context.wrap_socket(connection, server_side=True) as secure,
            socket.create_connection(("127.0.0.1", port)) as node,
        ):
            while request := read_message(secure):
                node.sendall(request)
                secure.sendall(read_message(node))


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    folder = tmp_path_factory.mktemp("tls")
    return make_certificate(folder / "trusted.pem"), make_certificate(folder / "other.pem")


def test_https_is_followed_and_http_is_not(
    certificates: tuple[Path, Path], connect: Connect, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    trusted, _ = certificates
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
    with run_nodes(3) as cluster, SecureFront(cluster.nodes[0], trusted) as first:
        with SecureFront(cluster.nodes[1], trusted) as second, connect(first.address, "secret") as client:
            cluster.nodes[0].url, cluster.nodes[1].url = first.address, second.address
            for name in STREAMS * 2:
                assert client.decide(name, ARMS) == DECISION
        assert cluster.nodes[1].calls == 1  # its second: the first was forwarded
        assert cluster.nodes[2].requests == []  # its address is http
        assert cluster.maps == 1


def test_a_node_whose_certificate_is_not_trusted(
    certificates: tuple[Path, Path], connect: Connect, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call does not fail because of it, nor wait; a given address is asked."""
    trusted, other = certificates
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
    with run_nodes(2) as cluster, SecureFront(cluster.nodes[1], other) as second:
        cluster.nodes[1].url = second.address
        with connect(cluster.nodes[0].address, "secret", deadline=0) as client:
            for _ in range(5):
                assert client.decide(SECOND, ARMS) == DECISION
        assert (cluster.nodes[1].requests, cluster.maps, pauses) == ([], 1, [])
        with connect(second.address, "secret") as client:
            refused(lambda: client.decide(SECOND, ARMS), None, "untrusted")  # the same as before for a given address
