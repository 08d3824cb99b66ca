"""Figures of the benchmarks and studies: leaderboard, ratios, levels and slopes."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from windvane.lab.figures.benchmark_figures import leaderboard_figure, levels_figure, ratios_figure, slopes_figure
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
    np.testing.assert_allclose(panel.marks_with("error")[0].high, [1.1, 2.1, 4.1])
    assert panel.x.ticks.texts == ["0", "0.5", "6"]
    assert panel.y.low == 0.0


def test_slopes_have_points_fits_and_bounds():
    horizons = [100, 200, 400]
    slope = SimpleNamespace(
        name="constant drift", horizons=horizons, mean=[10.0, 20.0, 40.0], se=[1.0] * 3, slope=1.0, low=0.9, high=1.1,
        proven=0.75, bound=[100.0, 170.0, 290.0], bound_slope=0.77,
    )  # fmt: skip
    (panel,) = slopes_figure([slope]).panels
    (points,), (fit,), (bound,), (bars,) = (panel.marks_with(role) for role in ("mean", "fit", "bound", "error"))
    np.testing.assert_allclose(points.y, slope.mean)
    np.testing.assert_allclose(fit.y, slope.mean)  # they lie on a line
    np.testing.assert_allclose(bound.y, slope.bound)
    np.testing.assert_allclose(bars.low, [9.0, 19.0, 39.0])
    assert points.name == "constant drift: slope 1.000 [0.900, 1.100], proven 0.750"
    assert bound.dash == "dashed"
    assert (panel.x.scale, panel.y.scale) == ("log", "log")
    assert panel.x.ticks.texts == ["100", "200", "400"]
