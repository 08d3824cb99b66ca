"""How an agent tells time: durations such as "2d", moments, and how fast the past is forgotten.

Policies count rounds. Where forgetting goes by decisions, a round is a decision. Where it goes by the clock, a round is
a tick of 10 microseconds: time passes in ticks between decisions, and a decision itself takes one. The weight of a
reward whose decision was ``age`` seconds ago is then

    gamma^(age / tick) = 2^(-age / half_life),        gamma = 2^(-tick / half_life),

to within a tick (as long as there are fewer than 100 000 decisions a second), and t stays below 2^52, where policies
end, for a thousand years. gamma is a double: it holds a half-life of two days to 3e-6 of its length, of a year to 5e-4.
"""

from __future__ import annotations

import math
import re
import time
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from windvane import theory
from windvane.arguments import check_number
from windvane.errors import ArgumentError
from windvane.policies.base import Policy
from windvane.policies.registry import Signature

TICKS = 100_000.0  # a second
TICK = 1.0 / TICKS
_UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|min|m|h|d|w)")
LONGEST = 1e10  # seconds: three centuries
MOST = 1e15  # decisions


def seconds(name: str, text: str) -> float:
    """The length of a duration such as "36h", "1h30m" or "250 ms"."""
    total, at = 0.0, 0
    while part := _PART.match(text, at):
        total += float(part[1]) * _UNITS[part[2]]
        at = part.end()
    if not at or text[at:].strip() or not TICK <= total <= LONGEST:
        units = ", ".join(_UNITS)
        raise ArgumentError(name, text, f'a duration such as "2d" or "1h30m" (units: {units})')
    return total


def told(value: Any) -> Any:
    """A timedelta as the text of a duration; anything else as it is."""
    return f"{value.total_seconds():.6f}s" if isinstance(value, timedelta) else value


def moment(name: str, when: float | datetime) -> float:
    """A point in time as seconds since 1970; a datetime must say its time zone."""
    if isinstance(when, datetime):
        if when.utcoffset() is None:
            raise ArgumentError(name, when, "a datetime with a time zone")
        when = when.timestamp()
    allowed = f"of seconds since 1970 (at most {LONGEST:g} from there), or a datetime"
    return check_number(name, when, allowed, lambda s: abs(s) <= LONGEST)


class Clock:
    """The time of an agent's decisions, and how a policy's rounds follow it where forgetting goes by the clock.

    Only decisions and history move it: a reward that is given without a time must not make those of a replay old.
    """

    def __init__(self, by_clock: bool) -> None:
        self.by_clock = by_clock
        self.first: float | None = None  # when the policy's round 1 was, once there has been one
        self.last = -math.inf

    def read(self, now: float | datetime | None) -> float:
        """The time of a call; a clock that was set back stands still. Reading it changes nothing."""
        return max(self.last, time.time() if now is None else moment("now", now))

    def pass_to(self, at: float, policy: Policy) -> None:
        """It is ``at`` now: let the policy's time catch up with it, in whole ticks."""
        self.last = max(self.last, at)
        if not self.by_clock:
            return
        if self.first is None:
            self.first = at
        gap = 1.0 + math.floor((self.last - self.first) * TICKS) - policy.t
        if gap > 0.0:
            policy.advance(gap)


class Span(NamedTuple):
    """A length of time: in seconds if ``by_clock``, else in decisions."""

    length: float
    by_clock: bool

    @classmethod
    def of(cls, name: str, value: Any, least: float = 0.0) -> Span:
        """A duration, or a number of decisions that is at least ``least``."""
        if isinstance(value, str):
            return cls(seconds(name, value), True)
        allowed = f'of decisions, at least {least:g} and at most {MOST:g}, or a duration such as "2d"'
        return cls(check_number(name, value, allowed, lambda n: least <= n <= MOST), False)


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
    rates = {"half_life": half_life, "gamma": gamma, "drift": drift}
    given = [name for name, value in rates.items() if value is not None]
    if len(given) > 1:
        raise ArgumentError(given[1], rates[given[1]], f"omitted when `{given[0]}` is given")
    taken = Signature(policy).names
    settings: dict[str, Any] = {}
    if horizon is not None and "horizon" in taken:
        settings["horizon"] = horizon
    by_clock = False
    if half_life is not None:
        span = Span.of("half_life", half_life, least=0.01)
        by_clock = span.by_clock
        rate = math.log(2.0) / (span.length * TICKS if by_clock else span.length)
        settings |= _discounted(policy, "half_life", half_life, math.exp(-rate), -1.0 / math.expm1(-rate))
    elif gamma is not None:
        gamma = check_number("gamma", gamma, "in (0, 1]", lambda g: 0.0 < g <= 1.0)
        settings |= _discounted(policy, "gamma", gamma, gamma, rounds_of(gamma))
    elif drift is not None:
        if horizon is None:
            raise ArgumentError("drift", drift, "given with `horizon`, the number of decisions it is spread over")
        if "drift" in taken:
            settings["drift"] = drift
        else:
            found = theory.discount(horizon=horizon, drift=drift, dim=dim)
            settings |= _discounted(policy, "drift", drift, found, rounds_of(found))
    elif horizon is not None and "horizon" not in taken:
        hint = "or give `drift` as well"
        raise ArgumentError("horizon", horizon, f"omitted, because {policy.name} takes no horizon", hint=hint)
    return Forgetting(settings, by_clock)


def rounds_of(gamma: float) -> float:
    """How many rounds back the past counts under a discount: 1/(1 - gamma)."""
    return 1.0 / (1.0 - gamma) if gamma < 1.0 else math.inf


def _discounted(policy: type[Policy], name: str, value: Any, gamma: float, memory: float) -> dict[str, Any]:
    """The setting that makes ``policy`` forget with the discount ``gamma``, which is a memory of so many rounds."""
    taken = Signature(policy).names
    if "memories" in taken:
        return {"memories": [max(memory, 1.0 + 1e-9)]}
    if "gamma" in taken:
        return {"gamma": gamma}
    raise ArgumentError(name, value, f"omitted, because {policy.name} does not forget with a discount")
