"""Questions about the rows of a log: whether they can be read, are in order, and have rewards."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np

from windvane.agent.memory import describe_seconds
from windvane.arguments import Index, Mask
from windvane.logs.reward_order import measure_order
from windvane.logs.row_problems import MISSING_PROBABILITY, NOT_IN_ORDER, REPEATED_ID, ProblemCount
from windvane.logs.soundness.log_columns import LogColumns
from windvane.logs.soundness.verdicts import CheckLine, Verdict, count

FEW_OUTCOMES = 50  # of the rarer kind: a relative standard error of 14 %
COUNTER = 1e7  # seconds since 1970 below which times are probably a counter
OUTLYING = 100.0  # the range of rewards, as a multiple of that of 98 % of them
UNEVEN = 0.01  # difference of median delays, as a share of the log, from which on learners see a biased sample
FEW_REPEATS = 5  # pairs of equal rows at the same time that are not worth a warning
OWN_TIME = 0.8  # share of different rows with a time of their own
MORE_ALIKE = 2.0  # times as often as rows at different times: rows at the same time may be of one visitor
SORTS = "no need to sort the file: drift and replay sort the rows by time; other tools may not"
SERIOUS = 0.01  # a log with more than this share of rows left out, or repeated, is not sound


def check_reading(problems: Sequence[ProblemCount], columns: LogColumns) -> list[CheckLine]:
    """Check whether every row could be read."""
    question = "Can every row be read?"
    problems = [
        problem for problem in problems if problem.kind not in (REPEATED_ID, NOT_IN_ORDER, MISSING_PROBABILITY)
    ]  # other questions cover these
    if not problems:
        return [CheckLine(question, "ok", f"all {len(columns):,} rows were read")]
    lines = []
    for problem in problems:
        example = str(problem.examples[0]) if problem.examples else ""
        what = "left out" if problem.is_dropped else "used without this value, or with it adjusted"
        finding = f"{problem.kind}: {count(problem.count, 'row')}, {what}; for example, {example}"
        is_serious = problem.is_dropped and problem.count > SERIOUS * (len(columns) + problem.count)
        advice = "correct or remove these rows"
        lines.append(CheckLine(question, "error" if is_serious else "warning", finding, advice))
    return lines


def check_times(columns: LogColumns) -> list[CheckLine]:
    """Check whether rows are in time order."""
    question = "Are rows in time order?"
    if not columns.has_times:
        advice = "record the time of each decision; without it, results are in decisions only, not in hours"
        return [CheckLine(question, "warning", "the log has no times", advice)]
    time = columns.time
    known = time[~np.isnan(time)]
    missing, backwards = len(time) - len(known), int((known < np.maximum.accumulate(known)).sum())
    if missing:
        finding = f"{count(missing, 'row')} without a time"
        return [CheckLine(question, "error", finding, "record the time of every decision")]
    if backwards:
        finding = f"{count(backwards, 'row')} earlier than a row before"
        return [CheckLine(question, "warning", finding, SORTS)]
    finding = f"yes, over {describe_seconds(float(np.ptp(time)))}"
    if (first := float(time[0])) >= COUNTER:  # a wrong unit shows as a wrong date
        finding += f" from {datetime.fromtimestamp(first, UTC):%Y-%m-%d %H:%M} UTC on"
    return [CheckLine(question, "ok", finding)]


def check_ids(columns: LogColumns) -> list[CheckLine]:
    """Check whether ids are unique."""
    if columns.id_hash is None:
        return []
    repeated = len(columns.id_hash) - len(np.unique(columns.id_hash))
    question = "Is every id unique?"
    if not repeated:
        return [CheckLine(question, "ok", "yes")]
    advice = "a decision that is logged twice counts twice: keep only the first"
    return [CheckLine(question, "error", count(repeated, "repeated id"), advice)]


def check_repeats(columns: LogColumns) -> list[CheckLine]:
    """Check whether rows at the same time are equal more often than rows at different times.

    This needs times that tell decisions apart: in one hour of a log whose times are hours, many rows are equal.
    """
    if not columns.has_times or np.isnan(columns.time).any():
        return []
    order = np.lexsort((columns.row_hash, columns.time))
    is_later = np.diff(columns.time[order]) > 0.0
    is_new = is_later | (np.diff(columns.row_hash[order]) != 0)
    sizes, copies = _measure_runs(is_later), _measure_runs(is_new)
    pairs, equal = (0.5 * float((n * (n - 1.0)).sum()) for n in (sizes, copies))
    lag = int(sizes.max())  # rows that are so far apart have different times
    compared = len(columns) - lag
    if compared < lag or len(sizes) < OWN_TIME * len(copies):
        return []
    by_time = columns.row_hash[np.argsort(columns.time, kind="stable")]
    alike = int((by_time[lag:] == by_time[:-lag]).sum())
    chance = pairs * (alike + 3.0 * np.sqrt(alike) + 3.0) / compared  # at most, by three standard errors
    question = "Is every row recorded once?"
    if equal <= MORE_ALIKE * chance + FEW_REPEATS:
        advice = "log an id with each decision: without one, a repeat with another time is not seen"
        return [CheckLine(question, "ok", "no exact repeats", advice)] if columns.id_hash is None else []
    repeated = int((~is_new).sum())
    finding = f"no: {count(repeated, 'row')} equal to an earlier one in time, context, arm and reward"
    advice = "a decision that is logged twice counts twice: keep only the first"
    if columns.id_hash is None:
        advice += "; log an id with each decision, to be sure that rows are the same decision"
    return [CheckLine(question, "error" if repeated > SERIOUS * len(columns) else "warning", finding, advice)]


def _measure_runs(is_start: Mask) -> Index:
    """Return the lengths of runs of rows; the first row starts one, and others where ``is_start``."""
    return np.diff(np.flatnonzero(np.concatenate(([True], is_start, [True]))))


def check_reward_order(columns: LogColumns) -> list[CheckLine]:
    """Check whether rewards of one kind are all in one part of the log, as they are after sorting by reward."""
    known = ~np.isnan(columns.reward)
    order = np.argsort(columns.time[known], kind="stable") if columns.has_times else slice(None)
    in_file, in_time = (measure_order(each) for each in (columns.reward[known], columns.reward[known][order]))
    if in_file is None or in_time is None:
        return []
    question = "Are rewards in the order of decisions?"
    if not in_file.is_sorted and not in_time.is_sorted:
        return [CheckLine(question, "ok", "yes, they are not sorted by their size")]
    finding = f"the rows are sorted by reward: {min(in_file, in_time)}"
    if not in_time.is_sorted:
        return [CheckLine(question, "warning", f"{finding}; sorted by time, they are not", SORTS)]
    advice = "restore the order of the decisions: in this order, every analysis of drift and of learning is wrong"
    return [CheckLine(question, "error", finding, advice)]


def check_rewards(columns: LogColumns) -> list[CheckLine]:
    """Check whether decisions have rewards, and enough of each kind."""
    known = ~np.isnan(columns.reward)
    share, values = known.mean(), columns.reward[known]
    finding = f"{share:.1%} of decisions have a known reward"
    advice = "set a default reward, or wait until rewards have arrived; missing rewards can bias every result"
    verdict: Verdict = "ok" if share > 0.999 else "warning" if share > 0.5 else "error"
    lines = [
        CheckLine("Does every decision have a reward?", verdict, finding,
            advice="" if verdict == "ok" else advice,
        )
    ]  # fmt: skip
    is_low, is_high = values == values.min(initial=np.inf), values == values.max(initial=-np.inf)
    if verdict == "warning" and is_low.all():
        finding += f", and each of these is {values[0]:g}"
        advice = "the others were probably not recorded: give them their reward, such as 0"
        lines = [CheckLine("Does every decision have a reward?", "error", finding, advice)]
    if len(values) and (is_low | is_high).all():
        rare = 0 if is_low.all() else int(min(is_low.sum(), is_high.sum()))
        finding = f"{count(rare, 'reward')} of the rarer kind (mean reward {values.mean():.4g})"
        is_enough = rare >= FEW_OUTCOMES
        advice = (
            "" if is_enough else f"collect more: with fewer than {FEW_OUTCOMES}, drift and policies cannot be judged"
        )
        question = "Are there enough rewards of each kind?"
        lines.append(CheckLine(question, "ok" if is_enough else "warning", finding, advice))
    elif len(values):
        lowest, low, high, highest = np.quantile(values, (0.0, 0.01, 0.99, 1.0))
        if high > low and highest - lowest > OUTLYING * (high - low):
            finding = f"they are from {lowest:.4g} to {highest:.4g}, but 98 % from {low:.4g} to {high:.4g}"
            advice = "correct the outliers or declare the range of rewards: in the whole range, most look the same"
            lines.append(CheckLine("Are rewards of a similar size?", "warning", finding, advice))
    return lines


def check_delays(columns: LogColumns) -> list[CheckLine]:
    """Check how late rewards are."""
    has_arrived = np.isfinite(columns.reward_time)
    delay, values = (columns.reward_time - columns.time)[has_arrived], columns.reward[has_arrived]
    if not columns.has_times or not len(delay) or not delay.any():
        return []
    early = int((delay < 0.0).sum())
    if early:
        finding, advice = (
            f"{count(early, 'reward')} earlier than the decision",
            "check the clocks that recorded decisions and rewards",
        )
        return [CheckLine("How late are rewards?", "error", finding, advice)]
    middle, late, last = (describe_seconds(float(value)) for value in np.quantile(delay, (0.5, 0.9, 1.0)))
    finding = f"half within {middle}, 90 % within {late}, all within {last}"
    lines = [CheckLine("How late are rewards?", "ok", finding)]
    kinds = [values.min(), values.max()]
    if kinds[0] < kinds[1] and np.isin(values, kinds).all():
        medians = [float(np.median(delay[values == kind])) for kind in kinds]
        if abs(medians[1] - medians[0]) > UNEVEN * float(np.ptp(columns.time)):
            found = [f"{kind:g} after {describe_seconds(delay)}" for kind, delay in zip(kinds, medians, strict=True)]
            finding = f"yes: half of the rewards of {found[0]}, half of {found[1]}"
            advice = "policies that learn at once, and the memory that drift reports, see too many of the earlier kind"
            lines.append(CheckLine("Does the delay depend on the reward?", "warning", finding, advice))
    return lines
