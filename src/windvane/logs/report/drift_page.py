"""The report of ``windvane drift``."""

from __future__ import annotations

import json
import math
import pprint
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from windvane.agent.memory import describe_seconds
from windvane.lab.figures.description import Axis, Figure, Mark, Panel, Series, Strip, Ticks
from windvane.lab.figures.style import BETTER, INK, WORSE
from windvane.logs.drift.diagnosis import DriftDiagnosis
from windvane.logs.drift.evidence import NO_DRIFT, UNKNOWN, GroupEvidence
from windvane.logs.evaluation.estimates import Estimate, PolicyComparison
from windvane.logs.log import LogSchema
from windvane.logs.report.detector_section import describe_detectors
from windvane.logs.report.drift_findings import describe_change_points, describe_features, describe_what
from windvane.logs.report.pages import DataTable, LogPage, Picture, Section
from windvane.logs.report.soundness_section import describe_errors
from windvane.logs.soundness.verdicts import CheckLine

if TYPE_CHECKING:
    from windvane.logs.drift.detectors import DetectorAlarms

MOST_GROUPS = 10  # groups in the table of evidence
NEVER, NEWLINE = "never", "\n"
WIDTH = 84  # of recommended settings
NO_DRIFT_NOTE = "No drift was seen, so do not set this memory: it is only the one that happened to predict best."
HALF_LIVES = (
    "Two numbers describe the same forgetting. The half-life of a reward says when half of its information is lost. "
    "The correlation half-life says when the parameter has lost half of its correlation with its old value; it is "
    "usually longer, and it is what half_life means for the default policy of an agent. Both are points of a grid; the "
    "interval of the first reaches halfway to the neighbours of its ends."
)
NO_RATE = "The coefficients change at once (see Change points), so a rate of drift would be misleading and is left out."
RATES = (
    "The change of logits is a root mean square over the log, and B_T is the rate of the parameter times the number of "
    "decisions. Both assume a steady drift: where the parameter moves now and then, they are too large."
)


def describe_drift(
    diagnosis: DriftDiagnosis,
    *,
    schema: LogSchema,
    facts: dict[str, str],
    value: PolicyComparison | None = None,
    alarms: Sequence[DetectorAlarms] = (),
    errors: Sequence[CheckLine] = (),
) -> LogPage:
    """Return the report of a diagnosis.

    ``value``: what forgetting is worth in rewards. ``alarms``: of detectors. ``errors``: why the log is not sound.
    """
    sections = [
        *describe_errors(errors),
        *_describe_evidence(diagnosis),
        *_describe_memory(diagnosis, value),
        *describe_what(diagnosis, schema),
        *describe_features(diagnosis, schema),
        *describe_change_points(diagnosis, schema),
        *describe_detectors(alarms, schema),
        *_describe_recommendation(diagnosis),
    ]
    return LogPage(
        heading=f"Do the rewards of this log drift? {diagnosis.source}",
        answer=diagnosis.answer,
        tone="warning" if diagnosis.verdict == UNKNOWN or errors else "ok",
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
    yield Section("Evidence", [text], _list_groups(evidence.groups), pictures=[picture], is_printed=False)


def _list_groups(groups: Sequence[GroupEvidence]) -> DataTable | None:
    """Return the groups of rows with the largest evidence."""
    if not groups:
        return None
    rows = [[each.group, each.partition, f"{each.log_e:.1f}"] for each in groups[:MOST_GROUPS]]
    caption = "Log evidence on the rows of single groups, the largest first. It is one of many, so it is no verdict."
    return DataTable(["group", "one of the", "log evidence (nats)"], rows, caption, left=2)


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
    rows = [
        ["half-life of a reward: half of its information is lost after", *half_lives],
        ["correlation half-life of the parameter",
         format_memory(memory.correlation_half_life, memory.correlation_half_life_seconds), "", ""],
        ["discount gamma with that half-life of a reward", *gammas],
    ]  # fmt: skip
    is_stepwise = bool(diagnosis.change_points) and all(point.is_step for point in diagnosis.change_points or ())
    if rate is not None and not is_stepwise:
        per = 1000.0
        rows.append(
            [f"change of logits per 1,000 decisions (measured over {rate.span:,.0f})",
             *(f"{per * value:.3g}" for value in (rate.logits, rate.logits_low, rate.logits_high))]
        )  # fmt: skip
        rows.append(
            ["total drift B_T at this rate",
             *(f"{value:.3g}" for value in (rate.variation, rate.variation_low, rate.variation_high))]
        )  # fmt: skip
    if cost is not None:
        rows.append(
            ["log loss due to never forgetting (nats per 1,000 rewards)",
             *(f"{value:.3g}" for value in (cost.per_thousand, cost.low, cost.high))]
        )  # fmt: skip
    lines = [*([NO_DRIFT_NOTE] if diagnosis.verdict == NO_DRIFT else []), HALF_LIVES]
    if rate is not None:
        lines.append(NO_RATE if is_stepwise else RATES)
    if value is not None:
        row, line = _describe_worth(value.difference)
        rows.append(row)
        lines.append(line)
    level = f"{100.0 * (1.0 - diagnosis.alpha):.3g} %"
    interval = "95 % intervals" + ("." if value is None or level == "95 %" else f"; of the reward: {level}.")
    table = DataTable(["", "estimate", "low", "high"], rows, interval)
    caption = (
        "Mean log loss of predictions, by the half-life of a reward in the model; lower is better. Filled: not "
        "significantly worse than any other."
    )
    picture = Picture(
        _draw_losses(diagnosis), "Chart: the log loss of predictions by the memory of the model.", caption
    )
    yield Section("How much memory", lines, table, [picture])


def _describe_worth(worth: Estimate) -> tuple[list[str], str]:
    """Return the row of what forgetting is worth in rewards, and a line about it."""
    name, count = "Reward lost by never forgetting", worth.effective_sample_size
    ends = ["–" if x is None else f"{x:.3g}" for x in (worth.value, worth.low, worth.high)]
    row = ["reward lost by never forgetting (per decision)", *ends]
    if worth.value is None:
        return row, f"{name}: cannot be answered, because {worth.reason}."
    size = "" if count is None else f" ({count:,.0f} effective decisions)"
    return row, f"{name}: {worth.estimand}{size}; {worth.caveat}."


def _draw_losses(diagnosis: DriftDiagnosis) -> Figure:
    assert diagnosis.memory is not None
    entries = diagnosis.memory.half_lives
    finite = [entry.half_life for entry in entries if math.isfinite(entry.half_life)]
    place = {math.inf: 4.0 * max(finite, default=1.0)}
    marks: list[Mark] = [
        Series(
            np.array([place.get(entry.half_life, entry.half_life) for entry in entries]),
            np.array([entry.loss for entry in entries]),
            INK, role="curve", width=1.0,
        )
    ]  # fmt: skip
    for is_candidate, colour, name in ((True, BETTER, "as good as the best"), (False, WORSE, "significantly worse")):
        some = [entry for entry in entries if entry.is_candidate == is_candidate]
        if some:
            x = np.array([place.get(entry.half_life, entry.half_life) for entry in some])
            y = np.array([entry.loss for entry in some])
            marks.append(Series(x, y, colour, name, "losses", width=0.0, marker="o", size=7.0, is_filled=is_candidate))
    shown = entries[:: max(1, len(entries) // 5)] + entries[-1:] * math.isinf(entries[-1].half_life)
    ticks = Ticks(
        np.array([place.get(entry.half_life, entry.half_life) for entry in dict.fromkeys(shown)]),
        [NEVER if math.isinf(entry.half_life) else f"{entry.half_life:,.0f}" for entry in dict.fromkeys(shown)],
    )
    low = min(entry.loss for entry in entries)
    near = sorted(entry.loss for entry in entries)[: max(2, (3 * len(entries)) // 4)]
    y_axis = Axis(
        "Log loss per reward (nats)", has_grid=True, value="loss", form=".5f",
        low=low - 0.1 * (near[-1] - low), high=near[-1] + 0.1 * (near[-1] - low),
    )  # fmt: skip
    x_axis = Axis("Half-life of a reward (decisions)", "log", ticks=ticks)
    return Figure([Panel(x_axis, y_axis, marks, legend="best")])


def _describe_recommendation(diagnosis: DriftDiagnosis) -> Iterator[Section]:
    settings = diagnosis.recommendation
    if diagnosis.verdict == UNKNOWN:
        return
    lines = [diagnosis.recommendation_note, "For Agent, and as the JSON of a stream:"]
    code = f"{format_call(settings)}\n\n{json.dumps(settings, indent=2)}"
    yield Section("Recommended settings", lines, code=code)


def format_call(settings: dict[str, Any]) -> str:
    """Return the call of an agent with these settings, to paste.

    Examples
    --------
    >>> print(format_call({"dim": 2, "epsilon": 0.05}))
    windvane.Agent(
        dim=2,
        epsilon=0.05,
    )
    """
    lines = []
    for name, value in settings.items():
        text = pprint.pformat(value, width=WIDTH - len(name), sort_dicts=False)
        lines.append(f"    {name}={text.replace(NEWLINE, NEWLINE + ' ' * (5 + len(name)))},")
    return "\n".join(["windvane.Agent(", *lines, ")"])
