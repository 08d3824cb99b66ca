"""Events: all that ever changes a stream, in the order in which it changed it. The log of them is the truth; whatever
else is stored is made from it and can be made again."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

DECIDED, REWARDED, EXPIRED, CONFIGURED, ARCHIVED, LATE, HISTORY = range(1, 8)
KINDS = {
    DECIDED: "decided",
    REWARDED: "rewarded",
    EXPIRED: "expired",
    CONFIGURED: "configured",
    ARCHIVED: "archived",
    LATE: "late",  # a reward after the wait: recorded, not learnt from
    HISTORY: "history",
}

_encode = json.JSONEncoder(separators=(",", ":")).encode


def encoded(document: dict[str, Any]) -> bytes:
    """JSON without spaces: what is answered, and what is logged."""
    return _encode(document).encode()


class Event(NamedTuple):
    """``number`` counts the events of a stream from 1. ``decision`` and ``key`` (of the client, for repeated requests)
    may be None. ``body`` is a line of JSON, what came of it; after it stands, where there was one, the request as it
    was received, so that a replay reads the very same text."""

    stream: int
    number: int
    time: float
    kind: int
    decision: str | None
    key: str | None
    body: bytes

    @property
    def outcome(self) -> dict[str, Any]:
        return dict(json.loads(self.body.partition(b"\n")[0]))

    @property
    def request(self) -> bytes:
        return self.body.partition(b"\n")[2]

    @property
    def head(self) -> dict[str, Any]:
        """What every event tells, by the names that exports have for it."""
        return {
            "number": self.number,
            "time": self.time,
            "kind": KINDS[self.kind],
            "decision": self.decision,
            "key": self.key,
        }

    def told(self) -> dict[str, Any]:
        """As people and exports read it."""
        return {
            **self.head,
            **self.outcome,
            **({"request": json.loads(self.request)} if self.request else {}),
        }
