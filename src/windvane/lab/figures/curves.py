"""Means, spreads and quantiles over runs, published curves, and how a curve is thinned for the page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array

if TYPE_CHECKING:
    from windvane.lab.results.results import Entry

PublishedCurve = tuple[npt.NDArray[Any], npt.NDArray[Any]]
"""Rounds and mean regret."""
PublishedCurves = Mapping[str, PublishedCurve]
"""A published curve per policy name."""
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
    return _over_runs(entry, np.asarray(entry.regret, dtype=float))


def mean_reward(entry: Entry) -> MeanCurve:
    """The mean reward up to each round, where an entry's regret is its number of mistakes."""
    return _over_runs(entry, 1.0 - np.asarray(entry.regret, dtype=float) / entry.rounds)


def _over_runs(entry: Entry, values: Array) -> MeanCurve:
    with np.errstate(invalid="ignore"):
        sd = values.std(axis=0, ddof=1) if len(values) > 1 else np.full(values.shape[1:], np.nan)
    return MeanCurve(np.asarray(entry.rounds), values.mean(axis=0), sd)


REGRET = Measure("regret", "Regret over time", "Cumulative regret (units of reward)", ",.1f", regret)
MEAN_REWARD = Measure("mean reward", "Mean reward over time", "Mean reward so far (share right)", ".3f", mean_reward)


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
    """The published curve of the entry's policy within its horizon; None for none, or for a variant."""
    if published is None or entry.policy not in published or entry.variant:
        return None
    rounds, mean = published[entry.policy]
    within = rounds <= entry.horizon
    return (rounds[within], mean[within]) if within.any() else None


def published_final(entry: Entry, published: PublishedCurves | None) -> float:
    """The published mean at the entry's horizon; nan where the published curve does not get there."""
    if published is None or published_for(entry, published) is None:
        return float("nan")
    return float(np.interp(entry.horizon, *published[entry.policy], right=np.nan))


def thin(count: int, most: int = MOST) -> npt.NDArray[np.int64]:
    """At most ``most`` of the indices 0..count-1: both ends, two thirds evenly, one third closer at the start.

    The dense start keeps a curve smooth on a logarithmic axis.
    """
    if count <= most:
        return np.arange(count)
    even = np.linspace(0, count - 1, most - most // 3)
    early = np.geomspace(1, count, most // 3) - 1
    return np.unique(np.rint(np.concatenate([even, early])).astype(np.int64))
