"""Export the log of a stream as lines of JSON or as a Parquet file."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from typing import IO, Any

from fastapi import Response
from fastapi.responses import StreamingResponse

from windvane.records import to_datetime
from windvane.service.engine import Engine
from windvane.service.http.exchange import AbortedTransferError
from windvane.service.http.middleware import PARQUET
from windvane.service.problems import Problem
from windvane.service.store import (
    KINDS,
    STORE_ERRORS,
    UNREADABLE,
    Event,
    SnapshotError,
    StreamRow,
    UnreadableEventError,
    check_event,
    is_damage,
)

NDJSON = "application/x-ndjson"
CHUNK, CHUNK_BYTES = 1000, 1 << 18  # what a client that does not read keeps in memory
READ_BYTES = 1 << 16
_EXPORTS = ThreadPoolExecutor(2, "windvane-export")  # a separate pool for exports
COLUMNS = {"arm": "string", "propensity": "double", "explored": "bool", "prediction": "double", "bonus": "double",
           "value": "double"}  # fmt: skip


async def export_log(engine: Engine, name: str, format_: str, after: int, limit: int) -> Response:
    """Return the events of a stream, served or not, as "ndjson" or "parquet"."""
    if format_ == "parquet" and find_spec("pyarrow") is None:
        raise Problem("not-installed", "Parquet needs pyarrow: pip install 'windvane[parquet]', or ask for ndjson")
    row, last = await _find_log(engine, name)
    headers = {"content-disposition": f'attachment; filename="{name}-events.{format_}"'}
    first = after
    try:
        while True:
            after = max(first, await asyncio.to_thread(_count_removed, engine, row.id))
            chunks = _read_chunks(engine, row.id, row.digest, after, min(last, after + limit))
            try:
                return await _begin(chunks, format_, headers)
            except UnreadableEventError:
                if await asyncio.to_thread(_count_removed, engine, row.id) <= after:
                    raise  # else a compaction was faster: begin after what it has removed
    except UnreadableEventError as error:
        raise Problem("unreadable", f"{error}; run `windvane verify` for details") from None


async def _begin(chunks: Iterator[list[Event]], format_: str, headers: dict[str, str]) -> Response:
    """Return the answer with the events of ``chunks``, of which the first was read."""
    if format_ == "ndjson":
        lines = _write_lines(chunks)
        first = await _read_next(lines)
        return StreamingResponse(_read_on(first, lines), headers=headers, media_type=NDJSON)
    file = await asyncio.get_running_loop().run_in_executor(_EXPORTS, _write_parquet, chunks)
    headers["content-length"] = str(file.tell())
    file.seek(0)
    return StreamingResponse(_read_file(file), headers=headers, media_type=PARQUET)


async def _find_log(engine: Engine, name: str) -> tuple[StreamRow, int]:
    """Return a stream, served or not, and the number of its last event, which is on disk."""
    if name in engine.unavailable:
        row = engine.rows[name]
        return row, await asyncio.to_thread(engine.store.last_number, row.id)
    stream = await engine.find(name)
    number = stream.number
    await engine.journal.commit(stream)
    return stream.row, number


def _count_removed(engine: Engine, stream: int) -> int:
    """Return how many events were removed from the beginning of a log."""
    try:
        baseline = engine.store.read_baseline(stream)
    except SnapshotError as error:
        raise UnreadableEventError(1, f"the baseline of the stream cannot be used ({error})") from None
    except STORE_ERRORS as error:
        engine.report_damage(error)
        if not is_damage(error):
            raise
        raise UnreadableEventError(1, "the baseline of the stream cannot be read") from None
    return 0 if baseline is None else baseline.removed


async def _read_next(lines: Iterator[bytes]) -> bytes:
    """Return the next lines, nothing at the end. Few threads run, however many exports there are: dozens would block
    the event loop for seconds."""
    return await asyncio.get_running_loop().run_in_executor(_EXPORTS, next, lines, b"")


async def _read_on(part: bytes, lines: Iterator[bytes]) -> AsyncIterator[bytes]:
    while part:
        yield part
        part = await _read_next(lines)


def _read_chunks(engine: Engine, stream: int, previous: bytes, after: int, last: int) -> Iterator[list[Event]]:
    """Yield the events after number ``after`` up to ``last``, each checked; ``previous``: the first chain value.

    No statement stays open between chunks, because a client may read slowly.
    """
    problem: UnreadableEventError | None = None
    is_first = True
    while after < last:
        chunk: list[Event] = []
        try:
            if is_first and after > 0:
                previous = engine.store.read_chain(stream, after) or b""
            is_first, size = False, 0
            for event in engine.store.read_events(stream, after, min(CHUNK, last - after)):
                if event.number != after + 1:
                    break
                check_event(previous, event)
                chunk.append(event)
                after, previous = event.number, event.chain
                size += event.size
                if size >= CHUNK_BYTES:
                    break
            if not chunk:
                is_removed = after < _count_removed(engine, stream)
                problem = UnreadableEventError(after + 1, "was removed meanwhile" if is_removed else "is missing")
        except UnreadableEventError as error:
            problem = error
        except STORE_ERRORS as error:
            engine.report_damage(error)
            if not is_damage(error):  # nothing is wrong with the event
                raise
            problem = UnreadableEventError(after + 1, "cannot be read")
        if chunk:
            yield chunk
        if problem is not None:
            raise problem


def _write_lines(chunks: Iterator[list[Event]]) -> Iterator[bytes]:
    """Yield lines of JSON. If an event after the first is damaged, the last line says so."""
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
    except STORE_ERRORS as error:  # a client can resume the transfer later
        if not has_begun:
            raise
        raise AbortedTransferError(f"the store cannot be read ({error})") from None


def _write_parquet(chunks: Iterator[list[Event]]) -> IO[bytes]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = dict.fromkeys(("kind", "decision", "key"), "string")
    columns = texts | COLUMNS | dict.fromkeys(("outcome", "request"), "string")
    schema = pa.schema([("number", pa.int64()), ("time", pa.timestamp("us", "UTC")), *columns.items()])
    file = tempfile.TemporaryFile()  # noqa: SIM115 (it has no name, and is gone when nothing refers to it)
    try:
        with pq.ParquetWriter(file, schema) as writer:
            for chunk in chunks:
                writer.write_table(pa.Table.from_pylist([_describe_row(event) for event in chunk], schema=schema))
    except BaseException:
        file.close()
        raise
    return file


def _read_file(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        while part := file.read(READ_BYTES):
            yield part


def _describe_row(event: Event) -> dict[str, Any]:
    outcome, request = event.outcome, event.request
    if "arm" in outcome:
        outcome["arm"] = str(outcome["arm"])
    return {
        **{name: outcome.get(name) for name in COLUMNS},
        **event.fields,
        "time": to_datetime(event.time),
        "outcome": event.outcome_json.decode(),
        "request": None if request is None else request.decode(),
    }
