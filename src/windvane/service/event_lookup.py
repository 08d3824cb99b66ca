"""Finding the events of a stream by decision or by key, whether they are on disk yet or not."""

from __future__ import annotations

from collections import deque

from windvane.service.problems import Problem
from windvane.service.store import Event, Store, UnreadableEventError, check_event


class EventLookup:
    """Events of one stream: those not on disk yet from memory, the others from ``store``.

    The engine bounds how many events wait for the disk, and so what is kept here.
    """

    def __init__(self, store: Store, stream: int) -> None:
        self._store, self._stream = store, stream
        self._unsaved: deque[Event] = deque()
        self._keys: dict[str, Event] = {}  # of the unsaved ones

    def add(self, event: Event) -> None:
        """Add an event that is about to be stored."""
        self._unsaved.append(event)
        if event.key is not None:
            self._keys[event.key] = event

    def forget(self, number: int) -> None:
        """Forget the events up to ``number``, which are on disk."""
        while self._unsaved and self._unsaved[0].number <= number:
            event = self._unsaved.popleft()
            if event.key is not None:
                del self._keys[event.key]

    def with_key(self, key: str) -> Event | None:
        """Return the event of the request that had this key."""
        event = self._keys.get(key)
        if event is None:
            event = self._store.event_with_key(self._stream, key)
            if event is not None:
                self._check(event)
        return event

    def of_decision(self, decision: str) -> list[Event]:
        """Return all events of a decision, in order."""
        stored = self._store.events_of_decision(self._stream, decision)
        for event in stored:
            self._check(event)
        unsaved = [event for event in self._unsaved if event.decision == decision]
        return list({event.number: event for event in (*stored, *unsaved)}.values())

    def _check(self, event: Event) -> None:
        """Check an event against the chain value that is stored with the one before it."""
        try:
            check_event(self._store.read_chain(self._stream, event.number - 1) or b"", event)
        except UnreadableEventError as error:
            raise Problem("unreadable", f"{error}; `windvane verify` says more") from None
