"""The setting ``retention`` of a stream: how long its events are kept."""

from __future__ import annotations

from typing import Any

from windvane.agent.times import Span, parse_duration
from windvane.errors import ArgumentError


def read_retention(retention: Any) -> float | None:
    """Return the seconds of a retention, None if events are kept forever."""
    if retention is None:
        return None
    if not isinstance(retention, str):
        raise ArgumentError("retention", retention, 'a duration such as "90d", or null')
    return parse_duration("retention", retention)


def check_retention(retention: Any, reward_timeout: Any, argument: str = "retention") -> None:
    """Raise unless ``retention`` is None, or a duration that is longer than ``reward_timeout``, if that is one.

    Until its timeout a decision may get its reward. ``argument`` is the one that the error is about.
    """
    seconds = read_retention(retention)
    timeout = None if reward_timeout is None else Span.parse("reward_timeout", reward_timeout)
    if seconds is None or timeout is None or not timeout.by_clock or timeout.length < seconds:
        return
    if argument == "retention":
        raise ArgumentError("retention", retention, f"longer than the reward_timeout, {reward_timeout!r}")
    raise ArgumentError("reward_timeout", reward_timeout, f"shorter than the retention, {retention!r}")
