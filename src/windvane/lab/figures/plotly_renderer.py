"""Turn a described figure into charts of plotly for the report, one per panel: data and layout, ready for JSON.

What all charts share and the colours of the page are left to the page: marks in ink have ``meta.ink``. Text from a spec
is escaped for plotly's small HTML, and numbers that JSON cannot hold become null. A series has at most
:data:`MOST` points. Heat maps are not drawn: the page has none.
"""

from __future__ import annotations

import html
from typing import Any

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go

from windvane.arguments import Array
from windvane.lab.figures.description import Arrows, Axis, Band, Disc, Figure, HeatMap, Panel, Series, Strip
from windvane.lab.figures.style import INK, LINEAR, LINK, MUTED, SHADE, WORSE, tidy

Chart = dict[str, Any]
GREY = {MUTED: "#808080", LINK: "rgba(128,128,128,0.6)", SHADE: "rgba(128,128,128,0.16)"}  # on light and dark ground
EDGE = "rgba(128,128,128,0.7)"
DASHES = {
    "solid": "solid", "dashed": "6px,4px", "long": "12px,4px", "dotted": "2px,2px", "dashdot": "8px,3px,2px,3px",
}  # fmt: skip
SYMBOLS = {
    "o": "circle", "s": "square", "^": "triangle-up", "v": "triangle-down", "D": "diamond", "X": "x", "P": "cross",
    "*": "star", "x": "x-thin", "|": "line-ns", "": "circle",
}  # fmt: skip
LONGEST = 28  # letters of a row's name
MOST = 300  # points of a series
FEW = 20  # points of a line that can all have a marker
SILENT: Chart = {"hoverinfo": "skip", "showlegend": False}


def render(figure: Figure) -> list[Chart]:
    """Return a chart per panel, checked by plotly. Entries with a ``group`` are listed in the chart's ``legend``."""
    return [_chart(panel) for panel in figure.panels]


def _chart(panel: Panel) -> Chart:
    data: list[Chart] = []
    shapes: list[Chart] = []
    annotations: list[Chart] = []
    for mark in panel.marks:
        match mark:
            case Series() if len(mark.x):  # an empty one explains others; on the page, the caption does
                data += _series(mark, panel)
            case Band():
                data += _band(mark)
            case Arrows(has_heads=True):
                annotations += _arrows(mark)
            case Arrows():
                data.append(_segments(mark.tails, mark.heads, GREY[LINK], 1))
            case Strip() | Disc():
                shapes.append(_shape(mark))
            case HeatMap():
                data.append(_heat_map(mark))
                shapes.append(_frame(mark))
    if panel.message:
        middle = {"xref": "paper", "yref": "paper", "x": 0.5, "y": 0.5, "showarrow": False}
        annotations.append({**middle, "text": to_markup(panel.message)})
    entries = [mark for mark in panel.marks_with("mean") if mark.group is not None]
    layout: Chart = {"xaxis": _axis(panel.x), "yaxis": _axis(panel.y), "shapes": shapes, "annotations": annotations}
    layout["showlegend"] = bool(panel.legend) and not entries
    if panel.is_square:
        layout["xaxis"]["constrain"] = layout["yaxis"]["constrain"] = "domain"
        layout["yaxis"]["scaleanchor"] = "x"
    chart: Chart = go.Figure({"data": data, "layout": layout}).to_plotly_json()
    del chart["layout"]["template"]
    chart["title"] = panel.title
    chart["legend"] = [
        {"label": mark.name, "colour": mark.colour, "dash": DASHES[mark.dash].replace("px", "")} for mark in entries
    ]
    chart["banded"] = not any(isinstance(mark, Band) and mark.is_hidden for mark in panel.marks)
    return chart


def _heat_map(mark: HeatMap) -> Chart:
    texts = [[f"{value:,.0f}" if np.isfinite(value) else "" for value in row] for row in mark.values]
    bar = {"title": {"text": to_markup(mark.label), "side": "right"}, "outlinewidth": 0}
    return {
        "type": "heatmap", "x": to_numbers(mark.x_edges), "y": to_numbers(mark.y_edges),
        "z": [to_numbers(row) for row in mark.values], "colorscale": "Cividis", "reversescale": True, "colorbar": bar,
        "hovertemplate": "%{z:,.1f}<extra></extra>",
        **({"text": texts, "texttemplate": "%{text}"} if mark.has_numbers else {}),
    }  # fmt: skip


def _frame(mark: HeatMap) -> Chart:
    row, column = mark.framed
    ends = to_numbers([*mark.x_edges[column : column + 2], *mark.y_edges[row : row + 2]])
    corners = dict(zip(("x0", "x1", "y0", "y1"), ends, strict=True))
    return {"type": "rect", "line": {"width": 3, "color": WORSE}, **corners}


def to_markup(text: str) -> str:
    """Text for plotly, in which nothing is read as markup."""
    return html.escape(text, quote=False).replace("\n", "<br>")


def to_numbers(values: npt.ArrayLike) -> list[float | None]:
    """Six digits are more than a screen shows; nan and infinities are gaps."""
    plain = np.asarray(values, dtype=float).ravel().tolist()
    return [float(f"{value:.6g}") if np.isfinite(value) else None for value in plain]


def bend(values: npt.ArrayLike) -> Array:
    """Return the symlog axis that plotly does not have."""
    return np.arcsinh(np.asarray(values, dtype=float) / LINEAR)


def thin(count: int, most: int = MOST) -> npt.NDArray[np.int64]:
    """At most ``most`` of the indices 0..count-1: both ends, two thirds evenly, one third closer at the start.

    The dense start keeps a curve smooth on a logarithmic axis.
    """
    if count <= most:
        return np.arange(count)
    even = np.linspace(0, count - 1, most - most // 3)
    early = np.geomspace(1, count, most // 3) - 1
    return np.unique(np.rint(np.concatenate([even, early])).astype(np.int64))


# --- axes and shapes -----------------------------------------------------------------------------------------------


def _axis(axis: Axis) -> Chart:
    is_log, is_bent = axis.scale == "log", axis.scale == "symlog"
    result: Chart = {"title": {"text": to_markup(axis.label)}, "showgrid": axis.has_grid}
    result |= {"type": "log" if is_log else "linear", "tickformat": "," if axis.form == ",.0f" else ""}
    if axis.low == 0.0:
        result["rangemode"] = "tozero"
    if axis.low is not None and axis.high is not None:
        ends = np.array([axis.low, axis.high])
        result["range"] = to_numbers(np.log10(ends) if is_log else bend(ends) if is_bent else ends)
    if axis.ticks is not None:
        places = bend(axis.ticks.places) if is_bent else axis.ticks.places
        texts = ["<br>".join(to_markup(tidy(line, LONGEST)) for line in t.split("\n")) for t in axis.ticks.texts]
        result |= {"tickmode": "array", "tickvals": to_numbers(places), "ticktext": texts}
    return result


def _shape(mark: Strip | Disc) -> Chart:
    shape: Chart = {"type": "rect", "layer": "below", "fillcolor": GREY[SHADE], "line": {"width": 0}}
    if isinstance(mark, Disc):
        ends = {"x0": -mark.radius, "x1": mark.radius, "y0": -mark.radius, "y1": mark.radius}
        return shape | ends | {"type": "circle", "line": {"width": 1, "color": EDGE}}
    along, across = mark.axis, "y" if mark.axis == "x" else "x"
    shape |= {f"{along}0": mark.low, f"{along}1": mark.high, f"{across}0": 0, f"{across}1": 1, f"{across}ref": "paper"}
    if mark.low == mark.high:
        shape["line"] = {"width": 1.5, "color": EDGE}
    if mark.text:
        shape["label"] = {"text": to_markup(mark.text), "textposition": "top center", "font": {"size": 12}}
    return shape


def _arrows(mark: Arrows) -> list[Chart]:
    look: Chart = {"axref": "x", "ayref": "y", "showarrow": True, "arrowhead": 2, "arrowwidth": 2, "text": ""}
    ends = np.hstack([mark.heads, mark.tails])
    return [look | dict(zip(("x", "y", "ax", "ay"), to_numbers(end), strict=True)) for end in ends]


# --- traces --------------------------------------------------------------------------------------------------------


def _series(mark: Series, panel: Panel) -> list[Chart]:
    """Return a trace of the points, after one of their intervals."""
    kept, colour, traces = thin(len(mark.x)), GREY.get(mark.colour, mark.colour), []
    if mark.low is not None and mark.high is not None:
        low, high = ((end, mark.y) if mark.along == "x" else (mark.x, end) for end in (mark.low, mark.high))
        traces.append(_segments(np.stack(low, axis=1), np.stack(high, axis=1), colour, 2))
    marker: Chart = {"symbol": SYMBOLS[mark.marker] + "-open" * (not mark.is_filled), "size": 1.4 * mark.size}
    marker |= {"color": colour, "line": {"width": 1.5, "color": colour}}
    if not mark.width and mark.rounds is not None:
        scale = {"color": to_numbers(mark.rounds), "colorscale": "Viridis", "cmin": 0, "cmax": mark.last_round}
        marker |= scale | {"line": {"width": 1.3, **scale} if mark.marker == "x" else {"width": 0}}
    has_markers = mark.marker and (not mark.width or len(kept) < FEW)
    trace: Chart = {
        "type": "scatter",
        "mode": "+".join(["lines"] * bool(mark.width) + ["markers"] * bool(has_markers)),
        "x": to_numbers(mark.x[kept]),
        "y": to_numbers(bend(mark.y[kept]) if panel.y.scale == "symlog" else mark.y[kept]),
        "name": to_markup(tidy(mark.name, 80)),
        "line": {"color": colour, "width": round(1.25 * mark.width, 2), "dash": DASHES[mark.dash]},
        "marker": marker,
        "meta": {"entry": mark.group, "kind": mark.role, "ink": mark.colour == INK},
        "showlegend": mark.is_listed,
    }
    return [*traces, trace | (_hover(mark, panel, kept) if mark.name else SILENT)]


def _hover(mark: Series, panel: Panel, kept: npt.NDArray[np.int64]) -> Chart:
    """Return what is said of a point: the name, the round in a plane, and its values with their spread or interval."""
    says = {side: f"{axis.value} %{{{side}:{axis.form}}}" for side, axis in (("x", panel.x), ("y", panel.y))}
    more: list[Any] | None = None
    if panel.y.scale == "symlog":
        more, says["y"] = to_numbers(mark.y[kept]), f"{panel.y.value} %{{customdata:{panel.y.form}}}"
    elif mark.rounds is not None and panel.is_square:
        more, says = to_numbers(mark.rounds[kept]), {"round": "round %{customdata:,}", **says}
    elif mark.spread is not None:
        more = [f" ± {sd:{panel.y.form}} sd" if np.isfinite(sd) else "" for sd in mark.spread[kept]]
        says["y"] += "%{customdata}"
    elif mark.low is not None and mark.high is not None:
        form = (panel.x if mark.along == "x" else panel.y).form
        more = [f" ({low:{form}} to {high:{form}})" for low, high in zip(mark.low, mark.high, strict=True)]
        says[mark.along] += "%{customdata}"
    lines = [says[side] for side in says if side == "round" or getattr(panel, side).value]
    return {"customdata": more, "hovertemplate": "<br>".join(["<b>%{fullData.name}</b>", *lines]) + "<extra></extra>"}


def _band(mark: Band) -> list[Chart]:
    """Two invisible lines with the space between them filled."""
    kept = thin(len(mark.x))
    red, green, blue = (int(mark.colour[i : i + 2], 16) for i in (1, 3, 5))
    edge: Chart = {"type": "scatter", "mode": "lines", "line": {"width": 0}, "x": to_numbers(mark.x[kept]), **SILENT}
    edge["visible"] = not mark.is_hidden
    fill = {"fill": "tonexty", "fillcolor": f"rgba({red},{green},{blue},0.16)"}
    return [
        edge | {"y": to_numbers(mark.low[kept]), "meta": {"entry": mark.group, "kind": "low"}},
        edge | {"y": to_numbers(mark.high[kept]), "meta": {"entry": mark.group, "kind": "high"}} | fill,
    ]


def _segments(tails: Array, heads: Array, colour: str, width: float) -> Chart:
    x, y = np.stack([tails, heads, np.full(tails.shape, np.nan)], axis=1).reshape(-1, 2).T
    trace: Chart = {"type": "scatter", "mode": "lines", "x": to_numbers(x), "y": to_numbers(y), **SILENT}
    return trace | {"line": {"color": colour, "width": width}, "meta": {"kind": "segments"}}
