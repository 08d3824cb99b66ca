"""Rebuild streams from the store: from the last snapshot and the events after it, or from all events. A stream whose
log is not whole has a baseline, at which replays of all events begin."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from windvane.agent.archive import refuse_older
from windvane.agent.times import read_clock
from windvane.policies.adaptive_glm_ucb import AdaptiveGLMUCB
from windvane.service.baselines import read_baseline
from windvane.service.garbage import pause_garbage_collection
from windvane.service.readiness import NotReady
from windvane.service.store import (
    READ_ERRORS,
    STORE_ERRORS,
    CheckableStore,
    Event,
    EventStore,
    ReadableStore,
    ServedStore,
    Snapshot,
    SnapshotError,
    StreamRow,
    is_damage,
)
from windvane.service.stream_state import ReplayError
from windvane.service.streams import Stream
from windvane.warmup import warm_up

CHECK_AGAIN = 60.0  # seconds after which a check of the store that failed is repeated: it reads the whole file

log = logging.getLogger("windvane.service")


class Recovery(NamedTuple):
    """The streams of a store, by name: those rebuilt, why others were not, and the seconds that
    replays took."""

    rows: dict[str, StreamRow]
    streams: dict[str, Stream]
    unavailable: dict[str, str]
    replays: dict[str, float]


def recover(store: ServedStore, report: Callable[[NotReady], None]) -> Recovery:
    """Rebuild all streams, and compile the kernels that they and new streams need. Set aside streams that fail."""
    try:
        rows = store.read_streams()
    except STORE_ERRORS as error:
        if not is_damage(error):
            raise
        store.repair()
        rows = store.read_streams()
    recovery = Recovery({row.name: row for row in rows}, {}, {}, {})
    for i, row in enumerate(rows):
        progress = NotReady.of("recovering", f"{i} of {len(rows)} streams")
        report(progress)
        began = time.perf_counter()
        try:
            with pause_garbage_collection():
                stream = rebuild_stream(row, store, report=partial(report, progress))
            recovery.replays[row.name] = time.perf_counter() - began
            recovery.streams[row.name] = stream
            if stream.differences:
                text = "stream %r: for %d decisions a replay prefers another arm; the recorded arms are used"
                log.warning(text, row.name, stream.differences)
        except (ReplayError, *STORE_ERRORS) as error:
            if not isinstance(error, ReplayError) and not is_damage(error):
                raise
            store.is_checked = store.is_checked and isinstance(error, ReplayError)
            recovery.unavailable[row.name] = str(error)
            log.error("stream %r is not served: %s", row.name, error)
    report(NotReady.of("compiling"))
    warm_up({AdaptiveGLMUCB, *(type(stream.core.policy) for stream in recovery.streams.values())})
    return recovery


def record_losses(store: EventStore, recovery: Recovery) -> Iterator[Sequence[Event]]:
    """Yield events that record a loss: more events were acknowledged than the log has, because the write-ahead log was
    damaged or the store is a restored backup."""
    marks = store.read_acknowledged() or {}
    for id_ in marks.keys() - {row.id for row in recovery.rows.values()}:
        log.error("a stream with %d acknowledged events is not in the store", marks[id_])
    for stream in recovery.streams.values():
        acknowledged = marks.get(stream.id)
        if acknowledged is None:
            store.mark_acknowledged({stream.id: stream.number})
        elif acknowledged > stream.number:
            text = "stream %r: events %d to %d were acknowledged, but are missing from the log"
            log.error(text, stream.name, stream.number + 1, acknowledged)
            yield stream.record_loss(acknowledged, read_clock())


def create_stream(row: StreamRow, store: ReadableStore, snapshot: Snapshot | None = None) -> Stream:
    """Return a stream as it was before its first event, or at ``snapshot``, which may be unreadable (ValueError)."""
    if not row.is_sound:
        raise ReplayError(row.name, None, "its name and configuration do not match their checksum")
    try:
        return Stream(row, store, snapshot)
    except Exception as error:  # it was modified externally, or is of another version
        if snapshot is not None:
            raise
        raise ReplayError(row.name, None, f"cannot be created again ({error})") from error


def begin_stream(row: StreamRow, store: ReadableStore) -> Stream:
    """Return a stream as it was before its first event, or at its baseline if its log is not whole."""
    try:
        baseline = read_baseline(row, store)
        return create_stream(row, store, None if baseline is None else baseline.snapshot)
    except (ReplayError, *STORE_ERRORS):
        raise
    except Exception as error:  # it was modified externally, or is of another version
        raise ReplayError(row.name, None, f"its baseline cannot be used ({error})") from error


def rebuild_stream(
    row: StreamRow, store: ReadableStore, *, from_start: bool = False, report: Callable[[], None] = lambda: None
) -> Stream:
    """Return a stream rebuilt from its last snapshot, or ``from_start``: from where its log begins. ``report`` is
    called for every event, and may raise to end the replay."""
    try:
        return _rebuild(row, store, from_start, report)
    except ReplayError as error:
        log.info("%s; the stream is read again in one transaction: a compaction may have removed events", error)
    with store.read_transaction():
        return _rebuild(row, store, from_start, report)


def _rebuild(row: StreamRow, store: ReadableStore, from_start: bool, report: Callable[[], None]) -> Stream:
    try:
        snapshot = None if from_start else read_snapshot(row, store)
        stream = begin_stream(row, store) if snapshot is None else create_stream(row, store, snapshot)
    except (ValueError, TypeError, KeyError, *READ_ERRORS) as error:
        log.warning("the snapshot of stream %r cannot be used (%s); its log is replayed in full", row.name, error)
        stream = begin_stream(row, store)
    for event in store.read_events(row.id, after=stream.number):
        report()
        apply_event(stream, event)
    check_end(stream, store)
    return stream


def read_snapshot(row: StreamRow, store: ReadableStore) -> Snapshot | None:
    """Return the stored snapshot of a stream, None if there is none.

    Raises :class:`SnapshotError` if it was changed or does not belong to the log, :class:`ReplayError` if the log ends
    before it, :class:`FileError` if another version wrote it whose replays differ.
    """
    snapshot, last = store.read_snapshot(row.id), store.last_number(row.id)
    if snapshot is not None and snapshot.number > last:
        problem = f"its log ends at event {last}, before its snapshot of event {snapshot.number}"
        raise ReplayError(row.name, None, problem)
    if snapshot is not None and store.read_chain(row.id, snapshot.number) != snapshot.chain:
        raise SnapshotError(f"it does not belong to event {snapshot.number} of the log")
    if snapshot is not None:
        refuse_older(snapshot.agent, "it")
    return snapshot


def apply_event(stream: Stream, event: Event) -> dict[str, Any]:
    """Replay ``event`` and return its outcome; raise only :class:`ReplayError`, or what the store raises."""
    try:
        return stream.apply(event)
    except (ReplayError, *STORE_ERRORS):  # a refit reads earlier events
        raise
    except Exception as error:
        raise ReplayError(stream.name, event.number, f"cannot be replayed ({error!r})") from error


async def check_store(store: CheckableStore, report: Callable[[list[str]], None]) -> None:
    """Check the structure of the file in a thread until a check succeeds, and report what is damaged."""
    while True:
        try:
            return report([] if store.is_checked else await asyncio.to_thread(store.find_damage))
        except Exception:  # the file may be busy, or out of reach for a while
            log.exception("%s: cannot be checked; trying again in %g s", store.name, CHECK_AGAIN)
            await asyncio.sleep(CHECK_AGAIN)


def check_end(stream: Stream, store: ReadableStore) -> None:
    """Raise if the replay ended before the last event: a scan may miss events on a damaged page."""
    last = store.last_number(stream.id)
    if stream.number != last:
        raise ReplayError(stream.name, stream.number + 1, f"cannot be read; the last is {last}")
