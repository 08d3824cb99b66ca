"""What is answered besides the records of :mod:`windvane.records`: lists, charts, results of batches, and problems."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from windvane.records import Decision, DecisionStatus, Name, RewardReceipt, StreamSummary
from windvane.service.problems import KINDS, TYPE_PREFIX


class ProblemError(BaseModel):
    """One of the errors of a request: where in the body, and what."""

    pointer: str
    detail: str


class ProblemDetails(BaseModel):
    """Why a request failed (RFC 9457)."""

    type: Annotated[str, Field(json_schema_extra={"enum": [TYPE_PREFIX + code for code in KINDS]})]
    title: str
    status: int
    detail: str
    errors: list[ProblemError]


class Health(BaseModel):
    """Whether the service is alive, or ready."""

    status: str


class UnavailableStream(BaseModel):
    """A stream that could not be recovered."""

    name: str
    reason: str


class StreamPage(BaseModel):
    """Streams in the order of their names; ``next`` is the ``after`` of the next page."""

    streams: list[StreamSummary]
    next: str | None
    unavailable: list[UnavailableStream]


class PendingPage(BaseModel):
    """Pending decisions, the oldest first; ``next`` is the ``after`` of the next page."""

    decisions: list[Decision]
    next: int | None


class ArmCounts(BaseModel):
    """Of an arm in a bucket: decisions, the sum of predictions, settled decisions, the sum of their outcomes."""

    decisions: int
    predicted: float
    settled: int
    realised: float


class Bucket(BaseModel):
    """Consecutive decisions and their outcomes; ``model`` is null from before the server started."""

    since: datetime
    until: datetime
    decisions: int
    settled: int
    total: float
    projected: int | None
    arms: dict[str, ArmCounts]
    others: int
    model: dict[Literal["norm", "memory", "rate"], float | None] | None


class RecentDecision(BaseModel):
    """One of the last decisions."""

    id: str
    time: datetime
    arm: Name
    prediction: float
    status: DecisionStatus
    reward: float | None


class Charts(BaseModel):
    """What the page draws. ``others``: decisions for arms that are not listed."""

    width: int
    buckets: list[Bucket]
    arms: dict[str, int]
    others: int
    recent: list[RecentDecision]


class ItemResult(BaseModel):
    """What came of an item of a batch: the problem, or what the item alone would get. Pointers are of the batch."""

    status: int
    problem: ProblemDetails | None = None
    decision: Decision | None = None
    receipt: RewardReceipt | None = None


class BatchResults(BaseModel):
    """The results of a batch, in the order of its items."""

    results: list[ItemResult]


class LearnedRows(BaseModel):
    """How many rows of history were learned."""

    rows: int
