"""Measure the decision service, and an older commit of it, side by side: `python benchmarks/service.py`.

Each version has its own server, load generator (its benchmarks/load.py) and windvane.Client. The old one, commit
0d66128, is unpacked from the git history into a temporary folder and runs in the same environment, with its own cache
of compiled kernels. Without that commit, as in a shallow clone, only the new version is measured. All servers listen on
loopback. The versions take turns, and who is first changes, so that noise of the machine affects both. A ratio is the
median over the repeats, with its range. "ok": no repeat was slower; "MISS": all were; "open": the repeats disagree.

A pair is a decision and its reward: two requests, each answered when it is on disk. d = 10, K = 20, gamma = 0.999 after
20,000 rounds, 1 to 256 connections. BVD-GLM-UCB remembers 20,000 rounds, OnePassGLM none.
AdaptiveGLMUCB: the default policy. UniformRandom: everything but the model.

What limits the new version: the share of the time that the disk takes is what a second server saves whose store is in
memory. Beside it: how busy the event loop, the committing thread and the load generator were, and the share of all
cores that other processes took. The largest is named. On Linux only.

Recovery: seconds from the start of the process until it is ready, after kill -9, with a snapshot and without.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import logging
import os
import shutil
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
from common import arms_and_luck, say
from figures import Figures
from limits import Limits, measure_limits
from versions import (
    ARMS,
    DIM,
    NEW,
    OLD_COMMIT,
    POLICIES,
    ROUNDS,
    START_SECONDS,
    Load,
    Version,
    past,
    serve,
    time_start,
    unpack_old,
)

from windvane import Client

CONNECTIONS = (1, 16, 64, 256)
MEMORY = NEW._replace(name="memory")  # the new version with its store in memory
MEMORY_FOLDER = Path("/dev/shm")
RECOVERED = "recovered"  # a stream without history, for the measurement of recovery
RECOVERED_PAIRS = 3000
MOST_RESTARTS = 3  # of each kind: without a snapshot, one takes ten seconds


# --- streams ---


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


# --- recovery ---


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


# --- the run ---


def describe(policy: str, connections: int) -> str:
    return f"{POLICIES[policy]['policy']}, {connections} connection{'s' * (connections > 1)}"


class Throughput:
    """Loads of every policy, with every number of connections, on the servers of all versions in turn.

    ``memory``: a folder in memory, in which the new version has a second server; None: the system has none.
    """

    def __init__(self, versions: list[Version], folder: Path, memory: Path | None) -> None:
        self.versions = versions
        self._all = [*versions, MEMORY] if memory is not None else versions
        self.stores = {version.name: folder / version.name / "windvane.db" for version in versions}
        if memory is not None:
            self.stores[MEMORY.name] = memory / "windvane.db"
        self.rates, self.times, self.work = Figures(versions), Figures(versions), Figures(versions)
        self.limits = Limits()

    def measure(self, options: argparse.Namespace) -> None:
        """Start the servers, measure, and kill them."""
        with contextlib.ExitStack() as stack:
            self._servers = {}
            for version in self._all:
                self.stores[version.name].parent.mkdir(exist_ok=True)
                server = stack.enter_context(serve(version, self.stores[version.name]))
                version.run(__file__, "--prepare", server.url, "--policies", *options.policies)
                for policy in options.policies:
                    Load(version).run(server.url, policy, 100, 4)  # what is done once is not counted
                self._servers[version.name] = server
            for repeat in range(options.repeats):
                step = -1 if repeat % 2 else 1
                for policy, connections in itertools.product(options.policies, CONNECTIONS):
                    for version in self._all[::step]:
                        self._load(version, policy, connections, options.pairs // (1 if connections > 1 else 4))
                for version in self.versions[::step]:
                    url = self._servers[version.name].url
                    calls = version.run(__file__, "--call", url, options.policies[-1], options.pairs // 8)
                    self.rates.add("windvane.Client, one request after the other", version, float(calls))
            for version in self.versions:
                Load(version).run(self._servers[version.name].url, RECOVERED, RECOVERED_PAIRS, 16)

    def _load(self, version: Version, policy: str, connections: int, pairs: int) -> None:
        what, server, load = describe(policy, connections), self._servers[version.name], Load(version)
        with self.limits.watch(server, load) as costs:
            load.run(server.url, policy, pairs, connections)
        if version.name == MEMORY.name:
            self.limits.note_memory(what, load.rate)
            return
        self.rates.add(what, version, load.rate)
        if costs.server > 0.0:
            self.work.add(what, version, 1e3 * costs.server / pairs)
        for p in (50, 99):
            self.times.add(f"{what}, p{p}", version, load.percentile(p))
        if version.name == NEW.name:
            self.limits.note_disk(what, load.rate, costs)

    def print(self, policies: list[str]) -> None:
        self.rates.print("pairs a second, durable", ",.0f")
        self.work.print("milliseconds of processor time of the server, a pair", ".2f", less_is_better=True)
        self.times.print("milliseconds of a request", ".1f", less_is_better=True)
        self.limits.print()
        if len(self.versions) > 1:
            print(f"\ntargets, against {OLD_COMMIT} in this run")
            self._print_targets(policies)

    def _print_targets(self, policies: list[str]) -> None:
        for policy, other, least in (("bvd", "bvd", 2.2), ("default", "onepass", 1.6), ("random", "random", 1.0)):
            if {policy, other} <= {*policies}:
                new, old = describe(policy, 16), describe(other, 16)
                ratio = self.rates.compare(new, old)
                what = f"{new}: pairs a second{f' vs {old} of then' * (new != old)}"
                say(what, f"{ratio:.2f}x", f"at least {least}x", ratio >= least)
        for policy in policies:
            what = f"{describe(policy, 16)}, p99"
            ratio = self.times.compare(what, what)
            say(what, f"{ratio:.2f}x", "at most 0.5x", ratio <= 0.5)


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


@contextlib.contextmanager
def make_memory_folder() -> Iterator[Path | None]:
    """Yield a folder in memory, if the system has one."""
    if not MEMORY_FOLDER.is_dir():
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="windvane-benchmark-", dir=MEMORY_FOLDER) as folder:
        yield Path(folder)


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
        with make_memory_folder() as memory:
            throughput = Throughput(versions, folder, memory)
            throughput.measure(options)
        throughput.print(options.policies)
        measure_recovery(versions, throughput.stores, folder, min(options.repeats, MOST_RESTARTS))


if __name__ == "__main__":
    main()
