"""Published values: the curves that were read off the figures of papers, and how our results differ from them."""

from __future__ import annotations

import csv
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from windvane.lab.figures.over_time_figure import PublishedCurve, PublishedCurves
from windvane.lab.results.results import Entry
from windvane.lab.studies.notes import read_data

SIGNIFICANT = 2.0  # standard errors: a smaller gap is not called a difference


@dataclass(frozen=True)
class PublishedSource:
    """Where published values are from, and how exact they are.

    Parameters
    ----------
    source
        The figure or table, and how it was read.
    runs
        The number of published runs.
    reading_error
        The largest error of a reading, in units of regret.
    compare
        The rounds at which curves are compared. Default: the last one that could be read.
    """

    source: str
    runs: int
    reading_error: float
    compare: Sequence[int] = ()


def read_curves(name: str) -> dict[tuple[str, str], PublishedCurve]:
    """Return the curves in ``papers/NAME.csv`` by environment and column; an empty cell could not be read.

    Without a column "environment" the name of the environment is empty: there is only one.
    """
    rows = list(csv.DictReader(read_data(f"papers/{name}.csv").splitlines()))
    curves = {}
    for environment, group in itertools.groupby(rows, key=lambda row: row.get("environment", "")):
        lines = list(group)
        for column in [column for column in lines[0] if column not in ("environment", "round")]:
            points = [(int(line["round"]), float(line[column])) for line in lines if line[column]]
            if points:
                rounds, mean = zip(*points, strict=True)
                curves[environment, column] = PublishedCurve(np.array(rounds), np.array(mean))
    return curves


@dataclass(frozen=True)
class PublishedComparison:
    """Our mean regret beside the published one at a few rounds; ``errors`` are the gaps in standard errors."""

    policy: str
    rounds: list[int]
    ours: list[float]
    published: list[float]
    errors: list[float]
    environment: str = ""

    def __str__(self) -> str:
        far = [error > SIGNIFICANT for error in self.errors]
        means = f"{_list(self.ours)} against the published {_list(self.published)}"
        if not all(math.isfinite(error) for error in self.errors):
            return f"{self.policy}: {means}; one run tells nothing about the noise."
        errors = f"{_list(self.errors)} standard errors apart"
        verdict = "differs" if all(far) else "differs in places" if any(far) else "shows no significant difference"
        return f"{self.policy} {verdict}: {means} ({errors})."


def _list(values: list[float]) -> str:
    return " / ".join(f"{value:.1f}" for value in values)


def compare_with_published(
    entries: Sequence[Entry], curves: PublishedCurves, source: PublishedSource
) -> list[PublishedComparison]:
    """Compare our results with the published ones at the rounds of ``source``.

    A gap is measured in standard errors of the difference of two means, ours and that of the published runs, which are
    assumed to have the same spread as ours. An error of reading that is uniform in its range is added to the variance.
    """
    comparisons = []
    for entry in entries:
        curve = curves.get((entry.environment, entry.policy))
        if curve is None or entry.variant:
            continue
        rounds = [t for t in source.compare if t in curve.rounds] or [int(curve.rounds[-1])]
        at = np.array([np.interp(rounds, entry.rounds, regret) for regret in entry.regret])
        ours, theirs = at.mean(axis=0), curve.mean[np.searchsorted(curve.rounds, rounds)]
        n = len(at)
        sd = at.std(axis=0, ddof=1) if n > 1 else np.full(len(rounds), math.nan)
        variance = np.square(sd) * (1.0 / n + 1.0 / source.runs) + source.reading_error**2 / 3.0
        errors = np.abs(ours - theirs) / np.sqrt(variance)
        lists = ours.tolist(), theirs.tolist(), errors.tolist()
        comparisons.append(PublishedComparison(entry.policy, rounds, *lists, environment=entry.environment))
    return comparisons


def describe_comparisons(comparisons: Sequence[PublishedComparison]) -> list[str]:
    """Return comparisons in words, under a heading for each environment, if there are several, and set of rounds."""
    lines = []
    several = len({comparison.environment for comparison in comparisons}) > 1

    def find_heading(comparison: PublishedComparison) -> tuple[str, list[int]]:
        return comparison.environment, comparison.rounds

    for (environment, rounds), group in itertools.groupby(comparisons, key=find_heading):
        place = f"{environment}, mean" if several else "Mean"
        lines += [f"{place} regret after {' / '.join(map(str, rounds))} rounds:", *map(str, group)]
    return lines
