"""A drifting world and four policies: the setting of Faury et al. (2021), 50 runs side by side.

theta* stands at (1, 0) for a third of the time, turns to (0, 1) during the second third, and stays there. Each round
offers ten fresh arms, uniform in the unit disc; a click comes with probability 1 / (1 + exp(-<x, theta*>)).

    python examples/four_policies.py [--runs 50] [--horizon 3000] [--seed 0] [--figure regret.svg]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

import windvane


class Outcome(NamedTuple):
    """What one policy did over all runs."""

    regret: np.ndarray  # [rounds, runs], cumulative
    microseconds: float  # per run and round, select and update together
    outside: float  # share of rounds with the estimate outside the unit disc


def theta_star(t: int, horizon: int) -> np.ndarray:
    angle = np.pi / 2 * np.clip(3 * t / horizon - 1, 0, 1)
    return np.array([np.cos(angle), np.sin(angle)])


def simulate(policy: windvane.Policy, horizon: int, seed: int, progress: Callable[[int], None]) -> Outcome:
    rng = np.random.default_rng(seed)  # the same for every policy: they all see the same arms and the same luck
    runs = np.arange(policy.lanes)
    regret = np.zeros((horizon, policy.lanes))
    outside, spent = 0, 0.0
    for t in range(1, horizon + 1):
        arms = rng.normal(size=(policy.lanes, 10, 2))
        arms *= np.sqrt(rng.random((policy.lanes, 10, 1))) / np.linalg.norm(arms, axis=2, keepdims=True)
        click = 1 / (1 + np.exp(-arms @ theta_star(t, horizon)))
        luck = rng.random(policy.lanes)
        began = time.perf_counter()
        choice = policy.select(arms)
        policy.update(arms[runs, choice], luck < click[runs, choice])
        spent += time.perf_counter() - began
        regret[t - 1] = click.max(axis=1) - click[runs, choice]
        outside += int((np.linalg.norm(policy.last["theta_hat"], axis=1) > 1).sum())
        progress(t)
    total = policy.lanes * horizon
    return Outcome(regret.cumsum(axis=0), 1e6 * spent / total, outside / total)


def bar(name: str, horizon: int) -> Callable[[int], None]:
    def show(t: int) -> None:
        if sys.stderr.isatty() and (t % 50 == 0 or t == horizon):
            filled = "#" * (30 * t // horizon)
            end = "\r" if t < horizon else "\r" + " " * 70 + "\r"
            print(f"{name:>12} [{filled:<30}] {t:>6}/{horizon}", end=end, file=sys.stderr, flush=True)

    return show


def draw(outcomes: dict[str, Outcome], horizon: int, path: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams["svg.hashsalt"] = "windvane"  # the same figure, byte for byte, from the same numbers
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    axes.axvspan(horizon / 3, 2 * horizon / 3, color="0.92", label="the world turns")
    shown = np.unique(np.linspace(0, horizon - 1, 200).astype(int))
    rounds = shown + 1
    for name, outcome in outcomes.items():
        mean, sd = outcome.regret[shown].mean(axis=1), outcome.regret[shown].std(axis=1)
        (line,) = axes.plot(rounds, mean, label=name, linewidth=1.8)
        axes.fill_between(rounds, mean - sd, mean + sd, color=line.get_color(), alpha=0.15, linewidth=0)
    axes.set(xlabel="round", ylabel="regret (mean ± 1 sd)", xlim=(0, horizon), ylim=(0, None))
    axes.legend(loc="upper left", frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None} if path.endswith(".svg") else None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--horizon", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--figure", help="draw the regret curves into this file (.png, .svg, .pdf)")
    options = parser.parse_args()
    if options.runs < 1 or options.horizon < 3:
        parser.error("--runs must be at least 1 and --horizon at least 3")
    T, runs = options.horizon, options.runs
    path = np.array([theta_star(t, T) for t in range(1, T + 1)])
    drift = float(np.linalg.norm(np.diff(path, axis=0), axis=1).sum())
    common = {"dim": 2, "lanes": runs, "seed": options.seed}
    policies: list[windvane.Policy] = [
        windvane.OFUL(**common),
        windvane.DLinUCB(horizon=T, drift=drift, **common),
        windvane.GLMUCB(**common),
        windvane.BVDGLMUCB(horizon=T, drift=drift, **common),
    ]
    windvane.warm_up()
    print(f"{runs} runs of {T} rounds; drift B_T = {drift:.4f}, discount {policies[-1].gamma[0]:.6f}\n")
    print(f"{'policy':<12} {'regret':>8} {'± se':>6} {'sd':>7} {'outside':>8} {'µs/round':>9}")
    outcomes = {}
    for policy in policies:
        outcome = outcomes[policy.name] = simulate(policy, T, options.seed, bar(policy.name, T))
        final = outcome.regret[-1]
        sd = final.std(ddof=1) if runs > 1 else 0.0
        print(
            f"{policy.name:<12} {final.mean():>8.1f} {sd / runs**0.5:>6.1f} {sd:>7.1f} "
            f"{outcome.outside:>8.0%} {outcome.microseconds:>9.1f}",
            flush=True,
        )
    print("\nregret: reward lost to the best arm of each round, mean over runs, with its standard error and spread;")
    print("outside: share of rounds with the estimate outside ||theta|| <= 1;")
    print("µs/round: select and update together, per run.")
    if options.figure:
        draw(outcomes, T, options.figure)
        print(f"figure: {options.figure}")


if __name__ == "__main__":
    main()
