"""Versions of the service that benchmarks compare, each with its own server and load generator."""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from common import arms_and_luck, theta_star

import windvane

OLD_COMMIT = "0d66128"
DIM, ARMS, ROUNDS = 10, 20, 20_000
POLICIES = {
    "bvd": {"policy": "BVD-GLM-UCB", "gamma": 0.999},
    "onepass": {"policy": "OnePassGLM", "gamma": 0.999},
    "default": {"policy": "AdaptiveGLMUCB"},
    "random": {"policy": "UniformRandom"},
}
START_SECONDS = 180.0  # the first start compiles kernels
LOAD_SECONDS = 300.0
ROOT = Path(__file__).parent.parent


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


def time_start(version: Version, store: Path) -> float:
    """Return the seconds from the start of a server until it is ready."""
    start = time.perf_counter()
    with serve(version, store):
        return time.perf_counter() - start


class Load:
    """What the load generator of a version measured against a server, over all repeats."""

    def __init__(self, version: Version | None = None) -> None:
        self._version = version or NEW
        self.rates: list[float] = []
        self.elapsed = self.processor = 0.0  # seconds of all repeats, and of the load generator's processor time
        self.seconds: list[float] = []

    def run(self, url: str, stream: str, pairs: int, connections: int) -> None:
        sizes = ["--pairs", pairs, "--connections", connections, "--arms", ARMS, "--dim", DIM]
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder, "out.json")
            self._version.run(self._version.benchmarks / "load.py", url, stream, out, *sizes, "--seed", len(self.rates))
            result = json.loads(out.read_text())
        self.rates.append(pairs / result["elapsed"])
        self.elapsed += result["elapsed"]
        self.processor += result.get("processor", 0.0)
        self.seconds += result["seconds"]

    @property
    def rate(self) -> float:
        """Pairs a second: the median of the repeats."""
        return float(np.median(self.rates))

    def percentile(self, p: float) -> float:
        """Milliseconds of a request, over all repeats."""
        return 1e3 * float(np.percentile(self.seconds, p))


def past(rng: np.random.Generator, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Return vectors that were played, and clicks."""
    arms, luck = arms_and_luck(rng, rows, 1, DIM)
    x = arms[:, 0]
    return x, (luck < 1 / (1 + np.exp(-x @ theta_star(1, 3, DIM)))).astype(float)
