"""Evidence that theta* drifts, by universal inference: valid at any time and for any logging policy.

Notes
-----
The null hypothesis is that E[r_s | x_s, past] = mu(<x_s, theta>) for one theta and all s. With predictive densities
p_m(r | past) of the experts m of a bank,

    log E_t = log mean_m prod_{s <= t} p_m(r_s | past) - sup_theta sum_{s <= t} log p_theta(r_s | x_s).

**E is bounded by a test supermartingale.** Fix the true theta. The ratio of one reward, with q the mixture's prediction
and p = mu(<x, theta>), is a^r b^(1-r) for a = q / p and b = (1 - q) / (1 - p). It is convex in r, so it is at most
r a + (1 - r) b on [0, 1], whose conditional mean is p a + (1 - p) b = q + (1 - q) = 1. This needs the conditional mean
of the reward only: rewards may be fractions. So the product of the ratios is a nonnegative supermartingale that starts
at 1, and E_t is not above it, because the supremum is at least the likelihood of the true theta. By Ville's inequality
the probability that E_t ever reaches 1 / alpha is at most alpha. The largest E at any set of checkpoints can be used.

**Late rewards.** The reward of decision s is predicted with what was known at decision s. In the filtration that
reveals the reward of each decision together with the decision, the past of a prediction is known. So the argument holds
whatever the delays depend on, even if they depend on the reward. It does not hold if whether a reward is missing
depends on its value.

**Misspecification.** A wrong model together with contexts that shift is also rejected, because no single theta fits
all parts of the log.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from windvane.arguments import Array
from windvane.logs.drift.logistic_fit import bound_supremum
from windvane.logs.drift.replay import Replay, log_mean
from windvane.logs.drift.rows import RewardedRows

FEWEST = 200  # rewards: blocks of one reward are the least that a curve of 200 points needs
FEWEST_RARER = 50  # rewards of the rarer kind: a rate is then known to about 1 / sqrt(50) = 14 %
FEWEST_PER_COORDINATE = 10  # rewards of the rarer kind per coordinate, the usual minimum of a logistic regression

DRIFT, NO_DRIFT, UNKNOWN = "drift", "no drift seen", "cannot be answered"


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """The verdict and its evidence.

    Attributes
    ----------
    verdict : str
        "drift", "no drift seen" or "cannot be answered".
    reason : str
        Why the question cannot be answered; "" otherwise.
    log_e, threshold : float
        The largest log E of the curve, and log(1 / alpha). The verdict is "drift" if log E reaches it.
    decisions, curve : tuple of float
        log E after these numbers of decisions.
    first_decision, first_time
        The decision after which E first reached 1 / alpha, and its time; None if it never did.
    """

    verdict: str
    reason: str
    log_e: float
    threshold: float
    decisions: tuple[float, ...]
    curve: tuple[float, ...]
    first_decision: float | None
    first_time: float | None


def find_refusal(rows: RewardedRows) -> str:
    """Return why the rows are too few for a verdict; "" if they suffice."""
    n, rarer = len(rows), rows.rarer
    if n < FEWEST:
        return f"the log has {n} rewards, and at least {FEWEST} are needed"
    if rarer < FEWEST_RARER:
        kind = "above" if float(rows.reward.mean()) <= 0.5 else "below"
        return (
            f"only {rarer:.4g} of {n:,} rewards are of the rarer kind ({kind} the middle), "
            f"and at least {FEWEST_RARER} are needed"
        )
    if rarer < FEWEST_PER_COORDINATE * rows.dim:
        return (
            f"the log has {rarer:.4g} rewards of the rarer kind for {rows.dim} coordinates, "
            f"and at least {FEWEST_PER_COORDINATE} per coordinate are needed"
        )
    return ""


def compute_curve(rows: RewardedRows, replay: Replay) -> Array:
    """Return log E after each block of the replay."""
    mixture = log_mean(-np.cumsum(replay.losses, axis=0))
    theta, upper = np.zeros(rows.dim), np.empty(len(replay.ends))
    for i, end in enumerate(replay.ends):
        supremum = bound_supremum(rows.x[:end], rows.reward[:end], theta, rows.schema.L)
        upper[i], theta = supremum.upper, supremum.theta
    return np.asarray(mixture - upper)


def weigh_evidence(rows: RewardedRows, replay: Replay, alpha: float) -> Evidence:
    """Return the verdict at level ``alpha``, from the curve of evidence."""
    curve, threshold = compute_curve(rows, replay), math.log(1.0 / alpha)
    reason = find_refusal(rows)
    reached = np.flatnonzero(curve >= threshold)
    last = replay.ends - 1
    is_seen = not reason and bool(len(reached))
    first = int(last[reached[0]]) if is_seen else None
    return Evidence(
        verdict=UNKNOWN if reason else DRIFT if is_seen else NO_DRIFT,
        reason=reason,
        log_e=float(curve.max()),
        threshold=threshold,
        decisions=tuple(rows.clock[last].tolist()),
        curve=tuple(curve.tolist()),
        first_decision=None if first is None else float(rows.clock[first]),
        first_time=None if first is None or not rows.schema.has_times else float(rows.time[first]),
    )
