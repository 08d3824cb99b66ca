"""The rewards in an event log, joined to decisions by a hash of their id: 24 bytes per reward."""

from __future__ import annotations

from array import array
from hashlib import blake2b
from typing import Any

import numpy as np

from windvane.arguments import Array, Index
from windvane.logs.formats.json_lines import to_number

NAN = float("nan")


def hash_id(id_: Any) -> int:
    """Return 64 bits that stand for an id, the same in every process; 0 if it is no text.

    The built-in ``hash`` of a text differs between processes, and worker processes look up what the first one joined.
    """
    if not isinstance(id_, str):
        return 0
    digest = blake2b(id_.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


class _Table:
    """Values and times by the hash of an id, in the order of the log. The last entry of an id counts."""

    def __init__(self) -> None:
        self._hash, self._value, self._time = array("q"), array("d"), array("d")
        self._sorted: tuple[Index, Array, Array] | None = None

    def add(self, id_: str, value: float, time: float) -> None:
        self._hash.append(hash_id(id_))
        self._value.append(value)
        self._time.append(time)

    def finish(self) -> None:
        hashes = np.frombuffer(self._hash, dtype=np.int64)[::-1] if self._hash else np.empty(0, dtype=np.int64)
        values, times = (np.array(each, dtype=float)[::-1] for each in (self._value, self._time))
        unique, first = np.unique(hashes, return_index=True)
        self._sorted = unique, values[first], times[first]
        self._hash, self._value, self._time = array("q"), array("d"), array("d")

    def look_up(self, hashes: Index) -> tuple[Array, Array]:
        """Return the values and times of ids; NaN if there is none."""
        assert self._sorted is not None
        known, values, times = self._sorted
        if not len(known):
            return np.full(len(hashes), NAN), np.full(len(hashes), NAN)
        place = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
        is_known = known[place] == hashes
        return np.where(is_known, values[place], NAN), np.where(is_known, times[place], NAN)

    def hashes(self) -> Index:
        assert self._sorted is not None
        return self._sorted[0]


class Outcomes:
    """The rewards of an event log.

    The reward of a decision is the value learned when it was closed; else the reward that arrived in time; else a late
    reward. What was learned when a decision was closed has that time: a default reward, a sum of parts, and a reward
    that was held. At the end of a log, held rewards do not count, as misses are not known there either: if clicks
    counted earlier than misses, recent rewards would all be clicks.
    """

    def __init__(self) -> None:
        self._closed, self._rewarded, self._late = _Table(), _Table(), _Table()

    def add(self, event: dict[str, Any], time: float) -> bool:
        """Add an event that holds rewards; return False if it is malformed."""
        kind, id_ = event.get("kind"), event.get("decision")
        if kind == "closed":
            ids, learned = event.get("decisions"), event.get("learned")
            if not (isinstance(ids, list) and isinstance(learned, list) and len(ids) == len(learned)):
                return False
            values = [to_number(value) for value in learned]
            if not all(isinstance(each, str) for each in ids) or np.isinf(values).any():
                return False
            for each, value in zip(ids, values, strict=True):
                self._closed.add(each, value, time)
            return True
        is_sum = kind == "late" and "sum" in event
        value = to_number(event.get("sum" if is_sum else "value"))
        if not isinstance(id_, str) or not np.isfinite(value):
            return False
        is_held = kind == "rewarded" and event.get("settled") is False
        if kind != "reward_part" and not is_held:  # both are learned when the decision is closed
            (self._rewarded if kind == "rewarded" else self._late).add(id_, value, time)
        return True

    def finish(self) -> None:
        """Sort the rewards, so that they can be looked up."""
        for table in (self._closed, self._rewarded, self._late):
            table.finish()

    def look_up(self, hashes: Index) -> tuple[Array, Array]:
        """Return the rewards of decisions and the times at which they were known; NaN if unknown."""
        closed, closed_time = self._closed.look_up(hashes)
        rewarded, rewarded_time = self._rewarded.look_up(hashes)
        late, late_time = self._late.look_up(hashes)
        value = np.where(np.isnan(rewarded), late, rewarded)
        time = np.where(np.isnan(rewarded), late_time, rewarded_time)
        is_closed = ~np.isnan(closed)
        is_other = is_closed & ~(closed == rewarded)
        return np.where(is_closed, closed, value), np.where(is_other, closed_time, time)

    def count_unused(self, decisions: Index) -> tuple[int, int]:
        """Return how many rewards belong to no decision, and how many arrived after a default had been learned."""
        known = np.unique(decisions)
        tables = (self._closed, self._rewarded, self._late)
        every = np.unique(np.concatenate([table.hashes() for table in tables]))
        orphans = int((~np.isin(every, known)).sum())
        late = self._late.hashes()
        closed, _ = self._closed.look_up(late)
        return orphans, int((~np.isnan(closed)).sum())
