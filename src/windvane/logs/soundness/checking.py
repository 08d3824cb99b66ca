"""Check whether a log is sound: one verdict per question, and what to do about it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from windvane.arguments import Array
from windvane.logs.log import Log
from windvane.logs.row_problems import ProblemCount
from windvane.logs.soundness import propensity_questions as propensities
from windvane.logs.soundness import row_questions as rows
from windvane.logs.soundness.log_columns import LogColumns, collect_columns
from windvane.logs.soundness.missing_rewards import check_missing_rewards
from windvane.logs.soundness.verdicts import ArmCheck, CheckLine, Verdict, count

TOP = 0.01  # the share of rows with the largest weights


@dataclass(frozen=True, kw_only=True)
class LogCheck:
    """The result of :func:`check`.

    Attributes
    ----------
    answer : str
        One sentence.
    verdict
        The worst verdict of all lines: "ok", "warning" or "error".
    lines : list of CheckLine
        One for each question.
    arms : list of ArmCheck
        One for each arm, the most played first.
    rows, mean_reward
        The number of rows, and their mean reward in the unit of the log.
    effective_sample_size, largest_weight, top_share
        Of a policy that plays every arm on offer with the same probability: (sum w)^2 / sum w^2, the largest w, and
        the share of the sum that belongs to the 1 % of rows with the largest weights. NaN without propensities.
    weights : array
        Quantiles 0, 0.01, ..., 1 of these weights, for a figure.
    problems : list of ProblemCount
        The problems that were found when the file was read, with their rows.
    """

    answer: str
    verdict: Verdict
    lines: list[CheckLine]
    arms: list[ArmCheck]
    rows: int
    mean_reward: float
    effective_sample_size: float
    largest_weight: float
    top_share: float
    weights: Array
    problems: list[ProblemCount]


def check(log: Log) -> LogCheck:
    """Check whether a log is sound.

    Parameters
    ----------
    log
        A log, as :func:`windvane.logs.read` or :func:`windvane.logs.from_arrays` returns it.

    Returns
    -------
    LogCheck
        A verdict for each question, and the numbers behind it.

    Examples
    --------
    >>> from windvane.logs import check, from_arrays
    >>> log = from_arrays([[[1.0, 0.0], [0.0, 1.0]]] * 400, [0, 1] * 200, [1.0, 0.0, 0.0, 1.0] * 100,
    ...                   propensity=[0.5] * 400)
    >>> check(log).verdict
    'warning'
    >>> [line.finding for line in check(log).lines if line.verdict != "ok"]
    ['the log has no times']
    """
    columns = collect_columns(log)
    problems: list[ProblemCount] = list(getattr(log, "problems", ()))
    weights = columns.uniform_weights()
    arms = propensities.check_arms(columns)
    lines = [
        *_check_rows(problems, columns),
        *propensities.check_propensities(columns),
        *propensities.check_weights(weights),
        *propensities.check_each_arm(arms, columns),
        *propensities.check_contexts(columns),
    ]
    worst: Verdict = next((v for v in ("error", "warning") if any(line.verdict == v for line in lines)), "ok")
    known = columns.reward[~np.isnan(columns.reward)]
    top = max(1, round(TOP * len(weights)))
    return LogCheck(
        answer=_answer(worst, lines, columns),
        verdict=worst,
        lines=lines,
        arms=arms,
        rows=len(columns),
        mean_reward=float(known.mean()) if len(known) else math.nan,
        effective_sample_size=float(weights.sum() ** 2 / np.square(weights).sum()) if len(weights) else math.nan,
        largest_weight=float(weights.max()) if len(weights) else math.nan,
        top_share=float(np.sort(weights)[-top:].sum() / weights.sum()) if len(weights) else math.nan,
        weights=np.quantile(weights, np.linspace(0.0, 1.0, 101)) if len(weights) else np.empty(0),
        problems=problems,
    )


def _check_rows(problems: Sequence[ProblemCount], columns: LogColumns) -> list[CheckLine]:
    """Return the lines about the rows, which do not depend on propensities."""
    return [
        *rows.check_reading(problems, columns),
        *rows.check_times(columns),
        *rows.check_ids(columns),
        *rows.check_repeats(columns),
        *rows.check_rewards(columns),
        *rows.check_reward_order(columns),
        *rows.check_delays(columns),
        *check_missing_rewards(columns),
    ]


def find_row_errors(log: Log) -> list[CheckLine]:
    """Return the errors of a log that matter although propensities are not used, such as repeated or sorted rows.

    Examples
    --------
    >>> from windvane.logs import from_arrays
    >>> log = from_arrays([[[1.0]]] * 400, [0] * 400, [1.0] * 200 + [0.0] * 200)
    >>> [line.question for line in find_row_errors(log)]
    ['Are rewards in the order of decisions?']
    """
    lines = _check_rows(list(getattr(log, "problems", ())), collect_columns(log))
    return [line for line in lines if line.verdict == "error"]


def _answer(worst: Verdict, lines: Sequence[CheckLine], columns: LogColumns) -> str:
    size = count(len(columns), "row")
    if worst == "ok":
        return f"The log is sound: {size}, no problems found."
    bad = [line for line in lines if line.verdict == worst]
    first = bad[0].phrase()
    more = f" (and {count(len(bad) - 1, 'more ' + worst)})" if len(bad) > 1 else ""
    if worst == "error":
        return f"The log is not sound. {first}{more}."
    return f"The log is usable, with warnings ({size}). {first}{more}."
