"""The benchmarks in simulated worlds, by name."""

from __future__ import annotations

from collections.abc import Sequence

from windvane.arguments import check_choice
from windvane.lab.spec.experiment_spec import Spec
from windvane.lab.studies.drift_benchmark import DRIFT
from windvane.lab.studies.stationary_benchmark import STATIONARY

BENCHMARKS = {"drift": DRIFT, "stationary": STATIONARY}


def benchmark_spec(
    quick: bool = False,
    *,
    benchmark: str = "drift",
    runs: int | None = None,
    horizon: int | None = None,
    seed: int = 0,
    worlds: Sequence[str] | None = None,
    policies: Sequence[str] | None = None,
) -> Spec:
    """Return the drift benchmark, or the stationary benchmark, as a spec.

    Parameters
    ----------
    quick
        A small benchmark, with fewer and shorter runs.
    benchmark
        "drift" or "stationary".
    runs, horizon, seed
        In place of the usual sizes, and the seed.
    worlds, policies
        Names in place of all worlds and all policies; a policy of your own is "module:Class".

    Examples
    --------
    >>> spec = benchmark_spec(quick=True, worlds=["clicks"], policies=["OFUL", "Greedy"])
    >>> [environment.name for environment in spec.environments]
    ['clicks, d = 2', 'clicks, d = 10']
    """
    chosen = BENCHMARKS[check_choice("benchmark", benchmark, tuple(BENCHMARKS))]
    return chosen.build_spec(quick, runs=runs, horizon=horizon, seed=seed, worlds=worlds, policies=policies)
