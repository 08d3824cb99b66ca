"""Regret over time, and the mean reward over time on labelled data streams."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array
from windvane.errors import ArgumentError
from windvane.lab.figures.description import Axis, Band, Figure, Mark, Panel, Series, Strip, key_line, round_axis
from windvane.lab.figures.style import LINK, Look, entry_names, looks, tidy

if TYPE_CHECKING:
    from windvane.lab.results.results import Entry

PublishedCurve = tuple[npt.NDArray[Any], npt.NDArray[Any]]
"""Rounds and mean regret."""
PublishedCurves = Mapping[str, PublishedCurve]
"""A published curve per policy name."""
MOST_BANDS = 8  # beyond so many lines, bands and names at the line ends would hide each other


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
    """Return the cumulative regret."""
    return _average(entry, np.asarray(entry.regret, dtype=float))


def mean_reward(entry: Entry) -> MeanCurve:
    """Return the mean reward up to each round, where an entry's regret is its number of mistakes."""
    return _average(entry, 1.0 - np.asarray(entry.regret, dtype=float) / entry.rounds)


def _average(entry: Entry, values: Array) -> MeanCurve:
    with np.errstate(invalid="ignore"):
        sd = values.std(axis=0, ddof=1) if len(values) > 1 else np.full(values.shape[1:], np.nan)
    return MeanCurve(np.asarray(entry.rounds), values.mean(axis=0), sd)


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
) -> Figure:
    """Return a measure over rounds: the mean over runs with a band of one standard deviation either side.

    ``turning`` (first and last round of the drift) is shaded. ``published`` (policy name -> (rounds, mean)) is dashed
    in the policy's colour. ``others`` are thin grey lines. Names stand at the ends of the lines; more than MOST_BANDS
    entries get a legend, no bands.
    """
    if not entries:
        raise ArgumentError("entries", entries, "at least one entry")
    is_crowded = len(entries) > MOST_BANDS
    marks: list[Mark] = [] if turning is None else [Strip("x", *turning, text="drift period")]
    marks += [Series(*measure.curve(other)[:2], LINK, width=0.7, role="other") for other in others]
    names = [tidy(name, 200) for name in entry_names(entries)]
    for group, (entry, look, name) in enumerate(zip(entries, looks(entries), names, strict=True)):
        known = published_for(entry, published)
        marks += _curve(measure, measure.curve(entry), known, look, name, group, is_thin=is_crowded)
    key: list[Mark] = []
    if others:
        key = [key_line(f"{len(others)} other {'policy' if len(others) == 1 else 'policies'}", colour=LINK)]
    elif any(getattr(mark, "role", "") == "published" for mark in marks):
        key = [key_line("measured"), key_line("published", "dashed", width=1.1)]
    runs = sorted({len(entry.lanes) for entry in entries})
    label = f"{measure.axis}\n{_over_runs(runs, runs[-1] > 1 and not is_crowded)}"
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
    if published is None or entry.policy not in published or entry.variant:
        return None
    rounds, mean = published[entry.policy]
    within = rounds <= entry.horizon
    return (rounds[within], mean[within]) if within.any() else None


def published_final(entry: Entry, published: PublishedCurves | None) -> float:
    """Return the published mean at the entry's horizon; nan where the published curve does not get there."""
    if published is None or published_for(entry, published) is None:
        return float("nan")
    return float(np.interp(entry.horizon, *published[entry.policy], right=np.nan))


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
    """Return the marks of one entry: a band of one standard deviation, the published curve, the mean."""
    rounds, mean, sd = curve
    marks: list[Mark] = []
    if not np.isnan(sd).all():
        marks.append(Band(rounds, mean - sd, mean + sd, look.colour, group, is_hidden=is_thin))
    if known is not None:
        dashed = Series(*known, look.colour, f"{name}, published", "published", 1.1, "dashed", is_listed=False)
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


def _over_runs(runs: Sequence[int], has_bands: bool) -> str:
    if runs[-1] == 1:
        return "1 run"
    count = f"{runs[0]:,}" if len(runs) == 1 else f"{runs[0]:,} to {runs[-1]:,}"
    return f"mean{' ± 1 sd' if has_bands else ''} over {count} runs"
