"""Alerts: conditions under which a running agent learns little or predicts badly.

Each alert has a code for programs and a sentence that says what was seen and what to change.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from windvane.agent.info import memory_of
from windvane.agent.pending import AT_TIMEOUT, ON_ARRIVAL
from windvane.agent.times import TICK, TICKS
from windvane.policies.adaptive_glm_ucb import AdaptiveGLMUCB
from windvane.records import Alert

if TYPE_CHECKING:
    from windvane.agent.core import AgentCore

RECENT = 200  # decisions that a recent share is taken over
FEWEST = 50  # decisions needed to estimate a share: with fewer, its standard error at one half is above 0.07
LARGEST_SHARE = 0.2  # of recent decisions: above it, an alert is raised
LOG_AGAIN = 10_000  # decisions after which an alert that is still raised is logged again
CHECK_EVERY = 100  # decisions between two checks of the alerts, which cost about as much as a decision
ROUNDING = 1.0 + 1e-9  # a memory computed from a discount may be off by this factor
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

    def __str__(self) -> str:
        return f"{self.share:.0%} of the last {len(self.marks)}"

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


def find_alerts(core: AgentCore) -> list[Alert]:
    """Return the conditions under which the agent learns little or predicts badly."""
    messages, tally = {}, core.tally
    if core.recently_projected.is_high:
        S, largest = core.settings["S"], core.policy.reward_link.largest_product / core.policy.L
        larger = min(2.0 * S, largest)
        remedy = (
            f"give a larger S, for example S={larger:.3g}" if larger > S else "S cannot be larger with this link and L"
        )
        messages["norm_bound_active"] = (
            f"the estimate was at the norm bound S={S:g} in {core.recently_projected} decisions, so predictions may be "
            f"far from the rewards; {remedy}, or declare features with narrower ranges"
        )
    lag, memory = _lag(core), memory_of(core.policy, is_late=True)
    if lag > memory * ROUNDING:
        unit, length = ("seconds", TICK) if core.clock.by_clock else ("decisions", 1.0)
        messages["timeout_exceeds_memory"] = (
            f"rewards are learned {lag * length:.3g} {unit} after their decision, at the timeout, but the policy "
            f"remembers only {memory * length:.3g} {unit}, so little is learned; give a shorter reward_timeout or a "
            'longer memory, or learn="early"'
        )
    if core.recently_dropped.is_high:
        messages["decisions_dropped"] = (
            f"{core.recently_dropped} closed decisions were dropped: max_pending={core.max_pending} decisions were "
            "open. Nothing was learned from them; give a larger max_pending or a shorter reward_timeout"
        )
    has_misses = tally.settled >= FEWEST and tally.defaulted > LARGEST_SHARE * tally.settled
    if core.learn == ON_ARRIVAL and has_misses:
        messages["misses_learned_late"] = (
            f"rewards are learned on arrival, but {tally.defaulted / tally.settled:.0%} of decisions get none and are "
            'learned at the timeout, so predictions are too high; set learn to "at_timeout" or "early"'
        )
    return [Alert(code=code, message=message) for code, message in messages.items()]


def _lag(core: AgentCore) -> float:
    """Return the rounds of the policy between a decision and the learning of its outcome, as far as they are known; 0
    where rewards are learned on arrival, or while the memory is not known yet."""
    policy, timeout, by_clock = core.policy, core.reward_timeout, core.clock.by_clock
    learns_memory = isinstance(policy, AdaptiveGLMUCB) and len(policy.memories) > 1
    if timeout is None or core.learn != AT_TIMEOUT or (learns_memory and core.tally.settled < FEWEST):
        return 0.0
    if timeout.by_clock == by_clock:
        return timeout.length * (TICKS if by_clock else 1.0)
    return policy.t - core.decisions.oldest().round if len(core.decisions) else 0.0
