"""Nodes whose database fails: 503 meanwhile, they recover by themselves, and nothing acknowledged is lost."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from support.cluster_drill import ClusterLoad
from support.nodes import NodeForks, ServiceCluster
from support.postgres import Cluster
from support.server import ARMS, until
from windvane.service import recovery_pauses
from windvane.service.store.postgres.schema import create_schema

NAMES = ("a", "b")


@pytest.fixture
def load(nodes: ServiceCluster) -> Iterator[ClusterLoad]:
    """A load on two nodes; at the end, what was acknowledged must be in the log, once."""
    nodes.start(*NAMES)
    names = nodes.create_streams((f"s{i}" for i in range(6)), reward_timeout=30, default_reward=0.0)
    running = ClusterLoad(nodes, names)
    running.begin(7)
    running.wait(30)
    yield running
    running.end()
    running.check()
    nodes.verify()
    print(f"{running.acknowledged} acknowledged, the longest wait was {running.longest_wait():.1f} s")


def decide(nodes: ServiceCluster, name: str) -> tuple[int, Any]:
    return nodes.nodes["a"].call("POST", f"/v1/streams/{name}/decisions", ARMS)


# --- the server ------------------------------------------------------------------------------------------------------


def test_the_server_crashes_under_load(nodes: ServiceCluster, load: ClusterLoad) -> None:
    """It comes back with what it had committed; no node is restarted."""
    for _ in range(2):
        nodes.server.stop("immediate")
        for node in nodes.nodes.values():
            until(lambda node=node: node.find_cause() == "database")  # type: ignore[misc]
        status, problem = decide(nodes, "s0")
        assert (status, problem["type"]) == (503, "urn:windvane:problem:unavailable")
        assert [node.call("GET", "/healthz")[0] for node in nodes.nodes.values()] == [200, 200]
        nodes.server.start()
        load.wait_for_all()
        until(lambda: all(node.is_ready() for node in nodes.nodes.values()))


def test_the_server_is_not_there_at_the_start(node_forks: NodeForks, cluster: Cluster, database: str) -> None:
    """Nodes wait for it; the first one that reaches it creates the tables."""
    cluster.stop()
    nodes = ServiceCluster(node_forks, cluster, database)
    with contextlib.closing(nodes):
        nodes.start(*NAMES, wait=False)
        for node in nodes.nodes.values():
            until(lambda node=node: node.find_cause() == "database")  # type: ignore[misc]
            assert node.call("GET", "/v1/streams")[0] == 503
            assert node.call("POST", "/v1/streams", {"name": "shop", "dim": 2})[0] == 503
            assert node.call("GET", "/v1/streams/shop")[0] == 503
            assert node.call("GET", "/healthz")[0] == 200
            assert node.call("GET", "/v1/cluster")[0] == 503  # whether a token is needed is not known
        cluster.start()
        nodes.wait_until_balanced()
        nodes.create_streams(["shop"])
        nodes.decide("shop")


def test_requests_from_the_first_moment_on(nodes: ServiceCluster) -> None:
    """A node that has not joined yet answers 503, never that a stream is unknown."""
    nodes.start("a")
    nodes.create_streams(["shop"])
    nodes.start("b", wait=False)
    statuses, node = list[int](), nodes.nodes["b"]

    def is_served() -> bool:
        with contextlib.suppress(OSError):
            statuses.append(node.call("POST", "/v1/streams/shop/decisions", ARMS)[0])
        return statuses[-1:] == [201]

    until(is_served)
    assert set(statuses) <= {201, 503}


def test_every_answer_without_the_database_has_the_cause(nodes: ServiceCluster) -> None:
    """Also of requests that fail before it is known which stream they are about."""
    nodes.start(*NAMES)
    nodes.create_streams(["shop"])
    decision = nodes.decide("shop")["id"]
    nodes.server.stop("immediate")
    requests = [
        ("GET", "/v1/streams", None),
        ("GET", "/v1/streams/shop", None),
        ("GET", f"/v1/streams/shop/decisions/{decision}", None),
        ("POST", "/v1/streams", {"name": "new", "dim": 2}),
        ("POST", "/v1/streams/shop/decisions", ARMS),
        ("PUT", f"/v1/streams/shop/decisions/{decision}/reward", {"value": 1.0}),
        ("DELETE", "/v1/streams/shop", None),
    ]
    for _ in range(2):
        for node in nodes.nodes.values():
            answers = [node.call(*request) for request in requests]
            refused = [(status, problem.get("cause")) for status, problem in answers if status != 200]
            assert set(refused) == {(503, "database")}
            assert len(refused) >= 4  # what is in memory may be read for a moment
        for node in nodes.nodes.values():
            until(lambda node=node: node.find_cause() == "database")  # type: ignore[misc]


# --- connections -----------------------------------------------------------------------------------------------------


def end_at_random(nodes: ServiceCluster, load: ClusterLoad, number: int) -> None:
    """End sessions of nodes, whatever they are doing."""
    rng = random.Random(number)
    for _ in range(number):
        rows = nodes.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'windvane'"
        )
        if rows:
            nodes.execute("SELECT pg_terminate_backend(%s)", rng.choice(rows)[0])
        load.wait(3)
    load.wait_for_all()


def test_connections_are_ended_at_random(nodes: ServiceCluster, load: ClusterLoad) -> None:
    end_at_random(nodes, load, 25)


@pytest.mark.slow
def test_a_thousand_connections_are_ended(nodes: ServiceCluster, load: ClusterLoad) -> None:
    end_at_random(nodes, load, 1000)


def test_sessions_are_ended_while_they_write(nodes: ServiceCluster, load: ClusterLoad) -> None:
    """Whether a commit succeeded is found out before anything is answered."""
    ended = 0
    while ended < 5:
        ((count,),) = nodes.execute(
            """SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
            WHERE datname = current_database() AND application_name = 'windvane' AND state = 'active'
            AND query LIKE '%INSERT INTO events%'"""
        )
        ended += count
    load.wait_for_all()


def test_all_connections_of_the_server_are_in_use(node_forks: NodeForks) -> None:
    """Nodes that cannot connect answer 503, and go on when there is room."""
    server = Cluster({"max_connections": 12, "superuser_reserved_connections": 3})
    try:
        database = server.create_database()
        server.execute("CREATE ROLE service LOGIN")
        server.execute(f"ALTER DATABASE {database} OWNER TO service")
        nodes = ServiceCluster(node_forks, server, database, url=server.url(database, "service"))
        with contextlib.closing(nodes), contextlib.ExitStack() as hogs:
            nodes.start("a")
            nodes.create_streams(["shop"])
            nodes.decide("shop")
            nodes.execute("SELECT 1")

            def take_all() -> bool:
                """Take the connections of the node, which may be faster. True: it has none left, and says so."""
                server.terminate_backends(database, "application_name = 'windvane'")
                with contextlib.suppress(psycopg.OperationalError):
                    while True:
                        hogs.enter_context(psycopg.connect(server.url(database, "service")))
                refused = nodes.nodes["a"].call("POST", "/v1/streams/shop/decisions", ARMS)[0] == 503
                connections = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'windvane'"
                return refused and nodes.execute(connections) == [(0,)] and nodes.nodes["a"].find_cause() == "database"

            until(take_all, 60.0)
            hogs.close()
            until(nodes.nodes["a"].is_ready)
            nodes.decide("shop")
    finally:
        server.remove()


def test_a_node_that_cannot_connect_leaves_its_shards(
    nodes: ServiceCluster, node_forks: NodeForks, cluster: Cluster, database: str
) -> None:
    """Its role has too many sessions, or another password since: the session of the keeper goes on, and so would its
    lease. Recoveries would succeed over what is left of the pool, and every commit fail."""
    create_schema(cluster.url(database))
    role = f"role_{database}"
    cluster.execute(f"CREATE ROLE {role} LOGIN")
    create_schema(cluster.url(database), role)
    modules = {"windvane.service.cluster.placement": {"STEP_DOWN_SECONDS": 0.5}}
    nodes.nodes["a"] = node_forks.start(cluster.url(database, role), "a", modules=modules)
    nodes.start("b")
    stream = nodes.create_owned("a")
    first = nodes.decide(stream)["id"]
    cluster.execute(f"ALTER ROLE {role} CONNECTION LIMIT 0")
    assert cluster.terminate_backends(database, f"usename = '{role}' AND query LIKE '%INSERT INTO events%'")
    assert nodes.nodes["a"].call("POST", f"/v1/streams/{stream}/decisions", ARMS)[0] == 503
    until(lambda: {*nodes.read_owners().values()} == {"b"})
    second = nodes.decide(stream, node=nodes.nodes["b"])["id"]
    assert nodes.nodes["a"].find_cause() == "database"
    cluster.execute(f"ALTER ROLE {role} CONNECTION LIMIT -1")
    nodes.wait_until_balanced()
    assert [event["decision"] for event in nodes.read_log(stream)] == [first, second]


def test_the_pool_of_a_node_is_exhausted(nodes: ServiceCluster) -> None:
    """More requests than connections that all need one, while the table that they read is locked."""
    nodes.start("a")
    nodes.create_streams(["shop"])
    decision = nodes.decide("shop")["id"]
    statuses: list[int] = []

    def read() -> None:
        statuses.append(nodes.nodes["a"].call("GET", f"/v1/streams/shop/decisions/{decision}", seconds=30.0)[0])

    with psycopg.connect(nodes.server.url(nodes.database)) as blocker:
        blocker.execute("LOCK TABLE events IN ACCESS EXCLUSIVE MODE")
        threads = [threading.Thread(target=read) for _ in range(30)]
        for thread in threads:
            thread.start()
        until(lambda: 503 in statuses, 30.0)
        assert nodes.nodes["a"].call("GET", "/healthz")[0] == 200
    for thread in threads:
        thread.join()
    assert set(statuses) <= {200, 503}
    nodes.decide("shop")
    assert nodes.ask("GET", f"/v1/streams/shop/decisions/{decision}")["decision"]["id"] == decision
    nodes.verify()


# --- the disk --------------------------------------------------------------------------------------------------------

FULL = """CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100'; END $$"""


def test_the_disk_of_the_server_is_full(nodes: ServiceCluster, load: ClusterLoad) -> None:
    """As PostgreSQL reports it; reads of the database still succeed."""
    nodes.execute(FULL)
    for table in ("events", "meta", "streams"):
        sql = f"CREATE TRIGGER refuse BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION refuse()"
        nodes.execute(sql)
    until(lambda: decide(nodes, "s0")[0] == 503)
    assert nodes.nodes["a"].call("POST", "/v1/streams", {"name": "new", "dim": 2})[0] == 503
    until(lambda: any(node.find_cause() == "database" for node in nodes.nodes.values()))
    nodes.execute("DROP FUNCTION refuse CASCADE")
    load.wait_for_all()
    assert nodes.ask("POST", "/v1/streams", {"name": "new", "dim": 2}, expected=201)["name"] == "new"


# --- tables ----------------------------------------------------------------------------------------------------------


def test_a_table_is_gone(nodes: ServiceCluster) -> None:
    """Streams cannot be loaded, time and again: this neither fills the log nor keeps the nodes from going on later."""
    nodes.start(*NAMES)
    nodes.create_streams([f"s{i}" for i in range(8)])
    nodes.execute("ALTER TABLE events RENAME TO gone")
    node = nodes.nodes["a"]
    status, problem = node.call("POST", "/v1/streams/s0/decisions", ARMS)
    assert (status, problem["cause"]) == (503, "database")
    text = 'relation "events" does not exist; rebuilding the streams'
    until(lambda: any(text in node.log.read_text() for node in nodes.nodes.values()))
    began = time.monotonic()
    counts = {name: node.log.read_text().count(text) for name, node in nodes.nodes.items()}
    until(lambda: any(node.log.read_text().count(text) > counts[name] + 4 for name, node in nodes.nodes.items()))
    assert time.monotonic() - began > (1 + 2 + 4 + 8) * recovery_pauses.SHORTEST_SECONDS
    nodes.execute("ALTER TABLE gone RENAME TO events")
    for name in ("s0", "s1"):
        nodes.decide(name)
