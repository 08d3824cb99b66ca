"""A study: what it costs not to know the drift, and what it costs to be wrong about it.

theta* turns at constant speed over T rounds, its way B_T in :data:`DRIFTS` (d = 2, S = L = 1, logistic rewards, ten
arms in the ball). BOB-BVD-GLM-UCB, which is told T alone, runs beside BVD-GLM-UCB with three discounts: the one
recommended for B_T, and ones with 1 - gamma ten times smaller (it forgets too slowly) and ten times larger (too fast).
For B_T = 0, where the recommended gamma is 1 and ten times nothing is nothing, B_T = T^(-1/2) is put in its place, the
least drift that BOB's grid covers.
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
from windvane.lab.results.summary import Row, row_of
from windvane.lab.spec.experiment_spec import EnvironmentSpec, PolicySpec, Spec
from windvane.lab.studies.benchmarks import Conduct

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


def arc_of_length(drift: float, horizon: int) -> Arc:
    """Constant speed on the unit circle, with exactly this B_T (at most 2 (T - 1))."""
    most = 2.0 * (horizon - 1)
    if not check_not_negative("drift", drift) <= most:
        raise ArgumentError("drift", drift, f"at most 2 (horizon - 1) = {most:g}")
    return Arc(2.0 * horizon * math.asin(drift / most) if drift else 0.0)


def unknown_drift_spec(drift: float, *, runs: int = RUNS, horizon: int = HORIZON, seed: int = 0) -> Spec:
    """One drift of the study."""
    told = drift or horizon**-0.5
    forget = 1.0 - theory.discount(horizon=horizon, drift=told, dim=DIM)
    known = [
        PolicySpec(WORKER, label=f"{WORKER}, {text}", settings={"gamma": 1.0 - min(factor * forget, 0.5)})
        for text, factor in FACTORS.items()
    ]
    return Spec(
        title=f"Unknown drift: B_T = {drift:g}",
        environments=[EnvironmentSpec(name=f"B_T = {drift:g}", drift=arc_of_length(drift, horizon), arms=BallArms())],
        policies=[PolicySpec(MASTER), *known],
        runs=runs,
        horizon=horizon,
        seed=seed,
        lanes_per_cell=10,
    )


def unknown_drift(
    folder: Path,
    conduct: Conduct,
    *,
    drifts: Sequence[float] = DRIFTS,
    runs: int = RUNS,
    horizon: int = HORIZON,
    seed: int = 0,
) -> UnknownDrift:
    """Run the study into ``folder``, an experiment per drift, with ``conduct(spec, folder, text)``."""
    arc_of_length(max(drifts), horizon)  # whether there is room for it is told before anything is run
    rows = []
    for drift in drifts:
        spec = unknown_drift_spec(drift, runs=runs, horizon=horizon, seed=seed)
        results = conduct(spec, folder / f"drift-{drift:g}", f"B_T = {drift:g}")
        rows.append([row_of(entry) for entry in results.entries])
    return UnknownDrift(list(drifts), horizon, runs, seed, rows)


def draw(found: UnknownDrift, folder: Path) -> list[Path]:
    """Final regret against B_T, as PNG, PDF and SVG."""
    from windvane.lab.figures.benchmark_figures import levels_figure
    from windvane.lab.figures.matplotlib_renderer import save

    curves = {
        first.label: (np.array([rows[p].mean for rows in found.rows]), np.array([rows[p].se for rows in found.rows]))
        for p, first in enumerate(found.rows[0])
    }
    title = f"Constant drift, unknown and known: {found.runs:,} runs of {found.horizon:,} rounds"
    return save(levels_figure(found.drifts, curves, title=title), folder, "unknown-drift")
