"""Logs as the analyses read them: rows in time order, encoded as arrays.

A log has one row per decision: time, arms on offer, the arm that was played, its probability, and the reward with the
time at which it arrived. Readers (:mod:`windvane.logs.reading`) produce such rows from files, in batches, so that a
log of any length needs little memory. :func:`from_arrays` builds a log from arrays.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from windvane.agent.features import Features
from windvane.arguments import Array, Index, Mask, check_number
from windvane.errors import ArgumentError

BATCH = 1024  # rows of a batch, unless the caller says otherwise
Propensities = Literal["all arms", "played arm", "none"]
Format = Literal["windvane", "table", "open-bandit", "dsjson", "vw"]
"""The formats of files."""
Progress = Callable[[int, int, str], None]
"""Called with how much is done, how much there is to do, and what is done now."""


@dataclass(frozen=True, kw_only=True)
class LogSchema:
    """What is known about a log as a whole.

    Attributes
    ----------
    source, format
        Where the log comes from (a path), and the name of its format.
    rows : int
        The number of usable rows.
    dim, names, L
        The dimension of the vectors, the names of their coordinates, and a bound on their norms.
    arms : tuple of str
        The names of the arms: entry k of the offers of every row is arm k. Empty if arms are described only
        by their features; then they are in the order in which each row lists them.
    context_names : tuple of str
        The names of the coordinates of the contexts.
    has_intercept : bool
        Whether the last coordinate is a 1 that was added to the vectors of the log.
    features : Features or None
        The encoding as :class:`windvane.Agent` accepts it. None if the log has vectors.
    reward_range : tuple of float
        Rewards are in this range; those of the rows are scaled from it to [0, 1].
    is_range_declared : bool
        Whether the range was declared, or is (0, 1) with all rewards in it, rather than the range of the rewards seen.
    propensities
        Whether rows have the probabilities of all arms, of the arm that was played, or none.
    floor : float or None
        A lower bound on the logging probability of every arm. None if none is known.
    is_floor_declared : bool
        Whether the floor was declared beforehand, rather than taken from the log.
    has_times : bool
        Whether rows have times. Otherwise the time of a row is its number.
    is_adaptive : bool
        Whether the policy that wrote the log may have learned from its rewards. True unless it is declared not to.
    """

    source: str
    format: str
    rows: int
    dim: int
    names: tuple[str, ...]
    L: float = 1.0
    arms: tuple[str, ...] = ()
    context_names: tuple[str, ...] = ()
    has_intercept: bool = False
    features: Features | None = None
    reward_range: tuple[float, float] = (0.0, 1.0)
    is_range_declared: bool = True
    propensities: Propensities = "none"
    floor: float | None = None
    is_floor_declared: bool = False
    has_times: bool = False
    is_adaptive: bool = True

    def to_reward(self, scaled: float) -> float:
        """Return a scaled mean reward in the unit of the log."""
        low, high = self.reward_range
        return low + (high - low) * scaled


@dataclass(frozen=True, kw_only=True)
class LogBatch:
    """Consecutive rows of a log. Arrays have one entry per row.

    Attributes
    ----------
    place : [n]
        Line or row of the file, counted from 1.
    time, reward_time : [n]
        Seconds since 1970 of the decision and of the arrival of the reward, which is never before the decision; row
        numbers if the log has no times. Rows are sorted by time. ``reward_time`` is infinite if no reward arrived.
    arms, valid : [n, K, d], [n, K]
        The vectors of the arms on offer, and which of the K entries are arms. The others are 0.
    played : [n]
        The index of the arm that was played.
    propensity : [n]
        The probability with which it was played; NaN if the log, or this row, does not have it.
    probabilities : [n, K] or None
        The probabilities of all arms, 0 where there is no arm. None unless the schema says "all arms".
    reward : [n]
        The reward, scaled to [0, 1]. NaN: unknown.
    weight : [n]
        How many decisions of the original traffic the row represents: 1 unless rows were dropped at random.
    is_learned : [n]
        False for rows that the log marks as not to be learned from.
    context : [n, p]
        The encoded context, the same for all arms.
    """

    place: Index
    time: Array
    reward_time: Array
    arms: Array
    valid: Mask
    played: Index
    propensity: Array
    probabilities: Array | None
    reward: Array
    weight: Array
    is_learned: Mask
    context: Array

    def __len__(self) -> int:
        return len(self.place)

    @property
    def x(self) -> Array:
        """The vectors of the arms that were played, [n, d]."""
        return np.asarray(self.arms[np.arange(len(self)), self.played])

    def select(self, rows: slice | npt.NDArray[Any]) -> LogBatch:
        """Return some of the rows."""
        fields = {name: value[rows] for name, value in vars(self).items() if value is not None}
        return replace(self, **fields)


class Log(ABC):
    """A log that can be read any number of times, in batches."""

    schema: LogSchema

    @abstractmethod
    def batches(self, size: int = BATCH) -> Iterator[LogBatch]:
        """Yield all rows in order, at most ``size`` at a time."""


class ArrayLog(Log):
    """A log in memory; see :func:`from_arrays`."""

    def __init__(self, schema: LogSchema, rows: LogBatch) -> None:
        self.schema, self.rows = schema, rows

    def batches(self, size: int = BATCH) -> Iterator[LogBatch]:
        """Yield all rows in order, at most ``size`` at a time."""
        for start in range(0, len(self.rows), size):
            yield self.rows.select(slice(start, start + size))


def from_arrays(
    arms: npt.ArrayLike,
    played: npt.ArrayLike,
    reward: npt.ArrayLike,
    *,
    propensity: npt.ArrayLike | None = None,
    probabilities: npt.ArrayLike | None = None,
    valid: npt.ArrayLike | None = None,
    time: npt.ArrayLike | None = None,
    reward_time: npt.ArrayLike | None = None,
    context: npt.ArrayLike | None = None,
    names: Sequence[str] | None = None,
    floor: float | None = None,
    is_adaptive: bool = True,
) -> ArrayLog:
    """Build a log from arrays with one entry per decision.

    Parameters
    ----------
    arms
        Vectors of the arms on offer, [n, K, d].
    played, reward
        The index of the arm that was played, [n], and its reward in [0, 1] (NaN: unknown), [n].
    propensity, probabilities
        The probability of the arm that was played, [n], or those of all arms, [n, K].
    valid
        Which entries of ``arms`` are arms, [n, K]. Default: all.
    time, reward_time
        Times of decisions and of the arrival of rewards, in seconds, [n]. Default: row numbers; rewards arrive at once.
    context
        The encoded context, [n, p]. Default: none.
    names
        The names of the d coordinates.
    floor
        A lower bound on the logging probability of every arm, if one is known beforehand.
    is_adaptive
        Whether the policy that wrote the log may have learned from its rewards.

    Returns
    -------
    ArrayLog
        The log.

    Raises
    ------
    ArgumentError
        If an array has another shape, or a value that is not allowed, such as times that decrease.

    Examples
    --------
    >>> log = from_arrays([[[1.0, 0.0], [0.0, 1.0]]] * 3, [0, 1, 0], [1.0, 0.0, 0.0], propensity=[0.5] * 3)
    >>> log.schema.rows, log.schema.dim, log.schema.propensities
    (3, 2, 'played arm')
    """
    vectors = np.asarray(arms, dtype=float)
    if vectors.ndim != 3 or not len(vectors):
        raise ArgumentError("arms", arms, "an array [n, K, d] with at least one row")
    n, count, dim = vectors.shape
    every = np.arange(1.0, n + 1.0)
    p = None if probabilities is None else np.asarray(probabilities, dtype=float)
    index = np.asarray(played)
    if index.shape != (n,) or index.dtype.kind not in "iu" or not ((index >= 0) & (index < count)).all():
        raise ArgumentError("played", played, f"{n} whole numbers in 0..{count - 1}")
    if p is not None and p.shape != (n, count):
        raise ArgumentError("probabilities", probabilities, f"an array [{n}, {count}], as `arms` has")
    index = index.astype(np.int64)
    chance = np.full(n, np.nan) if propensity is None else _read_column("propensity", propensity, n)
    decided = every if time is None else _read_column("time", time, n)
    arrived = decided if reward_time is None else _read_column("reward_time", reward_time, n)
    result = _read_column("reward", reward, n)
    batch = LogBatch(
        place=np.arange(1, n + 1),
        time=decided,
        reward_time=np.where(np.isnan(result), np.inf, arrived),
        arms=vectors,
        valid=np.ones((n, count), dtype=bool) if valid is None else np.asarray(valid, dtype=bool),
        played=index,
        propensity=chance if p is None else p[np.arange(n), index],
        probabilities=p,
        reward=result,
        weight=np.ones(n),
        is_learned=np.ones(n, dtype=bool),
        context=np.zeros((n, 0)) if context is None else np.asarray(context, dtype=float),
    )
    _check_values(batch)
    if floor is not None:
        floor = check_number("floor", floor, "in [0, 1]", lambda bound: 0.0 <= bound <= 1.0)
    if names is not None and len(names) != dim:
        raise ArgumentError("names", names, f"{dim} names, one for each coordinate")
    lowest = None if p is None else float(p[batch.valid].min())
    schema = LogSchema(
        source="arrays",
        format="arrays",
        rows=n,
        dim=dim,
        names=tuple(names) if names is not None else tuple(f"x{i + 1}" for i in range(dim)),
        L=max(float(np.sqrt(np.square(vectors).sum(axis=2)).max()), 1e-9),
        context_names=tuple(f"c{i + 1}" for i in range(batch.context.shape[1])),
        propensities="all arms" if p is not None else "none" if propensity is None else "played arm",
        floor=floor if floor is not None else lowest,
        is_floor_declared=floor is not None,
        has_times=time is not None,
        is_adaptive=is_adaptive,
    )
    return ArrayLog(schema, batch)


def _read_column(name: str, values: npt.ArrayLike, n: int) -> Array:
    column = np.asarray(values, dtype=float)
    if column.shape != (n,):
        raise ArgumentError(name, values, f"an array with {n} entries, as `arms` has rows")
    return column


def _check_values(rows: LogBatch) -> None:
    """Raise ``ArgumentError`` unless all values are as :class:`LogBatch` says."""
    every, p, all_p = np.arange(len(rows)), rows.propensity, rows.probabilities
    if rows.valid.shape != rows.arms.shape[:2]:
        raise ArgumentError("valid", rows.valid, f"an array {list(rows.arms.shape[:2])}, as `arms` has")
    if rows.context.ndim != 2 or len(rows.context) != len(rows):
        raise ArgumentError("context", rows.context, f"an array [{len(rows)}, p]")
    with np.errstate(invalid="ignore"):
        checks = (
            ("arms", np.isfinite(rows.arms).all(), "finite numbers"),
            ("context", np.isfinite(rows.context).all(), "finite numbers"),
            ("played", rows.valid[every, rows.played].all(), "arms on offer"),
            ("reward", (np.isnan(rows.reward) | ((rows.reward >= 0.0) & (rows.reward <= 1.0))).all(), "in [0, 1]"),
            ("probabilities", all_p is None or ((all_p >= 0.0) & (all_p <= 1.0)).all(), "in [0, 1]"),
            ("propensity", (np.isnan(p) | ((p > 0.0) & (p <= 1.0))).all(), "in (0, 1]"),
            ("time", np.isfinite(rows.time).all() and (np.diff(rows.time) >= 0.0).all(), "increasing"),
            ("reward_time", (rows.reward_time >= rows.time).all(), "at or after `time`"),
        )
    for name, is_fine, expected in checks:
        if not is_fine:
            raise ArgumentError(name, getattr(rows, name), expected)
