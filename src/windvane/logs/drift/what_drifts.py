"""What drifts: the base rate alone, the ranking of arms, the contexts, or the calendar."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import stats

from windvane.arguments import Array
from windvane.logs.drift.logistic_fit import fit_logistic
from windvane.logs.drift.rate import fit_block
from windvane.logs.drift.replay import divide
from windvane.logs.drift.rows import RewardedRows, count_rarer
from windvane.logs.drift.score_process import CLOSE, assess_joint, holm

DAY, WEEK = 86_400.0, 604_800.0
SHORTEST_CALENDAR = 2.0 * DAY  # of a log: without a second day, the hour of day cannot be distinguished from a drift
SHORTEST_WEEKS = 2.0 * WEEK  # of a log, for weekday terms, for the same reason
RARER_PER_TERM = 10.0  # rewards of the rarer kind per coefficient, the usual minimum of a logistic regression
MOST_TERMS = 120  # coefficients of a test, which bounds its time
LARGEST_DESIGN = 1e7  # numbers in the rows with added terms, 80 MB: of a larger log, every k-th row is used
FEWEST_PERIODS, MOST_PERIODS = 16, 64  # with a base rate of their own
RESAMPLES = 199  # of the bootstraps
END_SHARE = 0.25  # of the rows that are the first period, and the last


@dataclass(frozen=True, kw_only=True)
class RankingChange:
    """How often the best arm differs between the first and the last quarter of the log.

    ``expected`` is the mean share that the noise of the two estimates alone would give, and ``limit`` its 95 %
    quantile (parametric bootstrap). The ranking has changed if ``share`` is above the limit.
    """

    share: float
    expected: float
    limit: float
    offers: int
    has_changed: bool


@dataclass(frozen=True, kw_only=True)
class ContextShift:
    """A coordinate of the contexts, first half against second half: Kolmogorov-Smirnov distance and Holm's p-value.

    The p-value assumes independent contexts. It is too small if consecutive contexts are correlated.
    """

    name: str
    distance: float
    p: float
    has_shifted: bool


@dataclass(frozen=True, kw_only=True)
class CalendarTest:
    """Whether hour-of-day and weekday terms explain the drift.

    ``p`` is that of the joint score test with the terms, ``p_terms`` that of a likelihood-ratio test of the terms.
    """

    terms: tuple[str, ...]
    has_interactions: bool
    p: float
    p_terms: float
    explains: bool


@dataclass(frozen=True, kw_only=True)
class WhatDrifts:
    """What drifts.

    Attributes
    ----------
    summary : str
        One sentence.
    p : float
        The joint score test of one theta.
    p_beyond_base_rate : float or None
        The same if each of ``periods`` periods has its own base rate. None if the log is too small for it.
    is_base_rate_only : bool
        Whether the joint test rejects without these base rates, and does not reject with them.
    ranking : RankingChange or None
        None if no offer has two arms.
    contexts : tuple of ContextShift
        Empty if the log has no contexts.
    calendar : CalendarTest or None
        None if it was not requested or is not possible; ``calendar_note`` says why.
    """

    summary: str
    p: float
    p_beyond_base_rate: float | None
    periods: int
    is_base_rate_only: bool
    ranking: RankingChange | None
    contexts: tuple[ContextShift, ...]
    calendar: CalendarTest | None
    calendar_note: str


def assess_base_rate(rows: RewardedRows, effective: float, seed: int) -> tuple[float | None, int]:
    """Return the p-value of the joint test if every period has its own base rate, and the number of periods."""
    n, d = rows.x.shape
    wanted = max(FEWEST_PERIODS, min(MOST_PERIODS, math.ceil(rows.decisions / effective)))
    kept = _thin(n, d + wanted)
    periods = min(wanted, int(count_rarer(rows.reward[kept]) // RARER_PER_TERM))
    if periods < 2:
        return None, 0
    x, reward = rows.x[kept], rows.reward[kept]
    period = np.searchsorted(divide(len(x), periods), np.arange(len(x)), side="right")
    design = np.zeros((len(x), d + periods))
    design[:, :d] = x
    design[np.arange(len(x)), d + period] = rows.schema.L
    return assess_joint(design, reward, d, RESAMPLES, np.random.default_rng(seed)), periods


def _thin(n: int, columns: int) -> slice:
    """Return every k-th of n rows, so that the rows with ``columns`` columns are not too large."""
    return slice(None, None, math.ceil(n * columns / LARGEST_DESIGN))


def _find_best(thetas: Array, rows: RewardedRows) -> Array:
    """Return the best arm of each offer for each theta, [thetas, offers]."""
    values = np.einsum("okd,td->tok", rows.offers, thetas, optimize=True)
    return np.asarray(np.where(rows.valid, values, -np.inf).argmax(axis=2))


def measure_ranking(rows: RewardedRows, alpha: float, seed: int) -> RankingChange | None:
    """Compare the best arms at the start and at the end of the log."""
    is_choice = rows.valid.sum(axis=1) > 1
    size = int(END_SHARE * len(rows))
    if not is_choice.any() or size <= rows.dim:
        return None
    first, last = slice(0, size), slice(len(rows) - size, None)
    (start, spread), (end, spread_end) = (fit_block(rows.x[p], rows.reward[p], rows.schema.L) for p in (first, last))
    both = np.concatenate([np.arange(size), np.arange(len(rows) - size, len(rows))])
    pooled, _ = fit_block(rows.x[both], rows.reward[both], rows.schema.L)
    rng = np.random.default_rng(seed)
    drawn = [
        rng.multivariate_normal(pooled.theta, each, size=RESAMPLES, method="eigh") for each in (spread, spread_end)
    ]
    noise = (_find_best(drawn[0], rows) != _find_best(drawn[1], rows))[:, is_choice].mean(axis=1)
    best = _find_best(np.stack([start.theta, end.theta]), rows)[:, is_choice]
    share, limit = float((best[0] != best[1]).mean()), float(np.quantile(noise, 1.0 - alpha))
    return RankingChange(
        share=share, expected=float(noise.mean()), limit=limit, offers=int(is_choice.sum()), has_changed=share > limit
    )


def compare_contexts(rows: RewardedRows, alpha: float) -> tuple[ContextShift, ...]:
    """Test every coordinate of the contexts, first half of the decisions against second half."""
    late = rows.context_clock > 0.5 * rows.decisions
    if not rows.contexts.shape[1] or not late.any() or late.all():
        return ()
    results = [
        stats.ks_2samp(column[~late], column[late], method="asymp") for column in np.ascontiguousarray(rows.contexts.T)
    ]
    adjusted = holm(np.array([float(result.pvalue) for result in results]))
    names = rows.schema.context_names or tuple(f"c{i + 1}" for i in range(len(results)))
    return tuple(
        ContextShift(name=name, distance=float(result.statistic), p=float(p), has_shifted=bool(p <= alpha))
        for name, result, p in zip(names, results, adjusted, strict=True)
    )


def build_calendar(time: Array, seconds: float) -> tuple[Array, tuple[str, ...]]:
    """Return sine and cosine of the hour of the day, and of the weekday for a log of two weeks, and their names."""
    periods = [("hour of day", DAY)] + ([("weekday", WEEK)] if seconds >= SHORTEST_WEEKS else [])
    angles = [2.0 * math.pi * np.mod(time, length) / length for _, length in periods]
    return np.stack([wave(angle) for angle in angles for wave in (np.sin, np.cos)], axis=1), tuple(
        n for n, _ in periods
    )


def assess_calendar(rows: RewardedRows, p: float, alpha: float, seed: int) -> tuple[CalendarTest | None, str]:
    """Return the test with calendar terms, or None and the reason.

    The terms are added to the base rate and, if the rewards suffice for them, to every coefficient.
    """
    if rows.seconds is None:
        return None, "the log has no times"
    if rows.seconds < SHORTEST_CALENDAR:
        return None, "the log is shorter than two days"
    n, d = rows.x.shape
    count = 4 if rows.seconds >= SHORTEST_WEEKS else 2
    kept = _thin(n, d + count * (d + 1))
    x, reward = rows.x[kept], rows.reward[kept]
    waves, names = build_calendar(rows.time[kept], rows.seconds)
    columns = d + count * (d + 1)
    has_interactions = columns <= MOST_TERMS and count_rarer(reward) >= RARER_PER_TERM * columns
    design = np.empty((len(x), columns if has_interactions else d + count))
    design[:, :d], design[:, d : d + count] = x, rows.schema.L * waves
    for k in range(count if has_interactions else 0):
        start = d + count + k * d
        np.multiply(x, waves[:, [k]], out=design[:, start : start + d])
    rest = assess_joint(design, reward, d, RESAMPLES, np.random.default_rng(seed))
    fits = [fit_logistic(each, reward, close=CLOSE).log_likelihood for each in (design, x)]
    gain = 2.0 * (fits[0] - fits[1])
    p_terms = float(stats.chi2.sf(gain, design.shape[1] - d))
    explains = p <= alpha < rest and p_terms <= alpha
    return CalendarTest(terms=names, has_interactions=has_interactions, p=rest, p_terms=p_terms, explains=explains), ""


def find_what_drifts(
    rows: RewardedRows, effective: float, p: float, *, has_drift: bool, alpha: float, calendar: bool, seed: int
) -> WhatDrifts:
    """Find out what drifts, given the p-value ``p`` of the joint score test."""
    beyond, periods = assess_base_rate(rows, effective, seed)
    is_base = has_drift and p <= alpha and beyond is not None and beyond > alpha
    ranking, contexts = measure_ranking(rows, alpha, seed), compare_contexts(rows, alpha)
    test, note = assess_calendar(rows, p, alpha, seed) if calendar else (None, "not requested")
    if not has_drift:
        summary = "No drift was seen." if p > alpha else f"The coefficients may drift: the score test has p = {p:.2g}."
        if any(shift.has_shifted for shift in contexts):
            summary = "The contexts shift; no drift of the rewards given the context was seen." if p > alpha else (
                f"The contexts shift. {summary}")  # fmt: skip
    else:
        moves = "the base rate moves, and no other drift was seen" if is_base else "the coefficients move"
        order = "" if ranking is None else (
            f"; the best arm changed in {100 * ranking.share:.0f} % of offers (by noise alone: "
            f"{100 * ranking.expected:.0f} %)")  # fmt: skip
        clock = f"; {' and '.join(test.terms)} can explain the drift" if test is not None and test.explains else ""
        shifted = [shift.name for shift in contexts if shift.has_shifted]
        doubt = f" Contexts shift, too ({', '.join(shifted[:5])}): if the model is wrong, that alone looks like drift."
        summary = f"{moves[0].upper()}{moves[1:]}{order}{clock}.{doubt if shifted else ''}"
    return WhatDrifts(
        summary=summary, p=p, p_beyond_base_rate=beyond, periods=periods, is_base_rate_only=is_base, ranking=ranking,
        contexts=contexts, calendar=test, calendar_note=note,
    )  # fmt: skip
