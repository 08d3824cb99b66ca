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

**Groups.** Where only a few arms drift, or one arm on phones, most coefficients need not be learned again, and the
supremum over all of them is costly. So the same ratio E_g is computed on the rows of each group g of a partition
(:mod:`windvane.logs.drift.partitions`): the group of a decision is known beforehand, and one theta for all rows is one
theta for the rows of g. Groups have no rows in common, so the product over any set of groups of the ratios with the
true theta is a supermartingale as well, and so is a mean of such products. With each group in the set with probability
rho, independently, the mean is

    prod_g (1 - rho + rho E_g),

of which a weighted mean over rho = 1, 1/2, 1/4, ..., 1/64 is taken. A group that does not drift then costs at most a
factor of 1 - rho, not its E_g. The evidence is a weighted mean over the partitions: all rows 1/2, by arm 1/4, by cell
1/4. A partition that is not used counts as 0, with its weight. So the choice of partitions, which rewards can
influence, makes E only smaller. The predictions q of a group are those of a bank with its vectors and of one with its
level alone, which learns a level sooner where the other coefficients hardly matter: any prediction from the past is
allowed.

**Misspecification.** A wrong model together with contexts that shift is also rejected, because no single theta fits
all parts of the log.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from windvane.arguments import Array, Index
from windvane.logs.drift.coding import find_row_space
from windvane.logs.drift.logistic_fit import bound_supremum
from windvane.logs.drift.partitions import ALL, WEIGHTS, Partition, list_partitions
from windvane.logs.drift.replay import Replay, list_memories, log_mean, replay_experts
from windvane.logs.drift.rows import RewardedRows
from windvane.logs.reward_order import measure_order

FEWEST = 200  # rewards: blocks of one reward are the least that a curve of 200 points needs
FEWEST_RARER = 50  # rewards of the rarer kind: a rate is then known to about 1 / sqrt(50) = 14 %
FEWEST_PER_COORDINATE = 10  # rewards of the rarer kind per coefficient, the usual minimum of a logistic regression
SHARES = 2.0 ** -np.arange(7)  # rho: from all groups to one of 64, the largest number of groups
SHARE_WEIGHTS = np.array([0.1, 0.3, 0.25, 0.15, 0.1, 0.05, 0.05])  # of rho: most logs have few groups

DRIFT, NO_DRIFT, UNKNOWN = "drift", "no drift seen", "cannot be answered"


@dataclass(frozen=True, kw_only=True)
class GroupEvidence:
    """The largest log E of the rows of one group, such as an arm."""

    partition: str
    group: str
    log_e: float


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """The verdict that is valid at any time, and its evidence.

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
    groups : tuple of GroupEvidence
        The groups of all partitions, from the largest log E on. One alone is no verdict: there are many.
    """

    verdict: str
    reason: str
    log_e: float
    threshold: float
    decisions: tuple[float, ...]
    curve: tuple[float, ...]
    first_decision: float | None
    first_time: float | None
    groups: tuple[GroupEvidence, ...] = ()


def find_refusal(rows: RewardedRows) -> str:
    """Return why the rows are too few for a verdict, or not in the order of the decisions; "" if they suffice."""
    n, rarer = len(rows), rows.rarer
    if n < FEWEST:
        return f"the log has {n} rewards, and at least {FEWEST} are needed"
    if rarer < FEWEST_RARER:
        kind = "above" if float(rows.reward.mean()) <= 0.5 else "below"
        return (
            f"only {rarer:.4g} of {n:,} rewards are of the rarer kind ({kind} the middle), "
            f"and at least {FEWEST_RARER} are needed"
        )
    if rarer < FEWEST_PER_COORDINATE * rows.rank:
        return (
            f"the log has {rarer:.4g} rewards of the rarer kind for {rows.rank} coefficients, "
            f"and at least {FEWEST_PER_COORDINATE} per coefficient are needed"
        )
    order = measure_order(rows.reward)
    if order is not None and order.is_sorted:
        return f"the rows are sorted by reward, and such an order says nothing about drift ({order})"
    return ""


def compute_curve(rows: RewardedRows, losses: Array, ends: Index) -> Array:
    """Return log E after each block, given the losses of the experts in the blocks, which end at ``ends``."""
    mixture = log_mean(-np.cumsum(losses, axis=0))
    theta, upper = np.zeros(rows.dim), np.empty(len(ends))
    for i, end in enumerate(ends):
        supremum = bound_supremum(rows.x[:end], rows.reward[:end], theta, rows.schema.L)
        upper[i], theta = supremum.upper, supremum.theta
    return np.asarray(mixture - upper)


def compute_group_curves(rows: RewardedRows, partition: Partition, ends: Index) -> Array:
    """Return log E of each group after each block of all rows, [groups, blocks]; 0 before its first row."""
    memories, curves = list_memories(rows), np.zeros((len(partition.labels), len(ends)))
    for group in range(len(partition.labels)):
        index = np.flatnonzero(partition.group == group)
        some = rows.restrict(index, find_row_space(rows.x[index]))
        seen = np.searchsorted(index, ends)  # rows of the group up to the end of each block
        own = np.unique(seen[seen > 0])
        level = replace(some, x=np.full((len(index), 1), rows.schema.L))
        losses = np.concatenate([replay_experts(each, memories, own)[0] for each in (some, level)], axis=1)
        curve = np.concatenate([[0.0], compute_curve(some, losses, own)])
        curves[group] = curve[np.searchsorted(own, seen, side="right")]
    return curves


def combine_groups(curves: Array) -> Array:
    """Return the logarithm of the mean over rho of prod_g (1 - rho + rho E_g), [blocks].

    Examples
    --------
    >>> log_e = combine_groups(np.zeros((3, 1)))  # E = 1 in every group
    >>> np.exp(log_e).round(12).tolist()
    [1.0]
    """
    with np.errstate(divide="ignore"):
        outside, inside = np.log1p(-SHARES), np.log(SHARES)
    terms = np.logaddexp(outside[:, None, None], inside[:, None, None] + curves).sum(axis=1)
    return np.asarray(np.logaddexp.reduce(terms + np.log(SHARE_WEIGHTS)[:, None]))


def weigh_evidence(rows: RewardedRows, replay: Replay, alpha: float) -> Evidence:
    """Return the verdict at level ``alpha``, from the curve of evidence."""
    curves, groups = {ALL: compute_curve(rows, replay.losses, replay.ends)}, []
    for partition in list_partitions(rows):
        parts = compute_group_curves(rows, partition, replay.ends)
        curves[partition.name] = combine_groups(parts)
        for label, part in zip(partition.labels, parts, strict=True):
            groups.append(GroupEvidence(partition=partition.name, group=label, log_e=float(part.max())))
    curve = np.logaddexp.reduce([part + math.log(WEIGHTS[name]) for name, part in curves.items()])
    threshold, reason = math.log(1.0 / alpha), find_refusal(rows)
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
        groups=tuple(sorted(groups, key=lambda each: -each.log_e)),
    )
