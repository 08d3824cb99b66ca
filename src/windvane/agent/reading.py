"""What can be read of an agent: counts, the estimate, how far back it looks, and what drift it has seen."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import numpy as np

from windvane._validation import Array
from windvane.agent.decisions import Decision
from windvane.agent.features import Features
from windvane.agent.scaling import Scaling
from windvane.agent.times import TICK, Clock, rounds_of
from windvane.agent.waiting import Waiting
from windvane.policies.adaptive_glm_ucb import AdaptiveGLMUCB
from windvane.policies.base import Policy


class Drift(NamedTuple):
    """What the rewards say about the drift; see :meth:`windvane.AdaptiveGLMUCB.drift_estimate`."""

    verdict: str
    evidence: float
    memory: float
    memory_low: float
    memory_high: float
    rate: float
    rate_low: float
    rate_high: float
    variation: float


def drift_of(policy: Policy) -> Drift | None:
    """None for a policy that was told how to forget."""
    if not isinstance(policy, AdaptiveGLMUCB) or len(policy.memories) < 2:
        return None
    return Drift(*(np.asarray(value)[0].item() for value in policy.drift_estimate()))


def memory_of(policy: Policy) -> float:
    """How many rounds back the past counts: a window, or 1/(1 - gamma)."""
    window = getattr(getattr(policy, "estimator", None), "window", None)
    if window is not None:
        return float(window[0])
    return rounds_of(float(np.asarray(policy.gamma)[0]))


class Readable:
    """The part of :class:`windvane.Agent` that changes nothing."""

    policy: Policy
    features: Features | None
    decisions: int
    rewards: int
    defaulted: int
    history: int
    expired: int
    projections: int
    reward_total: float
    _clock: Clock
    _scaling: Scaling
    _waiting: Waiting
    _lock: threading.RLock

    @property
    def by_clock(self) -> bool:
        """Whether forgetting goes by the clock, not by decisions."""
        return self._clock.by_clock

    @property
    def pending(self) -> list[Decision]:
        """Decisions that wait for their rewards, the oldest first."""
        with self._lock:
            return [one.decision for one in self._waiting]

    @property
    def waiting(self) -> int:
        """How many they are."""
        return len(self._waiting)

    def waits(self, decision: str) -> bool:
        """Whether the decision of this id waits for its reward."""
        return decision in self._waiting.pending

    @property
    def mean_reward(self) -> float | None:
        """Of decisions that were rewarded, or expired and count as ``missing``; None if there is none."""
        known = self.rewards + self.defaulted
        return self.reward_total / known if known else None

    @property
    def theta(self) -> Array:
        """The parameter as it is estimated now, in the coordinates of :attr:`feature_names`."""
        with self._lock:
            return np.array(self.policy.theta_hat[0])

    @property
    def feature_names(self) -> list[str]:
        """What each coordinate of :attr:`theta` belongs to."""
        raw = [f"x{i}" for i in range(self._scaling.raw_dim)] if self.features is None else self.features.names
        return [*raw, *["1"] * self._scaling.intercept]

    @property
    def memory(self) -> float:
        """How far back the past counts, in decisions, or in seconds where forgetting goes by the clock."""
        with self._lock:
            return memory_of(self.policy) * (TICK if self.by_clock else 1.0)

    def drift_estimate(self) -> Drift | None:
        """What the rewards say about the drift; None for a policy that was told how to forget."""
        with self._lock:
            return drift_of(self.policy)

    def info(self) -> dict[str, Any]:
        """Counts, the estimate, memory and drift, for a person or a page to read."""
        with self._lock:
            drift = self.drift_estimate()
            return {
                "policy": self.policy.name,
                "decisions": self.decisions,
                "rewards": self.rewards,
                "defaulted": self.defaulted,
                "history": self.history,
                "mean_reward": self.mean_reward,
                "pending": self.waiting,
                "expired": self.expired,
                "theta": dict(zip(self.feature_names, self.theta.tolist(), strict=True)),
                "S": self.policy.S if hasattr(self.policy, "estimator") else None,
                "projected_share": self.projections / self.decisions if self.decisions else 0.0,
                "memory": self.memory,
                "memory_unit": "seconds" if self.by_clock else "decisions",
                "drift": None if drift is None else drift._asdict(),
            }
