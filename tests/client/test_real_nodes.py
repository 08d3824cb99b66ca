"""Clients of three real nodes on PostgreSQL: one is killed, one leaves. Every call returns, and counts once."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator

import pytest

from support.clients import ARMS, Awaited, Connect
from support.nodes import NodeForks, ServiceCluster
from support.postgres import Cluster
from support.server import until
from windvane.client import Client
from windvane.client.routing import Route
from windvane.cluster_map import ClusterInfo

STREAMS = [f"shop-{number}" for number in range(6)]


@pytest.fixture
def nodes(node_forks: NodeForks, cluster: Cluster, database: str) -> Iterator[ServiceCluster]:
    running = ServiceCluster(node_forks, cluster, database)
    yield running
    running.close()


def is_following(client: Client, nodes: ServiceCluster) -> bool:
    """Send a request about each stream; return whether all of them go directly to the nodes that own them."""
    for stream in STREAMS:
        client.info(stream)
    owners = {stream: nodes.find_owner(stream) for stream in STREAMS}
    routes = {stream: Route(client._router, stream) for stream in STREAMS}
    return all(
        route.is_direct and (owner := owners[stream]) is not None and route.address.url == f"http://{owner.address}"
        for stream, route in routes.items()
    )


def test_a_client_follows_real_nodes(nodes: ServiceCluster) -> None:
    nodes.start("a", "b", "c")
    with Client(f"http://{nodes.nodes['a'].address}", timeout=60.0) as client:
        for stream in STREAMS:
            client.create(stream, dim=2, policy="OnePassGLM", gamma=0.99)
        assert until(lambda: is_following(client, nodes), 30.0)
        info = client.cluster()
        assert isinstance(info, ClusterInfo)
        assert [(node.name, node.url) for node in info.nodes] == [
            (name, f"http://{node.address}") for name, node in nodes.nodes.items()
        ]
        assert sorted(shard for node in info.nodes for shard in node.shards) == list(range(info.shards))
        assert {stream.name for stream in client.streams()} == {*STREAMS}


def test_nodes_that_are_killed_and_leave_under_calling_clients(nodes: ServiceCluster) -> None:
    nodes.start("a", "b", "c")
    given = [f"http://{nodes.nodes[name].address}" for name in ("a", "b")]
    done, failures = threading.Event(), list[Exception]()
    decisions: dict[str, list[tuple[str, str]]] = {"sync": [], "async": []}

    def call(kind: str, connect: Connect) -> None:
        try:
            with connect(given, deadline=120.0) as client:
                while not done.is_set():
                    stream = STREAMS[len(decisions[kind]) % len(STREAMS)]
                    decision = client.decide(stream, ARMS)
                    assert client.reward(stream, decision, 1.0) in ("recorded", "unchanged")
                    decisions[kind].append((stream, decision.id))
        except Exception as error:
            failures.append(error)

    def wait_for_calls() -> None:
        before = {kind: len(made) for kind, made in decisions.items()}
        enough = 3 * len(STREAMS)
        until(lambda: failures or all(len(decisions[kind]) > before[kind] + enough for kind in decisions), 60.0)

    with Client(given, timeout=60.0) as client:
        for stream in STREAMS:
            client.create(stream, dim=2, policy="OnePassGLM", gamma=0.99)
        threads = [threading.Thread(target=call, args=pair) for pair in (("sync", Client), ("async", Awaited))]
        for thread in threads:
            thread.start()
        try:
            wait_for_calls()
            nodes.nodes["a"].kill()
            wait_for_calls()
            nodes.restart("a")
            wait_for_calls()
            nodes.nodes["c"].stop()
            wait_for_calls()
        finally:
            done.set()
            for thread in threads:
                thread.join()
        assert not failures
        made = decisions["sync"] + decisions["async"]
        for kind in ("decided", "rewarded"):
            logged = Counter((s, e["decision"]) for s in STREAMS for e in client.events(s) if e["kind"] == kind)
            assert logged == Counter(dict.fromkeys(made, 1))
    nodes.verify()
