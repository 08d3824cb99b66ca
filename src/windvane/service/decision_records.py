"""The record of a decision, from its events and what the agent still knows of it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from windvane.agent import AgentCore
from windvane.records import Decision, DecisionRecord, DecisionStatus
from windvane.service.problems import Problem
from windvane.service.store import DECIDED, LATE, Event


def check_decision(decision: str, events: Sequence[Event]) -> Sequence[Event]:
    """Return the events of a decision; raise if it does not exist, or only later events of it are left in the log."""
    if not events or events[0].kind != DECIDED:
        raise Problem("unknown-decision", f"there is no decision {decision!r}")
    return events


def describe_decision(core: AgentCore, events: Sequence[Event]) -> DecisionRecord:
    """Return a decision with its status and reward; ``events``: all of its events."""
    decision, outcome, reward, late = events[0].decision or "", events[0].outcome, None, None
    for event in events[1:]:
        value = event.outcome.get("sum", event.outcome["value"])
        reward, late = (reward, value) if event.kind == LATE else (value, late)
    return DecisionRecord(
        decision=Decision(**outcome | {"time": datetime.fromisoformat(outcome["time"])}),
        status=_find_status(core, decision, reward),
        reward=reward,
        late_reward=late,
    )


def _find_status(core: AgentCore, decision: str, reward: float | None) -> DecisionStatus:
    """Return the status of a decision. One that was dropped long ago counts as expired."""
    closed = core.outcome_of(decision)
    if closed is not None and closed.is_dropped:
        return "dropped"
    return "pending" if core.is_pending(decision) else "expired" if reward is None else "rewarded"
