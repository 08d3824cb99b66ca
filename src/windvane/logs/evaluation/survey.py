"""The first pass over a log: counts and extremes that the evaluation needs in advance."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from windvane.arguments import Mask, check_number
from windvane.errors import ArgumentError
from windvane.logs.log import Log, LogBatch

SLACK = 1e-9  # relative rounding of a logged probability, well above that of a sum of a thousand terms


@dataclass
class Survey:
    """Counts and extremes over all rows.

    ``most_arms`` is the largest number K of entries of a row. Rows are ``evaluated`` if they have a reward and, where
    the log has any, a probability. ``smallest`` is the smallest logged probability, of all arms where they are known.
    """

    rows: int = 0
    most_arms: int = 1
    evaluated: int = 0
    without_reward: int = 0
    without_propensity: int = 0
    is_binary: bool = True
    has_choice: bool = False  # whether some row has two arms or more
    is_certain: bool = True  # whether every arm was played with probability 1
    smallest: float = math.inf
    largest_weight: float = 0.0
    smallest_weight: float = math.inf


def find_evaluated(batch: LogBatch, *, has_propensities: bool) -> Mask:
    """Return the rows that can be evaluated: those with a reward and, if the log has propensities, a usable one."""
    is_known = np.isfinite(batch.reward) & np.isfinite(batch.reward_time)
    return is_known & (batch.propensity > 0.0) if has_propensities else is_known  # NaN > 0 is False


def survey_log(log: Log) -> Survey:
    """Read all rows once.

    Parameters
    ----------
    log
        The log.

    Returns
    -------
    Survey
        The counts.

    Examples
    --------
    >>> from windvane.logs import from_arrays
    >>> log = from_arrays(np.eye(2)[None].repeat(3, axis=0), [0, 1, 0], [1.0, 0.0, np.nan], propensity=[0.5] * 3)
    >>> survey = survey_log(log)
    >>> survey.rows, survey.evaluated, survey.without_reward
    (3, 2, 1)
    """
    survey, has_propensities = Survey(), log.schema.propensities != "none"
    for batch in log.batches():
        is_evaluated = find_evaluated(batch, has_propensities=has_propensities)
        is_known = np.isfinite(batch.reward) & np.isfinite(batch.reward_time)
        reward = batch.reward[is_evaluated]
        survey.rows += len(batch)
        survey.most_arms = max(survey.most_arms, batch.arms.shape[1])
        survey.evaluated += int(is_evaluated.sum())
        survey.without_reward += int((~is_known).sum())
        survey.without_propensity += int((is_known & ~is_evaluated).sum())
        survey.is_binary &= bool(((reward == 0.0) | (reward == 1.0)).all())
        survey.has_choice |= bool((batch.valid.sum(axis=1) > 1).any())
        survey.largest_weight = max(survey.largest_weight, float(batch.weight.max(initial=0.0)))
        survey.smallest_weight = min(survey.smallest_weight, float(batch.weight.min(initial=math.inf)))
        if has_propensities:
            survey.is_certain &= bool((batch.propensity[is_evaluated] == 1.0).all())
            p = batch.propensity[is_evaluated] if batch.probabilities is None else batch.probabilities[batch.valid]
            survey.smallest = min(survey.smallest, float(p.min(initial=math.inf)))
    if not survey.rows:
        raise ArgumentError("log", log.schema.source, "a log with at least one row", got="none")
    return survey


def choose_floor(log: Log, survey: Survey, floor: float | None) -> tuple[float | None, bool]:
    """Return the floor of all logging probabilities, and whether it was declared.

    Parameters
    ----------
    log, survey
        The log and its survey.
    floor
        The floor that the caller declares, or None for that of the log.

    Returns
    -------
    tuple
        The floor, or None if there is none above 0.
    """
    is_declared = floor is not None or log.schema.is_floor_declared
    if floor is not None:
        floor = check_number("floor", floor, "in [0, 1]", lambda value: 0.0 <= value <= 1.0)
    else:
        floor = log.schema.floor
    if floor is None and log.schema.propensities == "all arms":
        floor = survey.smallest
    if floor is not None and log.schema.propensities != "none" and floor > survey.smallest * (1.0 + SLACK):
        expected = f"at most {survey.smallest:g}, the smallest probability in the log"
        raise ArgumentError("floor", floor, expected)
    return (floor if floor else None), is_declared
