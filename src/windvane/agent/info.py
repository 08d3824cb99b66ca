"""What can be said about an agent: its memory, the drift that it sees, and all of it as one record."""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from windvane.agent.policy import memory_of_discount
from windvane.agent.times import TICK
from windvane.arguments import Array
from windvane.estimation import Estimator
from windvane.policies.adaptive_glm_ucb import AdaptiveGLMUCB, AdaptiveInfo
from windvane.policies.bandit_over_bandits import BanditOverBandits
from windvane.policies.base import Policy
from windvane.policies.info import PolicyInfo
from windvane.policies.optimism import EstimatingPolicy
from windvane.policies.restart import RestartedPolicy
from windvane.records import AgentInfo, Drift

if TYPE_CHECKING:
    from windvane.agent.core import AgentCore


def describe(core: AgentCore) -> AgentInfo:
    """Return all that is known about an agent."""
    policy, info = core.policy, core.policy.info()  # once: it takes as long as a decision, or longer
    theta = theta_of(policy, info)
    return AgentInfo(
        policy=policy.name,
        link=policy.reward_link.name,
        dim=policy.dim,
        learn=core.learn,
        counts=core.counts,
        mean_reward=core.mean_reward,
        theta=dict(zip(core.encoder.feature_names, theta.tolist(), strict=True)),
        S=_scale_of(policy),
        projected_share=core.tally.projected / core.tally.decisions if core.tally.decisions else 0.0,
        recent_projected_share=core.recently_projected.share,
        memory=_finite(memory_in_its_unit(core)),
        memory_unit="seconds" if core.clock.by_clock else "decisions",
        drift=drift_of(info),
        alerts=core.alerts,
        settings={name: _finite(value) for name, value in copy.deepcopy(core.settings).items()},
    )


def theta_of(policy: Policy, info: PolicyInfo) -> Array:
    """Return the estimated parameter; zeros for a policy without an estimate."""
    return np.zeros(policy.dim) if info.theta_hat is None else np.array(info.theta_hat[0])


def drift_of(info: PolicyInfo) -> Drift | None:
    """Return what the rewards say about the drift; None for a policy with a fixed memory."""
    estimate = info.drift if isinstance(info, AdaptiveInfo) else None
    if estimate is None:
        return None
    numbers: dict[str, Any] = {name: _finite(np.asarray(value)[0].item()) for name, value in estimate._asdict().items()}
    return Drift(**numbers)


def memory_of(policy: Policy, *, is_late: bool = False) -> float:
    """Return how many rounds back the past counts: 1/(1 - gamma), a window, or the time between two restarts.

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
    discounted = math.inf if gamma is None else memory_of_discount(float(gamma[0]))
    return min(discounted, float(policy.periods[0])) if isinstance(policy, RestartedPolicy) else discounted


def memory_in_its_unit(core: AgentCore) -> float:
    """Return how far back the past counts, in decisions, or in seconds where forgetting goes by the clock."""
    return memory_of(core.policy) * (TICK if core.clock.by_clock else 1.0)


def _scale_of(policy: Policy) -> float | None:
    """Return S as it was given or is learned; None for a policy without one."""
    if isinstance(policy, AdaptiveGLMUCB):
        scale = policy.info(estimates=False).acting_scale
        return None if scale is None else float(scale[0])
    return policy.S if isinstance(policy, EstimatingPolicy) else None


def _finite(value: Any) -> Any:
    """Return None for a number that JSON does not have, also within a list."""
    if isinstance(value, list):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
