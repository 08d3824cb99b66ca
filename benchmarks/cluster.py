"""Measure the service on PostgreSQL against the service on SQLite: `python benchmarks/cluster.py`.

It starts a private PostgreSQL server (initdb) on a unix socket, with fsync, and all servers on loopback, in one run:

- one node on PostgreSQL and one server on SQLite: pairs a second and the 99th percentile of a request. They take turns.
- one, two and three nodes, each stream asked at the node that owns it, and at one that does not.
- failover: the owner of a stream is killed (SIGKILL) while requests are sent one after the other. Seconds from the last
  answer before the kill to the first answer after it.
- recovery of a stream with a million events: seconds until the node that takes it over answers its first request, from
  the moment at which it owns the shard.

A pair is a decision and its reward: two requests, each answered when it is on disk. d = 10, K = 20.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
sys.path.insert(0, str(Path(__file__).parent))

import numpy as np

from service import ARMS, DIM, Load
from support.postgres import Cluster
from windvane import Agent, Client
from windvane.agent.times import read_clock
from windvane.cluster_map import shard_of
from windvane.service.store import open_store
from windvane.service.streams import Stream
from windvane.testing import Service

POLICIES = {"onepass": {"policy": "OnePassGLM", "gamma": 0.999}, "random": {"policy": "UniformRandom"}}
CONNECTIONS = (1, 16)
STREAMS = 12
EVENTS = 1_000_000
BATCH = 5000  # events that are stored at once to make a long stream
MOST_SECONDS = 30.0  # to wait for a cluster to settle, or for an answer


class Node:
    """A node of a cluster, or a server on SQLite, in a process of its own."""

    def __init__(self, store: str | Path, *options: str) -> None:
        self.process = Service(store, *options)
        self.url = self.process.address
        with Client(self.url) as client:
            client.ready(wait=120.0)

    def ask(self, path: str) -> Any:
        connection = http.client.HTTPConnection(self.url.removeprefix("http://"), timeout=10.0)
        with contextlib.closing(connection):
            connection.request("GET", path)
            return json.loads(connection.getresponse().read())


@contextlib.contextmanager
def run_nodes(store: str | Path, count: int) -> Iterator[list[Node]]:
    """Run nodes on a database, or one server on a file, and wait until every shard has its owner."""
    names = [("--node", f"node-{i}") for i in range(count)] if isinstance(store, str) else [()]
    nodes = [Node(store, *name) for name in names]
    try:
        if isinstance(store, str):
            wait_until_settled(nodes)
        yield nodes
    finally:
        for node in nodes:
            node.process.kill()


def wait_until_settled(nodes: list[Node]) -> dict[str, Any]:
    """Return the map when all nodes see each other, and own the same number of shards but for one."""
    end = time.monotonic() + MOST_SECONDS
    while time.monotonic() < end:
        maps = [node.ask("/v1/cluster") for node in nodes]
        sizes = [[len(node["shards"]) for node in each["nodes"]] for each in maps]
        if all(len(size) == len(nodes) and max(size) - min(size) <= 1 and sum(size) == 64 for size in sizes):
            return dict(maps[0])
        time.sleep(0.1)
    raise TimeoutError(f"the shards are not spread evenly: {sizes}")


def find_owners(node: Node) -> dict[int, str]:
    """Return the addresses of the owners by shard."""
    return {shard: each["url"] for each in node.ask("/v1/cluster")["nodes"] for shard in each["shards"]}


# --- throughput ------------------------------------------------------------------------------------------------------


def compare_stores(cluster: Cluster, folder: Path, pairs: int, repeats: int) -> None:
    print(f"one server: pairs a second, and the 99th percentile of a request in ms ({repeats} repeats)\n")
    print(f"{'':32} {'SQLite':>18} {'PostgreSQL':>18}   PostgreSQL / SQLite")
    database = cluster.url(cluster.create_database())
    with run_nodes(folder / "a.db", 1) as (file,), run_nodes(database, 1) as (node,):
        for each in (file, node):
            with Client(each.url) as client:
                for name, settings in POLICIES.items():
                    client.create(name, dim=DIM, **settings)
        for name in POLICIES:
            for connections in CONNECTIONS:
                loads = {"file": Load(), "node": Load()}
                for i in range(repeats):
                    order = [("file", file), ("node", node)]
                    for kind, each in order if i % 2 else reversed(order):
                        loads[kind].run(each.url, name, pairs, connections)
                ratios = [b / a for a, b in zip(loads["file"].rates, loads["node"].rates, strict=True)]
                what = f"{name}, {connections} connections"
                cells = [f"{load.rate:9.0f} {load.percentile(99):8.2f}" for load in loads.values()]
                spread = f"{np.median(ratios):.2f}x ({min(ratios):.2f} to {max(ratios):.2f})"
                print(f"{what:32} {cells[0]:>18} {cells[1]:>18}   {spread}")


def compare_sizes(cluster: Cluster, pairs: int, repeats: int) -> None:
    """Load all streams at once, one process for each node, at the owners of the streams and at the next node."""
    print(f"\none, two and three nodes: pairs a second in all, {STREAMS} streams, 16 connections\n")
    print(f"{'':10} {'at the owner':>16} {'forwarded':>16}")
    first = 0.0
    for count in (1, 2, 3):
        database = cluster.url(cluster.create_database())
        with run_nodes(database, count) as nodes:
            names = [f"stream-{i}" for i in range(STREAMS)]
            with Client(nodes[0].url) as client:
                for name in names:
                    client.create(name, dim=DIM, **POLICIES["onepass"])
            owners = find_owners(nodes[0])
            urls = [node.url for node in nodes]
            rates: dict[int, list[float]] = {0: [], 1: []}
            for _ in range(repeats):
                for shift in (0, 1) if count > 1 else (0,):
                    targets = [urls[(urls.index(owners[shard_of(name, 64)]) + shift) % count] for name in names]
                    rates[shift].append(load_together(names, targets, pairs))
            direct = float(np.median(rates[0]))
            first = first or direct
            forwarded = f"{np.median(rates[1]):.0f}" if rates[1] else "-"
            print(f"{count} node{'s' * (count > 1):3} {direct:8.0f} ({direct / first:.2f}x) {forwarded:>16}")
    print(f"\nThis machine has {os.cpu_count()} cores for the nodes, PostgreSQL and the clients together.")


def load_together(names: list[str], urls: list[str], pairs: int) -> float:
    """Return the pairs a second of several load generators that run at once."""
    script = Path(__file__).parent / "load.py"
    sizes = ["--pairs", str(pairs), "--connections", "2", "--arms", str(ARMS), "--dim", str(DIM), "--seed", "1"]
    with tempfile.TemporaryDirectory() as folder:
        outs = [Path(folder, f"{name}.json") for name in names]
        lines = [[sys.executable, script, url, name, out] for name, url, out in zip(names, urls, outs, strict=True)]
        processes = [subprocess.Popen([*map(str, line), *sizes]) for line in lines]
        if any(process.wait(300) for process in processes):
            raise RuntimeError("a load generator failed")
        elapsed = max(json.loads(out.read_text())["elapsed"] for out in outs)
    return pairs * len(names) / elapsed


# --- failover --------------------------------------------------------------------------------------------------------


def measure_failover(cluster: Cluster, repeats: int) -> None:
    gaps = []
    for i in range(repeats):
        database = cluster.url(cluster.create_database())
        with run_nodes(database, 3) as nodes:
            with Client(nodes[0].url) as client:
                name = f"stream-{i}"
                client.create(name, dim=2)
            owners = find_owners(nodes[0])
            owner = next(node for node in nodes if node.url == owners[shard_of(name, 64)])
            other = next(node for node in nodes if node is not owner)
            with Client(other.url, follow=False, deadline=MOST_SECONDS) as client:
                for _ in range(50):
                    client.decide(name, [[0.1, 0.2], [0.3, 0.4]])
                last = time.perf_counter()
                owner.process.kill()
                client.decide(name, [[0.1, 0.2], [0.3, 0.4]])
                gaps.append(time.perf_counter() - last)
    figures = ", ".join(f"{gap:.2f}" for gap in sorted(gaps))
    print(f"\nfailover after SIGKILL of the owner, three nodes: {figures} s (limit 5)")


# --- recovery --------------------------------------------------------------------------------------------------------


def measure_recovery(cluster: Cluster, events: int) -> None:
    database = cluster.url(cluster.create_database())
    began = time.perf_counter()
    size = make_long_stream(database, "long", events)
    built = time.perf_counter() - began
    with run_nodes(database, 2) as nodes:
        owners = find_owners(nodes[0])
        owner = next(node for node in nodes if node.url == owners[shard_of("long", 64)])
        other = next(node for node in nodes if node is not owner)
        with Client(other.url, follow=False) as client:
            client.decide("long", [[0.1] * DIM] * 3)
            owner.process.kill()
            taken = wait_for_owner(other, "long")
            client.decide("long", [[0.1] * DIM] * 3)
            seconds = time.perf_counter() - taken
            count = client.info("long").events
    print(f"\nrecovery of a stream with {count:,} events: {seconds:.2f} s until its first answer (limit 3)")
    print(f"({size / events:.0f} bytes an event with indexes; it was written in {built:.0f} s)")


def wait_for_owner(node: Node, name: str) -> float:
    end = time.monotonic() + MOST_SECONDS
    while time.monotonic() < end:
        if find_owners(node).get(shard_of(name, 64)) == node.url:
            return time.perf_counter()
        time.sleep(0.002)
    raise TimeoutError("nobody took the shard")


def make_long_stream(database: str, name: str, events: int) -> float:
    """Write a stream of decisions and rewards as a server does, with a snapshot before the last 1,000 events.

    Returns the size of the store in bytes.
    """

    rng = np.random.default_rng(1)
    arms = [rng.uniform(-0.3, 0.3, size=(3, DIM)).round(3).tolist() for _ in range(100)]
    bodies = [json.dumps({"arms": {f"arm{k}": row for k, row in enumerate(offer)}}).encode() for offer in arms]
    with contextlib.closing(open_store(database)) as store:
        config = json.dumps({"title": None, "agent": Agent(dim=DIM, seed=1, **POLICIES["onepass"]).core.settings})
        row = store.add_stream(name, read_clock(), config)
        assert row is not None
        stream, batch = Stream(row, store), list[Any]()
        while stream.number < events:
            done = stream.decide(bodies[stream.number % 100], None, read_clock())
            batch += done.events
            batch += stream.reward(json.loads(done.body)["id"], 1.0, read_clock()).events
            if len(batch) >= BATCH or stream.number >= events:
                is_late = stream.number >= events - 1000
                store.append(batch, [] if is_late else [(stream.id, stream.snapshot())])
                stream.lookup.forget(stream.number)
                batch.clear()
        return store.measure()["store_bytes"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--events", type=int, default=EVENTS, help="of the stream that is recovered")
    chosen = parser.parse_args()
    cluster = Cluster({"shared_buffers": "128MB", "max_wal_size": "1GB"})
    try:
        with tempfile.TemporaryDirectory() as folder:
            compare_stores(cluster, Path(folder), chosen.pairs, chosen.repeats)
        compare_sizes(cluster, max(50, chosen.pairs // STREAMS), chosen.repeats)
        measure_failover(cluster, max(3, chosen.repeats))
        measure_recovery(cluster, chosen.events)
    finally:
        cluster.remove()


if __name__ == "__main__":
    main()
