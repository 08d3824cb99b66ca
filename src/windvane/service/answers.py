"""What the service answers, as documented in its OpenAPI document."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel


class ErrorDetail(BaseModel):
    code: str
    message: str
    field: str | None


class Error(BaseModel):
    error: ErrorDetail


class DecisionAnswer(BaseModel):
    """An arm that was chosen; ``decision`` is what the reward must name."""

    decision: str
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


class RewardAnswer(BaseModel):
    """``learnt`` is false if this reward was known already. With ``learn`` = "at_timeout" a new one is learned when the
    decision's wait ends."""

    decision: str
    learnt: bool


class ItemAnswer(BaseModel):
    """Of one item of a batch: a status as if it had come alone, and the answer it would have got."""

    status: int
    answer: dict[str, Any]


class BatchAnswer(BaseModel):
    results: list[ItemAnswer]


class HistoryAnswer(BaseModel):
    learnt: int


class AlertAnswer(BaseModel):
    """A condition that degrades learning or predictions, with a message that says what to change."""

    code: str
    message: str


class StreamAnswer(BaseModel):
    name: str
    title: str | None
    created: float
    archived: float | None
    policy: str
    link: str
    dim: int
    learn: str
    decisions: int
    rewards: int
    defaulted: int
    settled: int
    history: int
    mean_reward: float | None
    pending: int
    held: int
    expired: int
    dropped: int
    events: int
    alerts: list[AlertAnswer]
    config: dict[str, Any]


class StreamsAnswer(BaseModel):
    streams: list[StreamAnswer]
    broken: dict[str, str]


class StateAnswer(StreamAnswer):
    """The stream in full: the estimate by coordinate, its bound S, memory, drift, and what the page draws."""

    theta: dict[str, float]
    S: float | None
    projected_share: float
    recent_projected_share: float
    memory: float | None
    memory_unit: str
    drift: dict[str, Any] | None
    statistics: dict[str, Any]


class PastAnswer(BaseModel):
    """A decision and what became of it, as the log has it; ``state`` is pending, rewarded or expired."""

    decision: str
    state: str
    reward: float | None
    explanation: str
    events: list[dict[str, Any]]


class Health(BaseModel):
    status: str


_MEANING = {
    400: "the connection was closed before the body had arrived",
    401: "no token, or an unknown one",
    403: "the token may only read, or the server was asked under a wrong name",
    404: "there is no such stream or decision",
    408: "the body came too slowly",
    409: "contradicts what is known",
    410: "the wait of this decision is over; the reward was recorded, not learnt from",
    413: "the body is too large",
    415: "the body is not application/json",
    422: "the request is wrong; the error names the field",
    429: "too many requests",
    500: "an event that is needed cannot be read; `windvane verify` says more",
    503: "the service is not ready, or the store cannot be written to",
}


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Documentation of these answers, and of those that any request may get."""
    return {
        status: {"model": Error, "description": _MEANING[status]} for status in (401, 403, 429, 500, 503, *statuses)
    }


def body_errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The same for a request with a body."""
    return errors(400, 408, 413, 415, 422, *statuses)
