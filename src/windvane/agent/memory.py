"""How far back an agent looks, and how fast a reward loses its information.

A reward that was learned k rounds ago counts for gamma^k under a discount, for 1 within a window or since a restart and
for 0 before. An expert of the adaptive policy weighs it by (1 - 1/n_g)^k, where n_g is the number of rounds over which
it averages (its effective memory), and the policy by the mixture over the experts, sum_g w_g (1 - 1/n_g)^k. The
*information half-life* is the number of rounds after which half of a reward's information is lost: log(1/2) /
log(gamma) for a discount, half a window, half the time between two restarts, or the k at which the mixture is 1/2,
which is infinite if experts that expect no drift have half of the weight. A decision of EXP3.S leaves 1 / (1 + e alpha)
of what rewards have changed. An adaptive policy with a fixed half-life
uses that one: the time after which the correlation of theta* with its old value is 1/2. The pace of the decisions so
far turns rounds into time.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from windvane.agent.policy import memory_of_discount
from windvane.agent.times import TICK
from windvane.estimation import Estimator
from windvane.estimation.arm_means import ArmMeans
from windvane.policies.adaptive_glm_ucb import DRIFT, NO_DRIFT, UNKNOWN, AdaptiveGLMUCB
from windvane.policies.bandit_over_bandits import BanditOverBandits
from windvane.policies.base import Policy
from windvane.policies.detection import DetectingPolicy
from windvane.policies.dynamic_lin_ucb import DynamicLinUCB
from windvane.policies.forgetting import RestartRule
from windvane.policies.indexed import IndexedPolicy
from windvane.policies.master import MasterPolicy
from windvane.records import Drift, HalfLife

if TYPE_CHECKING:
    from windvane.agent.core import AgentCore

HALVINGS = 40  # of an interval of logarithms, which is shorter than 50: the root is known to a relative 5e-11
SHORTEST = 1.0 + 1e-9  # memory of an expert: one that knows more about a round from its reward has forgotten the rest
SMALLEST_WEIGHT = 1e-12  # of an expert; smaller ones do not matter at that accuracy
CALM_TEXTS = {
    DRIFT: "none now: the latest rewards fit a world without drift, although earlier ones did not",
    NO_DRIFT: "none, the rewards fit a world without drift",
    UNKNOWN: "none so far: too few rewards to tell drift from no drift",
}
"""Why a policy that learns how fast to forget has no half-life, by the verdict on drift."""
_PERIODS = (("day", 86400.0), ("hour", 3600.0), ("minute", 60.0), ("second", 1.0))


class _Forgetting(NamedTuple):
    """A discount per round (1: none), and the rounds of a window or between two restarts (infinity: none)."""

    gamma: float
    window: float


def _forgetting_of(policy: Policy) -> _Forgetting:
    if isinstance(policy, BanditOverBandits):
        gamma, window = _forgetting_of(policy.worker)
        return _Forgetting(gamma, min(window, float(policy.length)))
    estimator = getattr(policy, "estimator", None)  # a custom policy may have a different one, or none
    if isinstance(policy, IndexedPolicy):
        estimator = policy.arm_means
    if isinstance(estimator, Estimator | ArmMeans) and estimator.window is not None:
        return _Forgetting(1.0, float(estimator.window[0]))
    discount = estimator.gamma if isinstance(estimator, Estimator) else policy.info().gamma
    period = float(policy.periods[0]) if isinstance(policy, RestartRule) else math.inf
    return _Forgetting(1.0 if discount is None else float(discount[0]), period)


def memory_of(policy: Policy, *, is_late: bool = False) -> float:
    """Return how many rounds back the past counts: 1/(1 - gamma), a window, or the time between two restarts.

    ``is_late``: for how many rounds a reward that was not learned yet stays informative. For AdaptiveGLMUCB this is the
    memory of the acting expert, which is longer than the time over which it averages many rewards.
    """
    if isinstance(policy, AdaptiveGLMUCB):
        info = policy.info(estimates=False)
        memory = info.acting_memory if is_late else info.effective_memory
        return math.inf if memory is None else float(memory[0])
    gamma, window = _forgetting_of(policy)
    return min(memory_of_discount(gamma), window)


def memory_in_its_unit(core: AgentCore) -> float:
    """Return how far back the past counts, in decisions, or in seconds if forgetting goes by the clock."""
    return memory_of(core.policy) * (TICK if core.clock.by_clock else 1.0)


def half_life_of(policy: Policy) -> float:
    """Return the information half-life in rounds; infinity if half of it is never lost."""
    if isinstance(policy, AdaptiveGLMUCB):
        bank = policy.bank
        with bank.lock:
            memories = (
                bank.effective_memories()[0] if len(bank.memories) > 1 else bank.memories.repeat(len(bank.scales))
            )
            return find_half_life(memories.tolist(), bank.weigh()[0].tolist())
    gamma, window = _forgetting_of(policy)
    return min(math.log(0.5) / math.log(gamma) if gamma < 1.0 else math.inf, window / 2.0)


def find_half_life(memories: list[float], weights: list[float]) -> float:
    """Return k at which sum_g w_g (1 - 1/m_g)^k is half of its value at 0; infinity if there is none.

    Examples
    --------
    >>> round(find_half_life([100.0, float("inf")], [0.9, 0.1]), 3)  # log(0.4 / 0.9) / log(0.99)
    80.687
    """
    pairs = zip((max(memory, SHORTEST) for memory in memories), weights, strict=True)
    finite = [(math.log1p(-1.0 / m), w) for m, w in pairs if math.isfinite(m) and w > SMALLEST_WEIGHT]
    moving = sum(w for _, w in finite)
    excess = moving - 0.5 * sum(weights)  # of the weight that is lost in the end over half of all weight
    if not excess > 0.0:
        return math.inf
    slowest, fastest = max(rate for rate, _ in finite), min(rate for rate, _ in finite)
    low, high = (math.log(math.log(excess / moving) / rate) for rate in (fastest, slowest))
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        remaining = sum(w * math.exp(rate * math.exp(middle)) for rate, w in finite)
        low, high = (middle, high) if remaining > excess else (low, middle)
    return math.exp(0.5 * (low + high))


def to_decisions_and_seconds(core: AgentCore, rounds: float) -> tuple[float | None, float | None]:
    """Return a number of rounds in decisions and in seconds; None where the pace of decisions is not known yet."""
    if math.isinf(rounds):
        return rounds, rounds
    if core.clock.by_clock:
        return core.pace.decisions_in(rounds * TICK), rounds * TICK
    return rounds, core.pace.seconds_of(rounds)


def describe_half_life(core: AgentCore, drift: Drift | None) -> HalfLife:
    """Return the information half-life in decisions, in time, and in words; ``drift``: what :func:`drift_of` returned.

    The verdict on drift is about all rewards so far, the half-life about the latest, so a world that drifted and is now
    calm has a verdict "drift" and no half-life. The text says so.
    """
    rounds = half_life_of(core.policy)
    if math.isinf(rounds):
        return HalfLife(decisions=None, seconds=None, text=_explain_memory(core.policy, drift))
    decisions, seconds = to_decisions_and_seconds(core, rounds)
    text = _describe_amount(rounds, "decision") if seconds is None else describe_seconds(seconds)
    return HalfLife(decisions=decisions, seconds=seconds, text=text)


def _explain_memory(policy: Policy, drift: Drift | None) -> str:
    """Return why a policy has no half-life."""
    if drift is not None:
        return CALM_TEXTS[drift.verdict]
    restarts = isinstance(policy, MasterPolicy | DetectingPolicy | DynamicLinUCB)
    return "none, the policy forgets only when it restarts" if restarts else "none, nothing is forgotten"


def learns_memory(policy: Policy) -> bool:
    """Whether the policy learns from the rewards how fast to forget."""
    return isinstance(policy, AdaptiveGLMUCB) and len(policy.memories) > 1


def describe_seconds(seconds: float) -> str:
    """Return a length of time in words.

    Examples
    --------
    >>> [describe_seconds(seconds) for seconds in (2.3 * 86400, 3600, 95, 0.02)]
    ['2.3 days', '1 hour', '1.6 minutes', '0.02 seconds']
    """
    unit, size = next((period for period in _PERIODS if seconds >= period[1]), _PERIODS[-1])
    return _describe_amount(seconds / size, unit)


def _describe_amount(value: float, unit: str) -> str:
    text = f"{value:,.0f}" if value >= 10.0 else f"{value:.1f}".removesuffix(".0") if value >= 1.0 else f"{value:.1g}"
    return f"{text} {unit}" if text == "1" else f"{text} {unit}s"
