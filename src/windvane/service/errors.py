"""The service's error responses: a status, a code for programs, a line for people, and the field that is wrong."""

from __future__ import annotations

import re

from pydantic import ValidationError

from windvane.errors import ArgumentError, WindvaneError

_TAG = re.compile(
    r"^(dict|list|constrained-|function-|float$|int$|str$|literal\[|\[key\]$)|^(Range|Category|AnyNumber|Scaling)$"
)


class ServiceError(WindvaneError):
    """Sent to the client as {"error": {"code": ..., "message": ..., "field": ...}}."""

    def __init__(self, status: int, code: str, message: str, field: str | None = None, wait: int = 1) -> None:
        """``wait``: seconds after which the client may try again, where that can help."""
        message = _short(message, 500)
        super().__init__(message)
        self.status, self.code, self.message, self.wait = status, code, message, wait
        self.field = None if field is None else _short(field, 100)

    @property
    def document(self) -> dict[str, dict[str, str | None]]:
        return {"error": {"code": self.code, "message": self.message, "field": self.field}}


class AbortedTransferError(WindvaneError):
    """A response has begun and cannot be completed. The connection is closed, so that clients notice."""


def invalid(error: Exception) -> ServiceError:
    """Return the response to a request that the schema or the agent rejected."""
    if isinstance(error, ValidationError):
        return _misfit(error)
    field = error.argument if isinstance(error, ArgumentError) else None
    return ServiceError(422, "invalid", " ".join(str(error).split()), field)


def _misfit(error: ValidationError) -> ServiceError:
    """Report one of the errors of a schema: of a union, that of the alternative that matched deepest, or in all but
    its size."""
    all_ = error.errors(include_url=False, include_input=False)
    found = max(all_, key=lambda e: (e["type"] in ("too_long", "too_short"), len(e["loc"])))
    cause = found.get("ctx", {}).get("error")
    if isinstance(cause, ArgumentError):  # raised by a validator of our own
        return invalid(cause)
    field = ".".join(str(part) for part in found["loc"] if not (isinstance(part, str) and _TAG.match(part))).rstrip(".")
    return ServiceError(422, "invalid", f"{field}: {found['msg']}" if field else found["msg"], field or None)


def _short(text: str, most: int) -> str:
    """Shorten ``text``, which may quote what was sent."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def unknown_stream(name: str) -> ServiceError:
    return ServiceError(404, "unknown_stream", f"there is no stream {name!r}")


def unknown_decision(decision: str) -> ServiceError:
    return ServiceError(404, "unknown_decision", f"there is no decision {decision!r}", "decision")


def unavailable(why: str) -> ServiceError:
    return ServiceError(503, "unavailable", why)


def unreadable(error: Exception) -> ServiceError:
    """Return the answer to a request that needs an event which cannot be read. Asking again does not help."""
    return ServiceError(500, "unreadable", f"{error}; `windvane verify` says more")


def internal() -> ServiceError:
    return ServiceError(500, "internal", "something went wrong; the server's log says what")
