"""Matplotlib draws what is described: its artists are read back. Files are the same for the same description."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import subprocess
import sys
import xml.etree.ElementTree as ET

import matplotlib
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.collections import LineCollection, PathCollection, QuadMesh
from matplotlib.colors import to_hex
from matplotlib.patches import Circle, Rectangle
from PIL import Image

from support import sample_results as samples
from support.figures import LOG, MARKS, SYMLOG, X, every_figure, figure_with
from windvane.lab.figures import matplotlib_renderer
from windvane.lab.figures.description import Axis, Band, Series, Strip
from windvane.lab.figures.matplotlib_renderer import render, save, spread_out, style
from windvane.lab.figures.over_time_figure import over_time_figure
from windvane.lab.figures.projection_figure import projection_figure
from windvane.lab.figures.style import tidy


def drawn(name, **settings):
    return render(figure_with(MARKS[name], **settings)).axes[0]


def words(canvas):
    """All text of a figure, drawn."""
    with style():
        canvas.canvas.draw()
    found = canvas.findobj(matplotlib.text.Text)
    return "\n".join(text.get_text() for text in found if text.get_visible())


# --- marks -----------------------------------------------------------------------------------------------------------


def test_lines():
    (line,) = drawn("line").get_lines()
    np.testing.assert_array_equal(line.get_xydata(), np.stack([X, X**2], axis=1))
    assert (line.get_color(), line.get_marker(), line.is_dashed()) == ("#d55e00", "s", False)
    assert drawn("dashed line").get_lines()[0].is_dashed()
    np.testing.assert_array_equal(drawn("gaps").get_lines()[0].get_ydata(), [1.0, np.nan, 3.0])


def test_bands():
    (band,) = drawn("band").collections
    corners = band.get_paths()[0].vertices
    at_end = corners[corners[:, 0] == 3.0, 1]
    assert (at_end.min(), at_end.max()) == (2.5, 3.5)
    assert not render(figure_with(dataclasses.replace(MARKS["band"], is_hidden=True))).axes[0].collections


def test_points():
    (points,) = drawn("points").get_lines()
    np.testing.assert_array_equal(points.get_xydata(), np.stack([X, X**2], axis=1))
    assert to_hex(points.get_markerfacecolor()) == "#0072b2"
    (hollow,) = drawn("open points").get_lines()
    assert to_hex(hollow.get_markerfacecolor()) == "#ffffff"
    (coloured,) = drawn("coloured points").collections
    assert isinstance(coloured, PathCollection)
    np.testing.assert_array_equal(coloured.get_array(), X)
    assert coloured.get_clim() == (0.0, 5.0)  # not the last of these points: the last round


@pytest.mark.parametrize(("name", "along"), [("intervals", 1), ("intervals across", 0)])
def test_intervals(name, along):
    (bars,) = (c for c in drawn(name).collections if isinstance(c, LineCollection))
    ends = np.array([segment[:, along] for segment in bars.get_segments()])
    mark = MARKS[name]
    np.testing.assert_array_equal(ends, np.stack([mark.low, mark.high], axis=1))


def test_arrows():
    axes = drawn("arrows")
    (links,) = (c for c in axes.collections if isinstance(c, LineCollection))
    np.testing.assert_array_equal(links.get_segments()[1], [[2.0, 2.0], [1.0, 4.0]])
    (arrow,) = drawn("arrow with a head").texts
    assert (list(arrow.xy), list(arrow.xyann)) == ([3.0, 2.0], [1.0, 1.0])


def test_strips():
    (strip,) = (p for p in drawn("strip across x").patches if isinstance(p, Rectangle))
    assert (strip.get_x(), strip.get_x() + strip.get_width()) == (1.5, 2.5)
    assert drawn("strip across x").texts[0].get_text() == "a strip"
    (strip,) = (p for p in drawn("strip across y").patches if isinstance(p, Rectangle))
    assert (strip.get_y(), strip.get_y() + strip.get_height()) == (1.5, 2.5)
    (line,) = drawn("a line across").get_lines()
    assert list(line.get_xdata()) == [2.0, 2.0]


def test_discs_and_heat_maps():
    (disc,) = drawn("disc").findobj(Circle)
    assert disc.radius == 2.0
    axes = drawn("heat map", x=LOG)
    (mesh,) = axes.findobj(QuadMesh)
    values = np.ma.filled(mesh.get_array(), np.nan).reshape(2, 2)
    np.testing.assert_array_equal(values, MARKS["heat map"].values)
    assert [text.get_text() for text in axes.texts] == ["5", "6", "7"]
    (frame,) = (p for p in axes.findobj(Rectangle) if p.get_gid() == "best")
    assert (frame.get_x(), frame.get_y(), frame.get_width(), frame.get_height()) == (2.0, 0.0, 2.0, 1.0)


def test_axes():
    axes = drawn("line", x=LOG, y=SYMLOG, title="A panel", message="nothing here")
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "symlog")
    np.testing.assert_allclose(axes.get_xlim(), (0.5, 200.0))
    assert [label.get_text() for label in axes.get_yticklabels()] == ["−0.1", "0", "0.1"]
    assert axes.get_title(loc="left") == "A panel"
    assert "nothing here" in [text.get_text() for text in axes.texts]
    assert drawn("line", is_square=True).get_aspect() == 1


@pytest.mark.parametrize("name", ["line", "points", "strip across y", "disc"])
def test_what_has_a_name_is_in_the_legend(name):
    (text,) = drawn(name, legend="best").get_legend().get_texts()
    assert text.get_text() == MARKS[name].name


# --- whole figures ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", every_figure())
def test_every_figure_is_drawn(name):
    figure = every_figure()[name]
    canvas = render(figure)
    said = words(canvas)
    assert figure.title in said
    for panel, axes in zip(figure.panels, canvas.axes, strict=False):
        lines = [mark for mark in panel.marks if isinstance(mark, Series) and mark.width and len(mark.x) and mark.role]
        plotted = {line.get_gid(): line for line in axes.get_lines()}
        for line in lines:
            assert line.role in plotted
        bands = [mark for mark in panel.marks if isinstance(mark, Band) and not mark.is_hidden]
        assert len([c for c in axes.collections if type(c).__name__ == "FillBetweenPolyCollection"]) == len(bands)


def test_labels_at_the_ends_do_not_overlap():
    figure = over_time_figure([samples.entry(f"policy {i}", final=100 + i / 10) for i in range(8)])
    canvas = render(figure)
    words(canvas)
    renderer = canvas.canvas.get_renderer()
    labels = [t for t in canvas.axes[0].texts if t.get_text().startswith("policy")]
    boxes = [matplotlib.text.Text.get_window_extent(label, renderer) for label in labels]  # without the leaders
    boxes.sort(key=lambda box: box.y0)
    assert len(boxes) == 8
    assert all(one.y1 <= other.y0 + 1 for one, other in itertools.pairwise(boxes))
    assert max(box.x1 for box in boxes) <= canvas.bbox.x1 + 1


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12), st.floats(0.01, 0.2))
def test_places_are_apart_in_order_and_unmoved_where_there_is_room(wanted, gap):
    wanted = np.array(wanted)
    places = spread_out(wanted, gap)
    order = np.argsort(wanted, kind="stable")
    assert (np.diff(places[order]) >= gap * (1 - 1e-9)).all()
    np.testing.assert_allclose(places.mean(), wanted.mean(), atol=1e-9)  # a block moves about its centre
    if (np.diff(wanted[order]) >= gap).all():
        np.testing.assert_allclose(places, wanted, atol=1e-12)


def test_many_names_stand_beside_the_figure():
    entries = samples.many(40, runs=2)
    (legend,) = render(over_time_figure(entries)).legends
    assert [text.get_text() for text in legend.get_texts()] == [entry.label for entry in entries]


@pytest.mark.parametrize("name", ["leaderboard", "regret", "projection", "differences", "slopes", "diagnostics"])
def test_no_text_is_cut(name):
    canvas = render(every_figure()[name])
    words(canvas)
    renderer = canvas.canvas.get_renderer()
    for text in canvas.findobj(matplotlib.text.Text):
        if text.get_visible() and text.get_text() and text.axes is not None:
            box = matplotlib.text.Text.get_window_extent(text, renderer)
            assert box.x0 >= -1
            assert box.x1 <= canvas.bbox.x1 + 1


@pytest.mark.parametrize("name", ["$\\frac{1$", "costs $5 or $6", "_hidden", "two\nlines\x00", "</script>", "x" * 300])
@pytest.mark.parametrize("count", [1, 9])
def test_names_are_never_read_as_formulas_or_commands(tmp_path, name, count):
    entries = [samples.entry("BVD-GLM-UCB", name=name, environment=f"{i}", runs=2) for i in range(count)]
    figure = over_time_figure(entries, title=name)
    assert tidy(name, 30)[:20] in words(render(figure))
    if count == 1:
        (svg,) = (path for path in save(figure, tmp_path, "figure") if path.suffix == ".svg")
        ET.parse(svg)  # and the file is well formed


# --- files and manners -----------------------------------------------------------------------------------------------


def figures():
    regret = over_time_figure(samples.four(), turning=(1000, 2000), published=samples.published())
    return {"regret": regret, "projection": projection_figure(samples.theta_path())}


def test_saving_twice_gives_the_same_bytes(tmp_path):
    sums = []
    for folder in (tmp_path / "one", tmp_path / "two"):
        paths = [path for name, figure in figures().items() for path in save(figure, folder, name)]
        assert [path.name for path in paths[:3]] == ["regret.png", "regret.pdf", "regret.svg"]
        sums.append([hashlib.sha256(path.read_bytes()).hexdigest() for path in paths])
        assert sorted(p.name for p in folder.iterdir()) == sorted(p.name for p in paths)  # nothing left lying about
    assert sums[0] == sums[1]
    with Image.open(tmp_path / "one" / "regret.png") as image:
        assert image.size == (1400, 800)  # 7 x 4 inches at 200 dpi
    assert (tmp_path / "one" / "regret.pdf").read_bytes().startswith(b"%PDF")
    assert "<svg" in (tmp_path / "one" / "regret.svg").read_text(encoding="utf-8")


def test_the_callers_settings_neither_matter_nor_change(tmp_path):
    plain = save(figures()["regret"], tmp_path, "plain")
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red", "savefig.dpi": 50, "lines.linestyle": ":"}):
        before = dict(matplotlib.rcParams)
        loud = save(figures()["regret"], tmp_path, "loud")
        assert dict(matplotlib.rcParams) == before
    for one, other in zip(plain, loud, strict=True):
        assert one.read_bytes() == other.read_bytes()


def test_pyplot_is_left_alone():
    code = f"import sys; import {matplotlib_renderer.__name__}; sys.exit('matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_gaps_and_unknown_values_can_be_saved(tmp_path):
    nothing = Series(X, np.full(3, np.nan), "#d55e00", "nothing", "mark", end="")
    assert len(save(figure_with(nothing), tmp_path, "nothing")) == 3
    assert len(save(figure_with(Strip("y", 0.0, 0.0), y=Axis()), tmp_path, "line")) == 3
