"""Figures of studies: tuning over discounts and bonus scales, paired differences, what the lemmas say of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedLocator, NullLocator, StrMethodFormatter

from windvane.arguments import Array, check_array
from windvane.errors import ArgumentError
from windvane.lab.figures import curves
from windvane.lab.figures.canvas import INK, MUTED, SIZE, new_figure, style, text

if TYPE_CHECKING:
    from windvane.lab.results.results import Entry
    from windvane.lab.results.summary import Difference

BEST, OTHER = "#d55e00", "#0072b2"
MOST_NUMBERS = 80  # cells of a heat map that still have room for their number
LEMMAS: dict[int, dict[str, Any]] = {
    2: {"color": "#d55e00"},
    3: {"color": "#0072b2", "linestyle": (0, (5, 1))},
    4: {"color": "#009e73", "linestyle": (0, (1, 1))},
}


# --- tuning --------------------------------------------------------------------------------------------------------


def heat_map(
    gammas: npt.ArrayLike,
    scales: npt.ArrayLike,
    mean: npt.ArrayLike,
    se: npt.ArrayLike,
    *,
    best: tuple[int, int],
    close: npt.NDArray[np.bool_] | None = None,
    title: str = "",
) -> Figure:
    """Mean final regret ``mean[i, j]`` (standard error ``se``) at ``gammas[i]`` and ``scales[j]``.

    Discounts stand at their memory 1 / (1 - gamma), log-spaced; gamma = 1 comes last. ``best``: the place of the
    smallest; ``close``: the places that the runs cannot tell from it. An axis of one value gives a curve instead.
    """
    g, s = check_array("gammas", gammas, (None,)), check_array("scales", scales, (None,))
    m, e = check_array("mean", mean, (len(g), len(s))), check_array("se", se, (len(g), len(s)))
    near = np.zeros(m.shape, dtype=bool) if close is None else close
    order = np.argsort(g)
    row = int(np.flatnonzero(order == best[0])[0])
    g, m, e, near = g[order], m[order], e[order], near[order]
    with style():
        if len(s) == 1 or len(g) == 1:
            figure = _curve(g, s, m, e, near, (row, best[1]))
        else:
            figure = _map(g, s, m, near, (row, best[1]))
        at = [rf"$\gamma$ = {g[row]:.6g}"] * bool(np.isfinite(g[row]))
        at += [f"bonus scale {s[best[1]]:g}"] * bool(np.isfinite(s[best[1]]))
        value = f"{m[row, best[1]]:,.1f}" + (f" ± {e[row, best[1]]:.1f} (SE)" if np.isfinite(e[row, best[1]]) else "")
        dots = "; dots: cannot be told from it" if near.sum() > 1 and min(m.shape) > 1 else ""
        figure.axes[0].set_title(f"{text(title, 70)}\nBest: {', '.join(at)}: {value}{dots}".strip(), size=SIZE)
    return figure


def _memory(gammas: Array) -> Array:
    """1 / (1 - gamma); gamma = 1 is put one usual step after the longest finite memory."""
    forget = 1.0 - gammas
    memory = 1.0 / np.where(forget > 0.0, forget, 1.0)
    finite = memory[forget > 0.0]
    step = (finite[-1] / finite[0]) ** (1 / (len(finite) - 1)) if len(finite) > 1 else 10.0
    memory[forget <= 0.0] = finite[-1] * max(step, 1.5) if len(finite) else 1.0
    return memory


def _memory_axis(axes: Axes, gammas: Array, memory: Array) -> None:
    """A log axis of memory whose ticks, as many as there is room for, are labelled with gamma."""
    axes.set_xscale("log")
    if len(memory) == 1:
        axes.set_xlim(memory[0] / 3.0, memory[0] * 3.0)
    room = np.log(memory / memory[0]) / max(float(np.log(memory[-1] / memory[0])), 1e-9)
    kept: list[int] = []
    for i in range(len(gammas) - 1, -1, -1):  # from the right: the longest labels are there
        if not kept or room[kept[-1]] - room[i] >= 0.085:
            kept.append(i)
    axes.xaxis.set_major_locator(FixedLocator(memory[kept].tolist()))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks(memory[kept], [_two_lines(gammas[i], memory[i]) for i in kept], size=SIZE - 1.5)
    axes.set_xlabel("Discount $\\gamma$\n(below it: memory $1/(1-\\gamma)$ in rounds, log scale)")


def _two_lines(gamma: float, memory: float) -> str:
    digits = int(np.clip(np.ceil(-np.log10(1.0 - gamma)) + 1, 2, 8)) if gamma < 1.0 else 0
    return f"{gamma:.{digits}f}\n{memory:,.0f}" if gamma < 1.0 else "1\nall"


def _map(g: Array, s: Array, m: Array, near: npt.NDArray[np.bool_], best: tuple[int, int]) -> Figure:
    figure = new_figure(7.0, max(3.2, min(6.0, 1.6 + 0.42 * len(s))))
    axes = figure.add_subplot()
    memory = _memory(g)
    middle = np.sqrt(memory[1:] * memory[:-1])
    across = np.concatenate([[memory[0] ** 2 / middle[0]], middle, [memory[-1] ** 2 / middle[-1]]])
    up = np.arange(len(s) + 1) - 0.5
    order = np.argsort(s)
    mesh = axes.pcolormesh(across, up, m[:, order].T, cmap="cividis_r", linewidth=0, rasterized=False)
    _memory_axis(axes, g, memory)
    axes.set_yticks(np.arange(len(s)), [f"{value:g}" for value in s[order]])
    axes.set_ylabel("Bonus scale")
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    low, high = np.nanmin(m), np.nanmax(m)
    for i in range(len(g)):
        for j, column in enumerate(order):
            dark = (m[i, column] - low) > 0.5 * (high - low)  # cividis_r: large is dark
            ink = "white" if dark else INK
            if m.size <= MOST_NUMBERS and np.isfinite(m[i, column]):
                axes.text(memory[i], j, f"{m[i, column]:,.0f}", ha="center", va="center", color=ink, size=SIZE - 2)
            if near[i, column]:
                axes.plot(memory[i], j - 0.3, marker="o", color=ink, markersize=2.5, gid="close")
    j = int(np.flatnonzero(order == best[1])[0])
    corner = (across[best[0]], j - 0.5)
    frame = Rectangle(corner, across[best[0] + 1] - across[best[0]], 1, fill=False, edgecolor=BEST, linewidth=2.5)
    frame.set_gid("best")
    frame.set_clip_on(False)
    axes.add_patch(frame)
    bar = figure.colorbar(mesh, ax=axes, pad=0.02, aspect=25)
    bar.outline.set_visible(False)
    bar.set_label("Mean final regret (lower is better)")
    return figure


def _curve(g: Array, s: Array, m: Array, e: Array, near: npt.NDArray[np.bool_], best: tuple[int, int]) -> Figure:
    """One swept axis: mean with error bars of one standard error."""
    figure = new_figure(7.0, 3.6)
    axes = figure.add_subplot()
    axes.grid(axis="y")
    over_gamma = len(s) == 1
    order = np.arange(len(g)) if over_gamma else np.argsort(s)
    x = _memory(g) if over_gamma else s[order]
    line, error, place = (m[:, 0], e[:, 0], best[0]) if over_gamma else (m[0, order], e[0, order], best[1])
    close = near[:, 0] if over_gamma else near[0, order]
    if not over_gamma:
        place = int(np.flatnonzero(order == best[1])[0])
    bars: dict[str, Any] = {"capsize": 2.5, "elinewidth": 1.0, "linewidth": 1.2, "markersize": 4}
    axes.errorbar(x, line, yerr=np.nan_to_num(error), color=OTHER, marker="o", label="mean ± 1 SE", **bars)
    if close.sum() > 1:
        axes.plot(x[close], line[close], "o", color=OTHER, markerfacecolor="white", markersize=4, zorder=3,
                  label="cannot be told from the best")  # fmt: skip
    axes.plot(x[place], line[place], "o", color=BEST, markersize=8, zorder=4, label="best", gid="best")
    if over_gamma:
        _memory_axis(axes, g, x)
    else:
        axes.set_xlabel("Bonus scale")
    axes.set_ylabel("Final regret (lower is better)")
    axes.legend()
    return figure


# --- differences ---------------------------------------------------------------------------------------------------


def difference_figure(rows: Sequence[Difference], *, title: str = "", confidence: float = 0.95) -> Figure:
    """Paired differences of final regret, one row each, with their confidence intervals about the mean."""
    if not rows:
        raise ArgumentError("rows", rows, "at least one difference")
    several = len({row.environment for row in rows}) > 1
    with style():
        figure = new_figure(7.0, 1.3 + 0.28 * max(len(rows), 2))
        axes = figure.add_subplot()
        axes.grid(axis="x")
        axes.axvline(0, color=INK, linewidth=1, gid="zero")
        for i, row in enumerate(rows):
            told_apart = row.low > 0 or row.high < 0
            colour = OTHER if row.mean < 0 else BEST
            axes.plot([row.low, row.high], [i, i], color=colour, linewidth=2, gid="interval")
            face = colour if told_apart else "white"
            axes.plot(row.mean, i, "o", color=colour, markerfacecolor=face, markersize=6, gid="mean")
        names = [f"{row.label} ({row.environment})" if several else row.label for row in rows]
        axes.set_yticks(range(len(rows)), [text(name, 45) for name in names])
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        bases = list(dict.fromkeys(row.baseline for row in rows))
        base = f" minus that of {text(bases[0], 40)}" if len(bases) == 1 else " minus that of the baseline"
        interval = f"mean and {100 * confidence:g} % interval (filled: without 0)"
        axes.set_xlabel(f"Final regret{base}, paired; left of 0 is better\n{interval}")
        axes.set_title(text(title, 90))
    return figure


# --- diagnostics ---------------------------------------------------------------------------------------------------


def diagnostics_figure(entry: Entry) -> Figure:
    """The learning term against beta, the tracking term against its bound, and the smallest slack of Lemmas 2 to 4.

    Lines are medians over runs, bands hold nine runs in ten. What is nowhere finite is left out, and said so.
    """
    d = entry.diagnostics
    if not d:
        raise ArgumentError("entry", entry, "an entry with diagnostics", got=repr(entry.label))
    with style():
        figure = new_figure(7.0, 5.6)
        learning, tracking, slack = figure.subplots(3, 1, sharex=True)
        _term(learning, entry, "learning", "beta", "Learning term", "its radius β", BEST)
        _term(tracking, entry, "tracking", "tracking_bound", "Tracking term", "its bound (Lemma 2)", OTHER)
        for k, look in LEMMAS.items():
            _smallest(slack, entry.rounds, d.get(f"lemma_{k}_slack"), f"Lemma {k}", look)
        slack.grid(axis="y")
        slack.axhline(0, color=INK, linewidth=0.8)
        slack.set_yscale("symlog", linthresh=curves.LINEAR)
        slack.set_ylim(bottom=min(-curves.LINEAR, 1.5 * slack.dataLim.y0))
        slack.set_ylabel("Slack")
        slack.set_title("Smallest slack over runs: a lemma holds where it is at least 0", size=SIZE)
        slack.legend(loc="best", ncols=3)
        slack.set_xlim(0, entry.horizon)
        slack.set_xlabel("Round t")
        slack.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        figure.suptitle(f"{text(entry.label)}: {len(entry.lanes):,} runs", x=0.01, ha="left", size=SIZE + 1)
    return figure


def _term(axes: Axes, entry: Entry, name: str, bound: str, title: str, bound_title: str, colour: str) -> None:
    nothing = np.full((1, len(entry.rounds)), np.nan)
    values, limit = entry.diagnostics.get(name, nothing), entry.diagnostics.get(bound, nothing)
    middle, top = curves.finite(curves.quantile(values, 0.5)), curves.finite(curves.quantile(limit, 0.5))
    axes.grid(axis="y")
    if np.isnan(middle).all():
        axes.text(0.5, 0.5, "not defined for this policy here", transform=axes.transAxes, ha="center", color=MUTED)
    else:
        low, high = (curves.finite(curves.quantile(values, q)) for q in (0.05, 0.95))
        axes.fill_between(entry.rounds, low, high, color=colour, alpha=0.2, linewidth=0)
        axes.plot(entry.rounds, middle, color=colour, label=title.lower(), gid=name)
    if not np.isnan(top).all():
        axes.plot(entry.rounds, top, color=INK, linestyle=(0, (4, 2)), linewidth=1.2, label=bound_title, gid=bound)
    if curves.wants_log(middle, top):
        axes.set_yscale("log")
        axes.set_ylim(max(axes.get_ylim()[0], curves.ROUNDING * np.nanmax(top)), 30 * np.nanmax(top))
    else:
        axes.set_ylim(0, 1.3 * axes.get_ylim()[1])  # room for the legend
    axes.set_ylabel(title)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="upper left", ncols=2)
    else:
        axes.set_yticks([])
    share = curves.share_above(*np.broadcast_arrays(values, limit))
    says = "" if np.isnan(share) else f": above {bound_title} in {100 * share:.2g} % of recorded rounds"
    axes.set_title(f"{title}{says}", size=SIZE)


def _smallest(axes: Axes, rounds: npt.NDArray[np.int64], values: Array | None, name: str, look: dict[str, Any]) -> None:
    least = None if values is None else curves.finite(curves.quantile(values, 0.0))
    if least is None or np.isnan(least).all():
        axes.plot([], [], label=f"{name} (says nothing here)", linewidth=1.1, **look)
    else:
        axes.plot(rounds, least, label=name, gid=name, linewidth=1.1, **look)
