"""Plotly's charts hold what is described, in JSON that any page can hold, and the same values as matplotlib."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from support import sample_results as samples
from support.figures import LOG, MARKS, SYMLOG, X, every_figure, figure_with
from windvane.lab.figures import matplotlib_renderer
from windvane.lab.figures.description import Series, row_axis
from windvane.lab.figures.over_time_figure import over_time_figure
from windvane.lab.figures.plotly_renderer import MOST, bend, render, thin
from windvane.lab.figures.style import LINEAR

HOSTILE = "<img src=x onerror=alert(1)> & <b>$x$</b>"


def charted(name, **settings):
    (chart,) = render(figure_with(MARKS[name], **settings))
    return chart


def trace_of(name, **settings):
    return charted(name, **settings)["data"][-1]


def test_lines():
    trace = trace_of("line")
    assert (trace["x"], trace["y"]) == ([1.0, 2.0, 3.0], [1.0, 4.0, 9.0])
    assert (trace["mode"], trace["line"]["color"], trace["line"]["dash"]) == ("lines+markers", "#d55e00", "solid")
    assert trace["meta"] == {"entry": None, "kind": "mark", "ink": False}
    dashed = trace_of("dashed line")
    assert dashed["line"]["dash"] != "solid"
    assert dashed["meta"]["ink"]  # the page gives it its own ink
    assert trace_of("gaps")["y"] == [1.0, None, 3.0]


def test_bands_are_two_edges_and_a_fill():
    low, high = charted("band")["data"]
    assert (low["y"], high["y"]) == ([0.5, 1.5, 2.5], [1.5, 2.5, 3.5])
    assert (low["meta"]["kind"], high["meta"]["kind"]) == ("low", "high")
    assert high["fill"] == "tonexty"
    hidden = render(figure_with(dataclasses.replace(MARKS["band"], is_hidden=True)))[0]
    assert not hidden["banded"]
    assert not any(trace["visible"] for trace in hidden["data"])


def test_points():
    assert trace_of("points")["y"] == [1.0, 4.0, 9.0]
    assert trace_of("open points")["marker"]["symbol"] == "circle-open"
    marker = trace_of("coloured points")["marker"]
    assert (marker["color"], marker["cmin"], marker["cmax"]) == ([1.0, 2.0, 3.0], 0, 5.0)


def test_intervals_are_lines_between_their_ends_and_told():
    bars, points = charted("intervals")["data"]
    assert bars["y"] == [0.0, 3.0, None, 3.0, 6.0, None, 8.0, 11.0, None]
    assert points["customdata"][0] == " (0.00 to 3.00)"
    assert "<b>%{fullData.name}</b><br>x %{x:,.4g}<br>y %{y:.2f}%{customdata}" in points["hovertemplate"]
    bars, points = charted("intervals across")["data"]
    assert bars["x"] == [0.0, 3.0, None, 1.0, 4.0, None, 2.0, 5.0, None]
    assert points["customdata"][1] == " (1 to 4)"
    assert "x %{x:,.4g}%{customdata}<br>y %{y:.2f}" in points["hovertemplate"]


def test_arrows():
    assert trace_of("arrows")["x"] == [1.0, 3.0, None, 2.0, 1.0, None]
    (arrow,) = charted("arrow with a head")["layout"]["annotations"]
    assert [arrow[key] for key in ("ax", "ay", "x", "y")] == [1.0, 1.0, 3.0, 2.0]


def test_shapes():
    (strip,) = charted("strip across x")["layout"]["shapes"]
    assert (strip["x0"], strip["x1"], strip["yref"], strip["label"]["text"]) == (1.5, 2.5, "paper", "a strip")
    (strip,) = charted("strip across y")["layout"]["shapes"]
    assert (strip["y0"], strip["y1"], strip["xref"]) == (1.5, 2.5, "paper")
    (line,) = charted("a line across")["layout"]["shapes"]
    assert line["line"]["width"] > 0
    (disc,) = charted("disc")["layout"]["shapes"]
    assert (disc["type"], disc["x0"], disc["y1"]) == ("circle", -2.0, 2.0)


def test_heat_maps():
    chart = charted("heat map", x=LOG)
    (trace,) = chart["data"]
    assert trace["z"] == [[5.0, 6.0], [7.0, None]]
    assert trace["x"] == [1.0, 2.0, 4.0]
    assert trace["text"] == [["5", "6"], ["7", ""]]
    (frame,) = chart["layout"]["shapes"]
    assert [frame[key] for key in ("x0", "x1", "y0", "y1")] == [2.0, 4.0, 0.0, 1.0]


def test_axes():
    chart = charted("line", x=LOG, y=SYMLOG, title="A panel", message="nothing here", is_square=True)
    x, y = chart["layout"]["xaxis"], chart["layout"]["yaxis"]
    assert (x["type"], x["range"]) == ("log", pytest.approx(np.log10([0.5, 200.0]), rel=1e-5))
    assert y["ticktext"] == ["−0.1", "0", "0.1"]
    np.testing.assert_allclose(y["tickvals"], np.arcsinh([-100.0, 0.0, 100.0]), rtol=1e-5)
    np.testing.assert_allclose(np.sinh(chart["data"][0]["y"]) * LINEAR, X**2, rtol=1e-4)
    assert chart["data"][0]["customdata"] == [1.0, 4.0, 9.0]  # what is told is the value itself
    assert "slack %{customdata" in chart["data"][0]["hovertemplate"]
    assert chart["title"] == "A panel"
    assert chart["layout"]["annotations"][-1]["text"] == "nothing here"
    assert y["scaleanchor"] == "x"
    np.testing.assert_allclose(bend([0.0]), [0.0])


def test_rows_are_told_by_their_names():
    (chart,) = render(every_figure()["differences"])
    points = [trace for trace in chart["data"] if trace["meta"]["kind"] == "difference"]
    assert [trace["name"] for trace in points] == [row.label for row in samples.differences()]
    assert points[0]["hovertemplate"].startswith("<b>%{fullData.name}</b><br>difference %{x:,.2f}%{customdata}<extra>")
    assert not chart["layout"]["showlegend"]


@pytest.mark.parametrize("name", every_figure())
def test_every_figure_becomes_json(name):
    figure = every_figure()[name]
    charts = render(figure)
    assert len(charts) == len(figure.panels)
    text = json.dumps(charts, allow_nan=False)
    assert "template" not in text.replace("hovertemplate", "").replace("texttemplate", "")


@pytest.mark.parametrize("name", every_figure())
def test_both_renderers_show_the_same_values(name):
    figure = every_figure()[name]
    canvas, charts = matplotlib_renderer.render(figure), render(figure)
    for panel, axes, chart in zip(figure.panels, canvas.axes, charts, strict=False):
        is_bent = panel.y.scale == "symlog"
        lines = {line.get_gid(): line for line in axes.get_lines() if line.get_gid()}
        for role in {
            mark.role for mark in panel.marks if isinstance(mark, Series) and mark.width and mark.role and len(mark.x)
        }:
            trace = [trace for trace in chart["data"] if trace["meta"]["kind"] == role][-1]
            x, y = lines[role].get_xdata(), lines[role].get_ydata()
            kept = thin(len(x))
            shown = np.array(trace["customdata"] if is_bent else trace["y"], dtype=float)
            np.testing.assert_allclose(np.array(trace["x"], dtype=float), x[kept], rtol=1e-5)
            np.testing.assert_allclose(shown, y[kept], rtol=1e-5, atol=1e-12)
        for side in ("x", "y"):
            ends = chart["layout"][f"{side}axis"].get("range")
            if ends is not None:
                scale = {
                    "linear": np.asarray,
                    "log": lambda v: 10.0 ** np.asarray(v),
                    "symlog": lambda v: LINEAR * np.sinh(v),
                }
                limits = scale[getattr(panel, side).scale](ends)
                np.testing.assert_allclose(limits, getattr(axes, f"get_{side}lim")(), rtol=1e-3, atol=1e-4)


def test_long_lines_are_thinned():
    entry = samples.entry(horizon=3000, runs=2)
    (chart,) = render(over_time_figure([entry], published=samples.published()))
    for trace in chart["data"]:
        assert len(trace["x"]) <= MOST
        assert trace["x"][-1] == 3000


def test_entries_are_listed_and_explanations_left_to_the_page():
    (chart,) = render(over_time_figure(samples.four(runs=3), published=samples.published()))
    assert [row["label"] for row in chart["legend"]] == list(samples.FINALS)
    assert {trace["meta"]["entry"] for trace in chart["data"]} == {0, 1, 2, 3}
    assert not chart["layout"]["showlegend"]
    assert chart["banded"]


def test_hover_tells_the_spread():
    entry = samples.entry(runs=4)
    (chart,) = render(over_time_figure([entry]))
    (mean,) = (trace for trace in chart["data"] if trace["meta"]["kind"] == "mean")
    assert mean["customdata"][-1] == f" ± {entry.final.std(ddof=1):,.1f} sd"
    assert "regret %{y:,.1f}%{customdata}" in mean["hovertemplate"]
    (chart,) = render(over_time_figure([samples.entry(runs=1)]))
    assert set(chart["data"][-1]["customdata"]) == {""}


def test_hostile_text_is_escaped_wherever_plotly_reads_markup():
    entry = samples.entry(name=HOSTILE, runs=2)
    (chart,) = render(over_time_figure([entry], title=HOSTILE))
    assert "<img" not in json.dumps([chart["data"], chart["layout"]])
    assert chart["legend"][0]["label"].startswith("<img")  # which the page puts in as text
    points = dataclasses.replace(MARKS["points"], name=HOSTILE)
    (chart,) = render(figure_with(points, y=row_axis([HOSTILE] * 12), message=HOSTILE, title=HOSTILE))
    assert "<img" not in json.dumps([chart["data"], chart["layout"]])
    assert "&lt;img" in chart["data"][0]["name"]
