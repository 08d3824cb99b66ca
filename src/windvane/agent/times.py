"""The time of an agent: durations such as "2d", points in time, and the rounds that a policy counts.

Policies count rounds. If forgetting goes by decisions, a round is a decision. If it goes by the clock, a round is a
tick of 10 microseconds: time passes in ticks between decisions, and a decision itself takes one. The weight of a
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

from windvane.arguments import check_number
from windvane.errors import ArgumentError, Path
from windvane.policies.base import Policy

TICKS = 100_000.0  # a second
TICK = 1.0 / TICKS
_UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_WORDS = {word: _UNITS[word[0]] for word in ("second", "minute", "hour", "day", "week")}
_ALL_UNITS = _UNITS | _WORDS | {f"{word}s": seconds for word, seconds in _WORDS.items()}
_PART = re.compile(rf"\s*(\d+(?:\.\d+)?)\s*({'|'.join(sorted(_ALL_UNITS, key=len, reverse=True))})(?![a-z])")
LONGEST = 1e10  # seconds: three centuries
MOST = 1e15  # decisions


def parse_duration(name: str, text: str) -> float:
    """Return the seconds of a duration such as "36h", "1h30m", "250 ms" or "1 day"."""
    total, at = 0.0, 0
    while part := _PART.match(text, at):
        total += float(part[1]) * _ALL_UNITS[part[2]]
        at = part.end()
    if not at or text[at:].strip() or not TICK <= total <= LONGEST:
        units = ", ".join(_UNITS)
        raise ArgumentError(name, text, f'a duration such as "2d" or "1h30m" (units: {units}, or words such as days)')
    return total


def format_duration(value: Any) -> Any:
    """Return a timedelta as the text of a duration; anything else unchanged."""
    return f"{value.total_seconds():.6f}s" if isinstance(value, timedelta) else value


def read_clock(now: float | datetime | None = None) -> float:
    """Return the time of a call in seconds since 1970, to the microsecond: ``now``, or that of the system clock."""
    return time.time_ns() // 1000 / 1e6 if now is None else to_seconds("now", now)


def to_seconds(name: str | Path, when: float | str | datetime) -> float:
    """Return a point in time as seconds since 1970, to the microsecond.

    A datetime must have a time zone; a string must be in RFC 3339 format.
    """
    expected = f"a time: RFC 3339 or a datetime, with a time zone, or at most {LONGEST:g} seconds from 1970"
    try:
        moment: Any = datetime.fromisoformat(when) if isinstance(when, str) else when
        if isinstance(moment, datetime):
            if moment.utcoffset() is None:
                raise ValueError
            moment = moment.timestamp()
        return round(check_number(name, moment, "", lambda s: abs(s) <= LONGEST), 6)
    except ValueError:  # also raised for pandas' NaT
        raise ArgumentError(name, when, expected) from None


class Clock:
    """The time of an agent's decisions, and how a policy's rounds follow it if forgetting goes by the clock.

    Only decisions and history advance it: a reward without a time must not age the decisions of a replay.
    """

    def __init__(self, by_clock: bool) -> None:
        self.by_clock = by_clock
        self.first: float | None = None  # when the policy's round 1 was, once there has been one
        self.last = -math.inf

    def read(self, now: float) -> float:
        """Return the time of a call, at least the last time, without changing the clock."""
        return max(self.last, now)

    def pass_to(self, at: float, policy: Policy) -> None:
        """Set the time to ``at``, and advance the policy to it in whole ticks."""
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
    def parse(cls, name: str, value: Any, least: float = 0.0) -> Span:
        """Return a duration, or a number of decisions that is at least ``least``."""
        if isinstance(value, str):
            return cls(parse_duration(name, value), True)
        allowed = f'of decisions, at least {least:g} and at most {MOST:g}, or a duration such as "2d"'
        return cls(check_number(name, value, allowed, lambda n: least <= n <= MOST, booleans=False), False)
