"""Turn a described figure into charts of plotly for the report, one per panel: data and layout, ready for JSON.

Colours of the page are left to the page: marks in ink have ``meta.ink``. Text from a spec is escaped for plotly's small
HTML, and numbers that JSON cannot hold become null. A line has at most :data:`curves.MOST` points.
"""

from __future__ import annotations

import html
from typing import Any

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go

from windvane.arguments import Array
from windvane.lab.figures import curves
from windvane.lab.figures.description import Arrows, Axis, Band, Disc, Figure, HeatMap, Line, Mark, Panel, Points, Strip
from windvane.lab.figures.style import INK, LINEAR, LINK, MUTED, SHADE, WORSE, tidy

Chart = dict[str, Any]
GREY = {MUTED: "#808080", LINK: "rgba(128,128,128,0.6)", SHADE: "rgba(128,128,128,0.16)"}  # on light and dark ground
EDGE = "rgba(128,128,128,0.7)"
DASHES = {"solid": "solid", "dashed": "6px,4px", "long": "6px,2px", "dotted": "2px,2px"}
SYMBOLS = {
    "o": "circle", "s": "square", "^": "triangle-up", "v": "triangle-down", "D": "diamond", "X": "x", "P": "cross",
    "*": "star", "x": "x-thin", "|": "line-ns",
}  # fmt: skip
LONGEST = 28  # letters of a row's name
FEW = 20  # points of a line that can all have a marker
SILENT: Chart = {"hoverinfo": "skip", "showlegend": False}


def render(figure: Figure) -> list[Chart]:
    """A chart per panel, checked by plotly. Entries with a ``group`` are listed in the chart's ``legend``."""
    return [_chart(panel) for panel in figure.panels]


def _chart(panel: Panel) -> Chart:
    marks = [mark for mark in panel.marks if not (isinstance(mark, Line) and not len(mark.x))]  # the caption explains
    x, y = _axis(panel.x), _axis(panel.y)
    if panel.is_square:
        x, y = x | {"constrain": "domain"}, y | {"constrain": "domain", "scaleanchor": "x"}
    entries = [mark for mark in marks if isinstance(mark, Line) and mark.group is not None and mark.role == "mean"]
    layout: Chart = {
        "xaxis": x,
        "yaxis": y,
        "shapes": [shape for mark in marks for shape in _shapes(mark)],
        "annotations": [arrow for mark in marks for arrow in _arrows(mark)],
        "hovermode": "closest",
        "showlegend": bool(panel.legend) and not entries,
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "traceorder": "normal"},
    }
    if panel.message:
        middle = {"xref": "paper", "yref": "paper", "x": 0.5, "y": 0.5, "showarrow": False}
        layout["annotations"].append({**middle, "text": to_markup(panel.message)})
    data = [trace for mark in marks for trace in _traces(mark, panel)]
    chart: Chart = go.Figure({"data": data, "layout": layout}).to_plotly_json()
    del chart["layout"]["template"]
    chart["title"] = panel.title
    chart["legend"] = [{"label": mark.name, "colour": mark.colour} for mark in entries]
    chart["banded"] = not any(isinstance(mark, Band) and mark.is_hidden for mark in marks)
    return chart


def to_markup(text: str) -> str:
    """Text for plotly, in which nothing is read as markup."""
    return html.escape(text, quote=False).replace("\n", "<br>")


def to_numbers(values: npt.ArrayLike) -> list[float | None]:
    """Six digits are more than a screen shows; nan and infinities are gaps."""
    plain = np.asarray(values, dtype=float).ravel().tolist()
    return [float(f"{value:.6g}") if np.isfinite(value) else None for value in plain]


def bend(values: npt.ArrayLike) -> Array:
    """The symlog axis that plotly does not have."""
    return np.arcsinh(np.asarray(values, dtype=float) / LINEAR)


def to_page(colour: str) -> str:
    """A colour that stands out on light and dark ground."""
    return GREY.get(colour, colour)


# --- axes and shapes -----------------------------------------------------------------------------------------------


def _axis(axis: Axis) -> Chart:
    label, is_log, is_bent = to_markup(axis.label), axis.scale == "log", axis.scale == "symlog"
    result: Chart = {"title": {"text": label}, "automargin": True, "showgrid": axis.has_grid, "zeroline": False}
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


def _shapes(mark: Mark) -> list[Chart]:
    shape: Chart = {"type": "rect", "layer": "below", "fillcolor": GREY[SHADE], "line": {"width": 0}}
    if isinstance(mark, Disc):
        r, line = mark.radius, {"width": 1, "color": EDGE}
        return [shape | {"type": "circle", "x0": -r, "x1": r, "y0": -r, "y1": r, "line": line}]
    if isinstance(mark, HeatMap):
        row, column = mark.framed
        ends = to_numbers([*mark.x_edges[column : column + 2], *mark.y_edges[row : row + 2]])
        corners = dict(zip(("x0", "x1", "y0", "y1"), ends, strict=True))
        return [{"type": "rect", "line": {"width": 3, "color": WORSE}, **corners}]
    if not isinstance(mark, Strip):
        return []
    along, across = mark.axis, "y" if mark.axis == "x" else "x"
    shape |= {f"{along}0": mark.low, f"{along}1": mark.high, f"{across}0": 0, f"{across}1": 1, f"{across}ref": "paper"}
    if mark.low == mark.high:
        shape["line"] = {"width": 1.5, "color": EDGE}
    if mark.text:
        shape["label"] = {"text": to_markup(mark.text), "textposition": "top center", "font": {"size": 12}}
    return [shape]


def _arrows(mark: Mark) -> list[Chart]:
    if not (isinstance(mark, Arrows) and mark.has_heads):
        return []
    look: Chart = {"axref": "x", "ayref": "y", "showarrow": True, "arrowhead": 2, "arrowwidth": 2, "text": ""}
    ends = np.hstack([mark.heads, mark.tails])
    return [look | dict(zip(("x", "y", "ax", "ay"), to_numbers(end), strict=True)) for end in ends]


# --- traces --------------------------------------------------------------------------------------------------------


def _traces(mark: Mark, panel: Panel) -> list[Chart]:
    match mark:
        case Line():
            return [_line(mark, panel)]
        case Band():
            return _band(mark)
        case Points():
            return _points(mark, panel)
        case Arrows(has_heads=False):
            return [_segments(mark.tails, mark.heads, to_page(LINK), 1)]
        case HeatMap():
            return [_heat_map(mark)]
    return []


def _line(mark: Line, panel: Panel) -> Chart:
    kept = curves.thin(len(mark.x))
    y, form = mark.y[kept], panel.y.form
    says = [f"{axis.value} %{{{side}:{axis.form}}}" for side, axis in (("x", panel.x), ("y", panel.y))]
    trace: Chart = {"type": "scatter", "mode": "lines+markers" if mark.marker and len(kept) < FEW else "lines"}
    if panel.y.scale == "symlog":
        trace["customdata"], y = to_numbers(y), bend(y)
        says[1] = f"{panel.y.value} %{{customdata:{form}}}"
    elif mark.spread is not None:
        trace["customdata"] = [f" ± {sd:{form}} sd" if np.isfinite(sd) else "" for sd in mark.spread[kept]]
        says[1] += "%{customdata}"
    elif mark.rounds is not None and panel.is_square:
        trace["customdata"] = to_numbers(mark.rounds[kept])
        says.insert(0, "round %{customdata:,}")
    hover = "<br>".join(["<b>%{fullData.name}</b>", *says]) + "<extra></extra>"
    return trace | {
        "x": to_numbers(mark.x[kept]),
        "y": to_numbers(y),
        "name": to_markup(tidy(mark.name, 80)),
        "line": {"color": to_page(mark.colour), "width": round(1.25 * mark.width, 2), "dash": DASHES[mark.dash]},
        "marker": {"symbol": SYMBOLS.get(mark.marker, "circle"), "size": 7},
        "meta": {"entry": mark.group, "kind": mark.role, "ink": mark.colour == INK},
        **({"hovertemplate": hover, "showlegend": mark.is_listed} if mark.name else SILENT),
    }


def _band(mark: Band) -> list[Chart]:
    """Two invisible lines with the space between them filled."""
    kept = curves.thin(len(mark.x))
    red, green, blue = (int(mark.colour[i : i + 2], 16) for i in (1, 3, 5))
    edge: Chart = {"type": "scatter", "mode": "lines", "line": {"width": 0}, "x": to_numbers(mark.x[kept]), **SILENT}
    edge["visible"] = not mark.is_hidden
    fill = {"fill": "tonexty", "fillcolor": f"rgba({red},{green},{blue},0.16)"}
    return [
        edge | {"y": to_numbers(mark.low[kept]), "meta": {"entry": mark.group, "kind": "low"}},
        edge | {"y": to_numbers(mark.high[kept]), "meta": {"entry": mark.group, "kind": "high"}} | fill,
    ]


def _points(mark: Points, panel: Panel) -> list[Chart]:
    traces, colour = [], to_page(mark.colour)
    if mark.low is not None and mark.high is not None:
        low, high = ((end, mark.y) if mark.along == "x" else (mark.x, end) for end in (mark.low, mark.high))
        traces.append(_segments(np.stack(low, axis=1), np.stack(high, axis=1), colour, 2))
    if not mark.marker:
        return traces
    marker: Chart = {"symbol": SYMBOLS[mark.marker] + "-open" * (not mark.is_filled), "size": 1.4 * mark.size}
    marker |= {"color": colour, "line": {"width": 1.5, "color": colour}}
    if mark.rounds is not None:
        scale = {"color": to_numbers(mark.rounds), "colorscale": "Viridis", "cmin": 0, "cmax": mark.last_round}
        marker |= scale | {"line": {"width": 1.3, **scale} if mark.marker == "x" else {"width": 0}}
    trace: Chart = {"type": "scatter", "mode": "markers", "x": to_numbers(mark.x), "y": to_numbers(mark.y)}
    trace |= {"name": to_markup(mark.name), "showlegend": bool(mark.name), "meta": {"kind": mark.role}}
    says = [_describe(mark, place, panel) for place in range(len(mark.x))]
    return [*traces, trace | {"marker": marker, "hoverinfo": "text", "hovertext": says}]


def _describe(mark: Points, place: int, panel: Panel) -> str:
    """What is said when one of the points is pointed at."""
    names, says = [mark.name], []
    if panel.y.ticks is not None and not panel.y.value:  # rows of names
        names.insert(0, panel.y.ticks.texts[round(mark.y[place])])
    if mark.rounds is not None and panel.is_square:
        says.append(f"round {mark.rounds[place]:,}")
    for side, axis, values in (("x", panel.x, mark.x), ("y", panel.y, mark.y)):
        ends = [] if mark.low is None or mark.high is None or mark.along != side else [mark.low, mark.high]
        interval = " to ".join(f"{end[place]:{axis.form}}" for end in ends)
        if axis.value:
            says.append(f"{axis.value} {values[place]:{axis.form}}" + (f" ({interval})" if interval else ""))
    return "<br>".join([f"<b>{to_markup(', '.join(filter(None, names)))}</b>", *says])


def _segments(tails: Array, heads: Array, colour: str, width: float) -> Chart:
    x, y = np.stack([tails, heads, np.full(tails.shape, np.nan)], axis=1).reshape(-1, 2).T
    trace: Chart = {"type": "scatter", "mode": "lines", "x": to_numbers(x), "y": to_numbers(y), **SILENT}
    return trace | {"line": {"color": colour, "width": width}, "meta": {"kind": "segments"}}


def _heat_map(mark: HeatMap) -> Chart:
    texts = [[f"{value:,.0f}" if np.isfinite(value) else "" for value in row] for row in mark.values]
    return {
        "type": "heatmap",
        "x": to_numbers(mark.x_edges),
        "y": to_numbers(mark.y_edges),
        "z": [to_numbers(row) for row in mark.values],
        "colorscale": "Cividis",
        "reversescale": True,
        "colorbar": {"title": {"text": to_markup(mark.label), "side": "right"}, "outlinewidth": 0},
        "hovertemplate": "%{z:,.1f}<extra></extra>",
        **({"text": texts, "texttemplate": "%{text}"} if mark.has_numbers else {}),
    }
