"""The columns of a log that checks need, without contexts and vectors: about 60 bytes per row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from windvane.arguments import LARGEST, Array, Index, Mask
from windvane.logs.file_log import FileLog
from windvane.logs.log import Log
from windvane.logs.raw import RawRows


@dataclass(frozen=True, kw_only=True)
class LogColumns:
    """Columns of all rows, in file order, and totals by arm.

    ``arm`` has indices into ``arms``, and ``offered`` the number of rows that offer each of these, of which ``tested``
    have a propensity. ``count`` is the number of arms on offer in each row. ``total_probability`` is None unless rows
    have the probabilities of all arms. ``id_hash`` has an entry for each row with an id; None if the log has no ids.
    """

    arms: list[str]
    offered: Index
    tested: Index
    arm: Index
    count: Index
    time: Array
    reward: Array
    reward_time: Array
    propensity: Array
    total_probability: Array | None
    id_hash: npt.NDArray[np.int64] | None
    has_times: bool

    def __len__(self) -> int:
        return len(self.arm)

    def uniform_weights(self) -> Array:
        """Return the importance weights of a policy that plays every arm on offer with the same probability."""
        known = self.propensity > 0.0
        return np.asarray(invert(self.propensity[known]) / self.count[known])


def invert(propensity: Array) -> Array:
    """Return 1 / p, at most 1e100, so that squares are finite."""
    return np.asarray(1.0 / np.maximum(propensity, 1.0 / LARGEST))


class _Part(NamedTuple):
    """A batch of rows. ``counts`` is None if every row offers all arms of the log."""

    arm: Index
    counts: Index | None
    time: Array
    reward: Array
    reward_time: Array
    propensity: Array
    total_probability: Array | None
    id_hash: npt.NDArray[np.int64] | None


class _ArmNames:
    """Indices of arms by name, in the order in which they appear."""

    def __init__(self) -> None:
        self.codes: dict[str, int] = {}
        self._counts = np.zeros((2, 0), dtype=np.int64)
        self._everywhere = np.zeros(2, dtype=np.int64)

    def index(self, values: tuple[str, ...]) -> Index:
        """Return the indices of these names; the last entry is for rows without an arm."""
        return np.array([*(self.codes.setdefault(name, len(self.codes)) for name in values), -1], dtype=np.int64)

    def offer(self, arms: Index, is_tested: Mask) -> None:
        """Count the arms on offer, and those in rows with a propensity."""
        counts = [np.bincount(some, minlength=len(self.codes)) for some in (arms, arms[is_tested])]
        self._counts = self._pad() + np.array(counts, dtype=np.int64)

    def offer_all(self, is_tested: Mask) -> None:
        """Count rows in which every arm of the log was on offer."""
        self._everywhere += len(is_tested), int(is_tested.sum())

    def count_offers(self) -> tuple[Index, Index]:
        """Return how many rows offer each arm, and how many of these have a propensity."""
        offered, tested = self._pad() + self._everywhere[:, None]
        return offered, tested

    def _pad(self) -> npt.NDArray[np.int64]:
        return np.pad(self._counts, ((0, 0), (0, len(self.codes) - self._counts.shape[1])))


def collect_columns(log: Log) -> LogColumns:
    """Read a log once, and return its columns."""
    names = _ArmNames()
    parts = list(_read_raw(log, names) if isinstance(log, FileLog) else _read_batches(log, names))
    arm = np.concatenate([part.arm for part in parts])
    every, (offered, tested) = len(names.codes), names.count_offers()
    counts = [np.full(len(part.arm), every) if part.counts is None else part.counts for part in parts]
    totals = [part.total_probability for part in parts if part.total_probability is not None]
    hashes = [part.id_hash for part in parts if part.id_hash is not None]
    return LogColumns(
        arms=list(names.codes),
        offered=offered,
        tested=tested,
        arm=arm,
        count=np.concatenate(counts),
        time=np.concatenate([part.time for part in parts]),
        reward=np.concatenate([part.reward for part in parts]),
        reward_time=np.concatenate([part.reward_time for part in parts]),
        propensity=np.concatenate([part.propensity for part in parts]),
        total_probability=np.concatenate(totals) if len(totals) == len(parts) else None,
        id_hash=np.concatenate(hashes) if any(map(len, hashes)) else None,
        has_times=log.schema.has_times,
    )


def _read_raw(log: FileLog, names: _ArmNames) -> Iterator[_Part]:
    for rows in log.usable_batches():
        if len(rows):
            yield _to_part(rows, names)


def _to_part(rows: RawRows, names: _ArmNames) -> _Part:
    assert rows.arm.values is not None  # readers return arms as strings
    arm = names.index(rows.arm.values)[rows.arm.data]
    counts, total, is_tested = None, None, ~np.isnan(rows.probability)
    if (offers := rows.offers) is None:
        names.offer_all(is_tested)
    else:
        assert offers.arm.values is not None
        names.offer(names.index(offers.arm.values)[offers.arm.data], is_tested[offers.row])
        counts = np.diff(offers.start)
        if offers.probability is not None:
            total = np.add.reduceat(offers.probability, offers.start[:-1])
    ids = None
    if rows.id is not None:
        given = [id_ for id_ in rows.id.tolist() if id_ is not None and id_ == id_]  # NaN differs from itself
        ids = np.fromiter((hash(id_) for id_ in given), dtype=np.int64, count=len(given))
    return _Part(arm, counts, rows.time, rows.reward, rows.reward_time, rows.probability, total, ids)


def _read_batches(log: Log, names: _ArmNames) -> Iterator[_Part]:
    """Read a log in memory, whose arms are named by their index."""
    for batch in log.batches():
        index = names.index(tuple(f"arm {i + 1}" for i in range(batch.valid.shape[1])))
        row, place = np.nonzero(batch.valid)
        names.offer(index[place], ~np.isnan(batch.propensity)[row])
        total = None if batch.probabilities is None else batch.probabilities.sum(axis=1)
        counts = batch.valid.sum(axis=1)
        reward = np.array([log.schema.to_reward(value) for value in (0.0, 1.0)])
        scaled = reward[0] + (reward[1] - reward[0]) * batch.reward
        yield _Part(batch.played, counts, batch.time, scaled, batch.reward_time, batch.propensity, total, None)
