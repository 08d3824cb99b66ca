"""The log of a stream for others to read: lines of JSON, or a Parquet file."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from fastapi import Response
from fastapi.responses import FileResponse, StreamingResponse
from starlette.background import BackgroundTask

from windvane.records import to_datetime, to_plain
from windvane.service.http.middleware import PARQUET, AbortedTransferError
from windvane.service.problems import Problem
from windvane.service.store import KINDS, UNREADABLE, Event, Store, StreamRow, UnreadableEventError, check_event

CHUNK, CHUNK_BYTES = 1000, 4 << 20


class Log:
    """The events of a stream, served or not, up to the one with number ``last``.

    ``report`` is called with an error of the store that may be a sign of damage.
    """

    def __init__(self, store: Store, row: StreamRow, last: int, report: Callable[[Exception], None]) -> None:
        self.name, self._last, self._store, self._row, self._report = row.name, last, store, row, report

    def read_chunks(self, after: int, limit: int) -> Iterator[list[Event]]:
        """Yield the events after number ``after``, at most ``limit`` of them, each checked.

        No statement stays open between chunks, because a client may read slowly. Raises UnreadableEventError.
        """
        limit = min(limit, max(self._last - after, 0))
        previous = self._read_chain(after) if limit > 0 else b""
        while limit > 0:
            chunk: list[Event] = []
            problem: UnreadableEventError | None = None
            try:
                for event in self._read(after, previous, min(CHUNK, limit)):
                    chunk.append(event)
                    after, previous = event.number, event.chain
            except UnreadableEventError as error:
                problem = error
            if chunk:
                yield chunk
            if problem is not None or not chunk:
                raise problem or UnreadableEventError(after + 1, "is missing")
            limit -= len(chunk)

    def _read(self, after: int, previous: bytes, limit: int) -> Iterator[Event]:
        size = 0
        try:
            for event in self._store.events(self._row.id, after, limit):
                if event.number != after + 1:
                    raise UnreadableEventError(after + 1, "is missing")
                check_event(previous, event)
                yield event
                after, previous = event.number, event.chain
                size += len(event.outcome_json) + len(event.request or b"")
                if size >= CHUNK_BYTES:
                    return
        except sqlite3.DatabaseError as error:
            self._report(error)
            raise UnreadableEventError(after + 1, "cannot be read") from None

    def _read_chain(self, number: int) -> bytes:
        """Return the chain value that the event after ``number`` continues."""
        if number == 0:
            return self._row.digest
        try:
            return self._store.chain_at(self._row.id, number) or b""
        except sqlite3.DatabaseError as error:
            self._report(error)
            raise UnreadableEventError(number, "cannot be read") from None


async def export_log(log: Log, format_: str, after: int, limit: int) -> Response:
    """Return the events as "ndjson" or "parquet"."""
    name = f"{log.name}-events.{format_}"
    try:
        if format_ == "ndjson":
            lines = _write_lines(log.read_chunks(after, limit))
            first = await asyncio.to_thread(next, lines, b"")
            headers = {"content-disposition": f'attachment; filename="{name}"'}
            return StreamingResponse(chain([first], lines), headers=headers, media_type="application/x-ndjson")
        path = await asyncio.to_thread(_write_parquet, log.read_chunks(after, limit))
    except UnreadableEventError as error:
        raise Problem("unreadable", f"{error}; `windvane verify` says more") from None
    return FileResponse(path, media_type=PARQUET, filename=name, background=BackgroundTask(path.unlink))


def _write_lines(chunks: Iterator[list[Event]]) -> Iterator[bytes]:
    """Yield lines of JSON. If an event after the first cannot be read, the last line says so."""
    has_begun = False
    try:
        for chunk in chunks:
            yield b"".join(json.dumps(_describe(event)).encode() + b"\n" for event in chunk)
            has_begun = True
    except UnreadableEventError as error:
        if not has_begun:
            raise
        line = {"number": error.number, "kind": KINDS[UNREADABLE], "error": error.problem}
        yield json.dumps(line).encode() + b"\n"
        raise AbortedTransferError(str(error)) from None


def _describe(event: Event) -> dict[str, Any]:
    request = {"request": json.loads(event.request)} if event.request else {}
    return {**event.head, **event.outcome, "time": to_plain(to_datetime(event.time)), **request}


def _write_parquet(chunks: Iterator[list[Event]]) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    text, real = pa.string(), pa.float64()
    schema = pa.schema(
        {
            "number": pa.int64(), "time": pa.timestamp("us", "UTC"), "kind": text, "decision": text, "key": text,
            "arm": text, "propensity": real, "explored": pa.bool_(), "prediction": real, "bonus": real, "value": real,
            "outcome": text, "request": text,
        }
    )  # fmt: skip
    with tempfile.NamedTemporaryFile(suffix=".parquet", delete=False) as file:
        path = Path(file.name)
    try:
        with pq.ParquetWriter(path, schema) as writer:
            for chunk in chunks:
                writer.write_table(pa.Table.from_pylist([_describe_row(event) for event in chunk], schema=schema))
    except BaseException:
        path.unlink()
        raise
    return path


def _describe_row(event: Event) -> dict[str, Any]:
    outcome = event.outcome
    return {
        **event.head,
        **{name: outcome.get(name) for name in ("propensity", "explored", "prediction", "bonus", "value")},
        "arm": None if outcome.get("arm") is None else str(outcome["arm"]),
        "time": to_datetime(event.time),
        "outcome": event.outcome_json.decode(),
        "request": event.request.decode() if event.request else None,
    }
