"""The log for others to read: lines of JSON, a Parquet file, or one decision's part of it."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fastapi import Response
from fastapi.responses import FileResponse, StreamingResponse
from starlette.background import BackgroundTask

from windvane.agent import Explanation
from windvane.service.errors import unknown_decision
from windvane.service.events import DECIDED, REWARDED, Event
from windvane.service.store import Store
from windvane.service.streams import Stream

CHUNK, CHUNK_BYTES = 1000, 4 << 20


async def exported(stream: Stream, store: Store, format: str, after: int, limit: int) -> Response:
    """Events up to the last one that is on disk now."""
    limit = min(limit, max(stream.number - after, 0))
    name = f"{stream.name}-events.{format}"
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    if format == "ndjson":
        return StreamingResponse(
            _lines(store, stream.id, after, limit), media_type="application/x-ndjson", headers=headers
        )
    path = await asyncio.to_thread(_parquet, store, stream.id, after, limit)
    return FileResponse(
        path, media_type="application/vnd.apache.parquet", filename=name, background=BackgroundTask(path.unlink)
    )


def _chunks(store: Store, stream: int, after: int, limit: int) -> Iterator[list[Event]]:
    """In chunks, each read at once: no statement stays open while a slow client reads, whatever thread asks next."""
    while limit > 0:
        chunk, size = [], 0
        for event in store.events(stream, after, min(CHUNK, limit)):
            chunk.append(event)
            size += len(event.body)
            if size >= CHUNK_BYTES:
                break
        if not chunk:
            return
        yield chunk
        after, limit = chunk[-1].number, limit - len(chunk)


def _lines(store: Store, stream: int, after: int, limit: int) -> Iterator[bytes]:
    for chunk in _chunks(store, stream, after, limit):
        yield b"".join(json.dumps(event.told()).encode() + b"\n" for event in chunk)


def _parquet(store: Store, stream: int, after: int, limit: int) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    text, real = pa.string(), pa.float64()
    schema = pa.schema(
        {
            "number": pa.int64(), "time": real, "kind": text, "decision": text, "key": text, "arm": text,
            "propensity": real, "explored": pa.bool_(), "prediction": real, "bonus": real, "value": real,
            "outcome": text, "request": text,
        }
    )  # fmt: skip
    with tempfile.NamedTemporaryFile(suffix=".parquet", delete=False) as file:
        path = Path(file.name)
    try:
        with pq.ParquetWriter(path, schema) as writer:
            for chunk in _chunks(store, stream, after, limit):
                writer.write_table(pa.Table.from_pylist([_row(event) for event in chunk], schema=schema))
    except BaseException:
        path.unlink()
        raise
    return path


def _row(event: Event) -> dict[str, Any]:
    outcome, request = event.outcome, event.request
    arm = outcome.get("arm")
    return {
        **event.head,
        "arm": None if arm is None else str(arm),
        **{name: outcome.get(name) for name in ("propensity", "explored", "prediction", "bonus", "value")},
        "outcome": json.dumps(outcome),
        "request": request.decode() if request else None,
    }


def past(stream: Stream, store: Store, decision: str) -> dict[str, Any]:
    """A decision, why it was made, and what became of it."""
    events = store.of_decision(stream.id, decision)
    made = next((event for event in events if event.kind == DECIDED), None)
    if made is None:
        raise unknown_decision(decision)
    reward = next((event.outcome["value"] for event in events if event.kind == REWARDED), None)
    waits = stream.agent.waits(decision)
    return {
        "decision": decision,
        "state": "pending" if waits else "expired" if reward is None else "rewarded",
        "reward": reward,
        "explanation": str(Explanation.read(made.outcome)),
        "events": [event.told() for event in events],
    }
