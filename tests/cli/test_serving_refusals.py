"""``windvane serve`` on a database that will never admit it ends with one line; one that may, later, is waited for."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.commands import fails
from support.nodes import NodeForks, ServiceCluster, find_port
from support.postgres import Cluster
from support.server import ARMS, until


@pytest.fixture(scope="module")
def server() -> Iterator[Cluster]:
    """A server that wants a password."""
    settings = {"listen_addresses": "127.0.0.1", "port": find_port()}
    running = Cluster(settings, access="host all service 127.0.0.1/32 scram-sha-256\n")
    try:
        running.execute("CREATE ROLE service LOGIN SUPERUSER PASSWORD 'right'")
        yield running
    finally:
        running.remove()


def test_a_wrong_password_database_or_role(server: Cluster, tmp_path: Path) -> None:
    for url, problem in (
        (server.url("postgres", "service", "wrong", host="127.0.0.1"), "check the user, the password"),
        (
            server.url("postgres", "service", "wrong", host="no-such-host.invalid,127.0.0.1"),
            "check the user, the password",
        ),
        (server.url("nowhere"), "create the database"),
        (server.url("postgres", "nobody at all"), "check the user, the password"),
    ):
        fails(f"serve --port 0 --store '{url}'", tmp_path, "postgresql://", "refuses the connection", problem)
        fails(f"verify --store '{url}'", tmp_path, "refuses the connection", problem)


def test_tls(server: Cluster, tmp_path: Path) -> None:
    """The server has none."""
    url = server.url("postgres", "service", "right", host="127.0.0.1", sslmode="require")
    fails(f"serve --port 0 --store '{url}'", tmp_path, "postgresql://", "cannot be used", "SSL", "check sslmode")


def test_a_standby(tmp_path: Path) -> None:
    """Also by commands that write; those that read are content with it."""
    with contextlib.ExitStack() as stack:
        primary = Cluster({"wal_level": "replica", "max_wal_senders": 4})
        stack.callback(primary.remove)
        fails(f"token list --store '{primary.url('postgres')}'", tmp_path, "does not exist")
        stack.callback((standby := Cluster(source=primary)).remove)
        url = standby.url("postgres")
        fails(f"serve --port 0 --store '{url}'", tmp_path, "is a standby", "name the primary")
        fails(f"store create '{url}'", tmp_path, "the database is a standby", "name the primary")
        fails(f"token add shop --store '{url}'", tmp_path, "the database is a standby", "name the primary")


def test_a_password_that_is_changed_while_a_node_runs(server: Cluster, node_forks: NodeForks) -> None:
    """It goes on trying, and says why it cannot go on; with the old password again it does."""
    database = server.create_database()
    nodes = ServiceCluster(node_forks, server, database, url=server.url(database, "service", "right", host="127.0.0.1"))
    with contextlib.closing(nodes):
        node = nodes.start("a")
        nodes.create_streams(["shop"])
        server.execute("ALTER ROLE service PASSWORD 'changed'")
        server.terminate_backends(database, "usename = 'service'")
        until(lambda: node.find_cause() == "database")
        until(lambda: "password authentication failed" in node.log.read_text())
        assert node.call("POST", "/v1/streams/shop/decisions", ARMS)[0] == 503
        server.execute("ALTER ROLE service PASSWORD 'right'")
        nodes.decide("shop")


def test_a_password_that_is_wrong_when_the_server_comes_up(server: Cluster, node_forks: NodeForks) -> None:
    """The node has begun to wait, and goes on: it may be the server that is not complete yet."""
    database = server.create_database()
    nodes = ServiceCluster(node_forks, server, database, url=server.url(database, "service", "wrong", host="127.0.0.1"))
    server.stop()
    with contextlib.closing(nodes):
        node = nodes.start("a", wait=False)
        until(lambda: node.find_cause() == "database")
        server.start()
        until(lambda: "check the user, the password" in node.log.read_text())
        server.execute("ALTER ROLE service PASSWORD 'wrong'")
        until(node.is_ready)
        server.execute("ALTER ROLE service PASSWORD 'right'")
