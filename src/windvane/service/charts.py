"""Charts of a stream: decisions, arms and rewards over time, derived from its log.

A bucket covers ``width`` decisions, and an outcome belongs to the bucket of its decision. When there are too many
buckets, neighbours are merged and the width doubles: all decisions are always shown, the old ones more coarsely.

Charts are not stored and are not part of operations: a thread reads the log into them (:meth:`Charts.read`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from windvane.records import DecisionStatus, Name, to_datetime
from windvane.service.store import CLOSED, DECIDED, REWARD_PART, REWARDED, Event, ReadableStore

MAX_BUCKETS = 240  # even, so that every bucket has a neighbour to be merged with
FIRST_WIDTH = 10  # decisions
MAX_ARMS = 12  # listed in a bucket that is full: those played most
MAX_COUNTED = 1000  # arms that are counted by name: those played last
RECENT = 50
READ_AT_ONCE = 2000  # events, which take about 20 ms

Model = dict[Literal["norm", "memory", "rate"], float | None]


@dataclass(slots=True)
class ArmCounts:
    """Of an arm: decisions, the sum of their predictions, settled decisions, the sum of their outcomes."""

    decisions: int = 0
    predicted: float = 0.0
    settled: int = 0
    realised: float = 0.0


@dataclass(slots=True)
class Bucket:
    """Consecutive decisions and the outcomes of those that are settled. ``others``: of arms that are not listed."""

    since: datetime
    until: datetime
    model: Model | None
    decisions: int = 0
    settled: int = 0
    total: float = 0.0
    projected: int | None = None
    arms: dict[str, ArmCounts] = field(default_factory=dict)
    others: int = 0

    def merge(self, later: Bucket) -> None:
        """Add the next bucket."""
        self.until, self.model = later.until, self.model or later.model
        for name in ("decisions", "settled", "total", "others"):
            setattr(self, name, getattr(self, name) + getattr(later, name))
        if later.projected is not None:
            self.projected = (self.projected or 0) + later.projected
        for arm, counts in later.arms.items():
            known = self.arms.setdefault(arm, ArmCounts())
            for name in ArmCounts.__slots__:
                setattr(known, name, getattr(known, name) + getattr(counts, name))
        self.trim()

    def trim(self) -> None:
        """List the arms played most."""
        for arm in sorted(self.arms, key=lambda arm: self.arms[arm].decisions, reverse=True)[MAX_ARMS:]:
            self.others += self.arms.pop(arm).decisions


@dataclass(slots=True)
class RecentDecision:
    """One of the last decisions."""

    id: str
    time: datetime
    arm: Name
    prediction: float
    status: DecisionStatus = "pending"
    reward: float | None = None


@dataclass(frozen=True, slots=True)
class ChartData:
    """The data of the page's charts. ``others``: decisions for arms that are not listed."""

    width: int
    buckets: list[Bucket]
    arms: dict[str, int]
    others: int
    recent: list[RecentDecision]


class Charts:
    """The charts of the events up to ``number``. The model is set from outside."""

    def __init__(self) -> None:
        self.number = self._decisions = self._others = 0
        self.model: Model | None = None
        self._width, self._buckets = FIRST_WIDTH, list[Bucket]()
        self._arms: dict[str, ArmCounts] = {}
        self._recent: dict[str, RecentDecision] = {}
        self._open: dict[str, tuple[int, str]] = {}  # number and arm of the decisions that are not settled

    def set_model(self, model: Model) -> None:
        """Show the current model in the last bucket, if it has none, and in the next ones."""
        self.model = model
        if self._buckets and self._buckets[-1].model is None:
            self._buckets[-1].model = model

    def read(self, store: ReadableStore, stream: int, last: int) -> bool:
        """Add some of the stored events up to ``last``; return whether there are more. Those that were removed from the
        log are not in the charts."""
        before = self.number
        for event in store.read_events(stream, after=before, limit=min(READ_AT_ONCE, last - before)):
            self.add(event)
        if self.number == before:
            self.number = last
        return self.number < last

    def add(self, event: Event) -> None:
        """Add the next event."""
        self.number, decision = event.number, event.decision or ""
        if event.kind == DECIDED:
            self._add_decision(event)
        elif event.kind in (REWARDED, REWARD_PART):
            outcome = event.outcome
            self._mark(decision, "rewarded", outcome.get("sum", outcome["value"]))
            if outcome.get("settled"):
                self._settle(decision, outcome["value"])
        elif event.kind == CLOSED:
            outcome = event.outcome
            first_dropped = len(outcome["decisions"]) - outcome.get("dropped", 0)
            for i, (decision, learned) in enumerate(zip(outcome["decisions"], outcome["learned"], strict=True)):
                self._settle(decision, learned)
                if decision in self._recent and self._recent[decision].status == "pending":
                    self._mark(decision, "expired" if i < first_dropped else "dropped", learned)

    def _add_decision(self, event: Event) -> None:
        outcome, time = event.outcome, to_datetime(event.time)
        if self._decisions // self._width == len(self._buckets):
            self._open_bucket(Bucket(time, time, self.model))
        bucket, id_, arm, prediction = self._buckets[-1], outcome["id"], str(outcome["arm"]), outcome["prediction"]
        self._others += _count(self._arms, arm, prediction)
        bucket.others += _count(bucket.arms, arm, prediction)
        bucket.decisions += 1
        bucket.until = time
        if outcome["projected"] is not None:
            bucket.projected = (bucket.projected or 0) + outcome["projected"]
        self._recent[id_] = RecentDecision(id_, time, outcome["arm"], prediction)
        if len(self._recent) > RECENT:
            del self._recent[next(iter(self._recent))]
        self._open[id_] = self._decisions, arm
        self._decisions += 1

    def _open_bucket(self, bucket: Bucket) -> None:
        if self._buckets:
            self._buckets[-1].trim()
        if len(self._buckets) == MAX_BUCKETS:
            for first, second in zip(self._buckets[::2], self._buckets[1::2], strict=True):
                first.merge(second)
            del self._buckets[1::2]
            self._width *= 2
        self._buckets.append(bucket)

    def _settle(self, decision: str, outcome: float | None) -> None:
        """Add a final outcome to the bucket of its decision. None: nothing was learned."""
        number, arm = self._open.pop(decision, (0, None))
        if outcome is None or arm is None:  # after a refit, a decision may be open and closed once more
            return
        bucket = self._buckets[number // self._width]
        bucket.settled += 1
        bucket.total += outcome
        if arm in bucket.arms:
            bucket.arms[arm].settled += 1
            bucket.arms[arm].realised += outcome

    def _mark(self, decision: str, status: DecisionStatus, reward: float | None) -> None:
        if decision in self._recent:
            self._recent[decision].status, self._recent[decision].reward = status, reward

    @property
    def data(self) -> ChartData:
        """The charts as they are now."""
        arms = {arm: counts.decisions for arm, counts in self._arms.items()}
        return ChartData(self._width, self._buckets, arms, self._others, list(self._recent.values()))


def _count(arms: dict[str, ArmCounts], arm: str, prediction: float) -> int:
    """Count a decision. With too many arms, drop the one played longest ago and return its number of decisions."""
    counts = arms[arm] = arms.pop(arm, ArmCounts())  # the last one played comes last
    counts.decisions += 1
    counts.predicted += prediction
    return arms.pop(next(iter(arms))).decisions if len(arms) > MAX_COUNTED else 0
