"""A study: what AdaptiveGLMUCB loses by not knowing how fast the world moves, how much to explore, and the scale S.

In every environment of the drift benchmark, AdaptiveGLMUCB is compared with itself at the pair of one memory and one
bonus scale, of a 6 x 6 grid, that did best there on separate runs. BOB-BVD-GLM-UCB, Greedy and AdaptiveGLMUCB without S
run beside them. The environments of :data:`SET_ASIDE` were not used to develop the policy.

To first order, run i moves log(mean regret of AdaptiveGLMUCB / mean regret of the chosen pair) by
a_i / mean(a) - c_i / mean(c), with a_i and c_i their regrets; this gives the error of the ratio.
``docs/explanation/studies.md`` says how to read it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from windvane.arguments import Array
from windvane.lab.results.results import Results, group_by_environment
from windvane.lab.results.summary import Row, measure_spread, summarise_entries
from windvane.lab.spec.experiment_spec import AnyEnvironmentSpec, PolicySpec, Spec
from windvane.lab.studies.benchmarks import Conduct, ExperimentPart, run_parts, simulate_part
from windvane.lab.studies.drift_benchmark import WORLDS
from windvane.lab.studies.tuned_benchmark import shift_seed
from windvane.lab.studies.world_benchmarks import benchmark_spec

RUNS = 200
MEMORIES = (32.0, 128.0, 512.0, 2048.0, 8192.0, math.inf)
SCALES = (0.3, 0.5, 0.7, 1.0, 1.4, 2.0)
SET_ASIDE, SET_ASIDE_DIM = ("ten small switches", "random walk", "fixed arms switching"), 5
POLICY, MASTER, GREEDY = "AdaptiveGLMUCB", "BOB-BVD-GLM-UCB", "Greedy"


@dataclass(frozen=True)
class Comparison:
    """The results in one environment: the chosen pair and the final regrets."""

    environment: str
    set_aside: bool
    memory: float
    scale: float
    adaptive: Row
    chosen: Row
    master: Row
    greedy: Row
    untold: Row  # AdaptiveGLMUCB without S
    influence: Array = field(repr=False)  # of each run on log(ratio)

    @property
    def ratio(self) -> float:
        """Return the regret of AdaptiveGLMUCB, relative to that of the chosen pair."""
        return self.adaptive.mean / self.chosen.mean

    @property
    def price_of_scale(self) -> float:
        """Return the regret without S, relative to the regret with S."""
        return self.untold.mean / self.adaptive.mean


class Ratio(NamedTuple):
    """A ratio, or a geometric mean of several, with its standard error."""

    value: float
    se: float


def geometric_mean(comparisons: Sequence[Comparison]) -> Ratio:
    """Return the geometric mean of the ratios.

    A run uses the same random numbers in all environments, so the standard error is over whole runs.
    """
    value = math.exp(sum(math.log(comparison.ratio) for comparison in comparisons) / len(comparisons))
    se, _ = measure_spread(np.mean([comparison.influence for comparison in comparisons], axis=0))
    return Ratio(value, value * se)


def grid_spec(base: Spec) -> Spec:
    """Return the experiment with every pair of the grid, on a fifth as many runs, none of them in ``base``."""
    policies = [
        PolicySpec(POLICY, label=f"memory {memory:g}", settings={"memories": [memory]}, sweep={"bonus_scale": SCALES})
        for memory in MEMORIES
    ]
    title, seed, runs = "No tuning: every memory and bonus", shift_seed(base.seed), math.ceil(base.runs / 5)
    return replace(base, title=title, policies=policies, runs=runs, seed=seed, lanes_per_cell=runs * len(SCALES))


def find_best_pairs(grid: Results) -> dict[str, tuple[float, float]]:
    """Return the (memory, bonus scale) with the smallest mean regret, by environment."""
    groups = group_by_environment(grid.entries)
    best = {name: min(entries, key=lambda entry: float(entry.final.mean())) for name, entries in groups.items()}
    memory_of = {f"memory {memory:g}": memory for memory in MEMORIES}
    return {name: (memory_of[entry.policy], entry.variant["bonus_scale"]) for name, entry in best.items()}


def comparison_spec(base: Spec, environment: AnyEnvironmentSpec, memory: float, scale: float) -> Spec:
    """Return the experiment in one environment of ``base``: the default policy, the chosen pair and the other three."""
    chosen = PolicySpec(POLICY, label="chosen pair", settings={"memories": [memory], "bonus_scale": scale})
    untold = PolicySpec(POLICY, label=f"{POLICY} without S", settings={"S": None})
    policies = [PolicySpec(POLICY), chosen, PolicySpec(MASTER), PolicySpec(GREEDY), untold]
    title = f"No tuning: {environment.name}"
    return replace(base, title=title, environments=[environment], policies=policies, lanes_per_cell=50)


def run_no_tuning(
    folder: Path, conduct: Conduct = simulate_part, *, runs: int = RUNS, horizon: int | None = None, seed: int = 0
) -> list[Comparison]:
    """Run the study in ``folder``, and return one comparison per environment."""
    recipe = {"name": "study", "study": "no-tuning"}
    base = benchmark_spec(runs=runs, horizon=horizon, seed=seed)
    set_aside = [WORLDS[name].build_spec(name, base.horizon, SET_ASIDE_DIM) for name in SET_ASIDE]
    base = replace(base, environments=[*base.environments, *set_aside])
    grid = ExperimentPart("grid", "every memory and bonus", grid_spec(base))
    pairs = find_best_pairs(*run_parts([grid], folder, conduct, recipe))
    count = len(base.environments)
    parts = [
        ExperimentPart(f"{i:02d}", f"environment {i} of {count}", comparison_spec(base, world, *pairs[world.name]))
        for i, world in enumerate(base.environments, 1)
    ]
    comparisons = []
    for world, results in zip(base.environments, run_parts(parts, folder, conduct, recipe), strict=True):
        own, chosen = (entry.final for entry in results.entries[:2])
        rows = dict(zip(("adaptive", "chosen", "master", "greedy", "untold"), summarise_entries(results), strict=True))
        influence, (memory, scale) = own / own.mean() - chosen / chosen.mean(), pairs[world.name]
        comparisons.append(Comparison(world.name, world in set_aside, memory, scale, influence=influence, **rows))
    return comparisons


def draw(comparisons: Sequence[Comparison], folder: Path) -> list[Path]:
    """Draw the ratio of AdaptiveGLMUCB and of the other policies in every environment, as PNG, PDF and SVG."""
    from windvane.lab.figures.comparison_figures import ratios_figure
    from windvane.lab.figures.matplotlib_renderer import save

    title = f"{POLICY}, not tuned: {comparisons[0].adaptive.runs:,} runs in each environment"
    return save(ratios_figure(comparisons, title=title), folder, "no-tuning")
