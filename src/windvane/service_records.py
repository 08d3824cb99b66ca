"""The answers of the service that no agent returns: pages of lists, results of batches, problems, erasures."""

from __future__ import annotations

from dataclasses import dataclass

from windvane.records import Decision, DecisionStatus, RewardReceipt, StreamSummary


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemError:
    """One of the errors of a request: where in its body, as a JSON Pointer, and what is wrong."""

    pointer: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemDetails:
    """Why a request failed (RFC 9457). ``type`` ends in the code of the problem.

    ``cause`` says why the service, or the stream, is unavailable. ``request_id`` identifies the request in the log of
    the service.
    """

    type: str
    title: str
    status: int
    detail: str
    errors: list[ProblemError]
    cause: str | None = None
    request_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """Whether the service is alive, or ready; in a cluster also the node, and the shards that it owns."""

    status: str
    node: str | None = None
    shards: list[int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnavailableStream:
    """A stream that the service could not recover."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPage:
    """Streams in the order of their names; ``next`` is the ``after`` of the next page."""

    streams: list[StreamSummary]
    next: str | None
    unavailable: list[UnavailableStream]


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingPage:
    """Pending decisions, oldest first; ``next`` is the ``after`` of the next page."""

    decisions: list[Decision]
    next: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemResult:
    """The result of an item of a batch: a problem, or the answer to the item. Pointers refer to the batch."""

    status: int
    problem: ProblemDetails | None = None
    decision: Decision | None = None
    receipt: RewardReceipt | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchResults:
    """The results of a batch, in the order of its items."""

    results: list[ItemResult]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """How many events a compaction removed, and how many are left."""

    stream: str
    removed: int
    left: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasedContext:
    """A decision whose context was erased: the number of its event, and its status, "dropped" if it was pending."""

    decision: str
    event: int
    status: DecisionStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedRows:
    """How many rows of history were learned."""

    rows: int
