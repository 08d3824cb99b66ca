"""Encode requests, decode answers, and the errors of both."""

from __future__ import annotations

import contextlib
import functools
import json
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import zip_longest
from typing import Any, TypeVar
from urllib.parse import quote

import pydantic_core
from pydantic import TypeAdapter, ValidationError

from windvane.arguments import check_number, is_missing
from windvane.errors import ArgumentError, Path, WindvaneError
from windvane.records import KEY, KEY_IN_WORDS, STREAM_NAME_IN_WORDS, Decision, to_datetime, to_plain
from windvane.service_records import ItemResult, ProblemDetails

STREAMS, CLUSTER = "/v1/streams", "/v1/cluster"
MOST_ITEMS, MOST_BYTES = 1000, 1 << 20  # of a batch; more is sent as several requests
MOST_KEYS = 10  # of a path that an error names
UNSURE_CAUSES = (
    "disk", "stalled", "misplaced", "damaged", "database", "recovering", "moving", "stopping", "internal"
)  # fmt: skip
"""Causes of 503 with which the service may have failed, stopped or lost the stream after it executed the request."""
T = TypeVar("T")


TOKEN_HINTS = {
    "no-token": "the service needs a token: pass token=..., or set the variable WINDVANE_TOKEN",
    "wrong-token": "the service does not know this token, which was passed as token=... or is in WINDVANE_TOKEN",
}
"""What a caller of the client has to do; the service describes HTTP headers."""


class ClientError(WindvaneError):
    """The service rejected a request, or did not answer.

    Attributes
    ----------
    status : int or None
        Status of the answer. None without an answer.
    code : str
        The service's code, such as ``"unknown-stream"``. ``"unreachable"``: nothing was sent. ``"no-answer"``: the
        request may have been executed. ``"not-understood"``: the answer is not from a windvane service.
    message : str
        A description for people.
    pointer : str or None
        JSON Pointer to the invalid part of the request, such as ``"#/arms/red/1"``: the first of ``pointers``.
    pointers : list of str
        All pointers of the answer.
    is_unsure : bool
        Whether the request may have been executed: this or an earlier attempt got no answer, or the service failed
        during it.
    retry_after : float
        Seconds that the service asked to wait, or 0.
    """

    def __init__(self, status: int | None, code: str, message: str, pointer: str | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.pointer = status, code, message, pointer
        self.pointers = [] if pointer is None else [pointer]
        self.is_unsure, self.retry_after = code == "no-answer" or status in (502, 504), 0.0

    @property
    def is_temporary(self) -> bool:
        """Whether the same request may succeed later."""
        return self.status in (429, 502, 503, 504) or self.code in ("unreachable", "no-answer")


class BatchError(ClientError):
    """Some items of a batch failed; the others were executed. Status, code and pointer are those of the first.

    Attributes
    ----------
    results : list
        For each item, in order, its answer or a :class:`ClientError`.
    errors : dict of int to ClientError
        The errors by their index in ``results``.

    Examples
    --------
    >>> BatchError([True, ClientError(409, "conflict", "the decision has another reward")])
    BatchError('1 of 2 items failed; results[1]: the decision has another reward')
    """

    def __init__(self, results: Sequence[Any]) -> None:
        self.results = list(results)
        self.errors = {place: item for place, item in enumerate(self.results) if isinstance(item, ClientError)}
        place, first = next(iter(self.errors.items()))
        message = f"{len(self.errors)} of {len(self.results)} items failed; results[{place}]: {first.message}"
        super().__init__(first.status, first.code, message, first.pointer)
        self.is_unsure = any(error.is_unsure for error in self.errors.values())


# --- requests -------------------------------------------------------------------------------------------------------


def build_path(stream: str, *parts: Decision | str) -> str:
    """Return the path of a stream, or of a part of it."""
    segments = [_check_name("stream", stream, STREAM_NAME_IN_WORDS), *map(get_id, parts)]
    for argument, segment in zip_longest(["stream"], segments, fillvalue="decision"):
        if "/" in segment:  # even if it is quoted, a server takes it for the end of the segment
            raise ArgumentError(argument, segment, "a name or an id without a slash")
    return "/".join([STREAMS, *map(_quote, segments)])


@functools.lru_cache(maxsize=1000)
def _quote(segment: str) -> str:
    return quote(segment, safe="")


def get_id(decision: Decision | str) -> str:
    """Return the id of a decision."""
    return _check_name("decision", decision.id if isinstance(decision, Decision) else decision, "a Decision or its id")


def is_name(name: Any) -> bool:
    """Return whether ``name`` can be a segment of a path."""
    return isinstance(name, str) and 0 < len(name) <= 200 and name.isprintable() and name not in (".", "..")


def _check_name(argument: str, name: Any, expected: str) -> str:
    """Return a name that can be a segment of a path."""
    if not is_name(name):
        raise ArgumentError(argument, name, expected)
    return str(name)


def check_key(key: str | None) -> str:
    """Return the caller's idempotency key, or a random one."""
    if key is None:
        return secrets.token_hex(16)
    if not isinstance(key, str) or not re.fullmatch(KEY, key):
        raise ArgumentError("key", key, KEY_IN_WORDS)
    return key


def to_list(name: str, values: Iterable[Any]) -> list[Any]:
    """Return ``values`` as a list; the entries of arrays as Python objects."""
    try:
        if isinstance(values, str | bytes):
            raise TypeError
        return list(values.tolist() if hasattr(values, "tolist") else values)
    except TypeError:
        raise ArgumentError(name, values, "a list") from None


def check_arms(arms: Any) -> Any:
    """Return ``arms`` if JSON can hold them without loss."""
    if isinstance(arms, Mapping):
        labels = [list(vector.index) for vector in arms.values() if hasattr(vector, "loc")]  # of pandas
        if any(label != labels[0] for label in labels):
            expected = "vectors whose labels are in the same order, because labels are not sent"
            raise ArgumentError("arms", list(arms), expected, got="different orders")
        for name in arms:
            if not isinstance(name, str):  # JSON would turn it into a string, and the answer would name another arm
                raise ArgumentError("arms", name, "named by strings over HTTP")
            check_fields(("arms", name), arms[name])
    return arms


def check_fields(path: Path, fields: Any) -> Any:
    """Return the ``fields`` of a context or an arm, which are at ``path``, if none of them is missing.

    No service accepts a missing value, and JSON has None but not NaN: both are the same error here.
    """
    if isinstance(fields, Mapping):
        for name, value in fields.items():
            if is_missing(value):
                hint = 'declare a category "unknown", or a second field that says whether a number is known'
                raise ArgumentError((*path, name), value, "a number or a string", hint=hint)
    return fields


def check_value(value: Any) -> float:
    """Return the value of a reward."""
    return check_number("value", value, "that is finite", lambda _: True)


def check_times(times: Any) -> list[datetime | str]:
    """Return seconds since 1970 as datetimes, and datetimes and strings unchanged."""

    def check_time(place: int, time: Any) -> datetime | str:
        if isinstance(time, datetime | str):
            return time
        expected = "of seconds since 1970 (at most 1e10 from there), a datetime with a time zone or an RFC 3339 string"
        return to_datetime(check_number(("times", place), time, expected, lambda s: abs(s) <= 1e10))

    return [check_time(place, time) for place, time in enumerate(to_list("times", times))]


def encode(entries: Mapping[str, Any], *, keep_none: bool = False) -> bytes:
    """Return ``entries`` as a JSON object; those that are None are left out."""
    parts = []
    for name, value in entries.items():
        try:
            if value is not None or keep_none:
                parts.append(f"{_to_json(name)}:{_to_json_fast(value) or _to_json(value)}")
        except (TypeError, ValueError, RecursionError) as error:
            path, entry = _find_wrong((name,), value)
            hint = " ".join(str(error).split())
            raise ArgumentError(path, entry, "something that JSON can hold", hint=hint) from None
    return f"{{{','.join(parts)}}}".encode()


def _find_wrong(path: Path, value: Any) -> tuple[Path, Any]:
    """Return the first entry that JSON cannot hold, and its path."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else ()
    for key, entry in entries if len(path) < MOST_KEYS else ():
        try:
            _to_json(entry)
        except (TypeError, ValueError, RecursionError):
            return _find_wrong((*path, key), entry)
    return path, value


def _to_plain(value: Any) -> Any:
    """Convert times, arrays and scalars of NumPy and pandas, and declared Features, to JSON-compatible data."""
    if isinstance(value, datetime):
        if value.utcoffset() is None:
            raise TypeError("a datetime must have a time zone")
        return to_plain(value.astimezone(UTC))
    if isinstance(value, timedelta):
        return f"{value.total_seconds():.6f}s"
    for method in ("tolist", "declaration"):
        if hasattr(value, method):
            return getattr(value, method)()
    raise TypeError(f"{type(value).__name__} is neither a number, a string, an array, a list nor a dict")


_to_json = json.JSONEncoder(separators=(",", ":"), allow_nan=False, default=_to_plain).encode


def _to_json_fast(value: Any) -> str | None:
    """Return lists of numbers by name as JSON, eight times as fast as the standard library; None for other values."""
    if type(value) is not dict or not value:
        return None
    for numbers in value.values():
        if type(numbers) is not list or not _NUMBERS.issuperset(map(type, numbers)):
            return None
    try:
        text = pydantic_core.to_json(value).decode()
    except ValueError:  # a name that is not Unicode
        return None
    return None if "N" in text or "I" in text else text  # which NaN and Infinity have, and maybe a name


_NUMBERS = {float, int}


def encode_offer(arms: Any, context: Any, **more: Any) -> bytes:
    """Return the body of a request to decide, to predict or to rank."""
    return encode({"arms": check_arms(arms), "context": check_fields(("context",), context), **more})


def encode_offers(arms: Iterable[Any], contexts: Iterable[Any] | None) -> list[bytes]:
    """Return the items of a batch of decisions."""
    offers = to_list("arms", arms)
    known = [None] * len(offers) if contexts is None else to_list("contexts", contexts)
    if len(known) != len(offers):
        expected = f"{len(offers)} contexts, one for each of `arms`"
        raise ArgumentError("contexts", contexts, expected, got=str(len(known)))
    items = []
    for place, (offer, context) in enumerate(zip(offers, known, strict=True)):
        try:
            items.append(encode_offer(offer, context, key=check_key(None)))
        except ArgumentError as error:
            argument, *rest = error.path
            raise error.rename(("arms" if argument == "arms" else "contexts", place, *rest)) from None
    return items


def encode_rewards(rewards: Iterable[Any]) -> list[bytes]:
    """Return the items of a batch of rewards."""
    items = []
    for place, pair in enumerate(to_list("rewards", rewards)):
        try:
            decision, value = pair
            items.append(encode({"decision": get_id(decision), "value": check_value(value)}))
        except (TypeError, ValueError) as error:  # ArgumentError is a ValueError
            expected = "a pair of decision and value"
            raise ArgumentError(("rewards", place), pair, expected, hint=str(error)) from None
    return items


def split_batch(items: list[bytes]) -> Iterator[list[bytes]]:
    """Yield ``items`` in parts that the service accepts."""
    part, size = list[bytes](), 0
    for item in items:
        if part and (len(part) == MOST_ITEMS or size + len(item) > MOST_BYTES):
            yield part
            part, size = [], 0
        part.append(item)
        size += len(item)
    if part:
        yield part


# --- answers --------------------------------------------------------------------------------------------------------


_build_adapter: Any = functools.cache(TypeAdapter)  # building one takes milliseconds


def read(kind: type[T], body: bytes) -> T:
    """Return the answer ``body`` as a ``kind``: a record, or any other type that pydantic knows."""
    try:
        record: T = _build_adapter(kind).validate_json(body, strict=True)
        return record
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        if problem["type"] == "json_invalid":  # silently truncated: a retry may succeed
            raise ClientError(200, "no-answer", "the answer is not JSON") from None
        raise not_understood(": ".join(map(str, (*problem["loc"], problem["msg"])))) from None


def not_understood(problem: str) -> ClientError:
    """Return the error about an answer that is not from a windvane service."""
    return ClientError(200, "not-understood", f"unexpected answer ({problem}); is this a windvane service?")


def build_error(status: int, problem: ProblemDetails | bytes | None, retry_after: str = "") -> ClientError:
    """Return the error that problem details, or a body that may hold some, describe."""
    error = ClientError(status, "http", f"status {status} without problem details")
    with contextlib.suppress(ClientError):
        details = read(ProblemDetails, problem) if isinstance(problem, bytes) else problem
        if details is not None:
            pointer = details.errors[0].pointer if details.errors else None
            code = details.type.removeprefix("urn:windvane:problem:")
            message = f"{code}: {TOKEN_HINTS[code]}" if code in TOKEN_HINTS else details.detail
            error = ClientError(status, code, message, pointer)
            error.pointers = [entry.pointer for entry in details.errors]
            error.is_unsure = error.is_unsure or (status == 503 and details.cause in UNSURE_CAUSES)
    if retry_after.isascii() and retry_after.isdigit():  # a date is left to the usual pauses
        error.retry_after = float(retry_after)
    return error


def read_item(item: ItemResult) -> Any:
    """Return the answer to an item of a batch, or its error."""
    if item.status >= 300:
        return build_error(item.status, item.problem)
    return item.decision or (item.receipt and item.receipt.status)
