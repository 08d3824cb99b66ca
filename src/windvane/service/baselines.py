"""Baselines: the states from which replays begin if events or requests of the log were erased."""

from __future__ import annotations

import json
from typing import NamedTuple

from windvane.agent.refit import declare_arms
from windvane.records import Name
from windvane.service.store import KINDS, Baseline, ReadableStore, Snapshot, SnapshotError, StreamRow

ARMS = "arms"  # a key in ``extra`` of a baseline's snapshot that other snapshots do not have


class LogStart(NamedTuple):
    """Where the log of a stream begins.

    ``number`` and ``chain`` belong to the event before it. ``arms``: the arms that the features declared then, preceded
    by those that undoing refits would restore.
    """

    number: int
    chain: bytes
    arms: list[list[Name]]


def read_baseline(row: StreamRow, store: ReadableStore) -> Baseline | None:
    """Return the baseline of a stream, None if its log is complete.

    Raises :class:`SnapshotError` if the baseline was changed or does not belong to the log.
    """
    baseline = store.read_baseline(row.id)
    if baseline is not None:
        number = baseline.snapshot.number
        if store.read_chain(row.id, number) != baseline.snapshot.chain:
            raise SnapshotError(f"it does not belong to event {number} of the log")
    return baseline


def find_start(row: StreamRow, baseline: Baseline | None) -> LogStart:
    """Return where the log of a stream begins."""
    features = json.loads(row.config)["agent"]["features"] or {}
    arms = [list(features.get("arms", ()))]
    if baseline is None or baseline.removed == 0:
        return LogStart(0, row.digest, arms)
    return LogStart(baseline.removed, baseline.removed_chain, json.loads(baseline.snapshot.extra).get(ARMS, arms))


def build_baseline(row: StreamRow, store: ReadableStore, snapshot: Snapshot, removed: int) -> Baseline:
    """Build the baseline to store when the events up to number ``removed`` are removed; 0: none.

    Parameters
    ----------
    row, store
        The stream. Its events up to that of ``snapshot`` must be in the store.
    snapshot
        The snapshot after the last event. There must be no refit between the erased events and the snapshot.
    removed
        May be lower than the number of events that were removed before; these stay removed.

    Raises
    ------
    SnapshotError
        If an event is missing, or the previous baseline was changed.
    """
    last = read_baseline(row, store)
    start = find_start(row, last)
    first_time, last_time = (None, None) if last is None else (last.first_time, last.last_time)
    number, chain, arms = start
    for event in store.read_events(row.id, after=number, limit=max(removed - number, 0)):
        if event.number != number + 1:
            break
        arms = declare_arms(arms, KINDS[event.kind], event.outcome)
        first_time = event.time if first_time is None else first_time
        number, chain, last_time = event.number, event.chain, event.time
    if number < removed:
        raise SnapshotError(f"event {number + 1} of the log is missing")
    extra = json.loads(snapshot.extra) | ({ARMS: arms} if number else {})
    return Baseline(snapshot._replace(extra=json.dumps(extra).encode()), number, chain, first_time, last_time)
