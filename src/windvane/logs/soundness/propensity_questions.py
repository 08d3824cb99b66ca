"""Questions about propensities.

If the recorded propensities p_t are right, an arm a that was on offer has mean(1{a_t = a} / p_t) = 1 over the rows that
offer it, whatever the world and the logging policy, which may learn: each term minus 1 is a martingale difference. So
the mean over arms of these, the mean importance weight of a policy that plays every arm on offer with the same
probability, is also 1. Wrong propensities, rows that were lost depending on the arm, and arms that could never be
played show up as deviations beyond the stated intervals.

The context is known before the arm is drawn, so the same holds in the rows with one value of a field. There,
propensities can be wrong that are right on average: uniform ones for a policy that prefers one arm on phones and
another one on desktops.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from windvane.arguments import Array
from windvane.logs.row_checks import SUM_SLACK
from windvane.logs.soundness.log_columns import LogColumns, invert
from windvane.logs.soundness.verdicts import ArmCheck, CheckLine, count, list_names

LEVEL = 0.01  # of each test: a sound log fails it with probability 1 %
# The sum of 1{a_t = a} / p_t consists of large and rare terms if p_t is small. If an arm is expected to be played this
# often even with the smallest propensity of the log, the skewness of the sum is at most 1 / sqrt(30) = 0.2.
FEWEST_EXPECTED = 30.0
# In contexts: there are many, so their quantile is far in the tail, where the normal approximation needs more terms.
FEWEST_IN_CONTEXT = 100.0
SMALLEST_ERROR = 1e-12  # of a mean: for arms that were always or never played in a context
SMALL_SAMPLE = 100.0  # effective decisions: a standard error of at most 0.05 for a mean of clicks


def check_propensities(columns: LogColumns) -> list[CheckLine]:
    """Check whether propensities are recorded and possible."""
    question, p = "Are propensities recorded?", columns.propensity
    known = ~np.isnan(p)
    if not known.any():
        advice = "record the probability of the arm that was played; without it, other policies cannot be evaluated"
        return [CheckLine(question, "warning", "no", advice)]
    lines = []
    if not known.all():
        finding = f"missing in {count(int((~known).sum()), 'row')}: used for drift, not for evaluating policies"
        advice = "record the probability of the arm that was played in every row"
        lines.append(CheckLine(question, "warning", finding, advice))
    elif (p == 1.0).all() and (columns.count > 1).any():
        finding = "every propensity is 1: the log is deterministic"
        advice = (
            "play a random arm in a small share of decisions (epsilon); without it, other policies cannot be evaluated"
        )
        return [CheckLine(question, "error", finding, advice)]
    else:
        finding = f"yes, from {p.min():.4g} to {p.max():.4g}"
        lines.append(CheckLine(question, "ok", finding))
    total = columns.total_probability
    if total is not None:
        wrong = int((np.abs(total - 1.0) > SUM_SLACK).sum())
        finding = f"not in {count(wrong, 'row')}" if wrong else "yes"
        advice = "correct the logged probabilities" if wrong else ""
        question = "Do the probabilities of all arms add up to 1?"
        lines.append(CheckLine(question, "error" if wrong else "ok", finding, advice))
    return lines


def check_weights(weights: Array) -> list[CheckLine]:
    """Check whether propensities are right on average, and whether there is enough exploration."""
    if not len(weights) or (weights == weights[0]).all():
        return []
    mean, error = float(weights.mean()), float(weights.std(ddof=1)) / math.sqrt(len(weights))
    reach = _quantile(LEVEL) * error
    is_extreme = mean > 1.0 / LEVEL  # by Markov's inequality, however heavy the tail is
    is_off = is_extreme or abs(mean - 1.0) > reach
    finding = f"the mean importance weight is {mean:.4g} ({mean - reach:.4g} to {mean + reach:.4g}), and should be 1"
    advice = "propensities are wrong, or rows were lost depending on the arm" if is_off else ""
    question = "Are propensities right on average?"
    is_tested = len(weights) / float(weights.max()) >= FEWEST_EXPECTED  # the largest weight is 1 / (K p)
    lines = [CheckLine(question, "error" if is_off else "ok", finding, advice)] if is_tested or is_extreme else []
    size = float(weights.sum() ** 2 / np.square(weights).sum())
    is_small = size < SMALL_SAMPLE
    finding = f"a uniformly random policy has {size:,.0f} effective decisions of {len(weights):,}"
    advice = "explore more (a larger epsilon), or collect more rows" if is_small else ""
    question = "Is there enough exploration?"
    lines.append(CheckLine(question, "warning" if is_small else "ok", finding, advice))
    return lines


def check_arms(columns: LogColumns) -> list[ArmCheck]:
    """Return mean(1{a_t = a} / p_t) of each arm with an interval, at a level that holds for all arms together."""
    known = ~np.isnan(columns.propensity)  # rows without a propensity say nothing about it
    arm, inverse, total = columns.arm[known], invert(columns.propensity[known]), len(columns.arms)
    played, tested = (np.bincount(each, minlength=total) for each in (columns.arm, arm))
    sums, squares = np.bincount(arm, inverse, total), np.bincount(arm, np.square(inverse), total)
    reach, lowest = _quantile(LEVEL / max(total, 1)), float(columns.propensity[known].min(initial=1.0))
    checks = []
    for i in np.argsort(-played, kind="stable").tolist():
        n = int(columns.tested[i])
        mean = sums[i] / n if n else math.nan
        spread = max(squares[i] / n - mean**2, 0.0) if n else math.nan
        is_tested = tested[i] > 0 and n * lowest >= FEWEST_EXPECTED
        half = reach * math.sqrt(spread / n) if is_tested else math.nan
        checks.append(
            ArmCheck(
                arm=columns.arms[i], offered=int(columns.offered[i]), played=int(played[i]), mean_weight=mean,
                low=mean - half, high=mean + half,
            )
        )  # fmt: skip
    return checks


def find_excess(columns: LogColumns) -> list[str]:
    """Return the arms that were played too often for their propensities, however small a few of these are.

    mean(min(1{a_t = a} / p_t, n / 30)) is at most 1 in expectation, and no term is too large for the normal
    approximation. So one tiny propensity does not hide that all others are wrong.
    """
    known = ~np.isnan(columns.propensity)
    arm, n, total = columns.arm[known], np.maximum(columns.tested, 1), len(columns.arms)
    capped = np.minimum(invert(columns.propensity[known]), n[arm] / FEWEST_EXPECTED)
    mean = np.bincount(arm, capped, total) / n
    spread = np.maximum(np.bincount(arm, np.square(capped), total) / n - np.square(mean), 0.0)
    is_off = mean - _quantile(LEVEL / max(total, 1)) * np.sqrt(spread / n) > 1.0
    return [columns.arms[i] for i in np.flatnonzero(is_off)]


def check_each_arm(arms: Sequence[ArmCheck], columns: LogColumns) -> list[CheckLine]:
    """Check whether every arm was played, and whether its propensities are right."""
    lines = []
    unplayed = [arm.arm for arm in arms if not arm.played]
    if unplayed:
        finding = f"{count(len(unplayed), 'arm')} on offer but never played: {list_names(unplayed)}"
        advice = "the log has no information about them; a policy that plays them cannot be evaluated"
        lines.append(CheckLine("Was every arm played?", "warning", finding, advice))
    elif len(arms) > 1:
        lines.append(CheckLine("Was every arm played?", "ok", f"yes, all {len(arms)} arms"))
    most = len(arms) / LEVEL  # by Markov's inequality, however heavy the tail is
    excess = set(find_excess(columns))
    tested = [arm for arm in arms if not math.isnan(arm.low) or arm.mean_weight > most or arm.arm in excess]
    if not tested or (columns.propensity == 1.0).all():
        return lines
    off = [arm.arm for arm in tested if not arm.low <= 1.0 <= arm.high]  # also where these are NaN
    question = "Are propensities right for each arm?"
    if off:
        finding, advice = (
            f"not for {list_names(off)}",
            "compare the logged probabilities with those used for the decisions; was the arm on offer in every row?",
        )
        lines.append(CheckLine(question, "error", finding, advice))
    else:
        finding = f"no deviation in the {count(len(tested), 'arm')} on offer often enough"
        lines.append(CheckLine(question, "ok", finding))
    return lines


def check_contexts(columns: LogColumns) -> list[CheckLine]:
    """Check whether the propensities of each arm are right in each context."""
    p = columns.propensity[~np.isnan(columns.propensity)]
    if (p == 1.0).all():
        return []
    lowest = float(p.min())
    tested = [each for each in columns.contexts.list_arms(columns.arms) if each.offered * lowest >= FEWEST_IN_CONTEXT]
    if not tested:
        return []
    question, reach, off = "Are propensities right in each context?", _quantile(LEVEL / len(tested)), []
    for each in tested:
        error = math.sqrt(max(each.square - each.mean**2, 0.0) / each.offered)
        if abs(each.mean - 1.0) > reach * error:
            size = abs(each.mean - 1.0) / max(error, SMALLEST_ERROR)
            off.append((size, f"{each.name} (mean weight {each.mean:.3g})"))
    if not off:
        finding = f"no deviation in {count(len(tested), 'pair')} of an arm and a value of the context"
        return [CheckLine(question, "ok", finding)]
    finding = f"not for {list_names([name for _, name in sorted(off, reverse=True)], most=3)}"
    advice = "compare the logged probabilities with those used for the decisions in these contexts; were rows lost?"
    return [CheckLine(question, "error", finding, advice)]


def _quantile(level: float) -> float:
    """Return the two-sided normal quantile."""
    from scipy.special import ndtri

    return float(ndtri(1.0 - level / 2.0))
