"""Whether the contexts of a log shift: its first half against its second half, with respect for the calendar.

Notes
-----
Neighbouring contexts are alike: the hour of the day is, and so is whatever follows it. So the log is cut into blocks,
whole days where it has enough of them, and the halves consist of the same number of whole days (of whole fortnights, if
there are two). The statistic is the distance of Kolmogorov and Smirnov between the halves. Its null distribution is
that of the distance between two halves to which the blocks are assigned at random. This is exact if blocks are
independent and alike; their rows need not be independent. A weekly cycle makes it conservative.

A log of between a quarter of a day and ten days has too few whole days. Its blocks then are parts of the log, and a
coordinate that differs may only follow the day: then the question cannot be answered.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from windvane.arguments import Array, Index, Mask
from windvane.logs.drift.rows import RewardedRows
from windvane.logs.drift.score_process import holm, p_values
from windvane.logs.log import LogSchema

DAY = 86_400.0
FEWEST_DAYS = 10  # whole days of a log that is cut into days: with 5 in each half, there are 126 pairs of halves
WEEKS = 14  # days: halves of whole weeks if the log has two fortnights
FEWEST_WEEKS = 28
PARTS = 40  # blocks of a log without times, or that is much shorter than a day
SHORT = 0.25 * DAY  # a log without a daily cycle
POINTS = 100  # of the distribution functions
RESAMPLES = 1999
ROUNDING = 1e-12  # of shares: an assignment that gives the same halves has the same distance


@dataclass(frozen=True, kw_only=True)
class ContextShift:
    """A coordinate of the contexts, first half against second half.

    Attributes
    ----------
    name : str
        The coordinate.
    before, after : float
        Its mean in both halves, in the unit of the log; for a value of a category, the share of the rows that have it.
    is_share : bool
        Whether these are shares.
    distance : float
        The largest difference between the distribution functions of the halves.
    p : float
        Its p-value, adjusted by Holm's method over all coordinates.
    has_shifted : bool or None
        Whether p is at most alpha. None: it is, but the log is too short to distinguish a shift from the time of day.
    """

    name: str
    before: float
    after: float
    is_share: bool
    distance: float
    p: float
    has_shifted: bool | None


@dataclass(frozen=True)
class Blocks:
    """The block of each context (-1: left out), and which are late. ``is_cyclic``: a day may look like a shift."""

    block: Index
    is_late: Mask
    is_cyclic: bool


def cut_blocks(rows: RewardedRows) -> Blocks | None:
    """Cut the contexts into blocks; None if there are too few."""
    time, seconds = rows.context_time, rows.seconds
    days = 0 if seconds is None else math.floor(seconds / DAY + 1e-9)
    if days >= FEWEST_DAYS:
        kept = days - days % 2 if days < FEWEST_WEEKS else days - days % WEEKS
        day = np.floor((time - time[0]) / DAY).astype(int)
        return Blocks(np.where(day < kept, day, -1), np.arange(kept) >= kept // 2, False)
    if len(time) < PARTS:
        return None
    block = np.minimum((rows.context_clock - 1e-9) / rows.decisions * PARTS, PARTS - 1).astype(int)
    return Blocks(block, np.arange(PARTS) >= PARTS // 2, seconds is not None and seconds > SHORT)


def compare_contexts(rows: RewardedRows, alpha: float, seed: int) -> tuple[ContextShift, ...]:
    """Test every coordinate of the contexts; empty if the log has none, or too few contexts."""
    blocks = cut_blocks(rows) if rows.contexts.shape[1] else None
    if blocks is None or len(np.unique(blocks.block[blocks.block >= 0])) < len(blocks.is_late):
        return ()
    kept = blocks.block >= 0
    contexts, block = rows.contexts[kept], blocks.block[kept]
    rng, late = np.random.default_rng(seed), blocks.is_late[block]
    assigned = rng.permuted(np.tile(blocks.is_late, (RESAMPLES, 1)), axis=1)
    halves = np.concatenate([blocks.is_late[None], assigned])
    distances, p = zip(*(_compare(column, block, halves) for column in contexts.T), strict=True)
    adjusted, found = holm(np.array(p)), []
    for j, (name, unit) in enumerate(_list_units(rows.schema, contexts.shape[1])):
        is_far = bool(adjusted[j] <= alpha)
        has_shifted = None if is_far and blocks.is_cyclic else is_far
        before, after = (unit.restore(float(contexts[some, j].mean())) for some in (~late, late))
        found.append(
            ContextShift(
                name=name, before=before, after=after, is_share=unit.is_share, distance=distances[j],
                p=float(adjusted[j]), has_shifted=has_shifted,
            )
        )  # fmt: skip
    return tuple(found)


def _compare(column: Array, block: Index, halves: Array) -> tuple[float, float]:
    """Return the distance between the halves, and its p-value; ``halves[0]`` says which blocks are late."""
    grid = np.unique(np.quantile(column, np.linspace(0.0, 1.0, POINTS), method="lower"))
    counts = np.zeros((halves.shape[1], len(grid) + 1))
    np.add.at(counts, (block, np.searchsorted(grid, column)), 1.0)
    below, sizes = np.cumsum(counts, axis=1)[:, :-1], counts.sum(axis=1)
    late, early = (
        (some @ below) / (some @ sizes)[:, None] for some in (halves.astype(float), 1.0 - halves.astype(float))
    )
    distances = np.abs(late - early).max(axis=1)
    return float(distances[0]), float(p_values(distances[0] - ROUNDING, distances[1:]))


@dataclass(frozen=True)
class _Unit:
    """How a coordinate was scaled: value = low + factor (coordinate + shift)."""

    low: float
    factor: float
    shift: float
    is_share: bool

    def restore(self, coordinate: float) -> float:
        return self.low + self.factor * (coordinate + self.shift)


def _list_units(schema: LogSchema, count: int) -> list[tuple[str, _Unit]]:
    """Return the names of the coordinates of contexts, and how to undo their scaling."""
    names = schema.context_names or tuple(f"c{i + 1}" for i in range(count))
    features = schema.features
    if features is None:
        return [(name, _Unit(0.0, 1.0, 0.0, False)) for name in names]
    units, scale = {}, features.scale
    for field in (*features.shared, *features.by_arm):
        for column in field.columns:
            if field.values is not None or field.low is None or field.high is None:
                units[column] = _Unit(0.0, 1.0 / scale, 0.0, field.values is not None)
            else:
                units[column] = _Unit(field.low, 0.5 * (field.high - field.low) / scale, scale, False)
    return [(name, units[name]) for name in names]
