"""A leaderboard over many environments: regret relative to the best, averaged geometrically, with intervals.

Let m(p, e) be the mean final regret of policy p in environment e, and b(e) the smallest of them (without the oracle).

    score(p) = exp( mean over e of log( m(p, e) / b(e) ) )

is 1 for a policy that is the best everywhere, and 2 for one that loses twice as much as the best on geometric average.
Ratios are used because regrets of different environments have no common scale.

Intervals are bootstrap intervals over runs. Run i of all policies and environments shares its random numbers, so a
resample draws whole runs, the same for all of them, and recomputes means and scores relative to the policy that was the
best of its environment in the actual runs. The quantiles are widened as Student's t and n/(n - 1) require (Hesterberg
2015, "expanded percentile intervals"). The best policy is chosen on the same runs that evaluate it, which makes it
look better and all ratios a little too large; the intervals do not correct that.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array, check_number, check_whole
from windvane.errors import ArgumentError
from windvane.lab.results.results import group_by_environment

if TYPE_CHECKING:
    from windvane.lab.results.results import Entry

RESAMPLES = 4000


@dataclass(frozen=True)
class LeaderboardRow:
    """A policy's place: its ``score`` with the interval [``low``, ``high``] (nan for a single run), and the ratios."""

    label: str
    rank: int | None  # None for a reference
    score: float
    low: float
    high: float
    worst: float  # the largest of ``ratios``, and where
    worst_environment: str
    microseconds: float  # a run and round, mean over environments
    ratios: dict[str, float]  # by environment


def rank_policies(
    entries: Sequence[Entry],
    *,
    oracle: str = "Oracle",
    references: Collection[str] = (),
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> list[LeaderboardRow]:
    """Rank policies by their score.

    Parameters
    ----------
    entries
        The results; every policy must have the same runs in every environment.
    oracle
        The label of the policy that knows the truth. It has no regret and is left out.
    references
        Labels of policies that have a score, but no rank.
    confidence, resamples, seed
        Of the intervals: their level, the number of resamples, and the seed that draws them.

    Returns
    -------
    list of LeaderboardRow
        The best policy first.

    Examples
    --------
    >>> import windvane.lab
    >>> results = windvane.lab.open("benchmark")                                 # doctest: +SKIP
    >>> rank_policies(results.entries, references=["UniformRandom"])[0].label      # doctest: +SKIP
    """
    level = check_number("confidence", confidence, "between 0 and 1", lambda c: 0 < c < 1)
    every = group_by_environment(entries)
    groups = {name: [entry for entry in group if entry.label != oracle] for name, group in every.items()}
    final, labels = _collect_regrets(groups)
    best = final.mean(axis=2).argmin(axis=1)
    ratios = _divide_by_best(final.mean(axis=2, keepdims=True), best)[:, :, 0]
    low, high = _compute_interval(final, best, level, check_whole("resamples", resamples, 1), seed)
    score = _average_ratios(ratios)
    microseconds = np.array([[entry.microseconds for entry in group] for group in groups.values()]).mean(axis=0)
    rank, rows = 0, []
    for p in np.argsort(score, kind="stable"):
        rank += labels[p] not in references
        by_name, worst = dict(zip(groups, ratios[:, p].tolist(), strict=True)), list(groups)[ratios[:, p].argmax()]
        row = LeaderboardRow(
            label=labels[p], rank=None if labels[p] in references else rank, score=float(score[p]), low=float(low[p]),
            high=float(high[p]), worst=by_name[worst], worst_environment=worst, microseconds=float(microseconds[p]),
            ratios=by_name,
        )  # fmt: skip
        rows.append(row)
    return rows


def _collect_regrets(groups: dict[str, list[Entry]]) -> tuple[Array, list[str]]:
    """Return the final regret, [environment, policy, run], and the labels of the policies."""
    if not groups or not all(groups.values()):
        expected = "at least one policy besides the oracle in every environment"
        raise ArgumentError("entries", list(groups), expected, got="none")
    first, *others = next(iter(groups.values()))
    labels = [entry.label for entry in (first, *others)]
    for name, group in groups.items():
        if (found := [entry.label for entry in group]) != labels:
            expected = f"the same policies in every environment as in {first.environment}"
            raise ArgumentError("entries", found, expected, got="others", where=name)
        if different := [entry for entry in group if not np.array_equal(entry.lanes, first.lanes)]:
            expected, got = f"of the same runs as {labels[0]}", f"other runs of {different[0].label}"
            raise ArgumentError("entries", different[0].lanes, expected, got=got, where=name)
    return np.array([[entry.final for entry in group] for group in groups.values()]), labels


def _divide_by_best(mean: Array, best: npt.NDArray[np.int64]) -> Array:
    """Divide ``mean[environment, policy, ...]`` by that of the ``best`` policy of each environment; 0 / 0 is 1."""
    least = np.take_along_axis(mean, best[:, None, None], axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(mean == least, 1.0, mean / least)


def _average_ratios(ratios: Array) -> Array:
    return np.asarray(np.exp(np.log(ratios).mean(axis=0)))


def _compute_interval(
    final: Array, best: npt.NDArray[np.int64], confidence: float, resamples: int, seed: int
) -> tuple[Array, Array]:
    """Return the expanded percentile interval of every score; nan for a single run."""
    from scipy.special import ndtr, stdtrit

    policies, n = final.shape[1:]
    if n == 1:
        return np.full(policies, math.nan), np.full(policies, math.nan)
    drawn = np.random.default_rng(seed).multinomial(n, np.full(n, 1.0 / n), size=resamples)
    scores = _average_ratios(_divide_by_best(final @ (drawn.T / n), best))  # [policy, resample]
    tail = float(ndtr(math.sqrt(n / (n - 1)) * stdtrit(n - 1, 0.5 - 0.5 * confidence)))
    # "lower" and "higher" return values of the sample: infinite ones cannot be interpolated.
    low = np.quantile(scores, tail, axis=1, method="lower")
    return low, np.quantile(scores, 1.0 - tail, axis=1, method="higher")
