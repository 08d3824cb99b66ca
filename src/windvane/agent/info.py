"""Information about an agent: its estimate, drift and alerts, and all of it as one record.

An alert is a condition under which an agent learns little or predicts badly: a machine-readable code, and a sentence
that says what was observed and what to change.
"""

from __future__ import annotations

import copy
import logging
import math
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from windvane.agent.memory import describe_half_life, learns_memory, memory_in_its_unit, memory_of
from windvane.agent.pending import AT_TIMEOUT, ON_ARRIVAL
from windvane.agent.times import TICK, TICKS
from windvane.arguments import Array
from windvane.policies.adaptive_glm_ucb import AdaptiveGLMUCB
from windvane.policies.base import Policy
from windvane.policies.optimism import EstimatingPolicy
from windvane.records import AgentInfo, Alert, Drift

if TYPE_CHECKING:
    from windvane.agent.core import AgentCore

RECENT = 200  # decisions that a recent share is taken over
FEWEST = 50  # decisions needed to estimate a share: with fewer, its standard error at one half is above 0.07
LARGEST_SHARE = 0.2  # of recent decisions: above it, an alert is raised
LOG_AGAIN = 10_000  # decisions after which an alert that is still raised is logged again
CHECK_EVERY = 100  # decisions between two checks of the alerts, which cost about as much as a decision
ROUNDING = 1.0 + 1e-9  # a memory computed from a discount may be off by this factor
CODES = ("norm_bound_active", "timeout_exceeds_memory", "decisions_dropped", "misses_learned_late", "miscalibrated")

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


def describe(core: AgentCore) -> AgentInfo:
    """Return the record of an agent."""
    policy, theta, drift = core.policy, theta_of(core.policy), drift_of(core.policy)
    return AgentInfo(
        policy=policy.name,
        link=policy.reward_link.name,
        dim=policy.dim,
        learn=core.learn,
        counts=core.counts,
        mean_reward=core.mean_reward,
        theta=dict(zip(core.encoder.feature_names, theta.tolist(), strict=True)),
        S=_scale_of(policy),
        projected_share=core.projected_share,
        recent_projected_share=core.recently_projected.share,
        memory=memory_in_its_unit(core),
        memory_unit="seconds" if core.clock.by_clock else "decisions",
        half_life=describe_half_life(core, drift),
        decisions_per_second=core.pace.per_second,
        drift=drift,
        calibration=core.calibration.describe(),
        alerts=core.alerts,
        settings={name: _finite(value) for name, value in copy.deepcopy(core.settings).items()},
    )


def theta_of(policy: Policy) -> Array:
    """Return the estimated parameter; zeros for a policy without an estimate. ``info()`` is avoided where it takes
    longer: it also computes matrices and projections."""
    estimate: Array | None
    if isinstance(policy, AdaptiveGLMUCB | EstimatingPolicy):
        estimate = policy.read_theta()
    else:
        estimate = policy.info().theta_hat
    return np.zeros(policy.dim) if estimate is None else np.array(estimate[0])


def drift_of(policy: Policy) -> Drift | None:
    """Return the drift estimated from the rewards; None for a policy with a fixed memory."""
    estimate = policy.read_drift() if isinstance(policy, AdaptiveGLMUCB) else None
    if estimate is None:
        return None
    values: dict[str, Any] = {name: np.asarray(value)[0].item() for name, value in estimate._asdict().items()}
    return Drift(**{name: value if name.startswith("memory") else _finite(value) for name, value in values.items()})


def _scale_of(policy: Policy) -> float | None:
    """Return S as set or learned; None for a policy without one."""
    if isinstance(policy, AdaptiveGLMUCB):
        scale = policy.info(estimates=False).acting_scale
        return None if scale is None else float(scale[0])
    return policy.S if isinstance(policy, EstimatingPolicy) else None


def _finite(value: Any) -> Any:
    """Return None for a number that JSON does not have, also within a list."""
    if isinstance(value, list):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


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
    lag = _lag(core)
    if lag > 0.0 and lag > (memory := memory_of(core.policy, is_late=True)) * ROUNDING:
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
    if core.calibration.is_off:
        messages["miscalibrated"] = _describe_miscalibration(core)
    return [Alert(code=code, message=message) for code, message in messages.items()]


def _describe_miscalibration(core: AgentCore) -> str:
    recent = core.calibration.recent
    predicted, realised = recent.mean_prediction or 0.0, recent.mean_reward or 0.0
    missing = "features" if core.encoder.has_intercept else "an intercept or features"
    return (
        f"predictions are too {'high' if predicted > realised else 'low'}: over the last {recent.settled} outcomes the "
        f"mean prediction was {predicted:.3g} and the mean reward {realised:.3g}, {abs(recent.z or 0.0):.1f} standard "
        f"errors apart, so the model does not fit the rewards; add {missing} that explain them, or give a shorter "
        "memory or another link"
    )


def _lag(core: AgentCore) -> float:
    """Return the rounds of the policy between a decision and the learning of its outcome, as far as they are known; 0
    where rewards are learned on arrival, or while the memory is not known yet."""
    policy, timeout, by_clock = core.policy, core.reward_timeout, core.clock.by_clock
    if timeout is None or core.learn != AT_TIMEOUT or (learns_memory(policy) and core.tally.settled < FEWEST):
        return 0.0
    if timeout.by_clock == by_clock:
        return timeout.length * (TICKS if by_clock else 1.0)
    return policy.t - core.decisions.oldest().round if len(core.decisions) else 0.0
