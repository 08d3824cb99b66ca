"""Questions about rewards that were probably not recorded: in a run of rows, or of an arm.

Notes
-----
Let L rewards all be the lowest one, or all the highest, and c of w other rewards be *different* from it. Suppose that a
reward is different with probability at most q in each of the w rows, and at least q / f in each of the L rows. By
Chernoff's bound for independent rewards,

    P(no different reward in L, c or more in w) <= exp(-q L / f) exp(-q w) (e q w / c)^c,    q w <= c,

which is largest at q = c / (L / f + w), where it is (1 + L / (f w))^-c. Where q w > c, exp(-q L / f) is smaller than
that. So a run of L rows is evidence of c log(1 + L / (f w)) nats, whatever q is.

**Runs.** A run of L rows is compared with the L rows before it and with the L rows after it (fewer at the ends of the
log), and has the smaller of both evidences. If the rate of different rewards is monotone over these rows, however fast
it drifts, one of the sides has rates that are at most those in the run: the bound holds. With f = 2 it also holds if
the rate in the run dips to half of that. There are fewer than n^2 / 2 runs of n rows, and two kinds of rewards, so a
threshold of log(n^2 / level) has a false alarm with probability of at most the level (Bonferroni). A run at an end of
the log is not judged: it cannot be told from drift.

**Arms.** All rewards of an arm are compared with those of all other arms. Arms may differ, and f = 10: a false alarm
needs an arm whose rate is less than a tenth of that of the others, or a policy that plays the arm only while its rate
is. With K arms and two kinds of rewards the threshold is log(2 K / level). A bad arm may earn so little, so this is a
warning.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import NamedTuple

import numpy as np

from windvane.arguments import Array, Index, Mask
from windvane.logs.reward_order import FEWEST_OF_A_KIND
from windvane.logs.soundness.log_columns import LogColumns
from windvane.logs.soundness.verdicts import CheckLine, count, list_names

LEVEL = 0.005  # of each of the two questions
DIP = 2.0  # f of runs: how far the rate of different rewards may fall below that of the rows around
WORSE = 10.0  # f of arms: how much lower the rate of a bad arm may be than that of the others


Counts = Array | Index | float
"""Numbers of rows."""


class _Run(NamedTuple):
    """Consecutive rows with equal rewards, and the share of different ones around them."""

    start: int
    length: int
    reward: float
    share: float


def weigh_absence(length: Counts, different: Counts, compared: Counts, factor: float) -> Array:
    """Return the evidence, in nats, of ``length`` equal rewards where ``different`` of ``compared`` others are not.

    Examples
    --------
    >>> weigh_absence(800.0, 160.0, 800.0, 2.0).round(1).item()  # 800 rows without a click, at a rate of 20 %
    64.9
    """
    return np.asarray(different * np.log1p(length / (factor * np.maximum(compared, 1.0))))


def check_missing_rewards(columns: LogColumns) -> list[CheckLine]:
    """Check whether rewards are missing in a run of rows, or those of an arm."""
    known = np.flatnonzero(~np.isnan(columns.reward))
    if columns.has_times:
        known = known[np.argsort(columns.time[known], kind="stable")]
    reward, arm = columns.reward[known], columns.arm[known]
    kinds = [
        (float(value), reward != value)
        for value in dict.fromkeys([reward.min(initial=np.inf), reward.max(initial=-np.inf)])
        if FEWEST_OF_A_KIND <= (reward != value).sum() <= len(reward) - FEWEST_OF_A_KIND
    ]
    if not kinds:
        return []
    return [_ask_runs(kinds, columns, known), *_ask_arms(kinds, columns, arm)]


def _ask_runs(kinds: list[tuple[float, Mask]], columns: LogColumns, known: Index) -> CheckLine:
    question = "Are there rewards of each kind throughout?"
    runs = [run for value, is_different in kinds for run in find_runs(value, is_different)]
    if not runs:
        return CheckLine(question, "ok", "yes, no run of equal rewards is too long to be chance")
    longest = max(runs, key=lambda run: run.length)
    row = int(known[longest.start])
    at = f", {datetime.fromtimestamp(columns.time[row], UTC):%Y-%m-%d %H:%M} UTC" if columns.has_times else ""
    others = f", and {count(len(runs) - 1, 'more such run')}" if len(runs) > 1 else ""
    finding = (
        f"no: {longest.length:,} rows one after another have the reward {longest.reward:g} (from row {row + 1:,} on"
        f"{at}), but {100.0 * longest.share:.2g} % of the rows before and after have another one{others}"
    )
    advice = "were rewards recorded at that time? If not, remove these rows"
    return CheckLine(question, "warning", finding, advice)


def find_runs(value: float, is_different: Mask) -> list[_Run]:
    """Return the runs of rows with the reward ``value`` that are too long to be chance; not those at the ends."""
    n, at = len(is_different), np.flatnonzero(is_different)
    start, end = at[:-1] + 1, at[1:]
    length = end - start
    total = np.concatenate([[0], np.cumsum(is_different)])
    first, last = np.maximum(start - length, 0), np.minimum(end + length, n)
    before, after = total[start] - total[first], total[last] - total[end]
    evidence = np.minimum(
        weigh_absence(length, before, start - first, DIP), weigh_absence(length, after, last - end, DIP)
    )
    share = (before + after) / np.maximum(start - first + last - end, 1)
    found = np.flatnonzero(evidence > 2.0 * math.log(n) - math.log(LEVEL))
    return [_Run(int(start[i]), int(length[i]), value, float(share[i])) for i in found]


def _ask_arms(kinds: list[tuple[float, Mask]], columns: LogColumns, arm: Index) -> list[CheckLine]:
    question, arms = "Do the rewards of each arm differ?", len(columns.arms)
    played = np.bincount(arm, minlength=arms)
    if (played > 0).sum() < 2:
        return []
    found = []
    for value, is_different in kinds:
        different = np.bincount(arm[is_different], minlength=arms)
        others, rest = different.sum() - different, played.sum() - played
        evidence = np.where(different == 0, weigh_absence(played, others, rest, WORSE), 0.0)
        percent = 100.0 * others / np.maximum(rest, 1)
        found += [
            f"{columns.arms[i]} (all {played[i]:,} are {value:g}, but {percent[i]:.2g} % of the others are not)"
            for i in np.flatnonzero(evidence > math.log(2.0 * arms / LEVEL))
        ]
    if not found:
        return [CheckLine(question, "ok", "yes, or there are too few to tell")]
    advice = "were the rewards of this arm recorded? It may also be a very bad, or a very good, one"
    return [CheckLine(question, "warning", f"not those of {list_names(found, most=3)}", advice)]
