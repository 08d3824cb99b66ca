"""Logs as the analyses read them: rows in time order, encoded as arrays.

A log has one row per decision: time, arms on offer, the arm that was played, its probability, and the reward with the
time at which it arrived. Readers (:mod:`windvane.logs.reading`) produce such rows from files, in batches, so that a
log of any length needs little memory. :func:`from_arrays` builds a log from arrays.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from windvane.agent.features import Features
from windvane.arguments import Array, Index, Mask

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
    place : str
        What the place of a row counts: "line" of a text file, or "row".
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
    place: str = "row"

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
    context : [n, q]
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
