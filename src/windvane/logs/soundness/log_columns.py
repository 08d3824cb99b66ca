"""The columns of a log that checks need, without contexts and vectors: about 60 bytes per row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array, Index
from windvane.logs.file_log import FileLog
from windvane.logs.log import Log
from windvane.logs.raw import RawRows


@dataclass(frozen=True, kw_only=True)
class LogColumns:
    """Columns of all rows, in file order, and totals by arm.

    ``arm`` has indices into ``arms``, and ``offered`` the number of rows that offer each of these. ``count`` is the
    number of arms on offer in each row. ``total_probability`` is None unless rows have the probabilities of all arms.
    ``id_hash`` has an entry for each row with an id; None if the log has no ids.
    """

    arms: list[str]
    offered: Index
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
        return np.asarray(1.0 / (self.count[known] * self.propensity[known]))


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
        self.offered = np.zeros(0, dtype=np.int64)

    def index(self, values: tuple[str, ...]) -> Index:
        """Return the indices of these names; the last entry is for rows without an arm."""
        return np.array([*(self.codes.setdefault(name, len(self.codes)) for name in values), -1], dtype=np.int64)

    def offer(self, arms: Index) -> None:
        """Count the arms on offer."""
        counts = np.bincount(arms, minlength=len(self.codes))
        counts[: len(self.offered)] += self.offered
        self.offered = counts


def collect_columns(log: Log) -> LogColumns:
    """Read a log once, and return its columns."""
    names = _ArmNames()
    parts = list(_read_raw(log, names) if isinstance(log, FileLog) else _read_batches(log, names))
    arm = np.concatenate([part.arm for part in parts])
    has_offers = parts[0].counts is not None
    every = len(names.codes)
    counts = [np.full(len(part.arm), every) if part.counts is None else part.counts for part in parts]
    offered = names.offered if has_offers else np.full(every, len(arm))
    totals = [part.total_probability for part in parts if part.total_probability is not None]
    hashes = [part.id_hash for part in parts if part.id_hash is not None]
    return LogColumns(
        arms=list(names.codes),
        offered=offered,
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
    counts = total = None
    if (offers := rows.offers) is not None:
        assert offers.arm.values is not None
        names.offer(names.index(offers.arm.values)[offers.arm.data])
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
        names.offer(index[np.nonzero(batch.valid)[1]])
        total = None if batch.probabilities is None else batch.probabilities.sum(axis=1)
        counts = batch.valid.sum(axis=1)
        reward = np.array([log.schema.to_reward(value) for value in (0.0, 1.0)])
        scaled = reward[0] + (reward[1] - reward[0]) * batch.reward
        yield _Part(batch.played, counts, batch.time, scaled, batch.reward_time, batch.propensity, total, None)
