"""The recommended settings of an agent."""

from __future__ import annotations

import math
from typing import Any

from windvane.agent.times import LONGEST
from windvane.logs.drift.best_memory import BestMemory
from windvane.logs.drift.evidence import DRIFT, NO_DRIFT
from windvane.logs.drift.rows import RewardedRows
from windvane.logs.log import LogSchema

WIDEST = 16.0  # ratio of the ends of the interval of memories: if it is larger, the policy learns the memory
EPSILON = 0.05  # of the recommended agent: one decision in twenty is random, so that its log can be evaluated
LONG = 0.5  # share of the log: if all shorter memories are excluded, never forgetting is safe
_UNITS = (("w", 604_800.0), ("d", 86_400.0), ("h", 3600.0), ("m", 60.0), ("s", 1.0), ("ms", 1e-3))


def format_half_life(seconds: float) -> str:
    """Return a duration in the notation of :class:`windvane.Agent`, with two significant digits.

    Examples
    --------
    >>> [format_half_life(seconds) for seconds in (10_800.0, 95.0, 0.25, 5.3e6)]
    ['3h', '1.6m', '250ms', '8.8w']
    """
    unit, size = next((unit for unit in _UNITS if seconds >= unit[1]), _UNITS[-1])
    value = seconds / size
    digits = max(0, 1 - math.floor(math.log10(value)))
    text = f"{round(value, 1 - math.floor(math.log10(value))):.{digits}f}"
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text}{unit}"


def describe_vectors(schema: LogSchema) -> dict[str, Any]:
    """Return the arguments of an agent whose vectors are those of the log.

    Examples
    --------
    >>> from windvane.logs import from_arrays
    >>> describe_vectors(from_arrays([[[3.0, 4.0]]], [0], [1.0]).schema)
    {'dim': 2, 'L': 5.0}
    """
    if schema.features is not None:
        return {"features": _shorten(schema.features.declaration())}
    longest = math.sqrt(max(schema.L**2 - schema.has_intercept, 0.0))
    L = {"L": math.ceil(1e6 * longest) / 1e6} if longest > 1.0 + 1e-9 else {}
    return {"dim": schema.dim - schema.has_intercept} | ({"intercept": True} if schema.has_intercept else {}) | L


def _shorten(declaration: dict[str, Any]) -> dict[str, Any]:
    """Return a declaration of features without the values that it has by default."""
    defaults = {"intercept": True, "clip": False}
    return {name: value for name, value in declaration.items() if value and value != defaults.get(name, False)}


def recommend(rows: RewardedRows, verdict: str, memory: BestMemory | None) -> dict[str, Any]:
    """Return settings of :class:`windvane.Agent`: the features, or what describes the vectors, epsilon, and the memory.

    ``half_life`` is the correlation half-life, because that is its meaning for the default policy. No memory is set,
    so that the default policy learns it, if there is no verdict, if a drift is likely but not detected, if the interval
    of memories is wide (a factor of more than 16), or if the correlation half-life is longer than the log.
    """
    settings = describe_vectors(rows.schema) | {"epsilon": EPSILON}
    if memory is None or verdict not in (DRIFT, NO_DRIFT):
        return settings
    if verdict == NO_DRIFT:
        return settings | ({"gamma": 1.0} if memory.effective_low >= LONG * rows.decisions else {})
    decisions, pace = memory.correlation_half_life, rows.seconds_per_decision
    if math.isinf(memory.effective_high) or memory.effective_high > WIDEST * memory.effective_low:
        return settings
    if decisions > rows.decisions or (pace is not None and not 1e-3 <= decisions * pace <= LONGEST):
        return settings
    if pace is not None:
        return settings | {"half_life": format_half_life(decisions * pace)}
    return settings | {"half_life": round(decisions)}


def explain(settings: dict[str, Any], memory: BestMemory | None, schema: LogSchema) -> str:
    """Explain the recommended settings."""
    low, high = schema.reward_range
    scaling = f" Send rewards to the agent as (reward - {low:g}) / {high - low:g}." if (low, high) != (0.0, 1.0) else ""
    exploration = (
        f" epsilon={EPSILON} plays a random arm in one decision out of {1.0 / EPSILON:.0f}, so that the next log can "
        "be checked and other policies can be evaluated on it."
    )
    return _explain_memory(settings, memory) + exploration + scaling


def _explain_memory(settings: dict[str, Any], memory: BestMemory | None) -> str:
    if "half_life" in settings and memory is not None:
        averaged = next(entry.effective for entry in memory.losses if entry.memory == memory.correlation_time)
        return (
            "half_life is here the correlation half-life, which is what it means for the default policy: the time "
            "after which the correlation of the parameter with its old value is 1/2. It is longer than the half-life "
            f"of a reward, {memory.half_life:,.0f} decisions: with this setting, the policy averages over about "
            f"{averaged:,.0f} decisions. For a policy with a discount, use gamma={memory.gamma:.6g} instead, whose "
            "half-life is that of a reward."
        )
    if "gamma" in settings:
        return "gamma=1 never forgets: the log excludes memories shorter than half of its length."
    return "No memory is set, because the default policy learns it from the rewards."
