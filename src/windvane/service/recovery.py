"""Rebuilding a stream: its last snapshot, and the events after it; or all of its events."""

from __future__ import annotations

import logging
import sqlite3
from typing import Any

from windvane.service.store import Event, SnapshotError, Store, StreamRow
from windvane.service.streams import ReplayError, Stream

log = logging.getLogger("windvane.service")


def create_stream(row: StreamRow, store: Store) -> Stream:
    """Return a stream as it was before its first event."""
    try:
        if not row.is_sound:
            raise ReplayError(row.name, None, "its name and configuration do not match their checksum")
        return Stream(row, store)
    except ReplayError:
        raise
    except Exception as error:  # its configuration was changed from outside, or is of another version
        raise ReplayError(row.name, None, f"cannot be created again ({error})") from error


def rebuilt(row: StreamRow, store: Store, *, from_start: bool = False) -> Stream:
    """Return a stream as its events made it: from its last snapshot, or ``from_start``."""
    stream = create_stream(row, store)
    if not from_start:
        try:
            restore_snapshot(stream, store)
        except (ValueError, TypeError, KeyError, sqlite3.Error) as error:
            log.warning("the snapshot of stream %r cannot be used (%s); its log is replayed in full", row.name, error)
            return rebuilt(row, store, from_start=True)
    for event in store.read_events(row.id, after=stream.number):
        apply_event(stream, event)
    check_end(stream, store)
    return stream


def check_end(stream: Stream, store: Store) -> None:
    """Raise if the replay ended before the last event: on a damaged page, a scan may miss what a look-up knows of."""
    last = store.last_number(stream.id)
    if stream.number != last:
        raise ReplayError(stream.name, stream.number + 1, f"cannot be read; the last is {last}")


def apply_event(stream: Stream, event: Event) -> dict[str, Any]:
    """Replay ``event`` and return its outcome; raise only :class:`ReplayError`."""
    try:
        return stream.apply(event)
    except ReplayError:
        raise
    except Exception as error:
        raise ReplayError(stream.name, event.number, f"cannot be replayed ({error!r})") from error


def restore_snapshot(stream: Stream, store: Store) -> None:
    """Restore the stored snapshot, if there is one.

    Raises :class:`SnapshotError` if it was changed or does not belong to the log, :class:`ReplayError` if it is ahead
    of the log, and another ValueError if this version cannot read it.
    """
    snapshot = store.read_snapshot(stream.id)
    if snapshot is None:
        return
    if snapshot.number > (last := store.last_number(stream.id)):
        problem = f"its log ends at event {last}, before its snapshot of event {snapshot.number}"
        raise ReplayError(stream.name, None, problem)
    if store.read_chain(stream.id, snapshot.number) != snapshot.chain:
        raise SnapshotError(f"it does not belong to event {snapshot.number} of the log")
    stream.restore(snapshot)
