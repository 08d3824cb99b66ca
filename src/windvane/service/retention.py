"""The setting ``retention`` of a stream: how long its events are kept."""

from __future__ import annotations

from typing import Any

from windvane.agent.times import Span, parse_duration
from windvane.errors import ArgumentError


def read_retention(retention: Any) -> float | None:
    """Return a retention in seconds, None if events are kept forever."""
    if retention is None:
        return None
    if not isinstance(retention, str):
        raise ArgumentError("retention", retention, 'a duration such as "90d", or null')
    return parse_duration("retention", retention)


def check_retention(retention: Any, reward_timeout: Any, argument: str = "retention") -> None:
    """Raise unless ``retention`` is None or longer than ``reward_timeout``.

    The two are compared only if ``reward_timeout`` is a duration: until then, a decision may still get its reward.
    ``argument`` is the name of the argument that the error is about.
    """
    seconds = read_retention(retention)
    timeout = None if reward_timeout is None else Span.parse("reward_timeout", reward_timeout)
    if seconds is None or timeout is None or not timeout.by_clock or timeout.length < seconds:
        return
    if argument == "retention":
        raise ArgumentError("retention", retention, f"longer than the reward_timeout, {reward_timeout!r}")
    raise ArgumentError("reward_timeout", reward_timeout, f"shorter than the retention, {retention!r}")
