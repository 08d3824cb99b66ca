"""Figures that compare policies: the leaderboard, paired differences, regret by environment, drift and horizon."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array
from windvane.errors import ArgumentError
from windvane.lab.figures.description import Axis, Figure, Mark, Panel, Series, Strip, Ticks, log_ticks, row_axis
from windvane.lab.figures.over_time_figure import PublishedCurves, published_final
from windvane.lab.figures.style import BETTER, FIXED, INK, MUTED, PALETTE, WORSE, Look, looks, tidy
from windvane.lab.results.summary import summarise_entry

if TYPE_CHECKING:
    from windvane.lab.results.leaderboard import LeaderboardRow
    from windvane.lab.results.results import Entry
    from windvane.lab.results.summary import Difference
    from windvane.lab.studies.no_tuning import Comparison
    from windvane.lab.studies.rates import Slope

ZERO, UNITY = Strip("x", 0.0, 0.0, colour=INK), Strip("x", 1.0, 1.0, colour=INK)


def leaderboard_figure(standings: Sequence[LeaderboardRow], *, confidence: float, labelled: bool = False) -> Figure:
    """Return a row per policy: its score with the interval, and a tick at its worst environment; the best on top."""
    score, places = "Regret relative to the best of each environment", "environments"
    if labelled:
        score, places = "Mistakes relative to the best on each labelled data stream", "labelled data streams"
    marks: list[Mark] = [UNITY]
    names = [tidy(row.label, 45) for row in standings]
    for i, row in enumerate(standings):
        dot = _row(i, names[i], row, row.score, MUTED if row.rank is None else BETTER, "score")
        tick = replace(dot, x=np.array([row.worst]), role="worst", marker="|", size=8.0, low=None, high=None)
        marks += [dot, tick]
    label = (
        f"{score} (log scale; left is better)\n"
        f"dot: geometric mean over {places}; line: its {100 * confidence:g} % interval; tick: the worst one"
    )
    x = _ratio_axis(label, [(row.score, row.low, row.high, row.worst) for row in standings])
    return Figure([Panel(x, row_axis(names), marks)], size=(7.0, 1.2 + 0.2 * max(len(standings), 4)))


def difference_figure(rows: Sequence[Difference], *, title: str = "", confidence: float = 0.95) -> Figure:
    """Paired differences of final regret, one row each, with their confidence intervals about the mean."""
    if not rows:
        raise ArgumentError("rows", rows, "at least one difference")
    several = len({row.environment for row in rows}) > 1
    names = [tidy(f"{row.label} ({row.environment})" if several else row.label, 45) for row in rows]
    marks: list[Mark] = [ZERO]
    for i, row in enumerate(rows):
        dot = _row(i, names[i], row, row.mean, BETTER if row.mean < 0 else WORSE, "difference")
        marks.append(replace(dot, size=6.0, is_filled=row.low > 0 or row.high < 0))
    bases = list(dict.fromkeys(row.baseline for row in rows))
    base = tidy(bases[0], 40) if len(bases) == 1 else "the baseline"
    label = (
        f"Final regret minus that of {base}, paired; left of 0 is better\n"
        f"mean and {100 * confidence:g} % interval (filled: without 0)"
    )
    ends = np.array([[0.0, row.mean, row.low, row.high] for row in rows])
    low, high = float(np.nanmin(ends)), float(np.nanmax(ends))
    margin = 0.04 * (high - low)
    x = Axis(label, low=low - margin, high=high + margin, has_grid=True, value="difference", form=",.2f")
    return Figure([Panel(x, row_axis(names), marks)], tidy(title, 90), (7.0, 1.3 + 0.28 * max(len(rows), 2)))


def ratios_figure(comparisons: Sequence[Comparison], *, title: str = "") -> Figure:
    """Return a row per environment: regret relative to that of the chosen pair; environments set aside have a *."""
    marks: list[Mark] = [UNITY]
    ratios = []
    for role, other in (("adaptive", MUTED), ("master", BETTER), ("greedy", MUTED)):
        rows = [getattr(comparison, role) for comparison in comparisons]
        ratios.append([row.mean / comparison.chosen.mean for row, comparison in zip(rows, comparisons, strict=True)])
        look, at = FIXED.get(rows[0].label, Look(other, "o")), (np.array(ratios[-1]), np.arange(len(rows)))
        marks.append(Series(*at, look.colour, tidy(rows[0].label), role, width=0, marker=look.marker))
    names = [tidy(comparison.environment, 45) + " *" * comparison.set_aside for comparison in comparisons]
    label = (
        "Regret relative to the memory and bonus chosen there (log scale; left is better)\n"
        "*: not looked at while the policy was made"
    )
    panel = Panel(_ratio_axis(label, ratios), row_axis(names), marks, legend="lower right")
    return Figure([panel], tidy(title, 90), (7.0, 1.4 + 0.2 * max(len(names), 4)))


def levels_figure(levels: Sequence[float], curves: Mapping[str, tuple[Array, Array]], *, title: str = "") -> Figure:
    """Return the final regret (mean, standard error) of several policies at each drift B_T, side by side."""
    places = np.arange(len(levels))
    marks: list[Mark] = []
    for i, (name, (mean, se)) in enumerate(curves.items()):
        look, x = PALETTE[i % len(PALETTE)], places + 0.04 * (i - 0.5 * (len(curves) - 1))
        line = Series(x, mean, look.colour, tidy(name), "level", 1.4, marker=look.marker)
        marks.append(replace(line, low=mean - se, high=mean + se))
    across = Axis("Drift B_T (not to scale)", ticks=Ticks(places, [f"{level:g}" for level in levels]))
    up = Axis("Final regret, mean ± 1 SE (lower is better)", low=0.0, has_grid=True, value="regret", form=",.1f")
    return Figure([Panel(across, up, marks, legend="best")], tidy(title, 90))


def slopes_figure(slopes: Sequence[Slope], *, title: str = "") -> Figure:
    """Mean regret against the horizon on log axes, with the fitted lines and the bounds (dashed) above them."""
    marks: list[Mark] = []
    for i, family in enumerate(slopes):
        look, T = PALETTE[i % len(PALETTE)], np.array(family.horizons, dtype=float)
        mean, se = np.array(family.mean), np.array(family.se)
        interval = f"[{family.low:.3f}, {family.high:.3f}]"
        name = f"{tidy(family.name)}: slope {family.slope:.3f} {interval}, proven {family.proven:.3f}"
        fit = np.exp(np.log(mean).mean() + family.slope * (np.log(T) - np.log(T).mean()))
        dots = Series(T, mean, look.colour, name, "mean", width=0, marker=look.marker)
        bound = f"its bound: slope {family.bound_slope:.3f}"
        marks += [
            replace(dots, low=mean - se, high=mean + se),
            Series(T, fit, look.colour, role="fit", width=1.2),
            Series(T, np.array(family.bound), look.colour, bound, "bound", 1.2, "dashed"),
        ]
    values = np.concatenate([[*family.mean, *family.bound] for family in slopes])
    low, high = 0.7 * float(values.min()), 1.4 * float(values.max())
    x = Axis("Rounds T (log scale)", "log", ticks=Ticks(T, [f"{t:,.0f}" for t in T]), has_grid=True, value="T")
    y = Axis("Final regret (log scale)", "log", low, high, log_ticks(low, high, 6), has_grid=True, value="regret")
    return Figure([Panel(x, y, marks)], tidy(title, 90), (7.0, 4.4), legend="below")


def horizons_figure(entries: Sequence[Entry], published: PublishedCurves, *, title: str = "") -> Figure:
    """Return final regret against the horizon on log axes, each policy beside what was published of it (dashed)."""
    marks: list[Mark] = []
    groups: dict[str, list[Entry]] = {}
    for entry in sorted(entries, key=lambda entry: entry.horizon):
        groups.setdefault(entry.label, []).append(entry)
    values = []
    for (name, group), look in zip(groups.items(), looks([group[0] for group in groups.values()]), strict=True):
        T = np.array([entry.horizon for entry in group])
        mean, se = np.array([(row.mean, row.se) for row in map(summarise_entry, group)]).T
        theirs = np.array([published_final(entry, published) for entry in group])
        line = Series(T, mean, look.colour, tidy(name), "mean", 1.4, marker=look.marker)
        marks.append(replace(line, low=mean - se, high=mean + se))
        if np.isfinite(theirs).any():
            dashed = Series(T, theirs, look.colour, f"{tidy(name)}, published", "published", 1.1, "dashed")
            marks.append(replace(dashed, marker=look.marker, is_filled=False))
        values.append(np.concatenate([mean, theirs[np.isfinite(theirs)]]))
    low, high = 0.7 * float(np.concatenate(values).min()), 1.4 * float(np.concatenate(values).max())
    T = np.array(sorted({entry.horizon for entry in entries}))
    x = Axis("Rounds T (log scale)", "log", ticks=Ticks(T, [f"{t:,.0f}" for t in T]), has_grid=True, value="T")
    label = "Final regret, mean ± 1 SE (log scale)"
    y = Axis(label, "log", low, high, log_ticks(low, high, 6), has_grid=True, value="regret", form=",.1f")
    return Figure([Panel(x, y, marks)], tidy(title, 90), legend="below")


def _row(place: int, name: str, interval: LeaderboardRow | Difference, value: float, colour: str, role: str) -> Series:
    """Return a dot with its interval in a row of names."""
    dot = Series(np.array([value]), np.array([place]), colour, name, role, width=0, marker="o", is_listed=False)
    return replace(dot, low=np.array([interval.low]), high=np.array([interval.high]), along="x")


def _ratio_axis(label: str, ratios: npt.ArrayLike) -> Axis:
    """Return a log axis for ratios, on which 1 is the best."""
    values = np.append(np.asarray(ratios, dtype=float), 1.0)
    low, high = float(np.nanmin(values)) / 1.06, float(np.nanmax(values)) * 1.06
    return Axis(label, "log", low, high, log_ticks(low, high), has_grid=True, value="ratio", form=".3g")
