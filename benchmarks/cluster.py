"""Measure the service on PostgreSQL against the service on SQLite: `python benchmarks/cluster.py`.

It starts a private PostgreSQL server (initdb) on a unix socket, with fsync, and all servers on loopback, in one run:

- one node on PostgreSQL and one server on SQLite: pairs a second and the 99th percentile of a request. They take turns.
- one, two and three nodes against one server on SQLite, with the same streams and connections. Each stream is asked at
  the node that owns it, and at one that does not. The server on SQLite takes turns with the nodes.
- failover: the owner of a stream is killed (SIGKILL) or stopped (SIGSTOP), or PostgreSQL is restarted or crashes, while
  another node is asked for decisions. Seconds to the first answer: from the failure of the owner, or from the moment at
  which PostgreSQL accepts connections again.
- recovery of a stream with a million events: seconds until the node that takes it over answers its first request, from
  the moment at which it owns the shard. Once SNAPSHOT_EVENTS events follow the snapshot, as just before the next one is
  due, and once only a few, as in a stream at rest.

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
import secrets
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
import psycopg
import uvloop
from common import read_processor_seconds
from load import Work, drive
from versions import ARMS, DIM, LOAD_SECONDS

from support.postgres import Cluster
from windvane import Agent, Client
from windvane.agent.times import read_clock
from windvane.cluster_map import shard_of
from windvane.service.snapshots import SNAPSHOT_EVENTS
from windvane.service.store import open_store
from windvane.service.streams import Stream
from windvane.testing import Service

POLICIES = {"onepass": {"policy": "OnePassGLM", "gamma": 0.999}, "random": {"policy": "UniformRandom"}}
CONNECTIONS = (1, 16)
STREAMS = 12
EVENTS = 1_000_000
OFFER = {"arms": {f"arm{i}": [0.1] * DIM for i in range(3)}}
BATCH = 5000  # events that are stored at once to make a long stream
MOST_SECONDS = 30.0  # to wait for a cluster to settle, or for an answer


class Node:
    """A node of a cluster, or a server on SQLite, in a process of its own."""

    def __init__(self, store: str | Path, *options: str) -> None:
        self.process = Service(store, *options)
        self.url = self.process.address
        try:
            with Client(self.url) as client:
                client.ready(wait=120.0)
        except BaseException:
            self.process.kill()
            raise

    def ask(self, path: str) -> Any:
        return self.send("GET", path)[1]

    def send(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Send one request, and repeat nothing. Return the status and the answer."""
        headers = {} if body is None else {"content-type": "application/json", "idempotency-key": secrets.token_hex(8)}
        connection = http.client.HTTPConnection(self.url.removeprefix("http://"), timeout=MOST_SECONDS)
        with contextlib.closing(connection):
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())


@contextlib.contextmanager
def run_nodes(store: str | Path, count: int) -> Iterator[list[Node]]:
    """Run nodes on a database, or one server on a file, and wait until every shard has its owner."""
    names = [("--node", f"node-{i}") for i in range(count)] if isinstance(store, str) else [()]
    with contextlib.ExitStack() as stack:
        nodes = []
        for name in names:
            nodes.append(Node(store, *name))
            stack.callback(nodes[-1].process.kill)  # also if a later one does not start
        if isinstance(store, str):
            wait_until_settled(nodes)
        yield nodes


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


def find_pair(nodes: list[Node], stream: str) -> tuple[Node, Node]:
    """Return the node that owns a stream, and another one."""
    url = find_owners(nodes[0])[shard_of(stream, 64)]
    return next(node for node in nodes if node.url == url), next(node for node in nodes if node.url != url)


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


def compare_sizes(cluster: Cluster, folder: Path, pairs: int, repeats: int) -> None:
    """Load all streams at once: on one server with SQLite, at the owners of the streams, and at the next node."""
    print(f"\none, two and three nodes: {STREAMS} streams, {2 * STREAMS} connections")
    print("processor time of a pair: nodes + PostgreSQL + load generator\n")
    print(f"{'':22} {'pairs a second':>16} {'p99 in ms':>10}   nodes / SQLite")
    names = [f"stream-{i}" for i in range(STREAMS)]
    with run_nodes(folder / "sizes.db", 1) as (file,):
        create_all(file, names)
        alone = Loads([file], cluster)
        for count in (1, 2, 3):
            with run_nodes(cluster.url(cluster.create_database()), count) as nodes:
                create_all(nodes[0], names)
                owners, urls = find_owners(nodes[0]), [node.url for node in nodes]
                loads = {"owner": Loads(nodes, cluster), "forwarded": Loads(nodes, cluster)}
                for _ in range(repeats):
                    alone.run([Target(file.url, name) for name in names], pairs, 2)
                    for shift, load in enumerate(list(loads.values())[:count]):
                        places = [(urls.index(owners[shard_of(name, 64)]) + shift) % count for name in names]
                        targets = [Target(urls[place], name) for place, name in zip(places, names, strict=True)]
                        load.run(targets, pairs, 2)
                for label, load in list(loads.items())[:count]:
                    ratios = [b / a for a, b in zip(alone.rates[-repeats:], load.rates, strict=True)]
                    spread = f"{np.median(ratios):.2f}x ({min(ratios):.2f} to {max(ratios):.2f})"
                    print(f"{count} node{'s' * (count > 1):1} {label:12} {load.describe():>20}   {spread}")
                    print(f"    {load.describe_costs()}", flush=True)
        print(f"{'one server on SQLite':20} {alone.describe():>20}   1.00x")
        print(f"    {alone.describe_costs()}", flush=True)
    print(f"\nThis machine has {os.cpu_count()} cores for the nodes, PostgreSQL and the load generator together.")


def create_all(node: Node, names: list[str]) -> None:
    with Client(node.url) as client:
        for name in names:
            client.create(name, dim=DIM, **POLICIES["onepass"])


# --- failover --------------------------------------------------------------------------------------------------------


def measure_failover(cluster: Cluster, repeats: int) -> None:
    print("\nfailover, three nodes: seconds to the first answer of another node, median and maximum")
    for failure in ("kill -9", "kill -STOP", "restart of PostgreSQL", "crash of PostgreSQL"):
        gaps = [measure_failure(cluster, failure) for _ in range(repeats)]
        figures = ", ".join(f"{gap:.2f}" for gap in sorted(gaps))
        print(f"    {failure:22} {np.median(gaps):.2f}, at most {max(gaps):.2f} ({figures}; limit 5)", flush=True)


def measure_failure(cluster: Cluster, failure: str) -> float:
    """Return the seconds from a failure of the owner, or from the first connection that PostgreSQL accepts after its
    failure, to the first decision that another node answers. A request that fails is repeated at once."""
    body = {"arms": {"red": [0.1, 0.2], "blue": [0.3, 0.4]}}
    with run_nodes(cluster.url(cluster.create_database()), 3) as nodes:
        with Client(nodes[0].url) as client:
            client.create("stream", dim=2)
        owner, other = find_pair(nodes, "stream")
        for _ in range(50):
            assert other.send("POST", "/v1/streams/stream/decisions", body)[0] == 201
        if failure.startswith("kill"):
            start = time.perf_counter()
            os.kill(owner.process.pid, signal.SIGKILL if failure == "kill -9" else signal.SIGSTOP)
        else:
            cluster.stop("fast" if failure.startswith("restart") else "immediate")
            start = start_database(cluster)
        end = start + MOST_SECONDS
        while other.send("POST", "/v1/streams/stream/decisions", body)[0] != 201:
            if time.perf_counter() > end:
                raise TimeoutError(f"no answer within {MOST_SECONDS:.0f} s after {failure}")
            time.sleep(0.002)
        return time.perf_counter() - start


def start_database(cluster: Cluster) -> float:
    """Start PostgreSQL. Return the time at which it first accepted a connection, which pg_ctl would notice late."""
    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(cluster.start)
        while True:
            try:
                with cluster.connect():
                    accepted = time.perf_counter()
                break
            except psycopg.OperationalError:
                if starting.done():
                    starting.result()
                time.sleep(0.002)
        starting.result()
    return accepted


# --- recovery --------------------------------------------------------------------------------------------------------


def measure_recovery(cluster: Cluster, events: int) -> None:
    """Let a node take over a long stream twice: just before a snapshot was due, and just after one."""
    name = cluster.create_database()
    database = cluster.url(name)
    with run_nodes(database, 2) as nodes:
        # The nodes do not know a stream that was not created by them, so its owner stores no snapshot of it.
        began = time.perf_counter()
        size = make_long_stream(database, "long", events)
        built = time.perf_counter() - began
        measure_takeover(cluster, name, nodes, "just before the next one")
    with run_nodes(database, 2) as nodes:
        find_pair(nodes, "long")[1].send("POST", "/v1/streams/long/decisions", OFFER)
        measure_takeover(cluster, name, nodes, "its owner was at rest")
    print(f"({size / events:.0f} bytes an event with indexes; it was written in {built:.0f} s)")


def measure_takeover(cluster: Cluster, database: str, nodes: list[Node], case: str) -> None:
    """Kill the owner of the long stream. Print how long the other node takes, and how many events it replays."""
    owner, other = find_pair(nodes, "long")
    owner.process.kill()
    query = """SELECT last, last - s.number FROM snapshots AS s,
        LATERAL (SELECT max(number) AS last FROM events WHERE events.stream = s.stream) AS e"""
    ((last, replayed),) = cluster.execute(query, database=database)  # the other node has to wait for the lease to end
    taken = wait_for_owner(other, "long")
    with Client(other.url, follow=False, deadline=MOST_SECONDS) as client:
        client.decide("long", OFFER["arms"])
    seconds = time.perf_counter() - taken
    print(f"\nrecovery of a stream with {last:,} events, {replayed:,} of them after the snapshot ({case}):")
    print(f"    {seconds:.2f} s until its first answer (limit 3)", flush=True)


def wait_for_owner(node: Node, name: str) -> float:
    end = time.monotonic() + MOST_SECONDS
    while time.monotonic() < end:
        if find_owners(node).get(shard_of(name, 64)) == node.url:
            return time.perf_counter()
        time.sleep(0.002)
    raise TimeoutError("nobody took the shard")


def make_long_stream(database: str, name: str, events: int) -> float:
    """Write a stream of decisions and rewards as a server does, with one snapshot, which SNAPSHOT_EVENTS events follow.

    Returns the size of the store in bytes.
    """
    rng = np.random.default_rng(1)
    arms = [rng.uniform(-0.3, 0.3, size=(3, DIM)).round(3).tolist() for _ in range(100)]
    bodies = [json.dumps({"arms": {f"arm{k}": row for k, row in enumerate(offer)}}).encode() for offer in arms]
    with contextlib.closing(open_store(database)) as store:
        config = json.dumps({"title": None, "agent": Agent(dim=DIM, seed=1, **POLICIES["onepass"]).core.settings})
        row = store.add_stream(name, read_clock(), config)
        assert row is not None
        stream, batch, snapshot = Stream(row, store), list[Any](), None
        while stream.number < events:
            done = stream.decide(bodies[stream.number % 100], None, read_clock())
            batch += done.events
            batch += stream.reward(json.loads(done.body)["id"], 1.0, read_clock()).events
            is_snapshot_due = snapshot is None and stream.number >= events - SNAPSHOT_EVENTS
            if len(batch) >= BATCH or is_snapshot_due or stream.number >= events:
                snapshot = stream.snapshot() if is_snapshot_due else snapshot
                store.append(batch, [(stream.id, snapshot)] if is_snapshot_due and snapshot else [])
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
            compare_sizes(cluster, Path(folder), max(50, chosen.pairs // STREAMS), chosen.repeats)
        measure_failover(cluster, max(3, chosen.repeats))
        measure_recovery(cluster, chosen.events)
    finally:
        cluster.remove()


if __name__ == "__main__":
    main()
