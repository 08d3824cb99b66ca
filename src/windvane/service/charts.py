"""Charts of a stream: decisions, arms and rewards over time, derived from its log.

A bucket covers ``width`` decisions, and an outcome belongs to the bucket of its decision. When there are too many
buckets, neighbours are merged and the width doubles: all decisions are always shown, the old ones more coarsely.

Charts are not stored. After a restart they are built from the log in a thread (:meth:`Charts.read`). The stream's own
charts queue the events of operations meanwhile, because these do not continue what the charts have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from windvane.records import to_datetime
from windvane.service.store import DECIDED, EXPIRED, REWARD_PART, REWARDED, Event, Store

MAX_BUCKETS = 240  # even, so that all of them have a neighbour to be merged with
FIRST_WIDTH = 10  # decisions
MAX_ARMS = 12  # listed in a bucket that is full: those played most
MAX_COUNTED = 1000  # arms that are counted by name: those played last
RECENT = 50
READ_AT_ONCE = 2000  # events: a thread reads so many in about 20 ms


@dataclass(slots=True)
class ArmCounts:
    """Of one arm in one bucket: decisions, the sum of predictions, settled decisions, the sum of outcomes."""

    decisions: int = 0
    predicted: float = 0.0
    settled: int = 0
    realised: float = 0.0

    def add(self, other: ArmCounts) -> None:
        self.decisions += other.decisions
        self.predicted += other.predicted
        self.settled += other.settled
        self.realised += other.realised


@dataclass(slots=True)
class Bucket:
    """Consecutive decisions and their outcomes. ``others``: decisions for arms that are not listed."""

    since: datetime
    until: datetime
    model: dict[str, float | None] | None
    decisions: int = 0
    settled: int = 0
    total: float = 0.0
    projected: int | None = None
    arms: dict[str, ArmCounts] = field(default_factory=dict)
    others: int = 0

    def merge(self, later: Bucket) -> None:
        """Add the bucket that follows."""
        self.until, self.model = later.until, self.model or later.model
        self.decisions += later.decisions
        self.settled += later.settled
        self.total += later.total
        self.others += later.others
        if later.projected is not None:
            self.projected = (self.projected or 0) + later.projected
        for name, counts in later.arms.items():
            self.arms.setdefault(name, ArmCounts()).add(counts)
        self.trim()

    def trim(self) -> None:
        """Keep the arms played most."""
        ranked = sorted(self.arms, key=lambda name: self.arms[name].decisions, reverse=True)
        for name in ranked[MAX_ARMS:]:
            self.others += self.arms.pop(name).decisions


class Charts:
    """The charts of the events up to ``number``."""

    def __init__(self) -> None:
        self.number = self.decisions = 0
        self.width = FIRST_WIDTH
        self.buckets: list[Bucket] = []
        self.arms: dict[str, ArmCounts] = {}
        self.others = 0  # decisions for arms that are not counted by name
        self.recent: dict[str, dict[str, Any]] = {}
        self.queue: list[Event] = []  # events that do not follow event ``number``
        self._open: dict[str, tuple[int, str]] = {}  # decisions that are not settled: number and arm

    def read(self, store: Store, stream: int, last: int) -> bool:
        """Add some of the stored events up to ``last``; return whether there are more."""
        self.add_all(store.read_events(stream, after=self.number, limit=min(READ_AT_ONCE, last - self.number)))
        return self.number < last

    def add_all(self, events: Iterable[Event]) -> None:
        for event in events:
            self.add(event)

    def add(self, event: Event, describe_model: Callable[[], dict[str, float | None]] = dict) -> None:
        """Add the next event. ``describe_model`` is called if it opens a bucket."""
        if event.number != self.number + 1:
            self.queue.append(event)
            return
        self.number = event.number
        if event.kind == DECIDED:
            self._add_decision(event, describe_model)
        elif event.kind in (REWARDED, REWARD_PART):
            outcome = event.outcome
            self._mark(event.decision or "", "rewarded", outcome.get("sum", outcome["value"]))
            if outcome.get("settled"):
                self._settle(event.decision or "", outcome["value"])
        elif event.kind == EXPIRED:
            self._close(**event.outcome)

    def _add_decision(self, event: Event, describe_model: Callable[[], dict[str, float | None]]) -> None:
        outcome, time = event.outcome, to_datetime(event.time)
        if self.decisions // self.width == len(self.buckets):
            self._open_bucket(time, describe_model() or None)
        bucket, name = self.buckets[-1], str(outcome["arm"])
        self.others += _count(self.arms, name, outcome["prediction"])
        bucket.others += _count(bucket.arms, name, outcome["prediction"])
        bucket.decisions += 1
        bucket.until = time
        if outcome["projected"] is not None:
            bucket.projected = (bucket.projected or 0) + outcome["projected"]
        shown = {name: outcome[name] for name in ("id", "time", "arm", "prediction")}
        self.recent[outcome["id"]] = {**shown, "status": "pending", "reward": None}
        if len(self.recent) > RECENT:
            del self.recent[next(iter(self.recent))]
        self._open[outcome["id"]] = self.decisions, name
        self.decisions += 1

    def _open_bucket(self, time: datetime, model: dict[str, float | None] | None) -> None:
        if self.buckets:
            self.buckets[-1].trim()
        if len(self.buckets) == MAX_BUCKETS:
            for bucket, later in zip(self.buckets[::2], self.buckets[1::2], strict=True):
                bucket.merge(later)
            del self.buckets[1::2]
            self.width *= 2
        self.buckets.append(Bucket(time, time, model))

    def _close(self, decisions: list[str], learned: list[float | None], dropped: int = 0, room: int = 0) -> None:
        """Add an ``expired`` event; the last ``dropped`` decisions were dropped."""
        for i, (decision, outcome) in enumerate(zip(decisions, learned, strict=True)):
            self._settle(decision, outcome)
            if decision in self.recent and self.recent[decision]["status"] == "pending":
                self._mark(decision, "expired" if i < len(decisions) - dropped else "dropped", outcome)

    def _settle(self, decision: str, outcome: float | None) -> None:
        """Add a final outcome to the bucket of its decision. None: nothing was learned."""
        number, name = self._open.pop(decision)
        if outcome is None:
            return
        bucket = self.buckets[number // self.width]
        bucket.settled += 1
        bucket.total += outcome
        if name in bucket.arms:
            bucket.arms[name].settled += 1
            bucket.arms[name].realised += outcome

    def _mark(self, decision: str, status: str, reward: float | None) -> None:
        if decision in self.recent:
            self.recent[decision] |= {"status": status, "reward": reward}

    def document(self) -> dict[str, Any]:
        """The charts, to be encoded by :func:`windvane.records.to_json`."""
        return {
            "width": self.width,
            "buckets": self.buckets,
            "arms": {name: counts.decisions for name, counts in self.arms.items()},
            "others": self.others,
            "recent": list(self.recent.values()),
        }


def _count(arms: dict[str, ArmCounts], name: str, prediction: float) -> int:
    """Count a decision. Of too many arms the one played longest ago is dropped; return how many decisions it had."""
    counts = arms[name] = arms.pop(name, None) or ArmCounts()  # the last one played comes last
    counts.decisions += 1
    counts.predicted += prediction
    return arms.pop(next(iter(arms))).decisions if len(arms) > MAX_COUNTED else 0
