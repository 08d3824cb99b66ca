"""What drifts: the base rate alone, the ranking of arms, the contexts, or the calendar."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import stats

from windvane.arguments import Array, Mask
from windvane.logs.drift.coding import choose_columns
from windvane.logs.drift.context_shift import DAY, ContextShift, compare_contexts
from windvane.logs.drift.logistic_fit import fit_logistic, means
from windvane.logs.drift.rate import fit_block
from windvane.logs.drift.replay import divide
from windvane.logs.drift.rows import RewardedRows, count_rarer
from windvane.logs.drift.score_process import CLOSE, assess_joint

WEEK = 604_800.0
SHORTEST_CALENDAR = 2.0 * DAY  # of a log: without a second day, the hour of day cannot be distinguished from a drift
SHORTEST_WEEKS = 2.0 * WEEK  # of a log, for weekday terms, for the same reason
RARER_PER_TERM = 10.0  # rewards of the rarer kind per coefficient, the usual minimum of a logistic regression
MOST_TERMS = 120  # coefficients of a test, which bounds its time
LARGEST_DESIGN = 1e7  # numbers in the rows with added terms, 80 MB: of a larger log, every k-th row is used
FEWEST_PERIODS, MOST_PERIODS = 16, 64  # with a base rate of their own
RESAMPLES = 199  # of the bootstraps
SMALLEST_P = 1.0 / (1.0 + RESAMPLES)
END_SHARE = 0.25  # of the rows that are the first period, and the last


@dataclass(frozen=True, kw_only=True)
class RankingChange:
    """What it would cost to keep the best arms of the first quarter of the log in its last quarter.

    Attributes
    ----------
    loss : float
        The mean over the offers of the difference between the best arm of the last quarter and that of the first, in
        mean reward (scaled to [0, 1]) in the last quarter.
    limit : float
        Its 95 % quantile if nothing changes and both estimates are only noisy (parametric bootstrap). Arms that are
        nearly equal change places by noise, but that costs little.
    share : float
        The share of offers whose best arm differs.
    offers : int
        The number of offers with at least two arms.
    has_changed : bool
        Whether the loss is above the limit.
    """

    loss: float
    limit: float
    share: float
    offers: int
    has_changed: bool


@dataclass(frozen=True, kw_only=True)
class CalendarTest:
    """Whether hour-of-day and weekday terms (UTC) explain the drift.

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
        What was found.
    p : float
        The fixed-sample test of one theta.
    p_beyond_base_rate : float or None
        The joint score test if each of ``periods`` periods has its own base rate. None if the log is too small for it.
    has_drift : bool
        Whether the log drifts at all, detected or likely.
    is_base_rate_only : bool
        Whether it does, and the test does not reject if every period has its own base rate.
    ranking : RankingChange or None
        None if no offer has two arms.
    contexts : tuple of ContextShift
        Empty if the log has no contexts, or too few.
    calendar : CalendarTest or None
        None if it was not requested or is not possible; ``calendar_note`` says why.
    """

    summary: str
    p: float
    p_beyond_base_rate: float | None
    periods: int
    has_drift: bool
    is_base_rate_only: bool
    ranking: RankingChange | None
    contexts: tuple[ContextShift, ...]
    calendar: CalendarTest | None
    calendar_note: str


def assess_base_rate(rows: RewardedRows, effective: float, seed: int) -> tuple[float | None, int]:
    """Return the p-value of the joint test if every period has its own base rate, and the number of periods."""
    n, d = rows.design.shape
    wanted = max(FEWEST_PERIODS, min(MOST_PERIODS, math.ceil(rows.decisions / effective)))
    kept = _thin(n, d + wanted)
    periods = min(wanted, int(count_rarer(rows.reward[kept]) // RARER_PER_TERM))
    if periods < 2:
        return None, 0
    x, reward = rows.design[kept], rows.reward[kept]
    period = np.searchsorted(divide(len(x), periods), np.arange(len(x)), side="right")
    design = np.zeros((len(x), d + periods))
    design[:, :d] = x
    design[np.arange(len(x)), d + period] = rows.schema.L
    chosen = choose_columns(design)  # the periods explain what the constant of the log explained
    tested = int((chosen < d).sum())
    if not tested:
        return None, 0
    return assess_joint(design[:, chosen], reward, tested, RESAMPLES, np.random.default_rng(seed)), periods


def _thin(n: int, columns: int) -> slice:
    """Return every k-th of n rows, so that the rows with ``columns`` columns are not too large."""
    return slice(None, None, math.ceil(n * columns / LARGEST_DESIGN))


def _measure_losses(before: Array, after: Array, rows: RewardedRows, is_choice: Mask) -> tuple[Array, Array]:
    """Return the loss of the best arms of ``before`` under ``after``, and how often they differ; of thetas [t, d]."""
    values = [
        np.where(rows.valid, np.einsum("okd,td->tok", rows.offers, theta, optimize=True), -np.inf)[:, is_choice]
        for theta in (before, after)
    ]
    best, new = (value.argmax(axis=2) for value in values)
    rewards = means(values[1])
    lost = rewards.max(axis=2) - np.take_along_axis(rewards, best[:, :, None], axis=2)[:, :, 0]
    return lost.mean(axis=1), (best != new).mean(axis=1)


def measure_ranking(rows: RewardedRows, alpha: float, seed: int) -> RankingChange | None:
    """Compare the best arms at the start and at the end of the log."""
    is_choice = rows.valid.sum(axis=1) > 1
    size = int(END_SHARE * len(rows))
    if not is_choice.any() or size <= rows.rank:
        return None
    first, last = slice(0, size), slice(len(rows) - size, None)
    (start, spread), (end, spread_end) = (fit_block(rows.x[p], rows.reward[p], rows.schema.L) for p in (first, last))
    both = np.concatenate([np.arange(size), np.arange(len(rows) - size, len(rows))])
    pooled, _ = fit_block(rows.x[both], rows.reward[both], rows.schema.L)
    rng = np.random.default_rng(seed)
    before, after = (
        rng.multivariate_normal(pooled.theta, each, size=RESAMPLES, method="eigh") for each in (spread, spread_end)
    )
    noise, _ = _measure_losses(before, after, rows, is_choice)
    loss, share = _measure_losses(start.theta[None], end.theta[None], rows, is_choice)
    limit = float(np.quantile(noise, 1.0 - alpha))
    return RankingChange(
        loss=float(loss[0]), limit=limit, share=float(share[0]), offers=int(is_choice.sum()),
        has_changed=bool(loss[0] > limit),
    )  # fmt: skip


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
    n, d = rows.design.shape
    count = 4 if rows.seconds >= SHORTEST_WEEKS else 2
    kept = _thin(n, d + count * (d + 1))
    x, reward = rows.design[kept], rows.reward[kept]
    waves, names = build_calendar(rows.time[kept], rows.seconds)
    columns = d + count * (d + 1)
    has_interactions = columns <= MOST_TERMS and count_rarer(reward) >= RARER_PER_TERM * columns
    design = np.empty((len(x), columns if has_interactions else d + count))
    design[:, :d], design[:, d : d + count] = x, rows.schema.L * waves
    for k in range(count if has_interactions else 0):
        start = d + count + k * d
        np.multiply(x, waves[:, [k]], out=design[:, start : start + d])
    chosen = choose_columns(design)
    design = design[:, chosen]
    rest = assess_joint(design, reward, int((chosen < d).sum()), RESAMPLES, np.random.default_rng(seed))
    fits = [fit_logistic(each, reward, close=CLOSE).log_likelihood for each in (design, x)]
    gain = 2.0 * (fits[0] - fits[1])
    p_terms = float(stats.chi2.sf(gain, design.shape[1] - d))
    explains = p <= alpha < rest and p_terms <= alpha
    return CalendarTest(terms=names, has_interactions=has_interactions, p=rest, p_terms=p_terms, explains=explains), ""


def find_what_drifts(
    rows: RewardedRows, effective: float, p: float, *, has_drift: bool, alpha: float, calendar: bool, seed: int
) -> WhatDrifts:
    """Find out what drifts, given the p-value ``p`` of the fixed-sample test."""
    beyond, periods = assess_base_rate(rows, effective, seed)
    is_base = has_drift and p <= alpha and beyond is not None and beyond > alpha
    ranking, contexts = measure_ranking(rows, alpha, seed), compare_contexts(rows, alpha, seed)
    test, note = assess_calendar(rows, p, alpha, seed) if calendar else (None, "not requested")
    return WhatDrifts(
        summary=_summarise(has_drift, is_base, beyond, ranking, contexts, test), p=p, p_beyond_base_rate=beyond,
        periods=periods, has_drift=has_drift, is_base_rate_only=is_base, ranking=ranking, contexts=contexts,
        calendar=test, calendar_note=note,
    )  # fmt: skip


def _summarise(
    has_drift: bool, is_base: bool, beyond: float | None, ranking: RankingChange | None,
    contexts: tuple[ContextShift, ...], calendar: CalendarTest | None,
) -> str:  # fmt: skip
    """Return what was found, without what is within the noise."""
    shifted = [shift.name for shift in contexts if shift.has_shifted]
    if not has_drift:
        return "The contexts shift; the rewards, given the context, do not." if shifted else "No drift was seen."
    sentences = ["The base rate moves, and no other drift was seen." if is_base else "The coefficients move."]
    if beyond is None:
        sentences[0] = "The coefficients move; the log is too short to tell whether it is only the base rate."
    if ranking is not None and ranking.has_changed:
        sentences.append(f"Other arms are best at the end: the best arm differs in {ranking.share:.0%} of the offers.")
    if calendar is not None and calendar.explains:
        sentences.append(f"The calendar can explain it ({' and '.join(calendar.terms)}).")
    if shifted:
        names = ", ".join(shifted[:5])
        sentences.append(f"The contexts shift, too ({names}): if the model is wrong, that alone looks like drift.")
    return " ".join(sentences)
