"""Figures hold what they are said to hold: their artists are read back and compared with the entries."""

from __future__ import annotations

import hashlib
import itertools
import math
import subprocess
import sys

import matplotlib
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.collections import PathCollection, QuadMesh
from matplotlib.colors import to_hex
from matplotlib.patches import Circle, Rectangle
from PIL import Image

from support import sample_results as samples
from support.refusals import rejects
from windvane.lab.figures import curves, plots


def by_gid(axes, gid):
    return [artist for artist in axes.get_children() if artist.get_gid() == gid]


def words(figure):
    """All text of a figure, drawn."""
    with plots.style():
        figure.canvas.draw()
    found = figure.findobj(matplotlib.text.Text)
    return "\n".join(text.get_text() for text in found if text.get_visible())


# --- regret ----------------------------------------------------------------------------------------------------------


def test_regret_lines_are_the_means_in_the_colours_of_the_policies():
    entries = samples.four()
    axes = plots.regret_figure(entries, title="A title").axes[0]
    lines = by_gid(axes, "measured")
    assert len(lines) == 4
    for line, entry in zip(lines, entries, strict=True):
        np.testing.assert_array_equal(line.get_xdata(), entry.rounds)
        np.testing.assert_array_equal(line.get_ydata(), entry.regret.mean(axis=0))
        assert line.get_color() == curves.FIXED[entry.policy].colour
        assert line.get_linestyle() == "-"
    assert len({line.get_marker() for line in lines}) == 4  # in grey, markers and names tell them apart
    assert axes.get_title(loc="left") == "A title"


def test_bands_reach_one_standard_deviation_to_either_side():
    entries = samples.four()
    axes = plots.regret_figure(entries).axes[0]
    bands = [c for c in axes.collections if len(c.get_paths())]
    assert len(bands) == 4
    for band, entry in zip(bands, entries, strict=True):
        mean, sd = entry.regret.mean(axis=0), entry.regret.std(axis=0, ddof=1)
        corners = band.get_paths()[0].vertices
        at_end = corners[corners[:, 0] == entry.horizon, 1]
        np.testing.assert_allclose([at_end.min(), at_end.max()], [mean[-1] - sd[-1], mean[-1] + sd[-1]])
        inside = entry.rounds[500]
        at_middle = corners[corners[:, 0] == inside, 1]
        np.testing.assert_allclose([at_middle.min(), at_middle.max()], [mean[500] - sd[500], mean[500] + sd[500]])


def test_drift_is_shaded_and_named():
    figure = plots.regret_figure(samples.four(), turning=(1000.0, 2000.0))
    (span,) = by_gid(figure.axes[0], "drift")
    assert (span.get_x(), span.get_x() + span.get_width()) == (1000.0, 2000.0)
    assert "drift period" in words(figure)
    assert not by_gid(plots.regret_figure(samples.four()).axes[0], "drift")


def test_published_curves_are_dashed_in_the_same_colour():
    entries, published = samples.four(), samples.published()
    figure = plots.regret_figure(entries, published=published)
    dashed = by_gid(figure.axes[0], "published")
    assert len(dashed) == 4
    for line, entry in zip(dashed, entries, strict=True):
        np.testing.assert_array_equal(line.get_ydata(), published[entry.policy][1])
        assert line.get_color() == curves.FIXED[entry.policy].colour
        assert line.is_dashed()
    assert "published" in words(figure)
    assert "published" not in words(plots.regret_figure(entries))


def test_published_curves_stop_at_the_horizon_and_are_not_a_variants():
    published = samples.published()
    short = samples.entry(horizon=1000)
    (line,) = by_gid(plots.regret_figure([short], published=published).axes[0], "published")
    assert line.get_xdata()[-1] == 1000
    assert curves.published_final(short, published) == published["BVD-GLM-UCB"][1][999]
    assert math.isnan(curves.published_final(samples.entry(horizon=4000), published))
    assert math.isnan(curves.published_final(samples.entry("Another"), published))
    assert curves.published_for(samples.entry(variant={"gamma": 0.9}), published) is None


def test_names_and_final_values_stand_at_the_ends():
    entries = samples.four()
    said = words(plots.regret_figure(entries))
    for entry in entries:
        assert f"{entry.label}  {entry.final.mean():,.1f}" in said


def test_labels_at_the_ends_do_not_overlap():
    entries = [samples.entry(f"policy {i}", final=100 + i / 10) for i in range(8)]
    figure = plots.regret_figure(entries)
    with plots.style():
        figure.canvas.draw()
    renderer = figure.canvas.get_renderer()
    labels = [t for t in figure.axes[0].texts if t.get_text().startswith("policy")]
    boxes = [matplotlib.text.Text.get_window_extent(label, renderer) for label in labels]  # without the leaders
    boxes.sort(key=lambda box: box.y0)
    assert len(boxes) == 8
    assert all(one.y1 <= other.y0 + 1 for one, other in itertools.pairwise(boxes))
    assert max(box.x1 for box in boxes) <= figure.bbox.x1 + 1


def test_many_entries_get_a_legend_and_no_bands():
    entries = samples.many(40)
    figure = plots.regret_figure(entries)
    assert len(by_gid(figure.axes[0], "measured")) == 40
    assert not [c for c in figure.axes[0].collections if len(c.get_paths())]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [entry.label for entry in entries]
    assert "sd" not in figure.axes[0].get_ylabel()


def test_one_run_has_no_band_and_says_so():
    figure = plots.regret_figure(samples.four(runs=1))
    assert "1 run" in figure.axes[0].get_ylabel()
    assert "sd" not in figure.axes[0].get_ylabel()
    assert np.isnan(curves.curve(samples.entry(runs=1)).sd).all()


def test_unknown_values_leave_gaps(tmp_path):
    entry = samples.entry()
    entry.regret[3, 400:] = np.nan
    figure = plots.regret_figure([entry, samples.entry("OFUL")])
    assert np.isnan(by_gid(figure.axes[0], "measured")[0].get_ydata()[400:]).all()
    assert len(plots.save(figure, tmp_path, "gaps")) == 3


@pytest.mark.parametrize("name", ["$\\frac{1$", "costs $5 or $6", "_hidden", "two\nlines\x00", "</script>", "x" * 300])
@pytest.mark.parametrize("count", [1, 9])
def test_names_are_never_read_as_formulas_or_commands(tmp_path, name, count):
    entries = [samples.entry("BVD-GLM-UCB", name=name, environment=f"{i}") for i in range(count)]
    figure = plots.regret_figure(entries, title=name)
    assert curves.tidy(name, 30)[:20] in words(figure).replace(r"\$", "$")
    if count == 1:
        plots.save(figure, tmp_path, "figure")


def test_no_entries_are_refused():
    with rejects("entries", value=[]):
        plots.regret_figure([])


def test_environments_are_named_where_there_are_several():
    entries = [samples.entry(environment="one"), samples.entry(environment="two")]
    said = words(plots.regret_figure(entries))
    assert "BVD-GLM-UCB (one)" in said
    assert "BVD-GLM-UCB (two)" in said


# --- looks, thinning, places -----------------------------------------------------------------------------------------


def test_looks_are_fixed_by_name_and_distinct():
    entries = [
        *samples.four(),
        *(samples.entry(name) for name in ("policy 0", "policy 1", "AdaptiveGLMUCB", "BOB-BVD-GLM-UCB")),
    ]
    found = curves.looks(entries)
    assert len({look.colour for look in found}) == 8
    assert len({look.marker for look in found}) == 8
    assert curves.looks(entries[::-1])[-4:] == found[:4][::-1]
    assert curves.looks([entries[5]]) == curves.looks([entries[0], entries[5]])[1:]
    many = curves.looks([samples.entry(f"policy {i}") for i in range(60)])
    assert len({look.colour for look in many[:8]}) == 8
    assert len(set(many[:8])) + len(set(many[8:])) == 60


def test_variants_share_a_hue_and_differ_in_shade():
    found = curves.looks([e for e in samples.many(12) if e.policy == "D-LinUCB"])
    assert len({look.colour for look in found}) == 6
    assert len({look.marker for look in found}) == 1


TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
SIGHT = {  # Machado, Oliveira and Fernandes (2009), full severity
    "normal": np.eye(3),
    "protan": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deutan": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritan": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
PALETTE = [look.colour for look in curves.PALETTE]


def linear(colour):
    parts = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def lab(light):
    ratio = TO_XYZ @ np.clip(light, 0, 1) / [0.9505, 1.0, 1.089]
    x, y, z = np.where(ratio > 0.008856, np.cbrt(ratio), 7.787 * ratio + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("sight", SIGHT)
def test_colours_stay_apart_for_every_sight(sight):
    seen = [lab(SIGHT[sight] @ linear(colour)) for colour in PALETTE]
    assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2)) > 15  # about 2 can just be seen


@pytest.mark.parametrize("colour", PALETTE)
@pytest.mark.parametrize("ground", ["#ffffff", "#15191f"])
def test_colours_stand_out_on_white_and_on_the_dark_page(colour, ground):
    low, high = sorted(TO_XYZ[1] @ linear(each) for each in (colour, ground))
    assert (high + 0.05) / (low + 0.05) >= 3  # what WCAG asks of graphics


@given(st.integers(1, 5000), st.integers(6, 400))
def test_thinning_keeps_the_ends_and_the_limit(count, most):
    kept = curves.thinned(count, most)
    assert len(kept) <= most
    assert kept[0] == 0
    assert kept[-1] == count - 1
    assert (np.diff(kept) > 0).all()


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12), st.floats(0.01, 0.2))
def test_places_are_apart_in_order_and_unmoved_where_there_is_room(wanted, gap):
    wanted = np.array(wanted)
    places = plots._apart(wanted, gap)
    order = np.argsort(wanted, kind="stable")
    assert (np.diff(places[order]) >= gap * (1 - 1e-9)).all()
    np.testing.assert_allclose(places.mean(), wanted.mean(), atol=1e-9)  # a block moves about its centre
    if (np.diff(wanted[order]) >= gap).all():
        np.testing.assert_allclose(places, wanted, atol=1e-12)


def test_quantiles_skip_the_unknown_and_bear_infinity():
    values = np.array([[1.0, np.nan, np.inf], [2.0, np.nan, np.inf], [np.nan, np.nan, 1.0]])
    np.testing.assert_array_equal(curves.quantile(values, 0.0), [1.0, np.nan, 1.0])
    np.testing.assert_array_equal(curves.quantile(values, 1.0), [2.0, np.nan, np.inf])
    assert curves.share_above(np.array([1.0, 3.0, np.nan]), np.array([2.0, 2.0, 2.0])) == 0.5


# --- projection ------------------------------------------------------------------------------------------------------


def test_projection_in_the_plane():
    path = samples.theta_path()
    figure = plots.projection_figure(path, title="BVD-GLM-UCB")
    plane, norms = figure.axes
    (star,) = by_gid(plane, "theta_star")
    np.testing.assert_array_equal(star.get_xydata(), path.theta_star)
    (ball,) = plane.findobj(Circle)
    assert ball.radius == path.S
    hat, tilde = (by_gid(plane, gid)[0] for gid in ("theta_hat", "theta_tilde"))
    rows = {tuple(row) for row in path.theta_hat}
    assert {tuple(row) for row in hat.get_offsets()} <= rows
    assert len(hat.get_offsets()) <= plots.MOST_DOTS
    outside = np.linalg.norm(hat.get_offsets(), axis=1) > path.S
    assert outside.sum() == len(tilde.get_offsets()) > 0  # each estimate outside Theta is drawn with its projection
    np.testing.assert_allclose(np.linalg.norm(tilde.get_offsets(), axis=1), path.S)
    for values, (low, high) in zip(path.theta_hat.T, (plane.get_xlim(), plane.get_ylim()), strict=True):
        assert low < min(values.min(), -path.S)  # excursions, and all of Theta, are within the frame
        assert max(values.max(), path.S) < high
    assert plane.get_aspect() == 1
    (line,) = (a for a in by_gid(norms, "theta_hat") if not isinstance(a, PathCollection))
    np.testing.assert_array_equal(line.get_ydata(), np.linalg.norm(path.theta_hat, axis=1))
    share = np.mean(np.linalg.norm(path.theta_hat, axis=1) > path.S)
    assert f"in {100 * share:.0f} % of rounds" in words(figure)


def test_projection_in_one_dimension_goes_over_time():
    path = samples.theta_path(dim=1)
    (axes,) = plots.projection_figure(path).axes
    (star,) = by_gid(axes, "theta_star")
    np.testing.assert_array_equal(star.get_xdata(), path.rounds)
    np.testing.assert_array_equal(star.get_ydata(), path.theta_star[:, 0])


def test_projection_says_that_it_shows_two_of_several_coordinates():
    assert "first two of 5 coordinates" in words(plots.projection_figure(samples.theta_path(dim=5), title="x"))


def test_projection_without_projection_or_estimate(tmp_path):
    path = samples.theta_path(projects=False)
    figure = plots.projection_figure(path)
    assert not by_gid(figure.axes[0], "theta_tilde")
    path.theta_hat[:] = np.nan
    figure = plots.projection_figure(path)
    assert "estimate" not in words(figure)
    plots.save(figure, tmp_path, "nothing")


def test_projection_says_when_estimates_lie_beyond_the_frame():
    path = samples.theta_path()
    path.theta_hat[:7] = 50.0
    assert "7 estimates lie beyond the frame" in words(plots.projection_figure(path))


def test_a_resting_parameter_is_a_dot():
    path = samples.theta_path()
    path.theta_star[:] = [0.5, 0.5]
    axes = plots.projection_figure(path).axes[0]
    assert any(line.get_marker() == "o" and line.get_xydata().tolist() == [[0.5, 0.5]] for line in axes.get_lines())


# --- tuning ----------------------------------------------------------------------------------------------------------


def grid(gammas, scales):
    memory = 1 / (1 - np.minimum(gammas, 0.99999))
    return 80 + (np.log(memory)[:, None] - 5) ** 2 + 20 * np.abs(np.log(scales))[None]


def best_of(mean):
    row, column = np.unravel_index(np.nanargmin(mean), mean.shape)
    return int(row), int(column)


def test_heat_map_holds_the_means_and_frames_the_best():
    gammas, scales = 1 - 1 / np.geomspace(10, 3000, 8), np.array([0.25, 0.5, 1.0])
    mean = grid(gammas, scales)
    best = best_of(mean)
    figure = plots.heat_map(gammas, scales, mean, 0.01 * mean, best=best)
    axes = figure.axes[0]
    (mesh,) = axes.findobj(QuadMesh)
    np.testing.assert_allclose(np.asarray(mesh.get_array()).reshape(3, 8), mean.T)
    (frame,) = (a for a in axes.findobj(Rectangle) if a.get_gid() == "best")
    assert frame.get_x() < 1 / (1 - gammas[best[0]]) < frame.get_x() + frame.get_width()
    assert frame.get_y() == best[1] - 0.5
    assert axes.get_xscale() == "log"
    said = words(figure)
    assert f"{gammas[best[0]]:.6g}, bonus scale {scales[best[1]]:g}: {mean[best]:.1f} ±" in said
    assert f"{mean[0, 0]:,.0f}" in said


def test_heat_map_puts_no_forgetting_last_and_bears_unfinished_points(tmp_path):
    gammas, scales = np.array([1.0, 0.9, 0.99, 0.999]), np.array([1.0, 0.5])  # in any order
    mean = grid(gammas, scales)
    mean[1, 0] = np.nan
    close = mean < np.nanmin(mean) + 2
    figure = plots.heat_map(gammas, scales, mean, 0.01 * mean, best=best_of(mean), close=close)
    axes = figure.axes[0]
    assert axes.get_xticklabels()[0].get_text().split("\n")[0] == "1"  # ticks go from the right
    assert len(by_gid(axes, "close")) == close.sum()
    (mesh,) = axes.findobj(QuadMesh)
    shown = np.asarray(np.ma.filled(mesh.get_array(), np.nan)).reshape(2, 4)
    np.testing.assert_allclose(shown[1], mean[[1, 2, 3, 0], 0])  # ascending memory, scale 1 on top
    plots.save(figure, tmp_path, "map")


@pytest.mark.parametrize("scale", [1.0, math.nan])
def test_one_scale_gives_a_curve_with_error_bars(scale):
    gammas = np.array([0.9, 0.99, 0.999, 1.0])
    mean = grid(gammas, np.array([1.0]))
    figure = plots.heat_map(gammas, [scale], mean, np.full((4, 1), 2.0), best=best_of(mean))
    axes = figure.axes[0]
    assert not axes.findobj(QuadMesh)
    (bars,) = axes.containers
    np.testing.assert_array_equal(bars.lines[0].get_ydata(), mean[:, 0])
    ends = np.array([segment[:, 1] for segment in bars.lines[2][0].get_segments()])
    np.testing.assert_allclose(ends, np.stack([mean[:, 0] - 2, mean[:, 0] + 2], axis=1))
    (best,) = by_gid(axes, "best")
    assert best.get_ydata()[0] == mean.min()
    assert "nan" not in words(figure)


def test_one_discount_gives_a_curve_over_scales():
    scales = np.array([2.0, 0.5, 1.0])
    mean = np.array([[30.0, 10.0, 20.0]])
    figure = plots.heat_map([math.nan], scales, mean, np.full((1, 3), np.nan), best=(0, 1))
    (bars,) = figure.axes[0].containers
    np.testing.assert_array_equal(bars.lines[0].get_xdata(), [0.5, 1.0, 2.0])
    np.testing.assert_array_equal(bars.lines[0].get_ydata(), [10.0, 20.0, 30.0])
    assert by_gid(figure.axes[0], "best")[0].get_xdata()[0] == 0.5


def test_heat_map_refuses_wrong_shapes():
    with rejects("mean"):
        plots.heat_map([0.9, 0.99], [1.0, 2.0], np.ones((3, 2)), np.ones((2, 2)), best=(0, 0))


# --- differences and diagnostics -------------------------------------------------------------------------------------


def test_differences_are_drawn_with_their_intervals():
    rows = samples.differences()
    figure = plots.difference_figure(rows, title="Paired", confidence=0.9)
    axes = figure.axes[0]
    (zero,) = by_gid(axes, "zero")
    assert list(zero.get_xdata()) == [0, 0]
    intervals, means = by_gid(axes, "interval"), by_gid(axes, "mean")
    for row, interval, mean in zip(rows, intervals, means, strict=True):
        assert list(interval.get_xdata()) == [row.low, row.high]
        assert mean.get_xdata()[0] == row.mean
        filled = to_hex(mean.get_markerfacecolor()) != "#ffffff"
        assert filled == (row.low > 0 or row.high < 0)
    said = words(figure)
    assert [label.get_text() for label in axes.get_yticklabels()] == [row.label for row in rows]
    assert "minus that of GLM-UCB" in said
    assert "90 % interval" in said
    with rejects("rows", value=[]):
        plots.difference_figure([])


def test_diagnostics_hold_medians_and_the_smallest_slack():
    entry = samples.entry(with_diagnostics=True, runs=21)
    figure = plots.diagnostics_figure(entry)
    learning, tracking, slack = figure.axes
    d = entry.diagnostics
    np.testing.assert_array_equal(by_gid(learning, "learning")[0].get_ydata()[1:], np.median(d["learning"], axis=0)[1:])
    np.testing.assert_array_equal(by_gid(learning, "beta")[0].get_ydata(), np.median(d["beta"], axis=0))
    np.testing.assert_array_equal(by_gid(tracking, "tracking")[0].get_ydata(), np.median(d["tracking"], axis=0))
    bound = by_gid(tracking, "tracking_bound")[0].get_ydata()
    assert np.isnan(bound[:3]).all()  # infinite: a gap
    np.testing.assert_array_equal(bound[3:], np.median(d["tracking_bound"], axis=0)[3:])
    for k in (2, 3, 4):
        (line,) = by_gid(slack, f"Lemma {k}")
        np.testing.assert_array_equal(line.get_ydata(), d[f"lemma_{k}_slack"].min(axis=0))
    assert "in 0 % of recorded rounds" in words(figure)


def test_diagnostics_say_what_is_not_defined(tmp_path):
    entry = samples.entry(with_diagnostics=True)
    for name in ("tracking", "tracking_bound", "lemma_2_slack", "lemma_4_slack"):
        entry.diagnostics[name][:] = np.nan
    entry.diagnostics["lemma_3_slack"][:] = np.inf
    figure = plots.diagnostics_figure(entry)
    said = words(figure)
    assert "not defined for this policy here" in said
    assert said.count("says nothing here") == 3
    plots.save(figure, tmp_path, "nothing")
    with rejects("entry"):
        plots.diagnostics_figure(samples.entry())


# --- files and manners -----------------------------------------------------------------------------------------------


def figures():
    return {
        "regret": plots.regret_figure(samples.four(), turning=(1000, 2000), published=samples.published()),
        "projection": plots.projection_figure(samples.theta_path()),
    }


def test_saving_twice_gives_the_same_bytes(tmp_path):
    sums = []
    for folder in (tmp_path / "one", tmp_path / "two"):
        paths = [path for name, figure in figures().items() for path in plots.save(figure, folder, name)]
        assert [path.name for path in paths[:3]] == ["regret.png", "regret.pdf", "regret.svg"]
        sums.append([hashlib.sha256(path.read_bytes()).hexdigest() for path in paths])
        assert sorted(p.name for p in folder.iterdir()) == sorted(p.name for p in paths)  # nothing left lying about
    assert sums[0] == sums[1]
    with Image.open(tmp_path / "one" / "regret.png") as image:
        assert image.size == (1400, 800)  # 7 x 4 inches at 200 dpi
    assert (tmp_path / "one" / "regret.pdf").read_bytes().startswith(b"%PDF")
    assert "<svg" in (tmp_path / "one" / "regret.svg").read_text(encoding="utf-8")


def test_the_callers_settings_neither_matter_nor_change(tmp_path):
    plain = plots.save(figures()["regret"], tmp_path, "plain")
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red", "savefig.dpi": 50, "lines.linestyle": ":"}):
        before = dict(matplotlib.rcParams)
        loud = plots.save(figures()["regret"], tmp_path, "loud")
        assert dict(matplotlib.rcParams) == before
    for one, other in zip(plain, loud, strict=True):
        assert one.read_bytes() == other.read_bytes()


def test_pyplot_is_left_alone():
    code = "import sys; import windvane.lab.figures.plots; sys.exit('matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
