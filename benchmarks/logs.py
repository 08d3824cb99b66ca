"""How long the analyses of a log take: `python benchmarks/logs.py`. Each as a user runs it, imports included."""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from common import say

COMMAND = Path(sys.executable).with_name("windvane")
ARMS, FIELDS = 5, 3  # 1 + 5 * (1 + 3) = 21 coordinates
POLICIES = ("AdaptiveGLMUCB", "OFUL", "D-LinUCB(gamma=0.999)", "UniformRandom")


def write_log(path: Path, rows: int) -> None:
    """Write a log of a softmax policy in a world that turns once, with contexts, times and propensities."""
    rng = np.random.default_rng(0)
    context = rng.uniform(-1.0, 1.0, (rows, FIELDS))
    angle = 2.0 * np.pi * np.arange(rows) / rows
    phase = 2.0 * np.pi * np.arange(ARMS) / ARMS
    logits = -1.5 + 1.2 * np.cos(angle[:, None] + phase) * context[:, :1] + 0.5 * context[:, 1:2]
    p = np.exp(rng.normal(0.0, 0.5, (rows, ARMS)))
    p = 0.9 * p / p.sum(axis=1, keepdims=True) + 0.1 / ARMS
    arm = (p.cumsum(axis=1) < rng.random((rows, 1))).sum(axis=1)
    index = np.arange(rows)
    click = rng.random(rows) < 1.0 / (1.0 + np.exp(-logits[index, arm]))
    columns = {
        "time": 1_700_000_000.0 + 60.0 * index,
        "arm": np.array([f"arm{i}" for i in range(ARMS)])[arm],
        "reward": click.astype(float),
        "propensity": p[index, arm],
        **{f"field{i}": context[:, i] for i in range(FIELDS)},
    }
    pq.write_table(pa.table(columns), path)


def timed(*arguments: str, folder: Path) -> float:
    began = time.perf_counter()
    subprocess.run([COMMAND, *arguments, "--json"], check=True, capture_output=True, cwd=folder)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=100_000)
    rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_log(folder / "small.parquet", 2000)
        write_log(folder / "log.parquet", rows)
        write_log(folder / "large.parquet", 10 * rows)
        policies = [word for policy in POLICIES for word in ("--policy", policy)]
        for verb, more in (("check", []), ("drift", []), ("replay", policies)):
            timed(verb, "small.parquet", *more, folder=folder)  # compiles, if nothing has yet
        empty = min(timed("check", "small.parquet", folder=folder) for _ in range(3))
        whole = timed("check", "large.parquet", folder=folder)
        speed = 9.98 * rows / (whole - empty)
        say(
            f"check, {10 * rows:,} rows of Parquet, without the start of Python",
            f"{speed:,.0f} rows/s",
            "100,000",
            speed >= 1e5,
        )
        for verb, more in (("drift", []), ("replay", policies)):
            seconds = timed(verb, "log.parquet", *more, folder=folder)
            say(f"{verb}, {rows:,} rows, d = 21", f"{seconds:.1f} s", "60 s", seconds <= 60)
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6
        say("largest memory of any of these commands", f"{peak:.2f} GB", "1 GB", peak < 1.0)


if __name__ == "__main__":
    main()
