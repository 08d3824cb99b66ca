"""Find the events of a stream by decision or by key, whether or not they are on disk yet."""

from __future__ import annotations

import math
from collections import deque

from windvane.service.problems import Problem
from windvane.service.store import Event, Store, UnreadableEventError, check_event


class EventLookup:
    """The events of one stream: those that are not on disk yet from memory, the others from ``store``.

    The engine limits how many events wait for the disk, and thereby the size of this object. One thread at a time adds
    and looks up events; the event loop may forget some meanwhile, so the queue is copied before iteration.
    """

    def __init__(self, store: Store, stream: int) -> None:
        self._store, self._stream = store, stream
        self._unsaved: deque[Event] = deque()
        self._keys: dict[str | None, Event] = {}  # of the unsaved events

    def add(self, event: Event) -> None:
        """Add an event that is about to be stored."""
        self._unsaved.append(event)
        self._keys[event.key] = event

    def forget(self, number: int) -> None:
        """Forget the events up to ``number``, which are on disk."""
        while self._unsaved and self._unsaved[0].number <= number:
            self._keys.pop(self._unsaved.popleft().key, None)

    def with_key(self, key: str) -> Event | None:
        """Return the event of the request that had this key."""
        event = self._keys.get(key) or self._store.event_with_key(self._stream, key)
        return None if event is None else self._check(event)

    def of_decision(self, decision: str) -> list[Event]:
        """Return all events of a decision, in order."""
        unsaved = list(self._unsaved)  # first: what is forgotten from now on is on disk
        stored = [self._check(event) for event in self._store.events_of_decision(self._stream, decision)]
        last = stored[-1].number if stored else 0  # events may be on disk and not forgotten yet
        return stored + [event for event in unsaved if event.decision == decision and event.number > last]

    def _first_unsaved(self) -> float:
        try:
            return self._unsaved[0].number
        except IndexError:
            return math.inf

    def _check(self, event: Event) -> Event:
        """Return an event that is new or matches the chain value stored with its predecessor."""
        try:
            if event.number < self._first_unsaved():
                check_event(self._store.read_chain(self._stream, event.number - 1) or b"", event)
            return event
        except UnreadableEventError as error:
            raise Problem("unreadable", f"{error}; run `windvane verify` for details") from None
