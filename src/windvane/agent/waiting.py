"""Decisions that wait for their rewards, and what became of the last that no longer do."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from windvane._validation import shown
from windvane.agent.decisions import ConflictingRewardError, ExpiredDecisionError, Pending, UnknownDecisionError

REMEMBERED = 10_000
"""Closed decisions whose outcome is still known, to tell a repeated reward from a wrong one."""


class Waiting:
    """``pending`` by id, the oldest first; ``closed``: the reward of each, or None if it expired, the oldest first."""

    def __init__(self) -> None:
        self.pending: OrderedDict[str, Pending] = OrderedDict()
        self.closed: OrderedDict[str, float | None] = OrderedDict()

    def __len__(self) -> int:
        return len(self.pending)

    def __iter__(self) -> Iterator[Pending]:
        return iter(self.pending.values())

    def knows(self, id: str) -> bool:
        return id in self.pending or id in self.closed

    def oldest(self) -> Pending:
        return next(iter(self))

    def close(self, one: Pending, outcome: float | None) -> None:
        del self.pending[one.decision.id]
        self.closed[one.decision.id] = outcome

    def forget(self) -> None:
        """What was closed too long ago."""
        while len(self.closed) > REMEMBERED:
            self.closed.popitem(last=False)

    def reopen(self, one: Pending) -> None:
        """It waits again, in its old place."""
        del self.closed[one.decision.id]
        self.pending[one.decision.id] = one
        self.pending = OrderedDict(sorted(self.pending.items(), key=lambda item: item[1].number))

    def refuse(self, id: str, value: float) -> bool:
        """What is wrong with a reward for a decision that does not wait; False if it repeats what is known."""
        if id not in self.closed:
            raise UnknownDecisionError(f"decision={shown(id)}: is not known, or was closed long ago")
        known = self.closed[id]
        if known is None:
            raise too_late(id)
        if known != value:
            raise ConflictingRewardError(f"decision={shown(id)}: has the reward {known:g} already, not {value:g}")
        return False


def too_late(id: str) -> ExpiredDecisionError:
    return ExpiredDecisionError(f"decision={shown(id)}: its wait is over; the reward is not learnt from")
