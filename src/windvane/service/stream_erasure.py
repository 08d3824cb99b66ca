"""Erase the context of a decision, or the oldest events of a stream.

An incomplete log cannot be replayed from its start. Every erasure therefore stores the resulting state of the stream as
its baseline, from which replays begin. The baseline, the erasure and the event that records it are one transaction.
Earlier snapshots would contain erased data and are no longer stored.

Many events are removed in slices. A slice is one short transaction, and other requests run between slices. A stream is
held only while a thread builds the state after a slice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from windvane.agent.times import read_clock
from windvane.service.baselines import build_baseline, read_baseline
from windvane.service.decision_records import check_decision, describe_decision
from windvane.service.event_lookup import check_stored, unreadable
from windvane.service.problems import Problem
from windvane.service.store import Erasure, Event, ReadableStore, SnapshotError, UnreadableEventError
from windvane.service.store import events as kinds
from windvane.service.stream_state import Removed
from windvane.service.turns import hold, wait_while_held
from windvane.service_records import ErasedContext

if TYPE_CHECKING:
    from windvane.service.engine import Engine
    from windvane.service.streams import Stream

SLICE_EVENTS, SLICE_BYTES = 1000, 4 << 20  # the most that one transaction removes


async def erase_context(engine: Engine, stream: Stream, decision: str) -> ErasedContext:
    """Erase the context and the vectors of a decision. Drop it if it is open. Repeating this changes nothing."""
    return await asyncio.shield(engine.tasks.run_to_end(_erase_context(engine, stream, decision)))


async def _erase_context(engine: Engine, stream: Stream, decision: str) -> ErasedContext:
    async with stream.erasing:
        await engine.journal.commit(stream)  # the events to erase must be on disk
        await _wait_for_turn(engine, stream)
        with hold(stream):
            events = await asyncio.to_thread(_read_decision, stream, decision)
            number = events[0].number
            if events[0].request is not None:
                await _store_after(
                    engine, stream, lambda: stream.erase_context(decision, read_clock()), requests=(number,)
                )
            status = describe_decision(stream.core, events).status
        await engine.journal.commit(stream)
        return ErasedContext(decision=decision, event=number, status=status)


def _read_decision(stream: Stream, decision: str) -> Sequence[Event]:
    """Return the stored events of a decision."""
    events = check_decision(decision, stream.store.find_events(decisions=[(stream.id, decision)]))
    try:
        for event in events:
            check_stored(stream.store, event)
    except UnreadableEventError as error:
        raise unreadable(error) from None
    return events


class Slice(NamedTuple):
    """Events that are removed together: where they end, and the ids of the decisions among them."""

    removed: Removed
    decisions: list[str]


def read_slice(store: ReadableStore, stream: int, before: Removed | None, until: float, now: float) -> Slice | None:
    """Return the first slice of events that are older than ``until``; None if there are none.

    The slice ends before the first event that is not older. The time of an event in the future was written by a wrong
    clock and does not say how old the event is: the event counts as old if a later event is old.
    """
    first, size, found = 0 if before is None else before.number, 0, None
    since, decisions = None if before is None else before.first_time, list[str]()
    for event in store.read_events(stream, after=first, limit=SLICE_EVENTS):
        if until <= event.time <= now or (found is not None and size + event.size > SLICE_BYTES):
            break
        since, size = event.time if since is None else since, size + event.size
        if event.kind == kinds.DECIDED and event.decision is not None:
            decisions.append(event.decision)
        if event.time < until:
            found = Slice(Removed(event.number, since, event.time), list(decisions))
    return found


async def remove_events(engine: Engine, stream: Stream, until: float) -> int:
    """Remove the first slice of events of ``stream`` that are older than ``until``. Return their number."""
    return await asyncio.shield(engine.tasks.run_to_end(_remove_events(engine, stream, until)))


async def _remove_events(engine: Engine, stream: Stream, until: float) -> int:
    async with stream.erasing:
        before, now = stream.removed, read_clock()
        part = await asyncio.to_thread(read_slice, stream.store, stream.id, before, until, now)
        if part is None:
            return 0
        await _wait_for_turn(engine, stream)
        with hold(stream):
            await _store_after(engine, stream, lambda: stream.compact(part.removed, part.decisions, read_clock()))
        await engine.journal.commit(stream)
    return part.removed.number - (0 if before is None else before.number)


async def _wait_for_turn(engine: Engine, stream: Stream) -> None:
    """Wait until ``stream`` may be changed. Raise if a refit is running: it has learned from what would be erased."""
    await wait_while_held(stream)
    engine.refuse_if_replaced(stream)
    if stream.is_refitting:
        raise Problem("refit-running", f"a refit of stream {stream.name!r} is running; try again when it has ended")


async def _store_after(
    engine: Engine, stream: Stream, operation: Callable[[], list[Event]], requests: tuple[int, ...] = ()
) -> None:
    """Execute an operation on a held stream, and hand the resulting state over, to be stored as the baseline.

    ``requests``: the numbers of the events whose requests are erased.
    """
    row, store = stream.row, stream.store
    try:
        await asyncio.to_thread(read_baseline, row, store)
    except SnapshotError as error:
        text = f"the baseline of the stream cannot be used ({error}); run `windvane verify` for details"
        raise Problem("unreadable", text) from None
    with engine.operations.operating(stream):
        events = operation()
        removed = 0 if stream.removed is None else stream.removed.number
        baseline = await asyncio.to_thread(lambda: build_baseline(row, store, stream.snapshot(), removed))
    engine.journal.hand_over(stream, events, [Erasure(stream.id, baseline, requests)])
