"""The errors of the service as problem details (RFC 9457): a code for programs, a sentence, and JSON Pointers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import ValidationError

from windvane.errors import ArgumentError, WindvaneError, json_pointer
from windvane.records import KEY, KEY_IN_WORDS, STREAM_NAME, STREAM_NAME_IN_WORDS, to_json

MEDIA_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:windvane:problem:"
MAX_DETAIL = 300  # characters: a detail may quote what was sent
MAX_POINTER = 100
MAX_ERRORS = 3  # listed of a request that has more


class Kind(NamedTuple):
    """What all problems with the same code share."""

    status: int
    title: str


REQUEST_CAUSES = {
    "moving": "the stream moves to another node, or has just moved",
    "unreachable": "the node that serves the stream cannot be reached",
    "busy": "what the request has to wait for takes longer: decisions that are being closed, a refit, the disk",
}
"""Why a single request is "unavailable" while the service is ready. A stream that is rebuilt is "recovering"."""
KINDS = {
    "invalid": Kind(422, "The request is invalid"),
    "unknown-stream": Kind(404, "There is no stream with this name"),
    "unknown-decision": Kind(404, "The stream has no decision with this id"),
    "conflict": Kind(409, "The decision already has another reward"),
    "archived": Kind(409, "The stream is archived"),
    "key-reused": Kind(409, "The Idempotency-Key was used for another request"),
    "stream-exists": Kind(409, "A stream with this name already exists"),
    "settings-differ": Kind(409, "The stream exists with other settings"),
    "too-many-streams": Kind(409, "The service has as many streams as it may have"),
    "no-retention": Kind(409, "The stream has no retention"),
    "no-refit": Kind(409, "The stream has no refit to undo"),
    "refit-running": Kind(409, "A refit is running, or the settings changed during it"),
    "no-token": Kind(401, "A token is required"),
    "wrong-token": Kind(401, "The token is unknown"),
    "read-only-token": Kind(403, "The token is read-only"),
    "metrics-token": Kind(403, "The token may only read the metrics"),
    "wrong-host": Kind(403, "The server does not answer under this host name"),
    "wrong-origin": Kind(403, "Requests from pages of other sites are not allowed"),
    "too-large": Kind(413, "The body is too large"),
    "not-json": Kind(415, "The body is not application/json"),
    "too-slow": Kind(408, "The body arrived too slowly"),
    "rate-limited": Kind(429, "Too many requests"),
    "overloaded": Kind(503, "The service is overloaded"),
    "unavailable": Kind(503, "The service is unavailable"),
    "no-answer": Kind(504, "Another node did not answer"),
    "not-installed": Kind(501, "The server lacks an optional library"),
    "unrecovered": Kind(500, "The stream could not be recovered"),
    "unreadable": Kind(500, "A stored event cannot be read"),
    "internal": Kind(500, "Internal error"),
    "not-found": Kind(404, "Nothing exists at this path"),
    "method-not-allowed": Kind(405, "The method is not allowed for this path"),
}
"""Every code, with its status and title."""


class Problem(WindvaneError):  # noqa: N818 - the word of RFC 9457
    """A request that was rejected or failed, as reported to its client.

    Parameters
    ----------
    code
        One of :data:`KINDS`; it determines the status and the title.
    detail
        A sentence about this request.
    pointer
        JSON Pointer to the invalid part of the body, such as ``"#/arms/red/1"``.
    retry_after
        Seconds after which the same request may succeed. Default: 0 for the cause "moving", because the node has
        waited already, 1 for any other "unavailable" and for "no-answer", else None.
    cause
        Of "unavailable", which needs one: a code of :data:`windvane.service.readiness.CAUSES` or of
        :data:`REQUEST_CAUSES`.

    Examples
    --------
    >>> problem = Problem("invalid", "`gamma` must be in (0, 1], got 2", pointer="#/gamma")
    >>> problem.status, problem.errors
    (422, [{'pointer': '#/gamma', 'detail': '`gamma` must be in (0, 1], got 2'}])
    """

    def __init__(
        self,
        code: str,
        detail: str,
        *,
        pointer: str | None = None,
        retry_after: float | None = None,
        cause: str | None = None,
    ) -> None:
        if code == "unavailable" and cause is None:
            raise TypeError('a problem with the code "unavailable" needs a cause')
        self.code, self.detail = code, shorten(detail, MAX_DETAIL)
        self.status, self.title = KINDS[code]
        self.errors = [] if pointer is None else [_describe_error(pointer, detail)]
        self.cause = cause
        if retry_after is None and code in ("unavailable", "no-answer"):
            retry_after = 0 if cause == "moving" else 1
        self.retry_after = retry_after
        super().__init__(self.detail)

    @property
    def document(self) -> dict[str, Any]:
        """The problem as the client gets it."""
        names = ("title", "status", "detail", "errors")
        cause = {} if self.cause is None else {"cause": self.cause}
        return {"type": TYPE_PREFIX + self.code, **{name: getattr(self, name) for name in names}, **cause}

    def add_error(self, pointer: str, detail: str) -> None:
        """List one more invalid part of the body."""
        self.errors.append(_describe_error(pointer, detail))

    def move_pointers(self, place: str) -> None:
        """Prefix the pointers with ``place``, because the document that they point into is part of a larger one."""
        for error in self.errors:
            error["pointer"] = place + error["pointer"].removeprefix("#")

    def to_json(self) -> bytes:
        """Return :attr:`document` as JSON."""
        return to_json(self.document)


class MovedError(WindvaneError):
    """The stream went to another node before the request changed anything: its new owner can execute the request."""

    def __init__(self) -> None:
        super().__init__("another node has taken the stream over; nothing was executed")


class TakenOverError(Problem):
    """Another node has taken the stream over. Earlier parts of the request may be stored."""

    def __init__(self) -> None:
        detail = "another node took this stream over; retry with the same Idempotency-Key"
        super().__init__("unavailable", detail, cause="moving")


def invalid(error: Exception) -> Problem:
    """Return the problem of a request that the agent or a pydantic model rejected."""
    if isinstance(error, ArgumentError):
        return Problem("invalid", str(error), pointer=error.pointer)
    if isinstance(error, ValidationError):
        return list_errors(error.errors(include_url=False, include_input=False), "body")
    return Problem("invalid", " ".join(str(error).split()), pointer="#")


def list_errors(errors: Sequence[Mapping[str, Any]], *part: str) -> Problem:
    """Return the problem with the first few errors of pydantic, which are about ``part`` of the request.

    Errors outside the body have no pointer; only the detail describes them.
    """
    entries = [_locate(error, *part, *error["loc"]) for error in errors]
    problem = Problem("invalid", f"{entries[0][0]}: {entries[0][1]}")
    problem.errors = [_describe_error(*entry) for entry in entries if entry[0].startswith("#")][:MAX_ERRORS]
    return problem


def _locate(error: Mapping[str, Any], part: str, *path: str | int) -> tuple[str, str]:
    """Return the place and the description of a model's error; ``part``: "body", "path", "query" or "header"."""
    cause = error.get("ctx", {}).get("error")
    if isinstance(cause, ArgumentError):  # raised by a validator
        return cause.pointer, str(cause)
    if error["type"] == "json_invalid":  # the path is then a position in the document
        return "#", f"must be JSON ({cause})"
    message = _MESSAGES.get(error["type"], error["msg"])
    if error["type"] == "string_pattern_mismatch":
        message = f"must have {_PATTERNS[error['ctx']['pattern']]}"
    return json_pointer(path) if part == "body" else str(path[0]), message


_MESSAGES = {"missing": "must be given", "extra_forbidden": "is not a field of this request"}
"""In place of those of pydantic, by type of error."""
_PATTERNS = {STREAM_NAME: STREAM_NAME_IN_WORDS, KEY: KEY_IN_WORDS}
"""What a text must have, by the regular expression that it must match."""


def _describe_error(pointer: str, detail: str) -> dict[str, str]:
    return {"pointer": shorten(pointer, MAX_POINTER), "detail": shorten(detail, MAX_DETAIL)}


def shorten(text: str, most: int) -> str:
    """Return the first ``most`` characters of a text; an ellipsis replaces the rest."""
    return text if len(text) <= most else f"{text[: most - 3]}..."
