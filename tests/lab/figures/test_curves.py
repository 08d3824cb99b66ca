"""Means, quantiles and published curves, and the thinning of curves for the page."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from support import sample_results as samples
from support.refusals import rejects
from windvane.lab.figures import over_time_figure as curves
from windvane.lab.figures.diagnostics_figure import quantile, share_above
from windvane.lab.figures.plotly_renderer import thin


@given(st.integers(1, 5000), st.integers(6, 400))
def test_thinning_keeps_the_ends_and_the_limit(count, most):
    kept = thin(count, most)
    assert len(kept) <= most
    assert kept[0] == 0
    assert kept[-1] == count - 1
    assert (np.diff(kept) > 0).all()


def test_quantiles_skip_the_unknown_and_leave_gaps_at_infinity():
    values = np.array([[1.0, np.nan, np.inf], [2.0, np.nan, np.inf], [np.nan, np.nan, 1.0]])
    np.testing.assert_array_equal(quantile(values, 0.0), [1.0, np.nan, 1.0])
    np.testing.assert_array_equal(quantile(values, 1.0), [2.0, np.nan, np.nan])
    assert share_above(np.array([1.0, 3.0, np.nan]), np.array([2.0, 2.0, 2.0])) == 0.5
    assert math.isnan(share_above(np.array([np.nan]), np.array([1.0])))


def test_bands_are_standard_deviations_standard_errors_or_quantiles():
    entry = samples.entry(runs=41)
    mean, sd = entry.regret.mean(axis=0), entry.regret.std(axis=0, ddof=1)
    ordered = np.sort(entry.regret, axis=0)
    expected = {
        "sd": (mean - sd, mean + sd),
        "se": (mean - sd / math.sqrt(41), mean + sd / math.sqrt(41)),
        "quantiles": (ordered[4], ordered[36]),  # of 41 values these are exactly the tenth and the ninetieth percentile
    }
    assert expected.keys() == curves.BANDS.keys()
    for bands, limits in expected.items():
        curve = curves.regret(entry, bands)
        np.testing.assert_allclose((curve.low, curve.high), limits)
        np.testing.assert_array_equal(curve.mean, mean)
    with rejects("bands", value="range"):
        curves.regret(entry, "range")


def test_one_run_has_no_spread():
    for bands in curves.BANDS:
        one = curves.regret(samples.entry(runs=1), bands)
        assert np.isnan(one.sd).all()
    entry = samples.entry(runs=5)
    np.testing.assert_allclose(curves.regret(entry).sd, entry.regret.std(axis=0, ddof=1))


def test_the_mean_reward_is_the_share_of_right_choices():
    entry = samples.entry(runs=2)
    entry.regret[:] = 0.25 * entry.rounds
    np.testing.assert_allclose(curves.mean_reward(entry).mean, 0.75)


def test_published_curves_stop_at_the_horizon_and_are_not_a_variants():
    published = samples.published()
    short = samples.entry(horizon=1000)
    rounds, mean = curves.published_for(short, published)
    assert rounds[-1] == 1000
    assert curves.published_final(short, published) == mean[-1] == published["rotation", "BVD-GLM-UCB"].mean[999]
    assert math.isnan(curves.published_final(samples.entry(horizon=4000), published))
    assert math.isnan(curves.published_final(samples.entry("Another"), published))
    assert math.isnan(curves.published_final(samples.entry(environment="elsewhere"), published))
    assert curves.published_for(samples.entry(variant={"gamma": 0.9}), published) is None
