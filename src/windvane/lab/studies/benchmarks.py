"""Shared by benchmarks and studies: choose policies, run several experiments, merge their results.

:func:`own_benchmark` makes a benchmark of a spec of your own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from windvane.environments import BallArms, RandomWalk, Static
from windvane.errors import ArgumentError
from windvane.lab.experiment import simulate
from windvane.lab.results.folder import Recipe
from windvane.lab.results.results import Entry, Results, group_by_environment
from windvane.lab.run.build import resolve_link, resolve_policy
from windvane.lab.spec.experiment_spec import AnyEnvironmentSpec, EnvironmentSpec, PolicySpec, Spec
from windvane.links import get_link
from windvane.policies.registry import POLICIES, describe_unknown_policy

if TYPE_CHECKING:
    from windvane.policies.base import Policy

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
    names: Sequence[str] | None,
    environments: Sequence[AnyEnvironmentSpec],
    known: Sequence[PolicySpec] = (),
    *,
    horizon: int,
    seed: int = 0,
) -> list[PolicySpec]:
    """Return the policies with these ``names``, at least one of which must not be a reference.

    A name is "module:Class", or that of a registered policy that can run in all environments or of a ``known`` policy
    of a spec, which replaces a registered one of the same name. Default: all of them, but where something moves the
    policies that never forget are left out, except for those that the paper compares with.
    """
    by_name = {name: PolicySpec(name) for name in list_policies(environments, horizon=horizon, seed=seed)}
    if names is None:
        usual = {name: policy for name, policy in by_name.items() if not _is_outdated(name, environments)}
        return list({**usual, **{policy.name: policy for policy in known}}.values())
    by_name |= {policy.name: policy for policy in known}
    if set(names) <= set(REFERENCES):
        raise ArgumentError("policies", list(names), "a list with at least one policy that is not a reference")
    for name in names:
        if name in POLICIES and name not in by_name:
            raise ArgumentError(
                "policies", name, "a policy that can run in all environments", hint=f"{name} {explain_needs(name)}"
            )
        if name not in by_name and ":" not in name:
            raise describe_unknown_policy("policies", name, "the name of a policy", by_name)
    chosen = [PolicySpec(name) if ":" in name else by_name[name] for name in names]
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
        Names of registered policies or of policies of the spec, and "module:Class". Default: the registered policies
        that can run in all environments and those of the spec, which replace registered ones of the same name. Where
        something moves, registered policies that never forget are left out, except for OFUL and GLM-UCB.

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
    title = f"Benchmark: {spec.title}"[:200] if spec.title else "The benchmark"
    chosen = choose_policies(policies, spec.environments, spec.policies, horizon=spec.horizon, seed=spec.seed)
    return replace(spec, title=title, policies=chosen)


def list_policies(environments: Sequence[AnyEnvironmentSpec], *, horizon: int, seed: int = 0) -> list[str]:
    """Return the names of the registered policies that can run in all of these environments.

    The truth is known in simulated environments only, and some policies are for some links only. A policy that knows
    arms by their index needs the same arms in every round, and it may need bounded rewards.
    """
    simulated = [environment for environment in environments if isinstance(environment, EnvironmentSpec)]
    links = [get_link(resolve_link("link", environment.link)) for environment in simulated]
    has_truth = len(simulated) == len(environments)
    has_fixed_arms = has_truth and all(environment.arms.is_fixed for environment in simulated)
    worlds = [environment.build(horizon=horizon, lanes=1, seed=seed) for environment in simulated if has_fixed_arms]
    is_bounded = all(math.isfinite(world.reward_range[1]) for world in worlds)

    def can_run(policy: type[Policy]) -> bool:
        if policy.needs_one_hot:
            return has_fixed_arms and (is_bounded or not policy.needs_bounded_rewards)
        return (has_truth or not policy.needs_truth) and all(isinstance(link, policy.links) for link in links)

    return [name for name, policy in POLICIES.items() if can_run(policy)]


def explain_needs(name: str) -> str:
    """Return what a registered policy needs that some environments do not have, as a text that follows its name."""
    policy = POLICIES[name]
    if policy.needs_truth:
        return "needs the true means, which only a simulation has"
    if policy.needs_one_hot:
        bounded = " and bounded rewards" if policy.needs_bounded_rewards else ""
        return f"needs arms that are the same in every round{bounded}"
    return f"is for the link {' or '.join(link.name for link in policy.links)}"


def list_left_out(spec: Spec) -> dict[str, str]:
    """Return the registered policies that a benchmark leaves out by itself, and why."""
    present = {policy.name for policy in spec.policies}
    return {
        name: "never forgets" if _is_outdated(name, spec.environments) else explain_needs(name)
        for name in POLICIES
        if name not in present
    }


def _is_outdated(name: str, environments: Sequence[AnyEnvironmentSpec]) -> bool:
    """Return whether a registered policy is for a constant parameter, and some of these environments move.

    OFUL and GLM-UCB are compared nevertheless: they are what the forgetting policies of the paper are without it.
    """
    rests = all(isinstance(world, EnvironmentSpec) and isinstance(world.drift, Static) for world in environments)
    return not rests and POLICIES[name].card.forgetting == "none" and name not in (*REFERENCES, "OFUL", "GLM-UCB")


def check_own_policies(policies: Iterable[PolicySpec]) -> None:
    """Run :func:`windvane.checks.check_policy` on policies that are not registered, with their settings.

    An :class:`ArgumentError` says which policy fails which check.
    """
    from windvane.checks import check_policy
    from windvane.policies.base import Policy

    for policy in (policy for policy in policies if policy.policy not in POLICIES):
        if not issubclass(resolve_policy(policy.policy), Policy):
            raise ArgumentError(
                "policies", policy.policy, "a class that derives from windvane.Policy: only such classes can be checked"
            )

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
