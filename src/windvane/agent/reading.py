"""What a policy has found out about time: how far back it looks, and what drift it has seen."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from windvane.agent.times import rounds_of
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
