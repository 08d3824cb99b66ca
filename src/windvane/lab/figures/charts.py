"""The report's charts as plain dicts in plotly's figure format: data and layout, colours of the page left to the page.

Text from a spec is escaped for plotly's small HTML, and numbers that JSON cannot hold become null. A curve holds at
most MOST points.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array
from windvane.lab.figures import curves

if TYPE_CHECKING:
    from windvane.lab.results.results import Entry
    from windvane.lab.results.summary import Difference
    from windvane.lab.run.play import ThetaPath

MOST = 300
Chart = dict[str, Any]

_TIME = [[0, "#440154"], [0.25, "#3b528b"], [0.5, "#21918c"], [0.75, "#5ec962"], [1, "#fde725"]]  # viridis
_DASH = {"published": "6px,4px", "bound": "6px,4px"}
_LEMMAS = {2: ("#d55e00", "solid"), 3: ("#0072b2", "6px,2px"), 4: ("#009e73", "2px,2px")}


def label(text: object) -> str:
    """Text from a spec for a hover label: one line, nothing read as markup."""
    return html.escape(curves.tidy(text, 80), quote=False)


def numbers(values: npt.ArrayLike) -> list[float | None]:
    """Six digits are more than a screen shows; nan and infinities are gaps."""
    found = np.asarray(values, dtype=float).ravel().tolist()
    return [float(f"{value:.6g}") if np.isfinite(value) else None for value in found]


def _axis(title: str, **more: Any) -> dict[str, Any]:
    return {"title": {"text": title}, "automargin": True, **more}


def _layout(x: dict[str, Any], y: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"xaxis": x, "yaxis": y, "hovermode": "closest", "showlegend": False, **more}


def _line(x: npt.ArrayLike, y: npt.ArrayLike, colour: str, name: str, hover: str, **more: Any) -> dict[str, Any]:
    line = {"color": colour, "width": more.pop("width", 2), "dash": more.pop("dash", "solid")}
    template = f"<b>%{{fullData.name}}</b><br>round %{{x:,}}<br>{hover}<extra></extra>"
    made = {"type": "scatter", "mode": "lines", "name": label(name), "line": line, "hovertemplate": template}
    return {**made, "x": numbers(x), "y": numbers(y), **more}


def _transparent(colour: str, alpha: float) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{alpha})"


def _band(x: npt.ArrayLike, low: npt.ArrayLike, high: npt.ArrayLike, colour: str, **more: Any) -> list[dict[str, Any]]:
    """Two invisible lines with the space between them filled."""
    edge = {"type": "scatter", "mode": "lines", "hoverinfo": "skip", "line": {"width": 0}, "x": numbers(x), **more}
    fill = {"fill": "tonexty", "fillcolor": _transparent(colour, 0.16)}
    return [
        {**edge, "y": numbers(low), "meta": {**more.get("meta", {}), "kind": "low"}},
        {**edge, "y": numbers(high), **fill, "meta": {**more.get("meta", {}), "kind": "high"}},
    ]


def over_time(
    entries: Sequence[Entry],
    measure: curves.Measure,
    turning: tuple[float, float] | None = None,
    published: curves.PublishedCurves | None = None,
) -> Chart:
    """A mean over rounds with bands; each trace's ``meta`` tells which entry it belongs to and what it is."""
    shown_value = f"{measure.name} %{{y:,.{measure.digits}f}}"
    data: list[dict[str, Any]] = []
    legend = []
    banded = len(entries) <= 8
    for i, (entry, look) in enumerate(zip(entries, curves.looks(entries), strict=True)):
        kept = curves.thinned(len(entry.rounds), MOST)
        rounds, mean, sd = (part[kept] for part in measure.curve(entry))
        if not np.isnan(sd).all():
            shown = {} if banded else {"visible": False}
            data += _band(rounds, mean - sd, mean + sd, look.colour, meta={"entry": i}, **shown)
        known = curves.published_for(entry, published)
        if known is not None:
            some = curves.thinned(len(known[0]), MOST)
            data.append(
                _line(
                    known[0][some],
                    known[1][some],
                    look.colour,
                    f"{entry.label}, published",
                    shown_value,
                    dash=_DASH["published"],
                    width=1.5,
                    meta={"entry": i, "kind": "published"},
                )
            )
        spread = [f" ± {value:,.{measure.digits}f} sd" if np.isfinite(value) else "" for value in sd]
        data.append(
            _line(
                rounds,
                mean,
                look.colour,
                entry.label,
                f"{shown_value}%{{customdata}}",
                customdata=spread,
                meta={"entry": i, "kind": "mean"},
            )
        )
        legend.append({"label": entry.label, "colour": look.colour})
    layout = _layout(_axis("Round", rangemode="tozero"), _axis(measure.axis, **_limits(measure, entries)))
    if turning is not None:
        layout["shapes"] = [_drift_period(*turning)]
    return {"data": data, "layout": layout, "legend": legend, "banded": banded}


def _drift_period(begin: float, end: float) -> dict[str, Any]:
    """The rounds in which the world changes, shaded over the whole height."""
    place = {"type": "rect", "x0": begin, "x1": end, "yref": "paper", "y0": 0, "y1": 1, "layer": "below"}
    text = {"text": "drift period", "textposition": "top center", "font": {"size": 12}}
    return {**place, "line": {"width": 0}, "fillcolor": "rgba(128,128,128,0.16)", "label": text}


def _limits(measure: curves.Measure, entries: Sequence[Entry]) -> dict[str, Any]:
    """How far the vertical axis reaches at first."""
    if measure is curves.REGRET:
        return {"rangemode": "tozero"}
    low, high = curves.settled_range(map(measure.curve, entries))
    return {"range": numbers([low - 0.01, high + 0.01])}


def projection(path: ThetaPath) -> list[Chart]:
    """theta in the plane of the first two coordinates (not in one dimension), and its norm over rounds."""
    kept = curves.thinned(len(path.rounds), MOST)
    rounds = path.rounds[kept]
    star, hat, tilde = (theta[kept] for theta in (path.theta_star, path.theta_hat, path.theta_tilde))
    moved = np.abs(tilde - hat).max(axis=1) > 1e-9 * path.S
    dim = star.shape[1]
    if dim == 1:
        band = {"type": "rect", "y0": -path.S, "y1": path.S, "xref": "paper", "x0": 0, "x1": 1}
        over = _thetas(rounds, (rounds, star[:, 0]), (rounds, hat[:, 0]), (rounds, tilde[:, 0]), moved, flat=True)
        return [{"data": over, "layout": _layout(_axis("Round"), _axis("θ"), shapes=[_ground(band)])}]
    (x, y), half = curves.frame(hat[:, :2], star[:, :2], path.S)
    circle = {"type": "circle", "x0": -path.S, "x1": path.S, "y0": -path.S, "y1": path.S}
    plane = {
        "data": _thetas(rounds, star[:, :2].T, hat[:, :2].T, tilde[:, :2].T, moved, flat=False),
        "layout": _layout(
            _axis("first coordinate", range=[x - half, x + half], constrain="domain"),
            _axis("second coordinate", range=[y - half, y + half], scaleanchor="x", constrain="domain"),
            shapes=[_ground(circle)],
        ),
    }
    band = {"type": "rect", "y0": 0, "y1": path.S, "xref": "paper", "x0": 0, "x1": 1}
    one, two, three = ((rounds, np.linalg.norm(theta, axis=1)) for theta in (star, hat, tilde))
    norms = {
        "data": _thetas(rounds, one, two, three, moved, flat=True),
        "layout": _layout(
            _axis("Round (colour: time)", rangemode="tozero"), _axis("Norm", rangemode="tozero"), shapes=[_ground(band)]
        ),
    }
    return [plane, norms]


def _ground(shape: dict[str, Any]) -> dict[str, Any]:
    """The set Theta, behind everything."""
    line = {"width": 1, "color": "rgba(128,128,128,0.7)"}
    return {**shape, "layer": "below", "fillcolor": "rgba(128,128,128,0.13)", "line": line}


def _thetas(
    rounds: npt.NDArray[np.int64], star: Any, hat: Any, tilde: Any, moved: npt.NDArray[np.bool_], *, flat: bool
) -> list[dict[str, Any]]:
    """Estimate (dots), projected estimate (crosses, where it differs) and truth (a line); colour is time."""
    where = "%{y:.3f}" if flat else "(%{x:.3f}, %{y:.3f})"
    time = {"colorscale": _TIME, "cmin": 0, "cmax": int(rounds[-1]), "showscale": False}
    data = []
    for name, (x, y), some, symbol in (
        ("estimate", hat, np.ones(len(rounds), dtype=bool), "circle"),
        ("projected estimate", tilde, moved, "x-thin"),
    ):
        colour = numbers(rounds[some])
        marker = {**time, "color": colour, "symbol": symbol, "size": 6}
        marker["line"] = {"width": 0} if symbol == "circle" else {**time, "color": colour, "width": 1.3}
        hover = f"<b>{name}</b><br>round %{{customdata:,}}<br>{where}<extra></extra>"
        made = {"type": "scatter", "mode": "markers", "name": name, "marker": marker, "hovertemplate": hover}
        data.append({**made, "x": numbers(x[some]), "y": numbers(y[some]), "customdata": numbers(rounds[some])})
    hover = f"<b>truth</b><br>round %{{customdata:,}}<br>{where}<extra></extra>"
    truth = {"type": "scatter", "mode": "lines", "name": "truth", "hovertemplate": hover, "meta": {"ink": True}}
    return [
        *data,
        {**truth, "x": numbers(star[0]), "y": numbers(star[1]), "customdata": numbers(rounds), "line": {"width": 3}},
    ]


def diagnostics(entry: Entry) -> list[Chart]:
    """Learning term and radius, tracking term and bound, smallest slack of each lemma, all over rounds."""
    d = entry.diagnostics
    kept = curves.thinned(len(entry.rounds), MOST)
    rounds = entry.rounds[kept]
    charts = []
    for name, bound, title, limit, colour in (
        ("learning", "beta", "learning term", "its radius beta", "#d55e00"),
        ("tracking", "tracking_bound", "tracking term", "its bound", "#0072b2"),
    ):
        low, middle, high = (curves.quantile(d[name], q)[kept] for q in (0.05, 0.5, 0.95))
        top = curves.finite(curves.quantile(d[bound], 0.5)[kept])
        ink = {"meta": {"ink": True}, "dash": _DASH["bound"]}
        data = [
            *_band(rounds, low, high, colour),
            _line(rounds, middle, colour, title, "median %{y:.4g}"),
            _line(rounds, top, colour, limit, "median %{y:.4g}", **ink),
        ]
        axis = _axis(f"{title.capitalize()} (dashed: {limit})", rangemode="tozero")
        if curves.wants_log(middle, top):
            most = float(np.log10(np.nanmax(top)))
            axis |= {
                "type": "log",
                "range": [most + np.log10(curves.ROUNDING), most + 0.5],
                "dtick": 1,
                "exponentformat": "power",
            }
        layout = _layout(_axis("Round"), axis)
        if np.isnan(middle).all():
            where = {"xref": "paper", "yref": "paper", "x": 0.5, "y": 0.5, "showarrow": False}
            layout["annotations"] = [{**where, "text": "not defined for this policy here"}]
        charts.append({"data": data, "layout": layout})
    return [*charts, _slacks(entry, kept)]


def _slacks(entry: Entry, kept: npt.NDArray[np.int64]) -> Chart:
    """The smallest slack over runs of each lemma, on an axis that is linear near 0 and logarithmic beyond."""
    data, largest = [], curves.LINEAR
    for k, (colour, dash) in _LEMMAS.items():
        every = curves.finite(curves.quantile(entry.diagnostics[f"lemma_{k}_slack"], 0.0))
        least = every[kept]
        largest = max(largest, float(np.nanmax(np.abs(least), initial=0.0)))
        hover = {"customdata": numbers(least), "dash": dash}
        # thinning may skip the worst round: the name tells it
        name = f"Lemma {k} ({'says nothing here' if np.isnan(every).all() else f'least {np.nanmin(every):.2g}'})"
        data.append(_line(entry.rounds[kept], _bent(least), colour, name, "smallest slack %{customdata:.3g}", **hover))
    powers = curves.LINEAR * 10.0 ** np.arange(np.ceil(np.log10(largest / curves.LINEAR)) + 1)
    ticks = np.concatenate([-powers[::-1], [0.0], powers])
    marks = {"tickmode": "array", "tickvals": numbers(_bent(ticks)), "ticktext": [f"{tick:g}" for tick in ticks]}
    legend = {"orientation": "h", "y": 1.02, "yanchor": "bottom"}
    layout = _layout(_axis("Round"), _axis("Smallest slack over runs", **marks), legend=legend)
    return {"data": data, "layout": {**layout, "showlegend": True}}


def _bent(values: Array) -> Array:
    return np.arcsinh(values / curves.LINEAR)


def differences(rows: Sequence[Difference]) -> Chart:
    """Paired differences with their intervals, from the top down."""
    values: list[Array] = [np.array([getattr(row, part) for row in rows]) for part in ("mean", "low", "high")]
    mean, low, high = values
    names = [curves.tidy(row.label, 28) for row in rows]
    interval = "%{customdata[1]:,.2f} to %{customdata[2]:,.2f}"
    data = {
        "type": "scatter",
        "mode": "markers",
        "x": numbers(mean),
        "y": list(range(len(rows))),
        "customdata": [[label(row.label), *numbers([row.low, row.high])] for row in rows],
        "hovertemplate": f"<b>%{{customdata[0]}}</b><br>%{{x:,.2f}} ({interval})<extra></extra>",
        "error_x": {
            "type": "data",
            "symmetric": False,
            "color": "#7d7d7d",
            "array": numbers(high - mean),
            "arrayminus": numbers(mean - low),
        },
        "marker": {"size": 9, "color": ["#0072b2" if value < 0 else "#d55e00" for value in mean]},
    }
    ticks = {"tickmode": "array", "tickvals": list(range(len(rows))), "ticktext": [label(name) for name in names]}
    y = {**_axis(""), **ticks, "range": [len(rows) - 0.5, -0.5], "showgrid": False, "zeroline": False}
    x = _axis("Difference (left of 0 is better)", zeroline=True, zerolinewidth=2)
    return {"data": [data], "layout": {**_layout(x, y), "height": 120 + 34 * len(rows)}}
