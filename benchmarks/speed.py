"""How fast a round is, beside the literal transcription in the same process: `python benchmarks/speed.py`.

Times are of select and update together. Every line is a ratio of two things measured in this run, since machines are
noisy; the absolute figures are printed beside it. The oracle's cost grows with t, so it is sampled along a whole run.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
from common import arms_and_luck, drive, drive_in_turn, drive_naive, say

import naive  # found through common
import windvane

MOST_OF_BVD = 6 / 11  # target for the time of AdaptiveGLMUCB per lane and round, relative to BVD-GLM-UCB
MOST_MILLISECONDS = 3.0  # target for a decision and its reward in the default Agent with hundreds of coordinates


def compare_with_naive(dim: int, K: int, T: int, checkpoints: int, target: float, limit: float | None) -> None:
    lanes, cores = 50, windvane.get_threads()
    setting = f"d={dim} K={K} T={T} {lanes} lanes"
    slow = drive_naive(naive.NaiveBVDGLMUCB(dim, gamma=0.995908), T, K, dim, 0, checkpoints)
    cost = {}
    for threads in (cores, 1):
        windvane.set_threads(threads)
        policy = windvane.BVDGLMUCB(dim, gamma=0.995908, lanes=lanes)
        cost[threads] = drive(policy, T, K, 0).mean() / lanes
    windvane.set_threads(cores)
    fast, us = cost[cores], 1e6
    ratio = slow / fast
    figure = f"{ratio:.0f}x ({fast * us:.1f} against {slow * us:.0f} µs)"
    say(f"{setting}: lane-round, {cores} threads, vs transcription", figure, f"{target:.0f}x", ratio >= target)
    if limit is not None:
        say(f"{setting}: lane-round, {cores} threads", f"{fast * us:.1f} µs", f"{limit:g} µs", fast * us <= limit)
    print(f"      {setting}: lane-round, 1 thread {cost[1] * us:.1f} µs ({slow / cost[1]:.0f}x)")


class NumPyDLinUCB:
    """A plain, well-written NumPy D-LinUCB for one stream: what the one-lane figure is put beside."""

    def __init__(self, dim: int, gamma: float) -> None:
        self.dim, self.gamma, self.t = dim, gamma, 1
        self.lane_count = 1
        self.V, self.V_tilde, self.b, self.eye = np.eye(dim), np.eye(dim), np.zeros(dim), np.eye(dim)

    def select(self, arms: np.ndarray) -> np.ndarray:
        X, g2 = arms[0], self.gamma**2
        inverse = np.linalg.inv(self.V)
        ratio = (1 - g2**self.t) / (self.dim * (1 - g2))
        beta = 1 + 0.5 * np.sqrt(2 * np.log(20) + self.dim * np.log(1 + ratio))
        Y = X @ inverse
        score = Y @ self.b + beta * np.sqrt(np.einsum("ki,ij,kj->k", Y, self.V_tilde, Y))
        self.t += 1
        return np.array([np.argmax(score)])

    def update(self, x: np.ndarray, reward: np.ndarray) -> None:
        outer = np.outer(x[0], x[0])
        self.V = self.gamma * self.V + outer + (1 - self.gamma) * self.eye
        self.V_tilde = self.gamma**2 * self.V_tilde + outer + (1 - self.gamma**2) * self.eye
        self.b = self.gamma * self.b + reward[0] * x[0]


def one_lane() -> None:
    policies = {
        "NumPy": NumPyDLinUCB(2, 0.995908),
        "BVD-GLM-UCB": windvane.BVDGLMUCB(2, gamma=0.995908),
        "D-LinUCB": windvane.DLinUCB(2, gamma=0.995908),
        "AdaptiveGLMUCB": windvane.AdaptiveGLMUCB(2, S=1.0),
    }
    seconds = drive_in_turn(policies, 3000, 10, 0)
    plain = np.median(seconds["NumPy"])
    setting = "d=2 K=10 T=3000 one lane, round, vs D-LinUCB in NumPy"
    # The cost of BVD-GLM-UCB depends on the round, so its mean time is compared.
    for name, own, most in (
        ("BVD-GLM-UCB", seconds["BVD-GLM-UCB"].mean(), 1.0),
        ("D-LinUCB", np.median(seconds["D-LinUCB"]), 0.5),
        ("AdaptiveGLMUCB", np.median(seconds["AdaptiveGLMUCB"]), 1.5),
    ):
        figure = f"{own / plain:.2f}x ({own * 1e6:.1f} against {plain * 1e6:.1f} µs)"
        say(f"{setting}: {name}", figure, f"{most}x", own <= most * plain)


def many_lanes() -> None:
    """Compare the default policy with BVD-GLM-UCB: time per lane and round."""
    lanes = 50
    policies = {
        "BVD-GLM-UCB": windvane.BVDGLMUCB(2, gamma=0.995908, lanes=lanes),
        "AdaptiveGLMUCB": windvane.AdaptiveGLMUCB(2, S=1.0, lanes=lanes),
    }
    seconds = drive_in_turn(policies, 3000, 10, 0)
    bvd, adaptive = (np.median(seconds[name]) / lanes for name in policies)
    figure = f"{adaptive / bvd:.2f}x ({adaptive * 1e6:.1f} against {bvd * 1e6:.1f} µs)"
    what = f"d=2 K=10 T=3000 {lanes} lanes: lane-round, AdaptiveGLMUCB vs BVD-GLM-UCB"
    say(what, figure, f"{MOST_OF_BVD:.2f}x", adaptive <= MOST_OF_BVD * bvd)


def default_agent(what: str, features: windvane.Features, pairs: int) -> None:
    """Measure a decision and its reward in the default Agent with many coordinates."""
    agent, rng = windvane.Agent(features=features), np.random.default_rng(0)
    names = [field.name for field in (*features.shared, *features.by_arm)]
    seconds = []
    for _ in range(pairs):
        context = dict(zip(names, rng.uniform(-1.0, 1.0, len(names)).tolist(), strict=True))
        began = time.perf_counter()
        decision = agent.decide(context=context)
        agent.reward(decision, float(rng.random() < 0.5))
        seconds.append(time.perf_counter() - began)
    pair = np.median(seconds) * 1e3
    what = f"default Agent, {what} (d={features.dim}): decision + reward"
    say(what, f"{pair:.2f} ms", f"{MOST_MILLISECONDS:g} ms", pair <= MOST_MILLISECONDS)


def many_coordinates(pairs: int) -> None:
    ranges = {f"field {i}": (-1.0, 1.0) for i in range(200)}
    own = dict(list(ranges.items())[:10])
    default_agent("30 arms, 10 by_arm", windvane.Features(by_arm=own, arms=range(30)), pairs)
    default_agent("5 arms, 200 shared", windvane.Features(shared=ranges, arms=range(5)), pairs)


def flat_in_time() -> None:
    """Two policies, aged 20,000 and 100,000 rounds, timed in alternation so that noise hits both alike."""
    young, old = (windvane.BVDGLMUCB(2, gamma=0.995, lanes=4) for _ in range(2))
    drive(young, 20_000, 10, 0)
    drive(old, 100_000, 10, 0)
    rng = np.random.default_rng(1)
    seconds: dict[str, list[float]] = {"young": [], "old": []}
    for _ in range(3000):
        arms, luck = arms_and_luck(rng, 4, 10, 2)
        for name, policy in (("young", young), ("old", old)):
            began = time.perf_counter()
            choice = policy.select(arms)
            policy.update(arms[np.arange(4), choice], (luck < 0.5).astype(float))
            seconds[name].append(time.perf_counter() - began)
    ratio = np.mean(seconds["old"]) / np.mean(seconds["young"])
    kept = [int(policy.estimator.remembered.max()) for policy in (young, old)]
    size = [policy.estimator.history.nbytes for policy in (young, old)]
    figure = f"{ratio:.2f}x ({np.mean(seconds['old']) * 2.5e5:.1f} µs)"
    say("gamma=0.995: round at t=100,000 vs at t=20,000", figure, "1.3x", ratio <= 1.3)
    say(
        "gamma=0.995: memory at t=100,000 vs at t=20,000",
        f"{size[1] / size[0]:.2f}x ({kept[1]} rounds)",
        "1x",
        size[1] <= size[0],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="use fewer checkpoints of the oracle and fewer decisions")
    quick = parser.parse_args().quick
    windvane.warm_up()
    one_lane()
    many_lanes()
    many_coordinates(20 if quick else 100)
    compare_with_naive(2, 10, 3000, 40 if quick else 150, target=600, limit=6)
    compare_with_naive(20, 50, 2000, 40 if quick else 200, target=100, limit=None)
    flat_in_time()


if __name__ == "__main__":
    main()
