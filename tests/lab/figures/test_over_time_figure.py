"""Regret and mean reward over time: what is described are the means and bands of the entries."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from support import sample_results as samples
from support.refusals import rejects
from windvane.lab.figures import matplotlib_renderer, plotly_renderer, style
from windvane.lab.figures.description import Band, Strip
from windvane.lab.figures.over_time_figure import MEAN_REWARD, PublishedCurve, over_time_figure, regret
from windvane.lab.results.results import Entry


def described(*arguments, **settings):
    (panel,) = over_time_figure(*arguments, **settings).panels
    return panel


def of_kind(panel, kind):
    return [mark for mark in panel.marks if isinstance(mark, kind)]


def test_lines_are_the_means_in_the_looks_of_the_policies():
    entries = samples.four()
    lines = described(entries).marks_with("mean")
    for line, entry in zip(lines, entries, strict=True):
        np.testing.assert_array_equal(line.x, entry.rounds)
        np.testing.assert_array_equal(line.y, entry.regret.mean(axis=0))
        np.testing.assert_array_equal(line.spread, entry.regret.std(axis=0, ddof=1))
        assert (line.colour, line.marker, line.dash) == style.FIXED[entry.policy]
        assert line.dash == "solid"
        assert line.end == f"{entry.label}  {entry.final.mean():,.1f}"  # the name stands at the end of the line
        assert not line.is_listed
    assert [line.group for line in lines] == [0, 1, 2, 3]
    assert over_time_figure(entries, title="A title").title == "A title"


def test_bands_reach_one_standard_deviation_to_either_side():
    entries = samples.four()
    panel = described(entries)
    for band, entry in zip(of_kind(panel, Band), entries, strict=True):
        mean, sd = entry.regret.mean(axis=0), entry.regret.std(axis=0, ddof=1)
        np.testing.assert_allclose(band.low, mean - sd)
        np.testing.assert_allclose(band.high, mean + sd)
        assert not band.is_hidden
    assert "mean ± 1 sd over 50 runs" in panel.y.label


@pytest.mark.parametrize(
    ("bands", "label"),
    [("se", "mean ± 1 SE over 50 runs"), ("quantiles", "mean over 50 runs; band: the middle 80 % of them")],
)
def test_the_axis_says_what_the_bands_show(bands, label):
    panel = described(samples.four(), bands=bands)
    assert panel.y.label.endswith(label)
    (first, *_), entry = of_kind(panel, Band), samples.four()[0]
    curve = regret(entry, bands)
    np.testing.assert_array_equal((first.low, first.high), (curve.low, curve.high))


def test_drift_is_shaded_and_named():
    (strip,) = of_kind(described(samples.four(), turning=(1000.0, 2000.0)), Strip)
    assert (strip.axis, strip.low, strip.high, strip.text) == ("x", 1000.0, 2000.0, "drift period")
    assert not of_kind(described(samples.four()), Strip)


def test_published_curves_are_dashed_in_the_same_colour_and_explained():
    entries, published = samples.four(), samples.published()
    panel = described(entries, published=published)
    for line, entry in zip(panel.marks_with("published"), entries, strict=True):
        np.testing.assert_array_equal(line.y, published[entry.environment, entry.policy].mean)
        assert (line.dash, line.colour) == ("dashed", style.FIXED[entry.policy].colour)
        assert line.name == f"{entry.label}, published"
    key = {mark.name: mark.dash for mark in panel.marks if getattr(mark, "is_listed", False)}
    assert key == {"measured": "solid", "published": "dashed"}
    assert panel.legend == "upper left"
    assert not described(entries).legend


def test_a_single_published_value_is_a_hollow_marker():
    curves = {("rotation", "OFUL"): PublishedCurve(np.array([3000]), np.array([220.0]))}
    panel = described([samples.entry("OFUL")], published=curves)
    (point,), (mean,) = panel.marks_with("published"), panel.marks_with("mean")
    assert (point.width, point.is_filled) == (0, False)
    assert (point.marker, point.colour) == (mean.marker, mean.colour)


def test_published_curves_stop_at_the_horizon():
    (line,) = described([samples.entry(horizon=1000)], published=samples.published()).marks_with("published")
    assert line.x[-1] == 1000


def test_many_entries_get_a_legend_and_hide_their_bands():
    entries = samples.many(40)
    figure = over_time_figure(entries)
    (panel,) = figure.panels
    lines = panel.marks_with("mean")
    assert [line.name for line in lines] == [entry.label for entry in entries]
    assert all(line.is_listed and not line.end and not line.marker for line in lines)
    assert len(of_kind(panel, Band)) == 40
    assert all(band.is_hidden for band in of_kind(panel, Band))
    assert figure.legend == "right"
    assert "sd" not in panel.y.label


def test_twelve_policies_look_different_in_both_renderers():
    """Lines in a crowd have no markers, so those with one colour need different dashes."""
    figure = over_time_figure([samples.entry(f"policy {i}") for i in range(12)])
    lines = figure.panels[0].marks_with("mean")
    assert len({line.colour for line in lines}) == 8
    assert len({(line.colour, line.dash) for line in lines}) == 12
    drawn = matplotlib_renderer.render(figure).axes[0].get_lines()
    assert len({(line.get_color(), str(line._unscaled_dash_pattern)) for line in drawn}) == 12
    (chart,) = plotly_renderer.render(figure)
    traces = [trace["line"] for trace in chart["data"] if trace["meta"]["kind"] == "mean"]
    assert len({(line["color"], line["dash"]) for line in traces}) == 12
    assert len({(row["colour"], row["dash"]) for row in chart["legend"]}) == 12


def test_one_run_has_no_band_and_says_so():
    panel = described(samples.four(runs=1))
    assert panel.y.label.endswith("\n1 run")
    assert not of_kind(panel, Band)


def test_different_numbers_of_runs_are_told():
    panel = described([samples.entry(runs=3), samples.entry("OFUL", runs=5)])
    assert "over 3 to 5 runs" in panel.y.label


def test_unknown_values_are_gaps_and_have_no_name_at_the_end():
    entry = samples.entry()
    entry.regret[3, 400:] = np.nan
    broken, whole = described([entry, samples.entry("OFUL")]).marks_with("mean")
    assert np.isnan(broken.y[400:]).all()
    assert (broken.end, bool(whole.end)) == ("", True)


def test_no_entries_are_refused():
    with rejects("entries", value=[]):
        over_time_figure([])


def test_environments_are_named_where_there_are_several():
    lines = described([samples.entry(environment="one"), samples.entry(environment="two")]).marks_with("mean")
    assert [line.name for line in lines] == ["BVD-GLM-UCB (one)", "BVD-GLM-UCB (two)"]


class AnyVariant(Entry):
    """An entry whose label can name any variant."""

    @property
    def label(self):
        return f"{self.policy} {self.variant}"


@pytest.mark.parametrize("variant", [{"link": "logit", "exact": True}, {"scales": [1, 2]}])
def test_variants_of_any_kind_are_named_by_the_label(variant):
    entry = AnyVariant(**{**vars(samples.entry()), "variant": variant})
    (line,) = described([entry], published=samples.published()).marks_with("mean")
    assert line.name == f"BVD-GLM-UCB {variant}"


def test_the_mean_reward_with_others_in_grey():
    entries = [
        dataclasses.replace(entry, regret=np.outer(np.ones(3), entry.rounds) * 0.05 * (place + 1))
        for place, entry in enumerate(samples.many(12, runs=3))
    ]
    panel = described(entries[:8], MEAN_REWARD, others=entries[8:], title="wind")
    assert len(panel.marks_with("other")) == 4
    assert {line.colour for line in panel.marks_with("other")} == {style.LINK}
    np.testing.assert_allclose(panel.marks_with("mean")[0].y, 0.95)
    assert panel.marks_with("mean")[0].end.endswith("  0.950")
    assert panel.marks[-1].name == "4 other policies"
    assert 0.0 <= panel.y.low <= 0.4
    assert 0.95 <= panel.y.high <= 1.0
