"""Diagnostics: medians, bands and bounds of the two terms, and the smallest slack of the lemmas."""

from __future__ import annotations

import numpy as np
import pytest

from support import sample_results as samples
from support.refusals import rejects
from windvane.lab.figures.description import Band, Strip
from windvane.lab.figures.diagnostics_figure import diagnostics_figure, wants_log


def test_medians_bounds_and_the_smallest_slack():
    entry = samples.entry(with_diagnostics=True, runs=21)
    learning, tracking, slack = diagnostics_figure(entry).panels
    d = entry.diagnostics
    (median,), (beta,) = learning.marks_with("learning"), learning.marks_with("beta")
    np.testing.assert_array_equal(median.y[1:], np.median(d["learning"], axis=0)[1:])
    assert np.isnan(median.y[0])
    np.testing.assert_array_equal(beta.y, np.median(d["beta"], axis=0))
    (median,), (bound,) = tracking.marks_with("tracking"), tracking.marks_with("tracking_bound")
    np.testing.assert_array_equal(median.y, np.median(d["tracking"], axis=0))
    assert np.isnan(bound.y[:3]).all()  # infinite: a gap
    np.testing.assert_array_equal(bound.y[3:], np.median(d["tracking_bound"], axis=0)[3:])
    for k in (2, 3, 4):
        (line,) = slack.marks_with(f"lemma_{k}")
        np.testing.assert_array_equal(line.y, d[f"lemma_{k}_slack"].min(axis=0))
        assert line.name == f"Lemma {k} (least {d[f'lemma_{k}_slack'].min():.2g})"
    assert learning.title == "Learning term: above its radius β in 0 % of recorded rounds"


def test_bands_hold_nine_runs_in_ten():
    entry = samples.entry(with_diagnostics=True, runs=21)
    (band,) = (mark for mark in diagnostics_figure(entry).panels[1].marks if isinstance(mark, Band))
    ordered = np.sort(entry.diagnostics["tracking"], axis=0)
    np.testing.assert_array_equal(band.low, ordered[1])
    np.testing.assert_array_equal(band.high, ordered[19])


def test_the_share_of_rounds_above_the_bound_is_told():
    entry = samples.entry(with_diagnostics=True, runs=20)
    entry.diagnostics["learning"][:5] = 100.0
    assert "above its radius β in 25 % of recorded rounds" in diagnostics_figure(entry).panels[0].title


def test_a_term_far_below_its_bound_has_a_log_axis():
    entry = samples.entry(with_diagnostics=True, runs=5)
    assert diagnostics_figure(entry).panels[1].y.scale == "linear"
    entry.diagnostics["tracking_bound"] *= 1000.0
    axis = diagnostics_figure(entry).panels[1].y
    most = np.nanmax(np.where(np.isfinite(bound := entry.diagnostics["tracking_bound"]), bound, np.nan))
    assert axis.scale == "log"
    assert 0 < axis.low < most < axis.high
    assert wants_log(np.array([1.0]), np.array([21.0]))
    assert not wants_log(np.array([1.0]), np.array([19.0]))


@pytest.mark.parametrize("shift", [0.0, 5.0])
def test_slacks_and_a_line_at_zero_are_in_the_frame(shift):
    entry = samples.entry(with_diagnostics=True, runs=5)
    entry.diagnostics["lemma_3_slack"] -= shift
    slack = diagnostics_figure(entry).panels[2]
    values = np.concatenate([slack.marks_with(f"lemma_{k}")[0].y for k in (2, 3, 4)])
    assert slack.y.low < min(values.min(), 0.0)
    assert values.max() < slack.y.high
    assert slack.y.scale == "symlog"
    assert 0.0 in slack.y.ticks.places
    assert any(isinstance(mark, Strip) and mark.low == mark.high == 0.0 for mark in slack.marks)


def test_what_is_not_defined_is_said():
    entry = samples.entry(with_diagnostics=True)
    for name in ("tracking", "tracking_bound", "lemma_2_slack", "lemma_4_slack"):
        entry.diagnostics[name][:] = np.nan
    entry.diagnostics["lemma_3_slack"][:] = np.inf
    learning, tracking, slack = diagnostics_figure(entry).panels
    assert tracking.message == "not defined for this policy here"
    assert not tracking.marks
    assert not learning.message
    assert [line.name for line in slack.marks[1:]] == [f"Lemma {k} (says nothing here)" for k in (2, 3, 4)]
    with rejects("entry"):
        diagnostics_figure(samples.entry())
