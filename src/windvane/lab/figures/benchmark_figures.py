"""Figures of the benchmarks and studies: the leaderboard, ratios by environment, regret by drift and by horizon."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array
from windvane.lab.figures.description import Axis, Figure, Line, Mark, Panel, Points, Strip, Ticks, log_ticks, row_axis
from windvane.lab.figures.style import BETTER, FIXED, INK, MUTED, PALETTE, Look, tidy

if TYPE_CHECKING:
    from windvane.lab.results.leaderboard import LeaderboardRow
    from windvane.lab.studies.no_tuning import Comparison
    from windvane.lab.studies.rates import Slope

UNITY = Strip("x", 1.0, 1.0, colour=INK)


def _ratio_axis(label: str, ratios: npt.ArrayLike) -> Axis:
    """A log axis for ratios, on which 1 is the best."""
    values = np.append(np.asarray(ratios, dtype=float), 1.0)
    low, high = float(np.nanmin(values)) / 1.06, float(np.nanmax(values)) * 1.06
    return Axis(label, "log", low, high, log_ticks(low, high), has_grid=True, value="ratio", form=".3g")


def leaderboard_figure(
    standings: Sequence[LeaderboardRow],
    *,
    confidence: float,
    score: str = "Regret relative to the best of each environment",
    places: str = "environments",
) -> Figure:
    """A row per policy: its score with the interval, and a tick at its worst environment; the best on top.

    ``score`` and ``places`` are what the axis calls the score and the environments.
    """
    marks: list[Mark] = [UNITY]
    for i, row in enumerate(standings):
        colour, at, bounds = MUTED if row.rank is None else BETTER, np.array([i]), np.array([[row.low], [row.high]])
        marks.append(Points(np.array([row.score]), at, colour, role="score", low=bounds[0], high=bounds[1], along="x"))
        marks.append(Points(np.array([row.worst]), at, colour, role="worst", marker="|", size=8.0))
    label = (
        f"{score} (log scale; left is better)\n"
        f"dot: geometric mean over {places}; line: its {100 * confidence:g} % interval; tick: the worst one"
    )
    x = _ratio_axis(label, [(row.score, row.low, row.high, row.worst) for row in standings])
    panel = Panel(x, row_axis([tidy(row.label, 45) for row in standings]), marks)
    return Figure([panel], size=(7.0, 1.2 + 0.2 * max(len(standings), 4)))


def ratios_figure(comparisons: Sequence[Comparison], *, title: str = "") -> Figure:
    """A row per environment: regret of three policies over that of the pair chosen for it; names set aside have a *."""
    marks: list[Mark] = [UNITY]
    ratios = []
    for role, other in (("adaptive", MUTED), ("master", BETTER), ("greedy", MUTED)):
        rows = [getattr(comparison, role) for comparison in comparisons]
        ratios.append([row.mean / comparison.chosen.mean for row, comparison in zip(rows, comparisons, strict=True)])
        look = FIXED.get(rows[0].label, Look(other, "o"))
        at = np.array(ratios[-1]), np.arange(len(rows))
        marks.append(Points(*at, look.colour, tidy(rows[0].label), role, marker=look.marker))
    names = [tidy(comparison.environment, 45) + " *" * comparison.set_aside for comparison in comparisons]
    label = (
        "Regret relative to the memory and bonus chosen there (log scale; left is better)\n"
        "*: not looked at while the policy was made"
    )
    panel = Panel(_ratio_axis(label, ratios), row_axis(names), marks, legend="lower right")
    return Figure([panel], tidy(title, 90), (7.0, 1.4 + 0.2 * max(len(names), 4)))


def levels_figure(levels: Sequence[float], curves: Mapping[str, tuple[Array, Array]], *, title: str = "") -> Figure:
    """Final regret (mean, standard error) of several policies at each drift B_T; the drifts stand side by side."""
    places = np.arange(len(levels))
    marks: list[Mark] = []
    for i, (name, (mean, se)) in enumerate(curves.items()):
        look, x = PALETTE[i % len(PALETTE)], places + 0.04 * (i - 0.5 * (len(curves) - 1))
        marks.append(Line(x, mean, look.colour, tidy(name), "level", 1.4, marker=look.marker))
        marks.append(_error_bars(x, mean, se, look))
    across = Axis("Drift B_T (not to scale)", ticks=Ticks(places, [f"{level:g}" for level in levels]))
    up = Axis("Final regret, mean ± 1 SE (lower is better)", low=0.0, has_grid=True, value="regret", form=",.1f")
    return Figure([Panel(across, up, marks, legend="best")], tidy(title, 90))


def slopes_figure(slopes: Sequence[Slope], *, title: str = "") -> Figure:
    """Mean regret against the horizon on log axes, with the fitted lines and the bounds (dashed) above them."""
    marks: list[Mark] = []
    for i, family in enumerate(slopes):
        look, T, mean = PALETTE[i % len(PALETTE)], np.array(family.horizons, dtype=float), np.array(family.mean)
        interval = f"[{family.low:.3f}, {family.high:.3f}]"
        name = f"{tidy(family.name)}: slope {family.slope:.3f} {interval}, proven {family.proven:.3f}"
        fit = np.exp(np.log(mean).mean() + family.slope * (np.log(T) - np.log(T).mean()))
        marks.append(_error_bars(T, mean, np.array(family.se), look))
        marks.append(Points(T, mean, look.colour, name, "mean", look.marker))
        marks.append(Line(T, fit, look.colour, role="fit", width=1.2))
        bound = f"its bound: slope {family.bound_slope:.3f}"
        marks.append(Line(T, np.array(family.bound), look.colour, bound, "bound", 1.2, "dashed"))
    values = np.concatenate([[*family.mean, *family.bound] for family in slopes])
    low, high = 0.7 * float(values.min()), 1.4 * float(values.max())
    x = Axis("Rounds T (log scale)", "log", ticks=Ticks(T, [f"{t:,.0f}" for t in T]), has_grid=True, value="T")
    y = Axis("Final regret (log scale)", "log", low, high, log_ticks(low, high, 6), has_grid=True, value="regret")
    return Figure([Panel(x, y, marks)], tidy(title, 90), (7.0, 4.4), legend="below")


def _error_bars(x: npt.NDArray[np.floating], mean: Array, se: Array, look: Look) -> Points:
    return Points(x, mean, look.colour, role="error", marker="", low=mean - se, high=mean + se)
