"""The log for others to read: lines of JSON, a Parquet file, or one decision's part of it."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from itertools import chain as chain_lists
from pathlib import Path
from typing import Any

from fastapi import Response
from fastapi.responses import FileResponse, StreamingResponse
from starlette.background import BackgroundTask

from windvane.agent import Explanation
from windvane.service.errors import AbortedTransferError, unknown_decision, unreadable
from windvane.service.store import (
    DECIDED,
    KINDS,
    REWARDED,
    UNREADABLE,
    Event,
    Store,
    StreamRow,
    UnreadableEventError,
    check_event,
)
from windvane.service.streams import Stream

CHUNK, CHUNK_BYTES = 1000, 4 << 20


class Log:
    """The events of a stream that is served or set aside, up to the one with number ``last``."""

    def __init__(self, store: Store, row: StreamRow, last: int, report: Callable[[Exception], None]) -> None:
        """``report`` is called with an error of the store that may be a sign of damage."""
        self.name, self._last, self._store, self._row, self._report = row.name, last, store, row, report

    def read_chunks(self, after: int, limit: int) -> Iterator[list[Event]]:
        """Yield the events after number ``after``, at most ``limit`` of them, each checked.

        They are read in chunks, each at once: no statement stays open while a slow client reads, whatever thread asks
        next. Raises :class:`UnreadableEventError` where an event cannot be read.
        """
        limit = min(limit, max(self._last - after, 0))
        chain = self._chain_at(after) if limit > 0 else b""
        while limit > 0:
            chunk: list[Event] = []
            problem: UnreadableEventError | None = None
            try:
                for event in self._read(after, chain, min(CHUNK, limit)):
                    chunk.append(event)
                    after, chain = event.number, event.chain
            except UnreadableEventError as error:
                problem = error
            if chunk:
                yield chunk
            if problem is not None or not chunk:
                raise problem or UnreadableEventError(after + 1, "is missing")
            limit -= len(chunk)

    def _read(self, after: int, chain: bytes, limit: int) -> Iterator[Event]:
        size = 0
        try:
            for event in self._store.read_events(self._row.id, after, limit):
                if event.number != after + 1:
                    raise UnreadableEventError(after + 1, "is missing")
                check_event(chain, event)
                yield event
                after, chain = event.number, event.chain
                size += len(event.outcome_json) + len(event.request or b"")
                if size >= CHUNK_BYTES:
                    return
        except sqlite3.DatabaseError as error:
            self._report(error)
            raise UnreadableEventError(after + 1, "cannot be read") from None

    def _chain_at(self, number: int) -> bytes:
        if number == 0:
            return self._row.digest
        try:
            return self._store.read_chain(self._row.id, number) or b""
        except sqlite3.DatabaseError as error:
            self._report(error)
            raise UnreadableEventError(number, "cannot be read") from None


async def exported(log: Log, format: str, after: int, limit: int) -> Response:
    """Answer with the log; with an error if its first event, or for Parquet any event, cannot be read."""
    name = f"{log.name}-events.{format}"
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    try:
        if format == "ndjson":
            lines = _lines(log.read_chunks(after, limit))
            first = await asyncio.to_thread(next, lines, b"")
            return StreamingResponse(chain_lists([first], lines), media_type="application/x-ndjson", headers=headers)
        path = await asyncio.to_thread(_parquet, log.read_chunks(after, limit))
    except UnreadableEventError as error:
        raise unreadable(error) from None
    return FileResponse(
        path, media_type="application/vnd.apache.parquet", filename=name, background=BackgroundTask(path.unlink)
    )


def _lines(chunks: Iterator[list[Event]]) -> Iterator[bytes]:
    """Yield lines of JSON. If an event after the first cannot be read, the last line says so."""
    has_begun = False
    try:
        for chunk in chunks:
            yield b"".join(json.dumps(event.to_plain()).encode() + b"\n" for event in chunk)
            has_begun = True
    except UnreadableEventError as error:
        if not has_begun:
            raise
        line = {"number": error.number, "kind": KINDS[UNREADABLE], "error": error.problem}
        yield json.dumps(line).encode() + b"\n"
        raise AbortedTransferError(str(error)) from None


def _parquet(chunks: Iterator[list[Event]]) -> Path:
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
            for chunk in chunks:
                writer.write_table(pa.Table.from_pylist([_row(event) for event in chunk], schema=schema))
    except BaseException:
        path.unlink()
        raise
    return path


def _row(event: Event) -> dict[str, Any]:
    outcome, request = event.outcome, event.request
    arm = outcome.get("arm")
    return {
        **event.fields,
        "time": event.time,
        "arm": None if arm is None else str(arm),
        **{name: outcome.get(name) for name in ("propensity", "explored", "prediction", "bonus", "value")},
        "outcome": json.dumps(outcome),
        "request": request.decode() if request else None,
    }


def past(stream: Stream, decision: str) -> dict[str, Any]:
    """A decision, why it was made, and what became of it."""
    try:
        events = stream.read_events_of(decision)
    except UnreadableEventError as error:
        raise unreadable(error) from None
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
        "events": [event.to_plain() for event in events],
    }
