"""Shared by benchmarks and studies: choose policies, run several experiments, merge their results.

:func:`own_benchmark` makes a benchmark of a spec of your own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from windvane.arguments import check_choice
from windvane.environments import BallArms, RandomWalk
from windvane.errors import ArgumentError
from windvane.lab.experiment import simulate
from windvane.lab.results.folder import Recipe
from windvane.lab.results.results import Entry, Results, group_by_environment
from windvane.lab.spec.experiment_spec import EnvironmentSpec, PolicySpec, Spec
from windvane.policies.registry import POLICIES

LANES = 30  # lanes per cell, the unit of work of a worker
REFERENCES = ("Oracle", "UniformRandom")  # run, but not ranked
CHECK_HORIZON = 1000  # rounds that a policy is built for when it is checked; no check plays as many

Conduct = Callable[[Spec, Path, str, Recipe], Results]
"""``conduct(spec, folder, text, recipe)`` runs a spec in a folder; ``text`` describes it on the progress bar."""


def simulate_part(spec: Spec, folder: Path, _text: str, recipe: Recipe) -> Results:
    """Run a spec on all cores, without a progress bar."""
    return simulate(spec, folder, recipe=recipe)


class ExperimentPart(NamedTuple):
    """One of several experiments: its sub-folder, its text on the progress bar, its spec, and more for its recipe."""

    folder: str
    text: str
    spec: Spec
    recipe: Mapping[str, Any] = {}


def run_parts(parts: Iterable[ExperimentPart], folder: Path, conduct: Conduct, recipe: Recipe) -> list[Results]:
    """Run each part in its sub-folder of ``folder``, and return their results."""
    return [
        conduct(part.spec, folder / part.folder, part.text, {**recipe, "part": part.folder, **part.recipe})
        for part in parts
    ]


def choose_policies(
    names: Sequence[str] | None, allowed: Collection[str], known: Sequence[PolicySpec] = ()
) -> list[PolicySpec]:
    """Return the policies with these ``names`` (default: all), at least one of which must not be a reference.

    A name is "module:Class", or that of an ``allowed`` registered policy or of a ``known`` policy of a spec, which
    replaces a registered one of the same name.
    """
    by_name = {policy.name: policy for policy in [*map(PolicySpec, allowed), *known]}
    if names is None:
        return list(by_name.values())
    if set(names) <= set(REFERENCES):
        raise ArgumentError("policies", list(names), "a list with at least one policy that is not a reference")
    chosen = [
        PolicySpec(name) if ":" in name else by_name[check_choice("policies", name, tuple(by_name))] for name in names
    ]
    labels = [policy.name for policy in chosen]
    if repeated := [label for label in labels if labels.count(label) > 1]:
        raise ArgumentError("policies", list(names), "policies with different names", got=f"{repeated[0]} twice")
    return chosen


def own_benchmark(spec: Spec, policies: Sequence[str] | None = None) -> Spec:
    """Return ``spec`` with the policies of a benchmark; sizes, seed and environments stay.

    Parameters
    ----------
    spec
        Its environments are the worlds: simulated ones, labelled data streams, or both.
    policies
        Names of registered policies or of policies of the spec, and "module:Class". Default: all registered policies
        and those of the spec, which replace registered ones of the same name. A policy that needs the truth is left
        out if an environment is not simulated.

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
    allowed = list_policies(needs_truth=all(environment.kind == "simulated" for environment in spec.environments))
    title = f"Benchmark: {spec.title}"[:200] if spec.title else "The benchmark"
    return replace(spec, title=title, policies=choose_policies(policies, allowed, spec.policies))


def list_policies(*, needs_truth: bool) -> list[str]:
    """Return the names of the registered policies; with ``needs_truth``, also of those that need the true parameter."""
    return [name for name, policy in POLICIES.items() if needs_truth or not policy.needs_truth]


def check_own_policies(policies: Iterable[PolicySpec]) -> None:
    """Run :func:`windvane.checks.check_policy` on policies that are not registered, with their settings.

    An :class:`ArgumentError` says which policy fails which check.
    """
    from windvane.checks import check_policy

    for policy in (policy for policy in policies if policy.policy not in POLICIES):

        def build(*, dim: int, lanes: int | Sequence[int], seed: int, policy: PolicySpec = policy) -> Any:
            spec = EnvironmentSpec("check", RandomWalk(step=0.05), BallArms(), dim=dim)
            world = spec.build(horizon=CHECK_HORIZON, lanes=lanes, seed=seed)
            return policy.build(world, variants=[policy.variants[0]] * world.lanes)

        try:
            check_policy(build)
        except AssertionError as error:
            hint = " ".join(str(error).split())
            raise ArgumentError("policies", policy.policy, "a policy that passes windvane.checks", hint=hint) from error


def merge_results(first: Results, others: Sequence[Results]) -> Results:
    """Return ``first`` with the results of ``others`` added, grouped by environment."""
    every = [first, *others]
    groups = group_by_environment(entry for results in every for entry in results.entries)
    entries = [entry for group in groups.values() for entry in group]
    finished, total = sum(results.finished for results in every), sum(results.total for results in every)
    cells = tuple(cell for results in every for cell in results.cells)
    return replace(first, entries=entries, finished=finished, total=total, cells=cells)


def ranked_entries(results: Results) -> list[Entry]:
    """Return the entries of the policies that finished all their runs in all environments: they can be compared."""
    environments = {entry.environment for entry in results.entries}
    runs = max((len(entry.lanes) for entry in results.entries), default=0)
    whole = {(entry.label, entry.environment) for entry in results.entries if len(entry.lanes) == runs}
    return [entry for entry in results.entries if all((entry.label, name) in whole for name in environments)]
