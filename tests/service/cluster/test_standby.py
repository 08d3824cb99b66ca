"""A standby that every commit waits for: the loss of the primary loses nothing that was acknowledged."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.cluster_drill import ClusterLoad
from support.nodes import NodeForks, ServiceCluster
from support.postgres import OWNER, Cluster
from support.server import ARMS, until

REPLICATION = {"wal_level": "replica", "max_wal_senders": 4, "synchronous_standby_names": "'*'"}


class Pair:
    """A primary and its synchronous standby, with a database."""

    def __init__(self) -> None:
        self.primary = Cluster({**REPLICATION, "synchronous_standby_names": ""})
        self.database = self.primary.create_database()
        # The standby must not wait for a standby of its own once it is promoted.
        self.standby = Cluster({"synchronous_standby_names": "", "hot_standby": "on"}, source=self.primary)
        self.primary.configure({"synchronous_standby_names": "*"})
        self.primary.reload()
        until(lambda: self.primary.execute("SELECT sync_state FROM pg_stat_replication") == [("sync",)])

    @property
    def url(self) -> str:
        """The address of both servers: whichever can be written to is used."""
        hosts, ports = f"{self.primary.folder},{self.standby.folder}", f"{self.primary.port},{self.standby.port}"
        options = f"host={hosts}&port={ports}&target_session_attrs=read-write&connect_timeout=2"
        return f"postgresql://{OWNER}@/{self.database}?{options}"

    def signal_receiver(self, number: signal.Signals) -> None:
        """Stop the standby from receiving, or let it go on."""
        ((pid,),) = self.standby.execute("SELECT pid FROM pg_stat_wal_receiver")
        os.kill(pid, number)

    def close(self) -> None:
        self.standby.remove()
        self.primary.remove()


@pytest.fixture
def pair() -> Iterator[Pair]:
    with contextlib.closing(Pair()) as running:
        yield running


def test_the_primary_dies_and_the_standby_is_promoted(pair: Pair, node_forks: NodeForks) -> None:
    nodes = ServiceCluster(node_forks, pair.primary, pair.database, url=pair.url, ha=True)
    with contextlib.closing(nodes):
        nodes.start("a", "b")
        names = nodes.create_streams((f"s{i}" for i in range(6)), reward_timeout=30, default_reward=0.0)
        load = ClusterLoad(nodes, names)
        load.begin(5)
        load.wait(100)
        pair.primary.kill()
        nodes.server = pair.standby
        until(lambda: all(node.find_cause() == "database" for node in nodes.nodes.values()))
        pair.standby.promote()
        seconds = load.wait_for_all()
        load.wait(50)
        load.end()
        load.check()
        nodes.verify()
        print(f"{load.acknowledged} acknowledged; served again {seconds:.1f} s after the standby was promoted")


def test_a_commit_that_the_standby_may_not_have_is_not_acknowledged(pair: Pair, node_forks: NodeForks) -> None:
    """PostgreSQL calls it a success, with a warning, if the wait is cancelled; or it ends the session."""
    nodes = ServiceCluster(node_forks, pair.primary, pair.database, lease=20.0, tick=5.0)
    with contextlib.closing(nodes):
        nodes.start("a")
        nodes.create_streams(["shop"])
        for i, function in enumerate(("pg_cancel_backend", "pg_terminate_backend")):
            answers: list[tuple[int, Any]] = []
            asking = threading.Thread(target=lambda i=i, to=answers: to.append(decide(nodes, f"key{i}")))  # type: ignore[misc]
            pair.signal_receiver(signal.SIGSTOP)
            asking.start()
            waiting = "wait_event = 'SyncRep' AND query LIKE '%INSERT INTO events%'"
            activity = f"FROM pg_stat_activity WHERE {waiting}"
            until(lambda sql=f"SELECT pid {activity}": nodes.execute(sql))  # type: ignore[misc]
            nodes.execute(f"SELECT {function}(pid) {activity}")
            asking.join()
            assert answers[0][0] == 503
            # It is in the log of the primary; the same key is not answered either before the standby has it.
            assert [event["key"] for event in nodes.read_log("shop")][i:] == [f"key{i}"]
            assert decide(nodes, f"key{i}")[0] == 503
            pair.signal_receiver(signal.SIGCONT)
            decision = nodes.decide("shop", f"key{i}")
            assert decision["id"] == nodes.read_log("shop")[i]["decision"]


def decide(nodes: ServiceCluster, key: str) -> tuple[int, Any]:
    return nodes.nodes["a"].call("POST", "/v1/streams/shop/decisions", ARMS, key, seconds=30.0)


def test_a_server_without_a_standby_is_refused(nodes: ServiceCluster) -> None:
    node = nodes.start("a", ha=True, wait=False)
    until(lambda: "synchronous_standby_names" in _read(node.log))
    until(lambda: not Path(f"/proc/{node.pid}").exists())


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def test_a_server_without_a_standby_that_is_reached_later(nodes: ServiceCluster) -> None:
    """The node was started before the database: it is not ready, and says why."""
    nodes.server.stop()
    node = nodes.start("a", ha=True, wait=False)
    until(lambda: node.find_cause() == "database")
    nodes.server.start()
    until(lambda: node.find_cause() == "standby")
    assert node.call("GET", "/v1/streams")[0] == 503
