"""Events: all that ever changes a stream, in the order in which it changed it. The log of them is the truth; whatever
else is stored is made from it and can be made again."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

DECIDED, REWARDED, REWARD_PART, EXPIRED, CONFIGURED, ARCHIVED, LATE, HISTORY, LOST, UNREADABLE = range(1, 11)
KINDS = {
    DECIDED: "decided",
    REWARDED: "rewarded",
    REWARD_PART: "reward_part",  # added to the reward of a decision
    EXPIRED: "expired",
    CONFIGURED: "configured",
    ARCHIVED: "archived",
    LATE: "late",  # a reward after the wait: recorded, not learnt from
    HISTORY: "history",
    LOST: "lost",  # events up to number "acknowledged" were acknowledged, and are not in the log
    UNREADABLE: "unreadable",  # in the place of an event that a repair could not read
}

_encode = json.JSONEncoder(separators=(",", ":")).encode


def encode_json(document: dict[str, Any]) -> bytes:
    """JSON without spaces: what is answered, and what is logged."""
    return _encode(document).encode()


class Event(NamedTuple):
    """An entry of a stream's log.

    ``number`` counts the events of a stream from 1. ``decision`` and ``key`` (of the client, for repeated requests)
    may be None. ``outcome_json`` is what came of it. ``request`` is the request as it was received, so that a replay
    reads the very same text; None where there was none, or where it was erased. ``salt``, ``request_digest`` and
    ``chain`` are described in :mod:`windvane.service.store.chain`.
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

    @property
    def outcome(self) -> dict[str, Any]:
        return dict(json.loads(self.outcome_json))

    @property
    def fields(self) -> dict[str, Any]:
        """What every event tells, by the names that exports have for it."""
        return {
            "number": self.number,
            "time": self.time,
            "kind": KINDS[self.kind],
            "decision": self.decision,
            "key": self.key,
        }

    def to_plain(self) -> dict[str, Any]:
        """As people and exports read it."""
        return {
            **self.fields,
            **self.outcome,
            **({"request": json.loads(self.request)} if self.request else {}),
        }
