"""The columns of a log that checks need, without contexts and vectors: about 70 bytes per row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from windvane.arguments import LARGEST, Array, Index, Mask
from windvane.logs.file_log import FileLog
from windvane.logs.log import Log
from windvane.logs.raw import FieldColumn, RawRows
from windvane.logs.soundness.context_weights import ContextWeights


@dataclass(frozen=True, kw_only=True)
class LogColumns:
    """Columns of all rows, in file order, and totals by arm.

    ``arm`` has indices into ``arms``, and ``offered`` the number of rows that offer each of these, of which ``tested``
    have a propensity. ``count`` is the number of arms on offer in each row. ``total_probability`` is None unless rows
    have the probabilities of all arms. ``id_hash`` has an entry for each row with an id; None if the log has no ids.
    ``row_hash`` is that of arm, reward and context.
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
    row_hash: npt.NDArray[np.uint64]
    contexts: ContextWeights
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
    row_hash: npt.NDArray[np.uint64]


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
    names, contexts = _ArmNames(), ContextWeights()
    parts = list(_read_raw(log, names, contexts) if isinstance(log, FileLog) else _read_batches(log, names, contexts))
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
        row_hash=np.concatenate([part.row_hash for part in parts]),
        contexts=contexts,
        has_times=log.schema.has_times,
    )


def _read_raw(log: FileLog, names: _ArmNames, contexts: ContextWeights) -> Iterator[_Part]:
    for rows in log.usable_batches():
        if len(rows):
            yield _to_part(rows, names, contexts)


def _to_part(rows: RawRows, names: _ArmNames, contexts: ContextWeights) -> _Part:
    assert rows.arm.values is not None  # readers return arms as strings
    arm = names.index(rows.arm.values)[rows.arm.data]
    counts, total, on_offer, is_tested = None, None, None, ~np.isnan(rows.probability)
    if (offers := rows.offers) is None:
        names.offer_all(is_tested)
    else:
        assert offers.arm.values is not None
        on_offer = offers.row, names.index(offers.arm.values)[offers.arm.data]
        names.offer(on_offer[1], is_tested[on_offer[0]])
        counts = np.diff(offers.start)
        if offers.probability is not None:
            total = np.add.reduceat(offers.probability, offers.start[:-1])
    ids = None
    if rows.id is not None:
        given = [id_ for id_ in rows.id.tolist() if id_ is not None and id_ == id_]  # NaN differs from itself
        ids = np.fromiter((hash(id_) for id_ in given), dtype=np.int64, count=len(given))
    contexts.add(rows.context, arm, invert(rows.probability), on_offer)
    row_hash = _hash_rows([arm, rows.reward], rows.context)
    return _Part(arm, counts, rows.time, rows.reward, rows.reward_time, rows.probability, total, ids, row_hash)


def _hash_rows(numbers: Sequence[npt.NDArray[Any]], fields: Mapping[str, FieldColumn]) -> npt.NDArray[np.uint64]:
    """Return a hash of each row that depends on its values only, not on how a part of the log encodes them."""
    hashes = np.zeros(len(numbers[0]), dtype=np.uint64)
    for values in numbers:
        hashes = _mix(hashes, np.asarray(values, dtype=float).view(np.uint64))
    for name, column in sorted(fields.items()):
        data, seed = column.fill(len(hashes)), hash(name) % 2**64
        codes = data.astype(float).view(np.uint64)
        if column.values is not None:
            table = np.array([*(hash(value) % 2**64 for value in column.values), 0], dtype=np.uint64)
            codes = table[data]
        is_present = ~np.isnan(data) if column.values is None else data >= 0
        hashes = np.where(is_present, _mix(hashes ^ np.uint64(seed), codes), hashes)
    return hashes


def _mix(hashes: npt.NDArray[np.uint64], values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Combine two hashes; products wrap around."""
    mixed = (hashes ^ values) * np.uint64(0x9E3779B97F4A7C15)
    return np.asarray(mixed ^ (mixed >> np.uint64(29)))


def _read_batches(log: Log, names: _ArmNames, contexts: ContextWeights) -> Iterator[_Part]:
    """Read a log in memory, whose arms are named by their index."""
    for batch in log.batches():
        index = names.index(tuple(f"arm {i + 1}" for i in range(batch.valid.shape[1])))
        row, place = np.nonzero(batch.valid)
        names.offer(index[place], ~np.isnan(batch.propensity)[row])
        total = None if batch.probabilities is None else batch.probabilities.sum(axis=1)
        counts = batch.valid.sum(axis=1)
        reward = np.array([log.schema.to_reward(value) for value in (0.0, 1.0)])
        scaled = reward[0] + (reward[1] - reward[0]) * batch.reward
        labels = log.schema.context_names or tuple(f"c{i + 1}" for i in range(batch.context.shape[1]))
        fields = {name: FieldColumn(column) for name, column in zip(labels, batch.context.T, strict=True)}
        contexts.add(fields, batch.played, invert(batch.propensity), (row, place))
        row_hash = _hash_rows([batch.played, scaled, *batch.x.T], fields)
        yield _Part(
            batch.played, counts, batch.time, scaled, batch.reward_time, batch.propensity, total, None, row_hash
        )
