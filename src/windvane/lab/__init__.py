"""Experiments: a spec says which policies run in which environments, a runner runs it, results are stored and drawn.

>>> from windvane.environments import BallArms, Rotation
>>> from windvane.lab import EnvironmentSpec, PolicySpec, Spec, simulate
>>> world = EnvironmentSpec(name="turning", drift=Rotation(), arms=BallArms())
>>> spec = Spec(environments=[world], policies=[PolicySpec("BVD-GLM-UCB")], runs=50, horizon=3000)
>>> results = simulate(spec, "results")                                          # doctest: +SKIP
>>> windvane.lab.open("results").frame("runs")                                   # doctest: +SKIP

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
    "StreamSpec": "windvane.lab.spec.experiment_spec",
    "simulate": "windvane.lab.experiment",
    "Results": "windvane.lab.results.results",
    "Entry": "windvane.lab.results.results",
    "paper_spec": "windvane.lab.studies.paper",
    "benchmark_spec": "windvane.lab.studies.drift_benchmark",
    "leaderboard": "windvane.lab.results.leaderboard",
    "export": "windvane.lab.results.export",
    "own_benchmark": "windvane.lab.studies.own_benchmark",
    "paired": "windvane.lab.results.summary",
    "present": "windvane.lab.report.presentation",
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
    "export",
    "leaderboard",
    "open",
    "own_benchmark",
    "paired",
    "paper_spec",
    "present",
    "simulate",
]

if TYPE_CHECKING:
    from os import PathLike

    from windvane.lab.experiment import simulate
    from windvane.lab.report.presentation import present
    from windvane.lab.results.export import export
    from windvane.lab.results.leaderboard import leaderboard
    from windvane.lab.results.results import Entry, Results
    from windvane.lab.results.summary import paired
    from windvane.lab.spec.experiment_spec import EnvironmentSpec, PolicySpec, Spec, SpecError, StreamSpec
    from windvane.lab.studies.drift_benchmark import benchmark_spec
    from windvane.lab.studies.own_benchmark import own_benchmark
    from windvane.lab.studies.paper import paper_spec


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'windvane.lab' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def open(folder: str | PathLike[str]) -> Results:  # noqa: A001
    """Read the finished results in an experiment's folder.

    Parameters
    ----------
    folder
        A folder that :func:`simulate` or a command wrote. The experiment need not be complete.

    Returns
    -------
    Results
        With ``frame("runs")``, a data frame of pandas or polars with a row per run; ``table``, the same with pyarrow;
        ``summary()``; and ``entries``, the results as arrays.

    Examples
    --------
    >>> import windvane.lab
    >>> results = windvane.lab.open("results")                                   # doctest: +SKIP
    >>> results.summary()[["policy", "mean", "se"]]                              # doctest: +SKIP
    """
    from pathlib import Path

    from windvane.lab.results.results import Results

    return Results.open(Path(folder))
