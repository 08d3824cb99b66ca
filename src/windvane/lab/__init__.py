"""Experiments: a spec says which policies run in which environments, a runner runs it, results are stored and drawn.

>>> from windvane.environments import BallArms, Rotation
>>> from windvane.lab import EnvironmentSpec, PolicySpec, Spec, simulate
>>> world = EnvironmentSpec(name="turning", drift=Rotation(), arms=BallArms())
>>> spec = Spec(environments=[world], policies=[PolicySpec("BVD-GLM-UCB")], runs=50, horizon=3000)
>>> results = simulate(spec, "results")                                          # doctest: +SKIP

Names below are imported on first use, so that nothing is loaded that is not used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_HOME = {
    "Spec": "windvane.lab.spec.experiment_spec",
    "SpecError": "windvane.lab.spec.experiment_spec",
    "EnvironmentSpec": "windvane.lab.spec.experiment_spec",
    "PolicySpec": "windvane.lab.spec.experiment_spec",
    "LabelledStreamSpec": "windvane.lab.spec.experiment_spec",
    "simulate": "windvane.lab.experiment",
    "Results": "windvane.lab.results.results",
    "Entry": "windvane.lab.results.results",
    "paper_spec": "windvane.lab.studies.paper",
    "benchmark_spec": "windvane.lab.studies.drift_benchmark",
    "leaderboard": "windvane.lab.results.leaderboard",
    "paired": "windvane.lab.results.summary",
    "present": "windvane.lab.report.presentation",
}

__all__ = [
    "Entry",
    "EnvironmentSpec",
    "LabelledStreamSpec",
    "PolicySpec",
    "Results",
    "Spec",
    "SpecError",
    "benchmark_spec",
    "leaderboard",
    "paired",
    "paper_spec",
    "present",
    "simulate",
]

if TYPE_CHECKING:
    from windvane.lab.experiment import simulate
    from windvane.lab.report.presentation import present
    from windvane.lab.results.leaderboard import leaderboard
    from windvane.lab.results.results import Entry, Results
    from windvane.lab.results.summary import paired
    from windvane.lab.spec.experiment_spec import EnvironmentSpec, LabelledStreamSpec, PolicySpec, Spec, SpecError
    from windvane.lab.studies.drift_benchmark import benchmark_spec
    from windvane.lab.studies.paper import paper_spec


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'windvane.lab' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)
