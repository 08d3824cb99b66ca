"""Checksums of what the store holds: a chain over the events of a stream, and a digest of every other row.

The chain value of an event is the SHA-256 of the chain value before it and of all that the event says. The first value
is the digest of the stream's own row. Contexts and vectors stand only in an event's request, and the request enters the
chain as a salted digest: when request and salt are erased, the digest stays and the chain can still be checked.
"""

from __future__ import annotations

import hashlib
import secrets
import struct

from windvane.errors import WindvaneError
from windvane.service.store.events import Event

SALT_BYTES = 16  # 128 bits: a short context cannot be guessed from its digest once the salt is erased

_HEAD = struct.Struct(">QQdQ")  # stream, number, time, kind
_ABSENT = b"\xff" * 8  # in the place of a length: no value, which differs from an empty one


class UnreadableEventError(WindvaneError):
    """An event that is missing, cannot be read, or does not match its checksum."""

    def __init__(self, number: int, problem: str) -> None:
        super().__init__(f"event {number}: {problem}")
        self.number, self.problem = number, problem


def digest_row(table: str, *values: str | float | bytes | None) -> bytes:
    """Return the checksum of a row of ``table``. Every value is stored with its type and length."""
    parts = [type(value).__name__.encode() + b" " + _sized(_plain(value)) for value in values]
    return hashlib.sha256(_sized(table.encode()) + b"".join(parts)).digest()


def start_chain(stream: int, name: str, created: float, config: str) -> bytes:
    """Return the chain value before the first event of a stream: the digest of the stream's row."""
    return digest_row("stream", stream, name, float(created), config)


def salt_request(request: bytes) -> tuple[bytes, bytes]:
    """Return a random salt, and the digest by which ``request`` enters the chain."""
    salt = secrets.token_bytes(SALT_BYTES)
    return salt, hashlib.sha256(salt + request).digest()


def extend_chain(
    previous: bytes,
    stream: int,
    number: int,
    time: float,
    kind: int,
    decision: str | None,
    key: str | None,
    outcome_json: bytes,
    request_digest: bytes | None,
) -> bytes:
    """Return the chain value of an event that follows an event whose chain value is ``previous``."""
    # SQLite stores -0.0 as 0: adding 0.0 gives both the same bytes.
    head = _HEAD.pack(stream, number, time + 0.0, kind)
    texts = b"".join(_sized(None if text is None else text.encode()) for text in (decision, key))
    return hashlib.sha256(previous + head + texts + _sized(outcome_json) + _sized(request_digest)).digest()


def check_event(previous: bytes, event: Event) -> None:
    """Raise :class:`UnreadableEventError` unless ``event`` follows the chain value ``previous``.

    The columns of a damaged row may hold values of any type.
    """
    try:
        chain = extend_chain(
            previous, event.stream, event.number, event.time, event.kind, event.decision, event.key,
            event.outcome_json, event.request_digest,
        )  # fmt: skip
        is_whole = chain == event.chain and _has_request(event)
    except (TypeError, ValueError, AttributeError, struct.error):
        is_whole = False
    if not is_whole:
        raise UnreadableEventError(event.number, "does not match its checksum")


def _has_request(event: Event) -> bool:
    """Whether the request is the one that was digested, or was erased together with its salt."""
    if event.request is None:
        return event.salt is None
    if event.salt is None:
        return False
    return hashlib.sha256(event.salt + event.request).digest() == event.request_digest


def _plain(value: str | float | bytes | None) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else repr(value).encode()


def _sized(value: bytes | None) -> bytes:
    return _ABSENT if value is None else len(value).to_bytes(8, "big") + value
