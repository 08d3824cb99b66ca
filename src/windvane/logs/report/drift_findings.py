"""The part of the report of ``windvane drift`` about what drifts, which coordinates, and when."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from windvane.lab.figures.description import Axis, Band, Figure, Mark, Panel, Series, Strip
from windvane.lab.figures.style import PALETTE
from windvane.logs.drift.answers import format_p, format_time
from windvane.logs.drift.context_shift import ContextShift
from windvane.logs.drift.diagnosis import DriftDiagnosis
from windvane.logs.drift.feature_drift import RESAMPLES, FeatureDrift, FeatureDrifts
from windvane.logs.drift.what_drifts import SMALLEST_P, CalendarTest, WhatDrifts
from windvane.logs.log import LogSchema
from windvane.logs.report.pages import DataTable, Picture, Section
from windvane.logs.report.time_axis import TimeAxis

MOST_DRAWN = 6  # features in the figure, those with the smallest p-values: more lines are hard to distinguish
MOST_LISTED = 20  # coordinates in a printed table
YES, NOT_SEEN, NO, UNCLEAR = "yes", "not seen", "no", "cannot tell"
NOT_SEARCHED = "Change points are searched only if the log drifts."


def describe_what(diagnosis: DriftDiagnosis, schema: LogSchema) -> Iterator[Section]:
    """Return the section about what drifts: a question, a finding and a verdict in each row."""
    what, features = diagnosis.what, diagnosis.features
    if what is None or features is None:
        return
    rows = [
        ["do the coefficients drift?", f"fixed-sample test: {format_p(what.p, features.test.smallest_p)}",
         YES if what.has_drift else NOT_SEEN],
        _ask_base_rate(what, diagnosis.alpha),
        *_ask_ranking(what, schema),
        *_ask_contexts(what),
        _ask_calendar(what, diagnosis.alpha),
    ]  # fmt: skip
    yield Section("What drifts", [what.summary], DataTable(["question", "finding", "verdict"], rows, left=3))


def _ask_base_rate(what: WhatDrifts, alpha: float) -> list[str]:
    question = "does more than the base rate drift?"
    if what.p_beyond_base_rate is None:
        return [question, "too few rewards for a base rate in each period", UNCLEAR]
    is_more = what.has_drift and what.p_beyond_base_rate <= alpha
    finding = f"{format_p(what.p_beyond_base_rate, SMALLEST_P)} with a base rate for each of {what.periods} periods"
    return [question, finding, YES if is_more else NOT_SEEN]


def _ask_ranking(what: WhatDrifts, schema: LogSchema) -> Iterator[list[str]]:
    if what.ranking is None:
        return
    change, (low, high) = what.ranking, schema.reward_range
    loss, limit = ((high - low) * value for value in (change.loss, change.limit))
    finding = (
        f"keeping the best arms of the first quarter would cost {loss:.2g} per decision in the last one; by noise "
        f"alone, up to {limit:.2g}"
    )
    if change.has_changed:
        finding += f". The best arm differs in {change.share:.0%} of the offers"
    yield ["does the ranking of arms change?", finding, YES if change.has_changed else NOT_SEEN]


def _ask_contexts(what: WhatDrifts) -> Iterator[list[str]]:
    question = "do the contexts shift?"
    if not what.contexts:
        return
    far = [shift for shift in what.contexts if shift.has_shifted is not False]
    if not far:
        yield [question, f"no coordinate: {_list_sizes(sorted(what.contexts, key=lambda s: s.p)[:2])}", NOT_SEEN]
        return
    is_clear = any(shift.has_shifted for shift in far)
    doubt = "" if is_clear else "; the log is too short to distinguish a shift from the time of day"
    yield [question, _list_sizes(far) + doubt, YES if is_clear else UNCLEAR]


def _list_sizes(shifts: list[ContextShift]) -> str:
    """Return the means of some coordinates in both halves of the log."""

    def describe(shift: ContextShift) -> str:
        before, after = (f"{100.0 * x:.3g} %" if shift.is_share else f"{x:.3g}" for x in (shift.before, shift.after))
        return f"{shift.name}: {'' if shift.is_share else 'mean '}{before} → {after}"

    more = f" and {len(shifts) - 5} more" if len(shifts) > 5 else ""
    return "; ".join(map(describe, shifts[:5])) + more


def _ask_calendar(what: WhatDrifts, alpha: float) -> list[str]:
    question, test = "does the calendar explain it?", what.calendar
    if not what.has_drift:
        return [question, "there is no drift to explain", "–"]
    if test is None:
        return [question, f"not tested: {what.calendar_note}", UNCLEAR]
    finding = f"with terms for {' and '.join(test.terms)}, the coefficients still drift: {format_p(test.p, SMALLEST_P)}"
    if test.p > alpha:
        finding = f"with terms for {' and '.join(test.terms)}, no drift is left: {format_p(test.p, SMALLEST_P)}"
    return [question, finding, _judge_calendar(test, alpha)]


def _judge_calendar(test: CalendarTest, alpha: float) -> str:
    return YES if test.explains else NO if test.p <= alpha else UNCLEAR


def describe_features(diagnosis: DriftDiagnosis, schema: LogSchema) -> Iterator[Section]:
    """Return the sections about the coordinates: those that drift, and the tests of all of them."""
    features, what = diagnosis.features, diagnosis.what
    if features is None or what is None:
        return
    ranked = sorted(features.features, key=lambda feature: feature.p)
    drifting = [feature for feature in ranked if feature.drifts] if what.has_drift else []
    rows = [
        [f.name, f"{f.reach * f.theta[0]:.2f}", f"{f.reach * f.theta[-1]:.2f}", format_p(f.p, _find_smallest(features))]
        for f in drifting[:MOST_LISTED]
    ]
    text = "No single coordinate can be named." if what.has_drift else "No coordinate is known to drift."
    if drifting:
        text = (
            "Coordinates that drift (score tests, Holm's correction), and their part of the logit at both ends of the "
            "log. If coordinates are correlated, drift of one can show in another."
        )
    table = DataTable(["coordinate", "at the start", "at the end", "p"], rows) if rows else None
    yield Section("Where it drifts", [text], table)
    yield _describe_tests(diagnosis, features, ranked, schema)


def _find_smallest(features: FeatureDrifts) -> float:
    """Return the smallest p-value of a coordinate after both corrections."""
    return 2.0 * len(features.features) / (1.0 + RESAMPLES)


def _describe_tests(
    diagnosis: DriftDiagnosis, features: FeatureDrifts, ranked: list[FeatureDrift], schema: LogSchema
) -> Section:
    rows = [
        [f.name, f"{f.largest:.3g}", f"{f.p_largest:.2g}", f"{f.square:.3g}", f"{f.p_square:.2g}", f"{f.p:.2g}"]
        for f in ranked
    ]
    test = features.test
    lines = [
        f"Test of one parameter for all rewards, for a log that is analysed once ({test.method}): "
        f"{format_p(test.p, test.smallest_p)}, twice the smaller of {test.joint_p:.2g} (all coordinates together) and "
        f"{test.largest_p:.2g} (the largest of them). "
        + ("It is approximate, because the logging policy may have learned from its rewards; if it did not, pass "
           "--fixed-logging (is_adaptive=False)." if schema.is_adaptive else "The logging policy did not learn."),
        "The score process W of each coordinate is a Brownian bridge if one parameter fits all rewards and information "
        "arrives steadily; with 5 % probability, sup |W| is then above 1.36 and mean W² above 0.47. The p-values of "
        "coordinates are from a multiplier bootstrap, which does not need steady information.",
    ]  # fmt: skip
    if features.left_out:
        names = ", ".join(features.left_out[:10]) + (" ..." if len(features.left_out) > 10 else "")
        lines.append(f"Not tested, because they are sums of others: {names}.")
    drawn = ranked[:MOST_DRAWN]
    width = f"{features.half_width:,.0f} decisions on each side"
    caption = f"Estimates from a sliding window ({width}), with pointwise 95 % bands. Vertical lines: change points."
    picture = Picture(
        _draw_thetas(diagnosis, drawn, schema), "Line chart: the estimated coefficients over time, with bands.", caption
    )
    columns = ["coordinate", "sup |W|", "p (sup)", "mean W²", "p (mean)", "p (Holm)"]
    return Section("Tests of all coordinates", lines, DataTable(columns, rows), [picture], is_printed=False)


def _draw_thetas(diagnosis: DriftDiagnosis, drawn: list[FeatureDrift], schema: LogSchema) -> Figure:
    assert diagnosis.features is not None
    times = diagnosis.features.times if schema.has_times else diagnosis.features.decisions
    axis = TimeAxis(times[0], times[-1], has_times=schema.has_times)
    x = axis.place(times)
    marks: list[Mark] = []
    for group, feature in enumerate(drawn):
        colour = PALETTE[group % len(PALETTE)].colour
        theta, low, high = (feature.reach * np.array(values) for values in (feature.theta, feature.low, feature.high))
        marks += [Band(x, low, high, colour, group), Series(x, theta, colour, feature.name, "mean", group=group)]
    for point in diagnosis.change_points or ():
        place = float(axis.place([point.time if schema.has_times else point.decision])[0])
        marks.append(Strip("x", place, place))
    return Figure([Panel(axis.describe(), Axis("Part of the logit", has_grid=True, value="logit"), marks)])


def describe_change_points(diagnosis: DriftDiagnosis, schema: LogSchema) -> Iterator[Section]:
    """Return the section about the change points."""
    points, what = diagnosis.change_points, diagnosis.what
    if points is None or what is None:
        return
    text = "No change point improves the fit by more than its penalty: the drift may be gradual."
    if not what.has_drift:
        text = NOT_SEARCHED
    if points:
        text = (
            "Changes that improve the fit by more than their penalty, and the coordinates that change, with the change "
            "of their part of the logit. “At once”: that fits clearly better than a gradual change over a quarter of "
            "the rows around it. Otherwise, changes may only approximate a gradual path by steps, and their intervals "
            "are not meaningful."
        )
    rows = []
    for p in points:
        interval = f"{format_time(p.time_low, schema)} to {format_time(p.time_high, schema)}"
        times = [format_time(p.time, schema), interval if schema.has_times else ""]
        changes = [f"{change.name} {change.logits:+.2f}" for change in p.coordinates[:4]]
        more = f" and {len(p.coordinates) - 4} more" if len(p.coordinates) > 4 else ""
        how = "at once" if p.is_step else "or gradually"
        rows.append([f"{p.row:,}", f"{p.row_low:,} to {p.row_high:,}", *times, how, "; ".join(changes) + more])
    columns = [
        f"{schema.place} of the file", "95 % interval", "time (UTC)", "95 % interval", "how", "what changes (logits)",
    ]  # fmt: skip
    yield Section("Change points", [text], DataTable(columns, rows, left=6) if rows else None)
