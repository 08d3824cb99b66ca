"""What the service answers when it cannot do what was asked: a status, a code for programs, a line for people."""

from __future__ import annotations

import re

from pydantic import ValidationError

_FIELD = re.compile(r"^([\w\[\]'\". -]{1,80}?)(?:=|:| has )")
_TAG = re.compile(
    r"^(dict|list|constrained-|function-|float$|int$|str$|literal\[)|^(Range|Category|AnyNumber|Scaling)$"
)


class ServiceError(Exception):
    """Told to the client as {"error": {"code": ..., "message": ..., "field": ...}}."""

    def __init__(self, status: int, code: str, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.field = status, code, message, field

    @property
    def document(self) -> dict[str, dict[str, str | None]]:
        return {"error": {"code": self.code, "message": self.message, "field": self.field}}


def invalid(error: ValueError) -> ServiceError:
    """The library's own error, whose line begins with the argument that is wrong."""
    if isinstance(error, ValidationError):
        return _misfit(error)
    message = " ".join(str(error).split())
    found = _FIELD.match(message)
    return ServiceError(422, "invalid", message, found[1] if found else None)


def _misfit(error: ValidationError) -> ServiceError:
    """Of a union's alternatives, the one that fitted deepest is what was meant."""
    found = max(
        error.errors(include_url=False, include_context=False, include_input=False), key=lambda e: len(e["loc"])
    )
    field = ".".join(str(part) for part in found["loc"] if not (isinstance(part, str) and _TAG.match(part)))
    message = found["msg"].removeprefix("Value error, ")
    return ServiceError(422, "invalid", f"{field}: {message}" if field else message, field or None)


def unknown_stream(name: str) -> ServiceError:
    return ServiceError(404, "unknown_stream", f"stream {name!r}: there is no such stream")


def unavailable(why: str) -> ServiceError:
    return ServiceError(503, "unavailable", why)
