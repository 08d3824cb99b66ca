"""What the live page draws of a stream: rewards and arms over time, in a bounded number of buckets.

A bucket covers a number of decisions; when there are too many buckets, neighbours are merged and the next ones cover
twice as many. So the whole life of a stream is always shown, the past ever more coarsely.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from windvane.agent import Closing

MOST_BUCKETS = 240
FIRST_WIDTH = 10  # decisions
MOST_ARMS = 12  # told apart in a bucket that is full: those chosen most
MOST_COUNTED = 1000  # arms whose decisions are counted by name: those chosen last
RECENT = 50


class Statistics:
    """Counted as decisions and rewards come; ``document`` is all of it as plain data."""

    def __init__(self) -> None:
        self.width = FIRST_WIDTH
        self.buckets: list[dict[str, Any]] = []
        self.arms: dict[str, int] = {}
        self.others = 0  # decisions for arms that are not counted by name
        self.recent: deque[dict[str, Any]] = deque(maxlen=RECENT)

    def decided(
        self,
        time: float,
        arm: str | int,
        decision: str,
        prediction: float,
        projected: bool | None,
        model: dict[str, Any],
    ) -> None:
        """``projected``: None if the policy does not tell. ``model``: the numbers of the model's state that are drawn
        over time; asked for once a bucket."""
        if self.full:
            self._open(time, model)
        bucket, name = self.buckets[-1], str(arm)
        self.others += _counted(self.arms, name)
        bucket["others"] += _counted(bucket["arms"], name)
        bucket["decisions"] += 1
        bucket["until"] = time
        if projected is not None:
            bucket["projected"] = (bucket["projected"] or 0) + projected
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

    def reward(self, decision: str, value: float) -> None:
        """Record a reward. It counts in the reward rate when its outcome is learned."""
        self._mark(decision, "rewarded", value)

    def close(self, closing: Closing) -> None:
        """A decision was closed: its outcome is final."""
        if closing.learned is not None:
            self.settle(closing.learned)
        if not closing.rewarded:
            self._mark(closing.id, "dropped" if closing.dropped else "expired", closing.learned)

    def settle(self, outcome: float) -> None:
        """Count an outcome that was learned. Counting rewards when they come would show the rate of clicks alone while
        non-clicks wait for their timeout."""
        if self.buckets:
            self.buckets[-1]["rewards"] += 1
            self.buckets[-1]["total"] += outcome

    @property
    def full(self) -> bool:
        """Whether the next decision opens a bucket."""
        return not self.buckets or self.buckets[-1]["decisions"] >= self.width

    def _mark(self, decision: str, state: str, value: float | None) -> None:
        for row in reversed(self.recent):  # most rewards are of the last decisions
            if row["decision"] == decision:
                row["state"], row["reward"] = state, value
                return

    def _open(self, time: float, model: dict[str, Any]) -> None:
        if self.buckets:
            _trim(self.buckets[-1])
        if len(self.buckets) >= MOST_BUCKETS:
            self.width *= 2
            pairs = zip(self.buckets[::2], self.buckets[1::2], strict=True)
            self.buckets = [_merged(one, other) for one, other in pairs]
        counts = {"decisions": 0, "rewards": 0, "total": 0.0, "projected": None, "others": 0}
        self.buckets.append({**counts, "since": time, "until": time, "arms": {}, "model": model})

    def document(self) -> dict[str, Any]:
        return {
            "width": self.width,
            "buckets": self.buckets,
            "arms": self.arms,
            "others": self.others,
            "recent": list(self.recent),
        }

    @classmethod
    def of(cls, document: dict[str, Any]) -> Statistics:
        found = cls()
        found.width, found.buckets = document["width"], document["buckets"]
        found.arms, found.others = document["arms"], document["others"]
        found.recent.extend(document["recent"])
        return found


def _counted(arms: dict[str, int], name: str) -> int:
    """Count an arm by its name. Of too many, the one that was chosen longest ago gives way: a catalogue may change for
    ever. Returns how many decisions are no longer told apart."""
    arms[name] = arms.pop(name, 0) + 1  # the last chosen comes last
    return arms.pop(next(iter(arms))) if len(arms) > MOST_COUNTED else 0


def _merged(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    sums = {key: one[key] + other[key] for key in ("decisions", "rewards", "total", "others")}
    known = [bucket["projected"] for bucket in (one, other) if bucket["projected"] is not None]
    arms = dict(one["arms"])
    for name, count in other["arms"].items():
        arms[name] = arms.get(name, 0) + count
    merged = {
        **sums,
        "projected": sum(known) if known else None,
        "since": one["since"],
        "until": other["until"],
        "arms": arms,
        "model": one["model"],
    }
    _trim(merged)
    return merged


def _trim(bucket: dict[str, Any]) -> None:
    """Keep the arms chosen most."""
    arms = bucket["arms"]
    for name in sorted(arms, key=arms.__getitem__, reverse=True)[MOST_ARMS:]:
        bucket["others"] += arms.pop(name)
