"""What the live page draws of a stream: rewards and arms over time, in a bounded number of buckets.

A bucket covers a number of decisions; when there are too many buckets, neighbours are merged and the next ones cover
twice as many. So the whole life of a stream is always shown, the past ever more coarsely.
"""

from __future__ import annotations

from collections import deque
from typing import Any

MOST_BUCKETS = 240
FIRST_WIDTH = 10  # decisions
MOST_ARMS = 12  # told apart in the shares; the rest are "other"
MOST_COUNTED = 1000  # arms whose decisions are counted by name
RECENT = 50
OTHER = "other"


class Statistics:
    """Counted as decisions and rewards come; ``document`` is all of it as plain data."""

    def __init__(self) -> None:
        self.width = FIRST_WIDTH
        self.buckets: list[dict[str, Any]] = []
        self.arms: dict[str, int] = {}
        self.recent: deque[dict[str, Any]] = deque(maxlen=RECENT)

    def decided(self, time: float, arm: str | int, decision: str, prediction: float, model: dict[str, Any]) -> None:
        """``model``: the numbers of the model's state that are drawn over time; asked for once a bucket."""
        name = str(arm)
        counted = name if name in self.arms or len(self.arms) < MOST_COUNTED else OTHER
        self.arms[counted] = self.arms.get(counted, 0) + 1
        if not self.buckets or self.buckets[-1]["decisions"] >= self.width:
            self._open(time, model)
        bucket = self.buckets[-1]
        bucket["decisions"] += 1
        bucket["until"] = time
        shares = bucket["arms"]
        known = name if name in shares or len(shares) < MOST_ARMS else OTHER
        shares[known] = shares.get(known, 0) + 1
        self.recent.append(
            {
                "decision": decision,
                "time": time,
                "arm": arm,
                "prediction": prediction,
                "reward": None,
                "state": "pending",
            }
        )

    def rewarded(self, decision: str, value: float) -> None:
        if self.buckets:
            self.buckets[-1]["rewards"] += 1
            self.buckets[-1]["total"] += value
        self._mark(decision, "rewarded", value)

    def expired(self, decision: str) -> None:
        self._mark(decision, "expired", None)

    @property
    def full(self) -> bool:
        """Whether the next decision opens a bucket."""
        return not self.buckets or self.buckets[-1]["decisions"] >= self.width

    def _mark(self, decision: str, state: str, value: float | None) -> None:
        for row in self.recent:
            if row["decision"] == decision:
                row["state"], row["reward"] = state, value

    def _open(self, time: float, model: dict[str, Any]) -> None:
        if len(self.buckets) >= MOST_BUCKETS:
            self.width *= 2
            pairs = zip(self.buckets[::2], self.buckets[1::2], strict=True)
            self.buckets = [_merged(one, other) for one, other in pairs]
        self.buckets.append(
            {"since": time, "until": time, "decisions": 0, "rewards": 0, "total": 0.0, "arms": {}, "model": model}
        )

    def document(self) -> dict[str, Any]:
        return {"width": self.width, "buckets": self.buckets, "arms": self.arms, "recent": list(self.recent)}

    @classmethod
    def of(cls, document: dict[str, Any]) -> Statistics:
        found = cls()
        found.width, found.buckets, found.arms = document["width"], document["buckets"], document["arms"]
        found.recent.extend(document["recent"])
        return found


def _merged(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    arms = dict(one["arms"])
    for name, count in other["arms"].items():
        known = name if name in arms or len(arms) < MOST_ARMS else OTHER
        arms[known] = arms.get(known, 0) + count
    sums = {key: one[key] + other[key] for key in ("decisions", "rewards", "total")}
    return {**sums, "since": one["since"], "until": other["until"], "arms": arms, "model": other["model"]}
