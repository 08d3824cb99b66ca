"""The rows of a log with a known reward, as compact arrays for the diagnosis of drift.

Time is counted in decisions. A decision of weight w counts w times, so that a log from which rows were dropped at
random has the clock of the original traffic.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from windvane.arguments import Array, Index, Mask
from windvane.errors import ArgumentError
from windvane.logs.drift.coding import choose_columns
from windvane.logs.log import Log, LogBatch, LogSchema

LARGEST = 5e7  # numbers in ``x``: 400 MB, so that a diagnosis with its workspaces stays below 1 GB
MOST_OFFERS = 400  # offers that are kept: the standard error of a share is at most 0.5 / sqrt(400) = 2.5 %
LARGEST_OFFERS = 2e6  # numbers in the offers that are kept: 16 MB
MOST_CONTEXTS = 20_000  # contexts that are kept: enough for a test to detect a distance of 0.02 between the halves


@dataclass(frozen=True, kw_only=True)
class RewardedRows:
    """Rows with a reward in the order of their decisions, and samples of all rows.

    Attributes
    ----------
    schema : LogSchema
        The schema of the log.
    x, reward : [n, d], [n]
        The vectors of the arms that were played, and their rewards in [0, 1].
    arm : [n]
        The index of the arm that was played, in ``schema.arms``; 0 if arms have no names.
    place, time : [n]
        Line or row in the file, and time of the decision.
    clock, arrival : [n]
        The number of decisions up to and including this one, and until its reward had arrived.
    arrival_time : [n]
        The time at which the reward arrived.
    decisions : float
        The number of all decisions.
    seconds : float or None
        The time from the first to the last decision. None if the log has no times.
    offers, valid : [m, K, d], [m, K]
        A systematic sample of the offers.
    contexts, context_clock, context_time : [c, p], [c], [c]
        A systematic sample of the contexts, and the numbers and times of their decisions.
    """

    schema: LogSchema
    x: Array
    reward: Array
    arm: Index
    place: Index
    time: Array
    clock: Array
    arrival: Array
    arrival_time: Array
    decisions: float
    seconds: float | None
    offers: Array
    valid: Mask
    contexts: Array
    context_clock: Array
    context_time: Array

    def __len__(self) -> int:
        return len(self.reward)

    @property
    def dim(self) -> int:
        """The dimension of the vectors."""
        return int(self.x.shape[1])

    @cached_property
    def columns(self) -> Index:
        """Independent coordinates that span all vectors: see :func:`windvane.logs.drift.coding.choose_columns`."""
        return choose_columns(self.x)

    @property
    def rank(self) -> int:
        """The number of coefficients that the rewards can determine."""
        return len(self.columns)

    @cached_property
    def design(self) -> Array:
        """The vectors without the coordinates that are sums of others, [n, rank]."""
        return self.x if self.rank == self.dim else np.ascontiguousarray(self.x[:, self.columns])

    @property
    def design_names(self) -> tuple[str, ...]:
        """The names of the columns of ``design``."""
        return tuple(self.schema.names[j] for j in self.columns)

    def restrict(self, rows: Index, basis: Array) -> RewardedRows:
        """Return some of the rows, with vectors in the coordinates of an orthonormal ``basis``, [d, r]."""
        fields = ("reward", "arm", "place", "time", "clock", "arrival", "arrival_time")
        return replace(self, x=self.x[rows] @ basis, **{name: getattr(self, name)[rows] for name in fields})

    @property
    def rarer(self) -> float:
        """The number of rewards of the rarer kind: the smaller of the sums of r and of 1 - r."""
        return count_rarer(self.reward)

    @property
    def seconds_per_decision(self) -> float | None:
        """The mean time between two decisions."""
        return None if self.seconds is None or self.decisions <= 1.0 else self.seconds / (self.decisions - 1.0)

    def locate(self, clock: float) -> int:
        """Return the index of the first of these rows that is not before the decision number ``clock``."""
        return min(int(np.searchsorted(self.clock, clock)), len(self) - 1)


def count_rarer(reward: Array) -> float:
    """Return the number of rewards of the rarer kind: the smaller of the sums of r and of 1 - r."""
    total = float(reward.sum())
    return min(total, len(reward) - total)


class _Sample:
    """Every ``step``-th row of the log."""

    def __init__(self, step: int) -> None:
        self.step, self.seen = step, 0

    def choose(self, count: int) -> Index:
        """Return the indices to keep among the next ``count`` rows."""
        first = -self.seen % self.step
        self.seen += count
        return np.arange(first, count, self.step)


def _pad(parts: list[Array], fill: float) -> Array:
    """Concatenate arrays [n, K, ...] whose K may differ."""
    widest = max(part.shape[1] for part in parts)
    wide = [
        np.pad(part, [(0, 0), (0, widest - part.shape[1])] + [(0, 0)] * (part.ndim - 2), constant_values=fill)
        for part in parts
    ]
    return np.concatenate(wide)


def _is_usable(batch: LogBatch) -> Mask:
    return np.asarray(np.isfinite(batch.reward) & batch.is_learned & np.isfinite(batch.reward_time))


def read_rows(log: Log) -> RewardedRows:
    """Read a log once and keep what the diagnosis needs.

    Parameters
    ----------
    log
        The log. At most 5e7 numbers (rows times dimension) are kept, which take 400 MB.

    Returns
    -------
    RewardedRows
        The rows with a reward. Rows that are marked as not to be learned from only advance the clock.

    Examples
    --------
    >>> from windvane.logs import from_arrays
    >>> rows = read_rows(from_arrays([[[1.0], [2.0]]] * 3, [0, 1, 0], [1.0, float("nan"), 0.0]))
    >>> rows.x.ravel().tolist(), rows.clock.tolist(), rows.decisions
    ([1.0, 1.0], [1.0, 3.0], 3.0)
    """
    schema = log.schema
    if schema.rows * schema.dim > LARGEST:
        most = int(LARGEST // schema.dim)
        raise ArgumentError("log", schema.source, f"a log of at most {most} rows of dimension {schema.dim}")
    offers: list[tuple[Array, Mask]] = []
    contexts: list[Array] = []
    chosen: list[Index] = []
    columns: list[list[Array]] = [[] for _ in range(7)]
    x, filled, seen = np.empty((schema.rows, schema.dim)), 0, 0
    context_sample, offer_sample = _Sample(-(-schema.rows // MOST_CONTEXTS)), None
    for batch in log.batches():
        if offer_sample is None:
            most = max(1, min(MOST_OFFERS, int(LARGEST_OFFERS / max(1, batch.arms[0].size))))
            offer_sample = _Sample(-(-schema.rows // most))
        kept = _is_usable(batch)
        count = int(kept.sum())
        x[filled : filled + count] = batch.x[kept]
        filled += count
        for column, values in zip(columns, _read_columns(batch, kept), strict=True):
            column.append(values)
        picked = offer_sample.choose(len(batch))
        offers.append((batch.arms[picked], batch.valid[picked]))
        picked = context_sample.choose(len(batch))
        contexts.append(batch.context[picked])
        chosen.append(seen + picked)
        seen += len(batch)
    times, weights, index, reward, place, arrived, arm = (np.concatenate(column) for column in columns)
    rows = np.flatnonzero(index)
    ticks = np.cumsum(weights)
    decided, clock = times[rows], ticks[rows]
    counted = np.searchsorted(times, arrived, side="right")
    arrival = np.where(arrived <= decided, clock, np.maximum(clock, ticks[np.maximum(counted - 1, 0)]))
    return RewardedRows(
        schema=schema, x=x[:filled], reward=reward, arm=arm.astype(np.int64) if schema.arms else np.zeros(filled, int),
        place=place.astype(np.int64), time=decided, clock=clock,
        arrival=arrival, arrival_time=arrived, decisions=float(ticks[-1]),
        seconds=float(times[-1] - times[0]) if schema.has_times else None,
        offers=_pad([arms for arms, _ in offers], 0.0),
        valid=_pad([np.asarray(valid, dtype=float) for _, valid in offers], 0.0) > 0.0,
        contexts=np.concatenate(contexts), context_clock=ticks[np.concatenate(chosen)],
        context_time=times[np.concatenate(chosen)],
    )  # fmt: skip


def _read_columns(batch: LogBatch, kept: Mask) -> list[Array]:
    """Return the columns of all rows, then those of the rows that are kept."""
    return [
        batch.time, batch.weight, kept.astype(float), batch.reward[kept], batch.place[kept].astype(float),
        batch.reward_time[kept], batch.played[kept].astype(float),
    ]  # fmt: skip
