"""The decisions whose outcome is not final yet, and the outcomes of those closed last."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from windvane.arguments import Array
from windvane.errors import WindvaneError, format_value
from windvane.records import Decision, Name, RewardStatus

AT_TIMEOUT, ON_ARRIVAL, EARLY = "at_timeout", "on_arrival", "early"
"""When an outcome is learned: when the decision's timeout passes; a reward as soon as it comes; or before the timeout,
with a correction for the rewards that are still to come."""
REMEMBERED = 10_000
"""Closed decisions whose outcome is still known, to tell a repeated reward from a different one."""


class DecisionError(WindvaneError, ValueError):
    """The reward of ``decision`` (an id) cannot be accepted, for the reason ``problem``. Nothing was learned."""

    def __init__(self, decision: str, problem: str) -> None:
        self.decision, self.problem = decision, problem
        super().__init__(f"decision {format_value(decision)} {problem}")


class UnknownDecisionError(DecisionError):
    """No decision has this id, or it was closed so long ago that the agent has forgotten it."""


class ConflictingRewardError(DecisionError):
    """The decision already has another reward."""


@dataclass(slots=True)
class Pending:
    """A decision whose outcome is not final yet.

    ``time`` is that of the decision in seconds since 1970. ``reward`` is the reward that arrived, or the sum of its
    parts if ``is_partial``, ``delay`` after the decision (in the unit of ``reward_timeout``). With ``learn="early"``,
    ``looks`` counts the early looks at the decision, ``credited`` is F at the last look without a reward (see
    :mod:`windvane.agent.delays`), and ``is_learned`` says whether the reward was learned.
    """

    x: Array
    round: float  # of the policy
    number: int  # of the decision
    time: float
    decision: Decision
    reward: float | None = None
    delay: float | None = None
    looks: int = 0
    credited: float = 0.0
    is_learned: bool = False
    is_miss: bool = True  # no reward arrived, or one equal to the default of that time
    is_partial: bool = False
    is_open: bool = True


class ClosedDecision(NamedTuple):
    """How a decision was closed: the outcome that was ``learned`` (None: nothing), whether its reward had arrived, and
    whether it was ``dropped`` because more than ``max_pending`` decisions were open. ``number`` counts decisions."""

    id: str
    arm: Name
    number: int
    learned: float | None
    rewarded: bool = False
    dropped: bool = False


class ClosedOutcome(NamedTuple):
    """The reward of a decision, and the reward that arrived after the timeout (None: none). ``is_partial``: in parts;
    ``is_dropped``: ``max_pending`` pushed the decision out."""

    reward: float | None
    late_reward: float | None = None
    is_partial: bool = False
    is_dropped: bool = False


class RewardOutcome(NamedTuple):
    """The status of a reward. ``is_new``: it is recorded; otherwise the same reward was recorded before."""

    status: RewardStatus
    is_new: bool


RECORDED = RewardOutcome("recorded", True)


class PendingDecisions:
    """``open`` decisions by id, and the outcomes of the last that were ``closed``, both the oldest first.

    An open decision may have its reward already: ``held`` counts those.
    """

    def __init__(self) -> None:
        self.open: OrderedDict[str, Pending] = OrderedDict()
        self.closed: OrderedDict[str, ClosedOutcome] = OrderedDict()
        self.held = 0

    def __len__(self) -> int:
        return len(self.open)

    def __iter__(self) -> Iterator[Pending]:
        return iter(self.open.values())

    def __contains__(self, id: str) -> bool:
        return id in self.open or id in self.closed

    def oldest(self) -> Pending:
        return next(iter(self.open.values()))

    def add(self, pending: Pending) -> None:
        self.open[pending.decision.id] = pending
        self.held += pending.reward is not None

    def close(self, pending: Pending, reward: float | None, is_dropped: bool) -> None:
        del self.open[pending.decision.id]
        pending.is_open = False
        self.held -= pending.reward is not None
        self.closed[pending.decision.id] = ClosedOutcome(reward, None, pending.is_partial, is_dropped)

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

    def outcome_of(self, id: str) -> ClosedOutcome:
        """Return the recorded reward of a decision, open or closed."""
        if id in self.closed:
            return self.closed[id]
        if id not in self.open:
            raise UnknownDecisionError(id, "is not known, or was closed long ago")
        return ClosedOutcome(self.open[id].reward, None, self.open[id].is_partial)

    def repeat_reward(self, id: str, value: float) -> RewardOutcome:
        """Take a reward of a decision that has one, or is closed: a repetition, or one that came too late."""
        reward, late, is_partial, _ = self.outcome_of(id)
        known = late if reward is None else reward
        if is_partial:
            raise ConflictingRewardError(id, "gets its reward in parts")
        if known is not None and known != value:
            raise ConflictingRewardError(id, f"already has the reward {known:g}, not {value:g}")
        if reward is not None:
            return RewardOutcome("unchanged", False)
        self.closed[id] = self.closed[id]._replace(late_reward=value)
        return RewardOutcome("expired", late is None)

    def add_late_part(self, id: str, value: float) -> float:
        """Record a part of a reward that came too late; return the sum of such parts."""
        total = (self.closed[id].late_reward or 0.0) + value
        self.closed[id] = self.closed[id]._replace(late_reward=total, is_partial=True)
        return total
