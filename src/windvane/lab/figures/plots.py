"""Figures for papers: regret with bands, the projection, and those of ``study_plots`` and ``benchmark_plots``.

Every function returns a :class:`matplotlib.figure.Figure` on its own canvas: pyplot and the caller's settings are left
alone. :func:`save` writes the same bytes for the same figure, so that a repeated run changes no file.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from windvane._files import write_atomically
from windvane.arguments import Array
from windvane.errors import ArgumentError
from windvane.lab.figures import curves
from windvane.lab.figures.benchmark_plots import leaderboard_figure, levels_figure, ratios_figure, slopes_figure
from windvane.lab.figures.canvas import INK, MUTED, SHADE, SIZE, new_figure, style, text
from windvane.lab.figures.curves import Measure, PublishedCurves
from windvane.lab.figures.study_plots import diagnostics_figure, difference_figure, heat_map

if TYPE_CHECKING:
    from windvane.lab.results.results import Entry
    from windvane.lab.run.play import ThetaPath

__all__ = [
    "diagnostics_figure",
    "difference_figure",
    "heat_map",
    "leaderboard_figure",
    "levels_figure",
    "mean_reward_figure",
    "projection_figure",
    "ratios_figure",
    "regret_figure",
    "save",
    "slopes_figure",
]

Index = npt.NDArray[np.int64]

MOST_BANDS = 8  # beyond so many lines, bands and names at the line ends would hide each other
MOST_DOTS = 250  # of theta_hat; more would hide the path
HEIGHT = 4.0  # of the regret figure, in inches
DASHES = (0, (4, 2))
TIME_MAP = "viridis"
LINK = "#bbbbbb"


def save(figure: Figure, folder: Path | str, name: str) -> list[Path]:
    """Write ``folder/name.png`` (200 dpi), ``.pdf`` and ``.svg``; each file is put in place whole."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    timeless: dict[str, dict[str, Any]] = {"png": {}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}
    paths = []
    for kind, metadata in timeless.items():
        content = io.BytesIO()
        with style(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph .* missing")  # in the font: boxes are drawn
            figure.savefig(content, format=kind, metadata=metadata)
        paths.append(folder / f"{name}.{kind}")
        write_atomically(paths[-1], content.getvalue())
    return paths


# --- regret --------------------------------------------------------------------------------------------------------


def regret_figure(
    entries: Sequence[Entry],
    *,
    title: str = "",
    turning: tuple[float, float] | None = None,
    published: PublishedCurves | None = None,
) -> Figure:
    """Cumulative regret over rounds: the mean over runs with a band of one standard deviation either side.

    ``turning`` (first and last round of the drift) is shaded. ``published`` (policy name -> (rounds, mean)) is dashed
    in the policy's colour. Names stand at the ends of the lines; more than MOST_BANDS entries get a legend, no bands.
    """
    return _over_time(entries, curves.REGRET, title, turning, published)


def mean_reward_figure(entries: Sequence[Entry], others: Sequence[Entry] = (), *, title: str = "") -> Figure:
    """The mean reward up to each round of a labelled data stream, drawn like the regret; ``others`` are grey lines."""
    return _over_time(entries, curves.MEAN_REWARD, title, others=others)


def _over_time(
    entries: Sequence[Entry],
    measure: Measure,
    title: str,
    turning: tuple[float, float] | None = None,
    published: PublishedCurves | None = None,
    others: Sequence[Entry] = (),
) -> Figure:
    if not entries:
        raise ArgumentError("entries", entries, "at least one entry")
    crowded = len(entries) > MOST_BANDS
    runs = sorted({len(entry.lanes) for entry in entries})
    banded = runs[-1] > 1 and not crowded
    columns = -(-len(entries) // 24)
    names = [text(name, 40) for name in curves.names(entries)]
    looks = curves.looks(entries)
    with style():
        figure = new_figure(7.0 + 1.5 * columns, 5.0) if crowded else new_figure(7.0, HEIGHT)
        axes = figure.add_subplot()
        axes.grid(axis="y")
        if turning is not None:
            _shade(axes, turning)
        dashed = False
        for place, (entry, look, name) in enumerate(zip(entries, looks, names, strict=True)):
            rounds, mean, sd = measure.curve(entry)
            if banded:
                axes.fill_between(rounds, mean - sd, mean + sd, color=look.colour, alpha=0.15, linewidth=0)
            step = max(1, len(rounds) // 8)
            marks: dict[str, Any] = {
                "marker": look.marker,
                "markevery": (step * (place + 1) // (len(entries) + 1), step),
                "markersize": 4.5,
                "markeredgecolor": "white",
                "markeredgewidth": 0.5,
            }
            width: dict[str, Any] = {"linewidth": 1.0, "markersize": 0} if crowded else {}
            axes.plot(rounds, mean, color=look.colour, label=name, gid="measured", **{**marks, **width})
            known = curves.published_for(entry, published)
            if known is not None:
                dashed = True
                axes.plot(*known, color=look.colour, linestyle=DASHES, linewidth=1.1, gid="published")
        axes.set_xlim(0, max(entry.horizon for entry in entries))
        axes.set_ylim(*_limits(measure, [*entries, *others]))
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        axes.set_xlabel("Round t")
        axes.set_ylabel(f"{measure.axis}\n{_over_runs(runs, banded)}")
        axes.set_title(text(title, 90))
        if dashed:
            _explain_dashes(axes)
        if others:
            _draw_others(axes, measure, others)
        if crowded:
            lines = [line for line in axes.get_lines() if line.get_gid() == "measured"]
            figure.legend(lines, names, loc="outside right center", ncols=columns, fontsize=SIZE - 2)
        else:
            _label_ends(axes, entries, measure, names, [look.colour for look in looks])
    return figure


def _explain_dashes(axes: Axes) -> None:
    key = [
        Line2D([], [], color=MUTED, label="measured"),
        Line2D([], [], color=MUTED, linestyle=DASHES, linewidth=1.1, label="published"),
    ]
    axes.legend(handles=key, loc="upper left", handlelength=2.6)


def _draw_others(axes: Axes, measure: Measure, others: Sequence[Entry]) -> None:
    """Thin grey lines behind those that have names."""
    for other in others:
        axes.plot(*measure.curve(other)[:2], color=LINK, linewidth=0.7, zorder=1, gid="other")
    named = f"{len(others)} other {'policy' if len(others) == 1 else 'policies'}"
    axes.legend(handles=[Line2D([], [], color=LINK, label=named)], loc="lower right")


def _limits(measure: Measure, entries: Sequence[Entry]) -> tuple[float | None, float | None]:
    """The ends of the vertical axis; None where they follow from the curves."""
    if measure is not curves.MEAN_REWARD:
        return 0.0, None
    low, high = curves.settled_range(map(measure.curve, entries))
    margin = 0.05 * (high - low) + 0.005
    return max(low - margin, 0.0), min(high + margin, 1.0)


def _shade(axes: Axes, turning: tuple[float, float]) -> None:
    axes.axvspan(*turning, color=SHADE, linewidth=0, zorder=0, gid="drift")
    axes.annotate(
        "drift period",
        (sum(turning) / 2, 1),
        (0, -4),
        xycoords=axes.get_xaxis_transform(),
        textcoords="offset points",
        ha="center",
        va="top",
        color=MUTED,
        size=SIZE - 1,
    )


def _over_runs(runs: Sequence[int], banded: bool) -> str:
    if runs[-1] == 1:
        return "1 run"
    count = f"{runs[0]:,}" if len(runs) == 1 else f"{runs[0]:,} to {runs[-1]:,}"
    return f"mean{' ± 1 sd' if banded else ''} over {count} runs"


def _label_ends(
    axes: Axes, entries: Sequence[Entry], measure: Measure, names: Sequence[str], colours: Sequence[str]
) -> None:
    """Names and final means right of the lines' ends, moved apart where they would overlap."""
    low, high = axes.get_ylim()
    ends = np.array([measure.curve(entry).mean[-1] for entry in entries])
    shown = np.flatnonzero(np.isfinite(ends))
    height = 0.8 * HEIGHT  # of the axes, about
    heights = (ends[shown] - low) / (high - low)
    places = _apart(heights, gap=1.35 * SIZE / 72 / height)
    for i, end, place in zip(shown.tolist(), heights, places, strict=True):
        axes.annotate(
            f"{names[i]}  {ends[i]:,.{measure.digits}f}",
            (entries[i].horizon / axes.get_xlim()[1], end),
            (1.03, place),
            xycoords="axes fraction",
            textcoords="axes fraction",
            va="center",
            ha="left",
            color=curves.shaded(colours[i], -0.25),
            size=SIZE - 0.5,
            arrowprops={"arrowstyle": "-", "color": colours[i], "linewidth": 0.7, "shrinkA": 1, "shrinkB": 0},
            annotation_clip=False,
        )


def _apart(wanted: Array, gap: float) -> Array:
    """The places closest to ``wanted`` (least squares) that keep their order and lie ``gap`` apart."""
    order = np.argsort(wanted, kind="stable")
    blocks: list[tuple[float, int]] = []  # (sum, count): pool adjacent violators of wanted - rank * gap
    for rank, value in enumerate(wanted[order]):
        total, count = float(value) - rank * gap, 1
        while blocks and blocks[-1][0] / blocks[-1][1] >= total / count:
            before = blocks.pop()
            total, count = total + before[0], count + before[1]
        blocks.append((total, count))
    result = np.empty(len(wanted))
    levels = [level for total, count in blocks for level in [total / count] * count]
    result[order] = np.array(levels) + gap * np.arange(len(wanted))
    return result


# --- the projection ------------------------------------------------------------------------------------------------


def projection_figure(path: ThetaPath, *, title: str = "") -> Figure:
    """theta* (line), theta_hat (dots) and theta_tilde (crosses, where it differs) about the set Theta of radius S.

    Left: the plane of the first two coordinates, time as colour. Right: the norms over rounds in the same colours, so
    that the excursions of theta_hat outside Theta can be dated. In one dimension: theta over rounds.
    """
    dim = path.theta_star.shape[1]
    with style():
        figure = new_figure(7.0, 4.2)
        if dim == 1:
            axes = figure.add_subplot()
            axes.axhspan(-path.S, path.S, color=SHADE, linewidth=0, zorder=0, label=_set_name(path))
            _over_rounds(axes, path, path.theta_star[:, 0], path.theta_hat[:, 0], path.theta_tilde[:, 0])
            axes.set_ylabel(r"$\theta$")
            axes.set_title(_excursions(path), color=MUTED, size=SIZE - 0.5)
        else:
            axes, norms = figure.subplots(1, 2, width_ratios=(1.05, 1))
            _in_plane(axes, path)
            norms.axhspan(0, path.S, color=SHADE, linewidth=0, zorder=0)
            lengths = [np.linalg.norm(a, axis=1) for a in (path.theta_star, path.theta_hat, path.theta_tilde)]
            _over_rounds(norms, path, *lengths)
            norms.set_ylim(bottom=0)
            norms.set_ylabel("Norm")
            norms.set_title(_excursions(path), color=MUTED, size=SIZE - 0.5)
        handles, labels = axes.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(handles), handletextpad=0.4)
        note = "" if dim <= 2 else f"(first two of {dim} coordinates)"
        figure.suptitle(f"{text(title, 90)} {note}".strip(), x=0.01, ha="left", size=SIZE + 1)
    return figure


def _set_name(path: ThetaPath) -> str:
    return rf"$\Theta$ (norm $\leq$ {path.S:g})"


def _excursions(path: ThetaPath) -> str:
    known = ~np.isnan(path.theta_hat).any(axis=1)
    if not known.any():
        return ""
    share = curves.outside(path.theta_hat[known], path.S).mean()
    return rf"This run: $\hat\theta$ outside $\Theta$ in {100 * share:.0f} % of rounds"


def _dots(path: ThetaPath) -> Index:
    return np.unique(np.linspace(0, len(path.rounds) - 1, MOST_DOTS).astype(int))


def _projected(path: ThetaPath, dots: Index) -> Index:
    """Those of ``dots`` where theta_tilde is known and differs from theta_hat."""
    differs = np.abs(path.theta_tilde - path.theta_hat).max(axis=1) > 1e-9 * path.S  # nan compares False
    return np.asarray(dots[differs[dots]])


def _over_rounds(axes: Axes, path: ThetaPath, star: Array, hat: Array, tilde: Array) -> None:
    axes.plot(path.rounds, hat, color=LINK, linewidth=0.7, gid="theta_hat")
    _scatter(axes, path, np.stack([path.rounds, hat], axis=1), np.stack([path.rounds, tilde], axis=1))
    if not np.isnan(star).all():  # in a labelled data stream, no truth is known
        axes.plot(path.rounds, star, color=INK, linewidth=2, label=r"$\theta^*$ (truth)", gid="theta_star")
    axes.set_xlim(0, path.rounds[-1])
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.set_xlabel("Round t (colour: time)")


def _scatter(axes: Axes, path: ThetaPath, hat: Array, tilde: Array) -> None:
    """theta_hat as dots and theta_tilde as crosses, at most MOST_DOTS each, the colour telling the round."""
    dots = _dots(path)
    projected = _projected(path, dots)
    time: dict[str, Any] = {"cmap": TIME_MAP, "vmin": 0, "vmax": path.rounds[-1]}
    if not np.isnan(hat).any(axis=1).all():
        look: dict[str, Any] = {"s": 10, "linewidth": 0, "label": r"$\hat\theta$ (estimate)", "gid": "theta_hat"}
        axes.scatter(hat[dots, 0], hat[dots, 1], c=path.rounds[dots], **look, **time)
    if len(projected):
        look = {"s": 16, "marker": "x", "linewidth": 0.8, "label": r"$\tilde\theta$ (projected)", "gid": "theta_tilde"}
        axes.scatter(tilde[projected, 0], tilde[projected, 1], c=path.rounds[projected], **look, **time)


def _in_plane(axes: Axes, path: ThetaPath) -> None:
    star, hat, tilde = (a[:, :2] for a in (path.theta_star, path.theta_hat, path.theta_tilde))
    ball = Circle((0, 0), path.S, facecolor=SHADE, edgecolor=MUTED, linewidth=0.8, zorder=0, label=_set_name(path))
    axes.add_patch(ball)
    projected = _projected(path, _dots(path))
    moves = np.stack([hat[projected], tilde[projected]], axis=1)
    axes.add_collection(LineCollection(list(moves), colors=LINK, linewidths=0.5, zorder=0.5), autolim=False)
    _scatter(axes, path, hat, tilde)
    if not np.isnan(star).all():
        axes.plot(*star.T, color=INK, linewidth=2, label=r"$\theta^*$ (truth)", gid="theta_star")
        _arrow(axes, star)
    centre, half = curves.frame(hat, star, path.S)
    axes.set_xlim(centre[0] - half, centre[0] + half)
    axes.set_ylim(centre[1] - half, centre[1] + half)
    axes.set_aspect("equal")
    axes.set_xlabel(r"$\theta_1$")
    axes.set_ylabel(r"$\theta_2$")
    beyond = int(np.sum(np.abs(hat).max(axis=1) > curves.FARTHEST * path.S))
    if beyond:
        axes.set_title(f"{beyond:,} estimates lie beyond the frame", color=MUTED, size=SIZE - 0.5)


def _arrow(axes: Axes, star: Array) -> None:
    """The direction of the path, half way along it; a dot where it stands still."""
    way = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(star, axis=0), axis=1))])
    if way[-1] == 0:
        axes.plot(*star[0], color=INK, marker="o", markersize=6)
        return
    tail, head = np.searchsorted(way, [0.45 * way[-1], 0.55 * way[-1]])
    arrow = {"arrowstyle": "-|>", "color": INK, "mutation_scale": 14, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", star[max(head, tail + 1)] if tail + 1 < len(star) else star[-1], star[tail], arrowprops=arrow)
