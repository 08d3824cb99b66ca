"""Paired differences with their intervals."""

from __future__ import annotations

import dataclasses

from support import sample_results as samples
from support.refusals import rejects
from windvane.lab.figures.description import Strip
from windvane.lab.figures.difference_figure import difference_figure


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
