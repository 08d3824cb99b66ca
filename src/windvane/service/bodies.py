"""JSON bodies: their limits, parsing without delaying other requests, and comparison by meaning."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from pydantic_core import from_json
from pydantic_core import to_json as encode

from windvane.records import to_json
from windvane.service.garbage import pause_garbage_collection
from windvane.service.problems import Problem

MOST = {"lists and objects": (b"[{", 100_000), "fields": (b":", 200_000), "values": (b",", 500_000)}
"""How much a body may hold, by the signs that count it. Nothing else is done while the parser runs: with these limits
that is 10 to 40 ms, measured, and it makes less than 100 MB of objects. 1,000 arms of 500 numbers are allowed."""
LARGE_BODY = 1 << 16
"""Bytes above which a request is parsed and executed in a thread. Up to it, parsing takes about a millisecond."""

_parsing = threading.Lock()


@contextlib.contextmanager
def one_at_a_time(raw: bytes) -> Iterator[None]:
    """Let threads parse large bodies one after the other, without garbage collection: the event loop waits for at most
    one of them, and memory holds one at a time."""
    if len(raw) <= LARGE_BODY:
        yield
        return
    with _parsing, pause_garbage_collection():
        yield


def parse_json(raw: bytes) -> Any:
    """Parse a body strictly: no NaN, no infinity, a limit on depth."""
    if len(raw) > LARGE_BODY:
        for what, (signs, most) in MOST.items():
            count = sum(map(raw.count, signs))
            if count > most:
                detail = f"the body must have at most {most:,} {what}, got {count:,} (including those inside strings)"
                raise Problem("too-large", detail)
    try:
        return from_json(raw, allow_inf_nan=False)
    except ValueError as error:
        raise Problem("invalid", f"the body must be JSON ({error})", pointer="#") from None


def write_json(data: dict[str, Any]) -> bytes:
    """Return plain data as :func:`windvane.records.to_json` does, in a third of the time: every request does it twice.

    Examples
    --------
    >>> write_json({"value": 1.0, "settled": True})
    b'{"value":1.0,"settled":true}'
    """
    content = encode(data)
    if b"NaN" in content or b"Infinity" in content:  # outside of a string it is refused
        return to_json(data)
    return content


def is_same_request(first: bytes, second: bytes) -> bool:
    """Return whether two bodies mean the same: white space, the order of fields and the notation of numbers do not
    matter, and a null field equals an omitted one.

    Examples
    --------
    >>> is_same_request(b'{"arms": {"a": [1, 0.5]}, "context": null}', b'{"arms":{"a":[1.0,5e-1]}}')
    True
    >>> is_same_request(b'{"context": {"vip": true}}', b'{"context": {"vip": 1}}')
    False
    """
    if first == second:
        return True
    try:
        one, other = ({name: v for name, v in parse_json(raw).items() if v is not None} for raw in (first, second))
    except (Problem, AttributeError):  # not JSON, or not an object
        return False
    has_flags = any(flag in raw for raw in (first, second) for flag in (b"true", b"false"))
    return one == other and (not has_flags or _has_same_flags(one, other))


def _has_same_flags(one: Any, other: Any) -> bool:
    """Return whether two equal values have true and false in the same places: in Python they equal 1 and 0."""
    if isinstance(one, dict):
        return all(_has_same_flags(one[name], other[name]) for name in one)
    if isinstance(one, list):
        return all(map(_has_same_flags, one, other))
    return isinstance(one, bool) == isinstance(other, bool)
