"""When should a click be learned: on arrival, or at the timeout? The figure in docs/howto/late-rewards.md.

    python benchmarks/late_clicks.py [--runs 6] [--hours 24] [--figure docs/figures/late-clicks.svg]

Five arms with click rates from 3 to 8 %, 1,500 decisions an hour, the default policy. A click comes after an
exponential delay of five minutes on average; no click within an hour counts as 0. In the static world the rates stay;
in the drifting one the best arm loses its place every eight hours, in the fast one every two. Five ways to learn:

on arrival       a click is learned when it comes, a non-click an hour after its decision (``learn="on_arrival"``)
at the timeout   every outcome is learned an hour after its decision (``learn="at_timeout"``, the default)
early            in parts before the hour ends, corrected for clicks still to come (``learn="early"``)
held by hand     the caller holds every outcome for an hour, then reports it: the default should match this
instant          every outcome is known at once: an ideal that no real system reaches

Printed: the mean prediction and the mean true rate of the arms played, over the second half of each run. Means over
runs, with standard errors.
"""

from __future__ import annotations

import argparse
import heapq
import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from joblib import Parallel, delayed

import windvane

RATES = (0.03, 0.04, 0.05, 0.06, 0.08)
PER_HOUR = 1500
HOUR = 3600.0
MEAN_DELAY = 300.0  # seconds
SHIFT_HOURS, FAST_HOURS = 8.0, 2.0  # after which the rates of the drifting worlds move on by an arm
ON_ARRIVAL, AT_TIMEOUT, EARLY, BY_HAND, INSTANT = "on arrival", "at the timeout", "early", "held by hand", "instant"
WAYS = (ON_ARRIVAL, AT_TIMEOUT, EARLY, BY_HAND, INSTANT)
LEARN = {ON_ARRIVAL: "on_arrival", AT_TIMEOUT: "at_timeout", EARLY: "early"}
COLORS = {ON_ARRIVAL: "#d55e00", AT_TIMEOUT: "#0072b2", EARLY: "#cc79a7", BY_HAND: "#56b4e9", INSTANT: "#009e73"}

Rates = Callable[[float], np.ndarray]
"""The click rate of every arm at an hour."""


class Run(NamedTuple):
    """By decision: what was predicted of the arm played, and its true rate."""

    predicted: np.ndarray
    played: np.ndarray
    agent: windvane.Agent


def static(_: float) -> np.ndarray:
    return np.array(RATES)


def drifting(hour: float) -> np.ndarray:
    return np.roll(RATES, int(hour / SHIFT_HOURS))


def fast(hour: float) -> np.ndarray:
    return np.roll(RATES, int(hour / FAST_HOURS))


WORLDS = {"static": static, "drifting": drifting, "fast": fast}


def simulate(way: str, rates: Rates, hours: float, seed: int, mean_delay: float = MEAN_DELAY, **settings) -> Run:
    """One run. Whether a decision is clicked depends on ``seed``, its number and its arm only, not on ``way``."""
    if way in LEARN:
        settings |= {"reward_timeout": "1h", "default_reward": 0.0, "learn": LEARN[way]}
    agent = windvane.Agent(features={"arms": [f"arm {i}" for i in range(len(RATES))]}, seed=seed, **settings)
    count, rng = int(hours * PER_HOUR), np.random.default_rng(seed)
    chances, delays = rng.random((count, len(RATES))), rng.exponential(mean_delay, count)
    arriving: list[tuple[float, int, str, float]] = []
    held: deque[tuple[float, str, float]] = deque()
    predicted, played = np.empty(count), np.empty(count)
    for i in range(count):
        now = i * HOUR / PER_HOUR
        while held and now - held[0][0] > HOUR:
            _, decided, value = held.popleft()
            agent.reward(decided, value, now=now)
        while arriving and arriving[0][0] <= now:
            at, _, decided, value = heapq.heappop(arriving)
            agent.reward(decided, value, now=at)
        decision = agent.decide(now=now, id=f"{i:06d}")
        rate = rates(now / HOUR)[decision.index]
        predicted[i], played[i] = decision.prediction, rate
        clicked = chances[i, decision.index] < rate and delays[i] <= HOUR
        if way == INSTANT:
            agent.reward(decision, float(clicked), now=now)
        elif way == BY_HAND:
            held.append((now, decision.id, float(clicked)))
        elif clicked:
            heapq.heappush(arriving, (now + delays[i], i, decision.id, 1.0))
    return Run(predicted, played, agent)


def _curves(way: str, rates: Rates, hours: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    run = simulate(way, rates, hours, seed)
    return run.predicted, run.played


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=6)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--figure", type=Path, help="write the figure to this file (svg or png)")
    asked = parser.parse_args()
    tasks = [(way, world, seed) for world in WORLDS for way in WAYS for seed in range(asked.runs)]
    pool = Parallel(n_jobs=2, return_as="generator")
    results: dict[tuple[str, str], list[tuple[np.ndarray, np.ndarray]]] = {}
    curves = pool(delayed(_curves)(way, WORLDS[world], asked.hours, seed) for way, world, seed in tasks)
    for done, ((way, world, _), curve) in enumerate(zip(tasks, curves, strict=True), 1):
        results.setdefault((world, way), []).append(curve)
        print(f"\r{done} of {len(tasks)} runs", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    print(f"{'world':10} {'learned':16} {'predicted':>16} {'played':>16}")
    for (world, way), runs in results.items():
        halves = np.array([[part[len(part) // 2 :].mean() for part in run] for run in runs])
        mean, se = halves.mean(axis=0), halves.std(axis=0, ddof=1) / np.sqrt(len(runs))
        cells = "".join(f" {m:8.4f} ± {e:.4f}" for m, e in zip(mean, se, strict=True))
        print(f"{world:10} {way:16}{cells}")
    if asked.figure is not None:
        draw(results, asked.figure)


def draw(results: dict[tuple[str, str], list[tuple[np.ndarray, np.ndarray]]], path: Path) -> None:
    """Draw the predicted rate and the true rate of the arms played, by hour, in each world."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    pyplot.rcParams.update({"font.size": 9, "svg.hashsalt": "windvane", "svg.fonttype": "path"})
    figure, axes = pyplot.subplots(2, 3, figsize=(11.0, 5.2), sharex=True, sharey="row", layout="constrained")
    for column, world in enumerate(WORLDS):
        for way in WAYS:
            runs = results[world, way]
            for row in range(2):
                hourly = np.mean([run[row][: len(run[row]) // PER_HOUR * PER_HOUR] for run in runs], axis=0)
                hourly = hourly.reshape(-1, PER_HOUR).mean(axis=1)
                dashes = "--" if way == BY_HAND else "-"
                axes[row, column].plot(np.arange(len(hourly)) + 0.5, hourly, dashes, color=COLORS[way], label=way)
        axes[0, column].set_yscale("log")
        axes[0, column].set_title(f"{world} world: predicted click rate", loc="left", size=9)
        axes[1, column].set_title("true click rate of the arms played", loc="left", size=9)
        axes[1, column].axhline(max(RATES), color="#666666", lw=0.8, ls=":")
        axes[1, column].axhline(float(np.mean(RATES)), color="#666666", lw=0.8, ls=":")
        axes[0, column].axhspan(min(RATES), max(RATES), color="#eeeeee", zorder=0)
        axes[1, column].set_xlabel("hours")
        axes[1, column].set_ylim(0.035, 0.085)
    axes[1, 0].text(0.2, 0.0808, "best arm", color="#666666", size=8)
    axes[1, 0].text(0.2, 0.0495, "uniform play", color="#666666", size=8)
    axes[0, 0].text(0.2, 0.033, "true rates", color="#666666", size=8)
    lines, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(
        lines,
        labels,
        title="outcomes are learned",
        loc="outside lower center",
        ncols=len(WAYS),
        frameon=False,
        fontsize=8,
    )
    for each in axes.flat:
        each.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, dpi=120)


if __name__ == "__main__":
    main()
