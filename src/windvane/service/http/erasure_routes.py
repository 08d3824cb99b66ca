"""The routes of HTTP v1 that erase data: a stream, its oldest events, the context of a decision."""

from __future__ import annotations

from fastapi import Response

from windvane import service_records
from windvane.service.http.endpoints import At, DecisionId, ReadyEngine, StreamName, make_router, respond
from windvane.service.stream_erasure import erase_context

streams = make_router(prefix="/v1/streams", tags=["streams"])
decisions = make_router(prefix="/v1/streams", tags=["decisions"])
ROUTERS = (streams, decisions)


@streams.delete("/{stream}", status_code=204)
async def delete_stream(engine: ReadyEngine, stream: StreamName) -> Response:
    """Delete a stream with all of its data: its log, its model and its settings. This cannot be undone.

    Archived streams and streams that could not be recovered can be deleted too.
    """
    await engine.registry.remove(stream)
    return Response(status_code=204)


@streams.post("/{stream}/compact", response_model=service_records.Compaction)
async def compact_stream(at: At) -> Response:
    """Remove the events that are older than the retention of the stream. What was learned from them is kept.

    The service does this automatically, at most an hour after the retention has passed.
    """
    return respond(await at.engine.compactions.compact(at.stream))


@decisions.delete("/{stream}/decisions/{decision}/context", response_model=service_records.ErasedContext)
async def delete_context(at: At, decision: DecisionId) -> Response:
    """Erase the context and the vectors of a decision. What was learned from it is kept.

    A pending decision is dropped: its reward is not learned. Repeating the request changes nothing.
    """
    return respond(await erase_context(at.engine, at.stream, decision))
