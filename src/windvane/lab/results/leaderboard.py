"""A leaderboard over many environments: regret relative to the best, averaged geometrically, with intervals.

With m(p, e) the mean final regret of policy p in environment e, and b(e) the least of them there (the oracle's apart),

    score(p) = exp( mean over e of log( m(p, e) / b(e) ) )

is 1 for a policy that is the best everywhere, and 2 for one that loses twice as much as the best on geometric average.
Ratios are used since regrets of different environments have no common scale.

Intervals: run i of all policies and environments shares its random numbers, so whole runs are drawn anew, with
replacement, for all of them at once, and means and scores are computed again, relative to the policy that was the best
of its environment in the actual runs. Quantiles of these scores are taken a little outside the nominal ones, as far as
Student's t and n/(n - 1) ask for (Hesterberg 2015, "expanded percentile intervals"). The best of many is chosen by the
same runs that judge it, which flatters it and makes all ratios a little too large; the intervals do not mend that.
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
from windvane.lab.figures.curves import by_environment

if TYPE_CHECKING:
    from windvane.lab.results.results import Entry

RESAMPLES = 4000


@dataclass(frozen=True)
class Standing:
    """A policy's place: ``score`` within [``low``, ``high``] (nan for a single run), and how it got there."""

    label: str
    rank: int | None  # None for a reference
    score: float
    low: float
    high: float
    worst: float  # the largest of ``ratios``, and where
    worst_environment: str
    microseconds: float  # a run and round, mean over environments
    ratios: dict[str, float]  # by environment


def leaderboard(
    entries: Sequence[Entry],
    *,
    oracle: str = "Oracle",
    references: Collection[str] = (),
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> list[Standing]:
    """Standings by score, the best first. ``oracle`` is left out; ``references`` are scored, but get no rank.

    Every policy must have the same runs in every environment.
    """
    level = check_number("confidence", confidence, "between 0 and 1", lambda c: 0 < c < 1)
    groups = {name: [e for e in here if e.label != oracle] for name, here in by_environment(entries).items()}
    final, labels = _regrets(groups)
    best = final.mean(axis=2).argmin(axis=1)
    ratios = _ratios(final.mean(axis=2, keepdims=True), best)[:, :, 0]
    low, high = _interval(final, best, level, check_whole("resamples", resamples, 1), seed)
    score = _geometric_mean(ratios)
    spent = np.array([[entry.microseconds for entry in here] for here in groups.values()]).mean(axis=0)
    worst = ratios.argmax(axis=0)
    names, found, rank = list(groups), [], 0
    for p in np.argsort(score, kind="stable"):
        rank += labels[p] not in references
        found.append(
            Standing(
                label=labels[p],
                rank=None if labels[p] in references else rank,
                score=float(score[p]),
                low=float(low[p]),
                high=float(high[p]),
                worst=float(ratios[worst[p], p]),
                worst_environment=names[worst[p]],
                microseconds=float(spent[p]),
                ratios=dict(zip(names, ratios[:, p].tolist(), strict=True)),
            )
        )
    return found


def _regrets(groups: dict[str, list[Entry]]) -> tuple[Array, list[str]]:
    """Final regret [environment, policy, run], and the policies' labels."""
    if not groups or not all(groups.values()):
        expected = "at least one policy besides the oracle in every environment"
        raise ArgumentError("entries", list(groups), expected, got="none")
    first = next(iter(groups.values()))
    labels = [entry.label for entry in first]
    for name, here in groups.items():
        if [entry.label for entry in here] != labels:
            expected, got = f"the same policies in every environment as in {first[0].environment}", "others"
            raise ArgumentError("entries", [entry.label for entry in here], expected, got=got, where=name)
        for entry in here:
            if not np.array_equal(entry.lanes, first[0].lanes):
                expected, got = f"of the same runs as {labels[0]}", f"other runs of {entry.label}"
                raise ArgumentError("entries", entry.lanes, expected, got=got, where=name)
    return np.array([[entry.final for entry in here] for here in groups.values()]), labels


def _ratios(mean: Array, best: npt.NDArray[np.int64]) -> Array:
    """``mean[environment, policy, ...]`` over that of the ``best`` policy of each environment; 0 / 0 is 1."""
    least = np.take_along_axis(mean, best[:, None, None], axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(mean == least, 1.0, mean / least)


def _geometric_mean(ratios: Array) -> Array:
    return np.asarray(np.exp(np.log(ratios).mean(axis=0)))


def _interval(
    final: Array, best: npt.NDArray[np.int64], confidence: float, resamples: int, seed: int
) -> tuple[Array, Array]:
    """The expanded percentile interval of every score; nan for a single run."""
    from scipy.special import ndtr, stdtrit

    policies, n = final.shape[1:]
    if n == 1:
        return np.full(policies, math.nan), np.full(policies, math.nan)
    drawn = np.random.default_rng(seed).multinomial(n, np.full(n, 1.0 / n), size=resamples)
    scores = _geometric_mean(_ratios(final @ (drawn.T / n), best))  # [policy, resample]
    tail = float(ndtr(math.sqrt(n / (n - 1)) * stdtrit(n - 1, 0.5 - 0.5 * confidence)))
    low = np.quantile(scores, tail, axis=1, method="lower")  # values themselves: between infinite ones there is nothing
    return low, np.quantile(scores, 1.0 - tail, axis=1, method="higher")
