"""Figures of the benchmark and the studies: the leaderboard, ratios by environment, regret by drift and by horizon."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from windvane.arguments import Array
from windvane.lab.figures.canvas import INK, MUTED, SIZE, new_figure, style, text
from windvane.lab.figures.curves import FIXED, PALETTE, Look

if TYPE_CHECKING:
    from windvane.lab.results.leaderboard import LeaderboardRow
    from windvane.lab.studies.no_tuning import Comparison
    from windvane.lab.studies.rates import Slope


def _ratio_axes(figure: Figure) -> Axes:
    """Rows of names on the left; to the right ratios on a log axis with a line at 1."""
    axes = figure.add_subplot()
    axes.grid(axis="x")
    axes.set_xscale("log")
    axes.axvline(1.0, color=INK, linewidth=1)
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=20))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    return axes


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
    with style():
        figure = new_figure(7.0, 1.2 + 0.2 * max(len(standings), 4))
        axes = _ratio_axes(figure)
        for i, one in enumerate(standings):
            colour = MUTED if one.rank is None else FIXED["D-LinUCB"].colour
            axes.plot([one.low, one.high], [i, i], color=colour, linewidth=2, gid="interval")
            axes.plot(one.score, i, "o", color=colour, markersize=5, gid="score")
            axes.plot(one.worst, i, "|", color=colour, markersize=8, gid="worst")
        if max(one.worst for one in standings) < 5.0:
            axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 1.2, 1.5, 2.0, 3.0, 4.0), numticks=20))
        axes.set_yticks(range(len(standings)), [text(one.label, 45) for one in standings], size=SIZE - 1)
        axes.set_ylim(len(standings) - 0.4, -0.6)
        axes.set_xlabel(
            f"{score} (log scale; left is better)\n"
            f"dot: geometric mean over {places}; line: its {100 * confidence:g} % interval; tick: the worst one"
        )
    return figure


def ratios_figure(found: Sequence[Comparison], *, title: str = "") -> Figure:
    """A row per environment: regret of three policies over that of the pair chosen for it; names set aside have a *."""
    with style():
        figure = new_figure(7.0, 1.4 + 0.2 * max(len(found), 4))
        axes = _ratio_axes(figure)
        for name in ("adaptive", "master", "greedy"):
            ratios = [getattr(one, name).mean / one.chosen.mean for one in found]
            label = getattr(found[0], name).label
            look = FIXED.get(label, Look(MUTED, "o"))
            axes.plot(
                ratios, range(len(found)), look.marker, color=look.colour, markersize=5, label=text(label), gid=name
            )
        names = [text(one.environment, 45) + (" *" if one.set_aside else "") for one in found]
        axes.set_yticks(range(len(found)), names, size=SIZE - 1)
        axes.set_ylim(len(found) - 0.4, -0.6)
        axes.set_xlabel(
            "Regret relative to the memory and bonus chosen there (log scale; left is better)\n"
            "*: not looked at while the policy was made"
        )
        axes.set_title(text(title, 90))
        axes.legend(loc="lower right")
    return figure


def levels_figure(levels: Sequence[float], curves: Mapping[str, tuple[Array, Array]], *, title: str = "") -> Figure:
    """Final regret (mean, standard error) of several policies at each drift B_T; the drifts stand side by side."""
    with style():
        figure = new_figure(7.0, 4.0)
        axes = figure.add_subplot()
        axes.grid(axis="y")
        places = np.arange(len(levels))
        for i, (name, (mean, se)) in enumerate(curves.items()):
            look = PALETTE[i % len(PALETTE)]
            axes.errorbar(
                places + 0.04 * (i - 0.5 * (len(curves) - 1)), mean, yerr=np.nan_to_num(se), color=look.colour,
                marker=look.marker, capsize=2.5, elinewidth=1.0, linewidth=1.4, markersize=5,
                label=text(name), gid=name,
            )  # fmt: skip
        axes.set_xticks(places, [f"{level:g}" for level in levels])
        axes.set_xlabel("Drift $B_T$ (not to scale)")
        axes.set_ylabel("Final regret, mean ± 1 SE (lower is better)")
        axes.set_ylim(bottom=0)
        axes.set_title(text(title, 90))
        axes.legend()
    return figure


def slopes_figure(slopes: Sequence[Slope], *, title: str = "") -> Figure:
    """Mean regret against the horizon on log axes, with the fitted lines and the bounds (dashed) above them."""
    with style():
        figure = new_figure(7.0, 4.4)
        axes = figure.add_subplot()
        axes.grid()
        axes.set_xscale("log")
        axes.set_yscale("log")
        for i, one in enumerate(slopes):
            look = PALETTE[i % len(PALETTE)]
            T = np.array(one.horizons, dtype=float)
            label = f"{one.name}: slope {one.slope:.3f} [{one.low:.3f}, {one.high:.3f}], proven {one.proven:.3f}"
            axes.errorbar(
                T, one.mean, yerr=np.nan_to_num(one.se), color=look.colour, marker=look.marker, linestyle="none",
                capsize=2.5, markersize=5, label=text(label, 90), gid=one.name,
            )  # fmt: skip
            middle = np.exp(np.log(one.mean).mean() + one.slope * (np.log(T) - np.log(T).mean()))
            axes.plot(T, middle, color=look.colour, linewidth=1.2)
            bound = f"the bound: slope {one.bound_slope:.3f}"
            axes.plot(T, one.bound, color=look.colour, linestyle=(0, (4, 2)), linewidth=1.2, label=bound)
        axes.set_xticks(T, [f"{t:,.0f}" for t in T])
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_xlabel("Rounds $T$ (log scale)")
        axes.set_ylabel("Final regret (log scale)")
        axes.set_title(text(title, 90))
        axes.legend(loc="upper left", bbox_to_anchor=(0.0, -0.16))
    return figure
