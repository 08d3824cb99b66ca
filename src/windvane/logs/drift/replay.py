"""Replay the log through a bank of filters, to find out how well each memory predicts the rewards."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from windvane.agent.memory import find_half_life
from windvane.arguments import Array, Index
from windvane.estimation.filters import FilterBank
from windvane.kernels.filters import memory_lanes
from windvane.kernels.prequential import BOTH, LEARN, SCORE, replay_events
from windvane.links import Logistic
from windvane.logs.drift.rows import RewardedRows
from windvane.policies.adaptive_glm_ucb import SCALES

SHORTEST = 32.0  # the shortest memory, that of the default policy
RATIO = 4.0  # between memories: the number of rounds over which an expert averages then grows by about sqrt(4) = 2
LONGEST = 1e12  # 1 - 1/m is still known to 1e-4 of 1/m in double precision
BLOCKS = 200  # blocks of rewards: points of the curve of evidence, and units of the bootstrap


@dataclass(frozen=True)
class Replay:
    """Losses of the experts. There is one expert per memory and scale, ordered by memory and then by scale.

    Attributes
    ----------
    memories, scales : [experts]
        The memory (correlation time) in decisions and the scale S of each expert.
    losses : [blocks, experts]
        The sum of -log p(r) over the rewards of each block.
    ends : [blocks]
        The number of rewards up to the end of each block.
    effective : [experts]
        The number of decisions over which each expert averages.
    """

    memories: Array
    scales: Array
    losses: Array
    ends: Index
    effective: Array

    @property
    def scale_count(self) -> int:
        """The number of scales."""
        return len(np.unique(self.scales))

    def mix(self, experts: Array) -> Array:
        """Return the losses per block of the Bayes mixture of some experts, [blocks]: see :func:`mix_losses`."""
        return mix_losses(self.losses[:, experts])


def log_mean(values: Array) -> Array:
    """Return the logarithm of the mean of exp(values) over the last axis."""
    top = values.max(axis=-1)
    return np.asarray(top + np.log(np.exp(values - top[..., None]).mean(axis=-1)))


def choose_memories(decisions: float, information: float, variance: float) -> Array:
    """Return the ladder of memories: 32, 128, ... and infinity.

    Parameters
    ----------
    decisions
        The number of decisions in the log.
    information, variance
        The information of a decision per coordinate, i, and the smallest prior variance of a coordinate, q.

    Notes
    -----
    An expert with memory m averages over n = 1 / sqrt(i Q) decisions if this is short against m, where Q = 2 q / m is
    the variance that a coordinate gains per decision. The ladder ends with the first memory with which an expert
    averages over the whole log, m = 2 i q n^2 for n decisions, or with n if that is longer.

    Examples
    --------
    >>> choose_memories(1000.0, 0.05, 0.5).tolist()
    [32.0, 128.0, 512.0, 2048.0, 8192.0, 32768.0, 131072.0, inf]
    """
    longest = min(max(decisions, 2.0 * information * variance * decisions**2), LONGEST)
    count = 1 + max(0, math.ceil(math.log(longest / SHORTEST, RATIO)))
    return np.array([*(SHORTEST * RATIO**i for i in range(count)), np.inf])


def divide(n: int, blocks: int) -> Index:
    """Return the ends of ``blocks`` nearly equal blocks of n rows; fewer if there are fewer rows."""
    count = min(n, blocks)
    return np.asarray(np.arange(1, count + 1) * n // count, dtype=np.int64)


def order_events(rows: RewardedRows, ends: Index) -> tuple[Index, Array]:
    """Return the events in order, [events, 3] (row, kind, block), and their rounds, [events, 2] (passed, age).

    A reward is scored at its decision and learned when it has arrived. If it arrived before the next decision, both
    are one event, which comes before other rewards that arrive in the same time between two decisions.
    """
    n = len(rows)
    index, block = np.arange(n), np.searchsorted(ends, np.arange(n), side="right")
    age = rows.arrival - rows.clock
    is_late = age > 0.0
    late = index[is_late]
    first = np.where(is_late, SCORE, BOTH)
    events = np.concatenate(
        [np.stack([index, first, block], axis=1), np.stack([late, np.full(len(late), LEARN), block[late]], axis=1)]
    )
    clock = np.concatenate([rows.clock, rows.arrival[late]])
    ages = np.concatenate([np.zeros(n), age[late]])
    # At the same count of decisions, a decision comes before the rewards that arrive after it.
    arrived = np.concatenate([np.full(n, -np.inf), rows.arrival_time[late]])
    order = np.lexsort((arrived, clock))
    clock = clock[order]
    rounds = np.stack([np.diff(clock, prepend=clock[:1]), ages[order]], axis=1)
    return np.ascontiguousarray(events[order]), np.ascontiguousarray(rounds)


def list_scales(rows: RewardedRows) -> Array:
    """Return the scales S of the experts."""
    return np.array(SCALES) / rows.schema.L


def list_memories(rows: RewardedRows) -> Array:
    """Return the memories of the experts. They must not depend on the rewards, or the evidence would not be valid.

    mu' is at most 1/4, which bounds the information of a decision.
    """
    L, dim = rows.schema.L, rows.schema.dim
    return choose_memories(rows.decisions, L**2 / (4.0 * dim), list_scales(rows)[0] ** 2 / dim)


def replay_experts(rows: RewardedRows, memories: Array, ends: Index) -> tuple[Array, FilterBank]:
    """Replay the rows through experts with these memories, each with all scales.

    Return the sum of their losses over each block of rewards, [blocks, experts], and the bank. Its prior is that of the
    coordinates of the log: the same predictions come from vectors in an orthonormal basis of the space that they span.
    """
    scales, schema = list_scales(rows), rows.schema
    bank = FilterBank(
        rows.dim, Logistic(), memories=memories, scales=scales, dispersion=1.0, lanes=1, L=schema.L,
        prior_dim=schema.dim,
    )  # fmt: skip
    events, rounds = order_events(rows, ends)
    losses = np.zeros((len(ends), len(memories) * len(scales)))
    arrays = (bank.lanes, bank.beliefs, bank.dense, bank.work)
    x = np.ascontiguousarray(rows.x)
    replay_events(x, rows.reward, events, rounds, np.ones(1), np.ones(1, dtype=bool), bank.indices, arrays, losses)
    return losses, bank


def mix_losses(losses: Array) -> Array:
    """Return the losses per block of the Bayes mixture of experts with equal prior weights, [blocks].

    The mixture predicts with weights proportional to exp(-loss so far), and its losses telescope.
    """
    return np.diff(-log_mean(-np.cumsum(losses, axis=0)), prepend=0.0)


def replay_log(rows: RewardedRows, information: float) -> Replay:
    """Replay the rows through a bank of filters.

    Parameters
    ----------
    rows
        The rows.
    information
        The mean information of a decision per coordinate, mu' ||x||^2 / d, which turns the memory and the scale of an
        expert into the number of decisions over which it averages.

    Notes
    -----
    Each reward is predicted with the beliefs at its *decision*, which include the rewards that had arrived by then, and
    is learned when it arrives. Predicting rewards in the order of arrival would be wrong: if clicks arrive sooner
    than the absence of clicks, the rewards that arrive first are all clicks although nothing drifts.
    """
    scales, memories = list_scales(rows), list_memories(rows)
    ends = divide(len(rows), BLOCKS)
    losses, bank = replay_experts(rows, memories, ends)
    a, q = (bank.beliefs[name][0].copy() for name in ("a", "q"))
    effective = np.empty(len(a))
    memory_lanes(a, q, np.full(len(a), information), effective)
    return Replay(
        memories=np.repeat(memories, len(scales)), scales=np.tile(scales, len(memories)), losses=losses, ends=ends,
        effective=effective,
    )  # fmt: skip


def to_half_life(memory: float) -> float:
    """Return the number of rounds after which a reward has half its weight, if ``memory`` rounds are averaged.

    Examples
    --------
    >>> round(to_half_life(100.0), 2), to_half_life(float("inf"))
    (68.97, inf)
    """
    return find_half_life([memory], [1.0])
