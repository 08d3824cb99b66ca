"""How fast policies for a constant parameter are: `python benchmarks/stationary.py --public FOLDER`.

Logistic-UCB-1 and OFULog-r are compared with the public code of their authors, if FOLDER has a checkout of
louisfaury/logistic_bandit. Its classes are only called, with arms that this script draws. All play the same kind of
world (d = 2, 10 fresh arms, T = 3000, a constant parameter of norm S) and are measured in the same stretches of rounds,
in turns, so that noise affects all of them. Figures are medians over the stretches. Between them the public code only
learns, because its decisions take minutes.

`--play` shows the regret, and how often a decision is just the longest arm: of OFULog-r always, because its set is so
large that it contains the whole ball.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
from common import arms_and_luck, say

import windvane
from windvane.theory import LikelihoodRatioRadius, LogLossRadius

DIM, K, T, DELTA = 2, 10, 3000, 0.05  # the paper's setting
LEAST = 50.0  # target: how many times as fast as the public code
STRETCH = 10  # rounds measured at a time: the public code updates its estimate in every fifth or tenth round


def build_policies(S: float, lanes: int = 1) -> dict[str, Any]:
    told = {"dim": DIM, "S": S, "delta": DELTA, "lanes": lanes}
    return {
        "GLM-UCB": windvane.GLMUCB(**told),
        "UCB-GLM": windvane.UCBGLM(**told, horizon=T),
        "UCB-GLM, bonus_scale 2": windvane.UCBGLM(**told, horizon=T, bonus_scale=2.0),
        "Logistic-UCB-1": windvane.LogisticUCB1(**told, horizon=T),
        "OFULog-r": windvane.OFULogR(**told),
        "OFULog-r, bonus_scale 0.1": windvane.OFULogR(**told, bonus_scale=0.1),
        "OFUGLB": windvane.OFUGLB(**told),
        "OFUGLB-e": windvane.OFUGLBe(**told),
    }


class OfferedArms:
    """The arms of a round, in the form that the public code asks for."""

    def __init__(self, arms: np.ndarray) -> None:
        self.arms = arms

    def argmax(self, index: Callable[[np.ndarray], float]) -> np.ndarray:
        return self.arms[int(np.argmax([index(arm) for arm in self.arms]))]


def load_public(folder: Path, S: float) -> dict[str, Any]:
    """Build the algorithms of the public code with the settings of ours."""
    sys.path.insert(0, str(folder.resolve()))
    from logbexp.algorithms.logistic_ucb_1 import LogisticUCB1
    from logbexp.algorithms.ofulogr import OFULogr

    told = {"param_norm_ub": S, "arm_norm_ub": 1.0, "dim": DIM, "failure_level": DELTA}
    return {"Logistic-UCB-1": LogisticUCB1(**told), "OFULog-r": OFULogr(**told)}


class OwnRun:
    """A run of one of our policies, in all lanes at once."""

    def __init__(self, policy: Any, S: float) -> None:
        self.policy, self.S, self.rng = policy, S, np.random.default_rng(0)

    def play(self, rounds: int) -> float:
        """Play some rounds. Return the seconds per round of ``select`` and ``update`` together."""
        lanes, total = np.arange(self.policy.lane_count), 0.0
        for _ in range(rounds):
            arms, luck = arms_and_luck(self.rng, len(lanes), K, DIM)
            means = 1.0 / (1.0 + np.exp(-self.S * arms[..., 0]))
            began = time.perf_counter()
            index = self.policy.select(arms)
            self.policy.update(arms[lanes, index], (luck < means[lanes, index]).astype(float))
            total += time.perf_counter() - began
        return total / rounds

    def skip(self, rounds: int) -> None:
        """Play some rounds without measuring them."""
        if rounds:
            self.play(rounds)


class PublicRun:
    """A run of the public code. Rounds that are not measured are only learned: deciding would take minutes."""

    def __init__(self, policy: Any, S: float) -> None:
        self.policy, self.S, self.rng = policy, S, np.random.default_rng(0)
        policy.reset()

    def learn(self, arm: np.ndarray, luck: float) -> None:
        self.policy.learn(arm, float(luck < 1.0 / (1.0 + np.exp(-self.S * arm[0]))))

    def play(self, rounds: int) -> float:
        """Play some rounds. Return the seconds per round of ``pull`` and ``learn`` together."""
        total = 0.0
        for _ in range(rounds):
            arms, luck = arms_and_luck(self.rng, 1, K, DIM)
            began = time.perf_counter()
            self.learn(self.policy.pull(OfferedArms(arms[0])), luck[0])
            total += time.perf_counter() - began
        return total / rounds

    def skip(self, rounds: int) -> None:
        for _ in range(rounds):
            arms, luck = arms_and_luck(self.rng, 1, K, DIM)
            self.learn(arms[0, 0], luck[0])


def measure(runs: dict[str, Any], stretches: int) -> dict[str, float]:
    """Measure all runs in the same stretches of rounds, one after another. Return the medians of seconds per round."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    at = dict.fromkeys(runs, 0)
    for first in np.linspace(0, T - STRETCH, stretches).astype(int).tolist():
        for name, run in runs.items():
            run.skip(first - at[name])
            seconds[name].append(run.play(STRETCH))
            at[name] = first + STRETCH
    return {name: float(np.median(own)) for name, own in seconds.items()}


def compare(public: Path | None, S: float, stretches: int) -> None:
    lanes = 50
    runs = {name: OwnRun(policy, S) for name, policy in build_policies(S).items()}
    theirs = {
        f"public {name}": PublicRun(policy, S) for name, policy in (load_public(public, S) if public else {}).items()
    }
    together = {f"{name}, together": OwnRun(policy, S) for name, policy in build_policies(S, lanes).items()}
    found = measure({**runs, **together, **theirs}, stretches)
    print(f"S = {S:g}, T = {T}: µs a round with one lane; µs a lane and round with {lanes} lanes")
    for name in runs:
        print(f"      {name:<28}{found[name] * 1e6:>8.0f}{found[f'{name}, together'] * 1e6 / lanes:>10.1f}")
    for label in theirs:
        name = label.removeprefix("public ")
        ratio = found[label] / found[name]
        figure = f"{ratio:,.0f}x ({found[name] * 1e3:.3f} against {found[label] * 1e3:.1f} ms)"
        say(f"S = {S:g}: a round of {name}, vs the public code", figure, f"{LEAST:g}x", ratio >= LEAST)


def show_play(S: float, lanes: int) -> None:
    """Print the regret of every policy, and how often its decision is just the longest arm."""
    rng, policies, places = np.random.default_rng(1), build_policies(S, lanes), np.arange(lanes)
    longest, regret = (np.zeros((len(policies), lanes)) for _ in range(2))
    for _ in range(T):
        arms, luck = arms_and_luck(rng, lanes, K, DIM)
        means = 1.0 / (1.0 + np.exp(-S * arms[..., 0]))
        is_longest = np.argmax(np.linalg.norm(arms, axis=2), axis=1)
        for row, policy in enumerate(policies.values()):
            index = policy.select(arms)
            got = means[places, index]
            policy.update(arms[places, index], (luck < got).astype(float))
            longest[row] += index == is_longest
            regret[row] += means.max(axis=1) - got
    levels = {
        "OFULog-r": LogLossRadius(dim=DIM, S=S, L=1.0, delta=DELTA)(float(T), DIM * np.log1p(T)) ** 2,
        "OFUGLB": LikelihoodRatioRadius(dim=DIM, delta=DELTA)(S * (1 + S / 2) * (T - 1)) ** 2,
    }
    print(f"S = {S:g}, T = {T}, {lanes} lanes: regret and its standard error; share of decisions for the longest arm")
    for row, name in enumerate(policies):
        error, share = regret[row].std() / np.sqrt(lanes), 100 * longest[row].mean() / T
        level = f"  beta_T^2 = {float(levels[name]):.1f}" if name in levels else ""
        print(f"      {name:<28}{regret[row].mean():>8.1f} ± {error:<6.1f}{share:>8.2f} %{level}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--public", type=Path, help="a checkout of louisfaury/logistic_bandit")
    parser.add_argument("--play", action="store_true", help="show regrets instead, and what is played")
    parser.add_argument("--quick", action="store_true", help="measure fewer rounds of the public code")
    arguments = parser.parse_args()
    windvane.warm_up(build_policies(1.0).values())
    for S in (1.0, 3.0):
        if arguments.play:
            show_play(S, 40)
        else:
            compare(arguments.public, S, 5 if arguments.quick else 15)


if __name__ == "__main__":
    main()
