"""Draw a described figure with matplotlib, for papers.

Figures stand on their own canvas: pyplot and the caller's settings are left alone. :func:`save` writes the same bytes
for the same description, so that a repeated run changes no file.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Circle, Rectangle
from matplotlib.ticker import MaxNLocator, NullFormatter, NullLocator, StrMethodFormatter
from scipy.optimize import isotonic_regression

from windvane._files import write_atomically
from windvane.arguments import Array
from windvane.lab.figures.description import Arrows, Axis, Band, Disc, Figure, HeatMap, Mark, Panel, Series, Strip
from windvane.lab.figures.style import INK, LINEAR, LINK, MUTED, SHADE, WORSE, shade, tidy
from windvane.lab.results.folder import name_unwritable

Legend = dict[tuple[str, str], Artist]  # by name and colour
Look = dict[str, Any]
STYLE = Path(__file__).with_name("windvane.mplstyle")
SIZE = 9  # of its text
KINDS: dict[str, Look] = {"png": {}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}  # no times
DASHES: Look = {
    "solid": "-", "dashed": (0, (4, 2)), "long": (0, (9, 3)), "dotted": (0, (1, 1)), "dashdot": (0, (5, 1.5, 1, 1.5)),
}  # fmt: skip
MARKED = 8  # places of a long line that have a marker
LEGEND_ROWS, LEGEND_WIDTH = 24, 100  # names in a column beside a figure, letters in a row below it


@contextmanager
def style() -> Iterator[None]:
    """Return the settings of ``windvane.mplstyle``, undone on leaving."""
    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # in the font: boxes are drawn
        matplotlib.rcdefaults()
        matplotlib.rc_file(STYLE, use_default_template=False)
        yield


def save(figure: Figure, folder: Path | str, name: str) -> list[Path]:
    """Write ``folder/name.png`` (200 dpi), ``.pdf`` and ``.svg``; each file is put in place whole."""
    folder, canvas = Path(folder), render(figure)
    paths = []
    for kind, metadata in KINDS.items():
        content = io.BytesIO()
        with style():
            canvas.savefig(content, format=kind, metadata=metadata)
        canvas.set_layout_engine("none")  # it is found once; all files have the same
        paths.append(folder / f"{name}.{kind}")
        with name_unwritable(folder):
            folder.mkdir(parents=True, exist_ok=True)
            write_atomically(paths[-1], content.getvalue())
    return paths


def render(figure: Figure) -> Canvas:
    """Draw the description on a canvas of its own."""
    with style():
        canvas = Canvas(figsize=figure.size, layout="constrained")
        FigureCanvasAgg(canvas)
        shape = (1, len(figure.panels)) if figure.is_row else (len(figure.panels), 1)
        places = canvas.subplots(*shape, squeeze=False, sharex=not figure.is_row)
        legend: Legend = {}
        for axes, panel in zip(places.flat, figure.panels, strict=True):
            legend |= _draw_panel(axes, panel, figure)
            if not figure.is_row:
                axes.label_outer()
        if len(figure.panels) == 1 and not figure.panels[0].title:
            places.flat[0].set_title(figure.title, size=SIZE + ("\n" not in figure.title), color=INK)
        else:
            canvas.suptitle(figure.title, x=0.01, ha="left", size=SIZE + 1)
        names, artists = [name for name, _ in legend], list(legend.values())
        if figure.legend == "right":
            columns = -(-len(names) // LEGEND_ROWS)
            names = [tidy(name, 40) for name in names]
            canvas.legend(artists, names, loc="outside right center", ncols=columns, fontsize=SIZE - 2)
        elif figure.legend == "below":
            columns = len(names) if sum(map(len, names)) < LEGEND_WIDTH else 1
            canvas.legend(artists, names, loc="outside lower center", ncols=columns, handletextpad=0.4)
    return canvas


# --- panels --------------------------------------------------------------------------------------------------------


def _draw_panel(axes: Axes, panel: Panel, figure: Figure) -> Legend:
    """Draw marks, axes and words of a panel. Returns what a legend lists."""
    legend: Legend = {}
    for order, mark in enumerate(panel.marks):
        artist = _draw_mark(axes, mark, order)
        name = getattr(mark, "name", "")
        if artist is not None and name and getattr(mark, "is_listed", True):
            legend[name, getattr(mark, "colour", "")] = artist
    for side, axis in (("x", panel.x), ("y", panel.y)):
        _set_axis(axes, side, axis, is_narrow=figure.is_row)
    if panel.is_square:
        axes.set_aspect("equal")
    is_note = len(figure.panels) < 3
    axes.set_title(panel.title, size=SIZE - 0.5 * is_note, color=MUTED if is_note else INK)
    if panel.message:
        axes.text(0.5, 0.5, panel.message, transform=axes.transAxes, ha="center", color=MUTED)
    if panel.legend:
        columns = len(legend) if len(figure.panels) > 1 else 1
        axes.legend(list(legend.values()), [name for name, _ in legend], loc=panel.legend, ncols=columns)
    _label_ends(axes, [mark for mark in panel.marks if isinstance(mark, Series) and mark.end], panel.x.high)
    return legend


def _set_axis(axes: Axes, side: str, axis: Axis, *, is_narrow: bool) -> None:
    place = axes.xaxis if side == "x" else axes.yaxis
    if axis.scale != "linear":
        set_scale = axes.set_xscale if side == "x" else axes.set_yscale
        set_scale(axis.scale, **({"linthresh": LINEAR} if axis.scale == "symlog" else {}))
        place.set_minor_formatter(NullFormatter())
    if axis.ticks is not None:
        place.set_ticks(axis.ticks.places, list(axis.ticks.texts), size=SIZE - 1)
        place.set_minor_locator(NullLocator())
    axes.set(**{f"{side}lim": (axis.low, axis.high), f"{side}label": axis.label})
    if axis.ticks is None and axis.form.startswith(",") and max(place.get_view_interval()) >= 1000:
        place.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        if is_narrow:
            place.set_major_locator(MaxNLocator(5))
    if axis.has_grid:
        place.grid()
    if axis.low is not None and axis.high is not None and axis.low > axis.high:  # rows of names
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.set_xlabel(axes.get_xlabel(), loc="right")  # it may be wider than the axis


def _label_ends(axes: Axes, lines: Sequence[Series], horizon: float | None) -> None:
    """Names and final means right of the lines' ends, moved apart where they would overlap."""
    low, high = axes.get_ylim()
    heights = np.array([(line.y[-1] - low) / (high - low) for line in lines])
    axes_height = 0.8 * axes.get_figure(root=True).get_figheight()  # type: ignore[union-attr]
    arrow: Look = {"arrowstyle": "-", "linewidth": 0.7, "shrinkA": 1, "shrinkB": 0, "relpos": (0, 0.5)}
    look: Look = {"textcoords": "axes fraction", "va": "center", "size": SIZE - 0.5, "annotation_clip": False}
    for line, end, place in zip(lines, heights, spread_out(heights, 1.35 * SIZE / 72 / axes_height), strict=True):
        look |= {"color": shade(line.colour, -0.25), "arrowprops": arrow | {"color": line.colour}}
        axes.annotate(line.end, (line.x[-1] / (horizon or line.x[-1]), end), (1.03, place), "axes fraction", **look)


def spread_out(wanted: Array, gap: float) -> Array:
    """Return the places closest to ``wanted`` (least squares) that keep their order and lie ``gap`` apart."""
    if not len(wanted):
        return wanted
    order = np.argsort(wanted, kind="stable")
    steps = gap * np.arange(len(wanted))
    result = np.empty(len(wanted))
    result[order] = isotonic_regression(wanted[order] - steps).x + steps
    return result


# --- marks ---------------------------------------------------------------------------------------------------------


def _draw_mark(axes: Axes, mark: Mark, order: int) -> Artist | None:
    """Draw a mark. Returns what a legend shows of it, if anything."""
    match mark:
        case Series():
            return _draw_series(axes, mark, order)
        case Band(is_hidden=False):
            axes.fill_between(mark.x, mark.low, mark.high, color=mark.colour, alpha=0.16, linewidth=0)
        case Arrows(has_heads=True):
            look: Look = {"arrowstyle": "-|>", "color": INK, "mutation_scale": 14, "shrinkA": 0, "shrinkB": 0}
            for tail, head in zip(mark.tails, mark.heads, strict=True):
                axes.annotate("", head, tail, arrowprops=look)
        case Arrows():
            lines = list(np.stack([mark.tails, mark.heads], axis=1))
            axes.add_collection(LineCollection(lines, colors=LINK, linewidths=0.5, zorder=0.5), autolim=False)
        case Strip():
            return _draw_strip(axes, mark)
        case Disc():
            look = {"facecolor": SHADE, "edgecolor": MUTED, "linewidth": 0.8, "zorder": 0}
            return axes.add_patch(Circle((0, 0), mark.radius, **look))
        case HeatMap():
            _draw_heat_map(axes, mark)
    return None


def _draw_series(axes: Axes, mark: Series, order: int) -> Artist | None:
    if mark.low is not None and mark.high is not None:
        if mark.along == "x":
            axes.hlines(mark.y, mark.low, mark.high, color=mark.colour, linewidth=2)
        else:
            axes.vlines(mark.x, mark.low, mark.high, color=mark.colour, linewidth=1)
            axes.plot(np.tile(mark.x, 2), np.concatenate([mark.low, mark.high]), "_", color=mark.colour)
    if not mark.width and mark.rounds is not None:
        look: Look = {"cmap": "viridis", "vmin": 0, "vmax": mark.last_round, "c": mark.rounds, "gid": mark.role}
        look |= {"linewidth": 0.8 if mark.marker == "x" else 0}
        return axes.scatter(mark.x, mark.y, s=mark.size**2, marker=mark.marker, **look)
    step = max(1, len(mark.x) // MARKED) if mark.width else 1
    first = 0 if step == 1 else int(step * (0.618 * order % 1))  # markers of several lines stand at different rounds
    look = {"marker": mark.marker, "markersize": mark.size, "markevery": (first, step), "gid": mark.role or None}
    look |= {"markersize": 4.5, "markeredgecolor": "white", "markeredgewidth": 0.5} if step > 1 else {}
    look |= {} if mark.is_filled else {"markerfacecolor": "white"}
    look |= {"linewidth": mark.width, "linestyle": DASHES[mark.dash]} if mark.width else {"linestyle": "none"}
    order_of_drawing = 3 if not mark.width else 1 if mark.colour == LINK else 2
    return axes.plot(mark.x, mark.y, color=mark.colour, zorder=order_of_drawing, **look)[0]


def _draw_strip(axes: Axes, mark: Strip) -> Artist:
    if mark.low == mark.high:
        draw_line = axes.axvline if mark.axis == "x" else axes.axhline
        return draw_line(mark.low, color=mark.colour, linewidth=0.9)
    draw = axes.axvspan if mark.axis == "x" else axes.axhspan
    if mark.text:
        look: Look = {"textcoords": "offset points", "ha": "center", "va": "top", "color": MUTED, "size": SIZE - 1}
        axes.annotate(mark.text, ((mark.low + mark.high) / 2, 1), (0, -4), axes.get_xaxis_transform(), **look)
    return draw(mark.low, mark.high, color=mark.colour, linewidth=0, zorder=0)


def _draw_heat_map(axes: Axes, mark: HeatMap) -> None:
    mesh = axes.pcolormesh(mark.x_edges, mark.y_edges, mark.values, cmap="cividis_r", linewidth=0)
    x, y = np.sqrt(mark.x_edges[1:] * mark.x_edges[:-1]), (mark.y_edges[1:] + mark.y_edges[:-1]) / 2
    for row, column in np.argwhere(np.isfinite(mark.values) & mark.has_numbers):
        look: Look = {"color": "white" if mark.is_dark[row, column] else INK, "ha": "center", "va": "center"}
        axes.text(x[column], y[row], f"{mark.values[row, column]:,.0f}", size=SIZE - 2, **look)
    row, column = mark.framed
    (left, right), (bottom, top) = mark.x_edges[column : column + 2], mark.y_edges[row : row + 2]
    look = {"fill": False, "edgecolor": WORSE, "linewidth": 2.5, "clip_on": False, "gid": "best"}
    axes.add_patch(Rectangle((left, bottom), right - left, top - bottom, **look))
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    bar = axes.get_figure(root=True).colorbar(mesh, ax=axes, pad=0.02, aspect=25)  # type: ignore[union-attr]
    bar.outline.set_visible(False)
    bar.set_label(mark.label)
