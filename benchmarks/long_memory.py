"""What a long memory costs, beside another checkout in the same run: `python benchmarks/long_memory.py --other PYTHON`.

PYTHON is the interpreter of an environment where the version to compare with is installed. Both versions play the same
worlds in processes of their own, in turns of one chunk, so that noise affects both. Times are processor times, because
the machine may be shared. `--quick` ages the agents less.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
from common import arms_and_luck, say, theta_star

import windvane

PAIRS, CHUNK = 2000, 100  # timed pairs of a decision and a reward, and how many a process plays in a turn
PLAYED, BATCH = 3000, 1000  # last rounds of an aged world, which are played; rounds that are added at a time before
TURN = 40_000  # rounds in which theta* turns by a right angle and back


class World:
    """An agent or a policy, aged by playing, in a world whose parameter turns to and fro every ``turn`` rounds.

    With ``repeats`` the same offers and clicks come again and again, as in ``benchmarks/service.py``: the estimate
    then leaves the ball, and every decision needs a projection. ``length`` is that of theta*, for S = 1: what an agent
    meets whose S is too small.
    """

    def __init__(
        self,
        kind: str,
        dim: int,
        K: int,
        gamma: float,
        lanes: int,
        age: int,
        turn: int = TURN,
        repeats: int = 0,
        before: int = 0,
        length: float = 1.0,
    ) -> None:
        self.kind, self.dim, self.K, self.lanes, self.t = kind, dim, K, lanes, 0
        self.turn, self.repeats, self.length = turn, repeats, length
        self.rng = np.random.default_rng([dim, K])
        if kind == "agent":
            self.agent = windvane.Agent(dim=dim, policy="BVD-GLM-UCB", gamma=gamma)
        else:
            self.policy = windvane.BVDGLMUCB(dim, gamma=gamma, lanes=lanes)
        if before:  # an older agent, which then lives through the same rounds as a younger one
            self.fill(before, 0)
            self.rng = np.random.default_rng([dim, K])
        if age:
            self.fill(age, min(age, PLAYED))

    def fill(self, age: int, played: int) -> None:
        """Age the world with random arms, and then with what it plays, which is what most of it remembers."""
        for first in range(0, age - played, BATCH):
            n = min(BATCH, age - played - first)
            arms, luck = arms_and_luck(self.rng, n, 1, self.dim)
            theta = np.array([self.theta() for _ in range(n)])
            clicks = (luck < 1 / (1 + np.exp(-np.einsum("nd,nd->n", arms[:, 0], theta)))).astype(float)
            if self.kind == "agent":
                if hasattr(self.agent, "update_many"):  # in commit 0d66128
                    self.agent.update_many(arms[:, 0], clicks)
                else:
                    self.agent.history(clicks, arms[:, 0])
                continue
            for x, click in zip(arms, clicks, strict=True):
                self.policy.advance(1)
                x = np.repeat(x, self.lanes, axis=0)
                self.policy.update(x, np.full(self.lanes, click), round=self.policy.t - 1.0)
        self.play(played)

    def theta(self) -> np.ndarray:
        phase = self.t % (2 * self.turn)
        self.t += 1
        return self.length * theta_star(min(phase, 2 * self.turn - phase), self.turn, self.dim)

    def play(self, pairs: int) -> list[float]:
        """Play and return the processor seconds of each decision with its reward."""
        seconds = []
        for _ in range(pairs):
            if self.repeats and self.t % self.repeats == 0:
                self.rng = np.random.default_rng(3)
            arms, luck = arms_and_luck(self.rng, self.lanes, self.K, self.dim)
            click = 1 / (1 + np.exp(-arms @ self.theta()))
            if self.kind == "agent":
                offered = {str(k): arms[0, k] for k in range(self.K)}
                began = time.process_time()
                decision = self.agent.decide(offered)
                self.agent.reward(decision, float(luck[0] < click[0, int(decision.arm)]))
            else:
                rows = np.arange(self.lanes)
                began = time.process_time()
                choice = self.policy.select(arms)
                self.policy.update(arms[rows, choice], (luck < click[rows, choice]).astype(float))
            seconds.append(time.process_time() - began)
        return seconds


def work() -> None:
    """Obey one command a line: a world to make, or a number of pairs to play in it."""
    worlds: dict[str, World] = {}
    for line in sys.stdin:
        name, command = json.loads(line)
        if isinstance(command, int):
            print(json.dumps(worlds[name].play(command)), flush=True)
        elif command is None:
            del worlds[name]
        else:
            worlds[name] = World(**command)
            print("ready", flush=True)


class Version:
    """A process that plays with one version."""

    def __init__(self, python: str) -> None:
        self.process = subprocess.Popen(
            [python, __file__, "--work"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def send(self, name: str, command: Any) -> None:
        assert self.process.stdin is not None
        print(json.dumps([name, command]), file=self.process.stdin, flush=True)

    def read(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            sys.exit("a process ended early")
        return line

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def measure(players: dict[str, tuple[Version, dict[str, Any]]], pairs: int) -> dict[str, np.ndarray]:
    """Let every player play ``pairs`` pairs, in turns. Return the seconds of each pair, by player."""
    for name, (version, command) in players.items():
        version.send(name, command)
        version.read()
    seconds: dict[str, list[float]] = {name: [] for name in players}
    for _ in range(0, pairs, CHUNK):
        for name, (version, _) in players.items():
            version.send(name, CHUNK)
            seconds[name] += json.loads(version.read())
    for name, (version, _) in players.items():
        version.send(name, None)
    return {name: np.array(values) for name, values in seconds.items()}


def show(name: str, seconds: np.ndarray) -> None:
    mean, median, slow = seconds.mean() * 1e6, np.median(seconds) * 1e6, np.quantile(seconds, 0.99) * 1e6
    print(f"      {name:<46} mean {mean:8.1f} µs   median {median:8.1f} µs   p99 {slow:8.1f} µs", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--other", metavar="PYTHON", help="interpreter of the version to compare with")
    parser.add_argument("--quick", action="store_true", help="age the agents by fewer rounds")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        work()
        return
    new = Version(sys.executable)
    old = Version(arguments.other) if arguments.other else None
    young = 6_000 if arguments.quick else 25_000
    before = 2 * TURN  # theta* is in the same place again
    pairs = 500 if arguments.quick else PAIRS

    def agent(gamma: float, age: int, **world: Any) -> dict[str, Any]:
        return {"kind": "agent", "dim": 10, "K": 20, "gamma": gamma, "lanes": 1, "age": age, **world}

    worlds: dict[str, dict[str, Any]] = {
        "theta* turns": {},
        "offers repeat": {"turn": 10**9, "repeats": 500},
        "theta* far outside the ball": {"length": 2.5},
    }
    for what, world in worlds.items():
        players = {
            "new": (new, agent(0.999, young, **world)),
            "new, older": (new, agent(0.999, young, before=before, **world)),
        }
        players |= {f"new, {gamma}": (new, agent(gamma, young, before=before, **world)) for gamma in (0.99, 0.9999)}
        if old:
            players["old"] = (old, agent(0.999, young, **world))
        seconds = measure(players, pairs)
        for name, values in seconds.items():
            show(f"Agent d=10 K=20, {what}: {name}", values)
        mean = {name: values.mean() for name, values in seconds.items()}
        if old:
            ratio = mean["old"] / mean["new"]
            say(f"{what}, gamma=0.999, t={young}: pairs a second, new vs old", f"{ratio:.2f}x", "5x", ratio >= 5)
        ratio = mean["new, older"] / mean["new"]
        say(f"{what}, gamma=0.999: pair at t={young + before} vs t={young}", f"{ratio:.2f}x", "1.1x", ratio <= 1.1)
        ratio = mean["new, 0.9999"] / mean["new, 0.99"]
        say(f"{what}: pair at gamma=0.9999 vs gamma=0.99", f"{ratio:.2f}x", "1.5x", ratio <= 1.5)
    paper = {"kind": "policy", "dim": 2, "K": 10, "gamma": 0.995908, "lanes": 50, "age": 0}
    players = {"new": (new, paper)} | ({"old": (old, paper)} if old else {})
    seconds = measure(players, 3000)
    for name, values in seconds.items():
        show(f"d=2 K=10 T=3000, 50 lanes, lane-round: {name}", values / 50)
    if old:
        ratio = seconds["old"].mean() / seconds["new"].mean()
        say("the paper's setting, 50 lanes: new vs old", f"{ratio:.2f}x", "1.87x", ratio >= 11.2 / 6)
    for version in filter(None, (new, old)):
        version.close()


if __name__ == "__main__":
    main()
