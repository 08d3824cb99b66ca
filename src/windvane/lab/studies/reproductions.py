"""Experiments of papers, to be run again and compared with what was published.

``papers/NAME.toml`` describes an experiment: its environments and policies, in the words of a spec, what is assumed
where the paper is silent, the known errors of the publication, and why our result differs. ``papers/NAME.csv`` has the
published values. A new one needs these two files and its name in :data:`NAMES`.
"""

from __future__ import annotations

import dataclasses
import functools
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from windvane.arguments import check_choice
from windvane.bibliography import read_bibliography
from windvane.environments import Rotation
from windvane.errors import ArgumentError
from windvane.lab.figures.over_time_figure import PublishedCurve, PublishedCurves
from windvane.lab.results.folder import make_slugs
from windvane.lab.results.results import Entry, Results
from windvane.lab.run.build import resolve_policy
from windvane.lab.spec.experiment_spec import EnvironmentSpec, PolicySpec, Spec
from windvane.lab.studies.benchmarks import Conduct, ExperimentPart, merge_results, run_parts
from windvane.lab.studies.notes import read_data
from windvane.lab.studies.published import (
    PublishedComparison,
    PublishedSource,
    compare_with_published,
    describe_comparisons,
    read_curves,
)
from windvane.policies.registry import POLICIES, Signature

DEFAULT = "faury2021"
NAMES = (
    DEFAULT,
    "russac2019",
    "russac2019-abrupt",
    "wang2023-lb",
    "wang2023-glb",
    "cheung2019",
    "zhao2020-gradual",
    "russac2021",
    "baudry2021-bernoulli",
    "baudry2021-gaussian",
)
"""The experiments that can be reproduced, in the order of lists."""
RECIPE = "paper"  # the name of the recipe in the manifest of results


@dataclass(frozen=True)
class Reproduction:
    """An experiment of a paper.

    Parameters
    ----------
    name, paper
        What the experiment is called, and the key of the paper in the bibliography.
    summary, title, heading
        A line for lists, the title of the spec, and the heading of the report.
    runs, horizon
        The sizes of the paper.
    environments
        Their fields as in a spec, but for the arms; also ``horizon``, if it is not that of the others, and ``settings``
        of policies that are tuned for this environment, by label.
    policies
        Their fields as in a spec; also ``published``, the column of the published values if it is not the label, and
        ``rescaled``, whether the option that multiplies bonuses applies.
    arms
        The laws that the description of arms may mean, each with a ``text`` and a ``law``; the first is assumed.
    published
        Where the published values are from.
    readings
        What is assumed where the paper is silent, with ``{arms}`` and ``{bonus_scale}`` to be filled in.
    known_errors
        What is known to be wrong in the publication or its code.
    reasons
        Why our result differs, as far as it is known.
    baseline
        The label of the policy that the others are paired with: the paper's own. Default: the first one.

    Examples
    --------
    >>> read_reproduction("russac2019").horizon
    6000
    """

    name: str
    paper: str
    summary: str
    title: str
    heading: str
    runs: int
    horizon: int
    environments: Sequence[Mapping[str, Any]]
    policies: Sequence[Mapping[str, Any]]
    arms: Mapping[str, Mapping[str, Any]]
    published: PublishedSource
    readings: Sequence[str]
    known_errors: Sequence[str] = ()
    reasons: Sequence[str] = ()
    baseline: str | None = None
    curves: PublishedCurves = field(default_factory=dict, repr=False)

    @property
    def label(self) -> str:
        """Authors and year of the paper."""
        return read_bibliography()[self.paper].label

    @property
    def default_arms(self) -> str:
        """The name of the law of arms that is assumed."""
        return next(iter(self.arms))

    @property
    def horizons(self) -> list[int]:
        """The horizons of the paper, in order."""
        return sorted({self.find_horizon(environment["name"]) for environment in self.environments})

    @property
    def left_out(self) -> list[str]:
        """The policies of the paper that this version of windvane does not have."""
        return [policy["policy"] for policy in self.policies if not _is_known(policy)]

    def build_specs(
        self,
        *,
        runs: int | None = None,
        horizon: int | None = None,
        arms: str | None = None,
        bonus_scale: float = 1.0,
        seed: int = 0,
        diagnostics: bool = False,
    ) -> list[Spec]:
        """Return the experiment as specs; the defaults are the sizes of the paper.

        Environments share a spec if they have the same horizon and settings of policies.

        Parameters
        ----------
        runs, horizon, seed
            As in a spec.
        arms
            The name of a law of arms.
        bonus_scale
            Factor of every bonus, in addition to what the paper multiplies it by.
        diagnostics
            Whether the terms of the analysis are recorded.

        Examples
        --------
        >>> [spec.horizon for spec in read_reproduction("russac2019").build_specs(runs=5)]
        [6000]
        """
        law = self.arms[check_choice("arms", arms or self.default_arms, tuple(self.arms))]["law"]
        sizes: dict[str, Any] = {"runs": self.runs if runs is None else runs, "seed": seed, "diagnostics": diagnostics}
        own: list[tuple[int, Mapping[str, Any]]] = []  # horizon and settings of each environment
        groups: list[list[EnvironmentSpec]] = []
        for environment in self.environments:
            fields = {name: value for name, value in environment.items() if name not in ("horizon", "settings")}
            place = self.find_horizon(environment["name"]), environment.get("settings", {})
            if place not in own:
                own.append(place)
                groups.append([])
            groups[own.index(place)].append(EnvironmentSpec(**fields, arms=law))
        if horizon is not None and len(self.horizons) > 1:
            raise ArgumentError("horizon", horizon, f"omitted for {self.name}, which has several")
        last_jump = max((jump for fields in self.environments for jump in fields["drift"].get("times", ())), default=1)
        if horizon is not None and horizon < last_jump:
            raise ArgumentError(
                "horizon", horizon, f"at least {last_jump:,} for {self.name}, the round of its last jump"
            )
        known = [policy for policy in self.policies if _is_known(policy)]
        specs = []
        for (T, settings), environments in zip(own, groups, strict=True):
            policies = [_build_policy(policy, settings.get(_find_label(policy), {}), bonus_scale) for policy in known]
            specs.append(Spec(environments, policies, title=self.title, horizon=horizon or T, **sizes))
        return specs

    def find_horizon(self, environment: str) -> int:
        """Return the horizon of the paper in an environment."""
        (found,) = [fields for fields in self.environments if fields["name"] == environment]
        return int(found.get("horizon", self.horizon))

    def find_turning(self, horizon: int) -> tuple[float, float] | None:
        """Return the rounds between which theta* turns, if it rests before it turns, in all environments alike."""
        drifts = [environment["drift"] for environment in self.environments]
        if drifts[0]["kind"] != Rotation.kind or any(drift != drifts[0] for drift in drifts):
            return None
        turn = Rotation(**{name: value for name, value in drifts[0].items() if name != "kind"})
        begin, end = turn.begin * horizon, turn.end * horizon
        return (begin, end) if begin > 1.0 else None

    def list_readings(self, arms: str, bonus_scale: float) -> list[str]:
        """Return what is assumed where the paper is silent or contradicts itself."""
        return [text.format(arms=self.arms[arms]["text"], bonus_scale=bonus_scale) for text in self.readings]

    def published_curves(self, entries: Sequence[Entry]) -> dict[tuple[str, str], PublishedCurve]:
        """Return the published curves of those entries that have the horizon of the paper."""
        columns = {_find_label(policy): policy.get("published", _find_label(policy)) for policy in self.policies}
        found = {}
        for entry in entries:
            place = entry.environment if any(environment for environment, _ in self.curves) else ""
            curve = self.curves.get((place, columns.get(entry.policy, "")))
            if curve is not None and entry.horizon == self.find_horizon(entry.environment):
                found[entry.environment, entry.policy] = curve
        return found

    def compare(self, entries: Sequence[Entry]) -> list[PublishedComparison]:
        """Compare our results with the published ones."""
        return compare_with_published(entries, self.published_curves(entries), self.published)

    def describe_differences(self, entries: Sequence[Entry]) -> list[str]:
        """Return :meth:`compare` in words."""
        if comparisons := self.compare(entries):
            return describe_comparisons(comparisons)
        return [f"Nothing to compare: only {' / '.join(map(str, self.horizons))} rounds were published."]

    def write_notes(self, entries: Sequence[Entry], arms: str, bonus_scale: float) -> dict[str, list[str]]:
        """Return what is printed beside the results, by heading."""
        notes = {
            "Where this differs from the published result": self.describe_differences(entries),
            "Why it differs": list(self.reasons),
            "Known errors of the publication": list(self.known_errors),
            "Readings assumed where the paper is silent or contradicts itself": self.list_readings(arms, bonus_scale),
            "Policies of the paper that windvane does not have": self.left_out,
        }
        return {heading: lines for heading, lines in notes.items() if lines}


@functools.cache
def read_reproduction(name: str) -> Reproduction:
    """Return the experiment with this name.

    Parameters
    ----------
    name
        A name that ``windvane reproduce --list`` prints, such as ``"russac2019"``.

    Examples
    --------
    >>> read_reproduction("faury2021").label
    'Faury et al. 2021'
    """
    table = tomllib.loads(read_data(f"papers/{check_choice('paper', name, NAMES)}.toml"))
    source = PublishedSource(**table.pop("published"))
    return Reproduction(name=name, published=source, curves=read_curves(name), **table)


def find_reproduction(recipe: Mapping[str, Any]) -> Reproduction | None:
    """Return the experiment that this recipe of a manifest names; None if it is not the recipe of a paper.

    A folder of before this registry names no paper, because there was only one.
    """
    return read_reproduction(recipe.get("paper", DEFAULT)) if recipe.get("name") == RECIPE else None


def write_recipe(name: str, arms: str, bonus_scale: float) -> dict[str, Any]:
    """Return the recipe that the manifest of a reproduction stores."""
    return {"name": RECIPE, "paper": name, "arms": arms, "bonus_scale": bonus_scale}


def run_reproduction(reproduction: Reproduction, folder: Path, conduct: Conduct, **options: Any) -> Results:
    """Run an experiment in ``folder`` with these options of :meth:`Reproduction.build_specs`.

    With several specs, each has a sub-folder, and the results are joined.
    """
    specs = reproduction.build_specs(**options)
    arms, scale = options.get("arms") or reproduction.default_arms, options.get("bonus_scale", 1.0)
    recipe, text = write_recipe(reproduction.name, arms, scale), f"reproducing {reproduction.label}"
    if len(specs) == 1:
        return conduct(specs[0], folder, text, recipe)
    slugs = make_slugs(spec.environments[0].name for spec in specs).values()
    parts = [
        ExperimentPart(slug, f"{text}, part {number} of {len(specs)}", spec)
        for number, (slug, spec) in enumerate(zip(slugs, specs, strict=True), 1)
    ]
    first, *others = run_parts(parts, folder, conduct, recipe)
    return dataclasses.replace(merge_results(first, others), folder=folder)


def _is_known(policy: Mapping[str, Any]) -> bool:
    return ":" in policy["policy"] or policy["policy"] in POLICIES


def _find_label(policy: Mapping[str, Any]) -> str:
    return str(policy.get("label", policy["policy"]))


def _build_policy(policy: Mapping[str, Any], own: Mapping[str, Any], bonus_scale: float) -> PolicySpec:
    """Return a policy as a spec has it, with the settings of an environment and its bonus multiplied."""
    fields = {name: value for name, value in policy.items() if name not in ("published", "rescaled")}
    settings = {**fields.pop("settings", {}), **own}
    accepts_scale = Signature(resolve_policy(policy["policy"])).accepts("bonus_scale")
    if bonus_scale != 1.0 and policy.get("rescaled", True) and accepts_scale:
        settings["bonus_scale"] = bonus_scale * settings.get("bonus_scale", 1.0)
    return PolicySpec(settings=settings, **fields)
