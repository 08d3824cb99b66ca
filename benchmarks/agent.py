"""Measure a decision and its reward in the Agent, and what its parts take: `python benchmarks/agent.py`.

    python benchmarks/agent.py                 this version alone
    python benchmarks/agent.py --old FOLDER    and another checkout, such as a git worktree of an earlier commit

Each version runs in a process of its own. The versions take turns in chunks of pairs, and who is first changes. Times
are of the processor, not of the clock, so that other processes disturb them less. A ratio is the median of the chunks.

Two arms, six context fields with ranges (d = 15), rewards on arrival; "vectors": 20 arms of ten numbers each. A part is
the time within one method without that in the other methods listed; the timers' own time is subtracted.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import windvane
from windvane import Agent, Features

CHUNK = 200  # pairs that a version plays before the other one does
KEPT = 1000  # different offers; they are offered again and again
FIELDS = [f"field {i}" for i in range(6)]
SETTINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "OnePassGLM": {"policy": "OnePassGLM", "gamma": 0.999},
    "UniformRandom": {"policy": "UniformRandom"},
}
VECTORS = ", vectors"
PARTS = {
    "decide: lock, id, clock, alerts": ("agent", "decide"),
    "decide: features": ("core", "offer"),
    "decide: timeouts, record, statistics": ("core", "decide"),
    "decide: policy, choice": ("policy", "select"),
    "decide: policy, checks": ("policy", "check_arms"),
    "decide: policy, assessment of the arms": ("bank", "assess"),
    "decide: policy, ageing": ("bank", "age"),
    "reward: lock, id, clock": ("agent", "reward"),
    "reward: timeouts, closing, statistics": ("core", "reward"),
    "reward: policy, call": ("policy", "update"),
    "reward: policy, checks": ("policy", "check_feedback"),
    "reward: policy, learning": ("bank", "absorb"),
    "reward: calibration": ("calibration", "add"),
}


class Game:
    """An agent, and the offers and labels that it plays over and over."""

    def __init__(self, name: str) -> None:
        rng, settings = np.random.default_rng(0), SETTINGS[name.removesuffix(VECTORS)]
        self.next = 0
        self.offers: list[dict[str, Any]]
        if name.endswith(VECTORS):
            vectors = rng.normal(size=(KEPT, 20, 10))
            vectors /= 1.01 * np.linalg.norm(vectors, axis=2, keepdims=True)
            self.offers = [{"arms": {f"arm {k}": x for k, x in enumerate(rows)}} for rows in vectors.tolist()]
            self.best = ["arm 0"] * KEPT
            self.agent = Agent(dim=10, **settings)
        else:
            numbers = rng.uniform(-1.0, 1.0, (KEPT, len(FIELDS)))
            self.offers = [{"context": dict(zip(FIELDS, row, strict=True))} for row in numbers.tolist()]
            self.best = np.where(numbers[:, 0] > 0.0, "left", "right").tolist()
            ranges = dict.fromkeys(FIELDS, (-1.0, 1.0))
            self.agent = Agent(features=Features(by_arm=ranges, arms=["left", "right"]), **settings)

    def play(self, pairs: int) -> float:
        """Return the seconds of processor time of a pair."""
        agent, began = self.agent, time.process_time()
        for place in range(self.next, self.next + pairs):
            decision = agent.decide(**self.offers[place % KEPT])
            agent.reward(decision, float(decision.arm == self.best[place % KEPT]))
        self.next += pairs
        return (time.process_time() - began) / pairs


# --- parts ---------------------------------------------------------------------------------------------------------


class Timers:
    """Times functions, each without the timed functions that it calls."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {}  # of each call
        self.callers: dict[str, list[str]] = {}  # of each call that another timed function made
        self.running: list[tuple[str, float]] = []  # with the seconds of inner calls so far

    def wrap(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``function`` with a timer."""
        clock, running = time.perf_counter, self.running
        seconds, callers = self.seconds.setdefault(name, []), self.callers.setdefault(name, [])

        def timed(*arguments: Any, **keywords: Any) -> Any:
            running.append((name, 0.0))
            began = clock()
            try:
                return function(*arguments, **keywords)
            finally:
                elapsed = clock() - began
                seconds.append(elapsed - running.pop()[1])
                if running:
                    caller, inner = running.pop()
                    running.append((caller, inner + elapsed))
                    callers.append(caller)

        return timed

    def per_pair(self, pairs: int) -> dict[str, float]:
        """Return the seconds of each function in a pair, from the median of its calls, without those of the timers."""
        own, around = measure_timer()
        inner = Counter(caller for callers in self.callers.values() for caller in callers)
        return {
            name: (len(calls) * (float(np.median(calls)) - own) - inner[name] * around) / pairs
            for name, calls in self.seconds.items()
            if calls
        }


def measure_timer() -> tuple[float, float]:
    """Return the seconds that a timer adds to the function that it times, and to the timed caller of that."""
    timers = Timers()
    inner = timers.wrap("inner", object)

    def call_inner() -> None:
        inner()

    def call_plain() -> None:
        object()

    for function in (timers.wrap("outer", call_inner), timers.wrap("plain", call_plain)):
        for _ in range(2000):
            function()
    inner_s, outer, plain = (float(np.median(timers.seconds[name])) for name in ("inner", "outer", "plain"))
    call = plain - inner_s  # of a Python function, as long as that of a built-in one
    return inner_s - call, outer - plain + call


def measure_parts(game: Game, pairs: int) -> dict[str, float]:
    """Return the seconds of each part in a pair."""
    agent, timers = game.agent, Timers()
    core = agent.core
    owners = {"agent": agent, "core": core, "policy": core.policy, "calibration": core.calibration}
    owners["bank"] = getattr(core.policy, "bank", None)  # only the default policy has one
    for name, (owner, method) in PARTS.items():
        if hasattr(owners[owner], method):
            setattr(owners[owner], method, timers.wrap(name, getattr(owners[owner], method)))
    game.play(pairs)
    return timers.per_pair(pairs)


# --- versions ------------------------------------------------------------------------------------------------------


def answer() -> None:
    """Answer questions on standard input: a JSON list [kind, game, pairs] in a line, and so the answer."""
    logging.getLogger("windvane").setLevel(logging.ERROR)  # an agent warns while its calibration is off
    games: dict[str, Game] = {}
    for line in sys.stdin:
        kind, name, pairs = json.loads(line)
        if name not in games:
            games[name] = Game(name)
            games[name].play(KEPT)  # compiles, and lets the record of closed decisions grow
        print(json.dumps(games[name].play(pairs) if kind == "play" else measure_parts(games[name], pairs)), flush=True)


class Version:
    """A checkout, played in a process of its own."""

    def __init__(self, source: Path) -> None:
        environment = os.environ | {"PYTHONPATH": str(source), "OPENBLAS_NUM_THREADS": "1", "WINDVANE_QUIET": "1"}
        line = [sys.executable, __file__, "--answer"]
        self.process = subprocess.Popen(line, env=environment, text=True, stdin=-1, stdout=-1)

    def ask(self, *question: Any) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps(question), file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())

    def close(self) -> None:
        self.process.communicate()


def compare(versions: dict[str, Version], chunks: int) -> None:
    """Print the time of a pair for every policy and kind of offer."""
    for name in [policy + kind for kind in ("", VECTORS) for policy in SETTINGS]:
        seconds: dict[str, list[float]] = {version: [] for version in versions}
        for chunk in range(chunks):
            for version in list(versions)[:: -1 if chunk % 2 else 1]:
                seconds[version].append(versions[version].ask("play", name, CHUNK))
        text = "   ".join(f"{version} {1e6 * np.median(times):6.1f} µs" for version, times in seconds.items())
        if "old" in seconds:
            text += f"   new/old {np.median(np.divide(seconds['new'], seconds['old'])):.2f}x"
        print(f"{name:<24} {text}", flush=True)


def list_parts(versions: dict[str, Version], pairs: int) -> None:
    """Print the parts of a pair of the default policy."""
    parts = {version: process.ask("parts", "default", pairs) for version, process in versions.items()}
    print(f"\n{'default: µs of a pair':<42}" + "".join(f"{version:>8}" for version in versions))
    for name in PARTS:
        print(f"{name:<42}" + "".join(f"{1e6 * parts[version].get(name, 0.0):>8.1f}" for version in versions))
    print(f"{'together':<42}" + "".join(f"{1e6 * sum(times.values()):>8.1f}" for times in parts.values()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", type=Path, help="a checkout of another version")
    parser.add_argument("--chunks", type=int, default=60, help="chunks of 200 pairs (default: 60)")
    parser.add_argument("--answer", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.answer:
        answer()
        return
    versions = {"new": Version(Path(windvane.__file__).parents[1])}
    if options.old:
        versions = {"old": Version(options.old.resolve() / "src"), **versions}
    try:
        compare(versions, options.chunks)
        list_parts(versions, options.chunks * CHUNK)
    finally:
        for version in versions.values():
            version.close()


if __name__ == "__main__":
    main()
