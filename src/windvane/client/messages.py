"""What goes to the service and what comes back, as bytes, and what can be wrong with either."""

from __future__ import annotations

import http.client
import json
import math
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from types import NoneType
from typing import Any, NamedTuple
from urllib.parse import quote

from windvane.arguments import check_number
from windvane.errors import ArgumentError, WindvaneError, format_value

MOST_ITEMS, MOST_BYTES = 1000, 1 << 20  # of one batch; more is sent as several
CHUNK = 1 << 16


class ClientError(WindvaneError):
    """What the service refused, or that it could not be asked.

    ``status`` of the answer, None without one; ``code`` for programs; ``message`` for people; ``field`` of the request
    that is wrong, if it is one. Without an answer the code is "unreachable" (nothing was sent, so nothing was done) or
    "no_answer" (whether it was done is not known).
    """

    def __init__(self, status: int | None, code: str, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.field = status, code, message, field


class BatchError(ClientError):
    """Raised by ``decide_many`` and ``reward_many`` when an item failed. The other items were carried out.

    Parameters
    ----------
    results : sequence
        One entry for each item, in order: what the call returns for an item that succeeded, else a
        :class:`ClientError`. At least one is an error.

    Attributes
    ----------
    results : list
        As above.
    errors : dict of int to ClientError
        The errors by their place in ``results``.
    status, code, message, field
        ``message`` says how many items failed; the others are those of the first error.

    Examples
    --------
    >>> BatchError([True, ClientError(409, "conflict", "the decision has another reward")])
    BatchError('1 of 2 items failed; results[1]: the decision has another reward')
    """

    def __init__(self, results: Sequence[Decided | bool | ClientError]) -> None:
        self.results = list(results)
        self.errors = {place: item for place, item in enumerate(self.results) if isinstance(item, ClientError)}
        place, first = next(iter(self.errors.items()))
        text = f"{len(self.errors)} of {len(self.results)} items failed; results[{place}]: {first.message}"
        super().__init__(first.status, first.code, text, first.field)


@dataclass(frozen=True, slots=True)
class Decided:
    """An arm that was chosen; ``id`` is what the reward must name. The fields are those of the library's Decision."""

    id: str
    arm: str | int
    index: int
    time: float
    propensity: float | None
    explored: bool
    prediction: float
    bonus: float
    preferred: str | int
    rival: str | int | None
    rival_score: float | None
    projected: bool | None


class Request(NamedTuple):
    method: str
    path: str
    body: bytes | None = None
    key: str | None = None


# --- what goes out -------------------------------------------------------------------------------------------------


def text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ArgumentError(name, value, "a text")
    return value


def path(stream: str, *parts: str) -> str:
    return "/".join(("/v1/streams", *(quote(part, safe="") for part in (text("stream", stream), *parts))))


def decision_id(decision: Decided | str) -> str:
    return decision.id if isinstance(decision, Decided) else text("decision", decision)


def checked_key(given: str | None) -> str:
    """The caller's own, or a random one."""
    if given is None:
        return secrets.token_hex(16)
    if not isinstance(given, str) or not 0 < len(given) <= 200 or not given.isascii() or not given.isprintable():
        raise ArgumentError("key", given, "a text of 1 to 200 printable ASCII characters")
    return given


def one_round(arms: Any, context: Mapping[str, Any] | None) -> dict[str, Any]:
    if isinstance(arms, Mapping):
        labels = [list(vector.index) for vector in arms.values() if hasattr(vector, "loc")]  # of pandas
        if any(label != labels[0] for label in labels):
            expected = "vectors whose labels are in the same order, because labels are not sent"
            raise ArgumentError("arms", list(arms), expected, got="different orders")
        for name in arms:
            if not isinstance(name, str):  # JSON would make a text of it, and the answer would name another arm
                raise ArgumentError("arms", name, "named by texts over HTTP")
    return {name: value for name, value in (("arms", arms), ("context", context)) if value is not None}


def one_reward(decision: Decided | str, value: float) -> dict[str, Any]:
    return {"decision": decision_id(decision), "value": check_number("value", value, "that is finite", math.isfinite)}


def encoded(name: str, document: Any) -> bytes:
    try:
        return json.dumps(document, separators=(",", ":"), allow_nan=False, default=_plain).encode()
    except (TypeError, ValueError, RecursionError) as error:
        hint = " ".join(str(error).split())
        raise ArgumentError(name, document, "something that JSON can hold", hint=hint) from None


def _plain(value: Any) -> Any:
    """Arrays and scalars of NumPy, and declared Features, as JSON takes them."""
    for way in ("tolist", "declared"):
        if hasattr(value, way):
            return getattr(value, way)()
    raise TypeError(f"{type(value).__name__} is neither a number, a text, an array, a list nor a dict")


def parts_of(items: list[bytes]) -> Iterator[list[bytes]]:
    """``items`` in order, in parts that the service takes."""
    part: list[bytes] = []
    size = 0
    for item in items:
        if part and (len(part) == MOST_ITEMS or size + len(item) > MOST_BYTES):
            yield part
            part, size = [], 0
        part.append(item)
        size += len(item)
    if part:
        yield part


# --- what comes back -----------------------------------------------------------------------------------------------


def document_of(body: bytes) -> Any:
    """None if it is not JSON."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def refusal(status: int, document: Any) -> ClientError:
    try:
        error = document["error"]
        return ClientError(status, str(error["code"]), str(error["message"]), error["field"])
    except (KeyError, TypeError):
        return ClientError(status, "http", f"status {status}, and nothing said about why")


def not_understood(what: str) -> ClientError:
    return ClientError(200, "not_understood", f"the answer {what}; is this a windvane service?")


def entry(answer: Any, name: str, *kinds: type) -> Any:
    """An entry of an answer, of one of these ``kinds`` if any are named."""
    if not isinstance(answer, dict) or name not in answer:
        raise not_understood(f"has no {name!r}")
    found = answer[name]
    if kinds and not (isinstance(found, kinds) and (not isinstance(found, bool) or bool in kinds)):
        raise not_understood(f"has {format_value(found)} as {name!r}")
    return found


def entries(answer: Any, name: str, count: int | None = None) -> list[dict[str, Any]]:
    """An entry that is a list of documents, ``count`` of them if it is told."""
    found = entry(answer, name, list)
    if not all(isinstance(one, dict) for one in found) or count not in (None, len(found)):
        raise not_understood(f"has other {name!r} than were asked for")
    return list(found)


def decided(answer: Any) -> Decided:
    return Decided(
        entry(answer, "decision", str),
        *(entry(answer, field.name, *_KINDS[field.name]) for field in fields(Decided)[1:]),
    )


_KINDS: dict[str, tuple[type, ...]] = {
    "arm": (str, int), "index": (int,), "time": (float, int), "propensity": (float, int, NoneType), "explored": (bool,),
    "prediction": (float, int), "bonus": (float, int), "preferred": (str, int), "rival": (str, int, NoneType),
    "rival_score": (float, int, NoneType), "projected": (bool, NoneType),
}  # fmt: skip


def learnt(answer: Any) -> bool:
    return bool(entry(answer, "learnt", bool))


def lines_of(response: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    """Lines of JSON; what breaks off raises, and is never taken for the end."""
    rest, cut = b"", None
    while cut is None:
        try:
            chunk = response.read(CHUNK)
        except http.client.IncompleteRead as error:  # the last lines say why, where the service knows it
            chunk, cut = error.partial, error
        if not chunk:
            break
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            found = document_of(line)
            if not isinstance(found, dict):
                raise http.client.HTTPException("a line of the answer cannot be read")
            if found.get("kind") == "unreadable":
                text = f"event {found.get('number')}: {found.get('error')}"
                raise ClientError(response.status, "unreadable", text)
            yield found
    if cut is not None:
        raise cut
    if rest or response.length:
        raise http.client.IncompleteRead(rest)
