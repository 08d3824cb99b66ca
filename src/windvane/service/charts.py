"""Charts of a stream: decisions, arms and rewards over time, derived from its log.

A bucket covers ``width`` decisions, and an outcome belongs to the bucket of its decision. When there are too many
buckets, neighbours are merged and the width doubles: all decisions are always shown, the old ones more coarsely.

Charts are not stored. After a restart they are built from the log in a thread (:meth:`Charts.read`). The stream's own
charts queue the events of operations meanwhile, because these do not follow the last event that the charts have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from windvane.records import to_datetime
from windvane.service.store import DECIDED, EXPIRED, REWARD_PART, REWARDED, Event, Store

MAX_BUCKETS = 240  # even, so that every bucket has a neighbour to be merged with
FIRST_WIDTH = 10  # decisions
MAX_ARMS = 12  # listed in a bucket that is full: those played most
MAX_COUNTED = 1000  # arms that are counted by name: those played last
RECENT = 50
READ_AT_ONCE = 2000  # events, which take about 20 ms

_NO_COUNTS = {"decisions": 0, "predicted": 0.0, "settled": 0, "realised": 0.0}  # of an arm


class Charts:
    """The charts of the events up to ``number``. ``queue``: later events that do not follow it."""

    def __init__(self) -> None:
        self.number = self._decisions = self._others = 0
        self.queue: list[Event] = []
        self._width, self._buckets = FIRST_WIDTH, list[dict[str, Any]]()
        self._arms: dict[str, dict[str, Any]] = {}
        self._recent: dict[str, dict[str, Any]] = {}
        self._open: dict[str, tuple[int, str]] = {}  # number and arm of the decisions that are not settled

    def read(self, store: Store, stream: int, last: int) -> bool:
        """Add some of the stored events up to ``last``; return whether there are more."""
        self.add_all(store.read_events(stream, after=self.number, limit=min(READ_AT_ONCE, last - self.number)))
        return self.number < last

    def add_all(self, events: Iterable[Event]) -> None:
        for event in events:
            self.add(event)

    def add(self, event: Event, describe_model: Callable[[], dict[str, Any] | None] = lambda: None) -> None:
        """Add the next event. ``describe_model`` is called if it opens a bucket."""
        if event.number != self.number + 1:
            self.queue.append(event)
            return
        self.number, decision = event.number, event.decision or ""
        if event.kind == DECIDED:
            self._add_decision(event, describe_model)
        elif event.kind in (REWARDED, REWARD_PART):
            outcome = event.outcome
            self._mark(decision, "rewarded", outcome.get("sum", outcome["value"]))
            if outcome.get("settled"):
                self._settle(decision, outcome["value"])
        elif event.kind == EXPIRED:
            outcome = event.outcome
            first_dropped = len(outcome["decisions"]) - outcome.get("dropped", 0)
            for i, (decision, learned) in enumerate(zip(outcome["decisions"], outcome["learned"], strict=True)):
                self._settle(decision, learned)
                if decision in self._recent and self._recent[decision]["status"] == "pending":
                    self._mark(decision, "expired" if i < first_dropped else "dropped", learned)

    def _add_decision(self, event: Event, describe_model: Callable[[], dict[str, Any] | None]) -> None:
        outcome, time = event.outcome, to_datetime(event.time)
        if self._decisions // self._width == len(self._buckets):
            self._open_bucket({"since": time, "model": describe_model()})
        bucket, id_, arm, prediction = self._buckets[-1], outcome["id"], str(outcome["arm"]), outcome["prediction"]
        self._others += _count(self._arms, arm, prediction)
        bucket["others"] += _count(bucket["arms"], arm, prediction)
        bucket["decisions"] += 1
        bucket["until"] = time
        if outcome["projected"] is not None:
            bucket["projected"] = (bucket["projected"] or 0) + outcome["projected"]
        shown = {name: outcome[name] for name in ("id", "time", "arm", "prediction")}
        self._recent[id_] = {**shown, "status": "pending", "reward": None}
        if len(self._recent) > RECENT:
            del self._recent[next(iter(self._recent))]
        self._open[id_] = self._decisions, arm
        self._decisions += 1

    def _open_bucket(self, start: dict[str, Any]) -> None:
        if self._buckets:
            _trim(self._buckets[-1])
        if len(self._buckets) == MAX_BUCKETS:
            self._buckets = [_merge(*pair) for pair in zip(self._buckets[::2], self._buckets[1::2], strict=True)]
            self._width *= 2
        empty = {"decisions": 0, "settled": 0, "total": 0.0, "projected": None, "arms": {}, "others": 0}
        self._buckets.append(start | empty)

    def _settle(self, decision: str, outcome: float | None) -> None:
        """Add a final outcome to the bucket of its decision. None: nothing was learned."""
        number, arm = self._open.pop(decision)
        if outcome is not None:
            bucket = self._buckets[number // self._width]
            bucket["settled"] += 1
            bucket["total"] += outcome
            if arm in bucket["arms"]:
                bucket["arms"][arm]["settled"] += 1
                bucket["arms"][arm]["realised"] += outcome

    def _mark(self, decision: str, status: str, reward: float | None) -> None:
        if decision in self._recent:
            self._recent[decision] |= {"status": status, "reward": reward}

    @property
    def document(self) -> dict[str, Any]:
        """The charts, to be encoded by :func:`windvane.records.to_json`."""
        arms, recent = {arm: counts["decisions"] for arm, counts in self._arms.items()}, list(self._recent.values())
        shared = {"width": self._width, "buckets": self._buckets}
        return {**shared, "arms": arms, "others": self._others, "recent": recent}


def _count(arms: dict[str, dict[str, Any]], arm: str, prediction: float) -> int:
    """Count a decision. Of too many arms the one played longest ago is dropped; return how many decisions it had."""
    counts = arms[arm] = arms.pop(arm, None) or dict(_NO_COUNTS)  # the last one played comes last
    counts["decisions"] += 1
    counts["predicted"] += prediction
    return int(arms.pop(next(iter(arms)))["decisions"]) if len(arms) > MAX_COUNTED else 0


def _merge(bucket: dict[str, Any], later: dict[str, Any]) -> dict[str, Any]:
    sums = {name: bucket[name] + later[name] for name in ("decisions", "settled", "total", "others")}
    projected = [b["projected"] for b in (bucket, later) if b["projected"] is not None]
    for arm, counts in later["arms"].items():
        known = bucket["arms"].get(arm, _NO_COUNTS)
        bucket["arms"][arm] = {name: known[name] + counts[name] for name in known}
    rest = {"until": later["until"], "projected": sum(projected) if projected else None}
    merged = {**bucket, **sums, **rest, "model": bucket["model"] or later["model"]}
    _trim(merged)
    return merged


def _trim(bucket: dict[str, Any]) -> None:
    """Keep the arms played most."""
    arms = bucket["arms"]
    for arm in sorted(arms, key=lambda arm: arms[arm]["decisions"], reverse=True)[MAX_ARMS:]:
        bucket["others"] += arms.pop(arm)["decisions"]
