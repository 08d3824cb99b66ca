"""How an agent tells time: durations such as "2d", moments, and how fast the past is forgotten.

Policies count rounds. Where forgetting goes by decisions, a round is a decision. Where it goes by the clock, a round is
a tick of 10 microseconds: time passes in ticks between decisions, and a decision itself takes one. Weights then follow
the clock to within a tick, and t stays far below 2^52, where policies end, for a thousand years.
"""

from __future__ import annotations

import inspect
import math
import re
from datetime import datetime
from typing import Any, NamedTuple

from windvane import theory
from windvane._validation import number, positive, shown
from windvane.policies.base import Policy

TICK = 1e-5  # seconds
_UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|min|m|h|d|w)")
LONGEST = 1e10  # seconds: three centuries


def seconds(name: str, text: str) -> float:
    """The length of a duration such as "36h", "1h30m" or "250 ms"."""
    total, at = 0.0, 0
    while part := _PART.match(text, at):
        total += float(part[1]) * _UNITS[part[2]]
        at = part.end()
    if not at or text[at:].strip() or not 0.0 < total <= LONGEST:
        units = ", ".join(_UNITS)
        raise ValueError(f'{name}={shown(text)}: must be a duration such as "2d" or "1h30m" (units: {units})')
    return total


def moment(now: float | datetime) -> float:
    """A point in time as seconds since 1970; a datetime must say its time zone."""
    if isinstance(now, datetime):
        if now.tzinfo is None:
            raise ValueError(f"now={now!r}: must have a time zone")
        return now.timestamp()
    return number("now", now, "of seconds since 1970, or a datetime", lambda s: abs(s) <= LONGEST)


class Span(NamedTuple):
    """A length of time: in seconds if ``by_clock``, else in decisions."""

    length: float
    by_clock: bool

    @classmethod
    def of(cls, name: str, value: Any) -> Span:
        if isinstance(value, str):
            return cls(seconds(name, value), True)
        return cls(positive(name, value), False)


class Forgetting(NamedTuple):
    """Settings of the policy that make it forget as asked, and whether its rounds are ticks of the clock."""

    settings: dict[str, Any]
    by_clock: bool


def forgetting(
    policy: type[Policy],
    dim: int,
    *,
    half_life: str | float | None = None,
    gamma: float | None = None,
    horizon: int | None = None,
    drift: float | None = None,
) -> Forgetting:
    """``half_life`` (a duration, or a number of decisions), ``gamma``, or ``drift`` with ``horizon``: one of them."""
    told = {
        name: value
        for name, value in (("half_life", half_life), ("gamma", gamma), ("drift", drift))
        if value is not None
    }
    if len(told) > 1:
        raise ValueError(f"{' and '.join(f'{n}={shown(v)}' for n, v in told.items())}: give only one of them")
    taken = inspect.signature(policy).parameters
    settings: dict[str, Any] = {}
    if horizon is not None and "horizon" in taken:
        settings["horizon"] = horizon
    by_clock = False
    if half_life is not None:
        span = Span.of("half_life", half_life)
        by_clock = span.by_clock
        rate = math.log(2.0) / (span.length / TICK if by_clock else span.length)
        settings |= _discounted(policy, "half_life", half_life, math.exp(-rate), -1.0 / math.expm1(-rate))
    elif gamma is not None:
        gamma = number("gamma", gamma, "in (0, 1]", lambda g: 0.0 < g <= 1.0)
        settings |= _discounted(policy, "gamma", gamma, gamma, 1.0 / (1.0 - gamma) if gamma < 1.0 else math.inf)
    elif drift is not None:
        if horizon is None:
            raise ValueError(f"drift={shown(drift)}: give the horizon too, the number of decisions it is spread over")
        if "drift" in taken:
            settings["drift"] = drift
        else:
            found = theory.discount(horizon=horizon, drift=drift, dim=dim)
            memory = 1.0 / (1.0 - found) if found < 1.0 else math.inf
            settings |= _discounted(policy, "drift", drift, found, memory)
    elif horizon is not None and "horizon" not in taken:
        raise ValueError(f"horizon={horizon!r}: {policy.name} takes no horizon; leave it out, or give drift as well")
    return Forgetting(settings, by_clock)


def _discounted(policy: type[Policy], name: str, value: Any, gamma: float, memory: float) -> dict[str, Any]:
    """The setting that makes ``policy`` forget with the discount ``gamma``, which is a memory of so many rounds."""
    taken = inspect.signature(policy).parameters
    if "memories" in taken:
        return {"memories": [max(memory, 1.0 + 1e-9)]}
    if "gamma" in taken:
        return {"gamma": gamma}
    raise ValueError(f"{name}={shown(value)}: {policy.name} forgets in another way, or not at all; leave it out")
