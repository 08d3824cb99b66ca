"""A study: what it costs not to know the drift, and what it costs to be wrong about it.

theta* turns at constant speed over T rounds, with B_T in :data:`DRIFTS`. BOB-BVD-GLM-UCB, which knows only T, runs
beside BVD-GLM-UCB with three discounts: the one recommended for B_T, and two with 1 - gamma ten times smaller (it
forgets too slowly) and ten times larger (too fast). For B_T = 0 the recommended gamma is 1, so the discount is that for
B_T = T^(-1/2), the smallest drift that BOB's grid covers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from windvane import theory
from windvane.arguments import check_not_negative
from windvane.environments import Arc, BallArms
from windvane.errors import ArgumentError
from windvane.lab.results.summary import Row, summarise_entries
from windvane.lab.spec.experiment_spec import EnvironmentSpec, PolicySpec, Spec
from windvane.lab.studies.benchmarks import Conduct, ExperimentPart, run_parts, simulate_part

DRIFTS = (0.0, 0.5, 1.5, 6.0, 24.0)
HORIZON, RUNS = 12_000, 20
FACTORS = {"right discount": 1.0, "1−γ ten times too small": 0.1, "1−γ ten times too large": 10.0}
MASTER, WORKER = "BOB-BVD-GLM-UCB", "BVD-GLM-UCB"
DIM = 2


@dataclass(frozen=True)
class UnknownDrift:
    """Mean final regret of every policy at every drift: ``rows[i]`` belongs to ``drifts[i]``."""

    drifts: list[float]
    horizon: int
    runs: int
    seed: int
    rows: list[list[Row]]


def make_arc(drift: float, horizon: int) -> Arc:
    """Return a turn at constant speed on the unit circle with exactly this B_T (at most 2 (T - 1))."""
    most = 2.0 * (horizon - 1)
    if not check_not_negative("drift", drift) <= most:
        raise ArgumentError("drift", drift, f"at most 2 (horizon - 1) = {most:g}")
    return Arc(2.0 * horizon * math.asin(drift / most) if drift else 0.0)


def unknown_drift_spec(drift: float, *, runs: int = RUNS, horizon: int = HORIZON, seed: int = 0) -> Spec:
    """Return the experiment at one drift."""
    forget = 1.0 - theory.discount(horizon=horizon, drift=drift or horizon**-0.5, dim=DIM)
    workers = [
        PolicySpec(WORKER, label=f"{WORKER}, {text}", settings={"gamma": 1.0 - min(factor * forget, 0.5)})
        for text, factor in FACTORS.items()
    ]
    name, policies = f"B_T = {drift:g}", [PolicySpec(MASTER), *workers]
    world, title = EnvironmentSpec(name, make_arc(drift, horizon), BallArms()), f"Unknown drift: {name}"
    return Spec([world], policies, runs=runs, horizon=horizon, seed=seed, title=title, lanes_per_cell=10)


def run_unknown_drift(
    folder: Path,
    conduct: Conduct = simulate_part,
    *,
    drifts: Sequence[float] = DRIFTS,
    runs: int = RUNS,
    horizon: int = HORIZON,
    seed: int = 0,
) -> UnknownDrift:
    """Run the study in ``folder``, an experiment per drift."""
    specs = [unknown_drift_spec(drift, runs=runs, horizon=horizon, seed=seed) for drift in drifts]
    parts = [ExperimentPart(f"drift-{B:g}", f"B_T = {B:g}", spec) for B, spec in zip(drifts, specs, strict=True)]
    finished = run_parts(parts, folder, conduct, {"name": "study", "study": "unknown-drift"})
    return UnknownDrift(list(drifts), horizon, runs, seed, [summarise_entries(results) for results in finished])


def draw(study: UnknownDrift, folder: Path) -> list[Path]:
    """Draw the final regret against B_T, as PNG, PDF and SVG."""
    from windvane.lab.figures.comparison_figures import levels_figure
    from windvane.lab.figures.matplotlib_renderer import save

    curves = {
        first.label: (np.array([rows[p].mean for rows in study.rows]), np.array([rows[p].se for rows in study.rows]))
        for p, first in enumerate(study.rows[0])
    }
    title = f"Constant drift, unknown and known: {study.runs:,} runs of {study.horizon:,} rounds"
    return save(levels_figure(study.drifts, curves, title=title), folder, "unknown-drift")
