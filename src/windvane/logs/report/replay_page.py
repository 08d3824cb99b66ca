"""The report of ``windvane replay``."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from windvane.lab.figures.description import Axis, Band, Figure, Mark, Panel, Series, Strip
from windvane.lab.figures.style import INK, PALETTE
from windvane.logs.evaluation.estimates import Estimate, Evaluation, PolicyEvaluation, RecommendationsResult
from windvane.logs.report.pages import DataTable, LogPage, Picture, Section
from windvane.logs.report.soundness_section import describe_errors
from windvane.logs.report.time_axis import TimeAxis
from windvane.logs.soundness.verdicts import CheckLine

UNKNOWN = "–"


def describe_evaluation(
    evaluation: Evaluation, *, has_times: bool, facts: dict[str, str], errors: Sequence[CheckLine] = ()
) -> LogPage:
    """Return the report of an evaluation. ``errors``: why the log is not sound; all values rely on it."""
    is_answered = any(
        policy.recommendations and policy.recommendations.value.is_answered for policy in evaluation.policies
    )
    sections = [
        *describe_errors(errors),
        _describe_recommendations(evaluation, has_times),
        *_describe_comparisons(evaluation),
        *_describe_variants(evaluation),
        *_describe_thinning(evaluation),
        *_describe_models(evaluation),
        _describe_weights(evaluation),
        _describe_settings(evaluation),
    ]
    return LogPage(
        heading=f"What would other policies have earned? {evaluation.log.source}",
        answer=evaluation.answer,
        tone="ok" if is_answered and not errors else "warning",
        sections=[section for section in sections if section is not None],
        facts={
            **facts,
            "Confidence level": f"{1.0 - evaluation.alpha:.0%}, at all times at once",
            "Seed": str(evaluation.seed),
        },
    )


def format_estimate(estimate: Estimate) -> str:
    """Return the value with its interval, or the reason why there is none."""
    if estimate.value is None:
        return f"cannot be answered: {estimate.reason}"
    interval = "" if estimate.low is None or estimate.high is None else f" ({estimate.low:.4g} to {estimate.high:.4g})"
    return f"{estimate.value:.4g}{interval}"


def format_value(estimate: Estimate) -> str:
    """Return the value with its interval, or a dash."""
    return format_estimate(estimate) if estimate.is_answered else UNKNOWN


def _explain_gaps(estimates: Sequence[Estimate]) -> list[str]:
    """Explain the dashes in a table, with the first reason as an example."""
    reasons = [estimate.reason for estimate in estimates if not estimate.is_answered and estimate.reason]
    return [f"{UNKNOWN}: cannot be answered; for example, {reasons[0]}."] if reasons else []


def format_size(size: float | None) -> str:
    """Return an effective sample size."""
    return UNKNOWN if size is None or not math.isfinite(size) else f"{size:,.0f}"


def _list_caveats(estimates: Sequence[Estimate]) -> list[str]:
    """Return what the estimates of a table mean and which assumptions they need, without repetitions."""
    texts = [text for estimate in estimates for text in (estimate.estimand, estimate.caveat) if text]
    return [text[0].upper() + text[1:] + ("" if text.endswith(".") else ".") for text in dict.fromkeys(texts)]


def _with_recommendations(evaluation: Evaluation) -> Iterator[tuple[PolicyEvaluation, RecommendationsResult]]:
    for policy in evaluation.policies:
        if policy.recommendations is not None:
            yield policy, policy.recommendations


def _describe_recommendations(evaluation: Evaluation, has_times: bool) -> Section | None:
    evaluated = list(_with_recommendations(evaluation))
    if not evaluated:
        return None
    rows = [
        [policy.label, format_estimate(result.value), format_size(result.value.effective_sample_size),
         format_estimate(result.difference_to_log)]
        for policy, result in evaluated
    ]  # fmt: skip
    logged = evaluation.log.value
    rows.append(["the log", format_estimate(logged), format_size(logged.effective_sample_size), UNKNOWN])
    table = DataTable(["policy", "reward per decision", "effective decisions", "difference from the log"], rows, left=4)
    pictures = []
    if any(result.value.is_answered and result.checkpoints for _, result in evaluated):
        pictures = [
            Picture(
                _draw_values(evaluation, has_times),
                "Line chart: the value of each policy over time, with its interval.",
                "All rows so far: the mean, with an interval that is valid at all times at once. Recent rows: an "
                "exponentially weighted mean, which shows how the value changes over time, without an interval.",
            )
        ]
    lines = _list_caveats([result.value for _, result in evaluated])
    return Section("Value of recommendations", lines, table, pictures)


def _draw_values(evaluation: Evaluation, has_times: bool) -> Figure:
    answered = [(p, r) for p, r in _with_recommendations(evaluation) if r.value.is_answered and r.checkpoints]
    times = [point.time for point in answered[0][1].checkpoints]
    axis = TimeAxis(times[0], times[-1], has_times=has_times)
    whole: list[Mark] = []
    recent: list[Mark] = []
    for group, (policy, result) in enumerate(answered):
        look = PALETTE[group % len(PALETTE)]
        points = result.checkpoints
        x = axis.place([point.time for point in points])
        low, value, high, now = (
            np.array([math.nan if getattr(point, name) is None else getattr(point, name) for point in points])
            for name in ("low", "value", "high", "recent")
        )
        whole.append(Band(x, low, high, look.colour, group))
        whole.append(Series(x, value, look.colour, policy.label, "mean", group=group))
        recent.append(Series(x, now, look.colour, policy.label, "mean", group=group))
    if evaluation.log.value.value is not None:
        for marks in (whole, recent):
            marks.append(Strip("y", evaluation.log.value.value, evaluation.log.value.value, text="the log", colour=INK))
    limits = _choose_limits(whole, evaluation.log.value.value)
    level = Axis("Reward per decision", low=limits[0], high=limits[1], has_grid=True, value="value")
    panels = [
        Panel(axis.describe(), level, whole, "All rows so far"),
        Panel(axis.describe(), Axis("Reward per decision", has_grid=True, value="recent value"), recent, "Recent rows"),
    ]
    return Figure(panels)


def _choose_limits(marks: Sequence[Mark], logged: float | None) -> tuple[float, float]:
    """Return limits that show the values after the first fifth of the log, the last intervals and the log's value."""
    seen = [] if logged is None else [np.array([logged])]
    for mark in marks:
        if isinstance(mark, Series):
            seen.append(mark.y[len(mark.y) // 5 :])
        elif isinstance(mark, Band):
            seen += [mark.low[-1:], mark.high[-1:]]
    low, high = float(np.nanmin(np.concatenate(seen))), float(np.nanmax(np.concatenate(seen)))
    margin = 0.1 * (high - low) + 1e-9
    return low - margin, high + margin


def _describe_comparisons(evaluation: Evaluation) -> Iterator[Section]:
    if not evaluation.comparisons:
        return
    verdicts = {True: "significant", False: "no significant difference", None: UNKNOWN}
    rows = [
        [f"{c.policy} minus {c.baseline}", format_value(c.difference),
         format_size(c.difference.effective_sample_size), verdicts[c.is_significant]]
        for c in evaluation.comparisons
    ]  # fmt: skip
    table = DataTable(["policies", "difference", "effective decisions", "verdict"], rows, left=4)
    differences = [c.difference for c in evaluation.comparisons]
    above = _list_caveats([result.value for _, result in _with_recommendations(evaluation)])
    lines = [line for line in _list_caveats(differences) if line not in above] + _explain_gaps(differences)
    yield Section("Paired differences", lines, table)


def _describe_variants(evaluation: Evaluation) -> Iterator[Section]:
    evaluated = [(policy, result) for policy, result in _with_recommendations(evaluation) if result.variants]
    if not evaluated:
        return
    rows = [
        [policy.label, name, format_estimate(estimate), format_size(estimate.effective_sample_size), estimate.caveat]
        for policy, result in evaluated
        for name, estimate in result.variants.items()
    ]
    table = DataTable(["policy", "estimator", "reward per decision", "effective decisions", "caveat"], rows, left=5)
    lines = ["The same value by other estimators. If they differ by more than chance explains, trust none of them."]
    yield Section("Other estimators", lines, table, is_printed=False)


def _describe_thinning(evaluation: Evaluation) -> Iterator[Section]:
    rows, estimates, reasons = [], [], []
    for policy in evaluation.policies:
        if policy.thinning is None:
            continue
        if policy.thinning.reason:
            reasons.append(f"{policy.label}: {policy.thinning.reason}")
        for run in policy.thinning.runs:
            estimates += [run.value, run.all_rows]
            rows.append(
                [policy.label, f"{run.share:.3%}", f"{run.accepted:,}", format_value(run.value),
                 format_value(run.all_rows), format_size(run.all_rows.effective_sample_size)]
            )  # fmt: skip
    if rows or reasons:
        columns = ["policy", "share c", "accepted rows", "accepted rows only", "all rows", "effective decisions"]
        lines = [*dict.fromkeys(reasons), *_list_caveats(estimates), *_explain_gaps(estimates)]
        yield Section(
            "On-policy learning on a share of the traffic", lines, DataTable(columns, rows, left=1) if rows else None
        )


def _describe_models(evaluation: Evaluation) -> Iterator[Section]:
    models = [(policy.label, policy.model) for policy in evaluation.policies if policy.model is not None]
    if models:
        rows = [
            [label, format_estimate(model.value), f"{model.lanes}", f"{model.log_value:.4g}",
             "all" if model.memory is None else f"{model.memory:,.0f} decisions"]
            for label, model in models
        ]  # fmt: skip
        columns = ["policy", "reward per decision", "simulated runs", "log, by the model", "memory of the model"]
        lines = _list_caveats([model.value for _, model in models])
        yield Section("Simulation of the fitted model", lines, DataTable(columns, rows, left=2))


def _describe_weights(evaluation: Evaluation) -> Section | None:
    rows = [
        [policy.label, f"{w.counting_rows:,} of {w.rows:,}", format_size(w.effective_sample_size),
         format_size(w.effective_successes), f"{w.mean:.3g}", f"{w.largest:.4g}", f"{w.top_share:.1%}"]
        for policy, result in _with_recommendations(evaluation)
        for w in [result.weights]
    ]  # fmt: skip
    if not rows:
        return None
    columns = [
        "policy", "rows with weight > 0", "effective decisions", "effective rewards of 1", "mean weight", "largest",
        "share of the top 1 % of rows",
    ]  # fmt: skip
    lines = ["Rows with weight > 0: the policy might have played the logged arm. The mean weight is 1, up to chance."]
    return Section("Importance weights", lines, DataTable(columns, rows), is_printed=False)


def _describe_settings(evaluation: Evaluation) -> Section:
    def list_settings(settings: object) -> str:
        return ", ".join(f"{name}={value}" for name, value in dict(settings).items()) or UNKNOWN  # type: ignore[call-overload]

    rows = [[p.label, p.policy, list_settings(p.settings), list_settings(p.assumed)] for p in evaluation.policies]
    table = DataTable(["policy", "class", "your settings", "assumed settings"], rows, left=4)
    return Section("Policies", (), table, is_printed=False)
