"""Experiments: a spec says which policies run in which environments, a runner runs it, results are stored and drawn.

>>> from windvane.environments import BallArms, Rotation
>>> from windvane.lab import EnvironmentSpec, PolicySpec, Spec, run
>>> world = EnvironmentSpec(name="turning", drift=Rotation(), arms=BallArms())
>>> spec = Spec(environments=[world], policies=[PolicySpec("BVD-GLM-UCB")], runs=50, horizon=3000)
>>> results = run(spec, "results")                                          # doctest: +SKIP

Names below are imported on first use, so that nothing is loaded that is not used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_HOME = {
    "Spec": "windvane.lab.spec",
    "SpecError": "windvane.lab.spec",
    "EnvironmentSpec": "windvane.lab.spec",
    "PolicySpec": "windvane.lab.spec",
    "StreamSpec": "windvane.lab.spec",
    "run": "windvane.lab.runner",
    "Results": "windvane.lab.results",
    "Entry": "windvane.lab.results",
    "paper_spec": "windvane.lab.paper",
    "benchmark_spec": "windvane.lab.drift_benchmark",
    "leaderboard": "windvane.lab.standings",
    "paired": "windvane.lab.summary",
    "present": "windvane.lab.presentation",
}

__all__ = [
    "Entry",
    "EnvironmentSpec",
    "PolicySpec",
    "Results",
    "Spec",
    "SpecError",
    "StreamSpec",
    "benchmark_spec",
    "leaderboard",
    "paired",
    "paper_spec",
    "present",
    "run",
]

if TYPE_CHECKING:
    from windvane.lab.drift_benchmark import benchmark_spec
    from windvane.lab.paper import paper_spec
    from windvane.lab.presentation import present
    from windvane.lab.results import Entry, Results
    from windvane.lab.runner import run
    from windvane.lab.spec import EnvironmentSpec, PolicySpec, Spec, SpecError, StreamSpec
    from windvane.lab.standings import leaderboard
    from windvane.lab.summary import paired


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'windvane.lab' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)
