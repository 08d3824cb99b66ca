"""Find the usable rows of a log, and report what is wrong with the others."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from windvane.arguments import Index, Mask
from windvane.logs.raw import FieldColumn, RawRows
from windvane.logs.row_problems import WRONG_SUM, Problems

SLACK = 1e-6  # a probability may exceed 1 by the rounding of single precision
SUM_SLACK = 1e-2  # probabilities that were rounded to three digits sum to 1 within this
SAME = 1e-3  # largest difference between two records of the same probability


@dataclass(frozen=True)
class RowRules:
    """What the rows of a log must satisfy beyond the rules for all logs.

    Attributes
    ----------
    arms : collection of str or None
        The names of all possible arms, if they are declared.
    reward_range : tuple of float or None
        The declared range of rewards.
    """

    arms: Collection[str] | None = None
    reward_range: tuple[float, float] | None = None


def find_played(raw: RawRows) -> Index:
    """Return the entry of ``raw.offers`` that was played in each row, or -1 if the arm was not on offer, [n]."""
    assert raw.offers is not None
    codes = {name: code for code, name in enumerate(raw.offers.arm.values or ())}
    table = np.array([*(codes.get(name, -2) for name in raw.arm.values or ()), -2])
    wanted = table[raw.arm.data]
    row = raw.offers.row
    matches = np.flatnonzero(raw.offers.arm.data == wanted[row])[::-1]  # reversed, so that the first one stays
    entry = np.full(len(raw), -1)
    entry[row[matches]] = matches
    return entry


def find_usable(raw: RawRows, problems: Problems, rules: RowRules) -> Mask:
    """Return which rows are usable, [n], and add what is wrong with the others to ``problems``."""
    usable = ~raw.is_bad
    usable &= _check_arms(raw, usable, problems, rules)
    p = raw.probability
    usable &= _report(raw, usable & ~np.isnan(p) & ~((p > 0.0) & (p <= 1.0 + SLACK)), problems,
                      "invalid probability", "propensity", p, "in (0, 1]")  # fmt: skip
    if raw.offers is not None and raw.offers.probability is not None:
        usable &= _check_probabilities(raw, usable, problems)
    if rules.reward_range is not None:
        low, high = rules.reward_range
        outside = usable & ((raw.reward < low) | (raw.reward > high))
        expected = f"in the declared range [{low:g}, {high:g}]"
        usable &= _report(raw, outside, problems, "reward outside its range", "reward", raw.reward, expected)
    early = usable & (raw.reward_time < raw.time)
    expected = "at or after the time of the decision (it is set to that time)"
    _report(raw, early, problems, "reward before its decision", "reward_time", raw.reward_time, expected, False)
    return usable


def _report(
    raw: RawRows, wrong: Mask, problems: Problems, kind: str, field: str, values: npt.NDArray[Any], expected: str,
    is_dropped: bool = True,
) -> Mask:  # fmt: skip
    """Add the rows ``wrong`` to ``problems``, and return the others."""
    if wrong.any():
        problems.add_rows(kind, raw.place[wrong], field, values[wrong], expected, is_dropped=is_dropped)
    return ~wrong


def _check_arms(raw: RawRows, usable: Mask, problems: Problems, rules: RowRules) -> Mask:
    names = np.array([*(raw.arm.values or ()), None], dtype=object)[raw.arm.data]
    is_missing = usable & (raw.arm.data < 0)
    _report(raw, is_missing, problems, "missing arm", "arm", names, "the name of the arm that was played")
    wrong = np.zeros(len(raw), dtype=bool)
    if raw.offers is not None:
        wrong = usable & ~is_missing & (find_played(raw) < 0)
        _report(raw, wrong, problems, "arm not on offer", "arm", names, "one of the arms on offer")
    if rules.arms is not None:
        unknown = usable & ~is_missing & ~wrong & ~_is_one_of(raw.arm, rules.arms)
        _report(raw, unknown, problems, "unknown arm", "arm", names, "one of the declared arms")
        wrong |= unknown
    return ~(is_missing | wrong)


def _is_one_of(column: FieldColumn, names: Collection[str]) -> Mask:
    table = np.array([*(name in names for name in column.values or ()), False])
    return np.asarray(table[column.data])


def _check_probabilities(raw: RawRows, usable: Mask, problems: Problems) -> Mask:
    """Check the probabilities of all arms: each in [0, 1], their sum, and that of the arm that was played."""
    offers, n = raw.offers, len(raw)
    assert offers is not None
    assert offers.probability is not None
    p, row = offers.probability, offers.row
    is_outside = ~np.isnan(p) & ~((p >= 0.0) & (p <= 1.0 + SLACK))
    wrong = np.zeros(n, dtype=bool)
    wrong[row[is_outside]] = True
    wrong &= usable
    extreme = np.zeros(n)
    extreme[row[is_outside]] = p[is_outside]
    fine = _report(raw, wrong, problems, "invalid probability", "probabilities", extreme, "in [0, 1]")
    sums = np.bincount(row, weights=np.nan_to_num(p), minlength=n)
    is_partial = np.bincount(row, weights=np.isnan(p), minlength=n) > 0
    off = usable & fine & ~is_partial & (np.diff(offers.start) > 0) & ~(np.abs(sums - 1.0) <= SUM_SLACK)
    expected = "probabilities that sum to 1"
    _report(raw, off, problems, WRONG_SUM, "probabilities", sums, expected, False)
    entry = find_played(raw)
    own = np.where(entry < 0, np.nan, p[np.maximum(entry, 0)] if len(p) else np.nan)
    differs = usable & fine & (np.abs(own - raw.probability) > SAME)
    expected = "equal to the probability of the played arm in the same row"
    _report(raw, differs, problems, "conflicting probabilities", "propensity", raw.probability, expected, False)
    return fine
