"""Tuning: a heat map over discounts and bonus scales, or a curve over one of them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from windvane.lab.figures.description import HeatMap
from windvane.lab.figures.tuning_figure import tuning_figure
from windvane.lab.studies.tuning import SweepGrid


def grid(gammas, scales):
    memory = 1 / (1 - np.minimum(gammas, 0.99999))
    return 80 + (np.log(memory)[:, None] - 5) ** 2 + 20 * np.abs(np.log(scales))[None]


def best_of(mean):
    row, column = np.unravel_index(np.nanargmin(mean), mean.shape)
    return int(row), int(column)


def sweep(gammas, scales, mean, se, close=None):
    """The figure of a grid in ascending order, as sweeps are read."""
    best = best_of(mean)
    close = mean == mean[best] if close is None else close
    return tuning_figure(SweepGrid("a world", "P", 5, np.array(gammas), np.array(scales), mean, se, best, close))


def heat_map(figure):
    (panel,) = figure.panels
    (mark,) = (mark for mark in panel.marks if isinstance(mark, HeatMap))
    return panel, mark


def test_the_map_holds_the_means_and_frames_the_best():
    gammas, scales = 1 - 1 / np.geomspace(10, 3000, 8), np.array([0.25, 0.5, 1.0])
    mean = grid(gammas, scales)
    best = best_of(mean)
    figure = sweep(gammas, scales, mean, 0.01 * mean)
    panel, mark = heat_map(figure)
    np.testing.assert_allclose(mark.values, mean.T)
    assert mark.framed == best[::-1]
    row, column = mark.framed
    assert mark.x_edges[column] < 1 / (1 - gammas[best[0]]) < mark.x_edges[column + 1]
    assert mark.y_edges[row] < best[1] < mark.y_edges[row + 1]
    assert (panel.x.scale, mark.has_numbers) == ("log", True)
    assert figure.title.startswith(
        f"P in a world\nBest: γ = {gammas[best[0]]:.6g}, bonus scale {scales[best[1]]:g}: {mean[best]:.1f} ±"
    )


def test_no_forgetting_comes_last_and_unfinished_points_are_gaps():
    gammas, scales = np.array([0.9, 0.99, 0.999, 1.0]), np.array([0.5, 1.0])
    mean = grid(gammas, scales)
    mean[0, 1] = np.nan
    close = mean < np.nanmin(mean) + 20
    figure = sweep(gammas, scales, mean, 0.01 * mean, close)
    panel, mark = heat_map(figure)
    assert panel.x.ticks.texts[-1] == "1\nall"
    np.testing.assert_allclose(mark.values[1], mean[:, 1])  # ascending memory, scale 1 on top
    assert sum(len(dots.x) for dots in panel.marks_with("close")) == close.sum()
    assert figure.title.endswith("Dots: no significant difference from the best")


def test_dark_cells_have_light_dots():
    mean = np.array([[1.0, 2.0], [9.0, 10.0]])
    figure = sweep([0.9, 0.99], [1.0, 2.0], mean, mean, np.ones((2, 2), dtype=bool))
    panel, mark = heat_map(figure)
    light, dark = panel.marks_with("close")
    assert (light.colour, dark.colour) == ("#ffffff", "#222222")
    np.testing.assert_allclose(light.x, 100.0)  # the large values, at memory 100
    np.testing.assert_array_equal(mark.is_dark, [[False, True], [False, True]])


@pytest.mark.parametrize("scale", [1.0, math.nan])
def test_one_scale_gives_a_curve_with_error_bars(scale):
    gammas = np.array([0.9, 0.99, 0.999, 1.0])
    mean = grid(gammas, np.array([1.0]))
    figure = sweep(gammas, [scale], mean, np.full((4, 1), 2.0))
    (panel,) = figure.panels
    (line,), (best,) = (panel.marks_with(role) for role in ("mean", "best"))
    np.testing.assert_array_equal(line.y, mean[:, 0])
    np.testing.assert_allclose([line.low, line.high], [mean[:, 0] - 2, mean[:, 0] + 2])
    assert best.y == [mean.min()]
    assert "nan" not in figure.title


def test_one_discount_gives_a_curve_over_scales():
    mean, close = np.array([[10.0, 10.5, 30.0]]), np.array([[True, True, False]])
    figure = sweep([math.nan], [0.5, 1.0, 2.0], mean, np.full((1, 3), np.nan), close)
    (panel,) = figure.panels
    (line,), (near,), (best,) = (panel.marks_with(role) for role in ("mean", "close", "best"))
    np.testing.assert_array_equal(line.x, [0.5, 1.0, 2.0])
    np.testing.assert_array_equal(line.y, [10.0, 10.5, 30.0])
    np.testing.assert_array_equal(near.x, [0.5, 1.0])
    assert best.x == [0.5]
    assert panel.x.label == "Bonus scale"
    assert figure.title == "P in a world\nBest: bonus scale 0.5: 10.0"


def test_many_cells_have_no_numbers_and_ticks_keep_their_distance():
    gammas, scales = 1 - 1 / np.geomspace(10, 30000, 30), np.geomspace(0.1, 4, 5)
    mean = grid(gammas, scales)
    panel, mark = heat_map(sweep(gammas, scales, mean, mean))
    assert not mark.has_numbers
    steps = np.diff(np.log(panel.x.ticks.places)) / np.log(panel.x.high / panel.x.low)
    assert steps.min() >= 0.1
