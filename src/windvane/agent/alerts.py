"""Alerts: conditions under which a running agent learns little or predicts badly.

Each alert has a code for programs and a sentence that says what was seen and what to change.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable

from windvane.records import Alert

RECENT = 200
"""Decisions that a recent share is taken over."""
FEWEST = 50
"""Decisions needed to estimate a share: with fewer, its standard error at one half is above 0.07."""
LARGEST_SHARE = 0.2
"""Of recent decisions: above it, an alert is raised."""
LOG_AGAIN = 10_000
"""Decisions after which an alert that is still raised is logged again."""
CHECK_EVERY = 100
"""Decisions between two checks of the alerts, which cost about as much as a decision."""

CODES = ("norm_bound_active", "timeout_exceeds_memory", "decisions_dropped", "misses_learned_late")

log = logging.getLogger("windvane.agent")


class RecentShare:
    """The share of the last :data:`RECENT` decisions that have some property."""

    def __init__(self, marks: Iterable[bool] = ()) -> None:
        self.marks: deque[bool] = deque(marks, maxlen=RECENT)

    def add(self, mark: bool) -> None:
        self.marks.append(mark)

    @property
    def share(self) -> float:
        return sum(self.marks) / len(self.marks) if self.marks else 0.0

    @property
    def is_high(self) -> bool:
        return len(self.marks) >= FEWEST and self.share > LARGEST_SHARE


class AlertLog:
    """Logs alerts, each code at most once in :data:`LOG_AGAIN` decisions."""

    def __init__(self) -> None:
        self._logged: dict[str, int] = {}

    def log(self, alerts: Iterable[Alert], decisions: int, source: str) -> None:
        """``decisions``: how many were made so far; ``source``: what a line begins with."""
        for alert in alerts:
            last = self._logged.get(alert.code)
            if last is None or decisions - last >= LOG_AGAIN:
                self._logged[alert.code] = decisions
                log.warning("%s: %s: %s", source, alert.code, alert.message)


def norm_bound_active(recent: RecentShare, S: float, largest_S: float) -> Alert:
    larger = min(2.0 * S, largest_S)
    remedy = f"give a larger S, for example S={larger:.3g}" if larger > S else "S cannot be larger with this link and L"
    message = (
        f"the estimate was at the norm bound S={S:g} in {recent.share:.0%} of the last {len(recent.marks)} decisions, "
        f"so predictions may be far from the rewards; {remedy}, or declare features with narrower ranges"
    )
    return Alert(code="norm_bound_active", message=message)


def timeout_exceeds_memory(lag: str, memory: str) -> Alert:
    message = (
        f"rewards are learned {lag} after their decision, at the timeout, but the policy remembers only {memory}, so "
        'little is learned; give a shorter reward_timeout or a longer memory, or learn="early"'
    )
    return Alert(code="timeout_exceeds_memory", message=message)


def misses_learned_late(share: float) -> Alert:
    message = (
        f"rewards are learned on arrival, but {share:.0%} of decisions get none and are learned at the timeout, so "
        'predictions are too high; set learn to "at_timeout" or "early"'
    )
    return Alert(code="misses_learned_late", message=message)


def decisions_dropped(recent: RecentShare, max_pending: int) -> Alert:
    message = (
        f"{recent.share:.0%} of the last {len(recent.marks)} closed decisions were dropped: max_pending={max_pending} "
        "decisions were open. Nothing was learned from them; give a larger max_pending or a shorter reward_timeout"
    )
    return Alert(code="decisions_dropped", message=message)
