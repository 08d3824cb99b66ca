"""Figures that compare policies: leaderboard, paired differences, ratios, levels and slopes."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import numpy as np

from support import sample_results as samples
from support.refusals import rejects
from windvane.lab.figures.comparison_figures import (
    difference_figure,
    horizons_figure,
    leaderboard_figure,
    levels_figure,
    ratios_figure,
    slopes_figure,
)
from windvane.lab.figures.description import Strip
from windvane.lab.figures.over_time_figure import PublishedCurve
from windvane.lab.figures.style import BETTER, MUTED
from windvane.lab.results.leaderboard import LeaderboardRow


def standing(label, score, rank=1):
    return LeaderboardRow(label, rank, score, 0.9 * score, 1.2 * score, 3 * score, "somewhere", 1.0, {})


def test_the_leaderboard_holds_scores_intervals_and_the_worst():
    standings = [standing("A", 1.1), standing("B", 1.5, 2), standing("U", 4.0, None)]
    (panel,) = leaderboard_figure(standings, confidence=0.9).panels
    assert panel.y.ticks.texts == ["A", "B", "U"]
    for i, (row, score, worst) in enumerate(
        zip(standings, panel.marks_with("score"), panel.marks_with("worst"), strict=True)
    ):
        assert (score.x, score.y, score.low, score.high) == ([row.score], [i], [row.low], [row.high])
        assert (worst.x, worst.y) == ([row.worst], [i])
        assert score.colour == (MUTED if row.rank is None else BETTER)
        assert panel.x.low < row.low < row.worst < panel.x.high
    assert "90 % interval" in panel.x.label
    assert panel.x.scale == "log"


def test_a_single_run_has_no_interval_but_a_frame():
    row = LeaderboardRow("A", 1, 1.5, np.nan, np.nan, 2.0, "somewhere", 1.0, {})
    (panel,) = leaderboard_figure([row], confidence=0.95).panels
    assert panel.x.low < 1.0 < 2.0 < panel.x.high


def test_ratios_are_relative_to_the_pair_chosen_there():
    def row(label, mean):
        return SimpleNamespace(label=label, mean=mean)

    comparisons = [
        SimpleNamespace(
            environment=name, set_aside=aside, chosen=row("BVD-GLM-UCB", 50.0), adaptive=row("AdaptiveGLMUCB", mean),
            master=row("MASTER", 2 * mean), greedy=row("Greedy", 4 * mean),
        )
        for name, aside, mean in (("one", False, 40.0), ("two", True, 60.0))
    ]  # fmt: skip
    figure = ratios_figure(comparisons, title="Ratios")
    (panel,) = figure.panels
    for role, factor in (("adaptive", 1), ("master", 2), ("greedy", 4)):
        (mark,) = panel.marks_with(role)
        np.testing.assert_allclose(mark.x, [0.8 * factor, 1.2 * factor])
    looks = [(mark.colour, mark.marker) for mark in panel.marks if getattr(mark, "name", "")]
    assert len(set(looks)) == 3
    assert panel.y.ticks.texts == ["one", "two *"]
    assert figure.title == "Ratios"


def test_levels_stand_side_by_side():
    curves = {name: (np.array([1.0, 2.0, 4.0]) * k, np.full(3, 0.1)) for k, name in enumerate(("a", "b"), 1)}
    (panel,) = levels_figure([0.0, 0.5, 6.0], curves).panels
    first, second = panel.marks_with("level")
    assert (first.name, second.name) == ("a", "b")
    np.testing.assert_allclose(second.y, [2.0, 4.0, 8.0])
    np.testing.assert_allclose((first.x + second.x) / 2, [0, 1, 2])
    np.testing.assert_allclose(first.high, [1.1, 2.1, 4.1])
    assert panel.x.ticks.texts == ["0", "0.5", "6"]
    assert panel.y.low == 0.0


def test_slopes_have_points_fits_and_bounds():
    horizons = [100, 200, 400]
    slope = SimpleNamespace(
        name="constant drift", horizons=horizons, mean=[10.0, 20.0, 40.0], se=[1.0] * 3, slope=1.0, low=0.9, high=1.1,
        proven=0.75, bound=[100.0, 170.0, 290.0], bound_slope=0.77,
    )  # fmt: skip
    (panel,) = slopes_figure([slope]).panels
    (points,), (fit,), (bound,) = (panel.marks_with(role) for role in ("mean", "fit", "bound"))
    np.testing.assert_allclose(points.y, slope.mean)
    np.testing.assert_allclose(fit.y, slope.mean)  # they lie on a line
    np.testing.assert_allclose(bound.y, slope.bound)
    np.testing.assert_allclose(points.low, [9.0, 19.0, 39.0])
    assert points.name == "constant drift: slope 1.000 [0.900, 1.100], proven 0.750"
    assert bound.dash == "dashed"
    assert (panel.x.scale, panel.y.scale) == ("log", "log")
    assert panel.x.ticks.texts == ["100", "200", "400"]


def test_horizons_stand_beside_published_values() -> None:
    """In the order of the horizons, one line for each policy, and a dashed one where values were published."""
    entries = [
        samples.entry(policy, horizon=T, environment=f"T = {T}") for policy in ("OFUL", "GLM-UCB") for T in (900, 300)
    ]
    finals = {300: 50.0, 900: 120.0}
    curves = {(f"T = {T}", "OFUL"): PublishedCurve(np.array([T]), np.array([value])) for T, value in finals.items()}
    (panel,) = horizons_figure(entries, curves).panels
    lines = {line.name: line for line in panel.marks_with("mean")}
    assert list(lines) == ["OFUL", "GLM-UCB"]
    for name, line in lines.items():
        group = sorted((entry for entry in entries if entry.policy == name), key=lambda entry: entry.horizon)
        np.testing.assert_array_equal(line.x, [300, 900])
        np.testing.assert_allclose(line.y, [entry.final.mean() for entry in group])
        errors = [entry.final.std(ddof=1) / np.sqrt(len(entry.final)) for entry in group]
        np.testing.assert_allclose(line.high - line.y, errors)
    (published,) = panel.marks_with("published")
    np.testing.assert_array_equal(published.y, [50.0, 120.0])
    assert (published.name, published.dash, published.colour) == ("OFUL, published", "dashed", lines["OFUL"].colour)
    assert (panel.x.scale, panel.y.scale) == ("log", "log")


def test_rows_hold_means_and_intervals():
    rows = samples.differences()
    figure = difference_figure(rows, title="Paired", confidence=0.9)
    (panel,) = figure.panels
    for i, (row, point) in enumerate(zip(rows, panel.marks_with("difference"), strict=True)):
        assert (point.x, point.y, point.low, point.high) == ([row.mean], [i], [row.low], [row.high])
        assert point.is_filled == (row.low > 0 or row.high < 0)
        assert panel.x.low < row.low < row.high < panel.x.high
    assert [panel.marks_with("difference")[i].colour for i in (0, 1)] == ["#0072b2", "#d55e00"]  # better, worse
    assert any(isinstance(mark, Strip) and mark.low == mark.high == 0.0 for mark in panel.marks)
    assert panel.y.ticks.texts == [row.label for row in rows]
    assert panel.y.low > panel.y.high  # the first on top
    assert "minus that of GLM-UCB" in panel.x.label
    assert "90 % interval" in panel.x.label
    assert figure.title == "Paired"


def test_several_environments_and_baselines_are_named():
    one, two = samples.differences(2)
    (panel,) = difference_figure([one, dataclasses.replace(two, environment="elsewhere", baseline="X")]).panels
    assert panel.y.ticks.texts == ["BVD-GLM-UCB (rotation)", "OFUL (elsewhere)"]
    assert "minus that of the baseline" in panel.x.label


def test_no_rows_are_refused():
    with rejects("rows", value=[]):
        difference_figure([])
