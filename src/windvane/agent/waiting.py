"""The decisions whose outcome is not final yet, and what became of the last that were closed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from windvane.agent.decisions import ConflictingRewardError, ExpiredDecisionError, Pending, UnknownDecisionError

AT_TIMEOUT, ON_ARRIVAL, EARLY = "at_timeout", "on_arrival", "early"
"""When an outcome is learned: when the decision's wait ends; a reward as soon as it comes; or before the wait ends,
with a correction for the rewards that are still to come."""
REMEMBERED = 10_000
"""Closed decisions whose outcome is still known, to tell a repeated reward from a wrong one."""


class Waiting:
    """``open`` decisions by id, the oldest first; ``closed``: the reward of each, or None if none came in time, the
    oldest first. An open decision may have its reward already: ``held`` counts those."""

    def __init__(self) -> None:
        self.open: OrderedDict[str, Pending] = OrderedDict()
        self.closed: OrderedDict[str, float | None] = OrderedDict()
        self.held = 0

    def __len__(self) -> int:
        return len(self.open)

    def __iter__(self) -> Iterator[Pending]:
        return iter(self.open.values())

    def knows(self, id: str) -> bool:
        return id in self.open or id in self.closed

    def oldest(self) -> Pending:
        return next(iter(self))

    def add(self, pending: Pending) -> None:
        self.open[pending.decision.id] = pending
        self.held += pending.reward is not None

    def hold(self, pending: Pending, reward: float, delay: float, *, is_miss: bool) -> None:
        """Keep a reward that is to be learned later, and the ``delay`` after which it came."""
        self.held += pending.reward is None
        pending.reward, pending.delay, pending.is_miss = reward, delay, is_miss

    def close(self, pending: Pending, outcome: float | None) -> None:
        del self.open[pending.decision.id]
        pending.is_open = False
        self.held -= pending.reward is not None
        self.closed[pending.decision.id] = outcome

    def forget(self) -> None:
        """Drop the outcomes of decisions that were closed too long ago."""
        while len(self.closed) > REMEMBERED:
            self.closed.popitem(last=False)

    def reopen(self, pending: Pending) -> None:
        """Undo :meth:`close`: the decision is open again, in its old place."""
        del self.closed[pending.decision.id]
        pending.is_open = True
        self.add(pending)
        self.open = OrderedDict(sorted(self.open.items(), key=lambda item: item[1].number))

    def check_repeated(self, id: str, value: float) -> None:
        """Raise unless ``value`` repeats the known reward of a decision that takes no other one."""
        known = self.open[id].reward if id in self.open else self.closed.get(id)
        if not self.knows(id):
            raise UnknownDecisionError(id, "is not known, or was closed long ago")
        if known is None:
            raise too_late(id)
        if known != value:
            raise ConflictingRewardError(id, f"already has the reward {known:g}, not {value:g}")


def too_late(id: str) -> ExpiredDecisionError:
    return ExpiredDecisionError(id, "has expired, or max_pending dropped it; the reward was not learned")
