"""A study: what AdaptiveGLMUCB loses by not being told how fast the world moves, and how much to explore.

In every environment of the drift benchmark, AdaptiveGLMUCB as it is runs beside the same policy with one memory and one
multiple of the bonus: of a 6 x 6 grid the pair that did best in that very environment, on other runs (a fifth as many).
Beside them run BOB-BVD-GLM-UCB, which learns the discount as the paper proposes, and Greedy, which has no bonus.

    ratio = mean regret of AdaptiveGLMUCB / that of the chosen pair

The choice among 36 pairs is made on few runs, so that the pair chosen may not be the best one, which flatters the ratio
a little. Its error is that of paired runs: to first order run i moves log(ratio) by a_i / mean(a) - c_i / mean(c).
Three environments (:data:`SET_ASIDE`) were not looked at while AdaptiveGLMUCB was made. Their ratios are told apart:
those of the others flatter, since its settings were chosen in worlds much like them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from windvane.arguments import Array
from windvane.lab.curves import by_environment
from windvane.lab.drift_benchmark import HELD_BACK, Conduct, benchmark_spec
from windvane.lab.results import Entry, Results
from windvane.lab.spec import PolicySpec, Spec
from windvane.lab.summary import Row, row_of, spread

RUNS = 200
MEMORIES = (32.0, 80.0, 200.0, 500.0, 1250.0, math.inf)
SCALES = (0.3, 0.5, 0.7, 1.0, 1.4, 2.0)
SET_ASIDE = ("ten small switches, d = 10", "random walk, d = 2", "fixed arms switching, d = 10")
POLICY, MASTER, GREEDY = "AdaptiveGLMUCB", "BOB-BVD-GLM-UCB", "Greedy"


@dataclass(frozen=True)
class Comparison:
    """One environment: the pair that was chosen there, and final regrets."""

    environment: str
    set_aside: bool
    memory: float
    scale: float
    adaptive: Row
    chosen: Row
    master: Row
    greedy: Row
    influence: Array = field(repr=False)  # of each run on log(ratio)

    @property
    def ratio(self) -> float:
        return self.adaptive.mean / self.chosen.mean


class Ratio(NamedTuple):
    """A ratio, or a geometric mean of several, and its standard error."""

    value: float
    se: float


def geometric_mean(comparisons: Sequence[Comparison]) -> Ratio:
    """Of the ratios; a run has the same luck in all environments, so whole runs count as one observation."""
    value = math.exp(sum(math.log(one.ratio) for one in comparisons) / len(comparisons))
    se, _ = spread(np.mean([one.influence for one in comparisons], axis=0))
    return Ratio(value, value * se)


def grid_spec(base: Spec) -> Spec:
    """Every pair of the grid, in a fifth as many runs, which are none of ``base``'s."""
    runs = math.ceil(base.runs / 5)
    settings: list[dict[str, Sequence[float]]] = [{"memories": [memory]} for memory in MEMORIES]
    return dataclasses.replace(
        base,
        title="No tuning: every memory and bonus",
        policies=[
            PolicySpec(POLICY, label=f"memory {one['memories'][0]:g}", settings=one, sweep={"bonus_scale": SCALES})
            for one in settings
        ],
        runs=runs,
        seed=(base.seed + HELD_BACK) % 2**64,
        lanes_per_cell=runs * len(SCALES),
    )


def best_pairs(grid: Results) -> dict[str, tuple[float, float]]:
    """The (memory, bonus scale) with the least mean regret of each environment."""
    memory_of = {f"memory {memory:g}": memory for memory in MEMORIES}
    found = {}
    for name, entries in by_environment(grid.entries).items():
        best: Entry = min(entries, key=lambda entry: float(entry.final.mean()))
        found[name] = (memory_of[best.policy], best.variant["bonus_scale"])
    return found


def comparison_spec(base: Spec, environment: int, memory: float, scale: float) -> Spec:
    """One environment of ``base``: the policy as it is, the pair that was chosen for it, and the other two."""
    chosen = PolicySpec(POLICY, label="chosen pair", settings={"memories": [memory], "bonus_scale": scale})
    return dataclasses.replace(
        base,
        title=f"No tuning: {base.environments[environment].name}",
        environments=[base.environments[environment]],
        policies=[PolicySpec(POLICY), chosen, PolicySpec(MASTER), PolicySpec(GREEDY)],
        lanes_per_cell=50,
    )


def no_tuning(
    folder: Path, conduct: Conduct, *, runs: int = RUNS, horizon: int | None = None, seed: int = 0
) -> list[Comparison]:
    """Run the study into ``folder`` with ``conduct(spec, folder, text)``; an environment each."""
    base = benchmark_spec(runs=runs, horizon=horizon, seed=seed)
    pairs = best_pairs(conduct(grid_spec(base), folder / "grid", "every memory and bonus"))
    found = []
    for i, environment in enumerate(base.environments):
        memory, scale = pairs[environment.name]
        text = f"environment {i + 1} of {len(base.environments)}"
        results = conduct(comparison_spec(base, i, memory, scale), folder / f"{i + 1:02d}", text)
        mine, chosen = (entry.final for entry in results.entries[:2])
        influence = mine / mine.mean() - chosen / chosen.mean()
        adaptive, pair, master, greedy = (row_of(entry) for entry in results.entries)
        aside = environment.name in SET_ASIDE
        one = Comparison(environment.name, aside, memory, scale, adaptive, pair, master, greedy, influence)
        found.append(one)
    return found


def draw(found: Sequence[Comparison], folder: Path) -> list[Path]:
    """The ratio of every environment, and that of the other two policies, as PNG, PDF and SVG."""
    from windvane.lab import plots

    title = f"{POLICY}, not tuned: {found[0].adaptive.runs:,} runs in each environment"
    return plots.save(plots.ratios_figure(found, title=title), folder, "no-tuning")
