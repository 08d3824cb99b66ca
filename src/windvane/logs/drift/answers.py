"""The answer of a diagnosis in a few sentences, each with its error statement."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime

from windvane.agent.memory import describe_seconds
from windvane.logs.drift.best_memory import BestMemory
from windvane.logs.drift.change_points import ChangePoint
from windvane.logs.drift.evidence import DRIFT, UNKNOWN, Evidence
from windvane.logs.drift.feature_drift import FixedSampleTest
from windvane.logs.drift.rate import Rate
from windvane.logs.log import LogSchema

LIKELY = "drift likely"
MOST_LISTED = 3  # change points in the answer, because more are a gradual drift; and coordinates of each


def judge(evidence: Evidence, test: FixedSampleTest | None, alpha: float) -> str:
    """Return the verdict of a diagnosis.

    Parameters
    ----------
    evidence
        The evidence that is valid at any time.
    test
        The fixed-sample test.
    alpha
        The level of each of them.

    Returns
    -------
    str
        "drift" if the evidence suffices: without drift this has a probability of at most alpha, however often the log
        is analysed. "drift likely" if only the fixed-sample test rejects: without drift this has a probability of about
        alpha for a log that is analysed once. Otherwise "no drift seen" or "cannot be answered".
    """
    if test is not None and evidence.verdict != UNKNOWN and evidence.verdict != DRIFT and test.p <= alpha:
        return LIKELY
    return evidence.verdict


def format_p(p: float, smallest: float) -> str:
    """Return a p-value; "at most" for the smallest that a bootstrap can give.

    Examples
    --------
    >>> format_p(0.001, 0.001), format_p(0.0312, 0.001)
    ('p ≤ 0.001', 'p = 0.031')
    """
    return f"p {'≤' if p <= smallest * (1.0 + 1e-9) else '='} {p:.2g}"


def describe_once(schema: LogSchema) -> str:
    """Return when the fixed-sample test is valid."""
    return "analysed once" + (" and the logging policy did not learn from its rewards" if schema.is_adaptive else "")


def phrase_answer(
    schema: LogSchema, verdict: str, evidence: Evidence, test: FixedSampleTest | None, memory: BestMemory | None,
    rate: Rate | None, change_points: Sequence[ChangePoint], alpha: float,
) -> str:  # fmt: skip
    """Return the answer: the verdict with its error statement, then what follows from it.

    If the verdict is "no drift seen", the answer gives the speed of drift that the log rules out. It does not say that
    the verdict would have been another one for a faster drift.
    """
    if verdict == UNKNOWN or memory is None or test is None:
        return f"Cannot be answered, because {evidence.reason}."
    p, level = format_p(test.p, test.smallest_p), f"{100.0 * alpha:.3g} %"
    if verdict == DRIFT:
        first = f"Drift detected (valid at any time: without drift, at most {level} of logs give this answer)."
    elif verdict == LIKELY:
        first = (
            f"Drift likely (fixed-sample test: {p}; without drift, about {level} of logs give this answer, if "
            f"the log is {describe_once(schema)}). The evidence that is valid at any time does not suffice."
        )
    else:
        return f"No drift seen (fixed-sample test: {p}). {_describe_power(rate)}"
    changes = _describe_changes(schema, change_points)
    return " ".join(filter(None, [first, _describe_memory(memory), changes]))


def _describe_power(rate: Rate | None) -> str:
    if rate is None:
        return "The log is too short to say which speed of drift it rules out."
    return (
        f"A steady drift of the logits by more than {1000.0 * rate.excluded_logits:.2g} per 1,000 decisions is ruled "
        "out (95 %); a slower or a short-lived one is not."
    )


def _describe_memory(memory: BestMemory) -> str:
    if math.isinf(memory.half_life):
        return "Forgetting would not have improved the predictions of rewards."
    return f"Best memory: a reward counts half after {_format_half_life(memory)}."


def _format_half_life(memory: BestMemory) -> str:
    """Return the half-life with its interval as text."""
    decisions = (memory.half_life, memory.half_life_low, memory.half_life_high)
    seconds = (memory.half_life_seconds, memory.half_life_seconds_low, memory.half_life_seconds_high)

    def format_end(index: int) -> str:
        value = seconds[index]
        if math.isinf(decisions[index]):
            return "never"
        return f"{decisions[index]:,.0f} decisions" if value is None else describe_seconds(value)

    value, low, high = (format_end(index) for index in range(3))
    return f"{value} ({low} to {high})" if low != high else value


def _describe_changes(schema: LogSchema, points: Sequence[ChangePoint]) -> str:
    if len(points) > MOST_LISTED:
        return f"There are {len(points)} change points, so the drift is probably gradual."
    return " ".join(_describe_change(schema, point) for point in points)


def _describe_change(schema: LogSchema, point: ChangePoint) -> str:
    """Return when the coefficients change, and the largest changes."""
    when = f"{point.row_low:,} to {point.row_high:,}"
    if schema.has_times:
        when += f"; {format_time(point.time, schema)} UTC"
    largest = [
        f"{change.name} {'rises' if change.logits > 0.0 else 'falls'} by {abs(change.logits):.2f}"
        for change in point.coordinates[:MOST_LISTED]
    ]
    more = len(point.coordinates) - len(largest)
    what = ", ".join(largest) + (f" and {more} more" if more else "")
    how = "" if point.is_step else "or gradually around it "
    return f"The coefficients change at {schema.place} {point.row:,} {how}({when}): {what} (in logits)."


def format_time(time: float, schema: LogSchema) -> str:
    """Return a time in UTC; "" if the log has no times."""
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M:%S") if schema.has_times else ""
