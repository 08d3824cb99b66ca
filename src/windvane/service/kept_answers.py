"""Answers that a repeated request gets again: from memory, or made from the event of the first request."""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

from windvane.agent import Decision
from windvane.records import to_json
from windvane.service.errors import ServiceError
from windvane.service.store import DECIDED, LATE, REWARDED, Event


class KeptAnswer(NamedTuple):
    """The answer to a request with a key. ``digest`` tells the request from others with the same key."""

    digest: str
    status: int
    body: bytes


def read_kept_answer(event: Event) -> KeptAnswer:
    """Return the answer to the request that made ``event``."""
    if event.kind == DECIDED:
        return KeptAnswer(digest_request("decide", event.request or b""), 200, event.outcome_json)
    if event.kind in (REWARDED, LATE):
        assert event.decision is not None  # it is a decision's reward
        digest = digest_reward(event.decision, event.outcome["value"])
        if event.kind == REWARDED:
            return KeptAnswer(digest, 200, answer_reward(event.decision, True))
        return KeptAnswer(digest, 410, to_json(refuse_late(event.decision).document))
    return KeptAnswer(digest_request("history", event.request or b""), 200, to_json({"learnt": event.outcome["rows"]}))


def digest_request(operation: str, raw: bytes) -> str:
    """Return the digest of a request. The same bytes sent to another operation are another request."""
    return hashlib.sha256(f"{operation} ".encode() + raw).hexdigest()


def digest_reward(decision: str, value: float) -> str:
    return digest_request("reward", f"{decision} {float(value)!r}".encode())


def answer_reward(decision: str, learnt: bool) -> bytes:
    """Return the answer to a reward: learnt now, or known already."""
    return to_json({"decision": decision, "learnt": learnt})


def refuse_late(decision: str) -> ServiceError:
    text = f"decision {decision!r}: its wait is over; the reward was recorded, not learnt from"
    return ServiceError(410, "too_late", text, "decision")


def describe_decision(decision: Decision) -> dict[str, Any]:
    """Return the answer to a request to decide, which is also the outcome in the log."""
    return {
        "decision": decision.id,
        "arm": decision.arm,
        "index": decision.index,
        "time": decision.time,
        "propensity": decision.propensity,
        "explored": decision.explored,
        "prediction": decision.prediction,
        "bonus": decision.bonus,
        "preferred": decision.preferred,
        "rival": decision.rival,
        "rival_score": decision.rival_score,
        "projected": decision.projected,
    }
