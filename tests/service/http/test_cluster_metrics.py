"""Metrics of nodes that share a database: each tells what it owns, whom it knows and what it forwards."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.nodes import SHARDS, Node, NodeForks, ServiceCluster
from support.postgres import Cluster
from support.server import run_local, until
from windvane.cluster_map import shard_of
from windvane.service.http.cluster_metrics import OUTCOMES, ClusterNumbers, collect_cluster
from windvane.service.http.forwarding import Forwarder

Series = dict[tuple[str, str], float]


def parse_metrics(text: str) -> Series:
    """Return the values of the metrics of a cluster, by name and labels."""
    return {
        (name, labels): float(value) for name, labels, value in re.findall(r"^(\w+)(?:\{(.*)\})? (\S+)$", text, re.M)
    }


def read_metrics(node: Node) -> Series:
    status, _, content = node.exchange("GET", "/metrics")
    assert status == 200, content
    return parse_metrics(content.decode())


def read_shards(series: Series, name: str) -> dict[int, float]:
    """Return the values of a metric by shard."""
    return {int(labels.split('"')[1]): value for (metric, labels), value in series.items() if metric == name}


@pytest.fixture(scope="module")
def nodes(cluster: Cluster, node_forks: NodeForks) -> Iterator[ServiceCluster]:
    database = cluster.create_database()
    running = ServiceCluster(node_forks, cluster, database)
    try:
        running.start("a", "b", "c")
        yield running
    finally:
        running.close()
        cluster.drop_database(database)


def test_every_shard_is_reported_once(nodes: ServiceCluster) -> None:
    names = nodes.create_streams([f"s{i}" for i in range(10)])
    for name in names:
        nodes.decide(name)
    all_series = {name: read_metrics(node) for name, node in nodes.nodes.items()}
    epochs = [read_shards(series, "windvane_shard_epoch") for series in all_series.values()]
    assert sorted(shard for part in epochs for shard in part) == list(range(SHARDS))
    stored = dict(nodes.execute("SELECT shard, epoch FROM shards"))
    assert {shard: epoch for part in epochs for shard, epoch in part.items()} == stored
    for name, expected in (("streams", 10), ("events", 10)):
        values = [read_shards(series, f"windvane_shard_{name}") for series in all_series.values()]
        assert sum(sum(part.values()) for part in values) == expected
        owned = {shard: value for part in values for shard, value in part.items()}
        assert all(owned[shard_of(stream, SHARDS)] >= 1 for stream in names)
    for name, series in all_series.items():
        assert series["windvane_node_info", f'node="{name}"'] == 1
        assert series["windvane_cluster_nodes", ""] == 3
        assert series["windvane_owned_shards", ""] == len(read_shards(series, "windvane_shard_epoch"))
        assert series["windvane_unowned_shards", ""] == 0
        assert 0 < series["windvane_lease_seconds", ""] <= 2
        assert abs(series["windvane_clock_skew_seconds", ""]) < 1
        assert series["windvane_fenced_commits_total", ""] == 0
        assert series["windvane_store_bytes", ""] > 0


def test_forwarded_requests_are_counted_by_node_and_outcome(nodes: ServiceCluster) -> None:
    stream = nodes.create_owned("b", "forwarded")
    a = nodes.nodes["a"]

    def count(outcome: str, node: str = "b") -> float:
        return read_metrics(a)["windvane_forwarded_requests_total", f'node="{node}",outcome="{outcome}"']

    before = count("answered")
    for _ in range(3):
        assert a.call("GET", f"/v1/streams/{stream}")[0] == 200
    assert count("answered") == before + 3
    assert count("answered", "c") >= 0
    assert count("unavailable") == count("no-answer") == 0


def test_a_service_on_a_file_has_none_of_them(tmp_path: Path) -> None:
    with run_local(tmp_path / "a.db") as service:
        text = service.get("/metrics").text
    assert not re.findall(r"windvane_(?:node|cluster|owned|unowned|shard|lease|clock|forwarded|fenced)_", text)


def test_a_node_without_a_database_tells_so(nodes: ServiceCluster) -> None:
    nodes.server.stop()
    try:
        for node in nodes.nodes.values():
            cause = ("windvane_not_ready", 'cause="database"')
            until(lambda node=node, cause=cause: read_metrics(node)[cause] == 1, 30.0)
            series = until(lambda node=node: (s := read_metrics(node))["windvane_lease_seconds", ""] < 0 and s)
            assert series["windvane_owned_shards", ""] == 0
            assert ("windvane_store_bytes", "") not in series
    finally:
        nodes.server.start()
    nodes.wait_until_balanced()


def test_a_node_that_is_gone_is_missed(nodes: ServiceCluster) -> None:
    a, c = nodes.nodes["a"], nodes.nodes["c"]
    stream = nodes.create_owned("c", "missed")
    c.kill()
    until(lambda: a.call("GET", f"/v1/streams/{stream}")[0] == 200, 30.0)
    until(lambda: read_metrics(a)["windvane_cluster_nodes", ""] == 2)
    until(lambda: read_metrics(a)["windvane_unowned_shards", ""] == 0)
    assert read_metrics(a)["windvane_forwarded_requests_total", 'node="c",outcome="answered"'] >= 0
    nodes.restart("c")
    nodes.wait_until_balanced()


def test_a_fenced_commit_is_counted(nodes: ServiceCluster) -> None:
    """Somebody takes a shard away by hand, and the node notices when it writes, or when it looks at the map."""
    stream = nodes.create_owned("a", "fenced")
    shard, a = shard_of(stream, SHARDS), nodes.nodes["a"]

    def is_counted() -> bool:
        nodes.execute("UPDATE shards SET epoch = nextval('epochs') WHERE shard = %s", shard)
        a.call("POST", f"/v1/streams/{stream}/decisions", {"arms": {"red": [0.5, 0.5]}})
        return read_metrics(a)["windvane_fenced_commits_total", ""] >= 1

    until(is_counted, 60.0)
    nodes.wait_until_balanced()


def test_numbers_before_the_database_was_reached() -> None:
    outcomes = Forwarder(lambda: "").outcomes
    outcomes["b", OUTCOMES[-1]] += 1
    numbers = ClusterNumbers("a", frozenset(), False, 0, 0, {}, 0.0, None, 0, outcomes, {}, {"s": None})
    families = {family.name: family for family in collect_cluster(numbers)}
    assert families["windvane_clock_skew_seconds"].samples == []
    assert [sample.value for sample in families["windvane_cluster_nodes"].samples] == [0]
    assert [sample.value for sample in families["windvane_forwarded_requests"].samples] == [0, 0, 0, 1]
    assert families["windvane_standby_missing"].samples == []


@pytest.mark.parametrize("is_missing", [False, True])
def test_a_missing_standby_is_reported(is_missing: bool) -> None:
    numbers = ClusterNumbers("a", frozenset(), False, 0, 0, {}, 0.0, None, 0, {}, {}, {}, is_missing)
    families = {family.name: family for family in collect_cluster(numbers)}
    assert [sample.value for sample in families["windvane_standby_missing"].samples] == [is_missing]
