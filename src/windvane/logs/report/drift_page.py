"""The report of ``windvane drift``."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from windvane.agent.memory import describe_seconds
from windvane.lab.figures.description import Axis, Band, Figure, Mark, Panel, Series, Strip, Ticks
from windvane.lab.figures.style import BETTER, INK, PALETTE, WORSE
from windvane.logs.drift.diagnosis import DriftDiagnosis
from windvane.logs.drift.evidence import DRIFT, UNKNOWN
from windvane.logs.drift.feature_drift import FeatureDrift
from windvane.logs.evaluation.estimates import PolicyComparison
from windvane.logs.log import LogSchema
from windvane.logs.report.detector_section import describe_detectors, format_time
from windvane.logs.report.pages import DataTable, LogPage, Picture, Section
from windvane.logs.report.time_axis import TimeAxis

if TYPE_CHECKING:
    from windvane.logs.drift.detectors import DetectorAlarms

MOST_DRAWN = 8  # features in the figure, those with the smallest p-values: more lines are hard to distinguish
NEVER = "never"
NO_DRIFT_NOTE = "No drift was seen, so do not set this memory: it is only the one that happened to predict best."


def describe_drift(
    diagnosis: DriftDiagnosis,
    *,
    schema: LogSchema,
    facts: dict[str, str],
    value: PolicyComparison | None = None,
    alarms: Sequence[DetectorAlarms] = (),
) -> LogPage:
    """Return the report of a diagnosis. ``value``: what forgetting is worth in rewards. ``alarms``: of detectors."""
    sections = [
        *_describe_evidence(diagnosis),
        *_describe_memory(diagnosis, value),
        *_describe_what(diagnosis),
        *_describe_features(diagnosis, schema),
        *_describe_change_points(diagnosis, schema),
        *describe_detectors(alarms, schema),
        *_describe_recommendation(diagnosis),
    ]
    return LogPage(
        heading=f"Do the rewards of this log drift? {diagnosis.source}",
        answer=diagnosis.answer,
        tone="warning" if diagnosis.verdict == UNKNOWN else "ok",
        sections=sections,
        facts={**facts, "Rewards used": f"{diagnosis.rewards:,}", "Level of all tests": f"{diagnosis.alpha:g}",
               "Seed": str(diagnosis.seed)},
    )  # fmt: skip


def _describe_evidence(diagnosis: DriftDiagnosis) -> Iterator[Section]:
    evidence = diagnosis.evidence
    if not evidence.curve:
        return
    x, y = np.array(evidence.decisions), np.array(evidence.curve)
    marks: list[Mark] = [
        Strip("y", evidence.threshold, evidence.threshold, text=f"drift (level {diagnosis.alpha:g})"),
        Series(x, y, BETTER, "evidence", "evidence"),
    ]
    y_axis = Axis("Log evidence (nats)", has_grid=True, value="log evidence")
    figure = Figure(
        [Panel(Axis("Decisions", low=0.0, high=float(x[-1]), value="decision", form=",.0f"), y_axis, marks)]
    )
    caption = (
        "Evidence against the hypothesis that one parameter fits all rewards. Without drift, the curve ever reaches "
        f"the line with probability at most {diagnosis.alpha:.2g}."
    )
    picture = Picture(figure, "Line chart: the evidence for drift over decisions.", caption)
    first = "" if evidence.first_decision is None else f" It was reached after decision {evidence.first_decision:,.0f}."
    text = (
        f"The largest log evidence is {evidence.log_e:.1f} nats; the threshold for “drift” is {evidence.threshold:.1f}."
        f"{first} {diagnosis.caveat}"
    )
    yield Section("Evidence", [text], pictures=[picture], is_printed=False)


def format_memory(decisions: float, seconds: float | None) -> str:
    """Return a half-life in decisions and in time."""
    if math.isinf(decisions):
        return NEVER
    return f"{decisions:,.0f} decisions" + ("" if seconds is None else f" ({describe_seconds(seconds)})")


def _describe_memory(diagnosis: DriftDiagnosis, value: PolicyComparison | None) -> Iterator[Section]:
    memory, rate, cost = diagnosis.memory, diagnosis.rate, diagnosis.cost
    if memory is None:
        return
    half_lives = [
        format_memory(decisions, seconds)
        for decisions, seconds in (
            (memory.half_life, memory.half_life_seconds),
            (memory.half_life_low, memory.half_life_seconds_low),
            (memory.half_life_high, memory.half_life_seconds_high),
        )
    ]
    gammas = [f"{gamma:.6g}" for gamma in (memory.gamma, memory.gamma_low, memory.gamma_high)]
    rows = [["a reward loses half of its information after", *half_lives], ["equivalent discount gamma", *gammas]]
    if rate is not None:
        per = 1000.0
        rows.append(
            [f"change of logits per 1,000 decisions (measured over {rate.span:,.0f})",
             *(f"{per * value:.3g}" for value in (rate.logits, rate.logits_low, rate.logits_high))]
        )  # fmt: skip
        rows.append(
            ["total drift B_T, over the same spans",
             *(f"{value:.3g}" for value in (rate.variation, rate.variation_low, rate.variation_high))]
        )  # fmt: skip
    if cost is not None:
        rows.append(
            ["log loss due to never forgetting (nats per 1,000 rewards)",
             *(f"{value:.3g}" for value in (cost.per_thousand, cost.low, cost.high))]
        )  # fmt: skip
    lines = [] if diagnosis.verdict == DRIFT else [NO_DRIFT_NOTE]
    if value is not None:
        worth = value.difference
        ends = [worth.value, worth.low, worth.high]
        rows.append(
            ["reward lost by never forgetting (per decision)", *("–" if x is None else f"{x:.3g}" for x in ends)]
        )
        count, name = worth.effective_sample_size, "Reward lost by never forgetting"
        if worth.value is None:
            lines.append(f"{name}: cannot be answered, because {worth.reason}.")
        else:
            size = "" if count is None else f" ({count:,.0f} effective decisions)"
            lines.append(f"{name}: {worth.estimand}{size}; {worth.caveat}.")
    interval = "95 % intervals." if value is None else f"95 % intervals; of the reward: {1.0 - diagnosis.alpha:.0%}."
    table = DataTable(["", "estimate", "low", "high"], rows, interval)
    caption = (
        "Mean log loss of predictions, by the memory of the model; lower is better. Filled: not significantly worse "
        "than any other."
    )
    picture = Picture(
        _draw_losses(diagnosis), "Chart: the log loss of predictions by the memory of the model.", caption
    )
    yield Section("How much memory", lines, table, [picture])


def _draw_losses(diagnosis: DriftDiagnosis) -> Figure:
    assert diagnosis.memory is not None
    entries = sorted(diagnosis.memory.losses, key=lambda entry: entry.memory)
    finite = [entry.memory for entry in entries if math.isfinite(entry.memory)]
    place = {math.inf: 4.0 * max(finite, default=1.0)}
    marks: list[Mark] = [
        Series(
            np.array([place.get(entry.memory, entry.memory) for entry in entries]),
            np.array([entry.loss for entry in entries]),
            INK, role="curve", width=1.0,
        )
    ]  # fmt: skip
    for is_candidate, colour, name in ((True, BETTER, "as good as the best"), (False, WORSE, "significantly worse")):
        some = [entry for entry in entries if entry.is_candidate == is_candidate]
        if some:
            x = np.array([place.get(entry.memory, entry.memory) for entry in some])
            y = np.array([entry.loss for entry in some])
            marks.append(Series(x, y, colour, name, "losses", width=0.0, marker="o", size=7.0, is_filled=is_candidate))
    shown = entries[:: max(1, len(entries) // 6)] + ([entries[-1]] if math.isinf(entries[-1].memory) else [])
    shown = list(dict.fromkeys(shown))
    ticks = Ticks(
        np.array([place.get(entry.memory, entry.memory) for entry in shown]),
        [NEVER if math.isinf(entry.memory) else f"{entry.memory:,.0f}" for entry in shown],
    )
    x_axis = Axis("Memory: correlation time of the parameter (decisions; never: no forgetting)", "log", ticks=ticks)
    return Figure(
        [
            Panel(
                x_axis,
                Axis("Log loss per reward (nats)", has_grid=True, value="loss", form=".5f"),
                marks,
                legend="best",
            )
        ]
    )


def _describe_what(diagnosis: DriftDiagnosis) -> Iterator[Section]:
    what = diagnosis.what
    if what is None:
        return
    rows = [["do the coefficients drift? (joint score test)", f"p = {what.p:.3g}", ""]]
    if what.p_beyond_base_rate is not None:
        text = "only the base rate" if what.is_base_rate_only else ""
        rows.append(["does more than the base rate drift?", f"p = {what.p_beyond_base_rate:.3g}", text])
    if what.ranking is not None:
        change = what.ranking
        finding = f"best arm changed in {change.share:.0%} of offers"
        finding += f"; by noise alone {change.expected:.0%} on average, 95 % quantile {change.limit:.0%}"
        rows.append(
            [
                "does the ranking of arms change? (first and last quarter)",
                finding,
                "changed" if change.has_changed else "",
            ]
        )
    shifted = [context for context in what.contexts if context.has_shifted]
    if what.contexts:
        names = ", ".join(context.name for context in shifted[:5]) + (" ..." if len(shifted) > 5 else "")
        rows.append(
            ["do the contexts shift? (first and second half)", names or "no coordinate", "shifted" if shifted else ""]
        )
    if what.calendar is not None:
        finding = f"p = {what.p:.3g} without calendar terms, p = {what.calendar.p:.3g} with them"
        rows.append(["does the calendar explain it?", finding, "yes" if what.calendar.explains else ""])
    elif what.calendar_note:
        rows.append(["does the calendar explain it?", f"not tested: {what.calendar_note}", ""])
    yield Section("What drifts", [what.summary], DataTable(["question", "finding", "verdict"], rows, left=3))


def _describe_features(diagnosis: DriftDiagnosis, schema: LogSchema) -> Iterator[Section]:
    features = diagnosis.features
    if features is None:
        return
    ranked = sorted(features.features, key=lambda feature: feature.p)
    rows = [
        [f.name, f"{f.largest:.3g}", f"{f.p_largest:.3g}", f"{f.square:.3g}", f"{f.p_square:.3g}", f"{f.p:.3g}",
         "drifts" if f.drifts else ""]
        for f in ranked
    ]  # fmt: skip
    columns = ["coordinate", "sup |W|", "p (sup)", "mean W²", "p (mean)", "p (Holm)", "verdict"]
    lines = [
        "The score process W of each coordinate is a Brownian bridge if one parameter fits all rewards and information "
        "arrives steadily. The p-values are bootstrapped. If coordinates are correlated, drift "
        "of one can show in another.",
    ]
    if features.fixed_sample_p is not None:
        lines.append(f"Fixed-sample p-value of the joint test (parametric bootstrap): {features.fixed_sample_p:.3g}.")
    elif features.fixed_sample_note:
        lines.append(f"There is no fixed-sample p-value: {features.fixed_sample_note}.")
    drawn = ranked[:MOST_DRAWN]
    width = f"{features.half_width:,.0f} decisions on each side"
    caption = f"Estimates from a sliding window ({width}), with pointwise 95 % bands. Vertical lines: change points."
    picture = Picture(
        _draw_thetas(diagnosis, drawn, schema), "Line chart: the estimated coefficients over time, with bands.", caption
    )
    yield Section("Which coordinates", lines, DataTable(columns, rows), [picture], is_printed=False)


def _draw_thetas(diagnosis: DriftDiagnosis, drawn: list[FeatureDrift], schema: LogSchema) -> Figure:
    assert diagnosis.features is not None
    times = diagnosis.features.times if schema.has_times else diagnosis.features.decisions
    axis = TimeAxis(times[0], times[-1], has_times=schema.has_times)
    x = axis.place(times)
    marks: list[Mark] = []
    for group, feature in enumerate(drawn):
        colour = PALETTE[group % len(PALETTE)].colour
        theta, low, high = (np.array(values) for values in (feature.theta, feature.low, feature.high))
        marks += [Band(x, low, high, colour, group), Series(x, theta, colour, feature.name, "mean", group=group)]
    for point in diagnosis.change_points or ():
        place = float(axis.place([point.time if schema.has_times else point.decision])[0])
        marks.append(Strip("x", place, place))
    return Figure([Panel(axis.describe(), Axis("Coefficient", has_grid=True, value="coefficient"), marks)])


def _describe_change_points(diagnosis: DriftDiagnosis, schema: LogSchema) -> Iterator[Section]:
    points = diagnosis.change_points
    if points is None:
        return
    text = "No change point improves the fit by more than its penalty."
    if points:
        text = (
            "Changes that improve the fit by more than their penalty. If theta* moves gradually, they only approximate "
            "its path by steps."
        )
    rows = []
    for p in points:
        interval = f"{format_time(p.time_low, schema)} to {format_time(p.time_high, schema)}"
        times = [format_time(p.time, schema), interval if schema.has_times else ""]
        rows.append([f"{p.row:,}", f"{p.row_low:,} to {p.row_high:,}", *times, f"{p.logits:.3g}"])
    columns = ["row", "95 % interval", "time (UTC)", "95 % interval", "change of logits"]
    yield Section("Change points", [text], DataTable(columns, rows) if rows else None)


def _describe_recommendation(diagnosis: DriftDiagnosis) -> Iterator[Section]:
    settings = diagnosis.recommendation
    if diagnosis.verdict == UNKNOWN:
        return
    arguments = ", ".join(f"{name}={value!r}" for name, value in settings.items())
    code = f"windvane.Agent({arguments})\n\n{json.dumps(settings)}"
    lines = [diagnosis.recommendation_note, "For Agent, and as the JSON of a stream:"]
    yield Section("Recommended settings", lines, code=code)
