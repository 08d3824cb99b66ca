"""The recommended settings of an agent, and the one-sentence answer."""

from __future__ import annotations

import math
from typing import Any

from windvane.agent.memory import describe_seconds
from windvane.agent.times import LONGEST
from windvane.logs.drift.best_memory import BestMemory
from windvane.logs.drift.evidence import DRIFT, UNKNOWN, Evidence
from windvane.logs.drift.rate import Rate
from windvane.logs.drift.rows import RewardedRows
from windvane.logs.log import LogSchema

WIDEST = 16.0  # ratio of the ends of the interval of memories: if it is larger, the policy learns the memory
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
        return {"features": schema.features.declaration()}
    longest = math.sqrt(max(schema.L**2 - schema.has_intercept, 0.0))
    L = {"L": math.ceil(1e6 * longest) / 1e6} if longest > 1.0 + 1e-9 else {}
    return {"dim": schema.dim - schema.has_intercept} | ({"intercept": True} if schema.has_intercept else {}) | L


def recommend(rows: RewardedRows, evidence: Evidence, memory: BestMemory | None) -> dict[str, Any]:
    """Return settings of :class:`windvane.Agent`: the features, or what describes the vectors, and the memory.

    ``half_life`` is the correlation half-life, because that is its meaning for the default policy. No memory is set,
    so that the default policy learns it, if there is no verdict, if the interval of memories is wide (a factor of more
    than 16), or if the correlation half-life is longer than the log.
    """
    settings = describe_vectors(rows.schema)
    if memory is None or evidence.verdict == UNKNOWN:
        return settings
    if evidence.verdict != DRIFT:
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
    return _explain_memory(settings, memory) + scaling


def _explain_memory(settings: dict[str, Any], memory: BestMemory | None) -> str:
    if "half_life" in settings and memory is not None:
        averaged = next(entry.effective for entry in memory.losses if entry.memory == memory.correlation_time)
        return (
            "half_life is not the half-life of a reward's information. For the default policy it is the time after "
            "which the correlation of theta* with its old value is 1/2; with this setting, the policy averages over "
            f"about {averaged:,.0f} decisions. For a policy with a discount, use gamma={memory.gamma:.6g}."
        )
    if "gamma" in settings:
        return "gamma=1 never forgets: the log excludes memories shorter than half of its length."
    return "No memory is recommended: the default policy learns it from the rewards."


def _describe(memory: BestMemory) -> str:
    """Return the half-life with its interval as text."""
    decisions = (memory.half_life, memory.half_life_low, memory.half_life_high)
    seconds = (memory.half_life_seconds, memory.half_life_seconds_low, memory.half_life_seconds_high)

    def format_end(index: int) -> str:
        value = seconds[index]
        if math.isinf(decisions[index]):
            return "never"
        return f"{decisions[index]:,.0f} decisions" if value is None else describe_seconds(value)

    value, low, high = (format_end(index) for index in range(3))
    return f"{value} ({low} to {high})" if low != high else value


def phrase_answer(evidence: Evidence, memory: BestMemory | None, rate: Rate | None, p: float, alpha: float) -> str:
    """Return the answer in one sentence, given the p-value ``p`` of the joint score test.

    If the verdict is "no drift seen", the answer gives the speed of drift that the log rules out. It does not say that
    the verdict would have been "drift" for a faster drift: the e-process is valid at any time, has less power for this
    reason, and needs a larger drift.
    """
    if evidence.verdict == UNKNOWN or memory is None:
        return f"Cannot be answered, because {evidence.reason}."
    if evidence.verdict == DRIFT:
        if math.isinf(memory.half_life):
            return "Drift detected, but forgetting would not have improved the predictions of rewards."
        return f"Drift detected: a reward loses half of its information after {_describe(memory)}."
    fits = "one parameter fits all rewards" if p > alpha else (
        f"the evidence does not suffice, although the score test for a sample of fixed size rejects (p = {p:.2g})"
    )  # fmt: skip
    if rate is None:
        return f"No drift seen: {fits}, and the log is too short to say which speed of drift it rules out."
    return (
        f"No drift seen: {fits}, and a steady drift of theta* by more than {1000.0 * rate.excluded:.2g} per 1,000 "
        "decisions is ruled out (95 %)."
    )
