"""The memory that predicts best, with an interval, and the cost of never forgetting.

The experts of a replay differ in their memory m, the correlation time of theta*, and in their scale. An expert averages
over n_eff decisions, its *effective memory*, which depends on both and on the information of a decision: an expert with
a long memory and a large scale can follow theta* as closely as one with a short memory and a small scale. So the
log determines the effective memory, and gamma = 1 - 1 / n_eff is the equivalent discount.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from windvane.arguments import Array, Mask
from windvane.logs.drift.replay import Replay, to_half_life
from windvane.logs.drift.rows import RewardedRows

BLOCKS = 50  # blocks of the bootstrap: four of the replay each, longer than the memories between which it decides
RESAMPLES = 999  # of the blocks: the standard error of a 5 % level is then 0.7 %
CONFIDENCE = 0.95


@dataclass(frozen=True, kw_only=True)
class MemoryLoss:
    """The log loss per reward of one memory (correlation time), mixed over the scales.

    ``effective`` is the effective memory of its best scale. ``is_candidate``: no other memory is significantly better.
    """

    memory: float
    effective: float
    loss: float
    is_candidate: bool


@dataclass(frozen=True, kw_only=True)
class HalfLifeLoss:
    """The log loss per reward of an expert, by the half-life of a reward in decisions (infinity: never forgetting).

    ``is_candidate``: no other expert is significantly better.
    """

    half_life: float
    loss: float
    is_candidate: bool


@dataclass(frozen=True, kw_only=True)
class BestMemory:
    """The memory that predicted best. Infinity means never forgetting.

    Attributes
    ----------
    effective, effective_low, effective_high : float
        The number of decisions over which the best expert averages, and its interval: that of the experts that are
        not significantly worse than any other (95 %, paired block bootstrap), up to halfway to their neighbours.
    gamma, gamma_low, gamma_high : float
        1 - 1 / effective: the equivalent discount.
    half_life, half_life_low, half_life_high : float
        Decisions after which a reward has lost half of its information, log(1/2) / log(gamma).
    half_life_seconds, half_life_seconds_low, half_life_seconds_high : float or None
        The same in seconds, at the mean pace of the log. None if the log has no times.
    correlation_time, correlation_half_life, correlation_half_life_seconds
        The shortest memory of an expert that is not significantly worse than any other when the scale is unknown, in
        decisions, and the decisions after which the correlation of theta* with its old value is then 1/2. The latter
        is what ``half_life`` means for the default policy of an agent. None in seconds if the log has no times.
    losses : tuple of MemoryLoss
        The mean loss per reward of every memory (correlation time).
    half_lives : tuple of HalfLifeLoss
        The mean loss per reward of the best expert in each octave of half-lives, increasing.
    """

    effective: float
    effective_low: float
    effective_high: float
    gamma: float
    gamma_low: float
    gamma_high: float
    half_life: float
    half_life_low: float
    half_life_high: float
    half_life_seconds: float | None
    half_life_seconds_low: float | None
    half_life_seconds_high: float | None
    correlation_time: float
    correlation_half_life: float
    correlation_half_life_seconds: float | None
    losses: tuple[MemoryLoss, ...]
    half_lives: tuple[HalfLifeLoss, ...]


@dataclass(frozen=True, kw_only=True)
class Cost:
    """The cost of never forgetting against the best memory: nats of log loss per 1,000 rewards (95 % interval)."""

    per_thousand: float
    low: float
    high: float


def merge_blocks(losses: Array, blocks: int = BLOCKS) -> Array:
    """Return the sums of losses over ``blocks`` groups of consecutive rows, [blocks, ...]."""
    groups = np.array_split(np.arange(len(losses)), min(blocks, len(losses)))
    return np.stack([losses[group].sum(axis=0) for group in groups])


def resample_sums(losses: Array, rng: np.random.Generator) -> Array:
    """Return the sums over blocks that are drawn with replacement, [resamples, columns]."""
    count = len(losses)
    draws = rng.multinomial(count, np.full(count, 1.0 / count), size=RESAMPLES)
    return np.asarray(draws @ losses)


def find_candidates(losses: Array, rng: np.random.Generator) -> Mask:
    """Return which columns are not significantly worse than any other.

    Parameters
    ----------
    losses
        Losses, [blocks, columns]; blocks are taken as exchangeable.
    rng
        Source of the resamples.

    Notes
    -----
    Column g is a candidate unless T_g = max_h (loss_g - loss_h) / s_gh is above the 95 % quantile of its centred
    bootstrap distribution, where s_gh is the standard error of the difference. The test of each column has level 5 %,
    so the best column is a candidate with probability 95 %.

    Examples
    --------
    >>> losses = np.random.default_rng(0).normal([1.0, 1.0, 2.0], 0.1, size=(50, 3))
    >>> find_candidates(losses, np.random.default_rng(1)).tolist()
    [True, True, False]
    """
    total = losses.sum(axis=0)
    noise = resample_sums(losses, rng) - total
    is_candidate = np.zeros(len(total), dtype=bool)
    for g in range(len(total)):
        centred = noise[:, [g]] - noise
        spread = centred.std(axis=0)
        others = spread > 1e-12 * (1.0 + np.abs(total))  # a column that does not differ from g says nothing about it
        if not others.any():
            is_candidate[g] = True
            continue
        worst = ((total[g] - total[others]) / spread[others]).max()
        is_candidate[g] = worst <= np.quantile((centred[:, others] / spread[others]).max(axis=1), CONFIDENCE)
    return is_candidate


def spread_to_neighbours(effective: Array) -> tuple[Array, Array]:
    """Return the intervals of effective memories that experts on a grid stand for, [memories, scales] each.

    An expert stands for all values up to the geometric mean of its own and that of the next memory with the same scale.
    The shortest memory and the longest finite one reach as far outwards as inwards.

    Examples
    --------
    >>> lows, highs = spread_to_neighbours(np.array([[4.0], [16.0], [float("inf")]]))
    >>> lows.ravel().round(6).tolist(), highs.ravel().round(6).tolist()
    ([2.0, 8.0, 32.0], [8.0, 32.0, inf])
    """
    logs = np.log(effective[:-1])
    steps = np.diff(logs, axis=0)
    if not len(steps):  # one finite memory
        steps = np.full((1, effective.shape[1]), math.log(2.0))
    edges = np.exp(
        np.concatenate([logs[:1] - steps[:1] / 2, logs[:-1] + np.diff(logs, axis=0) / 2, logs[-1:] + steps[-1:] / 2])
    )
    return edges, np.concatenate([edges[1:], effective[-1:]])


def choose_memory(rows: RewardedRows, replay: Replay, seed: int) -> BestMemory:
    """Return the best memory with its interval."""
    total = replay.losses.sum(axis=0)
    best = int(total.argmin())
    candidates = find_candidates(merge_blocks(replay.losses), np.random.default_rng(seed))
    candidates[best] = True  # the one of the headline
    lows, highs = spread_to_neighbours(replay.effective.reshape(-1, replay.scale_count))
    low, high = lows.ravel()[candidates].min(), highs.ravel()[candidates].max()
    values = [float(replay.effective[best]), float(low), float(high)]
    half_lives = [to_half_life(value) for value in values]
    pace = rows.seconds_per_decision
    seconds = [None if pace is None else pace * value for value in half_lives]
    gammas = [1.0 - 1.0 / max(value, 1.0) for value in values]
    table = _tabulate(replay, len(rows), np.random.default_rng(seed))
    preferred = next(entry.memory for entry in table if entry.is_candidate)
    return BestMemory(
        effective=values[0], effective_low=values[1], effective_high=values[2],
        gamma=gammas[0], gamma_low=gammas[1], gamma_high=gammas[2],
        half_life=half_lives[0], half_life_low=half_lives[1], half_life_high=half_lives[2],
        half_life_seconds=seconds[0], half_life_seconds_low=seconds[1], half_life_seconds_high=seconds[2],
        correlation_time=preferred, correlation_half_life=to_half_life(preferred), losses=table,
        correlation_half_life_seconds=None if pace is None else pace * to_half_life(preferred),
        half_lives=_list_half_lives(replay, total / len(rows), candidates),
    )  # fmt: skip


def _list_half_lives(replay: Replay, losses: Array, candidates: Mask) -> tuple[HalfLifeLoss, ...]:
    """Return the best expert in each octave of half-lives."""
    best: dict[float, HalfLifeLoss] = {}
    for memory, loss, is_candidate in zip(replay.effective.tolist(), losses.tolist(), candidates.tolist(), strict=True):
        half_life = to_half_life(memory)
        octave = math.inf if math.isinf(half_life) else round(math.log2(half_life))
        if octave not in best or loss < best[octave].loss:
            best[octave] = HalfLifeLoss(half_life=half_life, loss=loss, is_candidate=is_candidate)
    return tuple(best[octave] for octave in sorted(best))


def mix_scales(replay: Replay) -> tuple[Array, Array]:
    """Return the memories, increasing, and the losses of their mixtures over the scales, [blocks, memories]."""
    memories = np.unique(replay.memories)
    return memories, np.stack([replay.mix(replay.memories == memory) for memory in memories], axis=1)


def _tabulate(replay: Replay, n: int, rng: np.random.Generator) -> tuple[MemoryLoss, ...]:
    memories, losses = mix_scales(replay)
    total = losses.sum(axis=0)
    candidates = find_candidates(merge_blocks(losses), rng)
    candidates[int(total.argmin())] = True
    table = []
    for memory, loss, is_candidate in zip(memories, total, candidates, strict=True):
        experts = np.flatnonzero(replay.memories == memory)
        best = experts[int(replay.losses[:, experts].sum(axis=0).argmin())]
        effective = float(replay.effective[best])
        table.append(
            MemoryLoss(memory=float(memory), effective=effective, loss=loss / n, is_candidate=bool(is_candidate))
        )
    return tuple(table)


def measure_cost(rows: RewardedRows, replay: Replay, seed: int) -> Cost:
    """Return the cost of never forgetting, compared with the memory that predicted best; 0 if that one is infinite.

    Both are mixtures over the scales. The best memory is chosen with the same rewards, so the cost is slightly too
    large: by about the lead that the best of several equally good memories has by chance.
    """
    _, losses = mix_scales(replay)
    excess = merge_blocks(losses[:, -1] - losses[:, int(losses.sum(axis=0).argmin())])
    sums = resample_sums(excess[:, None], np.random.default_rng(seed))[:, 0] * (1000.0 / len(rows))
    tail = 0.5 * (1.0 - CONFIDENCE)
    low, high = np.quantile(sums, [tail, 1.0 - tail])
    return Cost(per_thousand=float(excess.sum()) * 1000.0 / len(rows), low=float(low), high=float(high))
