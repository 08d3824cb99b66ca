"""A benchmark in worlds of your own: every policy in the environments of a spec."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from windvane.lab.spec.experiment_spec import LabelledStreamSpec, Spec
from windvane.lab.studies.benchmarks import choose_policies
from windvane.policies.registry import POLICIES


def own_benchmark(spec: Spec, policies: Sequence[str] | None = None) -> Spec:
    """Return ``spec`` with the policies of a benchmark; sizes, seed and environments stay.

    Parameters
    ----------
    spec
        Its environments are the worlds: simulated ones, labelled data streams, or both.
    policies
        Names of registered policies or of policies of the spec, and "module:Class". Default: all registered policies
        and those of the spec, which replace registered ones of the same name. A policy that needs the truth is left
        out if an environment is a labelled data stream, because there the truth is the labels.

    Examples
    --------
    >>> from windvane.lab import own_benchmark, paper_spec
    >>> spec = own_benchmark(paper_spec(runs=2, horizon=100))
    >>> len(spec.policies) >= 28, [environment.name for environment in spec.environments]
    (True, ["the paper's rotation"])

    To run it and rank the policies:

    >>> from windvane.lab.studies.tuned_benchmark import OWN, run_benchmark
    >>> results, _ = run_benchmark(spec, Path("own"), name=OWN)                  # doctest: +SKIP
    """
    has_streams = any(isinstance(environment, LabelledStreamSpec) for environment in spec.environments)
    allowed = [name for name, policy in POLICIES.items() if not (has_streams and policy.needs_truth)]
    chosen = choose_policies(policies, allowed, spec.policies)
    title = f"Benchmark: {spec.title}"[:200] if spec.title else "The benchmark"
    return replace(spec, title=title, policies=chosen)
