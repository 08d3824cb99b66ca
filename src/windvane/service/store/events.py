"""Events: all changes of a stream, in order. All other data is derived from this log.

The events of a stream form a chain: the chain value of an event is the SHA-256 of the previous chain value and of the
event's content. The first value is the digest of the stream's own row. Contexts and vectors occur only in an event's
request, and the request enters the chain as a salted digest: when request and salt are erased, the digest stays and the
chain can still be checked.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, NamedTuple

from windvane.errors import WindvaneError
from windvane.records import to_datetime, to_plain
from windvane.service.random_bytes import draw_bytes
from windvane.service.store.records import Value, digest_row

DECIDED, REWARDED, REWARD_PART, CLOSED, CONFIGURED, ARCHIVED, LATE, HISTORY, LOST, UNREADABLE = range(1, 11)
REFITTED, REFIT_UNDONE, UNARCHIVED, ERASED, COMPACTED = range(11, 16)
KINDS = {
    DECIDED: "decided",
    REWARDED: "rewarded",
    REWARD_PART: "reward_part",  # added to the reward of a decision
    CLOSED: "closed",  # decisions whose timeout has passed, rewarded or not, or that were dropped
    CONFIGURED: "configured",
    ARCHIVED: "archived",
    LATE: "late",  # a reward after the timeout: recorded, not learned
    HISTORY: "history",
    LOST: "lost",  # events up to number "acknowledged" were acknowledged, and are not in the log
    UNREADABLE: "unreadable",  # replaces an event that a repair could not read
    REFITTED: "refitted",  # the log before it was learned again with new settings
    REFIT_UNDONE: "refit_undone",  # the model from before the last refit was restored, and learned the events since
    UNARCHIVED: "unarchived",
    ERASED: "erased",  # the context of a decision
    COMPACTED: "compacted",  # events up to number "removed" were removed
}
SALT_BYTES = 16  # 128 bits: a short context cannot be guessed from its digest once the salt is erased
STREAM_SPAN = 1 << 40
"""The id of an event's row is stream * STREAM_SPAN + number: the events of a stream lie together, in order."""


class UnreadableEventError(WindvaneError):
    """Event ``number`` is missing, cannot be read, or does not match its checksum."""

    def __init__(self, number: int, problem: str) -> None:
        super().__init__(f"event {number}: {problem}")
        self.number, self.problem = number, problem


class Event(NamedTuple):
    """An entry of a stream's log.

    Attributes
    ----------
    stream, number
        The id of the stream, and the place in its log, from 1.
    decision, key
        The decision that it is about, and the Idempotency-Key of the request; both may be None.
    outcome_json
        What the event led to, as JSON.
    request
        The body of the request as it was received, so that a replay reads the same bytes. None if there was none, or if
        it was erased.
    salt, request_digest, chain
        See the module.
    """

    stream: int
    number: int
    time: float
    kind: int
    decision: str | None
    key: str | None
    outcome_json: bytes
    request: bytes | None = None
    salt: bytes | None = None
    request_digest: bytes | None = None
    chain: bytes = b""

    @classmethod
    def create(
        cls, previous: bytes, stream: int, number: int, time: float, kind: int, decision: str | None = None,
        key: str | None = None, outcome_json: bytes = b"{}", request: bytes | None = None,
    ) -> Event:  # fmt: skip
        """Return the event that follows one whose chain value is ``previous``."""
        salt = digest = None
        if request is not None:
            salt = draw_bytes(SALT_BYTES)
            digest = hashlib.sha256(salt + request).digest()
        chain = _extend_chain(previous, stream, number, time, kind, decision, key, outcome_json, digest)
        return cls(stream, number, time, kind, decision, key, outcome_json, request, salt, digest, chain)

    @classmethod
    def from_row(cls, row: tuple[Any, ...]) -> Event:
        """Return the event of a row of the table of events."""
        return cls(row[0] // STREAM_SPAN, row[0] % STREAM_SPAN, *row[1:])

    def to_row(self) -> tuple[Any, ...]:
        """Return the row of the table of events."""
        return self.stream * STREAM_SPAN + self.number, *self[2:]

    def copy_to(self, stream: int, previous: bytes) -> Event:
        """Return this event as one of another stream, where it follows one whose chain value is ``previous``."""
        chain = _extend_chain(previous, stream, *self[1:7], self.request_digest)
        return self._replace(stream=stream, chain=chain)

    @property
    def size(self) -> int:
        """Its size in memory in bytes, up to a constant."""
        return len(self.outcome_json) + len(self.request or b"")

    @property
    def outcome(self) -> dict[str, Any]:
        """What the event led to."""
        return dict(json.loads(self.outcome_json))

    @property
    def fields(self) -> dict[str, Any]:
        """The fields that every event has, by their names in exports."""
        return {
            "number": self.number,
            "time": to_plain(to_datetime(self.time)),
            "kind": KINDS[self.kind],
            "decision": self.decision,
            "key": self.key,
        }

    def to_plain(self) -> dict[str, Any]:
        """Return the event as exports show it."""
        request = {} if self.request is None else {"request": json.loads(self.request)}
        return self.fields | self.outcome | request


def _extend_chain(previous: bytes, stream: int, number: int, time: float, *values: Value) -> bytes:
    """Return the chain value of an event. ``values``: its kind, decision, key, outcome and digest of the request."""
    # SQLite stores -0.0 as 0: adding 0.0 makes both the same.
    return digest_row("events", previous, stream * STREAM_SPAN + number, time + 0.0, *values)


def check_event(previous: bytes, event: Event) -> None:
    """Raise :class:`UnreadableEventError` unless ``event`` follows the chain value ``previous``.

    The columns of a damaged row may hold values of any type.
    """
    try:
        if event.request is None or event.salt is None:
            is_whole = event.request is event.salt  # there was no request, or it was erased
        else:
            is_whole = hashlib.sha256(event.salt + event.request).digest() == event.request_digest
        is_whole = is_whole and _extend_chain(previous, *event[:7], event.request_digest) == event.chain
    except TypeError:
        is_whole = False
    if not is_whole:
        raise UnreadableEventError(event.number, "does not match its checksum")
