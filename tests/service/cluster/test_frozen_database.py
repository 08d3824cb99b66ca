"""Nodes whose sessions stand still in a database that lives: they open others, or other nodes serve their streams."""

from __future__ import annotations

from support.nodes import ServiceCluster
from support.peers import COUNT, Peers
from support.postgres import Cluster
from support.server import ARMS, until

WRITER = "application_name = 'windvane' AND query LIKE '%%INSERT INTO events%%'"
NEVER = {"windvane.service.store.postgres.connections": {"ANSWER_SECONDS": 3600.0}}


def test_a_keeper_opens_another_session(cluster: Cluster, database: str, peers: Peers) -> None:
    (peer,) = peers.start("a", lease=2.0, tick=0.1)
    with cluster.frozen(database):
        deadline = peer.keeper.deadline
        until(lambda: peer.keeper.deadline > deadline + 1.0 and peer.count_owned() == COUNT)
        assert peer.keeper.problem is None


def test_a_keeper_rests_while_another_node_is_there(peers: Peers) -> None:
    first, second = peers.start("a", "b")
    first.keeper.step_down()
    until(lambda: second.count_owned() == COUNT)
    assert (first.count_owned(), first.owned) == (0, {})
    until(lambda: len(first.keeper.map.nodes) == 1)
    first.keeper.resume()
    assert peers.wait_for_balance() == [32, 32]


def test_a_keeper_that_resumes_soon_keeps_its_shards(peers: Peers) -> None:
    """A commit was only slow."""
    first, _ = peers.start("a", "b", lease=60.0, tick=20.0)
    epochs = dict(first.keeper.epochs)
    first.keeper.step_down()
    first.keeper.release([next(iter(epochs))])  # after at least one step
    first.keeper.resume()
    until(lambda: first.count_owned() == 32)
    assert len(epochs.items() & first.keeper.epochs.items()) == 31


def test_a_keeper_that_is_alone_keeps_its_shards(peers: Peers) -> None:
    (first,) = peers.start("a")
    deadline = first.keeper.deadline
    first.keeper.step_down()
    until(lambda: first.keeper.deadline > deadline + 1.0)
    assert first.count_owned() == COUNT
    second = peers.add("b").start()
    until(lambda: second.count_owned() == COUNT)


def test_a_node_opens_another_session_for_commits(nodes: ServiceCluster, cluster: Cluster) -> None:
    nodes.start("a")
    nodes.create_streams(["shop"])
    nodes.decide("shop")
    with cluster.frozen(nodes.database, WRITER):
        assert nodes.nodes["a"].call("POST", "/v1/streams/shop/decisions", ARMS)[0] == 503
        nodes.decide("shop")
    nodes.verify()


def test_a_server_that_stands_still_is_left_and_found_again(nodes: ServiceCluster, cluster: Cluster) -> None:
    nodes.start("a", "b")
    names = nodes.create_streams(["x", "y", "z"])
    decisions = {name: nodes.decide(name)["id"] for name in names}
    with cluster.all_frozen():
        until(lambda: all(node.find_cause() == "database" for node in nodes.nodes.values()), 30.0)
        for name in names:
            assert nodes.nodes["a"].call("POST", f"/v1/streams/{name}/decisions", ARMS, f"key of {name}")[0] == 503
    for name, first in decisions.items():
        second = nodes.decide(name, f"key of {name}")["id"]
        assert [event["decision"] for event in nodes.read_log(name)] == [first, second]
    nodes.verify()


def test_another_node_serves_the_streams_of_one_whose_commits_stall(nodes: ServiceCluster, cluster: Cluster) -> None:
    """Its keeper is fine: the lease would never run out."""
    nodes.start("a", modules=NEVER, wait=False)
    nodes.start("b")
    stream = nodes.create_owned("a")
    first = nodes.decide(stream)["id"]
    with cluster.frozen(nodes.database, WRITER):
        assert nodes.nodes["a"].call("POST", f"/v1/streams/{stream}/decisions", ARMS)[0] == 503
        until(lambda: {*nodes.read_owners().values()} == {"b"})
        second = nodes.decide(stream, node=nodes.nodes["b"])["id"]
        assert nodes.nodes["a"].find_cause() == "stalled"
    nodes.wait_until_balanced()
    assert [event["decision"] for event in nodes.read_log(stream)] == [first, second]
    nodes.verify()
