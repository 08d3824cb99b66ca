"""The report of ``windvane check``."""

from __future__ import annotations

import math

import numpy as np

from windvane.lab.figures.description import Axis, Figure, Mark, Panel, Series, Strip
from windvane.lab.figures.style import BETTER
from windvane.logs.report.pages import DataTable, LogPage, Picture, Section
from windvane.logs.soundness.checking import LogCheck

MOST_ARMS = 50  # rows of the table of arms


def describe_check(result: LogCheck, *, source: str, facts: dict[str, str]) -> LogPage:
    """Return the report of a check."""
    lines = [[line.question, line.verdict, line.finding, line.advice] for line in result.lines]
    table = DataTable(["question", "verdict", "finding", "what to do"], lines, left=4)
    sections = [Section("Checks", (), table)]
    if len(result.weights):
        text = (
            f"A policy that plays every arm on offer with the same probability has an effective sample size of "
            f"{result.effective_sample_size:,.0f} decisions. Its largest importance weight is "
            f"{result.largest_weight:,.4g}, and the 1 % of rows with the largest weights have "
            f"{result.top_share:.1%} of the total weight."
        )
        caption = (
            "Quantiles of the importance weights (1/K) / p of a policy that plays all K arms with the same probability."
        )
        spoken = "Line chart: quantiles of the importance weights, in increasing order."
        sections.append(
            Section(
                "Importance weights",
                [text],
                pictures=[Picture(_draw_weights(result), spoken, caption)],
                is_printed=False,
            )
        )
    sections.append(_describe_arms(result))
    if result.problems:
        rows = [[p.kind, f"{p.count:,}", str(example)] for p in result.problems for example in p.examples]
        sections.append(
            Section("Rows with problems", (), DataTable(["problem", "rows", "example"], rows, left=3), is_printed=False)
        )
    return LogPage(f"Is this log sound? {source}", result.answer, result.verdict, sections, facts)


def _draw_weights(result: LogCheck) -> Figure:
    share = np.linspace(0.0, 100.0, len(result.weights))
    is_wide = float(result.weights[-1]) > 20.0 * max(float(result.weights[0]), 1e-12)
    marks: list[Mark] = [
        Strip("y", 1.0, 1.0, text="weight 1"),
        Series(share, result.weights, BETTER, "weight", "weights"),
    ]
    scale: dict[str, object] = {"scale": "log"} if is_wide else {"low": 0.0}
    y = Axis("Weight", has_grid=True, value="weight", **scale)  # type: ignore[arg-type]
    return Figure([Panel(Axis("Rows (%), by increasing weight", low=0.0, high=100.0, value="rows (%)"), y, marks)])


def _describe_arms(result: LogCheck) -> Section:
    def interval(low: float, high: float) -> str:
        return "too few plays" if math.isnan(low) else f"{low:.3g} to {high:.3g}"

    def mean(value: float) -> str:
        return "–" if math.isnan(value) else f"{value:.3g}"

    rows = [
        [arm.arm, f"{arm.offered:,}", f"{arm.played:,}", mean(arm.mean_weight), interval(arm.low, arm.high)]
        for arm in result.arms[:MOST_ARMS]
    ]
    left_out = len(result.arms) - len(rows)
    caption = f"The {MOST_ARMS} most played arms; {left_out:,} more are not shown." if left_out else ""
    columns = ["arm", "on offer", "played", "mean weight", "interval"]
    text = (
        "The mean weight of an arm is mean(1{played} / p). It is 1, up to chance, if its propensities are right. With "
        "right propensities, the intervals of all arms contain 1 with probability 99 %."
    )
    return Section("Arms", [text], DataTable(columns, rows, caption), is_printed=False)
