"""Nodes that should not be in the cluster, and a map of the cluster that somebody has edited."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from support.cluster_drill import ClusterLoad
from support.nodes import SHARDS, ServiceCluster
from support.server import ARMS, until
from windvane.cluster_map import shard_of
from windvane.service.store.migrations import FORMAT
from windvane.service.store.records import seal_row

SHORT_LEASE = {"lease": 0.8, "tick": 0.2}
IMPATIENT = {"windvane.service.cluster.placement": {"JOIN_SECONDS": 0.5}}


@pytest.mark.parametrize("shift", [-10.0, 3600.0])
def test_a_node_with_a_wrong_clock(nodes: ServiceCluster, shift: float) -> None:
    """It takes no shards and is not ready; the others do not notice it."""
    nodes.start("a")
    nodes.create_streams(["shop"])
    wrong = nodes.start("b", wait=False, clock=shift, modules=IMPATIENT)
    until(lambda: wrong.find_cause() == "clock")
    assert wrong.call("POST", "/v1/streams/shop/decisions", ARMS)[0] == 503
    assert nodes.execute("SELECT name FROM nodes") == [("a",)]
    assert nodes.nodes["a"].is_ready()
    nodes.decide("shop", node=nodes.nodes["a"])
    assert wrong.find_cause() == "clock"


def test_two_nodes_with_the_same_name(nodes: ServiceCluster) -> None:
    """The second one says so, and takes over when the first one ends."""
    nodes.settings = SHORT_LEASE
    first = nodes.start("a")
    nodes.create_streams(["shop"])
    second = nodes.start("a", wait=False)
    until(lambda: second.find_cause() == "name")
    assert second.call("GET", "/v1/streams/shop")[0] == 503
    assert first.call("POST", "/v1/streams/shop/decisions", ARMS)[0] == 201
    assert first.call("GET", "/v1/cluster")[1]["nodes"][0]["url"] == f"http://{first.address}"
    first.stop()
    until(second.is_ready)
    nodes.decide("shop")


def test_a_node_is_killed_and_started_again_at_once(nodes: ServiceCluster) -> None:
    """Its name is still taken, by itself: it waits until its old lease has run out."""
    nodes.start("a")
    nodes.create_streams(["shop"])
    nodes.nodes["a"].kill()
    nodes.restart("a")
    nodes.decide("shop")


def test_nodes_of_another_version(nodes: ServiceCluster) -> None:
    """They work together if they use the same format: that is what a rolling upgrade needs."""
    nodes.start("a")
    nodes.create_streams(["shop"])
    nodes.start("b", version="99.0.0")
    assert {node["version"] for node in nodes.ask("GET", "/v1/cluster")["nodes"]} > {"99.0.0"}
    for node in nodes.nodes.values():
        nodes.decide("shop", node=node)
    other = nodes.start("c", wait=False, format=FORMAT + 1)
    until(lambda: other.find_cause() == "format")
    assert {name for (name,) in nodes.execute("SELECT name FROM nodes")} == {"a", "b"}
    assert nodes.nodes["a"].is_ready()


@pytest.mark.parametrize("format", [FORMAT - 1, FORMAT + 1])
def test_a_store_of_another_format(nodes: ServiceCluster, format: int) -> None:
    """It is refused by name."""
    nodes.start("a")
    nodes.nodes["a"].stop()
    _, value, digest = seal_row("meta", "format", str(format))
    nodes.execute("UPDATE meta SET value = %s, digest = %s WHERE name = 'format'", value, digest)
    node = nodes.start("b", wait=False)
    until(lambda: not Path(f"/proc/{node.pid}").exists())
    assert f"has format {format}" in node.log.read_text()


EDITS = {
    "nobody owns some shards": "UPDATE shards SET node = NULL WHERE shard % 3 = 0",
    "nobody owns any shard": "UPDATE shards SET node = NULL",
    "other nodes own them": "UPDATE shards SET node = (SELECT instance FROM nodes WHERE instance <> node LIMIT 1)",
    "one node owns all": "UPDATE shards SET node = (SELECT instance FROM nodes ORDER BY random() LIMIT 1)",
    "a node that does not exist owns some": "UPDATE shards SET node = 'nobody' WHERE shard % 2 = 0",
    "other epochs": "UPDATE shards SET epoch = epoch + 1000 WHERE shard % 2 = 1",
    "old epochs": "UPDATE shards SET epoch = 1",
    "shards are missing": "DELETE FROM shards WHERE shard % 4 = 0",
    "all shards are missing": "DELETE FROM shards",
    "there are more shards": f"INSERT INTO shards SELECT n, 0, 'x' FROM generate_series({SHARDS}, 90) AS n"
    " ON CONFLICT DO NOTHING",
    "a node is missing": "DELETE FROM nodes WHERE name = 'a'",
    "all nodes are missing": "DELETE FROM nodes",
    "a lease has run out": "UPDATE nodes SET lease_until = now() - interval '1 day' WHERE name = 'b'",
    "a lease never ends": "UPDATE nodes SET lease_until = 'infinity' WHERE name = 'b'",
    "an address is none": "UPDATE nodes SET url = 'nowhere' WHERE name = 'b'",
    "a node that does not exist": "INSERT INTO nodes SELECT 'ghost', 'ghost', url, version, format, joined, lease_until"
    " FROM nodes LIMIT 1 ON CONFLICT DO NOTHING",
}


def test_the_map_is_edited_under_load(nodes: ServiceCluster) -> None:
    """Whatever somebody writes into it, every stream is served again, and nothing is lost or done twice."""
    nodes.settings = SHORT_LEASE
    nodes.start("a", "b")
    names = nodes.create_streams((f"s{i}" for i in range(6)), reward_timeout=30, default_reward=0.0)
    load = ClusterLoad(nodes, names)
    load.begin(3, workers=2)
    order = list(EDITS)
    random.Random(9).shuffle(order)
    for edit in order:
        load.wait(10)
        nodes.execute(EDITS[edit])
        seconds = load.wait_for_all()
        print(f"{edit}: served again after {seconds:.1f} s")
    nodes.wait_until_balanced()
    load.end()
    load.check()
    nodes.verify()


def test_a_stream_is_removed_from_the_database_by_hand(nodes: ServiceCluster) -> None:
    """A write to it fails as if its shard were lost; the other streams of the shard are served again."""
    nodes.start("a", "b")
    first, second = nodes.create_streams(["s1", "s12"])
    assert shard_of(first, SHARDS) == shard_of(second, SHARDS)
    nodes.decide(first)
    nodes.execute("DELETE FROM streams WHERE name = %s", first)
    until(lambda: nodes.nodes["a"].call("POST", f"/v1/streams/{first}/decisions", ARMS)[0] == 404)
    nodes.decide(second)
