"""What the service answers when it cannot do what was asked: a status, a code for programs, a line for people."""

from __future__ import annotations

import re

from pydantic import ValidationError

_FIELD = re.compile(r"^([\w\[\]'\"., -]{1,80}?)(?:=|:| has )")
_TAG = re.compile(
    r"^(dict|list|constrained-|function-|float$|int$|str$|literal\[|\[key\]$)|^(Range|Category|AnyNumber|Scaling)$"
)


class ServiceError(Exception):
    """Told to the client as {"error": {"code": ..., "message": ..., "field": ...}}."""

    def __init__(self, status: int, code: str, message: str, field: str | None = None, wait: int = 1) -> None:
        """``wait``: seconds after which it makes sense to ask again, where it does."""
        message = _short(message, 500)
        super().__init__(message)
        self.status, self.code, self.message, self.wait = status, code, message, wait
        self.field = None if field is None else _short(field, 100)

    @property
    def document(self) -> dict[str, dict[str, str | None]]:
        return {"error": {"code": self.code, "message": self.message, "field": self.field}}


class AbortedTransferError(Exception):
    """A response has begun and cannot be completed. The connection is closed, so that clients notice."""


def invalid(error: ValueError) -> ServiceError:
    """The library's own error, whose line begins with the argument that is wrong."""
    if isinstance(error, ValidationError):
        return _misfit(error)
    message = " ".join(str(error).split())
    found = _FIELD.match(message)
    return ServiceError(422, "invalid", message, found[1] if found else None)


def _misfit(error: ValidationError) -> ServiceError:
    """Of a union's alternatives, the one that fitted deepest is what was meant; or one that fitted but for its size."""
    all_ = error.errors(include_url=False, include_context=False, include_input=False)
    found = max(all_, key=lambda e: (e["type"] in ("too_long", "too_short"), len(e["loc"])))
    field = ".".join(str(part) for part in found["loc"] if not (isinstance(part, str) and _TAG.match(part))).rstrip(".")
    message = found["msg"].removeprefix("Value error, ")
    if not field and found["type"] == "value_error":
        return invalid(ValueError(message))
    return ServiceError(422, "invalid", f"{field}: {message}" if field else message, field or None)


def _short(text: str, most: int) -> str:
    """What was sent may stand in it, and that may be long."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def unknown_stream(name: str) -> ServiceError:
    return ServiceError(404, "unknown_stream", f"stream {name!r}: there is no such stream")


def unknown_decision(decision: str) -> ServiceError:
    return ServiceError(404, "unknown_decision", f"decision {decision!r}: there is no such decision", "decision")


def unavailable(why: str) -> ServiceError:
    return ServiceError(503, "unavailable", why)


def unreadable(error: Exception) -> ServiceError:
    """Return the answer to a request that needs an event which cannot be read. Asking again does not help."""
    return ServiceError(500, "unreadable", f"{error}; `windvane verify` says more")


def internal() -> ServiceError:
    return ServiceError(500, "internal", "something went wrong; the server's log says what")
