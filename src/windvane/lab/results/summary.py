"""Summarise results: one row per entry, and paired differences between entries.

All policies of an experiment see the same arms and the same noise in run i, so differences are taken run by run. What
the runs have in common cancels, and the interval of a paired difference is far shorter than the two standard errors
suggest. Intervals and p-values are Student's, with n - 1 degrees of freedom, exact for normal differences. With several
differences, verdicts go by p-values that are corrected for their number.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from windvane.arguments import Array, check_number
from windvane.environments import LoggedPath
from windvane.errors import ArgumentError, WindvaneError
from windvane.lab.results.results import Entry, Results, group_by_environment
from windvane.lab.run.result_tables import is_plain

if TYPE_CHECKING:
    import pyarrow

    from windvane.lab.spec.environment_spec import AnyEnvironmentSpec

TOLD = {"drift": "B_T", "switches": "changes", "S": "S"}  # what a policy can be told, and what tables call it
NOT_SIGNIFICANT = "no significant difference"


@dataclass(frozen=True)
class Row:
    """One policy variant in one environment: the final regret over its runs, and the means of other measurements."""

    environment: str
    label: str
    policy: str
    variant: dict[str, Any]
    told: tuple[str, ...]  # what the experiment told the policy exactly though it can do without: "drift", "S", ...
    runs: int
    mean: float
    se: float  # of the mean; nan for one run, as sd
    sd: float
    microseconds: float
    outside: float
    stages: tuple[float, ...]
    drift: float
    switches: float
    gamma: float


class PairingError(WindvaneError, ValueError):
    """``first`` and ``second`` cannot be compared run by run in ``environment``, because they differ in ``code``.

    ``code`` is one of "settings", "runs", "drift", "seed", "horizon" and "environment".
    """

    def __init__(self, first: str, second: str, environment: str, code: str, problem: str) -> None:
        self.first, self.second, self.environment, self.code, self.problem = first, second, environment, code, problem
        super().__init__(f"{first} and {second} cannot be paired in {environment}: {problem}")


@dataclass(frozen=True)
class Difference:
    """Final regret of a policy minus that of the baseline, run by run over the runs that both have.

    Parameters
    ----------
    environment, label, baseline
        Where the policy ``label`` is compared with ``baseline``.
    n
        Number of runs that both have. They share arms and random numbers.
    mean, se
        Mean difference, below 0 if the policy is better, and its standard error. ``se``, ``low``, ``high`` and the
        p-values are nan for one run.
    low, high
        The confidence interval of the mean difference: paired Student t with n - 1 degrees of freedom. It holds for
        this difference alone, however many there are.
    won
        The share of runs in which the policy had less regret; an equal one counts half.
    p
        Of the two-sided paired t test of "the mean difference is 0".
    p_adjusted
        The same, corrected for all differences of the comparison (:func:`adjust_holm`).
    verdict
        "better" or "worse" if ``p_adjusted`` is below 1 - confidence, else "no significant difference".
    """

    environment: str
    label: str
    baseline: str
    n: int
    mean: float
    se: float
    low: float
    high: float
    won: float
    p: float
    p_adjusted: float
    verdict: str


def measure_spread(values: Array) -> tuple[float, float]:
    """Return (standard error of the mean, standard deviation); nan for a single value."""
    n = len(values)
    sd = float(np.std(values, ddof=1)) if n > 1 else math.nan
    return sd / math.sqrt(n), sd


def summarise_entries(results: Results) -> list[Row]:
    """Return a row per entry, in the order of the spec."""
    return [summarise_entry(entry) for entry in results.entries]


def build_summary_table(results: Results) -> pyarrow.Table:
    """Return :func:`summarise_entries` as a table: a column "sweep_NAME" per swept value, a column per stage."""
    import pyarrow as pa

    rows = summarise_entries(results)
    columns: dict[str, Any] = {field.name: [getattr(row, field.name) for row in rows] for field in fields(Row)}
    columns |= {"told": [format_told(row.told) for row in rows]}
    variants, stages = columns.pop("variant"), columns.pop("stages")
    for name in dict.fromkeys(name for variant in variants for name in variant):
        is_column = is_plain(variant[name] for variant in variants if name in variant)  # None is a value as others
        encode = (lambda value: value) if is_column else json.dumps
        columns[f"sweep_{name}"] = [encode(v[name]) if name in v else None for v in variants]
    return pa.table(columns | {f"stage_{i}": share for i, share in enumerate(zip(*stages, strict=True))})


def format_told(told: Sequence[str]) -> str:
    """Return what a policy was told exactly, as tables call it; empty if it was told nothing."""
    return ", ".join(TOLD[truth] for truth in told)


def summarise_entry(entry: Entry) -> Row:
    """Return the row of one entry."""
    se, sd = measure_spread(entry.final)
    return Row(
        environment=entry.environment, label=entry.label, policy=entry.policy, variant=dict(entry.variant),
        told=entry.told, microseconds=entry.microseconds, runs=len(entry.lanes), mean=float(entry.final.mean()),
        se=se, sd=sd, outside=float(entry.outside.mean()), stages=tuple(entry.stages.mean(axis=0).tolist()),
        drift=float(entry.drift.mean()), switches=float(entry.switches.mean()), gamma=float(entry.gamma.mean()),
    )  # fmt: skip


def compare_entries(
    entries: Sequence[Entry], baseline: str | None = None, confidence: float = 0.95
) -> list[Difference]:
    """Compare every entry with the ``baseline`` (a label; default: the first entry) of its environment.

    The entries must belong to one experiment, or come from :func:`~windvane.lab.results.summary.align`. Verdicts go by
    p-values that are corrected for the number of all differences (Holm), so that at most a share 1 - ``confidence`` of
    experiments in which no policy differs has a verdict other than "no significant difference".
    """
    level = check_number("confidence", confidence, "between 0 and 1", lambda c: 0 < c < 1)
    differences = []
    for environment, candidates in group_by_environment(entries).items():
        by_label = {entry.label: entry for entry in candidates}
        if baseline is not None and baseline not in by_label:
            raise ArgumentError("baseline", baseline, f"one of {', '.join(by_label)}", where=environment)
        base = candidates[0] if baseline is None else by_label[baseline]
        differences += [compare_pair(entry, base, level) for entry in candidates if entry is not base]
    adjusted = adjust_holm([difference.p for difference in differences])
    return [
        replace(difference, p_adjusted=p, verdict=_judge(difference.mean, p, level))
        for difference, p in zip(differences, adjusted, strict=True)
    ]


def adjust_holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values that are corrected for their number by Holm's method (1979); nan stays nan and does not count.

    If those below a level are called significant, the probability of any false one is at most this level, however the
    tests depend on each other.

    >>> adjust_holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    known = sorted((p, index) for index, p in enumerate(p_values) if not math.isnan(p))
    adjusted, largest = [math.nan] * len(p_values), 0.0
    for place, (p, index) in enumerate(known):
        largest = max(largest, min(1.0, (len(known) - place) * p))
        adjusted[index] = largest
    return adjusted


def _judge(mean: float, p: float, confidence: float) -> str:
    """Return the verdict on a mean difference with this p-value."""
    is_significant = p < 1.0 - confidence  # false for nan
    return NOT_SIGNIFICANT if not is_significant else "better" if mean < 0 else "worse"


def compare_pair(entry: Entry, base: Entry, confidence: float = 0.95) -> Difference:
    """Return the final regret of ``entry`` minus that of ``base`` over their common runs."""
    from scipy.special import stdtr, stdtrit

    pair = entry.label, base.label, entry.environment
    if entry.environment != base.environment or entry.horizon != base.horizon:
        settings = f"{entry.environment}, horizon {entry.horizon} and {base.environment}, horizon {base.horizon}"
        raise PairingError(*pair, "settings", f"{settings} differ")
    _, mine, other = np.intersect1d(entry.lanes, base.lanes, assume_unique=True, return_indices=True)
    if not len(mine):
        raise PairingError(*pair, "runs", "they have no run in common")
    if not np.array_equal(entry.drift[mine], base.drift[other], equal_nan=True):
        raise PairingError(*pair, "drift", "the drift of their runs differs")
    gaps = entry.final[mine] - base.final[other]
    n, mean, (se, _) = len(gaps), float(gaps.mean()), measure_spread(gaps)
    half, p = math.nan, math.nan
    if n > 1:
        half = se * float(stdtrit(n - 1, 0.5 + 0.5 * confidence))
        p = 2.0 * float(stdtr(n - 1, -abs(mean) / se)) if se > 0.0 else float(mean == 0.0)
    won = float(np.mean((gaps < 0.0) + 0.5 * (gaps == 0.0)))
    interval, verdict = (mean - half, mean + half), _judge(mean, p, confidence)
    return Difference(entry.environment, entry.label, base.label, n, mean, se, *interval, won, p, p, verdict)


def align(several: Sequence[Results]) -> list[Entry]:
    """Return the entries of several folders, to be paired. Environments with one name must be equal, seed included.

    With more than one folder, policies are renamed "folder/policy", so that labels stay distinct.
    """
    if len(several) == 1:
        return list(several[0].entries)
    folders = [results.folder.resolve() for results in several]
    twice = [str(folder) for folder in folders if folders.count(folder) > 1]
    if twice:
        raise ArgumentError("folders", folders, "folders that are all different", got=f"{twice[0]} twice")
    worlds: dict[str, Results] = {}
    places = [(name, results) for results in several for name in group_by_environment(results.entries)]
    for name, results in places:
        if (first := worlds.setdefault(name, results)) is not results:
            _check_same(name, first, results)
    if len(worlds) == len(places):
        raise ArgumentError("folders", folders, "folders with an environment in common", got="none")
    names = _shorten_paths([folder.parts for folder in folders])
    renamed = [
        replace(entry, policy=f"{name}/{entry.policy}")
        for name, results in zip(names, several, strict=True)
        for entry in results.entries
    ]
    return sorted(renamed, key=lambda entry: list(worlds).index(entry.environment))


def _check_same(environment: str, first: Results, second: Results) -> None:
    """Check that seed, horizon and environment are equal; windvane and the code of policies may differ."""
    pair = str(first.folder), str(second.folder), environment
    for key in ("seed", "horizon"):
        if first.manifest[key] != second.manifest[key]:
            raise PairingError(*pair, key, f"the {key} is {first.manifest[key]} and {second.manifest[key]}")
    worlds = ({world.name: world for world in results.environments} for results in (first, second))
    ours, theirs = (_omit_path(by_name[environment]) for by_name in worlds)
    if ours != theirs:
        differ = [f.name for f in fields(ours) if getattr(ours, f.name) != getattr(theirs, f.name, None)]
        raise PairingError(*pair, "environment", f"the environments differ in {', '.join(differ)}")
    before, now = (results.manifest.get("own_modules", {}) for results in (first, second))
    if changed := [module for module in _list_modules(ours) if before.get(module) != now.get(module)]:
        raise PairingError(*pair, "environment", f"they were made with different code in the module {changed[0]}")


def _list_modules(environment: AnyEnvironmentSpec) -> list[str]:
    """Return the modules of the user that an environment names, as in ``drift = {..., function = "module:name"}``."""
    values = [getattr(environment, name, None) for name in ("make", "arms", "link")]
    values.append(getattr(getattr(environment, "drift", None), "function", None))
    return [value.partition(":")[0] for value in values if isinstance(value, str) and ":" in value]


def _omit_path(environment: AnyEnvironmentSpec) -> AnyEnvironmentSpec:
    """Return the environment without the path of its file: the checksum of the content is compared."""
    if environment.kind == "labelled-stream":
        return replace(environment, file="file")
    if environment.kind == "simulated" and isinstance(environment.drift, LoggedPath) and environment.drift.file:
        return replace(environment, drift=replace(environment.drift, file="file"))
    return environment


def _shorten_paths(paths: Iterable[tuple[str, ...]]) -> list[str]:
    """Return the shortest ends of the paths that differ from each other."""
    parts = list(paths)
    for length in range(1, max(len(part) for part in parts) + 1):
        ends = ["/".join(part[-length:]) for part in parts]
        if len(set(ends)) == len(ends):
            break
    return ends
