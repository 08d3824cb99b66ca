"""Measure the decision service, and the version before its rebuild, side by side: `python benchmarks/service.py`.

Each version has its own server, load generator (its benchmarks/load.py) and windvane.Client. The old one, commit
0d66128, is unpacked from the git history into a temporary folder and runs in the same environment, with its own cache
of compiled kernels. Without that commit, as in a shallow clone, only the new version is measured. All servers listen on
loopback. The versions take turns, and who is first changes, so that noise of the machine affects both. A ratio is the
median over the repeats, with its range. "ok": no repeat was slower; "MISS": all were; "open": the repeats disagree.

A pair is a decision and its reward: two requests, each answered when it is on disk. d = 10, K = 20, gamma = 0.999 after
20,000 rounds. BVD-GLM-UCB: the cost grows with the memory. OnePassGLM: it does not. UniformRandom: everything but the
model. Recovery: seconds from the start of the process until it is ready, after kill -9, with a snapshot and without.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import http.client
import io
import itertools
import json
import logging
import multiprocessing
import os
import shutil
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
import uvloop
from common import arms_and_luck, read_processor_seconds, theta_star

import windvane
from windvane import Agent, Client

OLD_COMMIT = "0d66128"
DIM, ARMS, ROUNDS = 10, 20, 20_000
POLICIES = {
    "bvd": {"policy": "BVD-GLM-UCB", "gamma": 0.999},
    "onepass": {"policy": "OnePassGLM", "gamma": 0.999},
    "random": {"policy": "UniformRandom"},
}
CONNECTIONS = (1, 16)
RECOVERED = "recovered"  # a stream without history, for the measurement of recovery
RECOVERED_PAIRS = 3000
MOST_RESTARTS = 3  # of each kind: without a snapshot, one takes ten seconds
START_SECONDS = 180.0  # the first start compiles kernels
LOAD_SECONDS = 300.0
ROOT = Path(__file__).parent.parent


# --- versions, each in processes of its own ------------------------------------------------------------------------


class Version(NamedTuple):
    """A checkout: ``benchmarks`` holds its load generator, ``environment`` makes Python import its package."""

    name: str
    benchmarks: Path
    environment: dict[str, str]

    @classmethod
    def of(cls, name: str, benchmarks: Path, source: Path, **more: str) -> Version:
        return cls(name, benchmarks, {**os.environ, "PYTHONPATH": str(source), **more})

    def run(self, *arguments: object) -> str:
        """Run a script with this version's package; return its standard output."""
        line = [sys.executable, *map(str, arguments)]
        done = subprocess.run(
            line, env=self.environment, check=True, timeout=LOAD_SECONDS, stdout=subprocess.PIPE, text=True
        )
        return done.stdout


NEW = Version.of("new", Path(__file__).parent, Path(windvane.__file__).parents[1])


def unpack_old(folder: Path) -> Version | None:
    """Return the version of :data:`OLD_COMMIT`, or None if the git history does not have it."""
    line = ["git", "-C", str(ROOT), "archive", OLD_COMMIT, "src", "benchmarks"]
    try:
        archive = subprocess.run(line, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
        tar.extractall(folder, filter="data")
    cache = {"WINDVANE_CACHE_DIR": str(folder / "cache"), "WINDVANE_QUIET": "1"}
    return Version.of("old", folder / "benchmarks", folder / "src", **cache)


class Server(NamedTuple):
    url: str
    pid: int

    def read_processor_seconds(self) -> float:
        """Return the processor time of the process so far."""
        return read_processor_seconds(self.pid)


@contextlib.contextmanager
def serve(version: Version, store: Path) -> Iterator[Server]:
    """Run ``windvane serve`` and yield it when it is ready; at the end kill it."""
    line = [sys.executable, "-m", "windvane.cli", "serve", "--store", str(store), "--port", "0", "--json"]
    with (
        store.with_suffix(".log").open("a+") as log,
        subprocess.Popen(line, stdout=subprocess.PIPE, stderr=log, text=True, env=version.environment) as process,
    ):
        try:
            assert process.stdout is not None
            first_line = process.stdout.readline()
            if not first_line:
                log.seek(0)
                raise RuntimeError(f"the {version.name} server did not start: {log.read().strip()[-500:]}")
            url = json.loads(first_line)["address"]
            wait_until_ready(url)
            yield Server(url, process.pid)
        finally:
            process.kill()


def wait_until_ready(url: str) -> None:
    end = time.monotonic() + START_SECONDS
    host = url.removeprefix("http://")
    while time.monotonic() < end:
        connection = http.client.HTTPConnection(host, timeout=5.0)
        with contextlib.suppress(OSError), contextlib.closing(connection):
            connection.request("GET", "/readyz")
            if connection.getresponse().status == 200:
                return
        time.sleep(0.01)
    raise TimeoutError("the server did not become ready")


# --- throughput ----------------------------------------------------------------------------------------------------


class Load:
    """What the load generator of a version measured against a server, over all repeats."""

    def __init__(self, version: Version | None = None) -> None:
        self._version = version or NEW
        self.rates: list[float] = []
        self.seconds: list[float] = []

    def run(self, url: str, stream: str, pairs: int, connections: int) -> None:
        sizes = ["--pairs", pairs, "--connections", connections, "--arms", ARMS, "--dim", DIM]
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder, "out.json")
            self._version.run(self._version.benchmarks / "load.py", url, stream, out, *sizes, "--seed", len(self.rates))
            result = json.loads(out.read_text())
        self.rates.append(pairs / result["elapsed"])
        self.seconds += result["seconds"]

    @property
    def rate(self) -> float:
        """Pairs a second: the median of the repeats."""
        return float(np.median(self.rates))

    def percentile(self, p: float) -> float:
        """Milliseconds of a request, over all repeats."""
        return 1e3 * float(np.percentile(self.seconds, p))


def prepare(url: str, policies: list[str]) -> None:
    """Create a stream for each policy and teach it history; runs in a process with the client of either version."""
    rng = np.random.default_rng(1)
    with Client(url, timeout=START_SECONDS) as client:  # kernels may have to be compiled
        client.create(RECOVERED, dim=DIM, **POLICIES["onepass"])
        for name in policies:
            client.create(name, dim=DIM, **POLICIES[name])
            for _ in range(0, ROUNDS, 2000):
                vectors, clicks = past(rng, 2000)
                client.history(name, clicks, vectors)


def past(rng: np.random.Generator, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Return vectors that were played, and clicks."""
    arms, luck = arms_and_luck(rng, rows, 1, DIM)
    x = arms[:, 0]
    return x, (luck < 1 / (1 + np.exp(-x @ theta_star(1, 3, DIM)))).astype(float)


def call(url: str, stream: str, pairs: int) -> None:
    """Print the pairs a second of windvane.Client, which sends one request after the other."""
    arms, _ = arms_and_luck(np.random.default_rng(2), pairs, ARMS, DIM)
    offers = [{f"arm{k}": row for k, row in enumerate(offer)} for offer in arms.tolist()]
    with Client(url) as client:
        client.reward(stream, client.decide(stream, offers[0]), 1.0)  # the connection is open from here on
        start = time.perf_counter()
        for offer in offers:
            client.reward(stream, client.decide(stream, offer), 1.0)
        print(pairs / (time.perf_counter() - start))


def play(agent: Agent, pairs: int) -> float:
    """Return the pairs a second of the Agent in this process: no HTTP, no store."""
    arms, luck = arms_and_luck(np.random.default_rng(3), 500, ARMS, DIM)
    clicks = luck[:, None] < 1 / (1 + np.exp(-arms @ theta_star(1, 3, DIM)))
    offers = [{f"arm{k}": row for k, row in enumerate(offer)} for offer in arms]
    start = time.perf_counter()
    for i in range(pairs):
        decision = agent.decide(offers[i % 500])
        agent.reward(decision, clicks[i % 500, decision.index])
    return pairs / (time.perf_counter() - start)


class Nothing(asyncio.Protocol):
    """Answers every request, which comes in one piece, with the same bytes."""

    BODY = b'{"id":"0123456789abcdef","arm":"arm7","index":7,"status":"recorded"}'
    ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(BODY), BODY)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport, self._missing = transport, 0

    def data_received(self, data: bytes) -> None:
        if not self._missing:
            head, _, body = data.partition(b"\r\n\r\n")
            self._missing = int(head[head.index(b"Content-Length: ") + 16 :]) - len(body)
        else:
            self._missing -= len(data)
        if not self._missing:
            self._transport.write(self.ANSWER)  # type: ignore[attr-defined]


def answer_nothing(address: Connection) -> None:
    async def run() -> None:
        listener = await asyncio.get_running_loop().create_server(Nothing, "127.0.0.1", 0)
        address.send(f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}")
        await listener.serve_forever()

    uvloop.run(run())


@contextlib.contextmanager
def serve_nothing() -> Iterator[str]:
    """The address of a server that does nothing, to measure the load generator itself."""
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=answer_nothing, args=(there,), daemon=True)
    process.start()
    try:
        yield here.recv()
    finally:
        process.terminate()
        process.join()


# --- recovery ------------------------------------------------------------------------------------------------------


def time_start(version: Version, store: Path) -> float:
    """Return the seconds from the start of a server until it is ready."""
    start = time.perf_counter()
    with serve(version, store):
        return time.perf_counter() - start


def copy_store(store: Path, folder: Path, *, with_snapshots: bool) -> Path:
    """Return a copy of the store of a server that was killed."""
    folder.mkdir()
    for file in store.parent.glob(f"{store.name}*"):
        shutil.copy(file, folder)
    copy = folder / store.name
    if not with_snapshots:
        with contextlib.closing(sqlite3.connect(copy)) as database, database:
            database.execute("DELETE FROM snapshots")
    return copy


# --- the run -------------------------------------------------------------------------------------------------------


class Figures:
    """Figures of each version, one for each repeat, by what was measured."""

    def __init__(self, versions: list[Version]) -> None:
        self._names = [version.name for version in versions]
        self._values: dict[str, dict[str, list[float]]] = {}

    def add(self, what: str, version: Version, value: float) -> None:
        self._values.setdefault(what, {name: [] for name in self._names})[version.name].append(value)

    def print(self, title: str, form: str, *, less_is_better: bool = False) -> None:
        """Print the medians, and with two versions the median and the range of their ratios."""
        print(f"\n{title:<52}" + "".join(f"{name:>9}" for name in self._names) + "   new/old" * (len(self._names) > 1))
        for what, values in self._values.items():
            verdict, ratio = "", ""
            if len(self._names) > 1:
                ratios = np.array(values["new"]) / np.array(values["old"])
                low, median, high = np.min(ratios), np.median(ratios), np.max(ratios)
                worst, best = (high, low) if less_is_better else (low, high)
                gains = [1.0 - x if less_is_better else x - 1.0 for x in (worst, best)]
                verdict = "ok" if gains[0] >= 0.0 else "MISS" if gains[1] < 0.0 else "open"
                ratio = f"   {median:.2f}x ({low:.2f} to {high:.2f})"
            medians = "".join(f"{format(float(np.median(values[name])), form):>9}" for name in self._names)
            print(f"{verdict:4}  {what:<46}{medians}{ratio}", flush=True)


def describe(policy: str, connections: int) -> str:
    return f"{POLICIES[policy]['policy']}, {connections} connection{'s' * (connections > 1)}"


def measure_throughput(versions: list[Version], folder: Path, options: argparse.Namespace) -> dict[str, Path]:
    """Print pairs a second and the time of a request. Return the stores, whose servers were killed."""
    rates, times, work = Figures(versions), Figures(versions), Figures(versions)
    stores = {version.name: folder / version.name / "windvane.db" for version in versions}
    with contextlib.ExitStack() as stack:
        servers = {}
        for version in versions:
            stores[version.name].parent.mkdir()
            server = servers[version.name] = stack.enter_context(serve(version, stores[version.name]))
            version.run(__file__, "--prepare", server.url, "--policies", *options.policies)
            for policy in options.policies:
                Load(version).run(server.url, policy, 100, 4)  # what is done once is not counted
        for repeat in range(options.repeats):
            in_turn = versions[:: -1 if repeat % 2 else 1]
            for policy, connections in itertools.product(options.policies, CONNECTIONS):
                for version in in_turn:
                    load, pairs = Load(version), options.pairs // (1 if connections > 1 else 4)
                    server = servers[version.name]
                    before = server.read_processor_seconds()
                    load.run(server.url, policy, pairs, connections)
                    spent = server.read_processor_seconds() - before
                    rates.add(describe(policy, connections), version, load.rate)
                    if spent > 0.0:
                        work.add(describe(policy, connections), version, 1e3 * spent / pairs)
                    times.add(f"{describe(policy, connections)}, p50", version, load.percentile(50))
                    times.add(f"{describe(policy, connections)}, p99", version, load.percentile(99))
            for version in in_turn:
                calls = version.run(
                    __file__, "--call", servers[version.name].url, options.policies[-1], options.pairs // 8
                )
                rates.add("windvane.Client, one request after the other", version, float(calls))
        for version in versions:
            Load(version).run(servers[version.name].url, RECOVERED, RECOVERED_PAIRS, 16)
    rates.print("pairs a second, durable", ",.0f")
    work.print("milliseconds of processor time of the server, a pair", ".2f", less_is_better=True)
    times.print("milliseconds of a request", ".1f", less_is_better=True)
    return stores


def measure_limits(policies: list[str]) -> None:
    """Print what bounds the figures: the load generator itself, and the Agent without HTTP and store."""
    load = Load()
    with serve_nothing() as url:
        load.run(url, "nothing", 2000, 16)
    print(f"the load generator against a server that does nothing: {load.rate:,.0f} pairs a second")
    for name in policies:
        agent, rng = Agent(dim=DIM, **POLICIES[name]), np.random.default_rng(1)
        for _ in range(0, ROUNDS, 2000):
            vectors, clicks = past(rng, 2000)
            agent.history(clicks, vectors)
        play(agent, 200)
        print(f"the Agent in-process, {POLICIES[name]['policy']}: {play(agent, 500):,.0f} pairs a second", flush=True)


def measure_recovery(versions: list[Version], stores: dict[str, Path], folder: Path, repeats: int) -> None:
    figures = Figures(versions)
    for repeat in range(repeats):
        for with_snapshots in (True, False):
            for version in versions[:: -1 if repeat % 2 else 1]:
                copy = folder / f"{version.name}-{repeat}-{with_snapshots}"
                store = copy_store(stores[version.name], copy, with_snapshots=with_snapshots)
                what = "after kill -9" if with_snapshots else "after kill -9, snapshots removed"
                figures.add(what, version, time_start(version, store))
    figures.print("seconds until the service is ready", ".2f", less_is_better=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=1600, help="of each repeat with 16 connections (default: 1600)")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--policies", nargs="+", choices=list(POLICIES), default=list(POLICIES))
    parser.add_argument("--new-only", action="store_true", help="do not measure the old version")
    parser.add_argument("--prepare", help=argparse.SUPPRESS)
    parser.add_argument("--call", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.prepare:
        prepare(options.prepare, options.policies)
        return
    if options.call:
        url, stream, pairs = options.call
        call(url, stream, int(pairs))
        return
    logging.getLogger("windvane").setLevel(logging.ERROR)  # BVD-GLM-UCB is at its norm bound here, and says so
    with tempfile.TemporaryDirectory(prefix="windvane-benchmark-") as temporary:
        folder = Path(temporary)
        old = None if options.new_only else unpack_old(folder / "checkout")
        if old is not None:
            try:
                print(f"compiling the kernels of {OLD_COMMIT}, once for this run", flush=True)
                time_start(old, folder / "compiled.db")
            except (RuntimeError, TimeoutError) as error:
                print(f"{error} in this environment", flush=True)
                old = None
        if old is None:
            print(f"measuring the new version alone: commit {OLD_COMMIT} is not available here", flush=True)
        versions = [NEW] if old is None else [NEW, old]
        time_start(NEW, folder / "warm.db")
        print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f} before the first measurement", flush=True)
        measure_limits(options.policies)
        stores = measure_throughput(versions, folder, options)
        measure_recovery(versions, stores, folder, min(options.repeats, MOST_RESTARTS))


if __name__ == "__main__":
    main()
