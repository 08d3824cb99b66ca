"""A drifting world and four policies: the setting of Faury et al. (2021), 50 runs side by side.

theta* stands at (1, 0) for a third of the time, turns to (0, 1) during the second third, and stays there. Each round
offers ten fresh arms, uniform in the unit disc; a click comes with probability 1 / (1 + exp(-<x, theta*>)).

    python examples/four_policies.py [--runs 50] [--horizon 3000] [--seed 0]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

import numpy as np

import windvane


def theta_star(t: int, horizon: int) -> np.ndarray:
    angle = np.pi / 2 * np.clip(3 * t / horizon - 1, 0, 1)
    return np.array([np.cos(angle), np.sin(angle)])


def simulate(
    policy: windvane.Policy, horizon: int, seed: int, progress: Callable[[int], None]
) -> tuple[np.ndarray, float, float]:
    """Final regret per run, microseconds per run and round, and how often theta_hat lay outside the unit disc."""
    rng = np.random.default_rng(seed)  # the same for every policy: they all see the same arms and the same luck
    runs = np.arange(policy.lanes)
    regret, outside, spent = np.zeros(policy.lanes), 0, 0.0
    for t in range(1, horizon + 1):
        arms = rng.normal(size=(policy.lanes, 10, 2))
        arms *= np.sqrt(rng.random((policy.lanes, 10, 1))) / np.linalg.norm(arms, axis=2, keepdims=True)
        click = 1 / (1 + np.exp(-arms @ theta_star(t, horizon)))
        luck = rng.random(policy.lanes)
        began = time.perf_counter()
        choice = policy.select(arms)
        policy.update(arms[runs, choice], luck < click[runs, choice])
        spent += time.perf_counter() - began
        regret += click.max(axis=1) - click[runs, choice]
        outside += int((np.linalg.norm(policy.info()["theta_hat"], axis=1) > 1).sum()) if t % 10 == 0 else 0
        progress(t)
    return regret, 1e6 * spent / (policy.lanes * horizon), 10 * outside / (policy.lanes * horizon)


def bar(name: str, horizon: int) -> Callable[[int], None]:
    def show(t: int) -> None:
        if sys.stderr.isatty() and (t % 50 == 0 or t == horizon):
            filled = "#" * (30 * t // horizon)
            end = "\r" if t < horizon else "\r" + " " * 70 + "\r"
            print(f"{name:>12} [{filled:<30}] {t:>6}/{horizon}", end=end, file=sys.stderr, flush=True)

    return show


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--horizon", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    T, runs = options.horizon, options.runs
    path = np.array([theta_star(t, T) for t in range(1, T + 1)])
    drift = float(np.linalg.norm(np.diff(path, axis=0), axis=1).sum())
    common = {"dim": 2, "lanes": runs, "seed": options.seed}
    policies = [
        windvane.OFUL(**common),
        windvane.DLinUCB(horizon=T, drift=drift, **common),
        windvane.GLMUCB(**common),
        windvane.BVDGLMUCB(horizon=T, drift=drift, **common),
    ]
    print(f"{runs} runs of {T} rounds; drift B_T = {drift:.4f}, discount {policies[-1].gamma[0]:.6f}\n")
    print(f"{'policy':<12} {'regret':>8} {'± se':>6} {'sd':>7} {'outside':>8} {'µs/round':>9}")
    for policy in policies:
        regret, cost, outside = simulate(policy, T, options.seed, bar(policy.name, T))
        sd = regret.std(ddof=1) if runs > 1 else 0.0
        line = f"{policy.name:<12} {regret.mean():>8.1f} {sd / runs**0.5:>6.1f} {sd:>7.1f} {outside:>7.0%} {cost:>9.1f}"
        print(line, flush=True)
    print("\nregret: reward lost to the best arm of each round, mean over runs, with its standard error and spread;")
    print("outside: share of rounds (every tenth is looked at) with the estimate outside ||theta|| <= 1;")
    print("µs/round: select and update together, per run, the first call's compilation included.")


if __name__ == "__main__":
    main()
