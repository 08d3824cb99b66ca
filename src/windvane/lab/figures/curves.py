"""Means, spreads and quantiles over runs, published curves, and how a curve is thinned for the page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array

if TYPE_CHECKING:
    from windvane.lab.results.results import Entry

PublishedCurves = Mapping[str, Sequence[npt.NDArray[Any]]]
"""A published curve per policy name: rounds, mean regret, and perhaps more that is not drawn."""
PublishedCurve = tuple[Array, Array]
MOST = 300  # points of a curve on the page


class MeanCurve(NamedTuple):
    """A measure over recorded rounds: mean and standard deviation over runs (nan throughout for a single run)."""

    rounds: npt.NDArray[np.int64]
    mean: Array
    sd: Array


class Measure(NamedTuple):
    """What is drawn over rounds: its name, the title of its section, the label of its axis, the format of a value."""

    name: str
    title: str
    axis: str
    form: str
    curve: Callable[[Entry], MeanCurve]


def regret(entry: Entry) -> MeanCurve:
    values = np.asarray(entry.regret, dtype=float)
    return MeanCurve(np.asarray(entry.rounds), values.mean(axis=0), sd_over_runs(values))


def mean_reward(entry: Entry) -> MeanCurve:
    """The mean reward up to each round, where an entry's regret is its number of mistakes."""
    share = 1.0 - np.asarray(entry.regret, dtype=float) / np.asarray(entry.rounds)
    return MeanCurve(np.asarray(entry.rounds), share.mean(axis=0), sd_over_runs(share))


REGRET = Measure("regret", "Regret over time", "Cumulative regret (units of reward)", ",.1f", regret)
MEAN_REWARD = Measure("mean reward", "Mean reward over time", "Mean reward so far (share right)", ".3f", mean_reward)


def by_environment(entries: Iterable[Entry]) -> dict[str, list[Entry]]:
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        groups.setdefault(entry.environment, []).append(entry)
    return groups


def settled_range(values: Iterable[MeanCurve]) -> tuple[float, float]:
    """The least and the largest mean after the first twentieth of the rounds: before, means of few rewards jump."""
    late = [curve.mean[curve.rounds >= curve.rounds[-1] / 20] for curve in values]
    return min(float(means.min()) for means in late), max(float(means.max()) for means in late)


def sd_over_runs(values: Array) -> Array:
    """The standard deviation over runs (the first axis), unbiased; nan for a single run."""
    if len(values) < 2:
        return np.full(values.shape[1:], np.nan)
    with np.errstate(invalid="ignore"):
        return np.asarray(values.std(axis=0, ddof=1))


def quantile(values: Array, q: float) -> Array:
    """A quantile over runs that is one of the values, so that infinite ones do no harm; nan where it is not finite."""
    ordered = np.sort(values, axis=0)  # nan goes last
    known = np.sum(~np.isnan(values), axis=0)
    place = np.rint(q * np.maximum(known - 1, 0)).astype(int)
    result = np.take_along_axis(ordered, place[None], axis=0)[0]
    return np.where(np.isfinite(result), result, np.nan)


def share_above(values: Array, bound: Array) -> float:
    """The share of rounds and runs with ``values`` above ``bound``, of those where both are known."""
    known = ~(np.isnan(values) | np.isnan(bound))
    return float(np.mean(values[known] > bound[known])) if known.any() else float("nan")


def published_for(entry: Entry, published: PublishedCurves | None) -> PublishedCurve | None:
    """The published (rounds, mean) of the entry's policy within its horizon; None for none, or for a variant."""
    if published is None or entry.policy not in published or entry.variant:
        return None
    rounds, mean = (np.asarray(part, dtype=float) for part in published[entry.policy][:2])
    within = rounds <= entry.horizon
    return (rounds[within], mean[within]) if within.any() else None


def published_final(entry: Entry, published: PublishedCurves | None) -> float:
    """The published mean at the entry's horizon; nan where the published curve does not get there."""
    if published is None or published_for(entry, published) is None:
        return float("nan")
    rounds, mean = (np.asarray(part, dtype=float) for part in published[entry.policy][:2])
    return float(np.interp(entry.horizon, rounds, mean, right=np.nan))


def thin(count: int, most: int = MOST) -> npt.NDArray[np.int64]:
    """At most ``most`` of the indices 0..count-1: both ends, two thirds evenly, one third closer at the start.

    The dense start keeps a curve smooth on a logarithmic axis.
    """
    if count <= most:
        return np.arange(count)
    even = np.linspace(0, count - 1, most - most // 3)
    early = np.geomspace(1, count, most // 3) - 1
    return np.unique(np.rint(np.concatenate([even, early])).astype(np.int64))
