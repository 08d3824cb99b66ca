"""Regret over time, and the mean reward over time on labelled data streams."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array, check_choice
from windvane.errors import ArgumentError
from windvane.lab.figures.description import Axis, Band, Figure, Mark, Panel, Series, Strip, key_line, round_axis
from windvane.lab.figures.style import LINK, Look, entry_names, looks, tidy

if TYPE_CHECKING:
    from windvane.lab.results.results import Entry

MOST_BANDS = 8  # beyond so many lines, bands and names at the line ends would hide each other


class PublishedCurve(NamedTuple):
    """The mean regret over the published runs, at the rounds that could be read."""

    rounds: npt.NDArray[np.int64]
    mean: Array


PublishedCurves = Mapping[tuple[str, str], PublishedCurve]
"""A published curve by environment and policy."""


class MeanCurve(NamedTuple):
    """A measure over recorded rounds: mean and standard deviation over runs, and a band (nan for a single run)."""

    rounds: npt.NDArray[np.int64]
    mean: Array
    sd: Array
    low: Array
    high: Array


class BandKind(NamedTuple):
    """What a band about a mean shows: in an axis label, on a switch, and in a caption."""

    label: str  # {} is the number of runs
    switch: str
    caption: str


BANDS = {
    "sd": BandKind(
        "mean ± 1 sd over {} runs", "± 1 sd", "bands reach one standard deviation of single runs to either side"
    ),
    "se": BandKind(
        "mean ± 1 SE over {} runs", "± 1 SE", "bands reach one standard error of the mean to either side"
    ),
    "quantiles": BandKind(
        "mean over {} runs; band: the middle 80 % of them", "10 % to 90 %",
        "bands hold the middle 80 % of the runs, from the 10 % to the 90 % quantile",
    ),
}  # fmt: skip
"""The kinds of bands, the default first. Regret is skewed to large values: only quantiles show it."""
DEFAULT_BANDS = next(iter(BANDS))
QUANTILES = (0.1, 0.9)


class Measure(NamedTuple):
    """What is drawn over rounds: its name, the title of its section, the label of its axis, the format of a value."""

    name: str
    title: str
    axis: str
    form: str
    curve: Callable[[Entry, str], MeanCurve]


def regret(entry: Entry, bands: str = DEFAULT_BANDS) -> MeanCurve:
    """Return the cumulative regret, with a band of this kind (:data:`BANDS`)."""
    return _average(entry, np.asarray(entry.regret, dtype=float), bands)


def mean_reward(entry: Entry, bands: str = DEFAULT_BANDS) -> MeanCurve:
    """Return the mean reward up to each round, where an entry's regret is its number of mistakes."""
    return _average(entry, 1.0 - np.asarray(entry.regret, dtype=float) / entry.rounds, bands)


def _average(entry: Entry, values: Array, bands: str) -> MeanCurve:
    check_choice("bands", bands, tuple(BANDS))
    mean = values.mean(axis=0)
    with np.errstate(invalid="ignore"):
        sd = values.std(axis=0, ddof=1) if len(values) > 1 else np.full(values.shape[1:], np.nan)
    half = sd / np.sqrt(len(values)) if bands == "se" else sd
    low, high = mean - half, mean + half
    if bands == "quantiles" and len(values) > 1:
        low, high = np.quantile(values, QUANTILES, axis=0)
    return MeanCurve(np.asarray(entry.rounds), mean, sd, low, high)


REGRET = Measure("regret", "Regret over time", "Cumulative regret (units of reward)", ",.1f", regret)
MEAN_REWARD = Measure("mean reward", "Mean reward over time", "Mean reward so far (share right)", ".3f", mean_reward)


def over_time_figure(
    entries: Sequence[Entry],
    measure: Measure = REGRET,
    *,
    title: str = "",
    turning: tuple[float, float] | None = None,
    published: PublishedCurves | None = None,
    others: Sequence[Entry] = (),
    bands: str = DEFAULT_BANDS,
) -> Figure:
    """Return a measure over rounds: the mean over runs, with a band of one of the kinds of :data:`BANDS`.

    ``turning`` (first and last round of the drift) is shaded. ``published`` is dashed in the policy's colour.
    ``others`` are thin grey lines. Names stand at the ends of the lines; more than MOST_BANDS entries get a legend, no
    bands.
    """
    if not entries:
        raise ArgumentError("entries", entries, "at least one entry")
    is_crowded = len(entries) > MOST_BANDS
    marks: list[Mark] = [] if turning is None else [Strip("x", *turning, text="drift period")]
    marks += [Series(*measure.curve(other, bands)[:2], LINK, width=0.7, role="other") for other in others]
    names = [tidy(name, 200) for name in entry_names(entries)]
    for group, (entry, look, name) in enumerate(zip(entries, looks(entries), names, strict=True)):
        known = published_for(entry, published)
        marks += _curve(measure, measure.curve(entry, bands), known, look, name, group, is_thin=is_crowded)
    key: list[Mark] = []
    if others:
        key = [key_line(f"{len(others)} other {'policy' if len(others) == 1 else 'policies'}", colour=LINK)]
    elif any(getattr(mark, "role", "") == "published" for mark in marks):
        key = [key_line("measured"), key_line("published", "dashed", width=1.1)]
    runs = sorted({len(entry.lanes) for entry in entries})
    label = f"{measure.axis}\n{_over_runs(runs, '' if is_crowded else bands)}"
    low, high = (0.0, None) if measure is REGRET else _settled_limits([*entries, *others])
    panel = Panel(
        round_axis(max(entry.horizon for entry in entries)),
        Axis(label, low=low, high=high, has_grid=True, value=measure.name, form=measure.form),
        [*marks, *key],
        legend="lower right" if others else "upper left" if key else "",
    )
    size = (7.0 + 1.5 * -(-len(entries) // 24), 5.0) if is_crowded else (7.0, 4.0)
    return Figure([panel], tidy(title, 90), size, legend="right" if is_crowded else "")


def published_for(entry: Entry, published: PublishedCurves | None) -> PublishedCurve | None:
    """Return the published curve of the entry's policy within its horizon; None for none, or for a variant."""
    curve = (published or {}).get((entry.environment, entry.policy))
    if curve is None or entry.variant:
        return None
    within = curve.rounds <= entry.horizon
    return PublishedCurve(curve.rounds[within], curve.mean[within]) if within.any() else None


def published_final(entry: Entry, published: PublishedCurves | None) -> float:
    """Return the published mean at the entry's horizon; nan where the published curve does not get there."""
    if published is None or published_for(entry, published) is None:
        return float("nan")
    return float(np.interp(entry.horizon, *published[entry.environment, entry.policy], right=np.nan))


def _curve(
    measure: Measure,
    curve: MeanCurve,
    known: PublishedCurve | None,
    look: Look,
    name: str,
    group: int,
    *,
    is_thin: bool,
) -> list[Mark]:
    """Return the marks of one entry: a band, the published curve, the mean."""
    rounds, mean, sd, low, high = curve
    marks: list[Mark] = []
    if not np.isnan(sd).all():
        marks.append(Band(rounds, low, high, look.colour, group, is_hidden=is_thin))
    if known is not None:
        dashed = Series(*known, look.colour, f"{name}, published", "published", 1.1, "dashed", is_listed=False)
        if len(known.rounds) == 1:  # a line through one point cannot be seen
            dashed = replace(dashed, width=0, marker=look.marker, size=7.0, is_filled=False)
        marks.append(replace(dashed, group=group))
    line = Series(rounds, mean, look.colour, name, "mean", 1.0, look.dash, spread=sd, group=group)
    if not is_thin:
        end = f"{tidy(name, 40)}  {mean[-1]:{measure.form}}" if np.isfinite(mean[-1]) else ""
        line = replace(line, width=1.6, marker=look.marker, end=end, is_listed=False)
    return [*marks, line]


def _settled_limits(entries: Sequence[Entry]) -> tuple[float, float]:
    """Limits of the mean rewards after the first twentieth of the rounds: before, means of few rewards jump."""
    every = map(mean_reward, entries)
    late = np.concatenate([curve.mean[curve.rounds >= curve.rounds[-1] / 20] for curve in every])
    margin = 0.05 * float(late.max() - late.min()) + 0.005
    return max(float(late.min()) - margin, 0.0), min(float(late.max()) + margin, 1.0)


def _over_runs(runs: Sequence[int], bands: str) -> str:
    """Return what is drawn of how many runs; ``bands`` is empty where no bands are drawn."""
    if runs[-1] == 1:
        return "1 run"
    count = f"{runs[0]:,}" if len(runs) == 1 else f"{runs[0]:,} to {runs[-1]:,}"
    return (BANDS[bands].label if bands else "mean over {} runs").format(count)
