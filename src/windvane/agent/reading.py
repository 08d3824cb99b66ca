"""What can be read of an agent: counts, the estimate, how far back it looks, and what drift it has seen."""

from __future__ import annotations

import math
import threading
from typing import Any, NamedTuple

import numpy as np

from windvane.agent import alerts
from windvane.agent.alerts import Alert, RecentShare
from windvane.agent.decisions import Decision
from windvane.agent.features import Features, Name
from windvane.agent.scaling import Scaling
from windvane.agent.times import TICK, TICKS, Clock, Span, rounds_of
from windvane.agent.waiting import AT_TIMEOUT, ON_ARRIVAL, Waiting
from windvane.arguments import Array
from windvane.estimation import Estimator
from windvane.policies.adaptive_glm_ucb import AdaptiveGLMUCB, AdaptiveInfo
from windvane.policies.bandit_over_bandits import BanditOverBandits
from windvane.policies.base import Policy
from windvane.policies.info import PolicyInfo
from windvane.policies.optimism import EstimatingPolicy
from windvane.policies.restart import RestartedPolicy

ROUNDING = 1.0 + 1e-9  # a memory computed from a discount may be off by this factor


class Drift(NamedTuple):
    """What the rewards say about the drift; see :class:`windvane.policies.adaptive_glm_ucb.DriftEstimate`."""

    verdict: str
    evidence: float
    memory: float
    memory_low: float
    memory_high: float
    scale: float
    rate: float
    rate_low: float
    rate_high: float
    variation: float


def drift_of(info: PolicyInfo) -> Drift | None:
    """None for a policy that was told how to forget."""
    drift = info.drift if isinstance(info, AdaptiveInfo) else None
    return None if drift is None else Drift(*(np.asarray(value)[0].item() for value in drift))


def memory_of(policy: Policy, *, is_late: bool = False) -> float:
    """How many rounds back the past counts: 1/(1 - gamma), a window, or the time between two restarts.

    ``is_late``: for how many rounds a reward that was not learned yet stays informative. For AdaptiveGLMUCB this is the
    memory of the acting expert, which is longer than the time over which it averages many rewards.
    """
    if isinstance(policy, AdaptiveGLMUCB):
        info = policy.info(estimates=False)
        memory = info.acting_memory if is_late else info.effective_memory
        return math.inf if memory is None else float(memory[0])
    if isinstance(policy, BanditOverBandits):
        return min(memory_of(policy.worker), float(policy.length))
    estimator = getattr(policy, "estimator", None)  # a policy of the user's own may have another one, or none
    if isinstance(estimator, Estimator) and estimator.window is not None:
        return float(estimator.window[0])
    gamma = estimator.gamma if isinstance(estimator, Estimator) else policy.info().gamma
    discounted = math.inf if gamma is None else rounds_of(float(gamma[0]))
    return min(discounted, float(policy.periods[0])) if isinstance(policy, RestartedPolicy) else discounted


class Readable:
    """The part of :class:`windvane.Agent` that changes nothing."""

    policy: Policy
    config: dict[str, Any]
    features: Features | None
    decisions: int
    rewards: int
    defaulted: int
    history: int
    expired: int
    dropped: int
    settled: int
    projections: int
    reward_total: float
    learn: str
    wait: Span | None
    max_pending: int
    # Parts that the other modules of this package read. They are not part of the documented interface.
    recently_projected: RecentShare
    recently_dropped: RecentShare
    columns: list[Name] | None
    clock: Clock
    scaling: Scaling
    open_decisions: Waiting
    lock: threading.RLock

    @property
    def by_clock(self) -> bool:
        """Whether forgetting goes by the clock, not by decisions."""
        return self.clock.by_clock

    @property
    def pending(self) -> list[Decision]:
        """Decisions whose rewards have not arrived, the oldest first."""
        with self.lock:
            return [one.decision for one in self.open_decisions if one.reward is None]

    @property
    def waiting(self) -> int:
        """How many decisions are pending."""
        return len(self.open_decisions) - self.open_decisions.held

    @property
    def held(self) -> int:
        """How many open decisions have their reward; their outcome is final when their wait ends."""
        return self.open_decisions.held

    def waits(self, decision: str) -> bool:
        """Whether the decision of this id is pending."""
        one = self.open_decisions.open.get(decision)
        return one is not None and one.reward is None

    @property
    def mean_reward(self) -> float | None:
        """Over the decisions whose outcome is final: that were learned, as a reward or as ``missing``. None if there
        is none."""
        return self.reward_total / self.settled if self.settled else None

    @property
    def projected_share(self) -> float:
        """Of all decisions: how many had an estimate that was projected or pulled back to the norm bound."""
        return self.projections / self.decisions if self.decisions else 0.0

    @property
    def recent_projected_share(self) -> float:
        """Of the last decisions: how many had an estimate that was projected or pulled back to the norm bound."""
        return self.recently_projected.share

    @property
    def theta(self) -> Array:
        """The parameter as it is estimated now, in the coordinates of :attr:`feature_names`; 0 without an estimate."""
        with self.lock:
            return self._theta_of(self.policy.info())

    def _theta_of(self, info: PolicyInfo) -> Array:
        return np.zeros(self.policy.dim) if info.theta_hat is None else np.array(info.theta_hat[0])

    @property
    def feature_names(self) -> list[str]:
        """What each coordinate of :attr:`theta` belongs to."""
        if self.features is not None:
            raw = self.features.names
        else:
            raw = [str(name) for name in self.columns or (f"x{i}" for i in range(self.scaling.raw_dim))]
        return [*raw, *["1"] * self.scaling.intercept]

    @property
    def memory(self) -> float:
        """How far back the past counts, in decisions, or in seconds where forgetting goes by the clock."""
        with self.lock:
            return memory_of(self.policy) * (TICK if self.by_clock else 1.0)

    def drift_estimate(self) -> Drift | None:
        """What the rewards say about the drift; None for a policy that was told how to forget."""
        with self.lock:
            return drift_of(self.policy.info())

    @property
    def alerts(self) -> list[Alert]:
        """What an operator should know: conditions under which the agent learns little or predicts badly."""
        with self.lock:
            raised = []
            if self.recently_projected.is_high:
                largest = self.policy.reward_link.largest_product / self.policy.L
                raised.append(alerts.norm_bound_active(self.recently_projected, self.config["S"], largest))
            lag, memory = self._lag(), memory_of(self.policy, is_late=True)
            if lag > memory * ROUNDING:
                raised.append(alerts.timeout_exceeds_memory(self._length(lag), self._length(memory)))
            if self.recently_dropped.is_high:
                raised.append(alerts.decisions_dropped(self.recently_dropped, self.max_pending))
            has_misses = self.settled >= alerts.FEWEST and self.defaulted > alerts.LARGEST_SHARE * self.settled
            if self.learn == ON_ARRIVAL and has_misses:
                raised.append(alerts.misses_learned_late(self.defaulted / self.settled))
            return raised

    def _lag(self) -> float:
        """Rounds of the policy between a decision and the learning of its outcome, as far as they are known; 0 where
        rewards are learned on arrival, or while the memory is not known yet."""
        learns_memory = isinstance(self.policy, AdaptiveGLMUCB) and len(self.policy.memories) > 1
        if self.wait is None or self.learn != AT_TIMEOUT or (learns_memory and self.settled < alerts.FEWEST):
            return 0.0
        if self.wait.by_clock == self.by_clock:
            return self.wait.length * (TICKS if self.by_clock else 1.0)
        return self.policy.t - self.open_decisions.oldest().round if len(self.open_decisions) else 0.0

    def _scale(self) -> float | None:
        """S as it was given or is learned; None for a policy without one."""
        if isinstance(self.policy, AdaptiveGLMUCB):
            scale = self.policy.info(estimates=False).acting_scale
            return None if scale is None else float(scale[0])
        return self.policy.S if isinstance(self.policy, EstimatingPolicy) else None

    def _length(self, rounds: float) -> str:
        return f"{rounds * TICK:.3g} seconds" if self.by_clock else f"{rounds:.3g} decisions"

    def info(self) -> dict[str, Any]:
        """Counts, the estimate, memory, drift and alerts, for a person or a page to read."""
        with self.lock:
            described = self.policy.info()  # once: it takes as long as a decision, or longer
            drift, theta = drift_of(described), self._theta_of(described)
            return {
                "policy": self.policy.name,
                "learn": self.learn,
                "decisions": self.decisions,
                "rewards": self.rewards,
                "defaulted": self.defaulted,
                "history": self.history,
                "mean_reward": self.mean_reward,
                "pending": self.waiting,
                "held": self.held,
                "expired": self.expired,
                "dropped": self.dropped,
                "theta": dict(zip(self.feature_names, theta.tolist(), strict=True)),
                "S": self._scale(),
                "projected_share": self.projected_share,
                "recent_projected_share": self.recent_projected_share,
                "memory": self.memory,
                "memory_unit": "seconds" if self.by_clock else "decisions",
                "drift": None if drift is None else drift._asdict(),
                "alerts": [alert._asdict() for alert in self.alerts],
            }
