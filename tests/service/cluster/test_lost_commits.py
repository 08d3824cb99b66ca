"""A standby that does not have all commits becomes the primary while nodes run: the logs go on without a gap."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.nodes import NodeForks, ServiceCluster
from support.postgres import Cluster
from support.server import ARMS, until
from windvane.service.store.postgres.schema import create_schema


@pytest.fixture
def primary() -> Iterator[Cluster]:
    server = Cluster()
    yield server
    server.remove()


@pytest.fixture
def standby(primary: Cluster) -> Iterator[Cluster]:
    """An asynchronous one, of a primary with a store in the database ``shop``."""
    primary.execute("CREATE DATABASE shop")
    create_schema(primary.url("shop"))
    server = Cluster(source=primary)
    yield server
    server.remove()


def test_the_log_has_no_gap_after_commits_were_lost(primary: Cluster, standby: Cluster, node_forks: NodeForks) -> None:
    url = f"postgresql://owner@/shop?host={primary.folder},{standby.folder}&target_session_attrs=read-write"
    nodes = ServiceCluster(node_forks, primary, "shop", url=url)
    try:
        node = nodes.start("a")
        nodes.create_streams(["x"])
        kept = [nodes.decide("x")["id"] for _ in range(3)]
        until(lambda: standby.execute("SELECT count(*) FROM events", database="shop") == [(3,)])
        standby.stop()
        lost = [nodes.decide("x")["id"] for _ in range(4)]
        primary.stop("immediate")
        standby.start()
        standby.promote()
        nodes.server = standby
        first = nodes.decide("x")["id"]
        assert [event["decision"] for event in nodes.read_log("x")] == [*kept, first]
        reward = {"value": 1.0}
        assert [node.call("PUT", f"/v1/streams/x/decisions/{id_}/reward", reward)[0] for id_ in lost] == [404] * 4
        assert node.call("PUT", f"/v1/streams/x/decisions/{first}/reward", reward)[0] == 200
        assert node.call("POST", "/v1/streams/x/decisions", ARMS)[0] == 201
        assert "may have lost commits" in node.log.read_text()
        nodes.verify()
    finally:
        nodes.close()
