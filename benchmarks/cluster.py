"""Measure the service on PostgreSQL against the service on SQLite: `python benchmarks/cluster.py`.

It starts a private PostgreSQL server (initdb) on a unix socket, with fsync, and all servers on loopback, in one run:

- one node on PostgreSQL and one server on SQLite: pairs a second and the 99th percentile of a request. They take turns.
- one, two and three nodes, each stream asked at the node that owns it, and at one that does not.
- failover: the owner of a stream is killed (SIGKILL) while requests are sent one after the other. Seconds from the last
  answer before the kill to the first answer after it.
- recovery of a stream with a million events: seconds until the node that takes it over answers its first request, from
  the moment at which it owns the shard.

A pair is a decision and its reward: two requests, each answered when it is on disk. d = 10, K = 20.

To show what limits the throughput, it also prints the milliseconds of processor time that a pair costs, in the servers,
in PostgreSQL and in the load generator, how busy the cores were, and how long the disk takes for one flush.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import http.client
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
import uvloop
from common import read_processor_seconds
from load import Work, drive
from versions import ARMS, DIM, LOAD_SECONDS

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


class Target(NamedTuple):
    """A stream, and the address of the server that is asked about it."""

    url: str
    stream: str


class Loads:
    """Loads of the same kind, made one after the other: rates, times of requests, and what they cost.

    Parameters
    ----------
    nodes
        The servers whose processor time is counted.
    cluster
        The PostgreSQL server whose processor time is counted.
    """

    def __init__(self, nodes: list[Node], cluster: Cluster) -> None:
        self._nodes, self._cluster = nodes, cluster
        self._processor = np.zeros(3)
        self._elapsed, self._pairs = 0.0, 0
        self.rates: list[float] = []
        self._seconds: list[float] = []

    def run(self, targets: list[Target], pairs: int, connections: int) -> None:
        """Make pairs at every target at once, each with its own connections."""
        before = self._read_processor()
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as generator:
            elapsed, processor, seconds = generator.submit(drive_all, targets, pairs, connections).result(LOAD_SECONDS)
        self._processor += [*(self._read_processor() - before), processor]
        self._elapsed += elapsed
        self._pairs += pairs * len(targets)
        self.rates.append(pairs * len(targets) / elapsed)
        self._seconds += seconds

    def _read_processor(self) -> np.ndarray:
        processes = [[node.process.pid for node in self._nodes], list_database_processes(self._cluster)]
        return np.array([sum(map(read_processor_seconds, group)) for group in processes])

    def describe(self) -> str:
        return f"{np.median(self.rates):.0f} {1e3 * float(np.percentile(self._seconds, 99)):8.2f}"

    def describe_costs(self) -> str:
        parts = " + ".join(f"{1e3 * seconds / self._pairs:.2f}" for seconds in self._processor)
        return f"{parts} ms, cores {self._processor.sum() / self._elapsed / (os.cpu_count() or 1):.0%} busy"


def drive_all(targets: list[Target], pairs: int, connections: int) -> tuple[float, float, list[float]]:
    """Return the seconds that the pairs took, the processor time of this process, and the seconds of each request."""
    addresses = [urlsplit(target.url) for target in targets]
    works = [
        Work(target.stream, address.netloc, pairs, ARMS, DIM, seed=1)
        for target, address in zip(targets, addresses, strict=True)
    ]

    async def run() -> None:
        await asyncio.gather(
            *(
                drive(work, address.hostname, address.port, connections)
                for work, address in zip(works, addresses, strict=True)
            )
        )

    start, processor = time.perf_counter(), time.process_time()
    uvloop.run(run())
    seconds = [each for work in works for each in work.seconds]
    return time.perf_counter() - start, time.process_time() - processor, seconds


def list_database_processes(cluster: Cluster) -> list[int]:
    """Return the ids of the server's processes that run now."""
    main = cluster.process
    assert main is not None
    return [main, *map(int, Path(f"/proc/{main}/task/{main}/children").read_text().split())]


def measure_flush(folder: Path, count: int = 200) -> float:
    """Return the median of the milliseconds in which 8 kB are appended to a file and flushed."""
    times = []
    with (folder / "flush").open("wb", buffering=0) as file:
        for _ in range(count):
            start = time.perf_counter()
            file.write(bytes(8192))
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - start)
    return 1e3 * float(np.median(times))


def compare_stores(cluster: Cluster, folder: Path, pairs: int, repeats: int) -> None:
    print(f"a flush of the disk takes {measure_flush(folder):.2f} ms\n")
    print(f"one server: pairs a second, and the 99th percentile of a request in ms ({repeats} repeats)")
    print("processor time of a pair: server + PostgreSQL + load generator\n")
    print(f"{'':32} {'SQLite':>18} {'PostgreSQL':>18}   PostgreSQL / SQLite")
    database = cluster.url(cluster.create_database())
    with run_nodes(folder / "a.db", 1) as (file,), run_nodes(database, 1) as (node,):
        for each in (file, node):
            with Client(each.url) as client:
                for name, settings in POLICIES.items():
                    client.create(name, dim=DIM, **settings)
        for name in POLICIES:
            for connections in CONNECTIONS:
                loads = {"SQLite": Loads([file], cluster), "PostgreSQL": Loads([node], cluster)}
                order = list(zip(loads.values(), (file, node), strict=True))
                for i in range(repeats):
                    for load, server in order if i % 2 else reversed(order):
                        load.run([Target(server.url, name)], pairs, connections)
                ratios = [b / a for a, b in zip(*(load.rates for load in loads.values()), strict=True)]
                what = f"{name}, {connections} connection{'s' * (connections > 1)}"
                cells = "".join(f" {load.describe():>18}" for load in loads.values())
                print(f"{what:32}{cells}   {np.median(ratios):.2f}x ({min(ratios):.2f} to {max(ratios):.2f})")
                for label, load in loads.items():
                    print(f"    {label:12} {load.describe_costs()}", flush=True)


def compare_sizes(cluster: Cluster, pairs: int, repeats: int) -> None:
    """Load all streams at once, at the owners of the streams and at the next node."""
    print(f"\none, two and three nodes: {STREAMS} streams, {2 * STREAMS} connections")
    print("processor time of a pair: nodes + PostgreSQL + load generator\n")
    print(f"{'':22} {'pairs a second':>16} {'p99 in ms':>10}")
    first = 0.0
    for count in (1, 2, 3):
        database = cluster.url(cluster.create_database())
        with run_nodes(database, count) as nodes:
            names = [f"stream-{i}" for i in range(STREAMS)]
            with Client(nodes[0].url) as client:
                for name in names:
                    client.create(name, dim=DIM, **POLICIES["onepass"])
            owners, urls = find_owners(nodes[0]), [node.url for node in nodes]
            loads = {"owner": Loads(nodes, cluster), "forwarded": Loads(nodes, cluster)}
            for _ in range(repeats):
                for shift, load in enumerate(list(loads.values())[:count]):
                    places = [(urls.index(owners[shard_of(name, 64)]) + shift) % count for name in names]
                    targets = [Target(urls[place], name) for place, name in zip(places, names, strict=True)]
                    load.run(targets, pairs, 2)
            first = first or float(np.median(loads["owner"].rates))
            for label, load in list(loads.items())[:count]:
                ratio = f"({np.median(load.rates) / first:.2f}x)"
                print(f"{count} node{'s' * (count > 1):1} {label:12} {load.describe():>20} {ratio}")
                print(f"    {load.describe_costs()}", flush=True)
    print(f"\nThis machine has {os.cpu_count()} cores for the nodes, PostgreSQL and the load generator together.")


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
